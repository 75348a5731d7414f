"""ω(x) = 1/(1 + τ²s), s = |∇R̂₀(x)|²_δ/dim: the weights of steep rows, with R̂₀ a first, small fit.

Where R is steep, errors of any basis are proportional to its slope, and unweighted squares would be ruled by them. τ is
measured on held-out rows; it is 0, and every weight 1, where residuals do not grow with the slope. Weights depend on x;
on g itself only where it is far above the noise, so that noise hardly changes them and they hardly bias the fit.
"""

from typing import NamedTuple

import numpy as np

from onlooker.fit.ridge_frame import Frame, Pairs, robust_frame, sampled, significantly_alike, successive
from onlooker.fit.ridge_system import solve
from onlooker.fit.ridge_units import Units, gather, no_units, predicted

__all__ = ["Steepness", "Weighting", "first_fit", "growth", "weighting"]

# Rows of the first fit, its cosines, and their length in standard deviations of the points.
FIRST_ROWS, FIRST_WAVES, LENGTH = 32_768, 128, 3.2
# Rows beyond this many times the noise count less in the first fit.
STEEP = 4.0
# Squared gradients, in units of the noise, from which they are taken for slopes.
CLEARLY = 25.0
# Weights are equal unless squared residuals of the steepest rows exceed the usual ones by this factor.
LEAST_GROWTH = 1.7
# A basis of many cosines per axis is hardly disturbed by steep rows until this share of the steepest rows has more than
# half of all squared gradients; fewer rows than these cannot tell.
FEW, FEWEST_ROWS = 0.01, 100


