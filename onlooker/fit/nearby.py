"""∇R̂ where learners were, and how much its residuals count: what jumps are judged by above three dimensions.

It is a part of a `onlooker.fit.ridge_potential.RidgePotential`, small enough to be kept and saved by a `JumpWatch`.
"""

from typing import NamedTuple

import numpy as np

from onlooker.fit.ridge_frame import Frame
from onlooker.fit.ridge_units import Units, predicted
from onlooker.fit.steepness import Steepness

__all__ = ["Nearby", "Slope", "judged_slope"]

# Share of the learners' points that are flat enough to be judged where a few steep rows would rule all squares.
FLAT = 0.5


def judged_slope(frame: Frame, steepness: Steepness, typical: np.ndarray) -> float:
    """The largest s(z) at which residuals are judged: half of the typical points (n, dim) are flatter."""
    return float(np.quantile(steepness.slope(frame.points(typical)), FLAT)) if steepness.growth else np.inf


class Slope(NamedTuple):
    """∇R̂ of one candidate, in the frame: its units, the gradient of its quadratic, its weights, and its share."""

    units: Units
    affine: np.ndarray
    weights: np.ndarray
    share: float


class Nearby(NamedTuple):
    """∇R̂ within the learners' radius, whether or not R̂ is certain there.

    Attributes
    ----------
    frame
        White coordinates.
    steepness
        The weights of steep rows.
    slopes
        ∇R̂ of each candidate.
    radius
        Radius of the explored points in the frame.
    steepest
        The largest s(z) at which residuals are judged. Where rows are steep, R̂ misses a share of the slope, so that
        learners who come to steeper places look like a jump; one that is real is seen where R is flat, too.
    """

    frame: Frame
    steepness: Steepness
    slopes: tuple[Slope, ...]
    radius: float
    steepest: float = np.inf

    def gradient(self, points: np.ndarray) -> np.ndarray:
        """∇R̂ at points (n, dim): the mean of the candidates."""
        z = self.frame.points(points)
        parts = [
            share * predicted(affine, units, weights, z).astype(float) for units, affine, weights, share in self.slopes
        ]
        return sum(parts, np.zeros(z.shape)) @ self.frame.forward

    def explored(self, points: np.ndarray) -> np.ndarray:
        """Mask (n,) of the points within the radius that are not too steep."""
        z = self.frame.points(points)
        near = np.linalg.norm(z, axis=1) <= self.radius
        return near & (self.steepness.slope(z) <= self.steepest) if np.isfinite(self.steepest) else near

    def weights(self, points: np.ndarray, gradients: np.ndarray) -> np.ndarray:
        """√ω (n,): where R is steep, residuals are large and count less."""
        return np.sqrt(self.steepness.weights(self.frame.points(points), self.frame.gradients(gradients)))
