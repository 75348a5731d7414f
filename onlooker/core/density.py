"""π, the density of the observed points, as the inverse learners need it: π(α), ∇π(α) and log π(α).

It can be anything with a ``log_prob``, such as a NumPyro distribution, or a log-density function; gradients come from
autodiff. π must be normalised for `passive` and `reweighted`: a factor on π scales time in the first, and the drift and
hence the law in the second.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from onlooker.core import random as noise

__all__ = ["Density", "as_density", "flat", "standard_normal"]

# Below this dimension a point, as the last axis, does not fill a vector unit.
SHORT_AXIS = 16


@dataclass(frozen=True, eq=False)
class Density:
    """A density on R^N given by its logarithm at one point.

    Attributes
    ----------
    log_prob
        log π at one point of shape (dim,).
    sample
        ``sample(key, shape)`` draws points of shape ``shape + (dim,)``; ``None`` if π cannot be drawn from.
    dim
        N, if it is known.
    """

    log_prob: Callable[[Array], Array]
    sample: Callable[[Array, tuple[int, ...]], Array] | None = None
    dim: int | None = None

    def value(self, point: Array) -> Array:
        """π at one point."""
        return jnp.exp(self.log_prob(point))

    def value_and_gradient(self, point: Array) -> tuple[Array, Array]:
        """π and ∇π = π ∇log π at one point; both zero outside the support."""
        log_prob, score = jax.value_and_grad(self.log_prob)(point)
        value = jnp.exp(log_prob)
        return value, jnp.where(value > 0, value * score, 0)

    def log_probs(self, points: Any) -> np.ndarray:
        """log π at points (n, dim)."""
        return np.asarray(_log_probs(self, np.asarray(points, np.float32)), float)

    def is_positive(self, points: Any) -> np.ndarray:
        """Whether π is positive, at points (n, dim)."""
        return self.log_probs(points) > -np.inf

    def check(self, dim: int) -> None:
        """Raise an error unless this is a density over ``dim`` dimensions that JAX can evaluate."""
        if self.dim not in (None, dim):
            raise ValueError(
                f"density is over {self.dim} dimensions but the points have {dim}; give a density over {dim}."
            )
        try:
            shape = jax.eval_shape(self.log_prob, jnp.zeros(dim)).shape
        except Exception as error:
            raise ValueError(
                f"density cannot be evaluated at a point of {dim} dimensions ({type(error).__name__}); write log_prob "
                "with jax.numpy, for one point."
            ) from None
        if shape != ():
            raise ValueError(f"density's log_prob returns shape {shape} for one point; it must return one number.")


@partial(jax.jit, static_argnames=("density",))
def _log_probs(density: Density, points: Array) -> Array:
    return jax.vmap(density.log_prob)(points)


def as_density(density: Any) -> Density:
    """Read a distribution with ``log_prob`` or a log-density function as a Density.

    A distribution over single numbers must first be turned into one over vectors, in NumPyro by
    ``dist.Normal(0, 1).expand([dim]).to_event(1)``.
    """
    if isinstance(density, Density):
        return density
    if hasattr(density, "log_prob"):
        event_shape = tuple(getattr(density, "event_shape", (0,)))
        if len(event_shape) != 1 or tuple(getattr(density, "batch_shape", ())):
            raise ValueError(
                "density is not a single distribution over vectors (its batch_shape is not empty, or its event_shape "
                "is not one-dimensional); in NumPyro, add .expand([dim]).to_event(1)."
            )
        return Density(density.log_prob, getattr(density, "sample", None), event_shape[0] or None)
    if callable(density):
        return Density(density)
    raise TypeError(
        f"density is a {type(density).__name__}; give a distribution with log_prob or a log-density function."
    )


def standard_normal(dim: int, scale: float = 1.0) -> Density:
    """N(0, scale² I), the paper's choice for π.

    Examples
    --------
    >>> pi = standard_normal(2, scale=0.5)
    >>> pi.log_probs([[0.0, 0.0], [1.0, 0.0]]).round(3).tolist()
    [-0.452, -2.452]
    """
    log_normaliser = -0.5 * dim * float(np.log(2 * np.pi * scale**2))

    def log_prob(point: Array) -> Array:
        return log_normaliser - 0.5 * jnp.sum(point * point) / scale**2

    def sample(key: Array, shape: tuple[int, ...]) -> Array:
        # The long axis goes last, so that vector units are filled.
        if dim < SHORT_AXIS:
            return scale * jnp.moveaxis(noise.standard_normal(key, (dim, *shape)), 0, -1)
        return scale * noise.standard_normal(key, (*shape, dim))

    return Density(log_prob, sample, dim)


def flat() -> Density:
    """π ≡ 1, which is not normalised. With it `passive` and `reweighted` are the classical Langevin step."""
    return Density(lambda point: jnp.zeros((), point.dtype))
