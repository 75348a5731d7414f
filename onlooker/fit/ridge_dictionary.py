"""Which units: chosen once, on a sample of rows; everything later is sums over rows with these units.

1. The frame (`ridge_frame`), and the weights of steep rows (`steepness`).
2. The quadratic.
3. Units on single coordinates that pass a score test (`coordinate_units`).
4. Atoms: directions that occur again and again among gradients of single data rows (`atoms`).
5. The active subspace of what is left (`active_subspace`): up to three directions by log cosh units and variable
   projection, more by cosines of random frequencies in its metric (`random_cosines`).
6. Again, while the held-out error falls.

Candidates that held-out rows cannot tell apart, by paired differences over agents, are all kept, and averaged.
"""

from typing import NamedTuple

import numpy as np

from onlooker.fit.active_subspace import Active, active_subspace, pursue
from onlooker.fit.atoms import find_atoms
from onlooker.fit.coordinate_units import coordinate_units, passing
from onlooker.fit.random_cosines import Metric, cosines, metrics
from onlooker.fit.ridge_frame import Frame, Pairs, Rows, neighbours, sampled, significantly_alike, successive
from onlooker.fit.ridge_system import Head, solve
from onlooker.fit.ridge_units import Units, bends, gather, joined_units, no_units, predicted
from onlooker.fit.steepness import Steepness, first_fit, growth
from onlooker.fit.variable_projection import project

__all__ = ["Dictionary", "choose"]

# Candidates of more units than these are compared by fits to fewer rows.
MANY_UNITS, FEWER_ROWS = 256, 1 << 16
# Held-out rows that compare candidates, and the groups they are in if agents are not known.
HELD_ROWS, GROUPS = 1 << 15, 50
# Rows, and cosines, with which metrics and lengths are compared.
TRIED_ROWS, TRIED_COSINES = 1 << 15, 384
# Cosines of a candidate, and of one of several or from few rows.
COSINES, FEWER_COSINES, FEW_ROWS = 1024, 640, 40_000
# Lengths of cosines, in standard deviations of the points: the first that is tried, the steps from it, and the range.
LENGTH, STEP, LENGTHS = 3.2, 1.78, (0.5, 20.0)
# Log cosh units by the number of directions, at most so many from few rows; and how sharply they turn at first.
BENDS, FEWER_BENDS, SHARPNESS = {1: 16, 2: 64, 3: 128}, 64, (0.7, 3.0)
# Rows of variable projection: along one direction it takes little time, along more it has fewer.
PROJECTED_ROWS = 1 << 16
# Share of the largest eigenvalue of M above which a direction is strong: up to three are tried with log cosh units; and
# the singular value of directions above which they count as different.
STRONG, APART = 0.05, 0.3
# Relative fall of the held-out error that is worth another round, and the most rounds.
WORTH, ROUNDS = 2e-5, 3
# Paired standard errors by which atoms must be better than none, and share of what was left that they may leave.
ATOMS_BETTER, ATOMS_LEAVE = 2.0, 0.5
# Largest number of averaged candidates.
MOST_MEMBERS = 3


class Dictionary(NamedTuple):
    """Chosen units.

    Attributes
    ----------
    frame
        White coordinates.
    steepness
        Weights of steep rows.
    members
        The units of every candidate kept.
    directions
        Number of directions found; 0 if R̂ is a quadratic with units on coordinates.
    found
        How directions were looked for: by "successive" rows of agents, "neighbours" of different agents, or "none".
    misfit
        Largest eigenvalue of what the best candidate leaves, over its chance level; nan if not known.
    quadratic_error
        Held-out error of the quadratic alone.
    """

    frame: Frame
    steepness: Steepness
    members: tuple[Units, ...]
    directions: int
    found: str
    misfit: float
    quadratic_error: float


