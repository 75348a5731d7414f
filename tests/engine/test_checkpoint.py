"""A killed run continues from its checkpoint to the last bit; another run's file, or a damaged one, is rejected."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from onlooker.core.density import standard_normal
from onlooker.data.observations import Observations
from onlooker.data.stream import recorded
from onlooker.engine import checkpoint as resume
from onlooker.engine.accumulators import Grid, Marginals
from onlooker.engine.run import run
from onlooker.inverse import ball, classical, passive
from onlooker.simulation.agents import questions
from onlooker.simulation.reward import NoisyReward
from tests.support.messages import codes, message_of

# The package exports the function of the same name.
runner = importlib.import_module("onlooker.engine.run")

OPTIONS = {
    "chains": 20,
    "grid": Grid.cube(3.0, 2, bins=8),
    "marginals": Marginals(-3.0, 3.0, 8, forgetting=1e-3),
    "snapshots": 4,
    "burn_in": 500,
}


def with_bandwidth(bandwidth):
    return passive(standard_normal(2), step_size=1e-2, bandwidth=bandwidth)


LEARNER = with_bandwidth(0.5)


@pytest.fixture(scope="module")
def stream():
    points = np.random.default_rng(0).standard_normal((20_000, 2))
    return recorded(Observations(points, -points))


class Killed(BaseException):
    pass


def test_killed_at_any_moment_it_goes_on(stream, tmp_path, monkeypatch):
    whole = run(LEARNER, stream, **OPTIONS)
    monkeypatch.setattr(resume, "SECONDS", 0.0)
    monkeypatch.setattr(resume, "SPARING", 0.0)
    advanced, calls = runner.advanced, iter([True, False, True, True, False])

    def killed_after_a_call(*given):
        if not next(calls, True):
            raise Killed
        return advanced(*given)

    monkeypatch.setattr(runner, "advanced", killed_after_a_call)
    kills = 0
    while True:
        try:
            again = run(LEARNER, stream, checkpoint=tmp_path / "run.ckpt", **OPTIONS)
            break
        except Killed:
            kills += 1
    assert kills == 2
    for part in ("positions", "samples"):
        assert np.array_equal(getattr(again, part), getattr(whole, part))
    assert np.array_equal(again.histogram.counts, whole.histogram.counts)
    # What is forgotten is so in floating point, a call at a time.
    assert again.marginals[0][0].counts == pytest.approx(whole.marginals[0][0].counts, rel=1e-5)
    assert [one.step for one in again.history] == [one.step for one in whole.history]
    for one, other in zip(again.history, whole.history, strict=True):
        assert np.array_equal(one.positions, other.positions)
        assert np.array_equal(one.histogram.counts, other.histogram.counts)
    # Finished, it is only read: no step is taken.
    monkeypatch.setattr(runner, "advanced", None)
    assert np.array_equal(run(LEARNER, stream, checkpoint=tmp_path / "run.ckpt", **OPTIONS).samples, whole.samples)


def test_the_checkpoint_of_another_run_is_rejected_and_kept(stream, tmp_path):
    file, options = tmp_path / "run.ckpt", {"chains": 4, "steps": 5000}
    run(LEARNER, stream, checkpoint=file, **options)
    before = file.read_bytes()
    others = Observations(np.ones((20_000, 2)), np.zeros((20_000, 2)))
    settings = {"step_size": 1e-2, "bandwidth": 0.5}
    for learner, shown, changed in (
        (LEARNER, stream, {"seed": 1}),
        (LEARNER, stream, {"steps": 5001}),
        (LEARNER, stream, {"start": [0.5, 0.5]}),
        (LEARNER, stream, {"snapshots": 2}),
        (LEARNER, recorded(others), {}),
        (passive(standard_normal(2), **{**settings, "bandwidth": 0.6}), stream, {}),
        (passive(standard_normal(2, 3.0), **settings), stream, {}),
        (passive(standard_normal(2), confine=ball(0.2), **settings), stream, {}),
        (passive(standard_normal(2), confine=ball(0.3), **settings), stream, {}),
    ):
        with pytest.raises(ValueError, match="holds another run"):
            run(learner, shown, checkpoint=file, **{**options, **changed})
    file.write_bytes(before[:-7])
    with pytest.raises(ValueError, match="is damaged"):
        run(LEARNER, stream, checkpoint=file, **options)
    file.write_text("something else")
    with pytest.raises(ValueError, match="is not the file of a saved run"):
        run(LEARNER, stream, checkpoint=file, **options)
    assert file.read_text() == "something else"
    with pytest.raises(ValueError, match="is a folder"):
        run(LEARNER, stream, checkpoint=tmp_path, **options)


def test_after_an_upgrade_of_jax_a_run_goes_on_with_a_warning(stream, tmp_path, monkeypatch):
    """Its compiled functions cannot be compared then; its settings, seed and data still are."""
    file, options = tmp_path / "run.ckpt", {"chains": 4, "steps": 5000}
    whole = run(LEARNER, stream, checkpoint=file, **options)
    # Another program, as another version prints it: what happens at 1e3 never happens.
    reprinted = passive(standard_normal(2), step_size=1e-2, bandwidth=0.5, confine=ball(1e3))
    with pytest.raises(ValueError, match=r"another run \(it differs in functions\)"):
        run(reprinted, stream, checkpoint=file, **options)
    monkeypatch.setattr(jax, "__version__", "99.0")
    assert codes(run(LEARNER, stream, checkpoint=file, **options)) == codes(whole)
    again = run(reprinted, stream, checkpoint=file, **options)
    assert np.array_equal(again.samples, whole.samples)
    assert "program-changed" in codes(again)
    for name, learner, changed in (("seed", reprinted, {"seed": 1}), ("bandwidth", with_bandwidth(0.6), {})):
        with pytest.raises(ValueError, match=rf"another run \(it differs in .*{name}"):
            run(learner, stream, checkpoint=file, **{**options, **changed})
    moved = recorded(Observations(np.array(stream.data.point) + 1, np.array(stream.data.gradient)))
    with pytest.raises(ValueError, match=r"another run \(it differs in data"):
        run(reprinted, moved, checkpoint=file, start=again.positions, **options)


def test_a_file_of_version_0_1_is_continued_with_a_warning(stream, tmp_path):
    """It holds one digest of a program that is printed differently now: its settings cannot be compared."""
    file, options = tmp_path / "run.ckpt", {"chains": 4, "steps": 5000}
    whole = run(LEARNER, stream, checkpoint=file, **options)
    arrays = resume.state_file.read(file, "run")
    resume.state_file.write(file, "run", resume.state_file.packed({**arrays, "run": np.asarray(64 * "0")}))
    again = run(LEARNER, stream, checkpoint=file, **options)
    assert np.array_equal(again.samples, whole.samples)
    assert "checkpoint-unverified" in codes(again)
    assert not again.trusted
    with pytest.raises(ValueError, match="another run"):
        run(LEARNER, stream, checkpoint=file, seed=1, **options)


def test_another_world_is_another_run(tmp_path):
    """What is simulated is known by what is compiled: its constants and its functions."""
    file, options = tmp_path / "run.ckpt", {"chains": 4, "steps": 5000}
    slope = np.array([[2.0, 0.5], [0.5, 1.0]])

    def world(noise=0.5, slope=slope):
        return questions(NoisyReward(2, lambda x: -x @ jnp.asarray(slope) @ x, noise))

    learner = classical(step_size=1e-2)
    run(learner, world(), checkpoint=file, **options)
    run(learner, world(), checkpoint=file, **options)
    for other in (world(noise=5.0), world(slope=1.01 * slope)):
        with pytest.raises(ValueError, match="holds another run"):
            run(learner, other, checkpoint=file, **options)


def test_a_full_disk_stops_a_run_only_at_its_start(stream, tmp_path, monkeypatch):
    written, room = resume.state_file.write, [False, True]

    def full(*given):
        if not (room and room.pop(0)):
            raise OSError(28, "No space left on device")
        written(*given)

    monkeypatch.setattr(resume.state_file, "write", full)
    with pytest.raises(ValueError, match=r"cannot be written .*No space left"):
        run(LEARNER, stream, chains=4, steps=5000, checkpoint=tmp_path / "run.ckpt")
    result = run(LEARNER, stream, chains=4, steps=5000, checkpoint=tmp_path / "run.ckpt")
    assert result.steps == 5000
    assert "No space left" in str(message_of(result, "checkpoint-stale"))
