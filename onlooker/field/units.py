"""Σ a_ik logcosh(s_k(x_i − t_ik)) + Σ a_j logcosh(w_j·x + b_j): units on coordinates and on directions, and their head.

The gradient is linear in the head a, so that Σ‖g − ∇R̂(θ)‖² + λ‖a‖² is solved exactly from sums over the data. Units on
single coordinates are given: thresholds at quantiles and at zero, several sharpnesses, and a straight line. Directions
start at axes of the fitted quadratic and at residual gradients, and may be refined by Adam before the head is solved
again.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax
from scipy.linalg import cho_factor, cho_solve

from onlooker.field.disagreement import disagreement

__all__ = [
    "Head",
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

QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.9)
SHARPNESS = (1.0, 4.0, 16.0)
# At a coordinate's zero, where penalties have their kinks.
SHARPNESS_AT_ZERO = (4.0, 16.0, 64.0, 256.0)
PENALTIES = 10.0 ** np.arange(-6, 4, 2)
LEARNING_RATE = 0.02
BATCH = 1024
CHUNK = 4096
# The line along a coordinate is a unit whose threshold nobody reaches.
FAR = -20.0


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
    """What goes into logcosh: (…, K, dim) and (…, M) for points (…, dim)."""
    own = units.sharpness * (point[..., None, :] - units.threshold)
    return own, point @ units.direction.T + units.offset


def gradient(units: Units, head: Head, point: Array) -> Array:
    own, ridge = activations(units, point)
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
@jax.default_matmul_precision("highest")
def _sums(units: Units, points: Array, gradients: Array) -> _Sums:
    """Over (chunks, rows, dim)."""
    steps, dim = units.threshold.shape
    count = len(units.offset)

    def add(total: _Sums, some: tuple[Array, Array]) -> tuple[_Sums, None]:
        point, gradient = some
        own, ridge = (jnp.tanh(part) for part in activations(units, point))
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


def chunks(rows: np.ndarray) -> Array:
    # As equal as they can be: fewer rows are left over than there are chunks.
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
    """A head.

    Attributes
    ----------
    head, penalty, factor
        The weights, their penalty, and the factor of the penalised normal matrix.
    error
        Mean squared error on the rows held out.
    inflation
        By how much more the two parts of the data disagree than error bars allow; 1 when nobody looked.
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
    """The head with the penalties that predict the held-out rows best, or the ``penalty`` given.

    With the features (n, terms) of some places ``about``, it is solved once more with the held-out rows, and the two
    parts of the data are compared there.
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
        least, penalty = _search(lambda one: error(solution(one)), units, matrix)
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
    """The least error and its penalty: one for units on coordinates, one for those on directions, none for lines.

    Each is in units of its part of the diagonal. They hardly depend on each other: first one is found, then the other.
    """
    steps, dim = units.threshold.shape
    numbers, diagonal = np.arange(len(matrix)), np.diag(matrix)
    ridge, line = numbers >= steps * dim, (numbers >= (steps - 1) * dim) & (numbers < steps * dim)
    own_scale, ridge_scale, least = diagonal[~ridge].mean(), diagonal[ridge].mean(), 1e-9 * diagonal.max()

    def penalty(own: float, other: float) -> np.ndarray:
        return np.where(line, 0, np.where(ridge, other * ridge_scale, own * own_scale)) + least

    _, own = min((error(penalty(one, PENALTIES[1])), one) for one in PENALTIES)
    lowest, other = min((error(penalty(own, one)), one) for one in PENALTIES)
    return lowest, penalty(own, other)


def value(units: Units, head: Head, point: Array) -> Array:
    """What the units add up to at one point."""
    own, ridge = activations(units, point)
    return jnp.sum(log_cosh(own) * head.own) + log_cosh(ridge) @ head.ridge


def predicted(units: Units, head: Head, points: np.ndarray) -> np.ndarray:
    """The units' gradient at points (n, dim)."""
    found = jax.jit(gradient)
    return np.concatenate(
        [
            np.asarray(found(units, head, jnp.asarray(points[i : i + CHUNK], jnp.float32)))
            for i in range(0, len(points), CHUNK)
        ]
    )


@partial(jax.jit, static_argnames=("steps",))
def refine(units: Units, head: Head, points: Array, gradients: Array, key: Array, steps: int) -> Units:
    """Adam on directions, offsets and their weights; the coordinates' own units stay."""
    rule = optax.adam(optax.cosine_decay_schedule(LEARNING_RATE, steps))
    flat_points, flat_gradients = (part.reshape(-1, part.shape[-1]) for part in (points, gradients))

    def loss(moving: tuple[Array, Array, Array], rows: Array) -> Array:
        direction, offset, weight = moving
        there = units._replace(direction=direction, offset=offset)
        found = gradient(there, Head(head.own, weight), flat_points[rows])
        return jnp.mean(jnp.sum((flat_gradients[rows] - found) ** 2, axis=-1))

    def step(carry: Any, key: Array) -> tuple[Any, None]:
        moving, memory = carry
        rows = jax.random.randint(key, (BATCH,), 0, len(flat_points))
        update, memory = rule.update(jax.grad(loss)(moving, rows), memory)
        return (optax.apply_updates(moving, update), memory), None

    moving = (units.direction, units.offset, head.ridge)
    (moving, _), _ = lax.scan(step, (moving, rule.init(moving)), jax.random.split(key, steps))
    return units._replace(direction=moving[0], offset=moving[1])


def start(
    points: np.ndarray, gradients: np.ndarray, zero: np.ndarray, curvature: np.ndarray, count: int, seed: int
) -> Units:
    """Units before they are refined.

    Parameters
    ----------
    points, gradients
        (n, dim): what is there to be explained. Some of the gradients are directions: when a reward is a sum over data,
        its sample gradients point along the directions that it depends on.
    zero
        Where the coordinates' zero lies in units of the points. Half of those directions have their threshold there,
        as linear models have; the others at points.
    curvature
        Of the quadratic: its strongest axes are a quarter of the directions.
    """
    generator, dim = np.random.default_rng(seed), points.shape[1]
    some = points[generator.integers(0, len(points), 20_000)]
    quantiles = np.repeat(np.quantile(some, QUANTILES, axis=0), len(SHARPNESS), axis=0)
    line = np.full((1, dim), FAR)
    thresholds = np.concatenate([quantiles, np.repeat(zero[None], len(SHARPNESS_AT_ZERO), axis=0), line])
    each = np.concatenate([np.tile(SHARPNESS, len(QUANTILES)), SHARPNESS_AT_ZERO, [1.0]])
    sharpness = np.repeat(each[:, None], dim, axis=1)
    value, axes = np.linalg.eigh(curvature)
    strongest = axes.T[np.argsort(-np.abs(value))][: count // 4]
    taken = gradients[generator.integers(0, len(gradients), count - len(strongest))]
    direction = np.concatenate([strongest, taken + 1e-6 * generator.standard_normal(taken.shape)])
    direction *= generator.uniform(0.5, 2, (count, 1)) / (some @ direction.T).std(axis=0)[:, None]
    through = some[generator.integers(0, len(some), count)]
    through[count - len(taken) // 2 :] = zero
    offset = -np.einsum("md,md->m", through, direction)
    return Units(*(jnp.asarray(part, jnp.float32) for part in (thresholds, sharpness, direction, offset)))
