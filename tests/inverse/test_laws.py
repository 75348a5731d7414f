"""Laws: what the chains sample, against exact densities and Fokker–Planck oracles; and mutations that must fail.

One-dimensional, with a double-well reward. Every chain has a stream of its own, so final positions are independent
draws, and a χ² test with a false-alarm rate of 1e-4 decides (tests/support/statistics.py).
"""

import jax.numpy as jnp
import numpy as np
import pytest

from onlooker.core.density import standard_normal
from onlooker.core.kernels import fourth_order
from onlooker.engine.run import run
from onlooker.inverse import InverseLearner, ball, classical, passive, reweighted
from onlooker.paper.errata import as_printed, fade
from onlooker.simulation.agents import independent, questions, running
from onlooker.simulation.exact.averaged import coefficients
from onlooker.simulation.exact.fokker_planck import evolve, generator, stationary
from onlooker.simulation.exact.law import GridLaw, cells, exact_law
from onlooker.simulation.reward import NoisyReward
from tests.support.statistics import FALSE_ALARM, follows, law_p_value, normal_p_value
from tests.support.streams import CorrelatedNoise, wandering

SCALE, NOISE = 0.8, 1.0
AXIS = cells(-3.2, 3.2, 0.008)


def value(point):
    return -3.0 * jnp.sum((point**2 - 0.36) ** 2)


WELLS = NoisyReward(1, value, NOISE)
DENSITY = standard_normal(1, SCALE)


def pi(points):
    return np.exp(-0.5 * (points[..., 0] / SCALE) ** 2) / np.sqrt(2 * np.pi * SCALE**2)


def moments(points):
    mean = -12 * points * (points**2 - 0.36)
    return mean, (mean**2 + NOISE**2)[..., None]


def averaged(name, **settings):
    drift, diffusion = coefficients(name, (AXIS,), moments, pi, **settings)
    return generator((AXIS,), drift, diffusion)


def near(place, width=0.02):
    return exact_law(lambda x: -0.5 * ((x[..., 0] - place) / width) ** 2, (AXIS,))


def final(learner, steps, chains=12_000, stream=None, start=0.3, seed=0):
    stream = independent(WELLS, DENSITY) if stream is None else stream
    generator_ = np.random.default_rng(seed)
    starts = start + 0.02 * generator_.standard_normal((chains, 1))
    return run(learner, stream, steps=steps, chains=chains, start=starts, seed=seed).positions[:, 0]


# --- an exact law: with a quadratic reward the chain is an AR(1) process


@pytest.mark.parametrize(("step", "noise"), [(0.4, 0.0), (0.4, 3.0)])
def test_classical_has_the_exact_ar1_law_of_a_quadratic_reward(step, noise):
    """α ← (1 − μβa/2) α + noise: N(0, (μ + μ²β²s²/4)/(1 − (1 − μβa/2)²)), the bias in μ included."""
    beta, curvature = 1.5, 2.0
    reward = NoisyReward(1, lambda point: -0.5 * curvature * jnp.sum(point**2), noise)
    draws = final(classical(step_size=step, beta=beta), 200, stream=questions(reward))
    decay = 1 - step * beta * curvature / 2
    exact = (step + (step * beta * noise / 2) ** 2) / (1 - decay**2)
    assert normal_p_value(draws, exact) > FALSE_ALARM
    # The law without the bias, exp(βR) itself, is another one at this step: the test can tell.
    assert normal_p_value(draws, 1 / (beta * curvature)) < FALSE_ALARM


# --- Theorem 1: the law of α(t), not only where it ends


def test_theorem_1_at_two_times():
    """The interpolated chain at t = kμ against the time-dependent equation, at finite μ and Δ."""
    step, width = 8e-3, 0.2
    finite = averaged("passive", step_size=step, bandwidth=width)
    early, late = (evolve(near(0.3), finite, time) for time in (0.4, 2.0))
    for law, other, time in ((early, late, 0.4), (late, early, 2.0)):
        draws = final(passive(DENSITY, step_size=step, bandwidth=width), round(time / step), chains=6000)
        assert follows(draws, law)
        # The law at one time is not the law at another: the test can tell.
        assert law_p_value(draws, other) < 1e-10


