"""Sums over observations: the protocol `Sums`, which every fit is computed from, and the `FitKind` that begins them.

    sums = begin(sample);   sums.add(rows);   sums.joined(other);   sums.forget(share);   sums.fit() → potential

An array in memory, a growing log, and parts of a log on several machines differ in who calls ``add`` and ``joined``,
not in what is computed.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import numpy as np

from onlooker.data.buffer import Recent

if TYPE_CHECKING:
    from onlooker.fit.potential import Potential

__all__ = ["FitKind", "KeptRows", "Sums"]

# A kept row of lower weight is dropped: with a forgetting rate γ, a row more than 7/γ rows old.
LEAST_WEIGHT = 8e-4
# The most recent rows are kept whatever their weight: a fit needs this number.
FEWEST_KEPT = 1000


class Sums(Protocol):
    """Everything a fit needs to know about the observations.

    Attributes
    ----------
    outside
        Weight of the rows outside the region that the sums were begun on, which are not included.
    count
        Weight of the rows included.
    """

    outside: float

    @property
    def count(self) -> float: ...

    def add(
        self, points: np.ndarray, gradients: np.ndarray, held: np.ndarray, weights: np.ndarray | None = None
    ) -> None:
        """Add observations (n, dim).

        Parameters
        ----------
        points
            Points (n, dim).
        gradients
            Gradients (n, dim).
        held
            Which rows (n,) are held out.
        weights
            Weights (n,); default: 1.
        """

    def joined(self, other: Self) -> Self:
        """The sums over the observations of both; both must have been begun on the same sample."""
        ...

    def forget(self, share: float) -> None:
        """Multiply the weight of everything added so far by 1 − share."""

    def fit(self, like: Any = None) -> "Potential":
        """Fit a reward.

        Parameters
        ----------
        like
            An earlier fit of the same kind. Its hyper-parameters are reused if it is `Potential.renewable` and
            resembles this one.
        """
        ...


@dataclass(frozen=True)
class FitKind:
    """A way to fit a reward, and what callers must know about it before fitting.

    Parameters
    ----------
    basis
        Name of the basis functions, for messages.
    serves
        Whether it fits points of a given dimension.
    begin
        ``begin(points, gradients, held, seed, interval)`` returns empty sums for rows like those of a sample; the
        parameters are those of `onlooker.fit.potential.begin`.
    sums
        Type of these sums: a dataclass, saved field by field.
    potential
        Type of the fitted reward: a dataclass, saved field by field.
    streams
        Whether sums have constant size, so that an Observer adds rows as they arrive. Otherwise it begins them from
        the rows it has kept, each time a fit is needed.
    kept
        Number of rows that an Observer keeps.
    after_jump
        Number of rows needed after a jump of the reward before the next fit.
    judge
        ``judge(sums)`` predicts gradients (`onlooker.fit.nearby.Nearby`) from the rows that are not held out; jumps are
        detected by its residuals. ``None`` if a small fit is good enough for that.
    outdated
        ``outdated(sums, recent)``: whether the last rows of a stream (`onlooker.data.buffer.Recent`) show that the sums
        should begin again with them. ``None`` if only the box of the sums tells.
    limited
        Whether its resolution is limited, so that other methods may do better (`Potential.at_finest`).
    """

    basis: str
    serves: Callable[[int], bool]
    begin: Callable[..., Sums]
    sums: type
    potential: "type[Potential]"
    streams: bool
    kept: int
    after_jump: int
    judge: Callable[[Any], Any] | None
    outdated: Callable[[Any, Recent], bool] | None
    limited: bool


class _Batch(NamedTuple):
    points: np.ndarray
    gradients: np.ndarray
    held: np.ndarray
    weights: np.ndarray

    def last(self, count: int) -> "_Batch":
        return _Batch(*(part[len(part) - count :] for part in self))


@dataclass
class KeptRows:
    """Sums of a fit that needs several passes over its rows: the rows themselves.

    All rows count equally until they are dropped.

    Parameters
    ----------
    fit_rows
        ``fit_rows(points, gradients, held)`` fits a reward to rows (n, dim).
    """

    fit_rows: "Callable[[np.ndarray, np.ndarray, np.ndarray], Potential]"
    outside: float = 0.0
    _batches: list[_Batch] = field(default_factory=list)

    @property
    def count(self) -> float:
        return float(sum(len(batch.points) for batch in self._batches))

    def add(
        self, points: np.ndarray, gradients: np.ndarray, held: np.ndarray, weights: np.ndarray | None = None
    ) -> None:
        """Keep observations (n, dim); see `Sums.add`."""
        weights = np.ones(len(points)) if weights is None else weights
        self._batches.append(_Batch(points, gradients, held, weights))
        self._drop()

    def joined(self, other: "KeptRows") -> "KeptRows":
        """The rows of both."""
        return KeptRows(self.fit_rows, self.outside + other.outside, [*self._batches, *other._batches])

    def forget(self, share: float) -> None:
        """Multiply the weight of every row by 1 − share, and drop rows of negligible weight."""
        self._batches = [batch._replace(weights=(1 - share) * batch.weights) for batch in self._batches]
        self._drop()

    def _drop(self) -> None:
        kept, later = [], 0
        for batch in reversed(self._batches):
            heavy = batch.weights >= LEAST_WEIGHT
            first = int(np.argmax(heavy)) if heavy.any() else len(heavy)
            count = max(len(heavy) - first, min(len(heavy), FEWEST_KEPT - later))
            if count > 0:
                kept.append(batch.last(count))
            later += len(heavy)
        self._batches = kept[::-1]

    def fit(self, like: Any = None) -> "Potential":
        """Fit to all kept rows."""
        rows = (
            self._batches[0]
            if len(self._batches) == 1
            else _Batch(*map(np.concatenate, zip(*self._batches, strict=True)))
        )
        return self.fit_rows(rows.points, rows.gradients, rows.held)
