"""{x : R̂(x′) − R̂(x) ≤ q(x)·sd(x, x′) for all x′}: the places that may be the best, with a stated probability.

If x is the best place, R(x′) − R(x) ≤ 0, so that R̂(x′) − R̂(x) is at most the difference of two errors. Over its
standard deviation, the largest of these differences has the quantile q(x) under joint draws of the errors. Each place
has its own q, so that the set holds the best of the explored places with the stated probability, wherever it is: it is
the inverse of a test. A place that errors alone could make best is never left out; one far from the summit is left in
where R̂ is uncertain there.
"""

from dataclasses import dataclass

import numpy as np

from onlooker.fit.error_bars import drawn_errors
from onlooker.fit.potential import Potential

__all__ = ["MaximumRegion", "maximum_region"]

# Places looked at of each kind, those of highest R̂ and others whose errors are looked at, those compared with each
# other, and joint draws of their errors.
LOOKED_AT, HIGHEST, OTHERS, COMPARED, DRAWS = 6000, 1000, 500, 300, 400
# Places that are lower than the highest by at most this number of standard errors are compared; and so many of the
# highest in any case.
HOPEFUL, SURE = 5.0, 20


@dataclass(frozen=True)
class MaximumRegion:
    """A confidence set for the best explored place.

    Attributes
    ----------
    level
        Its probability.
    points
        Places in it (n, dim).
    low, high
        Ends of the box about them (dim,).
    """

    level: float
    points: np.ndarray
    low: np.ndarray
    high: np.ndarray
    _potential: Potential
    _rivals: np.ndarray
    _seed: int

    def __repr__(self) -> str:
        ends = ", ".join(f"{low:.3g} to {high:.3g}" for low, high in zip(self.low, self.high, strict=True))
        return f"MaximumRegion(level={self.level:g}, {len(self.points)} places within [{ends}])"

    def holds(self, x: np.ndarray) -> np.ndarray:
        """Whether places (n, dim) may be the best; no place that is unexplored."""
        places = np.atleast_2d(np.asarray(x, float))
        if places.shape[1] != len(self.low):
            raise ValueError(f"x has shape {places.shape}; give places of {len(self.low)} coordinates.")
        found = self._potential.explored(places)
        for row in np.flatnonzero(found):
            both = np.concatenate([places[row : row + 1], self._rivals])
            found[row] = _may_be_best(self._potential, both, self.level, self._seed, 1)[0]
        return found


def maximum_region(
    potential: Potential, seen: np.ndarray, summit: np.ndarray, level: float, seed: int
) -> MaximumRegion:
    """The region of a fitted reward.

    Parameters
    ----------
    potential
        The reward.
    seen
        Observed points (n, dim).
    summit
        Where R̂ is highest (dim,).
    level
        Probability that the region holds the best explored place.
    seed
        Seed of places and draws.
    """
    generator = np.random.default_rng(seed)
    low, high = seen.min(axis=0), seen.max(axis=0)
    some = generator.integers(0, len(seen), (2, LOOKED_AT))
    near = summit + generator.standard_normal((LOOKED_AT, len(low))) * seen.std(axis=0) * generator.choice(
        [0.03, 0.1, 0.3], (LOOKED_AT, 1)
    )
    # Anywhere in few dimensions; otherwise between learners, and near the summit.
    anywhere = generator.uniform(low, high, (LOOKED_AT, len(low)))
    places = np.concatenate([summit[None], seen[:LOOKED_AT], seen[some].mean(axis=0), near, anywhere])
    places = places[potential.explored(places)]
    if not len(places):
        nothing = np.zeros((0, len(low)))
        return MaximumRegion(
            level, nothing, np.full(len(low), np.nan), np.full(len(low), np.nan), potential, seen, seed
        )
    order = np.argsort(-potential.value(places))
    places = places[np.concatenate([order[:HIGHEST], generator.permutation(order[HIGHEST:])[:OTHERS]])]
    height, covariance = potential.value(places), potential.covariance(places)
    best = int(np.argmax(height))
    spread = np.sqrt(np.maximum(covariance[best, best] + np.diag(covariance) - 2 * covariance[best], 0))
    hopeful = generator.permutation(np.flatnonzero(height[best] - height <= HOPEFUL * spread))
    chosen = np.union1d(np.argsort(-height)[:SURE], hopeful[: COMPARED - SURE])
    rivals = places[chosen]
    inside = rivals[_may_be_best(potential, rivals, level, seed, len(rivals))]
    return MaximumRegion(level, inside, inside.min(axis=0), inside.max(axis=0), potential, rivals, seed)


def _may_be_best(potential: Potential, places: np.ndarray, level: float, seed: int, first: int) -> np.ndarray:
    """Whether each of the first places (n, dim) may be the best of all."""
    covariance, height = potential.covariance(places), potential.value(places)
    errors = drawn_errors(covariance, DRAWS, np.random.default_rng(seed)).astype(np.float32)
    found = np.zeros(first, bool)
    for row in range(first):
        variance = covariance[row, row] + np.diag(covariance) - 2 * covariance[row]
        others = variance > 1e-12 * max(variance.max(), 1e-300)
        if not others.any():
            found[row] = height[row] >= height.max()
            continue
        spread = np.sqrt(variance[others])
        chance = ((errors[:, others] - errors[:, row : row + 1]) / spread.astype(np.float32)).max(axis=1)
        found[row] = ((height[others] - height[row]) / spread).max() <= np.quantile(chance, level)
    return found
