"""A watch with a checkpoint that is killed at any moment and resumed has learnt the same, to the last bit."""

import sys

import numpy as np
import pytest

import onlooker
from onlooker.cli import main
from onlooker.live.page import serve, source, watch
from onlooker.live.page.source import GrowingLog
from onlooker.live.page.watch import Watch

RANDOM = np.random.default_rng(0)
POINTS = RANDOM.standard_normal((6000, 4)) * [3.0, 2.0, 0.1, 0.1]
GRADIENTS = -POINTS + RANDOM.standard_normal(POINTS.shape)


@pytest.fixture
def often(monkeypatch):
    """Short batches, and a checkpoint after every third of them: most checkpoints lie within a shard."""
    monkeypatch.setattr(source, "AT_ONCE", 170)
    monkeypatch.setattr(watch, "SAVED_EVERY", 500)


def written(path, first=0, last=6000):
    np.savez(path, points=POINTS[first:last], gradients=GRADIENTS[first:last], agents=np.arange(first, last) // 30)
    return path


def test_a_resumed_watch_has_learnt_the_same(tmp_path, monkeypatch, often):
    log, state, snapshots = written(tmp_path / "log.npz"), tmp_path / "state.ckpt", []
    save = Watch._save

    def saved(self):
        save(self)
        snapshots.append(state.read_bytes())

    monkeypatch.setattr(Watch, "_save", saved)
    Watch(GrowingLog(log, components=2), checkpoint=state)._learn()
    whole, counts = snapshots[-1], []
    for killed in (snapshots[0], snapshots[len(snapshots) // 2]):
        state.write_bytes(killed)
        resumed = Watch(GrowingLog(log, components=2), checkpoint=state)
        counts.append(resumed.observer.seen)
        resumed._learn()
        assert resumed.observer.seen == 6000
        assert state.read_bytes() == whole
    assert 500 <= counts[0] < counts[1] < 5000


def test_the_watch_command_resumes_and_rejects_another_log(tmp_path, monkeypatch, capsys, often):
    seen = []

    def command(*arguments):
        monkeypatch.setattr(sys, "argv", ["onlooker", "watch", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        return stop.value.code, capsys.readouterr().err

    def served(watch, port, command):
        seen.append(0 if watch.observer is None else watch.observer.seen)
        watch._learn()

    monkeypatch.setattr(serve, "serve", served)
    monkeypatch.setattr(serve, "leave", lambda: None)
    log, state = tmp_path / "runs", tmp_path / "state.ckpt"
    with onlooker.LogWriter(log, rows=900) as writer:
        writer.add_many(POINTS[:, :2], GRADIENTS[:, :2])
    file = written(tmp_path / "log.npz")
    assert command(file, "--checkpoint", state)[0] == 0
    assert command(file, "--checkpoint", state)[0] == 0
    assert seen == [0, 6000]
    for arguments, sentence in (
        ((log, "--checkpoint", state), "has learnt from another log"),
        ((file, "--checkpoint", state, "--seed", "1"), "was saved with forgetting='adaptive' and seed=0"),
        (("--demo", "--checkpoint", state), "--checkpoint are for a log"),
    ):
        code, said = command(*arguments)
        assert code == 2
        assert sentence in said
