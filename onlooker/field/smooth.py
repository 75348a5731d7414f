"""R̂ = a quadratic + cosines inside the support of the data, a wall outside: the fit in up to three dimensions."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from onlooker.field.cells import Cells, law_on_cells
from onlooker.field.cosine import ORDERS, Box, CosineFit, CosineSums, box_of, fit_cosines, refit_cosines
from onlooker.field.quadratic import Quadratic, fit_quadratic, no_quadratic
from onlooker.field.support import CELLS, Support, cell_counts, support_of
from onlooker.threads import one_thread

__all__ = ["SmoothPotential", "SmoothSums", "alike", "begin_smooth", "fit_smooth"]

# The margin about the points, in their widths, where cosines may be flat.
MARGIN = 0.3
# Fits whose centres, spreads (their logarithms) and boxes differ by less than this share are alike.
ALIKE = 0.2
# Rows that sums are begun with, at the most.
BEGIN_WITH = 1 << 21
# Rows that are added at a time.
CHUNK = 1 << 18
# Cells per axis when exp(βR̂) is drawn from.
DRAW_CELLS = {1: 4096, 2: 384, 3: 96}

LogWeight = Callable[[np.ndarray], np.ndarray]


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
    def edges(self) -> Box:
        """The box, in the points' own units."""
        return _unscaled(self.cosines.box, self.centre, self.spread)

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
        """R̂ at points (n, dim); outside the support, that of the nearest place in it."""
        return self._value(self.support.back(self._scaled(points))[0])

    def _value(self, inside: np.ndarray) -> np.ndarray:
        return self.trend.value(inside) + self.unit * self.cosines.value(inside)

    def gradient(self, points: np.ndarray) -> np.ndarray:
        """∇R̂ at points (n, dim) in the box."""
        inside = self._scaled(points)
        return (self.trend.gradient(inside) + self.unit * self.cosines.gradient(inside)) / self.spread

    def without(self, points: np.ndarray, gradients: np.ndarray) -> "SmoothPotential":
        """The fit to all observations but these (n, dim), with the same quadratic and prior."""
        scaled = self._scaled(points)
        inside = self.cosines.box.holds(scaled)
        rest = (gradients * self.spread - self.trend.gradient(scaled)) / self.unit
        sums = CosineSums(self.cosines.box, self.cosines.coefficients.shape[0])
        sums.add(scaled[inside], rest[inside])
        return replace(self, cosines=self.cosines.without(sums))

    def log_density(self, points: np.ndarray, beta: float) -> np.ndarray:
        """βR̂ at points (n, dim), less a wall e + 2e² outside the support."""
        inside, excess = self.support.back(self._scaled(points))
        return beta * self._value(inside) - excess - 2 * excess**2

    def error(self, points: np.ndarray) -> np.ndarray:
        """Standard error of R̂, of its difference from the mean over typical points, given the basis."""
        inside, _ = self.support.back(self._scaled(points))
        typical = self._scaled(self.typical)
        # Cosines under a loose prior fit the quadratic once more, under a tight one they say nothing: never both.
        learnt = self.unit**2 * self.cosines.error(inside, typical) ** 2
        return np.sqrt(np.maximum(learnt, self.trend.error_squared(inside, typical)))

    def explored(self, points: np.ndarray) -> np.ndarray:
        return self.support.holds(self._scaled(points))

    def law(self, beta: float, log_weight: LogWeight | None = None) -> Cells:
        """exp(βR̂), times a weight if there is one, by cells in the points' units."""

        def log_density(points: np.ndarray) -> np.ndarray:
            height = self.log_density(points, beta)
            return height if log_weight is None else height + log_weight(points)

        box = _unscaled(self.support.box, self.centre, self.spread)
        return law_on_cells(log_density, box.low, box.high, DRAW_CELLS[self.dim])

    def draw(self, count: int, beta: float, seed: int) -> np.ndarray:
        """Independent draws of exp(βR̂): (count, dim)."""
        return self.law(beta).draw(count, seed)


