"""Fits and states as flat dictionaries of arrays, and back: dataclasses and named tuples of arrays and numbers, nested.

Nothing is pickled: what is saved is arrays under names such as ``trend/slope``, read back into the types that the
dataclass's own annotations name. What is ``None`` or an empty tuple is left out, and has its default again.
"""

import dataclasses
import types
import typing
from typing import Any

import numpy as np

__all__ = ["pack", "unpack"]


def pack(value: Any, name: str = "") -> dict[str, np.ndarray]:
    """Every leaf as an array, by the path to it."""
    if value is None:
        return {}
    if dataclasses.is_dataclass(value) or isinstance(value, tuple):
        flat: dict[str, np.ndarray] = {}
        for part, inner in _parts(value).items():
            flat |= pack(inner, f"{name}/{part}" if name else part)
        return flat
    return {name: np.asarray(value)}


def _parts(value: Any) -> dict[str, Any]:
    if fields := _fields(value):
        return {field.name: getattr(value, field.name) for field in fields}
    return value._asdict() if hasattr(value, "_asdict") else {str(number): part for number, part in enumerate(value)}


def _fields(kind: Any) -> tuple[dataclasses.Field, ...]:
    return dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()


def _names(kind: Any) -> tuple[str, ...]:
    """Of the fields of a dataclass or named tuple; none of anything else."""
    return tuple(field.name for field in _fields(kind)) or getattr(kind, "_fields", ())


def unpack(kind: Any, flat: dict[str, np.ndarray]) -> Any:
    """A value of type ``kind`` from what `pack` made of one."""
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        return unpack(_chosen([one for one in typing.get_args(kind) if one is not type(None)], flat), flat)
    if names := _names(kind):
        hints = typing.get_type_hints(kind)
        # What a file from before a field was added does not hold has its default.
        parts = {name: unpack(hints[name], inner) for name in names if (inner := _inner(flat, name))}
        set_later = {field.name for field in _fields(kind) if not field.init}
        value = kind(**{name: part for name, part in parts.items() if name not in set_later})
        for name in set_later & set(parts):
            object.__setattr__(value, name, parts[name])
        return value
    if typing.get_origin(kind) is tuple:
        of = typing.get_args(kind)
        count = len({name.split("/")[0] for name in flat})
        kinds = [of[0]] * count if of[-1] is Ellipsis else of
        return tuple(unpack(one, _inner(flat, str(number))) for number, one in enumerate(kinds))
    value = flat[""]
    if kind in (int, float, str, bool):
        return kind(value.item())
    if value.dtype.kind not in "biuf":
        raise ValueError(f"an array is of {value.dtype}, not of numbers")
    return value


def _chosen(kinds: list[Any], flat: dict[str, np.ndarray]) -> Any:
    """Which of some types a packed value was: known by the names of its fields, or as a word among numbers."""
    if "" in flat:
        words = flat[""].dtype.kind == "U"
        return next((one for one in kinds if (one is str) == words), kinds[0])
    inside = {name.split("/")[0] for name in flat}
    return next((one for one in kinds if inside <= set(_names(one))), kinds[0])


def _inner(flat: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    if name in flat:
        return {"": flat[name]}
    return {path[len(name) + 1 :]: value for path, value in flat.items() if path.startswith(f"{name}/")}
