"""The public call: arrays in, a reward with its warnings out; bad input rejected by name."""

from dataclasses import replace

import numpy as np
import pytest

import onlooker
from onlooker.fit import fit as fit_potential
from onlooker.fit.jumps.record import confirmed
from onlooker.fit.jumps.statistic import Jump
from onlooker.reconstruction.folder import write_result
from onlooker.simulation.agents import simulate
from onlooker.simulation.cmdp import two_states
from onlooker.simulation.policy_gradient import PolicyGradient, WeakDerivative
from onlooker.simulation.reward import NoisyReward
from tests.support.messages import codes, message_of

PI = onlooker.density.standard_normal(2)
REWARD = NoisyReward(2, lambda point: -(point[0] ** 2) - 0.5 * (point[1] - 0.5) ** 2, 0.5)


@pytest.fixture(scope="module")
def seen():
    return simulate(REWARD, PI, agents=300_000, horizon=1, learning_rate=0.1)


@pytest.fixture(scope="module", params=["auto", "passive"])
def result(request, seen):
    return onlooker.reconstruct(seen.points, seen.gradients, density=PI, chains=128, method=request.param)


def test_reconstruct_recovers_the_reward(result):
    assert result.method in ("potential", "passive")
    assert result.warnings == []
    x = np.random.default_rng(0).uniform([-0.8, -0.6], [0.8, 1.6], (200, 2))
    truth = -(x[:, 0] ** 2) - 0.5 * (x[:, 1] - 0.5) ** 2
    difference = result.reward(x) - truth
    assert np.std(difference) < (0.25 if result.method == "passive" else 0.02)
    # The same numbers against the reward of the wrong sign: the test can tell.
    assert np.std(result.reward(x) + truth) > 0.5
    assert result.samples.shape[0] == 128
    assert result.samples.shape[2] == 2


def test_reward_is_nan_where_no_learner_was(result):
    far = [[50.0, 50.0]]
    assert np.isnan(result.reward(far)).all()
    assert not result.explored(far).any()


def test_only_fitted_potentials_have_error_bars(result):
    x = np.random.default_rng(0).uniform([-0.8, -0.6], [0.8, 1.6], (200, 2))
    if result.method == "passive":
        with pytest.raises(ValueError, match="method='potential' only"):
            result.reward_error(x)
        return
    error = result.reward_error(x)
    assert ((error > 0) & (error < 0.05)).all()
    assert np.isnan(result.reward_error([[50.0, 50.0]])).all()


def test_reconstruct_needs_no_density_and_works_in_any_units():
    """Coordinates a thousand times apart; agents that run."""
    reward = NoisyReward(2, lambda point: -(point[0] ** 2) - 0.5 * (point[1] - 0.5) ** 2, 0.5)
    seen = simulate(reward, onlooker.density.standard_normal(2, 1.5), agents=1000, horizon=40, learning_rate=0.02)
    scale = np.array([1000.0, 1e-3])
    result = onlooker.reconstruct(seen.points * scale, seen.gradients / scale, agents=seen.agents, times=seen.times)
    x = np.random.default_rng(0).uniform([-0.5, -0.3], [0.5, 1.3], (200, 2))
    truth = -(x[:, 0] ** 2) - 0.5 * (x[:, 1] - 0.5) ** 2
    assert np.std(result.reward(x * scale) - truth) < 0.04
    assert result.warnings == []
    assert result.diagnostics["rhat"] < 1.01


def test_a_too_steep_or_too_flat_reward_warns_and_suggests_beta():
    points = np.random.default_rng(0).standard_normal((20_000, 2))
    for factor, word in ((1e3, "a spike"), (1e-3, "flat")):
        result = onlooker.reconstruct(points, -factor * points)
        warning = message_of(result, "reward-span")
        assert word in str(warning)
        suggested = float(str(warning).split("beta=")[1].split()[0])
        assert suggested == pytest.approx(warning.numbers["beta"], rel=0.05)
        assert onlooker.reconstruct(points, -factor * points, beta=suggested).warnings == []


def test_a_result_is_plotted(result, tmp_path):
    result.plot().savefig(tmp_path / "reward.png")
    assert (tmp_path / "reward.png").stat().st_size > 5000


