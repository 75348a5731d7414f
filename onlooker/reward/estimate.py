"""R̂(α) = log p̂(α)/β + constant, from the histogram p̂ of the chains; nan where nothing was seen."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.interpolate import RegularGridInterpolator

from onlooker.check import as_places
from onlooker.reward.accumulate import Histogram

__all__ = ["RewardEstimate"]


@dataclass(frozen=True)
class RewardEstimate:
    """A reward on a grid, up to a constant: its maximum is set to zero.

    Attributes
    ----------
    histogram
        The joint histogram it was read from.
    beta
        β of the chains.
    log_weight
        What they sampled besides: their law is exp(βR) times the exponential of this, at the bins' centres.

    Examples
    --------
    >>> edges = (np.array([0.0, 1.0, 2.0, 3.0]),)
    >>> seen = Histogram.of(np.array([[0.5]] * 100 + [[1.5]] * 37), edges)
    >>> RewardEstimate(seen, beta=2.0)([[0.5], [1.5], [2.5]]).round(3).tolist()  # ½ log .37; nan: never there
    [0.0, -0.497, nan]
    """

    histogram: Histogram
    beta: float = 1.0
    log_weight: np.ndarray = field(default_factory=lambda: np.zeros(()))

    @property
    def centres(self) -> tuple[np.ndarray, ...]:
        """Of the bins, per axis."""
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
        """Which bin each point is in, (dim, n), and whether it is in any."""
        places = np.stack(
            [
                np.searchsorted(edges, points[:, axis], side="right") - 1
                for axis, edges in enumerate(self.histogram.edges)
            ]
        )
        sizes = np.array(self.histogram.inside.shape)[:, None]
        inside = np.all((places >= 0) & (places < sizes), axis=0)
        return np.clip(places, 0, sizes - 1), np.asarray(inside)

    def explored(self, x: Any) -> np.ndarray:
        """For points (n, dim): has a chain been in the bin?"""
        places, inside = self._bin(as_places(x, len(self.histogram.edges)))
        return inside & (self.histogram.inside[tuple(places)] > 0)

    def __call__(self, x: Any) -> np.ndarray:
        """R̂ at points (n, dim): linear between bins that were all seen, the bin's own value elsewhere."""
        points = as_places(x, len(self.histogram.edges))
        places, _ = self._bin(points)
        smooth = RegularGridInterpolator(self.centres, self.values, bounds_error=False)(points)
        blocky = self.values[tuple(places)]
        return np.where(self.explored(points), np.where(np.isnan(smooth), blocky, smooth), np.nan)
