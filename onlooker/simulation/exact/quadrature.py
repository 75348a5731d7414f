"""Example 1's law p ∝ exp(R) to ±1e-3, by quadrature over y and a grid over θ."""

from functools import lru_cache

from onlooker.simulation.exact.law import GridLaw, cells, exact_law
from onlooker.simulation.mixture import Mixture

__all__ = ["mixture_law"]


@lru_cache(maxsize=16)
def mixture_law(reward: Mixture, half_width: float = 6.0, cell: float = 0.025) -> GridLaw:
    """The exact law of a mixture (or posterior) reward at β = 1."""
    axis = cells(-half_width, half_width, cell)
    return exact_law(reward.value, (axis, axis))
