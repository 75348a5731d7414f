"""Σ a_ik logcosh(s_k(x_i − t_ik)) + Σ a_j logcosh(w_j·x + b_j): units on coordinates and on directions.

The gradient is linear in the weights a (the head), so that Σ‖g − ∇R̂(θ)‖² + λ‖a‖² is minimised exactly from sums
over the data. Units on single coordinates are fixed: thresholds at quantiles and at zero, several sharpnesses, and a
straight line. Directions start at axes of the fitted quadratic and at residual gradients, and may be refined by Adam
before the head is solved again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from scipy.linalg import cho_factor, cho_solve

from onlooker.fit.error_bars import disagreement

__all__ = [
    "SETTINGS",
    "Head",
    "RidgeSettings",
    "Solved",
    "Units",
    "activations",
    "chunks",
    "gradient",
    "log_cosh",
    "predicted",
    "refine",
    "solve",
    "start",
    "value",
]

# Rows processed at a time: 4096 rows of 500 units take 8 MB in float32.
CHUNK = 4096


@dataclass(frozen=True)
class RidgeSettings:
    """Constants of the fit by units on coordinates and directions.

    Attributes
    ----------
    quantiles
        Quantiles of the points that are thresholds of units on single coordinates: spread over the bulk, none in the
        tails.
    sharpness
        Sharpnesses of these units, per standard deviation of the points: as wide as the data, 4 and 16 times narrower.
    sharpness_at_zero
        Sharpnesses of the units at a coordinate's zero, where penalties have kinks; a kink has no width, so these go
        further.
    far
        Threshold of the unit that is a straight line along a coordinate, in standard deviations: beyond all data.
    penalties
        Penalties on weights tried, in units of the normal matrix's diagonal: from negligible to dominant.
    learning_rate
        Initial learning rate of Adam, which refines directions; it decays to zero along a cosine.
    batch
        Rows per step of Adam.
    refinements
        Steps of Adam: the held-out error decides afterwards whether they helped.
    fewest_units
        Initial number of directions, unless two per coordinate are more.
    most_units
        Largest number of directions: the time to solve for the head grows with its cube.
    worth_doubling
        Doubling the units must lower the held-out error by this share of what is explained already.
    inside
        Points beyond the ellipsoid that holds this share of them are unexplored.
    believed
        How far the fit is trusted beyond that ellipsoid, in its radii, if trusted; farther out there is a wall.
    beyond
        Distance of the wall, in radii, when the fit is tested without one: beyond all data.
    least_variance
        Lower bound on the variance along an axis, as coordinates may be combinations of others.
    covariance_rows
        Rows that the covariance of the points is computed from: its error is then below a hundredth.
    error_chunk
        Points whose error bars are computed at a time: 512 points with 1000 units take 4 MB.
    inner
        Share of points, by radius, that the test of extrapolation is fitted to.
    outer
        Points beyond this share are predicted in that test: the gap to ``inner`` makes it an extrapolation.
    most_tried
        Largest number of rows predicted in that test, which bounds its time.
    fewest_tried
        With fewer rows the fit is not tested, and not trusted beyond the data.
    rows_alone
        Rows that units on single coordinates alone are fitted to, before directions are chosen: a first guess.
    quantile_rows
        Rows that quantiles and the widths of directions are computed from: their error is then below a hundredth.
    """

    quantiles: tuple[float, ...] = (0.1, 0.3, 0.5, 0.7, 0.9)
    sharpness: tuple[float, ...] = (1.0, 4.0, 16.0)
    sharpness_at_zero: tuple[float, ...] = (4.0, 16.0, 64.0, 256.0)
    far: float = -20.0
    penalties: tuple[float, ...] = tuple((10.0 ** np.arange(-6, 4, 2)).tolist())
    learning_rate: float = 0.02
    batch: int = 1024
    refinements: int = 3000
    fewest_units: int = 64
    most_units: int = 512
    worth_doubling: float = 0.0005
    inside: float = 0.998
    believed: float = 1.5
    beyond: float = 1e6
    least_variance: float = 1e-6
    covariance_rows: int = 50_000
    error_chunk: int = 512
    inner: float = 0.7
    outer: float = 0.85
    most_tried: int = 5000
    fewest_tried: int = 50
    rows_alone: int = 50_000
    quantile_rows: int = 20_000


SETTINGS = RidgeSettings()


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


def log_cosh(x: Array) -> Array:
    return jnp.abs(x) + jnp.log1p(jnp.exp(-2 * jnp.abs(x)))


def activations(units: Units, point: Array) -> tuple[Array, Array]:
    """Arguments of logcosh, (…, K, dim) and (…, M), for points (…, dim)."""
    ahead = (None,) * (point.ndim - 1)
    own = units.sharpness[ahead] * (point[..., None, :] - units.threshold[ahead])
    return own, point @ units.direction.T + units.offset[ahead]


def gradient(units: Units, head: Head, point: Array) -> Array:
    """∇ of the units' sum at points (…, dim)."""
    own, ridge = activations(units, point)
    ahead = (None,) * (point.ndim - 1)
    along = jnp.sum(jnp.tanh(own) * units.sharpness[ahead] * head.own[ahead], axis=-2)
    return along + (jnp.tanh(ridge) * head.ridge[ahead]) @ units.direction


