"""What a task does with a run of shards: it reads their rows once, and returns sums over them. No engine is in here.

Pass 0 reads footers. Pass 1 returns a fair sample, from which everything is chosen that sums depend on. Pass 2 adds up
all rows. Sums of runs are added in the order of the log, so they are the same to the last bit wherever they were made.

The sample consists of short runs of consecutive rows of one agent: each is in it if its own key, a hash of the seed,
the agent and the place, is small. So it is as fair as single rows are, and still shows how gradients of one agent
follow each other.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from onlooker.core.policies import Coordinates
from onlooker.data.agents_seen import RowsByAgent, hashes_of
from onlooker.data.log.reader import Log
from onlooker.data.log.shards import Footer
from onlooker.data.marks import joined_marks, of_rows
from onlooker.data.observations import Observations
from onlooker.data.quality import Limits
from onlooker.data.quality_sums import QualitySums, Sketch
from onlooker.data.splits import agents_held_out, rows_in_held_stretches
from onlooker.data.trainer import Decay
from onlooker.fit.jumps.watch import JumpWatch
from onlooker.reconstruction.runs import AFTER, BEFORE, Run, Shard, cleaned, observed
from onlooker.storage.trees import pack

__all__ = ["Asked", "Chosen", "Sample", "concatenated", "footers", "sampled", "summed", "taken"]

# Consecutive rows of an agent that are sampled together: residuals are compared up to three steps apart.
TOGETHER = 8
# Rows that wait until they are added: pieces of small shards are added together.
WAITING = 1 << 15


class Asked(NamedTuple):
    """What pass 1 needs to know.

    Attributes
    ----------
    log
        The log.
    seed
        Seed of the keys.
    share
        Share of the rows that are returned.
    coordinates
        Coordinates of policies, if the points are.
    decay
        The weight decay of the objective.
    """

    log: Log
    seed: int
    share: float
    coordinates: Coordinates | None
    decay: Decay | None


class Sample(NamedTuple):
    """Rows of a sample.

    Attributes
    ----------
    keys
        Key (n,) of each row: a sample of fewer rows has those of the smallest keys.
    seen
        The rows.
    torn
        Names of shards that are torn.
    rejected
        Number of rows with a NaN or an infinity.
    """

    keys: np.ndarray
    seen: Observations
    torn: frozenset[str]
    rejected: int


@dataclass(frozen=True)
class Chosen:
    """What pass 2 needs to know: all of it was chosen from the sample.

    Attributes
    ----------
    log
        The log.
    seed
        Seed of the hold-out.
    count
        Number of rows of the log when this was chosen.
    by_agent
        Whether whole agents are held out; otherwise stretches.
    limits
        Limits of rows that did not run away.
    sums
        Empty sums; ``None`` if rows are inspected only.
    coordinates
        Coordinates of policies, if the points are.
    decay
        The weight decay of the objective.
    watched
        Whether jumps are looked for.
    """

    log: Log
    seed: int
    count: int
    by_agent: bool
    limits: Limits
    sums: Any
    coordinates: Coordinates | None
    decay: Decay | None
    watched: bool


def footers(names: list[str], log: Log) -> list[Footer]:
    """Pass 0: what shards say without being read."""
    return list(log.footers(names).values())


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """One step of splitmix64."""
    with np.errstate(over="ignore"):
        numbers = numbers + np.uint64(0x9E3779B97F4A7C15)
        numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def sampled(run: Run, asked: Asked) -> Sample:
    """Pass 1: rows of a run whose key is small."""
    log = replace(asked.log, torn=set(asked.log.torn))
    most = np.uint64(min(int(asked.share * 2.0**64), 2**64 - 1))
    by_agent, own = RowsByAgent(log.dim), np.zeros(0, np.uint64)
    found, keys, rejected = [], [], 0
    place = _mixed(np.array([run.number + (asked.seed << 32)], np.uint64))
    for rows, first in observed(log, run.shards):
        seen, bad, _ = cleaned(rows, first, None, asked.coordinates, asked.decay)
        rejected += len(bad)
        if not len(seen):
            continue
        assert seen.rows is not None
        if seen.agents is None:
            unit = _mixed(_mixed((seen.rows // TOGETHER).astype(np.uint64)) ^ place)
        else:
            numbers = by_agent.numbers(seen.agents)
            new = by_agent.names[len(own) :]
            own = np.concatenate([own, hashes_of([str(name) for name in new.tolist()])])
            ranks = (by_agent.ranks(numbers) // TOGETHER).astype(np.uint64)
            unit = _mixed(_mixed(ranks ^ place) ^ own[numbers])
        inside = unit <= most
        found.append(taken(seen, inside))
        keys.append(unit[inside])
    return Sample(
        np.concatenate([np.zeros(0, np.uint64), *keys]), concatenated(found, log.dim), frozenset(log.torn), rejected
    )


def taken(seen: Observations, which: np.ndarray) -> Observations:
    """Some of the rows, by a mask (n,)."""
    columns = (seen.points, seen.gradients, seen.agents, seen.times, seen.rows)
    points, gradients, agents, times, rows = (None if part is None else part[which] for part in columns)
    assert points is not None
    assert gradients is not None
    return Observations(points, gradients, agents, times, rows=rows, marks=of_rows(seen.marks, which))


def concatenated(parts: list[Observations], dim: int) -> Observations:
    """The rows of all parts; agents and times must be known in all of them or in none."""
    if not parts:
        nothing = np.zeros((0, dim))
        return Observations(nothing, nothing, rows=np.zeros(0, np.int64))
    columns: dict[str, np.ndarray | None] = {}
    for name in ("points", "gradients", "agents", "times", "rows"):
        some = [getattr(part, name) for part in parts]
        missing = [part is None for part in some]
        if any(missing) and not all(missing):
            raise ValueError(f"the log has {name} in only some of its shards; move the others out of the folder.")
        columns[name] = None if all(missing) else np.concatenate(some)
    marks = joined_marks([part.marks for part in parts], [len(part) for part in parts])
    return Observations(**columns, marks=marks)  # type: ignore[arg-type]


class _Waiting:
    """Rows that wait until there are enough of them to be added at once."""

    def __init__(self, add: Callable[..., None]) -> None:
        self._add, self._parts, self._rows = add, [], 0  # type: tuple[Any, list[tuple[np.ndarray, ...]], int]

    def take(self, *columns: np.ndarray) -> None:
        """Rows that come next."""
        self._parts.append(columns)
        self._rows += len(columns[0])
        if self._rows >= WAITING:
            self.end()

    def end(self) -> None:
        """Add those that wait."""
        if self._rows:
            self._add(*(np.concatenate(column) for column in zip(*self._parts, strict=True)))
        self._parts, self._rows = [], 0


def summed(run: Run, chosen: Chosen) -> dict[str, np.ndarray]:
    """Pass 2: sums over all rows of a run, as arrays by name; `pack` names them."""
    log = replace(chosen.log, torn=set(chosen.log.torn))
    sums = deepcopy(chosen.sums)
    quality = QualitySums.none(log.dim)
    watch = _StretchWatch(run, chosen) if chosen.watched else None
    if watch is not None:
        watch.show(log, run.before, run.first - BEFORE, run.first)
    by_agent, held_agents = RowsByAgent(log.dim), np.zeros(0, bool)
    sketch = Sketch.of(chosen.count)
    waiting = None if sums is None else _Waiting(sums.add)
    for shard, rows, first in _by_shard(log, run.shards):
        if shard is not None:
            quality = replace(quality, digests=np.pad(quality.digests, ((0, 1), (0, 0))))
        seen, rejected, runaways = cleaned(rows, first, chosen.limits, chosen.coordinates, chosen.decay)
        quality = quality.plus(seen, len(rejected), len(runaways), sketch)
        assert seen.rows is not None
        if seen.agents is not None:
            numbers = by_agent.numbers(seen.agents)
            by_agent.add(seen.points, seen.gradients, numbers, seen.times)
            if (new := by_agent.names[len(held_agents) :]).size:
                held_agents = np.concatenate([held_agents, agents_held_out(new, chosen.seed)])
        stretches = rows_in_held_stretches(seen.rows, chosen.count, chosen.seed)
        if waiting is not None:
            waiting.take(seen.points, seen.gradients, held_agents[numbers] if chosen.by_agent else stretches)
        if watch is not None:
            watch.take(seen, rejected, runaways)
    if waiting is not None:
        waiting.end()
    if hasattr(sums, "settle"):
        sums.settle()
    if watch is not None:
        watch.show(log, run.after, run.end, run.end + AFTER)
    begun = pack(chosen.sums)
    changed = {
        name: part for name, part in pack(sums).items() if name not in begun or not np.array_equal(part, begun[name])
    }
    return {
        **{f"sums/{name}": part for name, part in changed.items()},
        **pack(replace(quality, agents=by_agent.seen()), "quality"),
        "jumps": np.zeros((0, 4)) if watch is None else watch.jumps(),
        "torn": np.array(sorted(log.torn - chosen.log.torn), str),
        "rows": np.asarray(run.end - run.first),
    }


def _by_shard(log: Log, shards: tuple[Shard, ...]) -> Iterator[tuple[Shard | None, Any, int]]:
    """The rows of shards, the first piece of each with its shard."""
    for shard in shards:
        at: Shard | None = shard
        for rows, first in observed(log, [shard]):
            yield at, rows, first
            at = None


class _StretchWatch:
    """The jump watch over a run, and some rows before and after it; the run owns the jumps in its own rows."""

    def __init__(self, run: Run, chosen: Chosen) -> None:
        self._run, self._chosen = run, chosen
        dim = chosen.log.dim
        self._watch = JumpWatch(dim, chance_per_row(chosen.count))
        self._start: int | None = None
        self._missing: list[np.ndarray] = []
        self._waiting = _Waiting(self._watch.update)

    def show(self, log: Log, shards: tuple[Shard, ...], first: int, end: int) -> None:
        """Show it rows of other runs."""
        chosen = self._chosen
        for rows, at in observed(log, shards, max(first, 0), end):
            self.take(*cleaned(rows, at, chosen.limits, chosen.coordinates, chosen.decay))

    def take(self, seen: Observations, rejected: np.ndarray, runaways: np.ndarray) -> None:
        """Show it the next rows."""
        assert seen.rows is not None
        numbers = [part[0] for part in (seen.rows, rejected, runaways) if len(part)]
        if self._start is None and numbers:
            self._start = int(min(numbers))
        self._missing += [part for part in (rejected, runaways) if len(part)]
        if len(seen):
            self._waiting.take(seen.points, seen.gradients)

    def jumps(self) -> np.ndarray:
        """Jumps (k, 4) in rows of the run: the numbers in the log of the rows after each, and at the alarm; the
        statistic; its threshold."""
        self._waiting.end()
        if self._start is None:
            return np.zeros((0, 4))
        missing = np.sort(np.concatenate([np.zeros(0, int), *self._missing])) - self._start
        # Number of missing rows before the k-th that was shown.
        before = missing - np.arange(len(missing))

        def number(shown: int) -> int:
            return int(shown + np.searchsorted(before, shown, side="right")) + int(self._start or 0)

        found = [(number(one.at), number(one.found), one.statistic, one.threshold) for one in self._watch.jumps]
        return np.array([one for one in found if self._run.first <= one[0] < self._run.end], float).reshape(-1, 4)


def chance_per_row(rows: int) -> float:
    """Probability of a false alarm at a row of a log."""
    from onlooker.fit.jumps.settings import SETTINGS

    return min(SETTINGS.false_alarms, SETTINGS.record_false_alarm / rows)