@dataclass
class SmoothSums:
    """All that a fit in up to three dimensions needs to know of the observations, in constant memory.

    Standardisation, box and quadratic are those of the observations it was begun with; what the quadratic then misses
    the cosines learn.

    Attributes
    ----------
    train, held
        Sums over the rows learnt from, and over those that choose the hyper-parameters.
    counts
        Rows per cell, for the support.
    typical
        Some of the points.
    outside
        Weight of the rows that fell outside the box.
    """

    centre: np.ndarray
    spread: np.ndarray
    box: Box
    trend: Quadratic
    begun_with: int
    unit: float
    train: CosineSums
    held: CosineSums
    counts: np.ndarray
    typical: np.ndarray
    outside: float = 0.0

    @property
    def edges(self) -> Box:
        """The box, in the points' own units."""
        return _unscaled(self.box, self.centre, self.spread)

    def add(
        self, points: np.ndarray, gradients: np.ndarray, held: np.ndarray, weights: np.ndarray | None = None
    ) -> None:
        """Add observations (n, dim), some of them held out, with weights (n,) if they do not all count in full."""
        weights = np.ones(len(points)) if weights is None else weights
        # Two threads gain little here on an idle machine, and lose a factor of forty on a busy one.
        with one_thread():
            for first in range(0, len(points), CHUNK):
                some = slice(first, first + CHUNK)
                self._add(points[some], gradients[some], held[some], weights[some])

    def _add(self, points: np.ndarray, gradients: np.ndarray, held: np.ndarray, weights: np.ndarray) -> None:
        scaled = (points - self.centre) / self.spread
        rest = (gradients * self.spread - self.trend.gradient(scaled)) / self.unit
        inside = self.box.holds(scaled)
        for sums, rows in ((self.train, inside & ~held), (self.held, inside & held)):
            sums.add(scaled[rows], rest[rows], weights[rows])
        self.counts += cell_counts(scaled[inside], self.box, weights[inside])
        self.outside += float(weights[~inside].sum())

    def forget(self, share: float) -> None:
        """Weigh all that was added so far by 1 − share."""
        for sums in (self.train, self.held):
            sums.forget(share)
        self.counts *= 1 - share
        self.outside *= 1 - share

    def fit(self, like: SmoothPotential | None = None) -> SmoothPotential:
        """The reward; with the prior and the noise of another fit, if they are `alike`, in a tenth of the time."""
        typical = (self.typical - self.centre) / self.spread
        with one_thread():
            if like is None or not alike(self, like):
                cosines = fit_cosines(self.train, self.held, typical)
            else:
                # Noise is in units of what the quadratic leaves of the gradients times the spread.
                units = float(np.mean(self.spread / like.spread)) * like.unit / self.unit
                cosines = refit_cosines(self.train, self.held, like.cosines, units)
        support = support_of(self.counts, self.box, np.ones(len(self.spread)))
        quadratic_error = self.unit**2 * self.held.squares / max(self.held.count, 1e-12)
        # The quadratic was fitted to the rows it was begun with, as if all it misses were noise.
        noise = self.unit**2 * cosines.held_out_error / max(quadratic_error, 1e-300)
        share = min(1.0, self.begun_with / max(self.train.count + self.held.count, 1.0)) * min(1.0, noise)
        trend = self.trend._replace(
            variance=share * self.trend.variance, slope_variance=share * self.trend.slope_variance
        )
        return SmoothPotential(
            self.centre, self.spread, trend, cosines, self.unit, support, self.typical, quadratic_error
        )


def _unscaled(box: Box, centre: np.ndarray, spread: np.ndarray) -> Box:
    return Box(box.low * spread + centre, box.high * spread + centre)


def alike(one: SmoothPotential | SmoothSums, other: SmoothPotential | SmoothSums) -> bool:
    """Whether both are of learners in about the same place: centres, spreads and boxes differ by little."""
    ours, theirs = one.edges, other.edges
    width = theirs.high - theirs.low
    differences = (
        np.abs(one.centre - other.centre) / other.spread,
        np.abs(np.log(one.spread / other.spread)),
        np.abs(ours.low - theirs.low) / width,
        np.abs(ours.high - theirs.high) / width,
    )
    return max(float(part.max()) for part in differences) < ALIKE


def begin_smooth(
    points: np.ndarray,
    gradients: np.ndarray,
    held: np.ndarray,
    seed: int = 0,
    interval: tuple[float, float] | None = None,
    order: int | None = None,
) -> SmoothSums:
    """Empty sums, for points and gradients like these (n, dim), of so many cosines per axis.

    With an ``interval`` every coordinate lives in it and R is even about both its ends: cosines on just that box are
    even there too, and no quadratic is wanted.
    """
    if len(points) > BEGIN_WITH:
        # The box and the quadratic are known from some; cosines have the rest.
        some = np.sort(np.random.default_rng(seed).integers(0, len(points), BEGIN_WITH))
        points, gradients, held = points[some], gradients[some], held[some]
    centre, spread = points.mean(axis=0, dtype=float), points.std(axis=0, dtype=float)
    scaled, slopes = (points - centre) / spread, gradients * spread
    if interval is None:
        box = box_of(scaled, MARGIN)
    else:
        box = Box((interval[0] - centre) / spread, (interval[1] - centre) / spread)
    inside = box.holds(scaled)
    scaled, slopes, held = scaled[inside], slopes[inside], held[inside]
    dim = points.shape[1]
    if interval is None:
        trend, _ = fit_quadratic(scaled[~held], slopes[~held], scaled[held], slopes[held])
    else:
        trend = no_quadratic(dim)
    unit = float(np.sqrt(np.mean((slopes - trend.gradient(scaled)) ** 2))) or 1.0
    train, out = (CosineSums(box, order or ORDERS[dim]) for _ in range(2))
    typical = points[np.random.default_rng(seed).integers(0, len(points), 500)].astype(float)
    counts = np.zeros((CELLS[dim],) * dim)
    return SmoothSums(centre, spread, box, trend, len(scaled), unit, train, out, counts, typical)


def fit_smooth(
    points: np.ndarray,
    gradients: np.ndarray,
    held: np.ndarray,
    seed: int = 0,
    interval: tuple[float, float] | None = None,
) -> SmoothPotential:
    """Fit to points and gradients (n, dim); rows where ``held`` is true choose the hyper-parameters first."""
    sums = begin_smooth(points, gradients, held, seed, interval)
    sums.add(points, gradients, held)
    return sums.fit()
