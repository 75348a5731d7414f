"""The state of a run between two calls of the compiled loop, and its initial state."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from onlooker.core.forgetting import weight_left
from onlooker.data.stream import Stream
from onlooker.engine.loop import Plan, State, Sums, advance, trace_rows, zero_sums
from onlooker.engine.settings import RunSettings
from onlooker.inverse.base import InverseLearner

__all__ = ["Moment", "RunState", "added", "advanced", "begin"]

# Observed points among which default starts are drawn; π is evaluated at each of them.
STARTS = 10_000


class Moment(NamedTuple):
    """A snapshot of a run: the number of steps taken, the chains' positions, and what was counted."""

    done: int
    positions: Any
    totals: Sums


class RunState(NamedTuple):
    """A run between two calls of the compiled loop.

    Attributes
    ----------
    done
        Number of steps taken.
    state
        What the next block needs.
    trace
        Positions kept.
    totals
        What was counted, in 64 bits.
    history
        Its snapshots so far.
    """

    done: int
    state: State
    trace: Any
    totals: Sums
    history: tuple[Moment, ...] = ()


def begin(
    plan: Plan, learner: InverseLearner, stream: Stream, settings: RunSettings, start: Any, first: int | None = None
) -> RunState:
    """A run, or the part of it from the ``first`` group on, before its first step."""
    trace = np.zeros((trace_rows(plan, settings.steps), plan.traced, stream.dim, plan.width), plan.dtype)
    totals = jax.tree.map(lambda leaf: np.zeros(leaf.shape, np.result_type(leaf.dtype, np.int64)), zero_sums(plan))
    return RunState(0, _start(plan, learner, stream, settings.seed, start, first), trace, totals)


def advanced(
    plan: Plan, stream: Stream, run: RunState, zeros: Sums, until: int, moments: list[int], first: int | None = None
) -> RunState:
    """The run at step ``until``, with a snapshot if that is one of its moments."""
    at = () if first is None else (np.int32(first),)
    state, trace, sums = advance(plan, stream.data, run.state, run.trace, zeros, np.int32(until), *at)
    totals = added(plan, run.totals, sums, until - run.done)
    history = run.history
    if until in moments:
        history = (*history, Moment(until, state.positions, totals))
    return RunState(until, state, trace, totals, history)


def _start(plan: Plan, learner: InverseLearner, stream: Stream, seed: int, start: Any, first: int | None) -> State:
    dim = stream.dim
    key, carry_key = jax.random.split(jax.random.key(seed))
    if start is None and stream.observations is not None:
        positions = _starts_inside(stream.observations.points, learner, plan.chains, seed)
    else:
        positions = np.zeros(dim) if start is None else np.asarray(start, dtype=float)
        if positions.shape not in ((dim,), (plan.chains, dim)):
            raise ValueError(f"start has shape {positions.shape}; give ({dim},) or ({plan.chains}, {dim}).")
    positions = np.broadcast_to(positions.astype(plan.dtype), (plan.chains, dim))
    if not np.isfinite(positions).all():
        raise ValueError("start holds a NaN or an infinity; give finite positions.")
    learner.check(positions)
    # Groups are equally wide: the last one is padded with copies, which are never counted.
    whole, own = -(-plan.chains // plan.width), slice(first or 0, (first or 0) + plan.groups)
    filled = np.resize(positions, (whole * plan.width, dim))
    grouped = jnp.asarray(filled.reshape(whole, plan.width, dim)[own].transpose(0, 2, 1))
    if stream.shared:
        carry = stream.init(stream.data, carry_key, None)
    else:
        keys = jax.random.split(carry_key, whole)[own]
        carry = jax.vmap(lambda group_key: stream.init(stream.data, group_key, plan.width))(keys)
    return State(key, np.zeros((), np.int32), grouped, jnp.asarray(positions.mean(axis=0)), carry, learner.init(dim))


def _starts_inside(points: np.ndarray, learner: InverseLearner, chains: int, seed: int) -> np.ndarray:
    """Observed points, drawn in proportion to π: where π is small a chain would hardly move."""
    generator = np.random.default_rng(seed)
    sample = points[generator.integers(0, len(points), min(len(points), STARTS))]
    likely = None
    if learner.density is not None:
        log_prob = learner.density.log_probs(sample)
        if np.isfinite(log_prob).any():
            likely = np.exp(log_prob - log_prob.max())
            likely /= likely.sum()
    return sample[generator.choice(len(sample), chains, p=likely)]


def added(plan: Plan, totals: Sums, sums: Sums, steps: int) -> Sums:
    """Totals after a call of ``steps`` steps; those with a forgetting rate fade before its sums are added."""
    faded = tuple(
        total * weight_left(accumulator.forgetting, steps)
        for accumulator, total in zip(plan.accumulators, totals.accumulated, strict=True)
    )
    return jax.tree.map(lambda total, new: total + np.asarray(new), totals._replace(accumulated=faded), sums)
