"""A source, an Observer that learns from it, and the latest estimate, for any number of pages.

There are three threads. The first reads rows and learns from them. The second makes full fits ("studies"): it chooses
the prior, draws samples and computes the warnings, which takes about a second in two dimensions. The third makes quick
fits ("glances"), which keep that prior and take a tenth of the time. Above three dimensions there are only full fits,
of ten seconds and more.
"""

import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event, Lock, Thread
from typing import NamedTuple, cast

import numpy as np

from onlooker.core.messages import Message, undelivered
from onlooker.fit.jumps.statistic import Jump
from onlooker.fit.potential import Potential
from onlooker.live.observer import Observer
from onlooker.live.page.picture import History, crowd_at, view_box
from onlooker.live.page.source import Resumable, Source
from onlooker.reconstruction.result import Reconstruction

__all__ = ["Look", "Status", "Watch", "jump_in_words"]

# Seconds between two quick fits.
EVERY = 0.3
# Seconds between two full fits: the larger of FULL_EVERY and FULL_SHARE times the duration of the last one, so that
# they take at most a fifth of the time.
FULL_EVERY, FULL_SHARE = 5.0, 4.0
# Shortest time in seconds that a thread sleeps between two checks.
BETWEEN = 0.03
# Number of latest points that determine the bounds of the figures.
VIEWED = 5000
# Largest number of observations, and of seconds, between two checkpoints.
SAVED_EVERY, SAVED_AFTER = 100_000, 30.0
# Seconds over which rates are averaged.
RATE_OVER = 8.0
# Dimension above which a fit takes minutes.
MANY = 12


