"""R̂ at any time from observations as they arrive, each of weight (1 − γ)^age, in bounded memory.

If the fit has sums of constant size (`onlooker.fit.sums`), all observations are added to them, and the time of an
update does not depend on the number of earlier ones. If learners leave the box of the first observations, the sums
begin again with the last observations, which are kept. If the fit has no such sums, it is recomputed from the kept
observations, the last 7/γ, with equal weights.

All observations are tested for jumps of the reward (`fit.jumps`). Adaptive forgetting forgets nothing until a jump is
detected, and then everything before the jump.
"""

import warnings
from collections.abc import Callable, Hashable, Iterable
from copy import deepcopy
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np

from onlooker.core.blas import one_thread
from onlooker.core.deprecated import old_name
from onlooker.core.forgetting import effective_count, weight_left
from onlooker.core.messages import Message, deliver
from onlooker.core.settings import as_places, check_whole
from onlooker.data.observations import observe
from onlooker.data.quality import Limits, usual_limits
from onlooker.fit.jumps import Jump, JumpDetector, JumpWatch
from onlooker.fit.jumps.detector import OtherDetector
from onlooker.fit.jumps.watch import as_detector, shown
from onlooker.fit.nearby import Nearby
from onlooker.fit.potential import Potential, kind_for
from onlooker.fit.sums import FitKind, Sums
from onlooker.live.from_logs import LearnsLogs
from onlooker.live.rows import Block, Rows
from onlooker.live.saved import loaded
from onlooker.live.settings import ADAPTIVE, SETTINGS, check_forgetting
from onlooker.live.view import View, begin_sums
from onlooker.live.warnings import about_jumps, about_log
from onlooker.reconstruction.options import Options
from onlooker.reconstruction.result import Reconstruction
from onlooker.storage.state_file import packed, write
from onlooker.storage.trees import pack

__all__ = ["Observer"]


