"""What a fit leaves: noise raises no alarm, and curl, dissent and misfit are told apart."""

from types import SimpleNamespace

import numpy as np
import pytest

import onlooker
from onlooker.fit.assumptions import SETTINGS, Found, Score, about_assumptions, examined
from onlooker.fit.groups import two_groups
from tests.support.messages import codes


def walks(field, dim=2, agents=200, steps=20, noise=1.0, rate=0.03, seed=0, apart=0.0):
    """Agents from N(0, 1.2²) that follow ``field(points, agents)`` with noise: points, gradients, agents.

    Half of them start ``apart`` along the first coordinate, a quarter along the second.
    """
    generator = np.random.default_rng(seed)
    point, names, points, gradients = 1.2 * generator.standard_normal((agents, dim)), np.arange(agents), [], []
    if apart:
        point = 0.5 * point + apart * np.eye(dim)[[0, 0, 1, -1]][names % 4]
    for _ in range(steps):
        gradient = field(point, names) + noise * generator.standard_normal(point.shape)
        points.append(point)
        gradients.append(gradient)
        point = point + rate * gradient
    rows = [np.stack(part, axis=1).reshape(-1, dim) for part in (points, gradients)]
    return *rows, np.repeat(names, steps)


def bowl(point, _=None):
    return -point


def found(field, fit=bowl, **options):
    return examined(*walks(field, **options), SimpleNamespace(gradient=fit))


def turned(point):
    out = np.zeros_like(point)
    out[:, 0], out[:, 1] = -point[:, 1], point[:, 0]
    return out


@pytest.mark.parametrize("dim", [2, 5])
def test_chance_is_as_rare_as_it_says(dim):
    """Where only noise is left, p-values are below .05 once in twenty times."""
    scores = [found(bowl, dim=dim, agents=150, seed=seed) for seed in range(60)]
    for part in Found._fields:
        # In a few of so small records gradients do not stay significantly alike.
        parts = [score for one in scores if (score := getattr(one, part)) is not None]
        assert len(parts) > 40
        # 4.5 standard errors.
        assert np.mean([score.chance < 0.05 for score in parts]) < 0.05 + 4.5 * np.sqrt(0.05 * 0.95 / len(parts))
        assert abs(np.mean([score.share for score in parts])) < 0.01


@pytest.mark.parametrize(("dim", "strength"), [(2, 0.2), (3, 0.3), (5, 0.4)])
def test_a_rotation_is_told_from_a_slope(dim, strength):
    one = found(lambda point, _: bowl(point) + strength * turned(point), dim=dim, agents=400, steps=40)
    # Σ|ωJx|² over Σ|x|²; what is learnt from half of the agents, where there are many, is nearly all of it.
    assert 0.5 < one.curl.share / (2 / dim * strength**2) < 1.4
    (message,) = about_assumptions(one)
    assert message.code == "field-turns"


def test_a_slope_that_the_fit_misses_is_no_rotation():
    # Of points that are far from normal, a turning field has a share of a slope.
    one = found(lambda point, _: bowl(point) + 2 * np.sin(point * [1, 2]), agents=400, apart=2.0)
    assert one.left.fires(SETTINGS.left)
    assert not one.curl.fires(SETTINGS.curl)
    (message,) = about_assumptions(one)
    assert message.code == "misfit"


def test_a_slope_that_the_fit_misses_is_no_dissent():
    one = found(lambda point, _: bowl(point) + 1.5 * np.sin(2 * point), agents=400, dim=1)
    assert one.left.fires(SETTINGS.left)
    assert abs(one.dissent.share) < 0.2 * one.left.share


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_agents_with_another_reward_disagree(dim):
    def field(point, names):
        return np.where((names % 5 == 0)[:, None], 1.5 - point, -point)

    one = found(field, lambda point: 0.3 - point, dim=dim)
    assert one.dissent.fires(SETTINGS.dissent)
    (message,) = about_assumptions(one)
    assert message.code == "agents-disagree"
    assert message.numbers["share"] == one.dissent.share


