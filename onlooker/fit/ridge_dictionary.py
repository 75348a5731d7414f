"""Which units: chosen once, on a sample of rows; everything later is sums over rows with these units.

1. The frame, and the weights of steep rows (`ridge_frame`).
2. The quadratic.
3. Units on single coordinates that pass a score test: kinks and walls of priors.
4. Atoms: directions that occur again and again among gradients of single data rows.
5. The active subspace of what is left (`active_subspace`): up to three directions by log cosh units and variable
   projection, more by cosines of random frequencies in its metric.
6. Again, while the held-out error falls.

Candidates that held-out rows cannot tell apart, by paired differences over agents, are all kept, and averaged.
"""

from typing import NamedTuple

import numpy as np

from onlooker.fit.active_subspace import Active, active_subspace, pursue
from onlooker.fit.atoms import find_atoms
from onlooker.fit.ridge_frame import (
    Frame,
    Pairs,
    Steepness,
    even,
    neighbours,
    robust_frame,
    significantly_alike,
    successive,
)
from onlooker.fit.ridge_system import Head, solve
from onlooker.fit.ridge_units import Units, gather, joined_units, no_units, predicted
from onlooker.fit.variable_projection import project

__all__ = ["Dictionary", "choose"]

# Rows that the dictionary is chosen on.
MOST_ROWS = 1 << 18
BLOCK = 16_384
# Rows, and cosines, with which metrics and lengths are compared.
TRIED_ROWS, TRIED_WAVES = 2 * BLOCK, 384
# Rows at most of candidates with many cosines, and held-out rows that compare candidates.
WAVY_ROWS, HELD_ROWS = 4 * BLOCK, 2 * BLOCK
# Rows of the first fit, which sets weights, and its cosines.
FIRST_ROWS, FIRST_WAVES = 2 * BLOCK, 128
# Rows beyond this many times the noise count less in the first fit.
STEEP = 4.0
# Weights are equal unless squared residuals of the steepest rows exceed the usual ones by this factor.
LEAST_GROWTH = 1.7
# Lengths of cosines, in standard deviations of the points: the first that is tried, and the steps from it.
LENGTH, STEP = 3.2, 1.78
# Log cosh units by the number of directions.
UNITS = {1: 16, 2: 64, 3: 128}
# Relative fall of the held-out error that is worth another round, and the most rounds.
WORTH, ROUNDS = 2e-5, 3
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


