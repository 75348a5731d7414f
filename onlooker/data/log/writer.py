"""Write a log during training: rows are buffered in memory, and a shard appears whole or not at all (`destination`).

Any number of writers, in any number of processes, can share a folder on a disk or in an object store. A writer that is
killed loses only the rows buffered since its last shard.
"""

import threading
import time
from collections.abc import Hashable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from onlooker.core.deprecated import renamed
from onlooker.core.settings import check_positive, check_whole
from onlooker.data.log import formats
from onlooker.data.log.about import DIRECTIONS, About
from onlooker.data.log.destination import destination_for
from onlooker.data.log.directions import content_of, name_of
from onlooker.data.log.lifetime import close_at_exit, thread, through_forks
from onlooker.data.log.reader import open_log
from onlooker.data.marks import MARKS
from onlooker.data.optimizer import Optimizer, as_optimizer
from onlooker.data.projection import Projection
from onlooker.data.trainer import Trainer, common
from onlooker.storage.stores import StorePath, as_place

__all__ = ["LogWriter"]

# Values (rows times dimensions) in a shard, 8 MiB of float64, and the largest and smallest number of its rows.
NUMBERS = 1 << 20
MOST, FEWEST = 1 << 16, 4
# Seconds after which rows are written even if the shard is not full, so that a live page stays current; in a store,
# where every shard is an object that costs money and a request of every reader.
SECONDS, SECONDS_IN_STORES = 5.0, 60.0