def test_rejected_rows_are_counted(seen):
    gradients = seen.gradients[:20_000].copy()
    gradients[::100] = np.nan
    result = onlooker.reconstruct(seen.points[:20_000], gradients, density=PI, chains=8, method="reweighted")
    assert result.diagnostics["rejected"] == 200
    assert message_of(result, "rows-rejected").numbers == {"rejected": 200, "rows": 20_000}
    assert np.isfinite(result.samples).all()


def test_a_log_is_read_by_its_path(tmp_path):
    points = np.random.default_rng(0).standard_normal((600, 1))
    with onlooker.LogWriter(tmp_path / "log") as log:
        log.add_many(points, 2 * points, agents=np.arange(600) // 20)
    read = onlooker.reconstruct(onlooker.read_log(tmp_path / "log", descent=True), chains=2)
    for place in (tmp_path / "log", str(tmp_path / "log")):
        result = onlooker.reconstruct(place, descent=True, chains=2)
        assert np.array_equal(result.reward(points[:9]), read.reward(points[:9]))
    opened = onlooker.open_log(tmp_path / "log", descent=True)
    assert np.array_equal(onlooker.reconstruct(opened, chains=2).reward(points[:9]), read.reward(points[:9]))
    with pytest.raises(ValueError, match="is given with a log, which has its own; leave them out"):
        onlooker.reconstruct(tmp_path / "log", points)
    with pytest.raises(ValueError, match="is given with an opened log; give it to open_log"):
        onlooker.reconstruct(opened, descent=True)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        onlooker.reconstruct("nowhere/")


def test_above_three_dimensions_there_are_samples_only(tmp_path):
    points = np.random.default_rng(0).standard_normal((3000, 5))
    result = onlooker.reconstruct(
        points, -points, density=onlooker.density.standard_normal(5), chains=4, method="passive"
    )
    assert result.samples.shape[2] == 5
    with pytest.raises(ValueError, match="method='potential' only"):
        result.reward(points[:3])
    summary = write_result(tmp_path, result)
    assert summary["maximum"] is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["result.zarr", "samples.png", "summary.json"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"method": "magic", "density": PI}, "method is 'magic'"),
        ({"method": "passive"}, "density is missing"),
        ({"density": PI, "bandwidth": 0.0}, "bandwidth is 0.0"),
        ({"density": PI, "step_size": -1.0}, "step_size is -1.0"),
        ({"density": PI, "beta": 0.0, "step_size": 1.0}, "beta is 0.0"),
        ({"density": PI, "bandwidth": "wide"}, "bandwidth is 'wide'"),
        ({"density": onlooker.density.standard_normal(3)}, "density is over 3 dimensions"),
        ({"density": lambda point: point}, "must return one number"),
        ({"density": lambda point: float(np.sum(point))}, "write log_prob with jax.numpy"),
        ({"density": lambda point: PI.log_prob(point - 30)}, "is zero or underflows"),
    ],
)
def test_bad_input(options, sentence):
    points = np.random.default_rng(0).standard_normal((100, 2))
    with pytest.raises(ValueError, match=sentence):
        onlooker.reconstruct(points, -points, **{"method": "passive", **options})


@pytest.mark.parametrize("seed", range(3))
def test_chains_that_do_not_move_are_warned_about(seed):
    """Gradients so noisy that μ must be tiny: the chains cannot move, and the result says so."""
    generator = np.random.default_rng(seed)
    points = generator.standard_normal((20_000, 2))
    noisy = -1e4 * points + 1e5 * generator.standard_normal((20_000, 2))
    result = onlooker.reconstruct(points, noisy, density=PI, chains=16, seed=seed, method="passive")
    assert "chains-disagree" in codes(result)


def test_far_from_the_origin():
    """A ball about the points' mean, weights in logarithms: nothing is lost at 1000."""
    points = 1000 + np.random.default_rng(0).standard_normal((20_000, 2))
    there = lambda point: PI.log_prob(point - 1000)  # noqa: E731
    result = onlooker.reconstruct(points, 1000 - points, density=there, chains=8, method="reweighted")
    assert result.diagnostics["lost_chains"] == 0
    assert result._chains.mean == pytest.approx([1000, 1000], abs=1)


