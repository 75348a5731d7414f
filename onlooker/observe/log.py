"""What learners did, as it was written down: a file, or a folder of Parquet shards that may still grow.

A folder is read shard by shard in the order of their names, which is the order in which they were written. A shard that
is torn, by a crash or a bad disk, is skipped and counted. A position says which shard, and how many rows of it, have
been read: reading on from there gives the same rows in the same pieces as reading on without a break.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from onlooker.check import check_positive, in_short
from onlooker.observe import formats
from onlooker.observe.formats import Rows, UnreadableError
from onlooker.observe.observation import Observations, observe
from onlooker.observe.optimiser import Optimiser, as_optimiser

__all__ = ["About", "Log", "NoRowsError", "open_log", "read_log", "shards_in"]

DIRECTIONS = ("ascent", "descent")
FORMAT = 1
# Characters of an optimiser's name that are believed.
LONGEST_NAME = 100
# Seconds between two looks at a folder that may grow.
PATIENCE = 0.2
# Numbers (rows times dimensions) that are read into memory at once.
MOST_NUMBERS = 40_000_000
# Agents of a piece from which some of them are taken, instead of pieces.
FEWEST_AGENTS = 20


class NoRowsError(ValueError):
    """A log in which nothing has been written yet."""


@dataclass(frozen=True)
class About:
    """What a log says about itself.

    Attributes
    ----------
    name
        Of the log, the same in all of its shards.
    dim
        Of the points.
    learning_rate
        ε of the learners, if it was one and is known.
    optimiser
        How they step; ``None`` if nobody wrote it down.
    direction
        "ascent" if gradients are R's, "descent" if they are a loss's, R = −loss.
    source
        Where the gradients come from, in words.
    """

    name: str
    dim: int
    learning_rate: float | None = None
    optimiser: Optimiser | None = None
    direction: str = "ascent"
    source: str = ""

    def to_metadata(self) -> dict[str, str]:
        words = {"onlooker": FORMAT, "log": self.name, "dimension": self.dim, "direction": self.direction}
        if self.learning_rate is not None:
            words["learning_rate"] = repr(float(self.learning_rate))
        if self.optimiser is not None:
            words["optimiser"] = self.optimiser.name
            words |= {name: getattr(self.optimiser, name) for name in ("momentum", "dampening", "weight_decay")}
            words["nesterov"] = str(self.optimiser.nesterov).lower()
        if self.source:
            words["source"] = self.source
        return {name: str(word) for name, word in words.items()}


def _about(path: Path, words: dict[str, str], dim: int, name: str) -> About:
    """From the words in a file, whoever wrote them; what is wrong with them is said."""

    def number(key: str) -> float | None:
        try:
            return None if words.get(key) in (None, "", "None") else float(words[key])
        except ValueError:
            raise ValueError(f"{path} says {key} is {in_short(repr(words[key]))}, which is no number.") from None

    if (version := number("onlooker")) is not None and version > FORMAT:
        raise ValueError(
            f"{path} is a log of format {version:g} and this Onlooker knows {FORMAT}; install a newer one."
        )
    direction = words.get("direction", "ascent").strip().lower()
    if direction not in DIRECTIONS:
        raise ValueError(f"{path} says direction is {in_short(repr(direction))}; it can be {' or '.join(DIRECTIONS)}.")
    if (said := number("dimension")) is not None and said != dim:
        raise ValueError(f"{path} says dimension is {said:g} but holds points of {dim}.")
    learning_rate, optimiser = number("learning_rate"), None
    if learning_rate is not None and not 0 < learning_rate < np.inf:
        learning_rate = None
    if {"optimiser", "momentum", "weight_decay"} & words.keys():
        settings = {key: number(key) or 0.0 for key in ("momentum", "dampening", "weight_decay")}
        nesterov = words.get("nesterov", "").lower() in ("true", "1")
        try:
            optimiser = as_optimiser(words.get("optimiser", "sgd")[:LONGEST_NAME], **settings)
            optimiser = replace(optimiser, nesterov=nesterov or optimiser.nesterov)
        except ValueError as error:
            raise ValueError(f"{path}: {in_short(error)}.") from None
    return About(words.get("log", name), dim, learning_rate, optimiser, direction, words.get("source", ""))


@dataclass
class Log:
    """A log that can be read, more than once and while it grows.

    Attributes
    ----------
    path
        The file or folder.
    about
        What its first shard says about it.
    has_gradients
        Or iterates only.
    believed
        What is believed before anything that the log says: fields of `About`.
    torn
        Names of the shards that were skipped so far.
    """

    path: Path
    about: About
    has_gradients: bool
    believed: dict[str, Any] = field(default_factory=dict)
    torn: set[str] = field(default_factory=set)

    @property
    def name(self) -> str:
        return self.about.name

    @property
    def dim(self) -> int:
        return self.about.dim

    def shards(self) -> list[Path]:
        """The files, in order."""
        if not self.path.exists():
            raise FileNotFoundError(f"{self.path} is gone: the log was moved or deleted.")
        return shards_in(self.path) if self.path.is_dir() else [self.path]

    def row_count(self) -> int:
        """How many rows there are, as far as that is known without reading them."""
        total = 0
        for shard in self.shards():
            # A torn shard has none; it is counted when it is read.
            with contextlib.suppress(UnreadableError, FileNotFoundError):
                total += formats.row_count(shard) or 0
        return total

    def batches(self, after: str = "") -> Iterator[tuple[Rows, str]]:
        """All rows that are there now, some at a time, each with the position after them; from a position on.

        Gradients are ascent gradients, whatever was written down.
        """
        done, _, rows = after.rpartition(":")
        for shard in self.shards():
            if shard.name < done or shard.name in self.torn:
                continue
            try:
                yield from self._of_shard(shard, int(rows) if shard.name == done else 0)
            except (UnreadableError, FileNotFoundError):
                # One shard that was taken away is skipped like a torn one; without the folder all are gone.
                if not self.path.is_dir():
                    raise
                self.torn.add(shard.name)

    def _of_shard(self, shard: Path, skip: int) -> Iterator[tuple[Rows, str]]:
        about = replace(_about(shard, formats.metadata(shard), self.dim, self.name), **self.believed)
        if not self.has_gradients and about.optimiser != self.about.optimiser:
            raise ValueError(f"{shard} is of another optimiser than the log's first shard; read it by itself.")
        read = 0
        for rows in formats.pieces(shard):
            self._check(shard, rows)
            read += len(rows.points)
            if read <= skip:
                continue
            rows = rows.take(slice(max(0, skip - read + len(rows.points)), None))
            if about.direction == "descent" and rows.gradients is not None:
                rows = rows._replace(gradients=-rows.gradients)
            unsaid = rows.learning_rates is None or "learning_rate" in self.believed
            if not self.has_gradients and about.learning_rate is not None and unsaid:
                rows = rows._replace(learning_rates=np.full(len(rows.points), about.learning_rate))
            yield rows, f"{shard.name}:{read}"
        if read < skip:
            raise ValueError(f"{shard} has {read} rows, and {skip} of them were read before: it is another file.")

    def _check(self, shard: Path, rows: Rows) -> None:
        dim = rows.points.shape[1]
        if dim != self.dim:
            raise ValueError(
                f"{shard} has points of {dim} dimensions and the log {self.dim}; take it out of the folder."
            )
        if (rows.gradients is not None) != self.has_gradients:
            which = "no gradients" if self.has_gradients else "gradients"
            raise ValueError(f"{shard} has {which}, unlike the log's first shard; take it out of the folder.")
        if rows.gradients is not None and rows.gradients.shape[1] != dim:
            raise ValueError(f"{shard} has points of {dim} dimensions but gradients of {rows.gradients.shape[1]}.")

    def follow(self, after: str = "", until: Callable[[], bool] = lambda: False) -> Iterator[tuple[Rows, str]]:
        """As `batches`, and then what is still to come, until told to stop."""
        while True:
            last = until()
            for rows, position in self.batches(after):
                yield rows, position
                after = position
            if last:
                return
            time.sleep(PATIENCE)

    def _apart(self, rows: Rows, position: str, piece: int) -> np.ndarray:
        """Agents, by other names after a hole in the record: no gradient is to be read across it."""
        holes = sum(name < position for name in self.torn) + piece
        if rows.agents is None:
            return np.full(len(rows.points), holes)
        return np.array([f"{agent} after {holes}" for agent in rows.agents], str)

    def read(self, report: Callable[[int], None] = lambda rows: None) -> Observations:
        """All rows that are there now, checked, in memory.

        Of a log of more than MOST_NUMBERS numbers one agent in so many is read, or one piece in so many.
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
            for column, part in zip(columns, kept, strict=True):
                column.append(part)
            done += len(rows.points)
            report(done)
        if not any(map(len, columns[0])):
            raise NoRowsError(f"{self.path} holds no rows; wait until something has been written.")
        points, gradients, agents, times, rates = (_joined(self.path, column) for column in columns)
        try:
            seen = observe(
                points,
                gradients,
                agents=agents,
                times=times,
                learning_rate=rates if gradients is None else None,
                optimiser=self.about.optimiser,
            )
        except ValueError as error:
            raise ValueError(f"{self.path}: {error}") from None
        notes = list(seen.notes)
        if gradients is None and self.about.optimiser is None:
            notes.append("nobody wrote down the optimiser: steps were taken for those of plain SGD.")
        if self.torn:
            notes.append(f"{len(self.torn)} shards of the log are torn and were skipped.")
        if share > 1:
            notes.append(f"the log holds {done} observations; {len(seen)} of them, about one in {share}, were read.")
        return replace(seen, notes=tuple(notes))


