"""Which rows are held out: one rule, offline and live.

A fit chooses its settings by its error on held-out rows. Whole agents are held out, because a single row could be
predicted from its neighbours in time. Whether an agent is held out depends only on its name and the seed, so the answer
is the same for an array, a log and a stream, and does not depend on the other agents.

Stretches of consecutive rows are held out instead if the agents are unknown, or if the held-out agents have nearly all
of the rows or nearly none.
"""

from typing import Any
from zlib import crc32

import numpy as np

from onlooker.data.observations import Observations

__all__ = [
    "HELD_OUT",
    "agent_numbers",
    "agents_held_out",
    "balanced",
    "held_out",
    "in_held_stretch",
    "rows_in_held_stretches",
    "stretches_held_out",
]

# One agent, or stretch, in HELD_OUT is held out.
HELD_OUT = 5
# Number of stretches of a record: few enough for most rows to be on the same side as their neighbours, and enough for
# both sides to cover all times.
STRETCHES = 50
# Held-out share of the rows below which too few are left to choose settings by, and above which too few to fit.
FEWEST, MOST = 0.02, 0.6


def held_out(seen: Observations, seed: int = 0) -> np.ndarray:
    """Mask (n,) of the rows of a record that are held out."""
    if seen.agents is not None:
        held = agents_held_out(seen.agents, seed, seen.agent_names)
        if balanced(held):
            return held
    return stretches_held_out(len(seen), seed)


def agents_held_out(agents: np.ndarray, seed: int, names: np.ndarray | None = None) -> np.ndarray:
    """Mask (n,) of the rows whose agent is held out; with ``names``, ``agents`` holds indices into them."""
    called, which = _called(agents, names)
    return np.array([crc32(f"{seed}/{name}".encode()) % HELD_OUT == 0 for name in called], bool)[which]


def agent_numbers(agents: np.ndarray, names: np.ndarray | None = None) -> np.ndarray:
    """A number (n,) for each row's agent that depends on its name alone; the parameters are those above."""
    called, which = _called(agents, names)
    return np.array([crc32(name.encode()) for name in called], np.int64)[which]


def _called(agents: np.ndarray, names: np.ndarray | None) -> tuple[list[str], np.ndarray]:
    """The names of the agents, and the index of each row's."""
    unique, which = np.unique(agents, return_inverse=True)
    called = unique if names is None else names[unique]
    if called.dtype.kind == "f" and (called == called.round()).all():
        # Agent 3 is the same agent in a file that holds it as 3.0.
        called = called.astype(int)
    return [str(name) for name in called], which


def balanced(held: np.ndarray) -> bool:
    """Whether enough rows are held out and enough are left to fit."""
    return bool(FEWEST < held.mean() < MOST)


def stretches_held_out(count: int, seed: int) -> np.ndarray:
    """Mask (count,) of the held-out rows of a record: one in HELD_OUT of its stretches, drawn with the seed."""
    stretch = np.arange(count) * STRETCHES // count
    return _chosen(np.bincount(stretch), seed)[stretch]


def rows_in_held_stretches(rows: np.ndarray, count: int, seed: int) -> np.ndarray:
    """The same for some rows of a record of ``count`` rows; stretches of later rows repeat the choice."""
    # Boundaries as above, without an array of the length of the record.
    edges = -(-np.arange(STRETCHES + 1) * count // STRETCHES)
    return _chosen(np.diff(edges), seed)[rows * STRETCHES // count % STRETCHES]


def _chosen(sizes: np.ndarray, seed: int) -> np.ndarray:
    """Which stretches of these sizes are held out: at random, until they have one row in HELD_OUT."""
    order = np.random.default_rng(seed).permutation(len(sizes))
    before = np.cumsum(sizes[order]) - sizes[order]
    chosen = np.zeros(len(sizes), bool)
    chosen[order[before * HELD_OUT < sizes.sum()]] = True
    return chosen


def in_held_stretch(rows: Any, length: int) -> Any:
    """Whether rows of a stream are held out, by their indices: the last of every HELD_OUT stretches of this length."""
    return rows // length % HELD_OUT == HELD_OUT - 1
