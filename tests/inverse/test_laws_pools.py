"""Laws known in closed form, of every inverse learner; orders with their intervals; and the laws of our own methods.

A quadratic reward and points drawn evenly from a box make a chain a linear recursion with random coefficients: its
stationary covariance is exact at any μ and Δ, biases included. Chains have streams of their own, so that their last
positions are independent draws. Every assertion of a law rejects a right sampler once in ten thousand choices of its
seed (FALSE_ALARM), every interval misses what it should hold once in a thousand (MISSES); seeds are fixed. Each law
comes with a wrong one that the same draws reject; `python -m tests.support.mutations` breaks the sources themselves.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2

from onlooker.core.density import Density, standard_normal
from onlooker.data.observations import Observation
from onlooker.engine.run import run
from onlooker.fit import fit as fit_potential
from onlooker.fit.binned_regression import evaluate
from onlooker.fit.memory import binned
from onlooker.inverse import (
    active,
    classical,
    corrected,
    multikernel,
    nonreversible,
    passive,
    remembered,
    replay,
    reweighted,
)
from onlooker.paper.naive import naive
from onlooker.simulation.agents import independent, questions
from onlooker.simulation.exact.averaged import coefficients
from onlooker.simulation.exact.fokker_planck import generator, stationary
from onlooker.simulation.exact.law import cells, exact_law
from onlooker.simulation.reward import NoisyReward
from tests.support.statistics import (
    FALSE_ALARM,
    covariance_p_value,
    follows,
    law_p_value,
    normal_p_value,
    order_interval,
    stein_p_value,
    variation_p_value,
    wasserstein_p_value,
)

BETA, NOISE, HALF_WIDTH = 1.5, 0.7, 4.0


def bowl(curvature):
    """R = −½ αᵀAα with a diagonal A, and gradients of standard deviation NOISE."""
    return NoisyReward(len(curvature), lambda point: -0.5 * jnp.sum(jnp.asarray(curvature) * point**2), NOISE)


def box(dim):
    """π even on [−4, 4]^N: where a chain is, no kernel reaches the edge."""

    def sample(key, shape):
        return jax.random.uniform(key, (*shape, dim), minval=-HALF_WIDTH, maxval=HALF_WIDTH)

    return Density(lambda point: jnp.asarray(-dim * math.log(2 * HALF_WIDTH), point.dtype), sample, dim)


def last(learner, stream, steps, chains=4000, seed=0):
    return run(learner, stream, steps=steps, chains=chains, start=np.zeros(stream.dim), seed=seed).positions


def stationary_covariance(curvature, pull, injected, kicks, reach, *, turn=None):
    """V = M V Mᵀ + D + T[κ(A(V + τ²I)A + s²I) − p² AVA]Tᵀ, with M = I − p T A.

    One step is α − pTAα + √D w plus what single observations add to their mean: κ = E c² of their coefficient c, with
    E c = p, and τ² is the variance of θ − α under c². Linear in V, iterated to its end.
    """
    matrix, unit = np.diag(curvature), np.eye(len(curvature))
    turn = unit if turn is None else turn
    mean = unit - pull * turn @ matrix
    found = unit / np.diag(matrix)
    for _ in range(100_000):
        single = kicks * (matrix @ (found + reach**2 * unit) @ matrix + NOISE**2 * unit)
        kicked = turn @ (single - pull**2 * matrix @ found @ matrix) @ turn.T
        later = mean @ found @ mean.T + injected * unit + kicked
        if np.abs(later - found).max() < 1e-12:
            return later
        found = later
    raise ArithmeticError("there is no stationary law")


def kernel_squares(dim, width):
    """∫K_Δ² = (4πΔ²)^(−N/2), a Gaussian of width Δ/√2."""
    return (4 * np.pi * width**2) ** (-dim / 2), width / np.sqrt(2)


# --- exact laws at finite μ and Δ


def single_kernel(name, step, width):
    """A learner in one dimension on the box, and (pull, injected, kicks, reach) of its recursion."""
    squares, reach = kernel_squares(1, width)
    level = 1 / (2 * HALF_WIDTH)
    options = {"step_size": step, "bandwidth": width, "beta": BETA}
    return {
        "passive": lambda: (
            passive(box(1), **options),
            (step * BETA / 2 * level**2, step * level**2, (step * BETA / 2 * level) ** 2 * squares * level, reach),
        ),
        "second": lambda: (
            passive(box(1), form="second", **options),
            (step * BETA / 2 * level**2, step * level**2, (step * BETA / 2 * level) ** 2 * squares * level, reach),
        ),
        "reweighted": lambda: (
            reweighted(box(1), **options),
            (step * BETA / 2, step, (step * BETA / 2) ** 2 * squares / level, reach),
        ),
        "naive": lambda: (naive(**options), (step * level, 2 * step / BETA, step**2 * squares * level, reach)),
    }[name]()


@pytest.mark.parametrize(
    ("name", "step", "curvature"),
    [
        ("passive", 2.0, 2.0),
        pytest.param("second", 2.0, 2.0, marks=pytest.mark.slow),
        ("reweighted", 0.03, 2.0),
        ("naive", 0.05, 16.0),
    ],
    ids=["passive", "second form", "reweighted", "naive"],
)
def test_single_kernel_learners_have_the_exact_variance_on_an_even_box(name, step, curvature):
    """π = 1/8 on [−4, 4], R = −½aα²: no bias in the mean, and μ, Δ in the variance by `stationary_covariance`.

    `naive` has exp(βπR) in place of exp(βR): a factor π is lost.
    """
    width = 0.4
    learner, recursion = single_kernel(name, step, width)
    draws = last(learner, independent(bowl([curvature]), box(1)), round(12 / (recursion[0] * curvature)))
    assert covariance_p_value(draws, stationary_covariance([curvature], *recursion)) > FALSE_ALARM
    # Without the noise of single observations, which is the bias in μ and Δ, it is another law.
    pull, injected, _, _ = recursion
    assert covariance_p_value(draws, stationary_covariance([curvature], pull, injected, pull**2, 0.0)) < FALSE_ALARM


@pytest.mark.parametrize(("name", "step"), [("passive", 1.0), ("second", 1.0), ("reweighted", 0.015)])
def test_the_averaged_diffusion_has_the_exact_variance_to_first_order(name, step):
    """The oracle knows all of the bias but that of finite steps themselves, a share ½pa of V: no more is missing."""
    axis, curvature = cells(-3.6, 3.6, 0.02), 2.0

    def moments(points):
        mean = -curvature * points
        return mean, (mean**2 + NOISE**2)[..., None]

    def level(points):
        return np.full(points.shape[:-1], 1 / (2 * HALF_WIDTH))

    _, recursion = single_kernel(name, step, 0.4)
    options = {"step_size": step, "bandwidth": 0.4, "beta": BETA}
    found = stationary((axis,), generator((axis,), *coefficients(name, (axis,), moments, level, **options)))
    pull, injected, *_ = recursion
    exact, quiet = (stationary_covariance([curvature], *part)[0, 0] for part in (recursion, (pull, injected, 0, 0)))
    missing = exact - found.covariance[0, 0]
    assert missing == pytest.approx(0.5 * pull * curvature * exact, rel=0.25)
    assert exact - quiet > 5 * missing


def test_the_active_learner_s_exact_variance_at_another_bandwidth_than_its_spread():
    """c = ½μβρ with ρ = K_Δ/p, s = Δ/σ: E ρ² = [s²(2 − s²)]^−½, under which θ − α has variance 1/(2/Δ² − 1/σ²)."""
    step, spread, width = 0.2, 0.4, 0.1
    share = (width / spread) ** 2
    second = (share * (2 - share)) ** -0.5
    reach = (2 / width**2 - 1 / spread**2) ** -0.5
    pull = step * BETA / 2
    exact = stationary_covariance([2.0], pull, step, pull**2 * second, reach)
    draws = last(active(step_size=step, spread=spread, bandwidth=width, beta=BETA), questions(bowl([2.0])), 60)
    assert covariance_p_value(draws, exact) > FALSE_ALARM
    # Without the weights K/p: E ρ² = 1, and the spread of the questions for the kernel's.
    assert covariance_p_value(draws, stationary_covariance([2.0], pull, step, pull**2, spread)) < FALSE_ALARM


SKEW = np.array([[0.0, 1.5], [-1.5, 0.0]])


def test_nonreversible_keeps_the_law_in_two_dimensions_if_its_rotation_is_skew():
    """T = I + S: V is exact; S = −Sᵀ leaves it near A⁻¹/β, a symmetric S of the same size would not."""
    step, width, curvature = 0.01, 0.6, [1.0, 3.0]
    squares, reach = kernel_squares(2, width)
    recursion = (step * BETA / 2, step, (step * BETA / 2) ** 2 * squares * (2 * HALF_WIDTH) ** 2, reach)
    learner = nonreversible(box(2), rotation=SKEW, step_size=step, bandwidth=width, beta=BETA)
    stream = independent(bowl(curvature), box(2))
    draws = last(learner, stream, 500, chains=3000)
    exact = stationary_covariance(curvature, *recursion, turn=np.eye(2) + SKEW)
    assert covariance_p_value(draws, exact) > FALSE_ALARM
    # The bias in μ of the turned noise is in it: the law of `reweighted` is another.
    assert covariance_p_value(draws, stationary_covariance(curvature, *recursion)) < FALSE_ALARM
    wrong = np.abs(SKEW) / 3
    assert covariance_p_value(draws, stationary_covariance(curvature, *recursion, turn=np.eye(2) + wrong)) < FALSE_ALARM


def test_corrected_has_the_law_without_gradient_noise():
    """μD − μ²C injected and μ²C from the gradients make μD: V = μ/(1 − (1 − ½μβa)²), up to the error of C."""
    step, noisy = 0.2, NoisyReward(1, lambda point: -jnp.sum(point**2), 2.0)
    plain = classical(step_size=step, beta=BETA)
    places = np.linspace(-1, 1, 4)[:, None]
    learner = corrected(plain, questions(noisy), places, draws=40_000)
    assert learner.settings["noise_floored"] == 0
    decay = 1 - step * BETA
    right, hot = (spread / (1 - decay**2) for spread in (step, step + (step * BETA) ** 2))
    draws = last(learner, questions(noisy), 60)[:, 0]
    assert normal_p_value(draws, right) > FALSE_ALARM
    assert normal_p_value(draws, hot) < FALSE_ALARM


def test_a_walk_over_many_blocks_repeats_no_noise():
    """With a flat reward α_k is N(0, kμ), over many blocks of noise; twice the same noise would make it N(0, 2kμ)."""
    flat = NoisyReward(1, lambda point: 0 * jnp.sum(point), 0.0)
    draws = last(classical(step_size=0.01), questions(flat), 2048, chains=1000)
    assert normal_p_value(draws[:, 0], 20.48) > FALSE_ALARM
    assert normal_p_value(draws[:, 0], 2 * 20.48) < FALSE_ALARM


# --- orders, with intervals


def test_the_bias_of_classical_is_of_first_order_in_the_step():
    """Var α = (1 + ¼μs²)/(1 − ¼μ) for R = −½α²: what is beyond 1 grows as μ¹, and not as μ²."""
    noisy = NoisyReward(1, lambda point: -0.5 * jnp.sum(point**2), 4.0)
    steps, bias, error = (0.03, 0.15), [], []
    for step in steps:
        settled = round(8 / step)
        chains = run(
            classical(step_size=step),
            questions(noisy),
            steps=settled * 8,
            chains=400,
            start=[0.0],
            burn_in=settled,
            draws=64,
        )
        squares = (chains.samples[:, 8:, 0] ** 2).mean(axis=1)
        bias.append(squares.mean() - 1)
        error.append(squares.std() / np.sqrt(len(squares)))
    low, high = order_interval(steps, bias, error)
    assert low < 1 < high < 2
    assert low > 0


@pytest.mark.slow
def test_the_bias_of_active_is_of_second_order_in_the_bandwidth():
    """R = −¼α⁴: E[(α + Δv)³] = α³ + 3Δ²α. What is missing of E α² grows as Δ², and neither as Δ nor as Δ⁴.

    Chains with the same noise and hardly any Δ are taken off: what is left is the kernel's alone.
    """
    quartic = NoisyReward(1, lambda point: -0.25 * jnp.sum(point**4), 0.0)

    def squares(width):
        learner = active(step_size=0.05, spread=width)
        chains = run(learner, questions(quartic), steps=2048, chains=200, start=[0.0], draws=128, seed=5)
        return (chains.samples[:, 16:, 0] ** 2).mean(axis=1)

    widths, plain = (0.1, 0.2), squares(1e-3)
    missing = [plain - squares(width) for width in widths]
    errors = [part.std() / np.sqrt(len(part)) for part in missing]
    low, high = order_interval(widths, [part.mean() for part in missing], errors)
    assert 1 < low < 2 < high < 4


def test_the_bias_of_multikernel_is_of_second_order_in_the_bandwidth():
    """π = N(0, 1), R = −½α²: E[∇R(θ)|α] = −α/(1 + σ²), by which the slope at large pools falls short as σ²."""
    points = jax.random.normal(jax.random.key(3), (200, 20_000, 1))
    seen = points, -points
    places = jnp.asarray([[0.8], [-0.8]])
    widths, short, error = (0.15, 0.25, 0.4), [], []
    for width in widths:
        step = multikernel(step_size=1.0, bandwidth=width, beta=2.0).step

        def slope(point, gradient, step=step):
            seen = Observation(point, gradient)
            moved = jax.vmap(lambda place: step(place, seen, jnp.zeros((1, 1)))[0] - place)(places)
            return -(moved[0, 0] - moved[1, 0]) / 1.6

        found = np.asarray(jax.lax.map(lambda pool, slope=slope: slope(*pool), seen), float)
        ratio = 1 / found - 1
        short.append(ratio.mean())
        error.append(ratio.std() / np.sqrt(len(ratio)))
    low, high = order_interval(widths, short, error)
    assert 1 < low < 2 < high < 4


# --- our own methods


AXIS = cells(-2.4, 2.4, 0.006)


def wells(points):
    """Two, the right one deeper."""
    return -3.0 * (points[..., 0] ** 2 - 0.36) ** 2 + 0.4 * points[..., 0]


def test_replay_s_law_is_its_field_s_and_near_the_reward_s():
    """dα = ½βĝ dt + dW on the field that it remembers, by χ²; and exp(βR) itself in W1 and total variation.

    W1 and TV of 400 draws are compared with those of exact draws of exp(βR).
    """
    random = np.random.default_rng(4)
    points = random.uniform(-1.6, 1.6, (40_000, 1))
    gradients = 0.4 - 12 * points * (points**2 - 0.36) + random.standard_normal(points.shape)
    memory = binned((-2.0,), (2.0,), cells=128)
    state = remembered(memory, points, gradients, np.arange(len(points)) // 400 % 5 == 0)
    learner = replay(memory, step_size=2e-3, beta=BETA, state=state)
    field = learner.init(1).field
    where = (AXIS[:, None] + 2) / 4
    slope = np.asarray(jax.vmap(lambda share: evaluate(field.gradient, share))(jnp.asarray(where, jnp.float32)))
    beyond = 36 * (where - np.clip(where, 0, 1)) / 4
    law = stationary((AXIS,), generator((AXIS,), BETA / 2 * slope - beyond / 2, np.ones((len(AXIS), 1, 1))))
    still = independent(NoisyReward(1, lambda point: 0 * jnp.sum(point)), standard_normal(1, 1e-3), shared=True)
    # What the stream shows meanwhile is not enough to refresh the field.
    draws = last(learner, still, 1200, chains=2000)[:, 0]
    assert follows(draws, law)
    exact = exact_law(lambda x: BETA * wells(x), (AXIS,))
    some = draws[:400]
    assert wasserstein_p_value(some, exact) > FALSE_ALARM
    assert variation_p_value(some, exact) > FALSE_ALARM
    # Another temperature and another depth are told apart by each.
    for wrong in (exact_law(lambda x: BETA * wells(-x), (AXIS,)), exact_law(lambda x: wells(x) / 3, (AXIS,))):
        found = law_p_value(draws, wrong), wasserstein_p_value(some, wrong), variation_p_value(some, wrong)
        assert max(found) < FALSE_ALARM


@pytest.mark.parametrize("dim", [1, 2])
def test_draws_of_the_fitted_potential_have_its_law_by_stein_s_discrepancy(dim):
    """E k_p(x, y) = 0 under p = exp(βR̂) alone: wild bootstrap; draws at another β, or shifted, are caught."""
    random = np.random.default_rng(dim)
    # In units of a third: a gradient in any others is another one.
    thirds = random.uniform(-2, 2, (20_000, dim))
    slopes = (-thirds - np.sin(2 * thirds) + random.standard_normal(thirds.shape)) / 3
    fit = fit_potential(3 * thirds, slopes, np.arange(len(thirds)) // 400 % 5 == 0)
    drawn = {beta: fit.sample(chains=10, beta=beta, seed=1).samples.reshape(-1, dim) for beta in (3.0, 6.0)}
    some = {beta: part[:: len(part) // 500][:500] for beta, part in drawn.items()}
    assert stein_p_value(some[3.0], 3.0 * fit.gradient(some[3.0])) > FALSE_ALARM
    assert stein_p_value(some[6.0], 3.0 * fit.gradient(some[6.0])) < FALSE_ALARM
    assert stein_p_value(some[3.0] + 0.3, 3.0 * fit.gradient(some[3.0] + 0.3)) < FALSE_ALARM


def test_error_bars_of_the_potential_cover():
    """z = (R̂ − R)/error at one place of each of 100 fits: Σz² is χ² of as many, nearly, and tells a factor of two.

    Bars may be wider than needed, by a prior that knows more than it says, but by less than two.
    """
    squares = []
    for seed in range(100):
        random = np.random.default_rng(seed)
        points = random.standard_normal((1000, 1))
        slopes = -points - np.sin(2 * points) + random.standard_normal(points.shape)
        fit = fit_potential(points, slopes, np.arange(1000) // 40 % 5 == 0)

        def missed(places, fit=fit):
            return fit.value(places) + 0.5 * places[:, 0] ** 2 - 0.5 * np.cos(2 * places[:, 0])

        place = np.array([[random.uniform(-1.5, 1.5)]])
        squares.append(((missed(place) - missed(fit.typical).mean()) / fit.error(place))[0] ** 2)
    assert chi2.sf(np.sum(squares), len(squares)) > FALSE_ALARM
    assert chi2.cdf(np.sum(squares), len(squares)) > FALSE_ALARM
