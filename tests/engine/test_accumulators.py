"""Running sums equal what the positions themselves would give."""

import jax.numpy as jnp
import numpy as np
import pytest

from onlooker.core.distances import marginal_variations, total_variation, wasserstein
from onlooker.core.histogram import Histogram
from onlooker.engine.accumulators import Grid, Marginals, Moments, accumulate
from onlooker.engine.over_time import over_time
from onlooker.fit.grid_reward import GridReward


@pytest.fixture
def positions():
    """(groups, rows, dim, width), with NaN and overflow among them."""
    x = np.random.default_rng(0).normal(0, 2, (3, 5, 2, 7)).astype(np.float32)
    x[0, 0, 0, 0] = np.nan
    return x


def flat_rows(x):
    return np.moveaxis(x, 2, -1).reshape(-1, x.shape[2])


def test_grid_counts_as_numpy_does(positions):
    grid = Grid((-3.0, -2.0), (3.0, 2.5), bins=6)
    keep = np.random.default_rng(1).random((3, 5, 7)) < 0.7
    counts = grid.add(jnp.asarray(grid.init(2, 21)), jnp.asarray(positions), jnp.asarray(keep))
    histogram = grid.histogram(np.asarray(counts))
    rows = flat_rows(positions)[keep.reshape(-1)]
    bounded = [np.concatenate([[-np.inf], edges, [np.inf]]) for edges in histogram.edges]
    expected = np.histogram2d(*np.nan_to_num(rows, nan=-1e9).T, bins=bounded)[0]
    assert histogram.counts == pytest.approx(expected)
    assert histogram.counts.sum() == keep.sum()


def test_marginals_pooled_and_per_chain_agree(positions):
    keep = jnp.ones((3, 5, 7), bool)
    counts = []
    for per_chain in (False, True):
        marginals = Marginals(-3.0, 3.0, 8, per_chain=per_chain)
        counts.append(np.asarray(marginals.add(jnp.asarray(marginals.init(2, 21)), jnp.asarray(positions), keep)))
    assert counts[1].shape == (21, 2, 10)
    assert (counts[1].sum(axis=0) == counts[0][0]).all()
    assert (counts[1].sum(axis=2) == 5).all()


def test_moments(positions):
    """Far from the origin too, in float32; and a lost position is left out."""
    far, moments = positions + np.float32(1000), Moments()
    about = np.full(2, 1000, np.float32)
    sums = moments.add(moments.init(2, 21), jnp.asarray(far), jnp.ones((3, 5, 7), bool), jnp.asarray(about))
    mean, covariance = moments.mean_and_covariance([np.asarray(leaf, float) for leaf in sums], about)
    rows = flat_rows(far).astype(float)
    rows = rows[np.isfinite(rows).all(axis=1)]
    assert mean == pytest.approx(rows.mean(axis=0), abs=1e-3)
    assert covariance == pytest.approx(np.cov(rows.T, bias=True), rel=1e-3)


def test_counts_go_on_beyond_what_float32_can_count():
    grid, full = Grid.cube(1.0, 1, bins=1), 2**24
    counts = jnp.full_like(jnp.asarray(grid.init(1, 1)), full)
    counts = grid.add(counts, jnp.zeros((1, 3, 1, 1)), jnp.ones((1, 3, 1), bool))
    assert np.asarray(counts).astype(int).tolist() == [full, full + 3, full]


def test_counts_fade_with_every_later_step():
    """5·.9² of what was there, and two more of ages 1 and 0."""
    grid, kept = Grid.cube(1.0, 1, bins=1, forgetting=0.1), jnp.ones((1, 2, 1), bool)
    counts = accumulate(
        grid, jnp.asarray([0.0, 5, 0]), jnp.zeros((1, 2, 1, 1)), kept, jnp.asarray([1, 0]), jnp.asarray(2)
    )
    assert np.asarray(counts) == pytest.approx([0, 5 * 0.81 + 0.9 + 1, 0], rel=1e-6)


def test_coarser_bins_and_distances():
    edges = np.linspace(-1, 1, 5)
    one = Histogram((edges, edges), np.random.default_rng(0).integers(0, 9, (6, 6)))
    half = one.coarsen(2)
    assert half.counts.sum() == one.counts.sum()
    assert half.counts[1, 1] == one.counts[1:3, 1:3].sum()
    assert half.counts[0, 0] == one.counts[0, 0]
    assert total_variation(one, one) == 0
    left, right = (Histogram((edges,), np.eye(6)[place]) for place in (1, 4))
    assert total_variation(left, right) == 1
    assert wasserstein(left, right) == pytest.approx(1.5)
    assert marginal_variations(one, one) == [0, 0]
    with pytest.raises(ValueError, match="different bins"):
        total_variation(one, half)


def test_reward_is_the_logarithm_and_nan_where_nothing_was_seen():
    counts = np.zeros((5, 5))
    counts[1:4, 1:4] = np.exp([[0, 1, 2], [1, 2, 3], [2, 3, 4]])
    counts[3, 1] = 0
    edges = np.array([0.0, 1, 2, 3])
    estimate = GridReward(Histogram((edges, edges), counts), beta=2.0)
    values = estimate(np.array([[0.5, 0.5], [2.5, 2.5], [1.0, 1.5], [2.5, 0.5], [9.0, 9.0]]))
    assert values[:3] == pytest.approx([-2.0, 0.0, -1.25])
    assert np.isnan(values[3:]).all()
    assert estimate.explored([[0.5, 0.5], [2.5, 0.5], [9.0, 9.0]]).tolist() == [True, False, False]
    with pytest.raises(ValueError, match="x has shape"):
        estimate(np.zeros((3, 3)))


def test_bad_grids_are_rejected():
    with pytest.raises(ValueError, match="every low must be below"):
        Grid((0.0,), (0.0,))
    with pytest.raises(ValueError, match="low must be below high"):
        Marginals(3.0, -3.0)
    with pytest.raises(ValueError, match="bins is 0"):
        Marginals(-3.0, 3.0, 0)
    with pytest.raises(ValueError, match="4 axes"):
        Grid.cube(1.0, 4)
    with pytest.raises(ValueError, match="empty"):
        _ = Histogram((np.linspace(0, 1, 3),), np.zeros(4)).probabilities


def test_forgotten_histograms_weigh_by_age():
    chains = random_walks()
    for grid, every in ((Grid((-2.0,), (2.0,), 8, forgetting=0.03), 1), (Grid((-2.0,), (2.0,), 8), 1)):
        found = list(over_time(chains, grid, grid.forgetting))
        ages = np.arange(chains.shape[1])[::-1] / every
        weights = np.ones(chains.shape[:2]) * (1 - 0.03) ** ages if grid.forgetting else (ages == 0) * np.ones((6, 1))
        expected = np.histogram(chains[:, :, 0], bins=found[-1].edges[0], weights=weights)[0]
        assert found[-1].inside == pytest.approx(expected)
        assert found[-1].effective == pytest.approx(weights.sum() ** 2 / (weights**2).sum())
    with pytest.raises(ValueError, match=r"forgetting is 1\.5"):
        Grid((0.0,), (1.0,), forgetting=1.5)
    with pytest.raises(ValueError, match="forgetting is 0"):
        Marginals(0.0, 1.0, forgetting=0)


def random_walks():
    return np.random.default_rng(0).standard_normal((6, 200, 1)).cumsum(axis=1) / 10
