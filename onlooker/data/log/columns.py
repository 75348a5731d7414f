"""Columns of a log that is read into memory: thinned by agents, names as numbers, pieces joined."""

from typing import Any
from zlib import crc32

import numpy as np

from onlooker.data.log.formats import Rows
from onlooker.storage.stores import Place

__all__ = ["coded", "joined", "thinned"]

# A log that is too large is thinned by agents if a piece has at least this many, else by whole pieces.
FEWEST_AGENTS = 20


def thinned(rows: Rows, share: int, number: int) -> Rows:
    """The rows of one agent in ``share``; if there are few agents, all rows of one piece in ``share``."""
    agents = np.zeros(len(rows.points)) if rows.agents is None else rows.agents
    names, which = np.unique(agents, return_inverse=True)
    if len(names) < FEWEST_AGENTS:
        return rows.take(slice(None) if number % share == 0 else slice(0))
    return rows.take(np.array([crc32(str(name).encode()) % share == 0 for name in names])[which])


def coded(agents: np.ndarray | None, codes: dict[str, int]) -> np.ndarray | None:
    """Integers in place of names: the names of a million rows take about a hundred megabytes."""
    if agents is None or agents.dtype.kind != "U":
        return agents
    names, first, which = np.unique(agents, return_index=True, return_inverse=True)
    numbers = np.empty(len(names), int)
    for index in np.argsort(first):
        numbers[index] = codes.setdefault(str(names[index]), len(codes))
    return numbers[which]


def joined(path: Place, parts: list[Any]) -> np.ndarray | None:
    """One column, concatenated from its parts, whose memory is freed."""
    missing = [part is None for part in parts]
    if all(missing):
        return None
    if any(missing):
        raise ValueError(f"{path} has a column in only some of its shards; move the others out of the folder.")
    whole = np.concatenate(parts)
    parts.clear()
    return whole
