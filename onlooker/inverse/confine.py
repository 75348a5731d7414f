"""Keeping a chain where the data are: α ← α + δ, then back into a ball or an interval if need be, and counted.

``confine(position, increment) -> (position, touched)`` is an option of every inverse learner.
"""

import math
from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array

from onlooker.check import check_positive

__all__ = ["Confine", "ball", "fade", "fold", "nowhere"]

Confine = Callable[[Array, Array], tuple[Array, Array]]


def nowhere(position: Array, increment: Array) -> tuple[Array, Array]:
    """No confinement: α + δ."""
    return position + increment, jnp.zeros((), position.dtype)


def ball(radius: float, centre: Sequence[float] | None = None) -> Confine:
    """Radial projection about a centre (the origin): α·min(1, M/‖α‖). The law inside the ball is left alone.

    A step that leaves the numbers altogether is not taken.

    Examples
    --------
    >>> place, touched = ball(2.0)(jnp.array([0.0, 1.0]), jnp.array([0.0, 3.0]))
    >>> place.tolist(), float(touched)
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


def fade(radius: float) -> Confine:
    """The truncation of the paper's proof, δ·q_M(α) with q_M = 1 in the ball and 0 beyond radius + 1.

    It slows the chain near the boundary and so changes the law there: for the errata, not for use.
    """
    check_positive(radius=radius)

    def confine(position: Array, increment: Array) -> tuple[Array, Array]:
        excess = jnp.clip(jnp.sqrt(jnp.sum(position * position)) - radius, 0, 1)
        kept = 1 - excess * excess * (3 - 2 * excess)
        return position + kept * increment, (excess > 0).astype(position.dtype)

    return confine
