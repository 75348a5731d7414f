"""The oracles themselves: Example 1's figures, exact diffusions, and the order of the biases they predict."""

import jax
import numpy as np
import pytest

from onlooker.core.distances import marginal_variations
from onlooker.engine.accumulators import Grid
from onlooker.simulation.exact.averaged import coefficients
from onlooker.simulation.exact.fokker_planck import evolve, generator, stationary
from onlooker.simulation.exact.law import GridLaw, cells, exact_law, maxima
from onlooker.simulation.exact.quadrature import mixture_law
from onlooker.simulation.mixture import Mixture, Posterior

GRID = Grid.cube(3.0, 2, bins=20)


@pytest.mark.parametrize(
    ("prior", "peaks", "mean", "covariance"),
    [
        ((10.0, 2.0), [(0.101, 0.797), (0.883, -0.770)], (0.488, 0.022), (0.2432, -0.4431, 0.8883)),
        ((10.0, 1.0), [(0.216, 0.568), (0.757, -0.517)], (0.490, 0.018), (0.2008, -0.3590, 0.7197)),
    ],
)
def test_example_1_s_truth(prior, peaks, mean, covariance):
    reward = Mixture(prior)
    law = mixture_law(reward)
    assert np.array(maxima(reward.value, law)) == pytest.approx(np.array(peaks), abs=1.5e-3)
    assert law.mean == pytest.approx(mean, abs=1e-3)
    assert law.covariance[[0, 0, 1], [0, 1, 1]] == pytest.approx(covariance, abs=1e-3)


@pytest.mark.parametrize("reward", [Mixture(), Posterior(dataset_seed=4)], ids=["mixture", "posterior"])
def test_sample_gradients_average_to_the_gradient(reward):
    points = np.array([[0.3, -0.2], [1.0, 1.5], [-2.0, 0.4]])
    mean, second = reward.gradient_moments(points)
    step = 1e-5
    for axis in range(2):
        shift = np.eye(2)[axis] * step
        slope = (reward.value(points + shift) - reward.value(points - shift)) / (2 * step)
        assert mean[:, axis] == pytest.approx(slope, rel=1e-5, abs=1e-5)
    y = np.asarray(reward.sample(reward.data, jax.random.key(0), 200_000))
    gradients = np.asarray(jax.vmap(lambda one: reward.sample_gradient(points[0].astype(np.float32), one))(y))
    error = gradients.std(axis=0) / np.sqrt(len(y))
    assert (np.abs(gradients.mean(axis=0) - mean[0]) < 4 * error + 1e-3).all()
    assert gradients.T @ gradients / len(y) == pytest.approx(second[0], rel=0.03, abs=20)


def test_fokker_planck_finds_a_correlated_gaussian():
    """dα = −Bα dt + a^{1/2} dW with B = ½ a Σ⁻¹ is N(0, Σ), whatever a: the cross term is tested too."""
    covariance = np.array([[0.5, 0.2], [0.2, 0.3]])
    spread = np.array([[1.0, 0.4], [0.4, 0.8]])
    axes = (cells(-4, 4, 0.05),) * 2
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    drift = -points @ (0.5 * spread @ np.linalg.inv(covariance)).T
    law = stationary(axes, generator(axes, drift, np.broadcast_to(spread, (*points.shape, 2))))
    assert law.covariance == pytest.approx(covariance, abs=2e-3)
    assert law.mean == pytest.approx([0, 0], abs=1e-6)


def test_fokker_planck_in_time_is_ornstein_uhlenbeck_s():
    axis = cells(-5, 5, 0.02)
    points = axis[:, None]
    matrix = generator((axis,), -points, np.ones((len(axis), 1, 1)))
    start = exact_law(lambda x: -0.5 * (x[..., 0] - 1) ** 2 / 0.04, (axis,))
    later = evolve(start, matrix, 0.7)
    decay = np.exp(-0.7)
    assert later.mean == pytest.approx([decay], abs=1e-3)
    assert later.covariance[0, 0] == pytest.approx(0.04 * decay**2 + 0.5 * (1 - decay**2), rel=2e-3)


def distances(name, **settings):
    axes = (cells(-3.6, 3.6, 0.045),) * 2
    reward = Mixture()
    drift, diffusion = coefficients(
        name, axes, reward.gradient_moments, lambda x: np.exp(-0.5 * (x**2).sum(-1)) / (2 * np.pi), **settings
    )
    law: GridLaw = stationary(axes, generator(axes, drift, diffusion))
    coarse = Grid.cube(3.6, 2, bins=20)
    return marginal_variations(law.histogram(coarse), exact_law(reward.value, axes).histogram(coarse))


def test_predicted_bias_is_of_first_order_in_the_step_and_second_in_the_bandwidth():
    steps = [distances("classical", step_size=step)[0] for step in (5e-4, 2.5e-4, 1.25e-4)]
    assert steps == pytest.approx([0.017, 0.009, 0.004], abs=0.001)
    assert steps[0] / steps[1] == pytest.approx(2, rel=0.1)
    assert steps[1] / steps[2] == pytest.approx(2, rel=0.1)
    widths = [distances("passive", step_size=0.0, bandwidth=width)[0] for width in (0.1, 0.2, 0.3)]
    assert widths == pytest.approx([0.008, 0.030, 0.065], abs=0.002)
    assert np.log(widths[1] / widths[0]) / np.log(2) == pytest.approx(2, abs=0.15)
