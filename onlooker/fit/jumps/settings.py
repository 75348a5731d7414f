"""The constants of jump detection, each with its reason."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

__all__ = ["SETTINGS", "JumpSettings"]


@dataclass(frozen=True)
class JumpSettings:
    """Constants of the modules `statistic`, `expected`, `watch`, `detector` and `record`, in this order.

    Attributes
    ----------
    windows
        Window lengths, in units of rows: short windows detect large jumps early, and only long ones detect small jumps.
        Each is twice as long as the one before, so that one of them suits a jump of any size.
    fewest_squares
        Smallest number of squared scores of sums from which κ_w is estimated: its relative standard error is then below
        a fifth.
    fewest_blocks
        Smallest number of these sums: fewer are of a few agents.
    correlation_errors
        Autocorrelations below this number of standard errors count as zero: chance exceeds it at one lag in 16 000.
    farthest
        Rows farther out, in medians, count as this far when the scale of the scores is set, so that a few of them do
        not set it. No row is left out for it: `data.quality.usual_rows` has already removed runaway rows.
    reach
        Scores longer than √p + ``reach`` are clipped. Their root mean square is √p, so no row raises an alarm alone.
    least_deviation
        Lower bound on the standard deviation of clipped scores: those with heavier tails count for less.
    rounding
        Added to the variances of the units in a window, which are zero if all units are clipped to the same score.
    tolerance
        Changes of the gradients by less than this share of their size are left to the fit: if there is no noise, errors
        of the prediction raise no alarm.
    pairs_up_to
        Largest dimension in which every pair of coordinates has a score. Above it only single coordinates have, so that
        the number of scores, and of rows needed, does not grow with the square of the dimension.
    orders
        Cosines per axis of the small fit, by dimension: at most 216 coefficients, so that it takes milliseconds.
    cosines_from
        Number of rows from which the small fit has cosines: the first fit, to 192 rows, is a quadratic.
    folds
        Number of folds of the cross-validation, in which every row is predicted once from others. Unlike in
        `data.splits`, no rows are held out for good.
    false_alarms
        Probability of a false alarm per observation of a stream.
    followed_false_alarms
        The same where a full fit predicts gradients: hardly anything but noise is left, so that a jump is found almost
        as early as with a probability a thousand times as large.
    fewest_unseen
        Smallest number of rows that the full fit was not fitted to from which a test against it begins: κ_w of the
        shortest window needs this many.
    fewest
        Smallest number of rows, at first and after a jump, before a small fit: no jump is detected earlier.
    per_score
        Smallest number of those rows per score, since the covariance of the scores is estimated from them.
    fewest_independent
        Smallest number of independent rows that they must be worth: ten consecutive steps of an agent are little more
        than one.
    independent_share
        One in this number of the rows per score must be independent.
    plenty
        Rows are added to the small fit until they are worth this number of independent ones.
    rows
        Number of rows used for the small fit if they are independent: bounds the time of a refit.
    numbers
        Number of values of the points that are kept in case rows are correlated, but at least those of ``rows`` rows: a
        megabyte, and another one for the gradients.
    longest_interval
        Largest number of rows between refits; up to it, the number of rows doubles from one refit to the next.
    tested_share
        At a refit, the rows of the longest window are left out and tested, but at most one row in this number.
    lately
        Number of latest points that tell whether learners are where gradients can be predicted: the longest window.
    lately_explored
        Share of these points that must be explored for a jump to be detected.
    remembered
        Number of jumps that a detector keeps: bounds its memory.
    record_false_alarm
        Probability that a jump is reported somewhere in a record of a reward that never jumped.
    confirmed_by
        Number of rows before a jump, and number after it, on which the full fit must confirm it: eight windows.
    confirmed_from
        Number of explored rows before a jump below which the full fit cannot judge, and the jump is believed.
    many_agents
        Number of agents from which a jump must show without the agent that it shows in most.
    asked_for
        Number of rows after an alarm within which a full fit is asked again, as it has more rows since: a jump that is
        just noticed has often too few to be confirmed.
    asked_more
        Growth of the number of rows since the jump after which it is asked again.
    """

    windows: tuple[int, ...] = (16, 32, 64, 128, 256, 512, 1024)
    fewest_squares: int = 64
    fewest_blocks: int = 8
    correlation_errors: float = 4.0
    farthest: float = 30.0
    reach: float = 0.5
    least_deviation: float = 0.5
    rounding: float = 1e-3
    tolerance: float = 0.05
    pairs_up_to: int = 3
    orders: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({1: 24, 2: 12, 3: 6}))
    cosines_from: int = 250
    folds: int = 5
    false_alarms: float = 1e-5
    followed_false_alarms: float = 1e-8
    fewest_unseen: int = 512
    fewest: int = 256
    per_score: int = 10
    fewest_independent: int = 60
    independent_share: int = 3
    plenty: int = 1000
    rows: int = 1 << 13
    numbers: int = 1 << 17
    longest_interval: int = 1 << 18
    tested_share: int = 4
    lately: int = 1024
    lately_explored: float = 0.5
    remembered: int = 1000
    record_false_alarm: float = 0.01
    confirmed_by: int = 1 << 13
    confirmed_from: int = 100
    many_agents: int = 10
    asked_for: int = 512
    asked_more: float = 1.25


SETTINGS = JumpSettings()
