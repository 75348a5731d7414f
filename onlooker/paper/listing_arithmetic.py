"""Example 2's listing in its own arithmetic, which ends in NaN: one step divides zero weights by their zero sum.

Weights are scaled by 10^(2N) and exponentiated before they are normalised, in float64. When the whole pool is farther
away than √149 all weights are zero. The reset rule sees that their sum is zero, but the step of that iteration still
uses 0/0, and everything after it is NaN.
"""

import numpy as np

from onlooker.simulation.logistic import Logistic

__all__ = ["steps_until_nan"]

# As in the listing.
STEP, KERNEL_VARIANCE, POOL = 2.5e-4, 0.1, 100


def steps_until_nan(reward: Logistic, seed: int, steps: int) -> tuple[int, int]:
    """Number of steps until NaN, at most ``steps``, and number of resets, including the last."""
    features, labels = (np.asarray(part, float) for part in reward.data)
    rows = reward.sweep_rows or reward.rows
    generator = np.random.default_rng(seed)
    position, resets = np.zeros(reward.dim), 0
    for step in range(steps):
        pool = generator.standard_normal((reward.dim, POOL))
        squared = ((pool - position[:, None]) ** 2).sum(axis=0)
        weight = 10.0 ** (2 * reward.dim) * np.exp(-squared / (2 * KERNEL_VARIANCE))
        if weight.sum() < 1e-60:
            position = 0.1 * generator.standard_normal(reward.dim)
            resets += 1
        with np.errstate(invalid="ignore"):
            share = weight / weight.sum()
        row = features[step % rows]
        excess = labels[step % rows] - 1 / (1 + np.exp(-row @ pool))
        gradient = reward.weight * row * (excess @ share) - np.sign(pool) @ share
        position = position + STEP / 2 * gradient + np.sqrt(STEP) * generator.standard_normal(reward.dim)
        if np.isnan(position[0]):
            return step + 1, resets
    return steps, resets
