"""Live: observations as they come, a reward at any time, in bounded memory.

Up to three dimensions everything that was seen is two sums over cosines (`field.cosine`): an update costs the same
however long the past, and with a forgetting rate γ an observation of age k weighs (1 − γ)^k. When learners leave the
box that the first ones set, the sums begin again with the last observations, which are kept. Above three dimensions
these are all there is: the last 7/γ of them, equally weighted, and the fit is made anew when it is asked for.

Whether the reward has jumped is watched all the time (`jump_watch`). With adaptive forgetting nothing is forgotten
until it has, and then everything that came before.
"""

from collections.abc import Callable, Hashable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from onlooker.check import as_places, check_share, check_whole, in_short
from onlooker.checkpoint import packed, read, write
from onlooker.field.ridge import fit_ridge
from onlooker.field.smooth import SmoothPotential, SmoothSums, begin_smooth
from onlooker.jump_watch import JumpWatch
from onlooker.methods.options import Options
from onlooker.methods.potential import from_potential
from onlooker.observe.jumps import Jump
from onlooker.observe.log import Log, open_log
from onlooker.observe.observation import Observations, observe
from onlooker.observe.quality import inspect
from onlooker.observe.recent import Recent
from onlooker.reconstruction import Potential, Reconstruction
from onlooker.reward.accumulate import effective_count, weight_left
from onlooker.store import pack, unpack
from onlooker.threads import one_thread

__all__ = ["Observer"]

METHODS = ("auto", "potential")
# Observations before there is an answer; the first ones set the units.
FIRST = 1000
# Observations are taken in by so many at a time: however they come, the same sums are made of the same rows.
BLOCK = 100
# Observations after a jump before there is an answer again, in up to three dimensions and above.
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
# Observations of a log between two checkpoints.
EVERY = 100_000


class _Waiting(NamedTuple):
    """Rows that are not yet a block, and whether their agents are held out: 1, 0, or −1 when nobody wrote them down."""

    points: np.ndarray
    gradients: np.ndarray
    held: np.ndarray


class _View(NamedTuple):
    """What was learnt when so many rows had been taken in; nothing in it changes any more."""

    taken: int
    recent: Recent
    sums: SmoothSums | None
    doubts: list[str]
    counts: dict[str, float]


