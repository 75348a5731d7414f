"""Live: observations as they come, a reward at any time, in bounded memory.

Where the fit has sums of constant size (`onlooker.fit.sums`), everything that was seen is in them: an update costs the
same however long the past, and with a forgetting rate γ an observation of age k weighs (1 − γ)^k. When learners leave
the box that the first ones set, the sums begin again with the last observations, which are kept. Where it has none,
these are all there is: the last 7/γ of them, equally weighted, and the fit is recomputed when it is asked for.

Whether the reward has jumped is watched all the time (`fit.jumps`). With adaptive forgetting nothing is forgotten
until it has, and then everything that came before.
"""

import warnings
from collections.abc import Callable, Hashable, Iterable
from copy import deepcopy
from dataclasses import InitVar, dataclass, field, replace
from pathlib import Path
from threading import RLock
from typing import Any, cast

import numpy as np

from onlooker.core.blas import one_thread
from onlooker.core.forgetting import effective_count, weight_left
from onlooker.core.messages import Message, deliver
from onlooker.core.settings import as_places, check_share, check_whole
from onlooker.data.log.reader import Log, open_log
from onlooker.data.log.tail import Batch, available, check_same_log
from onlooker.data.observations import Observations, observe
from onlooker.data.quality import Limits, inspect, usual_limits
from onlooker.fit.jumps.detector import JumpDetector, OtherDetector
from onlooker.fit.jumps.statistic import Jump
from onlooker.fit.jumps.watch import JumpWatch, as_detector
from onlooker.fit.potential import Potential, kind_for
from onlooker.fit.sums import FitKind, Sums
from onlooker.live.rows import Block, Rows
from onlooker.live.saved import loaded
from onlooker.live.view import View, begun
from onlooker.live.warnings import about_log, before_jump, jumps_unseen
from onlooker.reconstruction.by_potential import from_potential
from onlooker.reconstruction.options import Options
from onlooker.reconstruction.result import Reconstruction
from onlooker.storage.state_file import packed, write
from onlooker.storage.trees import pack

__all__ = ["Observer"]

# Observations before there is an answer; the first ones set the units.
FIRST = 1000
ADAPTIVE = "adaptive"
# The share of recent observations outside the box that makes it too small.
MOST_OUTSIDE = 0.02
# Observations of a log between two checkpoints.
EVERY = 100_000


