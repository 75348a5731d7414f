"""Weights of features from sums of k × k numbers: their algebra, and what their errors and tests promise."""

import numpy as np
import pytest

from onlooker.fit import linear
from onlooker.fit.linear import LinearSums, begin_linear
from onlooker.fit.linear_weights import solve_weights

W = np.array([1.0, -2.0, 0.5])
K, DIM = len(W), 8
CENTRED = np.eye(K) - 1 / K


def world(seed, agents=6, steps=12, noise=1.0, parts=1, blur=1.0, mix=None, w=W):
    """Rows of agents: Jacobians (parts, n, k, dim), gradients, agents, times; noise differs by coordinate and agent.

    Each row's Jacobian is near the one before, as along a path, and ``mix`` (k, k) makes features of features.
    """
    random = np.random.default_rng(seed)
    base = random.standard_normal((agents, 1, K, DIM)) + 0.7 * random.standard_normal((agents, steps, K, DIM))
    exact = base.reshape(-1, K, DIM)
    spread = np.linspace(0.3, 3, DIM) * np.repeat(np.linspace(0.5, 2, agents), steps)[:, None]
    gradients = np.einsum("nkd,k->nd", exact, w) + noise * spread * random.standard_normal((agents * steps, DIM))
    seen = exact if mix is None else np.einsum("nkd,kj->njd", exact, mix)
    jacobians = np.stack([seen] * parts)
    if parts > 1:
        jacobians = jacobians + blur * random.standard_normal(jacobians.shape)
    return jacobians, gradients, np.repeat(np.arange(agents), steps), np.tile(np.arange(steps), agents)


def summed(jacobians, gradients, *rest):
    sums = begin_linear(jacobians, gradients)
    sums.add(jacobians, gradients, *rest)
    return sums


def test_sums_are_their_formulas():
    jacobians, gradients, agents, times = world(0)
    sums = summed(jacobians, gradients, agents, times)
    j, d = jacobians[0], sums.scale
    assert np.allclose(sums.products, np.einsum("nkd,d,nld->nkl", j, d, j))
    assert np.allclose(sums.targets, np.einsum("nkd,d,nd->nk", j, d, gradients))
    assert np.allclose(sums.powers, (gradients**2 * d).sum(axis=1))
    residual = gradients - np.einsum("nkd,k->nd", j, W)
    lagged = np.zeros(len(agents))
    for lag in (1, 2, 3):
        same = agents[lag:] == agents[:-lag]
        lagged[lag:] += same * np.einsum("nd,d,nd->n", residual[lag:], d, residual[:-lag])
    square = np.einsum("k,nkl,l->n", W, sums.lag_products, W)
    assert np.allclose(sums.lag_powers - sums.lag_targets @ W + square, lagged, atol=1e-4)
    assert sums.pairs.tolist() == np.minimum(times, 3).tolist()


def test_rows_before_a_restart_are_of_another_run():
    jacobians, gradients, agents, times = world(0, agents=1)
    restarted = summed(jacobians, gradients, agents, np.where(times < 5, times, times - 5))
    assert restarted.pairs.tolist() == [0, 1, 2, 3, 3, 0, 1, 2, 3, 3, 3, 3]


def test_noisy_agents_count_less():
    """Rows of half of the agents with thirty times the noise hardly spoil what the others tell."""
    errors = []
    for seed in range(30):
        jacobians, gradients, agents, times = world(seed)
        loud = 30 * np.random.default_rng(seed).standard_normal(gradients.shape) * (agents % 2)[:, None]
        found = solve_weights(summed(jacobians, gradients + loud, agents, times))
        quiet = agents % 2 == 0
        alone = solve_weights(summed(jacobians[:, quiet], gradients[quiet], agents[quiet], times[quiet]))
        errors.append([np.linalg.norm(one.values - W) for one in (found, alone)])
    assert np.mean(errors, axis=0)[0] < 3 * np.mean(errors, axis=0)[1]


