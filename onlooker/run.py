"""Drives chains over evidence: blocks of steps, noise, accumulators, progress.

All randomness is keyed by the absolute step in blocks of a fixed size, so how a run is cut into pieces never
changes a result. Inside, arrays are (groups, dim, width): chains lie on the last axis, in groups narrow enough to
stay in a core's cache, and a block is short enough for its noise to stay in the shared one. Outside, everything
is (chain, draw, dim).
"""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from onlooker.check import check_whole
from onlooker.inverse.base import Info, InverseLearner, PoolInfo, Step
from onlooker.noise import standard_normal
from onlooker.observe.stream import LONGEST_BLOCK, Stream
from onlooker.progress import interrupts
from onlooker.progress import progress as progress_bar
from onlooker.reward.accumulate import Grid, Histogram, Marginals, Moments
from onlooker.reward.diagnostics import reported, rhat, warn_about_chains, warn_about_occupancy, warn_about_pools

__all__ = ["Chains", "OnlookerWarning", "run"]

# Normals drawn at once: large enough for XLA to use every core, small enough (4 MiB) for the shared cache.
BLOCK_NORMALS = 2**20
# Numbers in one array of the inner loop: XLA starts splitting larger ones over threads, at every step.
GROUP_NUMBERS = 2**11
# The same over pools, where matrix products, which are the better the wider, outweigh everything else.
POOL_GROUP_NUMBERS = 2**16
# Numbers in one array of weights over a pool, at the most.
POOL_WEIGHTS = 2**26
# Numbers of evidence in a block that ``thin`` makes longer than BLOCK_EVIDENCE allows, at the most: 1 GiB.
LARGEST_BLOCK = 2**28
# Seconds between two looks at the keyboard. An accelerator's calls hand back more.
CALL_SECONDS = {"cpu": 0.25, "accelerator": 1.0}
# Numbers of evidence drawn at once, for one group of chains.
BLOCK_EVIDENCE = 2**22
# Steps a float32 sum of ones may run over, well below 2²⁴ where it stops counting.
CALL_STEPS = 2**20
# Positions counted between two additions to the totals, well below 2³¹ where int32 overflows.
CALL_COUNTS = 2**30


class OnlookerWarning(UserWarning):
    """An answer that should not be trusted as it is; the same sentences are in the result's ``warnings``."""


class State(NamedTuple):
    """What the next block needs."""

    key: Array
    block: Any
    positions: Array
    about: Array
    carry: Any
    memory: Any


class Sums(NamedTuple):
    """What a call adds up; `run` keeps the totals in 64 bits.

    Attributes
    ----------
    info
        (groups, reports, width): sums over each chain's steps. One array: on a CPU every further one is a further
        kernel in the inner loop.
    moments
        Of the positions, about where the chains started.
    accumulated
        One entry per accumulator.
    """

    info: Any
    moments: Any
    accumulated: Any


@dataclass(frozen=True)
class Plan:
    """Everything that is fixed while a run is compiled: two equal plans share what was compiled.

    It holds functions of the learner and the stream, not these themselves: what was compiled must not keep data alive.
    """

    step: Step
    ask: Callable[[Array, Array], Array]
    update: Callable[[Any, Any, Array], Any] | None
    noise_rows: int
    reports: tuple[str, ...]
    draw: Callable[..., tuple[Any, Any]]
    answer: Callable[[Array, Any], Any] | None
    shared: bool
    dim: int
    chains: int
    width: int
    groups: int
    block: int
    thin: int
    trace_every: int
    burn_in: int
    accumulators: tuple[Any, ...]
    dtype: Any
    accelerator: bool


@dataclass
class Chains:
    """What a run leaves behind.

    Attributes
    ----------
    learner, settings
        Which inverse learner ran, with which numbers.
    steps, chains, seconds, interrupted
        How far it got.
    positions
        (chain, dim): where the chains stand now.
    samples
        (chain, draw, dim): positions every ``sample_every`` steps after the burn-in.
    histogram
        Joint histogram of all chains, or ``None``.
    marginals
        Per chain (or pooled) one histogram per coordinate, or ``None``.
    mean, covariance
        Of all positions counted.
    diagnostics, warnings
        Numbers about the run, and sentences when they mean trouble.
    """

    learner: str
    settings: dict[str, Any]
    steps: int
    chains: int
    seconds: float
    interrupted: bool
    positions: np.ndarray
    samples: np.ndarray
    sample_every: int
    histogram: Histogram | None
    marginals: list[list[Histogram]] | None
    mean: np.ndarray
    covariance: np.ndarray
    diagnostics: dict[str, float]
    warnings: list[str] = field(default_factory=list)


