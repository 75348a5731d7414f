"""Live: observations as they come, a reward at any time, in bounded memory.

Up to three dimensions everything that was seen is two sums over cosines (`field.cosine`): an update costs the same
however long the past, and with a forgetting rate γ an observation of age k weighs (1 − γ)^k. When learners leave the
box that the first ones set, the sums begin again with the last observations, which are kept. Above three dimensions
these are all there is: the last 7/γ of them, equally weighted, and the fit is made anew when it is asked for.
"""

from collections.abc import Hashable
from dataclasses import replace
from typing import Any
from zlib import crc32

import numpy as np

from onlooker.check import as_places, check_whole
from onlooker.field.ridge import fit_ridge
from onlooker.field.smooth import SmoothSums, begin_smooth
from onlooker.methods.options import Options
from onlooker.methods.potential import from_potential
from onlooker.observe.observation import Observations, observe
from onlooker.observe.quality import inspect
from onlooker.reconstruction import Potential, Reconstruction

__all__ = ["Observer"]

METHODS = ("auto", "potential")
# Observations before there is an answer; the first ones set the units.
FIRST = 1000
# Observations kept as such: to begin again with when learners leave the box, and all there is above three dimensions.
KEPT = {True: 20_000, False: 200_000}
# The share of recent observations outside the box that makes it too small.
MOST_OUTSIDE = 0.02
# One agent in five is held out, or one stretch of as many rows where nobody wrote down whose they are.
HELD_OUT = 5
STRETCH = 200


