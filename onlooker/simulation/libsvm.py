"""Data in LIBSVM's text format, ``label feature:value …`` per row, and the a9a set of Example 2.

a9a is searched in the folder named by ``ONLOOKER_DATA``, then in the cache, and is downloaded into the cache if it is
in neither. Its checksum is always verified.
"""

import bz2
import hashlib
import os
from pathlib import Path

import numpy as np
import pooch

from onlooker.core.messages import in_short

__all__ = ["Table", "a9a", "read"]

A9A_ADDRESS = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/a9a"
A9A_SHA256 = "f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906"
# Larger tables would not fit in memory; a small .bz2 file may contain one.
MOST_FEATURES = 100_000
MOST_NUMBERS = 1 << 29
MOST_BYTES = 1 << 30
PIECE = 1 << 20
LARGEST = float(np.finfo(np.float32).max)
A9A_ROWS, A9A_FEATURES = 32_561, 123

Table = tuple[np.ndarray, np.ndarray]


def read(path: str | Path, features: int | None = None) -> Table:
    """Features (rows, features) and labels (rows,), both float32, of a file; ``.bz2`` files are decompressed."""
    path = Path(path)
    try:
        return _parse(_content(path).decode(), features)
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror or error}); give a LIBSVM text file.") from None
    except (EOFError, ValueError) as error:
        raise ValueError(f"{path} is not in LIBSVM format ({in_short(error)}).") from None


def a9a() -> Table:
    """The a9a data: 32 561 rows, 123 binary features, labels −1 and 1."""
    folder = os.environ.get("ONLOOKER_DATA")
    local = [Path(folder) / name for name in ("a9a", "a9a.bz2")] if folder else []
    path = next((path for path in local if path.is_file()), None) or Path(_download(folder))
    try:
        content = _content(path)
    except (OSError, EOFError, ValueError) as error:
        raise ValueError(f"{path} cannot be read ({error}); fetch a9a again.") from None
    if hashlib.sha256(content).hexdigest() != A9A_SHA256:
        raise ValueError(f"{path} is not the expected a9a file (its sha256 differs); fetch a9a again.")
    features, labels = _parse(content.decode(), A9A_FEATURES)
    if features.shape != (A9A_ROWS, A9A_FEATURES):
        raise ValueError(f"{path} has shape {features.shape}, not {(A9A_ROWS, A9A_FEATURES)}; fetch a9a again.")
    return features, labels


def _download(folder: str | None) -> str:
    cache = pooch.os_cache("onlooker")
    reason = "ONLOOKER_DATA is not set" if folder is None else f"{folder}, which ONLOOKER_DATA names, has no a9a"
    try:
        return pooch.retrieve(A9A_ADDRESS, known_hash=f"sha256:{A9A_SHA256}", fname="a9a", path=cache)
    except Exception as error:
        raise ValueError(
            f"{reason}, and it could not be downloaded ({type(error).__name__}); put a9a or a9a.bz2 from {A9A_ADDRESS} "
            "in a folder and set ONLOOKER_DATA to that folder."
        ) from None


def _content(path: Path) -> bytes:
    if path.suffix != ".bz2":
        return path.read_bytes()
    content = bytearray()
    with bz2.open(path) as file:
        while piece := file.read(PIECE):
            content += piece
            if len(content) > MOST_BYTES:
                raise ValueError(f"it unpacks to more than {MOST_BYTES} bytes")
    return bytes(content)


def _fits(number: float) -> bool:
    """Whether it is finite in single precision."""
    return abs(number) <= LARGEST


def _parse(text: str, features: int | None) -> Table:
    labels: list[float] = []
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    for line in text.splitlines():
        words = line.split("#")[0].split()
        if not words:
            continue
        for entry in words[1:]:
            column, separator, value = entry.partition(":")
            if not separator or not 1 <= int(column) <= MOST_FEATURES or not _fits(float(value)):
                raise ValueError(f"row {len(labels) + 1} has the entry {entry!r}; write feature:value, numbered from 1")
            rows.append(len(labels))
            columns.append(int(column) - 1)
            values.append(float(value))
        labels.append(float(words[0]))
        if not _fits(labels[-1]):
            raise ValueError(f"row {len(labels)} has the label {words[0]!r}; give a number")
    if not labels:
        raise ValueError("it has no rows")
    widest = max(columns, default=-1) + 1
    if features is not None and widest > features:
        raise ValueError(f"it has {widest} features, more than {features}")
    width = widest if features is None else features
    if len(labels) * width > MOST_NUMBERS:
        raise ValueError(f"its table of {len(labels)} rows and {width} features is too large")
    table = np.zeros((len(labels), width), np.float32)
    table[rows, columns] = values
    return table, np.asarray(labels, np.float32)
