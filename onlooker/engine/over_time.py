"""R̂(t) = log p̂_t(α)/β + constant for a reward that changes, from an ensemble at one moment or with its recent past.

Many chains at one moment are a sample of the law that holds then, O(recovery time) behind the reward; a few chains need
their recent past as well, weighed by (1 − γ)^age.
"""

from collections.abc import Iterator

import numpy as np

from onlooker.core.forgetting import effective_count
from onlooker.core.histogram import Histogram
from onlooker.core.settings import check_share
from onlooker.engine.accumulators import Grid

__all__ = ["over_time"]


def over_time(samples: np.ndarray, grid: Grid, forgetting: float | None = None) -> Iterator[Histogram]:
    """A histogram for every draw of samples (chain, draw, dim).

    Parameters
    ----------
    samples
        (chain, draw, dim), such as the ``samples`` of a run, one every ``sample_every`` steps.
    grid
        The bins; its own forgetting, which is per step, is not used.
    forgetting
        γ per draw; default: each histogram counts one draw of the ensemble alone.
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
