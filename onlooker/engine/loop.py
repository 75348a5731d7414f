"""The compiled loop behind `run`: chains in groups, steps in blocks, and sums instead of positions.

All randomness is keyed by the number of the block, and blocks have a fixed size, so how a run is cut into calls never
changes a result. Arrays are (groups, dim, width): chains lie on the last axis, in groups narrow enough to stay in a
core's cache, and a block is short enough for its noise to stay in the cache that cores share.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from onlooker.core.random import standard_normal
from onlooker.data.stream import LONGEST_BLOCK, Stream
from onlooker.engine.accumulators import Moments, accumulate
from onlooker.engine.settings import RunSettings
from onlooker.inverse.base import InverseLearner, Step

__all__ = ["Plan", "State", "Sums", "advance", "chain_axis", "make_plan", "trace_rows", "zero_sums"]

# Normals drawn at once: large enough for XLA to use every core, small enough (4 MiB) for the shared cache.
BLOCK_NORMALS = 2**20
# Numbers in one array of the inner loop: XLA starts splitting larger ones over threads, at every step.
GROUP_NUMBERS = 2**11
# The same over pools, where matrix products dominate, which are faster the wider they are.
POOL_GROUP_NUMBERS = 2**16
# Most numbers in one array of weights over a pool: 256 MiB.
POOL_WEIGHTS = 2**26
# Numbers of evidence drawn at once for one group of chains: 16 MiB.
BLOCK_EVIDENCE = 2**22
# Chains above which only TRACED of them keep positions and sums of their reports: these take gigabytes otherwise.
MANY_CHAINS, TRACED = 10**6, 4096
# Most numbers of evidence in a block that ``thin`` makes longer than BLOCK_EVIDENCE allows: 1 GiB.
LARGEST_BLOCK = 2**28


class State(NamedTuple):
    """What the next block needs: the run's key, the number of the block, positions, where moments are taken about, the
    stream's carry and the learner's memory.
    """

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
        (groups, reports, width): sums over each chain's steps. They share one array: on a CPU each further array adds a
        kernel to the inner loop.
    moments
        Moments of the positions, about the mean of their starts.
    accumulated
        One entry per accumulator.
    """

    info: Any
    moments: Any
    accumulated: Any