def test_solution_is_weighted_least_squares_and_the_jackknife_leaves_out_each_row():
    sums = summed(*world(0, agents=1, steps=30))
    found = solve_weights(sums)
    a, b = sums.products, sums.targets
    assert np.allclose(found.values, np.linalg.solve(a.sum(axis=0), b.sum(axis=0)))
    one_out = np.array([np.linalg.solve(a.sum(axis=0) - a[i], b.sum(axis=0) - b[i]) for i in range(30)])
    moved = one_out - one_out.mean(axis=0)
    assert np.allclose(found.covariance, 29 / 30 * moved.T @ moved)


def test_rows_may_come_in_any_pieces_and_interleaved(monkeypatch):
    jacobians, gradients, agents, times = world(1)
    whole = solve_weights(summed(jacobians, gradients, agents, times))
    monkeypatch.setattr(linear, "SETTINGS", linear.LinearSettings(together=5 * K * DIM))
    pieces, order = begin_linear(jacobians, gradients), np.lexsort((agents, times))
    for rows in np.array_split(order, 7):
        pieces.add(jacobians[:, rows], gradients[rows], agents[rows], times[rows])
    found = solve_weights(pieces)
    assert np.allclose(found.values, whole.values)
    assert np.allclose(found.covariance, whole.covariance)
    # The same pairs, summed in another order: as many increments, so the same z.
    assert found.misfit == pytest.approx(whole.misfit, abs=1e-4)


def test_sums_join_and_fade():
    jacobians, gradients, agents, times = world(2)
    begun = begin_linear(jacobians, gradients)
    parts = []
    for half in (agents < 3, agents >= 3):
        part = LinearSums(**{**vars(begun)})
        part.add(jacobians[:, half], gradients[half], agents[half], times[half])
        parts.append(part)
    joined = parts[0].joined(parts[1])
    whole = solve_weights(summed(jacobians, gradients, agents, times))
    assert np.allclose(solve_weights(joined).values, whole.values)
    assert np.allclose(solve_weights(joined).covariance, whole.covariance)
    assert solve_weights(joined).misfit == pytest.approx(whole.misfit)
    # Faded to nothing, the first half does not count.
    parts[0].forget(1 - 1e-9)
    faded = solve_weights(parts[0].joined(parts[1]))
    assert np.allclose(faded.values, solve_weights(parts[1]).values, atol=1e-3)
    assert parts[0].joined(parts[1]).count == pytest.approx(36)


def test_many_rows_are_summed_in_pairs_and_tell_the_same(monkeypatch):
    rows = world(3, steps=60)
    whole = solve_weights(summed(*rows))
    monkeypatch.setattr(linear, "SETTINGS", linear.LinearSettings(most_rows=200))
    sums = summed(*rows)
    assert len(sums) <= 200
    assert sums.count == 360
    few = solve_weights(sums)
    assert np.allclose(few.values, whole.values)
    assert np.diag(few.covariance) == pytest.approx(np.diag(whole.covariance), rel=0.5)


def test_independent_parts_are_unbiased_and_their_plain_product_is_not():
    """120 runs: the mean of the pairs' weights is within 4.5 standard errors, that of the mean J's far outside."""
    right, plain = [], []
    for seed in range(120):
        jacobians, *rest = world(seed, parts=5, blur=2.0, noise=0.5)
        right.append(solve_weights(summed(jacobians, *rest)).values)
        plain.append(solve_weights(summed(jacobians.mean(axis=0, keepdims=True), *rest)).values)
    away = np.abs(np.mean([right, plain], axis=1) - W)
    errors = np.std([right, plain], axis=1) / np.sqrt(120)
    # The ratio of means is biased by the square of its spread.
    assert (away[0] < 4.5 * errors[0] + 0.02).all()
    assert (away[1] > 10 * errors[1]).all()


def test_gradients_of_the_same_paths_need_crossed_parts():
    """The noise of g is that of J: crossed parts leave it out, an unaware product does not."""
    crossed, unaware = [], []
    for seed in range(60):
        jacobians, _, agents, times = world(seed, parts=4, blur=2.0)
        gradients = np.einsum("pnkd,k->pnd", jacobians, W) + np.random.default_rng(seed).normal(size=(4, 72, DIM))
        crossed.append(solve_weights(summed(jacobians, gradients, agents, times)).values)
        unaware.append(solve_weights(summed(jacobians, gradients.mean(axis=0), agents, times)).values)
    assert np.abs(np.mean(crossed, axis=0) - W).max() < 0.1
    assert np.linalg.norm(np.mean(unaware, axis=0)) > 1.1 * np.linalg.norm(W)


