"""R̂ = a quadratic + cosines inside the support of the data, a wall outside: the fit in up to three dimensions."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from onlooker.core.blas import one_thread
from onlooker.core.messages import Message
from onlooker.core.policies import Coordinates
from onlooker.fit.box import Box
from onlooker.fit.cells import Cells, law_on_cells
from onlooker.fit.climb import climbed
from onlooker.fit.cosine_fit import CosineFit
from onlooker.fit.cosine_sums import SETTINGS, CosineSums
from onlooker.fit.error_bars import scaled
from onlooker.fit.quadratic import Quadratic
from onlooker.fit.sample import Drawn, sample_cells
from onlooker.fit.steepness import Weighting
from onlooker.fit.support import Outline, Support

if TYPE_CHECKING:
    from onlooker.fit.cosine_potential_sums import CosinePotentialSums

__all__ = ["CosinePotential", "alike", "unscaled"]


LogWeight = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class CosinePotential:
    """A reward fitted to gradients in up to three dimensions.

    Attributes
    ----------
    centre
        Mean of the points or, if rows have weights, their median.
    spread
        Standard deviation of the points, or that of their central four fifths: the fit is in coordinates
        (x − centre)/spread.
    trend
        The quadratic.
    cosines
        The cosines, in units of ``unit``.
    unit
        Root mean square of the gradients left by the quadratic.
    support
        The explored region.
    typical
        A sample of the explored points: error bars are those of R̂ minus its mean over it.
    quadratic_error
        Mean squared error of the quadratic's gradient on the held-out observations.
    weighting
        Weights of steep rows; ``None`` if all count the same.
    outline
        The outline of the points along their principal axes; ``None`` in files of version 0.1.
    """

    known: ClassVar[bool] = True
    everywhere: ClassVar[bool] = True
    has_error: ClassVar[bool] = True
    independent: ClassVar[bool] = True
    renewable: ClassVar[bool] = True
    warnings: ClassVar[tuple[Message, ...]] = ()

    centre: np.ndarray
    spread: np.ndarray
    trend: Quadratic
    cosines: CosineFit
    unit: float
    support: Support
    typical: np.ndarray
    quadratic_error: float
    weighting: Weighting | None = None
    outline: Outline | None = None

    @property
    def dim(self) -> int:
        return len(self.spread)

    @property
    def edges(self) -> Box:
        """The box, in the points' own units."""
        return unscaled(self.cosines.box, self.centre, self.spread)

    @property
    def held_out_error(self) -> float:
        return self.cosines.held_out_error * self.unit**2

    @property
    def settings(self) -> dict[str, float | str]:
        fit = self.cosines
        found: dict[str, float | str] = {"order": fit.coefficients.shape[0], "length": fit.length, "scale": fit.scale}
        found["prior"] = fit.kernel
        return found if self.weighting is None else found | {"steep_weights": self.weighting.steepness.growth}

    @property
    def at_finest(self) -> bool:
        """Whether the prior's length is the shortest tried."""
        return self.cosines.length <= min(SETTINGS.lengths)

    def _scaled(self, points: np.ndarray) -> np.ndarray:
        return (points - self.centre) / self.spread

    def value(self, points: np.ndarray) -> np.ndarray:
        """R̂ at points (n, dim); outside the support, that of the nearest explored cell."""
        return self._value(self.support.back(self._scaled(points))[0])

    def _value(self, inside: np.ndarray) -> np.ndarray:
        return self.trend.value(inside) + self.unit * self.cosines.value(inside)

    def gradient(self, points: np.ndarray) -> np.ndarray:
        """∇R̂ at points (n, dim) in the box."""
        inside = self._scaled(points)
        return (self.trend.gradient(inside) + self.unit * self.cosines.gradient(inside)) / self.spread

    def weights(self, points: np.ndarray, gradients: np.ndarray) -> np.ndarray:
        """√ω (n,): where R is steep, residuals are large and count less."""
        return np.ones(len(points)) if self.weighting is None else np.sqrt(self.weighting.weights(points, gradients))

    def judged(
        self, points: np.ndarray, gradients: np.ndarray, agents: np.ndarray | None, seed: int
    ) -> "CosinePotential":
        """See `Potential.judged`."""
        inside = self.cosines.box.holds(self._scaled(points))
        scaled = self._scaled(points[inside])
        rest = (gradients[inside] * self.spread - self.trend.gradient(scaled)) / self.unit
        weights = self.weights(points[inside], gradients[inside]) ** 2
        agents = None if agents is None else agents[inside]
        with one_thread():
            return replace(self, cosines=self.cosines.judged(scaled, rest, weights, agents, seed))

    def without(self, points: np.ndarray, gradients: np.ndarray) -> "CosinePotential":
        """The fit to all observations except these (n, dim), with the same quadratic and prior."""
        scaled = self._scaled(points)
        inside = self.cosines.box.holds(scaled)
        rest = (gradients * self.spread - self.trend.gradient(scaled)) / self.unit
        sums = CosineSums(self.cosines.box, self.cosines.coefficients.shape[0])
        weights = self.weights(points, gradients) ** 2
        sums.add(scaled[inside], rest[inside], weights[inside])
        return replace(self, cosines=self.cosines.without(sums))

    def log_density(self, points: np.ndarray, beta: float) -> np.ndarray:
        """βR̂ at points (n, dim), less a wall e + 2e² outside the support."""
        inside, excess = self.support.back(self._scaled(points))
        return beta * self._value(inside) - excess - 2 * excess**2

    def error(self, points: np.ndarray) -> np.ndarray:
        """Standard error of R̂ minus its mean over typical points, given the basis."""
        inside, _ = self.support.back(self._scaled(points))
        typical = self._scaled(self.typical)
        # Under a loose prior the cosines fit the quadratic again, under a tight one they vanish: errors never add up.
        learnt = self.unit**2 * self.cosines.error(inside, typical) ** 2
        return np.sqrt(np.maximum(learnt, self.trend.error_squared(inside, typical)))

    def covariance(self, points: np.ndarray) -> np.ndarray:
        """See `Potential.covariance`."""
        inside, _ = self.support.back(self._scaled(points))
        return scaled(self.cosines.covariance(inside, self._scaled(self.typical)), self.error(points))

    def explored(self, points: np.ndarray) -> np.ndarray:
        inside = self._scaled(points)
        found = self.support.holds(inside)
        return found if self.outline is None else found & self.outline.holds(inside)

    def law(self, beta: float, log_weight: LogWeight | None = None) -> Cells:
        """exp(βR̂), times exp(log_weight) if given, on cells in the points' units."""

        def log_density(points: np.ndarray) -> np.ndarray:
            height = self.log_density(points, beta)
            return height if log_weight is None else height + log_weight(points)

        box = unscaled(self.support.box, self.centre, self.spread)
        return law_on_cells(log_density, box.low, box.high, SETTINGS.draw_cells[self.dim])

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
        """Independent draws of exp(βR̂); see `Potential.sample`."""
        volume = coordinates.log_volume if coordinates is not None and measure == "policy" else None
        return sample_cells(self.law(beta, volume), chains, seed, draws)

    def maximum(self, samples: np.ndarray, interval: tuple[float, float] | None = None) -> np.ndarray:
        """See `Reward.maximum`."""
        return climbed(self.value, samples, interval)

    def resembles(self, other: Any) -> bool:
        """Whether another fit covers about the same region."""
        return alike(self, other)


def unscaled(box: Box, centre: np.ndarray, spread: np.ndarray) -> Box:
    return Box(box.low * spread + centre, box.high * spread + centre)


def alike(left: "CosinePotential | CosinePotentialSums", right: "CosinePotential | CosinePotentialSums") -> bool:
    """Whether both cover about the same region: centres, spreads and boxes differ by little."""
    ours, theirs = left.edges, right.edges
    width = theirs.high - theirs.low
    differences = (
        np.abs(left.centre - right.centre) / right.spread,
        np.abs(np.log(left.spread / right.spread)),
        np.abs(ours.low - theirs.low) / width,
        np.abs(ours.high - theirs.high) / width,
    )
    return max(float(part.max()) for part in differences) < SETTINGS.alike
