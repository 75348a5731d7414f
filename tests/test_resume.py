"""A run that survives: killed anywhere it goes on to the last bit; another run's file, or a damaged one, is refused."""

import importlib

import jax.numpy as jnp
import numpy as np
import pytest

from onlooker import resume
from onlooker.density import standard_normal
from onlooker.inverse import ball, classical, passive
from onlooker.learners.agents import questions
from onlooker.learners.reward import NoisyReward
from onlooker.observe.observation import Observations
from onlooker.observe.stream import recorded
from onlooker.reward.accumulate import Grid, Marginals
from onlooker.run import run

# The package exports the function of the same name.
runner = importlib.import_module("onlooker.run")

OPTIONS = {
    "chains": 20,
    "grid": Grid.cube(3.0, 2, bins=8),
    "marginals": Marginals(-3.0, 3.0, 8, forgetting=1e-3),
    "snapshots": 4,
    "burn_in": 500,
}
LEARNER = passive(standard_normal(2), step_size=1e-2, bandwidth=0.5)


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
    advanced, calls = runner._advanced, iter([True, False, True, True, False])

    def killed_after_a_call(*given):
        if not next(calls, True):
            raise Killed
        return advanced(*given)

    monkeypatch.setattr(runner, "_advanced", killed_after_a_call)
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
    monkeypatch.setattr(runner, "_advanced", None)
    assert np.array_equal(run(LEARNER, stream, checkpoint=tmp_path / "run.ckpt", **OPTIONS).samples, whole.samples)


def test_another_run_s_file_is_refused_and_left_alone(stream, tmp_path):
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
    with pytest.raises(ValueError, match="does not hold the state of any run"):
        run(LEARNER, stream, checkpoint=file, **options)
    assert file.read_text() == "something else"
    with pytest.raises(ValueError, match="is a folder"):
        run(LEARNER, stream, checkpoint=tmp_path, **options)


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


def test_a_full_disk_ends_no_run_but_begins_none(stream, tmp_path, monkeypatch):
    written, room = resume.checkpoint.write, [False, True]

    def full(*given):
        if not (room and room.pop(0)):
            raise OSError(28, "No space left on device")
        written(*given)

    monkeypatch.setattr(resume.checkpoint, "write", full)
    with pytest.raises(ValueError, match=r"cannot be written .*No space left"):
        run(LEARNER, stream, chains=4, steps=5000, checkpoint=tmp_path / "run.ckpt")
    result = run(LEARNER, stream, chains=4, steps=5000, checkpoint=tmp_path / "run.ckpt")
    assert result.steps == 5000
    assert any("could not be written" in warning and "No space left" in warning for warning in result.warnings)
