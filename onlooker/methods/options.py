"""What a user asked `reconstruct` for."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from onlooker.observe.observation import Observations

__all__ = ["Options", "some_of"]

# Observations that a result carries along.
CARRIED = 5000


@dataclass(frozen=True)
class Options:
    """β, how many chains, the seed; the density and the numbers that only some methods want."""

    beta: float
    chains: int
    seed: int
    density: Any = None
    step_size: float | None = None
    bandwidth: float | None = None


def some_of(seen: Observations, seed: int) -> dict[str, np.ndarray]:
    """A few observations, to be shown beside a result."""
    rows = np.sort(np.random.default_rng(seed).permutation(len(seen))[:CARRIED])
    return {"points": seen.points[rows], "gradients": seen.gradients[rows]}
