"""The multi-kernel learner and its pools: weights, algebra, the L → ∞ limit, and streams that show pools."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import chi2, ks_2samp, kstest

from onlooker import OnlookerWarning, run
from onlooker.core.density import standard_normal
from onlooker.core.kernels import epanechnikov, gaussian, truncated_gaussian
from onlooker.data.observations import Observation, Observations
from onlooker.data.stream import pooled, recorded
from onlooker.engine.diagnostics import agents_per_pool
from onlooker.engine.loop import advance
from onlooker.fit.kernel_regression import neighbours
from onlooker.inverse import multikernel, passive
from onlooker.paper.listing import Reset, listing_multikernel, listing_reset
from onlooker.simulation.agents import independent, independent_pools, questions, running_pools
from onlooker.simulation.nearest_pools import _chi_square, nearest_of_pools
from onlooker.simulation.reward import NoisyReward
from tests.support.messages import codes, message_of
from tests.support.statistics import FALSE_ALARM, normal_p_value

MU, SIGMA, BETA = 3e-3, 0.4, 1.7
LEARNER = multikernel(step_size=MU, bandwidth=SIGMA, beta=BETA)


@pytest.fixture
def pool():
    generator = np.random.default_rng(3)
    position, noise = generator.standard_normal(3), generator.standard_normal((2, 3))
    return position, Observation(*generator.standard_normal((2, 20, 3))), noise


def formula(position, pool, noise):
    exponent = -((position - pool.point) ** 2).sum(axis=1) / (2 * SIGMA**2)
    weight = np.exp(exponent - logsumexp(exponent))
    return position + MU * BETA / 2 * weight @ pool.gradient + np.sqrt(MU) * noise[0]


def drawn(stream, key, steps, carry=()):
    """What a stream shows next, compiled as one program."""
    return jax.jit(stream.draw, static_argnums=(3, 4))(stream.data, carry, key, steps, None)


def test_update_equals_its_formula_in_any_order_of_the_pool(pool):
    position, seen, noise = pool
    order = np.random.default_rng(0).permutation(20)
    with jax.enable_x64(True):
        moved, info = LEARNER.step(*jax.tree.map(jnp.asarray, (position, seen, noise)))
        shuffled = Observation(jnp.asarray(seen.point[order]), jnp.asarray(seen.gradient[order]))
        again, _ = LEARNER.step(jnp.asarray(position), shuffled, jnp.asarray(noise))
    assert moved == pytest.approx(formula(*pool), rel=1e-12)
    assert again == pytest.approx(np.asarray(moved), rel=1e-12)
    assert info.distance == pytest.approx(np.linalg.norm(seen.point - position, axis=1).min(), rel=1e-10)


def test_a_distant_observation_changes_no_weight():
    """In float32, as used: ‖α − θ‖² by matrix products must not be taken about an outlier."""
    points = np.random.default_rng(0).standard_normal((100, 2)).astype(np.float32)
    alone = np.asarray(neighbours(jnp.zeros(2), jnp.asarray(points), gaussian, 0.1).weight)
    for place in (0, 20, 99):
        more = np.insert(points, place, 1e4, axis=0)
        weight = np.asarray(neighbours(jnp.zeros(2), jnp.asarray(more), gaussian, 0.1).weight)
        assert np.delete(weight, place) == pytest.approx(alone, abs=1e-4)


def test_a_pool_of_one_gives_its_gradient_at_any_distance(pool):
    position, seen, noise = pool
    for distance in (0, 1, 1e3):
        one = Observation(jnp.asarray(seen.point[:1] + distance, jnp.float32), jnp.asarray(seen.gradient[:1]))
        moved, info = LEARNER.step(jnp.asarray(position, jnp.float32), one, jnp.asarray(noise))
        followed = position + MU * BETA / 2 * seen.gradient[0] + np.sqrt(MU) * noise[0]
        assert moved == pytest.approx(followed, rel=1e-5)
        assert float(info.kernel_ess) == pytest.approx(1)


@pytest.mark.parametrize("kernel", [gaussian, truncated_gaussian(), epanechnikov], ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("distance", [0.0, 1.0, 1e3])
def test_weights_in_124_dimensions_sum_to_one_or_all_are_zero(kernel, distance):
    points = jax.random.normal(jax.random.key(0), (100, 124))
    seen = neighbours(jnp.full(124, distance / 124**0.5), points, kernel, 0.1**0.5)
    assert np.isfinite(np.asarray(seen.weight)).all()
    total = float(seen.weight.sum())
    if kernel is gaussian:
        assert total == pytest.approx(1, abs=1e-5)
        assert 1 <= float(seen.ess) < 2
    else:
        assert total == float(seen.ess) == 0
        assert bool(seen.empty)


def test_a_common_offset_does_not_swamp_the_weights():
    points = jax.random.normal(jax.random.key(0), (50, 3))
    here, offset = jnp.asarray([0.2, -0.1, 0.4]), jnp.asarray([4096.0, -8192.0, 1024.0])
    near = np.asarray(neighbours(here, points, gaussian, 0.5).weight)
    far = np.asarray(neighbours(here + offset, points + offset[None], gaussian, 0.5).weight)
    # 2⁻¹⁰ is the spacing of float32 out there: it moves the points themselves.
    assert far == pytest.approx(near, abs=2e-3)


def test_a_step_without_neighbours_has_no_drift_and_is_counted():
    learner = multikernel(step_size=1e-3, bandwidth=0.05, kernel="epanechnikov")
    seen = Observations(np.full((640, 2), 3.0), np.full((640, 2), 50.0))
    with pytest.warns(OnlookerWarning, match="reached none of the pool"):
        result = run(learner, pooled(recorded(seen), 10), chains=40, start=np.zeros(2), seed=1)
    assert result.diagnostics["empty_share"] == 1
    assert normal_p_value(result.positions.reshape(-1), 64 * 1e-3) > FALSE_ALARM


def test_the_limit_of_large_pools_is_the_conditional_mean():
    """E[∇R(θ)|α] with π = N(0, I) is over N(α/(1+σ²), σ²/(1+σ²)): not ∇R(α), which the same test rejects."""

    def gradient(x):
        return jnp.stack([jnp.cos(2 * x[..., 0]) * x[..., 1], x[..., 0] ** 2 - x[..., 1] ** 3], axis=-1)

    sigma, alpha = 0.3, jnp.asarray([0.7, -0.4])
    points = jax.random.normal(jax.random.key(1), (1_000_000, 2))
    values = gradient(points)
    seen = neighbours(alpha, points, gaussian, sigma)
    found = np.asarray(seen.average(values))
    nodes, mass = np.polynomial.hermite_e.hermegauss(40)
    mesh = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), axis=-1)
    around = np.asarray(alpha) / (1 + sigma**2) + sigma / np.sqrt(1 + sigma**2) * mesh
    weight = np.outer(mass, mass) / mass.sum() ** 2
    exact = (weight[..., None] * np.asarray(gradient(jnp.asarray(around)))).sum(axis=(0, 1))
    error = np.sqrt((np.asarray(seen.weight)[:, None] ** 2 * (np.asarray(values) - found) ** 2).sum(axis=0))
    assert np.abs(found - exact).max() < 5 * error.max()
    assert np.abs(found - np.asarray(gradient(alpha))).max() > 20 * error.max()


def test_stationary_law_of_multikernel_depends_on_the_bandwidth():
    """R = −α²/2: with E[∇R|α] = −α/(1+σ²) the chain's variance is 1 + σ² and not 1."""
    parabola = NoisyReward(1, lambda point: -jnp.sum(point * point) / 2, 0.5)
    pools = independent_pools(parabola, standard_normal(1), 64)
    chains = run(multikernel(step_size=0.02, bandwidth=0.5), pools, steps=768, chains=2000, seed=2)
    assert normal_p_value(chains.positions[:, 0], 1.25) > FALSE_ALARM
    assert normal_p_value(chains.positions[:, 0], 1.0) < FALSE_ALARM


