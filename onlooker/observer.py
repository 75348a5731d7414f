"""Live: observations as they come, a reward at any time, in bounded memory.

Up to three dimensions everything that was seen is two sums over cosines (`field.cosine`): an update costs the same
however long the past, and with a forgetting rate γ an observation of age k weighs (1 − γ)^k. When learners leave the
box that the first ones set, the sums begin again with the last observations, which are kept. Above three dimensions
these are all there is: the last 7/γ of them, equally weighted, and the fit is made anew when it is asked for.

Whether the reward has jumped is watched all the time (`jump_watch`). With adaptive forgetting nothing is forgotten
until it has, and then everything that came before.
"""

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any
from zlib import crc32

import numpy as np

from onlooker.check import as_places, check_share, check_whole
from onlooker.field.ridge import fit_ridge
from onlooker.field.smooth import SmoothSums, begin_smooth
from onlooker.jump_watch import JumpWatch
from onlooker.methods.options import Options
from onlooker.methods.potential import from_potential
from onlooker.observe.jumps import Jump
from onlooker.observe.observation import Observations, observe
from onlooker.observe.quality import inspect
from onlooker.observe.recent import Recent
from onlooker.reconstruction import Potential, Reconstruction
from onlooker.reward.accumulate import effective_count, weight_left

__all__ = ["Observer"]

