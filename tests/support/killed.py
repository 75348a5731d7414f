"""Writers and observers killed at random moments: what is on the disk in the end is as if nobody had been.

    python -m tests.support.killed FOLDER KILLS [SEED]

A process of its own, because it forks: one child writes rows that follow from their number alone, another learns from
the log as it grows. Both are killed (SIGKILL) again and again and begin again with what they find. In the end the log
must hold every row once and in order, and the observer's checkpoint must be, byte for byte, that of one that learnt the
whole log without a break.
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

BLOCK = 50
JUMP = 6000
MORE = 3000


def rows(first: int, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points, gradients and agents of so many rows, whoever asks; the reward jumps at one of them."""
    numbers = np.arange(first // BLOCK, (first + count - 1) // BLOCK + 1)
    noise = np.concatenate([np.random.default_rng((1, number)).standard_normal((BLOCK, 4)) for number in numbers])
    noise = noise[first - numbers[0] * BLOCK :][:count]
    where = np.arange(first, first + count)
    points = noise[:, :2]
    gradients = -points + 0.5 * noise[:, 2:] + np.where(where >= JUMP, 2.0, 0.0)[:, None]
    return points, gradients, where // 20


def _count(folder: Path) -> int:
    shards = [path for path in folder.iterdir() if path.suffix == ".parquet"] if folder.exists() else []
    return onlooker.open_log(folder).row_count() if shards else 0


def _total(folder: Path) -> int | None:
    asked = folder / "total"
    return int(asked.read_text()) if asked.exists() else None


def write(folder: Path) -> None:
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
    log, state = folder / "log", folder / "state.ckpt"
    live = onlooker.Observer.load(state) if state.exists() else onlooker.Observer(dim=2, forgetting="adaptive")
    while (total := _total(folder)) is None or live.seen < total:
        if _count(log):
            live.learn_log(log, checkpoint=state, every=500)
        time.sleep(0.005)


def _start(role: Callable[[Path], None], folder: Path) -> int:
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
    print(f"killed {kept}; {total} rows and the observer's state are as if nobody had been")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), *map(int, sys.argv[3:]))
