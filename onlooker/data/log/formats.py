"""Read one file of a log in pieces: Parquet, CSV or NumPy's .npz. An error names the file and the reason.

Columns are ``point`` and ``gradient``, lists of equal length, or ``point_0``, ``point_1``, …; ``agent``, ``time`` and
``learning_rate`` are optional. The keys of .npz files are plural: ``points``, ``gradients``, ``agents``, ``times``.
"""

import contextlib
import io
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from onlooker.core.messages import in_short
from onlooker.data.marks import MARKS, of_rows, telling
from onlooker.storage import archive as npz
from onlooker.storage.stores import Place, StorePath

__all__ = ["Rows", "UnreadableError", "footer", "metadata", "pieces", "row_count", "suffixes", "table"]

# Largest number of rows and of values (16 MiB of float64) in a piece.
PIECE, NUMBERS = 1 << 16, 1 << 21
suffixes = (".parquet", ".npz", ".csv")
NPZ_NAMES = {"points": "point", "gradients": "gradient", "agents": "agent", "times": "time"}
# Scalars that describe the log in an .npz file; the optimizer also in its old spelling.
NPZ_WORDS = (
    "learning_rate",
    "optimizer",
    "optimiser",
    "momentum",
    "dampening",
    "nesterov",
    "weight_decay",
    "direction",
)


class UnreadableError(ValueError):
    """A file that is damaged, truncated or of another format. Such a shard is skipped, such a log is rejected."""


class Rows(NamedTuple):
    """Rows of a log, in the order in which they were recorded."""

    points: np.ndarray
    gradients: np.ndarray | None
    agents: np.ndarray | None
    times: np.ndarray | None
    learning_rates: np.ndarray | None
    marks: dict[str, np.ndarray] | None = None

    def take(self, which: Any) -> "Rows":
        """The rows that ``which`` (indices, a mask or a slice) selects."""
        marks = None if self.marks is None else of_rows(self.marks, which)
        plain = {name: part[which] for name, part in self._asdict().items() if part is not None and name != "marks"}
        return self._replace(**plain, marks=marks)


def metadata(path: Place) -> dict[str, str]:
    """The description of the log that a file contains, by key."""
    if path.suffix == ".parquet":
        with _parquet(path, footer=True) as file:
            return _words(file)
    if path.suffix == ".npz":
        with _npz(path) as arrays:
            words = {name: _array(path, arrays, name) for name in NPZ_WORDS if name in arrays}
            return {name: str(word) for name, word in words.items() if word.ndim == 0}
    return {}


def _words(file: pyarrow.parquet.ParquetFile) -> dict[str, str]:
    pairs = file.schema_arrow.metadata or {}
    return {key.decode(errors="replace"): value.decode(errors="replace") for key, value in pairs.items()}


def row_count(path: Place) -> int | None:
    """The number of rows, if it is known without reading them."""
    if path.suffix == ".parquet":
        with _parquet(path, footer=True) as file:
            return file.metadata.num_rows
    return None


def footer(path: Place) -> tuple[int, dict[str, str]]:
    """The number of rows of a Parquet file, and the description that it contains."""
    with _parquet(path, footer=True) as file:
        return file.metadata.num_rows, _words(file)


def pieces(path: Place) -> Iterator[Rows]:
    """All rows of a file, one piece at a time."""
    yield from {".parquet": _of_parquet, ".csv": _of_csv, ".npz": _of_npz}[path.suffix](path)


def _parquet(path: Place, footer: bool = False) -> pyarrow.parquet.ParquetFile:
    source = path if not isinstance(path, StorePath) else path.end() if footer else path.opened()
    try:
        file = pyarrow.parquet.ParquetFile(source, page_checksum_verification=True)
        # Column names that are not valid text raise only when they are read.
        _ = file.schema_arrow.names
        return file
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        _raise_if_it_may_pass(error)
        raise UnreadableError(f"{path} is not a whole Parquet file ({in_short(error)}).") from None