def shards_in(folder: Path) -> list[Path]:
    """The shards of a folder, in the order of their names."""
    return sorted(path for path in folder.iterdir() if path.suffix == ".parquet" and not path.name.startswith("."))


def open_log(
    path: Any,
    *,
    learning_rate: float | None = None,
    optimiser: Optimiser | str | None = None,
    descent: bool | None = None,
) -> Log:
    """A log, ready to be read: a folder of shards, or a .parquet, .npz or .csv file.

    ``learning_rate``, ``optimiser`` and ``descent`` are believed before what the log says of them.
    """
    place = Path(path)
    if not place.exists():
        raise FileNotFoundError(f"{place} does not exist; give a folder of shards, or a {_listed()} file.")
    if place.is_dir():
        files = shards_in(place)
        if not files:
            raise NoRowsError(f"{place} holds no .parquet shards; give the folder that a recorder writes to.")
    else:
        files = [_known(place)]
    believed: dict[str, Any] = {}
    if learning_rate is not None:
        check_positive(learning_rate=learning_rate)
        believed["learning_rate"] = learning_rate
    if optimiser is not None:
        believed["optimiser"] = as_optimiser(optimiser)
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
            # A file without a name of its own is known by its first row.
            own = f"{place.name} {crc32(first.points[0].tobytes()):08x}"
            about = replace(_about(file, words, first.points.shape[1], own), **believed)
            return Log(place, about, first.gradients is not None, believed, torn)
    if torn:
        raise UnreadableError(f"{place} holds no shard that can be read: {reason}")
    raise NoRowsError(f"{place} holds no rows; wait until something has been written.")


