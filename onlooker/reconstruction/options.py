"""Settings of a reconstruction."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from onlooker.core.policies import Coordinates
from onlooker.data.observations import Observations

__all__ = ["Options", "some_of"]

# Number of observations saved with a result: enough for its figures.
CARRIED = 5000


@dataclass(frozen=True)
class Options:
    """Settings of a reconstruction; see `reconstruct`."""

    beta: float
    chains: int
    seed: int
    density: Any = None
    step_size: float | None = None
    bandwidth: float | None = None
    coordinates: Coordinates | None = None
    measure: str = "coordinates"
    objective: str = "training"

    @property
    def interval(self) -> tuple[float, float] | None:
        """Range of every coordinate, if bounded."""
        return None if self.coordinates is None else self.coordinates.interval

    @property
    def about(self) -> dict[str, Any]:
        """The seed and the law of the samples, for the diagnostics."""
        about: dict[str, Any] = {"seed": self.seed}
        if self.coordinates is not None:
            about |= {"coordinates": self.coordinates.name, "measure": self.measure}
        return about


def some_of(seen: Observations, seed: int) -> dict[str, np.ndarray]:
    """A sample of the observations, to be saved with a result."""
    rows = np.sort(np.random.default_rng(seed).permutation(len(seen))[:CARRIED])
    return {"points": seen.points[rows], "gradients": seen.gradients[rows]}
