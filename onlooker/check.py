"""Settings that must be numbers of a kind: one sentence, by name, when they are not."""

from numbers import Real
from typing import Any

import numpy as np

__all__ = ["as_places", "check_positive", "check_whole"]


def check_positive(**numbers: float) -> None:
    """Raise, by name, for a number that is not positive and finite."""
    for name, number in numbers.items():
        real = isinstance(number, Real) and not isinstance(number, bool)
        if not (real and 0 < number < float("inf")):
            raise ValueError(f"{name} is {number!r}; it must be a positive number.")


def check_whole(**numbers: float) -> None:
    """Raise, by name, for a number that is not whole or below 1."""
    for name, number in numbers.items():
        real = isinstance(number, Real) and not isinstance(number, bool)
        if not (real and number >= 1 and number == int(number)):
            raise ValueError(f"{name} is {number!r}; it must be a whole number from 1.")


def as_places(x: Any, dim: int) -> np.ndarray:
    """Places (n, dim) to evaluate something at; in one dimension (n,) will do."""
    points = np.asarray(x, dtype=float)
    if points.ndim == 1 and dim == 1:
        points = points[:, None]
    if points.ndim != 2 or points.shape[1] != dim:
        raise ValueError(f"x has shape {points.shape}; give points of shape (n, {dim}).")
    return points
