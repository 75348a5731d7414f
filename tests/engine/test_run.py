"""The engine: cutting a run never changes it, it is traced once, and every kind of evidence fits."""

import contextlib
import gc
import importlib
import os
import signal
import time
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from onlooker.core.density import flat, standard_normal
from onlooker.core.random import normal_and_coin
from onlooker.core.random import standard_normal as noise_normal
from onlooker.data.observations import Observation, Observations
from onlooker.data.stream import oracle, recorded, simulated
from onlooker.engine import loop
from onlooker.engine.accumulators import Grid, Marginals
from onlooker.engine.chains import Chains
from onlooker.engine.loop import GROUP_NUMBERS
from onlooker.engine.run import run
from onlooker.inverse import Info, InverseLearner, ball, classical, passive
from onlooker.simulation.agents import independent, questions
from onlooker.simulation.reward import NoisyReward
from tests.support.messages import codes, message_of

# The package exports the function of the same name.
runner = importlib.import_module("onlooker.engine.run")

PARABOLA = NoisyReward(2, lambda point: -0.5 * jnp.sum(point**2))
GRID = Grid.cube(3.0, 2, bins=10)


@pytest.fixture(scope="module")
def seen():
    generator = np.random.default_rng(0)
    points = generator.standard_normal((5000, 2)).astype(np.float32)
    return Observations(points, -points)


@pytest.fixture(scope="module")
def learner():
    return passive(standard_normal(2), step_size=1e-2, bandwidth=0.5)


def same(one, other):
    assert (one.positions == other.positions).all()
    assert (one.samples == other.samples).all()
    assert (one.histogram.counts == other.histogram.counts).all()


