"""Writes a log while somebody learns: rows are gathered in memory, and a shard appears whole or not at all.

A shard is written under a name that no reader looks at, brought onto the disk, and then linked to the next free number:
a link fails where there is a shard already, so that many writers, in many processes, can share a folder. Killed at any
moment, a writer loses the rows it had gathered since the last shard and nothing else.
"""

import atexit
import contextlib
import os
import threading
import time
import uuid
import weakref
from collections.abc import Hashable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from onlooker.check import check_positive, check_whole
from onlooker.observe.log import DIRECTIONS, About, open_log, shards_in
from onlooker.observe.optimiser import Optimiser, as_optimiser

__all__ = ["LogWriter", "close_at_exit"]

# Numbers of a shard, rows times dimensions, and rows at the most and at the least.
NUMBERS = 1 << 20
MOST, FEWEST = 1 << 16, 4
# Seconds after which rows are written even if they are few: somebody may be watching.
SECONDS = 5.0
# Seconds after which an unfinished shard is nobody's.
ABANDONED = 3600.0


class LogWriter:
    """Appends observations to a folder of Parquet shards.

    Parameters
    ----------
    folder
        Made if it is not there; a log in it is continued.
    learning_rate, optimiser, direction, source
        What is known of the learners, see `About`. Gradients are ascent gradients unless the direction is "descent".
    rows, seconds
        How many rows make a shard, by default as many as a million numbers are; and after how many seconds the next row
        has one written although it is not full.
    """

    def __init__(
        self,
        folder: Any,
        *,
        learning_rate: float | None = None,
        optimiser: Optimiser | str | None = None,
        direction: str = "ascent",
        source: str = "",
        rows: int | None = None,
        seconds: float = SECONDS,
    ) -> None:
        check_positive(seconds=seconds, **({} if learning_rate is None else {"learning_rate": learning_rate}))
        if rows is not None:
            check_whole(rows=rows)
        if direction not in DIRECTIONS:
            raise ValueError(f"direction is {direction!r}; give {' or '.join(DIRECTIONS)}.")
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        _sweep(self.folder)
        rule = None if optimiser is None else as_optimiser(optimiser)
        self.about = About("", 0, learning_rate, rule, direction, source)
        self.written = 0
        self._rows, self._seconds = rows, seconds
        self._lock = threading.RLock()
        self._thread = _thread()
        self._under_way: Future | None = None
        self._columns: dict[str, np.ndarray] = {}
        self._spare: dict[str, np.ndarray] = {}
        self._count = 0
        self._oldest = 0.0
        self._steps: dict[Hashable, int] = {}
        self._told: dict[str, Any] = {}
        self._closed = False
        OPEN.add(self)
        close_at_exit(self)

    def describe(
        self, *, learning_rate: float | None = None, optimiser: Optimiser | None = None, source: str = ""
    ) -> None:
        """Say what nobody has said yet; of learners that differ, the log says only what they have in common."""
        if learning_rate is not None and not 0 < float(learning_rate) < np.inf:
            # A schedule that warms up begins with none.
            learning_rate = None
        with self._lock:
            told: dict[str, Any] = {"learning_rate": learning_rate, "optimiser": optimiser, "source": source}
            for name, value in told.items():
                before = getattr(self.about, name)
                if name not in self._told:
                    self._told[name] = value
                    if not before:
                        self.about = replace(self.about, **{name: value})
                elif self._told[name] != value and before == self._told[name]:
                    unsaid: dict[str, Any] = {name: "" if name == "source" else None}
                    self.about = replace(self.about, **unsaid)

    def add(
        self,
        point: Any,
        gradient: Any = None,
        *,
        agent: Hashable | None = None,
        time: float | None = None,
        learning_rate: float | None = None,
    ) -> None:
        """One observation: a point (dim,) and the gradient there, if it is known.

        An agent's times, unless they are given, are 0, 1, 2, …
        """
        with self._lock:
            self._check_open()
            own_time = agent is not None and time is None
            when = self._steps.get(agent, 0) if own_time else time
            given = {"point": point, "gradient": gradient, "agent": agent, "time": when, "learning_rate": learning_rate}
            row = {name: value for name, value in given.items() if value is not None}
            if row.keys() != self._columns.keys():
                self._begin(row)
            for name, value in row.items():
                self._check_fits(name, np.asarray(value), 0)
            for name, value in row.items():
                self._columns[name][self._count] = value
            if own_time:
                self._steps[agent] = int(when or 0) + 1
            self._count += 1
            self._flush_if_full()

    def fill(
        self, point: np.ndarray, gradient: np.ndarray, sign: np.ndarray, agent: Hashable | None, time: float
    ) -> bool:
        """One more row like one that was checked, its gradient times a sign, straight into its place if it has one."""
        with self._lock:
            columns, number = self._columns, self._count
            if self._closed or "learning_rate" in columns or len(columns) != (3 if agent is None else 4):
                return False
            columns["point"][number] = point
            np.multiply(gradient, sign, out=columns["gradient"][number])
            columns["time"][number] = time
            if agent is not None:
                columns["agent"][number] = agent
            self._count = number + 1
            self._flush_if_full()
            return True

    def add_many(
        self, points: Any, gradients: Any = None, *, agents: Any = None, times: Any = None, learning_rates: Any = None
    ) -> None:
        """Observations (n, dim), in the order in which they were made."""
        points = np.asarray(points)
        if points.ndim != 2:
            raise ValueError(f"points has shape {points.shape}; give (rows, dimensions).")
        given = {"gradients": gradients, "agents": agents, "times": times, "learning_rates": learning_rates}
        for name, values in given.items():
            wanted = points.shape if name == "gradients" else points.shape[:1]
            if values is not None and np.shape(values) != wanted:
                raise ValueError(f"{name} has shape {np.shape(values)} beside points of {points.shape}; give {wanted}.")
        named = not (isinstance(agents, np.ndarray) and agents.dtype != object)
        if agents is not None and named and len(set(map(type, agents))) > 1:
            raise ValueError("agents mixes kinds of names, such as numbers and words; give one kind.")
        with self._lock:
            self._check_open()
            if not len(points):
                return
            columns = {"point": points, "gradient": gradients, "agent": agents, "time": times}
            columns |= {"learning_rate": learning_rates}
            if agents is not None and times is None:
                columns["time"] = self._next_times(np.asarray(agents))
            rows = {name: np.asarray(values) for name, values in columns.items() if values is not None}
            if rows.keys() != self._columns.keys():
                self._begin({name: values[0] for name, values in rows.items()})
            for name, values in rows.items():
                self._check_fits(name, values, 1)
            if agents is not None and times is None:
                self._count_steps(np.asarray(agents))
            first = 0
            while first < len(points):
                some = min(len(points) - first, len(self._columns["point"]) - self._count)
                for name, values in rows.items():
                    self._columns[name][self._count : self._count + some] = values[first : first + some]
                self._count += some
                first += some
                self._flush_if_full()

    def flush(self) -> None:
        """Bring onto the disk all that was added."""
        with self._lock:
            self._check_open()
            self._hand_over()
            self._wait()

    def close(self) -> None:
        """Flush, and take nothing more."""
        with self._lock:
            if not self._closed:
                try:
                    self.flush()
                finally:
                    self._closed = True
                    self._thread.shutdown()

    def __enter__(self) -> "LogWriter":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _next_times(self, agents: np.ndarray) -> np.ndarray:
        """The next of each agent's own times."""
        names, which, counts = np.unique(agents, return_inverse=True, return_counts=True)
        order = np.argsort(which, kind="stable")
        times = np.empty(len(agents))
        times[order] = np.arange(len(agents)) - np.repeat(np.cumsum(counts) - counts, counts)
        return times + np.array([self._steps.get(name, 0) for name in names.tolist()])[which]

    def _count_steps(self, agents: np.ndarray) -> None:
        for name, count in zip(*(part.tolist() for part in np.unique(agents, return_counts=True)), strict=True):
            self._steps[name] = self._steps.get(name, 0) + count

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("the log is closed; make a new LogWriter to go on.")

    def _check_fits(self, name: str, values: np.ndarray, leading: int) -> None:
        """That a value, or so many as there are rows, can stand in a column as it is."""
        column = self._columns[name]
        if values.shape[leading:] != column.shape[1:]:
            raise ValueError(
                f"{name} has shape {values.shape[leading:]} and the log's rows {column.shape[1:]}; give the same."
            )
        wanted = {"i": "iu", "f": "fiub"}.get(column.dtype.kind)
        if wanted is not None and values.dtype.kind not in wanted:
            raise ValueError(f"{name} is of {values.dtype} and the log's column of {column.dtype}; give the same kind.")

    def _begin(self, row: dict[str, Any]) -> None:
        """Room for rows like this one, the first."""
        if "point" not in row:
            raise ValueError("point is None; give (dim,) numbers.")
        if self._columns:
            raise ValueError(
                f"this row has {', '.join(sorted(row))} but the log {', '.join(sorted(self._columns))}; give the same."
            )
        point = np.asarray(row["point"])
        dim = point.shape[0] if point.ndim == 1 else 0
        if dim == 0 or point.dtype.kind not in "fiu":
            raise ValueError(f"point has shape {point.shape}, {point.dtype}; give (dim,) numbers.")
        self.about = replace(self._continued(dim, "gradient" in row), dim=dim)
        room = self._rows or int(np.clip(NUMBERS // dim, FEWEST, MOST))
        kind = np.float32 if point.dtype == np.float32 else np.float64
        self._columns = {"point": np.empty((room, dim), kind)}
        if "gradient" in row:
            self._columns["gradient"] = np.empty((room, dim), kind)
        if "agent" in row:
            number = isinstance(row["agent"], int | np.integer)
            self._columns["agent"] = np.empty(room, np.int64 if number else object)
        for name in ("time", "learning_rate"):
            if name in row:
                self._columns[name] = np.empty(room)
        self._spare = {name: np.empty_like(column) for name, column in self._columns.items()}
        self._oldest = time.monotonic()

    def check_dimension(self, dim: int) -> None:
        """That rows of so many dimensions, with gradients, can be added: before somebody trains for hours."""
        known = self._columns["point"].shape[1] if self._columns else dim
        if known != dim:
            raise ValueError(f"the log has points of {known} dimensions and these are of {dim}; use another folder.")
        self._continued(dim, True)

    def _continued(self, dim: int, gradients: bool) -> About:
        """What is known of the log: its name, if there is one, and that these rows fit it."""
        if not shards_in(self.folder):
            return replace(self.about, name=uuid.uuid4().hex)
        before = open_log(self.folder)
        if before.dim != dim or before.has_gradients != gradients:
            raise ValueError(
                f"{self.folder} holds a log of {before.dim} dimensions {'with' if before.has_gradients else 'without'} "
                f"gradients and this row has {dim}, {'with' if gradients else 'without'}; choose another folder."
            )
        return replace(self.about, name=before.name)

    def _flush_if_full(self) -> None:
        if self._count == len(self._columns["point"]) or time.monotonic() - self._oldest > self._seconds:
            self._hand_over()

    def _hand_over(self) -> None:
        """Give the rows gathered to the thread that writes; one shard at a time."""
        rows = {name: column[: self._count] for name, column in self._columns.items()}
        count, self._count = self._count, 0
        self._oldest = time.monotonic()
        self._wait()
        if count:
            # The other set of columns was written before: new memory would cost more than what is written into it.
            self._columns, self._spare = self._spare, self._columns
            try:
                self._under_way = self._thread.submit(self._write, rows)
            except RuntimeError:
                # The program is ending, and threads are not to be had any more.
                self._write(rows)

    def _wait(self) -> None:
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            try:
                under_way.result()
            except (OSError, pa.ArrowException) as error:
                raise OSError(f"{self.folder} could not be written to ({error}); rows were lost.") from error

    def _write(self, rows: dict[str, np.ndarray]) -> None:
        table = _table(rows, self.about)
        hidden = self.folder / f".writing-{uuid.uuid4().hex}"
        try:
            # Arrow's own file: one of Python's would stop the learner at every page.
            with pa.OSFile(os.fsencode(hidden), "wb") as file:
                pyarrow.parquet.write_table(
                    table,
                    file,
                    compression="none",
                    use_dictionary=["agent"],
                    write_statistics=False,
                    write_page_checksum=True,
                )
            with hidden.open("rb+") as file:
                os.fsync(file.fileno())
            _publish(hidden, self.folder)
        finally:
            hidden.unlink(missing_ok=True)
        self.written += len(table)


OPEN: "weakref.WeakSet[LogWriter]" = weakref.WeakSet()


def _hold() -> None:
    """Before a fork nobody writes: a child would wait forever for what another thread was about."""
    for writer in list(OPEN):
        writer._lock.acquire()
        if writer._under_way is not None:
            wait([writer._under_way])


def _let_go() -> None:
    for writer in list(OPEN):
        writer._lock.release()


def _begin_in_child() -> None:
    """The rows gathered are the parent's, and so was the thread."""
    for writer in list(OPEN):
        writer._lock, writer._thread = threading.RLock(), _thread()
        writer._count, writer._under_way = 0, None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold, after_in_parent=_let_go, after_in_child=_begin_in_child)


def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="onlooker-log")