def test_resampling_has_the_same_mean_and_more_variance():
    """Over pools: with ten neighbours or so the weighted average has a fraction of the variance of one of them."""
    reward = NoisyReward(2, lambda point: -jnp.sum(point * point) / 2, 1.0)
    pools = independent_pools(reward, standard_normal(2), 100, same_sample=False, shared=True)
    _, seen = drawn(pools, jax.random.key(0), 4000)
    noise = jax.random.normal(jax.random.key(1), (4000, 2, 2)).at[:, 0].set(0)
    moves = {}
    for average in ("weighted", "resampled"):
        step = listing_multikernel(step_size=MU, bandwidth=0.3, average=average).step
        moved, _ = jax.jit(jax.vmap(step, in_axes=(None, 0, 0)))(jnp.zeros(2), seen, noise)
        moves[average] = np.asarray(moved) / (MU / 2)
    difference = moves["resampled"] - moves["weighted"]
    assert (np.abs(difference.mean(axis=0)) < 5 * difference.std(axis=0) / 4000**0.5).all()
    assert (moves["resampled"].var(axis=0) > 5 * moves["weighted"].var(axis=0)).all()


def test_the_listings_reset_is_counted_and_makes_no_nan(pool):
    position, seen, noise = jax.tree.map(lambda leaf: leaf.astype(np.float32), pool)
    step = listing_multikernel(step_size=MU, bandwidth=SIGMA, beta=BETA, reset=Reset(-20.0, 0.1)).step
    near, info = step(position, seen, noise)
    assert near == pytest.approx(formula(*pool), rel=1e-4)
    assert float(info.reset) == 0
    # Begun again with the gradient of where it was.
    away = position + 30
    moved, info = step(away, seen, noise)
    assert moved == pytest.approx(formula(away, seen, noise) - away + 0.1 * noise[1], rel=1e-4)
    assert float(info.reset) == 1

    flat = NoisyReward(124, lambda point: 0 * jnp.sum(point))
    learner = listing_multikernel(step_size=2.5e-4, bandwidth=0.1**0.5, reset=listing_reset(124))
    with pytest.warns(OnlookerWarning, match="reset"):
        result = run(learner, nearest_of_pools(flat, 100), steps=4000, chains=2, start=np.full(124, 20.0))
    assert result.diagnostics["resets"] >= 2
    assert np.isfinite(result.samples).all()
    assert np.abs(result.positions).max() < 5