def run(
    learner: InverseLearner,
    stream: Stream,
    *,
    steps: int | None = None,
    chains: int = 64,
    seed: int = 0,
    start: Any = None,
    grid: Grid | None = None,
    marginals: Marginals | None = None,
    thin: int = 8,
    burn_in: int = 0,
    draws: int = 1000,
    dtype: Any = jnp.float32,
    progress: bool | None = None,
    label: str | None = None,
) -> Chains:
    """Run chains of an inverse learner over a stream.

    Parameters
    ----------
    learner, stream
        What steps, and over what.
    steps
        How many; by default all that a recorded stream holds.
    chains
        How many chains, all over one stream or each over its own as the stream says.
    seed
        Of the noise, of a simulated stream, and of the starts when they are not given.
    start
        (dim,) or (chains, dim); by default points of a recorded stream where π is not small, else the origin.
    grid, marginals
        What to count positions in.
    thin
        Count every ``thin``-th position, a power of two. Chains move by √μ per step: little is lost.
    burn_in
        Steps before counting begins.
    draws
        How many positions per chain to keep, at the most.
    dtype
        float32, or float64 when JAX runs with x64 enabled.
    progress
        Show a bar; by default on a terminal only.
    label
        What the bar is called; by default the learner's name.

    Ctrl-C ends the run early and hands back what has been done.
    """
    steps, chains, thin = _check(learner, stream, grid, steps, chains, thin, burn_in, draws, dtype)
    plan = _plan(learner, stream, steps, chains, thin, burn_in, draws, dtype, (grid, marginals))
    sentences = [*warn_about_occupancy(learner, stream), *warn_about_pools(stream)]
    state = _start(plan, learner, stream, seed, start)
    trace = np.zeros((_trace_rows(plan, steps), plan.groups, stream.dim, plan.width), dtype)
    zeros = _zeros(plan)
    totals = jax.tree.map(lambda leaf: np.zeros(leaf.shape, np.result_type(leaf.dtype, np.int64)), zeros)

    done, began = 0, time.perf_counter()
    call, longest = 1, max(1, min(CALL_COUNTS * thin // chains, CALL_STEPS) // plan.block)
    try:
        with progress_bar(label or learner.name, steps, chains, progress) as report, interrupts() as interrupted:
            while done < steps and not interrupted():
                called, first = time.perf_counter(), done == 0
                until = min(done + call * plan.block, steps)
                advanced = _advance(plan, stream.data, state, trace, zeros, np.int32(until))
                totals = jax.tree.map(lambda total, sums: total + np.asarray(sums), totals, advanced[2])
                (state, trace), done = advanced[:2], until
                report(done)
                # The first call also compiles: its seconds say nothing.
                call = 1 if first else _next_call(call, time.perf_counter() - called, longest, plan.accelerator)
    except jax.errors.JaxRuntimeError:
        if stream.failures:
            raise stream.failures.pop() from None
        raise
    if done < steps:
        sentences.append(f"interrupted after {done} of {steps} steps; the result is of those.")
    seconds = time.perf_counter() - began
    result = _finish(plan, learner, stream.shown, state, trace, totals, done, seconds, done < steps, sentences)
    for sentence in result.warnings:
        warnings.warn(f"{label or learner.name}: {sentence}", OnlookerWarning, stacklevel=2)
    return result


def _next_call(blocks: int, seconds: float, longest: int, accelerator: bool) -> int:
    """How many blocks to run before the next look at the keyboard; at most eight times as many as the last time."""
    wanted = CALL_SECONDS["accelerator" if accelerator else "cpu"] / max(seconds, 1e-6)
    return int(min(max(1, blocks * min(wanted, 8.0)), longest))


def _check(
    learner: InverseLearner, stream: Stream, grid, steps, chains, thin, burn_in, draws, dtype
) -> tuple[int, int, int]:
    if not isinstance(stream, Stream):
        raise TypeError(f"stream is {type(stream).__name__}; make a stream with recorded(observations).")
    if learner.asks and stream.answer is None:
        raise ValueError(f"{learner.name} needs gradients at its own positions; this stream has other people's.")
    if learner.info is PoolInfo and stream.pool is None:
        raise ValueError(f"{learner.name} needs pools; make them with pooled(stream, size).")
    if learner.info is Info and stream.pool is not None:
        raise ValueError(f"{learner.name} takes one observation a step but the stream shows pools; use multikernel.")
    if learner.density is not None:
        learner.density.check(stream.dim)
    if grid is not None and len(grid.low) != stream.dim:
        raise ValueError(f"grid has {len(grid.low)} axes but the points {stream.dim} dimensions; give one of theirs.")
    if steps is None:
        if stream.length is None:
            raise ValueError("steps is not given and the stream is endless; say how many steps to run.")
        steps = stream.length
    check_whole(steps=steps, chains=chains, thin=thin, draws=draws)
    steps, chains, thin = int(steps), int(chains), int(thin)
    if stream.length is not None and steps > stream.length:
        raise ValueError(f"steps is {steps} but the stream holds {stream.length} observations; ask for fewer.")
    if steps >= 2**31:
        raise ValueError(f"steps is {steps}; a run has at most 2**31 - 1, start another where it ends.")
    if thin & (thin - 1) or thin > LONGEST_BLOCK // 8:
        raise ValueError(f"thin is {thin}; it must be a power of two up to {LONGEST_BLOCK // 8}.")
    if burn_in != int(burn_in) or not 0 <= burn_in < steps:
        raise ValueError(f"burn_in is {burn_in}; it must be a whole number from 0, less than the {steps} steps.")
    if np.dtype(dtype) not in (np.float32, np.float64):
        raise ValueError(f"dtype is {np.dtype(dtype)}; choose float32 or float64.")
    if jax.dtypes.canonicalize_dtype(dtype) != np.dtype(dtype):
        raise ValueError(f"dtype {np.dtype(dtype)} needs jax.config.update('jax_enable_x64', True) first.")
    return steps, chains, thin


def _plan(learner, stream, steps, chains, thin, burn_in, draws, dtype, wanted) -> Plan:
    widest = GROUP_NUMBERS // stream.dim
    if stream.shared and stream.pool:
        widest = min(POOL_GROUP_NUMBERS // stream.dim, POOL_WEIGHTS // stream.pool)
    # A Python function is asked for all chains at once.
    groups = 1 if stream.failures is not None else -(-chains // max(1, widest))
    width = -(-chains // groups)
    noise_fits = BLOCK_NORMALS // (learner.noise_rows * stream.dim * width)
    evidence_fits = BLOCK_EVIDENCE // (stream.numbers * (1 if stream.shared else width))
    block = max(thin, min(LONGEST_BLOCK, _power_of_two(max(noise_fits, 8)), _power_of_two(max(evidence_fits, 1))))
    held = thin * stream.numbers * (1 if stream.shared else width)
    if block == thin and held > LARGEST_BLOCK:
        raise ValueError(
            f"thin is {thin}: so many steps of this stream's pools take {held / 2**28:.1f} GiB; give a smaller thin."
        )
    trace_every = thin
    while trace_every * draws < steps:
        trace_every *= 2
    accumulators = tuple(accumulator for accumulator in wanted if accumulator is not None)
    accelerator = jax.default_backend() != "cpu"
    return Plan(
        step=learner.step,
        ask=learner.ask,
        update=learner.update,
        noise_rows=learner.noise_rows,
        reports=learner.info._fields + ("weight_squared",) * ("weight" in learner.info._fields),
        draw=stream.draw,
        answer=stream.answer,
        shared=stream.shared,
        dim=stream.dim,
        chains=chains,
        width=width,
        groups=groups,
        block=block,
        thin=thin,
        trace_every=trace_every,
        burn_in=int(burn_in),
        accumulators=accumulators,
        dtype=np.dtype(dtype),
        accelerator=accelerator,
    )


def _power_of_two(number: int) -> int:
    """The largest that is not above a number."""
    return 1 << number.bit_length() - 1


def _start(plan: Plan, learner: InverseLearner, stream: Stream, seed: int, start: Any) -> State:
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
    # Groups are equally wide: the last one is filled up with copies, which are never counted.
    filled = np.resize(positions, (plan.groups * plan.width, dim))
    grouped = jnp.asarray(filled.reshape(plan.groups, plan.width, dim).transpose(0, 2, 1))
    if stream.shared:
        carry = stream.init(stream.data, carry_key, None)
    else:
        keys = jax.random.split(carry_key, plan.groups)
        carry = jax.vmap(lambda group_key: stream.init(stream.data, group_key, plan.width))(keys)
    return State(key, np.zeros((), np.int32), grouped, jnp.asarray(positions.mean(axis=0)), carry, learner.init(dim))


def _starts_inside(points: np.ndarray, learner: InverseLearner, chains: int, seed: int) -> np.ndarray:
    """Observed points, the likelier under π the likelier: where π is small a chain would hardly move."""
    generator = np.random.default_rng(seed)
    some = points[generator.integers(0, len(points), min(len(points), 10_000))]
    likely = None
    if learner.density is not None:
        log_prob = learner.density.log_probs(some)
        if np.isfinite(log_prob).any():
            likely = np.exp(log_prob - log_prob.max())
            likely /= likely.sum()
    return some[generator.choice(len(some), chains, p=likely)]


def _zeros(plan: Plan) -> Sums:
    info = np.zeros((plan.groups, len(plan.reports), plan.width), plan.dtype)
    counted = tuple(accumulator.init(plan.dim, plan.chains) for accumulator in plan.accumulators)
    return Sums(info, Moments().init(plan.dim, plan.chains), counted)


@partial(jax.jit, static_argnames=("plan",), donate_argnames=("trace",))
def _advance(plan: Plan, data: Any, state: State, trace: Array, zeros: Sums, until: Array) -> tuple[State, Array, Sums]:
    """Blocks from where the state is until step ``until``, within or at the end of a block."""

    def body(carry: tuple[State, Array, Sums]) -> tuple[State, Array, Sums]:
        state, trace, sums = carry
        first_step = state.block * plan.block
        steps = jnp.minimum(until - first_step, plan.block)
        state, recorded, info = _block(plan, data, state, steps)
        taken = jnp.arange(1, recorded.shape[1] + 1) * plan.thin
        counted = (taken <= steps) & (first_step + taken > plan.burn_in)
        lanes = jnp.arange(plan.groups)[:, None] * plan.width + jnp.arange(plan.width) < plan.chains
        keep = counted[None, :, None] & lanes[:, None]
        accumulated = tuple(
            accumulator.add(total, recorded, keep)
            for accumulator, total in zip(plan.accumulators, sums.accumulated, strict=True)
        )
        moments = Moments().add(sums.moments, recorded, keep, state.about)
        return state, _trace(plan, trace, recorded, first_step), Sums(sums.info + info, moments, accumulated)

    return lax.while_loop(lambda carry: carry[0].block * plan.block < until, body, (state, trace, zeros))


def _trace_rows(plan: Plan, steps: int) -> int:
    """Rows the trace needs so that the last block, whole, has room."""
    blocks = -(-steps // plan.block)
    return -(-blocks * plan.block // plan.trace_every)


def _trace(plan: Plan, trace: Array, recorded: Array, first_step: Array) -> Array:
    """Keep the position at every ``trace_every`` steps; an interval longer than a block is overwritten to its end."""
    stride = min(plan.trace_every // plan.thin, recorded.shape[1])
    kept = jnp.moveaxis(recorded[:, stride - 1 :: stride], 1, 0)
    return lax.dynamic_update_slice_in_dim(trace, kept, first_step // plan.trace_every, axis=0)


def _block(plan: Plan, data: Any, state: State, steps: Array) -> tuple[State, Array, Array]:
    """The first ``steps`` steps of a block: its evidence and noise, then every group of chains over them."""
    noise_key, evidence_key = jax.random.split(jax.random.fold_in(state.key, state.block))
    memory, carry, evidence = state.memory, state.carry, None
    if plan.shared:
        carry, evidence = plan.draw(data, carry, evidence_key, plan.block, None)
        if plan.update is not None:
            memory = plan.update(memory, evidence, steps)

    def one_chain(position: Array, shown: Any, noise: Array) -> tuple[Array, Any]:
        if plan.answer is not None:
            shown = plan.answer(plan.ask(position, noise), shown)
        return plan.step(position, memory if plan.update is not None else shown, noise)

    all_chains = jax.vmap(one_chain, in_axes=(-1, None if plan.shared else -1, -1), out_axes=-1)

    def one_group(inputs: tuple[Array, Array, Any]) -> tuple[Array, Any, Array, Array]:
        index, position, group_carry = inputs
        shape = (plan.block, plan.noise_rows, plan.dim, plan.width)
        noise = standard_normal(jax.random.fold_in(noise_key, index), shape, plan.dtype)
        shown = evidence
        if not plan.shared:
            key = jax.random.fold_in(evidence_key, index)
            group_carry, shown = plan.draw(data, group_carry, key, plan.block, plan.width)

        def one_step(step: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            position, sums = carry
            at_step = jax.tree.map(lambda leaf: lax.dynamic_index_in_dim(leaf, step, keepdims=False), (shown, noise))
            position, info = all_chains(position, *at_step)
            position = position.astype(plan.dtype)
            squared = [info.weight * info.weight] if "weight_squared" in plan.reports else []
            return position, sums + jnp.stack([*info, *squared])

        def one_row(row: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            position, sums, recorded = carry
            unroll = plan.thin if plan.accelerator else 1
            position, sums = lax.fori_loop(
                0,
                plan.thin,
                lambda step, inner: one_step(row * plan.thin + step, inner),
                (position, sums),
                unroll=unroll,
            )
            return position, sums, lax.dynamic_update_index_in_dim(recorded, position, row, axis=0)

        rows = steps // plan.thin
        sums = jnp.zeros((len(plan.reports), plan.width), plan.dtype)
        recorded = jnp.zeros((plan.block // plan.thin, *position.shape), plan.dtype)
        position, sums, recorded = lax.fori_loop(0, rows, one_row, (position, sums, recorded))
        position, sums = lax.fori_loop(rows * plan.thin, steps, one_step, (position, sums))
        return position, group_carry, recorded, sums

    group_carries = jnp.zeros((plan.groups,)) if plan.shared else carry
    inputs = (jnp.arange(plan.groups), state.positions, group_carries)
    if plan.accelerator:
        positions, group_carries, recorded, info = jax.vmap(one_group)(inputs)
    else:
        positions, group_carries, recorded, info = lax.map(one_group, inputs)
    carry = carry if plan.shared else group_carries
    return State(state.key, state.block + 1, positions, state.about, carry, memory), recorded, info


def _chain_axis(plan: Plan, grouped: Any) -> np.ndarray:
    """(…, groups, dim, width) to (chain, …, dim), without the copies that fill the last group."""
    array = np.moveaxis(np.asarray(grouped), -1, -2)
    chains_last = array.reshape(*array.shape[:-3], plan.groups * plan.width, array.shape[-1])
    return np.moveaxis(chains_last, -2, 0)[: plan.chains]


def _finish(
    plan: Plan,
    learner: InverseLearner,
    shown: int | None,
    state: State,
    trace: Any,
    totals: Sums,
    done: int,
    seconds: float,
    interrupted: bool,
    sentences: list[str],
) -> Chains:
    counted = dict(zip((type(accumulator) for accumulator in plan.accumulators), totals.accumulated, strict=True))
    by_type = {type(accumulator): accumulator for accumulator in plan.accumulators}
    mean, covariance = Moments().mean_and_covariance(totals.moments, np.asarray(state.about, float))
    first = plan.burn_in // plan.trace_every
    samples = _chain_axis(plan, np.asarray(trace)[first : done // plan.trace_every])
    positions = _chain_axis(plan, state.positions)
    diagnostics = {
        **reported(dict(zip(plan.reports, _chain_axis(plan, totals.info).T, strict=True)), max(done, 1)),
        "rhat": rhat(samples),
        "lost_chains": int(np.count_nonzero(~np.isfinite(positions).all(axis=1))),
        "chain_steps_per_second": done * plan.chains / max(seconds, 1e-9),
    }
    grid, marginals = by_type.get(Grid), by_type.get(Marginals)
    return Chains(
        learner=learner.name,
        settings=dict(learner.settings),
        steps=done,
        chains=plan.chains,
        seconds=seconds,
        interrupted=interrupted,
        positions=positions,
        samples=samples,
        sample_every=plan.trace_every,
        histogram=None if grid is None else grid.histogram(counted[Grid]),
        marginals=None if marginals is None else marginals.histograms(counted[Marginals]),
        mean=mean,
        covariance=covariance,
        diagnostics=diagnostics,
        warnings=[*sentences, *warn_about_chains(diagnostics, learner, plan.chains, shown)],
    )