@pytest.mark.slow
def test_theorem_1_law_in_time():
    """The interpolated chain at t = kμ against the time-dependent equation: at finite μ, Δ, and in the limit."""
    times = (0.5, 1.0, 2.0)
    limit = averaged("passive", step_size=0.0, bandwidth=1e-3)
    variations = []
    for step, width in ((8e-3, 0.2), (1e-3, 0.1)):
        starts = 0.3 + 0.02 * np.random.default_rng(0).standard_normal((12_000, 1))
        learner = passive(DENSITY, step_size=step, bandwidth=width)
        chains = run(
            learner, independent(WELLS, DENSITY), steps=round(2 / step), chains=12_000, start=starts, thin=1, draws=2000
        )
        finite = averaged("passive", step_size=step, bandwidth=width)
        for time in times:
            at = round(time / step) // chains.sample_every - 1
            own = evolve(near(0.3), finite, (at + 1) * chains.sample_every * step)
            assert follows(chains.samples[:, at, 0], own)
        variations.append([variation(evolve(near(0.3), finite, t), evolve(near(0.3), limit, t)) for t in times])
    # The oracle of the finite chain tends to the theorem's as μ → 0 with μ/Δ → 0.
    assert (np.array(variations[1]) < 0.5 * np.array(variations[0])).all()
    assert max(variations[1]) < 0.012
    # The law at one time is not the law at another: the test can tell.
    assert law_p_value(chains.samples[:, at, 0], evolve(near(0.3), finite, 1.0)) < 1e-10


def variation(one: GridLaw, other: GridLaw) -> float:
    return 0.5 * float(np.abs(one.mass - other.mass).sum())


# --- stationary laws, and mutations of them that must fail


MUTATIONS = {
    "wrong sign": lambda a, e, w: LEARNER.step(a, e._replace(gradient=-e.gradient), w),
    "missing π in the drift": lambda a, e, w: LEARNER.step(a, e._replace(gradient=e.gradient / DENSITY.value(a)), w),
    "μ for √μ": lambda a, e, w: LEARNER.step(a, e, w * np.sqrt(STEP)),
    "no ∇π": lambda a, e, w: LEARNER.step(a - STEP * DENSITY.value(a) * DENSITY.value_and_gradient(a)[1], e, w),
}
STEP, WIDTH = 4e-3, 0.15
LEARNER = passive(DENSITY, step_size=STEP, bandwidth=WIDTH)


@pytest.fixture(scope="module")
def passive_law():
    return stationary((AXIS,), averaged("passive", step_size=STEP, bandwidth=WIDTH))


def test_passive_s_stationary_law(passive_law):
    assert follows(final(LEARNER, 6000, chains=3000), passive_law)


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_mutations_of_passive_are_caught(mutation, passive_law):
    mutant = InverseLearner(mutation, MUTATIONS[mutation], {})
    assert law_p_value(final(mutant, 1500, chains=2000), passive_law) < 1e-10


def test_second_form_corrected_and_as_printed():
    law = stationary((AXIS,), averaged("second", step_size=STEP, bandwidth=WIDTH))
    right = passive(DENSITY, step_size=STEP, bandwidth=WIDTH, form="second")
    printed = as_printed(DENSITY, step_size=STEP, bandwidth=WIDTH)
    assert follows(final(right, 6000, chains=2000), law)
    assert law_p_value(final(printed, 2000, chains=2000), law) < 1e-10


def test_reweighted_s_stationary_law():
    step = 1e-3
    law = stationary((AXIS,), averaged("reweighted", step_size=step, bandwidth=WIDTH))
    learner = reweighted(DENSITY, step_size=step, bandwidth=WIDTH, confine=ball(2.2))
    assert follows(final(learner, 5000, chains=5000), law)


@pytest.mark.slow
def test_a_fourth_order_kernel_has_less_bias():
    """At Δ = .2 the Gaussian's variance is .028 short; the fourth-order kernel leaves a third of that."""
    exact = exact_law(lambda x: -3.0 * (x[..., 0] ** 2 - 0.36) ** 2, (AXIS,)).covariance[0, 0]
    biases = []
    for kernel in ("gaussian", fourth_order):
        learner = reweighted(DENSITY, step_size=1e-3, bandwidth=0.2, kernel=kernel, confine=ball(2.2))
        stream = independent(WELLS, DENSITY)
        chains = run(learner, stream, steps=6000, chains=4000, start=[0.3], burn_in=2000)
        biases.append(exact - chains.covariance[0, 0])
    assert biases[0] == pytest.approx(0.028, abs=0.006)
    assert biases[1] == pytest.approx(0.009, abs=0.006)