class Rows(NamedTuple):
    """Rows in the frame."""

    z: np.ndarray
    y: np.ndarray
    weights: np.ndarray

    def at_most(self, count: int) -> "Rows":
        """Evenly chosen rows."""
        step = -(-len(self.z) // count)
        return Rows(*(part[::step] for part in self))


class Candidate(NamedTuple):
    """Units, their head, and their loss on each group of held-out rows."""

    units: Units
    head: Head
    losses: np.ndarray

    def better(self, other: "Candidate", by: float = 0.0) -> bool:
        """Whether the mean loss is lower by this number of paired standard errors."""
        gain = other.losses - self.losses
        return bool(gain.mean() > by * gain.std() / np.sqrt(len(gain)))


class Search:
    """The choice of units on one sample."""

    def __init__(self, rows: Rows, held: Rows, owners: np.ndarray, frame: Frame, pairs: Pairs | None, seed: int):
        self.rows, self.held, self.frame, self.pairs, self.seed = rows, held, frame, pairs, seed
        self.dim = rows.z.shape[1]
        self.precision = frame.precision
        self.owners = np.unique(owners, return_inverse=True)[1]
        self.generator = np.random.default_rng(seed)

    def candidate(self, units: Units, most: int | None = None) -> Candidate:
        """Solve for units on at most so many of the fitted rows."""
        rows, held, owners = self.rows, self.held, self.owners
        most = most or (WAVY_ROWS if len(units.waves) else len(rows.z))
        _, head = solve(gather(units, *rows.at_most(most)), gather(units, *held), units, self.precision)
        left = held.y - predicted(head.affine, units, head.weights, held.z)
        loss = held.weights * ((left**2) @ self.precision.astype(np.float32)) / self.dim
        groups = owners.max() + 1
        return Candidate(units, head, np.bincount(owners, loss, groups) / held.weights.sum() * groups)

    def left(self, best: Candidate) -> np.ndarray:
        """Residuals of the fitted rows."""
        return self.rows.y - predicted(best.head.affine, best.units, best.head.weights, self.rows.z)

    def active(self, residuals: np.ndarray) -> Active | None:
        if self.pairs is None:
            return None
        return active_subspace(residuals, self.rows.weights, self.precision, self.pairs, self.seed)

    def with_own(self, base: Candidate, points: np.ndarray) -> Candidate:
        """The candidate with those units on single coordinates that pass a score test, if that is better."""
        chosen = passing(own_units(self.frame, points), self.rows, self.left(base), self.precision)
        if not chosen.number:
            return base
        found = self.candidate(joined_units(chosen, base.units))
        return found if found.better(base) else base

    def bent(self, best: Candidate, axes: np.ndarray) -> Candidate:
        """The candidate with log cosh units on a few directions."""
        few, rows, generator = len(axes), self.rows, self.generator
        count = UNITS[few] if len(rows.z) >= 30_000 else min(64, UNITS[few])
        inner = generator.standard_normal((count, few)) if few > 1 else np.ones((count, 1))
        sharp = np.exp(generator.uniform(np.log(0.7), np.log(3.0), count))
        inner *= (sharp / np.linalg.norm(inner @ axes, axis=1))[:, None]
        if few == 1:
            offsets = -np.quantile(rows.z[:20_000] @ axes[0], np.linspace(0.03, 0.97, count)) * inner[:, 0]
        else:
            offsets = -(rows.z[generator.integers(0, len(rows.z), count)] * (inner @ axes)).sum(axis=1)
        start = self.candidate(joined_units(best.units, bends(np.column_stack([inner @ axes, offsets]))))
        others = start.units.groups != start.units.groups.max()
        fixed = start.head.weights * others
        rest = (
            rows.y - predicted(np.zeros((self.dim, self.dim + 1)), start.units, fixed, rows.z)
            if others.any()
            else rows.y
        )
        whole = max(len(rows.z) // BLOCK * BLOCK, 1) if len(rows.z) >= BLOCK else len(rows.z)
        if few > 1:
            whole = min(whole, 8 * BLOCK)
        penalty = float(start.head.precisions[-1])
        moved = project(
            inner, axes, offsets, (rows.z[:whole], rest[:whole], rows.weights[:whole]), self.precision, penalty
        )
        found = self.candidate(joined_units(best.units, bends(moved)))
        return found if found.better(start) else start

    def wavy(self, best: Candidate, active: Active | None) -> list[Candidate]:
        """Candidates with cosines of random frequencies: best metrics and lengths, tried on fewer rows and units."""
        metrics = self.metrics(active)
        count = min(TRIED_WAVES, max(128, len(self.rows.z) // 8))
        tried: dict[tuple[str, float], Candidate] = {}

        def attempt(name: str, length: float) -> float:
            if (name, length) not in tried:
                tried[name, length] = self.candidate(
                    joined_units(best.units, self.waves(metrics[name], length, count)), TRIED_ROWS
                )
            return float(tried[name, length].losses.mean())

        name = min(metrics, key=lambda name: attempt(name, LENGTH))
        for step in (STEP, 1 / STEP):
            length = LENGTH
            while 0.5 < length < 20 and attempt(name, length * step) < attempt(name, length):
                length *= step
            if length != LENGTH:
                break
        ranked = sorted(tried, key=lambda key: tried[key].losses.mean())
        top = tried[ranked[0]]
        alike = [key for key in ranked if key == ranked[0] or not top.better(tried[key], 1.0)][:MOST_MEMBERS]
        count = 1024 if len(self.rows.z) > 40_000 else 640
        return [
            self.candidate(joined_units(best.units, self.waves(metrics[name], length, count))) for name, length in alike
        ]

    def metrics(self, active: Active | None) -> dict[str, np.ndarray]:
        """Square roots (dim, dim) of the covariance of frequencies, rows being directions; sparse ones have a sign."""
        dim = self.dim
        found = {"even": np.eye(dim)}
        if active is not None:
            size = np.sqrt(np.maximum(active.values, 0) / active.values[0])
            found["active"] = np.maximum(size, 0.15)[:, None] * active.axes
            if 2 <= active.number < dim:
                found["few"] = (size * (np.arange(dim) < active.number))[:, None] * active.axes
        raw = self.frame.backward.copy()
        # Rows: each raw coordinate as a direction of unit length in the frame.
        found["coordinates"] = raw / np.linalg.norm(raw, axis=1, keepdims=True)
        return found

    def waves(self, metric: np.ndarray, length: float, count: int) -> Units:
        generator, dim = np.random.default_rng(self.seed + 1), self.dim
        mixed = generator.standard_normal((count, dim))
        if np.allclose(np.linalg.norm(metric, axis=1), 1) and not np.allclose(metric, np.eye(dim)):
            # Cosines of one to three coordinates.
            ranks = generator.random((count, dim)).argsort(axis=1).argsort(axis=1)
            mixed = mixed * (ranks < generator.integers(1, 4, count)[:, None])
        directions = mixed @ metric / length
        phases = generator.uniform(0, 2 * np.pi, count)
        waves = np.column_stack([directions, phases])
        return Units(np.zeros((0, dim + 1)), waves, np.zeros(count, int), np.zeros(1, bool))


def bends(both: np.ndarray) -> Units:
    """Log cosh units of one group."""
    return Units(both, np.zeros((0, both.shape[1])), np.zeros(len(both), int), np.zeros(1, bool))


def choose(
    points: np.ndarray, gradients: np.ndarray, held: np.ndarray, agents: np.ndarray | None, seed: int
) -> Dictionary:
    """Choose units on rows (n, dim); ``agents`` (n,) if they are known."""
    points, gradients, held, agents = _sampled(points, gradients, held, agents, seed)
    dim = points.shape[1]
    train = np.flatnonzero(~held)
    pairs = successive(None if agents is None else agents[train])
    inner = points[train], gradients[train]
    found = "successive" if significantly_alike(inner[1], pairs) else "none"
    frame, steepness = _first(*inner, points[held], gradients[held], pairs if found == "successive" else None, seed)
    z, y = frame.points(inner[0]), frame.gradients(inner[1])
    rows = Rows(z, y, steepness.weights(z))
    if found == "none" and agents is not None:
        pairs = neighbours(z, agents[train], seed)
        found = "neighbours" if significantly_alike(inner[1], pairs) else "none"
    step = -(-int(held.sum()) // HELD_ROWS)
    out = frame.points(points[held][::step])
    outside = Rows(out, frame.gradients(gradients[held][::step]), steepness.weights(out))
    owners = np.arange(len(out)) * 50 // len(out) if agents is None else agents[held][::step]
    search = Search(rows, outside, owners, frame, pairs if found != "none" else None, seed)

    quadratic = search.candidate(no_units(dim))
    owned = search.with_own(quadratic, inner[0])
    atoms = find_atoms(frame, rows, owned, inner[0], seed)
    candidates = [quadratic] if owned is quadratic else [quadratic, owned]
    best = owned
    active = search.active(search.left(best))
    if atoms is not None:
        plain = min((search.candidate(units) for units in atoms), key=lambda one: one.losses.mean())
        found_atoms = search.with_own(plain, inner[0])
        after = search.active(search.left(found_atoms))
        # Atoms that are there explain most of what is left; chance ones explain little.
        if found_atoms.better(owned, 2.0) and (
            active is None or after is None or after.number == 0 or after.values[0] < 0.5 * active.values[0]
        ):
            best, active = found_atoms, after
            candidates.append(best)
    if best is owned is not quadratic:
        # Where R varies along other directions, units on coordinates imitate them badly: they come last.
        plain = search.active(search.left(quadratic))
        if active is not None and plain is not None and active.number >= plain.number:
            best, active = quadratic, plain
    directions = 0
    for turn in range(ROUNDS):
        if turn:
            active = search.active(search.left(best))
        count = 0 if active is None else active.number
        axes = np.zeros((0, dim)) if active is None else active.axes[:count]
        if count <= 1:
            starts = _starts(search, best, active)
            single = pursue(rows.z, search.left(best), rows.weights, search.precision, starts)
            if single is not None:
                axes, count = single[None], 1
        if count == 0:
            break
        directions += count
        new = []
        if count <= 3 or turn:
            new.append(search.bent(best, axes[:3]))
        if count >= 2 and not turn:
            new += search.wavy(best, active)
        top = min(new, key=lambda one: one.losses.mean())
        if not turn and owned is not quadratic and best is quadratic:
            completed = search.with_own(top, inner[0])
            new, top = [*new, *([] if completed is top else [completed])], completed
        candidates += new
        if best.losses.mean() - top.losses.mean() < WORTH * best.losses.mean():
            break
        best = top
    if search.pairs is None and not directions:
        candidates += [one for one in search.wavy(best, None) if one.better(best, 2.0)]
    best = min(candidates, key=lambda one: one.losses.mean())
    kept = [
        one for one in sorted(candidates, key=lambda one: one.losses.mean()) if one is best or not best.better(one, 1.0)
    ]
    # A quadratic that explains as much as units do is preferred to an average with them.
    plain = [one for one in kept if not one.units.number]
    kept = plain[:1] if plain else kept[:MOST_MEMBERS]
    if steepness.growth:
        # What the chosen units leave on steep rows, in place of what the first fit left.
        left = outside.y - predicted(kept[0].head.affine, kept[0].units, kept[0].head.weights, outside.z)
        steepness = steepness._replace(growth=_growth(left, steepness.slope(outside.z), frame.precision))
    last = search.active(search.left(kept[0]))
    return Dictionary(
        frame,
        steepness,
        tuple(one.units for one in kept),
        directions,
        found,
        float("nan") if last is None else last.misfit,
        float(quadratic.losses.mean()),
    )


def _sampled(
    points: np.ndarray, gradients: np.ndarray, held: np.ndarray, agents: np.ndarray | None, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    """At most MOST_ROWS rows: whole agents, or stretches."""
    if len(points) <= MOST_ROWS:
        return points, gradients, held, agents
    share = MOST_ROWS / len(points)
    owners = (
        np.arange(len(points)) * 1000 // len(points) if agents is None else np.unique(agents, return_inverse=True)[1]
    )
    chosen = (np.random.default_rng(seed).random(owners.max() + 1) < share)[owners]
    return points[chosen], gradients[chosen], held[chosen], None if agents is None else agents[chosen]


def _starts(search: Search, best: Candidate, active: Active | None) -> np.ndarray:
    """Directions from which pursuit starts: axes of M and of the quadratic, in both coordinates, and random ones."""
    curvature, frame = best.head.affine[:, :-1], search.frame
    inside = np.linalg.eigh(curvature)[1].T
    raw = np.linalg.eigh(frame.forward.T @ curvature @ frame.forward)[1].T @ frame.backward
    parts = [inside, raw, search.generator.standard_normal((8, search.dim))]
    return np.concatenate([*([] if active is None else [active.axes[:7]]), *parts])


def _first(
    points: np.ndarray,
    gradients: np.ndarray,
    out_points: np.ndarray,
    out_gradients: np.ndarray,
    pairs: Pairs | None,
    seed: int,
) -> tuple[Frame, Steepness]:
    """The frame, and the weights of a first, small fit."""
    dim = points.shape[1]
    scale = np.maximum(np.subtract(*np.quantile(points, [0.9, 0.1], axis=0)) / 2.56, 1e-300)
    size = np.linalg.norm(gradients * scale, axis=1)
    if pairs is not None:
        apart = np.linalg.norm((gradients[pairs[0]] - gradients[pairs[1]]) * scale, axis=1)
        usual = np.median(apart) / np.sqrt(2)
    else:
        usual = np.median(size)
    weights = np.minimum(1, STEEP * usual / np.maximum(size, 1e-300)) ** 2
    frame, steepness = robust_frame(points, gradients, weights, pairs), even(dim)
    generator = np.random.default_rng(seed)
    few = generator.permutation(len(points))[:FIRST_ROWS]
    for turn in range(2):
        z, y = frame.points(points[few]), frame.gradients(gradients[few])
        out = frame.points(out_points[:FIRST_ROWS]), frame.gradients(out_gradients[:FIRST_ROWS])
        waves = np.column_stack(
            [generator.standard_normal((FIRST_WAVES, dim)) / LENGTH, generator.uniform(0, 2 * np.pi, FIRST_WAVES)]
        )
        units = Units(np.zeros((0, dim + 1)), waves, np.zeros(FIRST_WAVES, int), np.zeros(1, bool))
        noisy = np.linalg.norm(out[1] * np.sqrt(frame.precision), axis=1)
        level = STEEP * np.sqrt(dim)
        beyond = np.minimum(1, level / np.maximum(noisy, 1e-12)) ** 2 if not turn else steepness.weights(out[0])
        _, head = solve(gather(units, z, y, weights[few]), gather(units, *out, beyond), units, frame.precision)
        steepness = Steepness(1.0, head.affine, units, head.weights, frame.precision)
        left = out[1] - predicted(head.affine, units, head.weights, out[0])
        steepness = steepness._replace(growth=_growth(left, steepness.slope(out[0]), frame.precision))
        if steepness.growth == 0:
            even_frame = (
                frame if weights.min() > 0.999 else robust_frame(points, gradients, np.ones(len(points)), pairs)
            )
            return even_frame, even(dim)
        weights = steepness.weights(frame.points(points)).astype(float)
        if not turn:
            frame = robust_frame(points, gradients, weights, pairs)
    # The weights were fitted in this frame.
    return frame, steepness


def _growth(left: np.ndarray, slope: np.ndarray, precision: np.ndarray) -> float:
    """τ² from residuals of held-out rows (n, dim), and how steep the first fit is there; 0 if they hardly grow."""
    squares = (left**2) @ precision / len(precision)
    order = np.argsort(slope)
    usual = np.median(squares[order[: len(order) // 2]])
    ratios, steepest = [], 0.0
    for share in (0.2, 0.1, 0.05, 0.02):
        rows = order[-max(20, int(share * len(order))) :]
        excess = np.mean(np.minimum(squares[rows], 100 * np.median(squares[rows]))) / usual - 1
        steepest = max(steepest, excess)
        ratios.append(excess / np.median(slope[rows]))
    return 0.0 if steepest < LEAST_GROWTH else float(max(np.median(ratios), 0.0))


KNOTS = np.array([-2.1, -1.4, -0.7, 0.0, 0.7, 1.4, 2.1])


def own_units(frame: Frame, points: np.ndarray) -> Units:
    """Units on single coordinates: smooth and sharper knots, and kinks at zero where zero is among the points."""
    dim = points.shape[1]
    centre = np.median(points, axis=0)
    spread = np.maximum(np.subtract(*np.quantile(points, [0.9, 0.1], axis=0)) / 2.56, 1e-300)
    found, groups = [], []
    for axis in range(dim):
        direction = frame.backward[axis] / spread[axis]
        kinds = [(KNOTS, np.full(7, 1.6)), (np.array([-1.2, -0.5, 0, 0.5, 1.2]), np.full(5, 6.0))]
        if abs(centre[axis]) < 2.5 * spread[axis]:
            kinds.append((np.full(4, -centre[axis] / spread[axis]), np.array([4.0, 16.0, 64.0, 256.0])))
        for knots, sharp in kinds:
            place = (frame.centre[axis] - centre[axis]) / spread[axis]
            found.append(np.column_stack([sharp[:, None] * direction, sharp * (place - knots)]))
            groups.append(np.full(len(knots), len(groups)))
    units = np.concatenate(found)
    return Units(units, np.zeros((0, dim + 1)), np.concatenate(groups), np.zeros(len(groups), bool))


def passing(own: Units, rows: Rows, residuals: np.ndarray, precision: np.ndarray) -> Units:
    """The groups that explain more of the residuals than chance: a score test of each."""
    step = max(1, len(rows.z) // 65_536)
    z, left, weights = rows.z[::step], residuals[::step], rows.weights[::step].astype(float)
    keep = np.zeros(len(own.pooled), bool)
    for group in range(len(keep)):
        members = own.bends[own.groups == group]
        direction = members[0, :-1]
        size = np.sqrt(direction**2 @ precision)
        slope = (left @ (direction * precision).astype(np.float32) / size) * weights
        along = z @ direction.astype(np.float32)
        turned = np.tanh(z @ members[:, :-1].T.astype(np.float32) + members[:, -1].astype(np.float32)).astype(float)
        known = np.column_stack([np.ones(len(along)), along]) * weights[:, None]
        turned = turned * weights[:, None]
        turned -= known @ np.linalg.lstsq(known, turned, rcond=None)[0]
        turned /= turned.std(axis=0) + 1e-9
        score = turned.T @ slope
        matrix = (turned * (slope**2)[:, None]).T @ turned
        matrix += 1e-3 * np.trace(matrix) / len(matrix) * np.eye(len(matrix))
        count = len(members)
        keep[group] = score @ np.linalg.solve(matrix, score) > count + 5 * np.sqrt(2 * count)
    chosen = keep[own.groups]
    groups = np.unique(own.groups[chosen], return_inverse=True)[1]
    return Units(own.bends[chosen], own.waves, groups, np.zeros(int(keep.sum()), bool))
