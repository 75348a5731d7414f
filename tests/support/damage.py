"""Random damage to a file: to its bytes, words, lines, JSON, arrays or columns.

Each function takes the content of a file and a random generator, and returns content that is wrong or almost right.
"""

import bz2
import copy
import datetime
import io
import json
import re
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

Random = np.random.Generator
Change = Callable[[bytes, Random], bytes]

TOKENS = (
    *("", "0", "-1", "1.5", "nan", "-inf", "1e400", "1e-400", "99999999999999999999", "0x10", "1_0", "٣", "\u2028"),
    *("true", "null", "[]", "{}", "[[1]]", '"', "'", ",", ":", "\n", "\r", "\0", "\ufeff", "é", "#", " ", "\t"),
    *("point", "point_0", "point_9", "gradient_1", "agent", "time", "learning_rate", "9" * 5000, "[" * 3000),
)
VALUES = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1.5,
        1e308,
        10**30,
        -(10**30),
        float("nan"),
        float("inf"),
        "",
        "x",
        "9" * 5000,
        "\ud800",
    ),
    *([], {}, [1], [[]], {"x": 1}, [None], ["x"], {"": None}, [1, 2, 3], 2**31, 2**40, 2**63, "NaN", "9" * 5000),
)


def flipped(content: bytes, random: Random) -> bytes:
    found = bytearray(content)
    for place in random.integers(len(content), size=random.integers(1, 9)):
        found[place] ^= 1 << random.integers(8)
    return bytes(found)


def cut(content: bytes, random: Random) -> bytes:
    return content[: random.integers(len(content))]


def _piece(content: bytes, random: Random) -> tuple[int, int]:
    first = int(random.integers(len(content)))
    return first, first + int(random.geometric(0.05))


def without_a_piece(content: bytes, random: Random) -> bytes:
    first, last = _piece(content, random)
    return content[:first] + content[last:]


def with_a_piece_twice(content: bytes, random: Random) -> bytes:
    first, last = _piece(content, random)
    return content[:last] + content[first:]


def with_a_piece_elsewhere(content: bytes, random: Random) -> bytes:
    first, last = _piece(content, random)
    rest, place = content[:first] + content[last:], int(random.integers(len(content)))
    return rest[:place] + content[first:last] + rest[place:]


def with_noise(content: bytes, random: Random) -> bytes:
    place = int(random.integers(len(content)))
    return content[:place] + random.bytes(int(random.geometric(0.05))) + content[place:]


def with_a_number(content: bytes, random: Random) -> bytes:
    """Overwrite some bytes with a huge or negative number, as a length might be stored there."""
    number = random.choice([0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1])
    width = int(random.choice([1, 2, 4, 8]))
    place = int(random.integers(len(content)))
    return content[:place] + (int(number) % 256**width).to_bytes(width, "little") + content[place + width :]


def nothing_like_it(content: bytes, random: Random) -> bytes:
    return b"" if random.random() < 0.1 else random.bytes(int(random.integers(1, 200)))


BYTES = [flipped, cut, without_a_piece, with_a_piece_twice, with_a_piece_elsewhere, with_noise, with_a_number]


def tokens_changed(content: bytes, random: Random) -> bytes:
    words = re.findall(r"\w+|\s+|.", content.decode(errors="surrogateescape"))
    for _ in range(random.integers(1, 4)):
        one, other = random.integers(len(words), size=2)
        match random.integers(5):
            case 0:
                words[one] = str(random.choice(TOKENS))
            case 1:
                words[one], words[other] = words[other], words[one]
            case 2:
                words[one] = ""
            case 3:
                words[one] = words[one] * int(random.integers(2, 5))
            case 4:
                words[one] = words[other]
    return "".join(words).encode(errors="surrogateescape")


def lines_changed(content: bytes, random: Random) -> bytes:
    lines = content.splitlines(keepends=True)
    one, other = random.integers(len(lines), size=2)
    match random.integers(3):
        case 0:
            lines[one], lines[other] = lines[other], lines[one]
        case 1:
            del lines[one]
        case 2:
            lines.insert(one, lines[other])
    return b"".join(lines)


TEXT = [*BYTES, nothing_like_it, *[tokens_changed] * 5, *[lines_changed] * 2]


