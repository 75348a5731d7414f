"""R̂(x) = a quadratic + Σ a_ik logcosh(s_k(x_i − t_ik)) + Σ a_j logcosh(w_j·x + b_j): the fit above three dimensions.

Conservative by construction: ∇R̂ is linear in the head a, so that Σ‖g − ∇R̂(θ)‖² + λ‖a‖² is solved exactly from sums over
the data. Units on single coordinates are given (thresholds at quantiles, three sharpnesses); those on directions start
at the axes of the fitted quadratic and at random ones and are refined by Adam, with the rest frozen, before the head is
solved again. Their number is doubled until held-out gradients are predicted no better.

Inside, coordinates are in standard deviations of the points. Non-parametric only as its width grows.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax
from numpyro.infer import MCMC, NUTS
from scipy.linalg import cho_factor, cho_solve

from onlooker.field.quadratic import Quadratic, fit_quadratic

__all__ = ["RidgePotential", "fit_ridge"]

QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.9)
SHARPNESS = (1.0, 4.0, 16.0)
# At a coordinate's zero, where penalties have their kinks.
SHARPNESS_AT_ZERO = (4.0, 16.0, 64.0)
PENALTIES = 10.0 ** np.arange(-6, 4, 2)
FEWEST_UNITS, MOST_UNITS = 64, 512
REFINEMENTS = 6000
LEARNING_RATE = 0.01
BATCH = 1024
CHUNK = 4096
# Outside the ellipsoid that holds this share of the points R̂ is that of its surface, less a wall.
INSIDE = 0.998
# Held-out error must fall by this share of what is explained for the number of units to be doubled again.
WORTH_DOUBLING = 0.01


class Units(NamedTuple):
    """Hidden units: (K, dim) thresholds and sharpnesses on coordinates, (M, dim) directions and (M,) offsets."""

    threshold: Array
    sharpness: Array
    direction: Array
    offset: Array


class Head(NamedTuple):
    """The weights of the units, (K, dim) and (M,)."""

    own: Array
    ridge: Array


def _log_cosh(x: Array) -> Array:
    return jnp.abs(x) + jnp.log1p(jnp.exp(-2 * jnp.abs(x)))


def _activations(units: Units, point: Array) -> tuple[Array, Array]:
    """What goes into logcosh: (…, K, dim) and (…, M) for points (…, dim)."""
    own = units.sharpness * (point[..., None, :] - units.threshold)
    return own, point @ units.direction.T + units.offset


def _gradient(units: Units, head: Head, point: Array) -> Array:
    own, ridge = _activations(units, point)
    along = jnp.sum(jnp.tanh(own) * units.sharpness * head.own, axis=-2)
    return along + (jnp.tanh(ridge) * head.ridge) @ units.direction


class _Sums(NamedTuple):
    """Normal equations of the head; own units of different coordinates never meet."""

    own: Array
    across: Array
    ridge: Array
    towards_own: Array
    towards_ridge: Array
    squares: Array


@jax.jit
def _sums(units: Units, points: Array, gradients: Array) -> _Sums:
    """Over (chunks, rows, dim)."""
    steps, dim = units.threshold.shape
    count = len(units.offset)

    def add(total: _Sums, some: tuple[Array, Array]) -> tuple[_Sums, None]:
        point, gradient = some
        own, ridge = (jnp.tanh(part) for part in _activations(units, point))
        own = own * units.sharpness
        added = _Sums(
            jnp.einsum("nki,nli->ikl", own, own),
            (own.reshape(len(point), -1).T @ ridge).reshape(steps, dim, count),
            ridge.T @ ridge,
            jnp.einsum("nki,ni->ki", own, gradient),
            jnp.sum(ridge * (gradient @ units.direction.T), axis=0),
            jnp.sum(gradient * gradient),
        )
        return jax.tree.map(jnp.add, total, added), None

    zero = _Sums(
        jnp.zeros((dim, steps, steps)),
        jnp.zeros((steps, dim, count)),
        jnp.zeros((count, count)),
        jnp.zeros((steps, dim)),
        jnp.zeros(count),
        jnp.zeros(()),
    )
    total, _ = lax.scan(add, zero, (points, gradients))
    cross = total.across * units.direction.T[None]
    return total._replace(across=cross, ridge=total.ridge * (units.direction @ units.direction.T))


def _chunks(rows: np.ndarray) -> Array:
    size = min(CHUNK, len(rows))
    count = len(rows) // size
    return jnp.asarray(rows[: count * size].reshape(count, size, -1), jnp.float32)


def _system(sums: _Sums) -> tuple[np.ndarray, np.ndarray]:
    """The normal matrix and right-hand side of the whole head, own units first."""
    dim, steps = sums.own.shape[:2]
    own = np.zeros((steps, dim, steps, dim))
    for axis in range(dim):
        own[:, axis, :, axis] = sums.own[axis]
    size = steps * dim
    across = np.asarray(sums.across, float).reshape(size, -1)
    matrix = np.block([[own.reshape(size, size), across], [across.T, np.asarray(sums.ridge, float)]])
    return matrix, np.concatenate([np.asarray(sums.towards_own, float).reshape(-1), np.asarray(sums.towards_ridge)])


class Solved(NamedTuple):
    """A head, the factor of its penalised normal matrix, and the error on rows held out from it."""

    head: Head
    factor: tuple[np.ndarray, bool]
    error: float


def _solve(units: Units, train: tuple[Array, Array], held: tuple[Array, Array], everything: bool = False) -> Solved:
    """The head with the penalties that predict the held-out rows best; ``everything`` solves it once more with them."""
    matrix, towards = _system(_sums(units, *train))
    held_sums = _sums(units, *held)
    held_matrix, held_towards = _system(held_sums)
    count, (steps, dim) = held[0].shape[0] * held[0].shape[1], units.threshold.shape
    # Either kind of unit has a penalty of its own, in units of its part of the diagonal.
    kinds = np.arange(len(matrix)) >= steps * dim
    scales = [np.diag(matrix)[kinds == kind].mean() for kind in (False, True)]
    best: tuple[float, np.ndarray] | None = None
    for own in PENALTIES:
        for ridge in PENALTIES:
            penalty = np.where(kinds, ridge * scales[1], own * scales[0])
            weights = cho_solve(cho_factor(matrix + np.diag(penalty), overwrite_a=True), towards)
            gained = weights @ held_matrix @ weights - 2 * held_towards @ weights
            error = float((gained + float(held_sums.squares)) / count)
            if best is None or error < best[0]:
                best = error, penalty
    assert best is not None
    error, penalty = best
    if everything:
        matrix, towards = matrix + held_matrix, towards + held_towards
    factor = cho_factor(matrix + np.diag(penalty))
    weights = cho_solve(factor, towards)
    own_weights = jnp.asarray(weights[: steps * dim].reshape(steps, dim), jnp.float32)
    return Solved(Head(own_weights, jnp.asarray(weights[steps * dim :], jnp.float32)), factor, error)


@partial(jax.jit, static_argnames=("steps",))
def _refine(units: Units, head: Head, points: Array, gradients: Array, key: Array, steps: int) -> Units:
    """Adam on directions, offsets and their weights; the coordinates' own units stay."""
    rule = optax.adam(optax.cosine_decay_schedule(LEARNING_RATE, steps))
    flat_points, flat_gradients = (part.reshape(-1, part.shape[-1]) for part in (points, gradients))

    def loss(moving: tuple[Array, Array, Array], rows: Array) -> Array:
        direction, offset, weight = moving
        there = units._replace(direction=direction, offset=offset)
        found = _gradient(there, Head(head.own, weight), flat_points[rows])
        return jnp.mean(jnp.sum((flat_gradients[rows] - found) ** 2, axis=-1))

    def step(carry: Any, key: Array) -> tuple[Any, None]:
        moving, memory = carry
        rows = jax.random.randint(key, (BATCH,), 0, len(flat_points))
        update, memory = rule.update(jax.grad(loss)(moving, rows), memory)
        return (optax.apply_updates(moving, update), memory), None

    moving = (units.direction, units.offset, head.ridge)
    (moving, _), _ = lax.scan(step, (moving, rule.init(moving)), jax.random.split(key, steps))
    return units._replace(direction=moving[0], offset=moving[1])


