"""The occupancy test: silent when the points follow π, loud and in words when they do not."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from onlooker.density import Density, as_density, standard_normal
from onlooker.inverse import naive, passive
from onlooker.learners.agents import simulate
from onlooker.learners.mixture import Mixture
from onlooker.observe.observation import Observations
from onlooker.observe.stream import recorded
from onlooker.reward.diagnostics import occupancy, rhat, warn_about_occupancy
from onlooker.run import run

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


def test_a_bounded_density_that_is_right_is_not_accused():
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


def test_running_agents_trip_it_by_themselves_whatever_their_horizon():
    """A hundred-step agent starts at π and leaves it; every hundredth row would hide that."""
    seen = simulate(Mixture(), PI, agents=11_000, horizon=100, learning_rate=1e-3)
    result = run(passive(PI, step_size=5e-4, bandwidth=0.1), recorded(seen), steps=20_000, chains=4, start=[0, 0])
    warning = next(warning for warning in result.warnings if "do not follow the density" in warning)
    assert "assumption A2" in warning
    assert "its answer is biased" in warning


def test_starts_alone_do_not_trip_it_and_learners_without_a_density_are_not_tested():
    seen = simulate(Mixture(), PI, agents=20_000, horizon=1, learning_rate=1e-3)
    assert warn_about_occupancy(passive(PI, step_size=1e-3, bandwidth=0.1), recorded(seen)) == []
    assert warn_about_occupancy(naive(step_size=1e-3, bandwidth=0.1), recorded(drawn(2000, 3.0))) == []


def test_points_outside_a_bounded_support_are_named():
    box = as_density(lambda point: jnp.where(jnp.all(jnp.abs(point) < 1), -jnp.log(4.0), -jnp.inf))
    (warning,) = warn_about_occupancy(passive(box, step_size=1e-3, bandwidth=0.1), recorded(drawn(2000)))
    assert "of the points lie where the density given is zero" in warning
