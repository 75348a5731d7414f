"""One file of a log, in pieces: Parquet, CSV or NumPy's .npz. What is no such file is refused, by name and reason.

Columns are ``point`` and ``gradient``, lists of equal length, or ``point_0``, ``point_1``, …; ``agent``, ``time`` and
``learning_rate`` may be there. In .npz the keys are in the plural: ``points``, ``gradients``, ``agents``, ``times``.
"""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from onlooker import npz
from onlooker.check import in_short

__all__ = ["Rows", "UnreadableError", "metadata", "pieces", "row_count", "suffixes"]

# Rows of a piece, and numbers.
PIECE, NUMBERS = 1 << 16, 1 << 21
suffixes = (".parquet", ".npz", ".csv")
NPZ_NAMES = {"points": "point", "gradients": "gradient", "agents": "agent", "times": "time"}
# Words about a log that an .npz may hold beside its arrays.
NPZ_WORDS = ("learning_rate", "optimiser", "momentum", "dampening", "nesterov", "weight_decay", "direction")


class UnreadableError(ValueError):
    """A file that is damaged, cut off or something else: a shard like that is skipped, a log like that refused."""


class Rows(NamedTuple):
    """Some rows of a log, in the order in which they were made."""

    points: np.ndarray
    gradients: np.ndarray | None
    agents: np.ndarray | None
    times: np.ndarray | None
    learning_rates: np.ndarray | None

    def take(self, which: Any) -> "Rows":
        """Some of them."""
        return self._replace(**{name: part[which] for name, part in self._asdict().items() if part is not None})


def metadata(path: Path) -> dict[str, str]:
    """What a file says about itself."""
    if path.suffix == ".parquet":
        with _parquet(path) as file:
            found = file.schema_arrow.metadata or {}
        return {key.decode(errors="replace"): value.decode(errors="replace") for key, value in found.items()}
    if path.suffix == ".npz":
        with _npz(path) as arrays:
            words = {name: _array(path, arrays, name) for name in NPZ_WORDS if name in arrays}
            return {name: str(word) for name, word in words.items() if word.ndim == 0}
    return {}


def row_count(path: Path) -> int | None:
    """How many rows there are, where that is known without reading them."""
    if path.suffix == ".parquet":
        with _parquet(path) as file:
            return file.metadata.num_rows
    return None


def pieces(path: Path) -> Iterator[Rows]:
    """All rows of a file, some at a time."""
    yield from {".parquet": _of_parquet, ".csv": _of_csv, ".npz": _of_npz}[path.suffix](path)


def _parquet(path: Path) -> pyarrow.parquet.ParquetFile:
    try:
        file = pyarrow.parquet.ParquetFile(path, page_checksum_verification=True)
        # Names of columns that are no words are noticed only now.
        _ = file.schema_arrow.names
        return file
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        _raise_if_it_may_pass(error)
        raise UnreadableError(f"{path} is not a whole Parquet file ({in_short(error)}).") from None


def _of_parquet(path: Path) -> Iterator[Rows]:
    with _parquet(path) as file:
        names = _wanted(path, file.schema_arrow.names)
        try:
            # One thread: columns this small are read faster than threads are woken.
            for batch in file.iter_batches(_piece(file.schema_arrow, names), columns=names, use_threads=False):
                yield _rows(path, batch)
        except (pa.ArrowException, OSError) as error:
            _raise_if_it_may_pass(error)
            raise UnreadableError(f"{path} is damaged ({in_short(error)}).") from None