@dataclass(eq=False, repr=False)
class Observer:
    """Watches learners and knows, at any time, the reward they climb.

    What it has learnt is its fields, which `save` writes and `load` reads. One thread may learn while others ask.

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

    Attributes
    ----------
    refused
        How many observations were, because a number in them was not finite.
    log, position, torn
        The log it has learnt from, how far, and shards of it that could not be read.

    Examples
    --------
    >>> points = np.random.default_rng(0).standard_normal((2000, 1))
    >>> live = Observer(dim=1, forgetting="adaptive")
    >>> live.learn_many(points, 1 - 2 * points)  # R = θ − θ²
    >>> high, low = live.reward([[0.5], [0.0]])
    >>> round(float(high - low), 3), live.seen, live.jumps
    (0.25, 2000, [])
    """

    dim: int
    method: str = "auto"
    chains: int = 256
    forgetting: float | str | None = None
    seed: int = 0
    refused: int = field(default=0, init=False)
    log: str = field(default="", init=False)
    position: str = field(default="", init=False)
    torn: tuple[str, ...] = field(default=(), init=False)
    _waiting: _Waiting = field(init=False)
    _taken: int = field(default=0, init=False)
    # Observations since the last jump, or all; and those that count, fewer when sums began again.
    _since: int = field(default=0, init=False)
    _counted: int = field(default=0, init=False)
    _begun_with: int = field(default=0, init=False)
    _by_agent: bool = field(default=True, init=False)
    _recent: Recent = field(init=False)
    _watch: JumpWatch = field(init=False)
    _sums: SmoothSums | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        check_whole(dim=self.dim, chains=self.chains)
        if self.method not in METHODS:
            raise ValueError(f"method is {self.method!r}; an Observer knows {' and '.join(METHODS)}.")
        try:
            check_share(forgetting=self._rate)
            known = not isinstance(self.forgetting, str) or self.forgetting == ADAPTIVE
        except ValueError:
            known = False
        if not known:
            raise ValueError(f"forgetting is {self.forgetting!r}; give a share between 0 and 1, {ADAPTIVE!r} or None.")
        most = KEPT[self._low]
        if self._rate is not None:
            # What weighs less than a thousandth is forgotten altogether.
            most = int(min(most, max(FIRST, 7 / self._rate)))
        nothing = np.zeros((0, self.dim))
        self._waiting = _Waiting(nothing, nothing, np.zeros(0, np.int8))
        self._recent = Recent(self.dim, most)
        self._watch = JumpWatch(self.dim)
        # Who reads a log, who learns, who changes what was learnt, who fits: in that order when several are held.
        self._reading, self._learning, self._changing, self._asking = RLock(), RLock(), RLock(), RLock()
        self._fit: tuple[int, Potential] | None = None
        self._result: tuple[int, Reconstruction] | None = None

    @property
    def _rate(self) -> float | None:
        return None if isinstance(self.forgetting, str) else self.forgetting

    @property
    def _low(self) -> bool:
        return self.dim <= 3

    @property
    def seen(self) -> int:
        """How many observations were taken in, or wait for the next to make a hundred."""
        return self._taken + len(self._waiting.points)

    def learn_one(self, point: Any, gradient: Any, agent: Hashable | None = None) -> None:
        """One observation: a point (dim,) and the ascent gradient there."""
        owner = None if agent is None else [str(agent)]
        self.learn_many(np.atleast_1d(np.asarray(point))[None], np.atleast_1d(np.asarray(gradient))[None], owner)

    def learn_many(self, points: Any, gradients: Any, agents: Any = None) -> None:
        """Observations (n, dim), in the order they were made; those with a NaN or an infinity are counted, refused.

        They are taken in by hundreds: what is known is the same, to the last bit, however they come.
        """
        if _holds_nothing(points, gradients):
            with self._learning:
                self.refused += len(np.atleast_1d(points))
            return
        new = observe(points, gradients, agents=agents)
        if new.dim != self.dim:
            raise ValueError(f"points has {new.dim} dimensions but the observer {self.dim}; give (n, {self.dim}).")
        rows = _Waiting(new.points.astype(float), new.gradients.astype(float), self._agents_held_out(new))
        with self._learning:
            self.refused += new.refused
            if len(self._waiting.points):
                rows = _Waiting(*(np.concatenate(parts) for parts in zip(self._waiting, rows, strict=True)))
            whole = len(rows.points) // BLOCK * BLOCK
            with one_thread():
                for first in range(0, whole, BLOCK):
                    with self._changing:
                        self._take(_Waiting(*(part[first : first + BLOCK] for part in rows)))
            self._waiting = _Waiting(*(part[whole:].copy() for part in rows))

    def learn_log(self, log: Any, *, checkpoint: Any = None, every: int = EVERY) -> int:
        """All that a log holds beyond what was learnt from it before; how many observations that was.

        Parameters
        ----------
        log
            A path, or what `open_log` made of one.
        checkpoint
            A file to save to after every so many observations, and at the end. After a crash, `load` it and learn the
            same log: what is known is the same, to the last bit, as without the crash.
        """
        log = log if isinstance(log, Log) else open_log(log)
        if self.log not in ("", log.name):
            raise ValueError(f"the observer has learnt from another log than {log.path}; make a new one for it.")
        if not log.has_gradients:
            raise ValueError(
                f"{log.path} holds iterates without gradients, which are read off whole runs: reconstruct it."
            )
        with self._reading:
            begun = saved = self.seen
            for rows, position in log.batches(after=self.position):
                with self._learning:
                    self.learn_many(rows.points, rows.gradients, rows.agents)
                    self.log, self.position = log.name, position
                    self._note_torn(log)
                if checkpoint is not None and self.seen - saved >= every:
                    self.save(checkpoint)
                    saved = self.seen
            self._note_torn(log)
            if checkpoint is not None:
                self.save(checkpoint)
            return self.seen - begun

    def _note_torn(self, log: Log) -> None:
        with self._learning:
            self.torn = tuple(sorted({*self.torn, *log.torn}))

    def save(self, path: Any) -> Path:
        """Write all that was learnt into one file, whole or not at all."""
        with self._learning:
            content = packed(pack(self))
        write(Path(path), "Observer", content)
        return Path(path)

    @classmethod
    def load(cls, path: Any) -> "Observer":
        """An observer that was saved; it goes on as if nothing had happened."""
        arrays = read(Path(path), "Observer")
        try:
            # Before room is made for so many.
            dims = {int(array) for name, array in arrays.items() if name.split("/")[-1] == "dim"}
            if dims != {arrays["_waiting/points"].shape[1]}:
                raise ValueError(f"its dimensions are {', '.join(map(str, sorted(dims)))}")
            live = unpack(cls, arrays)
            live._check_fields()
            return live
        except MemoryError:
            raise
        except Exception as error:
            # Whole, but made by somebody else: a field that is missing or strange can fail anywhere.
            raise ValueError(f"{path} does not hold what an Observer has learnt ({in_short(error)}).") from None

    def _check_fields(self) -> None:
        """That what was read is of one piece: as many gradients as points, of as many dimensions, and counts."""
        for points, gradients, held in (
            self._waiting,
            (self._recent.points, self._recent.gradients, self._recent.held),
        ):
            if not (points.shape == gradients.shape == (len(held), self.dim) and held.ndim == 1):
                raise ValueError(f"its rows are of shapes {points.shape}, {gradients.shape} and {held.shape}")
        if min(self._taken, self._since, self._counted, self._begun_with, self.refused) < 0:
            raise ValueError("it has counted fewer than no rows")

    def reward(self, x: Any) -> np.ndarray:
        """R̂ at x (n, dim), up to a constant; nan where no learner was, and everywhere just after a jump."""
        return self._where_known(x, lambda fit, points: fit.value(points))

    def reward_error(self, x: Any) -> np.ndarray:
        """Standard error of R̂ at x (n, dim), of its difference from R̂'s mean over the data; given the basis."""
        return self._where_known(x, lambda fit, points: fit.error(points))

    def potential(self, like: Potential | None = None) -> Potential:
        """The fitted reward itself, of all that was seen.

        In up to three dimensions a fit ``like`` an earlier one keeps its prior and its level of noise: it takes a tenth
        of the time, and is as good while the data are alike. Where learners have moved since, it is a whole fit.
        """
        if self._low and like is not None:
            return self._fitted(self._view(), like)
        with self._asking:
            return self._potential(self._view())

    def recent(self, most: int) -> np.ndarray:
        """Where learners were in the last so many observations, or as many as are kept: (n, dim)."""
        with self._changing:
            return self._recent.points[-most:].copy()

    @property
    def jumps(self) -> list[Jump]:
        """When the reward jumped: ``at`` so many observations, noticed when so many had been ``found``."""
        return list(self._watch.jumps)

    @property
    def effective_observations(self) -> float:
        """How many equally weighted observations R̂ is worth now, (Σw)²/Σw²."""
        with self._changing:
            return effective_count(*self._weights())

    @property
    def samples(self) -> np.ndarray:
        """(chain, draw, dim) of exp(R̂)."""
        return self.reconstruction().samples

    @property
    def warnings(self) -> list[str]:
        """Sentences that a user should read, about what was learnt so far."""
        return self.reconstruction().warnings

    def reconstruction(self) -> Reconstruction:
        """All that `reconstruct` would say: samples, diagnostics, warnings, pictures, a file."""
        with self._asking:
            if self._result is None or self._result[0] != self._taken:
                view = self._view()
                seen = Observations(view.recent.points, view.recent.gradients, None, None, self.refused, ())
                fit = self._potential(view)
                checked, doubts = inspect(seen)
                options = Options(1.0, self.chains, self.seed)
                found = from_potential(fit, checked, [*doubts, *view.doubts], options, 0.0)
                self._result = view.taken, replace(found, diagnostics={**found.diagnostics, **view.counts})
            return self._result[1]

    def _take(self, new: _Waiting) -> None:
        """A block of rows."""
        points, gradients, _ = new
        count = len(points)
        by_agent = (new.held >= 0) & self._by_agent
        held = np.where(by_agent, new.held == 1, self._stretches(self._taken, count))
        self._taken += count
        self._since += count
        self._counted += count
        self._recent.add(points, gradients, held)
        jumps = self._watch.learn(points, gradients)
        if jumps and self.forgetting == ADAPTIVE:
            self._since = self._taken - jumps[-1].at
            self._recent.cut(self._since)
            self._counted = self._since
            self._sums, self._begun_with = None, 0
        if not self._low:
            return
        if self._sums is not None:
            left = weight_left(self._rate, np.arange(count, -1, -1.0))
            self._sums.forget(1 - left[0])
            self._sums.add(points, gradients, held, left[1:])
        if self._taken % FIRST == 0 and self._since >= AFTER_JUMP[True] and (self._outgrown() or self._doubled()):
            held = _split(self._recent.held)
            if len(held) >= FIRST and (held != self._recent.held).any():
                # Few agents, all or none of them held out: stretches of rows, from now on.
                self._by_agent = False
            self._recent.held[:] = held
            self._sums, self._begun_with = self._begin(self._recent), self._since
            self._counted = len(held)

    def _outgrown(self) -> bool:
        sums = self._sums
        return sums is None or sums.outside > MOST_OUTSIDE * (sums.train.count + sums.held.count)

    def _doubled(self) -> bool:
        """Whether all that counts is still kept, and is twice what the sums were begun with."""
        return 2 * self._begun_with <= self._since == len(self._recent)

    def _begin(self, recent: Recent) -> SmoothSums | None:
        """Sums in the units, and over the box, of the observations that are kept; none if these never move."""
        points, gradients, held = recent.points, recent.gradients, recent.held
        if not np.ptp(points, axis=0).all():
            return None
        sums = begin_smooth(points, gradients, held, self.seed)
        ages = np.arange(len(held) - 1, -1, -1.0)
        sums.add(points, gradients, held, weight_left(self._rate, ages))
        return sums

    def _where_known(self, x: Any, answer: Callable[[Potential, np.ndarray], np.ndarray]) -> np.ndarray:
        points = as_places(x, self.dim)
        with self._asking:
            with self._changing:
                if self._just_jumped():
                    return np.full(len(points), np.nan)
                known = self._fit is not None and self._fit[0] == self._taken
                view = None if known else self._view()
            fit = self._potential(view)
        return np.where(fit.explored(points), answer(fit, points), np.nan)

    def _view(self) -> _View:
        """A copy of what was learnt, to be looked at while learning goes on."""
        with self._changing:
            self._check_enough()
            counts = {
                "observations": self._taken,
                "effective_observations": effective_count(*self._weights()),
                "jumps": self._watch.count,
            }
            return _View(self._taken, self._recent.copy(), deepcopy(self._sums), self._own_doubts(), counts)

    def _check_enough(self) -> None:
        if self._taken < FIRST:
            raise ValueError(f"the observer has seen {self.seen} observations; it needs {FIRST} before it answers.")
        if self._just_jumped():
            raise ValueError(
                f"the reward has jumped and the observer has seen {self._since} observations since; it needs "
                f"{AFTER_JUMP[self._low]} before it answers."
            )

    def _potential(self, view: _View | None) -> Potential:
        """The fit to what was learnt, or the last one."""
        if view is not None and (self._fit is None or self._fit[0] != view.taken):
            self._fit = view.taken, self._fitted(view)
        assert self._fit is not None
        return self._fit[1]

    def _fitted(self, view: _View, like: Potential | None = None) -> Potential:
        recent, sums = view.recent, view.sums
        movement = np.ptp(recent.points, axis=0)
        if not movement.all():
            raise ValueError(f"points never move along coordinate {int(np.argmin(movement))}; leave it out.")
        recent.held[:] = _split(recent.held)
        if sums is None and self._low:
            sums = self._begin(recent)
        if sums is None:
            return fit_ridge(recent.points, recent.gradients, recent.held, self.seed)
        return sums.fit(like if isinstance(like, SmoothPotential) else None)

    def _just_jumped(self) -> bool:
        return self._taken >= FIRST and self._since < AFTER_JUMP[self._low]

    def _own_doubts(self) -> list[str]:
        """What to say of torn shards, and of jumps that R̂ still remembers."""
        doubts = [f"{len(self.torn)} shards of the log are torn and were skipped."] if self.torn else []
        if self.forgetting == ADAPTIVE and not self._watch.watching:
            doubts.append(
                "jumps of the reward would not be noticed now: learners have moved to where no gradient can be "
                "predicted, or their rows are too much alike. Watch more learners at a time, or for longer."
            )
        if not self._watch.jumps or self.forgetting == ADAPTIVE:
            return doubts
        ago = self._taken - self._watch.jumps[-1].at
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

    def _agents_held_out(self, new: Observations) -> np.ndarray:
        """Which rows are held out, 1, because their agents are, known by their names; −1 if nobody wrote these down."""
        if new.agents is None:
            return np.full(len(new), -1, np.int8)
        names, which = np.unique(new.agents, return_inverse=True)
        chosen = np.array([crc32(f"{self.seed}/{name!s}".encode()) % HELD_OUT == 0 for name in names])
        return chosen[which].astype(np.int8)

    def _stretches(self, first: int, count: int) -> np.ndarray:
        # Short enough for several to be remembered at any time.
        length = STRETCH if self._rate is None else max(1, min(STRETCH, int(0.1 / self._rate)))
        return (first + np.arange(count)) // length % HELD_OUT == HELD_OUT - 1


def _split(held: np.ndarray) -> np.ndarray:
    """Which of the rows that are kept are held out: as they came or, where that is all or none, stretches."""
    if 0.02 < held.mean() < 0.6:
        return held
    return np.arange(len(held)) * HELD_OUT**2 // len(held) % HELD_OUT == HELD_OUT - 1


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
