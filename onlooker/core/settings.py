"""Validators for numeric settings; each error names the setting."""

from numbers import Real
from typing import Any

import numpy as np

__all__ = ["as_floats", "as_places", "check_positive", "check_seed", "check_share", "check_whole"]

# Largest seed: any generator takes it.
LARGEST_SEED = 2**31 - 1


def check_positive(**numbers: float) -> None:
    """Raise an error for a number that is not positive and finite."""
    for name, number in numbers.items():
        real = isinstance(number, Real) and not isinstance(number, bool)
        if not (real and 0 < number < float("inf")):
            raise ValueError(f"{name} is {number!r}; it must be a positive number.")


def check_share(**shares: float | None) -> None:
    """Raise an error for a share that is neither None nor strictly between 0 and 1."""
    for name, share in shares.items():
        real = isinstance(share, Real) and not isinstance(share, bool)
        if share is not None and not (real and 0 < share < 1):
            raise ValueError(f"{name} is {share!r}; give a share between 0 and 1, or None.")


def check_whole(**numbers: float) -> None:
    """Raise an error for a number that is not a whole number of at least 1."""
    for name, number in numbers.items():
        real = isinstance(number, Real) and not isinstance(number, bool)
        if not (real and 1 <= number < float("inf") and number == int(number)):
            raise ValueError(f"{name} is {number!r}; it must be a whole number of at least 1.")


def check_seed(**seeds: float) -> None:
    """Raise an error for a seed that is not a whole number from 0 to 2³¹ − 1."""
    for name, seed in seeds.items():
        real = isinstance(seed, Real) and not isinstance(seed, bool)
        if not (real and 0 <= seed <= LARGEST_SEED and seed == int(seed)):
            raise ValueError(f"{name} is {seed!r}; it must be a whole number from 0 to {LARGEST_SEED}.")


def as_places(x: Any, dim: int) -> np.ndarray:
    """Points (n, dim) to evaluate a function at; in one dimension (n,) is accepted."""
    points = np.asarray(x, dtype=float)
    if points.ndim == 1 and dim == 1:
        points = points[:, None]
    if points.ndim != 2 or points.shape[1] != dim:
        raise ValueError(f"x has shape {points.shape}; give points of shape (n, {dim}).")
    return points


def as_floats(values: Any) -> Any:
    """A NumPy or JAX array of floats: other input becomes a NumPy array, and whole numbers become floats."""
    array = values if hasattr(values, "__array_namespace__") else np.asarray(values)
    return array if array.dtype.kind == "f" else np.asarray(array, dtype=float)
