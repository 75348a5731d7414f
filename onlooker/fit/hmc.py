"""Many-chain Hamiltonian Monte Carlo: one metric and one step for all chains, potentials as arguments.

    x′ = x + εM p,  p′ = p + ε∇log p(x),  accepted with probability min(1, exp(−ΔH)).

The metric is the covariance of the chains themselves, the step is adapted to an acceptance of .8, and the number of
steps of a trajectory is random, so that periodic orbits are left. Since the log density is a function of numbers that
are passed as arguments, all potentials of one shape share one compilation.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

__all__ = ["LogDensity", "hamiltonian_chains"]

LogDensity = Callable[[Any, Array], Array]

# Rounds of warm-up, after all but the last of which the metric is renewed, and steps of a round: warm-up and draws of
# any number share one compilation.
ROUNDS, ROUND = 5, 40
# Most leapfrog steps of a trajectory, and the acceptance sought.
LEAPFROGS, ACCEPTED = 16, 0.8
# Weight of the identity beside the chains' covariance, in chains.
SHRUNK = 5.0


class State(NamedTuple):
    """Chains, and their common step and metric."""

    points: Array
    step: Array
    root: Array
    key: Array


def hamiltonian_chains(
    log_density: LogDensity, numbers: Any, starts: np.ndarray, draws: int, seed: int
) -> Callable[[], np.ndarray]:
    """Warm up chains at ``starts`` (chains, dim); each call of the result returns (chain, draw, dim) more draws."""
    points = jnp.asarray(starts, jnp.float32)
    dim = points.shape[1]
    state = State(points, jnp.float32(0.3), jnp.eye(dim, dtype=jnp.float32), jax.random.key(seed))
    for turn in range(ROUNDS):
        state, _ = _advance(log_density, numbers, state, jnp.float32(1))
        if turn < ROUNDS - 1:
            state = state._replace(root=_root(state.points))
    held = [state]

    def more() -> np.ndarray:
        parts = []
        for _ in range(-(-draws // ROUND)):
            held[0], drawn = _advance(log_density, numbers, held[0], jnp.float32(0))
            parts.append(np.asarray(drawn, float))
        return np.concatenate(parts)[:draws].transpose(1, 0, 2)

    return more


def _root(points: Array) -> Array:
    count = points.shape[0]
    # Chains that are still far away must not stretch the metric.
    middle = jnp.median(points, axis=0)
    away = points - middle[None]
    distance = jnp.sqrt(jnp.sum(away**2, axis=1))
    away = away * jnp.minimum(1.0, 3 * jnp.median(distance) / jnp.maximum(distance, 1e-12))[:, None]
    covariance = away.T @ away / count
    scale = jnp.mean(jnp.diag(covariance))
    shrunk = (count * covariance + SHRUNK * scale * jnp.eye(points.shape[1], dtype=points.dtype)) / (count + SHRUNK)
    return jnp.linalg.cholesky(shrunk)


@partial(jax.jit, static_argnames="log_density")
def _advance(log_density: LogDensity, numbers: Any, state: State, adapted: Array) -> tuple[State, Array]:
    """A round of steps, and the points after each; the step is adapted if ``adapted`` is 1 and not if it is 0."""
    height = jax.vmap(partial(log_density, numbers))
    slope = jax.vmap(jax.grad(partial(log_density, numbers)))

    def one(state: State, _: None) -> tuple[State, Array]:
        key, first, second, third, fourth = jax.random.split(state.key, 5)
        x, root = state.points, state.root
        momentum = jax.random.normal(first, x.shape)
        step = state.step * jax.random.uniform(second, minval=0.7, maxval=1.0)
        length = jax.random.randint(third, (), 1, LEAPFROGS + 1)

        def leap(_: Array, moving: tuple[Array, Array]) -> tuple[Array, Array]:
            x, p = moving
            x = x + step * p @ root.T
            return x, p + step * slope(x) @ root

        before = height(x) - 0.5 * jnp.sum(momentum**2, axis=1)
        p = momentum + 0.5 * step * slope(x) @ root
        there, p = lax.fori_loop(0, length, leap, (x, p))
        p = p - 0.5 * step * slope(there) @ root
        gain = height(there) - 0.5 * jnp.sum(p**2, axis=1) - before
        gain = jnp.where(jnp.isfinite(gain), gain, -jnp.inf)
        chance = jnp.exp(jnp.minimum(gain, 0.0))
        taken = jax.random.uniform(fourth, chance.shape) < chance
        x = jnp.where(taken[:, None], there, x)
        moved = state.step * jnp.exp(0.2 * adapted * (jnp.mean(chance) - ACCEPTED))
        return State(x, moved, root, key), x

    return lax.scan(one, state, None, length=ROUND)
