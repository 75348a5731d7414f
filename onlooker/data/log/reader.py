"""Read logs of observations: a file, or a folder of Parquet shards that may still grow.

The shards of a folder are read in the order in which they were written (`shards`). A shard that is torn, by a crash or
a bad disk, is skipped and counted. Reading on from a position gives the same rows in the same pieces as reading without
a break.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any
from zlib import crc32

import numpy as np

from onlooker.core.deprecated import renamed
from onlooker.core.messages import Message
from onlooker.core.settings import check_positive
from onlooker.data.log import formats
from onlooker.data.log.about import DIRECTIONS, About, about_of, began_of
from onlooker.data.log.columns import coded, joined, thinned
from onlooker.data.log.directions import load_projection
from onlooker.data.log.formats import Rows, UnreadableError
from onlooker.data.log.shards import Footer, Position, in_order, name_noted, names_in
from onlooker.data.marks import joined_marks, of_rows
from onlooker.data.observations import Observations, observe, usable_rows
from onlooker.data.optimizer import Optimizer, as_optimizer
from onlooker.data.projection import Projection
from onlooker.data.trainer import Trainer, common
from onlooker.storage.stores import Place, StorePath, as_place

__all__ = ["Log", "NoRowsError", "open_log", "read_log", "torn_shards"]

# Largest number of values per column (rows times dimensions) that is read into memory: 320 MB of float64.
MOST_NUMBERS = 40_000_000
# Footers that are read at the same time from a store, where each is a request.
REQUESTS = 16


class NoRowsError(ValueError):
    """The log has no rows yet."""


@dataclass
class Log:
    """A log that can be read several times, also while it grows.

    Attributes
    ----------
    path
        The file or folder.
    about
        The description in its first shard.
    has_gradients
        Whether it has gradients; otherwise it has iterates only.
    believed
        Fields of `About` given by the caller, which override the log's own description.
    torn
        Names of the shards skipped so far.
    known_footers
        What shards have said so far without being read, by name.
    """

    path: Place
    about: About
    has_gradients: bool
    believed: dict[str, Any] = field(default_factory=dict)
    torn: set[str] = field(default_factory=set)
    known_footers: dict[str, Footer] = field(default_factory=dict, repr=False)
    _trainer: Trainer | None = None
    _projection: Projection | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        return self.about.name

    @property
    def dim(self) -> int:
        return self.about.dim

    @property
    def projection(self) -> Projection | None:
        """The directions that the points are along; ``None`` if there are none, or if their file is missing."""
        if self._projection is None and self.about.projection:
            self._projection = load_projection(self.path, self.about.projection, self.dim)
        return self._projection

    @property
    def trainer(self) -> Trainer:
        """What is known of the trainers of all shards that were read."""
        return self.about.trainer if self._trainer is None else self._trainer

    def shards(self) -> list[Place]:
        """The files of the log, in the order in which they are read."""
        return [self.place(name) for name in self.shard_names()]

    def shard_names(self) -> list[str]:
        """The names of the log's shards, or of its only file, in the order in which they are read."""
        if not self.path.is_dir():
            if not self.path.exists():
                raise FileNotFoundError(f"{self.path} does not exist any more: the log was moved or deleted.")
            return [self.path.name]
        names = names_in(self.path)
        written = [name for name in names if "/" in name]
        return in_order(names, {name: footer.began for name, footer in self.footers(written).items()})

    def footers(self, names: list[str]) -> dict[str, Footer]:
        """What shards say without being read; a shard is asked once."""
        missing = [name for name in names if name not in self.known_footers]
        if isinstance(self.path, StorePath) and len(missing) > 1:
            with ThreadPoolExecutor(REQUESTS) as threads:
                found = list(threads.map(self._footer, missing))
        else:
            found = [self._footer(name) for name in missing]
        self.known_footers |= dict(zip(missing, found, strict=True))
        return {name: self.known_footers[name] for name in names}

    def _footer(self, name: str) -> Footer:
        try:
            rows, words = formats.footer(self.place(name))
        except (UnreadableError, FileNotFoundError):
            # Recorded as torn when it is read.
            return Footer(-1, 0.0)
        return Footer(rows, began_of(words), about_of(self.place(name), words, self.dim, self.name).trainer)

    def note(self, footers: Iterable[Footer]) -> None:
        """Note what shards say about their trainers, as reading them does."""
        for footer in footers:
            if footer.trainer is not None:
                self._trainer = footer.trainer if self._trainer is None else common(self._trainer, footer.trainer)

    def place(self, name: str) -> Place:
        """Where a shard is."""
        if isinstance(self.path, StorePath):
            # Not by asking the store, for every shard.
            return self.path if name == self.path.name else self.path / name
        return self.path / name if self.path.is_dir() else self.path

    def row_count(self) -> int:
        """The number of rows in the shards that give it without being read (Parquet)."""
        names = [name for name in self.shard_names() if name.endswith(".parquet")]
        return sum(max(footer.rows, 0) for footer in self.footers(names).values())

    def batches(self, after: str = "") -> Iterator[tuple[Rows, str]]:
        """Iterate over the rows that are there now, in pieces, each with the position after it.

        Reading starts after the position ``after``. Gradients are ascent gradients, also if the log's are a loss's.
        """
        for rows, position, _, _ in self.pieces(after):
            yield rows, str(position)

    def pieces(self, after: str = "") -> Iterator[tuple[Rows, Position, str, int]]:
        """The same, each piece with its shard, and the number of the shard's rows read by then."""
        position = Position.of(after)
        for name in self.shard_names():
            skip = position.rows_of(name)
            if skip is None or name in self.torn:
                continue
            for rows, read in self.rows_of(name, skip):
                position = position.after(name, read)
                yield rows, position, name, read

    def rows_of(self, name: str, skip: int = 0) -> Iterator[tuple[Rows, int]]:
        """The rows of a shard after the first ``skip``, in pieces, each with the number of rows read by then.

        A torn shard is noted, and ends where it is torn.
        """
        try:
            yield from self._of_shard(self.place(name), skip)
        except (UnreadableError, FileNotFoundError):
            # A shard that was deleted is skipped like a torn one, unless the whole folder is gone.
            if not self.path.is_dir():
                raise
            self.torn.add(name)

    def _of_shard(self, shard: Place, skip: int) -> Iterator[tuple[Rows, int]]:
        about = replace(about_of(shard, formats.metadata(shard), self.dim, self.name), **self.believed)
        if not self.has_gradients and about.optimizer != self.about.optimizer:
            raise ValueError(
                f"{shard} was recorded with another optimizer than the log's first shard; read it separately."
            )
        self._trainer = about.trainer if self._trainer is None else common(self._trainer, about.trainer)
        read = 0
        for rows in formats.pieces(shard):
            self._check(shard, rows)
            read += len(rows.points)
            if read <= skip:
                continue
            rows = rows.take(slice(max(0, skip - read + len(rows.points)), None))
            if about.direction == "descent" and rows.gradients is not None:
                rows = rows._replace(gradients=-rows.gradients)
            missing = rows.learning_rates is None or "learning_rate" in self.believed
            if not self.has_gradients and about.learning_rate is not None and missing:
                rows = rows._replace(learning_rates=np.full(len(rows.points), about.learning_rate))
            yield rows, read
        if read < skip:
            raise ValueError(f"{shard} has {read} rows, but {skip} were read from it before: the file was replaced.")

    def _check(self, shard: Place, rows: Rows) -> None:
        dim = rows.points.shape[1]
        if dim != self.dim:
            raise ValueError(
                f"{shard} has points of {dim} dimensions but the log has {self.dim}; move it out of the folder."
            )
        if (rows.gradients is not None) != self.has_gradients:
            which = "no gradients" if self.has_gradients else "gradients"
            raise ValueError(f"{shard} has {which}, unlike the log's first shard; move it out of the folder.")
        if rows.gradients is not None and rows.gradients.shape[1] != dim:
            raise ValueError(f"{shard} has points of {dim} dimensions but gradients of {rows.gradients.shape[1]}.")

    def _with_gaps(self) -> Iterator[tuple[Rows, int]]:
        """All rows, in pieces, each with the number of torn shards before it."""
        gaps = 0
        for name in self.shard_names():
            if name not in self.torn:
                for rows, _ in self.rows_of(name):
                    yield rows, gaps
            gaps += name in self.torn

    def _apart(self, rows: Rows, gaps: int) -> np.ndarray:
        """The agents, renamed after each gap in the record, so that no gradient is computed across it."""
        if rows.agents is None:
            return np.full(len(rows.points), gaps)
        return np.array([f"{agent} after {gaps}" for agent in rows.agents], str)

    def read(self, report: Callable[[int], None] = lambda rows: None, most: int | None = None) -> Observations:
        """Read all rows that are there now into memory, and check them.

        A log of more numbers (rows times dimensions) than ``most``, by default MOST_NUMBERS, is thinned: one agent, or
        one piece, in every few is read. ``report`` is called with the number of rows read so far.
        """
        total = self.row_count()
        share = max(1, -(-total * self.dim // (most or MOST_NUMBERS)))
        columns: list[list[Any]] = [[] for _ in Rows._fields]
        codes: dict[str, int] = {}
        done = 0
        for number, (rows, gaps) in enumerate(self._with_gaps()):
            kept = rows if share == 1 else thinned(rows, share, number)
            if not self.has_gradients and rows.times is None:
                kept = kept._replace(agents=self._apart(kept, gaps + (number if share > 1 else 0)))
            kept = kept._replace(agents=coded(kept.agents, codes))
            if self.has_gradients:
                # The rate is of use for iterates only, and some shards may have none.
                kept = kept._replace(learning_rates=None)
            for column, part in zip(columns, kept, strict=True):
                column.append(part)
            done += len(rows.points)
            report(done)
        if not any(map(len, columns[0])):
            raise NoRowsError(f"{self.path} has no rows yet; wait until some have been written.")
        marks = joined_marks(columns[5], [len(part) for part in columns[0]])
        points, gradients, agents, times, rates = (joined(self.path, column) for column in columns[:5])
        try:
            observations = observe(
                points,
                gradients,
                agents=agents,
                times=times,
                learning_rate=rates if gradients is None else None,
                optimizer=self.about.optimizer,
            )
        except ValueError as error:
            raise ValueError(f"{self.path}: {error}") from None
        if not len(observations):
            raise ValueError(f"{self.path} has no row without a NaN or an infinity; there is nothing to learn from.")
        warnings = list(observations.warnings)
        if gradients is None and self.about.optimizer is None:
            text = "the log does not say which optimizer was used: steps were taken for those of plain SGD."
            warnings.append(Message("optimizer-unknown", text))
        if self.torn:
            warnings.append(torn_shards(len(self.torn)))
        if share > 1:
            text = f"the log holds {done} observations; {len(observations)} of them, about one in {share}, were read."
            warnings.append(Message("log-thinned", text, {"observations": done, "read": len(observations)}))
        names = np.array(list(codes)) if codes else None
        if points is None or gradients is None:
            marks = {}
        elif len(observations) < len(points):
            marks = of_rows(marks, usable_rows(points, gradients))
        along = self.projection
        if along is not None:
            warnings.append(along.warning)
        return replace(
            observations,
            warnings=tuple(warnings),
            agent_names=names,
            marks=marks,
            trainer=self._trainer,
            projection=along,
        )


@renamed(optimiser="optimizer")
def open_log(
    path: Any,
    *,
    learning_rate: float | None = None,
    optimizer: Optimizer | str | None = None,
    descent: bool | None = None,
) -> Log:
    """Open a log: a folder of shards, or a .parquet, .npz or .csv file.

    Parameters
    ----------
    path
        The folder or file, on a disk or in an object store: a path, or s3://bucket/runs, gs://… or abfs://….
    learning_rate
        ε of the learners; overrides what the log says.
    optimizer
        The learners' update rule; overrides what the log says.
    descent
        Whether the gradients are those of a loss; overrides what the log says.
    """
    place = as_place(path)
    if not place.exists():
        if isinstance(place, StorePath):
            # An error if there is no such bucket.
            place.files()
        raise FileNotFoundError(f"{place} does not exist; give a folder of shards, or a {_listed()} file.")
    if place.is_dir():
        files = [place / name for name in sorted(names_in(place))]
        if not files:
            raise NoRowsError(f"{place} has no .parquet shards; give the folder that a recorder writes to.")
    else:
        files = [_known(place)]
    believed: dict[str, Any] = {}
    if learning_rate is not None:
        check_positive(learning_rate=learning_rate)
        believed["learning_rate"] = learning_rate
    if optimizer is not None:
        believed["optimizer"] = as_optimizer(optimizer)
    if descent is not None:
        believed["direction"] = DIRECTIONS[descent]
    torn: set[str] = set()
    for file in files:
        try:
            words = formats.metadata(file)
            first = next((rows for rows in formats.pieces(file) if len(rows.points)), None)
        except (UnreadableError, FileNotFoundError) as error:
            if not place.is_dir():
                raise
            torn.add(str(file)[len(str(place)) + 1 :])
            reason = error
            continue
        if first is not None:
            # A file without a name is identified by its first row.
            own = f"{place.name} {crc32(first.points[0].tobytes()):08x}"
            about = replace(about_of(file, words, first.points.shape[1], own), **believed)
            if place.is_dir() and (noted := name_noted(place)):
                about = replace(about, name=noted)
            return Log(place, about, first.gradients is not None, believed, torn)
    if torn:
        raise UnreadableError(f"{place} has no shard that can be read: {reason}")
    raise NoRowsError(f"{place} has no rows yet; wait until some have been written.")


def read_log(path: Any, **options: Any) -> Observations:
    """Read a whole log, for `reconstruct`; the options are those of `open_log`."""
    return open_log(path, **options).read()


def _listed() -> str:
    return ", ".join(formats.suffixes[:-1]) + f" or {formats.suffixes[-1]}"


def _known(path: Place) -> Place:
    """The path, if it is a file that can be read as a log; otherwise an error that says why not."""
    if isinstance(path, StorePath):
        start = path.opened().read(64)
    else:
        with path.open("rb") as file:
            start = file.read(64)
    if path.suffix in (".pkl", ".pickle", ".pt", ".pth", ".joblib") or start[:1] == b"\x80":
        raise ValueError(
            f"{path} is a pickle, which could run any code when loaded; save the log as a {_listed()} file."
        )
    if path.suffix not in formats.suffixes:
        raise ValueError(f"{path} is not a log; give a folder of shards, or a {_listed()} file.")
    if not start:
        raise ValueError(f"{path} is empty; give a log with rows in it.")
    return path


def torn_shards(count: int) -> Message:
    """The warning about shards that could not be read."""
    return Message("shards-torn", f"{count} shards of the log are torn and were skipped.", {"shards": count})
