"""α ← α + μ(β/2) Σ w_i g_i + √μ w, with w_i ∝ K_σ(α − θ_i) over a pool of L observations.

The paper's variance-reduced learner (`eq:mcmcirl`). It needs no density π: as L → ∞ the sum tends to E[∇R(θ) | α],
which is ∇R(α) up to O(σ²), so the chain samples exp(βR) as μ, σ → 0. It does need pools that mix
many agents, and neighbours. In many dimensions there are none: one observation takes all the weight however far away it
is, and the chain follows gradients from elsewhere (kernel ESS 1.05 of 100 at N = 124).
"""

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array

from onlooker.core.kernels import Kernel, by_name, gaussian
from onlooker.core.settings import check_positive
from onlooker.data.observations import Observation
from onlooker.fit.kernel_regression import Neighbours, neighbours
from onlooker.inverse.base import InverseLearner, PoolInfo, Step
from onlooker.inverse.confine import Confine, nowhere
from onlooker.inverse.examples import Example, pools
from onlooker.inverse.moved import from_paper

__all__ = ["examples", "multikernel", "pool_step"]


def multikernel(
    *,
    step_size: float,
    bandwidth: float,
    beta: float = 1.0,
    kernel: str | Kernel = gaussian,
    confine: Confine = nowhere,
    **moved: Any,
) -> InverseLearner:
    """The multi-kernel inverse learner, for a stream of pools.

    Parameters
    ----------
    step_size
        μ.
    bandwidth
        σ of the kernel.
    beta
        β, the inverse temperature.
    kernel
        K, without negative values. A step has no drift when a compact kernel reaches none of the pool; such steps are
        counted.
    confine
        Keeps the chain in a region; default: unconfined.
    moved
        ``average`` and ``reset``, now options of `paper.listing.listing_multikernel`.
    """
    options: dict[str, Any] = {"step_size": step_size, "bandwidth": bandwidth, "beta": beta}
    for name in moved.keys() - {"average", "reset"}:
        raise TypeError(f"multikernel() got an unexpected keyword argument {name!r}")
    if moved:
        listing: InverseLearner = from_paper(
            f"multikernel({', '.join(f'{name}=' for name in moved)})", "listing", "listing_multikernel"
        )(**options, kernel=kernel, confine=confine, **moved)
        return listing
    step = pool_step(**options, kernel=kernel, confine=confine)
    settings = {**options, "kernel": by_name(kernel).name}
    return InverseLearner("multikernel", step, settings, info=PoolInfo, evidence="pool", plain_noise=True)


def weighted(pool: Neighbours, gradients: Array, noise: Array) -> Array:
    """The weighted mean of the pool's gradients."""
    return pool.average(gradients)


def stay(position: Array, pool: Neighbours, noise: Array) -> tuple[Array, Array]:
    """Start where the chain is: no reset."""
    return position, jnp.zeros((), bool)


def pool_step(
    *,
    step_size: float,
    bandwidth: float,
    beta: float,
    kernel: str | Kernel,
    confine: Confine,
    average: Callable[[Neighbours, Array, Array], Array] = weighted,
    begin: Callable[[Array, Neighbours, Array], tuple[Array, Array]] = stay,
) -> Step:
    """The step on a pool, shared with the paper's listing.

    ``average(pool, gradients, noise)`` returns the gradient to use, ``begin(position, pool, noise)`` where the step
    starts and whether the chain was reset.
    """
    check_positive(step_size=step_size, bandwidth=bandwidth, beta=beta)
    kernel = by_name(kernel)
    if kernel.signed:
        raise ValueError(f"kernel {kernel.name!r} takes negative values and has no log weights; use 'gaussian'.")
    root = math.sqrt(step_size)

    def step(position: Array, evidence: Observation, noise: Array) -> tuple[Array, PoolInfo]:
        if evidence.point.ndim != 2 or not len(evidence.point):
            raise ValueError(
                f"multikernel got evidence of shape {evidence.point.shape}; give a stream of pools of at least "
                "one observation, such as pooled(recorded(observations), 100)."
            )
        pool = neighbours(position, evidence.point, kernel, bandwidth)
        gradient = average(pool, evidence.gradient, noise)
        start, reset = begin(position, pool, noise)
        moved, projected = confine(start, step_size * (beta / 2 * gradient) + root * noise[0])
        kind = position.dtype
        return moved, PoolInfo(pool.ess, pool.distance, projected, pool.empty.astype(kind), reset.astype(kind))

    return step


def examples() -> dict[str, Example]:
    return {"multikernel": Example(lambda: multikernel(step_size=1e-2, bandwidth=0.5), pools, steps=9000)}
