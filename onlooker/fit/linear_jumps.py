"""Has w changed? The weights of the last rows against those of all rows since the last jump: Hotelling's F.

    F = (n₂ − r)/(q(n₂ − 1)) δ′(V₁ + V₂)⁻¹δ,   δ = ŵ₂ − ŵ₁

δ is of the q directions of the features that all rows show, with the suspects fitted beside them, r directions in all;
V are sandwich covariances. Windows of several lengths are looked at whenever some rows have come. The j-th look spends
α/log₂(j + 1) − α/log₂(j + 2) of the level: α in all, so that a stream in which nothing changes has a false alarm with
probability α at most, however long it is.
"""

from dataclasses import dataclass, field

import numpy as np
from scipy.special import fdtrc

from onlooker.fit.jumps.statistic import Jump
from onlooker.fit.linear import LinearSums
from onlooker.fit.linear_directions import directions_of

__all__ = ["SETTINGS", "WeightJumpSettings", "WeightWatch"]


@dataclass(frozen=True)
class WeightJumpSettings:
    """Constants of the test.

    Attributes
    ----------
    level
        Probability of a false alarm in a stream of any length.
    every
        Number of rows between two looks.
    windows
        Lengths of the windows, in looks: a large jump shows in the first, a small one needs the last.
    before
        Number of rows before a window, in looks, that the weights before the jump are read from.
    remembered
        Number of jumps that are remembered.
    """

    level: float = 0.01
    every: int = 8
    windows: tuple[int, ...] = (2, 3, 4, 6, 8)
    before: int = 4
    remembered: int = 100


SETTINGS = WeightJumpSettings()


@dataclass
class WeightWatch:
    """Looks for jumps of the weights.

    Parameters
    ----------
    features
        Number of features: later columns are suspects.

    Attributes
    ----------
    since
        Number of the first row after the last jump.
    looks
        Number of looks so far.
    jumps
        The last jumps.
    """

    features: int
    since: int = 0
    looks: int = 0
    jumps: tuple[Jump, ...] = field(default=())

    def look(self, sums: LinearSums) -> bool:
        """Test the last rows of the sums; return whether there is a jump, which is then the last of ``jumps``."""
        self.looks += 1
        rows = sums.since(self.since)
        order = np.argsort(rows.order)
        settings = SETTINGS
        if len(order) < settings.every * (settings.before + min(settings.windows)):
            return False
        basis, _, _ = directions_of(rows)
        a, b = basis.T @ rows.products[order] @ basis, rows.targets[order] @ basis
        every = basis[: self.features]
        spent = 1 / np.log2(self.looks + 1) - 1 / np.log2(self.looks + 2)
        level = settings.level * float(spent) / len(settings.windows)
        best: tuple[float, int, float] | None = None
        for window in settings.windows:
            n = window * settings.every
            if len(order) - n < settings.before * settings.every:
                break
            chance, statistic = _compared(a[:-n], b[:-n], a[-n:], b[-n:], every)
            if chance < level and (best is None or chance < best[0]):
                best = chance, n, statistic
        if best is None:
            return False
        at = int(rows.order[order][-best[1]])
        self.jumps = (*self.jumps, Jump(at, sums.added, best[2], level))[-settings.remembered :]
        self.since = at
        return True


def _compared(
    a_one: np.ndarray, b_one: np.ndarray, a_two: np.ndarray, b_two: np.ndarray, every: np.ndarray
) -> tuple[float, float]:
    """p-value and F of the difference of the features' weights between earlier and later rows."""
    n, r = b_two.shape
    if n <= r + 2:
        return 1.0, 0.0
    one, two = _solved(a_one, b_one), _solved(a_two, b_two)
    if one is None or two is None:
        return 1.0, 0.0
    change = every @ (two[0] - one[0])
    variance = every @ (one[1] + two[1]) @ every.T
    values, vectors = np.linalg.eigh(variance)
    shown = values > 1e-10 * max(values.max(), 1e-300)
    q = int(shown.sum())
    statistic = float((((vectors[:, shown].T @ change) ** 2) / values[shown]).sum())
    f = statistic * (n - r) / (q * (n - 1))
    return float(fdtrc(q, n - r, f)), f


def _solved(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Weights and their sandwich covariance; ``None`` if the rows do not show all directions."""
    total = a.sum(axis=0)
    size = np.sqrt(np.maximum(np.diag(total), 1e-300))
    if np.linalg.cond(total / np.outer(size, size)) > 1e9:
        return None
    inverse = np.linalg.inv(total)
    u = inverse @ b.sum(axis=0)
    score = b - a @ u
    n, r = score.shape
    return u, inverse @ (score.T @ score * n / (n - r)) @ inverse
