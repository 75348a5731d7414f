"""∂p/∂t = −∇·(b p) + ½ Σ ∂i∂j(a_ij p): the law of dα = b dt + a^{1/2} dW, on a grid of cells, in one or two dimensions.

Fluxes along an axis are Scharfetter–Gummel (exact for a locally exponential p, and never negative), those of the
cross term a_12 central; no flux leaves the box.
"""

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.linalg import splu

from onlooker.simulation.exact.law import GridLaw

__all__ = ["evolve", "generator", "stationary"]


def generator(axes: tuple[np.ndarray, ...], drift: np.ndarray, diffusion: np.ndarray) -> sparse.csc_matrix:
    """The matrix A of dp/dt = A p for cell masses p.

    Parameters
    ----------
    axes
        Cell centres along each of one or two axes, equally spaced.
    drift
        b at the centres, (…, dim).
    diffusion
        a at the centres, (…, dim, dim), symmetric.
    """
    shape = tuple(len(axis) for axis in axes)
    number = np.arange(np.prod(shape)).reshape(shape)
    rows: list[np.ndarray] = []
    columns: list[np.ndarray] = []
    values: list[np.ndarray] = []

    def flow(source: np.ndarray, origin: np.ndarray, target: np.ndarray, rate: np.ndarray) -> None:
        """Mass leaves ``origin`` for ``target`` at ``rate`` times the mass at ``source``."""
        for cell, sign in ((origin, -1.0), (target, 1.0)):
            rows.append(cell.ravel())
            columns.append(source.ravel())
            values.append((sign * rate).ravel())

    for axis, centres in enumerate(axes):
        step = centres[1] - centres[0]
        here = tuple(slice(None, -1) if other == axis else slice(None) for other in range(len(axes)))
        next_ = tuple(slice(1, None) if other == axis else slice(None) for other in range(len(axes)))
        spread = diffusion[..., axis, axis]
        pull = drift[..., axis] / spread
        peclet = step * (pull[here] + pull[next_])
        left, right = number[here], number[next_]
        flow(left, left, right, _bernoulli(-peclet) * spread[here] / (2 * step**2))
        flow(right, right, left, _bernoulli(peclet) * spread[next_] / (2 * step**2))
        if len(axes) == 2:
            other = 1 - axis
            rate = diffusion[..., 0, 1] / (8 * step * (axes[other][1] - axes[other][0]))
            lower = tuple(slice(None, -1) if side == other else slice(None) for side in range(2))
            upper = tuple(slice(1, None) if side == other else slice(None) for side in range(2))
            for side in (here, next_):
                # Each face uses the cells above and below it, on either side.
                flow(number[side][upper], left[lower], right[lower], -rate[side][upper])
                flow(number[side][lower], left[upper], right[upper], rate[side][lower])
    matrix = sparse.coo_matrix(
        (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), shape=(number.size,) * 2
    )
    return matrix.tocsc()


def _bernoulli(z: np.ndarray) -> np.ndarray:
    """z/(e^z − 1), smooth through 0."""
    # The series is exact to rounding below 1e-4; exp overflows beyond 709.
    small = np.abs(z) < 1e-4
    safe = np.where(small, 1.0, np.clip(z, -700, 700))
    return np.where(small, 1 - z / 2 + z**2 / 12, safe / np.expm1(safe))


def stationary(axes: tuple[np.ndarray, ...], matrix: sparse.csc_matrix) -> GridLaw:
    """The law with A p = 0."""
    size = matrix.shape[0]
    # One balance equation follows from the others; replace it by p[pivot] = 1 at the most likely cell so far.
    guess = splu(sparse.identity(size, format="csc") - 1e3 * matrix).solve(np.full(size, 1 / size))
    pivot = int(np.argmax(guess))
    keep = np.ones(size)
    keep[pivot] = 0
    pinned = sparse.diags(keep) @ matrix + sparse.csc_matrix(([1.0], ([pivot], [pivot])), shape=matrix.shape)
    right = np.zeros(size)
    right[pivot] = 1
    mass = np.maximum(splu(pinned.tocsc()).solve(right), 0)
    return GridLaw(axes, (mass / mass.sum()).reshape(tuple(len(axis) for axis in axes)))


def evolve(law: GridLaw, matrix: sparse.csc_matrix, time: float, steps: int = 400) -> GridLaw:
    """The law after ``time``: Crank–Nicolson, after four half-steps of implicit Euler that damp a rough start."""
    mass = law.mass.ravel()
    step = time / steps
    unit = sparse.identity(len(mass), format="csc")
    implicit = splu(unit - step / 2 * matrix)
    for _ in range(4):
        mass = implicit.solve(mass)
    for _ in range(steps - 2):
        mass = implicit.solve(mass + step / 2 * (matrix @ mass))
    mass = np.maximum(mass, 0)
    return GridLaw(law.axes, (mass / mass.sum()).reshape(law.mass.shape))
