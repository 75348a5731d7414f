"""Densities: any log_prob, gradients by autodiff, zero outside a bounded support."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from onlooker.core.density import as_density, standard_normal


def test_gradient_matches_finite_differences():
    density = as_density(dist.MultivariateNormal(jnp.zeros(2), jnp.array([[1.0, 0.4], [0.4, 2.0]])))
    # NumPyro mixes precisions.
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        point, step = jnp.array([0.3, -0.7]), 1e-6
        _, gradient = jax.jit(density.value_and_gradient)(point)
        value = jax.jit(density.value)
        for axis in range(2):
            shift = jnp.zeros(2).at[axis].set(step)
            slope = (value(point + shift) - value(point - shift)) / (2 * step)
            assert float(gradient[axis]) == pytest.approx(float(slope), rel=1e-6)


def test_standard_normal_equals_numpyro_s():
    theirs = as_density(dist.Normal(0, 1.5).expand([3]).to_event(1))
    point = jnp.array([0.1, -2.0, 1.0])
    assert float(standard_normal(3, 1.5).log_prob(point)) == pytest.approx(float(theirs.log_prob(point)), rel=1e-6)
    draws = standard_normal(2, 1.5).sample(jax.random.key(0), (100_000,))
    assert draws.shape == (100_000, 2)
    assert np.asarray(draws).std(axis=0) == pytest.approx([1.5, 1.5], rel=0.02)


def test_bounded_support_is_zero_with_zero_gradient():
    density = as_density(lambda point: jnp.where(jnp.sum(point**2) < 1, 0.0, -jnp.inf))
    value, gradient = density.value_and_gradient(jnp.array([1.0, 1.0]))
    assert float(value) == 0
    assert np.asarray(gradient).tolist() == [0, 0]
    assert density.is_positive(np.array([[0.0, 0.0], [2.0, 0.0]])).tolist() == [True, False]


def test_bad_settings_are_rejected():
    with pytest.raises(ValueError, match="to_event"):
        as_density(dist.Normal(0, 1))
    with pytest.raises(TypeError, match="density is a float"):
        as_density(3.0)
