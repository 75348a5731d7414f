"""Fits above three dimensions in files of version 0.1: R̂ = quadratic + Σ a log cosh, evaluated as it was then.

Outside the learners' ellipsoid R̂ is that at its edge. No new fit is of this kind.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jax import Array
from scipy.linalg import cho_solve

from onlooker.core.messages import Message
from onlooker.core.policies import Coordinates
from onlooker.fit.climb import climbed
from onlooker.fit.quadratic import Quadratic
from onlooker.fit.sample import Drawn

__all__ = ["EarlierRidge"]


class EarlierUnits(NamedTuple):
    """Thresholds and sharpnesses (K, dim) on coordinates, directions (M, dim) and offsets (M,)."""

    threshold: Array
    sharpness: Array
    direction: Array
    offset: Array


class EarlierHead(NamedTuple):
    """The weights of the units, (K, dim) and (M,)."""

    own: Array
    ridge: Array


class EarlierSolved(NamedTuple):
    """A head, and the Cholesky factor of its penalised normal matrix."""

    head: EarlierHead
    penalty: np.ndarray
    factor: tuple[np.ndarray, bool]
    error: float
    inflation: float = 1.0


@dataclass(frozen=True)
class EarlierRidge:
    """A reward fitted above three dimensions by version 0.1; it is not sampled again."""

    known: ClassVar[bool] = True
    everywhere: ClassVar[bool] = True
    has_error: ClassVar[bool] = True
    independent: ClassVar[bool] = False
    renewable: ClassVar[bool] = False
    warnings: ClassVar[tuple[Message, ...]] = ()
    at_finest: ClassVar[bool] = False

    centre: np.ndarray
    spread: np.ndarray
    trend: Quadratic
    units: EarlierUnits
    solved: EarlierSolved
    whiten: np.ndarray
    radius: float
    reach: float
    typical: np.ndarray
    capacity_error: float
    noise: float
    held_out_error: float
    quadratic_error: float

    @property
    def dim(self) -> int:
        return len(self.centre)

    @property
    def settings(self) -> dict[str, float | str]:
        return {"units": len(self.units.offset), "own_units": int(self.units.threshold.size), "reach": self.reach}

    def _scaled(self, points: np.ndarray) -> np.ndarray:
        return (np.asarray(points, float) - self.centre) / self.spread

    def _inside(self, scaled: np.ndarray) -> np.ndarray:
        """Points moved to the edge of the trusted region if outside."""
        away = np.sqrt(((scaled @ np.asarray(self.whiten).T) ** 2).sum(axis=1) + 1e-12)
        return scaled * np.minimum(1, self.reach * self.radius / away)[:, None]

    def _features(self, points: np.ndarray) -> np.ndarray:
        """Units (n, K dim + M) at points."""
        inside = self._inside(self._scaled(points))
        threshold, sharpness, direction, offset = (np.asarray(part, float) for part in self.units)
        own = (sharpness * (inside[:, None, :] - threshold)).reshape(len(inside), -1)
        turned = np.abs(np.concatenate([own, inside @ direction.T + offset], axis=1))
        return turned + np.log1p(np.exp(-2 * turned))

    def value(self, points: np.ndarray) -> np.ndarray:
        """R̂ at points (n, dim)."""
        head = np.concatenate([np.ravel(self.solved.head.own), np.ravel(self.solved.head.ridge)])
        return self.trend.value(self._inside(self._scaled(points))) + self._features(points) @ head

    def gradient(self, points: np.ndarray) -> np.ndarray:
        """∇R̂ at points (n, dim), by central differences."""
        step = 1e-4 * self.spread
        sides = [self.value(points + row) - self.value(points - row) for row in np.diag(step)]
        return np.stack(sides, axis=1) / (2 * step)

    def error(self, points: np.ndarray) -> np.ndarray:
        """Standard error of R̂ minus its mean over typical points."""
        away = self._features(points) - self._features(self.typical).mean(axis=0)
        learnt = self.noise * (away * cho_solve(self.solved.factor, away.T).T).sum(axis=1)
        trend = self.trend.error_squared(self._scaled(points), self._scaled(self.typical))
        return np.sqrt(learnt + trend + self.capacity_error**2)

    def explored(self, points: np.ndarray) -> np.ndarray:
        """Whether points (n, dim) are in the learners' ellipsoid."""
        return np.linalg.norm(self._scaled(points) @ np.asarray(self.whiten).T, axis=1) <= self.radius

    def resembles(self, other: Any) -> bool:
        """Never: no new fit is of this kind."""
        return False

    def maximum(self, samples: np.ndarray, interval: tuple[float, float] | None = None) -> np.ndarray:
        """See `Reward.maximum`."""
        return climbed(self.value, samples, interval)

    def sample(
        self,
        *,
        chains: int,
        beta: float,
        seed: int,
        enough: Callable[[np.ndarray], bool] = lambda samples: True,
        coordinates: Coordinates | None = None,
        measure: str = "coordinates",
        draws: int | None = None,
    ) -> Drawn:
        """Not possible."""
        raise ValueError("this result was saved by version 0.1, whose fits are not sampled again; use its samples.")
