"""Logs that hold sums only: a run of any number of parameters as a file of kilobytes, for the features that it names.

    onlooker.record(optimizer, "runs/", agent=0, features=psi)

Every step adds one row of k × k numbers to the sums (`onlooker.fit.linear`); neither points nor gradients are kept. A
file is replaced as a whole every few seconds, and each recording has a file of its own, so that any number of processes
can share a folder. `explain` joins the files.
"""

import json
import time
import uuid
from collections.abc import Hashable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from onlooker.core.messages import in_short
from onlooker.data.log.writer import LogWriter
from onlooker.data.projection import Projection
from onlooker.explanation.features import Features, as_features
from onlooker.explanation.gathered import Gathered, gather
from onlooker.fit.linear import LinearSums
from onlooker.storage import state_file
from onlooker.storage.stores import StorePath
from onlooker.storage.trees import pack, unpack

__all__ = ["SUFFIX", "SumsWriter", "recorded_sums", "sums_in"]

KIND, SUFFIX = "FeatureSums", ".sums"
# Rows that D of the sums is computed from, fewer of very large points; and rows of sums in a file at most.
FIRST, FEWEST, NUMBERS, MOST_ROWS = 64, 8, 1 << 22, 512
# Seconds between two writes.
SECONDS = 5.0


class SumsWriter(LogWriter):
    """Takes rows as a `LogWriter` does, and writes the sums of features over them.

    Parameters
    ----------
    folder
        Created if it does not exist.
    features
        ψ: a function of one point in jax.numpy, or what `onlooker.tabular` returns.
    names
        Names of the features.
    """

    def __init__(self, folder: Any, features: Any, names: Any = None) -> None:
        super().__init__(folder)
        if isinstance(self.folder, StorePath):
            raise ValueError(f"{self.folder} is in an object store; record features into a folder on a disk.")
        self.features: Features = as_features(features, None, names)
        if self.features.by_row is not None:
            raise ValueError("features are known for given rows only; recording needs a function of any point.")
        self.path: Path = self.folder / f"{uuid.uuid4().hex}{SUFFIX}"
        self._gathered: Gathered | None = None
        self._waiting: list[tuple[np.ndarray, np.ndarray, str]] = []
        self._dim = 0
        self._written_at = time.monotonic()

    def check_dimension(self, dim: int) -> None:
        """Raise if rows were of another dimension."""
        if self._dim not in (0, dim):
            raise ValueError(f"the log is of {self._dim} dimensions but points have {dim}; use another folder.")
        self._dim = dim

    def along(self, projection: Projection | None) -> None:
        """Nothing: sums do not say where points were."""

    def fill(self, *row: Any) -> bool:
        """Never straight into a buffer."""
        return False

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
        """Add one row; see `LogWriter.add`."""
        agents = None if agent is None else [agent]
        self.add_many(np.asarray(point)[None], np.asarray(gradient)[None], agents=agents, times=None)

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
        """Add rows of points and gradients; those with a NaN or an infinity are left out."""
        points, gradients = np.asarray(points), np.asarray(gradients)
        self.check_dimension(points.shape[1])
        # A recording without a name is of an agent of its own.
        names = [self.path.stem] * len(points) if agents is None else [str(agent) for agent in agents]
        usable = np.isfinite(points).all(axis=1) & np.isfinite(gradients).all(axis=1)
        with self._lock:
            for row in np.flatnonzero(usable):
                self._waiting.append((points[row].copy(), gradients[row].copy(), names[row]))
            least = int(np.clip(NUMBERS // self._dim, FEWEST, FIRST)) if self._gathered is None else 1
            if len(self._waiting) >= least:
                self._take()
            if time.monotonic() - self._written_at > SECONDS:
                self.flush()

    def _take(self) -> None:
        columns = list(zip(*self._waiting, strict=True))
        self._waiting = []
        points, gradients = np.stack(columns[0]), np.stack(columns[1])
        names = np.array(columns[2], str)
        if self._gathered is None:
            self._gathered = gather(self.features, points, gradients, np.arange(len(points)))
        self._gathered.add(points, gradients, names)

    def flush(self) -> None:
        """Write the sums so far."""
        with self._lock:
            if self._waiting and len(self._waiting) >= FEWEST:
                self._take()
            if self._gathered is not None:
                _write(self._gathered, self.path)
            self._written_at = time.monotonic()

    def close(self) -> None:
        """Write the rest."""
        with self._lock:
            if self._waiting:
                self._take()
        super().close()


def _write(gathered: Gathered, path: Path) -> None:
    sums = gathered.sums.compressed(MOST_ROWS)
    arrays = pack(replace(sums, names=np.zeros(0), scale=np.zeros(0), _last=None), "sums")
    about = {
        "names": list(gathered.features.names),
        "suspects": list(gathered.suspects),
        "count": gathered.count,
        "rows": gathered.rows,
        "agents": sums.names.tolist(),
    }
    if gathered.total is not None:
        arrays["total"] = gathered.total
    arrays["about"] = np.asarray(json.dumps(about))
    state_file.write(path, KIND, state_file.packed(arrays))


class _Recorded:
    """Features of recorded sums, of which only the names are known."""

    def __init__(self, names: tuple[str, ...], suspects: tuple[str, ...]) -> None:
        self.names, self.suspects = names, suspects
        self.parts, self.own = 1, False
        self.by_row: int | None = None

    def at(self, points: np.ndarray, rows: np.ndarray) -> Any:
        raise ValueError("features are known by the sums of a log only; give the function.")

    def suspected(self, points: np.ndarray) -> np.ndarray:
        return np.asarray(self.at(points, np.arange(len(points))))


def sums_in(folder: Path) -> list[Path]:
    """The files of sums in a folder."""
    return (
        sorted(path for path in folder.glob(f"*{SUFFIX}") if not path.name.startswith(".")) if folder.is_dir() else []
    )


def recorded_sums(files: list[Path], features: Any = None, names: Any = None) -> Gathered:
    """The sums in some files, joined.

    Parameters
    ----------
    files
        The files.
    features
        ψ, if R̂ is to be evaluated; the sums do not need it.
    names
        Names of the features; default: those recorded.
    """
    joined: Gathered | None = None
    for file in files:
        one = _read(file)
        if joined is not None and (joined.count, joined.suspects) != (one.count, one.suspects):
            raise ValueError(f"{file} has other features than {files[0]}; explain them separately.")
        joined = one if joined is None else joined.joined(one)
    assert joined is not None
    if features is not None:
        known = as_features(features, None, names)
        known.names = known.names or joined.features.names
        joined = replace(joined, features=known)
    elif names is not None:
        joined.features.names = tuple(map(str, names))
    if joined.features.names and len(joined.features.names) != joined.count:
        wanted = len(joined.features.names)
        raise ValueError(f"names has {wanted} entries but the log has {joined.count} features; give one for each.")
    return joined


def _read(path: Path) -> Gathered:
    arrays = state_file.read(path, KIND)
    try:
        about = json.loads(str(arrays.pop("about")))
        total = arrays.pop("total", None)
        sums = unpack(LinearSums, {name.removeprefix("sums/"): array for name, array in arrays.items()})
        sums.names = np.array(about["agents"], str)
        sums.check()
        features = _Recorded(tuple(map(str, about["names"])), tuple(map(str, about["suspects"][1:])))
        if sums.features != int(about["count"]) + len(about["suspects"]):
            raise ValueError("its features do not match its sums")
        return Gathered(features, sums, int(about["count"]), total, int(about["rows"]))
    except MemoryError:
        raise
    except Exception as error:
        # The digest is right, so another program wrote the file; a wrong field can fail anywhere.
        raise ValueError(f"{path} does not hold sums of features ({in_short(error)}).") from None
