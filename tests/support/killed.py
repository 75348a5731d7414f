"""A writer and an Observer that are killed at random moments leave the same files as without any kill.

    python -m tests.support.killed FOLDER KILLS [SEED]

This is a process of its own, because it forks. One child writes rows that are determined by their index, and another
learns from the log as it grows. Both are killed (SIGKILL) again and again, and resume from the files. In the end the
log must have every row once and in order, and the Observer's checkpoint must be equal, byte for byte, to that of an
Observer that learnt the whole log without a break.
"""

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import onlooker

# Number of rows that are drawn, and written, at a time.
BLOCK = 50
# Row at which the reward jumps.
JUMP = 6000
# Number of rows written after the last kill, so that the jump is detected.
MORE = 3000


def rows(first: int, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points, gradients and agents of ``count`` rows from row ``first`` on; the reward jumps at row JUMP."""
    numbers = np.arange(first // BLOCK, (first + count - 1) // BLOCK + 1)
    noise = np.concatenate([np.random.default_rng((1, number)).standard_normal((BLOCK, 4)) for number in numbers])
    noise = noise[first - numbers[0] * BLOCK :][:count]
    where = np.arange(first, first + count)
    points = noise[:, :2]
    gradients = -points + 0.5 * noise[:, 2:] + np.where(where >= JUMP, 2.0, 0.0)[:, None]
    return points, gradients, where // 20


def _count(folder: Path) -> int:
    """Number of rows in a log."""
    shards = [path for path in folder.iterdir() if path.suffix == ".parquet"] if folder.exists() else []
    return onlooker.open_log(folder).row_count() if shards else 0


def _total(folder: Path) -> int | None:
    """Number of rows at which to stop; None while processes are still being killed."""
    asked = folder / "total"
    return int(asked.read_text()) if asked.exists() else None


def write(folder: Path) -> None:
    """Write rows, from the first that is not in the log."""
    log = folder / "log"
    with onlooker.LogWriter(log, rows=400, seconds=0.05) as writer:
        number = _count(log)
        while (total := _total(folder)) is None or number < total:
            some = min(BLOCK, (total or number + BLOCK) - number)
            points, gradients, agents = rows(number, some)
            writer.add_many(points, gradients, agents=agents, times=np.arange(number, number + some))
            number += some
            time.sleep(0.002)


def observe(folder: Path) -> None:
    """Learn rows, from the last checkpoint on."""
    log, state = folder / "log", folder / "state.ckpt"
    live = onlooker.Observer.load(state) if state.exists() else onlooker.Observer(dim=2, forgetting="adaptive")
    while (total := _total(folder)) is None or live.seen < total:
        if _count(log):
            live.learn_log(log, checkpoint=state, every=500)
        time.sleep(0.005)


def _start(role: Callable[[Path], None], folder: Path) -> int:
    """Run a function in a child process; return its id."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            role(folder)
            code = 0
        finally:
            os._exit(code)
    return child


def main(folder: Path, kills: int, seed: int = 0) -> None:
    chance = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    running = {role: _start(role, folder) for role in (write, observe)}
    killed = {write: 0, observe: 0}
    for _ in range(kills):
        time.sleep(chance.uniform(0, 0.12))
        role = chance.choice([write, observe])
        os.kill(running[role], signal.SIGKILL)
        os.waitpid(running[role], 0)
        killed[role] += 1
        running[role] = _start(role, folder)
    hidden = folder / ".total"
    hidden.write_text(str(max(_count(folder / "log"), JUMP) + MORE))
    hidden.rename(folder / "total")
    for role, child in running.items():
        _, status = os.waitpid(child, 0)
        assert status == 0, f"{role.__name__} failed"
    total = _total(folder)
    seen = onlooker.read_log(folder / "log")
    points, gradients, agents = rows(0, total)
    assert len(seen) == total
    assert np.array_equal(seen.points, points)
    assert np.array_equal(seen.gradients, gradients)
    assert np.array_equal(seen.agents, agents)
    whole = onlooker.Observer(dim=2, forgetting="adaptive")
    whole.learn_log(folder / "log", checkpoint=folder / "whole.ckpt")
    assert len(whole.jumps) == 1
    assert (folder / "whole.ckpt").read_bytes() == (folder / "state.ckpt").read_bytes()
    kept = {role.__name__: count for role, count in killed.items()}
    print(f"killed {kept}; {total} rows and the observer's state are as without any kill")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), *map(int, sys.argv[3:]))
