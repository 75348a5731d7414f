"""Read logs of observations: a file, or a folder of Parquet shards that may still grow.

The shards of a folder are read in the order of their names, which is the order in which they were written. A shard that
is torn, by a crash or a bad disk, is skipped and counted. A position names the last shard that was read and the number
of its rows that were; reading on from there gives the same rows in the same pieces as reading without a break.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from onlooker.core.deprecated import renamed
from onlooker.core.messages import Message
from onlooker.core.settings import check_positive
from onlooker.data.log import formats
from onlooker.data.log.about import DIRECTIONS, About, about_of
from onlooker.data.log.directions import load_projection
from onlooker.data.log.formats import Rows, UnreadableError
from onlooker.data.marks import joined_marks, of_rows
from onlooker.data.observations import Observations, observe, usable_rows
from onlooker.data.optimizer import Optimizer, as_optimizer
from onlooker.data.projection import Projection
from onlooker.data.trainer import Trainer, common

__all__ = ["Log", "NoRowsError", "open_log", "read_log", "shards_in", "torn_shards"]

# Largest number of values per column (rows times dimensions) that is read into memory: 320 MB of float64.
MOST_NUMBERS = 40_000_000
# A log that is larger is thinned by agents if a piece has at least this many, else by whole pieces.
FEWEST_AGENTS = 20


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
    """

    path: Path
    about: About
    has_gradients: bool
    believed: dict[str, Any] = field(default_factory=dict)
    torn: set[str] = field(default_factory=set)
    _trainer: Trainer | None = None

    @property
    def name(self) -> str:
        return self.about.name

    @property
    def dim(self) -> int:
        return self.about.dim

    @property
    def projection(self) -> Projection | None:
        """The directions that the points are along; ``None`` if there are none, or if their file is missing."""
        return load_projection(self.path, self.about.projection, self.dim) if self.about.projection else None

    @property
    def trainer(self) -> Trainer:
        """What is known of the trainers of all shards that were read."""
        return self.about.trainer if self._trainer is None else self._trainer

    def shards(self) -> list[Path]:
        """The files of the log, in order."""
        if not self.path.exists():
            raise FileNotFoundError(f"{self.path} does not exist any more: the log was moved or deleted.")
        return shards_in(self.path) if self.path.is_dir() else [self.path]

    def row_count(self) -> int:
        """The number of rows in the shards that give it without being read (Parquet)."""
        total = 0
        for shard in self.shards():
            # A torn shard has no rows; it is recorded as torn when it is read.
            with contextlib.suppress(UnreadableError, FileNotFoundError):
                total += formats.row_count(shard) or 0
        return total

    def batches(self, after: str = "") -> Iterator[tuple[Rows, str]]:
        """Iterate over the rows that are there now, in pieces, each with the position after it.

        Reading starts after the position ``after``. Gradients are ascent gradients, also if the log's are a loss's.
        """
        last, _, rows = after.rpartition(":")
        for shard in self.shards():
            if shard.name < last or shard.name in self.torn:
                continue
            try:
                yield from self._of_shard(shard, int(rows) if shard.name == last else 0)
            except (UnreadableError, FileNotFoundError):
                # A shard that was deleted is skipped like a torn one, unless the whole folder is gone.
                if not self.path.is_dir():
                    raise
                self.torn.add(shard.name)

    def _of_shard(self, shard: Path, skip: int) -> Iterator[tuple[Rows, str]]:
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
            yield rows, f"{shard.name}:{read}"
        if read < skip:
            raise ValueError(f"{shard} has {read} rows, but {skip} were read from it before: the file was replaced.")

    def _check(self, shard: Path, rows: Rows) -> None:
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

    def _apart(self, rows: Rows, position: str, piece: int) -> np.ndarray:
        """The agents, renamed after each gap in the record, so that no gradient is computed across it."""
        gaps = sum(name < position for name in self.torn) + piece
        if rows.agents is None:
            return np.full(len(rows.points), gaps)
        return np.array([f"{agent} after {gaps}" for agent in rows.agents], str)

    def read(self, report: Callable[[int], None] = lambda rows: None) -> Observations:
        """Read all rows that are there now into memory, and check them.

        A log of more than MOST_NUMBERS numbers is thinned: one agent, or one piece, in every few is read.
        ``report`` is called with the number of rows read so far.
        """
        total = self.row_count()
        share = max(1, -(-total * self.dim // MOST_NUMBERS))
        columns: list[list[Any]] = [[] for _ in Rows._fields]
        codes: dict[str, int] = {}
        done = 0
        for number, (rows, position) in enumerate(self.batches()):
            kept = rows if share == 1 else _thinned(rows, share, number)
            if not self.has_gradients and rows.times is None:
                kept = kept._replace(agents=self._apart(kept, position, number if share > 1 else 0))
            kept = kept._replace(agents=_coded(kept.agents, codes))
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
        points, gradients, agents, times, rates = (_joined(self.path, column) for column in columns[:5])
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


def shards_in(folder: Path) -> list[Path]:
    """The shards of a folder, in the order of their names."""
    return sorted(path for path in folder.iterdir() if path.suffix == ".parquet" and not path.name.startswith("."))


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
        The folder or file.
    learning_rate
        ε of the learners; overrides what the log says.
    optimizer
        The learners' update rule; overrides what the log says.
    descent
        Whether the gradients are those of a loss; overrides what the log says.
    """
    place = Path(path)
    if not place.exists():
        raise FileNotFoundError(f"{place} does not exist; give a folder of shards, or a {_listed()} file.")
    if place.is_dir():
        files = shards_in(place)
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
            torn.add(file.name)
            reason = error
            continue
        if first is not None:
            # A file without a name is identified by its first row.
            own = f"{place.name} {crc32(first.points[0].tobytes()):08x}"
            about = replace(about_of(file, words, first.points.shape[1], own), **believed)
            return Log(place, about, first.gradients is not None, believed, torn)
    if torn:
        raise UnreadableError(f"{place} has no shard that can be read: {reason}")
    raise NoRowsError(f"{place} has no rows yet; wait until some have been written.")


def read_log(path: Any, **options: Any) -> Observations:
    """Read a whole log, for `reconstruct`; the options are those of `open_log`."""
    return open_log(path, **options).read()


def _listed() -> str:
    return ", ".join(formats.suffixes[:-1]) + f" or {formats.suffixes[-1]}"


def _known(path: Path) -> Path:
    """The path, if it is a file that can be read as a log; otherwise an error that says why not."""
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


def _thinned(rows: Rows, share: int, number: int) -> Rows:
    """The rows of one agent in ``share``; if there are few agents, all rows of one piece in ``share``."""
    agents = np.zeros(len(rows.points)) if rows.agents is None else rows.agents
    names, which = np.unique(agents, return_inverse=True)
    if len(names) < FEWEST_AGENTS:
        return rows.take(slice(None) if number % share == 0 else slice(0))
    return rows.take(np.array([crc32(str(name).encode()) % share == 0 for name in names])[which])


def _coded(agents: np.ndarray | None, codes: dict[str, int]) -> np.ndarray | None:
    """Integers in place of names: the names of a million rows take about a hundred megabytes."""
    if agents is None or agents.dtype.kind != "U":
        return agents
    names, first, which = np.unique(agents, return_index=True, return_inverse=True)
    numbers = np.empty(len(names), int)
    for index in np.argsort(first):
        numbers[index] = codes.setdefault(str(names[index]), len(codes))
    return numbers[which]


def _joined(path: Path, parts: list[Any]) -> np.ndarray | None:
    """One column, concatenated from its parts, whose memory is freed."""
    missing = [part is None for part in parts]
    if all(missing):
        return None
    if any(missing):
        raise ValueError(f"{path} has a column in only some of its shards; move the others out of the folder.")
    whole = np.concatenate(parts)
    parts.clear()
    return whole


def torn_shards(count: int) -> Message:
    """The warning about shards that could not be read."""
    return Message("shards-torn", f"{count} shards of the log are torn and were skipped.", {"shards": count})
