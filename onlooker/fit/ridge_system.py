"""min Σω|y − H z − b − Σ aⱼ tⱼ wⱼ|²_δ + a prior: the head of a fit, from sums alone, the quadratic eliminated.

In coordinates where Σω zzᵀ = I and δ is diagonal, the normal matrix of H's entries is diagonal, n(δᵢ + δⱼ): H and b are
eliminated in closed form, and units a are left with a dense matrix of their own size. A penalty λ multiplies H's
diagonal by 1 + λ. Priors of groups of units are set by marginal likelihood (MacKay's fixed point), those of cosines by
the error on held-out sums.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, lapack

from onlooker.fit.ridge_units import Moments, Units, slopes

__all__ = ["Head", "System", "solve"]

# Penalties of the quadratic, in units of what the rows say about it.
QUADRATIC = (0.0, 0.1, 1.0, 10.0, 1000.0)
# Range of precisions of cosines' weights.
WAVES = (1e-8, 1e5)
# Fixed-point steps of the marginal likelihood, and the change of a precision that ends them.
MOST_STEPS, SETTLED = 20, 0.05
# A share of a pooled group's prior that is to zero.
POOLED = 1e-4


class Head(NamedTuple):
    """A solved head.

    Attributes
    ----------
    affine
        (dim, dim + 1): gradient of the quadratic at (z, 1).
    weights
        Weights a of the units.
    precisions
        Prior precision of each group.
    quadratic
        λ.
    error
        Mean of |y − ŷ|²_δ/dim on held-out rows, weighted.
    """

    affine: np.ndarray
    weights: np.ndarray
    precisions: np.ndarray
    quadratic: float
    error: float


def robust_cholesky(matrix: np.ndarray) -> tuple[np.ndarray, bool]:
    """Cholesky factor, with a growing diagonal where sums in float32 are not positive definite."""
    scale, jitter = np.diag(np.diag(matrix)), 0.0
    for _ in range(9):
        try:
            return cho_factor(matrix + jitter * scale, lower=True, check_finite=False)
        except LinAlgError:
            jitter = max(10 * jitter, 1e-8)
    raise ValueError("the sums over these rows are not finite; leave out rows with huge gradients.")


class System:
    """Normal equations of units, with the quadratic eliminated.

    Parameters
    ----------
    sums
        Sums over the rows that are fitted.
    units
        The units.
    precision
        δ.
    """

    def __init__(self, sums: Moments, units: Units, precision: np.ndarray) -> None:
        self.sums, self.units, self.dim = sums, units, len(precision)
        self.count = float(sums.points[-1, -1])
        dim, count = self.dim, self.count
        mean = sums.points[-1, :-1] / count
        covariance = sums.points[:-1, :-1] / count - np.outer(mean, mean)
        variance, axes = np.linalg.eigh(covariance)
        root = (axes * np.sqrt(np.maximum(variance, 1e-9 * variance.max()))) @ axes.T
        inverse = np.linalg.inv(root)
        # z′ = B(z − m) is white, and y = Bᵀy′ has the precision B δ Bᵀ, diagonal.
        self.precision, turn = np.linalg.eigh(inverse * precision @ inverse.T)
        self.precision = np.maximum(self.precision, 1e-12 * self.precision.max())
        self.mean, self.turn = mean, turn.T @ inverse
        self.back = root @ turn
        directions = units.directions @ self.back
        self.weighted = directions * self.precision
        self.slopes = (sums.slopes[:, :-1] - np.outer(sums.slopes[:, -1], mean)) @ self.turn.T
        self.steps = sums.slopes[:, -1]
        self.rows, self.columns = np.triu_indices(dim)
        i, j, off = self.rows, self.columns, self.rows != self.columns
        self.quadratic = count * np.where(off, self.precision[i] + self.precision[j], self.precision[i])
        self.mixed = self.weighted[:, i] * self.slopes[:, j]
        self.mixed[:, off] += (self.weighted[:, j] * self.slopes[:, i])[:, off]
        self.linear = self.weighted * self.steps[:, None]
        self.plain = sums.products * (self.weighted @ directions.T)
        self.plain = (self.plain + self.plain.T) / 2
        self.towards_quadratic, self.towards_linear, self.towards_units = self._towards(sums.across, sums.towards)

    def _towards(self, across: np.ndarray, towards: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Right-hand sides of H's entries, b and a from Σω y(z, 1)ᵀ and Σω φ′y."""
        i, j = self.rows, self.columns
        along = self.back.T @ (across[:, :-1] - np.outer(across[:, -1], self.mean)) @ self.turn.T
        quadratic = self.precision[i] * along[i, j] + np.where(i != j, self.precision[j] * along[j, i], 0)
        level = self.precision * (self.back.T @ across[:, -1])
        return quadratic, level, ((towards @ self.back) * self.weighted).sum(axis=1)

    def scores(self, left: np.ndarray, z: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Σω∇φ·r of all terms for what a head leaves (n, dim) of rows with these weights."""
        heavy = left * weights[:, None]
        around = np.concatenate([z, np.ones((len(z), 1), z.dtype)], axis=1)
        across = (heavy.T @ around).astype(float)
        return np.concatenate(self._towards(across, (slopes(self.units, z).T @ heavy).astype(float)))

    def reduced(self, penalty: float) -> tuple[np.ndarray, np.ndarray]:
        """Normal matrix and right-hand side of the units."""
        quadratic, level = self.quadratic * (1 + penalty), self.count * self.precision
        matrix = self.plain - (self.mixed / quadratic) @ self.mixed.T - (self.linear / level) @ self.linear.T
        towards = self.towards_units - self.mixed @ (self.towards_quadratic / quadratic)
        towards = towards - self.linear @ (self.towards_linear / level)
        matrix[np.diag_indices_from(matrix)] += 1e-11 * np.diag(self.plain)
        return matrix, towards

    def affine(self, weights: np.ndarray, penalty: float) -> np.ndarray:
        """The quadratic's gradient given the units' weights, at (z, 1)."""
        entries = (self.towards_quadratic - weights @ self.mixed) / (self.quadratic * (1 + penalty))
        curvature = np.zeros((self.dim, self.dim))
        curvature[self.rows, self.columns] = curvature[self.columns, self.rows] = entries
        level = (self.towards_linear - weights @ self.linear) / (self.count * self.precision)
        curvature = self.turn.T @ curvature @ self.turn
        return np.column_stack([curvature, self.turn.T @ level - curvature @ self.mean])

    def terms(self, z: np.ndarray, values: np.ndarray) -> np.ndarray:
        """The terms whose coefficients are H's entries, b and a."""
        along = (z - self.mean) @ self.turn.T
        squares = along[:, self.rows] * along[:, self.columns] * np.where(self.rows == self.columns, 0.5, 1.0)
        return np.concatenate([squares, along, values], axis=1)

    def left(self, terms: np.ndarray, head: "Head") -> np.ndarray:
        """What the units have that the quadratic has not, of terms (n, terms)."""
        squares, along, values = self._split(terms)
        quadratic, level = self.quadratic * (1 + head.quadratic), self.count * self.precision
        return values - (squares / quadratic) @ self.mixed.T - (along / level) @ self.linear.T

    def _split(self, terms: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        size = len(self.rows)
        return terms[:, :size], terms[:, size : size + self.dim], terms[:, size + self.dim :]

    def solved(self, terms: np.ndarray, head: "Head", factor: tuple[np.ndarray, bool]) -> np.ndarray:
        """A⁻¹ψ (n, terms) for terms ψ, with A the normal matrix and the prior; ``factor`` is that of the head."""
        squares, along, _ = self._split(terms)
        quadratic, level = self.quadratic * (1 + head.quadratic), self.count * self.precision
        units = np.zeros((len(terms), 0))
        if self.units.number:
            units = cho_solve(factor, self.left(terms, head).T).T
            squares, along = squares - units @ self.mixed, along - units @ self.linear
        return np.concatenate([squares / quadratic, along / level, units], axis=1)

    def smoothed(self, solved: np.ndarray, head: "Head", factor: tuple[np.ndarray, bool], noise: float) -> np.ndarray:
        """max(σ², τ²) hᵀPh (n,) for h = A⁻¹ψ (n, terms), with a τ² for every group; see `error_bars`."""
        squares, _, units = self._split(solved)
        found = noise * (head.quadratic * self.quadratic * squares**2).sum(axis=1)
        if not self.units.number:
            return found
        inverse = np.diag(lapack.dpotri(factor[0], lower=1)[0])
        for group, precision in enumerate(head.precisions):
            mine = self.units.groups == group
            heights = head.weights[mine]
            square, size = heights @ heights, (units[:, mine] ** 2).sum(axis=1)
            if self.units.pooled[group]:
                square -= (1 - POOLED) * heights.sum() ** 2 / len(heights)
                size -= (1 - POOLED) * units[:, mine].sum(axis=1) ** 2 / len(heights)
            known = max(np.count_nonzero(mine) - precision * inverse[mine].sum(), 1e-3)
            found += max(noise, precision * square / known) * precision * size
        return found

    def prior_matrix(self, head: "Head") -> np.ndarray:
        """The posterior precision of the units."""
        return self.reduced(head.quadratic)[0] + prior(self.units, head.precisions)

    def factor(self, head: "Head") -> tuple[np.ndarray, bool]:
        """The Cholesky factor of that precision."""
        return robust_cholesky(self.prior_matrix(head))

    def error(self, affine: np.ndarray, weights: np.ndarray, sums: Moments, precision: np.ndarray) -> float:
        """Mean of |y − ŷ|²_δ/dim over the rows of other sums."""
        turned = self.units.directions * precision
        found = (precision * np.diag(sums.gradients)).sum() - 2 * (precision[:, None] * affine * sums.across).sum()
        found += (precision[:, None] * affine * (affine @ sums.points)).sum()
        found += 2 * weights @ (turned * (sums.slopes @ affine.T - sums.towards)).sum(axis=1)
        found += weights @ (sums.products * (turned @ self.units.directions.T)) @ weights
        return float(found / max(sums.points[-1, -1], 1e-300) / self.dim)


def prior(units: Units, precisions: np.ndarray) -> np.ndarray:
    """Prior precision matrix of the units' weights."""
    matrix = np.diag(precisions[units.groups]) if units.number else np.zeros((0, 0))
    for group in np.flatnonzero(units.pooled):
        members = np.flatnonzero(units.groups == group)
        matrix[np.ix_(members, members)] -= precisions[group] * (1 - POOLED) / len(members)
    return matrix


def solve(
    train: Moments, held: Moments, units: Units, precision: np.ndarray, like: Head | None = None
) -> tuple[System, Head]:
    """Choose the priors, and solve.

    Parameters
    ----------
    train
        Sums over fitted rows.
    held
        Sums over held-out rows.
    units
        The units.
    precision
        δ.
    like
        A head whose priors are used again.
    """
    system = System(train, units, precision)

    def solved(penalty: float, precisions: np.ndarray) -> Head:
        weights = np.zeros(0)
        if units.number:
            matrix, towards = system.reduced(penalty)
            weights = cho_solve(robust_cholesky(matrix + prior(units, precisions)), towards)
        affine = system.affine(weights, penalty)
        return Head(affine, weights, precisions, penalty, system.error(affine, weights, held, precision))

    if like is not None:
        return system, solved(like.quadratic, like.precisions)
    best = solved(0.0, _marginal(system, 0.0))
    wavy = len(units.waves) > 0
    if wavy:
        best = _climbed(solved, best, units.groups[-1])
    for penalty in QUADRATIC[1:]:
        again = wavy or not units.number
        found = solved(penalty, best.precisions if again else _marginal(system, penalty, best.precisions))
        if found.error < best.error:
            best = found
        elif penalty >= 1 and found.error > best.error * (1 + 1e-6):
            break
    if wavy and best.quadratic:
        best = _climbed(solved, best, units.groups[-1])
    return system, best


def _climbed(solved: Callable[[float, np.ndarray], Head], best: Head, group: int) -> Head:
    """The head whose precision of one group has the least held-out error, by factors of ten."""
    for factor in (10.0, 0.1):
        improved = False
        while WAVES[0] < best.precisions[group] * factor < WAVES[1]:
            found = solved(best.quadratic, _with(best.precisions, group, best.precisions[group] * factor))
            if found.error >= best.error:
                break
            best, improved = found, True
        if improved:
            break
    return best


def _with(precisions: np.ndarray, group: int, value: float) -> np.ndarray:
    changed = precisions.copy()
    changed[group] = value
    return changed


def _marginal(system: System, penalty: float, start: np.ndarray | None = None) -> np.ndarray:
    """Precisions of groups of most marginal likelihood, by MacKay's fixed point; of cosines, a first guess."""
    units = system.units
    groups, number = units.groups, len(units.pooled)
    if not number:
        return np.zeros(0)
    sizes = np.bincount(groups, minlength=number)
    matrix, towards = system.reduced(penalty)
    scale = np.bincount(groups, np.maximum(np.diag(matrix), 1e-12), minlength=number) / np.maximum(sizes, 1)
    precisions = 1e-3 * scale if start is None else start.copy()
    if len(units.waves):
        precisions[groups[-1]] = 1.0
    free = np.ones(number, bool)
    if len(units.waves):
        free[groups[-1]] = False
    if not free.any():
        return precisions
    for _ in range(MOST_STEPS):
        factor = robust_cholesky(matrix + prior(units, precisions))
        weights = cho_solve(factor, towards)
        lower = np.tril(lapack.dtrtri(factor[0], lower=1)[0])
        new = precisions.copy()
        for group in np.flatnonzero(free):
            members = np.flatnonzero(groups == group)
            mine, inverse = weights[members], lower[:, members]
            trace, squares = (inverse**2).sum(), mine @ mine
            if units.pooled[group]:
                trace -= (1 - POOLED) * (inverse.sum(axis=1) ** 2).sum() / len(members)
                squares -= (1 - POOLED) * mine.sum() ** 2 / len(members)
            known = max(len(members) - precisions[group] * trace, 1e-3)
            new[group] = np.clip(known / max(squares, 1e-300), 1e-5 * scale[group], 1e6 * scale[group])
        settled = np.abs(np.log(new / precisions)).max() < SETTLED
        precisions = new
        if settled:
            break
    return precisions
