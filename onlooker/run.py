"""Drives chains over a stream: checks, starts, calls of the compiled loop, progress, what is left behind.

Outside the loop everything is (chain, draw, dim).
"""

import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onlooker.check import check_whole
from onlooker.engine import Plan, State, Sums, advance, chain_axis, make_plan, trace_rows, zero_sums
from onlooker.inverse.base import Info, InverseLearner, PoolInfo
from onlooker.observe.stream import LONGEST_BLOCK, Stream
from onlooker.progress import interrupts
from onlooker.progress import progress as progress_bar
from onlooker.resume import Moment, Standing, Survivor
from onlooker.reward.accumulate import Grid, Histogram, Marginals, Moments, effective_count, weight_left
from onlooker.reward.diagnostics import reported, rhat, warn_about_chains, warn_about_occupancy, warn_about_pools
from onlooker.warning import OnlookerWarning

__all__ = ["Chains", "Snapshot", "run"]

# Seconds between two looks at the keyboard. An accelerator's calls hand back more.
CALL_SECONDS = {"cpu": 0.25, "accelerator": 1.0}
# Steps a float32 sum of ones may run over, well below 2²⁴ where it stops counting.
CALL_STEPS = 2**20
# Positions counted between two additions to the totals, well below 2³¹ where int32 overflows.
CALL_COUNTS = 2**30