# --- the single-kernel remarks of the paper: other streams, same limit


STREAMS = {
    "gradient noise AR(1)": lambda: independent(CorrelatedNoise(WELLS, 0.5), DENSITY),
    "an ergodic Markov chain": lambda: wandering(
        WELLS, lambda place, z: 0.5 * place + np.sqrt(0.75) * SCALE * z, start=[0.0]
    ),
    "random stopping times": lambda: running(
        WELLS, DENSITY, learning_rate=1e-5, stop=lambda age, point, gradient, uniform: uniform < 0.3
    ),
}


@pytest.mark.parametrize("kind", STREAMS)
def test_other_streams_have_the_same_limit(kind):
    """Correlation over a few steps adds O(μ) noise and no more: at a small μ the law is the independent stream's."""
    learner = passive(DENSITY, step_size=1e-3, bandwidth=0.2)
    law = evolve(near(0.3), averaged("passive", step_size=1e-3, bandwidth=0.2), 4.0)
    assert follows(final(learner, 4000, chains=5000, stream=STREAMS[kind]()), law)


# --- orders, measured on the chains themselves


def test_measured_bias_in_the_step_has_the_predicted_slope():
    """Var α − Var exp(R) of `classical` over μ, against the oracle's, within four standard errors each."""
    excess, predicted, error = [], [], []
    exact = stationary((AXIS,), averaged("classical", step_size=0.0)).covariance[0, 0]
    quiet = NoisyReward(1, value, 4.0)
    for step in (5e-3, 1e-2, 2e-2):
        draws = final(classical(step_size=step), round(20 / step), chains=6000, stream=questions(quiet))
        mean = -12 * AXIS * (AXIS**2 - 0.36)
        spread = 1 + step / 4 * 16.0 * np.ones_like(mean)
        law = stationary((AXIS,), generator((AXIS,), mean[:, None] / 2, spread[:, None, None]))
        excess.append(draws.var() - exact)
        predicted.append(law.covariance[0, 0] - exact)
        error.append(np.std((draws - draws.mean()) ** 2) / np.sqrt(len(draws)))
    assert (np.abs(np.array(excess) - predicted) < 4 * np.array(error) + 1e-3).all()
    assert predicted[2] / predicted[0] == pytest.approx(4, rel=0.15)


def test_measured_bias_in_the_bandwidth_has_the_predicted_slope():
    """Var exp(R) − Var α of `reweighted` over Δ, averaged over time, against the oracle's; it grows as Δ²."""
    exact = stationary((AXIS,), averaged("classical", step_size=0.0)).covariance[0, 0]
    missing, predicted = [], []
    for width in (0.1, 0.2):
        learner = reweighted(DENSITY, step_size=1e-3, bandwidth=width, confine=ball(2.2))
        chains = run(learner, independent(WELLS, DENSITY), steps=8000, chains=4000, start=[0.3], burn_in=2000)
        law = stationary((AXIS,), averaged("reweighted", step_size=1e-3, bandwidth=width))
        noiseless = stationary((AXIS,), averaged("reweighted", step_size=0.0, bandwidth=width))
        # The gradient noise adds variance of its own, which the oracle knows: what is left is the kernel's doing.
        missing.append(exact + (law.covariance - noiseless.covariance)[0, 0] - chains.covariance[0, 0])
        predicted.append(exact - noiseless.covariance[0, 0])
    assert np.array(missing) == pytest.approx(predicted, abs=0.004)
    assert missing[1] / missing[0] == pytest.approx(4, abs=1.3)


# --- confinement


def test_the_proof_s_truncation_piles_up_at_the_edge_and_projection_does_not():
    """N(0, 1) has .317 of its mass beyond 1: q_M keeps too much of it there; a ball at 2 does not touch it."""
    reward = NoisyReward(1, lambda point: -0.5 * jnp.sum(point**2), 0.0)
    beyond = []
    for confine in (fade(1.0), ball(2.0)):
        learner = classical(step_size=0.02, confine=confine)
        draws = run(learner, questions(reward), steps=2000, chains=4000, start=[0.0]).positions
        beyond.append((np.abs(draws) > 1).mean())
    assert beyond[0] > 0.45
    assert beyond[1] == pytest.approx(0.317, abs=0.03)
