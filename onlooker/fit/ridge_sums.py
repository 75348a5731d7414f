"""Σω(z,1)(z,1)ᵀ, Σω y(z,1)ᵀ, Σω t(z,1)ᵀ, Σω ttᵀ, Σω tyᵀ: all that the fit above three dimensions knows about its rows.

Given a dictionary, the head, its priors and its error bars follow from these sums by linear algebra. Fitted and
held-out rows are summed apart. Rows wait until they fill a block.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onlooker.core.blas import numpy_threads
from onlooker.data.buffer import Recent
from onlooker.fit.active_subspace import active_subspace
from onlooker.fit.error_bars import typical_points
from onlooker.fit.nearby import Nearby, Slope, judged_slope
from onlooker.fit.ridge_dictionary import Dictionary, choose
from onlooker.fit.ridge_frame import successive
from onlooker.fit.ridge_potential import Member, RidgePotential, assembled
from onlooker.fit.ridge_system import solve
from onlooker.fit.ridge_units import Moments, gather, nothing_summed
from onlooker.fit.sums import FitKind

__all__ = ["KIND", "RidgeSums", "begin_ridge"]

# Rows that wait until they are added.
WAITING = 4096
# Typical points: enough for a few dozen where R̂ is high.
TYPICAL = 2000
# Rows beyond this many radii of the explored points are not included.
OUTSIDE = 3.0
# Units are chosen again if what they miss, over its chance level, is so many times as much as when they were chosen.
GROWN = 3.0
# Share of the rows within the radius.
INSIDE = 0.998


@dataclass
class RidgeSums:
    """Sums over rows, for a chosen dictionary.

    Attributes
    ----------
    dictionary
        The units.
    typical
        A sample of the points.
    radius
        Radius of the explored points, in the frame.
    train
        Sums over fitted rows, for each member of the dictionary.
    held
        Sums over held-out rows.
    outside
        See `Sums`.
    """

    dictionary: Dictionary
    typical: np.ndarray
    radius: float
    train: tuple[Moments, ...]
    held: tuple[Moments, ...]
    outside: float = 0.0
    _rows: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))

    @property
    def count(self) -> float:
        weight = sum(part.rows for part in (self.train[0], self.held[0]))
        return float(weight + (self._rows[:, -1].sum() if self._rows.size else 0.0))

    def add(
        self, points: np.ndarray, gradients: np.ndarray, held: np.ndarray, weights: np.ndarray | None = None
    ) -> None:
        """Add observations; see `Sums.add`."""
        weights = np.ones(len(points)) if weights is None else weights
        frame = self.dictionary.frame
        inside = np.linalg.norm((points - frame.centre) @ frame.forward.T, axis=1) <= OUTSIDE * self.radius
        self.outside += float(weights[~inside].sum())
        rows = np.column_stack([points, gradients, held, weights])[inside]
        rows = np.concatenate([self._rows, rows]) if self._rows.size else rows
        whole = len(rows) // WAITING * WAITING if len(rows) < 4 * WAITING else len(rows)
        self._include(rows[:whole])
        self._rows = rows[whole:].copy()

    @numpy_threads()
    def _include(self, rows: np.ndarray) -> None:
        if not len(rows):
            return
        frame, dim = self.dictionary.frame, len(self.dictionary.frame.centre)
        z, y = frame.points(rows[:, :dim]), frame.gradients(rows[:, dim : 2 * dim])
        weights = self.dictionary.steepness.weights(z, y) * rows[:, -1]
        held = rows[:, -2] > 0
        sides = []
        for side, chosen in ((self.train, ~held), (self.held, held)):
            mine = z[chosen], y[chosen], weights[chosen]
            counted = float(rows[chosen, -1].sum())
            new = [gather(units, *mine)._replace(rows=counted) for units in self.dictionary.members]
            sides.append(tuple(old.plus(more) for old, more in zip(side, new, strict=True)) if len(mine[0]) else side)
        self.train, self.held = sides

    def joined(self, other: "RidgeSums") -> "RidgeSums":
        """The sums over the rows of both."""
        both = [
            tuple(mine.plus(theirs) for mine, theirs in zip(some, more, strict=True))
            for some, more in ((self.train, other.train), (self.held, other.held))
        ]
        waiting = [sums._rows for sums in (self, other) if sums._rows.size]
        rows = np.concatenate(waiting) if waiting else self._rows
        outside = self.outside + other.outside
        found = RidgeSums(self.dictionary, self.typical, self.radius, both[0], both[1], outside)
        found._include(rows)
        return found

    def settle(self) -> None:
        """Add the rows that wait."""
        rows, self._rows = self._rows, np.zeros((0, 0))
        self._include(rows)

    def __getstate__(self) -> dict[str, Any]:
        # Empty sums are sent to workers: their zeros take megabytes.
        empty = not (self.train[0].rows or self.held[0].rows)
        return {**self.__dict__, "train": (), "held": ()} if empty else self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if not self.train:
            self.train, self.held = (
                tuple(nothing_summed(units) for units in self.dictionary.members) for _ in range(2)
            )

    def forget(self, share: float) -> None:
        """Multiply the weight of everything added so far by 1 − share."""
        if share == 0:
            return
        self.train, self.held = (tuple(part.times(1 - share) for part in side) for side in (self.train, self.held))
        self.outside *= 1 - share
        if self._rows.size:
            self._rows[:, -1] *= 1 - share

    @numpy_threads()
    def fit(self, like: Any = None) -> RidgePotential:
        """Solve every member; average them."""
        whole = self.joined(_nothing(self.dictionary, self.typical, self.radius))
        precision = self.dictionary.frame.precision
        again = like.members if isinstance(like, RidgePotential) and like.uses(self.dictionary.members) else None
        members, errors = [], []
        for number, units in enumerate(self.dictionary.members):
            train, held = whole.train[number], whole.held[number]
            _, chosen = solve(train, held, units, precision, again[number].head if again else None)
            everything = train.plus(held)
            _, head = solve(everything, held, units, precision, chosen)
            members.append(Member(units, head, everything, self.dictionary.shares[number]))
            errors.append(chosen.error)
        return assembled(self.dictionary, tuple(members), errors, self.typical, self.radius)

    @numpy_threads()
    def judge(self) -> Nearby:
        """∇R̂ of a fit to the rows that are not held out."""
        whole, dictionary = self.joined(_nothing(self.dictionary, self.typical, self.radius)), self.dictionary
        precision = dictionary.frame.precision
        slopes = []
        for units, share, train, held in zip(
            dictionary.members, dictionary.shares, whole.train, whole.held, strict=True
        ):
            _, head = solve(train, held, units, precision)
            slopes.append(Slope(units, head.affine, head.weights, share))
        steepest = judged_slope(dictionary.frame, dictionary.steepness, self.typical)
        return Nearby(dictionary.frame, dictionary.steepness, tuple(slopes), self.radius, steepest)

    def outdated(self, recent: Recent) -> bool:
        """Whether successive residuals of agents show much more that is missed than when the units were chosen."""
        usual = max(1.0, np.nan_to_num(self.dictionary.misfit))
        return self.misfit(recent) > GROWN * usual

    @numpy_threads()
    def misfit(self, recent: Recent) -> float:
        """Largest eigenvalue of what the fit leaves on rows, over its chance level; nan if there are no fit pairs."""
        pairs = successive(recent.known_agents())
        if pairs is None or self.dictionary.found != "successive":
            return float("nan")
        fit, frame = self.fit(), self.dictionary.frame
        z, y = frame.points(recent.points), frame.gradients(recent.gradients)
        left = frame.gradients(recent.gradients - fit.gradient(recent.points))
        weights = self.dictionary.steepness.weights(z, y)
        return active_subspace(left, weights, frame.precision, pairs, 0).misfit


def _nothing(dictionary: Dictionary, typical: np.ndarray, radius: float) -> RidgeSums:
    empty = tuple(nothing_summed(units) for units in dictionary.members)
    return RidgeSums(dictionary, typical, radius, empty, empty)


@numpy_threads()
def begin_ridge(
    points: np.ndarray,
    gradients: np.ndarray,
    held: np.ndarray,
    seed: int = 0,
    interval: tuple[float, float] | None = None,
    agents: np.ndarray | None = None,
) -> RidgeSums:
    """Empty sums, with units chosen on these rows; the parameters are those of `onlooker.fit.potential.begin`.

    ``interval`` is not used: units are as accurate at its ends as anywhere.
    """
    dictionary = choose(points, gradients, held, agents, seed)
    few = points[:: max(1, len(points) // 50_000)]
    radius = float(np.quantile(np.linalg.norm(dictionary.frame.points(few), axis=1), INSIDE))
    return _nothing(dictionary, typical_points(points, seed, TYPICAL), radius)


KIND = FitKind(
    basis="units on directions",
    serves=lambda dim: dim >= 1,
    begin=begin_ridge,
    sums=RidgeSums,
    potential=RidgePotential,
    streams=True,
    # The rows from which a dictionary is chosen again; in ten dimensions they take 8 MB.
    kept=50_000,
    # The same number as before an Observer's first fit.
    after_jump=1000,
    judge=RidgeSums.judge,
    outdated=RidgeSums.outdated,
    limited=False,
)