def _piece(schema: pa.Schema, names: list[str]) -> int:
    """Rows at a time: fewer of more dimensions."""
    kinds = [schema.field(name).type for name in names]
    return int(np.clip(NUMBERS // sum(getattr(kind, "list_size", 1) for kind in kinds), 1, PIECE))


def _raise_if_it_may_pass(error: Exception) -> None:
    """A disk that is busy, a file that must not be read or that is gone is not a torn shard."""
    if isinstance(error, OSError) and error.errno:
        raise error


def _of_csv(path: Path) -> Iterator[Rows]:
    try:
        with pyarrow.csv.open_csv(path) as file:
            names = _wanted(path, file.schema.names)
        # Told, not guessed from the first rows: later ones may have a decimal point.
        kinds = {name: pa.string() if name == "agent" else pa.float64() for name in names}
        told = pyarrow.csv.ConvertOptions(column_types=kinds, include_columns=names)
        with pyarrow.csv.open_csv(path, convert_options=told) as file:
            for batch in file:
                yield _rows(path, batch)
    except (pa.ArrowException, OSError, UnicodeDecodeError, KeyError) as error:
        _raise_if_it_may_pass(error)
        raise UnreadableError(
            f"{path} is not a CSV file with a header and one row per line ({in_short(error)})."
        ) from None


@contextlib.contextmanager
def _npz(path: Path) -> Iterator[npz.Archive]:
    try:
        with npz.opened(path) as arrays:
            yield arrays
    except npz.BrokenArchiveError as error:
        raise UnreadableError(
            f"{path} is not a whole .npz file ({error}); save one with np.savez(path, points=…, gradients=…)."
        ) from None


def _array(path: Path, arrays: npz.Archive, name: str) -> np.ndarray:
    try:
        return arrays[name]
    except npz.BrokenArchiveError as error:
        raise UnreadableError(f"{path} has an array {name} that cannot be read ({error}).") from None


def _of_npz(path: Path) -> Iterator[Rows]:
    with _npz(path) as file:
        if "points" not in file:
            raise ValueError(f"{path} has no array points, but {_listed(file)}; np.savez(path, points=…, gradients=…).")
        found: dict[str, np.ndarray | None] = dict.fromkeys(NPZ_NAMES.values())
        for name in (*NPZ_NAMES, "learning_rate"):
            if name in file:
                found[NPZ_NAMES.get(name, name)] = _array(path, file, name)
    point = found["point"]
    assert point is not None
    count = len(point) if point.ndim else 0
    for name, values in found.items():
        if name != "learning_rate" and values is not None and (values.ndim == 0 or len(values) != count):
            raise ValueError(f"{path} has {count} points but an array for {name} of shape {values.shape}.")
    rates = found.get("learning_rate")
    yield Rows(
        _as_matrix(path, "points", point),
        None if found["gradient"] is None else _as_matrix(path, "gradients", found["gradient"]),
        found["agent"],
        found["time"],
        rates if rates is not None and rates.ndim else None,
    )


def _as_matrix(path: Path, name: str, values: np.ndarray) -> np.ndarray:
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2 or values.dtype.kind not in "fiu":
        raise ValueError(f"{path} has {name} of shape {values.shape}, {values.dtype}; give numbers (rows, dimensions).")
    return values


def _listed(names: Any) -> str:
    return ", ".join(sorted(map(str, names))[:8]) or "nothing"


def _numbered(name: str, names: list[str]) -> list[str]:
    """name_0, name_1, … as far as they go."""
    count = 0
    while f"{name}_{count}" in names:
        count += 1
    return [f"{name}_{number}" for number in range(count)]


def _wanted(path: Path, names: list[str]) -> list[str]:
    """The columns to read."""
    strange = [name for name in names if name != name.strip() or names.count(name) > 1]
    if strange:
        raise ValueError(f"{path} has a column {strange[0]!r} with spaces about its name, or twice; name each once.")
    for name in ("point", "gradient"):
        left = [one for one in names if re.fullmatch(rf"{name}_\d+", one) and one not in _numbered(name, names)]
        if left:
            raise ValueError(f"{path} has a column {left[0]} but not all before it; number them from {name}_0.")
    points = ["point"] if "point" in names else _numbered("point", names)
    if not points:
        raise ValueError(f"{path} has no column point, nor point_0, but {_listed(names)}; name the points so.")
    gradients = ["gradient"] if "gradient" in names else _numbered("gradient", names)
    if gradients and len(gradients) != len(points):
        raise ValueError(
            f"{path} has columns {', '.join(points)} but {', '.join(gradients)}; give one gradient per point."
        )
    return [*points, *gradients, *(name for name in ("agent", "time", "learning_rate") if name in names)]


def _rows(path: Path, batch: pa.RecordBatch) -> Rows:
    names = batch.schema.names
    columns = {
        name: _column(path, name, batch.column(name)) for name in ("agent", "time", "learning_rate") if name in names
    }
    points = _matrix(path, "point", batch)
    assert points is not None
    return Rows(
        points,
        _matrix(path, "gradient", batch),
        columns.get("agent"),
        columns.get("time"),
        columns.get("learning_rate"),
    )


def _matrix(path: Path, name: str, batch: pa.RecordBatch) -> np.ndarray | None:
    if name not in batch.schema.names:
        columns = [_column(path, one, batch.column(one)) for one in _numbered(name, batch.schema.names)]
        return np.stack(columns, axis=1) if columns else None
    lists = batch.column(name)
    if pa.types.is_floating(lists.type) or pa.types.is_integer(lists.type):
        return _column(path, name, lists)[:, None]
    if pa.types.is_large_list(lists.type):
        lists = lists.cast(pa.list_(lists.type.value_type))
    if not (pa.types.is_fixed_size_list(lists.type) or pa.types.is_list(lists.type)):
        raise ValueError(f"{path} has a column {name} of {lists.type}; give lists of numbers.")
    if lists.null_count:
        raise ValueError(f"{path} has {lists.null_count} rows without a {name}; leave them out.")
    if pa.types.is_list(lists.type):
        lengths = np.unique(np.diff(lists.offsets.to_numpy()))
        if len(lengths) > 1:
            raise ValueError(
                f"{path} has lists of {', '.join(map(str, lengths[:4]))} numbers in {name}; one dimension each."
            )
    values = _column(path, name, lists.flatten())
    return values.reshape(len(lists), -1)


def _column(path: Path, name: str, values: pa.Array) -> np.ndarray:
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_nested(values.type):
        raise ValueError(f"{path} has {values.type} in {name}, where one value belongs in every row.")
    try:
        found = values.to_numpy(zero_copy_only=False)
        words = found.astype(str) if found.dtype == object and name == "agent" else found
    except UnicodeDecodeError:
        raise ValueError(f"{path} has bytes in {name} that are no words; write text in UTF-8, or numbers.") from None
    if name == "agent":
        if values.null_count:
            raise ValueError(
                f"{path} has {values.null_count} rows without an agent; name one in every row, or in none."
            )
        return words
    if found.dtype.kind not in "fiub":
        raise ValueError(f"{path} has something else than numbers in {name} ({values.type}).")
    return found if found.dtype.kind == "f" else found.astype(float)
