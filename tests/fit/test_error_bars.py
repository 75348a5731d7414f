"""Error bars are their formula, cover where noise is uneven, and joint draws say what places may be best."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtri, stdtrit

import onlooker
from onlooker.fit import fit
from onlooker.fit.error_bars import BUCKETS, clustered, sandwich
from onlooker.fit.quadratic import no_quadratic

PLACES = np.linspace(-1.5, 1.5, 61)[:, None]


def curve(x):
    return np.sin(2.5 * x[:, 0]) - 0.3 * x[:, 0] ** 2


def seen(seed, *, agents=150, steps=20, offset=0.0, lean=0.0, scale=1.0):
    """Points, gradients of scale × (curve + lean·x) and agents, each with an offset of this size."""
    random = np.random.default_rng(seed)
    place, points, gradients = 1.2 * np.clip(random.standard_normal((agents, 1)), -1.8, 1.8), [], []
    shift = offset * random.standard_normal(place.shape)
    for _ in range(steps):
        slope = scale * (2.5 * np.cos(2.5 * place) - 0.6 * place + lean)
        gradients.append(slope + shift + random.standard_normal(place.shape))
        points.append(place)
        place = place + 0.03 * gradients[-1]
    rows = [np.stack(part, axis=1).reshape(-1, 1) for part in (points, gradients)]
    return *rows, np.repeat(np.arange(agents), steps)


def fitted(seed, **options):
    points, gradients, agents = seen(seed, **options)
    held = agents % 5 == 0
    plain = fit(points, gradients, held, 0, agents=agents)
    return plain, plain.judged(points, gradients, agents, 0)


def test_buckets_have_whole_agents_and_all_rows():
    agents = np.random.default_rng(0).integers(0, 70, 4000)
    buckets = clustered(4000, agents, 0, 10**6)
    parts = buckets.parts()
    assert len(parts) == BUCKETS
    assert sorted(np.concatenate(parts)) == list(range(4000))
    assert sum(len(np.unique(agents[part])) for part in parts) == 70
    # Fewer rows are those of some whole agents, and of stretches if agents are unknown.
    few = np.concatenate(clustered(4000, agents, 0, 1000).parts())
    assert 1000 <= len(few) < 1200
    assert np.isin(agents, np.unique(agents[few])).sum() == len(few)
    assert [len(part) for part in clustered(4000, None, 0, 1000).parts()] == [50] * BUCKETS


def test_the_variance_is_its_formula():
    plain, judged = fitted(1)
    points, gradients, agents = seen(1)
    one = replace(judged, trend=no_quadratic(1))
    cosines, unit = judged.cosines, judged.unit
    about, inside = (judged.support.back(judged._scaled(x))[0] for x in (judged.typical, PLACES))
    away = cosines.features(inside) - cosines.features(about).mean(axis=0)
    upper = np.triu(cosines.factor[0])
    solved = np.linalg.solve(upper.T @ upper, away.T)
    bayes = cosines.noise * (away.T * solved).sum(axis=0)
    # Scores by hand: agents in their buckets, gradients of cosines by differences.
    buckets = clustered(len(points), agents, 0, 1 << 18)
    scaled = judged._scaled(points)
    slopes = (cosines.features(scaled + 1e-5) - cosines.features(scaled - 1e-5)) / 2e-5
    left = (gradients - plain.gradient(points)) * judged.spread / unit
    scores = np.stack([(slopes[rows] * left[rows]).sum(axis=0) for rows in buckets.parts()], axis=1)
    scores -= scores.sum(axis=1, keepdims=True) * np.diff(buckets.edges) / len(points)
    wide = stdtrit(BUCKETS - 1, 0.977) / ndtri(0.977)
    seen_noise = BUCKETS / (BUCKETS - 1) * ((scores.T @ solved) ** 2).sum(axis=0) * wide**2
    # The prior's precision is what the factor has beyond the normal matrix.
    precision = np.diag(upper.T @ upper) - (slopes**2).sum(axis=0)
    known = len(precision) - np.diag(np.linalg.inv(upper.T @ upper)) @ precision
    own = cosines.coefficients.reshape(-1)[1:] ** 2 @ precision / known
    biased = max(own, cosines.noise) * (precision[:, None] * solved**2).sum(axis=0)
    apart = [away @ part for part in cosines.apart]
    known = cosines.features(about)
    usual = [np.mean(((known - known.mean(axis=0)) @ part) ** 2) for part in cosines.apart]
    expected = np.maximum(bayes, seen_noise + biased) + sum(0.5 * (d**2 + m) for d, m in zip(apart, usual, strict=True))
    assert one.error(PLACES) == pytest.approx(unit * np.sqrt(expected), rel=1e-3)
    # Error bars change nothing else, and their covariance has them on its diagonal.
    assert np.array_equal(plain.value(PLACES), judged.value(PLACES))
    covariance = judged.covariance(PLACES)
    assert np.diag(covariance) == pytest.approx(judged.error(PLACES) ** 2)
    assert np.linalg.eigvalsh(covariance).min() > -1e-9


def test_few_buckets_widen_and_a_share_of_the_rows_counts_for_all():
    scores = np.random.default_rng(0).standard_normal((3, 5))
    sizes = np.array([1.0, 2, 3, 2, 1])
    whole, half = sandwich(scores, sizes, 1.0), sandwich(scores, sizes, 0.5)
    assert whole.sum(axis=1) == pytest.approx(0, abs=1e-12)
    assert half == pytest.approx(np.sqrt(2) * whole)
    apart = scores - scores.sum(axis=1, keepdims=True) * sizes / 9
    # t with four degrees of freedom is 2.83 where a normal is 2.
    assert whole == pytest.approx(apart * np.sqrt(5 / 4) * stdtrit(4, 0.977) / ndtri(0.977))
    assert np.isinf(sandwich(scores[:, :1], sizes[:1], 1.0)).all()


def covered(reward):
    middle = reward.value(reward.typical).mean() - curve(reward.typical).mean()
    return np.mean(np.abs(reward.value(PLACES) - curve(PLACES) - middle) < 2 * reward.error(PLACES))


def test_error_bars_cover_where_the_noise_of_an_agent_lasts():
    """Over 20 records; coverage of one fit has a standard deviation of about .1, their mean of .025."""
    both = [fitted(seed, offset=0.5) for seed in range(20)]
    assert np.mean([covered(judged) for _, judged in both]) > 0.9
    # Must fail: rows of an agent taken as independent.
    assert np.mean([covered(plain) for plain, _ in both]) < 0.85


@pytest.fixture(scope="module")
def results():
    with onlooker.core.messages.undelivered():
        return [onlooker.reconstruct(*seen(seed)[:2], agents=seen(seed)[2], seed=seed) for seed in range(24)]


def test_draws_of_the_reward_are_joint(results):
    result = results[0]
    places = np.array([[-0.5], [0.55], [0.6], [40.0]])
    draws = result.reward_draws(places, 4000)
    assert draws[:, :3].std(axis=0) == pytest.approx(result.reward_error(places)[:3], rel=0.05)
    assert np.isnan(draws[:, 3]).all()
    assert np.diff(draws.mean(axis=0)[:3]) == pytest.approx(np.diff(result.reward(places)[:3]), abs=0.05)
    # Neighbours go together.
    assert np.corrcoef(draws[:, 1:3].T)[0, 1] > 0.95
    with pytest.raises(ValueError, match="n is 0"):
        result.reward_draws(places, 0)


def test_the_region_of_the_maximum_holds_it(results):
    """At level .95, fewer than 20 of 24 regions would hold it with a probability of 4e-4."""
    fine = np.linspace(0.4, 0.8, 4001)[:, None]
    best = fine[[np.argmax(curve(fine))]]
    regions = [result.maximum_region() for result in results]
    assert sum(region.holds(best)[0] for region in regions) >= 20
    # It is not everything.
    assert max(float((region.high - region.low)[0]) for region in regions) < 0.1
    one = regions[0]
    assert one.holds(one.points[:3]).all()
    assert (one.low <= one.points).all()
    assert not one.holds([[40.0]])[0]
    with pytest.raises(ValueError, match="level is 95"):
        results[0].maximum_region(95)


def test_rewards_are_compared_up_to_a_constant_and_a_scale(results):
    """Of twelve pairs of one reward, three at p < .05 would be chance with a probability of .02."""
    pairs = [onlooker.compare(one, other) for one, other in zip(results[::2], results[1::2], strict=True)]
    assert sum(pair.chance < 0.05 for pair in pairs) <= 2
    assert all(pair.same and pair.similar for pair in pairs)
    with onlooker.core.messages.undelivered():
        points, gradients, agents = seen(50, scale=2.0)
        double = onlooker.reconstruct(points, gradients, agents=agents)
        points, gradients, agents = seen(51, lean=0.8)
        leaning = onlooker.reconstruct(points, gradients, agents=agents)
        wide = onlooker.reconstruct(*np.random.default_rng(0).standard_normal((2, 2000, 2)))
    scaled = onlooker.compare(double, results[0])
    assert (scaled.same, scaled.similar) == (False, True)
    assert abs(scaled.scale - 2) < 4 * scaled.scale_error < 1
    other = onlooker.compare(leaning, results[0])
    assert (other.same, other.similar) == (False, False)
    assert abs(other.difference) > 3 * other.difference_error
    assert "differ in more than a constant and a scale" in str(other)
    with pytest.raises(ValueError, match="one has 1 dimensions and other 2"):
        onlooker.compare(results[0], wide)
    with pytest.raises(TypeError, match=r"other is a float; give a result of onlooker\.reconstruct"):
        onlooker.compare(results[0], 1.0)
