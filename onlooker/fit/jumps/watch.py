"""JumpWatch: tests new gradients against a prediction from earlier ones, in bounded memory.

After the first few hundred rows, and whenever their number has doubled, a small fit (`expected`) learns to predict
gradients, and `statistic` tests all later rows against it. After an alarm only the rows since the jump are kept, and
the watch starts again with them.

If there is a fit to many more rows, it predicts gradients in place of the small fit, and its residuals on rows that it
was not fitted to tell what chance does: learners come to places that it knows badly. After an alarm the fit is made
anew, with the rows since, and the residuals of the new fit must change, too (`judged`). If they do not, it is asked
again as more rows come.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from onlooker.core.blas import one_thread
from onlooker.core.settings import check_positive, check_whole
from onlooker.data.buffer import Recent
from onlooker.data.observations import LARGEST, usable_rows
from onlooker.data.quality import usual_rows
from onlooker.fit.cosine_potential import CosinePotential
from onlooker.fit.jumps.detector import OtherDetector
from onlooker.fit.jumps.expected import Parabola, fit_expected, residuals_of
from onlooker.fit.jumps.judged import residuals_change
from onlooker.fit.jumps.settings import SETTINGS
from onlooker.fit.jumps.statistic import Jump, JumpTest, correlation_times, score_count
from onlooker.fit.nearby import Nearby

__all__ = ["JumpWatch", "as_detector", "shown"]

# Makes a fit to the rows so far that are not held out; None if they are too few.
Judge = Callable[[], Nearby | None]
# Points, gradients, whether they are held out, and the agents.
Rows = tuple[np.ndarray, ...]


class Suspect(NamedTuple):
    """A jump that a full fit has not confirmed yet.

    Attributes
    ----------
    jump
        The jump.
    again
        Number of observations at which the fit is asked again.
    """

    jump: Jump
    again: int


@dataclass
class JumpWatch:
    """Detects jumps of the reward.

    It has the two members of a `JumpDetector`, ``update`` and ``jump_detected``, and lists the jumps in ``jumps``.

    Parameters
    ----------
    dim
        Dimension of the points.
    false_alarms
        False-alarm probability per observation; approximate if residuals are not normal.

    Attributes
    ----------
    seen
        Number of observations so far.
    count
        Number of jumps so far.
    jumps
        The last thousand jumps.
    jump_detected
        Whether the last update detected a jump.
    since
        Number of observations since the last jump; all, if there was none.

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> watch = JumpWatch(dim=1)
    >>> for row in range(0, 3000, 10):
    ...     points, noise = random.standard_normal((2, 10, 1))
    ...     watch.update(points, -points + noise + (2.0 if row >= 2000 else 0.0))
    ...     if watch.jump_detected:
    ...         print(row, watch.jumps[-1].at)
    2020 2000
    """

    dim: int
    false_alarms: float = SETTINGS.false_alarms
    seen: int = field(default=0, init=False)
    count: int = field(default=0, init=False)
    jumps: tuple[Jump, ...] = field(default=(), init=False)
    jump_detected: bool = field(default=False, init=False)
    since: int = field(default=0, init=False)
    # Value of ``since`` at which the next small fit is due.
    _renewal: int = field(init=False)
    _recent: Recent = field(init=False)
    _expected: Parabola | CosinePotential | Nearby | None = field(default=None, init=False)
    _test: JumpTest | None = field(default=None, init=False)
    _suspect: Suspect | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        check_whole(dim=self.dim)
        check_positive(false_alarms=self.false_alarms)
        if self.false_alarms >= 1:
            raise ValueError(f"false_alarms is {self.false_alarms!r}; give a probability between 0 and 1.")
        self._renewal = self._fewest
        self._recent = Recent(self.dim, max(SETTINGS.numbers // self.dim, SETTINGS.rows))

    @property
    def _fewest(self) -> int:
        """Number of rows before the first small fit."""
        return max(SETTINGS.fewest, SETTINGS.per_score * score_count(self.dim))

    @property
    def _followed_chance(self) -> float:
        return min(self.false_alarms, SETTINGS.followed_false_alarms)

    @property
    def watching(self) -> bool:
        """Whether a jump would be detected now: there is a prediction, and most learners are where it is valid."""
        if self._test is None or self._expected is None:
            return False
        lately = self._recent.points[-SETTINGS.lately :]
        return bool(self._expected.explored(lately).mean() > SETTINGS.lately_explored)

    def update(
        self,
        points: np.ndarray,
        gradients: np.ndarray,
        judge: Judge | None = None,
        held: np.ndarray | bool = False,
        agents: np.ndarray | int = -1,
    ) -> None:
        """Test the next points and gradients (n, dim), in the order in which they were observed.

        Parameters
        ----------
        points
            Points (n, dim).
        gradients
            Gradients (n, dim).
        judge
            Makes a fit to the earlier rows that are not held out, which predicts gradients in place of a small one.
            No jump is detected while it returns None.
        held
            Which rows (n,) are held out of that fit.
        agents
            Number (n,) of each row's agent; −1 if unknown.
        """
        points, gradients = np.asarray(points), np.asarray(gradients)
        if points.ndim != 2 or points.shape != gradients.shape or points.shape[1] != self.dim:
            raise ValueError(
                f"points has shape {points.shape} and gradients {gradients.shape}; give both as (n, {self.dim})."
            )
        if not usable_rows(points, gradients).all():
            raise ValueError(
                f"points or gradients contain a NaN, an infinity or a number beyond {LARGEST:g}; give them to "
                "onlooker.observe first, which removes such rows."
            )
        before, count = self.count, len(points)
        rows = points, gradients, np.broadcast_to(held, count), np.broadcast_to(agents, count)
        with one_thread():
            if judge is None:
                self._test_and_refit(rows)
            else:
                self._test_and_judge(rows, judge)
        self.jump_detected = self.count > before

    def learn(self, points: np.ndarray, gradients: np.ndarray) -> list[Jump]:
        """Deprecated name of `update`; returns the jumps detected. It will be removed in the next release."""
        warnings.warn("JumpWatch.learn is now JumpWatch.update; see its jumps.", DeprecationWarning, stacklevel=2)
        before = self.count
        self.update(points, gradients)
        return list(self.jumps[len(self.jumps) - (self.count - before) :])

    def _test_and_refit(self, rows: Rows) -> None:
        """Test rows against small fits."""
        while len(rows[0]):
            alarm, rows = self._test_and_keep(rows, self._renewal - self.since)
            later = 0 if alarm else None
            # The rows since a jump may be enough for the next small fit, which may raise an alarm of its own.
            while later is not None or self.since >= self._renewal:
                if later is not None:
                    self._start_after(self._located(later))
                later = self._refit() if self.since >= self._renewal else None

    def _test_and_judge(self, rows: Rows, judge: Judge) -> None:
        """Test rows against a full fit."""
        while len(rows[0]):
            due = self._renewal - self.since if self._suspect is None else self._suspect.again - self.seen
            alarm, rows = self._test_and_keep(rows, due)
            if alarm:
                self._suspect = Suspect(self._located(0), self.seen)
            if self._suspect is not None:
                if self.seen >= self._suspect.again:
                    self._ask(self._suspect.jump, judge)
            elif self.since >= self._renewal:
                self._follow(judge())

    def _test_and_keep(self, rows: Rows, most: int) -> tuple[bool, Rows]:
        """Test and keep rows until there is an alarm, or so many; whether there was one, and the other rows.

        They are not tested while a jump is suspected.
        """
        points, gradients = (part[:most].astype(float) for part in rows[:2])
        alarm = self._alarm(points, gradients) if self._suspect is None else None
        taken = len(points) if alarm is None else alarm + 1
        self._recent.add(*(part[:taken] for part in rows))
        self.since += taken
        self.seen += taken
        return alarm is not None, tuple(part[taken:] for part in rows)

    def _ask(self, jump: Jump, judge: Judge) -> None:
        """Start again after a jump if a full fit confirms it; ask again later, or no more, if it does not."""
        kept, fit, after = self._recent, judge(), self.seen - jump.at
        rows = kept.points, kept.gradients, len(kept) - after
        if fit is not None and residuals_change(*rows, fit, self._followed_chance, kept.held, kept.agents):
            self._start_after(jump._replace(found=self.seen))
        elif fit is None or self.seen - jump.found >= SETTINGS.asked_for:
            self._suspect = None
            self._follow(fit)
        else:
            self._suspect = Suspect(jump, jump.at + int(np.ceil(after * SETTINGS.asked_more)))

    def _alarm(self, points: np.ndarray, gradients: np.ndarray) -> int | None:
        """Index of the row that raises an alarm, or None."""
        if self._test is None or self._expected is None:
            return None
        residuals = residuals_of(self._expected, points, gradients)
        return self._test.update(points, residuals, self._expected.explored(points))

    def _located(self, later: int) -> Jump:
        """The jump whose alarm was raised ``later`` rows ago."""
        assert self._test is not None
        after, statistic = self._test.locate()
        return Jump(self.seen - after - later, self.seen, statistic, self._test.threshold)

    def _start_after(self, jump: Jump) -> None:
        """Record a jump, and start again with the rows since."""
        self.jumps = (*self.jumps, jump)[-SETTINGS.remembered :]
        self.count += 1
        self.since, self._renewal = self.seen - jump.at, self._fewest
        self._recent.cut(self.since)
        self._expected = self._test = self._suspect = None

    def _refit(self) -> int | None:
        """Refit to all kept rows except the last and test those; return the number of rows since an alarm, or None."""
        self._renewal = min(2 * self.since, self.since + SETTINGS.longest_interval)
        last = min(SETTINGS.windows[-1], len(self._recent) // SETTINGS.tested_share)
        first = len(self._recent) - last
        count = self._enough(self._recent.points[:first])
        if count is None:
            self._expected = self._test = None
            return None
        points, gradients = (part[first - count : first] for part in (self._recent.points, self._recent.gradients))
        usual = usual_rows(points, gradients)
        points, gradients = points[usual], gradients[usual]
        self._expected, residuals = fit_expected(points, gradients)
        known = self._expected.explored(points)
        rows = (points[known], residuals[known], gradients[known])
        self._test = JumpTest.against(*rows, self.false_alarms)
        alarm = self._alarm(self._recent.points[first:], self._recent.gradients[first:])
        return None if alarm is None else last - 1 - alarm

    def _follow(self, fit: Nearby | None) -> None:
        """Predict gradients by a full fit, if it knows enough of the kept rows that it was not fitted to."""
        self._expected = self._test = None
        self._renewal = self.since + self._fewest
        if fit is None:
            return
        points, gradients = self._recent.points, self._recent.gradients
        unseen = self._recent.held & fit.explored(points) & usual_rows(points, gradients)
        if np.count_nonzero(unseen) < SETTINGS.fewest_unseen:
            return
        points, gradients = points[unseen], gradients[unseen]
        residuals = residuals_of(fit, points, gradients)
        self._expected = fit
        self._test = JumpTest.against(points, residuals, gradients, self._followed_chance, residuals)
        self._renewal = min(2 * self.since, self.since + SETTINGS.longest_interval)

    def _enough(self, points: np.ndarray) -> int | None:
        """Number of last rows to fit to: as few as are worth ``plenty`` independent ones; None if all are too few."""
        best, rows = (0.0, 0), min(len(points), SETTINGS.rows)
        while True:
            # More rows may be worth fewer independent ones, if learners have moved since the earlier ones.
            best = max(best, (rows / correlation_times(points[-rows:])[0], rows))
            if best[0] >= SETTINGS.plenty or rows == len(points):
                per_score = SETTINGS.per_score * score_count(self.dim) // SETTINGS.independent_share
                return best[1] if best[0] >= max(SETTINGS.fewest_independent, per_score) else None
            rows = min(2 * rows, len(points))


def as_detector(detector: Any, dim: int) -> JumpWatch | OtherDetector:
    """A detector for points of this dimension: a new `JumpWatch` for None; one of another kind is wrapped."""
    if detector is None:
        return JumpWatch(dim)
    if not isinstance(detector, JumpWatch):
        return OtherDetector.of(detector)
    if detector.dim != dim or detector.seen:
        raise ValueError(
            f"detector is a JumpWatch of {detector.dim} dimensions that has seen {detector.seen} observations; give a "
            f"new one, JumpWatch({dim})."
        )
    return detector


def shown(
    detector: JumpWatch | OtherDetector,
    points: np.ndarray,
    gradients: np.ndarray,
    usual: np.ndarray,
    judge: Judge | None = None,
    held: np.ndarray | bool = False,
    agents: np.ndarray | int = -1,
) -> bool:
    """Show a detector the rows (n, dim) that are ``usual`` (n,); return whether it detects a jump.

    The other rows are of learners that ran away; they still count in the dates of jumps. Only a `JumpWatch` asks the
    judge and is told which rows are ``held`` out, and of which ``agents`` (see `JumpWatch.update`).
    """
    if usual.any():
        if isinstance(detector, JumpWatch):
            more = (np.broadcast_to(part, len(usual))[usual] for part in (held, agents))
            detector.update(points[usual], gradients[usual], judge, *more)
        else:
            detector.update(points[usual], gradients[usual])
    detector.seen += int(np.count_nonzero(~usual))
    return bool(usual.any()) and detector.jump_detected
