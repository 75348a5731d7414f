"""Standard normal noise, w = √2 erf⁻¹(u), from the counter-based generator Threefry-2x32.

In float32 one 32-bit word makes one number. `jax.random.normal` would draw two words and discard one. The generator is
the bottleneck of the inner loop, so both words are used here.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.extend.random import threefry_2x32

__all__ = ["normal_and_coin", "standard_normal", "two_uniforms"]


def standard_normal(key: Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
    """Independent N(0, 1) numbers."""
    if dtype != jnp.float32:
        return jax.random.normal(key, shape, dtype)
    return _normal(_words(key, shape))


def normal_and_coin(key: Array, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Independent N(0, 1) numbers, and fair booleans from a bit of each word that the numbers do not use."""
    words = _words(key, shape)
    return _normal(words), (words & np.uint32(1)) == 1


def two_uniforms(key: Array, number: Array) -> Array:
    """The ``number``-th pair of independent uniform numbers in (0, 1) of a key, from one call of the generator.

    They are odd multiples of 2⁻²⁴, so an event of smaller probability never happens.
    """
    counter = jnp.stack([jnp.asarray(number, jnp.uint32), jnp.uint32(0)])
    return _uniform(threefry_2x32(jax.random.key_data(key), counter)) + np.float32(2**-24)


def _words(key: Array, shape: tuple[int, ...]) -> Array:
    return threefry_2x32(jax.random.key_data(key), lax.iota(jnp.uint32, math.prod(shape))).reshape(shape)


def _normal(words: Array) -> Array:
    uniform = _uniform(words)
    lowest = np.nextafter(np.float32(-1), np.float32(0))
    symmetric = jnp.maximum(lowest, uniform * (1 - lowest) + lowest)
    return np.float32(math.sqrt(2)) * lax.erf_inv(symmetric)


def _uniform(words: Array) -> Array:
    # 23 random bits as the mantissa, with the exponent of 1.0, are a uniform number in [1, 2).
    return lax.bitcast_convert_type((words >> 9) | np.uint32(0x3F800000), jnp.float32) - 1
