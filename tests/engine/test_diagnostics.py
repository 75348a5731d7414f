"""The occupancy test: silent when the points follow π, loud and in words when they do not."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from onlooker.core.density import Density, as_density, standard_normal
from onlooker.core.messages import Message, OnlookerWarning
from onlooker.data.observations import Observations
from onlooker.data.stream import recorded
from onlooker.engine.diagnostics import occupancy, rhat, warn_about_occupancy
from onlooker.engine.run import run
from onlooker.inverse import passive
from onlooker.inverse.base import InverseLearner
from onlooker.inverse.reports import Summary
from onlooker.paper.naive import naive
from onlooker.simulation.agents import simulate
from onlooker.simulation.mixture import Mixture
from tests.support.messages import message_of

PI = standard_normal(2)
LOG_DENSITY_ONLY = Density(PI.log_prob)


def drawn(count, scale=1.0, seed=0, agents=None):
    points = scale * np.random.default_rng(seed).standard_normal((count, 2))
    return Observations(points, -points, agents=agents)


def test_no_false_alarm_in_eighty_looks():
    """The stated rate is 1e-4 a look; eighty looks alarm with probability .008, these do not."""
    assert not any(occupancy(drawn(2000, seed=seed), PI).departs for seed in range(40))
    assert not any(occupancy(drawn(2000, seed=seed), LOG_DENSITY_ONLY).departs for seed in range(40))


@pytest.mark.parametrize(
    "points",
    [drawn(2000, 1.3).points, drawn(2000).points + 0.3, drawn(2000).points @ np.array([[1, 0.6], [0, 0.8]])],
    ids=["wider", "shifted", "correlated"],
)
@pytest.mark.parametrize("density", [PI, LOG_DENSITY_ONLY], ids=["by draws", "by Stein's identity"])
def test_departures_are_seen(points, density):
    assert occupancy(Observations(points, points), density).departs


def test_agents_are_the_independent_units():
    """Sixty agents that sit still are sixty looks, however many rows they write; of twenty nothing is said."""
    points, agents = np.repeat(drawn(60, seed=3).points, 500, axis=0), np.repeat(np.arange(60), 500)
    assert not occupancy(Observations(points, -points, agents=agents), PI).departs
    assert occupancy(Observations(points[:10_000], points[:10_000], agents=agents[:10_000]), PI) is None


def test_a_correct_bounded_density_raises_no_alarm():
    """Stein's identity has boundary terms there: draws decide."""
    uniform = as_density(dist.Uniform(-1, 1).expand([2]).to_event(1))
    points = np.random.default_rng(0).uniform(-1, 1, (20_000, 2))
    assert not occupancy(Observations(points, -points), uniform).departs
    assert occupancy(Observations(0.8 * points, -points), uniform).departs


def test_rhat_knows_frozen_chains_from_moving_ones():
    moving = np.random.default_rng(0).standard_normal((20, 200, 2))
    assert rhat(moving) < 1.02
    assert rhat(moving[:, :1] + 0.01 * moving) > 5
    assert np.isnan(rhat(moving[:, :3]))
    # Chains of one mean and many widths: only ranks of the distances from the middle tell.
    assert rhat(moving * np.geomspace(0.2, 5, 20)[:, None, None]) > 1.1


def test_running_agents_fail_the_occupancy_test_at_any_horizon():
    """A hundred-step agent starts at π and leaves it; every hundredth row would hide that."""
    seen = simulate(Mixture(), PI, agents=11_000, horizon=100, learning_rate=1e-3)
    result = run(passive(PI, step_size=5e-4, bandwidth=0.1), recorded(seen), steps=20_000, chains=4, start=[0, 0])
    warning = str(message_of(result, "density-mismatch"))
    assert "assumption A2" in warning
    assert "its answer is biased" in warning


def test_starts_pass_the_occupancy_test_and_other_learners_skip_it():
    seen = simulate(Mixture(), PI, agents=20_000, horizon=1, learning_rate=1e-3)
    assert warn_about_occupancy(passive(PI, step_size=1e-3, bandwidth=0.1), recorded(seen)) == []
    assert warn_about_occupancy(naive(step_size=1e-3, bandwidth=0.1), recorded(drawn(2000, 3.0))) == []


def test_points_outside_a_bounded_support_are_named():
    box = as_density(lambda point: jnp.where(jnp.all(jnp.abs(point) < 1), -jnp.log(4.0), -jnp.inf))
    (warning,) = warn_about_occupancy(passive(box, step_size=1e-3, bandwidth=0.1), recorded(drawn(2000)))
    assert warning.code == "density-zero"


class FirstCoordinate(NamedTuple):
    """A report of somebody else's learner."""

    first: Any

    @staticmethod
    def squares():
        return ("first",)

    @staticmethod
    def summary(totals):
        found = {"mean": totals.mean("first"), "square": totals.mean("first_squared")}
        return Summary(found, [Message("kernel-starved", f"{totals.settings['of']} is starved.")])


def test_a_learner_s_own_report_becomes_diagnostics_and_warnings():
    def step(position, evidence, noise):
        return position + noise[0], FirstCoordinate(evidence.point[0])

    learner = InverseLearner("mine", step, {"of": "it"}, info=FirstCoordinate)
    points = np.random.default_rng(0).standard_normal((1000, 2)) + 1
    with pytest.warns(OnlookerWarning, match="it is starved"):
        result = run(learner, recorded(Observations(points, points)), chains=3)
    assert result.diagnostics["mean"] == pytest.approx(points[:, 0].mean(), rel=1e-5)
    assert result.diagnostics["square"] == pytest.approx((points[:, 0] ** 2).mean(), rel=1e-5)
    assert "kernel_ess" not in result.diagnostics
