"""R̂ = a quadratic + cosines inside the support of the data, a wall outside: the fit in up to three dimensions."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from onlooker.core.blas import one_thread
from onlooker.core.messages import Message
from onlooker.core.policies import Coordinates
from onlooker.fit.box import CELLS, Box, box_of
from onlooker.fit.cells import Cells, law_on_cells
from onlooker.fit.climb import climbed
from onlooker.fit.cosine_sums import SETTINGS, CosineFit, CosineSums, fit_cosines, refit_cosines
from onlooker.fit.error_bars import scaled, typical_points
from onlooker.fit.quadratic import Quadratic, fit_quadratic, no_quadratic
from onlooker.fit.sample import Drawn, sample_cells
from onlooker.fit.steepness import Weighting, usual_spread, weighting
from onlooker.fit.sums import FitKind
from onlooker.fit.support import Outline, Support, cell_counts, outline_of, support_of

__all__ = ["KIND", "CosinePotential", "CosinePotentialSums", "alike", "begin_cosine_potential"]

# Rows added at a time: their standardised copies take some tens of megabytes.
CHUNK = 1 << 18
# Agents and rows below which the prior is chosen by its evidence.
FEW_AGENTS, FEW_ROWS = 100, 2000

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
        return _unscaled(self.cosines.box, self.centre, self.spread)

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

        box = _unscaled(self.support.box, self.centre, self.spread)
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


@dataclass
class CosinePotentialSums:
    """Sums for the fit in up to three dimensions, in constant memory.

    Standardisation, box and quadratic are those of the sample they were begun on; the cosines learn what the quadratic
    misses of later rows.

    Attributes
    ----------
    centre
        Mean of the sample's points or, if rows have weights, their median.
    spread
        Standard deviation of the sample's points, or that of their central four fifths.
    box
        The box of the cosines, in standard deviations.
    trend
        The quadratic fitted to the sample.
    begun_with
        Number of rows that the quadratic was fitted to.
    unit
        Root mean square of the gradients left by the quadratic.
    train
        Sums over the rows that the coefficients are fitted to.
    held
        Sums over the held-out rows, which choose the hyper-parameters.
    counts
        Rows per cell, for the support.
    typical
        A sample of the points.
    outside
        Weight of the rows that fell outside the box.
    weighting
        Weights of steep rows; ``None`` if all count the same.
    agents
        Number of agents in the sample; 0 if they are unknown.
    outline
        The outline of the points along their principal axes; ``None`` in files of version 0.1.
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
    weighting: Weighting | None = None
    agents: int = 0
    outline: Outline | None = None

    @property
    def edges(self) -> Box:
        """The box, in the points' own units."""
        return _unscaled(self.box, self.centre, self.spread)

    @property
    def count(self) -> float:
        """Number of rows in the box, or what is left of it after forgetting."""
        return float(self.counts.sum())

    @property
    def _few(self) -> bool:
        """Whether held-out rows are too few to choose a prior by: a fifth of so many agents or rows."""
        agents = self.agents * self.count / max(self.begun_with, 1)
        return self.count < FEW_ROWS or 0 < agents < FEW_AGENTS

    def add(
        self, points: np.ndarray, gradients: np.ndarray, held: np.ndarray, weights: np.ndarray | None = None
    ) -> None:
        """Add observations (n, dim); see `Sums.add`."""
        weights = np.ones(len(points)) if weights is None else weights
        # More threads gain little on an idle machine and cost a factor of forty on a busy one.
        with one_thread():
            for first in range(0, len(points), CHUNK):
                some = slice(first, first + CHUNK)
                self._add(points[some], gradients[some], held[some], weights[some])

    def _add(self, points: np.ndarray, gradients: np.ndarray, held: np.ndarray, weights: np.ndarray) -> None:
        scaled = (points - self.centre) / self.spread
        rest = (gradients * self.spread - self.trend.gradient(scaled)) / self.unit
        inside = self.box.holds(scaled)
        steep = weights if self.weighting is None else weights * self.weighting.weights(points, gradients)
        for sums, rows in ((self.train, inside & ~held), (self.held, inside & held)):
            sums.add(scaled[rows], rest[rows], steep[rows])
        self.counts += cell_counts(scaled[inside], self.box, weights[inside])
        if self.outline is not None:
            self.outline = self.outline.grown(scaled[inside])
        self.outside += float(weights[~inside].sum())

    def forget(self, share: float) -> None:
        """Multiply the weight of everything added so far by 1 − share."""
        for sums in (self.train, self.held):
            sums.forget(share)
        self.counts *= 1 - share
        self.outside *= 1 - share

    def joined(self, other: "CosinePotentialSums") -> "CosinePotentialSums":
        """The sums over the observations of both; both must have been begun on the same sample."""
        same = all(
            np.array_equal(ours, theirs)
            for ours, theirs in (
                (self.centre, other.centre),
                (self.spread, other.spread),
                (self.box.low, other.box.low),
                (self.box.high, other.box.high),
                (self.trend.curvature, other.trend.curvature),
            )
        )
        if not same:
            raise ValueError("other was begun on another sample, over another box; begin both on the same rows.")
        return replace(
            self,
            train=self.train.joined(other.train),
            held=self.held.joined(other.held),
            counts=self.counts + other.counts,
            outside=self.outside + other.outside,
            outline=None if self.outline is None or other.outline is None else self.outline.joined(other.outline),
        )

    def fit(self, like: CosinePotential | None = None) -> CosinePotential:
        """Fit a reward; with the prior and noise of ``like`` if the two are `alike`, in a tenth of the time."""
        with one_thread():
            if like is None or not alike(self, like):
                cosines = fit_cosines(self.train, self.held, self._few)
            else:
                # The noise is in units of (gradient left by the quadratic) × spread.
                units = float(np.mean(self.spread / like.spread)) * like.unit / self.unit
                cosines = refit_cosines(self.train, self.held, like.cosines, units)
        support = support_of(self.counts, self.box, np.ones(len(self.spread)))
        known = support.holds((self.typical - self.centre) / self.spread)
        typical = self.typical[known] if known.any() else self.typical
        quadratic_error = self.unit**2 * self.held.squares / max(self.held.count, 1e-12)
        # The quadratic's variance is that of its sample, with everything it misses counted as noise.
        noise = self.unit**2 * cosines.held_out_error / max(quadratic_error, 1e-300)
        share = min(1.0, self.begun_with / max(self.count, 1.0)) * min(1.0, noise)
        trend = self.trend._replace(
            variance=share * self.trend.variance, slope_variance=share * self.trend.slope_variance
        )
        return CosinePotential(
            self.centre,
            self.spread,
            trend,
            cosines,
            self.unit,
            support,
            typical,
            quadratic_error,
            self.weighting,
            self.outline,
        )


