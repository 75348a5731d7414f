"""α ← α + μ K_Δ(θ−α) β/(2p(θ|α)) g + √μ w, with θ = α + v, v ~ N(0, σ²I), p(θ|α) = N(θ; α, σ²I).

The paper's active learner (`eq:activeirl`): it asks for the gradient at α and gets the one at θ nearby, which the
ratio K_Δ/p turns into a smoothed gradient at α, so that the chain samples exp(βR) as μ, Δ → 0. With s = Δ/σ a Gaussian
kernel's ratio has E ratio² = [s²(2−s²)]^(−N/2): finite only for s < √2, and near 1 in many dimensions only for Δ = σ,
where the ratio is 1 and the step is the classical one with the gradient at θ.
"""

import math

from jax import Array

from onlooker.core.kernels import Kernel, by_name, gaussian
from onlooker.core.settings import check_positive
from onlooker.data.observations import Observation
from onlooker.inverse.base import Info, InverseLearner, distance
from onlooker.inverse.confine import Confine, nowhere
from onlooker.inverse.examples import Example, answers

__all__ = ["active", "examples"]


def active(
    *,
    step_size: float,
    spread: float,
    bandwidth: float | None = None,
    beta: float = 1.0,
    kernel: str | Kernel = gaussian,
    confine: Confine = nowhere,
) -> InverseLearner:
    """The active inverse learner, for a stream that answers questions.

    Parameters
    ----------
    step_size
        μ.
    spread
        σ, the standard deviation of θ − α in each coordinate.
    bandwidth
        Δ of the kernel; by default σ.
    beta
        β, the inverse temperature.
    kernel
        K: a kernel or its name.
    confine
        Keeps the chain in a region; default: unconfined.
    """
    bandwidth = spread if bandwidth is None else bandwidth
    check_positive(step_size=step_size, spread=spread, bandwidth=bandwidth, beta=beta)
    kernel = by_name(kernel)
    if kernel.tail * bandwidth >= math.sqrt(2) * spread:
        raise ValueError(
            f"bandwidth is {bandwidth:g} and spread {spread:g}: the weights of kernel {kernel.name!r} have infinite "
            f"variance from {math.sqrt(2) * spread / kernel.tail:.3g} on; give a smaller bandwidth."
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
    return InverseLearner("active", step, settings, noise_rows=2, ask=ask, evidence="answers", plain_noise=True)


def examples() -> dict[str, Example]:
    return {"active": Example(lambda: active(step_size=1e-2, spread=0.3, bandwidth=0.2), answers)}
