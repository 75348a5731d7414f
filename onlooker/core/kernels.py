"""K_Δ(u) = Δ^−N K(u/Δ): the weight of an observation at θ = α + u for the gradient at α.

Every kernel is radial and integrates to one in any dimension N (assumption A4 of the paper). Signed
kernels are of higher order (`ker-1`): they take negative values and have a bias of O(Δ⁴) instead of O(Δ²).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array
from scipy.special import gammainc

__all__ = ["Kernel", "by_name", "epanechnikov", "fourth_order", "gaussian", "truncated_gaussian"]


@dataclass(frozen=True)
class Kernel:
    """A radial kernel, given by the logarithm of its profile or, if it is signed, by the profile itself.

    Attributes
    ----------
    name
        Its name in tables and settings.
    order
        The order of the first non-vanishing moment: the bias is O(Δ^order).
    log_profile
        ``log K`` at a squared radius in dimension N, −inf outside the support; ``None`` for a signed kernel.
    profile
        ``K`` at a squared radius in dimension N; default: the exponential of ``log_profile``.
    tail
        Standard deviation of the Gaussian tail, in bandwidths; 0 for a compact kernel, infinite for a heavier tail.

    Examples
    --------
    >>> peak = float(gaussian(jnp.zeros(2), 0.5))  # 1/(2πΔ²)
    >>> round(peak, 4)
    0.6366
    >>> float(epanechnikov(jnp.array([0.5, 0.0]), 0.4))  # compact: zero beyond Δ
    0.0
    >>> gaussian.order, fourth_order.order, fourth_order.signed
    (2, 4, True)
    """

    name: str
    order: int
    log_profile: Callable[[Array, int], Array] | None = None
    profile: Callable[[Array, int], Array] | None = None
    tail: float = 0.0

    @property
    def signed(self) -> bool:
        """Whether the kernel takes negative values."""
        return self.log_profile is None

    def log_at(self, squared_radius: Array, dim: int) -> Array:
        """log K at squared radii in units of the bandwidth squared."""
        if self.log_profile is None:
            raise ValueError(f"kernel {self.name!r} takes negative values and has no logarithm; use 'gaussian'.")
        return self.log_profile(squared_radius, dim)

    def log(self, displacement: Array, bandwidth: float) -> Array:
        """log K_Δ(u) for one displacement u of shape (dim,)."""
        dim = displacement.shape[-1]
        scaled = displacement / bandwidth
        return self.log_at(jnp.sum(scaled * scaled), dim) - dim * math.log(bandwidth)

    def ratio(self, displacement: Array, bandwidth: float, log_density: Array) -> Array:
        """K_Δ(u) divided by a density, in logarithms where possible: in many dimensions either may underflow."""
        if self.signed:
            return self(displacement, bandwidth) * jnp.exp(-log_density)
        return jnp.exp(self.log(displacement, bandwidth) - log_density)

    def __call__(self, displacement: Array, bandwidth: float) -> Array:
        """K_Δ(u) for one displacement u of shape (dim,)."""
        if self.profile is None:
            return jnp.exp(self.log(displacement, bandwidth))
        dim = displacement.shape[-1]
        scaled = displacement / bandwidth
        return self.profile(jnp.sum(scaled * scaled), dim) * bandwidth**-dim


def _log_gaussian(squared_radius: Array, dim: int) -> Array:
    return -0.5 * squared_radius - 0.5 * dim * math.log(2 * math.pi)


gaussian = Kernel("gaussian", 2, _log_gaussian, tail=1.0)
"""(2π)^(−N/2) exp(−|u|²/2)."""


def truncated_gaussian(radius: float = 3.0) -> Kernel:
    """The Gaussian, truncated at ``radius`` bandwidths and normalised."""

    def log_profile(squared_radius: Array, dim: int) -> Array:
        kept = math.log(gammainc(dim / 2, radius**2 / 2))
        inside = squared_radius <= radius**2
        return jnp.where(inside, _log_gaussian(squared_radius, dim) - kept, -jnp.inf)

    return Kernel(f"truncated_gaussian({radius:g})", 2, log_profile)


def _epanechnikov_constant(dim: int) -> float:
    log_ball = 0.5 * dim * math.log(math.pi) - math.lgamma(0.5 * dim + 1)
    return math.log(dim + 2) - math.log(2) - log_ball


def _log_epanechnikov(squared_radius: Array, dim: int) -> Array:
    inside = squared_radius < 1
    return jnp.where(inside, jnp.log1p(-jnp.where(inside, squared_radius, 0)) + _epanechnikov_constant(dim), -jnp.inf)


epanechnikov = Kernel("epanechnikov", 2, _log_epanechnikov)
"""Proportional to 1 − |u|² in the unit ball, zero outside."""


def _fourth_order(squared_radius: Array, dim: int) -> Array:
    narrow = jnp.exp(_log_gaussian(squared_radius, dim))
    wide = jnp.exp(_log_gaussian(squared_radius / 2, dim)) * 2 ** (-dim / 2)
    return 2 * narrow - wide


fourth_order = Kernel("fourth_order", 4, profile=_fourth_order, tail=math.sqrt(2))
"""Twice the Gaussian minus a Gaussian of twice its variance: signed, with bias O(Δ⁴)."""


def by_name(name: str | Kernel) -> Kernel:
    """The kernel called ``name``; a `Kernel` is returned unchanged.

    Examples
    --------
    >>> by_name("truncated_gaussian").name
    'truncated_gaussian(3)'
    """
    if isinstance(name, Kernel):
        return name
    known = {kernel.name: kernel for kernel in (gaussian, epanechnikov, fourth_order)}
    known["truncated_gaussian"] = truncated_gaussian()
    if name not in known:
        raise ValueError(f"kernel {name!r} is unknown; choose one of {', '.join(sorted(known))}.")
    return known[name]
