"""M = sym E[r r₊ᵀ]: the second moment of what a fit leaves, without noise, and the directions in which it varies.

r and r₊ are residuals of two rows with independent noise at nearly the same place: successive rows of one agent. Then
E[rr₊ᵀ] is that of the residual gradient, the matrix of active subspaces (Constantine 2015). It is zero if nothing is
left, so it is also a test of lack of fit. Its chance level is measured by sums over groups of agents with random signs.

Where M is too weak to see one direction, projection pursuit (Friedman & Stuetzle 1981) looks for a w with a large
Σ_q (E[w·r He_q(w·z)])², q = 2, 3, 4, the first Hermite coefficients that a quadratic cannot have.
"""

from functools import partial
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from onlooker.fit.ridge_frame import Pairs, Rows, white

__all__ = ["Active", "active_subspace", "pursue"]

# Groups of agents whose signs are drawn, and draws.
GROUPS, DRAWS = 48, 60
# Standard deviations of the largest chance eigenvalue above its mean: one fit in 2000 finds a direction by chance.
BEYOND = 4.5
# Rows looked at once.
BLOCK = 16_384
# Starts that are pursued to the end, and steps of all and of these.
PURSUED, FIRST_STEPS, LAST_STEPS = 8, 3, 12
# The gain that chance reaches, as measured on quadratics: 55 in 8 dimensions, 130–210 in 40.
GAIN_PER_DIMENSION, LEAST_GAIN = 6.0, 30.0


class Active(NamedTuple):
    """The active subspace.

    Attributes
    ----------
    values
        Eigenvalues of M, largest first, in units of the noise.
    axes
        (dim, dim): directions in rows, as those of units.
    number
        How many eigenvalues exceed chance.
    chance
        The level that chance reaches.
    """

    values: np.ndarray
    axes: np.ndarray
    number: int
    chance: float

    @property
    def misfit(self) -> float:
        """The largest eigenvalue over its chance level: above 1, the fit lacks something."""
        return float(self.values[0] / max(self.chance, 1e-300))


def active_subspace(
    residuals: np.ndarray, weights: np.ndarray, precision: np.ndarray, pairs: Pairs, seed: int
) -> Active:
    """M of weighted residuals (n, dim)."""
    u = white(residuals, precision) * np.sqrt(weights)[:, None].astype(np.float32)
    first, second = u[pairs[0]], u[pairs[1]]
    # A few huge products would make M and its chance level meaningless.
    size = np.sqrt((first**2).sum(axis=1) * (second**2).sum(axis=1))
    bound = 20 * np.median(size) + 1e-30
    first = first * np.minimum(1, bound / np.maximum(size, 1e-30))[:, None].astype(np.float32)
    edges = np.linspace(0, len(first), min(GROUPS, len(first)) + 1).astype(int)
    parts = np.stack([first[a:b].T @ second[a:b] for a, b in pairwise(edges)]).astype(float)
    parts = (parts + parts.transpose(0, 2, 1)) / 2
    total = parts.sum(axis=0)
    values, axes = np.linalg.eigh(total)
    values, axes = values[::-1] / len(first), axes[:, ::-1]
    directions = (axes / np.sqrt(precision)[:, None]).T
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], (DRAWS, len(parts)))
    flipped = np.einsum("sb,bij->sij", signs, parts - total / len(parts)) / len(first)
    limits = []
    for count in range(len(values)):
        limits.append(_chance(flipped, axes[:, count:]))
        if values[count] <= limits[-1]:
            return Active(values, directions, count, limits[0])
    return Active(values, directions, len(values), limits[0])


def _chance(flipped: np.ndarray, rest: np.ndarray) -> float:
    """The largest eigenvalue that chance reaches in what earlier axes leave: axes with a signal vary more."""
    chance = np.linalg.eigvalsh(rest.T @ flipped @ rest)
    level = np.maximum(chance[:, -1], -chance[:, 0])
    return float(level.mean() + BEYOND * level.std())


def pursue(rows: Rows, residuals: np.ndarray, precision: np.ndarray, starts: np.ndarray) -> np.ndarray | None:
    """The direction (dim,) of the largest gain, or None if chance reaches it."""
    z, weights, dim = rows.z, rows.weights, rows.z.shape[1]
    heavy = residuals * (weights[:, None] * precision).astype(np.float32)
    size = BLOCK if len(z) >= BLOCK else len(z)
    whole = len(z) // size * size
    blocks = [jnp.asarray(part[:whole]).reshape(-1, size, dim) for part in (z, heavy.astype(np.float32))]
    scale = jnp.asarray(precision, jnp.float32)
    some = [part[:: max(1, len(part) // 4)] for part in blocks]
    starts = starts / np.linalg.norm(starts, axis=1, keepdims=True)
    found, gains = _ascend(jnp.asarray(starts, jnp.float32), *some, scale, FIRST_STEPS)
    best = np.argsort(-np.asarray(gains))[:PURSUED]
    found, gains = _ascend(found[best], *blocks, scale, LAST_STEPS)
    top = int(np.argmax(np.asarray(gains)))
    level = float(np.mean(weights**2 * ((residuals**2) @ precision))) / dim
    if float(gains[top]) / max(level, 1e-300) < GAIN_PER_DIMENSION * dim + LEAST_GAIN:
        return None
    return np.asarray(found[top], float)


@partial(jax.jit, static_argnames="steps")
def _ascend(starts: Array, z: Array, heavy: Array, precision: Array, steps: int) -> tuple[Array, Array]:
    count = z.shape[0] * z.shape[1]

    def unit(w: Array) -> Array:
        return w / jnp.linalg.norm(w, axis=1, keepdims=True)

    def block(w: Array, rows: tuple[Array, Array]) -> Array:
        along, slope = jnp.clip(rows[0] @ w.T, -4, 4), rows[1] @ w.T
        square = along * along
        bases = (
            (square - 1) / np.float32(np.sqrt(2)),
            (square - 3) * along / np.float32(np.sqrt(6)),
            (square * square - 6 * square + 3) / np.float32(np.sqrt(24)),
        )
        return jnp.stack([jnp.sum(slope * basis, axis=0) for basis in bases])

    def gain(w: Array) -> Array:
        w = unit(w)
        sums = jax.lax.map(partial(block, w), (z, heavy)).sum(axis=0)
        return jnp.sum(sums**2, axis=0) / count / ((w * w) @ precision)

    def both(w: Array) -> tuple[Array, Array]:
        value, back = jax.vjp(gain, w)
        return value, back(jnp.ones_like(value))[0]

    def step(_: int, state: tuple[Array, ...]) -> tuple[Array, ...]:
        w, value, slope, rate = state
        here = unit(w)
        slope = slope - jnp.sum(slope * here, axis=1, keepdims=True) * here
        moved = here + rate[:, None] * slope / (jnp.linalg.norm(slope, axis=1, keepdims=True) + 1e-9)
        higher, new = both(moved)
        better = higher > value
        return (
            jnp.where(better[:, None], moved, w),
            jnp.where(better, higher, value),
            jnp.where(better[:, None], new, slope),
            jnp.where(better, rate * 1.3, rate * 0.4),
        )

    value, slope = both(starts)
    rate = jnp.full(len(starts), 0.3, starts.dtype)
    w, value, _, _ = jax.lax.fori_loop(0, steps, step, (starts, value, slope, rate))
    return unit(w), value
