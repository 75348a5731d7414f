"""Values as named arrays and back."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest

from onlooker.storage.trees import named_leaves, pack, unpack


class Point(NamedTuple):
    place: np.ndarray


@dataclass
class Line:
    place: np.ndarray


@dataclass
class Drawing:
    shape: Point | Line
    colour: str | float = "red"
    older: Line | None = None


@pytest.mark.parametrize("kind", [Point, Line])
def test_the_type_of_a_union_s_member_is_kept(kind):
    """Both have the same fields: only its name tells which it was."""
    flat = pack(Drawing(kind(np.arange(3.0)), 0.5, Line(np.ones(1))))
    assert flat.keys() == {"shape/place", "shape/__type__", "colour", "older/place"}
    again = unpack(Drawing, flat)
    assert type(again.shape) is kind
    assert again.shape.place.tolist() == [0, 1, 2]
    assert again.colour == 0.5
    flat["shape/__type__"] = np.asarray("Circle")
    with pytest.raises(ValueError, match="unknown type 'Circle'"):
        unpack(Drawing, flat)
    # Files of version 0.1 do not say it: the first whose fields fit is taken.
    del flat["shape/__type__"]
    assert type(unpack(Drawing, flat).shape) is Point


def test_a_run_s_state_has_the_names_that_an_observer_s_has():
    tree = Point((Point(np.zeros(2)), np.ones(3)))
    leaves, packed = named_leaves(tree), pack(tree)
    assert leaves.keys() == packed.keys() == {"place/0/place", "place/1"}
    assert all(np.array_equal(leaves[name], packed[name]) for name in leaves)
    assert named_leaves({"a": [1, 2]}) == {"a/0": 1, "a/1": 2}
    with pytest.raises(ValueError, match="have the same path"):
        named_leaves({"a": {"b": 1}, "a/b": 2})
