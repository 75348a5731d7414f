"""Which units: chosen once, on a sample of rows; everything later is sums over rows with these units.

1. The frame (`ridge_frame`), and the weights of steep rows (`steepness`).
2. The quadratic.
3. Units on single coordinates that pass a score test (`coordinate_units`).
4. Atoms: directions that occur again and again among gradients of single data rows (`atoms`).
5. The active subspace of what is left (`active_subspace`): up to three directions by log cosh units and variable
   projection, again and again while the held-out error falls.
6. If that leaves something, cosines of random frequencies in the metric of the active subspace (`random_cosines`), and
   log cosh units that are trained from several starts (`trained_units`).

The candidates are averaged, with the shares that predict held-out rows best (`stacking`).
"""

from typing import NamedTuple

import numpy as np

from onlooker.fit.active_subspace import Active, pursue
from onlooker.fit.atoms import FEWEST_DIMENSIONS, drawn_atoms, find_atoms
from onlooker.fit.coordinate_units import coordinate_units, passing
from onlooker.fit.random_cosines import LEAST_RATE, Metric, cosines, metrics
from onlooker.fit.ridge_candidates import Candidate, Sample, best_of, significantly
from onlooker.fit.ridge_frame import Frame, Rows, neighbours, sampled, significantly_alike, successive
from onlooker.fit.ridge_system import solve
from onlooker.fit.ridge_units import Units, bends, gather, joined_units, no_units, predicted
from onlooker.fit.stacking import stacked, stacked_losses
from onlooker.fit.steepness import Steepness, first_fit, growth
from onlooker.fit.trained_units import trained
from onlooker.fit.variable_projection import project

