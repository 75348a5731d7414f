"""Simulated learners: θ_{k+1} = θ_k + ε ∇r(θ_k, ξ_k), restarted from π; and points drawn independently from π.

They come as streams (endless, simulated inside the run, shared or one per chain) or as recorded Observations.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax

from onlooker.core.density import Density
from onlooker.core.settings import check_whole
from onlooker.data.observations import Observation, Observations
from onlooker.data.stream import Stream, pooled, simulated
from onlooker.simulation.reward import Reward

__all__ = [
    "independent",
    "independent_pools",
    "questions",
    "record",
    "running",
    "running_pools",
    "simulate",
]

Stop = Callable[[Array, Array, Array, Array], Array]


def independent(reward: Reward, density: Density, *, shared: bool = False) -> Stream:
    """θ_k drawn independently from π at every step, so that assumption A2 holds.

    Parameters
    ----------
    reward
        The reward that is climbed.
    density
        π.
    shared
        One stream for all chains, or one per chain.
    """

    def draw(data: Any, carry: Any, key: Array, steps: int, lanes: int | None) -> tuple[Any, Observation]:
        point_key, xi_key = jax.random.split(key)
        point = _points(density, point_key, steps, lanes)
        carry, xi = reward.draw(data, carry, xi_key, steps, lanes)
        return carry, Observation(point, _gradients(reward, point, xi, lanes is not None))

    return simulated(reward.dim, draw, init=reward.begin, data=reward.data, shared=shared)


def independent_pools(
    reward: Reward, density: Density, size: int, *, same_sample: bool = True, shared: bool = False
) -> Stream:
    """Pools of ``size`` points drawn independently from π at every step.

    Parameters
    ----------
    same_sample
        One sample ξ_k for the whole pool, as in the paper; or one for every member.
    shared
        One pool for all chains, or one per chain.
    """
    if not same_sample:
        return pooled(independent(reward, density, shared=shared), size)
    check_whole(size=size)
    size = int(size)

    def draw(data: Any, carry: Any, key: Array, steps: int, lanes: int | None) -> tuple[Any, Observation]:
        point_key, xi_key = jax.random.split(key)
        point = _points(density, point_key, steps * size, lanes)
        # Without the barrier XLA would draw the points a second time, inside the gradient.
        point = lax.optimization_barrier(point.reshape(steps, size, *point.shape[1:]))
        carry, xi = reward.draw(data, carry, xi_key, steps, lanes)
        over_pool = jax.vmap(reward.sample_gradient, in_axes=(0, None))
        over_lanes = over_pool if lanes is None else jax.vmap(over_pool, in_axes=-1, out_axes=-1)
        return carry, Observation(point, jax.vmap(over_lanes)(point, xi))

    return simulated(reward.dim, draw, init=reward.begin, data=reward.data, shared=shared, pool=size)


def questions(reward: Reward) -> Stream:
    """A stream per chain that answers queries at the chain's own position."""

    def answer(point: Array, xi: Any) -> Observation:
        return Observation(point, reward.sample_gradient(point, xi))

    return simulated(reward.dim, reward.draw, init=reward.begin, data=reward.data, answer=answer)


def running(
    reward: Reward,
    density: Density,
    *,
    learning_rate: float | None = None,
    optimizer: optax.GradientTransformation | None = None,
    horizon: int | None = None,
    stop: Stop | None = None,
) -> Stream:
    """One agent after another, in a stream per chain.

    Parameters
    ----------
    learning_rate
        ε of plain SGD.
    optimizer
        An optax optimizer, instead of plain SGD.
    horizon
        Steps before the next agent begins.
    stop
        ``stop(age, point, gradient, uniform)``: a random stopping rule instead of, or before, the horizon.
    """
    rule = _rule(learning_rate, optimizer)
    move = jax.vmap(_agent_step(reward, rule), in_axes=-1, out_axes=-1)
    fresh = jax.vmap(rule.init, in_axes=-1, out_axes=-1)
    ends = jax.vmap(_ending(horizon, stop), in_axes=-1)

    def init(data: Any, key: Array, lanes: int | None) -> tuple[Any, Any]:
        point = _points(density, key, 1, lanes)[0]
        return (point, fresh(point), jnp.zeros(point.shape[-1], jnp.int32)), reward.begin(
            data, jax.random.fold_in(key, 1), lanes
        )

    def draw(data: Any, carry: Any, key: Array, steps: int, lanes: int | None) -> tuple[Any, Observation]:
        agents, rows = carry
        start_key, xi_key, stop_key = jax.random.split(key, 3)
        starts = _points(density, start_key, steps, lanes)
        rows, xi = reward.draw(data, rows, xi_key, steps, lanes)
        uniform = jax.random.uniform(stop_key, (steps, starts.shape[-1]))

        def one_step(carry: Any, inputs: Any) -> tuple[Any, Observation]:
            point, memory, age = carry
            start, xi, uniform = inputs
            moved, gradient, memory = move(point, xi, memory)
            over = ends(age, point, gradient, uniform)
            restarted = jax.tree.map(partial(jnp.where, over), (start, fresh(start)), (moved, memory))
            return (*restarted, jnp.where(over, 0, age + 1)), Observation(point, gradient)

        agents, observations = lax.scan(one_step, agents, (starts, xi, uniform))
        return (agents, rows), observations

    return simulated(reward.dim, draw, init=init, data=reward.data)


