"""Groups of chains over the devices of a host: each runs the loop on its own groups, and nothing is communicated.

Noise is keyed by the number of the group, so positions, draws and counts are the same to the last bit on any number of
devices. Groups are padded to a multiple of the devices with copies that are never counted. What devices have added up
is added on the host, in 64 bits.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, PartitionSpec

from onlooker.data.stream import Stream
from onlooker.engine.accumulators import Marginals
from onlooker.engine.loop import Plan, State, Sums, advance, zero_sums
from onlooker.engine.state import Moment, RunState, added

__all__ = ["Devices"]

AXIS = "groups"


class Devices:
    """The devices of this host, and a run's share of each.

    Parameters
    ----------
    plan
        The run.
    first
        Its first group.
    """

    def __init__(self, plan: Plan, first: int) -> None:
        devices = jax.local_devices()
        self.plan, self.first = plan, first
        self.count = min(len(devices), plan.groups)
        # The groups of one device, as a run of their own.
        groups = -(-plan.groups // self.count)
        self.own = replace(plan, groups=groups, part_chains=groups * plan.width, traced=min(groups, plan.traced))
        self.padding = self.count * groups - plan.groups
        self._mesh = Mesh(np.array(devices[: self.count]), (AXIS,))
        self._zeros = zero_sums(self.own)

    @classmethod
    def for_run(cls, plan: Plan, first: int) -> "Devices | None":
        """The devices for a run; ``None`` if it has only one."""
        return cls(plan, first) if len(jax.local_devices()) > 1 and plan.groups > 1 else None

    def advanced(self, stream: Stream, run: RunState, until: int, moments: list[int]) -> RunState:
        """The run at step ``until``; see `onlooker.engine.state.advanced`."""
        padded, steps, first = self._padded(run.state), np.int32(until), np.int32(self.first)
        state, trace, sums = _advance(self.own, self._mesh, stream.data, padded, run.trace, self._zeros, steps, first)
        totals = added(self.plan, run.totals, self._whole(sums), until - run.done)
        history = run.history
        if until in moments:
            history = (*history, Moment(until, state.positions[: self.plan.groups], totals))
        return RunState(until, state, trace, totals, history)

    def _padded(self, state: State) -> State:
        """The state with copies of the last group, unless it has them."""
        if not self.padding or len(state.positions) > self.plan.groups:
            return state

        def pad(leaf: Any) -> Any:
            return jnp.concatenate([leaf, *[leaf[-1:]] * self.padding])

        carry = state.carry if self.plan.shared else jax.tree.map(pad, state.carry)
        return state._replace(positions=pad(state.positions), carry=carry)

    def begun(self, run: RunState) -> RunState:
        """A run whose trace has room for every device."""
        shape = list(np.shape(run.trace))
        room = np.zeros([shape[0], self.count * self.own.traced, *shape[2:]], self.plan.dtype)
        room[:, : shape[1]] = run.trace
        return run._replace(trace=room)

    def gathered(self, run: RunState) -> RunState:
        """The run without padding, as one device would have it."""
        groups = self.plan.groups
        state = run.state._replace(positions=run.state.positions[:groups])
        if not self.plan.shared:
            state = state._replace(carry=jax.tree.map(lambda leaf: leaf[:groups], state.carry))
        return run._replace(state=state, trace=run.trace[:, : self.plan.traced])

    def _whole(self, sums: Sums) -> Sums:
        """The sums of all devices."""
        moments = jax.tree.map(lambda leaf: _total(np.asarray(leaf)), sums.moments)
        accumulated = []
        for accumulator, counts in zip(self.plan.accumulators, sums.accumulated, strict=True):
            counts = np.asarray(counts)
            if isinstance(accumulator, Marginals) and accumulator.per_chain:
                accumulated.append(counts.reshape(-1, *counts.shape[2:])[: self.plan.part_chains])
            else:
                accumulated.append(_total(counts))
        return Sums(np.asarray(sums.info)[: self.plan.traced], moments, tuple(accumulated))


def _total(parts: np.ndarray) -> np.ndarray:
    return parts.sum(axis=0, dtype=np.result_type(parts.dtype, np.int64))


@partial(jax.jit, static_argnames=("plan", "mesh"), donate_argnames=("trace",))
def _advance(
    plan: Plan,
    mesh: Mesh,
    data: Any,
    state: State,
    trace: Array,
    zeros: Sums,
    until: Array,
    first: Array,
) -> tuple[State, Array, Sums]:
    """`advance` on every device of a mesh, on its own groups."""
    everywhere: Any = PartitionSpec()
    by_group: Any = PartitionSpec(AXIS)
    by_column: Any = PartitionSpec(None, AXIS)

    def like(tree: Any, spec: PartitionSpec) -> Any:
        return jax.tree.map(lambda _: spec, tree)

    states = State(
        everywhere,
        everywhere,
        by_group,
        everywhere,
        like(state.carry, everywhere if plan.shared else by_group),
        like(state.memory, everywhere),
    )
    sums = Sums(by_group, like(zeros.moments, by_group), like(zeros.accumulated, by_group))

    def on_one(data: Any, state: State, trace: Array, zeros: Sums, until: Array, first: Array) -> Any:
        own = first + lax.axis_index(AXIS) * plan.groups
        state, trace, found = advance(plan, data, state, trace, zeros, until, own)
        moments, accumulated = (
            jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], part) for part in (found.moments, found.accumulated)
        )
        return state, trace, Sums(found.info, moments, accumulated)

    given = (like(data, everywhere), states, by_column, like(zeros, everywhere), everywhere, everywhere)
    spread = jax.shard_map(on_one, mesh=mesh, in_specs=given, out_specs=(states, by_column, sums), check_vma=False)
    return spread(data, state, trace, zeros, until, first)
