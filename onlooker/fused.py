"""A block of steps in one kernel, for GPUs: chains stay in registers, and noise is made where it is used.

The same steps on the same noise as engine.py's loop, which makes the noise first and reads it from memory: the results
differ by rounding only. It is written in Pallas, for streams that all chains share and learners without memory; its
compiler takes dimensions that are powers of two. JAX means to drop the Triton behind it one day: where that is missing
the plain loop does the work.
"""

import math
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jax.extend.core import Literal

from onlooker.inverse.base import InverseLearner
from onlooker.observe.stream import Stream

__all__ = ["fused_block", "suits"]

# Chains of one program, which has one warp: four for each thread or, where there would be too few programs to keep a
# GPU busy, one.
WIDE, NARROW = 128, 32
MANY_CHAINS = 1 << 18
# Of Threefry-2x32: rotations, and the constant of its key schedule.
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
# The jaxprs of calls, by the names of their primitives' parameters.
CALLS = ("jaxpr", "call_jaxpr")


def suits(learner: InverseLearner, stream: Stream, dtype: Any) -> bool:
    """Whether a run can be fused: in float32, one shared observation a step, no arrays inside the learner's.

    And no sum over coordinates of what depends on another one, as a chain confined to a ball has: Triton does not come
    to an end with those.
    """
    simple = stream.shared and stream.answer is None and learner.update is None
    power_of_two = stream.dim & (stream.dim - 1) == 0
    if not simple or not power_of_two or np.dtype(dtype) != np.float32:
        return False

    def two_steps(key: Array) -> Any:
        return stream.draw(stream.data, stream.init(stream.data, key, None), key, 2, None)[1]

    shown = jax.eval_shape(two_steps, jax.random.key(0))
    if any(leaf.shape != (2, stream.dim) or leaf.dtype != np.float32 for leaf in jax.tree.leaves(shown)):
        return False
    place = jnp.zeros(stream.dim)
    traced = jax.make_jaxpr(learner.step)(place, jax.tree.map(lambda leaf: place, shown), (place,) * learner.noise_rows)
    depths = _sums_in_turn(traced.jaxpr, (0,) * len(traced.jaxpr.invars))
    return all(np.ndim(constant) == 0 for constant in traced.consts) and max(depths.values()) < 2


def _sums_in_turn(jaxpr: Any, given: tuple[int, ...]) -> dict[Any, int]:
    """How many sums over coordinates, each of what depends on the one before, lie behind every variable."""
    known = dict(zip(jaxpr.invars, given, strict=True))
    for equation in jaxpr.eqns:
        before = tuple(0 if isinstance(one, Literal) else known.get(one, 0) for one in equation.invars)
        inner = next((equation.params[name] for name in CALLS if name in equation.params), None)
        if inner is not None:
            inside = _sums_in_turn(inner.jaxpr, before)
            found = [0 if isinstance(one, Literal) else inside.get(one, 0) for one in inner.jaxpr.outvars]
        else:
            deeper = max(before, default=0) + equation.primitive.name.startswith(("reduce", "dot"))
            found = [deeper] * len(equation.outvars)
        known |= dict(zip(equation.outvars, found, strict=True))
    return known


