"""Where the rows come from that a page shows: a log that may still grow, or learners made up for a demonstration.

A source says in words what is the matter with it. A log that is gone may come back, and is waited for; one that turns
out to be of something else ends.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from onlooker.check import check_whole
from onlooker.density import standard_normal
from onlooker.learners.agents import record, running_pools
from onlooker.learners.reward import NoisyReward
from onlooker.learners.switching import Scheduled
from onlooker.observe.formats import UnreadableError
from onlooker.observe.log import Log, open_log, shards_in
from onlooker.observe.projection import Projection, principal_components

__all__ = ["Batch", "Demonstration", "GrowingLog", "Source"]

# Seconds between two looks at a folder.
PATIENCE = 0.2
# Rows that principal components are found in.
FIRST_ROWS = 1000

Values = Callable[[np.ndarray], np.ndarray]


class Batch(NamedTuple):
    """Some rows, in the order in which they were made."""

    points: np.ndarray
    gradients: np.ndarray
    agents: np.ndarray | None


class Source(Protocol):
    """What can be watched.

    Attributes
    ----------
    name
        What it is, in a few words.
    message
        What is the matter with it now; empty when nothing is.
    notes
        What to keep in mind about all that comes from it.
    """

    @property
    def name(self) -> str: ...

    @property
    def message(self) -> str: ...

    @property
    def notes(self) -> list[str]: ...

    def batches(self, stopped: Callable[[], bool]) -> Iterator[Batch]:
        """Rows as they come, until there will be no more or it is stopped."""
        ...

    def truth(self, seen: int) -> Values | None:
        """The reward after so many rows, at points (n, dim), when somebody knows it."""
        ...


@dataclass
class GrowingLog:
    """A log, from its first row to those that are still to come.

    Parameters
    ----------
    path
        A folder of shards, which may still be empty, or a file, which is read once.
    descent
        Whether its gradients are a loss's, whatever it says itself.
    components
        Watch only so many principal components of the first points.
    """

    path: Path
    descent: bool | None = None
    components: int | None = None
    message: str = field(default="", init=False)
    _log: Log | None = field(default=None, init=False)
    _known_as: str = field(default="", init=False)
    _projection: Projection | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.components is not None:
            check_whole(components=self.components)
        self._open()

    @property
    def name(self) -> str:
        return str(self.path)

    @property
    def notes(self) -> list[str]:
        notes = []
        if self._log is not None and self._log.torn:
            notes.append(f"{len(self._log.torn)} shards of the log are torn and were skipped.")
        if self._projection is not None:
            notes.append(self._projection.note)
        return notes

    def truth(self, seen: int) -> Values | None:
        return None

    def batches(self, stopped: Callable[[], bool]) -> Iterator[Batch]:
        if self.components is None:
            yield from self._rows(stopped)
            return
        first: list[Batch] = []
        for batch in self._rows(stopped):
            first.append(batch)
            if self._projection is None:
                points = np.concatenate([one.points for one in first])
                points = points[np.isfinite(points).all(axis=1)]
                if len(points) < FIRST_ROWS:
                    self.message = f"{len(points)} rows are there; components are found in the first {FIRST_ROWS}."
                    continue
                self._projection = principal_components(points[:FIRST_ROWS], self.components)
                self.message = ""
            for one in first:
                along = self._projection
                yield Batch(along.points(one.points), along.gradients(one.gradients), one.agents)
            first.clear()

    def _rows(self, stopped: Callable[[], bool]) -> Iterator[Batch]:
        position = ""
        while not stopped():
            try:
                if self._log is None:
                    self._open()
                if self._log is not None:
                    for rows, read in self._log.batches(position):
                        position = read
                        assert rows.gradients is not None
                        yield Batch(rows.points, rows.gradients, rows.agents)
                        if stopped():
                            return
                    if not self.path.is_dir() and self.path.exists():
                        self.message = f"all of {self.path} has been read."
                        return
            except FileNotFoundError:
                self._log = None
                self.message = (
                    f"{self.path} is gone: the log was moved or deleted. What was learnt is still shown, and it goes "
                    "on when the log is back."
                )
            except ValueError as error:
                self.message = f"{error} Nothing more is read."
                return
            time.sleep(PATIENCE)

    def _open(self) -> None:
        """Open it, if there is anything in it."""
        if self.path.is_dir() and not shards_in(self.path):
            if not self._known_as:
                self.message = f"{self.path} holds no rows yet; waiting for the first."
            return
        try:
            log = open_log(self.path, descent=self.descent)
        except UnreadableError as error:
            if not self.path.is_dir():
                raise
            self.message = f"{error} Waiting for others."
            return
        if self._known_as not in ("", log.name):
            raise ValueError(f"another log has taken the place of the one in {self.path}; watch it anew.")
        if not log.has_gradients:
            raise ValueError(
                f"{self.path} holds iterates without gradients, which are read off whole runs: reconstruct it."
            )
        self._log, self._known_as, self.message = log, log.name, ""


# The demonstration: agents and what they take turns in climbing, rows a second, and steps between two jumps.
AGENTS, HORIZON, LEARNING_RATE, NOISE = 100, 40, 0.01, 4.0
PACE = 20_000
DWELL = (1500, 3000)
JUMPS = 5000
# Steps that are simulated at a time, and rows that are shown.
BLOCK = 100
SHOWN = 1000
# Seconds that learners may be late and catch up with.
LATE = 0.5


def _two_hills(x: Array) -> Array:
    hills = ((6.0, 1.0, (-1.1, 0.6)), (5.0, 0.8, (1.1, -0.7)))
    heights = [height * jnp.exp(-jnp.sum((x - jnp.array(at)) ** 2) / wide) for height, wide, at in hills]
    return sum(heights) - 0.3 * jnp.sum(x**2)


def _ring(x: Array) -> Array:
    return -1.2 * (jnp.sum(x**2) - 1.8) ** 2


def _valley(x: Array) -> Array:
    return -1.5 * (x[1] - 0.6 * x[0] ** 2 + 0.8) ** 2 - 0.5 * (x[0] - 0.8) ** 2


REWARDS = (_two_hills, _ring, _valley)


@dataclass
class Demonstration:
    """A hundred simulated learners, whose reward jumps every now and then.

    Parameters
    ----------
    pace
        Rows a second; 0 for as many as are taken.
    seed
        Of everything random.
    """

    pace: float = PACE
    seed: int = 0
    name: str = field(default="a demonstration: 100 simulated learners whose reward jumps", init=False)
    message: str = field(default="", init=False)

    @property
    def notes(self) -> list[str]:
        return []

    @cached_property
    def world(self) -> Scheduled:
        rewards = tuple(NoisyReward(2, value, NOISE) for value in REWARDS)
        dwells = np.random.default_rng(self.seed).integers(*DWELL, JUMPS)
        regimes = tuple(number % len(rewards) for number in range(JUMPS + 1))
        return Scheduled(rewards, tuple(np.cumsum(dwells).tolist()), regimes)

    def batches(self, stopped: Callable[[], bool]) -> Iterator[Batch]:
        agents = running_pools(
            self.world, standard_normal(2, 1.0), AGENTS, learning_rate=LEARNING_RATE, horizon=HORIZON
        )
        due = time.monotonic()
        for seen in record(agents, np.iinfo(np.int32).max, seed=self.seed, block=BLOCK):
            for first in range(0, len(seen), SHOWN):
                some = slice(first, first + SHOWN)
                if stopped():
                    return
                assert seen.agents is not None
                yield Batch(seen.points[some], seen.gradients[some], seen.agents[some])
                if self.pace:
                    # Who is late catches up, but with little.
                    due = max(time.monotonic() - LATE, due + SHOWN / self.pace)
                    time.sleep(max(0.0, due - time.monotonic()))

    def truth(self, seen: int) -> Values | None:
        step = min(seen // AGENTS, np.iinfo(np.int32).max)
        regime = self.world.regimes[int(np.searchsorted(self.world.times, step, side="right"))]
        value = _compiled(REWARDS[regime])
        return lambda points: np.asarray(value(np.asarray(points, np.float32)), float)


@cache
def _compiled(value: Callable[[Array], Array]) -> Callable[[np.ndarray], Array]:
    return jax.jit(jax.vmap(value))
