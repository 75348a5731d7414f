"""Settings that must be numbers of a kind: one sentence, by name, when they are not."""

from numbers import Real
from typing import Any

import numpy as np

__all__ = ["as_floats", "as_places", "as_policy", "check_positive", "check_share", "check_whole", "in_short"]

# How far from probabilities a policy in single precision may be.
ROUNDING = 1e-4
# Characters of what a file holds, or of what a parser says about it, that a sentence repeats.
LONGEST = 160


def check_positive(**numbers: float) -> None:
    """Raise, by name, for a number that is not positive and finite."""
    for name, number in numbers.items():
        real = isinstance(number, Real) and not isinstance(number, bool)
        if not (real and 0 < number < float("inf")):
            raise ValueError(f"{name} is {number!r}; it must be a positive number.")


def check_share(**shares: float | None) -> None:
    """Raise, by name, for a share that is neither None nor between 0 and 1, the ends left out."""
    for name, share in shares.items():
        real = isinstance(share, Real) and not isinstance(share, bool)
        if share is not None and not (real and 0 < share < 1):
            raise ValueError(f"{name} is {share!r}; give a share between 0 and 1, or None.")


def check_whole(**numbers: float) -> None:
    """Raise, by name, for a number that is not whole or below 1."""
    for name, number in numbers.items():
        real = isinstance(number, Real) and not isinstance(number, bool)
        if not (real and number >= 1 and number == int(number)):
            raise ValueError(f"{name} is {number!r}; it must be a whole number from 1.")


def in_short(said: Any) -> str:
    """What an error says, or something that was read, as part of a sentence: one line, not too long."""
    lines = str(said).strip().splitlines()
    text = lines[0].rstrip(".") if lines else type(said).__name__
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} …"


def as_places(x: Any, dim: int) -> np.ndarray:
    """Places (n, dim) to evaluate something at; in one dimension (n,) will do."""
    points = np.asarray(x, dtype=float)
    if points.ndim == 1 and dim == 1:
        points = points[:, None]
    if points.ndim != 2 or points.shape[1] != dim:
        raise ValueError(f"x has shape {points.shape}; give points of shape (n, {dim}).")
    return points


def as_floats(values: Any) -> Any:
    """NumPy or JAX numbers as they are, anything else as a NumPy array; whole numbers as floats."""
    array = values if hasattr(values, "__array_namespace__") else np.asarray(values)
    return array if array.dtype.kind == "f" else np.asarray(array, dtype=float)


def as_policy(values: Any, states: int, actions: int) -> Any:
    """Policies (…, states, actions), probabilities over actions in every state; JAX arrays are taken at their word."""
    policy = as_floats(values)
    if policy.shape[-2:] != (states, actions):
        raise ValueError(f"policy has shape {policy.shape}; give (…, states, actions), (…, {states}, {actions}).")
    if isinstance(policy, np.ndarray) and policy.size:
        if not policy.min() >= -ROUNDING:
            raise ValueError(f"policy holds {policy.min():.3g}; give probabilities.")
        total = policy.sum(axis=-1)
        if not np.abs(total - 1).max() <= ROUNDING:
            worst = total.reshape(-1)[np.abs(total - 1).argmax()]
            raise ValueError(f"policy has a row that sums to {worst:.6g}; every state's probabilities must sum to one.")
    return policy
