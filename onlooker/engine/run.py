"""`run` drives chains over a stream: checks, calls of the compiled loop, progress and a checkpoint."""

import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from onlooker.core.messages import Message, deliver
from onlooker.core.terminal import interrupts
from onlooker.core.terminal import progress as progress_bar
from onlooker.data.stream import Stream
from onlooker.engine.accumulators import Grid, Marginals
from onlooker.engine.chains import Chains, Snapshot, as_chains
from onlooker.engine.checkpoint import RunFile
from onlooker.engine.devices import Devices
from onlooker.engine.diagnostics import warn_about_occupancy, warn_about_pools
from onlooker.engine.identity import Identity
from onlooker.engine.loop import make_plan, zero_sums
from onlooker.engine.settings import RunSettings, check_compatible, check_part
from onlooker.engine.state import advanced, begin
from onlooker.inverse.base import InverseLearner

__all__ = ["Chains", "Snapshot", "run"]

# Seconds between two checks for Ctrl-C. An accelerator's calls return more data, and are longer.
CALL_SECONDS = {"cpu": 0.25, "accelerator": 1.0}
# Most steps in a call: well below 2²⁴, where a float32 sum of ones stops growing.
CALL_STEPS = 2**20
# Most positions counted in a call: well below 2³¹, where int32 overflows.
CALL_COUNTS = 2**30


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
    part: tuple[int, int] | None = None,
    progress: bool | None = None,
    label: str | None = None,
) -> Chains:
    """Run chains of an inverse learner over a stream, on all devices of this host.

    Ctrl-C ends the run early and returns what has been done. Of more than a million chains, samples and diagnostics are
    those of the first 4096.

    Parameters
    ----------
    learner
        The inverse learner.
    stream
        The stream of observations, pools or answers that it learns from.
    steps
        Number of steps; by default all that a recorded stream holds.
    chains
        Number of chains; the stream decides whether they share it or each has its own.
    seed
        Seed of the noise, of a simulated stream, and of the starts when they are not given.
    start
        (dim,) or (chains, dim); by default points of a recorded stream where π is not small, else the origin.
    grid
        Bins in which to count positions jointly.
    marginals
        Bins in which to count each coordinate.
    thin
        Count every ``thin``-th position, a power of two. Chains move by √μ per step, so little is lost.
    burn_in
        Steps before counting begins.
    draws
        Largest number of positions to keep per chain.
    snapshots
        Number of snapshots to keep in ``history``: at the ends of equal parts of the run, moved to the end of their
        block of at most 4096 steps. For finer ones see `engine.over_time`.
    dtype
        float32, or float64 when JAX runs with x64 enabled.
    checkpoint
        A file that is written at once, every 20 seconds, on Ctrl-C and at the end. The same call continues from it and
        ends with the same positions, draws and counts. The file of a run with other settings, shapes, seed, data or
        functions is rejected; a Python function that answers questions is compared by its name only. After an upgrade
        of JAX or Onlooker compiled functions cannot be compared: the run continues, with a warning.
    part
        (i, of): run only the i-th of so many parts of the chains, counted from 0. `Chains.joined` makes the whole of
        them, with the same positions, draws and counts as one run. Parts need not know of each other: each can run on
        another machine, and has its own checkpoint.
    progress
        Whether to show a progress bar; by default on a terminal only.
    label
        Title of the bar; by default the learner's name.

    Examples
    --------
    >>> from onlooker import oracle
    >>> from onlooker.inverse import classical
    >>> answers = oracle(lambda points: -points, dim=2)  # R = −|θ|²/2
    >>> chains = run(classical(step_size=0.1), answers, steps=400, chains=8, burn_in=80)
    >>> chains.samples.shape, chains.interrupted
    ((8, 40, 2), False)
    """
    steps = check_compatible(learner, stream, grid, steps)
    settings = RunSettings(steps, chains, seed, thin, burn_in, draws, snapshots, dtype, grid, marginals)
    plan, group = make_plan(learner, stream, settings), None
    if part is not None:
        check_part(part, plan.groups)
        plan, group = plan.part(*part)
    devices = Devices.for_run(plan, group or 0)
    warnings = [*warn_about_occupancy(learner, stream), *warn_about_pools(stream)]
    standing = begin(plan, learner, stream, settings, start, group)
    zeros, moments = zero_sums(plan), settings.moments(plan.block)
    file = None
    if checkpoint is not None:
        identity = Identity.of(plan, learner, stream, settings, standing, group)
        file = RunFile(checkpoint, identity, standing, moments, steps)
        standing = file.resumed()
        warnings += file.warnings

    if devices is not None:
        standing = devices.begun(standing)
    resumed, began = standing.done, time.perf_counter()
    chains = plan.part_chains
    call, longest = 1, max(1, min(CALL_COUNTS * plan.thin // chains, CALL_STEPS) // plan.block)
    try:
        with (
            progress_bar(label or learner.name, steps, chains, progress) as report,
            interrupts() as interrupted,
        ):
            while standing.done < steps and not interrupted():
                called, first = time.perf_counter(), standing.done == resumed
                until = min(standing.done + call * plan.block, *moments[len(standing.history) :][:1], steps)
                standing = (
                    advanced(plan, stream, standing, zeros, until, moments, group)
                    if devices is None
                    else devices.advanced(stream, standing, until, moments)
                )
                report(standing.done)
                # The first call also compiles, so its duration is not used.
                call = 1 if first else _next_call(call, time.perf_counter() - called, longest, plan.accelerator)
                if file is not None:
                    file.keep(standing if devices is None else devices.gathered(standing))
    except jax.errors.JaxRuntimeError:
        if stream.failures:
            raise stream.failures.pop() from None
        raise
    if devices is not None:
        standing = devices.gathered(standing)
    if file is not None and standing.done > resumed:
        file.keep(standing, now=True)
        if file.failure is not None:
            text = f"{file.path} could not be written ({file.failure}) and holds an earlier state of the run."
            warnings.append(Message("checkpoint-stale", text))
    if standing.done < steps:
        text = f"interrupted after {standing.done} of {steps} steps; the result covers those."
        warnings.append(Message("interrupted", text, {"done": standing.done, "steps": steps}))
    seconds = time.perf_counter() - began
    rate = (standing.done - resumed) * chains / max(seconds, 1e-9)
    result = as_chains(
        plan, learner, stream.shown, standing, seconds=seconds, rate=rate, steps=steps, warnings=warnings
    )
    deliver(result.warnings, about=label or learner.name)
    return result


def _next_call(blocks: int, seconds: float, longest: int, accelerator: bool) -> int:
    """Number of blocks of the next call, from the seconds that the last one took; at most eight times as many."""
    wanted = CALL_SECONDS["accelerator" if accelerator else "cpu"] / max(seconds, 1e-6)
    return int(min(max(1, blocks * min(wanted, 8.0)), longest))
