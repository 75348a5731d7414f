"""An Observer that survives: saved, loaded, killed, asked while it learns; and files that are no checkpoints."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import onlooker
from onlooker.storage.trees import pack
from tests.support.messages import message_of

ROOT = Path(__file__).parent.parent.parent


def stream(dim, count=6000, jump=3500):
    random = np.random.default_rng(dim)
    points = random.standard_normal((count, dim))
    gradients = -points + 0.3 * np.sin(2 * points) + 0.5 * random.standard_normal((count, dim))
    gradients[jump:] += 2.0
    return points, gradients, np.arange(count) // 20


def same(one, other):
    one, other = pack(one), pack(other)
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert value.dtype == other[name].dtype, name
        assert np.array_equal(value, other[name], equal_nan=value.dtype.kind == "f"), name


@pytest.mark.parametrize(
    ("dim", "forgetting"), [(1, "adaptive"), (2, None), (2, 1e-3), (2, "adaptive"), (5, None), (5, "adaptive")]
)
def test_loaded_it_goes_on_to_the_last_bit(tmp_path, dim, forgetting):
    points, gradients, agents = stream(dim)
    whole, cut = (onlooker.Observer(dim=dim, forgetting=forgetting, seed=3) for _ in range(2))
    # In pieces of other sizes than a block, before and after the jump.
    for first in range(0, 6000, 770):
        rows = slice(first, first + 770)
        whole.learn_many(points[rows], gradients[rows], agents[rows])
    for first in range(0, 6000, 1130):
        rows = slice(first, first + 1130)
        cut.learn_many(points[rows], gradients[rows], agents[rows])
        cut = onlooker.Observer.load(cut.save(tmp_path / "state.ckpt"))
    same(whole, cut)
    assert len(whole.jumps) == 1
    if dim <= 2:
        assert np.array_equal(whole.reward(points[:50]), cut.reward(points[:50]), equal_nan=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state.ckpt"]


def test_a_file_that_is_not_a_checkpoint_is_rejected(tmp_path):
    points, gradients, agents = stream(1, 2000)
    live = onlooker.Observer(dim=1)
    live.learn_many(points, gradients, agents)
    state = live.save(tmp_path / "state.ckpt")
    content, bad = state.read_bytes(), tmp_path / "bad.ckpt"
    random = np.random.default_rng(0)
    # The first place is in the digest, which nothing else protects.
    for place in [25, *random.integers(20, len(content), 25)]:
        bad.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        with pytest.raises(ValueError, match="is damaged"):
            onlooker.Observer.load(bad)
        bad.write_bytes(content[:place])
        with pytest.raises(ValueError, match=r"is damaged|is not the state"):
            onlooker.Observer.load(bad)
    bad.write_bytes(content.replace(b"onlooker Observer 1\n", b"onlooker Observer 2\n"))
    with pytest.raises(ValueError, match="has format 2 and this Onlooker reads up to 1"):
        onlooker.Observer.load(bad)
    for other in (b"", b"PK\3\4", b"\x80\x04K\x01.", b"onlooker Chains 1\n"):
        bad.write_bytes(other)
        with pytest.raises(ValueError, match="is not the file of a saved Observer"):
            onlooker.Observer.load(bad)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        onlooker.Observer.load(tmp_path / "nothing")
    with pytest.raises(ValueError, match="is a folder"):
        onlooker.Observer.load(tmp_path)


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    live = onlooker.Observer(dim=1)
    state = live.save(tmp_path / "state.ckpt")
    before = state.read_bytes()
    live.learn_one(1.0, 2.0)

    def fails(_):
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match="no space left"):
        live.save(state)
    assert state.read_bytes() == before


def test_a_log_is_learnt_once(tmp_path):
    points, gradients, agents = stream(2)
    log = tmp_path / "log"
    with onlooker.LogWriter(log, rows=900) as writer:
        writer.add_many(points[:4000], gradients[:4000], agents=agents[:4000])
        writer.flush()
        live = onlooker.Observer(dim=2)
        assert live.learn_log(log, checkpoint=tmp_path / "state.ckpt") == 4000
        assert live.learn_log(log) == 0
        writer.add_many(points[4000:], gradients[4000:], agents=agents[4000:])
    live = onlooker.Observer.load(tmp_path / "state.ckpt")
    assert live.learn_log(log) == 2000
    direct = onlooker.Observer(dim=2)
    direct.learn_many(points, gradients, agents)
    assert np.array_equal(live.reward(points[:50]), direct.reward(points[:50]), equal_nan=True)
    sorted(log.iterdir())[2].write_bytes(b"")
    holed = onlooker.Observer(dim=2)
    assert holed.learn_log(log) == 5100
    assert message_of(holed, "shards-torn").numbers == {"shards": 1}
    np.savez(tmp_path / "other.npz", points=points, gradients=gradients)
    with pytest.raises(ValueError, match="has learnt from another log"):
        live.learn_log(tmp_path / "other.npz")
    np.savez(tmp_path / "iterates.npz", points=points)
    with pytest.raises(ValueError, match="has iterates without gradients"):
        onlooker.Observer(dim=2).learn_log(tmp_path / "iterates.npz")


def test_it_may_be_asked_while_it_learns(tmp_path):
    points, gradients, agents = stream(2, 20_000, jump=20_000)
    live, failed, answers = onlooker.Observer(dim=2), [], []
    live.learn_many(points[:2000], gradients[:2000], agents[:2000])
    done = threading.Event()

    def ask():
        try:
            while not done.is_set():
                answers.append(np.isfinite(live.reward(points[:20])).all())
                live.save(tmp_path / "state.ckpt")
                assert live.effective_observations >= 2000
        except Exception as error:
            failed.append(error)

    asking = [threading.Thread(target=ask) for _ in range(2)]
    for thread in asking:
        thread.start()
    for first in range(2000, 20_000, 500):
        rows = slice(first, first + 500)
        live.learn_many(points[rows], gradients[rows], agents[rows])
    done.set()
    for thread in asking:
        thread.join()
    assert failed == []
    assert len(answers) >= 2
    assert all(answers)
    alone = onlooker.Observer(dim=2)
    alone.learn_many(points, gradients, agents)
    same(alone, live)


def killed(folder, kills, seed):
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "tests.support.killed", str(folder), str(kills), str(seed)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "as without any kill" in done.stdout


def test_killed_at_any_moment_nothing_is_lost(tmp_path):
    killed(tmp_path, 12, 0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_killed_two_hundred_times_nothing_is_lost(tmp_path, seed):
    killed(tmp_path, 200, seed)