@dataclass(eq=False, repr=False)
class Observer:
    """Watches learners and knows, at any time, the reward they climb.

    What it has learnt is its fields, which `save` writes and `load` reads. One thread may learn while others ask.

    Parameters
    ----------
    dim
        Dimension of the points.
    chains
        How many chains of samples.
    forgetting
        γ: the share of its weight that an observation loses with every later one; by default none. Or "adaptive":
        none until the reward is found to have jumped, then all that came before.
    seed
        Of everything random.
    detector
        What notices jumps, in place of ``JumpWatch(dim)``: a `JumpWatch` with other settings, or any object with
        ``update(points, gradients)`` and ``jump_detected`` (`onlooker.fit.jumps.detector`). Of one of another kind
        `save` keeps the jumps that it found, not the detector: `load` must be given one to go on with.
    method
        Not used any more.

    Attributes
    ----------
    refused
        The number of observations rejected because they contain a NaN or an infinity.
    log
        The name of the log it has learnt from.
    position
        How far it has read that log.
    torn
        Shards of the log that could not be read.

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
    chains: int = 256
    forgetting: float | str | None = None
    seed: int = 0
    detector: InitVar[JumpDetector | None] = None
    method: InitVar[str | None] = None
    refused: int = field(default=0, init=False)
    log: str = field(default="", init=False)
    position: str = field(default="", init=False)
    torn: tuple[str, ...] = field(default=(), init=False)
    # Observations since the last jump, or all; and those that count, fewer when sums began again.
    _since: int = field(default=0, init=False)
    _counted: int = field(default=0, init=False)
    _begun_with: int = field(default=0, init=False)
    _rows: Rows = field(init=False)
    # What rows must keep to be added to the sums.
    _limits: Limits | None = field(default=None, init=False)
    _watch: JumpWatch | OtherDetector = field(init=False)
    _sums: Sums | None = field(default=None, init=False)

    def __post_init__(self, detector: JumpDetector | None, method: str | None) -> None:
        check_whole(dim=self.dim, chains=self.chains)
        if method is not None:
            warnings.warn("an Observer has one method; leave method out.", DeprecationWarning, stacklevel=3)
        try:
            if self.forgetting != ADAPTIVE:
                check_share(forgetting=cast(float | None, self.forgetting))
        except ValueError:
            wanted = f"give a share between 0 and 1, {ADAPTIVE!r} or None."
            raise ValueError(f"forgetting is {self.forgetting!r}; {wanted}") from None
        most = self._kind.kept
        if self._rate is not None:
            # What weighs less than a thousandth is forgotten altogether.
            most = int(min(most, max(FIRST, 7 / self._rate)))
        self._rows = Rows(self.dim, most, self.seed, self._rate)
        # A detector keeps rows of its own: as many as it needs and none from before a jump, whatever is forgotten here.
        self._watch = as_detector(detector, self.dim)
        # Who reads a log, who learns, who changes what was learnt, who fits: in that order when several are held.
        self._reading, self._learning, self._changing, self._asking = RLock(), RLock(), RLock(), RLock()
        self._said: set[str] = set()
        self._fit: tuple[int, Potential] | None = None
        self._result: tuple[int, Reconstruction] | None = None

    @property
    def _rate(self) -> float | None:
        return None if isinstance(self.forgetting, str) else self.forgetting

    @property
    def _kind(self) -> FitKind:
        return kind_for(self.dim)

    @property
    def seen(self) -> int:
        """How many observations were taken in, or wait for the next to make a hundred."""
        return self._rows.seen

    def learn_one(self, point: Any, gradient: Any, agent: Hashable | None = None) -> None:
        """One observation: a point (dim,) and the ascent gradient there."""
        owner = None if agent is None else [str(agent)]
        self.learn_many(np.atleast_1d(np.asarray(point))[None], np.atleast_1d(np.asarray(gradient))[None], owner)

    def learn_many(self, points: Any, gradients: Any, agents: Any = None) -> None:
        """Observations (n, dim), in the order they were made; those with a NaN or an infinity are counted, refused.

        They are taken in by hundreds: what is known is the same, to the last bit, however they come.
        """
        new = observe(points, gradients, agents=agents)
        if new.dim != self.dim:
            raise ValueError(f"points has {new.dim} dimensions but the observer {self.dim}; give (n, {self.dim}).")
        with self._learning, one_thread():
            self.refused += new.refused
            for block in self._rows.blocks(new):
                with self._changing:
                    self._take(block)
        self._say(new.warnings)

    def _say(self, messages: Iterable[Message]) -> None:
        """Raise as warnings those of a kind that was not raised before."""
        new = [message for message in messages if message.code not in self._said]
        self._said |= {message.code for message in new}
        deliver(new)

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
        check_same_log(log, self.log)
        with self._reading:
            begun = saved = self.seen
            for batch in available(log, self.position):
                with self._learning:
                    self.learn_batch(batch)
                    self._note_torn(log)
                if checkpoint is not None and self.seen - saved >= every:
                    self.save(checkpoint)
                    saved = self.seen
            self._note_torn(log)
            if checkpoint is not None:
                self.save(checkpoint)
            return self.seen - begun

    def learn_batch(self, batch: Batch) -> None:
        """Rows of a log, and how far they go in it: `save` writes both or neither."""
        with self._learning:
            self.learn_many(batch.points, batch.gradients, batch.agents)
            self.log, self.position = batch.log, batch.position

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
    def load(cls, path: Any, detector: JumpDetector | None = None) -> "Observer":
        """An observer that was saved; it goes on as if nothing had happened.

        Parameters
        ----------
        path
            The file.
        detector
            For an observer with a detector other than JumpWatch, which is not in the file: the one to go on with.
        """
        return loaded(cls, Path(path), detector)

    def reward(self, x: Any) -> np.ndarray:
        """R̂ at x (n, dim), up to a constant; nan where no learner was, and everywhere just after a jump."""
        return self._where_known(x, lambda fit, points: fit.value(points))

    def reward_error(self, x: Any) -> np.ndarray:
        """Standard error of R̂ at x (n, dim), of its difference from R̂'s mean over the data; given the basis."""
        return self._where_known(x, lambda fit, points: fit.error(points))

    def potential(self, like: Potential | None = None) -> Potential:
        """The fitted reward itself, of all that was seen.

        A fit ``like`` an earlier one that is `renewable` keeps its prior and its level of noise: it takes a tenth of
        the time, and is as good while the data are alike. Where learners have moved since, it is a whole fit.
        """
        if like is not None and like.renewable:
            return self._view().fit(self.seed, self._rate, like)
        with self._asking:
            return self._potential(self._view())

    def recent(self, most: int) -> np.ndarray:
        """Where learners were in the last so many observations, or as many as are kept: (n, dim)."""
        with self._changing:
            return self._rows.recent.points[-most:].copy()

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
    def warnings(self) -> list[Message]:
        """What a user should read about what was learnt so far."""
        return self._reconstructed().warnings

    def reconstruction(self) -> Reconstruction:
        """All that `reconstruct` would say: samples, diagnostics, warnings, pictures, a file.

        Warnings are raised, too, each kind once in an Observer's life.
        """
        result = self._reconstructed()
        self._say(result.warnings)
        return result

    def _reconstructed(self) -> Reconstruction:
        with self._asking:
            if self._result is None or self._result[0] != self._rows.taken:
                view = self._view()
                seen = Observations(view.recent.points, view.recent.gradients, None, None, self.refused, ())
                fit = self._potential(view)
                checked, warnings = inspect(seen)
                options = Options(1.0, self.chains, self.seed)
                found = from_potential(fit, checked, [*warnings, *view.warnings], options, 0.0)
                self._result = view.taken, replace(found, diagnostics={**found.diagnostics, **view.counts})
            return self._result[1]

    def _take(self, block: Block) -> None:
        points, gradients, _ = block
        count = len(points)
        held = self._rows.take(block)
        self._since += count
        self._counted += count
        self._watch.update(points, gradients)
        if self._watch.jump_detected and self.forgetting == ADAPTIVE:
            self._since = self._rows.taken - self._watch.jumps[-1].at
            self._rows.recent.cut(self._since)
            self._counted = self._since
            self._sums, self._begun_with = None, 0
        if not self._kind.streams:
            return
        if self._sums is not None:
            left = weight_left(self._rate, np.arange(count, -1, -1.0))
            self._sums.forget(1 - left[0])
            usual = np.ones(count, bool) if self._limits is None else self._limits.hold(points, gradients)
            self._sums.add(points[usual], gradients[usual], held[usual], left[1:][usual])
            self._sums.outside += float(left[1:][~usual].sum())
        if self._rows.taken % FIRST or self._since < self._kind.after_jump:
            return
        if self._outgrown() or self._doubled():
            self._rows.settle(FIRST)
            recent = self._rows.recent
            self._limits = usual_limits(recent.points, recent.gradients)
            self._sums, self._begun_with = begun(recent, self._limits, self.seed, self._rate), self._since
            self._counted = len(recent)

    def _outgrown(self) -> bool:
        sums = self._sums
        return sums is None or sums.outside > MOST_OUTSIDE * sums.count

    def _doubled(self) -> bool:
        """Whether all that counts is still kept, and is twice what the sums were begun with."""
        return 2 * self._begun_with <= self._since == len(self._rows.recent)

    def _where_known(self, x: Any, answer: Callable[[Potential, np.ndarray], np.ndarray]) -> np.ndarray:
        points = as_places(x, self.dim)
        with self._asking:
            with self._changing:
                if self._just_jumped():
                    return np.full(len(points), np.nan)
                known = self._fit is not None and self._fit[0] == self._rows.taken
                view = None if known else self._view()
            fit = self._potential(view)
        if view is not None:
            self._say(view.warnings)
        return np.where(fit.explored(points), answer(fit, points), np.nan)

    def _view(self) -> View:
        """A copy of what was learnt, to be looked at while learning goes on."""
        with self._changing:
            self._check_enough()
            counts = {
                "observations": self._rows.taken,
                "effective_observations": effective_count(*self._weights()),
                "jumps": self._watch.count,
            }
            return View(self._rows.taken, self._rows.recent.copy(), deepcopy(self._sums), self._own_warnings(), counts)

    def _check_enough(self) -> None:
        if self._rows.taken < FIRST:
            raise ValueError(f"the observer has seen {self.seen} observations; it needs {FIRST} before it answers.")
        if self._just_jumped():
            raise ValueError(
                f"the reward has jumped and the observer has seen {self._since} observations since; it needs "
                f"{self._kind.after_jump} before it answers."
            )

    def _potential(self, view: View | None) -> Potential:
        """The fit to what was learnt, or the last one."""
        if view is not None and (self._fit is None or self._fit[0] != view.taken):
            self._fit = view.taken, view.fit(self.seed, self._rate)
        assert self._fit is not None
        return self._fit[1]

    def _just_jumped(self) -> bool:
        return self._rows.taken >= FIRST and self._since < self._kind.after_jump

    def _own_warnings(self) -> list[Message]:
        """What to say of torn shards, and of jumps that R̂ still remembers."""
        warnings = about_log(self.torn)
        if self.forgetting != ADAPTIVE:
            return [*warnings, *before_jump(self._watch.jumps, self._rows.taken, *self._weights())]
        return warnings if self._watch.watching else [*warnings, jumps_unseen()]

    def _weights(self) -> tuple[float | None, int]:
        """The forgetting rate of what R̂ is made from, and how many observations that is."""
        return (self._rate, self._counted) if self._kind.streams else (None, len(self._rows.recent))
