"""∇R̂ of a small fit: what gradients are expected to be, for noticing when they are not.

It is made anew often and from few rows, so it is a quadratic, and from some hundred rows on, in up to three dimensions,
a quadratic with a few cosines. How far gradients are from what is expected is measured on rows that the cosines were
not made from: rows are cut into stretches, and each is predicted from the others, so that new agents count as new once
a stretch is longer than an agent.
"""

from contextlib import suppress
from typing import NamedTuple, Protocol

import numpy as np

from onlooker.fit.cosine_potential import CosinePotential, begin_cosine_potential
from onlooker.fit.quadratic import Quadratic, fit_quadratic

__all__ = ["Expected", "Field", "Parabola", "fit_expected"]

# Cosines per axis, by dimension.
ORDERS = {1: 24, 2: 12, 3: 6}
# Rows from which there are any.
FEWEST = 250
# Stretches of rows are dealt out to so many folds, each of which gets as many. This is cross-validation, in which every
# row is predicted once: another idea than holding some out for good (`data.splits`).
FOLDS = 5


class Field(Protocol):
    """What predicts gradients at points (n, dim), and says where it can."""

    def gradient(self, points: np.ndarray) -> np.ndarray: ...

    def explored(self, points: np.ndarray) -> np.ndarray: ...


class Parabola(NamedTuple):
    """A quadratic in units of the points' spread, between the outermost of them."""

    spread: np.ndarray
    quadratic: Quadratic
    low: np.ndarray
    high: np.ndarray

    def gradient(self, points: np.ndarray) -> np.ndarray:
        return self.quadratic.gradient(points / self.spread) / self.spread

    def explored(self, points: np.ndarray) -> np.ndarray:
        """Where it is believed."""
        return np.all((points >= self.low) & (points <= self.high), axis=1)


class Expected(NamedTuple):
    """A prediction of gradients.

    Attributes
    ----------
    fit
        Made from the rows, a part of them to choose how.
    residuals
        (n, dim): what each of them leaves of the gradient when it is predicted from others.
    """

    fit: Parabola | CosinePotential
    residuals: np.ndarray


def fit_expected(points: np.ndarray, gradients: np.ndarray) -> Expected:
    """From rows (n, dim), in the order in which they came."""
    count, dim = points.shape
    fold = np.arange(count) * FOLDS**2 // count % FOLDS
    spread = points.std(axis=0)
    if dim in ORDERS and count >= FEWEST and spread.all():
        # Rows too scattered to say where they are, or nearly free of noise and all alike.
        with suppress(ValueError, np.linalg.LinAlgError):
            return _smooth(points, gradients, fold)
    return _parabola(points, gradients, fold, np.where(spread > 0, spread, 1.0))


def _parabola(points: np.ndarray, gradients: np.ndarray, fold: np.ndarray, spread: np.ndarray) -> Expected:
    scaled, slopes = points / spread, gradients * spread
    residuals = np.empty_like(gradients)

    def fitted(rows: np.ndarray, held: np.ndarray) -> Parabola:
        quadratic, _ = fit_quadratic(scaled[rows], slopes[rows], scaled[held], slopes[held])
        return Parabola(spread, quadratic, points.min(axis=0), points.max(axis=0))

    for number in range(FOLDS):
        own, next_ = fold == number, fold == (number + 1) % FOLDS
        residuals[own] = gradients[own] - fitted(~own & ~next_, next_).gradient(points[own])
    last = fold == FOLDS - 1
    return Expected(fitted(~last, last), residuals)


def _smooth(points: np.ndarray, gradients: np.ndarray, fold: np.ndarray) -> Expected:
    sums = begin_cosine_potential(points, gradients, fold == FOLDS - 1, order=ORDERS[points.shape[1]])
    sums.add(points, gradients, fold == FOLDS - 1)
    fit = sums.fit()
    residuals = np.empty_like(gradients)
    for number in range(FOLDS):
        own = fold == number
        residuals[own] = gradients[own] - fit.without(points[own], gradients[own]).gradient(points[own])
    return Expected(fit, residuals)