class Observer:
    """Watches learners and knows, at any time, the reward they climb.

    Parameters
    ----------
    dim
        Dimension of the points.
    method
        "auto" or "potential".
    chains
        How many chains of samples.
    forgetting
        γ: the share of its weight that an observation loses with every later one; by default none.
    seed
        Of everything random.
    """

    def __init__(
        self, dim: int, method: str = "auto", chains: int = 256, forgetting: float | None = None, seed: int = 0
    ) -> None:
        check_whole(dim=dim, chains=chains)
        if method not in METHODS:
            raise ValueError(f"method is {method!r}; an Observer knows {' and '.join(METHODS)}.")
        if forgetting is not None and not 0 < forgetting < 1:
            raise ValueError(f"forgetting is {forgetting}; give a share between 0 and 1, or None.")
        self.dim, self.method, self.chains, self.forgetting, self.seed = dim, method, chains, forgetting, seed
        self.seen = 0
        self.refused = 0
        self._low = dim <= 3
        self._by_agent = True
        self._points, self._gradients = (np.zeros((0, dim)) for _ in range(2))
        self._held = np.zeros(0, bool)
        self._sums: SmoothSums | None = None
        self._fit: Potential | None = None
        self._result: Reconstruction | None = None

    def learn_one(self, point: Any, gradient: Any, agent: Hashable | None = None) -> None:
        """One observation: a point (dim,) and the ascent gradient there."""
        owner = None if agent is None else [str(agent)]
        self.learn_many(np.asarray(point)[None], np.asarray(gradient)[None], owner)

    def learn_many(self, points: Any, gradients: Any, agents: Any = None) -> None:
        """Observations (n, dim), in the order they were made; those with a NaN or an infinity are counted, refused."""
        if _holds_nothing(points, gradients):
            self.refused += len(np.atleast_1d(points))
            return
        new = observe(points, gradients, agents=agents)
        if new.dim != self.dim:
            raise ValueError(f"points has {new.dim} dimensions but the observer {self.dim}; give (n, {self.dim}).")
        self.refused += new.refused
        held = self._held_out(new)
        # In blocks that end at the same rows however they come.
        ends = np.arange(self.seen + FIRST - self.seen % FIRST, self.seen + len(new), FIRST) - self.seen
        for first, last in zip([0, *ends], [*ends, len(new)], strict=True):
            rows = slice(first, last)
            self._learn(new.points[rows].astype(float), new.gradients[rows].astype(float), held[rows])
        self._fit = self._result = None

    def reward(self, x: Any) -> np.ndarray:
        """R̂ at x (n, dim), up to a constant; nan where no learner was."""
        points = as_places(x, self.dim)
        fit = self._potential()
        return np.where(fit.explored(points), fit.value(points), np.nan)

    def reward_error(self, x: Any) -> np.ndarray:
        """Standard error of R̂ at x (n, dim), of its difference from R̂'s mean over the data; given the basis."""
        points = as_places(x, self.dim)
        fit = self._potential()
        return np.where(fit.explored(points), fit.error(points), np.nan)

    @property
    def samples(self) -> np.ndarray:
        """(chain, draw, dim) of exp(R̂)."""
        return self.reconstruction().samples

    @property
    def warnings(self) -> list[str]:
        return self.reconstruction().warnings

    def reconstruction(self) -> Reconstruction:
        """All that `reconstruct` would say: samples, diagnostics, warnings, pictures, a file."""
        if self._result is None:
            fit = self._potential()
            recent = Observations(self._points, self._gradients, None, None, self.refused, ())
            checked, doubts = inspect(recent)
            options = Options(1.0, self.chains, self.seed)
            found = from_potential(fit, checked, doubts, options, 0.0)
            self._result = replace(found, diagnostics={**found.diagnostics, "observations": self.seen})
        return self._result

    def _learn(self, points: np.ndarray, gradients: np.ndarray, held: np.ndarray) -> None:
        """Rows that do not go beyond a multiple of FIRST."""
        count = len(points)
        self.seen += count
        most = KEPT[self._low]
        if self.forgetting is not None:
            # What weighs less than a thousandth is forgotten altogether.
            most = min(most, max(FIRST, int(7 / self.forgetting)))
        self._points, self._gradients, self._held = (
            np.concatenate([old, new])[-most:]
            for old, new in ((self._points, points), (self._gradients, gradients), (self._held, held))
        )
        if not self._low:
            return
        if self._sums is not None:
            self._sums.forget(1 - self._keep**count)
            self._sums.add(points, gradients, held, self._keep ** np.arange(count - 1, -1, -1.0))
        if self.seen % FIRST == 0 and self._outgrown():
            self._begin()

    @property
    def _keep(self) -> float:
        """What is left of an observation's weight after the next one."""
        return 1.0 if self.forgetting is None else 1 - self.forgetting

    def _outgrown(self) -> bool:
        sums = self._sums
        return sums is None or sums.outside > MOST_OUTSIDE * (sums.train.count + sums.held.count)

    def _begin(self) -> None:
        """Sums in the units, and over the box, of the observations that are kept."""
        if not np.ptp(self._points, axis=0).all():
            return
        held = self._held
        if not 0.02 < held.mean() < 0.6:
            # Few agents, all or none of them held out: stretches of rows, from now on.
            self._by_agent = False
            held = self._held = self._stretches(self.seen - len(self._points), len(self._points))
        self._sums = begin_smooth(self._points, self._gradients, held, self.seed)
        age = np.arange(len(self._points) - 1, -1, -1.0)
        self._sums.add(self._points, self._gradients, held, self._keep**age)

    def _potential(self) -> Potential:
        if self.seen < FIRST:
            raise ValueError(f"the observer has seen {self.seen} observations; it needs {FIRST} before it answers.")
        if self._fit is None:
            if not np.ptp(self._points, axis=0).all():
                flat = int(np.argmin(np.ptp(self._points, axis=0)))
                raise ValueError(f"points never move along coordinate {flat}; leave it out.")
            if self._low and self._sums is None:
                self._begin()
            if self._sums is not None:
                self._fit = self._sums.fit()
            else:
                self._fit = fit_ridge(self._points, self._gradients, self._held, self.seed)
        return self._fit

    def _held_out(self, new: Observations) -> np.ndarray:
        """Whole agents, known by their names, or stretches of rows."""
        if new.agents is None or not self._by_agent:
            return self._stretches(self.seen, len(new))
        names, which = np.unique(new.agents, return_inverse=True)
        chosen = np.array([crc32(f"{self.seed}/{name}".encode()) % HELD_OUT == 0 for name in names])
        return chosen[which]

    def _stretches(self, first: int, count: int) -> np.ndarray:
        # Short enough for several to be remembered at any time.
        length = STRETCH if self.forgetting is None else max(1, min(STRETCH, int(0.1 / self.forgetting)))
        return (first + np.arange(count)) // length % HELD_OUT == HELD_OUT - 1


def _holds_nothing(points: Any, gradients: Any) -> bool:
    """Whether there is no finite row among them."""
    try:
        rows = [np.asarray(part, dtype=float) for part in (points, gradients)]
    except (TypeError, ValueError):
        return False
    if rows[0].ndim != 2 or rows[0].shape != rows[1].shape or not rows[0].size:
        return False
    return not np.isfinite(np.concatenate(rows, axis=1)).all(axis=1).any()
