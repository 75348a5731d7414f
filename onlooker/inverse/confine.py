"""Confinement of a chain to where the data are: α ← α + δ, then back into a ball or an interval if it left.

``confine(position, increment) -> (position, touched)`` is an option of every inverse learner; ``touched`` is 1 when the
chain was moved back, else 0.
"""

import math
from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array

from onlooker.core.settings import check_positive

__all__ = ["Confine", "ball", "fold", "nowhere"]

Confine = Callable[[Array, Array], tuple[Array, Array]]


def nowhere(position: Array, increment: Array) -> tuple[Array, Array]:
    """No confinement: α + δ."""
    return position + increment, jnp.zeros((), position.dtype)


def ball(radius: float, centre: Sequence[float] | None = None) -> Confine:
    """Radial projection about a centre (the origin): α·min(1, M/‖α‖). It does not change the law inside.

    A step to NaN or infinity is not taken.

    Examples
    --------
    >>> position, touched = ball(2.0)(jnp.array([0.0, 1.0]), jnp.array([0.0, 3.0]))
    >>> position.tolist(), float(touched)
    ([0.0, 2.0], 1.0)
    """
    check_positive(radius=radius)
    middle = None if centre is None else np.asarray(centre, dtype=float)

    def confine(position: Array, increment: Array) -> tuple[Array, Array]:
        about = 0 if middle is None else jnp.asarray(middle, position.dtype)
        moved = position + increment - about
        norm = jnp.sqrt(jnp.sum(moved * moved))
        outside = ~(norm <= radius)
        projected = jnp.where(jnp.isfinite(norm), moved * (radius / norm), position - about)
        return jnp.where(outside, projected, moved) + about, outside.astype(position.dtype)

    return confine


def fold(low: float, high: float = math.inf) -> Confine:
    """Reflection at the ends of an interval, coordinate by coordinate; exact where R is even about them."""
    if not low < high:
        raise ValueError(f"low is {low} and high {high}; give the ends of an interval, the lower one first.")

    def confine(position: Array, increment: Array) -> tuple[Array, Array]:
        moved = position + increment
        outside = (moved < low) | (moved > high)
        folded = low + jnp.abs(moved - low)
        if high < math.inf:
            width = high - low
            folded = high - jnp.abs(width - (moved - low) % (2 * width))
        return jnp.where(outside, folded, moved), jnp.any(outside).astype(position.dtype)

    return confine
