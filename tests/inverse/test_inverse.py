"""Algebra: each update equals its formula, in float64, given the noise; and reduces to classical Langevin."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from onlooker import inverse
from onlooker.core.density import flat, standard_normal
from onlooker.core.kernels import Kernel, fourth_order
from onlooker.data.observations import Observation
from onlooker.inverse import ball, classical, nonreversible, passive, reweighted
from onlooker.paper.errata import as_printed, fade
from onlooker.paper.naive import naive

MU, DELTA, BETA, DIM = 3e-3, 0.35, 1.7, 3
SKEW = np.array([[0.0, 1.0, -0.5], [-1.0, 0.0, 2.0], [0.5, -2.0, 0.0]])


@pytest.fixture
def case():
    generator = np.random.default_rng(7)
    alpha, theta, gradient, noise = generator.standard_normal((4, DIM))
    return alpha, alpha + 0.3 * theta, 10 * gradient, noise


def pi(x):
    return np.exp(-(x @ x) / 2) / (2 * np.pi) ** (DIM / 2)


def kernel(u):
    return np.exp(-(u @ u) / (2 * DELTA**2)) / (2 * np.pi * DELTA**2) ** (DIM / 2)


FORMULAS = {
    "classical": lambda a, t, g, w: a + MU * BETA / 2 * g + np.sqrt(MU) * w,
    "passive": lambda a, t, g, w: a + MU * (kernel(t - a) * BETA / 2 * g - a * pi(a)) * pi(a) + np.sqrt(MU) * pi(a) * w,
    "second": lambda a, t, g, w: (
        a + MU * kernel(t - a) * (BETA / 2 * g * pi(t) - t * pi(t)) + np.sqrt(MU * kernel(t - a) * pi(t)) * w
    ),
    "second as printed": lambda a, t, g, w: (
        a
        + MU * kernel(t - a) * (BETA / 2 * g * pi(t) - t * pi(t))
        + np.sqrt(MU / DELTA**DIM) * kernel(t - a) * DELTA**DIM * pi(t) * w
    ),
    "reweighted": lambda a, t, g, w: a + MU * kernel(t - a) * BETA / (2 * pi(a)) * g + np.sqrt(MU) * w,
    "nonreversible": lambda a, t, g, w: (
        a + MU * kernel(t - a) * BETA / (2 * pi(a)) * (np.eye(DIM) + SKEW) @ g + np.sqrt(MU) * w
    ),
    "naive": lambda a, t, g, w: a + MU * kernel(t - a) * g + np.sqrt(2 * MU / BETA) * w,
    "naive, no kernel": lambda a, t, g, w: a + MU * g + np.sqrt(2 * MU / BETA) * w,
}


def make(name, **options):
    density = standard_normal(DIM)
    common = {"step_size": MU, "bandwidth": DELTA, "beta": BETA, **options}
    return {
        "classical": lambda: classical(**{key: common[key] for key in common if key != "bandwidth"}),
        "passive": lambda: passive(density, **common),
        "second": lambda: passive(density, form="second", **common),
        "second as printed": lambda: as_printed(density, **common),
        "reweighted": lambda: reweighted(density, **common),
        "nonreversible": lambda: nonreversible(density, rotation=SKEW, **common),
        "naive": lambda: naive(**common),
        "naive, no kernel": lambda: naive(**{**common, "bandwidth": None}),
    }[name]()


@pytest.mark.parametrize("name", FORMULAS)
def test_update_equals_its_formula(name, case):
    alpha, theta, gradient, noise = case
    with jax.enable_x64(True):
        learner = make(name)
        moved, info = learner.step(
            jnp.asarray(alpha), Observation(jnp.asarray(theta), jnp.asarray(gradient)), jnp.asarray(noise)[None]
        )
        assert np.asarray(moved) == pytest.approx(FORMULAS[name](*case), rel=1e-12, abs=1e-14)
        assert float(info.projected) == 0
        if name not in ("classical", "naive, no kernel"):
            assert float(info.weight) == pytest.approx(kernel(theta - alpha), rel=1e-12)
            assert float(info.distance) == pytest.approx(np.linalg.norm(theta - alpha), rel=1e-12)


@pytest.mark.parametrize("name", FORMULAS)
def test_every_learner_can_be_projected_on_a_ball_and_counts_it(name, case):
    alpha, theta, gradient, noise = case
    with jax.enable_x64(True):
        evidence = Observation(jnp.asarray(theta), jnp.asarray(gradient))
        free = FORMULAS[name](*case)
        radius = 0.5 * np.linalg.norm(free)
        moved, info = make(name, confine=ball(radius)).step(jnp.asarray(alpha), evidence, jnp.asarray(noise)[None])
        assert np.asarray(moved) == pytest.approx(free * radius / np.linalg.norm(free), rel=1e-12)
        assert float(info.projected) == 1


def test_the_proof_s_truncation_fades_the_whole_step(case):
    alpha, theta, gradient, noise = case
    alpha = 2 * alpha / np.linalg.norm(alpha)
    with jax.enable_x64(True):
        evidence = Observation(jnp.asarray(theta), jnp.asarray(gradient))
        whole = FORMULAS["classical"](alpha, theta, gradient, noise) - alpha
        for radius, share in ((3.0, 1.0), (1.5, 0.5), (0.5, 0.0)):
            learner = make("classical", confine=fade(radius))
            moved, info = learner.step(jnp.asarray(alpha), evidence, jnp.asarray(noise)[None])
            assert np.asarray(moved - alpha) == pytest.approx(share * whole, abs=1e-12)
            assert float(info.projected) == (share < 1)


@pytest.mark.parametrize("compiled", [False, True])
def test_reduces_bitwise_to_classical_langevin(compiled):
    """With θ = α, kernel weight 1 and π ≡ 1, `passive` and `reweighted` are the classical step, to the last bit."""
    one = Kernel("one", 2, profile=lambda squared_radius, dim: jnp.ones_like(squared_radius))
    options = {"step_size": 5e-4, "beta": 1.3}
    generator = np.random.default_rng(3)
    alpha, gradient, noise = (jnp.asarray(x, jnp.float32) for x in generator.standard_normal((3, 500, 2)))
    learners = [
        classical(**options),
        passive(flat(), bandwidth=1.0, kernel=one, **options),
        reweighted(flat(), bandwidth=1.0, kernel=one, **options),
    ]
    moved = []
    for learner in learners:
        step = jax.vmap(lambda a, g, w, step=learner.step: step(a, Observation(a, g), w[None])[0])
        moved.append(np.asarray((jax.jit(step) if compiled else step)(alpha, gradient, noise)))
    assert (moved[0] == moved[1]).all()
    assert (moved[0] == moved[2]).all()


def test_zero_density_freezes_passive_and_is_rejected_by_reweighted():
    box = lambda point: jnp.where(jnp.all(jnp.abs(point) < 1), -jnp.log(4.0), -jnp.inf)  # noqa: E731
    outside = jnp.array([2.0, 0.0])
    evidence = Observation(outside, jnp.array([5.0, 5.0]))
    moved, _ = passive(box, step_size=0.1, bandwidth=1.0).step(outside, evidence, jnp.ones((1, 2)))
    assert (moved == outside).all()
    learner = reweighted(box, step_size=0.1, bandwidth=1.0)
    with pytest.raises(ValueError, match="1 of 1 chains where the density is zero"):
        learner.check(outside[None])
    moved, _ = learner.step(outside, evidence, jnp.zeros((1, 2)))
    assert (moved == outside).all()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: make("passive", bandwidth=0.0), "bandwidth is 0.0"),
        (lambda: make("reweighted", step_size=-1.0), "step_size is -1"),
        (lambda: make("classical", beta=float("nan")), "beta is nan"),
        (lambda: passive(flat(), step_size=1.0, bandwidth=1.0, form="third"), "form is 'third'"),
        (lambda: make("second", kernel=fourth_order), "needs √K"),
        (lambda: nonreversible(flat(), rotation=np.eye(2), step_size=1.0, bandwidth=1.0), "skew-symmetric"),
        (lambda: nonreversible(flat(), rotation=np.ones(2), step_size=1.0, bandwidth=1.0), "square matrix"),
        (lambda: ball(0.0), "radius is 0.0"),
    ],
)
def test_errors_name_the_bad_setting(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


def test_what_moved_to_the_paper_works_for_one_release_and_says_where_it_went():
    settings = {"step_size": 1e-3, "bandwidth": 0.3}
    with pytest.warns(DeprecationWarning, match=r"inverse\.naive is now onlooker\.paper\.naive\.naive"):
        assert inverse.naive is naive
    with pytest.warns(DeprecationWarning, match="as_printed"):
        assert passive(standard_normal(2), form="second as printed", **settings).settings["form"] == "second as printed"
    with pytest.warns(DeprecationWarning, match=r"multikernel\(average=\) is now .*listing_multikernel"):
        assert inverse.multikernel(average="resampled", **settings).noise_rows == 2
    with pytest.raises(TypeError, match="unexpected keyword argument 'avarage'"):
        inverse.multikernel(avarage="resampled", **settings)
