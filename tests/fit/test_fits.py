"""Conservative fits: their algebra, what they recover, their error bars, and what they say outside the data."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from onlooker.core.density import standard_normal
from onlooker.data.observations import observe
from onlooker.data.quality import inspect
from onlooker.fit import cosine_potential_sums
from onlooker.fit import fit as fit_potential
from onlooker.fit.box import Box
from onlooker.fit.cells import law_on_cells
from onlooker.fit.cosine_sums import CosineSums
from onlooker.fit.quadratic import fit_quadratic
from onlooker.fit.sample import stein
from onlooker.simulation.agents import simulate
from onlooker.simulation.reward import NoisyReward


def wells(point):
    """Three unequal ones."""
    centres = jnp.asarray([[-1.2, 0.0], [1.0, 0.8], [0.6, -1.3]])
    share, width = jnp.asarray([0.5, 0.3, 0.2]), jnp.asarray([0.4, 0.3, 0.35])
    squared = jnp.sum((point[None] - centres) ** 2, axis=1) / width**2
    return jax.scipy.special.logsumexp(jnp.log(share / width**2) - squared / 2)


@pytest.fixture(scope="module")
def seen():
    return simulate(NoisyReward(2, wells, 2.0), standard_normal(2, 1.2), agents=2000, horizon=50, learning_rate=0.01)


@pytest.fixture(scope="module")
def fitted(seen):
    return fit_potential(seen.points, seen.gradients, seen.agents % 5 == 0)


def exact_draws(count=3000):
    generator = np.random.default_rng(1)
    chosen = generator.choice(3, count, p=[0.5, 0.3, 0.2])
    centre, width = np.array([[-1.2, 0.0], [1.0, 0.8], [0.6, -1.3]])[chosen], np.array([0.4, 0.3, 0.35])[chosen]
    return centre + width[:, None] * generator.standard_normal((count, 2))


def test_a_quadratic_is_recovered_and_its_curvature_is_symmetric():
    generator = np.random.default_rng(0)
    curvature = -np.array([[2.0, 0.5, 0], [0.5, 1, -0.3], [0, -0.3, 1.5]])
    points = generator.standard_normal((400, 3)) * [1, 5, 0.2]
    gradients = points @ curvature + [1.0, 2, 3]
    found, error = fit_quadratic(points[:300], gradients[:300], points[300:], gradients[300:])
    assert found.curvature == pytest.approx(curvature, abs=1e-8)
    assert error == pytest.approx(0, abs=1e-12)
    # A field that turns is not a gradient: the best quadratic has no turn in it.
    turning = points @ np.array([[0, 1.0, 0], [-1, 0, 0], [0, 0, 0]])
    found, _ = fit_quadratic(points[:300], turning[:300], points[300:], turning[300:])
    assert found.curvature == pytest.approx(found.curvature.T, abs=1e-12)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_the_normal_matrix_is_read_off_the_sums(dim):
    """Against derivatives of every cosine at every point."""
    generator = np.random.default_rng(dim)
    box, order = Box(-np.ones(dim) * 1.1, np.ones(dim) * 1.3), 4
    points, gradients = generator.uniform(-1, 1, (50, dim)), generator.standard_normal((50, dim))
    sums = CosineSums(box, order)
    sums.add(points[:20], gradients[:20])
    sums.add(points[20:], gradients[20:])

    def cosines(point):
        angle = (point - box.low) * box.rate
        return jnp.stack(
            [jnp.prod(jnp.cos(jnp.asarray(p, float) * angle)) for p in itertools.product(range(order), repeat=dim)]
        )

    with jax.enable_x64(True):
        slopes = np.asarray(jax.vmap(jax.jacfwd(cosines))(jnp.asarray(points)))
    matrix = np.einsum("npi,nqi->pq", slopes, slopes)[1:, 1:]
    assert sums.normal_matrix() == pytest.approx(matrix, rel=1e-9, abs=1e-9)
    assert sums.towards.reshape(-1) == pytest.approx(np.einsum("npi,ni->p", slopes, gradients), abs=1e-9)
    assert sums.truncated(3).normal_matrix().shape == (3**dim - 1,) * 2
    sums.forget(0.25)
    assert sums.normal_matrix() == pytest.approx(0.75 * matrix, rel=1e-9, abs=1e-9)
    assert sums.count == 37.5


def test_three_wells_are_fitted_within_error_bars(fitted):
    draws = exact_draws()
    truth = np.asarray(jax.vmap(wells)(jnp.asarray(draws)))
    difference = fitted.value(draws) - truth
    assert difference.std() < 0.08
    assert (fitted.trend.value((draws - fitted.centre) / fitted.spread) - truth).std() > 0.5
    middle = np.mean(fitted.value(fitted.typical) - np.asarray(jax.vmap(wells)(jnp.asarray(fitted.typical))))
    scores = (difference - middle) / fitted.error(draws)
    assert 0.4 < np.sqrt(np.mean(scores**2)) < 2.5
    assert fitted.held_out_error < 0.8 * fitted.quadratic_error


def test_draws_follow_the_fitted_law(fitted):
    drawn, exact = fitted.law(1.0).draw(20_000, seed=1), exact_draws(20_000)
    assert drawn.mean(axis=0) == pytest.approx(exact.mean(axis=0), abs=0.1)
    assert np.cov(drawn.T) == pytest.approx(np.cov(exact.T), abs=0.12)
    cold = fitted.law(4.0).draw(5000, seed=1)
    assert fitted.value(cold).mean() > fitted.value(drawn).mean() + 0.3


def test_outside_the_data_there_is_a_wall(fitted):
    far = np.array([[30.0, 0], [60.0, 0], [0, -40]])
    assert not fitted.explored(far).any()
    near, farther, _ = fitted.log_density(far, 1.0)
    assert farther < near < fitted.log_density(np.zeros((1, 2)), 1.0)[0] - 100
    assert fitted.explored(exact_draws()).mean() > 0.99


@pytest.mark.parametrize(("dim", "count"), [(1, 60), (1, 300), (2, 100), (2, 300), (3, 300)])
def test_explored_is_right_for_few_rows(dim, count):
    points = np.random.default_rng(dim).standard_normal((count, dim))
    found = fit_potential(points, -points, np.arange(count) % 5 == 0)
    near = points[np.linalg.norm(points, axis=1) < np.sqrt(dim)]
    assert found.explored(near).mean() > 0.9
    assert (found.value(near) + 0.5 * (near**2).sum(axis=1)).std() < 0.05
    assert found.law(1.0).draw(20_000, 0).std(axis=0) == pytest.approx(np.ones(dim), abs=0.25)


def test_steep_rows_inform_without_ruling(monkeypatch):
    """R = −½x² − ½ exp(4y): a few rows at the edge have nearly all of the squared gradients."""
    generator = np.random.default_rng(0)
    points, errors = generator.standard_normal((2, 4000, 2))
    truth = -0.5 * points[:, 0] ** 2 - 0.5 * np.exp(4 * points[:, 1])
    gradients = np.column_stack([-points[:, 0], -2 * np.exp(4 * points[:, 1])]) + 0.3 * errors
    held, likely = np.arange(4000) // 20 % 5 == 0, (np.abs(points[:, 0]) < 2) & (points[:, 1] < 0.25)
    found = fit_potential(points, gradients, held)
    weights = found.weights(points, gradients)
    assert weights[points[:, 1] > 2].max() < 1e-3 * np.median(weights[likely])
    assert found.settings["steep_weights"] > 0
    # A mild reward has equal weights.
    assert "steep_weights" not in fit_potential(points, errors - points, held).settings
    monkeypatch.setattr(cosine_potential_sums, "weighting", lambda *rows: None)
    off, even = ((fit.value(points) - truth)[likely].std() for fit in (found, fit_potential(points, gradients, held)))
    assert off < even / 4


def test_a_row_of_weight_two_is_two_rows_of_a_quadratic():
    generator = np.random.default_rng(1)
    points, gradients = generator.standard_normal((2, 60, 2))
    twice = np.repeat(np.arange(60), generator.integers(1, 3, 60))
    weights = np.bincount(twice).astype(float)
    one, error = fit_quadratic(points, gradients, points, gradients, weights, weights)
    other, same = fit_quadratic(points[twice], gradients[twice], points[twice], gradients[twice])
    assert one.gradient(points) == pytest.approx(other.gradient(points))
    assert error == pytest.approx(same)
    assert one.variance == pytest.approx(other.variance)


def test_error_bars_include_the_quadratic():
    """A quadratic reward leaves the cosines nothing to say; over seeds, z is of order one."""
    squared = []
    for seed in range(12):
        generator = np.random.default_rng(seed)
        points = generator.standard_normal((3000, 1))
        found = fit_potential(
            points, -points + 2 * generator.standard_normal((3000, 1)), np.arange(3000) // 60 % 5 == 0
        )
        places = np.linspace(-1.5, 1.5, 50)[:, None]
        off = found.value(places) + 0.5 * places[:, 0] ** 2
        off -= np.mean(found.value(found.typical) + 0.5 * found.typical[:, 0] ** 2)
        squared.append(np.mean((off / found.error(places)) ** 2))
    assert 0.2 < np.sqrt(np.median(squared)) < 1.8
    assert np.sqrt(np.max(squared)) < 5


def test_the_wall_does_not_depend_on_the_unit_of_reward():
    """The same law from a reward a thousand times as large at a thousandth of β."""
    points = np.random.default_rng(0).standard_normal((5000, 1))
    spreads = [
        fit_potential(points, -0.1 * factor * points, np.arange(5000) % 5 == 0).law(1 / factor).draw(20_000, 0).std()
        for factor in (1.0, 1000.0)
    ]
    assert spreads[1] == pytest.approx(spreads[0], rel=0.02)


def test_cells_follow_a_ridge_that_is_thinner_than_they_are(monkeypatch):
    """exp(−(x − y)²/2w²) on the unit square, with w a fifth of the first cells' width."""
    cells, width = 200, 0.001

    def law():
        return law_on_cells(lambda p: -0.5 * ((p[:, 0] - p[:, 1]) / width) ** 2, np.zeros(2), np.ones(2), cells)

    def spread(found):
        return np.diff(found.draw(100_000, seed=0), axis=1).std()

    found = law()
    assert found.mass.sum() == pytest.approx(1)
    assert found.width.prod(axis=1).sum() == pytest.approx(1)
    assert spread(found) == pytest.approx(width, rel=0.03)
    assert found.rough < 0.01
    # Cells that are not divided cannot show it, and say so.
    monkeypatch.setattr("onlooker.fit.cells.MOST_HALVINGS", 0)
    found = law()
    assert spread(found) > 1.5 * width
    assert found.rough > 0.9