class _Sums(NamedTuple):
    """Normal equations of the head; units on different coordinates have no cross terms."""

    own: Array
    across: Array
    ridge: Array
    towards_own: Array
    towards_ridge: Array
    squares: Array


@jax.jit
@jax.default_matmul_precision("highest")
def _sums(units: Units, points: Array, gradients: Array) -> _Sums:
    """Normal equations from points and gradients (chunks, rows, dim)."""
    steps, dim = units.threshold.shape
    count = len(units.offset)

    def add(total: _Sums, chunk: tuple[Array, Array]) -> tuple[_Sums, None]:
        point, gradient = chunk
        own, ridge = (jnp.tanh(part) for part in activations(units, point))
        own = own * units.sharpness[None]
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


def chunks(rows: np.ndarray) -> Array:
    """Rows as (chunks, rows, dim), in equal chunks; the remainder, fewer rows than chunks, is dropped."""
    count = -(-len(rows) // CHUNK)
    size = len(rows) // count
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
    """A fitted head.

    Attributes
    ----------
    head
        The weights.
    penalty
        The penalty on each weight.
    factor
        Cholesky factor of the penalised normal matrix.
    error
        Mean squared error on the held-out rows.
    inflation
        Disagreement of the two parts of the data in error bars, see `disagreement`; 1 if not computed.
    """

    head: Head
    penalty: np.ndarray
    factor: tuple[np.ndarray, bool]
    error: float
    inflation: float = 1.0


Rows = tuple[Array, Array]


def solve(
    units: Units, train: Rows, held: Rows, penalty: np.ndarray | None = None, about: np.ndarray | None = None
) -> Solved:
    """The head with the penalties that predict the held-out rows best, or with ``penalty`` if given.

    If the features ``about`` (n, terms) of some points are given, the fits to the two parts of the data are compared
    there, and the head is solved with the held-out rows included.
    """
    matrix, towards = _system(_sums(units, *train))
    held_sums = _sums(units, *held)
    held_matrix, held_towards = _system(held_sums)
    count = held[0].shape[0] * held[0].shape[1]

    def error(weights: np.ndarray) -> float:
        gained = weights @ held_matrix @ weights - 2 * held_towards @ weights
        return float((gained + float(held_sums.squares)) / count)

    def solution(penalty: np.ndarray) -> np.ndarray:
        return cho_solve(cho_factor(matrix + np.diag(penalty), overwrite_a=True), towards)

    if penalty is None:
        least, penalty = _search(lambda candidate: error(solution(candidate)), units, matrix)
    else:
        least = error(solution(penalty))
    inflation = 1.0
    if about is not None:
        noise = least / units.threshold.shape[1]
        halves = [(matrix, towards), (held_matrix, held_towards)]
        inflation = disagreement(halves, penalty, about - about.mean(axis=0), noise)
        matrix, towards = matrix + held_matrix, towards + held_towards
    factor = cho_factor(matrix + np.diag(penalty))
    steps, dim = units.threshold.shape
    own, ridge = np.split(cho_solve(factor, towards), [steps * dim])
    head = Head(jnp.asarray(own.reshape(steps, dim), jnp.float32), jnp.asarray(ridge, jnp.float32))
    return Solved(head, penalty, factor, least, inflation)


def _search(error: Callable[[np.ndarray], float], units: Units, matrix: np.ndarray) -> tuple[float, np.ndarray]:
    """The least error and its penalties: one for units on coordinates, one for those on directions, none for lines.

    Each is in units of its part of the diagonal. They are nearly independent, so they are chosen one after the other.
    """
    steps, dim = units.threshold.shape
    numbers, diagonal = np.arange(len(matrix)), np.diag(matrix)
    ridge, line = numbers >= steps * dim, (numbers >= (steps - 1) * dim) & (numbers < steps * dim)
    own_scale, ridge_scale, least = diagonal[~ridge].mean(), diagonal[ridge].mean(), 1e-9 * diagonal.max()

    def penalty(own: float, directed: float) -> np.ndarray:
        return np.where(line, 0, np.where(ridge, directed * ridge_scale, own * own_scale)) + least

    _, own = min((error(penalty(tried, SETTINGS.penalties[1])), tried) for tried in SETTINGS.penalties)
    lowest, directed = min((error(penalty(own, tried)), tried) for tried in SETTINGS.penalties)
    return lowest, penalty(own, directed)


def value(units: Units, head: Head, point: Array) -> Array:
    """The units' sum at one point."""
    own, ridge = activations(units, point)
    return jnp.sum(log_cosh(own) * head.own) + log_cosh(ridge) @ head.ridge


def predicted(units: Units, head: Head, points: np.ndarray) -> np.ndarray:
    """The units' gradient at points (n, dim)."""
    compiled = jax.jit(gradient)
    return np.concatenate(
        [
            np.asarray(compiled(units, head, jnp.asarray(points[i : i + CHUNK], jnp.float32)))
            for i in range(0, len(points), CHUNK)
        ]
    )


@partial(jax.jit, static_argnames=("steps",))
def refine(units: Units, head: Head, points: Array, gradients: Array, key: Array, steps: int) -> Units:
    """Refine directions, offsets and their weights by Adam; units on coordinates stay fixed."""
    import optax

    rule = optax.adam(optax.cosine_decay_schedule(SETTINGS.learning_rate, steps))
    flat_points, flat_gradients = (part.reshape(-1, part.shape[-1]) for part in (points, gradients))

    def loss(moving: tuple[Array, Array, Array], rows: Array) -> Array:
        direction, offset, weight = moving
        moved = units._replace(direction=direction, offset=offset)
        fitted = gradient(moved, Head(head.own, weight), flat_points[rows])
        return jnp.mean(jnp.sum((flat_gradients[rows] - fitted) ** 2, axis=-1))

    def step(carry: Any, key: Array) -> tuple[Any, None]:
        moving, memory = carry
        rows = jax.random.randint(key, (SETTINGS.batch,), 0, len(flat_points))
        slope = jax.grad(loss)(moving, rows)
        # Optax divides its int32 count of steps by a float.
        with jax.numpy_dtype_promotion("standard"):
            update, memory = rule.update(slope, memory)
        return (optax.apply_updates(moving, update), memory), None

    moving = (units.direction, units.offset, head.ridge)
    (moving, _), _ = lax.scan(step, (moving, rule.init(moving)), jax.random.split(key, steps))
    return units._replace(direction=moving[0], offset=moving[1])


def start(
    points: np.ndarray, gradients: np.ndarray, zero: np.ndarray, curvature: np.ndarray, count: int, seed: int
) -> Units:
    """Initial units.

    Parameters
    ----------
    points
        Standardised points (n, dim).
    gradients
        Gradients (n, dim) to be explained. A sample of them become directions: if a reward is a sum over data, its
        gradients point along the directions it depends on.
    zero
        The origin in standardised coordinates. Half of those directions have their threshold there, as in linear
        models; the others at points.
    curvature
        Curvature of the quadratic: its strongest axes are a quarter of the directions.
    count
        Number of directions.
    seed
        Seed of all random numbers.
    """
    generator, dim = np.random.default_rng(seed), points.shape[1]
    sample = points[generator.integers(0, len(points), SETTINGS.quantile_rows)]
    quantiles = np.repeat(np.quantile(sample, SETTINGS.quantiles, axis=0), len(SETTINGS.sharpness), axis=0)
    line = np.full((1, dim), SETTINGS.far)
    thresholds = np.concatenate([quantiles, np.repeat(zero[None], len(SETTINGS.sharpness_at_zero), axis=0), line])
    each = np.concatenate([np.tile(SETTINGS.sharpness, len(SETTINGS.quantiles)), SETTINGS.sharpness_at_zero, [1.0]])
    sharpness = np.repeat(each[:, None], dim, axis=1)
    value, axes = np.linalg.eigh(curvature)
    strongest = axes.T[np.argsort(-np.abs(value))][: count // 4]
    taken = gradients[generator.integers(0, len(gradients), count - len(strongest))]
    direction = np.concatenate([strongest, taken + 1e-6 * generator.standard_normal(taken.shape)])
    direction *= generator.uniform(0.5, 2, (count, 1)) / (sample @ direction.T).std(axis=0)[:, None]
    through = sample[generator.integers(0, len(sample), count)]
    through[count - len(taken) // 2 :] = zero
    offset = -np.einsum("md,md->m", through, direction)
    return Units(*(jnp.asarray(part, jnp.float32) for part in (thresholds, sharpness, direction, offset)))
