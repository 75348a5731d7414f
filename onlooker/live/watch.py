"""A source, an Observer that learns from it, and the latest look at what it has learnt; for any number of pages.

Three threads: one takes rows in, one studies them, one glances at them. A study searches for the best prior, draws
samples and says what to doubt; it takes about a second in two dimensions. A glance keeps its prior and renews R̂ in a
tenth of the time. Above three dimensions there are studies only, of ten seconds and more.
"""

import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Event, Lock, Thread

import numpy as np

from onlooker.live.picture import History, crowd_at, view_box
from onlooker.live.source import Source
from onlooker.observe.jumps import Jump
from onlooker.observer import Observer
from onlooker.reconstruction import Reconstruction

__all__ = ["Look", "Status", "Watch"]

# Seconds from glance to glance, and from study to study: at least so many, or so many times what the last one took.
EVERY = 0.3
FULL_EVERY, FULL_SHARE = 5.0, 4.0
# Seconds that a thread sleeps at the least.
BETWEEN = 0.03
# Rows that are taken in at a time, and points whose whereabouts set the view.
AT_ONCE = 2000
VIEWED = 5000
# Seconds over which rates are measured.
RATE_OVER = 3.0


@dataclass(frozen=True)
class Look:
    """What was learnt, at one moment.

    Attributes
    ----------
    number
        Of the look, from 1.
    seen
        Observations by then.
    result
        R̂; its samples, numbers and warnings are those of the last study.
    summit
        Where R̂ is highest among what was explored.
    box
        (2, dim): where learners are.
    crowd
        Kernel ESS at the summit.
    seconds
        What the look took.
    """

    number: int
    seen: int
    result: Reconstruction
    summit: np.ndarray
    box: np.ndarray
    crowd: float
    seconds: float

    @property
    def coverage(self) -> float:
        """The share of exp(R̂) that lies where learners were."""
        return 1 - float(self.result.diagnostics["unexplored_share"])


@dataclass(frozen=True)
class Status:
    """What there is to say without a fit.

    Attributes
    ----------
    seen, refused, effective
        Observations, those that were not finite, and how many equally weighted ones R̂ is worth.
    rate, looks_rate
        Observations a second, and looks.
    jumps
        Of the reward.
    message
        What is the matter, or is waited for; empty when nothing is.
    over
        Whether nothing more will come.
    """

    seen: int
    refused: int
    effective: float
    rate: float
    looks_rate: float
    jumps: list[Jump]
    message: str
    over: bool


class _Rate:
    """Events a second, lately."""

    def __init__(self) -> None:
        self._counts: deque[tuple[float, int]] = deque()
        self._lock = Lock()

    def __call__(self, count: int) -> float:
        now = time.monotonic()
        with self._lock:
            self._counts.append((now, count))
            while now - self._counts[0][0] > RATE_OVER and len(self._counts) > 2:
                self._counts.popleft()
            (began, first), (end, last) = self._counts[0], self._counts[-1]
        return (last - first) / (end - began) if end > began else 0.0


