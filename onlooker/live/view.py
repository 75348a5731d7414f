"""What an Observer had learnt at one moment, to be fitted while it goes on learning."""

from typing import Any, NamedTuple

import numpy as np

from onlooker.core.forgetting import weight_left
from onlooker.core.messages import Message
from onlooker.data.buffer import Recent
from onlooker.data.quality import Limits, usual_limits
from onlooker.fit.potential import Potential, begin
from onlooker.fit.sums import Sums
from onlooker.live.rows import split

__all__ = ["View", "begun"]


def begun(recent: Recent, limits: Limits, seed: int, rate: float | None) -> Sums | None:
    """Sums in the units, and over the box, of the kept observations within limits; none if these never move."""
    usual = limits.hold(recent.points, recent.gradients)
    points, gradients, held = recent.points[usual], recent.gradients[usual], recent.held[usual]
    if not np.ptp(points, axis=0).all():
        return None
    sums = begin(points, gradients, held, seed)
    ages = np.arange(len(usual) - 1, -1, -1.0)[usual]
    sums.add(points, gradients, held, weight_left(rate, ages))
    return sums


class View(NamedTuple):
    """A copy of what was learnt when so many rows had been taken in; nobody else changes it."""

    taken: int
    recent: Recent
    sums: Sums | None
    warnings: list[Message]
    counts: dict[str, float]

    def fit(self, seed: int, rate: float | None, like: Any = None) -> Potential:
        """The reward, ``like`` an earlier fit if there is one."""
        recent = self.recent
        movement = np.ptp(recent.points, axis=0)
        if not movement.all():
            raise ValueError(f"points never move along coordinate {int(np.argmin(movement))}; leave it out.")
        recent.held[:] = split(recent.held, seed)
        sums = self.sums or begun(recent, usual_limits(recent.points, recent.gradients), seed, rate)
        if sums is None:
            raise ValueError("points move along a coordinate only where learners ran away; leave it out.")
        return sums.fit(like)
