"""Every kernel integrates to one, has the order it says, and is symmetric, in any dimension."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad

from onlooker.core.kernels import by_name, epanechnikov, fourth_order, gaussian, truncated_gaussian

KERNELS = [gaussian, truncated_gaussian(3.0), epanechnikov, fourth_order]


def radial_moment(kernel, dim, power, bandwidth=1.0):
    """∫ |u|^power K_Δ(u) du by shells."""
    area = 2 * math.pi ** (dim / 2) / math.gamma(dim / 2)
    direction = np.zeros(dim)
    direction[0] = 1.0

    def shell(radius):
        return area * radius ** (dim - 1 + power) * float(kernel(jnp.asarray(radius * direction), bandwidth))

    edges = [0.0, bandwidth, 3 * bandwidth, 14 * bandwidth]
    return sum(quad(shell, low, high, limit=200)[0] for low, high in itertools.pairwise(edges))


@pytest.mark.parametrize("dim", [1, 2, 3, 5])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_kernels_are_normalised_and_have_their_order(kernel, dim):
    with jax.enable_x64(True):
        assert radial_moment(kernel, dim, 0, bandwidth=0.7) == pytest.approx(1, abs=1e-5)
        second = radial_moment(kernel, dim, 2)
        if kernel.order == 2:
            assert second > 0.1
        else:
            assert second == pytest.approx(0, abs=1e-4)
            assert radial_moment(kernel, dim, 4) < -0.1


def test_gaussian_second_moment_is_the_dimension():
    with jax.enable_x64(True):
        assert radial_moment(gaussian, 3, 2) == pytest.approx(3, rel=1e-6)


def test_high_dimension_stays_finite_in_logarithm():
    displacement = jnp.full(124, 0.1)
    exact = -0.5 * 124 * 0.01 / 0.04 - 62 * math.log(2 * math.pi) - 124 * math.log(0.2)
    assert float(gaussian.log(displacement, 0.2)) == pytest.approx(exact, rel=1e-5)


def test_compact_kernels_vanish_outside():
    assert float(epanechnikov(jnp.array([1.01, 0.0]), 1.0)) == 0
    assert float(truncated_gaussian(2.0)(jnp.array([2.01, 0.0]), 1.0)) == 0
    assert np.isfinite(jax.grad(lambda u: epanechnikov(u, 1.0))(jnp.array([1.5, 0.0]))).all()


def test_signed_kernels_have_no_logarithm_and_names_are_checked():
    with pytest.raises(ValueError, match="negative values"):
        fourth_order.log(jnp.zeros(2), 1.0)
    with pytest.raises(ValueError, match="'gausian' is unknown"):
        by_name("gausian")
