"""Convert nested dataclasses and named tuples of arrays and numbers to flat dictionaries of arrays, and back.

Nothing is pickled: arrays are saved under names such as ``trend/slope`` and read back into the types given by the
dataclass's annotations. If an annotation is a union of several such types, the name of the type is saved beside the
value, as ``trend/__type__``. ``None`` and empty tuples are left out, and read back as the default.
"""

import dataclasses
import types
import typing
from typing import Any

import numpy as np

from onlooker.core.messages import in_short

__all__ = ["named_leaves", "pack", "unpack"]

# The name beside a value under which its type is saved.
TYPE = "__type__"


def pack(value: Any, name: str = "") -> dict[str, np.ndarray]:
    """Every leaf as an array, by its path."""
    if value is None:
        return {}
    if dataclasses.is_dataclass(value) or isinstance(value, tuple):
        flat: dict[str, np.ndarray] = {}
        hints = typing.get_type_hints(type(value)) if _names(value) else {}
        for part, inner in _parts(value).items():
            path = f"{name}/{part}" if name else part
            flat |= pack(inner, path)
            if _names(inner) and sum(bool(_names(kind)) for kind in _members(hints.get(part))) > 1:
                flat[f"{path}/{TYPE}"] = np.asarray(type(inner).__name__)
        return flat
    return {name: np.asarray(value)}


def _parts(value: Any) -> dict[str, Any]:
    if fields := _fields(value):
        return {field.name: getattr(value, field.name) for field in fields}
    return value._asdict() if hasattr(value, "_asdict") else {str(number): part for number, part in enumerate(value)}


def _fields(kind: Any) -> tuple[dataclasses.Field, ...]:
    return dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()


def _names(kind: Any) -> tuple[str, ...]:
    """Field names of a dataclass or named tuple; empty for anything else."""
    return tuple(field.name for field in _fields(kind)) or getattr(kind, "_fields", ())


def named_leaves(tree: Any) -> dict[str, Any]:
    """The leaves of any JAX pytree by their paths, named as by `pack`."""
    import jax

    def name(key: Any) -> str:
        return str(next(getattr(key, part) for part in ("name", "key", "idx") if hasattr(key, part)))

    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    leaves = {"/".join(map(name, path)): leaf for path, leaf in paths}
    if len(leaves) < len(paths):
        raise ValueError("two parts of the state have the same path; use dictionary keys without a slash.")
    return leaves


def _members(kind: Any) -> list[Any]:
    """The types of a union except None; empty for anything else."""
    if not (isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union):
        return []
    return [member for member in typing.get_args(kind) if member is not type(None)]


def unpack(kind: Any, flat: dict[str, np.ndarray]) -> Any:
    """A value of type ``kind`` from the output of `pack`."""
    if members := _members(kind):
        return unpack(_chosen(members, flat), flat)
    if names := _names(kind):
        hints = typing.get_type_hints(kind)
        # A field missing in an older file has its default.
        parts = {name: unpack(hints[name], inner) for name in names if (inner := _inner(flat, name))}
        set_later = {field.name for field in _fields(kind) if not field.init}
        value = kind(**{name: part for name, part in parts.items() if name not in set_later})
        for name in set_later & set(parts):
            object.__setattr__(value, name, parts[name])
        return value
    if typing.get_origin(kind) is tuple:
        members = list(typing.get_args(kind))
        count = len({name.split("/")[0] for name in flat})
        kinds = [members[0]] * count if members[-1] is Ellipsis else members
        return tuple(unpack(member, _inner(flat, str(number))) for number, member in enumerate(kinds))
    value = flat[""]
    if kind in (int, float, str, bool):
        return kind(value.item())
    if value.dtype.kind not in "biuf":
        raise ValueError(f"an array is of {value.dtype}, not of numbers")
    return value


def _chosen(kinds: list[Any], flat: dict[str, np.ndarray]) -> Any:
    """The type of a packed value: by its saved name or, in files of version 0.1, by the names of its fields.

    A leaf is a string if its dtype is.
    """
    if TYPE in flat:
        name = str(flat[TYPE])
        named = [kind for kind in kinds if kind.__name__ == name]
        if not named:
            raise ValueError(f"it is of the unknown type {in_short(repr(name))}")
        return named[0]
    if "" in flat:
        text = flat[""].dtype.kind == "U"
        return next((kind for kind in kinds if (kind is str) == text), kinds[0])
    inside = {name.split("/")[0] for name in flat}
    return next((kind for kind in kinds if inside <= set(_names(kind))), kinds[0])


def _inner(flat: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    if name in flat:
        return {"": flat[name]}
    return {path[len(name) + 1 :]: value for path, value in flat.items() if path.startswith(f"{name}/")}