@dataclass(frozen=True)
class Snapshot:
    """A run as it was after so many steps.

    Attributes
    ----------
    step
        How many.
    positions
        (chain, dim): where the chains stood. With many of them a histogram of these is the reward at that moment.
    histogram
        What the grid had counted; with a forgetting rate, recently. ``None`` without a grid.
    """

    step: int
    positions: np.ndarray
    histogram: Histogram | None


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
    history
        The run as it was at some moments, if it was asked for.
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
    history: list[Snapshot] = field(default_factory=list)


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
    snapshots: int | None = None,
    dtype: Any = jnp.float32,
    checkpoint: str | Path | None = None,
    progress: bool | None = None,
    label: str | None = None,
) -> Chains:
    """Run chains of an inverse learner over a stream.

    Ctrl-C ends the run early and hands back what has been done.

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
    snapshots
        How many moments of the run to keep in its ``history``: the ends of equal parts of it, or of the block of steps
        (4096 at the most) that such an end falls in. For finer ones see `reward.over_time`.
    dtype
        float32, or float64 when JAX runs with x64 enabled.
    checkpoint
        A file to survive in: it is written at once, every 20 seconds, on Ctrl-C and at the end. The same call goes on
        from it and ends with the same positions, draws and counts. Another run's file is refused; only a Python
        function that answers questions is known by no more than its name.
    progress
        Show a bar; by default on a terminal only.
    label
        What the bar is called; by default the learner's name.

    Examples
    --------
    >>> from onlooker import classical, oracle
    >>> answers = oracle(lambda points: -points, dim=2)  # R = −|θ|²/2
    >>> chains = run(classical(step_size=0.1), answers, steps=400, chains=8, burn_in=80)
    >>> chains.samples.shape, chains.interrupted
    ((8, 40, 2), False)
    """
    steps, chains, thin = _check(learner, stream, grid, steps, chains, thin, burn_in, draws, dtype)
    check_whole(snapshots=1 if snapshots is None else snapshots)
    plan = make_plan(learner, stream, steps, chains, thin, burn_in, draws, dtype, (grid, marginals))
    sentences = [*warn_about_occupancy(learner, stream), *warn_about_pools(stream)]
    state = _start(plan, learner, stream, seed, start)
    trace = np.zeros((trace_rows(plan, steps), plan.groups, stream.dim, plan.width), dtype)
    zeros = zero_sums(plan)
    totals = jax.tree.map(lambda leaf: np.zeros(leaf.shape, np.result_type(leaf.dtype, np.int64)), zeros)
    standing = Standing(0, state, trace, totals)
    # Steps at the ends of blocks.
    ends = -(-np.linspace(0, steps, (snapshots or 0) + 1)[1:] // plan.block) * plan.block
    moments = np.unique(np.minimum(ends, steps)).astype(int).tolist() if snapshots else []
    survivor = None if checkpoint is None else Survivor(checkpoint, plan, stream, standing, zeros, moments, steps)
    if survivor is not None:
        standing = survivor.standing()

    resumed, began = standing.done, time.perf_counter()
    call, longest = 1, max(1, min(CALL_COUNTS * thin // chains, CALL_STEPS) // plan.block)
    try:
        with progress_bar(label or learner.name, steps, chains, progress) as report, interrupts() as interrupted:
            while standing.done < steps and not interrupted():
                called, first = time.perf_counter(), standing.done == resumed
                until = min(standing.done + call * plan.block, *moments[len(standing.history) :][:1], steps)
                standing = _advanced(plan, stream, standing, zeros, until, moments)
                report(standing.done)
                # The first call also compiles: its seconds say nothing.
                call = 1 if first else _next_call(call, time.perf_counter() - called, longest, plan.accelerator)
                if survivor is not None:
                    survivor.keep(standing)
    except jax.errors.JaxRuntimeError:
        if stream.failures:
            raise stream.failures.pop() from None
        raise
    if survivor is not None and standing.done > resumed:
        survivor.keep(standing, now=True)
        if survivor.failure is not None:
            sentences.append(f"{survivor.path} could not be written ({survivor.failure}); what it holds is older.")
    if standing.done < steps:
        sentences.append(f"interrupted after {standing.done} of {steps} steps; the result is of those.")
    seconds = time.perf_counter() - began
    rate = (standing.done - resumed) * chains / max(seconds, 1e-9)
    result = _finish(plan, learner, stream.shown, standing, seconds, rate, standing.done < steps, sentences)
    for sentence in result.warnings:
        warnings.warn(f"{label or learner.name}: {sentence}", OnlookerWarning, stacklevel=2)
    return result


def _advanced(plan: Plan, stream: Stream, standing: Standing, zeros: Sums, until: int, moments: list[int]) -> Standing:
    """The run at step ``until``, with what it was like there if that is one of its moments."""
    state, trace, sums = advance(plan, stream.data, standing.state, standing.trace, zeros, np.int32(until))
    totals = _add(plan, standing.totals, sums, until - standing.done)
    history = standing.history
    if until in moments:
        history = (*history, Moment(until, state.positions, totals))
    return Standing(until, state, trace, totals, history)


def _next_call(blocks: int, seconds: float, longest: int, accelerator: bool) -> int:
    """How many blocks to run before the next look at the keyboard; at most eight times as many as the last time."""
    wanted = CALL_SECONDS["accelerator" if accelerator else "cpu"] / max(seconds, 1e-6)
    return int(min(max(1, blocks * min(wanted, 8.0)), longest))


def _check(
    learner: InverseLearner,
    stream: Stream,
    grid: Grid | None,
    steps: int | None,
    chains: int,
    thin: int,
    burn_in: int,
    draws: int,
    dtype: Any,
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


def _add(plan: Plan, totals: Sums, sums: Sums, steps: int) -> Sums:
    """Totals after a call of so many steps, what is to be forgotten less heavy by as many."""
    faded = tuple(
        total * weight_left(accumulator.forgetting, steps)
        for accumulator, total in zip(plan.accumulators, totals.accumulated, strict=True)
    )
    return jax.tree.map(lambda total, new: total + np.asarray(new), totals._replace(accumulated=faded), sums)


def _counted(plan: Plan, totals: Sums, done: int) -> tuple[Histogram | None, list[list[Histogram]] | None]:
    """The grid's histogram and the marginals'."""
    histogram, histograms = None, None
    rows = done // plan.thin - plan.burn_in // plan.thin
    for accumulator, counts in zip(plan.accumulators, totals.accumulated, strict=True):
        worth = effective_count(accumulator.forgetting, max(rows, 0), plan.thin)
        if isinstance(accumulator, Grid):
            histogram = accumulator.histogram(counts, worth * plan.chains)
        else:
            per_histogram = 1 if accumulator.per_chain else plan.chains
            histograms = accumulator.histograms(counts, worth * per_histogram)
    return histogram, histograms


def _finish(
    plan: Plan,
    learner: InverseLearner,
    shown: int | None,
    standing: Standing,
    seconds: float,
    rate: float,
    interrupted: bool,
    sentences: list[str],
) -> Chains:
    done, state, trace, totals, history = standing
    histogram, marginals = _counted(plan, totals, done)
    mean, covariance = Moments().mean_and_covariance(totals.moments, np.asarray(state.about, float))
    first = plan.burn_in // plan.trace_every
    samples = chain_axis(plan, np.asarray(trace)[first : done // plan.trace_every])
    positions = chain_axis(plan, state.positions)
    diagnostics = {
        **reported(dict(zip(plan.reports, chain_axis(plan, totals.info).T, strict=True)), max(done, 1)),
        "rhat": rhat(samples),
        "lost_chains": int(np.count_nonzero(~np.isfinite(positions).all(axis=1))),
        "chain_steps_per_second": rate,
    }
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
        histogram=histogram,
        marginals=marginals,
        mean=mean,
        covariance=covariance,
        diagnostics=diagnostics,
        warnings=[*sentences, *warn_about_chains(diagnostics, learner, plan.chains, shown)],
        history=[
            Snapshot(moment.done, chain_axis(plan, moment.positions), _counted(plan, moment.totals, moment.done)[0])
            for moment in history
        ],
    )
