"""Maximum of a function by gradient ascent (L-BFGS-B) from the best of some samples."""

from collections.abc import Callable

import numpy as np

__all__ = ["climbed"]

# Number of starts: a single one may end at a lower local maximum, and each costs some hundred values.
CLIMBS = 5
# Number of samples that the starts are chosen from: enough to find the best regions, cheap to evaluate.
LOOKED_AT = 8192
# Step of the finite differences, in standard deviations of the samples: above float32 rounding, below the width of a
# maximum.
NUDGE = 0.01


def climbed(
    value: Callable[[np.ndarray], np.ndarray], samples: np.ndarray, interval: tuple[float, float] | None = None
) -> np.ndarray:
    """The highest point (dim,) reached.

    Slopes are finite differences, because the gradient of a potential is that of its basis: beyond the edge of the
    explored region it differs from the slope of R̂, which is constant along the way out.

    Parameters
    ----------
    value
        The function, of points (n, dim).
    samples
        Samples (n, dim). The search starts at the best of them and stays within their range.
    interval
        Range of every coordinate; if given, the search stays within it instead.
    """
    from scipy.optimize import minimize

    dim, spread = samples.shape[1], samples.std(axis=0)
    low, high = samples.min(axis=0), samples.max(axis=0)
    if interval is not None:
        low, high = (np.full(dim, end) for end in interval)
    shifts = np.concatenate([np.zeros((1, dim)), *(sign * NUDGE * np.diag(spread) for sign in (1, -1))])

    def downhill(point: np.ndarray) -> tuple[float, np.ndarray]:
        around = np.clip(point + shifts, low, high)
        heights = value(around)
        rise = heights[1 : 1 + dim] - heights[1 + dim :]
        return -heights[0], -rise / np.diagonal(around[1 : 1 + dim] - around[1 + dim :])

    candidates = samples[:: max(1, len(samples) // LOOKED_AT)]
    starts = candidates[np.argsort(-value(candidates))[:: max(1, len(candidates) // 1000)][:CLIMBS]]
    results = [minimize(downhill, start, jac=True, bounds=list(zip(low, high, strict=True))) for start in starts]
    return min(results, key=lambda result: result.fun).x
