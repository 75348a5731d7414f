"""Injecting less noise where gradients bring their own: the variance that comes out is the law's again."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import onlooker
from onlooker.core.density import standard_normal
from onlooker.data.observations import Observation
from onlooker.data.stream import simulated
from onlooker.inverse import active, classical, corrected, passive, replay
from onlooker.inverse.noise_correction import _relative_covariance
from onlooker.simulation.agents import independent, questions
from onlooker.simulation.reward import NoisyReward

NOISY = NoisyReward(2, lambda point: -0.5 * jnp.sum(point * point), 4.0)
PLACES = np.random.default_rng(0).standard_normal((8, 2))


def test_noise_covariance_is_measured():
    """(β/2)²·4² = 4 per unit of μ for `classical`: 0.4 of the injected variance at μ = 0.1."""
    found = _relative_covariance(classical(step_size=0.1), questions(NOISY), PLACES, 20_000, 1, 0)
    assert found == pytest.approx(np.broadcast_to(0.4 * np.eye(2), (8, 2, 2)), abs=0.02)
    # `passive` scales drift and noise by π alike: what is left is how often an observation is in reach of the kernel.
    assumed = standard_normal(2)
    learner = passive(assumed, step_size=0.1, bandwidth=0.5)
    places = np.array([[0.0, 0], [2.0, 0]])
    near, far = _relative_covariance(learner, independent(NOISY, assumed), places, 20_000, 1, 0)
    assert far[0, 0] < near[0, 0] / 2


@pytest.mark.parametrize("make", [classical, lambda step_size: active(step_size=step_size, spread=0.1)])
def test_corrected_chains_have_the_right_variance(make):
    """exp(R) has variance 1. μ = .1 adds 40 % of noise, and 2.5 % of discretisation, which is not corrected."""
    learner, stream = make(step_size=0.1), questions(NOISY)
    better = corrected(learner, stream, PLACES)
    assert better.settings["noise_corrected"] == pytest.approx(0.4, abs=0.05)
    assert better.settings["noise_floored"] == 0
    options = {"chains": 256, "steps": 2000, "burn_in": 500}
    plain, right = (np.diag(onlooker.run(one, stream, **options).covariance) for one in (learner, better))
    assert plain == pytest.approx(1.4 * 1.025, abs=0.05)
    assert right == pytest.approx(1.025, abs=0.05)


def test_noise_that_depends_on_the_evidence_and_short_records():
    """The second form injects √(μKπ(θ)); a record shorter than the draws asked for is not shown twice."""
    assumed = standard_normal(2)
    learner = passive(assumed, step_size=0.01, bandwidth=0.5, form="second")
    shares = [
        corrected(learner, independent(NOISY, assumed), PLACES, seed=seed).settings["noise_corrected"]
        for seed in range(3)
    ]
    assert max(shares) < 2 * min(shares)
    generator = np.random.default_rng(0)
    points = generator.standard_normal((500, 2))
    record = onlooker.recorded(onlooker.observe(points, 4 * generator.standard_normal((500, 2))))
    first = passive(assumed, step_size=0.1, bandwidth=1.0)
    few, many = (corrected(first, record, PLACES, draws=draws).settings["noise_corrected"] for draws in (500, 40_000))
    assert few == many


def test_too_much_noise_is_floored_and_counted():
    better = corrected(classical(step_size=1.0), questions(NOISY), PLACES)
    assert better.settings["noise_floored"] == 1
    result = onlooker.run(better, questions(NOISY), chains=8, steps=100)
    assert np.isfinite(result.samples).all()


def test_autocorrelation_counts():
    """A stream that says everything twice has twice the covariance, in batches of two."""

    def twice(data, carry, key, steps, lanes):
        noise = jax.random.normal(key, (steps // 2, 2))
        return carry, Observation(jnp.zeros((steps, 2)), jnp.repeat(noise, 2, axis=0))

    stream = simulated(2, twice, shared=True)
    learner = passive(standard_normal(2), step_size=0.1, bandwidth=1.0)
    single, double = (_relative_covariance(learner, stream, np.zeros((1, 2)), 20_000, batch, 0) for batch in (1, 2))
    assert np.diag(double[0] / single[0]) == pytest.approx([2, 2], rel=0.1)


def test_bad_input():
    with pytest.raises(ValueError, match="places has shape"):
        corrected(classical(step_size=0.1), questions(NOISY), np.zeros(2))
    with pytest.raises(ValueError, match="eight batches"):
        corrected(classical(step_size=0.1), questions(NOISY), PLACES, draws=20, batch=10)
    memory = onlooker.memory.ring(10)
    with pytest.raises(ValueError, match="has a memory"):
        corrected(replay(memory, step_size=0.1, bandwidth=1.0), questions(NOISY), PLACES)
