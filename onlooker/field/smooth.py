"""R̂ = a quadratic + cosines inside the support of the data, a wall outside: the fit in up to three dimensions."""

from dataclasses import dataclass

import numpy as np

from onlooker.field.cosine import ORDERS, Box, CosineFit, CosineSums, fit_cosines
from onlooker.field.quadratic import Quadratic, fit_quadratic
from onlooker.field.support import Support, support_of

__all__ = ["SmoothPotential", "fit_smooth"]

# The box holds all but this share of the points at either end of an axis, and a margin where cosines may be flat.
LEFT_OUT = 0.0005
MARGIN = 0.3
# Cells per axis when exp(βR̂) is drawn from.
DRAW_CELLS = {1: 4096, 2: 384, 3: 96}


@dataclass(frozen=True)
class SmoothPotential:
    """A reward fitted to gradients in up to three dimensions.

    Attributes
    ----------
    centre, spread
        Mean and standard deviation of the points: coordinates inside are (x − centre)/spread.
    trend, cosines
        The two parts of the fit; cosines in units of ``unit``.
    unit
        Root mean square of the gradients that the quadratic leaves.
    support
        Where the data are.
    typical
        Some of the points: error bars are of differences from their mean.
    quadratic_error
        Held-out squared gradient error of the quadratic alone.
    """

    centre: np.ndarray
    spread: np.ndarray
    trend: Quadratic
    cosines: CosineFit
    unit: float
    support: Support
    typical: np.ndarray
    quadratic_error: float

    @property
    def dim(self) -> int:
        return len(self.spread)

    @property
    def held_out_error(self) -> float:
        return self.cosines.held_out_error * self.unit**2

    @property
    def settings(self) -> dict[str, float | str]:
        fit = self.cosines
        return {"order": fit.coefficients.shape[0], "length": fit.length, "scale": fit.scale, "prior": fit.kernel}

    def _scaled(self, points: np.ndarray) -> np.ndarray:
        return (points - self.centre) / self.spread

    def value(self, points: np.ndarray) -> np.ndarray:
        """R̂ at points (n, dim): outside the support, that of the nearest place in it less a wall."""
        inside, excess = self.support.back(self._scaled(points))
        return self.trend.value(inside) + self.unit * self.cosines.value(inside) - excess - 2 * excess**2

    def error(self, points: np.ndarray) -> np.ndarray:
        """Standard error of R̂, of its difference from the mean over typical points, given the basis."""
        inside, _ = self.support.back(self._scaled(points))
        return self.unit * self.cosines.error(inside, self._scaled(self.typical))

    def explored(self, points: np.ndarray) -> np.ndarray:
        return self.support.holds(self._scaled(points))

    def draw(self, count: int, beta: float, seed: int) -> np.ndarray:
        """Independent draws of exp(βR̂), by cells: (count, dim)."""
        generator, box, cells = np.random.default_rng(seed), self.support.box, DRAW_CELLS[self.dim]
        width = (box.high - box.low) / cells
        axes = [low + (np.arange(cells) + 0.5) * step for low, step in zip(box.low, width, strict=True)]
        centres = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, self.dim)
        log_mass = beta * self.value(centres * self.spread + self.centre)
        mass = np.cumsum(np.exp(log_mass - log_mass.max()))
        chosen = np.minimum(np.searchsorted(mass, generator.random(count) * mass[-1]), len(centres) - 1)
        return (centres[chosen] + (generator.random((count, self.dim)) - 0.5) * width) * self.spread + self.centre


def fit_smooth(points: np.ndarray, gradients: np.ndarray, held: np.ndarray, seed: int = 0) -> SmoothPotential:
    """Fit to points and gradients (n, dim); rows where ``held`` is true choose the hyper-parameters first."""
    centre, spread = points.mean(axis=0, dtype=float), points.std(axis=0, dtype=float)
    scaled, slopes = (points - centre) / spread, gradients * spread
    low, high = np.quantile(scaled, [LEFT_OUT, 1 - LEFT_OUT], axis=0)
    margin = MARGIN * (high - low)
    box = Box(low - margin, high + margin)
    inside = box.holds(scaled)
    scaled, slopes, held = scaled[inside], slopes[inside], held[inside]
    trend, quadratic_error = fit_quadratic(scaled[~held], slopes[~held], scaled[held], slopes[held])
    rest = slopes - trend.gradient(scaled)
    unit = float(np.sqrt(np.mean(rest**2))) or 1.0
    sums = [CosineSums(box, ORDERS[points.shape[1]]) for _ in range(2)]
    for part, rows in zip(sums, (~held, held), strict=True):
        part.add(scaled[rows], rest[rows] / unit)
    typical = points[np.random.default_rng(seed).integers(0, len(points), 500)].astype(float)
    support = support_of(scaled, box)
    return SmoothPotential(centre, spread, trend, fit_cosines(*sums), unit, support, typical, quadratic_error)