def two_rewards(point, names):
    return np.where((names % 5 == 0)[:, None], 1.5 - point, -point)


@pytest.mark.parametrize("dim", [2, 5])
def test_agents_are_put_into_the_group_of_their_reward(dim):
    def field(point, names):
        return np.where((names % 5 == 0)[:, None], 1.0 - point, -point)

    split = two_groups(*walks(field, dim=dim), SimpleNamespace(gradient=lambda point: 0.2 - point))
    assert np.mean(split.groups == (split.agents % 5 == 0)) > 0.95
    # At most .2·.8 of that and the noise's 1; less where groups come to different places, which a quadratic sees.
    assert 0.05 < split.explained < 0.16 / 1.16 + 0.03


def test_agents_of_one_reward_are_no_groups():
    """At p < .01, more than two of twenty would be chance with a probability of .001."""
    splits = [two_groups(*walks(bowl, seed=seed), SimpleNamespace(gradient=bowl)) for seed in range(20)]
    assert sum(split is not None for split in splits) <= 2


def test_a_result_suggests_groups():
    points, gradients, agents = walks(two_rewards)
    names = np.array([f"run {agent}" for agent in agents])
    with pytest.warns(
        onlooker.OnlookerWarning, match=r"40 of 200 agents follow another one: reconstruct result\.groups"
    ):
        result = onlooker.reconstruct(points, gradients, agents=names)
    assert result.groups["run 5"] == 1
    assert result.groups["run 6"] == 0


def test_what_cannot_be_tested_is_not():
    # Learners at rest: the noise pushes them off, and the next slope is against it.
    resting = found(bowl, agents=40, steps=400, rate=0.6)
    assert resting.left is None
    assert about_assumptions(resting) == []
    points, gradients, agents = walks(lambda point, _: bowl(point) + turned(point))
    fit = SimpleNamespace(gradient=bowl)
    assert examined(points, gradients, agents % 5, fit) == Found(None, None, None)
    # Without agents stretches of rows stand for them.
    alone = examined(points, gradients, None, fit)
    assert alone.left is None
    assert alone.curl.fires(SETTINGS.curl)
    assert found(bowl, dim=1).curl is None


def test_curl_is_said_before_dissent_and_dissent_before_misfit():
    sure = Score(0.5, 1e-9)
    said = [
        about_assumptions(Found(sure, curl, dissent)) for curl, dissent in ((sure, sure), (None, sure), (None, None))
    ]
    assert [message.code for (message,) in said] == ["field-turns", "agents-disagree", "misfit"]
    # Neither a small share nor chance is worth a sentence.
    assert about_assumptions(Found(Score(0.5, 0.2), Score(1e-4, 1e-9), None)) == []


def test_a_record_that_no_reward_explains_is_not_trusted():
    points, gradients, agents = walks(lambda point, _: bowl(point) + 0.5 * turned(point))
    with pytest.warns(onlooker.OnlookerWarning, match="turns in circles"):
        result = onlooker.reconstruct(points, gradients, agents=agents)
    assert "field-turns" in codes(result)
    assert result.found.diagnostics["curl_share"] > 0.1
    assert not result.trusted
    honest = onlooker.reconstruct(*walks(bowl)[:2], agents=agents)
    assert honest.warnings == []
    assert abs(honest.diagnostics["unexplained_share"]) < 0.05


def test_error_bars_wider_than_the_reward_say_that_nothing_is_known():
    points, gradients, agents = walks(lambda point, _: 0 * point, agents=20, seed=4)
    with pytest.warns(onlooker.OnlookerWarning, match="wider than R̂ varies"):
        result = onlooker.reconstruct(points, gradients, agents=agents)
    assert "errors-wide" in codes(result)
    assert not result.trusted
