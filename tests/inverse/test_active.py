"""The active learner: its step, the ratio's second moment, and questions to any function."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from onlooker import OnlookerWarning, run
from onlooker.core.kernels import gaussian
from onlooker.data.observations import Observation
from onlooker.data.stream import oracle
from onlooker.inverse import active, classical
from onlooker.simulation.agents import questions
from onlooker.simulation.reward import NoisyReward
from tests.support.messages import codes
from tests.support.statistics import FALSE_ALARM, normal_p_value

MU, SIGMA, BETA, DIM = 3e-3, 0.3, 1.7, 3
PARABOLA = NoisyReward(1, lambda point: -jnp.sum(point * point) / 2, 0.5)


@pytest.fixture
def asked():
    generator = np.random.default_rng(5)
    position, gradient = generator.standard_normal((2, DIM))
    return position, 10 * gradient, generator.standard_normal((2, DIM))


def test_the_answer_near_the_position_is_weighted(asked):
    position, gradient, noise = asked
    bandwidth = 0.2
    learner = active(step_size=MU, spread=SIGMA, bandwidth=bandwidth, beta=BETA)
    with jax.enable_x64(True):
        theta = learner.ask(jnp.asarray(position), jnp.asarray(noise))
        moved, info = learner.step(jnp.asarray(position), Observation(theta, jnp.asarray(gradient)), jnp.asarray(noise))
    v = SIGMA * noise[1]
    ratio = (SIGMA / bandwidth) ** DIM * np.exp(v @ v / 2 * (SIGMA**-2 - bandwidth**-2))
    assert theta == pytest.approx(position + v, rel=1e-12)
    assert info.weight == pytest.approx(ratio, rel=1e-10)
    assert moved == pytest.approx(position + MU * ratio * BETA / 2 * gradient + np.sqrt(MU) * noise[0], rel=1e-10)


def test_equal_bandwidth_and_spread_give_the_plain_step(asked):
    position, gradient, noise = (jnp.asarray(part, jnp.float32) for part in asked)
    learner = active(step_size=MU, spread=SIGMA, beta=BETA)
    assert learner.settings["bandwidth"] == SIGMA
    shown = Observation(learner.ask(position, noise), gradient)
    plain, _ = classical(step_size=MU, beta=BETA).step(position, shown, noise)
    mine, info = learner.step(position, shown, noise)
    assert np.array_equal(mine, plain)
    assert float(info.weight) == 1


def test_second_moment_of_the_weight_ratio():
    """E ratio² = [s²(2−s²)]^(−N/2), 2.29 at s = ½ in two dimensions, about a mean of 1: (2π)^N would break both."""
    noise = jax.random.normal(jax.random.key(0), (400_000, 2, 2))
    learner = active(step_size=1.0, spread=SIGMA, bandwidth=SIGMA / 2)

    def weight(one):
        point = learner.ask(jnp.zeros(2), one)
        return learner.step(jnp.zeros(2), Observation(point, jnp.zeros(2)), one)[1].weight

    ratio = np.asarray(jax.jit(jax.vmap(weight))(noise), float)
    exact = (0.25 * 1.75) ** -1
    assert ratio.mean() == pytest.approx(1, abs=5 * ratio.std() / len(ratio) ** 0.5)
    assert (ratio**2).mean() == pytest.approx(exact, abs=5 * (ratio**2).std() / len(ratio) ** 0.5)


def test_stationary_law_of_an_active_chain():
    """R = −α²/2 smoothed is itself: N(0, 1), a little wider for the noise of the questions."""
    learner = active(step_size=0.01, spread=0.4, bandwidth=0.3)
    draws = run(learner, questions(PARABOLA), steps=1600, chains=4000, seed=1).positions[:, 0]
    # Var = μ(1 + μ E[ratio² g²]/4)/(1 − (1 − μ/2)²) to first order in μ: the gradient's noise adds .3 %.
    assert normal_p_value(draws, 1.005) > FALSE_ALARM
    assert normal_p_value(draws, 1.2) < FALSE_ALARM


def test_bandwidths_of_infinite_variance_are_rejected():
    with pytest.raises(ValueError, match=r"infinite variance from 0\.424 on; give a smaller bandwidth"):
        active(step_size=MU, spread=0.3, bandwidth=0.43)
    with pytest.raises(ValueError, match=r"infinite variance from 0\.3"):
        active(step_size=MU, spread=0.3, bandwidth=0.3, kernel="fourth_order")
    active(step_size=MU, spread=0.3, bandwidth=0.42)
    active(step_size=MU, spread=0.3, bandwidth=2.0, kernel="epanechnikov")
    assert gaussian.tail == 1


def test_any_python_function_can_be_an_oracle():
    """Batched over the chains, with the same result as one that JAX traces."""
    shapes = set()

    def gradient(points):
        shapes.add(points.shape)
        return -points * np.arange(1, 3)

    traced = NoisyReward(2, lambda point: -jnp.sum(point * point * jnp.arange(1.0, 3)) / 2, 0.0)
    learner = active(step_size=1e-2, spread=0.2)
    options = {"steps": 40, "chains": 7, "seed": 3, "start": np.ones(2)}
    mine, native = run(learner, oracle(gradient, 2), **options), run(learner, questions(traced), **options)
    assert mine.positions == pytest.approx(native.positions, abs=1e-5)
    assert shapes == {(7, 2)}


def test_an_oracle_that_fails_raises_its_own_error():
    learner = active(step_size=1e-2, spread=0.2)
    options = {"steps": 40, "chains": 7}
    with pytest.raises(ValueError, match="one gradient per point"):
        run(learner, oracle(lambda points: points[:, 0], 2), **options)
    with pytest.raises(ValueError, match="NaN or an infinity at 7 of 7 points"):
        run(learner, oracle(lambda points: points * np.nan, 2), **options)
    with pytest.raises(ZeroDivisionError):
        run(learner, oracle(lambda points: points / (1 // 0), 2), **options)
    with pytest.raises(TypeError, match="give a function"):
        oracle(3, 2)


def test_a_bandwidth_far_from_the_spread_is_warned_about_in_many_dimensions():
    reward = NoisyReward(124, lambda point: -jnp.sum(point * point) / 2)
    with pytest.warns(OnlookerWarning) as caught:
        run(active(step_size=1e-3, spread=0.1, bandwidth=0.05), questions(reward), steps=2000, chains=2)
    assert "kernel-starved" in codes(caught)
