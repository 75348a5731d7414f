"""Has the reward jumped? ‖Σ_{last w} (s − s̄)‖² of the scores s of what the gradients leave unexplained, for many w.

When R changes by b·z + ½zᵀHz, the residual e = g − ∇R̂(θ) of the gradients predicted so far gets the mean b + Hz, and
the scores e_i, z_i e_i and z_i e_j + z_j e_i get one too (z are the points in units of their spread). Whitened by
their covariance over rows before, the sum of the last w of them, squared, over w(1 + w/n)κ_w is Hotelling's T² when
nothing has changed: n is the number of rows before, whose mean s̄ is uncertain as well, and κ_w ≥ 1 by how much more
sums of w rows really vary there. An alarm is a T² that chance exceeds with the probability asked for. This is the
window-limited generalised likelihood ratio of Willsky & Jones (1976): unlike Page–Hinkley or CUSUM it needs not be told
how large a jump is, nor of which gradient.

T² must also be too large by the variance of the last w scores among themselves, which is larger than usual where
learners that have just begun, far from the others, come in a row.

Consecutive rows of one agent are one place seen many times; where rows are alike over a stretch, w counts such
stretches. Whitened scores longer than √p + ½ are shortened to that: no row and no agent, however odd, raises an alarm
alone. A change of R that no quadratic resembles has no mean score, and is not seen; nor,
above three dimensions, one of mixed curvatures alone.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import betaincinv

__all__ = ["WINDOWS", "Jump", "JumpTest", "correlation_times", "score_count"]

# How many of the last rows are summed.
WINDOWS = 2 ** np.arange(4, 11)
# Sums of w rows vary by κ_w, measured on so many of them at least.
FEWEST_SUMS = 32
# Autocorrelations below so many standard errors are chance.
CHANCE = 4.0
# Rows farther out, in medians, count as that far when the scale of the scores is set. Nothing is left out by it: rows
# that should be are, before, by `data.quality.usual_rows`.
FARTHEST = 30.0
# How far beyond √p a whitened score may reach.
REACH = 0.5
# What is left, at the least, of the deviation of scores when long ones are shortened: wilder ones count for less.
SHORTENED = 0.5
ROUNDING = 1e-3
# Changes of the gradients by less than this share of them are left to the fit.
TOLERANCE = 0.05
# All pairs of coordinates have a score up to this dimension, above it each coordinate its own.
PAIRS_UP_TO = 3


class Jump(NamedTuple):
    """A change of the reward.

    Attributes
    ----------
    at
        How many observations came before it, as far as can be told.
    found
        How many had been seen when it was noticed.
    statistic
        T², and the threshold it exceeded.
    """

    at: int
    found: int
    statistic: float
    threshold: float


@dataclass
class JumpTest:
    """Watches rows one after the other, against others that came before.

    Attributes
    ----------
    centre, spread
        Of the points before.
    unit
        How many rows are one unit: those alike.
    first, mean, second
        Units of scores are whitened, shortened, and whitened again about their mean.
    windows, divisors, own_thresholds
        How many of the last units are summed, what divides the square of their sum, and how large T² must be by their
        own variance.
    threshold
        Of T².
    pending
        Rows of a unit that is not complete, with how much of it each is.
    sums
        Of the last units, cumulative.
    statistic
        T² at the last alarm.
    """

    centre: np.ndarray
    spread: np.ndarray
    unit: int
    first: np.ndarray
    mean: np.ndarray
    second: np.ndarray
    windows: np.ndarray
    divisors: np.ndarray
    own_thresholds: np.ndarray
    threshold: float
    pending: np.ndarray
    sums: np.ndarray
    statistic: float = 0.0

    @classmethod
    def against(
        cls, points: np.ndarray, residuals: np.ndarray, gradients: np.ndarray, false_alarms: float
    ) -> "JumpTest":
        """A test that has seen nothing yet.

        Parameters
        ----------
        points, residuals
            (n, dim): the rows before, and what a prediction that does not know them left of their gradients.
        gradients
            (n, dim): these themselves; what is small beside them is not tested.
        false_alarms
            With which probability, per row, chance may raise an alarm; nearly so for residuals that are not normal.
        """
        centre, spread = points.mean(axis=0), points.std(axis=0)
        spread = np.where(spread > 0, spread, 1.0)
        together, run = correlation_times(points)
        unit = 1 << int(np.log2(run))
        sums = _block_sums(_scores((points - centre) / spread, residuals * spread), unit)
        size_of_gradients = float(np.sqrt(np.median(np.mean((gradients * spread) ** 2, axis=1))))
        first = _whitener(_tamed(sums), TOLERANCE * size_of_gradients * unit)
        short = _shorten(sums @ first)
        mean = short.mean(axis=0)
        second = _whitener(short - mean, SHORTENED)
        before = (short - mean) @ second
        count, size = before.shape
        windows = WINDOWS[np.maximum(count, 2 * WINDOWS[0]) >= 2 * WINDOWS]
        divisors = windows * (1 + windows / count) * _excess(before, windows, together / run)
        freedom = count - size
        chance = min(unit * false_alarms / len(windows), 0.5)
        threshold = float(size * (count - 1) / freedom * _f_above(chance, size, freedom))
        # The same by the variance that the last w units have among themselves.
        rest = np.maximum(windows - size, 1)
        own_thresholds = size * (windows - 1) / rest * _f_above(chance, size, rest)
        pending, nothing = np.zeros((0, size + 1)), np.zeros((1, size))
        return cls(
            centre, spread, unit, first, mean, second, windows, divisors, own_thresholds, threshold, pending, nothing
        )

    def update(self, points: np.ndarray, residuals: np.ndarray, known: np.ndarray) -> int | None:
        """The next rows (n, dim); the first one at which there is an alarm, if any: later ones are not taken in.

        Rows that are not ``known``, where nothing can be predicted, say nothing.
        """
        scores = _scores((points - self.centre) / self.spread, residuals * self.spread)
        scores = np.where(known[:, None], scores, 0)
        begun = len(self.pending)
        # The last column says how much of a unit is known.
        rows = np.concatenate([self.pending, np.column_stack([scores, known / self.unit])])
        self.pending = rows[len(rows) // self.unit * self.unit :]
        units = _block_sums(rows, self.unit)
        short = _shorten(units[:, :-1] @ self.first)
        alarm = self._add((short - units[:, -1:] * self.mean) @ self.second)
        if alarm is None:
            return None
        self.pending = rows[:0]
        return (alarm + 1) * self.unit - 1 - begun

    def _add(self, units: np.ndarray) -> int | None:
        """Whitened units; the first one at which there is an alarm, if any."""
        past = len(self.sums)
        sums = np.concatenate([self.sums, self.sums[-1] + np.cumsum(units, axis=0)])
        alarm: int | None = None
        for width, divisor, limit in zip(self.windows, self.divisors, self.own_thresholds, strict=True):
            first = max(past, width)
            apart = sums[first:] - sums[first - width : -width]
            statistic = np.einsum("np,np->n", apart, apart) / divisor
            for row in np.flatnonzero(statistic > self.threshold) + first:
                if alarm is not None and row - past >= alarm:
                    break
                if _own_hotelling(np.diff(sums[row - width : row + 1], axis=0)) > limit:
                    alarm, self.statistic = int(row) - past, float(statistic[row - first])
                    break
        if alarm is not None:
            sums = sums[: past + alarm + 1]
        keep = sums[-int(self.windows[-1]) - 1 :]
        # Counted from the oldest sum that is kept: they never grow.
        self.sums = keep - keep[0]
        return alarm

    def locate(self) -> tuple[int, float]:
        """After an alarm: how many of the last rows came after the jump, most likely, and T²."""
        # The likeliest time of a change of mean among the units kept, by the same statistic for any width.
        widths = np.arange(1, len(self.sums))
        divisors = np.interp(widths, self.windows, self.divisors / self.windows) * widths
        apart = self.sums[-1] - self.sums[-2::-1]
        after = int(widths[np.argmax(np.einsum("np,np->n", apart, apart) / divisors)])
        return after * self.unit, self.statistic


def _scores(scaled: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    """e_i, z_i e_i and, in few dimensions, z_i e_j + z_j e_i, of points z and residuals e in units of the spread."""
    dim = slopes.shape[1]
    columns = [slopes, scaled * slopes]
    if dim <= PAIRS_UP_TO:
        columns += [
            (scaled[:, one] * slopes[:, other] + scaled[:, other] * slopes[:, one])[:, None]
            for one in range(dim)
            for other in range(one)
        ]
    return np.concatenate(columns, axis=1)


def score_count(dim: int) -> int:
    """p."""
    return 2 * dim + (dim * (dim - 1) // 2 if dim <= PAIRS_UP_TO else 0)


def correlation_times(points: np.ndarray) -> tuple[float, float]:
    """τ = 1 + 2Σρ_k of rows (n, dim), worth n/τ independent ones; and the same up to the first lag without correlation.

    Agents one after the other have both; agents that take turns are alike at long lags only, and consecutive rows of
    theirs are as good as independent.
    """
    count = len(points)
    spread = points.std(axis=0)
    scaled = (points - points.mean(axis=0))[:, spread > 0] / spread[spread > 0]
    power = np.abs(np.fft.rfft(scaled, 2 * count, axis=0)) ** 2
    correlation = np.fft.irfft(power, axis=0)[1 : count // 2] / count
    unbroken = np.cumprod(correlation > CHANCE / np.sqrt(count), axis=0) * correlation
    run = 1 + 2 * float(unbroken.sum(axis=0).max(initial=0))
    # The standard error of an autocorrelation is that of a mean of count/run independent products.
    correlation[np.abs(correlation) < CHANCE * np.sqrt(run / count)] = 0
    return max(run, 1 + 2 * float(correlation.sum(axis=0).max(initial=0))), run


def _block_sums(rows: np.ndarray, width: int) -> np.ndarray:
    """Sums of so many rows each, none in two."""
    sums = len(rows) // width
    return rows[: sums * width].reshape(sums, width, rows.shape[1]).sum(axis=1)


def _shorten(whitened: np.ndarray) -> np.ndarray:
    length = np.sqrt(np.einsum("np,np->n", whitened, whitened))
    longest = np.sqrt(whitened.shape[1]) + REACH
    return whitened * np.minimum(1, longest / np.maximum(length, longest))[:, None]


def _tamed(rows: np.ndarray) -> np.ndarray:
    """Rows no longer than FARTHEST in units of the columns' medians: a few wild ones do not set the scale."""
    middle = np.median(np.abs(rows), axis=0)
    scale = np.where(middle > 0, middle, rows.std(axis=0))
    length = np.sqrt(np.mean((rows / np.where(scale > 0, scale, 1.0)) ** 2, axis=1))
    return rows * np.minimum(1, FARTHEST / np.maximum(length, FARTHEST))[:, None]


