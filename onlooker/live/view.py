"""A copy of an Observer's state, which can be fitted while the Observer learns."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from onlooker.core.forgetting import weight_left
from onlooker.core.messages import Message
from onlooker.data.buffer import Recent
from onlooker.data.observations import Observations
from onlooker.data.quality import Limits, inspect, usual_limits
from onlooker.data.updates import about_updates
from onlooker.fit.potential import Potential, begin
from onlooker.fit.sums import Sums
from onlooker.live.rows import split
from onlooker.reconstruction.by_potential import from_potential
from onlooker.reconstruction.options import Options
from onlooker.reconstruction.result import Reconstruction

__all__ = ["View", "begin_sums"]


def begin_sums(recent: Recent, limits: Limits, seed: int, rate: float | None) -> Sums | None:
    """Sums over the kept observations within limits, whose units and box they set.

    Returns None if these observations are all equal along a coordinate.

    Parameters
    ----------
    recent
        The kept observations.
    limits
        Observations beyond these limits are left out.
    seed
        Seed of the sums.
    rate
        Forgetting rate, by which earlier observations have less weight.
    """
    usual = limits.hold(recent.points, recent.gradients)
    points, gradients, held = recent.points[usual], recent.gradients[usual], recent.held[usual]
    if not np.ptp(points, axis=0).all():
        return None
    sums = begin(points, gradients, held, seed, agents=recent.known_agents(usual))
    ages = np.arange(len(usual) - 1, -1, -1.0)[usual]
    sums.add(points, gradients, held, weight_left(rate, ages))
    return sums


class View(NamedTuple):
    """A copy of an Observer's state, which the Observer does not change.

    Attributes
    ----------
    taken
        Number of observations that had been taken in.
    rejected
        Number of observations that had been rejected.
    recent
        The kept observations.
    sums
        The sums; None if there are none, because the fit has no sums or they have not begun.
    warnings
        The Observer's own warnings.
    counts
        Diagnostics that the Observer adds to a result.
    """

    taken: int
    rejected: int
    recent: Recent
    sums: Sums | None
    warnings: list[Message]
    counts: dict[str, float]

    def fit(self, seed: int, rate: float | None, like: Any = None) -> Potential:
        """Fit the reward.

        Parameters
        ----------
        seed
            The Observer's seed.
        rate
            The Observer's forgetting rate.
        like
            An earlier fit whose prior is used again.
        """
        recent = self.recent
        movement = np.ptp(recent.points, axis=0)
        if not movement.all():
            raise ValueError(f"points never move along coordinate {int(np.argmin(movement))}; leave it out.")
        recent.held[:] = split(recent.held, seed)
        sums = self.sums or begin_sums(recent, usual_limits(recent.points, recent.gradients), seed, rate)
        if sums is None:
            raise ValueError("points move along a coordinate only where learners ran away; leave it out.")
        fit = sums.fit(like)
        return fit.judged(recent.points, recent.gradients, recent.known_agents(), seed)

    def result(self, fit: Potential, options: Options, said: set[str]) -> Reconstruction:
        """The result of a fit to this view.

        Parameters
        ----------
        fit
            The fit.
        options
            Settings of the result.
        said
            Codes of warnings that are not raised again when its samples are drawn.
        """
        recent = self.recent
        seen = Observations(recent.points, recent.gradients, recent.known_agents(), None, self.rejected, ())
        checked, warnings = inspect(seen)
        numbers, updates = about_updates(checked)
        result = from_potential(fit, checked, [*warnings, *updates, *self.warnings], options, 0.0)
        found = result.found._replace(diagnostics={**result.found.diagnostics, **numbers, **self.counts})
        return replace(result, found=found, draws=replace(result.draws, said=said))