def test_pools_are_disjoint_rows_in_their_order():
    rows = np.arange(46.0).reshape(23, 2)
    stream = pooled(recorded(Observations(rows, rows)), 5)
    assert stream.length == 4
    carry = stream.init(stream.data, jax.random.key(0), None)
    carry, first = stream.draw(stream.data, carry, jax.random.key(0), 3, None)
    carry, second = stream.draw(stream.data, carry, jax.random.key(0), 1, None)
    shown = np.concatenate([first.point, second.point])
    assert shown.reshape(-1, 2) == pytest.approx(rows[:20])


def test_few_agents_in_a_pool_are_warned_about_once():
    generator = np.random.default_rng(0)
    points = generator.standard_normal((6400, 2))
    alone, mixed = np.arange(6400) // 100, np.arange(6400) % 100
    learner = multikernel(step_size=1e-3, bandwidth=0.5)
    for agents, per_pool in ((alone, 1.0), (mixed, 100.0)):
        seen = Observations(points, -points, agents=agents)
        assert agents_per_pool(seen, 100) == per_pool
        if per_pool == 1:
            with pytest.warns(OnlookerWarning, match=r"comes from 1\.0 agents") as caught:
                result = run(learner, pooled(recorded(seen), 100), chains=4)
            assert codes(caught).count("pools-alike") == 1
        else:
            result = run(learner, pooled(recorded(seen), 100), chains=4)
        assert ("pools-alike" in codes(result)) == (per_pool == 1)
    shuffled = Observations(points, -points, agents=generator.permutation(mixed))
    for size in (10, 50):
        result = run(learner, pooled(recorded(shuffled), size), chains=4)
        assert "pools-alike" not in codes(result)