def test_how_a_run_is_cut_never_changes_it(seen, learner, monkeypatch):
    options = {"chains": 100, "grid": GRID, "burn_in": 700}
    monkeypatch.setattr(runner, "_next_call", lambda *so_far: 10**6)
    whole = run(learner, recorded(seen), **options)
    assert whole.steps == 5000
    assert whole.histogram.counts.sum() == 100 * (5000 // 8 - 700 // 8)
    monkeypatch.setattr(runner, "_next_call", lambda *so_far: 1)
    same(whole, run(learner, recorded(seen), **options))


def test_a_grid_that_forgets_weighs_positions_by_age(seen, learner, monkeypatch):
    rate = 2e-3
    grid, marginals = (
        Grid.cube(3.0, 2, bins=10, forgetting=rate),
        Marginals(-3.0, 3.0, 10, per_chain=True, forgetting=rate),
    )
    options = {"chains": 30, "grid": grid, "marginals": marginals, "burn_in": 700, "draws": 1000, "snapshots": 3}
    for blocks in (1, 10**6):
        monkeypatch.setattr(runner, "_next_call", lambda *so_far, blocks=blocks: blocks)
        chains = run(learner, recorded(seen), **options)
        # Draws begin with the one whose interval of trace_every steps ends after the burn-in.
        steps = 5000 - np.arange(chains.samples.shape[1])[::-1] * 8
        counted = chains.samples[:, steps > 700]
        weights = np.broadcast_to((1 - rate) ** (5000 - steps[steps > 700]), counted.shape[:2])
        edges = chains.histogram.edges
        expected = np.histogram2d(*counted.reshape(-1, 2).T, bins=edges, weights=weights.reshape(-1))[0]
        assert chains.histogram.inside == pytest.approx(expected, rel=1e-4, abs=1e-4)
        assert chains.histogram.effective == pytest.approx(weights.sum() ** 2 / (weights**2).sum())
        own = np.histogram(counted[7, :, 1], bins=edges[1], weights=weights[7])[0]
        assert chains.marginals[7][1].inside == pytest.approx(own, rel=1e-4, abs=1e-4)
        assert chains.marginals[7][1].effective == pytest.approx(chains.histogram.effective / 30)
        assert [snapshot.step for snapshot in chains.history] == [4096, 5000]
        assert (chains.history[-1].histogram.counts == chains.histogram.counts).all()
        assert chains.history[0].histogram.effective < chains.histogram.effective
    earlier = run(learner, recorded(seen), **{**options, "steps": 4096, "snapshots": None})
    assert (chains.history[0].positions == earlier.positions).all()
    assert chains.history[0].histogram.counts == pytest.approx(earlier.histogram.counts, rel=1e-4)


def test_burn_in_is_not_counted_and_thin_counts_every_nth(seen, learner):
    result = run(learner, recorded(seen), steps=2000, chains=3, grid=GRID, burn_in=400, thin=8)
    assert result.histogram.counts.sum() == 3 * (2000 - 400) / 8


def test_a_shorter_run_is_the_beginning_of_a_longer_one(seen, learner):
    long = run(learner, recorded(seen), chains=3, draws=5000, thin=1)
    short = run(learner, recorded(seen), chains=3, draws=5000, thin=1, steps=4500)
    assert long.samples.shape == (3, 5000, 2)
    assert (long.samples[:, :4500] == short.samples).all()
    assert (short.samples[:, -1] == short.positions).all()


def test_seed_is_idempotent_and_matters(seen, learner):
    runs = [run(learner, recorded(seen), chains=5, seed=seed, grid=GRID) for seed in (1, 1, 2)]
    same(runs[0], runs[1])
    assert (runs[0].positions != runs[2].positions).any()


def test_the_step_is_traced_once(seen):
    traces = []

    def step(position, evidence, noise):
        traces.append(position.shape)
        return position + noise[0], Info(*[jnp.zeros(())] * 3)

    learner = InverseLearner("walk", step, {})
    run(learner, recorded(seen), chains=4)
    once = len(traces)
    assert once <= 4
    run(learner, recorded(seen), chains=4, seed=9)
    assert len(traces) == once
    assert set(traces) == {(2,)}


def test_many_chains_in_groups_with_a_ragged_last_one(seen, learner):
    chains = 2 * GROUP_NUMBERS // 2 + 13
    result = run(
        learner, recorded(seen), chains=chains, steps=64, grid=GRID, marginals=Marginals(-3, 3, per_chain=True)
    )
    assert result.positions.shape == (chains, 2)
    assert result.samples.shape[0] == chains
    assert result.histogram.counts.sum() == chains * 8
    assert len(result.marginals) == chains
    assert all(histogram.counts.sum() == 8 for chain in result.marginals for histogram in chain)
    # No two chains share their noise.
    assert len(np.unique(result.positions, axis=0)) == chains


def test_the_step_of_a_run_is_the_step_of_the_learner(seen, learner):
    """One step from a known start: the noise that explains it is standard normal, and the rest is the formula."""
    start = np.full((4000, 2), 0.25)
    result = run(learner, recorded(seen), chains=4000, steps=1, thin=1, start=start)
    position = jnp.full(2, 0.25)
    evidence = Observation(jnp.asarray(seen.points[0]), jnp.asarray(seen.gradients[0]))
    still, _ = learner.step(position, evidence, jnp.zeros((1, 2)))
    spread = 0.1 * float(standard_normal(2).value(position))
    noise = (result.positions - np.asarray(still)) / spread
    assert noise.mean(axis=0) == pytest.approx([0, 0], abs=4 / np.sqrt(4000))
    assert noise.std(axis=0) == pytest.approx([1, 1], abs=4 / np.sqrt(8000))


def test_noise_is_standard_normal_and_coins_are_fair():
    draws = np.asarray(noise_normal(jax.random.key(5), (1000, 1001)), float).ravel()
    n = len(draws)
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert (draws**power).mean() == pytest.approx(moment, abs=4 * np.sqrt(variance / n))
    assert np.abs(draws).max() < 7
    assert np.corrcoef(draws[:-1], draws[1:])[0, 1] == pytest.approx(0, abs=4 / np.sqrt(n))
    same_draws, coins = normal_and_coin(jax.random.key(5), (1000, 1001))
    coins = np.asarray(coins, float).ravel()
    assert coins.mean() == pytest.approx(0.5, abs=2 / np.sqrt(n))
    assert np.corrcoef(coins, draws)[0, 1] == pytest.approx(0, abs=4 / np.sqrt(n))
    assert (np.asarray(same_draws).ravel() == draws.astype(np.float32)).all()


def test_oracles_answer_at_the_chain_s_position():
    """Without noise in gradient or chain, classical Langevin is gradient ascent: α ← (1 − μ/2) α."""
    learner = classical(step_size=0.1)
    silent = InverseLearner("ascent", lambda a, e, w: learner.step(a, e, 0 * w), {})
    quiet = NoisyReward(2, PARABOLA.value, noise_scale=0.0)
    result = run(silent, questions(quiet), steps=50, chains=3, start=[1.0, -2.0])
    assert result.positions == pytest.approx(np.tile([1.0, -2.0], (3, 1)) * 0.95**50, rel=1e-4)


def test_pools_can_be_the_evidence_of_a_step():
    """A stream may yield several observations a step: here their mean gradient is what the chain follows."""
    points = jnp.arange(24.0).reshape(4, 3, 2)

    def draw(data, carry, key, steps, lanes):
        rows = jnp.arange(steps) % 4
        return carry, Observation(points[rows], points[rows])

    def step(position, pool, noise):
        assert pool.point.shape == (3, 2)
        return position + pool.gradient.mean(axis=0), Info(*[jnp.zeros(())] * 3)

    result = run(InverseLearner("pool", step, {}), simulated(2, draw, shared=True), steps=4, chains=2)
    assert result.positions == pytest.approx(np.tile(np.asarray(points).mean(axis=1).sum(axis=0), (2, 1)))


def test_a_memory_is_updated_once_for_all_chains(seen):
    """A learner with a memory steps on it, not on the observation."""

    def update(memory, observations, count):
        counted = jnp.arange(len(observations.gradient)) < count
        return memory + jnp.sum(jnp.where(counted[:, None], observations.gradient, 0), axis=0)

    def step(position, memory, noise):
        return memory, Info(*[jnp.zeros(())] * 3)

    learner = InverseLearner("memory", step, {}, init=lambda dim: jnp.zeros(dim), update=update, evidence="memory")
    result = run(learner, recorded(seen), chains=3)
    assert result.positions == pytest.approx(np.tile(seen.gradients.sum(axis=0), (3, 1)), rel=1e-3)


def test_shared_streams_are_equal_and_own_streams_differ():
    show = InverseLearner("show", lambda a, e, w: (e.point, Info(*[jnp.zeros(())] * 3)), {})
    density = standard_normal(2)
    shared = run(show, independent(PARABOLA, density, shared=True), steps=10, chains=5)
    own = run(show, independent(PARABOLA, density), steps=10, chains=5)
    assert len(np.unique(shared.positions, axis=0)) == 1
    assert len(np.unique(own.positions, axis=0)) == 5


def test_ctrl_c_returns_what_has_been_done(seen, learner, monkeypatch):
    @contextlib.contextmanager
    def pressed_at_the_first_report(*arguments):
        yield lambda done: os.kill(os.getpid(), signal.SIGINT) if done < 5000 else None

    monkeypatch.setattr(runner, "progress_bar", pressed_at_the_first_report)
    before = signal.getsignal(signal.SIGINT)
    result = run(learner, recorded(seen), chains=100, grid=GRID)
    assert result.interrupted
    assert 0 < result.steps < 5000
    assert result.histogram.counts.sum() == 100 * result.steps / 8
    assert "interrupted" in codes(result)
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_is_heard_while_a_slow_function_is_asked():
    """The length of a call follows the clock: 2000 questions of 2 ms are not one."""
    asked = []

    def slow(points):
        time.sleep(0.002)
        asked.append(len(points))
        if len(asked) == 300:
            os.kill(os.getpid(), signal.SIGINT)
        return -points

    result = run(classical(step_size=1e-2), oracle(slow, 2), steps=8192, chains=300, thin=8, draws=8)
    assert result.interrupted
    assert 0 < result.steps < 8192
    assert set(asked) == {300}


def test_a_broken_progress_bar_breaks_nothing(seen, learner, monkeypatch, capsys):
    assert run(learner, recorded(seen), chains=2).steps == 5000
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr("rich.progress.Progress.start", lambda self: 1 / 0)
    assert run(learner, recorded(seen), chains=2, progress=True).steps == 5000


def test_lost_chains_and_projections_are_counted():
    wild = NoisyReward(2, lambda point: jnp.sum(point**4))
    result = run(classical(step_size=1.0), questions(wild), steps=64, chains=4, start=[1.0, 1.0], grid=GRID)
    assert result.diagnostics["lost_chains"] == 4
    assert message_of(result, "chains-lost").numbers == {"lost": 4, "chains": 4}
    assert result.histogram.counts.sum() == 4 * 8
    held = run(classical(step_size=1.0, confine=ball(0.5)), questions(PARABOLA), steps=64, chains=4)
    assert held.diagnostics["projected_share"] > 0.5
    assert "chains-confined" in codes(held)
    assert np.linalg.norm(held.positions, axis=1).max() < 0.5001


def test_float64_on_request(seen):
    learner = passive(standard_normal(2), step_size=1e-2, bandwidth=0.5)
    with pytest.raises(ValueError, match="jax_enable_x64"):
        run(learner, recorded(seen), chains=2, dtype=jnp.float64)
    with jax.enable_x64(True):
        result = run(learner, recorded(seen, jnp.float64), chains=2, dtype=jnp.float64)
        assert result.positions.dtype == np.float64


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"chains": 0}, "chains is 0"),
        ({"steps": 6000}, "the stream holds 5000"),
        ({"thin": 3}, "power of two"),
        ({"burn_in": 5000}, "burn_in is 5000"),
        ({"start": [0.0, 0.0, 0.0]}, "start has shape"),
        ({"start": [np.nan, 0.0]}, "start holds a NaN"),
        ({"draws": 0}, "draws is 0"),
        ({"chains": None}, "chains is None"),
        ({"burn_in": 0.5}, "burn_in is 0.5"),
        ({"dtype": jnp.float16}, "dtype is float16"),
        ({"grid": Grid.cube(3.0, 3)}, "grid has 3 axes"),
    ],
)
def test_bad_options_are_one_sentence(seen, learner, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        run(learner, recorded(seen), **options)


def test_learners_that_ask_need_a_stream_that_answers(seen, learner):
    with pytest.raises(ValueError, match="needs gradients at its own positions"):
        run(classical(step_size=0.1), recorded(seen))
    with pytest.raises(TypeError, match="make a stream with recorded"):
        run(learner, seen)


def test_compiled_programs_do_not_keep_the_data_alive(learner):
    mine = Observations(np.zeros((100, 2), np.float32), np.zeros((100, 2), np.float32))
    gone = weakref.ref(mine)
    run(learner, recorded(mine), chains=2)
    del mine
    gc.collect()
    assert gone() is None


def test_an_endless_stream_needs_a_number_of_steps(learner):
    with pytest.raises(ValueError, match="the stream is endless"):
        run(learner, independent(PARABOLA, standard_normal(2)))


def test_flat_density_is_classical_in_a_run_too():
    """The engine adds nothing to the algebra: equal seeds, equal noise, equal chains."""
    options = {"steps": 100, "chains": 4, "start": [0.1, 0.2], "seed": 3}
    quiet = NoisyReward(2, PARABOLA.value, noise_scale=0.0)
    one = run(classical(step_size=0.01), questions(quiet), **options)
    weightless = passive(flat(), step_size=0.01, bandwidth=1 / np.sqrt(2 * np.pi))
    asked = InverseLearner("asked", weightless.step, {})
    two = run(asked, questions(quiet), **options)
    assert one.positions == pytest.approx(two.positions, abs=1e-6)


def test_chains_answer_for_a_reward_and_as_a_datatree():
    grid = Grid.cube(3.0, 2, bins=12)
    chains = run(classical(step_size=0.1, beta=2.0), questions(PARABOLA), steps=4000, chains=50, grid=grid, thin=1)
    summit, slope, far = chains.reward([[0.25, 0.25], [1.25, 0.25], [9.0, 9.0]])
    assert summit - slope == pytest.approx((1.25**2 - 0.25**2) / 2, abs=0.2)
    assert np.isnan(far)
    assert chains.explored([[0.0, 0.0], [9.0, 9.0]]).tolist() == [True, False]
    tree = chains.to_datatree()
    assert np.array_equal(tree["posterior/alpha"].values, chains.samples)
    assert float(tree["diagnostics/rhat"]) == chains.diagnostics["rhat"]
    with pytest.raises(ValueError, match="grid was not given"):
        run(classical(step_size=0.1), questions(PARABOLA), steps=64, chains=2).reward([[0.0, 0.0]])


def test_parts_of_a_run_are_the_whole(seen, learner):
    options = {"chains": 2100, "steps": 300, "grid": GRID, "snapshots": 2, "marginals": Marginals(-3.0, 3.0, bins=5)}
    whole = run(learner, recorded(seen), **options)
    parts = [run(learner, recorded(seen), part=(number, 2), **options) for number in range(2)]
    joined = Chains.joined(parts)
    same(joined, whole)
    assert joined.chains == 2100
    assert np.array_equal(joined.history[0].positions, whole.history[0].positions)
    assert np.array_equal(joined.marginals[0][1].counts, whole.marginals[0][1].counts)
    assert np.allclose(joined.mean, whole.mean, atol=1e-6)
    assert np.allclose(joined.covariance, whole.covariance, atol=1e-5)
    assert joined.diagnostics["kernel_weight"] == pytest.approx(whole.diagnostics["kernel_weight"])
    for part, sentence in (((2, 2), "part is"), (3, "part is"), ((0, 4), "has 3 groups of chains")):
        with pytest.raises(ValueError, match=sentence):
            run(learner, recorded(seen), part=part, **options)
    with pytest.raises(ValueError, match="parts is empty"):
        Chains.joined([])
    with pytest.raises(ValueError, match="parts are of different runs"):
        Chains.joined([parts[0], run(learner, recorded(seen), chains=2, steps=100)])


def test_of_very_many_chains_some_are_traced(seen, learner, monkeypatch):
    options = {"chains": 2100, "steps": 300, "grid": GRID}
    whole = run(learner, recorded(seen), **options)
    monkeypatch.setattr(loop, "MANY_CHAINS", 1000)
    monkeypatch.setattr(loop, "TRACED", 500)
    some = run(learner, recorded(seen), **options)
    assert some.samples.shape[0] == 700
    assert np.array_equal(some.samples, whole.samples[:700])
    assert np.array_equal(some.positions, whole.positions)
    assert np.array_equal(some.histogram.counts, whole.histogram.counts)