def fields_changed(content: bytes, random: Random) -> bytes:
    """Replace, remove or rename values in JSON."""
    tree = json.loads(content)
    for _ in range(random.integers(1, 3)):
        places = list(_places(tree))
        if not places:
            break
        holder, key = places[random.integers(len(places))]
        match random.integers(4):
            case 0:
                del holder[key]
            case 1:
                _, other = places[random.integers(len(places))]
                if isinstance(holder, dict):
                    holder[str(other)] = holder.pop(key)
            case _:
                holder[key] = copy.deepcopy(VALUES[random.integers(len(VALUES))])
    return json.dumps(tree).encode()


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    for key, value in list(tree.items() if isinstance(tree, dict) else enumerate(tree)):
        yield tree, key
        if isinstance(value, dict | list):
            yield from _places(value)


JSON = [*TEXT, *[fields_changed] * 12]


def packed(change: Change) -> Change:
    """Make a change to the content of a bz2 file."""
    return lambda content, random: bz2.compress(change(bz2.decompress(content), random))


def in_a_member(change: Change) -> Change:
    """Make a change to a member of a zip archive, whose checksums are then correct."""

    def inside(content: bytes, random: Random) -> bytes:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        chosen = str(random.choice(list(members)))
        # The header of an array is in its first bytes.
        head = 128 if random.random() < 0.7 else len(members[chosen])
        members[chosen] = change(members[chosen][:head], random) + members[chosen][head:]
        if random.random() < 0.1:
            members.pop(str(random.choice(list(members))))
        written = io.BytesIO()
        how = random.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
        with zipfile.ZipFile(written, "w", int(how)) as archive:
            for name, member in members.items():
                archive.writestr(name, member)
        return written.getvalue()

    return inside


def strange_array(random: Random) -> np.ndarray:
    shape = [(30, 2), (30,), (), (0, 2), (30, 0), (30, 2, 1), (2, 30), (29, 2)][random.integers(8)]
    kind = ["f8", "f4", "f2", "i8", "u1", "?", "c16", "U3", "S3", "M8[s]", "m8[s]", ">f8", "V4", "f8,i4"][
        random.integers(14)
    ]
    size = int(np.prod(shape)) * np.dtype(kind).itemsize
    if kind == "U3":
        return random.choice(["", "a", "12", "nan"], size=shape)
    return np.frombuffer(random.bytes(size), kind).reshape(shape).copy()


def other_arrays(content: bytes, random: Random) -> bytes:
    """Replace some arrays of an archive by arrays of another type or shape."""
    with np.load(io.BytesIO(content)) as archive:
        arrays = dict(archive)
    for name in random.choice(list(arrays), size=random.integers(1, 3)):
        arrays[str(name)] = strange_array(random)
    written = io.BytesIO()
    np.savez(written, **arrays)
    return written.getvalue()


def strange_column(random: Random) -> pa.Array:
    number = int(random.integers(12))
    ones = [
        lambda: pa.array(random.standard_normal(30), pa.float32()),
        lambda: pa.array(random.integers(0, 9, 30)),
        lambda: pa.array(["a", None, "b"] * 10),
        lambda: pa.array([1.0, None, float("nan")] * 10),
        lambda: pa.array([[1.0, 2.0], [3.0], []] * 10),
        lambda: pa.array([[1.0, None], [3.0, 4.0], None] * 10),
        lambda: pa.array([{"x": 1}] * 30),
        lambda: pa.array([b"\xff\xfe"] * 30),
        lambda: pa.array([datetime.datetime(2020, 1, 1)] * 30),
        lambda: pa.array([True, False, None] * 10).dictionary_encode(),
        lambda: pa.nulls(30),
        lambda: pa.array([[["a"]]] * 30, pa.large_list(pa.list_(pa.string()))),
    ]
    return ones[number]()


def other_columns(content: bytes, random: Random) -> bytes:
    """Change the type, name or length of some columns of a Parquet file, or its metadata."""
    table = pa.parquet.read_table(io.BytesIO(content))
    for _ in range(random.integers(1, 3)):
        column = int(random.integers(table.num_columns))
        match random.integers(4):
            case 0 if table.num_rows == 30:
                table = table.set_column(column, table.column_names[column], strange_column(random))
            case 1:
                names = list(table.column_names)
                names[column] = str(
                    random.choice(["point", "gradient", "agent", "time", "learning_rate", "point_7", " "])
                )
                table = table.rename_columns(names)
            case 2:
                table = table.slice(0, int(random.integers(table.num_rows + 1)))
            case 3:
                words = dict(table.schema.metadata or {})
                key = random.choice(["onlooker", "dimension", "direction", "learning_rate", "optimizer", "momentum"])
                words[str(key).encode()] = str(random.choice(TOKENS)).encode(errors="replace")
                table = table.replace_schema_metadata(words)
    written = io.BytesIO()
    pa.parquet.write_table(table, written)
    return written.getvalue()
