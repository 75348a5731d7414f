"""R̂(x) = b·x + a quadratic, or none, + units on coordinates and directions: the fit above three dimensions.

Two grounds are tried, and the one that predicts held-out gradients better is kept: the units alone, which go on in
straight lines beyond the data, as a sum of many saturating terms does; or a quadratic in closed form and the units on
what it leaves. Directions are doubled, and refined by Adam, until held-out gradients are predicted no better. Whether
to believe the fit beyond the data is decided in the same way: by gradients at outer points, predicted from inner ones.

Inside, coordinates are in standard deviations of the points. Non-parametric only as its width grows.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from scipy.linalg import cho_solve

from onlooker.field.quadratic import Quadratic, fit_quadratic, no_quadratic
from onlooker.field.units import (
    CHUNK,
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

__all__ = ["RidgePotential", "fit_ridge"]

FEWEST_UNITS, MOST_UNITS = 64, 512
REFINEMENTS = 3000
# Points beyond the ellipsoid that holds this share of them are unexplored.
INSIDE = 0.998
# Where the fit is believed beyond it, up to this many of its radii; otherwise, and farther out, there is a wall.
BELIEVED = 1.5
BEYOND = 1e6
# Coordinates that are combinations of others have none of their own: this share of a coordinate's variance.
LEAST_VARIANCE = 1e-6
# Points whose error bars are computed at once.
ERROR_CHUNK = 512
# The share of points, by radius, that the fit is tried out from, and on.
INNER, OUTER = 0.7, 0.85
MOST_TRIED = 5000
# Rows that units on single coordinates alone are fitted to.
ROWS_ALONE = 50_000
# Held-out error must fall by this share of what is explained for the number of units to be doubled again.
WORTH_DOUBLING = 0.0005


@dataclass(frozen=True)
class RidgePotential:
    """A reward fitted to gradients in many dimensions."""

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

    def log_density(self, beta: float) -> Callable[[Array], Array]:
        """βR̂ of one point in standard deviations, less a wall where it is not believed; to be compiled."""

        def log_density(scaled: Array) -> Array:
            _, excess = self._inside(scaled)
            return beta * self._value(scaled) - excess - 2 * excess**2

        return log_density

    def _inside(self, scaled: Array) -> tuple[Array, Array]:
        """A point brought back to where the fit is believed, and how far it was from there."""
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
        """R̂ at points (n, dim); where it is not believed, that of the edge."""
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
        own, ridge = activations(self.units, jax.vmap(lambda one: self._inside(one)[0])(scaled))
        return np.asarray(jnp.concatenate([log_cosh(own).reshape(len(scaled), -1), log_cosh(ridge)], axis=1), float)

    def error(self, points: np.ndarray) -> np.ndarray:
        """Standard error of R̂, of its difference from the mean over typical points, with that of the basis."""
        middle, typical = self.features(self.typical).mean(axis=0), self.standardise(self.typical)
        found = [np.zeros(0)]
        for first in range(0, len(points), ERROR_CHUNK):
            some = points[first : first + ERROR_CHUNK]
            away = self.features(some) - middle
            learnt = self.noise * np.einsum("np,pn->n", away, cho_solve(self.solved.factor, away.T))
            trend = self.trend.error_squared(self.standardise(some), typical)
            found.append(np.sqrt(learnt + trend + self.capacity_error**2))
        return np.concatenate(found)

    def slope(self, function: Callable[[Array], Array], points: np.ndarray) -> np.ndarray:
        """∇ at points (n, dim) of a function of one point in standard deviations, such as a `log_density`."""
        scaled = jnp.asarray(self.standardise(points), jnp.float32)
        return np.asarray(lax.map(jax.grad(function), scaled, batch_size=CHUNK), float) / self.spread


def fit_ridge(points: np.ndarray, gradients: np.ndarray, held: np.ndarray, seed: int = 0) -> RidgePotential:
    """Fit to points and gradients (n, dim); rows where ``held`` is true choose every hyper-parameter."""
    centre, spread = points.mean(axis=0, dtype=float), points.std(axis=0, dtype=float)
    scaled, slopes = ((points - centre) / spread).astype(np.float32), (gradients * spread).astype(np.float32)
    zero = -centre / spread
    trend, quadratic_error = fit_quadratic(scaled[~held], slopes[~held], scaled[held], slopes[held])

    left = _without_own_units(scaled, slopes, held, zero, seed)
    count = min(MOST_UNITS, max(FEWEST_UNITS, 2 * points.shape[1]))
    units = start(scaled, left, zero, trend.curvature, count, seed)
    grounds = []
    for ground in (no_quadratic(points.shape[1]), trend):
        rest = (slopes - ground.gradient(scaled)).astype(np.float32)
        train, out = ((chunks(scaled[part]), chunks(rest[part])) for part in (~held, held))
        grounds.append((solve(units, train, out), ground, (train, out)))
    first, ground, parts = min(grounds, key=lambda one: one[0].error)
    more = partial(start, scaled, left, zero, trend.curvature, seed=seed)
    *_, (fewer, before), (units, solved) = _grow(units, first, more, parts, quadratic_error, seed)
    variance, axes = np.linalg.eigh(np.cov(scaled[:: max(1, len(scaled) // 50_000)].T))
    whiten = (axes / np.sqrt(np.maximum(variance, LEAST_VARIANCE))).T
    away = np.linalg.norm(scaled @ whiten.T, axis=1)
    radius = float(np.quantile(away, INSIDE))
    typical = points[np.random.default_rng(seed).integers(0, len(points), 500)].astype(float)
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
    return replace(potential, reach=BELIEVED if believed else 1.0)


def _without_own_units(
    scaled: np.ndarray, slopes: np.ndarray, held: np.ndarray, zero: np.ndarray, seed: int
) -> np.ndarray:
    """Gradients less what units on single coordinates explain of them."""
    alone = start(scaled, slopes, zero, np.eye(scaled.shape[1]), 1, seed)
    some = np.random.default_rng(seed).random(len(scaled)) < ROWS_ALONE / len(scaled)
    train, out = ((chunks(scaled[part]), chunks(slopes[part])) for part in (some & ~held, held))
    return slopes - predicted(alone, solve(alone, train, out).head, scaled)


def _grow(
    units: Units, solved: Solved, more: Callable[[int], Units], parts: tuple[Rows, Rows], most: float, seed: int
) -> list[tuple[Units, Solved]]:
    """Twice as many units as long as that helps, then refined, and again; ``most`` is the error without them.

    Every stage that was tried, in the order of their errors, the worst first.
    """

    def refined(units: Units, solved: Solved) -> tuple[Units, Solved]:
        moved = refine(units, solved.head, *parts[0], jax.random.key(seed), REFINEMENTS)
        return moved, solve(moved, *parts)

    def helps(new: Solved, old: Solved) -> bool:
        return old.error - new.error > WORTH_DOUBLING * (most - old.error)

    stages = [(units, solved)]
    while 2 * len(units.offset) <= MOST_UNITS:
        units = more(2 * len(units.offset))
        stages.append((units, solve(units, *parts)))
        if not helps(stages[-1][1], stages[-2][1]):
            break
    best = min(stages, key=lambda one: one[1].error)
    stages.append(refined(*best))
    while helps(stages[-1][1], best[1]) and 2 * len(stages[-1][0].offset) <= MOST_UNITS:
        best = stages[-1]
        units = more(2 * len(best[0].offset))
        stages.append(refined(units, solve(units, *parts)))
    return sorted(stages, key=lambda one: -one[1].error)


def _apart(one: tuple[Units, Solved], other: tuple[Units, Solved], typical: np.ndarray) -> float:
    """Half of what the last improvement changed at typical points: as much may still be missing."""
    points = jnp.asarray(typical, jnp.float32)
    change = [jax.vmap(partial(value, units, solved.head))(points) for units, solved in (one, other)]
    return 0.5 * float(jnp.std(change[0] - change[1]))


def _believed(
    potential: RidgePotential, points: np.ndarray, gradients: np.ndarray, held: np.ndarray, away: np.ndarray
) -> bool:
    """Whether a fit to inner points predicts gradients at outer ones better than its edge and a wall do."""
    inner, outer = np.quantile(away, [INNER, OUTER])
    train, test = ~held & (away < inner), np.flatnonzero(held & (away > outer))[:MOST_TRIED]
    if train.sum() < len(points) // 4 or len(test) < 50:
        return False
    scaled, slopes = potential.standardise(points), gradients * potential.spread
    ground = potential.trend
    if ground.curvature.any():
        ground, _ = fit_quadratic(scaled[train], slopes[train], scaled[held], slopes[held])
    rest = slopes - ground.gradient(scaled)
    few = chunks(scaled[test]), chunks(rest[test])
    head = solve(potential.units, (chunks(scaled[train]), chunks(rest[train])), few, penalty=potential.solved.penalty)
    tried = replace(potential, trend=ground, solved=head, radius=float(inner))
    beyond, walled = (
        ((tried.slope(replace(tried, reach=reach).log_density(1.0), points[test]) - gradients[test]) ** 2)
        @ potential.spread**2
        for reach in (BEYOND, 1.0)
    )
    return bool(beyond.sum() < walled.sum())
