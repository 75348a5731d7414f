"""R̂(t) = log p̂_t(α)/β + constant, of a reward that changes: from an ensemble at one moment, or with its recent past.

Many chains at one moment are a sample of the law that holds then, O(recovery time) behind the reward; a few chains need
their recent past as well, weighed by (1 − γ)^age.
"""

from collections.abc import Iterator

import numpy as np

from onlooker.check import check_share
from onlooker.reward.accumulate import Grid, Histogram, effective_count

__all__ = ["over_time"]


def over_time(samples: np.ndarray, grid: Grid, forgetting: float | None = None) -> Iterator[Histogram]:
    """A histogram for every draw of samples (chain, draw, dim).

    Parameters
    ----------
    samples
        Such as the ``samples`` of a run, one every ``sample_every`` steps.
    grid
        On which bins; its own forgetting, which is by the step, is not used.
    forgetting
        γ per draw; by default every draw stands by itself: the instantaneous estimate of an ensemble.
    """
    check_share(forgetting=forgetting)
    samples = np.asarray(samples)
    chains, draws, _ = samples.shape
    total: np.ndarray | None = None
    for draw in range(draws):
        now = Histogram.of(samples[:, draw], grid.edges)
        if forgetting is None:
            yield now
            continue
        total = now.counts if total is None else (1 - forgetting) * total + now.counts
        yield Histogram(now.edges, total, chains * effective_count(forgetting, draw + 1))
