"""∇R̂ where learners were, and how much its residuals count: what jumps are judged by above three dimensions.

It is a part of a `onlooker.fit.ridge_potential.RidgePotential`, small enough to be kept and saved by a `JumpWatch`.
"""

from typing import NamedTuple

import numpy as np

from onlooker.fit.ridge_frame import Frame
from onlooker.fit.ridge_units import Units, predicted
from onlooker.fit.steepness import Steepness

__all__ = ["Nearby", "Slope"]


class Slope(NamedTuple):
    """∇R̂ of one candidate, in the frame: its units, the gradient of its quadratic, and its weights."""

    units: Units
    affine: np.ndarray
    weights: np.ndarray


class Nearby(NamedTuple):
    """∇R̂ within the learners' radius, whether or not R̂ is certain there."""

    frame: Frame
    steepness: Steepness
    slopes: tuple[Slope, ...]
    radius: float

    def gradient(self, points: np.ndarray) -> np.ndarray:
        """∇R̂ at points (n, dim): the mean of the candidates."""
        z = self.frame.points(points)
        parts = [predicted(affine, units, weights, z) for units, affine, weights in self.slopes]
        return np.mean(parts, axis=0, dtype=float) @ self.frame.forward

    def explored(self, points: np.ndarray) -> np.ndarray:
        """Mask (n,) of the points within the radius."""
        return np.linalg.norm(self.frame.points(points), axis=1) <= self.radius

    def weights(self, points: np.ndarray, gradients: np.ndarray) -> np.ndarray:
        """√ω (n,): where R is steep, residuals are large and count less."""
        return np.sqrt(self.steepness.weights(self.frame.points(points), self.frame.gradients(gradients)))
