"""Files that version 0.1 wrote still load, and hold the numbers that version 0.1 read from them.

``files/version-0.1.tar.xz`` has two Observers, a run half-way, three results and a log, with ``expected.json`` beside
them. The arrays of the fits are rounded to five bits, so that the archive is small.
"""

import json
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest

import onlooker
from onlooker.core.density import standard_normal
from onlooker.inverse import passive
from onlooker.storage.state_file import read
from tests.support.messages import codes


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("older")
    with tarfile.open(Path(__file__).parent / "files" / "version-0.1.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "version-0.1"


@pytest.fixture(scope="module")
def expected(written):
    return json.loads((written / "expected.json").read_text())


def places(dim):
    return np.linspace(-0.5, 0.5, 5)[:, None] * np.ones(dim)


@pytest.mark.parametrize("name", ["jumped", "waiting"])
def test_an_observer(written, expected, name):
    live = onlooker.Observer.load(written / f"{name}.observer")
    assert live.seen == expected[name]["seen"]
    assert [[jump.at, jump.found] for jump in live.jumps] == expected[name]["jumps"]
    assert live.reward(places(1)) == pytest.approx(expected[name]["reward"], rel=1e-6)
    # The rows that wait for the next hundred are among them, and it goes on learning.
    assert live.seen % 100
    live.learn_one([0.0], [0.0])
    assert live.seen == expected[name]["seen"] + 1


@pytest.mark.parametrize(("name", "dim"), [("two", 2), ("five", 5), ("replay", 2)])
def test_a_result(written, expected, name, dim):
    result, told = onlooker.load(written / f"{name}.zarr"), expected[name]
    assert result.method == told["method"]
    assert result.reward(places(dim)) == pytest.approx(told["reward"], rel=1e-5)
    assert float(result.samples.sum()) == pytest.approx(told["samples"], rel=1e-6)
    assert [str(warning) for warning in result.warnings] == told["warnings"]
    if told["error"] is not None:
        assert result.reward_error(places(dim)) == pytest.approx(told["error"], rel=1e-4)


def test_a_result_that_was_changed_or_is_newer_is_rejected(written, tmp_path):
    copy = tmp_path / "copy.zarr"
    shutil.copytree(written / "replay.zarr", copy)
    root = copy / "zarr.json"
    said = root.read_text()
    assert '"method": "replay"' in said
    root.write_text(said.replace('"method": "replay"', '"method": "potential"'))
    with pytest.raises(ValueError, match="is damaged: its digest does not match"):
        onlooker.load(copy)
    root.write_text(said.replace("onlooker reconstruction 1", "onlooker reconstruction 2"))
    with pytest.raises(ValueError, match="has format 2 and this Onlooker reads up to 1; install a newer one"):
        onlooker.load(copy)


def test_a_log(written, expected):
    log, told = onlooker.open_log(written / "log"), expected["log"]
    seen = log.read()
    assert (float(seen.points.sum()), float(seen.gradients.sum())) == (told["points"], told["gradients"])
    assert log.about.learning_rate == told["learning_rate"]
    assert log.about.optimizer is not None
    assert [log.about.optimizer.name, log.about.optimizer.momentum] == told["optimizer"]


def test_a_run_goes_on_from_half_way(written, expected):
    random = np.random.default_rng(2)
    points = np.round(random.standard_normal((9000, 2)) * 64) / 64
    gradients = np.round((-points + 0.5 * random.standard_normal((9000, 2))) * 64) / 64
    stream = onlooker.recorded(onlooker.Observations(points, gradients))
    learner = passive(standard_normal(2), step_size=1e-2, bandwidth=0.5)
    grid = onlooker.Grid.cube(3.0, 2, bins=4)
    chains = onlooker.run(
        learner, stream, chains=4, grid=grid, snapshots=2, draws=20, checkpoint=written / "half-way.run"
    )
    assert "checkpoint-unverified" in codes(chains)
    told = expected["half-way"]
    assert chains.positions == pytest.approx(np.array(told["positions"]), rel=1e-5)
    assert chains.histogram.counts.tolist() == told["counts"]
    # What was numbered has names now.
    assert {"run", "done", "state/positions", "history/1/done"} <= read(written / "half-way.run", "run").keys()
