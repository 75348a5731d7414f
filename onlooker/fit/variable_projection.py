"""min over W, c of min over a, H, b: units' directions by L-BFGS, with the head solved exactly at every evaluation.

By the envelope theorem the gradient in (W, c) is that at the solved head (Golub & Pereyra 1973). Directions are V U
with U (k, dim) the axes of the active subspace, so that few numbers are sought.
"""

import numpy as np
from scipy.linalg import cho_solve

from onlooker.fit.ridge_frame import Rows
from onlooker.fit.ridge_system import System, robust_cholesky
from onlooker.fit.ridge_units import BLOCK, Units, gather, slopes

__all__ = ["project"]

# Iterations of L-BFGS, and evaluations beyond them.
ITERATIONS, EXTRA = 25, 8


def project(
    inner: np.ndarray,
    axes: np.ndarray,
    offsets: np.ndarray,
    rows: Rows,
    precision: np.ndarray,
    penalty: float,
) -> np.ndarray:
    """Improved units: directions and offsets (m, dim + 1).

    Parameters
    ----------
    inner
        V (m, k).
    axes
        U (k, dim).
    offsets
        c (m,).
    rows
        Points z, gradients y and weights.
    precision
        δ.
    penalty
        Prior precision of the units' weights.
    """
    z, y, weights = rows
    (count, few), dim = inner.shape, len(precision)
    whole = few >= dim

    def unpacked(flat: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        cut = count * few
        chosen = axes if whole else flat[cut + count :].reshape(few, dim)
        return flat[:cut].reshape(count, few), flat[cut : cut + count], chosen

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        inside, offset, chosen = unpacked(flat)
        bends = np.column_stack([inside @ chosen, offset])
        units = Units(bends, np.zeros((0, dim + 1)), np.zeros(count, int), np.zeros(1, bool))
        system = System(gather(units, z, y, weights, np.float32), units, precision)
        matrix, towards = system.reduced(0.0)
        matrix[np.diag_indices_from(matrix)] += penalty
        head = cho_solve(robust_cholesky(matrix), towards)
        slope, total = _envelope(units, head, system.affine(head, 0.0), rows, precision)
        total = 0.5 * (total + penalty * head @ head)
        moved = [(slope[:, :-1] @ chosen.T).ravel(), slope[:, -1]]
        moved += [] if whole else [(inside.T @ slope[:, :-1]).ravel()]
        return total / len(z), np.concatenate(moved) / len(z)

    # Imported here: it takes long, and most fits do without.
    from scipy.optimize import minimize

    start = np.concatenate([inner.ravel(), offsets, *([] if whole else [axes.ravel()])])
    options = {"maxiter": ITERATIONS, "maxfun": ITERATIONS + EXTRA, "maxcor": 15}
    inside, offset, chosen = unpacked(minimize(loss, start, jac=True, method="L-BFGS-B", options=options).x)
    return np.column_stack([inside @ chosen, offset])


def _envelope(
    units: Units,
    head: np.ndarray,
    affine: np.ndarray,
    rows: Rows,
    precision: np.ndarray,
) -> tuple[np.ndarray, float]:
    """Gradient of half the loss in directions and offsets, and the loss."""
    directions, precision = units.directions.astype(np.float32), precision.astype(np.float32)
    curvature, level = affine[:, :-1].T.astype(np.float32), affine[:, -1].astype(np.float32)
    head = head.astype(np.float32)
    found, total = np.zeros((len(head), len(precision) + 1)), 0.0
    for first in range(0, len(rows[0]), BLOCK):
        z, y, weights = (part[first : first + BLOCK] for part in rows)
        turned = slopes(units, z)
        left = y - (turned * head) @ directions - z @ curvature - level
        weighted = left * precision * weights[:, None]
        # d(aⱼ tanh(wⱼz + cⱼ) wⱼ) has a part through the angle, and one through wⱼ itself.
        inner = (weighted @ directions.T) * (1 - turned * turned)
        found[:, :-1] -= inner.T @ z + turned.T @ weighted
        found[:, -1] -= inner.sum(axis=0)
        total += float((weighted * left).sum())
    return found * head[:, None], total