def _whitener(rows: np.ndarray, floor: float) -> np.ndarray:
    """W with (rows W) of covariance I; no direction has a deviation below the floor."""
    variances, axes = np.linalg.eigh(rows.T @ rows / len(rows))
    return axes / np.sqrt(np.maximum(variances, max(floor, 1e-150) ** 2))


def _own_hotelling(units: np.ndarray) -> float:
    """T² of the mean of units (w, p) by their own covariance."""
    mean = units.mean(axis=0)
    covariance = np.atleast_2d(np.cov(units.T))
    # Units that are all shortened alike have no variance left.
    covariance += ROUNDING * np.eye(len(mean))
    return float(len(units) * mean @ np.linalg.solve(covariance, mean))


def _excess(before: np.ndarray, windows: np.ndarray, most: float) -> np.ndarray:
    """κ_w ≥ 1: the variance of sums of w units over that of independent ones.

    Where there are too few sums to tell, it grows with w up to that of the points themselves.
    """
    count = len(before)
    found = [1.0]
    for width, before_it in zip(windows, (windows[0], *windows[:-1]), strict=True):
        if count // width >= FEWEST_SUMS:
            blocks = _block_sums(before, width)
            found.append(max(found[-1], float((blocks**2).mean()) / width / (1 - width / count)))
        else:
            found.append(max(found[-1], min(found[-1] * width / before_it, most)))
    return np.array(found[1:])


def _f_above(chance: float, size: int, freedom: Any) -> Any:
    """What an F variable exceeds with this chance. Of scipy.special: scipy.stats takes a second to import."""
    share = betaincinv(freedom / 2, size / 2, chance)
    return freedom * (1 - share) / (size * share)