def test_an_even_reward_needs_no_margin():
    """R = cos 2x + ½ cos 2x cos 4y is even about 0 and π/2: a few exact gradients give it to rounding."""
    generator = np.random.default_rng(0)
    points = generator.uniform(0, np.pi / 2, (200, 2))
    x, y = points.T
    gradients = np.stack([-2 * np.sin(2 * x) * (1 + 0.5 * np.cos(4 * y)), -2 * np.cos(2 * x) * np.sin(4 * y)], axis=1)
    places = generator.uniform(0, np.pi / 2, (500, 2))
    truth = np.cos(2 * places[:, 0]) * (1 + 0.5 * np.cos(4 * places[:, 1]))
    held = np.arange(200) % 5 == 0
    even, plain = (fit_potential(points, gradients, held, interval=ends) for ends in ((0.0, np.pi / 2), None))
    missed = [np.std((fit.value(places) - truth)[fit.explored(places)]) for fit in (even, plain)]
    assert missed[0] < 1e-5
    assert missed[1] > 10 * missed[0]


def test_evidence_breaks_ties_between_priors():
    """A quadratic and much noise: whatever is held out, cosines find nothing to add."""
    generator = np.random.default_rng(2)
    points = generator.standard_normal((2000, 2))
    gradients = -points + 5 * generator.standard_normal((2000, 2))
    for split in range(4):
        fit = fit_potential(points, gradients, np.random.default_rng(split).random(2000) < 0.2)
        # By held-out error alone it is .14, 0, 0, .09.
        assert np.std(fit.unit * fit.cosines.value((points - fit.centre) / fit.spread)) < 1e-3


