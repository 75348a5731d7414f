"""e = g − ∇R̂(θ): residuals of a small fit that predicts gradients, to notice when they change.

It is refitted often and from few rows: a quadratic, plus a few cosines from 250 rows on in up to three dimensions.
Each row is predicted without itself: rows are cut into stretches, and each stretch is predicted from others. If a
stretch is longer than the rows of an agent, residuals are as large as those of new agents.
"""

from contextlib import suppress
from typing import NamedTuple, Protocol

import numpy as np

from onlooker.fit.cosine_potential import CosinePotential
from onlooker.fit.cosine_potential_sums import begin_cosine_potential
from onlooker.fit.jumps.settings import SETTINGS
from onlooker.fit.quadratic import Quadratic, fit_quadratic

__all__ = ["Expected", "Field", "Parabola", "fit_expected", "residuals_of"]


class Field(Protocol):
    """A prediction of gradients, valid where it is explored.

    It may have ``weights(points, gradients)``, by which residuals (n, dim) are multiplied; without, all count the same.
    """

    def gradient(self, points: np.ndarray) -> np.ndarray:
        """The predicted gradients at points (n, dim)."""
        ...

    def explored(self, points: np.ndarray) -> np.ndarray:
        """Mask (n,) of the points at which the prediction is valid."""
        ...


def residuals_of(fit: Field, points: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    """g − ∇R̂(θ) at points (n, dim), weighted."""
    left = gradients - fit.gradient(points)
    weights = getattr(fit, "weights", None)
    return left if weights is None else left * weights(points, gradients)[:, None]


class Parabola(NamedTuple):
    """A quadratic, within the bounding box of the points that it was fitted to.

    Attributes
    ----------
    spread
        Standard deviation of the points, the unit of the quadratic's coordinates.
    quadratic
        The quadratic.
    low
        Lower corner of the box.
    high
        Upper corner of the box.
    """

    spread: np.ndarray
    quadratic: Quadratic
    low: np.ndarray
    high: np.ndarray

    def gradient(self, points: np.ndarray) -> np.ndarray:
        return self.quadratic.gradient(points / self.spread) / self.spread

    def explored(self, points: np.ndarray) -> np.ndarray:
        """Mask (n,) of the points in the box."""
        return np.all((points >= self.low) & (points <= self.high), axis=1)


class Expected(NamedTuple):
    """A prediction of gradients.

    Attributes
    ----------
    fit
        The fit to all rows; the last fold chose its settings.
    residuals
        (n, dim): each row's gradient minus its prediction from other rows.
    """

    fit: Parabola | CosinePotential
    residuals: np.ndarray


def fit_expected(points: np.ndarray, gradients: np.ndarray) -> Expected:
    """Fit points and gradients (n, dim), in the order in which they were observed."""
    count, dim = points.shape
    # Each fold has as many stretches as there are folds.
    fold = np.arange(count) * SETTINGS.folds**2 // count % SETTINGS.folds
    spread = points.std(axis=0)
    if dim in SETTINGS.orders and count >= SETTINGS.cosines_from and spread.all():
        # Cosines fail if points are too scattered to have a support, or nearly equal and almost without noise.
        with suppress(ValueError, np.linalg.LinAlgError):
            return _smooth(points, gradients, fold)
    return _parabola(points, gradients, fold, np.where(spread > 0, spread, 1.0))


def _parabola(points: np.ndarray, gradients: np.ndarray, fold: np.ndarray, spread: np.ndarray) -> Expected:
    scaled, slopes = points / spread, gradients * spread
    residuals = np.empty_like(gradients)

    def fitted(rows: np.ndarray, held: np.ndarray) -> Parabola:
        quadratic, _ = fit_quadratic(scaled[rows], slopes[rows], scaled[held], slopes[held])
        return Parabola(spread, quadratic, points.min(axis=0), points.max(axis=0))

    for number in range(SETTINGS.folds):
        own, next_ = fold == number, fold == (number + 1) % SETTINGS.folds
        residuals[own] = gradients[own] - fitted(~own & ~next_, next_).gradient(points[own])
    last = fold == SETTINGS.folds - 1
    return Expected(fitted(~last, last), residuals)


def _smooth(points: np.ndarray, gradients: np.ndarray, fold: np.ndarray) -> Expected:
    last = fold == SETTINGS.folds - 1
    sums = begin_cosine_potential(points, gradients, last, order=SETTINGS.orders[points.shape[1]])
    sums.add(points, gradients, last)
    fit = sums.fit()
    residuals = np.empty_like(gradients)
    for number in range(SETTINGS.folds):
        own = fold == number
        without = fit.without(points[own], gradients[own])
        residuals[own] = residuals_of(without, points[own], gradients[own])
    return Expected(fit, residuals)
