"""When did the reward jump? Gradients, as they come, against those expected from the ones before, in bounded memory.

After the first few hundred rows, and again whenever their number has doubled, a small fit (`expected`) learns
what to expect, and `statistic` tests all later rows against it. After an alarm only the rows since the jump are
kept, and all begins anew.
"""

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onlooker.core.blas import one_thread
from onlooker.core.settings import check_positive, check_whole
from onlooker.data.buffer import Recent
from onlooker.data.observations import LARGEST, usable_rows
from onlooker.data.quality import usual_rows
from onlooker.fit.cosine_potential import CosinePotential
from onlooker.fit.jumps.detector import REMEMBERED, OtherDetector
from onlooker.fit.jumps.expected import Parabola, fit_expected
from onlooker.fit.jumps.statistic import WINDOWS, Jump, JumpTest, correlation_times, score_count

__all__ = ["FALSE_ALARMS", "JumpWatch", "as_detector"]

# Per observation.
FALSE_ALARMS = 1e-5
# Rows before anything is expected: so many, or so many for each score that is tested.
FEWEST, PER_SCORE = 256, 10
# Independent rows that these must be worth, or a third as many for each score, and how many are plenty: ten consecutive
# steps of an agent are little more than one.
FEWEST_INDEPENDENT, PLENTY = 60, 1000
# Rows that the expectation is made from, or up to so many numbers when they are not independent; and how many rows
# later it is made anew at the latest.
ROWS, NUMBERS = 1 << 13, 1 << 17
LATEST = 1 << 18
# Rows that tell whether learners are where gradients can be predicted.
LATELY = 1024