def fused_block(
    plan: Any, keys: Array, positions: Array, evidence: Any, steps: Array, interpret: bool = False
) -> tuple[Array, Array, Array]:
    """The first ``steps`` steps of a block: positions (groups, dim, width), those recorded, and sums of the reports.

    ``keys`` (groups, 2) are the groups' own; evidence has one row for each step.
    """
    groups, dim, width = positions.shape
    lanes = WIDE if plan.chains >= MANY_CHAINS else NARROW
    tiles = -(-width // lanes)
    padded = jnp.pad(positions, ((0, 0), (0, 0), (0, tiles * lanes - width)), mode="edge")
    rows, reports = plan.block // plan.thin, len(plan.reports)
    leaves, tree = jax.tree.flatten(evidence)
    group, tile, whole = (lambda i, j: (i, 0, j)), (1, dim, lanes), (lambda i, j: (0, 0))
    call = pl.pallas_call(
        partial(_kernel, plan, tree, lanes),
        grid=(groups, tiles),
        in_specs=[
            pl.BlockSpec((1,), lambda i, j: (0,)),
            pl.BlockSpec((1, 2), lambda i, j: (i, 0)),
            pl.BlockSpec(tile, group),
            *(pl.BlockSpec(leaf.shape, whole) for leaf in leaves),
        ],
        out_specs=[
            pl.BlockSpec(tile, group),
            pl.BlockSpec((1, rows, dim, lanes), lambda i, j: (i, 0, 0, j)),
            pl.BlockSpec((1, reports, lanes), group),
        ],
        out_shape=[
            jax.ShapeDtypeStruct(shape, plan.dtype)
            for shape in (padded.shape, (groups, rows, *padded.shape[1:]), (groups, reports, padded.shape[-1]))
        ],
        interpret=interpret,
        **({} if interpret else {"compiler_params": _one_warp()}),
    )
    found = call(jnp.asarray(steps, jnp.int32)[None], keys, padded, *leaves)
    return tuple(part[..., :width] for part in found)


def _one_warp() -> Any:
    return triton.CompilerParams(num_warps=1, num_stages=1)


def _kernel(plan: Any, tree: Any, lanes: int, steps_ref: Any, key_ref: Any, position_ref: Any, *refs: Any) -> None:
    """One tile of chains over the whole block."""
    *evidence_refs, moved_ref, recorded_ref, sums_ref = refs
    key = key_ref[0, 0], key_ref[0, 1]
    lane = pl.program_id(1) * lanes + lax.broadcasted_iota(jnp.int32, (plan.dim, lanes), 1)
    row = lax.broadcasted_iota(jnp.int32, (plan.dim, lanes), 0)
    all_chains = _folded(jax.vmap(plan.step, in_axes=(-1, None, -1), out_axes=-1))

    def one_step(step: Array, carry: tuple[Array, tuple[Array, ...]]) -> tuple[Array, tuple[Array, ...]]:
        position, sums = carry
        shown = jax.tree.unflatten(tree, [ref[step, :] for ref in evidence_refs])
        noise = tuple(
            _normal(key, plan, step, ((step * plan.noise_rows + number) * plan.dim + row) * plan.width + lane)
            for number in range(plan.noise_rows)
        )
        position, info = all_chains(position, shown, noise)
        squared = [info.weight * info.weight] if "weight_squared" in plan.reports else []
        return position, tuple(total + part for total, part in zip(sums, [*info, *squared], strict=True))

    def one_row(number: Array, carry: tuple[Array, tuple[Array, ...]]) -> tuple[Array, tuple[Array, ...]]:
        first = number * plan.thin
        position, sums = lax.fori_loop(first, first + plan.thin, one_step, carry)
        recorded_ref[0, number, :, :] = position
        return position, sums

    def no_row(number: Array, carry: None) -> None:
        recorded_ref[0, number, :, :] = jnp.zeros((plan.dim, lanes), plan.dtype)

    steps = steps_ref[0]
    rows = steps // plan.thin
    start = position_ref[0, :, :], (jnp.zeros((lanes,), plan.dtype),) * len(plan.reports)
    carry = lax.fori_loop(0, rows, one_row, start)
    position, sums = lax.fori_loop(rows * plan.thin, steps, one_step, carry)
    lax.fori_loop(rows, plan.block // plan.thin, no_row, None)
    moved_ref[0, :, :] = position
    for number, total in enumerate(sums):
        sums_ref[0, number, :] = total


def _normal(key: tuple[Array, Array], plan: Any, step: Array, index: Array) -> Array:
    """The number that `noise.standard_normal` has at an index of a block's noise.

    It makes two words with one call: one for the index, one for that half the numbers later, half a block of steps on.
    """
    half = plan.block // 2 * plan.noise_rows * plan.dim * plan.width
    later = step >= plan.block // 2
    counter = jnp.where(later, index - half, index).astype(jnp.uint32)
    first, second = _threefry(key, counter, counter + half)
    words = jnp.where(later, second, first)
    uniform = lax.bitcast_convert_type((words >> 9) | 0x3F800000, jnp.float32) - 1.0
    lowest = float(np.nextafter(np.float32(-1), np.float32(0)))
    return math.sqrt(2) * lax.erf_inv(jnp.maximum(lowest, uniform * (1 - lowest) + lowest))


def _threefry(key: tuple[Array, Array], first: Array, second: Array) -> tuple[Array, Array]:
    """Threefry-2x32 with twenty rounds, in operations that a kernel has."""
    schedule = (*key, key[0] ^ key[1] ^ PARITY)
    first, second = first + schedule[0], second + schedule[1]
    for group in range(5):
        for rotation in ROTATIONS[group % 2]:
            first = first + second
            second = first ^ ((second << rotation) | (second >> (32 - rotation)))
        first, second = first + schedule[(group + 1) % 3], second + schedule[(group + 2) % 3] + (group + 1)
    return first, second


def _folded(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose calls are written out and whose constants are computed beforehand.

    Derivatives leave such as −(1.0), which Pallas's compiler refuses.
    """

    def run(jaxpr: Any, constants: Any, arguments: Any) -> list[Any]:
        known = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*constants, *arguments], strict=True))

        def value(variable: Any) -> Any:
            return variable.val if isinstance(variable, Literal) else known[variable]

        for equation in jaxpr.eqns:
            given = [value(variable) for variable in equation.invars]
            inner = next((equation.params[name] for name in CALLS if name in equation.params), None)
            if inner is not None:
                found = run(inner.jaxpr, inner.consts, given)
            else:
                # Numbers only: an array that depends on nothing is made where it is used.
                numbers = [*given, *(variable.aval for variable in equation.outvars)]
                constant = all(np.shape(one) == () and not isinstance(one, jax.core.Tracer) for one in numbers)
                with jax.ensure_compile_time_eval() if constant else nullcontext():
                    found = equation.primitive.bind(*given, **equation.params)
                found = found if equation.primitive.multiple_results else [found]
                if constant:
                    found = [np.asarray(one)[()] for one in found]
            known |= dict(zip(equation.outvars, found, strict=True))
        return [value(variable) for variable in jaxpr.outvars]

    def folded(*arguments: Any) -> Any:
        traced, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
        found = run(traced.jaxpr, traced.consts, jax.tree.leaves(arguments))
        return jax.tree.unflatten(jax.tree.structure(shape), found)

    return folded