METHODS = ("auto", "potential")
# Observations before there is an answer; the first ones set the units.
FIRST = 1000
# Observations after a jump before there is one again, in up to three dimensions and above.
AFTER_JUMP = {True: 200, False: FIRST}
ADAPTIVE = "adaptive"
# Observations kept as such: to begin again with when learners leave the box, and all there is above three dimensions.
KEPT = {True: 20_000, False: 200_000}
# The share of recent observations outside the box that makes it too small.
MOST_OUTSIDE = 0.02
# The weight left of what came before a jump that is worth saying.
WORTH_SAYING = 0.05
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
        γ: the share of its weight that an observation loses with every later one; by default none. Or "adaptive":
        none until the reward is found to have jumped, then all that came before.
    seed
        Of everything random.
    """

    def __init__(
        self, dim: int, method: str = "auto", chains: int = 256, forgetting: float | str | None = None, seed: int = 0
    ) -> None:
        check_whole(dim=dim, chains=chains)
        if method not in METHODS:
            raise ValueError(f"method is {method!r}; an Observer knows {' and '.join(METHODS)}.")
        self._rate = None if isinstance(forgetting, str) else forgetting
        try:
            check_share(forgetting=self._rate)
            known = not isinstance(forgetting, str) or forgetting == ADAPTIVE
        except ValueError:
            known = False
        if not known:
            raise ValueError(f"forgetting is {forgetting!r}; give a share between 0 and 1, {ADAPTIVE!r} or None.")
        self.dim, self.method, self.chains, self.forgetting, self.seed = dim, method, chains, forgetting, seed
        self.seen = 0
        self.refused = 0
        self._low = dim <= 3
        self._by_agent = True
        most = KEPT[self._low]
        if self._rate is not None:
            # What weighs less than a thousandth is forgotten altogether.
            most = int(min(most, max(FIRST, 7 / self._rate)))
        self._recent = Recent(dim, most)
        self._watch = JumpWatch(dim)
        # Observations since the last jump, or all; and those that count, fewer when sums began again.
        self._since = 0
        self._counted = 0
        self._begun_with = 0
        self._sums: SmoothSums | None = None
        self._fit: Potential | None = None
        self._result: Reconstruction | None = None

    def learn_one(self, point: Any, gradient: Any, agent: Hashable | None = None) -> None:
        """One observation: a point (dim,) and the ascent gradient there."""
        owner = None if agent is None else [str(agent)]
        self.learn_many(np.atleast_1d(np.asarray(point))[None], np.atleast_1d(np.asarray(gradient))[None], owner)

    def learn_many(self, points: Any, gradients: Any, agents: Any = None) -> None:
        """Observations (n, dim), in the order they were made; those with a NaN or an infinity are counted, refused."""
        if _holds_nothing(points, gradients):
            self.refused += len(np.atleast_1d(points))
            return
        new = observe(points, gradients, agents=agents)
        if new.dim != self.dim:
            raise ValueError(f"points has {new.dim} dimensions but the observer {self.dim}; give (n, {self.dim}).")
        self.refused += new.refused
        by_agent = self._agents_held_out(new)
        # In blocks that end at the same rows however they come.
        ends = np.arange(self.seen + FIRST - self.seen % FIRST, self.seen + len(new), FIRST) - self.seen
        for first, last in zip([0, *ends], [*ends, len(new)], strict=True):
            rows = slice(first, last)
            if by_agent is not None and self._by_agent:
                held = by_agent[rows]
            else:
                held = self._stretches(self.seen, last - first)
            self._learn(new.points[rows].astype(float), new.gradients[rows].astype(float), held)
        self._fit = self._result = None

    def reward(self, x: Any) -> np.ndarray:
        """R̂ at x (n, dim), up to a constant; nan where no learner was, and everywhere just after a jump."""
        return self._where_known(x, lambda fit, points: fit.value(points))

    def reward_error(self, x: Any) -> np.ndarray:
        """Standard error of R̂ at x (n, dim), of its difference from R̂'s mean over the data; given the basis."""
        return self._where_known(x, lambda fit, points: fit.error(points))

    @property
    def jumps(self) -> list[Jump]:
        """When the reward jumped: ``at`` so many observations, noticed when so many had been ``found``."""
        return list(self._watch.jumps)

    @property
    def effective_observations(self) -> float:
        """How many equally weighted observations R̂ is worth now, (Σw)²/Σw²."""
        return effective_count(*self._weights())

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
            jumped = self._about_jumps()
            recent = Observations(self._recent.points, self._recent.gradients, None, None, self.refused, ())
            checked, doubts = inspect(recent)
            options = Options(1.0, self.chains, self.seed)
            found = from_potential(fit, checked, [*doubts, *jumped], options, 0.0)
            counts = {
                "observations": self.seen,
                "effective_observations": self.effective_observations,
                "jumps": self._watch.count,
            }
            self._result = replace(found, diagnostics={**found.diagnostics, **counts})
        return self._result

    def _learn(self, points: np.ndarray, gradients: np.ndarray, held: np.ndarray) -> None:
        """Rows that do not go beyond a multiple of FIRST."""
        count = len(points)
        self.seen += count
        self._since += count
        self._counted += count
        self._recent.add(points, gradients, held)
        jumps = self._watch.learn(points, gradients)
        if jumps and self.forgetting == ADAPTIVE:
            self._since = self.seen - jumps[-1].at
            self._recent.cut(self._since)
            self._counted = self._since
            self._sums, self._begun_with = None, 0
        if not self._low:
            return
        if self._sums is not None:
            left = weight_left(self._rate, np.arange(count, -1, -1.0))
            self._sums.forget(1 - left[0])
            self._sums.add(points, gradients, held, left[1:])
        if self.seen % FIRST == 0 and self._since >= AFTER_JUMP[True] and (self._outgrown() or self._doubled()):
            held = self._split()
            if len(held) >= FIRST and (held != self._recent.held).any():
                # Few agents, all or none of them held out: stretches of rows, from now on.
                self._by_agent = False
            self._recent.held[:] = held
            self._sums, self._begun_with = self._begin(held), self._since
            self._counted = len(held)

    def _outgrown(self) -> bool:
        sums = self._sums
        return sums is None or sums.outside > MOST_OUTSIDE * (sums.train.count + sums.held.count)

    def _doubled(self) -> bool:
        """Whether all that counts is still kept, and is twice what the sums were begun with."""
        return 2 * self._begun_with <= self._since == len(self._recent)

    def _begin(self, held: np.ndarray) -> SmoothSums | None:
        """Sums in the units, and over the box, of the observations that are kept; none if these never move."""
        if not np.ptp(self._recent.points, axis=0).all():
            return None
        sums = begin_smooth(self._recent.points, self._recent.gradients, held, self.seed)
        ages = np.arange(len(held) - 1, -1, -1.0)
        sums.add(self._recent.points, self._recent.gradients, held, weight_left(self._rate, ages))
        return sums

    def _split(self) -> np.ndarray:
        """Which of the rows that are kept are held out: as they came or, where that is all or none, stretches."""
        if 0.02 < self._recent.held.mean() < 0.6:
            return self._recent.held
        count = len(self._recent)
        return np.arange(count) * HELD_OUT**2 // count % HELD_OUT == HELD_OUT - 1

    def _where_known(self, x: Any, answer: Callable[[Potential, np.ndarray], np.ndarray]) -> np.ndarray:
        points = as_places(x, self.dim)
        if self._just_jumped():
            return np.full(len(points), np.nan)
        fit = self._potential()
        return np.where(fit.explored(points), answer(fit, points), np.nan)

    def _just_jumped(self) -> bool:
        return self.seen >= FIRST and self._since < AFTER_JUMP[self._low]

    def _about_jumps(self) -> list[str]:
        """What to say of jumps that R̂ still remembers."""
        doubts = []
        if self.forgetting == ADAPTIVE and not self._watch.watching:
            doubts.append(
                "jumps of the reward would not be noticed now: learners have moved to where no gradient can be "
                "predicted, or their rows are too much alike. Watch more learners at a time, or for longer."
            )
        if not self._watch.jumps or self.forgetting == ADAPTIVE:
            return doubts
        ago = self.seen - self._watch.jumps[-1].at
        rate, count = self._weights()
        # Σ(1 − γ)^k over what came since, and over all that counts.
        since, everything = (_total_weight(rate, rows) for rows in (min(ago, count), count))
        before = 1 - since / everything
        if before < WORTH_SAYING:
            return doubts
        return [
            *doubts,
            f"the reward jumped {ago} observations ago, and {100 * before:.0f} % of what R̂ is made from came before: "
            f"it is a mixture of rewards. Use forgetting={ADAPTIVE!r}.",
        ]

    def _weights(self) -> tuple[float | None, int]:
        """The forgetting rate of what R̂ is made from, and how many observations that is."""
        return (self._rate, self._counted) if self._low else (None, len(self._recent))

    def _potential(self) -> Potential:
        if self.seen < FIRST:
            raise ValueError(f"the observer has seen {self.seen} observations; it needs {FIRST} before it answers.")
        if self._just_jumped():
            raise ValueError(
                f"the reward has jumped and the observer has seen {self._since} observations since; it needs "
                f"{AFTER_JUMP[self._low]} before it answers."
            )
        if self._fit is None:
            if not np.ptp(self._recent.points, axis=0).all():
                flat = int(np.argmin(np.ptp(self._recent.points, axis=0)))
                raise ValueError(f"points never move along coordinate {flat}; leave it out.")
            sums = self._sums or (self._begin(self._split()) if self._low else None)
            if sums is not None:
                self._fit = sums.fit()
            else:
                self._fit = fit_ridge(self._recent.points, self._recent.gradients, self._split(), self.seed)
        return self._fit

    def _agents_held_out(self, new: Observations) -> np.ndarray | None:
        """Which rows are held out because their agents are, known by their names; none if nobody wrote these down."""
        if new.agents is None:
            return None
        names, which = np.unique(new.agents, return_inverse=True)
        chosen = np.array([crc32(f"{self.seed}/{name}".encode()) % HELD_OUT == 0 for name in names])
        return chosen[which]

    def _stretches(self, first: int, count: int) -> np.ndarray:
        # Short enough for several to be remembered at any time.
        length = STRETCH if self._rate is None else max(1, min(STRETCH, int(0.1 / self._rate)))
        return (first + np.arange(count)) // length % HELD_OUT == HELD_OUT - 1


def _total_weight(rate: float | None, count: int) -> float:
    return float(count) if rate is None else (1 - float(weight_left(rate, count))) / rate


def _holds_nothing(points: Any, gradients: Any) -> bool:
    """Whether there is no finite row among them."""
    try:
        rows = [np.asarray(part, dtype=float) for part in (points, gradients)]
    except (TypeError, ValueError):
        return False
    if rows[0].ndim != 2 or rows[0].shape != rows[1].shape or not rows[0].size:
        return False
    return not np.isfinite(np.concatenate(rows, axis=1)).all(axis=1).any()
