"""Fits as flat dictionaries of arrays, and back: dataclasses and named tuples of arrays and numbers, nested.

Nothing is pickled: a saved fit is arrays under names such as ``trend/slope``, read back into the types that the
dataclass's own annotations name.
"""

import dataclasses
import types
import typing
from typing import Any

import numpy as np

__all__ = ["pack", "unpack"]


def pack(value: Any, name: str = "") -> dict[str, np.ndarray]:
    """Every leaf as an array, by the path to it."""
    if dataclasses.is_dataclass(value) or isinstance(value, tuple):
        flat: dict[str, np.ndarray] = {}
        for part, inner in _parts(value).items():
            flat |= pack(inner, f"{name}/{part}" if name else part)
        return flat
    return {name: np.asarray(value)}


def _parts(value: Any) -> dict[str, Any]:
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return value._asdict() if hasattr(value, "_asdict") else {str(number): part for number, part in enumerate(value)}


def unpack(kind: Any, flat: dict[str, np.ndarray]) -> Any:
    """A value of type ``kind`` from what `pack` made of one."""
    if dataclasses.is_dataclass(kind) or hasattr(kind, "_fields"):
        hints = typing.get_type_hints(kind)
        names = [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else kind._fields
        # What a file from before a field was added does not hold has its default.
        parts = {name: inner for name in names if (inner := _inner(flat, name))}
        return kind(**{name: unpack(hints[name], inner) for name, inner in parts.items()})
    if typing.get_origin(kind) is tuple:
        of = typing.get_args(kind)
        count = len({name.split("/")[0] for name in flat})
        kinds = [of[0]] * count if of[-1] is Ellipsis else of
        return tuple(unpack(one, _inner(flat, str(number))) for number, one in enumerate(kinds))
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        kind = next(one for one in typing.get_args(kind) if one is not type(None))
    value = flat[""]
    return kind(value.item()) if kind in (int, float, str, bool) else value


def _inner(flat: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    if name in flat:
        return {"": flat[name]}
    return {path[len(name) + 1 :]: value for path, value in flat.items() if path.startswith(f"{name}/")}