def running_pools(
    reward: Reward,
    density: Density,
    size: int,
    *,
    learning_rate: float | None = None,
    optimizer: optax.GradientTransformation | None = None,
    horizon: int,
) -> Stream:
    """Pools of ``size`` agents that run side by side with staggered restarts: one stream for all chains.

    Every step shows each agent's next point and gradient. Arguments as in `running`.
    """
    check_whole(size=size, horizon=horizon)
    agents = running(reward, density, learning_rate=learning_rate, optimizer=optimizer, horizon=horizon)

    def init(data: Any, key: Array, lanes: int | None) -> Any:
        (point, memory, age), rows = agents.init(data, key, size)
        return (point, memory, jnp.arange(size, dtype=age.dtype) * horizon // size), rows

    def draw(data: Any, carry: Any, key: Array, steps: int, lanes: int | None) -> tuple[Any, Observation]:
        carry, observations = agents.draw(data, carry, key, steps, size)
        return carry, jax.tree.map(lambda leaf: jnp.moveaxis(leaf, -1, 1), observations)

    return simulated(reward.dim, draw, init=init, data=reward.data, shared=True, pool=size)


def simulate(
    reward: Reward,
    density: Density,
    *,
    agents: int,
    horizon: int,
    learning_rate: float | None = None,
    optimizer: optax.GradientTransformation | None = None,
    stop: Stop | None = None,
    order: str = "sequential",
    parallel: int = 100,
    seed: int = 0,
) -> Observations:
    """Let agents run, and record their points and gradients.

    Parameters
    ----------
    agents
        Number of agents.
    horizon
        Number of steps of each agent; with a stopping rule, the largest number.
    learning_rate
        ε of plain SGD.
    optimizer
        An optax optimizer, instead of plain SGD.
    stop
        ``stop(age, point, gradient, uniform)``: a stopping rule, for sequential agents.
    order
        "sequential": one agent after the other. "interleaved": ``parallel`` agents at a time with staggered
        restarts, which take turns.
    seed
        Seed of the starts, the sample gradients and the stopping rule.
    """
    if order not in ("sequential", "interleaved"):
        raise ValueError(f"order is {order!r}; choose 'sequential' or 'interleaved'.")
    check_whole(agents=agents, horizon=horizon, parallel=parallel)
    if order == "interleaved" and stop is not None:
        raise ValueError(
            "stop is given, but interleaved agents run to the horizon; leave it out, or choose order='sequential'."
        )
    rule = _rule(learning_rate, optimizer)
    move = jax.vmap(_agent_step(reward, rule), in_axes=-1, out_axes=-1)
    ends = jax.vmap(_ending(None, stop), in_axes=(None, -1, -1, -1))

    @jax.jit
    def batch(data: Any, key: Array) -> tuple[Observation, Array]:
        start_key, xi_key, stop_key = jax.random.split(key, 3)
        point = _points(density, start_key, 1, size)[0]
        _, xi = reward.draw(data, reward.begin(data, xi_key, size), xi_key, horizon, size)
        uniform = jax.random.uniform(stop_key, (horizon, size))
        memory = jax.vmap(rule.init, in_axes=-1, out_axes=-1)(point)

        def one_step(carry: Any, inputs: Any) -> tuple[Any, tuple[Observation, Array]]:
            point, memory, alive, age = carry
            xi, uniform = inputs
            moved, gradient, memory = move(point, xi, memory)
            over = ends(age, point, gradient, uniform)
            return (moved, memory, alive & ~over, age + 1), (Observation(point, gradient), alive)

        carry = (point, memory, jnp.ones(size, bool), jnp.zeros((), jnp.int32))
        return lax.scan(one_step, carry, (xi, uniform))[1]

    # Agents are simulated in batches of this size, which bounds the memory on the device.
    size = min(agents, 1 << 14)
    points, gradients, alive = [], [], []
    for part in range(-(-agents // size)):
        observed, lives = batch(reward.data, jax.random.fold_in(jax.random.key(seed), part))
        # (horizon, dim, agents) to (agents, horizon, dim)
        points.append(np.asarray(observed.point).transpose(2, 0, 1))
        gradients.append(np.asarray(observed.gradient).transpose(2, 0, 1))
        alive.append(np.asarray(lives).T)
    everything = []
    for parts in (points, gradients, alive):
        everything.append(np.concatenate(parts)[:agents])
        parts.clear()
    agent = np.broadcast_to(np.arange(agents)[:, None], (agents, horizon))
    age = np.broadcast_to(np.arange(horizon), (agents, horizon))
    columns = [*everything, agent, age]
    if order == "interleaved":
        columns = [_interleave(column, parallel, horizon) for column in columns]
    else:
        columns = [column.reshape(-1, *column.shape[2:]) for column in columns]
    kept = columns[2]
    if not kept.all():
        columns = [column[kept] for column in columns]
    return Observations(columns[0], columns[1], agents=columns[3], times=columns[4])


def record(stream: Stream, steps: int, *, seed: int = 0, block: int = 1 << 16) -> Iterator[Observations]:
    """Record a shared stream, a block of steps at a time; every member of a pool is an agent."""
    check_whole(steps=steps, block=block)
    if not stream.shared or stream.answer is not None:
        raise ValueError(
            "stream is not shared, or answers questions; give a shared stream, such as independent(shared=True)."
        )
    draw = jax.jit(lambda data, carry, key: stream.draw(data, carry, key, block, None))
    key, begin = jax.random.split(jax.random.key(seed))
    carry = stream.init(stream.data, begin, None)
    for first in range(0, steps, block):
        carry, observed = draw(stream.data, carry, jax.random.fold_in(key, first // block))
        count = min(block, steps - first)
        points, gradients = (
            np.asarray(leaf)[:count].reshape(-1, stream.dim) for leaf in (observed.point, observed.gradient)
        )
        members = stream.pool or 1
        times = np.repeat(np.arange(first, first + count), members)
        agents = np.tile(np.arange(members), count) if stream.pool else None
        yield Observations(points, gradients, agents, times)


def _rule(learning_rate: float | None, optimizer: optax.GradientTransformation | None) -> optax.GradientTransformation:
    if (learning_rate is None) == (optimizer is None):
        raise ValueError("learning_rate and optimizer are both given, or neither; give one of them.")
    return optax.sgd(learning_rate) if optimizer is None else optimizer


def _interleave(column: np.ndarray, parallel: int, horizon: int) -> np.ndarray:
    """(agents, horizon, …) to rows: ``parallel`` lanes of agents, each lane started at its own age."""
    agents = len(column)
    if agents < 2 * parallel:
        raise ValueError(f"agents is {agents}; interleaving {parallel} in parallel needs at least {2 * parallel}.")
    per_lane = agents // parallel
    lanes = column[: per_lane * parallel].reshape(parallel, per_lane * horizon, *column.shape[2:])
    length = (per_lane - 1) * horizon
    phases = np.arange(parallel) * horizon // parallel
    staggered = np.stack([lane[phase : phase + length] for lane, phase in zip(lanes, phases, strict=True)], axis=1)
    return staggered.reshape(-1, *column.shape[2:])


def _agent_step(
    reward: Reward, rule: optax.GradientTransformation
) -> Callable[[Array, Any, Any], tuple[Array, Array, Any]]:
    """One ascent step of one agent's optimizer: (θ, ξ, memory) to (θ', g, memory')."""

    def step(point: Array, xi: Any, memory: Any) -> tuple[Array, Array, Any]:
        gradient = reward.sample_gradient(point, xi)
        update, memory = rule.update(-gradient, memory, point)
        return point + update, gradient, memory

    return step


def _ending(horizon: int | None, stop: Stop | None) -> Stop:
    def ends(age: Array, point: Array, gradient: Array, uniform: Array) -> Array:
        over = jnp.zeros((), bool) if horizon is None else age >= horizon - 1
        return over if stop is None else over | stop(age, point, gradient, uniform)

    return ends


def _points(density: Density, key: Array, steps: int, lanes: int | None) -> Array:
    """Draws from π as (steps, dim, lanes) or, without lanes, (steps, dim)."""
    if density.sample is None:
        raise ValueError("density cannot be drawn from; give a distribution with sample().")
    if lanes is None:
        return density.sample(key, (steps,))
    return jnp.moveaxis(density.sample(key, (steps, lanes)), -1, 1)


def _gradients(reward: Reward, point: Array, xi: Any, lanes: bool) -> Array:
    over_steps = reward.sample_gradient
    if lanes:
        over_steps = jax.vmap(over_steps, in_axes=-1, out_axes=-1)
    return jax.vmap(over_steps)(point, xi)
