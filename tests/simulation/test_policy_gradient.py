"""Policy gradients from sample paths: unbiased with two batches, biased with one, and agents that climb by them."""

import jax
import numpy as np
import pytest

from onlooker.core.policies import softmax, spherical
from onlooker.simulation.agents import simulate
from onlooker.simulation.cmdp import five_states, two_states
from onlooker.simulation.policy_gradient import PolicyGradient, Score, Spsa, WeakDerivative, assess

# Near the ridge, where the penalty's square would show a bias.
PLACE = np.array([1.3, 1.0])
ESTIMATORS = [Score(horizon=200), WeakDerivative(horizon=200, every=20), Spsa(horizon=200)]
EACH = pytest.mark.parametrize("estimator", ESTIMATORS, ids=[one.name for one in ESTIMATORS])


def standard_errors_off(found):
    return np.abs(found.mean - found.exact) / found.error


@EACH
def test_two_batches_are_unbiased(estimator):
    """Within three standard errors; a right estimator fails this for one seed in 180."""
    found = assess(PolicyGradient(two_states(1e4), spherical(2, 2), estimator), PLACE, estimates=4000)
    assert (standard_errors_off(found) < 3).all()
    assert found.work == pytest.approx(found.deviation * np.sqrt(found.steps))


@pytest.mark.parametrize("estimator", ESTIMATORS[:2], ids=[one.name for one in ESTIMATORS[:2]])
def test_one_batch_is_biased_by_the_penalty(estimator):
    found = assess(PolicyGradient(two_states(1e5), spherical(2, 2), estimator, batches=1), PLACE, estimates=4000)
    assert standard_errors_off(found).max() > 5


def test_one_batch_is_unbiased_without_a_penalty():
    free = assess(PolicyGradient(two_states(0.0), spherical(2, 2), Score(horizon=200), batches=1), PLACE, 4000)
    assert (standard_errors_off(free) < 3).all()


def test_no_batch_is_its_own_baseline():
    """E b z = 0 needs a b that does not know z: a short path's own mean would take off half of the gradient.

    Within four standard errors; a right estimator fails this for one seed in 8000.
    """
    reward = PolicyGradient(two_states(0.0), spherical(2, 2), Score(horizon=20, window=None, warm_up=20))
    found = assess(reward, PLACE, estimates=20_000)
    assert (standard_errors_off(found) < 4).all()
    assert (found.error < np.abs(found.exact).max() / 20).all()


@EACH
def test_any_size_and_either_coordinates(estimator):
    """Ten coordinates, two constraints, discounted: the worst of ten within four standard errors (once in 1600)."""
    cmdp = five_states().but(discount=0.8)
    coordinates = spherical(5, 3) if estimator.name == "weak derivative" else softmax(5, 3)
    policy = np.random.default_rng(1).dirichlet(np.ones(3), 5)
    found = assess(PolicyGradient(cmdp, coordinates, estimator), coordinates.point(policy), estimates=800)
    assert standard_errors_off(found).max() < 4
    assert np.linalg.norm(found.mean - found.exact) < 0.5 * np.linalg.norm(found.exact)


def test_the_window_reduces_variance_without_bias():
    whole, windowed = (
        assess(PolicyGradient(two_states(1e4), spherical(2, 2), Score(300, window)), PLACE, 4000)
        for window in (None, 25)
    )
    assert windowed.deviation < 0.6 * whole.deviation
    assert (standard_errors_off(windowed) < 3).all()


def test_a_gradient_outside_the_interval_is_the_folded_one():
    reward = PolicyGradient(two_states(1e3), spherical(2, 2), Score(horizon=50))
    key = jax.random.key(0)
    inside, outside = np.array([0.4, 1.0], np.float32), np.array([-0.4, np.pi - 1.0], np.float32)
    gradient = jax.jit(reward.sample_gradient)
    assert np.asarray(gradient(outside, key)) == pytest.approx(-np.asarray(gradient(inside, key)), rel=1e-3)


def test_agents_climb():
    cmdp, angles = two_states(1e3), spherical(2, 2)
    reward = PolicyGradient(cmdp, angles, Score(horizon=100, window=25))
    seen = simulate(reward, angles.uniform("coordinates"), agents=50, horizon=80, learning_rate=1e-4, seed=0)
    heights = reward.value(seen.points.astype(float)).reshape(50, 80)
    assert np.quantile(heights[:, 0], 0.1) < 0
    assert np.median(heights[:, -1]) > 25


def test_bad_input():
    with pytest.raises(ValueError, match="coordinates are of 3 states"):
        PolicyGradient(two_states(), spherical(3, 2), Score())
    with pytest.raises(ValueError, match="batches is 3"):
        PolicyGradient(two_states(), spherical(2, 2), Score(), batches=3)
    with pytest.raises(ValueError, match="give a smaller every"):
        WeakDerivative(horizon=10, every=20)
    with pytest.raises(ValueError, match="horizon is 0"):
        Score(horizon=0)
    with pytest.raises(ValueError, match="width is 0"):
        Spsa(width=0)
    with pytest.raises(ValueError, match="warm_up is -50"):
        Score(warm_up=-50)
    with pytest.raises(TypeError, match="estimator is 'score'"):
        PolicyGradient(two_states(), spherical(2, 2), "score")
    with pytest.raises(ValueError, match="give 2 finite coordinates"):
        assess(PolicyGradient(two_states(), spherical(2, 2), Score()), [np.nan, 1.0])


def test_scores_of_rare_actions_are_bounded():
    found = assess(PolicyGradient(two_states(0.0), spherical(2, 2), Score(horizon=100)), [np.pi / 2, 1.0], 4000)
    assert found.deviation < 1000


def test_policy_gradients_in_float64():
    with jax.enable_x64(True):
        for estimator in (Score(horizon=20), WeakDerivative(horizon=20, every=10), Spsa(horizon=20)):
            reward = PolicyGradient(two_states(1e3), spherical(2, 2), estimator)
            traced = jax.eval_shape(reward.sample_gradient, jax.numpy.asarray(PLACE), jax.random.key(0))
            assert traced.dtype == np.float64
