"""What every fit must hold to, whatever its basis: checks behind `onlooker.testing.check_fit`."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from onlooker.core.conformance import equal, require
from onlooker.fit.potential import Potential
from onlooker.fit.sums import FitKind, Sums
from onlooker.storage.trees import pack, unpack

__all__ = ["FIT_CHECKS", "FitCase", "check_fit"]

# Largest difference of two fits that should be equal, in standard deviations of R̂ over the points: float32 sums of some
# thousand rows, in another order, differ by less.
SAME = 1e-3
# Step of the finite differences in standard deviations of the points, and the largest error of a slope found by them,
# in root mean squares of all slopes.
NUDGE, STEEPNESS = 1e-2, 0.05
# By how much the points are stretched to see whether a fit depends on their units.
STRETCH = 7.0


@dataclass(frozen=True)
class FitCase:
    """A kind of fit and the observations that it is tried on.

    Attributes
    ----------
    kind
        The kind of fit.
    points
        Points (n, dim), some thousands.
    gradients
        Gradients (n, dim).
    held
        Which rows (n,) are held out.
    """

    kind: FitKind
    points: np.ndarray
    gradients: np.ndarray
    held: np.ndarray

    @property
    def places(self) -> np.ndarray:
        """Points at which fits are compared: every tenth."""
        return self.points[::10].astype(float)

    def begun(self, stretch: float = 1.0) -> Sums:
        return self.kind.begin(stretch * self.points, self.gradients / stretch, self.held, 0, None)

    def added(self, sums: Sums, rows: slice = slice(None)) -> Sums:
        sums.add(self.points[rows], self.gradients[rows], self.held[rows])
        return sums

    def apart(self, one: Potential, other: Potential, stretch: float = 1.0) -> float:
        """Root mean square difference of two fits, each less its mean, in standard deviations of the first."""
        first, second = one.value(self.places), other.value(stretch * self.places)
        return float(np.std(first - second) / np.std(first))


def check_fit(case: FitCase) -> list[str]:
    """Run every check on a kind of fit; return their names, or raise `BrokenError` at the first that fails."""
    for check in FIT_CHECKS:
        check(case)
    return [check.__name__ for check in FIT_CHECKS]


def sums_of_parts_join(case: FitCase) -> None:
    """Two parts that are added apart and joined give the fit of the whole, also when the first is faded."""
    middle = len(case.points) // 2
    early, late = slice(0, middle), slice(middle, None)
    first, second, both = case.added(case.begun(), early), case.added(case.begun(), late), case.begun()
    case.added(both, early)
    for sums in (first, both):
        sums.forget(0.5)
    case.added(both, late)
    joined = first.joined(second)
    require(bool(np.isclose(joined.count, both.count, rtol=1e-6)), "joined sums have another count than the whole")
    require(case.apart(joined.fit(), both.fit()) < SAME, "joined sums have another fit than the whole")


def a_potential_is_a_reward(case: FitCase) -> None:
    """Shapes and types; ∇R̂ is the slope of R̂; points are explored, and far away nothing is."""
    fit, places = case.added(case.begun()).fit(), case.places
    dim = places.shape[1]
    require(isinstance(fit, case.kind.potential), "its fit is not of the type that the kind declares")
    require(fit.dim == dim, "its dim is not that of the points")
    for name, found in (("value", fit.value(places)), ("error", fit.error(places))):
        require(found.shape == (len(places),) and np.isfinite(found).all(), f"its {name} is not one number per point")
    require(bool((fit.error(places) >= 0).all()), "its error is negative somewhere")
    explored = fit.explored(places)
    require(explored.dtype == bool and explored.mean() > 0.9, "most of the points are not explored")
    spread = places.std(axis=0)
    require(not fit.explored(places[:1] + 1000 * spread).any(), "a point a thousand deviations away is explored")
    inside = places[explored][:200]
    slopes = fit.gradient(inside)
    for axis in range(dim):
        nudge = NUDGE * spread[axis] * np.eye(dim)[axis]
        rise = (fit.value(inside + nudge) - fit.value(inside - nudge)) / (2 * NUDGE * spread[axis])
        # The median: a few points may lie at an edge, where the value of R̂ is that of the nearest explored cell.
        wrong = np.median(np.abs(rise - slopes[:, axis])) / np.sqrt(np.mean(slopes[:, axis] ** 2))
        require(wrong < STEEPNESS, f"its gradient along axis {axis} is not the slope of its value")


def units_do_not_matter(case: FitCase) -> None:
    """Stretched points with gradients shrunk to match have the same R̂ and the same held-out error."""
    fit = case.added(case.begun()).fit()
    sums = case.begun(STRETCH)
    sums.add(STRETCH * case.points, case.gradients / STRETCH, case.held)
    stretched = sums.fit()
    require(case.apart(fit, stretched, STRETCH) < SAME, "R̂ depends on the units of the points")
    same = np.isclose(fit.held_out_error, stretched.held_out_error, rtol=SAME)
    require(bool(same), "its held_out_error depends on the units of the points")


def its_input_is_left_alone(case: FitCase) -> None:
    """It neither changes its input nor reads it after it was added."""
    expected = case.added(case.begun()).fit()
    handed = [case.points.copy(), case.gradients.copy(), case.held.copy()]
    sums = case.kind.begin(*handed, 0, None)
    sums.add(*handed)
    require(all(map(np.array_equal, handed, (case.points, case.gradients, case.held))), "it changes its input")
    if case.kind.streams:
        handed[0][:], handed[1][:] = np.nan, np.nan
        require(case.apart(sums.fit(), expected) < SAME, "it reads its input after it was added")


def a_file_holds_it(case: FitCase) -> None:
    """A potential that is packed into arrays and unpacked has the same values to the last bit."""
    fit = case.added(case.begun()).fit()
    again: Any = unpack(case.kind.potential, pack(fit))
    for name in ("value", "error", "explored"):
        same = equal(getattr(again, name)(case.places), getattr(fit, name)(case.places))
        require(same, f"its {name} differs after it was saved and loaded")
    require(again.settings == fit.settings, "its settings differ after it was saved and loaded")
    if case.kind.streams:
        sums = case.added(case.begun())
        loaded: Any = unpack(case.kind.sums, pack(sums))
        require({field.name for field in fields(loaded)} >= {"outside"}, "its sums do not save what fell outside")
        require(case.apart(loaded.fit(), fit) == 0, "its sums have another fit after they were saved and loaded")


FIT_CHECKS = (
    sums_of_parts_join,
    a_potential_is_a_reward,
    units_do_not_matter,
    its_input_is_left_alone,
    a_file_holds_it,
)
