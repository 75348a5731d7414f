"""Protocols of rewards, and `fit`: the only place that chooses a fit by the dimension.

A new fit is one file that defines a `FitKind`, and one entry in ``FITS``.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, Self

import numpy as np

from onlooker.core.messages import Message
from onlooker.core.policies import Coordinates
from onlooker.fit import cosine_potential_sums, ridge_sums
from onlooker.fit.sample import Drawn
from onlooker.fit.sums import FitKind, Sums

__all__ = ["FITS", "Potential", "Reward", "begin", "fit", "kind_for"]


class Reward(Protocol):
    """An estimate R̂ that can be evaluated at points: a fitted `Potential`, or a histogram of chains.

    Attributes
    ----------
    known
        Whether R̂ can be evaluated at all: chains in many dimensions produce samples only.
    everywhere
        Whether R̂ also has a value where no learner was, such as that of the nearest explored point.
    has_error
        Whether `error` is known.
    """

    @property
    def known(self) -> bool: ...
    @property
    def everywhere(self) -> bool: ...
    @property
    def has_error(self) -> bool: ...

    def value(self, points: np.ndarray) -> np.ndarray:
        """R̂ at points (n, dim), up to a constant."""
        ...

    def error(self, points: np.ndarray) -> np.ndarray:
        """Standard error, at points (n, dim), of R̂ minus its mean over the data."""
        ...

    def explored(self, points: np.ndarray) -> np.ndarray:
        """Whether there are data near points (n, dim)."""
        ...

    def maximum(self, samples: np.ndarray, interval: tuple[float, float] | None = None) -> np.ndarray:
        """The point (dim,) where R̂ is highest.

        Parameters
        ----------
        samples
            Samples (n, dim) of exp(βR̂). The search starts at the best of them and stays within their range.
        interval
            Range of every coordinate; if given, the search stays within it instead.
        """
        ...


class Potential(Reward, Protocol):
    """A reward fitted to gradients.

    Attributes
    ----------
    dim
        Dimension of the points.
    settings
        The chosen hyper-parameters, by name.
    held_out_error
        Mean of ‖s(∇R̂ − g)‖² over the held-out observations, with s the points' spread along each coordinate or, above
        three dimensions, in units of the noise. It does not depend on the units of the points.
    quadratic_error
        The same error for a quadratic alone.
    independent
        Whether `sample` draws independently rather than by chains, which may fail to converge.
    renewable
        Whether sums can be fitted ``like`` this potential, in a fraction of the time.
    warnings
        Messages about the fit itself.
    at_finest
        Whether the fit has reached its finest resolution, so that finer detail would be smoothed away.
    """

    @property
    def dim(self) -> int: ...
    @property
    def settings(self) -> dict[str, float | str]: ...
    @property
    def held_out_error(self) -> float: ...
    @property
    def quadratic_error(self) -> float: ...
    @property
    def independent(self) -> bool: ...
    @property
    def renewable(self) -> bool: ...
    @property
    def warnings(self) -> Sequence[Message]: ...
    @property
    def at_finest(self) -> bool: ...

    def gradient(self, points: np.ndarray) -> np.ndarray:
        """∇R̂ at explored points (n, dim)."""
        ...

    def covariance(self, points: np.ndarray) -> np.ndarray:
        """Covariance (n, n) of R̂ minus its mean over the data; its diagonal is the square of `error`."""
        ...

    def judged(self, points: np.ndarray, gradients: np.ndarray, agents: np.ndarray | None, seed: int) -> Self:
        """The same R̂, with error bars that know what it leaves of rows (n, dim) of these agents (n,), if known.

        See `onlooker.fit.error_bars`. A fit whose error bars need no rows returns itself.
        """
        ...

    def resembles(self, other: Any) -> bool:
        """Whether another fit of this kind covers about the same region."""
        ...

    def sample(
        self,
        *,
        chains: int,
        beta: float,
        seed: int,
        enough: Callable[[np.ndarray], bool] = lambda samples: True,
        coordinates: Coordinates | None = None,
        measure: str = "coordinates",
        draws: int | None = None,
    ) -> Drawn:
        """Samples of exp(βR̂).

        Parameters
        ----------
        chains
            Number of chains.
        beta
            β in exp(βR̂).
        seed
            Seed of the draws.
        enough
            Whether samples (chain, draw, dim) suffice. Chains continue until they do, up to a maximum number of rounds.
        coordinates
            Coordinates of policies, if the points are policies.
        measure
            With coordinates a of policies φ, "coordinates" for exp(βR̂) da or "policy" for exp(βR̂) dφ.
        draws
            Number of draws per chain, whether or not they suffice; default: until they do.
        """
        ...


# The first kind that serves a dimension is used.
FITS: tuple[FitKind, ...] = (cosine_potential_sums.KIND, ridge_sums.KIND)


def kind_for(dim: int) -> FitKind:
    """The kind of fit for points of this dimension."""
    return next(kind for kind in FITS if kind.serves(dim))


def begin(
    points: np.ndarray,
    gradients: np.ndarray,
    held: np.ndarray,
    seed: int = 0,
    interval: tuple[float, float] | None = None,
    agents: np.ndarray | None = None,
) -> Sums:
    """Empty sums for observations like these.

    Parameters
    ----------
    points
        Points (n, dim).
    gradients
        Gradients (n, dim).
    held
        Which rows (n,) are held out.
    seed
        Seed of all random numbers.
    interval
        Range of every coordinate, with R even about both ends; ``None`` if unbounded.
    agents
        The agent (n,) of each row, if known: above three dimensions, the noise and the directions in which R varies are
        found from successive rows of one agent.
    """
    return kind_for(points.shape[1]).begin(points, gradients, held, seed, interval, agents)


def fit(
    points: np.ndarray,
    gradients: np.ndarray,
    held: np.ndarray,
    seed: int = 0,
    interval: tuple[float, float] | None = None,
    agents: np.ndarray | None = None,
) -> Potential:
    """Fit a reward to observations; the parameters are those of `begin`."""
    sums = begin(points, gradients, held, seed, interval, agents)
    sums.add(points, gradients, held)
    return sums.fit()
