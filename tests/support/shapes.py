"""The shapes of the public arrays, checked by jaxtyping in every call that a test makes.

`check_public_arrays` wraps the public functions, once per process, with the checks below. An axis has a name, such as
`n` for rows and `dim` for coordinates, and all axes of one name have the same size in a call. So a step that confuses
rows and coordinates, or broadcasts the position of one chain to many, fails even if its numbers would pass.
"""

from functools import wraps

import jax
import numpy as np
from beartype import beartype
from jaxtyping import Bool, Float, Integer, Shaped, jaxtyped

from onlooker import Chains, Observations, Observer, Reconstruction
from onlooker.core.density import Density
from onlooker.core.kernels import Kernel
from onlooker.inverse.base import InverseLearner

Array = jax.Array | np.ndarray


def typed(function):
    return jaxtyped(typechecker=beartype)(function)


@typed
def one_step(
    position: Float[Array, " dim"],
    noise: Float[Array, "rows dim"] | tuple[Float[Array, " dim"], ...],
    moved: Float[Array, " dim"],
):
    """A step of one chain; in a GPU kernel, the noise is a tuple of rows."""


@typed
def one_density(point: Float[Array, " dim"], value: Float[Array, ""], gradient: Float[Array, " dim"]):
    """π and ∇π at one point."""


@typed
def one_kernel(displacement: Float[Array, " dim"], value: Float[Array, ""]):
    """K_Δ of one displacement."""


@typed
def numbers_at(places: Shaped[np.ndarray, "n dim"], found: Float[np.ndarray, " n"]):
    """One number per place: R̂ or its standard error."""


@typed
def truths_at(places: Shaped[np.ndarray, "n dim"], found: Bool[np.ndarray, " n"]):
    """One boolean per place."""


@typed
def observed(
    points: Float[np.ndarray, "n dim"],
    gradients: Float[np.ndarray, "n dim"],
    agents: Shaped[np.ndarray, " n"] | None,
    times: Shaped[np.ndarray, " n"] | None,
    rows: Integer[np.ndarray, " n"] | None,
):
    """Observations, row by row."""


@typed
def chains(
    positions: Float[np.ndarray, "chains dim"],
    samples: Float[np.ndarray, "traced draws dim"],
    mean: Float[np.ndarray, " dim"],
    covariance: Float[np.ndarray, "dim dim"],
):
    """Last positions of a run, its samples, and their moments."""


def check_public_arrays():
    """Check the shapes of public arrays from now on, in this process."""
    make = InverseLearner.__new__

    @wraps(make)
    def with_checked_step(cls, name, step, *others, **options):
        @wraps(step)
        def checked(position, evidence, noise):
            moved, report = step(position, evidence, noise)
            one_step(position, noise, moved)
            assert all(np.shape(number) == () for number in report), "a step reports one number under each name"
            return moved, report

        return make(cls, name, checked, *others, **options)

    InverseLearner.__new__ = with_checked_step
    after_call(Density, "value_and_gradient", lambda _, point, found: one_density(point, *found))
    after_call(Kernel, "__call__", lambda _, displacement, bandwidth, found: one_kernel(displacement, found))
    for kind in (Reconstruction, Observer):
        for name in ("reward", "reward_error"):
            after_call(kind, name, lambda self, x, found: numbers_at(as_rows(x, self), found))
    after_call(Reconstruction, "explored", lambda self, x, found: truths_at(as_rows(x, self), found))
    after_call(
        Observations,
        "__init__",
        lambda self, *_, **__: observed(self.points, self.gradients, self.agents, self.times, self.rows),
    )
    after_call(
        Chains, "__init__", lambda self, *_, **__: chains(self.positions, self.samples, self.mean, self.covariance)
    )


def after_call(kind, name, check):
    """Replace a method by one that also calls ``check`` with its arguments and its result."""
    method = getattr(kind, name)

    @wraps(method)
    def checked(self, *given, **options):
        found = method(self, *given, **options)
        check(self, *given, *options.values(), found)
        return found

    setattr(kind, name, checked)


def as_rows(places, answering):
    """Places as an array (n, dim), as the public functions read them."""
    return np.asarray(places, float).reshape(-1, answering.dim)