@pytest.mark.parametrize(("parts", "agents", "steps", "runs"), [(1, 6, 12, 300), (1, 1, 15, 300), (4, 6, 12, 60)])
def test_intervals_cover_and_the_misfit_test_is_seldom_wrong(parts, agents, steps, runs):
    """Coverage of 3 weights within 4.5 standard errors of .95 or above, but not far; 1 % alarms, within 4.5."""
    covered, alarms, reliability = [], 0, []
    for seed in range(runs):
        found = solve_weights(summed(*world(seed, agents, steps, parts=parts, blur=4.0)))
        low, high = found.interval(np.eye(K))
        # Nothing is said about what parts are too noisy to show.
        covered += [*((low <= W) & (high >= W))[~np.isnan(low)]]
        alarms += abs(found.misfit) > 2.576
        reliability.append(found.reliability)
    # The three intervals of a run are nearly independent.
    assert len(covered) > 1.8 * runs
    assert 0.95 - 4.5 * np.sqrt(0.95 * 0.05 / len(covered)) - 0.01 < np.mean(covered) < 0.998
    assert alarms < 0.01 * runs + 4.5 * np.sqrt(0.01 * runs)
    # Parts are noisy enough for the sets of Anderson and Rubin.
    assert (np.median(reliability) < 0.3) == (parts > 1)


def test_what_is_left_out_shows_in_later_residuals():
    right = solve_weights(summed(*world(0, steps=40)))
    assert right.explained == pytest.approx(1, abs=4 * right.explained_error)
    merged = np.array([[1.0, 0], [1, 0], [0, 1]])
    wrong = solve_weights(summed(*world(0, steps=40, mix=merged)))
    assert wrong.misfit > 5
    assert wrong.explained < 0.9
    assert wrong.by_agent
    assert not right.by_agent
    single = world(0)
    assert np.isnan(solve_weights(summed(*single[:2], np.arange(72), single[3])).misfit)


def test_directions_that_nothing_shows_have_no_number():
    """Features that sum to a constant: only differences are known, from exact Jacobians and from parts."""
    for parts in (1, 4):
        jacobians, gradients, *rest = world(0, parts=parts, blur=0.5, mix=CENTRED, w=CENTRED @ W, steps=40)
        if parts > 1:
            # The constant is not zero in any part, but its mean is.
            jacobians = jacobians + np.random.default_rng(9).normal(size=(parts, 240, 1, DIM))
        found = solve_weights(summed(jacobians, gradients, *rest))
        assert np.abs(found.unidentified[:, 0]) == pytest.approx(np.full(K, K**-0.5))
        assert found.unidentified.shape == (K, 1)
        assert np.isnan(found.contrast(np.eye(K))[0]).all()
        value, error = found.contrast(np.array([[1.0, -1, 0]]))
        assert abs(value[0] - 3) < 4 * error[0]


def test_unknown_rates_are_found_with_the_weights():
    """60 runs of 12 agents with rates a factor of ten apart, judged up to the scale that nobody sees."""
    covered, unit = [], W / np.linalg.norm(W)
    for seed in range(60):
        rates = 10 ** np.random.default_rng(seed).uniform(-1.5, -0.5, 12)
        jacobians, gradients, agents, times = world(seed, agents=12, noise=0.5)
        found = solve_weights(summed(jacobians, rates[agents][:, None] * gradients, agents, times), True)
        assert np.corrcoef(found.rates, rates)[0, 1] > 0.97
        assert found.rates.mean() == pytest.approx(1)
        # Across the true direction, the length does not matter.
        across = np.linalg.svd(unit[None])[2][1:]
        low, high = found.interval(across)
        covered.append((low <= 0) & (high >= 0))
    assert 0.95 - 4.5 * np.sqrt(0.95 * 0.05 / 120) < np.mean(covered)
    plain = solve_weights(summed(jacobians, rates[agents][:, None] * gradients, agents, times))
    assert plain.misfit > 3


def test_without_noise_everything_is_exact():
    found = solve_weights(summed(*world(0, noise=0.0)))
    assert found.values == pytest.approx(W, abs=1e-8)
    assert found.left < 1e-12