def close_at_exit(open_one: Any) -> None:
    """What somebody forgot to close is closed when the program ends."""
    reference = weakref.ref(open_one)

    def close() -> None:
        found = reference()
        if found is not None:
            found.close()

    atexit.register(close)


def _sweep(folder: Path) -> None:
    """Remove what writers that were killed have left; what is young may be another's who is at work."""
    for path in folder.glob(".writing-*"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > ABANDONED:
                path.unlink()


def _publish(hidden: Path, folder: Path) -> None:
    """Give a whole shard the next free number."""
    numbers = [int(path.stem) for path in shards_in(folder) if path.stem.isdecimal()]
    number = max(numbers, default=-1) + 1
    while True:
        shard = folder / f"{number:010d}.parquet"
        try:
            os.link(hidden, shard)
            break
        except FileExistsError:
            number += 1
        except OSError:
            # A file system without links: one writer at a time, then.
            if shard.exists():
                number += 1
                continue
            hidden.rename(shard)
            break
    # Not every system lets a folder be opened.
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _table(rows: dict[str, np.ndarray], about: About) -> pa.Table:
    """Columns in one order; lists without missing values, which are written and read several times as fast."""
    arrays, fields = [], []
    for name in ("agent", "time", "point", "gradient", "learning_rate"):
        if name not in rows:
            continue
        values = rows[name]
        if values.ndim == 2:
            element = pa.field("element", pa.from_numpy_dtype(values.dtype), nullable=False)
            kind = pa.list_(element, values.shape[1])
            arrays.append(pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), type=kind))
        elif values.dtype == object:
            arrays.append(pa.array([str(value) for value in values]))
        else:
            arrays.append(pa.array(values))
        fields.append(pa.field(name, arrays[-1].type, nullable=False))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata=about.to_metadata()))
