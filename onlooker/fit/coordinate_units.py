"""Units on single coordinates, and a score test of each group of them: kinks and walls of priors.

A group's units turn at several places of one coordinate. Its statistic is sᵀA⁻¹s with s = Σω φ′·r the score of its
weights at zero, given what a quadratic explains, and A the score's own second moment; by chance it is about χ².
"""

import numpy as np

from onlooker.fit.ridge_frame import Frame, Rows
from onlooker.fit.ridge_units import Units, no_units

__all__ = ["coordinate_units", "passing"]

# Places where units turn, in standard deviations from the median, by their sharpness.
KNOTS = {1.6: (-2.1, -1.4, -0.7, 0.0, 0.7, 1.4, 2.1), 6.0: (-1.2, -0.5, 0.0, 0.5, 1.2)}
# Sharpness of units at zero, where |θ| has its kink; they are offered if zero is at most so many standard deviations
# from the median.
KINKS, NEAR_ZERO = (4.0, 16.0, 64.0, 256.0), 2.5
# Rows that are tested at most, and standard deviations of χ² by which a statistic must exceed its mean.
TESTED_ROWS, BEYOND = 65_536, 5.0


def coordinate_units(frame: Frame, points: np.ndarray, kinks: bool) -> Units:
    """Units on single coordinates (n, dim): kinks at zero if zero is among the points, or smooth and sharper knots."""
    dim = points.shape[1]
    centre = np.median(points, axis=0)
    spread = np.maximum(np.subtract(*np.quantile(points, [0.9, 0.1], axis=0)) / 2.56, 1e-300)
    found: list[np.ndarray] = []
    groups: list[np.ndarray] = []
    for axis in range(dim):
        direction = frame.backward[axis] / spread[axis]
        kinds = [(np.array(knots), np.full(len(knots), sharpness)) for sharpness, knots in KNOTS.items()]
        if kinks:
            around_zero = abs(centre[axis]) < NEAR_ZERO * spread[axis]
            kinds = [(np.full(len(KINKS), -centre[axis] / spread[axis]), np.array(KINKS))] if around_zero else []
        for knots, sharp in kinds:
            place = (frame.centre[axis] - centre[axis]) / spread[axis]
            found.append(np.column_stack([sharp[:, None] * direction, sharp * (place - knots)]))
            groups.append(np.full(len(knots), len(groups)))
    if not found:
        return no_units(dim)
    units = np.concatenate(found)
    return Units(units, np.zeros((0, dim + 1)), np.concatenate(groups), np.zeros(len(groups), bool))


def passing(own: Units, rows: Rows, residuals: np.ndarray, precision: np.ndarray) -> Units:
    """The groups that explain more of the residuals than chance: a score test of each."""
    step = max(1, len(rows.z) // TESTED_ROWS)
    z, left, weights = rows.z[::step], residuals[::step], rows.weights[::step].astype(float)
    keep = np.zeros(len(own.pooled), bool)
    for group in range(len(keep)):
        members = own.bends[own.groups == group]
        direction = members[0, :-1]
        size = np.sqrt(direction**2 @ precision)
        slope = (left @ (direction * precision).astype(np.float32) / size) * weights
        along = z @ direction.astype(np.float32)
        turned = np.tanh(z @ members[:, :-1].T.astype(np.float32) + members[:, -1].astype(np.float32)).astype(float)
        known = np.column_stack([np.ones(len(along)), along]) * weights[:, None]
        turned = turned * weights[:, None]
        turned -= known @ np.linalg.lstsq(known, turned, rcond=None)[0]
        turned /= turned.std(axis=0) + 1e-9
        score = turned.T @ slope
        matrix = (turned * (slope**2)[:, None]).T @ turned
        matrix += 1e-3 * np.trace(matrix) / len(matrix) * np.eye(len(matrix))
        count = len(members)
        keep[group] = score @ np.linalg.solve(matrix, score) > count + BEYOND * np.sqrt(2 * count)
    chosen = keep[own.groups]
    groups = np.unique(own.groups[chosen], return_inverse=True)[1]
    return Units(own.bends[chosen], own.waves, groups, np.zeros(int(keep.sum()), bool))