@dataclass(frozen=True)
class Look:
    """The estimate at one time.

    Attributes
    ----------
    number
        Number of the look, from 1.
    seen
        Number of observations learnt from at that time.
    result
        R̂; its samples, diagnostics and warnings are those of the last full fit.
    summit
        (dim,) the point with the highest R̂ in the explored region.
    box
        (2, dim) bounds of the learners' latest points.
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
        """Share of exp(R̂) in the region that learners have visited."""
        return 1 - float(self.result.diagnostics["unexplored_share"])


@dataclass(frozen=True)
class Status:
    """What is known without a fit.

    Attributes
    ----------
    seen
        Number of observations learnt from.
    rejected
        Number of observations rejected because they contain a NaN or an infinity.
    effective
        Number of equally weighted observations that R̂ is based on.
    rate
        Observations per second.
    looks_rate
        Looks per second.
    jumps
        Jumps of the reward.
    message
        What is wrong, or what the source is waiting for; empty otherwise.
    waiting_for
        What is needed for a first estimate; empty if there is one.
    idle
        Seconds since the last row.
    over
        Whether no more rows will arrive.
    failed
        Whether that is because of an error.
    """

    seen: int
    rejected: int
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
    return f"the reward jumped at observation {jump.at:,} (detected {jump.found - jump.at:,} observations later)"


class _Rate:
    """Events per second over the last RATE_OVER seconds."""

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
    """Learns from a source and keeps the latest estimate.

    Parameters
    ----------
    source
        Source of the rows.
    forgetting
        As for `Observer`: "adaptive", a rate, or ``None``.
    seed
        Seed of all random numbers.
    checkpoint
        File to which the Observer and its position in the log are saved. If the file exists, watching resumes from it
        with the same results, to the last bit, as without the break.

    Attributes
    ----------
    observer
        The Observer; ``None`` until the first rows have arrived.
    look
        The latest estimate; ``None`` until there is one.
    history
        R̂ at all looks.
    """

    def __init__(
        self,
        source: Source,
        forgetting: float | str | None = "adaptive",
        seed: int = 0,
        checkpoint: Path | None = None,
    ) -> None:
        self.source, self.forgetting, self.seed, self.checkpoint = source, forgetting, seed, checkpoint
        # A wrong rate is reported now, not when the first rows arrive.
        Observer(1, forgetting=forgetting, seed=seed)
        self.observer: Observer | None = None if checkpoint is None else self._resumed(checkpoint)
        self._saved = 0 if self.observer is None else self.observer.seen, time.monotonic()
        self._unsaved = ""
        self.look: Look | None = None
        self.history = History()
        self._looks = 0
        self._waiting_for = ""
        self._trouble = ""
        self._over = False
        self._last_row = time.monotonic()
        # The last full fit, and the Observer that it is from.
        self._studied: tuple[Observer, Reconstruction] | None = None
        self._changing = Lock()
        self._stop, self._outdated = Event(), Event()
        self._rates = _Rate(), _Rate()
        work = (self._learn, self._study, self._glance)
        self._threads = [Thread(target=self._guarded(task), daemon=True) for task in work]

    def start(self) -> "Watch":
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> None:
        """Stop the threads; those in the middle of a fit are left after a second."""
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=1)

    def status(self) -> Status:
        observer, failed = self.observer, bool(self._trouble)
        seen, rejected, known, jumps = 0, 0, 0.0, []
        if observer is not None:
            seen, rejected, jumps = observer.seen, observer.rejected, observer.jumps
            known = min(observer.effective_observations, float(seen))
        return Status(
            seen,
            rejected,
            known,
            self._rates[0](seen),
            self._rates[1](self._looks),
            jumps,
            " ".join(filter(None, (self._trouble, self._unsaved, self.source.message))),
            self._waiting_for if self.look is None or self._over else "",
            time.monotonic() - self._last_row,
            self._over or failed,
            failed,
        )

    @property
    def warnings(self) -> list[Message]:
        """Warnings about the source and its dimension; those about the estimate are in the look."""
        warnings = list(self.source.warnings)
        if self.observer is not None and self.observer.dim > MANY:
            text = (
                f"in {self.observer.dim} dimensions an estimate takes minutes and needs many rows: --components 2 "
                "watches only the two directions in which learners move most."
            )
            warnings.append(Message("dimensions-many", text, {"dimensions": self.observer.dim}))
        return warnings

    def _guarded(self, work: Callable[[], None]) -> Callable[[], None]:
        """Show an error of a thread on the page, and print the traceback of an unexpected one."""

        def guarded() -> None:
            try:
                # Warnings are shown on the page.
                with undelivered():
                    work()
            except Exception as error:
                self._trouble = f"watching has stopped: {error}"
                if not isinstance(error, ValueError):
                    traceback.print_exc()

        return guarded

    def _learn(self) -> None:
        for batch in self.source.batches(self._stop.is_set):
            if batch.replaced:
                self._start_again()
            if self.observer is None:
                self.observer = Observer(batch.points.shape[1], forgetting=self.forgetting, seed=self.seed)
            self.observer.learn_batch(batch)
            self._last_row = time.monotonic()
            seen, saved_at = self._saved
            if self.observer.seen - seen >= SAVED_EVERY or self._last_row - saved_at >= SAVED_AFTER:
                self._save()
        self._save()
        self._over = not self._stop.is_set()

    def _resumed(self, checkpoint: Path) -> Observer | None:
        if not isinstance(self.source, Resumable):
            raise ValueError(f"{self.source.name} cannot be resumed; do not give a checkpoint.")
        if not checkpoint.exists():
            return None
        observer = Observer.load(checkpoint)
        if (observer.forgetting, observer.seed) != (self.forgetting, self.seed):
            raise ValueError(
                f"{checkpoint} was saved with forgetting={observer.forgetting!r} and seed={observer.seed}; give the "
                "same, or another checkpoint file."
            )
        self.source.resume(observer.log, observer.position)
        return observer

    def _save(self) -> None:
        """Write the checkpoint. A failed write does not stop the watch; the page says so."""
        if self.checkpoint is None or self.observer is None:
            return
        self._saved = self.observer.seen, time.monotonic()
        try:
            self.observer.save(self.checkpoint)
            self._unsaved = ""
        except OSError as error:
            self._unsaved = f"the checkpoint {self.checkpoint} cannot be written ({error.strerror}); trying again."

    def _start_again(self) -> None:
        with self._changing:
            self.observer, self.look, self._studied, self.history = None, None, None, History()

    def _study(self) -> None:
        """Make full fits: at intervals, after a jump, if the prior is out of date, and when the data has doubled."""
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
                full = self._without_advice(observer.reconstruction())
                # Drawn here, so that no page waits for its samples.
                full.draws.get()
                self._studied = observer, full
            end = time.monotonic()
            took = end - began
            last = now._replace(due=end + max(FULL_EVERY, FULL_SHARE * took), due_for_more=end + took)

    def _without_advice(self, result: Reconstruction) -> Reconstruction:
        """The result without warnings about the sign of gradients, if the log knows it."""
        if not getattr(self.source, "sign_known", False):
            return result
        kept = [message for message in result.found.warnings if not message.code.startswith("sign-")]
        return replace(result, found=result.found._replace(warnings=kept))

    def _glance(self) -> None:
        """Publish looks: quick fits with the prior of the last full fit, or that fit itself."""
        glanced: tuple[int, Reconstruction] | None = None
        outdated: Reconstruction | None = None
        while not self._stop.wait(BETWEEN):
            observer, studied = self.observer, self._studied
            if observer is None or studied is None or studied[0] is not observer:
                continue
            full, seen = studied[1], observer.seen
            fitted = cast(Potential, full.fitted)
            done = glanced is not None and glanced[1] is full and (not fitted.renewable or glanced[0] == seen)
            if done or full is outdated:
                continue
            glanced, began = (seen, full), time.monotonic()
            with self._awaiting():
                if fitted.renewable:
                    potential = observer.potential(like=fitted)
                    if not potential.resembles(fitted):
                        # Learners have moved: the samples and the prior are out of date.
                        outdated = full
                        self._outdated.set()
                        continue
                    known = {"observations": seen, "effective_observations": observer.effective_observations}
                    found = full.found._replace(diagnostics={**full.found.diagnostics, **known})
                    full = replace(full, fitted=potential, found=found)
                self._publish(observer, full)
            self._stop.wait(max(0.0, EVERY - (time.monotonic() - began)))

    @contextmanager
    def _awaiting(self) -> Iterator[None]:
        """If there are too few observations, at first or after a jump, wait for more."""
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
    """State at the last full fit; the next is due at ``due``, or at ``due_for_more`` if the data has doubled."""

    observer: Observer | None = None
    seen: int = -1
    jumps: list[Jump] | None = None
    known: float = 0.0
    due: float = 0.0
    due_for_more: float = 0.0
