"""Sums over runs of shards are those over all rows, however the log is cut; what is chosen and warned about."""

import json
import shutil
import sys
from dataclasses import replace

import numpy as np
import pytest

import onlooker
from onlooker import cli
from onlooker.data.agents_seen import MOST, AgentsSeen, RowsByAgent, distinct, hashes_of
from onlooker.data.quality import agreement_with_steps
from onlooker.data.splits import agents_held_out, rows_in_held_stretches, stretches_held_out
from onlooker.fit.jumps.record import jumps_in
from onlooker.reconstruction import by_passes, reconstruct
from onlooker.reconstruction.inspect_log import inspect_large, inspect_log
from onlooker.reconstruction.options import Options
from onlooker.reconstruction.passes import TOGETHER
from onlooker.reconstruction.runs import runs_of, shards_of
from onlooker.storage.trees import pack
from onlooker.workers.in_process import InProcess
from tests.support.logs import climbers, cut_small, write
from tests.support.messages import codes, message_of

PLACES = np.linspace(-1.5, 1.5, 41)[:, None]
ROWS = 24_000


@pytest.fixture(scope="module")
def rows():
    return climbers(ROWS)


@pytest.fixture(scope="module")
def folder(rows, tmp_path_factory):
    return write(tmp_path_factory.mktemp("log"), rows)


def passes_over(folder, **options):
    return by_passes._Passes(onlooker.open_log(folder), Options(1.0, 4, 0, **options), InProcess(), None)


def test_sums_of_runs_are_those_of_all_rows(tmp_path, monkeypatch):
    cut_small(monkeypatch)
    rows = climbers(ROWS, dim=2)
    passes = passes_over(write(tmp_path, rows))
    shards = passes._shards()
    choice, total = passes._passed(shards)
    assert len(runs_of(shards, 2)) == 6
    assert choice.chosen.by_agent
    held = agents_held_out(rows["agents"], 0)
    usual = choice.chosen.limits.hold(rows["points"], rows["gradients"])
    whole = choice.chosen.sums
    whole.add(rows["points"][usual], rows["gradients"][usual], held[usual])
    mine, theirs = pack(total.sums), pack(whole)
    assert mine.keys() == theirs.keys()
    for name, sums in theirs.items():
        scale = max(float(np.abs(sums).max()), 1e-300)
        assert np.allclose(mine[name], sums, rtol=0, atol=1e-9 * scale), name
    assert total.sums.train.count + total.sums.held.count + total.sums.outside == usual.sum()
    assert total.quality.rows == usual.sum()
    assert total.quality.agents.number == 100
    assert total.quality.agents.rows.sum() == usual.sum()
    # Steps across a cut between runs are lost, and only those.
    seen = onlooker.observe(**rows)
    assert total.quality.agents.cosines.mean() == pytest.approx(agreement_with_steps(seen).mean(), abs=0.01)
    assert np.array_equal(total.quality.low[:2], rows["points"][usual].min(axis=0))


