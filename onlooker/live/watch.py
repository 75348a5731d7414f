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
from typing import NamedTuple

import numpy as np

from onlooker.field.smooth import SmoothPotential, alike
from onlooker.live.picture import History, crowd_at, view_box
from onlooker.live.source import Source
from onlooker.observe.jumps import Jump
from onlooker.observer import Observer
from onlooker.reconstruction import Reconstruction

__all__ = ["Look", "Status", "Watch", "jump_in_words"]

# Seconds from glance to glance, and from study to study: at least so many, or so many times what the last one took.
EVERY = 0.3
FULL_EVERY, FULL_SHARE = 5.0, 4.0
# Seconds that a thread sleeps at the least.
BETWEEN = 0.03
# Rows that are taken in at a time, and points whose whereabouts set the view.
AT_ONCE = 2000
VIEWED = 5000
# Seconds over which rates are measured.
RATE_OVER = 8.0
# Dimensions from which a fit takes minutes.
MANY = 12


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
    """

    number: int
    seen: int
    result: Reconstruction
    summit: np.ndarray
    box: np.ndarray
    crowd: float

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
    message, waiting_for
        What is the matter, and what is needed before there is a picture; empty when nothing is.
    idle
        Seconds since the last row.
    over, failed
        Whether nothing more will come, and whether that is because something went wrong.
    """

    seen: int
    refused: int
    effective: float
    rate: float
    looks_rate: float
    jumps: list[Jump]
    message: str
    waiting_for: str
    idle: float
    over: bool
    failed: bool


def jump_in_words(jump: Jump) -> str:
    return f"the reward jumped at observation {jump.at:,}, noticed {jump.found - jump.at:,} later"


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
        self._looks = 0
        self._waiting_for = ""
        self._trouble = ""
        self._over = False
        self._last_row = time.monotonic()
        # Whose, and what was found.
        self._studied: tuple[Observer, Reconstruction] | None = None
        self._changing = Lock()
        self._stop, self._outdated = Event(), Event()
        self._rates = _Rate(), _Rate()
        work = (self._learn, self._study, self._glance)
        self._threads = [Thread(target=self._guarded(one), daemon=True) for one in work]

    def start(self) -> "Watch":
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> None:
        """Let the threads finish what they are at, if that is soon."""
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=1)

    def status(self) -> Status:
        observer, failed = self.observer, bool(self._trouble)
        seen, refused, known, jumps = 0, 0, 0.0, []
        if observer is not None:
            seen, refused, jumps = observer.seen, observer.refused, observer.jumps
            known = min(observer.effective_observations, float(seen))
        return Status(
            seen,
            refused,
            known,
            self._rates[0](seen),
            self._rates[1](self._looks),
            jumps,
            " ".join(sentence for sentence in (self._trouble, self.source.message) if sentence),
            self._waiting_for if self.look is None or self._over else "",
            time.monotonic() - self._last_row,
            self._over or failed,
            failed,
        )

    @property
    def notes(self) -> list[str]:
        """What to keep in mind, beside a look's own warnings."""
        notes = list(self.source.notes)
        if self.observer is not None and self.observer.dim > MANY:
            notes.append(
                f"in {self.observer.dim} dimensions a picture takes minutes, if there are rows enough for one at all: "
                "--components 2 watches the two directions in which learners move most."
            )
        return notes

    def _guarded(self, work: Callable[[], None]) -> Callable[[], None]:
        """A thread that fails says so on the page, and in the terminal how."""

        def guarded() -> None:
            try:
                work()
            except Exception as error:
                self._trouble = f"watching has stopped: {error}"
                if not isinstance(error, ValueError):
                    traceback.print_exc()

        return guarded

    def _learn(self) -> None:
        for points, gradients, agents, anew in self.source.batches(self._stop.is_set):
            if anew:
                self._begin_anew()
            if self.observer is None:
                self.observer = Observer(points.shape[1], forgetting=self.forgetting, seed=self.seed)
            for first in range(0, len(points), AT_ONCE):
                if self._stop.is_set():
                    return
                some = slice(first, first + AT_ONCE)
                self.observer.learn_many(points[some], gradients[some], None if agents is None else agents[some])
                self._last_row = time.monotonic()
        self._over = not self._stop.is_set()

    def _begin_anew(self) -> None:
        with self._changing:
            self.observer, self.look, self._studied, self.history = None, None, None, History()

    def _study(self) -> None:
        """Full looks: every so often, when there was a jump or a glance asks for one, and with twice as much known."""
        last = _Studied()
        while not self._stop.wait(BETWEEN):
            observer = self.observer
            if observer is None:
                continue
            last = last if last.observer is observer else _Studied(observer)
            now = _Studied(observer, observer.seen, observer.jumps[-1:], observer.effective_observations)
            began = time.monotonic()
            more = now.known >= 2 * last.known and began >= last.due_for_more
            asked = self._outdated.is_set() or now.jumps != last.jumps or more
            if now.seen == last.seen or (began < last.due and not asked):
                continue
            self._outdated.clear()
            with self._awaiting():
                self._studied = observer, observer.reconstruction()
            end = time.monotonic()
            took = end - began
            last = now._replace(due=end + max(FULL_EVERY, FULL_SHARE * took), due_for_more=end + took)

    def _glance(self) -> None:
        """Looks for the page: quick ones on top of the last full one, or that one itself."""
        glanced: tuple[int, Reconstruction] | None = None
        outdated: Reconstruction | None = None
        while not self._stop.wait(BETWEEN):
            observer, studied = self.observer, self._studied
            if observer is None or studied is None or studied[0] is not observer:
                continue
            full, seen = studied[1], observer.seen
            quick = isinstance(full.potential, SmoothPotential)
            done = glanced is not None and glanced[1] is full and (not quick or glanced[0] == seen)
            if done or full is outdated:
                continue
            glanced, began = (seen, full), time.monotonic()
            with self._awaiting():
                if isinstance(full.potential, SmoothPotential):
                    potential = observer.potential(like=full.potential)
                    assert isinstance(potential, SmoothPotential)
                    if not alike(potential, full.potential):
                        # Learners have moved: samples and prior are of where they were.
                        outdated = full
                        self._outdated.set()
                        continue
                    known = {"observations": seen, "effective_observations": observer.effective_observations}
                    full = replace(full, potential=potential, diagnostics={**full.diagnostics, **known})
                self._publish(observer, full)
            self._stop.wait(max(0.0, EVERY - (time.monotonic() - began)))

    @contextmanager
    def _awaiting(self) -> Iterator[None]:
        """Too few observations, at first or after a jump, are waited for."""
        self._waiting_for = ""
        try:
            yield
        except ValueError as error:
            self._waiting_for = str(error)

    def _publish(self, observer: Observer, result: Reconstruction) -> None:
        recent, summit = observer.recent(VIEWED), result.summit()
        with self._changing:
            if observer is not self.observer:
                return
            box = view_box(recent, None if self.look is None else self.look.box)
            seen = int(result.diagnostics["observations"])
            self.history.add(seen, result, box, summit)
            self._looks += 1
            self.look = Look(self._looks, seen, result, summit, box, crowd_at(summit, recent))


class _Studied(NamedTuple):
    """What was known at the last study, and when the next is due, in any case and if twice as much is known."""

    observer: Observer | None = None
    seen: int = -1
    jumps: list[Jump] | None = None
    known: float = 0.0
    due: float = 0.0
    due_for_more: float = 0.0
