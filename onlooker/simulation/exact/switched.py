"""dα = b(α, x) dt + a(α)^{1/2} dW, x a Markov chain with generator Q: the laws of a learner whose reward jumps.

Three limits of `simulation.switching`, by the rate η of jumping relative to the step size μ (Theorem 2 of the
paper): η = μ leads to the switching diffusion itself, whose law solves a Fokker–Planck equation per regime, coupled by
Q (1-D, `switching_law`, `stationary_switching_law`); η ≫ μ averages the rewards by Q's stationary law (`averaged`);
η ≪ μ keeps the first regime, so that a random first regime leads to a mixture (`mixture`), not to the average that the
paper states.
"""

from collections.abc import Callable, Sequence

import numpy as np
import scipy.sparse as sparse

from onlooker.simulation.exact.fokker_planck import evolve, generator, stationary
from onlooker.simulation.exact.law import GridLaw, exact_law

__all__ = [
    "averaged",
    "euler_maruyama",
    "mixture",
    "stationary_switching_law",
    "stationary_weights",
    "switching_law",
]

Function = Callable[[np.ndarray], np.ndarray]


def stationary_weights(rates: np.ndarray) -> np.ndarray:
    """ν with νQ = 0 and Σν = 1."""
    rates = np.asarray(rates, float)
    system = np.vstack([rates.T, np.ones(len(rates))])
    return np.linalg.lstsq(system, np.append(np.zeros(len(rates)), 1.0), rcond=None)[0]


def averaged(rewards: Sequence[Function], weights: Sequence[float], axes: tuple[np.ndarray, ...]) -> GridLaw:
    """p ∝ exp(Σ w_i R_i), rewards given at points (…, dim)."""
    return exact_law(lambda points: np.tensordot(weights, [reward(points) for reward in rewards], 1), axes)


def mixture(rewards: Sequence[Function], weights: Sequence[float], axes: tuple[np.ndarray, ...]) -> GridLaw:
    """p = Σ w_i exp(R_i)/Z_i."""
    laws = [exact_law(reward, axes) for reward in rewards]
    return GridLaw(axes, np.sum([w * law.mass for w, law in zip(weights, laws, strict=True)], axis=0))


def switching_law(
    axis: np.ndarray,
    drifts: np.ndarray,
    diffusion: np.ndarray,
    rates: np.ndarray,
    start: Sequence[float],
    place: float,
    time: float,
) -> GridLaw:
    """The law of α(t), with α(0) = ``place`` and x(0) drawn with probabilities ``start``.

    Parameters
    ----------
    axis
        Cell centres, equally spaced.
    drifts
        b at the centres in every regime, (regimes, cells).
    diffusion
        a at the centres, (cells,).
    rates
        Q.
    """
    matrix, axes = _coupled(axis, drifts, diffusion, rates)
    # All mass is in the cells around the place, weighted so that the mean is right.
    width = axis[1] - axis[0]
    near = np.maximum(1 - np.abs(axis - place) / width, 0)
    begun = GridLaw(axes, np.outer(np.asarray(start, float), near / near.sum()))
    return GridLaw((axis,), evolve(begun, matrix, time).mass.sum(axis=0))


def stationary_switching_law(axis: np.ndarray, drifts: np.ndarray, diffusion: np.ndarray, rates: np.ndarray) -> GridLaw:
    """The law that α(t) tends to. Parameters as for `switching_law`."""
    matrix, axes = _coupled(axis, drifts, diffusion, rates)
    return GridLaw((axis,), stationary(axes, matrix).mass.sum(axis=0))


def _coupled(
    axis: np.ndarray, drifts: np.ndarray, diffusion: np.ndarray, rates: np.ndarray
) -> tuple[sparse.csc_matrix, tuple[np.ndarray, np.ndarray]]:
    """dp_i/dt = A_i p_i + Σ_j q_ji p_j, the regimes one after the other."""
    spread = np.asarray(diffusion)[:, None, None]
    blocks = [generator((axis,), drift[:, None], spread) for drift in drifts]
    jumping = sparse.kron(sparse.csc_matrix(np.asarray(rates, float).T), sparse.identity(len(axis)))
    return (sparse.block_diag(blocks) + jumping).tocsc(), (np.arange(len(drifts)), axis)


def euler_maruyama(
    drift: Callable[[np.ndarray, np.ndarray], np.ndarray],
    spread: Function,
    rates: np.ndarray,
    start: Sequence[float],
    place: float,
    time: float,
    *,
    steps: int,
    paths: int,
    seed: int = 0,
) -> np.ndarray:
    """Endpoints α(t) of ``paths`` paths, (paths,), in steps of t/steps; b(α, x) and a(α)^{1/2} are functions."""
    random = np.random.default_rng(seed)
    rates = np.asarray(rates, float)
    step = time / steps
    upto = np.cumsum(np.eye(len(rates)) + step * rates, axis=1)[:, :-1]
    regime = random.choice(len(rates), paths, p=start)
    position = np.full(paths, float(place))
    for _ in range(steps):
        noise = np.sqrt(step) * random.standard_normal(paths)
        position = position + step * drift(position, regime) + spread(position) * noise
        regime = (random.random(paths)[:, None] >= upto[regime]).sum(axis=1)
    return position
