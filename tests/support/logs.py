"""Logs of learners that climb two hills, with noise: small ones, that passes cut into many runs."""

from pathlib import Path

import numpy as np

import onlooker
from onlooker.reconstruction import by_passes, passes, runs

AGENTS, LEARNING_RATE = 100, 0.02


def climbers(rows: int, dim: int = 1, seed: int = 0, jumps: tuple[int, ...] = ()) -> dict[str, np.ndarray]:
    """Rows of a hundred agents in turn; at each of the jumps R gets or loses 3 θ₁."""
    random = np.random.default_rng(seed)
    place = 1.5 * random.standard_normal((AGENTS, dim)).astype(np.float32)
    points, gradients = (np.empty((rows // AGENTS, AGENTS, dim), np.float32) for _ in range(2))
    for step in range(rows // AGENTS):
        slope = -0.6 * place
        for height, at in ((6.0, -1.0), (4.0, 1.2)):
            away = place - np.float32(at)
            slope -= height * away * np.exp(-(away**2).sum(axis=1, keepdims=True))
        slope[:, 0] += 3.0 * (sum(step * AGENTS >= jump for jump in jumps) % 2)
        noisy = slope + 2 * random.standard_normal(place.shape).astype(np.float32)
        points[step], gradients[step] = place, noisy
        place = place + np.float32(LEARNING_RATE) * noisy
        again = random.random(AGENTS) < 0.03
        place[again] = 1.5 * random.standard_normal((again.sum(), dim))
    count = rows // AGENTS
    return {
        "points": points.reshape(-1, dim),
        "gradients": gradients.reshape(-1, dim),
        "agents": np.tile(np.arange(AGENTS), count),
        "times": np.repeat(np.arange(count), AGENTS).astype(float),
    }


def write(folder: Path | str, rows: dict[str, np.ndarray], shard: int = 1000) -> Path | str:
    """Write rows as a log with shards of so many rows."""
    with onlooker.LogWriter(folder, rows=shard) as log:
        log.add_many(rows["points"], rows["gradients"], agents=rows["agents"], times=rows["times"])
    return folder


def cut_small(monkeypatch, run: int = 4000, sample: int = 4096, before: int = 8192, after: int = 2000) -> None:
    """Let passes take small logs for large ones: samples, runs, and what the watch is shown around a run are small."""
    monkeypatch.setattr(by_passes, "SAMPLE", sample)
    monkeypatch.setattr(runs, "NUMBERS", 1)
    monkeypatch.setattr(runs, "FEWEST_ROWS", run)
    for module in (runs, passes):
        monkeypatch.setattr(module, "BEFORE", before)
        monkeypatch.setattr(module, "AFTER", after)