class Steepness(NamedTuple):
    """The weight ω(z) = 1/(1 + τ²s(z)) of a row.

    Attributes
    ----------
    growth
        τ².
    affine
        (dim, dim + 1): the gradient of the first fit's quadratic.
    units
        Units of the first fit.
    head
        Their weights.
    precision
        δ.
    """

    growth: float
    affine: np.ndarray
    units: Units
    head: np.ndarray
    precision: np.ndarray

    def weights(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        """ω of rows (n, dim); of y only what is far above the noise counts, where the first fit may be too flat."""
        if self.growth == 0:
            return np.ones(len(z), np.float32)
        seen = (y**2) @ self.precision / len(self.precision)
        steep = np.maximum(self.slope(z), np.where(seen > CLEARLY, seen, 0))
        return (1 / (1 + self.growth * steep)).astype(np.float32)

    def slope(self, z: np.ndarray) -> np.ndarray:
        """s(z), in units of the noise."""
        gradient = predicted(self.affine, self.units, self.head, z)
        return (gradient**2) @ self.precision / len(self.precision)


class Weighting(NamedTuple):
    """ω of rows in their own units."""

    frame: Frame
    steepness: Steepness

    def weights(self, points: np.ndarray, gradients: np.ndarray) -> np.ndarray:
        """ω of points and gradients (n, dim)."""
        return self.steepness.weights(self.frame.points(points), self.frame.gradients(gradients)).astype(float)


def weighting(
    points: np.ndarray, gradients: np.ndarray, held: np.ndarray, agents: np.ndarray | None, seed: int
) -> Weighting | None:
    """The weights of rows (n, dim) if a few steep ones would rule their squares; otherwise None."""
    points, gradients, held, agents = sampled(points, gradients, held, agents, seed)
    if min(held.sum(), (~held).sum()) < FEWEST_ROWS // 5 or len(held) < FEWEST_ROWS:
        return None
    squares = np.sort(((gradients * usual_spread(points)) ** 2).sum(axis=1))
    few = max(1, int(FEW * len(squares)))
    if squares[-few:].sum() <= squares[:-few].sum():
        return None
    inner, outer = (points[~held], gradients[~held]), (points[held], gradients[held])
    pairs = successive(None if agents is None else agents[~held])
    frame, steepness = first_fit(*inner, *outer, pairs if significantly_alike(inner[1], pairs) else None, seed)
    return Weighting(frame, steepness) if steepness.growth else None


def usual_spread(points: np.ndarray) -> np.ndarray:
    """Standard deviations (dim,) of normal points (n, dim) with the same central four fifths."""
    return np.maximum(np.subtract(*np.quantile(points, [0.9, 0.1], axis=0)) / 2.56, 1e-300)


def even(dim: int) -> Steepness:
    """Equal weights."""
    return Steepness(0.0, np.zeros((dim, dim + 1)), no_units(dim), np.zeros(0), np.ones(dim))


def first_fit(
    points: np.ndarray,
    gradients: np.ndarray,
    out_points: np.ndarray,
    out_gradients: np.ndarray,
    pairs: Pairs | None,
    seed: int,
) -> tuple[Frame, Steepness]:
    """The frame, and the weights of a first, small fit."""
    dim = points.shape[1]
    scale = usual_spread(points)
    size = np.linalg.norm(gradients * scale, axis=1)
    if pairs is not None:
        apart = np.linalg.norm((gradients[pairs[0]] - gradients[pairs[1]]) * scale, axis=1)
        usual = np.median(apart) / np.sqrt(2)
    else:
        usual = np.median(size)
    weights = np.minimum(1, STEEP * usual / np.maximum(size, 1e-300)) ** 2
    frame, steepness = robust_frame(points, gradients, weights, pairs), even(dim)
    generator = np.random.default_rng(seed)
    few = generator.permutation(len(points))[:FIRST_ROWS]
    for turn in range(2):
        z, y = frame.points(points[few]), frame.gradients(gradients[few])
        out = frame.points(out_points[:FIRST_ROWS]), frame.gradients(out_gradients[:FIRST_ROWS])
        waves = np.column_stack(
            [generator.standard_normal((FIRST_WAVES, dim)) / LENGTH, generator.uniform(0, 2 * np.pi, FIRST_WAVES)]
        )
        units = Units(np.zeros((0, dim + 1)), waves, np.zeros(FIRST_WAVES, int), np.zeros(1, bool))
        noisy = np.linalg.norm(out[1] * np.sqrt(frame.precision), axis=1)
        level = STEEP * np.sqrt(dim)
        beyond = np.minimum(1, level / np.maximum(noisy, 1e-12)) ** 2 if not turn else steepness.weights(*out)
        _, head = solve(gather(units, z, y, weights[few]), gather(units, *out, beyond), units, frame.precision)
        steepness = Steepness(1.0, head.affine, units, head.weights, frame.precision)
        left = out[1] - predicted(head.affine, units, head.weights, out[0])
        steepness = steepness._replace(growth=growth(left, steepness.slope(out[0]), frame.precision))
        if steepness.growth == 0:
            even_frame = (
                frame if weights.min() > 0.999 else robust_frame(points, gradients, np.ones(len(points)), pairs)
            )
            return even_frame, even(dim)
        weights = steepness.weights(frame.points(points), frame.gradients(gradients)).astype(float)
        if not turn:
            frame = robust_frame(points, gradients, weights, pairs)
    # The weights were fitted in this frame.
    return frame, steepness


def growth(left: np.ndarray, slope: np.ndarray, precision: np.ndarray) -> float:
    """τ² from residuals of held-out rows (n, dim), and how steep the first fit is there; 0 if they hardly grow."""
    squares = (left**2) @ precision / len(precision)
    order = np.argsort(slope)
    usual = np.median(squares[order[: len(order) // 2]])
    ratios, steepest = [], 0.0
    for share in (0.2, 0.1, 0.05, 0.02):
        rows = order[-max(20, int(share * len(order))) :]
        excess = np.mean(np.minimum(squares[rows], 100 * np.median(squares[rows]))) / usual - 1
        steepest = max(steepest, excess)
        ratios.append(excess / np.median(slope[rows]))
    return 0.0 if steepest < LEAST_GROWTH else float(max(np.median(ratios), 0.0))
