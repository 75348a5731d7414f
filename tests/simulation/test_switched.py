"""The three limits of a reward that jumps: against closed forms, each other, and chains that really jump."""

import numpy as np
import pytest
from scipy.linalg import expm

from onlooker.core.density import standard_normal
from onlooker.engine.run import run
from onlooker.inverse import reweighted
from onlooker.simulation.agents import independent
from onlooker.simulation.exact.law import cells
from onlooker.simulation.exact.switched import (
    averaged,
    euler_maruyama,
    mixture,
    stationary_switching_law,
    stationary_weights,
    switching_law,
)
from onlooker.simulation.reward import NoisyReward
from onlooker.simulation.switching import Switching
from tests.support.statistics import follows

VARIANCE, OFFSET = 0.45**2, np.array([-0.8, 0.8])
GENERATOR = np.array([[-1.0, 1.0], [2.0, -2.0]])
AXIS = cells(-3.5, 3.5, 0.01)
DRIFTS = -(AXIS - OFFSET[:, None]) / (2 * VARIANCE)
UNIT = np.ones(len(AXIS))
REWARDS = [lambda x, place=place: -((x[..., 0] - place) ** 2) / (2 * VARIANCE) for place in OFFSET]
EVEN = [0.5, 0.5]


def test_the_mean_of_the_switching_law_solves_its_equation():
    """m_i = E α 1{x = i}: dm/dt = −m/(2v) + p c/(2v) + Qᵀm with dp/dt = Qᵀp, both linear."""
    rates = np.block(
        [
            [GENERATOR.T - np.eye(2) / (2 * VARIANCE), np.diag(OFFSET) / (2 * VARIANCE)],
            [np.zeros((2, 2)), GENERATOR.T],
        ]
    )
    for time in (0.3, 1.0):
        exact = (expm(time * rates) @ [0.15, 0.15, 0.5, 0.5])[:2].sum()
        law = switching_law(AXIS, DRIFTS, UNIT, GENERATOR, EVEN, 0.3, time)
        assert law.mean[0] == pytest.approx(exact, abs=2e-4)
        # i on π instead of R, as the paper's operator has it: one drift for both regimes.
        assert abs(switching_law(AXIS, DRIFTS[[0, 0]], UNIT, GENERATOR, EVEN, 0.3, time).mean[0] - exact) > 0.1


def test_the_equation_and_the_diffusion_agree():
    paths = euler_maruyama(
        lambda x, regime: -(x - OFFSET[regime]) / (2 * VARIANCE),
        np.ones_like,
        GENERATOR,
        EVEN,
        0.0,
        1.0,
        steps=1000,
        paths=4000,
    )
    assert follows(paths, switching_law(AXIS, DRIFTS, UNIT, GENERATOR, EVEN, 0.0, 1.0))
    assert not follows(paths, averaged(REWARDS, EVEN, (AXIS,)))
    assert not follows(paths, mixture(REWARDS, EVEN, (AXIS,)))
    # The regimes exchanged, and twice as fast.
    assert not follows(paths, switching_law(AXIS, DRIFTS, UNIT, 2 * GENERATOR[::-1, ::-1], EVEN, 0.0, 1.0))


def test_fast_and_slow_jumps_are_the_average_and_the_mixture():
    weights = stationary_weights(GENERATOR)
    assert weights == pytest.approx([2 / 3, 1 / 3])
    fast = stationary_switching_law(AXIS, DRIFTS, UNIT, 1e4 * GENERATOR)
    slow = stationary_switching_law(AXIS, DRIFTS, UNIT, 1e-4 * GENERATOR)
    late = switching_law(AXIS, DRIFTS, UNIT, GENERATOR, EVEN, 0.0, 30.0)
    for law, limit in (
        (fast, averaged(REWARDS, weights, (AXIS,))),
        (slow, mixture(REWARDS, weights, (AXIS,))),
        (late, stationary_switching_law(AXIS, DRIFTS, UNIT, GENERATOR)),
    ):
        assert 0.5 * np.abs(law.mass - limit.mass).sum() < 1e-3


def test_chains_with_jumping_rewards_have_the_three_laws():
    """The set-up of `onlooker reproduce tracking` with fewer chains: a wrong law fails where the right one passes."""
    density = standard_normal(1, 1.5)
    pair = tuple(NoisyReward(1, lambda x, place=place: -((x[0] - place) ** 2) / (2 * VARIANCE)) for place in OFFSET)
    laws = {
        "switching": switching_law(AXIS, DRIFTS, UNIT, GENERATOR, EVEN, 0.0, 1.0),
        "mixture": mixture(REWARDS, EVEN, (AXIS,)),
        "averaged": averaged(REWARDS, stationary_weights(GENERATOR), (AXIS,)),
        "averaged by the start": averaged(REWARDS, EVEN, (AXIS,)),
    }
    learner = reweighted(density, step_size=0.002, bandwidth=0.1)
    for right, rate, time in (("switching", 0.002, 1.0), ("mixture", 0.002**2, 3.0), ("averaged", 0.2115, 3.0)):
        stream = independent(Switching(pair, GENERATOR, rate), density)
        chains = run(learner, stream, steps=round(time / 0.002), chains=1500, start=np.zeros(1), draws=1)
        for name, law in laws.items():
            assert follows(chains.positions[:, 0], law) == (name == right)
