"""Are two rewards the same up to a constant, or up to a constant and a positive scale, and where not?

T = max over places of |d|/sd(d), d = R̂₁ − s·R̂₂ less its mean over the places. Its law is that of joint draws of both
errors, for any number of places, near or far. Rewards may be the same if T is no surprise for s = 1, and similar if it
is none for some s > 0. The two must have been learnt from different agents: errors that are shared cancel in d.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from onlooker.core.settings import check_seed
from onlooker.fit.error_bars import drawn_errors
from onlooker.fit.potential import Potential
from onlooker.reconstruction.result import Reconstruction

__all__ = ["Comparison", "compare"]

# Places compared, draws of their errors, and those from which the error of the scale is taken.
PLACES, DRAWS, SCALES = 300, 2000, 100
# Range of the logarithm of the scale, and the scales about the best one at which it is tested.
SMALLEST, LARGEST, TRIED = -12.0, 12.0, np.linspace(-4, 4, 17)


@dataclass(frozen=True)
class Comparison:
    """How two rewards differ.

    Attributes
    ----------
    same
        Whether they may be the same up to a constant.
    chance
        p-value of that.
    similar
        Whether they may be the same up to a constant and a positive scale.
    similar_chance
        p-value of that.
    scale
        s for which the first is most like s times the second: Σd²/sd² is least.
    scale_error
        Its standard error.
    place
        Where they differ most surely, up to a constant (dim,).
    difference
        The first less the second there, both less their means over the places compared.
    difference_error
        Its standard error.
    """

    same: bool
    chance: float
    similar: bool
    similar_chance: float
    scale: float
    scale_error: float
    place: np.ndarray
    difference: float
    difference_error: float

    def __str__(self) -> str:
        where = "[" + ", ".join(f"{one:.3g}" for one in self.place) + "]"
        if self.same:
            return f"the two rewards may be the same up to a constant (p = {self.chance:.2g})."
        apart = f"they differ most at {where}, by {self.difference:.3g} ± {self.difference_error:.2g}"
        if self.similar:
            return (
                f"the first reward may be {self.scale:.3g} ± {self.scale_error:.2g} times the second, up to a constant "
                f"(p = {self.similar_chance:.2g}); they are not the same (p = {self.chance:.2g}): {apart}."
            )
        return f"the two rewards differ in more than a constant and a scale (p = {self.similar_chance:.2g}): {apart}."


def compare(one: Any, other: Any, *, level: float = 0.01, seed: int = 0) -> Comparison:
    """Compare two results of `onlooker.reconstruct`, of different agents.

    Parameters
    ----------
    one
        A result with error bars, by the method "potential".
    other
        Another one, of the same dimension.
    level
        p-value below which rewards are said to differ.
    seed
        Seed of places and draws.
    """
    check_seed(seed=seed)
    if not 0 < level < 1:
        raise ValueError(f"level is {level!r}; give a p-value between 0 and 1, such as 0.01.")
    for name, result in (("one", one), ("other", other)):
        if not isinstance(result, Reconstruction):
            raise TypeError(f"{name} is a {type(result).__name__}; give a result of onlooker.reconstruct.")
        if not result.fitted.has_error:
            raise ValueError(f"{name} has no error bars; reconstruct it with method='potential'.")
    if one.dim != other.dim:
        raise ValueError(f"one has {one.dim} dimensions and other {other.dim}; compare rewards of the same parameters.")
    generator = np.random.default_rng(seed)
    places = np.concatenate([one.observed["points"], other.observed["points"]]).astype(float)
    places = places[generator.permutation(len(places))]
    places = places[one.explored(places) & other.explored(places)][:PLACES]
    if len(places) < 2:
        raise ValueError("one and other were learnt in different places; compare rewards that are both explored.")
    return _compared((one.fitted, other.fitted), places, level, generator)


def _compared(
    rewards: tuple[Potential, Potential], places: np.ndarray, level: float, generator: np.random.Generator
) -> Comparison:
    heights = [reward.value(places) for reward in rewards]
    heights = [height - height.mean() for height in heights]
    covariances = [_centred(reward.covariance(places)) for reward in rewards]
    errors = [drawn_errors(covariance, DRAWS, generator) for covariance in covariances]
    variances = [np.diag(covariance) for covariance in covariances]

    def best(first: np.ndarray, second: np.ndarray) -> float:
        def misfit(log_scale: float) -> float:
            scale = np.exp(log_scale)
            return float(((first - scale * second) ** 2 / (variances[0] + scale**2 * variances[1])).mean())

        start = float(np.log(max(first.std(), 1e-300) / max(second.std(), 1e-300)))
        bounds = max(start - 3, SMALLEST), min(start + 3, LARGEST)
        return float(np.exp(minimize_scalar(misfit, bounds=bounds, method="bounded").x))

    def tested(scale: float) -> tuple[float, np.ndarray, np.ndarray]:
        spread = np.sqrt(variances[0] + scale**2 * variances[1]) + 1e-300
        apart = heights[0] - scale * heights[1]
        by_chance = (np.abs(errors[0] - scale * errors[1]) / spread).max(axis=1)
        chance = (1 + np.count_nonzero(by_chance >= (np.abs(apart) / spread).max())) / (1 + DRAWS)
        return float(chance), apart, spread

    chance, apart, spread = tested(1.0)
    scale = best(*heights)
    scales = [best(heights[0] + errors[0][row], heights[1] + errors[1][row]) for row in range(SCALES)]
    # They are similar if any scale will do.
    tried = scale * np.exp(np.std(np.log(scales)) * TRIED)
    similar_chance = max(chance, *(tested(one)[0] for one in tried))
    worst = int(np.argmax(np.abs(apart) / spread))
    return Comparison(
        chance >= level,
        chance,
        similar_chance >= level,
        similar_chance,
        scale,
        float(np.std(scales)),
        places[worst],
        float(apart[worst]),
        float(spread[worst]),
    )


def _centred(covariance: np.ndarray) -> np.ndarray:
    """The covariance of values less their mean."""
    rows = covariance - covariance.mean(axis=0)
    return rows - rows.mean(axis=1, keepdims=True)
