"""log p(z) = βR̂ − wall·max(0, error/limit − 1)²: what chains sample, as JAX functions of one point of the frame.

All numbers are arguments, so that fits of one shape share one compilation. The error has two parts: that of the first
candidate, from the terms of its posterior variance that grow most beyond the data, and the spread of the candidates.
"""

from collections.abc import Callable
from functools import partial
from math import factorial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from onlooker.core.policies import Coordinates

__all__ = ["Density", "errors", "folded", "log_density", "slopes"]

# Points evaluated at once: any number of points shares one compilation.
AT_ONCE = 1024


class Density(NamedTuple):
    """The numbers of log p(z).

    Attributes
    ----------
    beta
        β.
    shares
        (candidates,): how much each candidate counts in R̂.
    middles
        (candidates,): the mean of each candidate over typical points.
    affine
        (candidates, dim, dim + 1): the gradient of each candidate's quadratic.
    bends, waves
        Directions and offsets of all candidates' units.
    bend, wave
        (candidates, units): their weights.
    turn, mean, quadratic, linear
        Coordinates of the first candidate in which the entries of its quadratic are independent, and their variances.
    lifted, squares, along, level
        Terms of its posterior variance.
    noise
        Standard deviation of the noise.
    limit
        The error from which the wall rises.
    wall
        Its height at twice the limit.
    centre, forward, backward
        The frame.
    """

    beta: Array
    shares: Array
    middles: Array
    affine: Array
    bends: Array
    waves: Array
    bend: Array
    wave: Array
    turn: Array
    mean: Array
    quadratic: Array
    linear: Array
    lifted: Array
    squares: Array
    along: Array
    level: Array
    noise: Array
    limit: Array
    wall: Array
    centre: Array
    forward: Array
    backward: Array


def _unit_values(numbers: Density, z: Array) -> tuple[Array, Array]:
    bend = jnp.abs(numbers.bends[:, :-1] @ z + numbers.bends[:, -1])
    wave = numbers.waves[:, :-1] @ z + numbers.waves[:, -1]
    return bend + jnp.log1p(jnp.exp(-2 * bend)) - np.float32(np.log(2)), -_sine(wave + np.float32(np.pi / 2))


def _sine(angle: Array) -> Array:
    """The sine to 2e-7, four times as fast as XLA's on a CPU, which reduces huge angles that never occur here."""
    turns = jnp.round(angle * np.float32(0.5 / np.pi))
    # 2π in two parts, the first exact in a product with few turns.
    angle = angle - turns * np.float32(6.28125) - turns * np.float32(2 * np.pi - 6.28125)
    half, right = np.float32(np.pi), np.float32(np.pi / 2)
    angle = jnp.where(angle > right, half - angle, jnp.where(angle < -right, -half - angle, angle))
    square = angle * angle
    series = jnp.zeros_like(square)
    for order in (11, 9, 7, 5, 3):
        series = square * (np.float32((-1) ** (order // 2) / factorial(order)) + series)
    return angle + angle * series


def errors(numbers: Density, z: np.ndarray) -> np.ndarray:
    """The standard error (n,) that confines samples, from the terms of the posterior variance that grow most."""
    return _in_blocks(partial(_errors, numbers), z)


def slopes(density: Callable[[Density, Array], Array], numbers: Density, z: np.ndarray) -> np.ndarray:
    """Gradients (n, dim) of a log density of this module."""
    return _in_blocks(partial(_slopes, density, numbers), z)


def _in_blocks(function: Callable[[Any], Array], z: np.ndarray) -> np.ndarray:
    count = -(-len(z) // AT_ONCE) * AT_ONCE
    padded = np.concatenate([z, np.broadcast_to(z[:1], (count - len(z), z.shape[1]))]).astype(np.float32)
    parts = [np.asarray(function(padded[first : first + AT_ONCE]), float) for first in range(0, count, AT_ONCE)]
    return np.concatenate(parts)[: len(z)]


@jax.jit
def _errors(numbers: Density, z: Array) -> Array:
    def error(z: Array) -> Array:
        bend, wave = _unit_values(numbers, z)
        return _error(numbers, z, bend, wave, _values(numbers, z, bend, wave))

    return jax.vmap(error)(z)


@partial(jax.jit, static_argnums=0)
def _slopes(density: Callable[[Density, Array], Array], numbers: Density, z: Array) -> Array:
    return jax.vmap(jax.grad(partial(density, numbers)))(z)


def _values(numbers: Density, z: Array, bend: Array, wave: Array) -> Array:
    """R̂ of each candidate."""
    quadratic = 0.5 * (numbers.affine[:, :, :-1] @ z) @ z + numbers.affine[:, :, -1] @ z
    return quadratic + numbers.bend @ bend + numbers.wave @ wave


def _error(numbers: Density, z: Array, bend: Array, wave: Array, heights: Array) -> Array:
    along = numbers.turn @ (z - numbers.mean)
    first = numbers.bends.shape[0]
    left = numbers.lifted[:, :first] @ bend + numbers.lifted[:, first:] @ wave
    left = left - (numbers.squares @ along) @ along - numbers.along @ along - numbers.level
    plain = along**2 @ (numbers.quadratic @ along**2) + along**2 @ numbers.linear
    away = heights - numbers.middles
    apart = numbers.shares @ (away - numbers.shares @ away) ** 2
    return jnp.sqrt(numbers.noise**2 * (jnp.sum(left**2) + plain + 1e-12) + apart)


def log_density(numbers: Density, z: Array) -> Array:
    """log p at one point of the frame."""
    bend, wave = _unit_values(numbers, z)
    heights = _values(numbers, z, bend, wave)
    beyond = jnp.maximum(_error(numbers, z, bend, wave, heights) / numbers.limit - 1, 0)
    return numbers.beta * (numbers.shares @ heights) - numbers.wall * beyond**2


def folded(coordinates: Coordinates, measure: str) -> Callable[[Density, Array], Array]:
    """log p with coordinates folded into their range, and with the volume of policies if that is the measure."""

    def folded_density(numbers: Density, z: Array) -> Array:
        point = coordinates.fold(numbers.backward @ z + numbers.centre)[0]
        height = log_density(numbers, numbers.forward @ (point - numbers.centre))
        return height + coordinates.log_volume(point) if measure == "policy" else height

    return folded_density
