"""What a user asked `reconstruct` for."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from onlooker.coordinates import Coordinates
from onlooker.observe.observation import Observations

__all__ = ["Options", "some_of"]

# Observations that a result carries along.
CARRIED = 5000


@dataclass(frozen=True)
class Options:
    """β, how many chains, the seed; what only some methods want; and coordinates of policies, with their measure."""

    beta: float
    chains: int
    seed: int
    density: Any = None
    step_size: float | None = None
    bandwidth: float | None = None
    coordinates: Coordinates | None = None
    measure: str = "coordinates"

    @property
    def interval(self) -> tuple[float, float] | None:
        """Where every coordinate lives, if it is an interval."""
        return None if self.coordinates is None else self.coordinates.interval

    @property
    def about(self) -> dict[str, Any]:
        """For the diagnostics: which law the samples are of, and the seed."""
        about: dict[str, Any] = {"seed": self.seed}
        if self.coordinates is not None:
            about |= {"coordinates": self.coordinates.name, "measure": self.measure}
        return about


def some_of(seen: Observations, seed: int) -> dict[str, np.ndarray]:
    """A few observations, to be shown beside a result."""
    rows = np.sort(np.random.default_rng(seed).permutation(len(seen))[:CARRIED])
    return {"points": seen.points[rows], "gradients": seen.gradients[rows]}