__all__ = ["Dictionary", "choose"]

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
# Metrics and lengths that are kept if they are alike, starts of trained units, and steps that show if they are needed.
MOST_WAVY, STARTS, FEWER_STEPS = 3, 3, 1000
# Share of the largest eigenvalue of M above which a direction is strong: up to three are tried with log cosh units; and
# the singular value of directions above which they count as different.
STRONG, APART = 0.05, 0.3
# Relative fall of the held-out error that is worth another round, and the most rounds.
WORTH, ROUNDS = 2e-5, 3
# Paired standard errors by which directions and units that no lagged residuals ask for must lower the held-out error.
SURE = 3.0
# Paired standard errors by which atoms must be better than none, and share of what was left that they may leave.
ATOMS_BETTER, ATOMS_LEAVE = 2.0, 0.5
# Paired standard errors by which units must be better than none if no lagged residuals tell whether they are needed;
# and knots better than kinks alone.
UNITS_BETTER = 2.0
# Largest number of averaged candidates.
MOST_MEMBERS = 6


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
    shares
        How much each counts in their mean.
    gain
        The held-out error of their mean over the mean of their errors.
    directions
        Number of directions found; 0 if R̂ is a quadratic with units on coordinates.
    found
        How directions were looked for: by "successive" rows of agents, "neighbours" of different agents, or "none".
    misfit
        Largest eigenvalue of what the mean leaves, over its chance level; nan if not known.
    quadratic_error
        Held-out error of the quadratic alone.
    """

    frame: Frame
    steepness: Steepness
    members: tuple[Units, ...]
    shares: np.ndarray
    gain: float
    directions: int
    found: str
    misfit: float
    quadratic_error: float


class Kept(NamedTuple):
    """The candidates that are averaged, and their shares."""

    candidates: list[Candidate]
    shares: np.ndarray
    gain: float

    def left(self, sample: Sample, rows: Rows) -> np.ndarray:
        """What the mean leaves of rows (n, dim)."""
        total = np.zeros_like(rows.y)
        for share, one in zip(self.shares, self.candidates, strict=True):
            total += np.float32(share) * sample.left(one, rows)
        return total


class Search:
    """The choice of units on one sample.

    Attributes
    ----------
    nested
        Candidates each of which has the units of some earlier one.
    general
        Candidates that do without directions.
    directions
        Number of directions found.
    """

    def __init__(self, sample: Sample) -> None:
        self.sample, self.dim, self.rows = sample, sample.dim, sample.rows
        self.generator = np.random.default_rng(sample.seed)
        self.nested: list[Candidate] = []
        self.general: list[Candidate] = []
        self.directions = 0

    def run(self) -> Kept:
        """Try everything; the candidates to keep. The first that is tried is the quadratic."""
        quadratic = self.sample.candidate(no_units(self.dim))
        owned, _ = self.with_coordinates(quadratic)
        self.nested = [quadratic] if owned is quadratic else [quadratic, owned]
        atoms = self.with_atoms(owned)
        self.nested += [atoms] if atoms else []
        start, active = atoms or owned, self.active(atoms or owned)
        if not atoms and owned is not quadratic:
            # Where R varies along other directions, units on coordinates imitate them badly: they come last.
            plain = self.active(quadratic)
            if active is not None and plain is not None and active.number >= plain.number:
                start, active = quadratic, plain
        best = self.along_directions(start, active)
        base = atoms or quadratic
        if self.lacking(best, base):
            self.general = self.along_all(base)
        elif self.directions > 1 and best is not base:
            # Two kinds of units along the same few directions err differently.
            self.general = self.wavy(base, few=True)
        elif start is quadratic and (better := self.with_coordinates(best)[0]) is not best:
            self.nested.append(better)
        elif not atoms and best.units.number and self.dim >= FEWEST_DIMENSIONS:
            drawn = drawn_atoms(self.sample.frame, self.rows, owned, self.sample.points, self.sample.seed)
            found = self.sample.candidate(joined_units(drawn, best.units))
            self.nested += [found] if found.better(best, SURE) else []
        return self.kept()

    def lacking(self, best: Candidate, base: Candidate) -> bool:
        """Whether something is left that lagged residuals show, or units that are trained for a while find."""
        active = self.active(best)
        if active.number if active is not None else len(self.rows.z) < FEW_ROWS:
            return True
        return self.trained(base, 0, FEWER_STEPS).better(best, SURE)

    def active(self, best: Candidate) -> Active | None:
        """The active subspace of what a candidate leaves."""
        return self.sample.active(self.sample.left(best, self.rows))

    def coordinates(self, base: Candidate, kinks: bool) -> Units:
        """Those units on single coordinates that pass a score test on what a candidate leaves."""
        sample, left = self.sample, self.sample.left(base, self.rows)
        return passing(coordinate_units(sample.frame, sample.points, kinks), self.rows, left, sample.precision)

    def with_coordinates(self, base: Candidate) -> tuple[Candidate, Units]:
        """The candidate with those of them that are better than none, and these units.

        A few kinks stand for many knots: they come first.
        """
        best, added = base, no_units(self.dim)
        for kinks in (True, False):
            chosen = self.coordinates(best, kinks)
            if chosen.number:
                found = self.sample.candidate(joined_units(chosen, best.units))
                if found.better(best, UNITS_BETTER if added.number else 0.0):
                    best, added = found, joined_units(chosen, added)
        return best, added

    def with_atoms(self, owned: Candidate) -> Candidate | None:
        """The candidate with atoms, if there are any and they explain what coordinates leave."""
        sample = self.sample
        atoms = find_atoms(sample.frame, self.rows, owned, sample.points, sample.seed)
        if atoms is None:
            return None
        found, _ = self.with_coordinates(sample.candidate(atoms))
        before, after = self.active(owned), self.active(found)
        # Atoms that are there leave little; chance ones explain little.
        enough = before is None or after is None or not after.number
        if after is not None and before is not None:
            enough = enough or after.values[0] < ATOMS_LEAVE * before.values[0]
        return found if enough and found.better(owned, ATOMS_BETTER) else None

    def along_directions(self, best: Candidate, active: Active | None) -> Candidate:
        """The candidate with units along a few directions, round after round."""
        found: list[np.ndarray] = []
        for turn in range(ROUNDS):
            axes = np.zeros((0, self.dim)) if active is None else active.axes[: active.number]
            seen = len(axes)
            strong = 1 if active is None else max(1, int((active.values[:seen] > STRONG * active.values[0]).sum()))
            if seen <= 1:
                start = self._starts(best, active)
                single = pursue(self.rows, self.sample.left(best, self.rows), self.sample.precision, start)
                axes = axes if single is None else single[None]
            if not len(axes) or (strong > max(BENDS) and not turn):
                break
            new = self.bent(best, axes[: min(strong, max(BENDS))])
            if best.loss - new.loss < WORTH * best.loss or not (seen or new.better(best, SURE)):
                break
            self.nested.append(new)
            best, active = new, self.active(new)
            found.append(axes)
        if active is not None and active.number and not found:
            found.append(active.axes[: active.number])
        if found:
            # Directions of a later round may be those of an earlier one, a little turned.
            self.directions = int((np.linalg.svd(np.concatenate(found), compute_uv=False) > APART).sum())
        return best

    def bent(self, best: Candidate, axes: np.ndarray) -> Candidate:
        """The candidate with log cosh units on a few directions (k, dim)."""
        few, rows, generator, sample = len(axes), self.rows, self.generator, self.sample
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
        some = Rows(rows.z, self._rest(best, rows), rows.weights)
        some = some.at_most(PROJECTED_ROWS if few > 1 else len(rows.z))
        start, held = bends(np.column_stack([inner @ axes, offsets])), sample.held
        out = gather(start, held.z, self._rest(best, held), held.weights)
        _, head = solve(gather(start, *some), out, start, sample.precision)
        moved = project(inner, axes, offsets, some, sample.precision, float(head.precisions[-1]))
        return sample.candidate(joined_units(best.units, bends(moved)))

    def _rest(self, best: Candidate, rows: Rows) -> np.ndarray:
        """What the units of a candidate leave of rows, its quadratic apart."""
        nothing = np.zeros((self.dim, self.dim + 1))
        return rows.y - predicted(nothing, best.units, best.head.weights, rows.z) if best.units.number else rows.y

    def along_all(self, base: Candidate) -> list[Candidate]:
        """Candidates that vary along all directions; if no lagged residuals ask for them, those much better."""
        found = [*self.wavy(base), *(self.trained(base, start) for start in range(STARTS))]
        best = best_of(found)
        _, added = self.with_coordinates(best)
        if added.number:
            found = [self.sample.candidate(joined_units(added, one.units)) for one in found]
        return [one for one in found if one.better(base, UNITS_BETTER)] if self.sample.pairs is None else found

    def trained(self, base: Candidate, start: int, most_steps: int | None = None) -> Candidate:
        """The candidate with trained units from one of several starts."""
        sample, active, metric = self.sample, self.active(base), np.eye(self.dim)
        if active is not None:
            size = np.sqrt(np.maximum(active.values, 0) / active.values[0])
            metric = np.maximum(size, LEAST_RATE)[:, None] * active.axes
        rows = Rows(self.rows.z, self._rest(base, self.rows), self.rows.weights)
        units = trained(rows, sample.precision, metric, base.head.affine, sample.seed + start, most_steps)
        return sample.candidate(joined_units(base.units, units))

    def wavy(self, base: Candidate, few: bool = False) -> list[Candidate]:
        """Candidates with random cosines: the best metrics and lengths, tried on fewer rows and units.

        With ``few``, only the metric of the significant directions is tried, if there is one.
        """
        known = metrics(self.sample.frame, self.active(base))
        if few:
            known = {name: metric for name, metric in known.items() if name == "few"}
        if not known:
            return []
        enough = min(TRIED_COSINES, max(128, len(self.rows.z) // 8))
        tried: dict[tuple[str, float], Candidate] = {}

        def units(name: str, length: float, number: int) -> Units:
            metric: Metric = known[name]
            return joined_units(base.units, cosines(metric, length, number, self.sample.seed + 1))

        def attempt(name: str, length: float) -> float:
            if (name, length) not in tried:
                tried[name, length] = self.sample.candidate(units(name, length, enough), TRIED_ROWS)
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
        alike = [key for key in ranked if key == ranked[0] or not top.better(tried[key], 1.0)][:MOST_WAVY]
        number = COSINES if len(self.rows.z) > FEW_ROWS and len(alike) == 1 else FEWER_COSINES
        return [self.sample.candidate(units(*key, number)) for key in alike]

    def kept(self) -> Kept:
        """The candidates to average, and their shares."""
        best = best_of(self.nested)
        alike = [one for one in self.nested if not best.better(one, 1.0)]
        pool = sorted([*alike, *self.general], key=lambda one: one.loss)[:MOST_MEMBERS]
        products = self.sample.products(pool)
        shares = stacked(products, self.sample.seed)
        losses = stacked_losses(products, shares)
        # A quadratic that explains as much as units do is preferred to an average with them.
        for one in pool:
            if not one.units.number and not significantly(one.losses - losses, 1.0):
                return Kept([one], np.ones(1), 1.0)
        chosen = np.flatnonzero(shares)
        gain = losses.mean() / (shares @ [one.loss for one in pool])
        return Kept([pool[number] for number in chosen], shares[chosen], float(gain))

    def _starts(self, best: Candidate, active: Active | None) -> np.ndarray:
        """Directions from which pursuit starts: axes of M and of the quadratic, in both coordinates; random ones."""
        curvature, frame = best.head.affine[:, :-1], self.sample.frame
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
    sample = Sample(inner[0], rows, outside, groups, frame, pairs if found != "none" else None, seed)
    search = Search(sample)
    kept = search.run()
    if steepness.growth:
        # What the chosen units leave on steep rows, in place of what the first fit left.
        left = kept.left(sample, outside)
        steepness = steepness._replace(growth=growth(left, steepness.slope(outside.z), frame.precision))
    last = sample.active(kept.left(sample, rows))
    return Dictionary(
        frame,
        steepness,
        tuple(one.units for one in kept.candidates),
        kept.shares,
        kept.gain,
        search.directions if any(one.units.number for one in kept.candidates) else 0,
        found,
        float("nan") if last is None else last.misfit,
        search.nested[0].loss,
    )
