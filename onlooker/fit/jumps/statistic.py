"""T² = ‖Σ_{last w} (s − s̄)‖² / (w(1 + w/n)κ_w): a test for a jump of the reward, for many window lengths w.

When R changes by b·z + ½zᵀHz, the residual e = g − ∇R̂(θ) of the predicted gradient gets the mean b + Hz, where z is the
point in units of the spread. Then the scores e_i, z_i e_i and z_i e_j + z_j e_i get a mean as well. The scores s are
whitened by their covariance over n earlier rows, and s̄ is their mean there. While nothing changes, T² follows
Hotelling's law: the factor 1 + w/n accounts for the error of s̄, and κ_w ≥ 1 is the variance of sums of w rows relative
to that of independent rows. An alarm is raised if T² exceeds the value that chance exceeds with the given probability.
This is the window-limited generalised likelihood ratio of Willsky & Jones (1976). Unlike Page–Hinkley or CUSUM, it does
not need to know the size of the jump, nor which gradient changes.

T² must also be significant relative to the variance of the last w scores about their own mean. This variance is larger
than usual where learners that have just begun, far from the others, follow one another. Only its part along their mean
m counts: w|m|⁴/(mᵀSm) ≤ w mᵀS⁻¹m (Cauchy and Schwarz), so that chance exceeds it at most as often as pF(p, w − 1), for
any w; Hotelling's law needs more rows than scores. Rows at which gradients cannot be predicted are not counted.

Consecutive rows of one agent are nearly copies of each other. If rows are correlated, several consecutive ones count as
one unit, and w is a number of units. Whitened scores longer than √p + ½ are clipped to that length, so no single row
and no single agent raises an alarm. A change of R that is orthogonal to all quadratics has no mean score and is not
detected; nor, above three dimensions, is one of mixed curvatures alone.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import betaincinv

from onlooker.fit.jumps.settings import SETTINGS

__all__ = ["Jump", "JumpTest", "correlation_times", "score_count"]


# Length of a whitened unit below which it has no rows that count: differences of sums are not exactly zero.
NOTHING = 1e-9


class Jump(NamedTuple):
    """A change of the reward.

    Attributes
    ----------
    at
        Estimated number of observations before the jump.
    found
        Number of observations when it was detected.
    statistic
        T² at that time.
    threshold
        The threshold that T² exceeded.
    """

    at: int
    found: int
    statistic: float
    threshold: float


@dataclass
class JumpTest:
    """Tests new rows, one after the other, against earlier rows.

    Attributes
    ----------
    centre
        Mean of the earlier points.
    spread
        Standard deviation of the earlier points.
    unit
        Number of consecutive, correlated rows that count as one unit.
    first
        Matrix that whitens the scores of a unit, which are then clipped.
    mean
        Mean of the clipped scores.
    second
        Matrix that whitens the clipped scores about their mean.
    windows
        Window lengths, in units.
    divisors
        w(1 + w/n)κ_w for each window.
    threshold
        Threshold of T².
    pending
        Scores of the rows of an incomplete unit; the last column is each row's share of the unit, or 0.
    sums
        Cumulative sums of the last units.
    statistic
        T² at the last alarm.
    chance
        Probability of a false alarm per unit and window.
    """

    centre: np.ndarray
    spread: np.ndarray
    unit: int
    first: np.ndarray
    mean: np.ndarray
    second: np.ndarray
    windows: np.ndarray
    divisors: np.ndarray
    threshold: float
    pending: np.ndarray
    sums: np.ndarray
    statistic: float = 0.0
    chance: float = SETTINGS.false_alarms / len(SETTINGS.windows)

    @classmethod
    def against(
        cls,
        points: np.ndarray,
        residuals: np.ndarray,
        gradients: np.ndarray,
        false_alarms: float,
        correlated: np.ndarray | None = None,
    ) -> "JumpTest":
        """A test against earlier rows, before any new row.

        Parameters
        ----------
        points
            (n, dim): the earlier points.
        residuals
            (n, dim): their gradients minus a prediction that was made without them.
        gradients
            (n, dim): their gradients, which set the size of the smallest change that is tested.
        false_alarms
            False-alarm probability per row; approximate if residuals are not normal.
        correlated
            (n, dim): what may be correlated from row to row; default: the points. If hardly anything but noise is left
            of gradients, residuals are not, although learners are nearly where they were.
        """
        centre, spread = points.mean(axis=0), points.std(axis=0)
        spread = np.where(spread > 0, spread, 1.0)
        together, run = correlation_times(points if correlated is None else _bounded(correlated))
        unit = 1 << int(np.log2(run))
        sums = _block_sums(_scores((points - centre) / spread, residuals * spread), unit)
        size_of_gradients = float(np.sqrt(np.median(np.mean((gradients * spread) ** 2, axis=1))))
        first = _whitener(_bounded(sums), SETTINGS.tolerance * size_of_gradients * unit)
        clipped = _clipped(sums @ first)
        mean = clipped.mean(axis=0)
        second = _whitener(clipped - mean, SETTINGS.least_deviation)
        before = (clipped - mean) @ second
        count, size = before.shape
        windows = np.array(SETTINGS.windows)
        windows = windows[np.maximum(count, 2 * windows[0]) >= 2 * windows]
        divisors = windows * (1 + windows / count) * _excess(before, windows, together / run)
        freedom = count - size
        chance = min(unit * false_alarms / len(windows), 0.5)
        threshold = float(size * (count - 1) / freedom * _f_above(chance, size, freedom))
        pending, nothing = np.zeros((0, size + 1)), np.zeros((1, size))
        parts = centre, spread, unit, first, mean, second, windows, divisors, threshold, pending, nothing
        return cls(*parts, chance=chance)

    def update(self, points: np.ndarray, residuals: np.ndarray, known: np.ndarray) -> int | None:
        """Test the next rows; return the index of the row that raises an alarm, or None.

        Rows after an alarm are ignored.

        Parameters
        ----------
        points
            (n, dim): the points.
        residuals
            (n, dim): their gradients minus the prediction.
        known
            (n,): whether gradients can be predicted at the point; other rows count as unchanged.
        """
        scores = _scores((points - self.centre) / self.spread, residuals * self.spread)
        scores = np.where(known[:, None], scores, 0)
        begun = len(self.pending)
        # The last column is the share of a unit that is known.
        rows = np.concatenate([self.pending, np.column_stack([scores, known / self.unit])])
        self.pending = rows[len(rows) // self.unit * self.unit :]
        units = _block_sums(rows, self.unit)
        clipped = _clipped(units[:, :-1] @ self.first)
        alarm = self._add((clipped - units[:, -1:] * self.mean) @ self.second)
        if alarm is None:
            return None
        self.pending = rows[:0]
        return (alarm + 1) * self.unit - 1 - begun

    def _add(self, units: np.ndarray) -> int | None:
        """Add whitened units; return the index of the unit that raises an alarm, or None."""
        past, size = len(self.sums), units.shape[1]
        sums = np.concatenate([self.sums, self.sums[-1] + np.cumsum(units, axis=0)])
        known = np.concatenate([[0], np.cumsum(_known(np.diff(sums, axis=0)))])
        alarm: int | None = None
        for width, divisor in zip(self.windows, self.divisors, strict=True):
            first = max(past, width)
            apart, count = (part[first:] - part[first - width : -width] for part in (sums, known))
            statistic = np.einsum("np,np->n", apart, apart) / (divisor / width * np.maximum(count, 1))
            for row in np.flatnonzero(statistic > self.threshold) + first:
                if alarm is not None and row - past >= alarm:
                    break
                window = np.diff(sums[row - width : row + 1], axis=0)
                window = window[_known(window)]
                if len(window) > 1 and _own_statistic(window) > size * _f_above(self.chance, size, len(window) - 1):
                    alarm, self.statistic = int(row) - past, float(statistic[row - first])
                    break
        if alarm is not None:
            sums = sums[: past + alarm + 1]
        keep = sums[-int(self.windows[-1]) - 1 :]
        # Sums start at the oldest unit that is kept, so they do not grow with the number of rows.
        self.sums = keep - keep[0]
        return alarm

    def locate(self) -> tuple[int, float]:
        """After an alarm: the most likely number of rows since the jump, and T²."""
        # The time of a change of mean at which the same statistic is largest, over windows of any length.
        widths = np.arange(1, len(self.sums))
        divisors = np.interp(widths, self.windows, self.divisors / self.windows) * widths
        apart = self.sums[-1] - self.sums[-2::-1]
        after = int(widths[np.argmax(np.einsum("np,np->n", apart, apart) / divisors)])
        return after * self.unit, self.statistic


def _scores(scaled: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    """e_i, z_i e_i and, in few dimensions, z_i e_j + z_j e_i for points z and residuals e in units of the spread."""
    dim = slopes.shape[1]
    columns = [slopes, scaled * slopes]
    if dim <= SETTINGS.pairs_up_to:
        columns += [
            (scaled[:, one] * slopes[:, other] + scaled[:, other] * slopes[:, one])[:, None]
            for one in range(dim)
            for other in range(one)
        ]
    return np.concatenate(columns, axis=1)


def score_count(dim: int) -> int:
    """The number p of scores."""
    return 2 * dim + (dim * (dim - 1) // 2 if dim <= SETTINGS.pairs_up_to else 0)


def correlation_times(points: np.ndarray) -> tuple[float, float]:
    """τ = 1 + 2Σρ_k of points (n, dim), over all lags k and over those before the first without correlation.

    The rows are worth n/τ independent ones. If agents follow one another, both times are long. If agents take turns,
    only the first is: consecutive rows belong to different agents and are nearly independent.
    """
    count = len(points)
    spread = points.std(axis=0)
    scaled = (points - points.mean(axis=0))[:, spread > 0] / spread[spread > 0]
    power = np.abs(np.fft.rfft(scaled, 2 * count, axis=0)) ** 2
    correlation = np.fft.irfft(power, axis=0)[1 : count // 2] / count
    unbroken = np.cumprod(correlation > SETTINGS.correlation_errors / np.sqrt(count), axis=0) * correlation
    run = 1 + 2 * float(unbroken.sum(axis=0).max(initial=0))
    # The standard error of an autocorrelation is that of a mean of count/run independent products.
    correlation[np.abs(correlation) < SETTINGS.correlation_errors * np.sqrt(run / count)] = 0
    return max(run, 1 + 2 * float(correlation.sum(axis=0).max(initial=0))), run


def _block_sums(rows: np.ndarray, width: int) -> np.ndarray:
    """Sums of consecutive blocks of ``width`` rows; an incomplete last block is left out."""
    sums = len(rows) // width
    return rows[: sums * width].reshape(sums, width, rows.shape[1]).sum(axis=1)


def _clipped(whitened: np.ndarray) -> np.ndarray:
    """Whitened scores (n, p), none of them longer than √p + reach."""
    length = np.sqrt(np.einsum("np,np->n", whitened, whitened))
    longest = np.sqrt(whitened.shape[1]) + SETTINGS.reach
    return whitened * np.minimum(1, longest / np.maximum(length, longest))[:, None]


def _bounded(rows: np.ndarray) -> np.ndarray:
    """Rows with a length of at most ``farthest`` medians of the columns, so that a few do not set the scale."""
    middle = np.median(np.abs(rows), axis=0)
    scale = np.where(middle > 0, middle, rows.std(axis=0))
    length = np.sqrt(np.mean((rows / np.where(scale > 0, scale, 1.0)) ** 2, axis=1))
    return rows * np.minimum(1, SETTINGS.farthest / np.maximum(length, SETTINGS.farthest))[:, None]


def _whitener(rows: np.ndarray, floor: float) -> np.ndarray:
    """The matrix W for which (rows W) have covariance I; standard deviations below ``floor`` count as ``floor``."""
    variances, axes = np.linalg.eigh(rows.T @ rows / len(rows))
    return axes / np.sqrt(np.maximum(variances, max(floor, 1e-150) ** 2))


def _known(units: np.ndarray) -> np.ndarray:
    """Which units (n, p) have a row at which gradients can be predicted."""
    return np.abs(units).max(axis=1) > NOTHING


def _own_statistic(units: np.ndarray) -> float:
    """w|m|⁴/(mᵀSm) for the mean m of units (w, p) and their covariance S."""
    mean = units.mean(axis=0)
    size = float(mean @ mean)
    # Units that are all clipped to the same score have no variance.
    along = float(((units - mean) @ mean).var(ddof=1)) + SETTINGS.rounding * size
    return len(units) * size**2 / max(along, 1e-300)


def _excess(before: np.ndarray, windows: np.ndarray, most: float) -> np.ndarray:
    """κ_w ≥ 1 for each window: the variance of sums of w units relative to that of independent units.

    If there are too few sums to estimate it, it is taken to grow in proportion to w, up to ``most``.
    """
    count, size = before.shape
    excess = [1.0]
    for width, shorter in zip(windows, (windows[0], *windows[:-1]), strict=True):
        sums = count // width
        if sums >= SETTINGS.fewest_blocks and sums * size >= SETTINGS.fewest_squares:
            blocks = _block_sums(before, width)
            excess.append(max(excess[-1], float((blocks**2).mean()) / width / (1 - width / count)))
        else:
            excess.append(max(excess[-1], min(excess[-1] * width / shorter, most)))
    return np.array(excess[1:])


def _f_above(chance: float, size: int, freedom: Any) -> Any:
    """The value that an F variable exceeds with this chance. By scipy.special: scipy.stats takes a second to import."""
    share = betaincinv(freedom / 2, size / 2, chance)
    return freedom * (1 - share) / (size * share)