def test_pools_of_equal_size_share_a_compiled_program():
    learner = multikernel(step_size=1e-3, bandwidth=0.5)
    rows = np.random.default_rng(0).standard_normal((3, 640, 2))
    run(learner, pooled(recorded(Observations(rows[0], rows[0])), 10), chains=4)
    compiled = advance._cache_size()
    for record in rows[1:]:
        run(learner, pooled(recorded(Observations(record, record)), 10), chains=4)
    assert advance._cache_size() == compiled


def test_a_lost_chain_does_not_change_the_diagnostics_of_others():
    learner = multikernel(step_size=1e-3, bandwidth=0.5)
    points = np.random.default_rng(0).standard_normal((6400, 2))
    pools = pooled(recorded(Observations(points, -points)), 100)
    good = run(learner, pools, chains=8, start=np.zeros(2))

    def lose(position, increment):
        return jnp.where(position > 1e3, jnp.nan, position + increment), 0 * position[0]

    wild = multikernel(step_size=1e-3, bandwidth=0.5, confine=lose)
    bad = run(wild, pools, chains=8, start=np.where(np.arange(8)[:, None] == 3, 2e3, np.zeros((8, 2))))
    assert bad.diagnostics["lost_chains"] == 1
    assert bad.diagnostics["kernel_ess"] == pytest.approx(good.diagnostics["kernel_ess"], rel=0.05)
    assert np.isfinite(bad.diagnostics["nearest_distance"])


def test_a_pool_far_away_is_warned_about_with_its_numbers():
    noise = NoisyReward(40, lambda point: 0 * jnp.sum(point))
    pools = independent_pools(noise, standard_normal(40), 100, shared=True)
    with pytest.warns(OnlookerWarning) as caught:
        result = run(multikernel(step_size=1e-4, bandwidth=0.3), pools, steps=64, chains=4)
    assert result.diagnostics["kernel_ess"] < 1.5
    assert result.diagnostics["nearest_distance"] > 0.9
    for code in ("pools-narrow", "pools-far"):
        assert codes(caught).count(code) == codes(result).count(code) == 1
    assert message_of(result, "pools-narrow").numbers["kernel_ess"] == result.diagnostics["kernel_ess"]
    assert f"kernel ESS {result.diagnostics['kernel_ess']:.2f}" in str(message_of(caught, "pools-narrow"))
    assert not result.trusted


@pytest.mark.parametrize("freedom", [9, 123])
def test_chi_square_draws_have_their_law(freedom):
    draws = np.asarray(_chi_square(jax.random.key(1), freedom, (200_000,)))
    assert kstest(draws, chi2(freedom).cdf).pvalue > FALSE_ALARM
    assert kstest(draws, chi2(freedom + 0.1 * (freedom / 9) ** 0.5).cdf).pvalue < FALSE_ALARM


def test_nearest_pools_warn_when_they_show_too_few():
    flat = NoisyReward(12, lambda point: 0 * jnp.sum(point))
    with pytest.warns(OnlookerWarning, match="nearest 4 of a pool"):
        run(multikernel(step_size=1e-3, bandwidth=1.0), nearest_of_pools(flat, 100), steps=64, chains=2)


def test_nearest_pools_have_the_law_of_whole_pools():
    """Distance, direction and gradient of the nearest of 50 in 12 dimensions; one dimension fewer is told apart."""
    reward = NoisyReward(12, lambda point: jnp.sum(jnp.sin(point)), 0.0)
    position = jnp.linspace(-1, 1, 12)
    direct = independent_pools(reward, standard_normal(12), 50, shared=True)
    _, pools = drawn(direct, jax.random.key(0), 4000)
    squared = jnp.sum((pools.point - position[None, None]) ** 2, axis=-1)
    nearest = jnp.argmin(squared, axis=1)
    whole = [np.asarray(leaf[jnp.arange(4000), nearest]) for leaf in pools]
    short = nearest_of_pools(reward, 50, keep=2)
    _, made = drawn(short, jax.random.key(1), 4000)
    shown = jax.jit(jax.vmap(short.answer, in_axes=(None, 0)))(position, made)
    quick = [np.asarray(leaf[:, 0]) for leaf in shown]

    def looks(point, gradient):
        away = point - np.asarray(position)
        return [np.linalg.norm(away, axis=1), point @ np.asarray(position), point[:, 3], gradient[:, 7]]

    for one, other in zip(looks(*whole), looks(*quick), strict=True):
        assert ks_2samp(one, other).pvalue > FALSE_ALARM
    assert ks_2samp(looks(*whole)[0], np.linalg.norm((quick[0] - np.asarray(position))[:, 1:], axis=1)).pvalue < 1e-6