class LogWriter:
    """Appends observations to a folder of Parquet shards.

    Parameters
    ----------
    folder
        Created if it does not exist; a log in it is continued. Or an address in an object store, such as
        ``s3://bucket/runs``.
    learning_rate
        ε of the learners, if it is known and constant.
    optimizer
        The learners' update rule: an `Optimizer` or a name, if known.
    direction
        "ascent" if the gradients are those of R, "descent" if they are those of a loss, R = −loss.
    source
        Where the gradients come from, as free text.
    rows
        Number of rows in a shard; default: about a million values.
    seconds
        Age in seconds of the oldest buffered row at which the next row triggers a write of a shard that is not full;
        default: 5, and 60 in an object store.
    """

    @renamed(optimiser="optimizer")
    def __init__(
        self,
        folder: Any,
        *,
        learning_rate: float | None = None,
        optimizer: Optimizer | str | None = None,
        direction: str = "ascent",
        source: str = "",
        rows: int | None = None,
        seconds: float | None = None,
    ) -> None:
        self.folder = as_place(folder)
        if seconds is None:
            seconds = SECONDS_IN_STORES if isinstance(self.folder, StorePath) else SECONDS
        check_positive(seconds=seconds, **({} if learning_rate is None else {"learning_rate": learning_rate}))
        if rows is not None:
            check_whole(rows=rows)
        if direction not in DIRECTIONS:
            raise ValueError(f"direction is {direction!r}; give {' or '.join(DIRECTIONS)}.")
        self._destination = destination_for(self.folder)
        rule = None if optimizer is None else as_optimizer(optimizer)
        self.about = About("", 0, learning_rate, rule, direction, source)
        self.written = 0
        self._rows, self._seconds = rows, seconds
        self._lock = threading.RLock()
        self._thread = thread()
        self._under_way: Future | None = None
        self._columns: dict[str, np.ndarray] = {}
        self._spare: dict[str, np.ndarray] = {}
        self._count = 0
        self._oldest = self._began = 0.0
        self._steps: dict[Hashable, int] = {}
        self._told: dict[str, Any] = {}
        self._closed = False
        through_forks(self)
        close_at_exit(self)

    @renamed(optimiser="optimizer")
    def describe(
        self, *, learning_rate: float | None = None, optimizer: Optimizer | None = None, source: str = ""
    ) -> None:
        """Complete the log's description; if learners differ, it keeps only what they have in common."""
        if learning_rate is not None and not 0 < float(learning_rate) < np.inf:
            # A warm-up schedule starts at zero.
            learning_rate = None
        with self._lock:
            told: dict[str, Any] = {"learning_rate": learning_rate, "optimizer": optimizer, "source": source}
            for name, value in told.items():
                before = getattr(self.about, name)
                if name not in self._told:
                    self._told[name] = value
                    if not before:
                        self.about = replace(self.about, **{name: value})
                elif self._told[name] != value and before == self._told[name]:
                    unknown: dict[str, Any] = {name: "" if name == "source" else None}
                    self.about = replace(self.about, **unknown)

    def describe_trainer(self, trainer: Trainer) -> None:
        """Say what the trainer does; if trainers differ, the log knows what they have in common."""
        with self._lock:
            said = common(self.about.trainer, trainer) if "trainer" in self._told else trainer
            self._told["trainer"] = said
            self.about = replace(self.about, trainer=said)

    def along(self, projection: Projection | None) -> None:
        """Store the directions that the points are along; a ValueError if the log has others."""
        name = "" if projection is None else name_of(projection)
        with self._lock:
            if "projection" in self._told and self._told["projection"] != name:
                raise ValueError(
                    "projection is not that of the log's other rows; give the same, or use another folder."
                )
            if not self._destination.is_new() and open_log(self.folder).about.projection != name:
                raise ValueError(f"{self.folder} has a log along other directions; use another folder.")
            self._told["projection"] = name
            self.about = replace(self.about, projection=name)
            if projection is not None and not (self.folder / name).exists():
                self._destination.put(name, content_of(projection))

    def add(
        self,
        point: Any,
        gradient: Any = None,
        *,
        agent: Hashable | None = None,
        time: float | None = None,
        learning_rate: float | None = None,
        **marks: float,
    ) -> None:
        """Append one observation: a point (dim,) and, if it is known, the gradient there.

        If ``time`` is not given, the times of each agent are 0, 1, 2, … ``learning_rate`` is ε of this step. ``marks``
        are numbers such as ``loss``.
        """
        _check_marks(marks)
        with self._lock:
            self._check_open()
            own_time = agent is not None and time is None
            when = self._steps.get(agent, 0) if own_time else time
            given = {"point": point, "gradient": gradient, "agent": agent, "time": when, "learning_rate": learning_rate}
            given |= marks
            row = self._with_usual({name: value for name, value in given.items() if value is not None})
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
        self,
        point: np.ndarray,
        gradient: np.ndarray,
        sign: np.ndarray,
        agent: Hashable | None,
        time: float,
        numbers: dict[str, float],
    ) -> bool:
        """Append a row of the same form as a checked one, with its gradient times ``sign``; false if it cannot be."""
        with self._lock:
            columns, number = self._columns, self._count
            if self._closed or len(columns) != (3 if agent is None else 4) + len(numbers):
                return False
            for name, value in numbers.items():
                columns[name][number] = value
            columns["point"][number] = point
            np.multiply(gradient, sign, out=columns["gradient"][number])
            columns["time"][number] = time
            if agent is not None:
                columns["agent"][number] = agent
            self._count = number + 1
            self._flush_if_full()
            return True

    def add_many(
        self,
        points: Any,
        gradients: Any = None,
        *,
        agents: Any = None,
        times: Any = None,
        learning_rates: Any = None,
        **marks: Any,
    ) -> None:
        """Append observations (n, dim), in the order in which they were made; arguments as of `add`."""
        points = np.asarray(points)
        if points.ndim != 2:
            raise ValueError(f"points has shape {points.shape}; give (rows, dimensions).")
        _check_marks(marks)
        given = {"gradients": gradients, "agents": agents, "times": times, "learning_rates": learning_rates, **marks}
        for name, values in given.items():
            wanted = points.shape if name == "gradients" else points.shape[:1]
            if values is not None and np.shape(values) != wanted:
                raise ValueError(f"{name} has shape {np.shape(values)} but points has {points.shape}; give {wanted}.")
        named = not (isinstance(agents, np.ndarray) and agents.dtype != object)
        if agents is not None and named and len(set(map(type, agents))) > 1:
            raise ValueError("agents mixes types of values, such as numbers and strings; give one type.")
        with self._lock:
            self._check_open()
            if not len(points):
                return
            columns = {"point": points, "gradient": gradients, "agent": agents, "time": times}
            columns |= {"learning_rate": learning_rates, **marks}
            if agents is not None and times is None:
                columns["time"] = self._next_times(np.asarray(agents))
            rows = {name: np.asarray(values) for name, values in columns.items() if values is not None}
            rows = self._with_usual(rows, len(points))
            if rows.keys() != self._columns.keys():
                self._begin({name: values[0] for name, values in rows.items()})
            for name, values in rows.items():
                self._check_fits(name, values, 1)
            if agents is not None and times is None:
                self._count_steps(np.asarray(agents))
            first = 0
            while first < len(points):
                fitting = min(len(points) - first, len(self._columns["point"]) - self._count)
                for name, values in rows.items():
                    self._columns[name][self._count : self._count + fitting] = values[first : first + fitting]
                self._count += fitting
                first += fitting
                self._flush_if_full()

    def flush(self) -> None:
        """Write all buffered rows to disk."""
        with self._lock:
            self._check_open()
            self._hand_over()
            self._wait()

    def close(self) -> None:
        """Flush, and accept no more rows."""
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
        """Times that continue each agent's own count."""
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
            raise ValueError("the log is closed; create a new LogWriter to continue it.")

    def _check_fits(self, name: str, values: np.ndarray, leading: int) -> None:
        """Raise unless the value, or the values along a leading axis, have the shape and the type of the column."""
        column = self._columns[name]
        if values.shape[leading:] != column.shape[1:]:
            raise ValueError(
                f"{name} has shape {values.shape[leading:]} but the log's rows have {column.shape[1:]}; give the same."
            )
        wanted = {"i": "iu", "f": "fiub"}.get(column.dtype.kind)
        if wanted is not None and values.dtype.kind not in wanted:
            raise ValueError(
                f"{name} has dtype {values.dtype} but the log's column has {column.dtype}; give the same type."
            )

    def _with_usual(self, rows: dict[str, Any], count: int | None = None) -> dict[str, Any]:
        """Rows with the marks that the log's other rows have; if they have more, a new shard begins."""
        if not self._columns or "gradient" not in rows:
            return rows
        usual = {"learning_rate": np.nan, **MARKS}
        if self._columns.keys() - usual == rows.keys() - usual and rows.keys() - self._columns.keys():
            self._hand_over()
            self._wait()
            self._columns = {}
            return rows
        missing = [name for name in usual if name in self._columns and name not in rows]
        return rows | {name: usual[name] if count is None else np.full(count, usual[name]) for name in missing}

    def _begin(self, row: dict[str, Any]) -> None:
        """Allocate the buffers for rows of the same form as the first one."""
        if "point" not in row:
            raise ValueError("point is None; give an array (dim,) of numbers.")
        if self._columns:
            old, new = (", ".join(sorted(columns)) for columns in (self._columns, row))
            raise ValueError(f"this row has {new} but the log has {old}; give the same columns.")
        point = np.asarray(row["point"])
        dim = point.shape[0] if point.ndim == 1 else 0
        if dim == 0 or point.dtype.kind not in "fiu":
            raise ValueError(f"point has shape {point.shape} and dtype {point.dtype}; give an array (dim,) of numbers.")
        self.about = replace(self._continued(dim, "gradient" in row), dim=dim)
        room = self._rows or int(np.clip(NUMBERS // dim, FEWEST, MOST))
        kind = np.float32 if point.dtype == np.float32 else np.float64
        self._columns = {"point": np.empty((room, dim), kind)}
        if "gradient" in row:
            self._columns["gradient"] = np.empty((room, dim), kind)
        if "agent" in row:
            number = isinstance(row["agent"], int | np.integer)
            self._columns["agent"] = np.empty(room, np.int64 if number else object)
        for name in ("time", "learning_rate", *MARKS):
            if name in row:
                self._columns[name] = np.empty(room)
        self._spare = {name: np.empty_like(column) for name, column in self._columns.items()}
        self._oldest, self._began = time.monotonic(), time.time()

    def check_dimension(self, dim: int) -> None:
        """Raise unless rows of this dimension, with gradients, fit the log: called before training starts."""
        known = self._columns["point"].shape[1] if self._columns else dim
        if known != dim:
            raise ValueError(f"the log has points of {known} dimensions but these have {dim}; use another folder.")
        self._continued(dim, True)

    def _continued(self, dim: int, gradients: bool) -> About:
        """The description with the log's name, new or that of the log in the folder, which must match these rows."""
        if self._destination.is_new():
            return self.about
        before = open_log(self.folder)
        if before.dim != dim or before.has_gradients != gradients:
            raise ValueError(
                f"{self.folder} has a log of {before.dim} dimensions {'with' if before.has_gradients else 'without'} "
                f"gradients but this row has {dim}, {'with' if gradients else 'without'}; choose another folder."
            )
        return replace(self.about, name=before.name)

    def _flush_if_full(self) -> None:
        if self._count == len(self._columns["point"]) or time.monotonic() - self._oldest > self._seconds:
            self._hand_over()

    def _hand_over(self) -> None:
        """Hand the buffered rows to the writing thread, one shard at a time."""
        rows = {name: column[: self._count] for name, column in self._columns.items()}
        count, self._count = self._count, 0
        began, self._oldest, self._began = self._began, time.monotonic(), time.time()
        self._wait()
        if count:
            # Swap buffers: allocating new memory would take longer than filling it.
            self._columns, self._spare = self._spare, self._columns
            try:
                self._under_way = self._thread.submit(self._write, rows, began)
            except RuntimeError:
                # The interpreter is shutting down and starts no more threads.
                self._write(rows, began)

    def _wait(self) -> None:
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            try:
                under_way.result()
            except (OSError, pa.ArrowException) as error:
                raise OSError(
                    f"{self.folder} could not be written to ({error}); the rows of one shard were lost."
                ) from error

    def _write(self, rows: dict[str, np.ndarray], began: float) -> None:
        words = {**self.about.to_metadata(), "began": repr(began)}
        name = self._destination.publish(lambda name: formats.table(rows, {**words, "log": name}), self.about.name)
        self.about = replace(self.about, name=name)
        self.written += len(rows["point"])


def _check_marks(marks: dict[str, Any]) -> None:
    if unknown := sorted(marks.keys() - MARKS.keys()):
        raise TypeError(f"{unknown[0]} is not a column of a log; numbers beside a row are {', '.join(MARKS)}.")
