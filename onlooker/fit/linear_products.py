"""JᵢᵀDJᵢ and JᵢᵀDgᵢ of rows, across independent parts, and the D that suits their noise."""

from typing import NamedTuple

import numpy as np

__all__ = ["Products", "cosine", "multiplied", "noise_scale", "taken"]


class Products(NamedTuple):
    """Products of rows.

    Attributes
    ----------
    mean, gradient
        The mean Jacobians (n, k, dim) and gradients (n, dim), times √D.
    products, targets
        A (n, k, k) and b (n, k): across parts, if there are several.
    plain
        (n, k, k): of the mean Jacobian with itself.
    """

    mean: np.ndarray
    gradient: np.ndarray
    products: np.ndarray
    plain: np.ndarray
    targets: np.ndarray


def multiplied(jacobians: np.ndarray, gradients: np.ndarray, scale: np.ndarray) -> Products:
    """Multiply rows.

    The mean over parts a ≠ c of JₐᵀDJ_c is that over all pairs, less the parts' products with themselves.

    Parameters
    ----------
    jacobians
        (parts, n, k, dim).
    gradients
        (n, dim), or (parts, n, dim) if each part comes from the paths of that part of the Jacobian.
    scale
        D, (dim,).
    """
    root, parts = np.sqrt(scale), len(jacobians)
    own = gradients.ndim == 3
    mean = jacobians.mean(axis=0, dtype=float) if parts > 1 else jacobians[0].astype(float)
    mean *= root
    gradient = (gradients.mean(axis=0, dtype=float) if own else gradients.astype(float)) * root
    plain = mean @ mean.swapaxes(1, 2)
    targets = (mean @ gradient[..., None])[..., 0]
    if parts == 1:
        return Products(mean, gradient, plain, plain, targets)
    same, crossed = np.zeros_like(plain), np.zeros_like(targets)
    for number, part in enumerate(jacobians):
        scaled = part * root
        same += scaled @ scaled.swapaxes(1, 2)
        if own:
            crossed += (scaled @ (gradients[number] * root)[..., None])[..., 0]
    products = (plain - same / parts**2) * parts / (parts - 1)
    if own:
        targets = (targets - crossed / parts**2) * parts / (parts - 1)
    return Products(mean, gradient, products, plain, targets)


def noise_scale(jacobians: np.ndarray, gradients: np.ndarray, shrink: float, rounds: int, together: int) -> np.ndarray:
    """D, (dim,): one over the mean squared residuals of a sample of rows, which are shrunk towards their mean.

    Parameters
    ----------
    jacobians, gradients
        The sample; see `multiplied`.
    shrink
        Number of rows that the mean over coordinates counts.
    rounds
        Times that residuals are computed, each with weights by the D before it.
    together
        Numbers that are processed at a time.
    """
    parts, n, k, dim = jacobians.shape
    scale, step = np.ones(dim), max(1, together // (parts * k * dim))
    chunks = [slice(first, first + step) for first in range(0, n, step)]
    size = float(np.mean([(gradients[..., rows, :].astype(float) ** 2).mean() for rows in chunks]))
    if not size:
        return scale
    for _ in range(rounds):
        a, noisy, b = np.zeros((k, k)), np.zeros((k, k)), np.zeros(k)
        for rows in chunks:
            made = multiplied(jacobians[:, rows], gradients[..., rows, :], scale)
            a, noisy, b = a + made.products.sum(axis=0), noisy + made.plain.sum(axis=0), b + made.targets.sum(axis=0)
        # Directions that the sample does not show are left at zero.
        units = np.sqrt(np.maximum(np.diag(noisy), 1e-300))
        found = (np.linalg.pinv(a / np.outer(units, units), rcond=1e-6, hermitian=True) @ (b / units)) / units
        power = np.zeros(dim)
        for rows in chunks:
            target, mean = gradients[..., rows, :], np.tensordot(found, jacobians[:, rows], (0, 2))
            target = target.mean(axis=0) if target.ndim == 3 else target
            power += ((target - mean.mean(axis=0)) ** 2).sum(axis=0)
        shrunk = (power + shrink * power.mean() / n) / (n + shrink)
        # Gradients without noise leave nothing: all coordinates then count alike.
        scale = 1 / np.maximum(shrunk, 1e-12 * size)
    return scale


def taken(array: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Some rows, without a copy if they follow each other."""
    together = rows[-1] - rows[0] == len(rows) - 1 and (np.diff(rows) == 1).all()
    return array[rows[0] : rows[-1] + 1] if together else array[rows]


def cosine(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """Cosines (n,) of rows with rows; nan where one is zero."""
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(two, axis=1)
    return np.einsum("ij,ij->i", one, two) / np.where(lengths > 0, lengths, np.nan)
