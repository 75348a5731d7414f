"""α ← α + μ(β/2) ĝ(α) + √μ w, with ĝ the kernel regression on all observations in memory.

Samples exp(βR) as the field converges to ∇R. It needs no density π, and every step uses every observation,
where the paper's learners use each of them once. The field is refreshed as data arrive; the memory is bounded (see
`fit.memory`). In many dimensions no kernel has neighbours: the method `potential` fits there.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from onlooker.core.settings import check_positive
from onlooker.data.observations import Observation
from onlooker.fit.binned_regression import Field, evaluate, fit_field
from onlooker.fit.kernel_regression import VARIANTS, regress
from onlooker.fit.memory import Bins, Cloud, Memory, binned
from onlooker.inverse.base import FieldInfo, InverseLearner
from onlooker.inverse.examples import Example, observed

__all__ = ["BOX_WIDTHS", "examples", "remembered", "replay"]

# The field of binned moments is refitted when the number of rows has grown by this share.
REFRESH = 0.1
# Beyond the box a chain is pulled back as by a Gaussian of a sixth of its width.
BOX_WIDTHS = 6.0
# Rows added to a memory at once; the last chunk is padded, so that one compiled function serves all.
CHUNK = 1 << 16

Init = Callable[[int], Any]
Update = Callable[[Any, Any, Array], Any]
# Returns the gradient at a position, the pull back into the box, and the report.
Slope = Callable[[Any, Array], tuple[Array, Any, FieldInfo]]


class _OnBins(NamedTuple):
    bins: Bins
    field: Field
    refreshed: Array


def remembered(
    memory: Memory, points: np.ndarray, gradients: np.ndarray, held: np.ndarray | None = None
) -> Bins | Cloud:
    """A memory of observations (n, dim); ``held`` marks the rows held out to choose a bandwidth."""
    add = jax.jit(memory.add)
    state = memory.init(points.shape[1])
    for first in range(0, len(points), CHUNK):
        rows = slice(first, first + CHUNK)
        count = len(points[rows])
        fill = ((0, CHUNK - count), (0, 0))
        block = Observation(*(jnp.asarray(np.pad(part[rows], fill), jnp.float32) for part in (points, gradients)))
        apart = None if held is None else jnp.asarray(np.pad(held[rows], fill[0]))
        state = add(state, block, jnp.int32(count), apart)
    return state


def replay(
    memory: Memory,
    *,
    step_size: float,
    bandwidth: float | None = None,
    beta: float = 1.0,
    variant: str | None = None,
    enough: float = 10.0,
    state: Bins | Cloud | None = None,
) -> InverseLearner:
    """The replaying inverse learner, for a stream of observations.

    Parameters
    ----------
    memory
        `ring(size)`, `reservoir(size)` or `binned(low, high)`.
    step_size
        μ.
    bandwidth
        σ of the kernel, widened where there are few neighbours. `binned` chooses it from held-out gradients.
    beta
        β, the inverse temperature.
    variant
        "constant", "linear" or "fourth order"; by default the one that predicts held-out gradients best on bins, and
        "linear" on points.
    enough
        Effective neighbours below which a bandwidth is widened.
    state
        The memory at the start, from `remembered`; by default it is empty.
    """
    check_positive(step_size=step_size, beta=beta, enough=enough)
    if variant is not None and variant not in VARIANTS:
        raise ValueError(f"variant is {variant!r}; choose one of {', '.join(VARIANTS)}.")
    if memory.name == "binned":
        if bandwidth is not None:
            raise ValueError("bandwidth is chosen from held-out gradients by binned memory; leave it out.")
    elif bandwidth is None:
        raise ValueError(f"bandwidth is missing and memory {memory.name!r} does not choose it; give a bandwidth.")
    else:
        check_positive(bandwidth=bandwidth)
    settings: dict[str, Any] = {"step_size": step_size, "beta": beta, "memory": memory.name, "enough": enough}
    settings |= {name: value for name, value in (("bandwidth", bandwidth), ("variant", variant)) if value is not None}
    make = _on_bins if memory.name == "binned" else _on_points
    init, update, gradient = make(memory, variant, enough, bandwidth, state)
    root = math.sqrt(step_size)

    def step(position: Array, evidence: Any, noise: Array) -> tuple[Array, FieldInfo]:
        slope, pull, info = gradient(evidence, position)
        return position + step_size * (beta / 2 * slope - pull / 2) + root * noise[0], info

    return InverseLearner(
        "replay", step, settings, init=init, update=update, info=FieldInfo, evidence="memory", plain_noise=True
    )


def _on_points(
    memory: Memory, variant: str | None, enough: float, bandwidth: float | None, state: Any
) -> tuple[Init, Update, Slope]:
    assert bandwidth is not None

    def gradient(cloud: Cloud, position: Array) -> tuple[Array, float, FieldInfo]:
        kept = jnp.arange(len(cloud.point)) < cloud.filled
        slope, ess, taken = regress(position, cloud.point, cloud.gradient, kept, bandwidth, variant or "linear", enough)
        return slope, 0.0, FieldInfo(ess, taken, jnp.zeros((), position.dtype))

    def init(dim: int) -> Cloud:
        return memory.init(dim) if state is None else state

    return init, memory.add, gradient


def _on_bins(
    memory: Memory, variant: str | None, enough: float, bandwidth: float | None, state: Any
) -> tuple[Init, Update, Slope]:
    assert memory.low is not None
    assert memory.high is not None
    low, width = memory.low, memory.high - memory.low

    def init(dim: int) -> _OnBins:
        if dim != len(low):
            raise ValueError(f"memory has {len(low)} dimensions but the stream {dim}; give it a box that fits.")
        bins = memory.init(dim) if state is None else state
        return _OnBins(bins, fit_field(bins, enough, variant), bins.seen)

    def update(current: _OnBins, observations: Observation, count: Array) -> _OnBins:
        bins = memory.add(current.bins, observations, count)
        stale = bins.seen.astype(jnp.float32) > (1 + REFRESH) * current.refreshed.astype(jnp.float32)
        field, refreshed = jax.lax.cond(
            stale,
            lambda: (fit_field(bins, enough, variant), bins.seen),
            lambda: (current.field, current.refreshed),
        )
        return _OnBins(bins, field, refreshed)

    def gradient(current: _OnBins, position: Array) -> tuple[Array, Array, FieldInfo]:
        field, scale = current.field, jnp.asarray(width, position.dtype)
        share = (position - jnp.asarray(low, position.dtype)) / scale
        beyond = share - jnp.clip(share, 0, 1)
        table = jnp.concatenate([field.gradient, field.ess[..., None], field.widened[..., None]], axis=-1)
        values = evaluate(table, share)
        dim = len(share)
        pull = BOX_WIDTHS**2 * beyond / scale
        taken = values[dim + 1] * jnp.mean(scale) / field.ess.shape[0]
        return values[:dim], pull, FieldInfo(values[dim], taken, jnp.any(beyond != 0).astype(position.dtype))

    return init, update, gradient


def examples() -> dict[str, Example]:
    def made() -> InverseLearner:
        return replay(binned([-4, -4], [4, 4], cells=16), step_size=1e-2)

    return {"replay": Example(made, observed, chains=8)}