def read_log(path: Any, **options: Any) -> Observations:
    """All of a log, as `reconstruct` takes it; the options are `open_log`'s."""
    return open_log(path, **options).read()


def _listed() -> str:
    return ", ".join(formats.suffixes[:-1]) + f" or {formats.suffixes[-1]}"


def _known(path: Path) -> Path:
    """A file of a kind that is read."""
    with path.open("rb") as file:
        start = file.read(64)
    if path.suffix in (".pkl", ".pickle", ".pt", ".pth", ".joblib") or start[:1] == b"\x80":
        raise ValueError(
            f"{path} is a pickle, and nothing is ever unpickled: it could run anything. Save a {_listed()} file."
        )
    if path.suffix not in formats.suffixes:
        raise ValueError(f"{path} is not a log; give a folder of shards, or a {_listed()} file.")
    if not start:
        raise ValueError(f"{path} is empty; give a log with rows in it.")
    return path


def _thinned(rows: Rows, share: int, number: int) -> Rows:
    """Those of one agent in so many or, of few agents, all or none of them."""
    everybody = np.zeros(len(rows.points)) if rows.agents is None else rows.agents
    names, which = np.unique(everybody, return_inverse=True)
    if len(names) < FEWEST_AGENTS:
        return rows.take(slice(None) if number % share == 0 else slice(0))
    return rows.take(np.array([crc32(str(name).encode()) % share == 0 for name in names])[which])


def _coded(agents: np.ndarray | None, codes: dict[str, int]) -> np.ndarray | None:
    """Numbers for names: a million rows with their agents' names are a hundred megabytes."""
    if agents is None or agents.dtype.kind != "U":
        return agents
    names, first, which = np.unique(agents, return_index=True, return_inverse=True)
    numbers = np.empty(len(names), int)
    for place in np.argsort(first):
        numbers[place] = codes.setdefault(str(names[place]), len(codes))
    return numbers[which]


def _joined(path: Path, parts: list[Any]) -> np.ndarray | None:
    """One column from its parts, which are let go."""
    missing = [part is None for part in parts]
    if all(missing):
        return None
    if any(missing):
        raise ValueError(f"{path} has a column in some of its shards and not in others; take those out.")
    whole = np.concatenate(parts)
    parts.clear()
    return whole
