"""A log of any size knows its trainer: its weight decay is added in every task, and its marks are those of a sample."""

import numpy as np
import pytest

import onlooker
from onlooker.data.projection import onto
from onlooker.data.splits import agents_held_out
from onlooker.data.trainer import Trainer, climbed
from onlooker.reconstruction import by_passes
from onlooker.reconstruction.inspect_log import inspect_large, inspect_log
from onlooker.reconstruction.kept import chosen_digest
from onlooker.reconstruction.options import Options
from onlooker.reconstruction.passes import TOGETHER
from onlooker.storage.trees import pack
from onlooker.workers.in_process import InProcess
from tests.support.logs import climbers, cut_small
from tests.support.messages import codes, message_of

ALONG = onto([[1.0, 1.0, 0.0]], origin=[2.0, 0.0, 1.0])
DECAY = 0.3
TRAINER = Trainer(decay=((3, DECAY),), parameters=3, recorded=True)
SAID = ["projected", "decay-added", "clipping-undone"]
PLACES = np.linspace(-1.5, 1.5, 41)[:, None]


def write(folder, rows, turned=1.0):
    """A log whose first shards say less of the trainer than the others; every fourth gradient was clipped."""
    clipped = np.arange(len(rows["points"])) % 4 == 0
    for first, algorithm in ((0, "PPO"), (2000, "A2C")):
        some = slice(first, 2000 if first == 0 else None)
        with onlooker.LogWriter(folder, rows=1000) as log:
            log.along(ALONG)
            log.describe_trainer(Trainer(**{**vars(TRAINER), "algorithm": algorithm}))
            log.add_many(
                rows["points"][some],
                turned * rows["gradients"][some],
                agents=rows["agents"][some],
                times=rows["times"][some],
                clip=np.where(clipped, 0.5, 1.0)[some],
                limit=np.where(clipped, 3.0, np.nan)[some],
            )
    return folder


def passes_over(folder, objective):
    options = Options(1.0, 4, 0, objective=objective)
    return by_passes._Passes(onlooker.open_log(folder), options, InProcess(), None)


def test_tasks_add_the_weight_decay_and_the_log_says_so(tmp_path, monkeypatch):
    cut_small(monkeypatch)
    rows = climbers(8000)
    write(tmp_path, rows)
    digests, settings = set(), set()
    for objective in ("training", "loss"):
        passes = passes_over(tmp_path, objective)
        choice, total = passes._passed(passes._shards())
        assert passes.log.trainer == TRAINER
        seen = climbed(onlooker.read_log(tmp_path), objective)
        held = agents_held_out(rows["agents"], 0)
        usual = choice.chosen.limits.hold(seen.points, seen.gradients)
        whole = choice.chosen.sums
        digests.add(chosen_digest(choice.chosen, passes.settings))
        settings.add(repr(passes.settings))
        whole.add(seen.points[usual], seen.gradients[usual], held[usual])
        mine = pack(total.sums)
        for name, sums in pack(whole).items():
            scale = max(float(np.abs(sums).max()), 1e-300)
            assert np.allclose(mine[name], sums, rtol=0, atol=1e-9 * scale), name
        added = seen.gradients[:, 0] - rows["gradients"][:, 0]
        true = -DECAY * (rows["points"][:, 0] + np.sqrt(2)) if objective == "training" else 0
        assert np.allclose(added, true, atol=1e-5)
        warnings = passes._warnings(choice, total)
        assert codes(warnings)[:3] == SAID
        assert message_of(warnings, "clipping-undone").numbers["limit"] == 3
        assert message_of(warnings, "clipping-undone").numbers["share"] == pytest.approx(0.25, abs=0.05)
    # Neither sums nor samples that were kept are those of the other objective.
    assert len(digests) == len(settings) == 2


def test_the_sign_of_what_a_recorder_read_is_known(tmp_path, monkeypatch):
    cut_small(monkeypatch)
    write(tmp_path, climbers(8000), turned=-1.0)
    log = onlooker.open_log(tmp_path)
    large = inspect_large(log, InProcess())
    small = inspect_log(log, log.read())
    assert [code for code in codes(large.warnings) if code.startswith("sign")] == []
    assert codes(large.warnings)[:3] == codes(small.warnings)[:3] == SAID
    # One verdict, of all rows.
    assert large.numbers["observations"] == small.numbers["observations"] == 8000
    worth = [one.numbers["independent_rows"] for one in (large, small)]
    assert worth[0] == pytest.approx(worth[1], rel=0.6)
    assert (large.usable, large.method) == (small.usable, small.method)


@pytest.mark.cluster
def test_the_answer_is_that_of_rows_in_memory(tmp_path, monkeypatch):
    log, kept = write(tmp_path / "log", climbers(24_000)), tmp_path / "kept"
    objectives = ("training", "loss")
    memory = {objective: onlooker.reconstruct(log, chains=4, objective=objective) for objective in objectives}
    cut_small(monkeypatch)
    found = {}
    for count, objective in enumerate(objectives, start=1):
        options = {"chains": 4, "objective": objective, "checkpoint": kept}
        large = found[objective] = onlooker.reconstruct(log, workers=2, **options)
        assert len(list(kept.glob("*.sums"))) == 6 * count
        assert codes(large) == codes(memory[objective])
        assert codes(large)[:3] == SAID
        assert 4096 - TOGETHER <= large.found.diagnostics["sampled"] <= 4096 + TOGETHER
        assert large.found.diagnostics["independent_rows"] > 240
        known = memory[objective].explored(PLACES) & large.explored(PLACES)
        assert known.mean() > 0.5
        apart = (large.reward(PLACES) - memory[objective].reward(PLACES))[known]
        assert np.abs(apart - apart.mean()).max() < memory[objective].reward_error(PLACES)[known].max()
        assert np.array_equal(large.projection.directions, ALONG.directions)
        assert large.to_parameters([[0.0]]) == pytest.approx(ALONG.origin[None])
        assert np.array_equal(onlooker.reconstruct(log, **options).reward(PLACES), large.reward(PLACES), equal_nan=True)
        assert len(list(kept.glob("*.sums"))) == 6 * count
        with pytest.raises(ValueError, match="the rows of a large log"):
            large.along(0)
    # R̂ of what learners climb is R̂ of the loss, less ½λ|θ|² along the direction.
    decay = found["loss"].reward(PLACES) - found["training"].reward(PLACES)
    true = 0.5 * DECAY * (PLACES[:, 0] + np.sqrt(2)) ** 2
    known = np.isfinite(decay)
    apart = (decay - true)[known]
    assert np.abs(apart - apart.mean()).max() < found["loss"].reward_error(PLACES)[known].max()
