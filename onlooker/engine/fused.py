"""A block of steps in one GPU kernel: chains stay in registers, and noise is drawn where it is used.

It takes the same steps on the same noise as the plain loop (`loop`), which draws the noise first and reads it from
memory: the results differ by rounding only. It is written in Pallas, for streams that all chains share and learners
without memory; Pallas's compiler takes only dimensions that are powers of two. JAX plans to drop the Triton back end:
where it is missing, the plain loop is used.
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

from onlooker.data.stream import Stream
from onlooker.inverse.base import InverseLearner

__all__ = ["fused_block", "suits"]

# Chains of one program, which has one warp: four per thread, or one where four would leave too few programs to keep a
# GPU busy.
WIDE, NARROW = 128, 32
MANY_CHAINS = 1 << 18
# Rotations of Threefry-2x32, and the constant of its key schedule.
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
# Parameters of primitives that hold the jaxpr of a call.
CALLS = ("jaxpr", "call_jaxpr")


def suits(learner: InverseLearner, stream: Stream, dtype: Any) -> bool:
    """Whether a run can be fused: float32, one shared observation per step, no constant arrays in the learner's step,
    and no sum over coordinates that depends on another such sum, as in a ball's projection: Triton's compiler does not
    terminate on those.
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
    zero = jnp.zeros(stream.dim)
    traced = jax.make_jaxpr(learner.step)(zero, jax.tree.map(lambda leaf: zero, shown), (zero,) * learner.noise_rows)
    depths = _sums_in_turn(traced.jaxpr, (0,) * len(traced.jaxpr.invars))
    return all(np.ndim(constant) == 0 for constant in traced.consts) and max(depths.values()) < 2


def _sums_in_turn(jaxpr: Any, given: tuple[int, ...]) -> dict[Any, int]:
    """For every variable, the length of the longest chain of sums over coordinates that it depends on."""
    known = dict(zip(jaxpr.invars, given, strict=True))
    for equation in jaxpr.eqns:
        before = tuple(0 if isinstance(atom, Literal) else known.get(atom, 0) for atom in equation.invars)
        inner = next((equation.params[name] for name in CALLS if name in equation.params), None)
        if inner is not None:
            inside = _sums_in_turn(inner.jaxpr, before)
            after = [0 if isinstance(atom, Literal) else inside.get(atom, 0) for atom in inner.jaxpr.outvars]
        else:
            deeper = max(before, default=0) + equation.primitive.name.startswith(("reduce", "dot"))
            after = [deeper] * len(equation.outvars)
        known |= dict(zip(equation.outvars, after, strict=True))
    return known


def fused_block(
    plan: Any, keys: Array, positions: Array, evidence: Any, steps: Array, interpret: bool = False
) -> tuple[Array, Array, Array]:
    """The first ``steps`` steps of a block: positions (groups, dim, width), those recorded, and sums of the reports.

    ``keys`` (groups, 2) has one key per group, ``evidence`` one row per step.
    """
    groups, dim, width = positions.shape
    lanes = WIDE if plan.chains >= MANY_CHAINS else NARROW
    tiles = -(-width // lanes)
    padded = jnp.pad(positions, ((0, 0), (0, 0), (0, tiles * lanes - width)), mode="edge")
    rows, reports = plan.block // plan.thin, len(plan.sums)
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
    outputs = call(jnp.asarray(steps, jnp.int32)[None], keys, padded, *leaves)
    return tuple(output[..., :width] for output in outputs)


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
        squared = [getattr(info, name) * getattr(info, name) for name in plan.squares]
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
    start = position_ref[0, :, :], (jnp.zeros((lanes,), plan.dtype),) * len(plan.sums)
    carry = lax.fori_loop(0, rows, one_row, start)
    position, sums = lax.fori_loop(rows * plan.thin, steps, one_step, carry)
    lax.fori_loop(rows, plan.block // plan.thin, no_row, None)
    moved_ref[0, :, :] = position
    for number, total in enumerate(sums):
        sums_ref[0, number, :] = total


def _normal(key: tuple[Array, Array], plan: Any, step: Array, index: Array) -> Array:
    """The number that `core.random.standard_normal` has at an index of a block's noise.

    One call of Threefry returns two words: one for the index, one for the index half a block of steps later.
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
    """Threefry-2x32 with twenty rounds, in operations that a kernel can use."""
    schedule = (*key, key[0] ^ key[1] ^ PARITY)
    first, second = first + schedule[0], second + schedule[1]
    for group in range(5):
        for rotation in ROTATIONS[group % 2]:
            first = first + second
            second = first ^ ((second << rotation) | (second >> (32 - rotation)))
        first, second = first + schedule[(group + 1) % 3], second + schedule[(group + 2) % 3] + (group + 1)
    return first, second


def _folded(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its calls inlined and its constants computed beforehand.

    Derivatives leave constants such as −(1.0), which Pallas's compiler rejects.
    """

    def run(jaxpr: Any, constants: Any, arguments: Any) -> list[Any]:
        known = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*constants, *arguments], strict=True))

        def value(variable: Any) -> Any:
            return variable.val if isinstance(variable, Literal) else known[variable]

        for equation in jaxpr.eqns:
            given = [value(variable) for variable in equation.invars]
            inner = next((equation.params[name] for name in CALLS if name in equation.params), None)
            if inner is not None:
                outputs = run(inner.jaxpr, inner.consts, given)
            else:
                # Only for single numbers: a constant array is computed where it is used.
                numbers = [*given, *(variable.aval for variable in equation.outvars)]
                constant = all(np.shape(part) == () and not isinstance(part, jax.core.Tracer) for part in numbers)
                with jax.ensure_compile_time_eval() if constant else nullcontext():
                    outputs = equation.primitive.bind(*given, **equation.params)
                outputs = outputs if equation.primitive.multiple_results else [outputs]
                if constant:
                    outputs = [np.asarray(output)[()] for output in outputs]
            known |= dict(zip(equation.outvars, outputs, strict=True))
        return [value(variable) for variable in jaxpr.outvars]

    def folded(*arguments: Any) -> Any:
        traced, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
        outputs = run(traced.jaxpr, traced.consts, jax.tree.leaves(arguments))
        return jax.tree.unflatten(jax.tree.structure(shape), outputs)

    return folded
