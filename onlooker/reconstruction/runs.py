"""The rows of a log in fixed runs of shards: what a task reads, whatever the number of workers.

A run ends with the shard that gives it enough rows, so that shards which are appended later change only the last run.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from onlooker.core.policies import Coordinates
from onlooker.data.log.formats import Rows
from onlooker.data.log.reader import Log
from onlooker.data.marks import of_rows
from onlooker.data.observations import Observations, usable_rows
from onlooker.data.quality import Limits
from onlooker.data.trainer import Decay
from onlooker.fit.jumps.settings import SETTINGS as JUMPS

__all__ = ["Cleaned", "Run", "Shard", "cleaned", "observed", "rows_at", "runs_of", "shards_of", "some_shards"]

# Rows of a run: enough numbers for about ten seconds, and rows enough for the overlap of the jump watch to cost little;
# at most so many shards.
NUMBERS, FEWEST_ROWS, MOST_SHARDS = 1 << 23, 1 << 20, 1 << 10
# Rows before a run that the jump watch is shown first, the longest between its fits, and after it, for jumps that are
# noticed late.
BEFORE, AFTER = JUMPS.longest_interval, 1 << 14
# Shards whose footers one task reads.
FOOTERS = 512


class Shard(NamedTuple):
    """A shard of a log.

    Attributes
    ----------
    name
        Its name in the log.
    rows
        Number of its rows.
    first
        Number of rows in the shards before it.
    """

    name: str
    rows: int
    first: int

    @property
    def end(self) -> int:
        """Number of rows up to its end."""
        return self.first + self.rows


class Run(NamedTuple):
    """Consecutive shards.

    Attributes
    ----------
    number
        Number of the run.
    shards
        Its shards.
    before
        Shards with the rows before it.
    after
        Shards with the rows after it.
    """

    number: int
    shards: tuple[Shard, ...]
    before: tuple[Shard, ...] = ()
    after: tuple[Shard, ...] = ()

    @property
    def first(self) -> int:
        """Number of rows before it."""
        return self.shards[0].first

    @property
    def end(self) -> int:
        """Number of rows up to its end."""
        return self.shards[-1].end


def shards_of(names: Sequence[str], rows: Sequence[int]) -> list[Shard]:
    """Shards with these numbers of rows; those without rows are left out."""
    found, first = [], 0
    for name, count in zip(names, rows, strict=True):
        if count > 0:
            found.append(Shard(name, count, first))
            first += count
    return found


def runs_of(shards: Sequence[Shard], dim: int) -> list[Run]:
    """Shards in runs, each with those around it."""
    wanted = max(NUMBERS // dim, FEWEST_ROWS)
    cuts, rows, count = [0], 0, 0
    for number, shard in enumerate(shards):
        rows, count = rows + shard.rows, count + 1
        if rows >= wanted or count == MOST_SHARDS or number == len(shards) - 1:
            cuts.append(number + 1)
            rows = count = 0
    runs = []
    for number, (start, stop) in enumerate(pairwise(cuts)):
        first, end = shards[start].first, shards[stop - 1].end
        early, late = start, stop
        while early > 0 and shards[early].first > first - BEFORE:
            early -= 1
        while late < len(shards) and shards[late - 1].end < end + AFTER:
            late += 1
        around = (tuple(shards[early:start]), tuple(shards[stop:late]))
        runs.append(Run(number, tuple(shards[start:stop]), *around))
    return runs


def some_shards(runs: Sequence[Run], most: int) -> list[Run]:
    """The runs with their first shards only, so that there are at most about so many in all."""
    each = max(1, most // len(runs))
    return [run._replace(shards=run.shards[:each], before=(), after=()) for run in runs]


class Cleaned(NamedTuple):
    """Consecutive rows that a fit can use, and the numbers of those that it cannot.

    Attributes
    ----------
    seen
        The rows; ``rows`` are their numbers in the log.
    rejected
        Numbers of rows with a NaN or an infinity.
    runaways
        Numbers of rows beyond the limits.
    """

    seen: Observations
    rejected: np.ndarray
    runaways: np.ndarray


def observed(log: Log, shards: Sequence[Shard], first: int = 0, end: int | None = None) -> Iterator[tuple[Rows, int]]:
    """The rows of shards from ``first`` to ``end``, in pieces, each with the number of its first row in the log."""
    for shard in shards:
        read = shard.first
        for rows, _ in log.rows_of(shard.name):
            start, stop = read, read + len(rows.points)
            read = stop
            low, high = max(start, first), stop if end is None else min(stop, end)
            if low < high:
                whole = (low, high) == (start, stop)
                yield (rows if whole else rows.take(slice(low - start, high - start))), low


def cleaned(
    rows: Rows, first: int, limits: Limits | None, coordinates: Coordinates | None, decay: Decay | None
) -> Cleaned:
    """Rows of the objective without those that no fit can use; coordinates of policies are folded."""
    points, gradients = rows.points, rows.gradients
    assert gradients is not None
    usable = usable_rows(points, gradients)
    if decay is not None:
        with np.errstate(invalid="ignore", over="ignore"):
            gradients = decay.added(points, gradients)
    if coordinates is not None and usable.any():
        coordinates.by_state(points[usable])
        folded, sign = coordinates.fold(np.where(usable[:, None], points, 0.0))
        points, gradients = folded, sign * gradients
    inside = usable if limits is None else usable & limits.hold(points, gradients)
    numbers = np.arange(first, first + len(points))
    if inside.all():
        seen = Observations(points, gradients, rows.agents, rows.times, rows=numbers, marks=rows.marks or {})
        return Cleaned(seen, numbers[:0], numbers[:0])
    kept = [None if part is None else part[inside] for part in (points, gradients, rows.agents, rows.times)]
    assert kept[0] is not None
    assert kept[1] is not None
    marks = of_rows(rows.marks or {}, inside)
    seen = Observations(kept[0], kept[1], kept[2], kept[3], rows=numbers[inside], marks=marks)
    return Cleaned(seen, numbers[~usable], numbers[usable & ~inside])


def rows_at(
    log: Log,
    shards: Sequence[Shard],
    row: int,
    around: int,
    limits: Limits,
    coordinates: Coordinates | None,
    decay: Decay | None,
) -> Observations:
    """The rows that a fit can use, at least ``around`` before and after one of a log if there are so many."""
    # Twice as many, as some may not be usable.
    first, end = row - 2 * around, row + 2 * around
    near = [shard for shard in shards if shard.end > first and shard.first < end]
    parts = [cleaned(rows, at, limits, coordinates, decay).seen for rows, at in observed(log, near, first, end)]
    agents = [part.agents for part in parts if part.agents is not None]
    numbers = [part.rows for part in parts if part.rows is not None]
    return Observations(
        np.concatenate([part.points for part in parts]),
        np.concatenate([part.gradients for part in parts]),
        np.concatenate(agents) if len(agents) == len(parts) else None,
        rows=np.concatenate(numbers),
    )