def test_too_few_points_and_numbers_of_other_kinds():
    points = np.random.default_rng(0).standard_normal((60, 2))
    with pytest.raises(ValueError, match="10 usable observations"):
        onlooker.reconstruct(points[:10], -points[:10], density=PI)
    options = {"density": PI, "chains": 2, "bandwidth": np.float32(0.5), "beta": np.int64(1)}
    assert onlooker.reconstruct(points, -points, **options, method="passive").warnings
    assert onlooker.reconstruct(points, -points, **options).samples.shape[0] == 2


def test_wells_that_nobody_visited_are_unexplored():
    """Two wells; every learner starts, and stays, about the left one."""
    reward = NoisyReward(2, lambda point: -4 * (point[0] ** 2 - 1) ** 2 - 2 * point[1] ** 2, 0.5)
    left = np.array([-1.0, 0.0], np.float32)

    def sample(key, shape):
        drawn = 0.2 * PI.sample(key, shape)
        return drawn + np.broadcast_to(left, drawn.shape)

    start = onlooker.density.Density(lambda point: PI.log_prob((point - left) / 0.2), sample)
    seen = simulate(reward, start, agents=500, horizon=40, learning_rate=0.01)
    result = onlooker.reconstruct(seen.points, seen.gradients, agents=seen.agents, times=seen.times)
    assert result.explored([[-1.0, 0.0]]).all()
    assert not result.explored([[1.0, 0.0]]).any()
    assert np.isnan(result.reward([[1.0, 0.0]])).all()


def test_runaway_learners_are_left_out_with_a_warning():
    points = np.random.default_rng(0).standard_normal((5000, 2))
    points[:5] = 1e9
    for method in ("auto", "reweighted"):
        result = onlooker.reconstruct(points, -points, method=method, density=PI, chains=8)
        assert message_of(result, "rows-runaway").numbers == {"left_out": 5, "rows": 5000}
        assert result.diagnostics["observations"] == 4995
    assert np.abs(result.samples).max() < 10


@pytest.mark.slow
def test_auto_chooses_replay_by_held_out_error():
    """A reward finer than the cosines resolve: the same choice in whatever units."""
    generator = np.random.default_rng(0)
    points = generator.uniform(-1, 1, (20_000, 1))
    gradients = 40 * np.sign(np.sin(200 * points)) + generator.standard_normal((20_000, 1))
    chosen = {onlooker.reconstruct(points * s, gradients / s, chains=4).method for s in (0.1, 10.0)}
    assert len(chosen) == 1


def test_rows_must_differ_and_outnumber_dimensions():
    points = np.random.default_rng(0).standard_normal((20, 2))
    with pytest.raises(ValueError, match="20 distinct observations"):
        onlooker.reconstruct(np.tile(points, (10, 1)), np.tile(-points, (10, 1)))
    wide = np.random.default_rng(0).standard_normal((60, 70))
    with pytest.raises(ValueError, match="60 rows of 70 dimensions"):
        onlooker.reconstruct(wide, -wide)


def test_all_points_equal():
    with pytest.raises(ValueError, match="points are all equal"):
        onlooker.reconstruct(np.ones((100, 2)), np.ones((100, 2)), density=PI)


@pytest.fixture(scope="module")
def fleet():
    """Policy-gradient agents on the paper's two-state CMDP."""
    angles = onlooker.policies.spherical(2, 2)
    learners = PolicyGradient(two_states(1e2), angles, WeakDerivative(horizon=200, every=20))
    seen = simulate(learners, angles.uniform("coordinates"), agents=800, horizon=25, learning_rate=2e-4)
    # Every other agent on the far side of zero: the same policies.
    side = np.where(seen.agents % 2, 1, -1)[:, None]
    return learners, angles, replace(seen, points=side * seen.points, gradients=side * seen.gradients)


