"""R̂(x) = b·x + a quadratic or none + units on coordinates and directions: the fit above three dimensions.

Two models are tried, and the one that predicts held-out gradients better is kept: the units alone, which continue in
straight lines beyond the data, as a sum of many saturating terms does; or a quadratic in closed form, and units on the
residual. The number of directions is doubled, and they are refined by Adam, while the held-out error falls. Whether the
fit is trusted beyond the data is decided likewise: by predicting gradients at outer points from inner ones.

The fit is in coordinates (x − centre)/spread. It is non-parametric only as the number of units grows.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from scipy.linalg import cho_solve

from onlooker.core.policies import Coordinates
from onlooker.fit.climb import climbed
from onlooker.fit.error_bars import typical_points
from onlooker.fit.quadratic import Quadratic, fit_quadratic, no_quadratic
from onlooker.fit.ridge_units import (
    CHUNK,
    SETTINGS,
    Rows,
    Solved,
    Units,
    activations,
    chunks,
    log_cosh,
    predicted,
    refine,
    solve,
    start,
    value,
)
from onlooker.fit.sample import Drawn, sample_nuts
from onlooker.fit.sums import FitKind, KeptRows

__all__ = ["KIND", "RidgePotential", "begin_ridge", "fit_ridge"]


@dataclass(frozen=True)
class RidgePotential:
    """A reward fitted to gradients in many dimensions.

    Attributes
    ----------
    centre
        Mean of the points.
    spread
        Standard deviation of the points: the fit is in coordinates (x − centre)/spread.
    trend
        The quadratic, or zero.
    units
        Units on coordinates and directions.
    solved
        The weights of the units.
    whiten
        Matrix from standardised coordinates to uncorrelated ones of variance one.
    radius
        Radius of the ellipsoid of explored points, in whitened coordinates.
    reach
        How far R̂ is trusted, in radii.
    typical
        A sample of the points: error bars are those of R̂ minus its mean over it.
    capacity_error
        Standard error due to the limited number of units.
    noise
        Variance of the gradients about the fit, widened if the two parts of the data disagree.
    held_out_error
        Mean squared error of ∇R̂ on the held-out observations.
    quadratic_error
        The same error for a quadratic alone.
    """

    known: ClassVar[bool] = True
    everywhere: ClassVar[bool] = True
    has_error: ClassVar[bool] = True
    independent: ClassVar[bool] = False
    renewable: ClassVar[bool] = False
    at_finest: ClassVar[bool] = False

    centre: np.ndarray
    spread: np.ndarray
    trend: Quadratic
    units: Units
    solved: Solved
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
        ground = "quadratic" if self.trend.curvature.any() else "none"
        return {
            "units": len(self.units.offset),
            "own_units": int(self.units.threshold.size),
            "ground": ground,
            "reach": self.reach,
        }

    def standardise(self, points: np.ndarray) -> np.ndarray:
        return (points - self.centre) / self.spread

    def restore(self, scaled: np.ndarray) -> np.ndarray:
        return scaled * self.spread + self.centre

    def scaled_log_density(self, beta: float) -> Callable[[Array], Array]:
        """A JAX function of one standardised point: βR̂, less a wall where R̂ is not trusted."""

        def log_density(scaled: Array) -> Array:
            _, excess = self._inside(scaled)
            return beta * self._value(scaled) - excess - 2 * excess**2

        return log_density

    def _inside(self, scaled: Array) -> tuple[Array, Array]:
        """A standardised point moved to the edge of the trusted region if outside, and its distance to the edge."""
        away = jnp.sqrt(jnp.sum((jnp.asarray(self.whiten, jnp.float32) @ scaled) ** 2) + 1e-12)
        edge = self.reach * self.radius
        return scaled * jnp.minimum(1, edge / away), jnp.maximum(away - edge, 0)

    def _value(self, scaled: Array) -> Array:
        inside, _ = self._inside(scaled)
        slope, curvature = (jnp.asarray(part, jnp.float32) for part in (self.trend.slope, self.trend.curvature))
        away = inside - jnp.asarray(self.trend.centre, jnp.float32)
        learnt = value(self.units, self.solved.head, inside)
        return away @ slope + 0.5 * away @ curvature @ away + learnt

    def value(self, points: np.ndarray) -> np.ndarray:
        """R̂ at points (n, dim); outside the trusted region, that at its edge."""
        scaled = jnp.asarray(self.standardise(points), jnp.float32)
        return np.asarray(lax.map(self._value, scaled, batch_size=CHUNK), float)

    def gradient(self, points: np.ndarray) -> np.ndarray:
        """∇R̂ at points (n, dim)."""
        return self.slope(self._value, points)

    def explored(self, points: np.ndarray) -> np.ndarray:
        scaled = self.standardise(points)
        return np.linalg.norm(scaled @ self.whiten.T, axis=1) <= self.radius

    def features(self, points: np.ndarray) -> np.ndarray:
        scaled = jnp.asarray(self.standardise(points), jnp.float32)
        own, ridge = activations(self.units, jax.vmap(lambda point: self._inside(point)[0])(scaled))
        return np.asarray(jnp.concatenate([log_cosh(own).reshape(len(scaled), -1), log_cosh(ridge)], axis=1), float)

    def error(self, points: np.ndarray) -> np.ndarray:
        """Standard error of R̂ minus its mean over typical points, including that of the basis."""
        middle, typical = self.features(self.typical).mean(axis=0), self.standardise(self.typical)
        parts = [np.zeros(0)]
        for first in range(0, len(points), SETTINGS.error_chunk):
            chunk = points[first : first + SETTINGS.error_chunk]
            away = self.features(chunk) - middle
            learnt = self.noise * np.einsum("np,pn->n", away, cho_solve(self.solved.factor, away.T))
            trend = self.trend.error_squared(self.standardise(chunk), typical)
            parts.append(np.sqrt(learnt + trend + self.capacity_error**2))
        return np.concatenate(parts)

    def resembles(self, other: Any) -> bool:
        """Never: every fit is computed from its rows."""
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
    ) -> Drawn:
        """Samples of exp(βR̂) by NUTS; see `Potential.sample`."""
        return sample_nuts(self, chains, beta, seed, enough, coordinates, measure)

    def slope(self, function: Callable[[Array], Array], points: np.ndarray) -> np.ndarray:
        """Gradient at points (n, dim) of a function of one standardised point, such as `scaled_log_density`."""
        scaled = jnp.asarray(self.standardise(points), jnp.float32)
        return np.asarray(lax.map(jax.grad(function), scaled, batch_size=CHUNK), float) / self.spread


def fit_ridge(points: np.ndarray, gradients: np.ndarray, held: np.ndarray, seed: int = 0) -> RidgePotential:
    """Fit a reward to observations; the parameters are those of `onlooker.fit.potential.begin`."""
    centre, spread = points.mean(axis=0, dtype=float), points.std(axis=0, dtype=float)
    scaled, slopes = ((points - centre) / spread).astype(np.float32), (gradients * spread).astype(np.float32)
    zero = -centre / spread
    trend, quadratic_error = fit_quadratic(scaled[~held], slopes[~held], scaled[held], slopes[held])

    left = _without_own_units(scaled, slopes, held, zero, seed)
    count = min(SETTINGS.most_units, max(SETTINGS.fewest_units, 2 * points.shape[1]))
    units = start(scaled, left, zero, trend.curvature, count, seed)
    grounds = []
    for ground in (no_quadratic(points.shape[1]), trend):
        rest = (slopes - ground.gradient(scaled)).astype(np.float32)
        train, out = ((chunks(scaled[part]), chunks(rest[part])) for part in (~held, held))
        grounds.append((solve(units, train, out), ground, (train, out)))
    first, ground, parts = min(grounds, key=lambda candidate: candidate[0].error)
    more = partial(start, scaled, left, zero, trend.curvature, seed=seed)
    *_, (fewer, before), (units, solved) = _grow(units, first, more, parts, quadratic_error, seed)
    variance, axes = np.linalg.eigh(np.cov(scaled[:: max(1, len(scaled) // SETTINGS.covariance_rows)].T))
    whiten = (axes / np.sqrt(np.maximum(variance, SETTINGS.least_variance))).T
    away = np.linalg.norm(scaled @ whiten.T, axis=1)
    radius = float(np.quantile(away, SETTINGS.inside))
    typical = typical_points(points, seed)
    potential = RidgePotential(
        centre,
        spread,
        ground,
        units,
        solved,
        whiten,
        radius,
        1.0,
        typical,
        _apart((fewer, before), (units, solved), (typical - centre) / spread),
        solved.error / points.shape[1],
        solved.error,
        quadratic_error,
    )
    everything = solve(units, *parts, penalty=solved.penalty, about=potential.features(typical))
    potential = replace(potential, solved=everything, noise=potential.noise * everything.inflation**2)
    believed = _believed(potential, points, gradients, held, away)
    return replace(potential, reach=SETTINGS.believed if believed else 1.0)


def begin_ridge(
    points: np.ndarray,
    gradients: np.ndarray,
    held: np.ndarray,
    seed: int = 0,
    interval: tuple[float, float] | None = None,
) -> KeptRows:
    """Empty sums, which keep their rows; the parameters are those of `onlooker.fit.potential.begin`.

    ``interval`` is not used: units are as accurate at its ends as anywhere.
    """
    return KeptRows(partial(fit_ridge, seed=seed))


def _without_own_units(
    scaled: np.ndarray, slopes: np.ndarray, held: np.ndarray, zero: np.ndarray, seed: int
) -> np.ndarray:
    """Gradients minus those of a fit with units on single coordinates only."""
    alone = start(scaled, slopes, zero, np.eye(scaled.shape[1]), 1, seed)
    sample = np.random.default_rng(seed).random(len(scaled)) < SETTINGS.rows_alone / len(scaled)
    train, out = ((chunks(scaled[part]), chunks(slopes[part])) for part in (sample & ~held, held))
    return slopes - predicted(alone, solve(alone, train, out).head, scaled)


def _grow(
    units: Units, solved: Solved, more: Callable[[int], Units], parts: tuple[Rows, Rows], most: float, seed: int
) -> list[tuple[Units, Solved]]:
    """Double the number of units as long as that helps, then refine them, and repeat.

    ``most`` is the error without units. Returns every stage tried, by held-out error, largest first.
    """

    def refined(units: Units, solved: Solved) -> tuple[Units, Solved]:
        moved = refine(units, solved.head, *parts[0], jax.random.key(seed), SETTINGS.refinements)
        return moved, solve(moved, *parts)

    def helps(new: Solved, old: Solved) -> bool:
        return old.error - new.error > SETTINGS.worth_doubling * (most - old.error)

    stages = [(units, solved)]
    while 2 * len(units.offset) <= SETTINGS.most_units:
        units = more(2 * len(units.offset))
        stages.append((units, solve(units, *parts)))
        if not helps(stages[-1][1], stages[-2][1]):
            break
    best = min(stages, key=lambda stage: stage[1].error)
    stages.append(refined(*best))
    while helps(stages[-1][1], best[1]) and 2 * len(stages[-1][0].offset) <= SETTINGS.most_units:
        best = stages[-1]
        units = more(2 * len(best[0].offset))
        stages.append(refined(units, solve(units, *parts)))
    return sorted(stages, key=lambda stage: -stage[1].error)


def _apart(before: tuple[Units, Solved], after: tuple[Units, Solved], typical: np.ndarray) -> float:
    """Half of the change of R̂ at typical points in the last improvement: as much may still be missing."""
    points = jnp.asarray(typical, jnp.float32)
    change = [jax.vmap(partial(value, units, solved.head))(points) for units, solved in (before, after)]
    return 0.5 * float(jnp.std(change[0] - change[1]))


def _believed(
    potential: RidgePotential, points: np.ndarray, gradients: np.ndarray, held: np.ndarray, away: np.ndarray
) -> bool:
    """Whether a fit to inner points predicts gradients at outer points better without a wall than with one."""
    inner, outer = np.quantile(away, [SETTINGS.inner, SETTINGS.outer])
    train, test = ~held & (away < inner), np.flatnonzero(held & (away > outer))[: SETTINGS.most_tried]
    if train.sum() < len(points) // 4 or len(test) < SETTINGS.fewest_tried:
        return False
    scaled, slopes = potential.standardise(points), gradients * potential.spread
    ground = potential.trend
    if ground.curvature.any():
        ground, _ = fit_quadratic(scaled[train], slopes[train], scaled[held], slopes[held])
    rest = slopes - ground.gradient(scaled)
    outer_rows = chunks(scaled[test]), chunks(rest[test])
    inner_rows = chunks(scaled[train]), chunks(rest[train])
    head = solve(potential.units, inner_rows, outer_rows, penalty=potential.solved.penalty)
    tried = replace(potential, trend=ground, solved=head, radius=float(inner))
    beyond, walled = (
        ((tried.slope(replace(tried, reach=reach).scaled_log_density(1.0), points[test]) - gradients[test]) ** 2)
        @ potential.spread**2
        for reach in (SETTINGS.beyond, 1.0)
    )
    return bool(beyond.sum() < walled.sum())


KIND = FitKind(
    basis="units on directions",
    serves=lambda dim: dim >= 1,
    begin=begin_ridge,
    sums=KeptRows,
    potential=RidgePotential,
    streams=False,
    # An Observer in many dimensions fits to the rows it keeps; in ten dimensions they take 32 MB.
    kept=200_000,
    # The same number as before an Observer's first fit: there is no cheaper one to start with.
    after_jump=1000,
    limited=False,
)
