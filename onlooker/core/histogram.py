"""p̂ on a grid of bins: a joint histogram with overflow bins, its marginals and its coarser versions."""

from dataclasses import dataclass

import numpy as np

__all__ = ["Histogram"]


@dataclass(frozen=True)
class Histogram:
    """Counts on a grid; the first and the last bin of each axis are overflow bins.

    Attributes
    ----------
    edges
        For each axis, an array of bins + 1 edges.
    counts
        Array of shape (bins + 2, …); weights may be fractions.
    effective
        Number of equally weighted positions that the counts are worth, (Σw)²/Σw²; default: their sum. Correlation
        between positions of one chain is not included.

    Examples
    --------
    >>> edges = (np.array([0.0, 1.0, 2.0]),)
    >>> histogram = Histogram.of(np.array([[0.2], [0.4], [1.5], [7.0]]), edges)
    >>> histogram.counts.tolist()  # below, two bins, above
    [0.0, 2.0, 1.0, 1.0]
    >>> histogram.probabilities.tolist()
    [0.0, 0.5, 0.25, 0.25]
    """

    edges: tuple[np.ndarray, ...]
    counts: np.ndarray
    effective: float | None = None

    def __post_init__(self) -> None:
        if self.effective is None:
            object.__setattr__(self, "effective", float(self.counts.sum()))

    @classmethod
    def of(cls, samples: np.ndarray, edges: tuple[np.ndarray, ...]) -> "Histogram":
        """Count samples (…, dim) on given edges."""
        flat = samples.reshape(-1, len(edges))
        counts = np.zeros([len(axis) + 1 for axis in edges])
        np.add.at(counts, tuple(np.digitize(flat[:, axis], edge) for axis, edge in enumerate(edges)), 1)
        return cls(edges, counts)

    @property
    def probabilities(self) -> np.ndarray:
        """The counts divided by their sum, including the overflow bins."""
        total = self.counts.sum()
        if not total > 0:
            raise ValueError("the histogram is empty: no position has been counted yet; run for longer.")
        return self.counts / total

    @property
    def inside(self) -> np.ndarray:
        """The counts without the overflow bins."""
        return self.counts[(slice(1, -1),) * self.counts.ndim]

    @property
    def centres(self) -> tuple[np.ndarray, ...]:
        """Centres of the bins per axis, without the overflow bins."""
        return tuple((edges[1:] + edges[:-1]) / 2 for edges in self.edges)

    def marginal(self, axis: int) -> "Histogram":
        """The histogram of one axis."""
        others = tuple(other for other in range(self.counts.ndim) if other != axis)
        return Histogram((self.edges[axis],), self.counts.sum(axis=others), self.effective)

    def coarsen(self, factor: int) -> "Histogram":
        """Merge every ``factor`` bins; the overflow bins stay."""
        counts = self.counts
        for axis, edges in enumerate(self.edges):
            bins = len(edges) - 1
            if bins % factor:
                raise ValueError(f"factor is {factor}, which does not divide the {bins} bins; give a divisor.")
            starts = np.concatenate([[0], np.arange(1, bins + 1, factor), [bins + 1]])
            counts = np.add.reduceat(counts, starts, axis=axis)
        return Histogram(tuple(edges[::factor] for edges in self.edges), counts, self.effective)