class Candidate(NamedTuple):
    """Units, their head, and their loss on each group of held-out rows."""

    units: Units
    head: Head
    losses: np.ndarray

    @property
    def loss(self) -> float:
        """Mean held-out loss."""
        return float(self.losses.mean())

    def better(self, other: "Candidate", by: float = 0.0) -> bool:
        """Whether the mean loss is lower by this number of paired standard errors."""
        gain = other.losses - self.losses
        return bool(gain.mean() > by * gain.std() / np.sqrt(len(gain)))


def best_of(candidates: list[Candidate]) -> Candidate:
    """The candidate of least held-out loss."""
    return min(candidates, key=lambda one: one.loss)


class Search:
    """The choice of units on one sample.

    Parameters
    ----------
    points
        Raw points of the fitted rows.
    rows
        The fitted rows.
    held
        Held-out rows.
    owners
        The agent, or group, of each held-out row.
    frame
        The frame.
    pairs
        Pairs of fitted rows of independent noise and alike gradients; ``None`` if there are none.
    seed
        Seed of random directions.
    """

    def __init__(
        self,
        points: np.ndarray,
        rows: Rows,
        held: Rows,
        owners: np.ndarray,
        frame: Frame,
        pairs: Pairs | None,
        seed: int,
    ):
        self.points, self.rows, self.held, self.frame, self.pairs, self.seed = points, rows, held, frame, pairs, seed
        self.dim = rows.z.shape[1]
        self.precision = frame.precision
        self.owners = np.unique(owners, return_inverse=True)[1]
        self.generator = np.random.default_rng(seed)
        self.candidates: list[Candidate] = []
        self.directions = 0

    def candidate(self, units: Units, most: int | None = None) -> Candidate:
        """Solve for units on at most so many of the fitted rows."""
        rows, held, owners = self.rows, self.held, self.owners
        most = most or (FEWER_ROWS if units.number > MANY_UNITS else len(rows.z))
        _, head = solve(gather(units, *rows.at_most(most)), gather(units, *held), units, self.precision)
        left = held.y - predicted(head.affine, units, head.weights, held.z)
        loss = held.weights * ((left**2) @ self.precision.astype(np.float32)) / self.dim
        groups = owners.max() + 1
        return Candidate(units, head, np.bincount(owners, loss, groups) / held.weights.sum() * groups)

    def left(self, best: Candidate) -> np.ndarray:
        """Residuals of the fitted rows."""
        return self.rows.y - predicted(best.head.affine, best.units, best.head.weights, self.rows.z)

    def active(self, best: Candidate) -> Active | None:
        """The active subspace of what a candidate leaves."""
        if self.pairs is None:
            return None
        return active_subspace(self.left(best), self.rows.weights, self.precision, self.pairs, self.seed)

    def with_coordinates(self, base: Candidate) -> Candidate:
        """The candidate with those units on single coordinates that pass a score test, if that is better."""
        chosen = passing(coordinate_units(self.frame, self.points), self.rows, self.left(base), self.precision)
        if not chosen.number:
            return base
        found = self.candidate(joined_units(chosen, base.units))
        return found if found.better(base) else base

    def with_atoms(self, owned: Candidate) -> Candidate | None:
        """The candidate with atoms, if there are any and they explain what coordinates leave."""
        atoms = find_atoms(self.frame, self.rows, owned, self.points, self.seed)
        if atoms is None:
            return None
        found = self.with_coordinates(best_of([self.candidate(units) for units in atoms]))
        before, after = self.active(owned), self.active(found)
        # Atoms that are there leave little; chance ones explain little.
        enough = before is None or after is None or not after.number
        if after is not None and before is not None:
            enough = enough or after.values[0] < ATOMS_LEAVE * before.values[0]
        return found if enough and found.better(owned, ATOMS_BETTER) else None

    def bent(self, best: Candidate, axes: np.ndarray) -> Candidate:
        """The candidate with log cosh units on a few directions (k, dim)."""
        few, rows, generator = len(axes), self.rows, self.generator
        number = BENDS[few] if len(rows.z) >= FEW_ROWS else min(FEWER_BENDS, BENDS[few])
        inner = generator.standard_normal((number, few)) if few > 1 else np.ones((number, 1))
        low, high = np.log(SHARPNESS)
        sharp = np.exp(generator.uniform(low, high, number))
        inner *= (sharp / np.linalg.norm(inner @ axes, axis=1))[:, None]
        if few == 1:
            offsets = -np.quantile(rows.z[:20_000] @ axes[0], np.linspace(0.03, 0.97, number)) * inner[:, 0]
        else:
            offsets = -(rows.z[generator.integers(0, len(rows.z), number)] * (inner @ axes)).sum(axis=1)
        # The quadratic is solved again with them; the other units stay as they are meanwhile.
        nothing = np.zeros((self.dim, self.dim + 1))
        rest = rows.y - predicted(nothing, best.units, best.head.weights, rows.z)
        some = Rows(rows.z, rest, rows.weights).at_most(PROJECTED_ROWS if few > 1 else len(rows.z))
        start, held = bends(np.column_stack([inner @ axes, offsets])), self.held
        out = held.y - predicted(nothing, best.units, best.head.weights, held.z)
        _, head = solve(gather(start, *some), gather(start, held.z, out, held.weights), start, self.precision)
        moved = project(inner, axes, offsets, some, self.precision, float(head.precisions[-1]))
        return self.candidate(joined_units(best.units, bends(moved)))

    def wavy(self, best: Candidate, active: Active | None) -> list[Candidate]:
        """Candidates with random cosines: the best metrics and lengths, tried on fewer rows and units."""
        known = metrics(self.frame, active)
        few = min(TRIED_COSINES, max(128, len(self.rows.z) // 8))
        tried: dict[tuple[str, float], Candidate] = {}

        def units(name: str, length: float, number: int) -> Units:
            metric: Metric = known[name]
            return joined_units(best.units, cosines(metric, length, number, self.seed + 1))

        def attempt(name: str, length: float) -> float:
            if (name, length) not in tried:
                tried[name, length] = self.candidate(units(name, length, few), TRIED_ROWS)
            return tried[name, length].loss

        name = min(known, key=lambda name: attempt(name, LENGTH))
        for step in (STEP, 1 / STEP):
            length = LENGTH
            while LENGTHS[0] < length < LENGTHS[1] and attempt(name, length * step) < attempt(name, length):
                length *= step
            if length != LENGTH:
                break
        ranked = sorted(tried, key=lambda key: tried[key].loss)
        top = tried[ranked[0]]
        alike = [key for key in ranked if key == ranked[0] or not top.better(tried[key], 1.0)][:MOST_MEMBERS]
        number = COSINES if len(self.rows.z) > FEW_ROWS and len(alike) == 1 else FEWER_COSINES
        return [self.candidate(units(*key, number)) for key in alike]

    def run(self) -> Candidate:
        """Try everything; the best candidate."""
        quadratic = self.candidate(no_units(self.dim))
        owned = self.with_coordinates(quadratic)
        self.candidates = [quadratic] if owned is quadratic else [quadratic, owned]
        best = self.with_atoms(owned) or owned
        active = self.active(best)
        late = False
        if best is not owned:
            self.candidates.append(best)
        elif owned is not quadratic:
            # Where R varies along other directions, units on coordinates imitate them badly: they come last.
            plain = self.active(quadratic)
            if active is not None and plain is not None and active.number >= plain.number:
                best, active, late = quadratic, plain, True
        found: list[np.ndarray] = []
        start, first, waved = best, active, False
        for turn in range(ROUNDS):
            if turn:
                active = self.active(best)
            axes = np.zeros((0, self.dim)) if active is None else active.axes[: active.number]
            if len(axes) <= 1:
                single = pursue(self.rows, self.left(best), self.precision, self._starts(best, active))
                axes = axes if single is None else single[None]
            if not len(axes):
                break
            few = axes[: 1 if active is None else max(1, int((active.values > STRONG * active.values[0]).sum()))]
            new = [self.bent(best, few[:3])] if len(few) <= 3 or turn else []
            if len(axes) >= 2 and not turn and not (new and self._explained(new[0])):
                new += self.wavy(best, active)
                waved = True
            top = best_of(new)
            if late and not turn:
                top = self.with_coordinates(top)
                new = [*new, top]
            self.candidates += new
            if best.loss - top.loss < WORTH * best.loss:
                break
            best = top
            found.append(axes)
        if found and not waved and not self._explained(best):
            # One direction after another was not enough.
            self.candidates += self.wavy(start, first)
        if found:
            # Directions of a later round may be those of an earlier one, a little turned.
            self.directions = int((np.linalg.svd(np.concatenate(found), compute_uv=False) > APART).sum())
        if self.pairs is None and not self.directions:
            self.candidates += [one for one in self.wavy(best, None) if one.better(best, 2.0)]
        return quadratic

    def _explained(self, candidate: Candidate) -> bool:
        """Whether a candidate leaves nothing that its lagged residuals would show."""
        after = self.active(candidate)
        return after is not None and not after.number

    def kept(self) -> list[Candidate]:
        """The best candidate and those that held-out rows cannot tell from it."""
        best = best_of(self.candidates)
        ranked = sorted(self.candidates, key=lambda one: one.loss)
        alike = [one for one in ranked if one is best or not best.better(one, 1.0)]
        # A quadratic that explains as much as units do is preferred to an average with them.
        plain = [one for one in alike if not one.units.number]
        return plain[:1] or alike[:MOST_MEMBERS]

    def _starts(self, best: Candidate, active: Active | None) -> np.ndarray:
        """Directions from which pursuit starts: axes of M and of the quadratic, in both coordinates; random ones."""
        curvature, frame = best.head.affine[:, :-1], self.frame
        inside = np.linalg.eigh(curvature)[1].T
        raw = np.linalg.eigh(frame.forward.T @ curvature @ frame.forward)[1].T @ frame.backward
        parts = [inside, raw, self.generator.standard_normal((8, self.dim))]
        return np.concatenate([*([] if active is None else [active.axes[:7]]), *parts])


def choose(
    points: np.ndarray, gradients: np.ndarray, held: np.ndarray, agents: np.ndarray | None, seed: int
) -> Dictionary:
    """Choose units on rows (n, dim); ``agents`` (n,) if they are known."""
    points, gradients, held, agents = sampled(points, gradients, held, agents, seed)
    inner, outer = (points[~held], gradients[~held]), (points[held], gradients[held])
    owners = None if agents is None else agents[~held]
    pairs = successive(owners)
    found = "successive" if significantly_alike(inner[1], pairs) else "none"
    frame, steepness = first_fit(*inner, *outer, pairs if found == "successive" else None, seed)
    z = frame.points(inner[0])
    y = frame.gradients(inner[1])
    rows = Rows(z, y, steepness.weights(z, y))
    if found == "none" and owners is not None:
        pairs = neighbours(z, owners, seed)
        found = "neighbours" if significantly_alike(inner[1], pairs) else "none"
    step = -(-len(outer[0]) // HELD_ROWS)
    out = frame.points(outer[0][::step])
    there = frame.gradients(outer[1][::step])
    outside = Rows(out, there, steepness.weights(out, there))
    groups = np.arange(len(out)) * GROUPS // len(out) if agents is None else agents[held][::step]
    search = Search(inner[0], rows, outside, groups, frame, pairs if found != "none" else None, seed)
    quadratic = search.run()
    kept = search.kept()
    if steepness.growth:
        # What the chosen units leave on steep rows, in place of what the first fit left.
        left = outside.y - predicted(kept[0].head.affine, kept[0].units, kept[0].head.weights, outside.z)
        steepness = steepness._replace(growth=growth(left, steepness.slope(outside.z), frame.precision))
    last = search.active(kept[0])
    return Dictionary(
        frame,
        steepness,
        tuple(one.units for one in kept),
        search.directions,
        found,
        float("nan") if last is None else last.misfit,
        quadratic.loss,
    )
