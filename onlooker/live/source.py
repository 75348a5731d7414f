"""Where the rows come from that a page shows: a log that may still grow, or learners made up for a demonstration.

A source says in words what is the matter with it. A log that is gone may come back, and is waited for; another that
takes its place is begun anew.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from onlooker.check import check_whole
from onlooker.density import standard_normal
from onlooker.learners.agents import record, running_pools
from onlooker.learners.reward import NoisyReward
from onlooker.learners.switching import Scheduled
from onlooker.observe.formats import UnreadableError, suffixes
from onlooker.observe.log import Log, NoRowsError, open_log, shards_in
from onlooker.observe.projection import Projection, principal_components

__all__ = ["Batch", "Demonstration", "GrowingLog", "Source"]

# Seconds between two looks at a folder.
PATIENCE = 0.2
# Rows that principal components are found in.
FIRST_ROWS = 1000

Values = Callable[[np.ndarray], np.ndarray]


class Batch(NamedTuple):
    """Some rows, in the order in which they were made; ``anew`` when they have nothing to do with those before."""

    points: np.ndarray
    gradients: np.ndarray
    agents: np.ndarray | None
    anew: bool = False


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
        """Rows as they come, until there will be no more or it is stopped; a ValueError when it is of no use."""
        ...

    def coordinate(self, axis: int) -> str:
        """What a coordinate is called."""
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
    _looked: "_Looks" = field(init=False)
    _projection: Projection | None = field(default=None, init=False)
    _others: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if self.components is not None:
            check_whole(components=self.components)
        if not self.path.exists() and (self.path.suffix in suffixes or not self.path.absolute().parent.is_dir()):
            # It cannot be the folder that a recorder is going to make: say that it is not there.
            open_log(self.path)
        self._open(self._looks())

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
        if self._others:
            notes.append("another log has taken the place of the one before, and all began anew.")
        return notes

    def coordinate(self, axis: int) -> str:
        return f"θ({axis + 1})" if self.components is None else f"component {axis + 1}"

    def truth(self, seen: int) -> Values | None:
        return None

    def batches(self, stopped: Callable[[], bool]) -> Iterator[Batch]:
        if self.components is None:
            yield from self._rows(stopped)
            return
        first: list[Batch] = []
        for batch in self._rows(stopped):
            if batch.anew:
                first, self._projection = [], None
            first.append(batch)
            if self._projection is None:
                points = np.concatenate([one.points for one in first])
                points = points[np.isfinite(points).all(axis=1)]
                if len(points) < FIRST_ROWS:
                    self.message = f"{len(points)} rows are there; components are found in the first {FIRST_ROWS}."
                    continue
                self._projection = principal_components(points[:FIRST_ROWS], self.components)
                self.message = ""
            along = self._projection
            for one in first:
                yield one._replace(points=along.points(one.points), gradients=along.gradients(one.gradients))
            first = []

    def _rows(self, stopped: Callable[[], bool]) -> Iterator[Batch]:
        position, looked_like, others = "", None, self._others
        while not stopped():
            try:
                looks_like = self._looks()
                if looks_like != looked_like or not looks_like.shards:
                    self._open(looks_like)
                    anew = self._others > others
                    position, others = "" if anew else position, self._others
                    if self._log is not None:
                        for rows, read in self._log.batches(position):
                            position = read
                            assert rows.gradients is not None
                            yield Batch(rows.points, rows.gradients, rows.agents, anew)
                            anew = False
                            if stopped():
                                return
                        if not looks_like.folder:
                            self.message = f"all of {self.path} has been read."
                            return
                    looked_like = looks_like
            except FileNotFoundError:
                looked_like = None
                self.message = (
                    f"{self.path} is gone: the log was moved or deleted. What was learnt is still shown, and it goes "
                    "on when the log is back."
                )
            except OSError as error:
                looked_like = None
                self.message = f"{self.path} cannot be read ({error.strerror}); trying again."
            time.sleep(PATIENCE)

    def _looks(self) -> "_Looks":
        """What can be seen of the log from outside: enough to tell whether it has grown, or is another."""
        if not self.path.is_dir() and (self.path.exists() or self._log is not None):
            return _Looks(False, 1, _stamp(self.path), _stamp(self.path))
        shards = shards_in(self.path) if self.path.exists() else []
        if shards:
            return _Looks(True, len(shards), _stamp(shards[0]), _stamp(shards[-1]))
        if self._log is not None:
            raise FileNotFoundError
        return _Looks(True, 0, (), ())

    def _open(self, looks_like: "_Looks") -> None:
        """Open it if there is anything in it, and make sure that it is still the same."""
        if not looks_like.shards:
            self.message = self._awaited()
            return
        if self._log is not None:
            if looks_like.folder != self._looked.folder:
                raise ValueError(f"{self.path} was a folder and is a file now, or the other way round; watch it anew.")
            if looks_like.last != self._looked.last:
                # A shard that was torn may have been on its way.
                self._log.torn.discard(self._looked.last[0])
            if looks_like.first == self._looked.first:
                self._looked, self.message = looks_like, ""
                return
        try:
            log = open_log(self.path, descent=self.descent)
        except NoRowsError:
            self.message = self._awaited()
            return
        except UnreadableError as error:
            if not looks_like.folder:
                raise
            self.message = f"{error} Waiting for others."
            return
        if not log.has_gradients:
            raise ValueError(
                f"{self.path} holds iterates without gradients, which are read off whole runs: reconstruct it."
            )
        if self._log is not None and log.name != self._log.name:
            self._others += 1
        self._log, self._looked, self.message = log, looks_like, ""

    def _awaited(self) -> str:
        if not self.path.exists():
            return f"{self.path} does not exist yet; waiting for a recorder to make it."
        if not self.path.is_dir() or not any(True for _ in self.path.iterdir()):
            return f"{self.path} holds no rows yet; waiting for the first."
        return f"{self.path} holds files, but no rows of a log yet; waiting for the first."


class _Looks(NamedTuple):
    """Whether a log is a folder, how many shards it has, and the stamps of the first and the last."""

    folder: bool
    shards: int
    first: tuple[Any, ...]
    last: tuple[Any, ...]


def _stamp(path: Path) -> tuple[str, int, int, int]:
    found = path.stat()
    return path.name, found.st_ino, found.st_size, found.st_mtime_ns


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

    def coordinate(self, axis: int) -> str:
        return f"θ({axis + 1})"

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
