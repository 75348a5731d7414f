"""Sums for the fit in up to three dimensions: standardised, in a box, the quadratic taken off."""

from dataclasses import dataclass, replace

import numpy as np

from onlooker.core.blas import one_thread
from onlooker.fit.box import CELLS, Box, box_of
from onlooker.fit.cosine_fit import fit_cosines, refit_cosines
from onlooker.fit.cosine_potential import CosinePotential, alike, unscaled
from onlooker.fit.cosine_sums import SETTINGS, CosineSums
from onlooker.fit.error_bars import typical_points
from onlooker.fit.quadratic import Quadratic, fit_quadratic, no_quadratic
from onlooker.fit.steepness import Weighting, usual_spread, weighting
from onlooker.fit.sums import FitKind
from onlooker.fit.support import Outline, cell_counts, outline_of, support_of

__all__ = ["KIND", "CosinePotentialSums", "begin_cosine_potential"]

# Rows added at a time: their standardised copies take some tens of megabytes.
CHUNK = 1 << 18
# Agents and rows below which the prior is chosen by its evidence.
FEW_AGENTS, FEW_ROWS = 100, 2000


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
        return unscaled(self.box, self.centre, self.spread)

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