def test_agents_side_by_side_climb_and_restart_in_turn():
    reward = NoisyReward(2, lambda point: -jnp.sum(point * point) / 2, 1.0)
    stream = running_pools(reward, standard_normal(2), 8, learning_rate=0.1, horizon=4)
    carry = stream.init(stream.data, jax.random.key(0), None)
    carry, first = drawn(stream, jax.random.key(1), 12, carry)
    _, second = drawn(stream, jax.random.key(2), 12, carry)
    point, gradient = (np.concatenate(pair) for pair in zip(first, second, strict=True))
    assert point.shape == (24, 8, 2)
    climbed = np.isclose(point[:-1] + 0.1 * gradient[:-1], point[1:], atol=1e-5).all(axis=2)
    assert (~climbed).sum(axis=1).tolist() == [2] * 23


def test_streams_that_cannot_be_pooled_are_rejected():
    seen = Observations(np.zeros((10, 2)), np.zeros((10, 2)))
    with pytest.raises(ValueError, match="size is 0"):
        pooled(recorded(seen), 0)
    with pytest.raises(ValueError, match="size is 11 but the stream has 10"):
        pooled(recorded(seen), 11)
    with pytest.raises(TypeError, match="make a stream with recorded"):
        pooled(seen, 2)
    assert pooled(recorded(seen), 5.0).length == 2
    huge = independent_pools(NoisyReward(124, jnp.sum), standard_normal(124), 65_536, shared=True)
    with pytest.raises(ValueError, match="give a smaller thin"):
        run(LEARNER, huge, steps=256, chains=4, thin=256)
    for reset in (True, (1.0, 2.0), Reset(float("nan"), 0.1)):
        with pytest.raises(ValueError, match="give a Reset"):
            listing_multikernel(step_size=1e-3, bandwidth=0.1, reset=reset)
    with pytest.raises(ValueError, match="already"):
        pooled(pooled(recorded(seen), 2), 2)
    with pytest.raises(ValueError, match="at least one observation"):
        LEARNER.step(jnp.zeros(2), Observation(jnp.zeros((0, 2)), jnp.zeros((0, 2))), jnp.zeros((1, 2)))
    with pytest.raises(ValueError, match="needs pools"):
        run(LEARNER, recorded(seen))
    with pytest.raises(ValueError, match="shows pools"):
        run(passive(standard_normal(2), step_size=1e-3, bandwidth=0.1), pooled(recorded(seen), 2))
    with pytest.raises(ValueError, match="negative values"):
        multikernel(step_size=1e-3, bandwidth=0.1, kernel="fourth_order")
    with pytest.raises(ValueError, match="average is 'mean'"):
        listing_multikernel(step_size=1e-3, bandwidth=0.1, average="mean")
    reward = NoisyReward(2, lambda point: jnp.sum(point))
    with pytest.raises(ValueError, match="keep is 4 for pools of 100 in 2 dimensions"):
        nearest_of_pools(reward, 100)
    with pytest.raises(ValueError, match="single observations"):
        pooled(questions(reward), 3)
    with pytest.raises(ValueError, match="size is 0"):
        independent_pools(reward, standard_normal(2), 0)
    assert independent_pools(reward, standard_normal(2), 3, same_sample=False).pool == 3
    assert independent(reward, standard_normal(2)).pool is None