@pytest.mark.parametrize("scale", [0.05, 5.0], ids=["narrow, at an end", "flat"])
def test_the_self_check_between_two_ends(scale):
    """p ∝ exp(−x/s) on [0, π/2]: zero for its own draws up to chance, not for draws of twice the scale."""

    def mismatch(drawn_with):
        share = np.random.default_rng(0).random((20_000, 2)) * -np.expm1(-np.pi / 2 / drawn_with)
        draws = -drawn_with * np.log1p(-share)
        return stein(lambda points: np.full(points.shape, -1 / scale), draws, (0.0, np.pi / 2))

    assert mismatch(scale) < 0.1
    if scale < 1:
        assert mismatch(2 * scale) > 0.5


def test_nothing_is_explored_beside_a_line():
    random = np.random.default_rng(0)
    along = random.standard_normal((6000, 1))
    points = np.hstack([along, 0.5 * along]) + 1e-6 * random.standard_normal((6000, 2))
    rows = points, random.standard_normal(points.shape) - points
    found = fit_potential(*rows, np.arange(6000) % 5 == 0)
    places = np.array([[0.0, 0.0], [0.5, 0.25], [0.5, 0.0], [0.0, 0.35]])
    assert found.explored(places).tolist() == [True, True, False, False]
    (message,) = (one for one in inspect(observe(*rows))[1] if one.code == "points-flat")
    assert message.numbers["dimensions"] == 1
    assert "lie on a line" in str(message)
    # Correlated is not flat.
    points[:, 1] += 0.05 * random.standard_normal(6000)
    assert all(one.code != "points-flat" for one in inspect(observe(points, rows[1]))[1])
