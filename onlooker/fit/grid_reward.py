"""R̂(α) = log p̂(α)/β + constant, from a histogram p̂ of the chains; nan in empty bins."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from onlooker.core.histogram import Histogram
from onlooker.core.settings import as_places

__all__ = ["GRID_BINS", "GridReward", "SamplesOnly"]

# Bins per axis of a joint histogram, by dimension: at most 14 000 in all, so that chains visit each often enough.
GRID_BINS = {1: 40, 2: 40, 3: 24}


@dataclass(frozen=True)
class GridReward:
    """A reward on a grid, shifted so that its maximum is zero.

    Attributes
    ----------
    histogram
        The joint histogram of the samples.
    beta
        β of the chains.
    log_weight
        The chains sample exp(βR) times exp(log_weight), given at the bins' centres.

    Examples
    --------
    >>> edges = (np.array([0.0, 1.0, 2.0, 3.0]),)
    >>> seen = Histogram.of(np.array([[0.5]] * 100 + [[1.5]] * 37), edges)
    >>> GridReward(seen, beta=2.0).value([[0.5], [1.5], [2.5]]).round(3).tolist()  # ½ log .37; nan: an empty bin
    [0.0, -0.497, nan]
    """

    known: ClassVar[bool] = True
    everywhere: ClassVar[bool] = False
    has_error: ClassVar[bool] = False

    histogram: Histogram
    beta: float = 1.0
    log_weight: np.ndarray = field(default_factory=lambda: np.zeros(()))

    @property
    def centres(self) -> tuple[np.ndarray, ...]:
        """Centres of the bins, per axis."""
        return self.histogram.centres

    @property
    def values(self) -> np.ndarray:
        """R̂ at the centres of the bins."""
        inside = self.histogram.inside
        with np.errstate(divide="ignore"):
            logarithm = np.where(inside > 0, np.log(inside) - self.log_weight, np.nan)
        top = np.nanmax(logarithm) if (inside > 0).any() else 0.0
        return (logarithm - top) / self.beta

    def _bin(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The bin (dim, n) of each point, and whether it is inside the grid."""
        bins = np.stack(
            [
                np.searchsorted(edges, points[:, axis], side="right") - 1
                for axis, edges in enumerate(self.histogram.edges)
            ]
        )
        sizes = np.array(self.histogram.inside.shape)[:, None]
        inside = np.all((bins >= 0) & (bins < sizes), axis=0)
        return np.clip(bins, 0, sizes - 1), np.asarray(inside)

    def explored(self, x: Any) -> np.ndarray:
        """Whether any chain visited the bins of points (n, dim)."""
        bins, inside = self._bin(as_places(x, len(self.histogram.edges)))
        return inside & (self.histogram.inside[tuple(bins)] > 0)

    def value(self, x: Any) -> np.ndarray:
        """R̂ at points (n, dim): linear between visited bins, the bin's own value next to an empty one."""
        from scipy.interpolate import RegularGridInterpolator

        points = as_places(x, len(self.histogram.edges))
        bins, _ = self._bin(points)
        smooth = RegularGridInterpolator(self.centres, self.values, bounds_error=False)(points)
        blocky = self.values[tuple(bins)]
        return np.where(self.explored(points), np.where(np.isnan(smooth), blocky, smooth), np.nan)

    def __call__(self, x: Any) -> np.ndarray:
        """The same as `value`."""
        return self.value(x)

    def error(self, x: Any) -> np.ndarray:
        """Not known: nan."""
        return np.full(len(as_places(x, len(self.histogram.edges))), np.nan)

    def maximum(self, samples: np.ndarray, interval: tuple[float, float] | None = None) -> np.ndarray:
        """The centre (dim,) of the highest bin; the arguments are not used."""
        best = np.unravel_index(int(np.nanargmax(self.values)), self.values.shape)
        return np.array([centres[index] for centres, index in zip(self.centres, best, strict=True)])


@dataclass(frozen=True)
class SamplesOnly:
    """Stands for the reward of chains in too many dimensions for a grid: every method raises an error.

    Parameters
    ----------
    dim
        Dimension of the samples.
    method
        The method that produced them.
    """

    known: ClassVar[bool] = False
    everywhere: ClassVar[bool] = False
    has_error: ClassVar[bool] = False

    dim: int
    method: str

    def _unknown(self) -> ValueError:
        return ValueError(f"R̂ in {self.dim} dimensions is known with method='potential' only; {self.method} has none.")

    def value(self, points: np.ndarray) -> np.ndarray:
        raise self._unknown()

    def error(self, points: np.ndarray) -> np.ndarray:
        raise self._unknown()

    def explored(self, points: np.ndarray) -> np.ndarray:
        raise self._unknown()

    def maximum(self, samples: np.ndarray, interval: tuple[float, float] | None = None) -> np.ndarray:
        raise self._unknown()


# The name of GridReward in the version before.
RewardEstimate = GridReward
