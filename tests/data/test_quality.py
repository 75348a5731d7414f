"""Bad data are detected: each fault by its own code, and good data by none."""

import jax.numpy as jnp
import numpy as np
import pytest

from onlooker.core.density import standard_normal
from onlooker.data.observations import Observations, observe
from onlooker.data.quality import agreement_with_steps, inspect, pointing_inward
from onlooker.simulation.agents import simulate
from onlooker.simulation.reward import NoisyReward
from tests.support.messages import codes

REWARD = NoisyReward(2, lambda point: -jnp.sum(point * point), 2.0)


@pytest.fixture(scope="module")
def seen():
    return simulate(REWARD, standard_normal(2), agents=200, horizon=20, learning_rate=0.02)


def but(seen, **changes):
    return Observations(
        **{**{name: getattr(seen, name) for name in ("points", "gradients", "agents", "times")}, **changes}
    )


def test_good_data_pass(seen):
    same, warnings = inspect(seen)
    assert warnings == []
    assert len(same) == len(seen)
    assert np.median(agreement_with_steps(seen)) == pytest.approx(1, abs=1e-3)
    assert pointing_inward(seen) > 0.75
    assert inspect(but(seen, agents=None, times=None))[1] == []


@pytest.mark.parametrize(
    ("spoil", "code", "numbers"),
    [
        (lambda seen: but(seen, gradients=-seen.gradients), "sign-reversed", {}),
        (lambda seen: but(seen, gradients=-seen.gradients, agents=None, times=None), "sign-doubtful", {}),
        (
            lambda seen: but(seen, gradients=np.where(seen.agents[:, None] % 10 == 0, -1, 1) * seen.gradients),
            "sign-mixed",
            {"reversed": 20, "agents": 200},
        ),
        (lambda seen: but(seen, gradients=np.ones_like(seen.points)), "gradients-equal", {}),
        (
            lambda seen: Observations(np.tile(seen.points, (2, 1)), np.tile(seen.gradients, (2, 1))),
            "rows-duplicated",
            {"dropped": 4000, "rows": 8000},
        ),
        (lambda seen: but(seen, agents=seen.agents % 4, times=None), "agents-few", {"agents": 4, "coefficients": 5}),
    ],
)
def test_each_fault_of_the_data_has_its_warning(seen, spoil, code, numbers):
    (warning,) = [warning for warning in inspect(spoil(seen))[1] if warning.code == code]
    assert numbers.items() <= warning.numbers.items()


def test_points_that_never_move_are_rejected(seen):
    with pytest.raises(ValueError, match="points are all equal"):
        inspect(but(seen, points=np.ones_like(seen.points)))
    with pytest.raises(ValueError, match="never move along coordinate 1"):
        inspect(but(seen, points=seen.points * [1, 0]))


def test_a_learner_that_stands_still_is_no_duplicate():
    """On a plateau most gradients are zero, and the few that are not count no more than they should."""
    random = np.random.default_rng(0)
    agents, times = np.repeat(np.arange(50), 40), np.tile(np.arange(40), 50)
    points = np.repeat(random.standard_normal((50, 2)), 40, axis=0)
    gradients = np.where(random.random(2000) < 0.1, 1.0, 0.0)[:, None] * [1.0, 0.0]
    points[times == 39] += 0.1
    kept, _ = inspect(observe(points, gradients, agents=agents, times=times))
    assert np.count_nonzero(~kept.gradients.any(axis=1)) == np.count_nonzero(~gradients.any(axis=1))
    # The same log twice over is.
    twice = observe(
        np.tile(points, (2, 1)), np.tile(gradients, (2, 1)), agents=np.tile(agents, 2), times=np.tile(times, 2)
    )
    again, warnings = inspect(twice)
    assert len(again) == len(kept)
    assert "rows-duplicated" in codes(warnings)
