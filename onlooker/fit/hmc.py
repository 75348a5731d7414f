"""Many-chain Hamiltonian Monte Carlo: one metric and one step for all chains, potentials as arguments.

    x′ = x + εM p,  p′ = p + ε∇log p(x),  accepted with probability min(1, exp(−ΔH)).

The metric is the covariance of all chains over half a round, the step is adapted to an acceptance of .8, and the number
of steps of a trajectory is random, so that periodic orbits are left. The log density is a function of numbers that are
passed as arguments: all potentials of one shape share one compilation.

While chains warm up, each has a step of its own, because some start where the density is far steeper than where they
end. Those that stay where it is lower than elsewhere by a factor without any share of the mass begin again elsewhere.
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
# Share of the trajectories that are short, and their step relative to the others': they reach steep places.
SHORT, SHORTER = 0.2, 0.1
# Log densities lower than the chains' median by this much, and this many standard deviations of a normal law's own.
LOST, LOST_DEVIATIONS = 50.0, 5.0
# Weight of the identity beside the chains' covariance, in chains.
SHRUNK = 5.0


class State(NamedTuple):
    """Chains, their steps, and their common metric."""

    points: Array
    step: Array
    root: Array
    key: Array


def hamiltonian_chains(
    log_density: LogDensity, numbers: Any, starts: np.ndarray, draws: int, seed: int
) -> Callable[[], np.ndarray]:
    """Warm up chains at ``starts`` (chains, dim); each call of the result returns (chain, draw, dim) more draws."""
    points = jnp.asarray(starts, jnp.float32)
    chains, dim = points.shape
    generator = np.random.default_rng(seed)
    steps = jnp.full(chains, 0.3, jnp.float32)
    state = State(points, steps, jnp.eye(dim, dtype=jnp.float32), jax.random.key(seed))
    for turn in range(ROUNDS):
        state, drawn, heights = _advance(log_density, numbers, state, jnp.float32(1))
        state = _found_again(state, np.asarray(heights, float), generator)
        if turn < ROUNDS - 1:
            # The later half of the round: in many dimensions the chains alone are too few for a covariance.
            state = state._replace(root=_root(drawn[ROUND // 2 :].reshape(-1, dim), chains))
    held = [state._replace(step=jnp.full(chains, jnp.median(state.step)))]

    def more() -> np.ndarray:
        parts = []
        for _ in range(-(-draws // ROUND)):
            held[0], drawn, _ = _advance(log_density, numbers, held[0], jnp.float32(0))
            parts.append(np.asarray(drawn, float))
        return np.concatenate(parts)[:draws].transpose(1, 0, 2)

    return more


def _found_again(state: State, heights: np.ndarray, generator: np.random.Generator) -> State:
    """Lost chains continue from where others are."""
    if not np.isfinite(heights).any():
        return state
    lowest = np.nanmedian(heights) - LOST - LOST_DEVIATIONS * np.sqrt(state.points.shape[1] / 2)
    kept, lost = np.flatnonzero(heights >= lowest), np.flatnonzero(~(heights >= lowest))
    chosen = np.arange(len(heights))
    chosen[lost] = generator.choice(kept, len(lost))
    return state._replace(points=state.points[chosen], step=state.step[chosen])


def _root(points: Array, chains: int) -> Array:
    """The root of the covariance of points (n, dim), shrunk as if they were so many chains."""
    count = points.shape[0]
    # Chains that are still far away must not stretch the metric.
    middle = jnp.median(points, axis=0)
    away = points - middle[None]
    distance = jnp.sqrt(jnp.sum(away**2, axis=1))
    away = away * jnp.minimum(1.0, 3 * jnp.median(distance) / jnp.maximum(distance, 1e-12))[:, None]
    covariance = away.T @ away / count
    scale = jnp.mean(jnp.diag(covariance))
    shrunk = (chains * covariance + SHRUNK * scale * jnp.eye(points.shape[1], dtype=points.dtype)) / (chains + SHRUNK)
    return jnp.linalg.cholesky(shrunk)


@partial(jax.jit, static_argnames="log_density")
def _advance(log_density: LogDensity, numbers: Any, state: State, adapted: Array) -> tuple[State, Array, Array]:
    """A round of steps, the points after each, and log p in the end; steps are adapted if ``adapted`` is 1, not 0."""
    height = jax.vmap(partial(log_density, numbers))
    slope = jax.vmap(jax.grad(partial(log_density, numbers)))

    def one(state: State, _: None) -> tuple[State, Array]:
        key, first, second, third, fourth, fifth = jax.random.split(state.key, 6)
        x, root = state.points, state.root
        momentum = jax.random.normal(first, x.shape)
        short = jax.random.bernoulli(fifth, SHORT, state.step.shape)
        step = state.step * jax.random.uniform(second, minval=0.7, maxval=1.0) * jnp.where(short, SHORTER, 1.0)
        step = step[:, None]
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
        moved = state.step * jnp.exp(0.2 * adapted * jnp.where(short, 0.0, chance - ACCEPTED))
        return State(x, moved, root, key), x

    state, drawn = lax.scan(one, state, None, length=ROUND)
    return state, drawn, height(state.points)