@dataclass(frozen=True)
class Plan:
    """What the compiled loop depends on; equal plans share compiled code.

    It holds functions of the learner and the stream instead of these, so that compiled code does not keep data alive.
    ``chains`` are those of the whole run; ``groups`` and ``part_chains`` are those of this part of it, and ``traced``
    is the number of its groups whose positions and reports are kept.
    """

    step: Step
    ask: Callable[[Array, Array], Array]
    update: Callable[[Any, Any, Array], Any] | None
    noise_rows: int
    reports: tuple[str, ...]
    squares: tuple[str, ...]
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
    fused: bool
    part_chains: int
    traced: int

    def part(self, number: int, of: int) -> "tuple[Plan, int]":
        """A part of the run's groups, and the first of them."""
        first, end = (self.groups * edge // of for edge in (number, number + 1))
        chains = min(self.chains, end * self.width) - first * self.width
        groups = end - first
        return replace(self, groups=groups, part_chains=chains, traced=_traced(chains, groups, self.width)), first

    @property
    def sums(self) -> tuple[str, ...]:
        """Names of the numbers that are added up over the steps of a chain."""
        return (*self.reports, *(f"{name}_squared" for name in self.squares))


def make_plan(learner: InverseLearner, stream: Stream, settings: RunSettings) -> Plan:
    """Choose the groups of chains and the blocks of steps of a run."""
    chains, thin = settings.chains, settings.thin
    widest = GROUP_NUMBERS // stream.dim
    if stream.shared and stream.pool:
        widest = min(POOL_GROUP_NUMBERS // stream.dim, POOL_WEIGHTS // stream.pool)
    # A Python function answers all chains at once.
    groups = 1 if stream.failures is not None else -(-chains // max(1, widest))
    width = -(-chains // groups)
    noise_fits = BLOCK_NORMALS // (learner.noise_rows * stream.dim * width)
    evidence_fits = BLOCK_EVIDENCE // (stream.numbers * (1 if stream.shared else width))
    block = max(thin, min(LONGEST_BLOCK, _power_of_two(max(noise_fits, 8)), _power_of_two(max(evidence_fits, 1))))
    held = thin * stream.numbers * (1 if stream.shared else width)
    if block == thin and held > LARGEST_BLOCK:
        raise ValueError(
            f"thin is {thin}: that many steps of this stream's pools take {held / 2**28:.1f} GiB; give a smaller thin."
        )
    trace_every = thin
    while trace_every * settings.draws < settings.steps:
        trace_every *= 2
    accelerator = jax.default_backend() != "cpu"
    return Plan(
        step=learner.step,
        ask=learner.ask,
        update=learner.update,
        noise_rows=learner.noise_rows,
        reports=learner.info._fields,
        squares=learner.info.squares(),
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
        burn_in=settings.burn_in,
        accumulators=settings.accumulators,
        dtype=settings.dtype,
        accelerator=accelerator,
        fused=_can_be_fused(learner, stream, settings.dtype, block),
        part_chains=chains,
        traced=_traced(chains, groups, width),
    )


def _traced(chains: int, groups: int, width: int) -> int:
    return groups if chains <= MANY_CHAINS else min(groups, -(-TRACED // width))


def _can_be_fused(learner: InverseLearner, stream: Stream, dtype: Any, block: int) -> bool:
    if jax.default_backend() != "gpu" or block < 2:
        return False
    # Pallas is slow to import, for GPUs only, and not always installed.
    try:
        from onlooker.engine.fused import suits
    except ImportError:
        return False
    return suits(learner, stream, dtype)


def _power_of_two(number: int) -> int:
    """The largest power of two that is not above a number."""
    return 1 << number.bit_length() - 1


def zero_sums(plan: Plan) -> Sums:
    info = np.zeros((plan.traced, len(plan.sums), plan.width), plan.dtype)
    counted = tuple(accumulator.init(plan.dim, plan.part_chains) for accumulator in plan.accumulators)
    return Sums(info, Moments().init(plan.dim, plan.part_chains), counted)


@partial(jax.jit, static_argnames=("plan",), donate_argnames=("trace",))
def advance(
    plan: Plan, data: Any, state: State, trace: Array, zeros: Sums, until: Array, first: Array | None = None
) -> tuple[State, Array, Sums]:
    """Take the blocks from the state's to step ``until``, which may lie within a block.

    ``first`` is the number of the first group, if these are not all groups of the run.
    """
    numbers = jnp.arange(plan.groups) if first is None else first + jnp.arange(plan.groups, dtype=first.dtype)

    def body(carry: tuple[State, Array, Sums]) -> tuple[State, Array, Sums]:
        state, trace, sums = carry
        first_step = state.block * plan.block
        steps = jnp.minimum(until - first_step, plan.block)
        state, recorded, info = _block(plan, data, state, steps, numbers)
        taken = jnp.arange(1, recorded.shape[1] + 1, dtype=steps.dtype) * plan.thin
        counted = (taken <= steps) & (first_step + taken > plan.burn_in)
        lanes = numbers[:, None] * plan.width + jnp.arange(plan.width)[None] < plan.chains
        keep = counted[None, :, None] & lanes[:, None]
        accumulated = tuple(
            accumulate(accumulator, total, recorded, keep, steps - taken, steps)
            for accumulator, total in zip(plan.accumulators, sums.accumulated, strict=True)
        )
        moments = Moments().add(sums.moments, recorded, keep, state.about)
        info = sums.info + info[: plan.traced]
        return state, _trace(plan, trace, recorded[: plan.traced], first_step), Sums(info, moments, accumulated)

    return lax.while_loop(lambda carry: carry[0].block * plan.block < until, body, (state, trace, zeros))


def trace_rows(plan: Plan, steps: int) -> int:
    """Number of rows of the trace, with room for the whole of the last block."""
    blocks = -(-steps // plan.block)
    return -(-blocks * plan.block // plan.trace_every)


def _trace(plan: Plan, trace: Array, recorded: Array, first_step: Array) -> Array:
    """Keep the position every ``trace_every`` steps; in an interval longer than a block later blocks overwrite it."""
    stride = min(plan.trace_every // plan.thin, recorded.shape[1])
    kept = jnp.moveaxis(recorded[:, stride - 1 :: stride], 1, 0)
    return lax.dynamic_update_slice_in_dim(trace, kept, first_step // plan.trace_every, axis=0)


def _block(
    plan: Plan, data: Any, state: State, steps: Array, numbers: Array | None = None
) -> tuple[State, Array, Array]:
    """The first ``steps`` steps of a block: its evidence and noise, then every group of chains over them."""
    numbers = jnp.arange(plan.groups) if numbers is None else numbers
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
            squared = [getattr(info, name) * getattr(info, name) for name in plan.squares]
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
        sums = jnp.zeros((len(plan.sums), plan.width), plan.dtype)
        recorded = jnp.zeros((plan.block // plan.thin, *position.shape), plan.dtype)
        position, sums, recorded = lax.fori_loop(0, rows, one_row, (position, sums, recorded))
        position, sums = lax.fori_loop(rows * plan.thin, steps, one_step, (position, sums))
        return position, group_carry, recorded, sums

    if plan.fused:
        from onlooker.engine.fused import fused_block

        keys = jax.vmap(lambda group: jax.random.key_data(jax.random.fold_in(noise_key, group)))(numbers)
        positions, recorded, info = fused_block(plan, keys, state.positions, evidence, steps)
        return State(state.key, state.block + 1, positions, state.about, carry, memory), recorded, info
    group_carries = jnp.zeros((plan.groups,)) if plan.shared else carry
    inputs = (numbers, state.positions, group_carries)
    if plan.accelerator:
        positions, group_carries, recorded, info = jax.vmap(one_group)(inputs)
    else:
        positions, group_carries, recorded, info = lax.map(one_group, inputs)
    carry = carry if plan.shared else group_carries
    return State(state.key, state.block + 1, positions, state.about, carry, memory), recorded, info


def chain_axis(plan: Plan, grouped: Any) -> np.ndarray:
    """(…, groups, dim, width) to (chain, …, dim), without the copies that fill the last group."""
    array = np.moveaxis(np.asarray(grouped), -1, -2)
    chains_last = array.reshape(*array.shape[:-3], array.shape[-3] * plan.width, array.shape[-1])
    return np.moveaxis(chains_last, -2, 0)[: plan.part_chains]