class Watch:
    """Learns from a source, and looks at what was learnt.

    Parameters
    ----------
    source
        Where the rows come from.
    forgetting
        As of `Observer`: adaptive, or a rate.
    seed
        Of everything random.

    Attributes
    ----------
    observer
        ``None`` until the first rows have come.
    look
        The latest; ``None`` until there is one.
    history
        R̂ at all looks.
    """

    def __init__(self, source: Source, forgetting: float | str | None = "adaptive", seed: int = 0) -> None:
        self.source, self.forgetting, self.seed = source, forgetting, seed
        # A rate that is none is refused now, not when the first rows come.
        Observer(1, forgetting=forgetting, seed=seed)
        self.observer: Observer | None = None
        self.look: Look | None = None
        self.history = History()
        self._waiting_for = ""
        self._trouble = ""
        self._over = False
        self._studied: Reconstruction | None = None
        self._stop = Event()
        self._rates = _Rate(), _Rate()
        work = (self._learn, self._study, self._glance)
        self._threads = [Thread(target=self._guarded(one), daemon=True) for one in work]

    def start(self) -> "Watch":
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> None:
        """Let the threads finish what they are at."""
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=2)

    def status(self) -> Status:
        observer, look = self.observer, self.look
        looks = self._rates[1](0 if look is None else look.number)
        message = self._trouble or self.source.message or self._waiting_for
        if observer is None:
            return Status(0, 0, 0.0, self._rates[0](0), looks, [], message or "waiting for the first rows.", self._over)
        return Status(
            observer.seen,
            observer.refused,
            observer.effective_observations,
            self._rates[0](observer.seen),
            looks,
            observer.jumps,
            message,
            self._over,
        )

    def _guarded(self, work: Callable[[], None]) -> Callable[[], None]:
        """A thread that fails says so on the page, and in the terminal how."""

        def guarded() -> None:
            try:
                work()
            except Exception as error:
                self._trouble = f"watching has stopped: {error}"
                if not isinstance(error, ValueError | OSError):
                    traceback.print_exc()

        return guarded

    def _learn(self) -> None:
        for points, gradients, agents in self.source.batches(self._stop.is_set):
            if self.observer is None:
                self.observer = Observer(points.shape[1], forgetting=self.forgetting, seed=self.seed)
            for first in range(0, len(points), AT_ONCE):
                if self._stop.is_set():
                    return
                some = slice(first, first + AT_ONCE)
                self.observer.learn_many(points[some], gradients[some], None if agents is None else agents[some])
        self._over = not self._stop.is_set()

    def _study(self) -> None:
        """Full looks: every so often, and when there was a jump or twice as much is known as at the last."""
        due, studied, jumps_then, known_then = 0.0, -1, -1, 0.0
        while not self._stop.wait(BETWEEN):
            observer = self.observer
            if observer is None or observer.seen == studied:
                continue
            began, jumps, known = time.monotonic(), len(observer.jumps), observer.effective_observations
            if began < due and jumps == jumps_then and known < 2 * known_then:
                continue
            with self._awaiting():
                studied = observer.seen
                self._studied = observer.reconstruction()
                now = time.monotonic()
                due, jumps_then, known_then = now + max(FULL_EVERY, FULL_SHARE * (now - began)), jumps, known

    def _glance(self) -> None:
        """Looks for the page: quick ones on top of the last full one, or that one itself."""
        glanced: Reconstruction | None = None
        looked_at = -1
        while not self._stop.wait(BETWEEN):
            observer, full = self.observer, self._studied
            if observer is None or full is None:
                continue
            quick = observer.dim <= 3
            if (observer.seen == looked_at and full is glanced) or (full is glanced and not quick):
                continue
            with self._awaiting():
                began = time.monotonic()
                looked_at, glanced = observer.seen, full
                if quick:
                    potential = observer.potential(like=full.potential)
                    full = replace(
                        full, potential=potential, diagnostics={**full.diagnostics, "observations": looked_at}
                    )
                self._publish(observer, full, began)
                self._stop.wait(max(0.0, EVERY - (time.monotonic() - began)))

    @contextmanager
    def _awaiting(self) -> Iterator[None]:
        """Too few observations, at first or after a jump, are waited for."""
        try:
            yield
            self._waiting_for = ""
        except ValueError as error:
            self._waiting_for = str(error)

    def _publish(self, observer: Observer, result: Reconstruction, began: float) -> None:
        recent = observer.recent(VIEWED)
        box = view_box(recent, None if self.look is None else self.look.box)
        summit = result.summit()
        seen = int(result.diagnostics["observations"])
        self.history.add(seen, result, box, summit)
        number = 1 if self.look is None else self.look.number + 1
        self.look = Look(number, seen, result, summit, box, crowd_at(summit, recent), time.monotonic() - began)
