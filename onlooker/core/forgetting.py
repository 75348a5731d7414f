"""Forgetting at rate γ: an observation of age k weighs (1 − γ)^k."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

__all__ = ["effective_count", "weight_left"]


def weight_left(forgetting: float | None, steps: Any) -> Any:
    """(1 − γ)^steps for a number or an array of steps; 1 without forgetting."""
    if forgetting is None:
        return np.ones_like(steps) if isinstance(steps, np.ndarray) else 1
    exponent = float(np.log1p(-forgetting)) * steps
    return jnp.exp(exponent) if isinstance(exponent, Array) else np.exp(exponent)


def effective_count(forgetting: float | None, count: float, every: int = 1) -> float:
    """(Σw)²/Σw² of ``count`` weights 1, q, q², … with q = (1 − γ)^every: the number of equal weights they are worth.

    Examples
    --------
    >>> round(effective_count(0.01, 1e6), 3)  # (2 − γ)/γ
    199.0
    """
    if forgetting is None or count == 0:
        return float(count)
    keep = np.exp(every * np.log1p(-forgetting))
    last = keep**count
    return float((1 - last) * (1 + keep) / ((1 + last) * (1 - keep)))
