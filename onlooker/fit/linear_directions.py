"""v is unidentified if Jv = 0 at all rows: exactly or, if J is rolled out, if vᵀAv does not rise above its own error.

A is the mean product of independent parts, so that vᵀAv has mean zero where Jv = 0. The rank of the mean Jacobian is
full whatever is known, because its noise is.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh

from onlooker.fit.linear import LinearSums

__all__ = ["SETTINGS", "DirectionSettings", "directions_of", "moments", "reliability_of", "rest_of"]


@dataclass(frozen=True)
class DirectionSettings:
    """Constants of the decision.

    Attributes
    ----------
    flat
        Share of the largest eigenvalue of A, in units of each feature, below which an exact Jacobian shows nothing:
        Jacobians of float32 leave 1e-12.
    shown
        Standard errors by which vᵀAv must exceed zero for a direction of estimated Jacobians: once in 44 by chance,
        and then its error is large.
    rounding
        Distance of each entry from −1, 0 or 1 below which it is that: Jacobians of float32 leave 1e-6.
    simple
        Distance from a direction of entries −1, 0, 1 below which a noisy unidentified one may be that.
    """

    flat: float = 1e-9
    shown: float = 2.0
    rounding: float = 1e-4
    simple: float = 0.4


SETTINGS = DirectionSettings()


def moments(sums: LinearSums) -> tuple[np.ndarray, np.ndarray]:
    """(n, k, k) and (n, k): A and b of each row.

    If Jacobians are estimated, those up to three steps earlier in the run are instruments beside the row's own parts:
    they are nearly the row's, and their noise is not. Earlier ones only: later points depend on the noise of this row.
    """
    if sums.parts == 1:
        return sums.products, sums.targets
    return sums.products + sums.lag_products, sums.targets + sums.past_targets


def directions_of(sums: LinearSums) -> tuple[np.ndarray, np.ndarray, bool]:
    """Directions of w that the rows show, and those that they do not: orthonormal, (k, r) and (k, k − r).

    And whether some are not shown only because the Jacobians are too noisy, as far as can be told.
    """
    a = moments(sums)[0]
    total = 0.5 * (a.sum(axis=0) + a.sum(axis=0).T)
    size = np.sqrt(np.maximum(np.diag(sums.plain.sum(axis=0)), 0))
    size = np.where(size > 0, size, 1)
    values, vectors = np.linalg.eigh(total / np.outer(size, size))
    seen = values > SETTINGS.flat * max(values.max(), 0)
    raw, weak = vectors / size[:, None], False
    if sums.parts == 1:
        unseen = _echelon(raw[:, ~seen])
        simple = np.round(unseen)
        unseen = np.where((np.abs(simple - unseen) < SETTINGS.rounding).all(axis=0), simple, unseen)
    else:
        seen &= np.array([_rises(a, v) for v in raw.T])
        unseen, weak = _simplified(a, raw[:, ~seen])
    unseen = np.linalg.qr(unseen)[0]
    return rest_of(unseen), unseen, weak


def rest_of(unseen: np.ndarray) -> np.ndarray:
    """An orthonormal basis of what is orthogonal to given orthonormal directions."""
    k, q = unseen.shape
    return np.linalg.svd(unseen, full_matrices=True)[0][:, q:] if q else np.eye(k)


def _rises(a: np.ndarray, v: np.ndarray) -> bool:
    """Whether vᵀAv is significantly positive."""
    each = np.einsum("k,nkl,l->n", v, a, v)
    n = len(each)
    return bool(each.sum() > SETTINGS.shown * np.sqrt(n / max(n - 1, 1) * ((each - each.mean()) ** 2).sum()))


def _echelon(unseen: np.ndarray) -> np.ndarray:
    """The same span in reduced echelon form: every direction has one entry that the others do not, and largest 1."""
    reduced = unseen.copy()
    for column in range(reduced.shape[1]):
        pivot = np.argmax(np.abs(reduced[:, column]))
        reduced[:, column] /= reduced[pivot, column]
        for other in range(reduced.shape[1]):
            if other != column:
                reduced[:, other] -= reduced[pivot, other] * reduced[:, column]
    return reduced / np.abs(reduced).max(axis=0)


def _simplified(a: np.ndarray, unseen: np.ndarray) -> tuple[np.ndarray, bool]:
    """Noisy directions as ones of entries ±1, such as the constant, if the rows cannot tell these from zero.

    And whether some could not be simplified to two or more of them.
    """
    if not unseen.shape[1]:
        return unseen, False
    reduced = _echelon(unseen)
    simple = np.round(reduced)
    near = np.linalg.norm(simple - reduced, axis=0) < SETTINGS.simple * np.linalg.norm(simple, axis=0)
    fits = [bool(close) and not _rises(a, v) for close, v in zip(near, simple.T, strict=True)]
    weak = not all(ok and (v != 0).sum() > 1 for ok, v in zip(fits, simple.T, strict=True))
    return np.where(fits, simple, reduced), weak


def reliability_of(sums: LinearSums, basis: np.ndarray) -> float:
    """The smallest v′Av over the same with the noise of the Jacobians in it."""
    if not basis.shape[1]:
        return 0.0
    each = sums.products + sums.lag_products, sums.plain * (1 + sums.pairs)[:, None, None]
    a, noisy = (0.5 * basis.T @ (part.sum(axis=0) + part.sum(axis=0).T) @ basis for part in each)
    return float(np.clip(eigh(a, noisy, eigvals_only=True)[0], 0, 1))
