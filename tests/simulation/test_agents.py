"""Simulated learners do what the paper says: uphill SGD from π, restarted, sequential or interleaved."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from onlooker.core.density import standard_normal
from onlooker.data.observations import observe
from onlooker.engine.run import run
from onlooker.inverse import Info, InverseLearner
from onlooker.simulation.agents import running, simulate
from onlooker.simulation.mixture import Sweep
from onlooker.simulation.reward import NoisyReward

REWARD = NoisyReward(2, lambda point: -0.5 * jnp.sum(point**2), 0.5)
PI = standard_normal(2)


def test_agents_take_sgd_steps_uphill_and_restart_from_the_density():
    seen = simulate(REWARD, PI, agents=500, horizon=20, learning_rate=0.1)
    points, gradients = (rows.reshape(500, 20, 2) for rows in (seen.points, seen.gradients))
    assert points[:, 1:] == pytest.approx(points[:, :-1] + 0.1 * gradients[:, :-1], abs=1e-5)
    assert points[:, 0].std() == pytest.approx(1, rel=0.1)
    assert (gradients + points).std() == pytest.approx(0.5, rel=0.05)
    assert seen.agents.reshape(500, 20)[:, 0].tolist() == list(range(500))
    # What an onlooker makes of the points alone is what the agents did.
    again = observe(seen.points, agents=seen.agents, times=seen.times, learning_rate=0.1)
    assert again.gradients == pytest.approx(gradients[:, :-1].reshape(-1, 2), abs=1e-4)


def test_any_optax_rule_will_do():
    momentum = simulate(REWARD, PI, agents=3, horizon=5, optimizer=optax.sgd(0.1, momentum=0.5))
    points, gradients = (rows.reshape(3, 5, 2) for rows in (momentum.points, momentum.gradients))
    moves = np.diff(points, axis=1)
    assert moves[:, 0] == pytest.approx(0.1 * gradients[:, 0], abs=1e-5)
    assert moves[:, 1] == pytest.approx(0.1 * gradients[:, 1] + 0.5 * moves[:, 0], abs=1e-5)


def test_interleaved_agents_take_turns_and_are_staggered():
    seen = simulate(REWARD, PI, agents=40, horizon=10, learning_rate=0.1, order="interleaved", parallel=5)
    agents, ages = seen.agents.reshape(-1, 5), seen.times.reshape(-1, 5)
    assert all(len(set(row)) == 5 for row in agents.tolist())
    assert ages[0].tolist() == [0, 2, 4, 6, 8]
    assert ages[1].tolist() == [1, 3, 5, 7, 9]
    assert len(seen) == (40 // 5 - 1) * 10 * 5


def test_a_stopping_rule_ends_an_agent():
    near = lambda age, point, gradient, uniform: jnp.sum(point**2) < 0.25  # noqa: E731
    seen = simulate(REWARD, PI, agents=200, horizon=50, learning_rate=0.1, stop=near)
    ends = np.append(seen.agents[1:] != seen.agents[:-1], True)
    lengths = np.bincount(seen.agents, minlength=200)
    assert lengths.min() >= 1
    assert len(set(lengths.tolist())) > 5
    squared = (seen.points**2).sum(axis=1)
    assert (squared[ends & (seen.times < 49)] < 0.25).all()
    assert (squared[~ends] >= 0.25).all()


def test_a_running_stream_restarts_on_its_horizon():
    show = InverseLearner("show", lambda a, e, w: (e.point, Info(*[jnp.zeros(())] * 3)), {})
    quiet = NoisyReward(2, REWARD.value, 0.0)
    result = run(show, running(quiet, PI, learning_rate=0.1, horizon=4), steps=40, chains=50, thin=1)
    ratio = result.samples[:, 1:, 0] / result.samples[:, :-1, 0]
    stays = np.arange(39) % 4 != 3
    assert ratio[:, stays] == pytest.approx(0.9, rel=1e-4)
    assert (np.abs(ratio[:, ~stays] - 0.9) > 1e-3).mean() > 0.95


@pytest.mark.parametrize("order", ["rotated", "aligned", "shuffled"])
def test_sweeps_visit_every_row_once(order):
    import jax

    reward, key = Sweep(order=order), jax.random.key(0)
    draw = jax.jit(reward.draw, static_argnums=(3, 4))
    rows = np.asarray(draw(reward.data, reward.begin(reward.data, key, 30), key, 100, 30)[1])
    assert np.sort(rows, axis=0) == pytest.approx(np.tile(np.sort(reward.data)[:, None], 30), abs=1e-5)
    firsts = len(set(rows[0].tolist()))
    assert firsts == 1 if order == "aligned" else firsts > 5


def test_bad_settings_are_rejected():
    with pytest.raises(ValueError, match="learning_rate and optimizer are both given, or neither"):
        simulate(REWARD, PI, agents=1, horizon=1)
    with pytest.raises(ValueError, match="order is 'random'"):
        simulate(REWARD, PI, agents=1, horizon=1, learning_rate=0.1, order="random")
    with pytest.raises(ValueError, match="needs at least 200"):
        simulate(REWARD, PI, agents=10, horizon=1, learning_rate=0.1, order="interleaved")