def _of_parquet(path: Place) -> Iterator[Rows]:
    with _parquet(path) as file:
        names = _wanted(path, file.schema_arrow.names)
        try:
            # One thread: reading such small columns takes less time than waking threads.
            for batch in file.iter_batches(_piece(file.schema_arrow, names), columns=names, use_threads=False):
                yield _rows(path, batch)
        except (pa.ArrowException, OSError) as error:
            _raise_if_it_may_pass(error)
            raise UnreadableError(f"{path} is damaged ({in_short(error)}).") from None


def _piece(schema: pa.Schema, names: list[str]) -> int:
    """The number of rows in a piece, smaller for more dimensions."""
    types = [schema.field(name).type for name in names]
    return int(np.clip(NUMBERS // sum(getattr(kind, "list_size", 1) for kind in types), 1, PIECE))


def _raise_if_it_may_pass(error: Exception) -> None:
    """Re-raise errors of the operating system (a busy disk, no permission, no file): the shard may be whole."""
    if isinstance(error, OSError) and error.errno:
        raise error


def _of_csv(path: Place) -> Iterator[Rows]:
    try:
        with pyarrow.csv.open_csv(_source(path)) as file:
            names = _wanted(path, file.schema.names)
        # Given, not inferred from the first rows: later ones may have a decimal point.
        types = {name: pa.string() if name == "agent" else pa.float64() for name in names}
        options = pyarrow.csv.ConvertOptions(column_types=types, include_columns=names)
        with pyarrow.csv.open_csv(_source(path), convert_options=options) as file:
            for batch in file:
                yield _rows(path, batch)
    except (pa.ArrowException, OSError, UnicodeDecodeError, KeyError) as error:
        _raise_if_it_may_pass(error)
        raise UnreadableError(
            f"{path} is not a CSV file with a header and one row per line ({in_short(error)})."
        ) from None


def _source(path: Place) -> Any:
    return path.opened() if isinstance(path, StorePath) else path


@contextlib.contextmanager
def _npz(path: Place) -> Iterator[npz.Archive]:
    try:
        with npz.opened(io.BytesIO(path.read_bytes()) if isinstance(path, StorePath) else path) as arrays:
            yield arrays
    except npz.BrokenArchiveError as error:
        raise UnreadableError(
            f"{path} is not a whole .npz file ({error}); save one with np.savez(path, points=…, gradients=…)."
        ) from None


def _array(path: Place, arrays: npz.Archive, name: str) -> np.ndarray:
    try:
        return arrays[name]
    except npz.BrokenArchiveError as error:
        raise UnreadableError(f"{path} has an array {name} that cannot be read ({error}).") from None


def _of_npz(path: Place) -> Iterator[Rows]:
    with _npz(path) as file:
        if "points" not in file:
            raise ValueError(
                f"{path} has no array points, only {_listed(file)}; write np.savez(path, points=…, gradients=…)."
            )
        columns: dict[str, np.ndarray | None] = dict.fromkeys(NPZ_NAMES.values())
        for name in (*NPZ_NAMES, "learning_rate"):
            if name in file:
                columns[NPZ_NAMES.get(name, name)] = _array(path, file, name)
    point = columns["point"]
    assert point is not None
    count = len(point) if point.ndim else 0
    for name, values in columns.items():
        if name != "learning_rate" and values is not None and (values.ndim == 0 or len(values) != count):
            raise ValueError(
                f"{path} has {count} points but {name} values of shape {values.shape}; give one per point."
            )
    rates = columns.get("learning_rate")
    yield Rows(
        _as_matrix(path, "points", point),
        None if columns["gradient"] is None else _as_matrix(path, "gradients", columns["gradient"]),
        columns["agent"],
        columns["time"],
        rates if rates is not None and rates.ndim else None,
    )


def _as_matrix(path: Place, name: str, values: np.ndarray) -> np.ndarray:
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2 or values.dtype.kind not in "fiu":
        raise ValueError(
            f"{path} has {name} of shape {values.shape} and type {values.dtype}; give numbers (rows, dimensions)."
        )
    return values


def _listed(names: Any) -> str:
    return ", ".join(sorted(map(str, names))[:8]) or "nothing"


def _numbered(name: str, names: list[str]) -> list[str]:
    """name_0, name_1, … up to the first that is missing."""
    count = 0
    while f"{name}_{count}" in names:
        count += 1
    return [f"{name}_{number}" for number in range(count)]


def _wanted(path: Place, names: list[str]) -> list[str]:
    """The columns to read."""
    unclear = [name for name in names if name != name.strip() or names.count(name) > 1]
    if unclear:
        raise ValueError(f"{path} has a column {unclear[0]!r} with spaces around its name, or twice; rename it.")
    for name in ("point", "gradient"):
        numbered = _numbered(name, names)
        extra = [column for column in names if re.fullmatch(rf"{name}_\d+", column) and column not in numbered]
        if extra:
            raise ValueError(f"{path} has a column {extra[0]} but not all before it; number them from {name}_0.")
    points = ["point"] if "point" in names else _numbered("point", names)
    if not points:
        raise ValueError(f"{path} has no column point or point_0, only {_listed(names)}; rename the columns of points.")
    gradients = ["gradient"] if "gradient" in names else _numbered("gradient", names)
    if gradients and len(gradients) != len(points):
        raise ValueError(
            f"{path} has columns {', '.join(points)} but {', '.join(gradients)}; give as many gradients as points."
        )
    return [*points, *gradients, *(name for name in ("agent", "time", "learning_rate", *MARKS) if name in names)]


def _rows(path: Place, batch: pa.RecordBatch) -> Rows:
    names = batch.schema.names
    columns = {
        name: _column(path, name, batch.column(name)) for name in ("agent", "time", "learning_rate") if name in names
    }
    points = _matrix(path, "point", batch)
    assert points is not None
    marks = {name: _column(path, name, batch.column(name)) for name in MARKS if name in names}
    return Rows(
        points,
        _matrix(path, "gradient", batch),
        columns.get("agent"),
        columns.get("time"),
        columns.get("learning_rate"),
        telling(marks) or None,
    )


def _matrix(path: Place, name: str, batch: pa.RecordBatch) -> np.ndarray | None:
    if name not in batch.schema.names:
        columns = [_column(path, column, batch.column(column)) for column in _numbered(name, batch.schema.names)]
        return np.stack(columns, axis=1) if columns else None
    lists = batch.column(name)
    if pa.types.is_floating(lists.type) or pa.types.is_integer(lists.type):
        return _column(path, name, lists)[:, None]
    if pa.types.is_large_list(lists.type):
        lists = lists.cast(pa.list_(lists.type.value_type))
    if not (pa.types.is_fixed_size_list(lists.type) or pa.types.is_list(lists.type)):
        raise ValueError(f"{path} has a column {name} of type {lists.type}; give lists of numbers.")
    if lists.null_count:
        raise ValueError(f"{path} has {lists.null_count} rows without a {name}; leave them out.")
    if pa.types.is_list(lists.type):
        lengths = np.unique(np.diff(lists.offsets.to_numpy()))
        if len(lengths) > 1:
            raise ValueError(
                f"{path} has lists of {', '.join(map(str, lengths[:4]))} numbers in {name}; give lists of one length."
            )
    values = _column(path, name, lists.flatten())
    return values.reshape(len(lists), -1)


def _column(path: Place, name: str, values: pa.Array) -> np.ndarray:
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_nested(values.type):
        raise ValueError(f"{path} has a column {name} of type {values.type}; give one value per row.")
    try:
        array = values.to_numpy(zero_copy_only=False)
        agents = array.astype(str) if array.dtype == object and name == "agent" else array
    except UnicodeDecodeError:
        raise ValueError(f"{path} has bytes in {name} that are not valid text; write UTF-8, or numbers.") from None
    if name == "agent":
        if values.null_count:
            raise ValueError(
                f"{path} has {values.null_count} rows without an agent; give one in every row, or in none."
            )
        return agents
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{path} has a column {name} of type {values.type}; give numbers.")
    return array if array.dtype.kind == "f" else array.astype(float)


def table(rows: dict[str, np.ndarray], words: dict[str, str]) -> pa.Table:
    """The table of a shard, with its columns in a fixed order; non-nullable lists are read and written faster."""
    arrays, fields = [], []
    for name in ("agent", "time", "point", "gradient", "learning_rate", *MARKS):
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
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata=words))