@dataclass
class JumpWatch:
    """Notices jumps of a reward.

    It is a detector of two members, ``update`` and ``jump_detected``; ``jumps`` says more.

    Parameters
    ----------
    dim
        Dimension of the points.
    false_alarms
        With which probability, per observation, chance may raise an alarm, see `JumpTest`.

    Attributes
    ----------
    jump_detected
        Whether the last update noticed a jump.
    jumps
        The last thousand jumps, and in ``count`` how many there were.
    seen
        The number of observations so far.

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
    false_alarms: float = FALSE_ALARMS
    seen: int = field(default=0, init=False)
    count: int = field(default=0, init=False)
    jumps: tuple[Jump, ...] = field(default=(), init=False)
    jump_detected: bool = field(default=False, init=False)
    # How many observations came after the last jump, or altogether.
    since: int = field(default=0, init=False)
    _renewal: int = field(init=False)
    _recent: Recent = field(init=False)
    _expected: Parabola | CosinePotential | None = field(default=None, init=False)
    _test: JumpTest | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        check_whole(dim=self.dim)
        check_positive(false_alarms=self.false_alarms)
        if self.false_alarms >= 1:
            raise ValueError(f"false_alarms is {self.false_alarms!r}; give a probability between 0 and 1.")
        self._renewal = self._fewest
        self._recent = Recent(self.dim, max(NUMBERS // self.dim, ROWS))

    @property
    def _fewest(self) -> int:
        return max(FEWEST, PER_SCORE * score_count(self.dim))

    @property
    def watching(self) -> bool:
        """Whether a jump could be noticed now: gradients are predicted, and learners are where they can be."""
        if self._test is None or self._expected is None:
            return False
        return bool(self._expected.explored(self._recent.points[-LATELY:]).mean() > 0.5)

    def update(self, points: np.ndarray, gradients: np.ndarray) -> None:
        """The next rows (n, dim), in the order they were made."""
        points, gradients = np.asarray(points), np.asarray(gradients)
        if points.ndim != 2 or points.shape != gradients.shape or points.shape[1] != self.dim:
            raise ValueError(
                f"points has shape {points.shape} and gradients {gradients.shape}; give both as (n, {self.dim})."
            )
        if not usable_rows(points, gradients).all():
            raise ValueError(
                f"points or gradients hold a NaN, an infinity or a number beyond {LARGEST:g}; give them to "
                "onlooker.observe first, which leaves such rows out."
            )
        before = self.count
        with one_thread():
            self._take_in(points, gradients)
        self.jump_detected = self.count > before

    def learn(self, points: np.ndarray, gradients: np.ndarray) -> list[Jump]:
        """The old name of `update`, which returned the jumps noticed; it goes away in the next release."""
        warnings.warn("JumpWatch.learn is now JumpWatch.update; see its jumps.", DeprecationWarning, stacklevel=2)
        before = self.count
        self.update(points, gradients)
        return list(self.jumps[len(self.jumps) - (self.count - before) :])

    def _take_in(self, points: np.ndarray, gradients: np.ndarray) -> None:
        while len(points):
            some = min(len(points), self._renewal - self.since)
            next_points, next_gradients = (part[:some].astype(float) for part in (points, gradients))
            alarm = self._alarm(next_points, next_gradients)
            taken = some if alarm is None else alarm + 1
            self._take(next_points[:taken], next_gradients[:taken])
            later = 0 if alarm is not None else None
            while later is not None or self.since >= self._renewal:
                if later is not None:
                    self._begin_anew(later)
                later = self._renew() if self.since >= self._renewal else None
            points, gradients = points[taken:], gradients[taken:]

    def _alarm(self, points: np.ndarray, gradients: np.ndarray) -> int | None:
        if self._test is None or self._expected is None:
            return None
        residuals = gradients - self._expected.gradient(points)
        return self._test.update(points, residuals, self._expected.explored(points))

    def _take(self, points: np.ndarray, gradients: np.ndarray) -> None:
        self._recent.add(points, gradients)
        self.since += len(points)
        self.seen += len(points)

    def _begin_anew(self, later: int) -> None:
        """After an alarm so many rows ago: with the rows since the jump."""
        assert self._test is not None
        after, statistic = self._test.locate()
        after += later
        jump = Jump(self.seen - after, self.seen, statistic, self._test.threshold)
        self.jumps = (*self.jumps, jump)[-REMEMBERED:]
        self.count += 1
        self._recent.cut(after)
        self.since, self._renewal = after, self._fewest
        self._expected = self._test = None

    def _renew(self) -> int | None:
        """Learn what to expect from the rows kept but the last, and test these; how many rows ago was the alarm?"""
        self._renewal = min(2 * self.since, self.since + LATEST)
        last = min(int(WINDOWS[-1]), len(self._recent) // 4)
        count = self._enough(self._recent.points[:-last])
        if count is None:
            self._expected = self._test = None
            return None
        points, gradients = (part[:-last][-count:] for part in (self._recent.points, self._recent.gradients))
        usual = usual_rows(points, gradients)
        points, gradients = points[usual], gradients[usual]
        self._expected, residuals = fit_expected(points, gradients)
        known = self._expected.explored(points)
        rows = (points[known], residuals[known], gradients[known])
        self._test = JumpTest.against(*rows, self.false_alarms)
        alarm = self._alarm(self._recent.points[-last:], self._recent.gradients[-last:])
        return None if alarm is None else last - 1 - alarm

    def _enough(self, points: np.ndarray) -> int | None:
        """How many of the last of these tell what to expect: as few as are plenty; none if all are not enough."""
        best, rows = (0.0, 0), min(len(points), ROWS)
        while True:
            # More rows may be worth less: learners that have followed the reward to another place were elsewhere.
            best = max(best, (rows / correlation_times(points[-rows:])[0], rows))
            if best[0] >= PLENTY or rows == len(points):
                fewest = max(FEWEST_INDEPENDENT, PER_SCORE * score_count(self.dim) // 3)
                return best[1] if best[0] >= fewest else None
            rows = min(2 * rows, len(points))


def as_detector(detector: Any, dim: int) -> JumpWatch | OtherDetector:
    """A detector for points of that dimension: a new watch for ``None``, or somebody else's, with its jumps counted."""
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