def _start(
    points: np.ndarray, gradients: np.ndarray, zero: np.ndarray, curvature: np.ndarray, count: int, seed: int
) -> Units:
    """Units before they are refined; ``zero`` is where the coordinates' zero lies in units of the points.

    Directions are axes of the quadratic and some of the gradients themselves: when a reward is a sum over data, its
    sample gradients point along the directions that it depends on.
    """
    generator, dim = np.random.default_rng(seed), points.shape[1]
    some = points[generator.integers(0, len(points), 20_000)]
    quantiles = np.repeat(np.quantile(some, QUANTILES, axis=0), len(SHARPNESS), axis=0)
    thresholds = np.concatenate([quantiles, np.repeat(zero[None], len(SHARPNESS_AT_ZERO), axis=0)])
    each = np.concatenate([np.tile(SHARPNESS, len(QUANTILES)), SHARPNESS_AT_ZERO])
    sharpness = np.repeat(each[:, None], dim, axis=1)
    value, axes = np.linalg.eigh(curvature)
    strongest = axes.T[np.argsort(-np.abs(value))][: count // 4]
    taken = gradients[generator.integers(0, len(gradients), count - len(strongest))]
    direction = np.concatenate([strongest, taken + 1e-6 * generator.standard_normal(taken.shape)])
    direction *= generator.uniform(0.5, 2, (count, 1)) / (some @ direction.T).std(axis=0)[:, None]
    offset = -np.einsum("md,md->m", some[generator.integers(0, len(some), count)], direction)
    return Units(*(jnp.asarray(part, jnp.float32) for part in (thresholds, sharpness, direction, offset)))


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
    typical: np.ndarray
    noise: float
    held_out_error: float
    quadratic_error: float

    @property
    def dim(self) -> int:
        return len(self.centre)

    @property
    def settings(self) -> dict[str, float | str]:
        return {"units": len(self.units.offset), "own_units": int(self.units.threshold.size)}

    def _inside(self, scaled: Array) -> tuple[Array, Array]:
        """A point brought back to the ellipsoid of the data, and how far it was from it."""
        away = jnp.sqrt(jnp.sum((jnp.asarray(self.whiten, jnp.float32) @ scaled) ** 2) + 1e-12)
        return scaled * jnp.minimum(1, self.radius / away), jnp.maximum(away - self.radius, 0)

    def _value(self, scaled: Array) -> Array:
        inside, excess = self._inside(scaled)
        slope, curvature = (jnp.asarray(part, jnp.float32) for part in (self.trend.slope, self.trend.curvature))
        away = inside - jnp.asarray(self.trend.centre, jnp.float32)
        own, ridge = _activations(self.units, inside)
        learnt = jnp.sum(_log_cosh(own) * self.solved.head.own) + _log_cosh(ridge) @ self.solved.head.ridge
        return away @ slope + 0.5 * away @ curvature @ away + learnt - excess - 2 * excess**2

    def value(self, points: np.ndarray) -> np.ndarray:
        """R̂ at points (n, dim): outside the ellipsoid of the data, that of its surface less a wall."""
        scaled = jnp.asarray((points - self.centre) / self.spread, jnp.float32)
        return np.asarray(lax.map(self._value, scaled, batch_size=CHUNK), float)

    def explored(self, points: np.ndarray) -> np.ndarray:
        scaled = (points - self.centre) / self.spread
        return np.linalg.norm(scaled @ self.whiten.T, axis=1) <= self.radius

    def _features(self, points: np.ndarray) -> np.ndarray:
        scaled = jnp.asarray((points - self.centre) / self.spread, jnp.float32)
        own, ridge = _activations(self.units, jax.vmap(lambda one: self._inside(one)[0])(scaled))
        return np.asarray(jnp.concatenate([_log_cosh(own).reshape(len(scaled), -1), _log_cosh(ridge)], axis=1), float)

    def error(self, points: np.ndarray) -> np.ndarray:
        """Standard error of R̂, of its difference from the mean over typical points, given the basis."""
        away = self._features(points) - self._features(self.typical).mean(axis=0)
        learnt = self.noise * np.einsum("np,pn->n", away, cho_solve(self.solved.factor, away.T))
        scaled, typical = ((part - self.centre) / self.spread for part in (points, self.typical))
        return np.sqrt(learnt + self.trend.error_squared(scaled, typical))

    def chains(self, chains: int, warmup: int, draws: int, beta: float, seed: int) -> np.ndarray:
        """Draws of exp(βR̂) by NUTS, (chain, draw, dim)."""
        sampler = MCMC(
            NUTS(potential_fn=lambda point: -beta * self._value(point), max_tree_depth=7),
            num_warmup=warmup,
            num_samples=draws,
            num_chains=chains,
            chain_method="vectorized",
            progress_bar=False,
        )
        starts = self.typical[np.random.default_rng(seed).integers(0, len(self.typical), chains)]
        sampler.run(jax.random.key(seed), init_params=jnp.asarray((starts - self.centre) / self.spread, jnp.float32))
        return np.asarray(sampler.get_samples(group_by_chain=True)) * self.spread + self.centre


def fit_ridge(points: np.ndarray, gradients: np.ndarray, held: np.ndarray, seed: int = 0) -> RidgePotential:
    """Fit to points and gradients (n, dim); rows where ``held`` is true choose every hyper-parameter."""
    centre, spread = points.mean(axis=0, dtype=float), points.std(axis=0, dtype=float)
    scaled, slopes = (points - centre) / spread, gradients * spread
    trend, quadratic_error = fit_quadratic(scaled[~held], slopes[~held], scaled[held], slopes[held])
    rest = slopes - trend.gradient(scaled)
    train, out = ((_chunks(scaled[rows]), _chunks(rest[rows])) for rows in (~held, held))
    best: tuple[Units, Solved] | None = None
    count, key = min(MOST_UNITS, max(FEWEST_UNITS, 2 * points.shape[1])), jax.random.key(seed)
    while True:
        units = _start(scaled, rest, -centre / spread, trend.curvature, count, seed)
        solved = _solve(units, train, out)
        refined = _refine(units, solved.head, *train, key, REFINEMENTS)
        after = _solve(refined, train, out)
        if after.error < solved.error:
            units, solved = refined, after
        gain = np.inf if best is None else best[1].error - solved.error
        if best is None or gain > 0:
            best = units, solved
        if gain < WORTH_DOUBLING * (quadratic_error - best[1].error) or count >= MOST_UNITS:
            break
        count *= 2
    units, chosen = best
    solved = _solve(units, train, out, everything=True)
    covariance = np.cov(scaled[:: max(1, len(scaled) // 50_000)].T)
    whiten = np.linalg.inv(np.linalg.cholesky(covariance))
    radius = float(np.quantile(np.linalg.norm(scaled @ whiten.T, axis=1), INSIDE))
    typical = points[np.random.default_rng(seed).integers(0, len(points), 500)]
    noise = chosen.error / points.shape[1]
    return RidgePotential(
        centre, spread, trend, units, solved, whiten, radius, typical, noise, chosen.error, quadratic_error
    )
