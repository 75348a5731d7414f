"""The paper's listing of `multikernel`: chains are reset, and the average may be one drawn observation."""

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.scipy.stats import norm

from onlooker.core.kernels import Kernel, by_name, gaussian
from onlooker.core.settings import check_positive
from onlooker.fit.kernel_regression import Neighbours
from onlooker.inverse.base import InverseLearner, PoolInfo
from onlooker.inverse.confine import Confine, nowhere
from onlooker.inverse.multikernel import pool_step

__all__ = ["Reset", "listing_multikernel", "listing_reset"]


class Reset(NamedTuple):
    """The listing's reset rule: a chain that is too far from the whole pool starts again near the origin.

    Attributes
    ----------
    below
        The threshold of log Σ K(α − θ_i)/K(0).
    spread
        Standard deviation of the new position's coordinates.
    """

    below: float
    spread: float


def listing_reset(dim: int) -> Reset:
    """The listing scales its weights by 10^(2N) and resets the chain, with spread .1, when their sum is below 1e-60."""
    return Reset(-(2 * dim + 60) * math.log(10), 0.1)


def listing_multikernel(
    *,
    step_size: float,
    bandwidth: float,
    beta: float = 1.0,
    kernel: str | Kernel = gaussian,
    confine: Confine = nowhere,
    average: str = "weighted",
    reset: Reset | None = None,
) -> InverseLearner:
    """The multi-kernel inverse learner of the listing.

    Parameters
    ----------
    step_size
        μ.
    bandwidth
        σ of the kernel.
    beta
        β, the inverse temperature.
    kernel
        K, without negative values.
    confine
        Keeps the chain in a region; default: unconfined.
    average
        "weighted": the weighted mean of the pool. "resampled": one observation drawn by its weight, with the same mean
        and a larger variance.
    reset
        The reset rule, such as ``listing_reset(dim)``; resets are counted. As in the listing, the step from the new
        position uses the gradient at the old one. Default: no resets.
    """
    options: dict[str, Any] = {"step_size": step_size, "bandwidth": bandwidth, "beta": beta}
    if average not in ("weighted", "resampled"):
        raise ValueError(f"average is {average!r}; choose 'weighted' or 'resampled'.")
    settings = {**options, "kernel": by_name(kernel).name}
    changed: dict[str, Any] = {}
    if average == "resampled":
        settings["average"], changed["average"] = average, _resampled
    if reset is not None:
        if not isinstance(reset, Reset) or math.isnan(reset.below):
            raise ValueError(f"reset is {reset!r}; give a Reset, such as listing_reset(dim).")
        check_positive(spread=reset.spread)
        settings |= {"reset_below": reset.below, "reset_spread": reset.spread}

        def begin(position: Array, pool: Neighbours, noise: Array) -> tuple[Array, Array]:
            again = pool.log_total < reset.below
            return jnp.where(again, reset.spread * noise[1], position), again

        changed["begin"] = begin
    step = pool_step(**options, kernel=kernel, confine=confine, **changed)
    return InverseLearner(
        "multikernel",
        step,
        settings,
        noise_rows=1 + len(changed),
        info=PoolInfo,
        evidence="pool",
        plain_noise=True,
    )


def _resampled(pool: Neighbours, gradients: Array, noise: Array) -> Array:
    """The gradient of one observation, drawn by the pool's weights."""
    chosen = jnp.searchsorted(jnp.cumsum(pool.weight), norm.cdf(noise[-1, 0]))
    return jnp.where(pool.empty, 0, gradients[jnp.minimum(chosen, len(gradients) - 1)])