@pytest.mark.parametrize("method", ["potential", "replay"])
def test_policies_are_reconstructed_in_either_measure(fleet, method, tmp_path):
    learners, angles, seen = fleet
    axis = (np.arange(300) + 0.5) / 300 * np.pi / 2
    places = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    truth = learners.value(places)
    shares = {}
    for measure, weight in (("coordinates", 1.0), ("policy", np.exp(angles.log_volume(places)))):
        law = np.exp(truth - truth.max()) * weight
        shares[measure] = float((law * angles.policy(places)[:, 0, 0]).sum() / law.sum())
    assert shares["policy"] > shares["coordinates"] + 0.02
    for measure in ("coordinates", "policy") if method == "potential" else ("policy",):
        share = shares[measure]
        result = onlooker.reconstruct(
            seen.points,
            seen.gradients,
            agents=seen.agents,
            times=seen.times,
            coordinates=angles,
            measure=measure,
            method=method,
        )
        assert result.diagnostics["measure"] == measure
        assert result.policies.shape == (*result.samples.shape[:2], 2, 2)
        assert result.samples.min() >= 0
        assert result.samples.max() <= np.pi / 2
        # Half of what there is between the two laws.
        assert result.policies[..., 0, 0].mean() == pytest.approx(share, abs=abs(np.diff(list(shares.values()))[0]) / 2)
        high = truth > truth.max() - 5
        assert np.nanstd(result.reward(places[high]) - truth[high]) < 0.5
        # Angles are the same policy on either side of an end of their interval.
        assert result.reward(-places[high][:5]) == pytest.approx(result.reward(places[high][:5]))
    result.save(tmp_path / "out")
    loaded = onlooker.load(tmp_path / "out")
    assert loaded.coordinates == angles
    assert loaded.policies == pytest.approx(result.policies)
    best = learners.cmdp.penalised(angles.policy(result.maximum()))
    assert best == pytest.approx(truth.max(), abs=1.0)


def test_coordinates_that_do_not_fit(seen):
    angles = onlooker.policies.spherical(2, 2)
    with pytest.raises(ValueError, match="for 3 states and 2 actions give coordinates"):
        onlooker.reconstruct(seen.points, seen.gradients, coordinates=onlooker.policies.spherical(3, 2))
    with pytest.raises(TypeError, match="coordinates is str"):
        onlooker.reconstruct(seen.points, seen.gradients, coordinates="spherical")
    with pytest.raises(ValueError, match="without coordinates"):
        onlooker.reconstruct(seen.points, seen.gradients, measure="policy")
    with pytest.raises(ValueError, match="has no law with softmax"):
        onlooker.reconstruct(seen.points, seen.gradients, coordinates=onlooker.policies.softmax(2, 2))
    with pytest.raises(ValueError, match="method 'passive' does not take coordinates"):
        onlooker.reconstruct(seen.points, seen.gradients, coordinates=angles, method="passive")


def test_a_record_with_a_jump_is_warned_about():
    points = np.random.default_rng(0).standard_normal((6000, 2))
    gradients = -points + np.where(np.arange(6000) < 4000, 0, 2)[:, None]
    # The first thousand were written twice: they are dropped, and rows are counted as they were given.
    twice = np.r_[:1000, :6000]
    whole = onlooker.reconstruct(points[twice], gradients[twice])
    jumped = message_of(whole, "reward-jumped")
    assert "jumped once" in str(jumped)
    assert jumped.numbers["rows"] == 7000
    assert abs(jumped.numbers["last"] - 5000) < 20
    assert not whole.trusted
    since = onlooker.reconstruct(points[4000:], gradients[4000:])
    assert "reward-jumped" not in codes(since)


@pytest.mark.parametrize("jumped", [False, True])
def test_a_suspected_jump_is_confirmed_by_the_whole_fit(jumped):
    """Learners move from one side of a reward that is no parabola to the other: only a change of it is a jump."""
    random = np.random.default_rng(0)
    points = np.concatenate([random.uniform(-3, 0.5, 4000), random.uniform(-0.5, 3, 4000)])[:, None]
    gradients = -np.tanh(4 * points) + 0.3 * random.standard_normal(points.shape)
    gradients[4000:] += 0.5 * jumped
    suspected = Jump(4000, 4100, 100.0, 30.0)
    seen = onlooker.observe(points, gradients, agents=np.arange(8000) // 20)
    held = np.arange(8000) // 20 % 5 == 0
    fit = fit_potential(points, gradients, held)
    assert confirmed(suspected, seen, fit) == jumped