def _unscaled(box: Box, centre: np.ndarray, spread: np.ndarray) -> Box:
    return Box(box.low * spread + centre, box.high * spread + centre)


def alike(left: CosinePotential | CosinePotentialSums, right: CosinePotential | CosinePotentialSums) -> bool:
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


def begin_cosine_potential(
    points: np.ndarray,
    gradients: np.ndarray,
    held: np.ndarray,
    seed: int = 0,
    interval: tuple[float, float] | None = None,
    agents: np.ndarray | None = None,
    order: int | None = None,
) -> CosinePotentialSums:
    """Empty sums for observations like these; the other parameters are those of `onlooker.fit.potential.begin`.

    With an ``interval``, R is even about both ends, and so are cosines on exactly that box; no quadratic is added.

    Parameters
    ----------
    order
        Cosines per axis; default: ``SETTINGS.orders``.
    """
    if len(points) > SETTINGS.begin_with:
        # A sample determines the box and the quadratic; the cosines use all rows.
        sample = np.sort(np.random.default_rng(seed).integers(0, len(points), SETTINGS.begin_with))
        points, gradients, held = points[sample], gradients[sample], held[sample]
        agents = None if agents is None else agents[sample]
    steep = weighting(points, gradients, held, agents, seed) if interval is None else None
    if steep is None:
        centre, spread = points.mean(axis=0, dtype=float), points.std(axis=0, dtype=float)
    else:
        centre, spread = np.median(points, axis=0).astype(float), usual_spread(points)
    scaled, slopes = (points - centre) / spread, gradients * spread
    if interval is None:
        box = box_of(scaled, SETTINGS.margin)
    else:
        box = Box((interval[0] - centre) / spread, (interval[1] - centre) / spread)
    inside = box.holds(scaled)
    weights = None if steep is None else steep.weights(points[inside], gradients[inside])
    scaled, slopes, held = scaled[inside], slopes[inside], held[inside]
    dim = points.shape[1]
    if interval is None:
        parts = (None, None) if weights is None else (weights[~held], weights[held])
        trend, _ = fit_quadratic(scaled[~held], slopes[~held], scaled[held], slopes[held], *parts)
    else:
        trend = no_quadratic(dim)
    unit = float(np.sqrt(np.average(np.mean((slopes - trend.gradient(scaled)) ** 2, axis=1), weights=weights))) or 1.0
    train, out = (CosineSums(box, order or SETTINGS.orders[dim]) for _ in range(2))
    counts = np.zeros((CELLS[dim],) * dim)
    return CosinePotentialSums(
        centre,
        spread,
        box,
        trend,
        len(scaled),
        unit,
        train,
        out,
        counts,
        typical_points(points, seed),
        weighting=steep,
        agents=0 if agents is None else len(np.unique(agents)),
        outline=outline_of(scaled),
    )


KIND = FitKind(
    basis="cosines on a quadratic",
    serves=lambda dim: dim in SETTINGS.orders,
    begin=begin_cosine_potential,
    sums=CosinePotentialSums,
    potential=CosinePotential,
    streams=True,
    # Needed only to begin again when learners leave the box.
    kept=20_000,
    # Enough for a quadratic and a smooth prior.
    after_jump=200,
    judge=None,
    outdated=None,
    limited=True,
)
