"""α ← α + μ K_Δ(θ−α) β/(2p(θ|α)) g + √μ w, with θ = α + v, v ~ N(0, σ²I), p(θ|α) = N(θ; α, σ²I).

The paper's active learner (`eq:activeirl`): it asks for the gradient at α and gets the one at θ nearby, which the
ratio K_Δ/p turns into a smoothed gradient at α, so the chain samples exp(βR) as μ, Δ → 0. With s = Δ/σ a Gaussian
kernel's ratio has E ratio² = [s²(2−s²)]^(−N/2): finite for s < √2 only, and near 1 in many dimensions only for Δ = σ,
where the ratio is 1 and the step the plain one with the gradient at θ.
"""

import math

from jax import Array

from onlooker.check import check_positive
from onlooker.inverse.base import Info, InverseLearner, distance
from onlooker.inverse.confine import Confine, nowhere
from onlooker.kernels import Kernel, by_name, gaussian
from onlooker.observe.observation import Observation

__all__ = ["active"]


def active(
    *,
    step_size: float,
    spread: float,
    bandwidth: float | None = None,
    beta: float = 1.0,
    kernel: str | Kernel = gaussian,
    confine: Confine = nowhere,
) -> InverseLearner:
    """The active inverse learner, on a stream that answers questions.

    Parameters
    ----------
    step_size
        μ.
    spread
        σ: how far from the chain a question is answered, per coordinate.
    bandwidth
        Δ of the kernel; by default σ.
    beta
        β, the inverse temperature.
    kernel
        K, of any kind.
    confine
        Keeps the chain in a region; by default nowhere does.
    """
    bandwidth = spread if bandwidth is None else bandwidth
    check_positive(step_size=step_size, spread=spread, bandwidth=bandwidth, beta=beta)
    kernel = by_name(kernel)
    if kernel.tail * bandwidth >= math.sqrt(2) * spread:
        raise ValueError(
            f"bandwidth is {bandwidth:g} and spread {spread:g}: the weights of kernel {kernel.name!r} have infinite "
            f"variance from a bandwidth of {math.sqrt(2) * spread / kernel.tail:.3g} on; give a smaller one."
        )
    root = math.sqrt(step_size)

    def ask(position: Array, noise: Array) -> Array:
        return position + spread * noise[1]

    def step(position: Array, evidence: Observation, noise: Array) -> tuple[Array, Info]:
        displacement = evidence.point - position
        ratio = kernel.ratio(displacement, bandwidth, gaussian.log(displacement, spread))
        drift = step_size * (ratio * (beta / 2) * evidence.gradient)
        moved, projected = confine(position, drift + root * noise[0])
        return moved, Info(ratio, distance(evidence.point, position), projected)

    settings = {
        "step_size": step_size,
        "spread": spread,
        "bandwidth": bandwidth,
        "beta": beta,
        "kernel": kernel.name,
    }
    return InverseLearner("active", step, settings, noise_rows=2, asks=True, ask=ask)
