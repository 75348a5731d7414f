"""R̂(x) = b·z + ½zᵀHz + Σ aⱼφⱼ(wⱼ·z + cⱼ), z = L(x − c), averaged over candidates: the reward above three dimensions.

Its error bars are those of `error_bars`, given each candidate's units and priors, with the spread of the candidates.
Samples of exp(βR̂) are confined to where the posterior's standard error is not much larger than among the learners'
points.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np

from onlooker.core.blas import one_thread
from onlooker.core.messages import Message
from onlooker.core.policies import Coordinates
from onlooker.fit.climb import climbed
from onlooker.fit.error_bars import clustered, sandwich, scaled, widened
from onlooker.fit.hmc import hamiltonian_chains
from onlooker.fit.nearby import Nearby, Slope, judged_slope
from onlooker.fit.ridge_confinement import LEAST_WALL, unconfined
from onlooker.fit.ridge_density import Density, errors, folded, log_density, slopes
from onlooker.fit.ridge_dictionary import Dictionary
from onlooker.fit.ridge_frame import Frame
from onlooker.fit.ridge_system import Head, System
from onlooker.fit.ridge_units import Moments, Units, predicted
from onlooker.fit.ridge_units import values as unit_values
from onlooker.fit.sample import Drawn, stein
from onlooker.fit.steepness import Steepness

__all__ = ["Member", "RidgePotential", "assembled"]

# Points evaluated at once.
CHUNK = 2000
# Standard errors above this multiple of this quantile over learners' points are unexplored.
BEYOND, CERTAIN = 3.0, 0.99
# The wall beyond them, in spans of βR̂ over learners' points.
WALL = 1.0
# Chains that run at least, as they set the metric together, and points that their starts are worth at least.
FEWEST_CHAINS, STARTS = 128, 50.0
# Draws of a chain between checks, the fewest in all, and the most rounds.
DRAWS, FEWEST_DRAWS, MOST_ROUNDS = 200, 2000, 5
# Rows at most whose residuals set the error bars.
JUDGED_BY = 1 << 16


class Member(NamedTuple):
    """One candidate.

    Attributes
    ----------
    units
        Its units.
    head
        Its head.
    sums
        The sums that it was solved from.
    share
        Its share in R̂.
    scores
        What it leaves of buckets of agents (terms, buckets), see `error_bars`; ``None`` if not known.
    """

    units: Units
    head: Head
    sums: Moments
    share: float
    scores: np.ndarray | None = None


@dataclass(frozen=True)
class RidgePotential:
    """A reward fitted to gradients in many dimensions.

    Attributes
    ----------
    frame
        White coordinates.
    members
        The candidates that R̂ is the mean of, with their shares.
    typical
        A sample of the points: error bars are those of R̂ minus its mean over it.
    radius
        Radius of the explored points in the frame.
    noise
        Variance of the gradients about the fit, in units of the noise that the frame was made with.
    directions
        Number of directions found in which R̂ is more than a quadratic with units on coordinates.
    found
        How they were looked for: by "successive" rows, "neighbours" or "none".
    misfit
        What the fit leaves, over its chance level.
    steepness
        The weights of steep rows.
    held_out_error
        Mean squared error of ∇R̂ on held-out rows, in units of the noise.
    quadratic_error
        The same error for a quadratic alone.
    """

    known: ClassVar[bool] = True
    everywhere: ClassVar[bool] = True
    has_error: ClassVar[bool] = True
    independent: ClassVar[bool] = False
    renewable: ClassVar[bool] = True
    at_finest: ClassVar[bool] = False

    frame: Frame
    members: tuple[Member, ...]
    typical: np.ndarray
    radius: float
    noise: float
    directions: int
    found: str
    misfit: float
    steepness: Steepness
    held_out_error: float
    quadratic_error: float

    @property
    def dim(self) -> int:
        return len(self.frame.centre)

    @property
    def settings(self) -> dict[str, float | str]:
        return {
            "units": sum(member.units.number for member in self.members),
            "candidates": len(self.members),
            "directions": self.directions,
            "directions_from": self.found,
            **({} if np.isnan(self.misfit) else {"misfit": self.misfit}),
            "steep_weights": self.steepness.growth,
        }

    @property
    def warnings(self) -> list[Message]:
        if self.found != "none":
            return []
        text = (
            "nothing tests whether R̂ misses something: above three dimensions, noise is told from misfit by successive "
            "rows of one agent whose gradients are alike, or by neighbouring rows of different agents, and there are "
            "neither. Give agents=, or watch learners while they still move."
        )
        return [Message("misfit-untested", text)]

    def uses(self, units: tuple[Units, ...]) -> bool:
        """Whether these are the units of its members."""
        return len(units) == len(self.members) and all(
            mine.units.number == theirs.number
            and all(np.array_equal(*pair) for pair in zip(mine.units, theirs, strict=True))
            for mine, theirs in zip(self.members, units, strict=True)
        )

    def resembles(self, other: Any) -> bool:
        """Whether another fit has the same units."""
        return isinstance(other, RidgePotential) and self.uses(tuple(member.units for member in other.members))

    def inside(self, points: np.ndarray) -> np.ndarray:
        """Points (n, dim) in the frame."""
        return (np.asarray(points, float) - self.frame.centre) @ self.frame.forward.T

    def _each(self, function: Callable[[np.ndarray], np.ndarray], points: np.ndarray) -> np.ndarray:
        """A function of points in the frame, by chunks."""
        z = self.inside(points)
        parts = [function(z[first : first + CHUNK]) for first in range(0, len(z), CHUNK)]
        return np.concatenate(parts) if parts else np.zeros(0)

    def values(self, z: np.ndarray) -> np.ndarray:
        """R̂ of each member (members, n)."""
        found = []
        for units, head, *_ in self.members:
            curvature, slope = head.affine[:, :-1], head.affine[:, -1]
            found.append(0.5 * ((z @ curvature) * z).sum(axis=1) + z @ slope + unit_values(units, z) @ head.weights)
        return np.stack(found)

    @property
    def shares(self) -> np.ndarray:
        """The share of each member."""
        return np.array([member.share for member in self.members])

    def value(self, points: np.ndarray) -> np.ndarray:
        """R̂ at points (n, dim), up to a constant."""
        return self._each(lambda z: self.shares @ self.values(z), points)

    def gradient(self, points: np.ndarray) -> np.ndarray:
        """∇R̂ at points (n, dim)."""
        return self.nearby().gradient(points)

    @cached_property
    def systems(self) -> list[tuple[System, np.ndarray, Any]]:
        """The normal equations of each member, its mean terms over typical points, and its factor."""
        z = self.inside(self.typical)
        found = []
        for units, head, sums, *_ in self.members:
            system = System(sums, units, self.frame.precision)
            found.append((system, system.terms(z, unit_values(units, z)).mean(axis=0), system.factor(head)))
        return found

    def error(self, points: np.ndarray) -> np.ndarray:
        """Standard error of R̂ minus its mean over typical points, see `onlooker.fit.error_bars`."""
        known = self.values(self.inside(self.typical))
        middle = known.mean(axis=1)[:, None]

        def apart(heights: np.ndarray) -> np.ndarray:
            away = heights - middle
            return np.sqrt(self.shares @ (away - self.shares @ away) ** 2)

        usual = float(np.mean(apart(known) ** 2))

        def bar(z: np.ndarray) -> np.ndarray:
            total = np.zeros(len(z))
            for (units, head, _, share, scores), (system, about, factor) in zip(
                self.members, self.systems, strict=True
            ):
                terms = system.terms(z, unit_values(units, z)) - about
                solved = system.solved(terms, head, factor)
                variance = self.noise * (terms * solved).sum(axis=1)
                if scores is not None:
                    smoothed = system.smoothed(solved, head, factor, self.noise)
                    variance = np.maximum(variance, ((solved @ scores) ** 2).sum(axis=1) + smoothed)
                total += share * variance
            return np.sqrt(widened(total, [apart(self.values(z))], [usual]))

        return self._each(bar, points)

    def covariance(self, points: np.ndarray) -> np.ndarray:
        """See `Potential.covariance`."""
        z = self.inside(points)
        total = np.zeros((len(z), len(z)))
        for (units, head, _, share, scores), (system, about, factor) in zip(self.members, self.systems, strict=True):
            terms = system.terms(z, unit_values(units, z)) - about
            solved = system.solved(terms, head, factor)
            seen = 0.0 if scores is None else (solved @ scores) @ (solved @ scores).T
            total += share * (self.noise * (terms @ solved.T) + seen)
        away = self.values(z) - self.values(self.inside(self.typical)).mean(axis=1)[:, None]
        away = away - self.shares @ away
        total += 0.5 * (away.T * self.shares) @ away
        return scaled((total + total.T) / 2, self.error(points))

    def judged(
        self, points: np.ndarray, gradients: np.ndarray, agents: np.ndarray | None, seed: int
    ) -> "RidgePotential":
        """See `Potential.judged`."""
        buckets = clustered(len(points), agents, seed, JUDGED_BY)
        z, y = (
            np.asarray(part(rows[buckets.rows]), np.float32)
            for part, rows in ((self.frame.points, points), (self.frame.gradients, gradients))
        )
        weights = self.steepness.weights(z, y)
        parts = [slice(low, high) for low, high in pairwise(buckets.edges)]
        sizes = np.array([weights[part].sum() for part in parts])
        members = []
        with one_thread():
            for one, (system, *_) in zip(self.members, self.systems, strict=True):
                left = y - predicted(one.head.affine, one.units, one.head.weights, z)
                scores = np.stack([system.scores(left[part], z[part], weights[part]) for part in parts], axis=1)
                share = min(1.0, float(sizes.sum()) / system.count)
                members.append(one._replace(scores=sandwich(scores, sizes, share)))
        return replace(self, members=tuple(members))

    def explored(self, points: np.ndarray) -> np.ndarray:
        """Whether points (n, dim) are within the learners' radius, and R̂ about as certain as at their points."""
        near = np.linalg.norm(self.inside(points), axis=1) <= self.radius
        if near.any():
            near[near] = self._uncertain(self.inside(np.asarray(points)[near])) <= 1
        return near

    def weights(self, points: np.ndarray, gradients: np.ndarray) -> np.ndarray:
        """√ω (n,): where R is steep, residuals are large and count less."""
        return self.nearby().weights(points, gradients)

    def nearby(self) -> Nearby:
        """∇R̂ within the learners' radius, whether or not R̂ is certain there."""
        slopes = tuple(Slope(units, head.affine, head.weights, share) for units, head, _, share, _ in self.members)
        steepest = judged_slope(self.frame, self.steepness, self.typical)
        return Nearby(self.frame, self.steepness, slopes, self.radius, steepest)

    def _uncertain(self, z: np.ndarray) -> np.ndarray:
        """The confining standard error, over its limit."""
        return errors(self._density, z) / self._limit

    @cached_property
    def _limit(self) -> float:
        return BEYOND * float(np.quantile(errors(self._density, self.inside(self.typical)), CERTAIN)) + 1e-12

    @cached_property
    def _density(self) -> Density:
        """The numbers of the density at β = 1, without a limit yet."""
        return unconfined(self)

    def maximum(self, samples: np.ndarray, interval: tuple[float, float] | None = None) -> np.ndarray:
        """See `Reward.maximum`."""
        return climbed(self.value, samples, interval)

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
        """Samples of exp(βR̂) by Hamiltonian Monte Carlo; see `Potential.sample`."""
        heights = beta * self.value(self.typical)
        likely = _tempered(heights)
        numbers = self._confined(beta, likely, heights)
        chosen = log_density if coordinates is None else folded(coordinates, measure)
        lanes = max(chains, FEWEST_CHAINS)
        starts = self.inside(np.random.default_rng(seed).choice(self.typical, lanes, p=likely))
        each = draws or max(DRAWS, -(-FEWEST_DRAWS // chains))
        more = hamiltonian_chains(chosen, numbers, starts, each, seed)

        def restored(z: np.ndarray) -> np.ndarray:
            points = z[:chains] @ self.frame.backward.T + self.frame.centre
            return points if coordinates is None else coordinates.fold(points)[0]

        drawn = more()
        for _ in range(1, MOST_ROUNDS if draws is None else 1):
            if enough(restored(drawn)):
                break
            drawn = np.concatenate([drawn, more()], axis=1)
        samples = restored(drawn)
        flat = samples.reshape(-1, self.dim)

        def slope(points: np.ndarray) -> np.ndarray:
            return slopes(chosen, numbers, self.inside(points)) @ self.frame.forward

        return Drawn(samples, stein(slope, flat, None if coordinates is None else coordinates.interval))

    def _confined(self, beta: float, likely: np.ndarray, heights: np.ndarray) -> Density:
        """The numbers of the density that is sampled.

        Parameters
        ----------
        beta
            β.
        likely
            Shares (n,) of typical points, larger where R̂ is high: R̂ is to be as certain as there, not as at places that
            learners only come from.
        heights
            βR̂ (n,) at typical points.
        """
        found = errors(self._density, self.inside(self.typical))
        order = np.argsort(found)
        limit = BEYOND * found[order][np.searchsorted(np.cumsum(likely[order]), CERTAIN)] + 1e-12
        wall = max(LEAST_WALL, WALL * float(np.subtract(*np.quantile(heights, [0.95, 0.05]))))
        return self._density._replace(beta=jnp.float32(beta), limit=jnp.float32(limit), wall=jnp.float32(wall))


def _tempered(heights: np.ndarray) -> np.ndarray:
    """p ∝ exp(height/T) with the smallest T ≥ 1, by doubling, for which draws are worth STARTS points."""
    temperature = 1.0
    while True:
        share = np.exp((heights - heights.max()) / temperature)
        share /= share.sum()
        if 1 / (share @ share) >= min(STARTS, len(heights) / 2) or temperature > 1e12:
            return share
        temperature *= 2


def assembled(
    dictionary: Dictionary, members: tuple[Member, ...], errors: list[float], typical: np.ndarray, radius: float
) -> RidgePotential:
    """The potential of solved members."""
    held_out_error = float(dictionary.gain * (dictionary.shares @ errors))
    return RidgePotential(
        dictionary.frame,
        members,
        typical,
        radius,
        max(held_out_error, 0.0),
        dictionary.directions,
        dictionary.found,
        dictionary.misfit,
        dictionary.steepness,
        held_out_error,
        dictionary.quadratic_error,
    )
