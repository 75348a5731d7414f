"""Rewards that jump: the regimes' law, and the gradient of the regime that holds."""

import jax
import numpy as np
import pytest

from onlooker.core.policies import spherical
from onlooker.simulation.cmdp import switched_states
from onlooker.simulation.policy_gradient import PolicyGradient, Score
from onlooker.simulation.reward import NoisyReward
from onlooker.simulation.switching import Scheduled, Switching

GENERATOR = [[-1.0, 1.0], [2.0, -2.0]]
PAIR = (NoisyReward(1, lambda x: x[0], 0.0), NoisyReward(1, lambda x: -3 * x[0], 0.0))


def drawn(reward, carry, key, steps, lanes):
    """What a reward draws next, compiled as one program."""
    return jax.jit(reward.draw, static_argnums=(3, 4))(reward.data, carry, key, steps, lanes)


def test_regimes_follow_the_generator():
    reward = Switching(PAIR, GENERATOR, 0.1, start=[1.0, 0.0])
    key = jax.random.key(0)
    carry = reward.begin(reward.data, key, 4000)
    assert (np.asarray(carry[0]) == 0).all()
    _, (path, _) = drawn(reward, carry, key, 60, 4000)
    path = np.asarray(path)
    # p_k = p_0 (I + ηQ)^k: ⅔ + ⅓·0.7^k in the first regime; 4.5 standard errors of 4000 paths.
    expected = 2 / 3 + 0.7 ** np.arange(60) / 3
    assert np.abs((path == 0).mean(axis=1) - expected).max() < 4.5 * np.sqrt(0.25 / 4000)


def test_rare_jumps_are_as_rare_as_they_should_be(monkeypatch):
    """Uniform numbers are multiples of 2⁻²³, and 1 − 5e-8 is 1: what is rarer is told by a second, finer one."""
    reward = Switching(PAIR, GENERATOR, 5e-8, start=[1.0, 0.0])
    coarse, fine = np.array([0, 0, 2.0**-23, 1 - 2.0**-23]), np.array([0.41, 0.43, 0.0, 0.0])
    uniform = np.stack([coarse, fine]).astype(np.float32)[:, None]
    carry = reward.begin(reward.data, jax.random.key(0), 4)
    monkeypatch.setattr(jax.random, "uniform", lambda key, shape: uniform)
    # 5e-8 is .419 of 2⁻²³.
    assert np.asarray(reward._path(carry[0], jax.random.key(0), 1, 4)[0]).tolist() == [1, 0, 0, 0]


def test_a_gradient_is_the_regime_s():
    reward = Switching(PAIR, GENERATOR, 0.1)
    _, xi = drawn(reward, reward.begin(reward.data, jax.random.key(1), 50), jax.random.key(2), 1, 50)
    one_step = jax.tree.map(lambda leaf: leaf[0], xi)
    gradient = jax.jit(jax.vmap(reward.sample_gradient, in_axes=-1, out_axes=-1))
    found = gradient(np.zeros((1, 50), np.float32), one_step)
    assert np.asarray(found)[0] == pytest.approx(np.where(np.asarray(one_step[0]) == 0, 1.0, -3.0))


def test_a_cmdp_whose_rewards_switch_has_another_optimum():
    before, after = switched_states()
    assert np.abs(before.optimum().policy - after.optimum().policy).max() > 0.5
    angles = spherical(2, 2)
    reward = Switching(tuple(PolicyGradient(one, angles, Score(horizon=20)) for one in (before, after)), GENERATOR, 0.1)
    _, xi = drawn(reward, reward.begin(reward.data, jax.random.key(1), None), jax.random.key(2), 1, None)
    gradient = jax.jit(reward.sample_gradient)
    assert np.isfinite(gradient(np.full(2, 0.7, np.float32), jax.tree.map(lambda leaf: leaf[0], xi))).all()


def test_a_schedule_holds_for_every_lane_and_across_blocks():
    reward = Scheduled(PAIR, times=(3, 7), regimes=(1, 0, 1))
    carry, key, found = reward.begin(reward.data, jax.random.key(0), 5), jax.random.key(1), []
    for _ in range(2):
        carry, (path, _) = reward.draw(reward.data, carry, key, 5, 5)
        found.append(np.asarray(path))
    assert (np.concatenate(found) == np.array([1, 1, 1, 0, 0, 0, 0, 1, 1, 1])[:, None]).all()
    assert reward.path(10).tolist() == [1, 1, 1, 0, 0, 0, 0, 1, 1, 1]


def test_a_path_written_down_has_the_chain_s_dwell_times():
    reward = Switching(PAIR, GENERATOR, 0.01, start=[0.0, 1.0])
    schedule = reward.scheduled(400_000, seed=3)
    assert schedule.regimes[0] == 1
    assert (np.diff(schedule.regimes) != 0).all()
    dwells = np.diff([0, *schedule.times])
    # Geometric with means 1/.01 and 1/.02, which are also their deviations; 4.5 standard errors.
    for regime, mean in ((0, 100), (1, 50)):
        own = dwells[np.asarray(schedule.regimes[:-1]) == regime]
        assert abs(own.mean() - mean) < 4.5 * mean / np.sqrt(len(own))
    assert reward.scheduled(400_000, seed=3).times == schedule.times
    assert Switching(PAIR, np.zeros((2, 2)), 1.0).scheduled(100).times == ()


def test_bad_schedules():
    with pytest.raises(ValueError, match="times has 2; give one regime more"):
        Scheduled(PAIR, (3, 7), (0, 1))
    for times in ((7, 3), (0, 3), (3, 3), (2.5, 3)):
        with pytest.raises(ValueError, match="ascending"):
            Scheduled(PAIR, times, (0, 1, 0))
    with pytest.raises(ValueError, match="from 0 to 1"):
        Scheduled(PAIR, (3,), (0, 2))


def test_bad_generators():
    with pytest.raises(ValueError, match="generator has shape"):
        Switching(PAIR, [[0.0]], 0.1)
    with pytest.raises(ValueError, match="rate small enough"):
        Switching(PAIR, GENERATOR, 0.9)
    with pytest.raises(ValueError, match="rows sum to zero"):
        Switching(PAIR, [[-1.0, 1.1], [2.0, -2.0]], 1e-6)
    with pytest.raises(ValueError, match="rate is -1"):
        Switching(PAIR, GENERATOR, -1)
    with pytest.raises(ValueError, match="start is"):
        Switching(PAIR, GENERATOR, 0.1, start=[1.0])
    with pytest.raises(ValueError, match="different dimensions"):
        Switching((PAIR[0], NoisyReward(2, lambda x: x[0])), GENERATOR, 0.1)
