"""Example 3's listing as printed, and how its chain moves along the ridge.

The reward changes little along the curve {B = limit} and falls steeply off it: exp(R) is a thin ridge through the
square of policies, with nearly all of its mass at the end where φ(1|1) = 0. The listing's kernel is so wide (σ = .1)
that its bias pushes the chain along the ridge to the other end. It returns to the probable end only because it leaves
the square: confined only by ``abs``, at zero, it moves beyond π/2 until no point of a pool is near, and the reset puts
it back at the origin.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from onlooker.core.policies import spherical
from onlooker.data.stream import Stream
from onlooker.inverse import InverseLearner, fold, multikernel
from onlooker.paper.listing import Reset, listing_multikernel
from onlooker.simulation.agents import independent_pools
from onlooker.simulation.cmdp import CMDP
from onlooker.simulation.reward import Memoryless, batch_shape

__all__ = ["QUARTER", "STEPS", "Tour", "folded_learner", "listing_learner", "listing_policies", "listing_pools", "tour"]

QUARTER = math.pi / 2
# As in the listing.
STEPS, POOL = 150_000, 50
STEP_SIZE, BANDWIDTH = 5e-6, 0.1
# Nodes per axis of the listing's table.
NODES = 100
# The listing scales its weights by 10 and resets the chain when their sum is below 1e-6.
RESET = Reset(math.log(1e-7), 0.1)
# The ends of the ridge, by φ(1|1), and the distance beyond the square at which a chain has left it.
LOW_END, HIGH_END = 0.1, 0.7
OUTSIDE = 0.1


def listing_policies(angles: np.ndarray) -> np.ndarray:
    """φ with φ(1|x) = sin²α(x), as in the listing (the text's `eq:expo` has cos²)."""
    first = np.sin(angles) ** 2
    return np.stack([first, 1 - first], axis=-1)


@dataclass(frozen=True, eq=False)
class _Table(Memoryless):
    """The listing's gradients: differences of R on a grid of φ, looked up at the nearest node.

    The grid's rows at φ = 1 are never filled, so differences next to them use zero instead of R. Those at the first
    nodes stay zero.
    """

    slopes: np.ndarray
    dim: int = 2

    @classmethod
    def of(cls, cmdp: CMDP) -> "_Table":
        share = np.arange(1, NODES) / NODES
        chosen = np.stack(np.meshgrid(share, share, indexing="ij"), axis=-1)
        height = np.zeros((NODES, NODES))
        height[:-1, :-1] = cmdp.penalised(np.stack([chosen, 1 - chosen], axis=-1))
        slopes = np.zeros((NODES - 1, NODES - 1, 2))
        slopes[1:, 1:, 0] = (height[2:, 1:-1] - height[:-2, 1:-1]) * NODES / 2
        slopes[1:, 1:, 1] = (height[1:-1, 2:] - height[1:-1, :-2]) * NODES / 2
        return cls(slopes)

    def sample(self, data: Any, key: Array, steps: int, lanes: int | None) -> Any:
        return jnp.zeros(batch_shape(steps, lanes))

    def sample_gradient(self, point: Array, xi: Any) -> Array:
        share = jnp.sin(point) ** 2
        node = jnp.clip(jnp.round(NODES * share).astype(jnp.int32), 1, NODES - 1) - 1
        return jnp.asarray(self.slopes, point.dtype)[node[0], node[1]] * jnp.sin(2 * point)


def listing_pools(cmdp: CMDP) -> Stream:
    """Fifty new angles per step, uniform on the square, with the gradients of the listing's table."""
    return independent_pools(_Table.of(cmdp), spherical(2, 2).uniform("coordinates"), POOL)


def listing_learner() -> InverseLearner:
    """μ = 5·10⁻⁶ and σ = .1, confined by ``abs`` alone and reset when no point is near."""
    return listing_multikernel(step_size=STEP_SIZE, bandwidth=BANDWIDTH, confine=fold(0.0), reset=RESET)


def folded_learner() -> InverseLearner:
    """The same learner folded at both ends of the square, so that it is never reset."""
    return multikernel(step_size=STEP_SIZE, bandwidth=BANDWIDTH, confine=fold(0.0, QUARTER))


class Tour(NamedTuple):
    """Number of passages of chains between the ends of the ridge.

    Attributes
    ----------
    along
        From the probable end to the far end; these stay inside the square.
    back
        From the far end to the probable end.
    back_by_reset
        Those among ``back`` that left the square on the way and came back by a reset.
    """

    along: int
    back: int
    back_by_reset: int


def tour(angles: np.ndarray) -> Tour:
    """Count the passages of chains (chain, step, 2) between the ends of the ridge."""
    counts = np.zeros(3, int)
    for path in angles:
        share = np.sin(path[:, 0]) ** 2
        end = np.where(share < LOW_END, 0, np.where(share > HIGH_END, 1, -1))
        visits = np.flatnonzero(end >= 0)
        outside = (path > QUARTER + OUTSIDE).any(axis=1)
        for change in np.flatnonzero(np.diff(end[visits])):
            start, stop = visits[change], visits[change + 1]
            away = end[start] == 0
            counts += [away, not away, not away and outside[start:stop].any()]
    return Tour(*counts.tolist())
