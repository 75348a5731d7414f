"""φ(w·z + c), φ = log cosh or −cos: units on directions, and their sums over rows.

A unit's slope is tanh or sin. Log cosh units bend once, and suit few directions; cosines of random frequencies are a
Gaussian process in the limit, and suit any reward of moderate dimension.
"""

from typing import Any, NamedTuple

import numpy as np

__all__ = ["BLOCK", "Moments", "Units", "bends", "gather", "joined_units", "no_units", "predicted", "slopes", "values"]

# Rows added at once: with a thousand units they take 8 MB, about a processor's cache.
BLOCK = 2048


class Units(NamedTuple):
    """Units on directions.

    Attributes
    ----------
    bends
        (m, dim + 1): directions and offsets of log cosh units.
    waves
        (k, dim + 1): directions and offsets of cosines.
    groups
        (m + k,): each unit's group; units of a group share their prior.
    pooled
        (groups,): whether weights of the group are shrunk to their mean instead of zero.
    """

    bends: np.ndarray
    waves: np.ndarray
    groups: np.ndarray
    pooled: np.ndarray

    @property
    def number(self) -> int:
        return len(self.groups)

    @property
    def directions_and_offsets(self) -> np.ndarray:
        """(m + k, dim + 1)."""
        return np.concatenate([self.bends, self.waves])

    @property
    def directions(self) -> np.ndarray:
        """(m + k, dim)."""
        return self.directions_and_offsets[:, :-1]


class Moments(NamedTuple):
    """Weighted sums over rows (z, y) with slopes t of the units, P = (z, 1).

    Attributes
    ----------
    rows
        Number of rows, whatever their weight.
    points
        Σ PPᵀ.
    across
        Σ yPᵀ.
    gradients
        Σ yyᵀ.
    slopes
        Σ tPᵀ.
    products
        Σ ttᵀ.
    towards
        Σ tyᵀ.
    """

    rows: float
    points: np.ndarray
    across: np.ndarray
    gradients: np.ndarray
    slopes: np.ndarray
    products: np.ndarray
    towards: np.ndarray

    def plus(self, other: "Moments") -> "Moments":
        """These sums plus others."""
        parts = zip(self[1:], other[1:], strict=True)
        return Moments(self.rows + other.rows, *(mine + theirs for mine, theirs in parts))

    def times(self, factor: float) -> "Moments":
        """These sums with every weight multiplied."""
        return Moments(factor * self.rows, *(factor * part for part in self[1:]))


def no_units(dim: int) -> Units:
    """No units."""
    nothing = np.zeros((0, dim + 1))
    return Units(nothing, nothing, np.zeros(0, int), np.zeros(0, bool))


def bends(both: np.ndarray) -> Units:
    """Log cosh units (m, dim + 1) of one group."""
    return Units(both, np.zeros((0, both.shape[1])), np.zeros(len(both), int), np.zeros(1, bool))


def joined_units(first: Units, second: Units) -> Units:
    """The units of both, their groups apart; bends come before waves."""
    shift = len(first.pooled)
    some, more = first.groups, second.groups + shift
    cut, other = len(first.bends), len(second.bends)
    return Units(
        np.concatenate([first.bends, second.bends]),
        np.concatenate([first.waves, second.waves]),
        np.concatenate([some[:cut], more[:other], some[cut:], more[other:]]),
        np.concatenate([first.pooled, second.pooled]),
    )


def nothing_summed(units: Units) -> Moments:
    """Empty sums."""
    dim, count = units.bends.shape[1] - 1, units.number
    shapes = (), (dim + 1, dim + 1), (dim, dim + 1), (dim, dim), (count, dim + 1), (count, count), (count, dim)
    return Moments(0.0, *(np.zeros(shape) for shape in shapes[1:]))


def gather(units: Units, z: np.ndarray, y: np.ndarray, weights: np.ndarray, kind: Any = np.float64) -> Moments:
    """Sums over rows (n, dim) with weights (n,).

    Products are summed in float64: units are nearly dependent, above all cosines of long waves, and only small
    differences of their sums tell them apart. Where log cosh units are still being moved, float32 suffices.
    """
    total = nothing_summed(units)
    for first in range(0, len(z), BLOCK):
        here, there, heavy = (np.asarray(part[first : first + BLOCK], np.float32) for part in (z, y, weights))
        root = np.sqrt(heavy)[:, None]
        turned = (slopes(units, here) * root).astype(kind, copy=False)
        around = np.concatenate([here * root, root], axis=1).astype(kind, copy=False)
        there = (there * root).astype(kind, copy=False)
        products = turned.T @ turned, turned.T @ there
        parts = around.T @ around, there.T @ around, there.T @ there, turned.T @ around, *products
        total = total.plus(Moments(float(len(here)), *parts))
    return total


def slopes(units: Units, z: np.ndarray) -> np.ndarray:
    """φ′ (n, units) at rows (n, dim), in float32."""
    around = np.concatenate([z, np.ones((len(z), 1), z.dtype)], axis=1)
    found = around @ units.directions_and_offsets.astype(np.float32).T
    cut = len(units.bends)
    np.tanh(found[:, :cut], out=found[:, :cut])
    np.sin(found[:, cut:], out=found[:, cut:])
    return found


def predicted(affine: np.ndarray, units: Units, head: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Gradients (n, dim) of a quadratic with gradient ``affine`` (z, 1), and units with weights ``head``."""
    curvature, level = affine[:, :-1].astype(np.float32), affine[:, -1].astype(np.float32)
    directions = (head[:, None] * units.directions).astype(np.float32)
    found = np.empty((len(z), len(level)), np.float32)
    for first in range(0, len(z), BLOCK):
        rows = np.asarray(z[first : first + BLOCK], np.float32)
        found[first : first + BLOCK] = rows @ curvature.T + level + slopes(units, rows) @ directions
    return found


def values(units: Units, z: np.ndarray) -> np.ndarray:
    """φ (n, units), in float64."""
    around = np.concatenate([z, np.ones((len(z), 1))], axis=1)
    bend, wave = np.abs(around @ units.bends.T), around @ units.waves.T
    return np.concatenate([bend + np.log1p(np.exp(-2 * bend)) - np.log(2), -np.cos(wave)], axis=1)