def test_the_sample_is_fair_and_keeps_rows_of_an_agent_together(rows, folder, monkeypatch):
    cut_small(monkeypatch)
    passes = passes_over(folder)
    sample, count = passes._sample(runs_of(passes._shards(), 1), False)
    assert count == ROWS
    assert abs(len(sample.keys) - 4096) <= TOGETHER
    numbers = sample.seen.rows
    assert np.array_equal(rows["points"][numbers], sample.seen.points)
    assert (np.diff(numbers) > 0).all()
    # Rows of all times and agents.
    for names in (numbers * 10 // ROWS, sample.seen.agents // 10):
        assert (np.abs(np.bincount(names) - 409.6) < 5 * np.sqrt(409.6 * TOGETHER)).all()
    # Of an agent, seven of eight are followed by the next one.
    order = np.lexsort((numbers, sample.seen.agents))
    follows = np.diff(numbers[order]) == 100
    assert follows.mean() > 0.8


@pytest.mark.cluster
def test_the_answer_is_that_of_rows_in_memory(rows, folder, monkeypatch):
    memory = onlooker.reconstruct(**rows, chains=4)
    small = onlooker.reconstruct(folder, chains=4)
    assert np.array_equal(small.reward(PLACES), memory.reward(PLACES), equal_nan=True)
    cut_small(monkeypatch)
    result = onlooker.reconstruct(folder, chains=4)
    assert result.found.diagnostics["observations"] == ROWS
    assert 4096 - TOGETHER <= result.found.diagnostics["sampled"] <= 4096 + TOGETHER
    assert codes(result) == codes(memory) == []
    known = memory.explored(PLACES) & result.explored(PLACES)
    assert known.mean() > 0.5
    apart = (result.reward(PLACES) - memory.reward(PLACES))[known]
    assert np.abs(apart - apart.mean()).max() < memory.reward_error(PLACES)[known].max()
    # Shards of other sizes, and so other runs: the sample differs, the answer hardly.
    assert result.trusted


@pytest.mark.cluster
def test_a_driver_that_died_resumes_and_new_rows_cost_only_their_run(rows, folder, tmp_path, monkeypatch):
    cut_small(monkeypatch)
    log, kept = tmp_path / "log", tmp_path / "kept"
    shutil.copytree(folder, log)
    fresh = onlooker.reconstruct(log, chains=4).reward(PLACES)
    made = []

    def counted(run, chosen):
        if len(made) == stop:
            raise KeyboardInterrupt
        made.append(run.number)
        return summed(run, chosen)

    summed, stop = by_passes.summed, 3
    monkeypatch.setattr(by_passes, "summed", counted)
    with pytest.raises(KeyboardInterrupt):
        onlooker.reconstruct(log, chains=4, checkpoint=kept)
    assert made == [0, 1, 2]
    made, stop = [], None
    resumed = onlooker.reconstruct(log, chains=4, checkpoint=kept)
    assert made == [3, 4, 5]
    assert np.array_equal(resumed.reward(PLACES), fresh, equal_nan=True)
    made.clear()
    # One of them is damaged, and is made again.
    file = next(kept.glob("*.sums"))
    file.write_bytes(file.read_bytes()[:-50])
    again = onlooker.reconstruct(log, chains=4, checkpoint=kept)
    assert len(made) == 1
    assert np.array_equal(again.reward(PLACES), fresh, equal_nan=True)
    made.clear()
    write(log, climbers(8000, seed=1))
    grown = onlooker.reconstruct(log, chains=4, checkpoint=kept)
    # The last runs: the one that the new rows come after ends with the rows that the watch sees after it.
    assert set(made) <= {5, 6, 7}
    assert {6, 7} <= set(made)
    assert grown.found.diagnostics["observations"] == ROWS + 8000
    made.clear()
    onlooker.reconstruct(log, chains=4, checkpoint=kept, seed=1)
    assert len(made) == 8


@pytest.mark.cluster
def test_faults_of_a_log_are_found_by_sums(rows, tmp_path, monkeypatch):
    cut_small(monkeypatch)
    bad = {name: part.copy() for name, part in rows.items()}
    bad["gradients"][::100] = np.nan
    bad["points"][5::100] *= 1e4
    write(tmp_path / "bad", bad)
    shard = sorted((tmp_path / "bad").glob("*.parquet"))[7]
    shard.write_bytes(shard.read_bytes()[:3000])
    result = onlooker.reconstruct(tmp_path / "bad", chains=4)
    assert message_of(result, "rows-rejected").numbers == {"rejected": 230, "rows": 23_000}
    assert message_of(result, "rows-runaway").numbers == {"left_out": 230, "rows": 22_770}
    assert message_of(result, "shards-torn").numbers == {"shards": 1}
    assert result.found.diagnostics["observations"] == 22_540
    turned = {**rows, "gradients": -rows["gradients"]}
    assert "sign-reversed" in codes(onlooker.reconstruct(write(tmp_path / "turned", turned), chains=4))


@pytest.mark.cluster
def test_a_folder_that_was_copied_twice_counts_once(folder, tmp_path, monkeypatch):
    cut_small(monkeypatch)
    shutil.copytree(folder, tmp_path / "log")
    once = onlooker.reconstruct(tmp_path / "log", chains=4)
    for shard in sorted((tmp_path / "log").glob("*.parquet"))[:6]:
        shutil.copy(shard, shard.with_name(f"1{shard.name[1:]}"))
    twice = onlooker.reconstruct(tmp_path / "log", chains=4)
    assert message_of(twice, "rows-duplicated").numbers == {"dropped": 6000, "rows": 30_000}
    assert twice.found.diagnostics["observations"] == once.found.diagnostics["observations"]


@pytest.mark.cluster
def test_single_duplicates_are_estimated(rows, tmp_path, monkeypatch):
    cut_small(monkeypatch)
    doubled = {name: np.concatenate([part, part[:1200]]) for name, part in rows.items()}
    doubled["times"][-1200:] += 1e6
    write(tmp_path, doubled, shard=700)
    message = message_of(onlooker.reconstruct(tmp_path, chains=4), "rows-duplicated")
    assert message.numbers["duplicates"] == pytest.approx(1200, rel=0.01)


@pytest.mark.cluster
def test_rows_outside_the_box_begin_everything_again(folder, monkeypatch):
    cut_small(monkeypatch)
    passes = passes_over(folder)
    drawn, narrow = passes._sample, []

    def first_time_narrow(runs, again):
        sample, count = drawn(runs, again)
        narrow.append(again)
        if again:
            return sample, count
        near = (np.abs(sample.seen.points + 1) < 0.4).all(axis=1)
        return sample._replace(seen=by_passes.taken(sample.seen, near)), count

    monkeypatch.setattr(passes, "_sample", first_time_narrow)
    read = passes.result()
    assert narrow == [False, True]
    assert len(read.seen) > 4000


@pytest.mark.cluster
def test_jumps_of_stretches_are_those_of_the_whole_watch(tmp_path, monkeypatch):
    cut_small(monkeypatch, run=15_000, before=10_000)
    jumped = climbers(60_000, jumps=(28_000,))
    whole = jumps_in(onlooker.observe(**jumped))
    assert len(whole) == 1
    read = passes_over(write(tmp_path, jumped, shard=2500)).result()
    assert len(read.jumps) == 1
    assert abs(read.jumps[0].at - whole[0].at) <= 512
    assert "reward-jumped" in codes(onlooker.reconstruct(tmp_path, chains=4))


@pytest.mark.slow
@pytest.mark.parametrize("jumps", [(), (1_100_000,), (540_000, 990_000, 1_560_000)])
def test_jumps_of_long_stretches_are_those_of_the_whole_watch(tmp_path, monkeypatch, jumps):
    """Two million rows in four runs, each watched from 2¹⁸ rows before it."""
    cut_small(monkeypatch, run=500_000, before=1 << 18, after=1 << 14)
    seen = climbers(2_000_000, dim=2, seed=1, jumps=jumps)
    whole = [jump.at for jump in jumps_in(onlooker.observe(**seen))]
    passes = by_passes._Passes(
        onlooker.open_log(write(tmp_path, seen, shard=50_000)), Options(1.0, 4, 0), InProcess(), None, fit=False
    )
    found = passes._passed(passes._shards())[1].jumps[:, 0]
    assert len(whole) == len(jumps)
    assert len(found) == len(whole)
    assert (np.abs(found - whole) <= 512).all()


@pytest.mark.cluster
def test_above_three_dimensions_the_head_has_all_rows(tmp_path, monkeypatch):
    cut_small(monkeypatch, run=3000, sample=10_000)
    rows = climbers(9000, dim=5)
    folder = write(tmp_path, rows, shard=1500)
    memory = onlooker.reconstruct(**rows, chains=4)
    # The sample has every row, so that the same units are chosen.
    passes = passes_over(folder)
    read = passes.result()
    assert len(read.seen) == 9000
    places = rows["points"][::90]
    apart = read.potential.value(places) - memory.fitted.value(places)
    assert np.abs(apart - apart.mean()).max() < 1e-4 * memory.fitted.value(places).std()


@pytest.mark.cluster
def test_logs_of_nobody_and_of_policies(rows, tmp_path, monkeypatch):
    """Without agents stretches are held out; coordinates of policies are folded by the tasks."""
    cut_small(monkeypatch)
    with onlooker.LogWriter(tmp_path / "nobody", rows=1000) as log:
        log.add_many(rows["points"], rows["gradients"])
    passes = passes_over(tmp_path / "nobody")
    choice, total = passes._passed(passes._shards())
    assert not choice.chosen.by_agent
    held, train = total.sums.held.count, total.sums.train.count
    assert held / (held + train) == pytest.approx(stretches_held_out(ROWS, 0).mean(), abs=1e-3)
    known = rows["agents"] % 20 == 0
    assert onlooker.reconstruct(tmp_path / "nobody", chains=4).found.diagnostics["observations"] > 23_000
    # One agent has most rows: stretches are held out, too.
    lonely = {**rows, "agents": np.where(known, rows["agents"], 7)}
    assert not passes_over(write(tmp_path / "lonely", lonely))._chosen(*_sample_of(tmp_path / "lonely")).chosen.by_agent
    angles = onlooker.policies.spherical(1, 2)
    turned = {**rows, "points": np.arccos(np.clip(0.4 * rows["points"], -1, 1))}
    write(tmp_path / "policies", turned)
    folded = onlooker.reconstruct(tmp_path / "policies", chains=4, coordinates=angles)
    memory = onlooker.reconstruct(**turned, chains=4, coordinates=angles)
    places = np.linspace(0.6, 1.4, 9)[:, None]
    apart = folded.reward(places) - memory.reward(places)
    assert np.abs(apart - apart.mean()).max() < 3 * memory.reward_error(places).max()


def _sample_of(folder):
    passes = passes_over(folder)
    return passes._sample(runs_of(passes._shards(), 1), False)


@pytest.mark.cluster
def test_a_large_log_is_inspected_by_passes(rows, folder, tmp_path, monkeypatch, capsys):
    cut_small(monkeypatch)
    memory = inspect_log(onlooker.open_log(folder), onlooker.read_log(folder))
    large = inspect_large(onlooker.open_log(folder), InProcess(), tmp_path / "kept")
    assert large.usable
    assert (large.method, large.reason, large.warnings) == (memory.method, memory.reason, [])
    for name in ("observations", "dimension", "rejected", "torn_shards", "agents", "rows_per_agent"):
        assert large.numbers[name] == memory.numbers[name]
    assert large.numbers["noise"] == pytest.approx(memory.numbers["noise"], rel=0.1)
    jumped = write(tmp_path / "jumped", climbers(24_000, jumps=(12_000,)))
    found = inspect_large(onlooker.open_log(jumped), InProcess())
    assert [message.code for message in found.warnings] == ["jump-suspected"]
    assert abs(found.warnings[0].numbers["row"] - 12_000) < 512
    monkeypatch.setattr(sys, "argv", ["onlooker", "inspect", str(folder), "--checkpoint", str(tmp_path / "kept")])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert not left.value.code
    assert "observations       24,000" in capsys.readouterr().out
    out = tmp_path / "out"
    monkeypatch.setattr(sys, "argv", ["onlooker", "reconstruct", str(folder), "--workers", "1", "--out", str(out)])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert not left.value.code
    assert json.loads((out / "summary.json").read_text())["diagnostics"]["observations"] == ROWS
    monkeypatch.setattr(sys, "argv", ["onlooker", "reconstruct", str(folder), "--workers", "many"])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 2
    assert "workers is 'many'; give a number of processes, or 'ray'." in capsys.readouterr().err


def test_agents_are_counted_in_bounded_memory():
    random = np.random.default_rng(0)
    parts, along = [], RowsByAgent(1)
    names = random.permutation(60_000)
    for part in np.split(names, 3):
        numbers = along.numbers(part)
        along.add(np.zeros((len(part), 1)), np.ones((len(part), 1)), numbers, None)
        one = RowsByAgent(1)
        one.add(np.zeros((len(part), 1)), np.ones((len(part), 1)), one.numbers(part), None)
        parts.append(one.seen())
    joined = parts[0].joined(parts[1]).joined(parts[2])
    assert len(joined.hashes) == MOST
    assert joined.number == pytest.approx(60_000, rel=0.04)
    for mine, theirs in zip(pack(joined).values(), pack(along.seen()).values(), strict=True):
        assert np.array_equal(mine, theirs)
    few = AgentsSeen(np.sort(hashes_of(["a", "b"])), *(np.ones(2, int) for _ in range(3)))
    assert few.joined(few).number == 2
    wide = np.array([5, -(10**12), 5, 7])
    for values in (wide, wide[2:], np.array(["b", "a", "b"])):
        expected = np.unique(values, return_inverse=True)
        assert all(np.array_equal(mine, theirs) for mine, theirs in zip(distinct(values), expected, strict=True))


def test_agents_of_many_batches_are_those_of_one():
    rows = climbers(6000)
    whole, parts = RowsByAgent(1), RowsByAgent(1)
    for seen, size in ((whole, 6000), (parts, 250)):
        for first in range(0, 6000, size):
            some = slice(first, first + size)
            numbers = seen.numbers(rows["agents"][some])
            seen.add(rows["points"][some], rows["gradients"][some], numbers, rows["times"][some])
    assert np.array_equal(whole.seen().rows, parts.seen().rows)
    assert np.array_equal(whole.seen().steps, parts.seen().steps)
    assert np.allclose(whole.seen().along, parts.seen().along, rtol=1e-12)
    expected = agreement_with_steps(onlooker.observe(**rows))
    assert np.allclose(np.sort(whole.seen().cosines), np.sort(expected), rtol=1e-9)


def test_stretches_are_held_out_of_parts_as_of_the_whole():
    for count in (1000, 24_017):
        whole = stretches_held_out(count, seed=3)
        for first in (0, 333, 990):
            some = np.arange(first, min(count, first + 500))
            assert np.array_equal(rows_in_held_stretches(some, count, 3), whole[some])
    assert rows_in_held_stretches(np.arange(1000, 2000), 1000, 3).mean() == pytest.approx(0.2, abs=0.02)


def test_a_run_is_watched_from_before_its_first_row_to_after_its_last(monkeypatch):
    cut_small(monkeypatch, run=4000, before=2500)
    shards = shards_of([f"{number}.parquet" for number in range(30)], [1000] * 30)
    runs = runs_of(shards, 2)
    assert [(run.first, run.end) for run in runs][:3] == [(0, 4000), (4000, 8000), (8000, 12_000)]
    assert runs[2].before[0].first == 5000
    assert runs[0].before == ()
    assert [shard.first for shard in runs[0].after] == [4000, 5000]
    assert runs[-1].after == ()
    # Shards that are appended change the last runs only.
    longer = runs_of(shards_of([f"{number}.parquet" for number in range(40)], [1000] * 40), 2)
    assert longer[:3] == runs[:3]


def test_bad_settings_get_a_sentence(rows, folder, tmp_path):
    for workers in ("many", 0, 1.5):
        with pytest.raises(ValueError, match="workers is"):
            onlooker.reconstruct(folder, workers=workers)
    with pytest.raises(ValueError, match="checkpoint is given with rows in memory"):
        onlooker.reconstruct(**rows, checkpoint=tmp_path / "kept")
    with pytest.raises(TypeError, match="give a dictionary of logs"):
        onlooker.reconstruct_many([folder])
    with pytest.raises(TypeError, match=r"logs\['one'\] is ndarray"):
        onlooker.reconstruct_many({"one": rows["points"]})
    with pytest.raises(ValueError, match="strict cannot be given for many"):
        onlooker.reconstruct_many({"one": folder}, strict=True)
    with pytest.raises(FileNotFoundError, match=r"two: .* does not exist"):
        onlooker.reconstruct_many({"two": tmp_path / "none"})


@pytest.mark.cluster
def test_many_at_once_are_each_alone(folder, rows):
    seen = onlooker.observe(**rows)
    flat = replace(seen, gradients=np.float32(0.5) * seen.gradients)
    with pytest.warns(onlooker.OnlookerWarning, match="turned: "):
        many = onlooker.reconstruct_many(
            {"log": folder, "flat": flat, "turned": replace(seen, gradients=-seen.gradients)}, chains=4
        )
    assert list(many) == ["log", "flat", "turned"]
    alone = reconstruct.reconstruct(flat, chains=4)
    # Here linear algebra has one thread.
    assert np.allclose(many["flat"].reward(PLACES), alone.reward(PLACES), rtol=1e-9, atol=1e-9, equal_nan=True)