@dataclass(eq=False, repr=False)
class Observer(LearnsLogs):
    """Reconstructs the reward that learners climb while observations of them arrive.

    `save` writes its fields and `load` reads them. One thread may add observations while others ask for the reward.

    With ``features=ψ``, a function of one point in jax.numpy or what `onlooker.tabular` returns, it learns the weights
    of a reward w·ψ(θ) in any dimension: the call returns an `onlooker.live.features.FeatureObserver`, which takes
    ``forgetting`` and ``names`` besides.

    Parameters
    ----------
    dim
        Dimension of the points.
    chains
        Number of chains in which samples are drawn.
    forgetting
        γ: the share of its weight that an observation loses with every later one; default: nothing is forgotten. With
        "adaptive", everything before a jump of the reward is forgotten when the jump is detected.
    seed
        Seed of all random numbers.
    detector
        Detector of jumps; default: ``JumpWatch(dim)``. It may be a `JumpWatch` with other settings, or any object with
        ``update(points, gradients)`` and ``jump_detected`` (`onlooker.fit.jumps.detector`). `save` writes a `JumpWatch`
        as a whole, but for another detector only its jumps: `load` must then be given a detector.
    method
        Deprecated and ignored.

    Attributes
    ----------
    rejected
        Number of observations rejected because they contain a NaN or an infinity.
    log
        Name of the log that was read; empty if there is none.
    position
        Position in that log after the last row that was read.
    torn
        Names of the log's shards that could not be read.

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
    rejected: int = field(default=0, init=False)
    log: str = field(default="", init=False)
    position: str = field(default="", init=False)
    torn: tuple[str, ...] = field(default=(), init=False)
    # Number of observations; if forgetting is adaptive, since the last jump.
    _since: int = field(default=0, init=False)
    # Number of observations that R̂ is based on: fewer than `_since` if the sums began again.
    _counted: int = field(default=0, init=False)
    # Value of `_since` when the sums began, and when it was last asked whether their fit still suits the rows.
    _begun_with: int = field(default=0, init=False)
    _checked: int = field(default=0, init=False)
    _rows: Rows = field(init=False)
    # Rows beyond these limits are not added to the sums.
    _limits: Limits | None = field(default=None, init=False)
    _watch: JumpWatch | OtherDetector = field(init=False)
    _sums: Sums | None = field(default=None, init=False)

    def __new__(cls, *settings: Any, features: Any = None, **more: Any) -> Any:
        if features is None:
            return super().__new__(cls)
        from onlooker.live.features import FeatureObserver

        return FeatureObserver(*settings, **{"features": features, **more})

    def __post_init__(self, detector: JumpDetector | None, method: str | None) -> None:
        check_whole(dim=self.dim, chains=self.chains)
        if method is not None:
            warnings.warn("an Observer has one method; leave method out.", DeprecationWarning, stacklevel=3)
        check_forgetting(self.forgetting)
        most = self._kind.kept
        if self._rate is not None:
            most = int(min(most, max(SETTINGS.first, SETTINGS.kept_lifetimes / self._rate)))
        self._rows = Rows(self.dim, most, self.seed, self._rate)
        # The detector keeps rows of its own, because it needs others than the fit: none before a jump, for example.
        self._watch = as_detector(detector, self.dim)
        # Lock order: reading, learning, asking, changing.
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
        """Number of observations so far, including those of an incomplete block, which are not yet in R̂."""
        return self._rows.seen

    def learn_one(self, point: Any, gradient: Any, agent: Hashable | None = None) -> None:
        """Add one observation.

        Parameters
        ----------
        point
            (dim,): the point.
        gradient
            (dim,): the ascent gradient at the point.
        agent
            The agent's name, or anything whose ``str`` is its name.
        """
        owner = None if agent is None else [str(agent)]
        self.learn_many(np.atleast_1d(np.asarray(point))[None], np.atleast_1d(np.asarray(gradient))[None], owner)

    def learn_many(self, points: Any, gradients: Any, agents: Any = None) -> None:
        """Add observations, in the order in which they were made.

        Rows with a NaN or an infinity are rejected and counted. Rows are taken in by blocks of a hundred, so R̂ is the
        same, to the last bit, however they are divided into calls.

        Parameters
        ----------
        points
            (n, dim): the points.
        gradients
            (n, dim): the ascent gradients at the points.
        agents
            (n,): the agents' names, if they are known.
        """
        if not np.size(points) and not np.size(gradients):
            return
        new = observe(points, gradients, agents=agents)
        if new.dim != self.dim:
            raise ValueError(f"points has {new.dim} dimensions but the observer {self.dim}; give (n, {self.dim}).")
        with self._learning, one_thread():
            self.rejected += new.rejected
            for block in self._rows.blocks(new):
                with self._changing:
                    due = self._take(block)
                if due:
                    self._begin_again()
        self._say(new.warnings)

    def _say(self, messages: Iterable[Message]) -> None:
        """Raise messages as warnings, but each code only once."""
        deliver(messages, said=self._said)

    def save(self, path: Any) -> Path:
        """Save the Observer to one file, which is replaced only when it is written completely."""
        with self._learning:
            content = packed(pack(self))
        return write(Path(path), "Observer", content)

    @classmethod
    def load(cls, path: Any, detector: JumpDetector | None = None, features: Any = None) -> Any:
        """Load an Observer that was saved; it continues with the same results as without the break.

        Parameters
        ----------
        path
            The file.
        detector
            The detector to continue with, if the saved one is not a `JumpWatch` and therefore not in the file.
        features
            ψ, if the Observer was one of features.
        """
        if features is not None:
            from onlooker.live.features import FeatureObserver

            return FeatureObserver.load(path, features)
        return loaded(cls, Path(path), detector)

    def reward(self, x: Any) -> np.ndarray:
        """R̂ at x (n, dim), up to a constant; nan in unexplored regions, and everywhere just after a jump."""
        return self._where_known(x, lambda fit, points: fit.value(points))

    def reward_error(self, x: Any) -> np.ndarray:
        """Standard error at x (n, dim) of R̂ minus its mean over the observed points, given the basis."""
        return self._where_known(x, lambda fit, points: fit.error(points))

    def potential(self, like: Potential | None = None) -> Potential:
        """The fitted reward itself.

        Parameters
        ----------
        like
            An earlier fit. If it is `renewable`, its prior and level of noise are used again: this takes a tenth of the
            time, and is as good while the data are similar. If learners have moved, a full fit is made all the same.
        """
        if like is not None and like.renewable:
            return self._view().fit(self.seed, self._rate, like)
        with self._asking:
            return self._potential(self._view())

    def recent(self, most: int) -> np.ndarray:
        """The points (n, dim) of the last ``most`` observations, or of all that are kept."""
        with self._changing:
            return self._rows.recent.points[-most:].copy()

    @property
    def jumps(self) -> list[Jump]:
        """Jumps: ``at`` is the observation before which R changed, ``found`` the one at which it was detected."""
        return list(self._watch.jumps)

    @property
    def effective_observations(self) -> float:
        """(Σw)²/Σw²: the number of equally weighted observations that R̂ is worth."""
        with self._changing:
            return effective_count(*self._weights())

    @property
    def samples(self) -> np.ndarray:
        """Samples (chain, draw, dim) of exp(R̂), drawn when they are first asked for."""
        return self.reconstruction().samples

    @property
    def warnings(self) -> list[Message]:
        """Warnings about the observations so far, their fit and its samples, which are drawn for them."""
        return self._reconstructed().warnings

    def reconstruction(self) -> Reconstruction:
        """The current result, as `reconstruct` returns it; its warnings are raised, each code once per Observer.

        Samples are drawn when they are first used, and warnings about them are raised then.
        """
        result = self._reconstructed()
        self._say(result.found.warnings)
        return result

    def _reconstructed(self) -> Reconstruction:
        with self._asking:
            if self._result is None or self._result[0] != self._rows.taken:
                view = self._view()
                options = Options(1.0, self.chains, self.seed)
                self._result = view.taken, view.result(self._potential(view), options, self._said)
            return self._result[1]

    def _take(self, block: Block) -> bool:
        """Take in one block: test it for jumps and add it to the sums; return whether these must begin again."""
        points, gradients = block.points, block.gradients
        count = len(points)
        held = self._rows.take(block)
        self._since += count
        self._counted += count
        usual = np.ones(count, bool) if self._limits is None else self._limits.hold(points, gradients)
        judge = None if self._kind.judge is None else self._judge
        if shown(self._watch, points, gradients, usual, judge, held, block.agents) and self.forgetting == ADAPTIVE:
            self._since = self._rows.taken - self._watch.jumps[-1].at
            self._rows.recent.cut(self._since)
            self._counted = self._since
            self._sums, self._begun_with, self._checked = None, 0, 0
        if self._sums is not None:
            left = weight_left(self._rate, np.arange(count, -1, -1.0))
            self._sums.forget(1 - left[0])
            self._sums.add(points[usual], gradients[usual], held[usual], left[1:][usual])
            self._sums.outside += float(left[1:][~usual].sum())
        if self._rows.taken % SETTINGS.first or self._since < self._kind.after_jump:
            return False
        doubled = 2 * self._begun_with <= self._since == len(self._rows.recent)
        return self._outgrown() or doubled or self._outdated()

    def _judge(self) -> Nearby | None:
        """What the sums predict of later gradients."""
        assert self._kind.judge is not None
        return None if self._sums is None else self._kind.judge(self._sums)

    def _begin_again(self) -> None:
        """Begin the sums with the kept rows. It may take seconds, in which the earlier sums still answer."""
        recent = self._rows.recent
        limits = usual_limits(recent.points, recent.gradients)
        sums = None
        if self._kind.streams:
            with self._changing:
                self._rows.settle(SETTINGS.first)
            sums = begin_sums(recent, limits, self.seed, self._rate)
        with self._changing:
            self._limits, self._begun_with, self._checked = limits, self._since, self._since
            if self._kind.streams:
                self._sums, self._counted = sums, len(recent)

    def _outgrown(self) -> bool:
        """Whether sums are due and there are none, or too many rows are outside their box."""
        if self._sums is None:
            return self._kind.streams or self._limits is None
        return self._sums.outside > SETTINGS.most_outside * self._sums.count

    def _outdated(self) -> bool:
        """Whether the fit no longer suits the kept rows; asked whenever all of them are new."""
        recent, outdated = self._rows.recent, self._kind.outdated
        if outdated is None or self._sums is None or self._since < self._checked + recent.most:
            return False
        self._checked = self._since
        return outdated(self._sums, recent)

    def _where_known(self, x: Any, answer: Callable[[Potential, np.ndarray], np.ndarray]) -> np.ndarray:
        """``answer(fit, x)`` in the explored region, nan elsewhere and just after a jump."""
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
        """A copy of the current state, which can be fitted while more observations are added."""
        with self._changing:
            self._check_enough()
            taken, weights, watch = self._rows.taken, self._weights(), self._watch
            warnings = [*about_log(self.torn), *about_jumps(watch, self.forgetting == ADAPTIVE, taken, *weights)]
            counts = {"observations": taken, "effective_observations": effective_count(*weights), "jumps": watch.count}
            recent, sums = self._rows.recent.copy(), deepcopy(self._sums)
            return View(taken, self.rejected, recent, sums, warnings, counts)

    def _check_enough(self) -> None:
        if self._rows.taken < SETTINGS.first:
            first = SETTINGS.first
            raise ValueError(f"the observer has seen {self.seen} observations; it needs {first} before it answers.")
        if self._just_jumped():
            since, needed = self._since, self._kind.after_jump
            raise ValueError(f"the reward has jumped and the observer has seen {since} rows since; it needs {needed}.")

    def _potential(self, view: View | None) -> Potential:
        """The fit to a view; without a view, the last fit."""
        if view is not None and (self._fit is None or self._fit[0] != view.taken):
            self._fit = view.taken, view.fit(self.seed, self._rate)
        assert self._fit is not None
        return self._fit[1]

    def _just_jumped(self) -> bool:
        return self._rows.taken >= SETTINGS.first and self._since < self._kind.after_jump

    def _weights(self) -> tuple[float | None, int]:
        """The forgetting rate, and the number of observations that R̂ is based on."""
        return (self._rate, self._counted) if self._kind.streams else (None, len(self._rows.recent))


Observer.refused = property(lambda self: old_name(self, "refused", "rejected"))  # type: ignore[attr-defined]
