"""Kernel regression on remembered gradients: its algebra, its orders, its law, and the bandwidth it chooses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import onlooker
from onlooker.core.density import standard_normal
from onlooker.fit.binned_regression import evaluate, fit_field, levels, scores
from onlooker.fit.kernel_regression import VARIANTS, regress, solve_positive
from onlooker.fit.memory import binned, reservoir
from onlooker.inverse.replay import remembered, replay
from onlooker.simulation.agents import independent, simulate
from onlooker.simulation.reward import NoisyReward

BOWL = NoisyReward(2, lambda point: -(point[0] ** 2) - 0.5 * (point[1] - 0.5) ** 2, 0.5)


def at(position, point, gradient, bandwidth, variant, enough=1.0):
    kept = jnp.ones(len(point), bool)
    found = jax.jit(regress, static_argnames="variant")(
        *(jnp.asarray(part, jnp.float32) for part in (position, point, gradient)),
        kept,
        bandwidth,
        variant=variant,
        enough=enough,
    )
    return [np.asarray(part) for part in found]


def test_small_linear_systems_are_solved():
    generator = np.random.default_rng(0)
    root = generator.standard_normal((7, 4, 4))
    matrix, right = root @ root.transpose(0, 2, 1) + np.eye(4), generator.standard_normal((7, 4, 3))
    found = np.asarray(solve_positive(jnp.asarray(matrix, jnp.float32), jnp.asarray(right, jnp.float32)))
    assert found == pytest.approx(np.linalg.solve(matrix, right), abs=1e-4)


def test_the_kernel_mean_equals_its_formula():
    generator = np.random.default_rng(1)
    point, gradient = generator.standard_normal((50, 3)), generator.standard_normal((50, 3))
    weight = np.exp(-(point**2).sum(axis=1) / (2 * 0.7**2))
    mean, ess, width = at(np.zeros(3), point, gradient, 0.7, "constant")
    assert mean == pytest.approx(weight @ gradient / weight.sum(), abs=1e-4)
    assert ess == pytest.approx(weight.sum() ** 2 / (weight**2).sum(), rel=1e-4)
    assert width == pytest.approx(0.7)


def test_local_linear_regression_recovers_a_linear_field():
    """The linear variant is exact for a linear field; the mean feels the slope of the density."""
    generator = np.random.default_rng(2)
    point = generator.exponential(0.5, (400, 2))
    matrix = np.array([[-2.0, 0.5], [0.3, -1.0]])
    here = np.array([0.4, 0.3])
    found = {variant: at(here, point, point @ matrix, 0.3, variant)[0] for variant in VARIANTS}
    assert found["linear"] == pytest.approx(here @ matrix, abs=0.01)
    assert np.abs(found["constant"] - here @ matrix).max() > 0.05


def test_regression_error_has_the_predicted_order():
    """Over even points the bias of x⁴ falls as σ² with plain weights and as σ⁴ with signed ones."""
    point = np.linspace(-4, 4, 40_001)[:, None]
    bias = {
        variant: [abs(float(at([0.8], point, point**4, width, variant)[0][0]) - 0.8**4) for width in (0.2, 0.4)]
        for variant in ("constant", "fourth order")
    }
    slope = {variant: np.log2(wide / narrow) for variant, (narrow, wide) in bias.items()}
    assert slope["constant"] == pytest.approx(2, abs=0.15)
    assert slope["fourth order"] == pytest.approx(4, abs=0.3)


def test_bandwidths_widen_until_there_are_neighbours():
    point = np.linspace(0, 1, 21)[:, None]
    _, few, narrow = at([0.5], point, point, 0.01, "constant", enough=1.0)
    _, many, wide = at([0.5], point, point, 0.01, "constant", enough=8.0)
    assert narrow == pytest.approx(0.01)
    assert few < 8 <= many
    assert wide > 0.05


@pytest.fixture(scope="module")
def seen():
    return simulate(BOWL, standard_normal(2, 1.2), agents=1000, horizon=30, learning_rate=0.02)


def field_of(seen, held):
    memory = binned((-4.0, -4.0), (4.0, 4.0), cells=48)
    state = remembered(memory, seen.points, seen.gradients, held)
    return memory, state, fit_field(state, 10.0)


def test_the_binned_field_approximates_the_gradient(seen):
    _, state, field = field_of(seen, seen.agents % 5 == 0)
    places = np.random.default_rng(0).uniform([-1, -0.5], [1, 1.5], (200, 2))
    look = jax.jit(jax.vmap(evaluate, in_axes=(None, 0)))
    found = np.asarray(look(field.gradient, jnp.asarray((places + 4) / 8, jnp.float32)))
    truth = np.stack([-2 * places[:, 0], 0.5 - places[:, 1]], axis=1)
    assert np.sqrt(((found - truth) ** 2).mean()) < 0.06
    # Held-out rows prefer a line through many points, and say how noisy gradients are (0.5² twice).
    assert VARIANTS[int(field.choice[0])] == "linear"
    assert float(field.error) == pytest.approx(0.5, abs=0.03)
    errors = np.asarray(scores(state, 10.0))
    assert errors[1, int(field.choice[1])] < errors[1, 0]
    assert len(levels(48)) == errors.shape[1]


def test_a_replay_step_equals_its_formula(seen):
    memory, state, field = field_of(seen, seen.agents % 5 == 0)
    learner = replay(memory, step_size=0.01, beta=3.0, state=state)
    position, noise = jnp.asarray([0.3, -0.2]), jnp.asarray([[0.5, -1.0]])
    moved, info = learner.step(position, learner.init(2), noise)
    slope = evaluate(field.gradient, (position + 4) / 8)
    assert np.asarray(moved) == pytest.approx(np.asarray(position + 0.015 * slope + 0.1 * noise[0]), abs=1e-6)
    assert info.kernel_ess > 100
    outside, info = learner.step(jnp.asarray([9.0, 0.0]), learner.init(2), jnp.zeros((1, 2)))
    edge = evaluate(field.gradient, jnp.asarray([13 / 8, 0.5]))
    pull = 36 * (13 / 8 - 1) / 8
    assert outside[0] == pytest.approx(float(9 + 0.015 * edge[0] - 0.005 * pull), abs=1e-5)
    assert info.projected == 1


def test_replay_learns_from_the_stream_while_it_runs():
    """A stream, an empty memory: the chains' variances are exp(R)'s, and the field is what was seen so far."""
    memory = binned((-4.0, -4.0), (4.0, 4.0), cells=48)
    stream = independent(BOWL, standard_normal(2), shared=True)
    result = onlooker.run(replay(memory, step_size=0.02), stream, steps=40_000, chains=64, burn_in=10_000)
    assert result.mean == pytest.approx([0, 0.5], abs=0.08)
    assert np.diag(result.covariance) == pytest.approx([0.5, 1.0], rel=0.1)
    assert result.diagnostics["bandwidth_used"] > 0


@pytest.mark.slow
def test_replay_on_remembered_points_in_many_dimensions():
    """Four dimensions, a reservoir of points."""
    reward = NoisyReward(4, lambda point: -0.5 * jnp.sum(point * point), 0.3)
    watched = simulate(reward, standard_normal(4, 1.2), agents=400, horizon=20, learning_rate=0.02)
    result = onlooker.reconstruct(watched.points, watched.gradients, agents=watched.agents, method="replay", chains=16)
    assert result.method == "replay"
    assert result.diagnostics["memory_numbers"] == 2 * 2048 * 4
    assert result.samples.reshape(-1, 4).std(axis=0) == pytest.approx(np.ones(4), abs=0.15)
    with pytest.raises(ValueError, match="method='potential' only"):
        result.reward(watched.points[:3])


def test_replay_reconstructs_and_stops_when_chains_agree(seen):
    result = onlooker.reconstruct(
        seen.points, seen.gradients, agents=seen.agents, times=seen.times, method="replay", chains=64
    )
    assert result.diagnostics["rhat"] < 1.01
    assert result.diagnostics["ess"] >= 1000
    assert result.warnings == []
    x = np.random.default_rng(0).uniform([-0.8, -0.6], [0.8, 1.6], (200, 2))
    truth = -(x[:, 0] ** 2) - 0.5 * (x[:, 1] - 0.5) ** 2
    assert np.std(result.reward(x) - truth) < 0.15


def test_replay_handles_a_flat_reward_and_any_units(seen):
    points = np.random.default_rng(0).standard_normal((3000, 2))
    flat = onlooker.reconstruct(points, -1e-3 * points, method="replay", chains=8)
    assert np.isfinite(flat.samples).all()
    scale = np.array([30.0, 1 / 30])
    result = onlooker.reconstruct(
        seen.points * scale, seen.gradients / scale, agents=seen.agents, method="replay", chains=32
    )
    assert result.diagnostics["rhat"] < 1.01
    assert (result.samples / scale).reshape(-1, 2).var(axis=0) == pytest.approx([0.5, 1.0], rel=0.15)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"memory": binned((0.0,), (1.0,)), "bandwidth": 0.1}, "chosen from held-out gradients"),
        ({"memory": reservoir(10)}, "bandwidth is missing"),
        ({"memory": reservoir(10), "bandwidth": 0.1, "variant": "cubic"}, "variant is 'cubic'"),
    ],
)
def test_bad_input(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        replay(options.pop("memory"), step_size=0.1, **options)
