"""Logistic regression: its data, its gradients, its truth, and the listing's end."""

import bz2

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from onlooker.core.density import standard_normal
from onlooker.core.distances import quantile_distance, quantiles
from onlooker.engine.run import run
from onlooker.inverse import classical
from onlooker.paper.listing_arithmetic import steps_until_nan
from onlooker.simulation import libsvm
from onlooker.simulation.agents import questions, simulate
from onlooker.simulation.exact.reference import FILE, a9a_reference, hamiltonian, summarise
from onlooker.simulation.logistic import Logistic, on_a9a


@pytest.fixture(scope="module")
def small():
    generator = np.random.default_rng(1)
    features = (generator.random((300, 4)) < 0.4).astype(np.float32)
    return Logistic(features, np.sign(features @ [2.0, -1, 0.5, 0] - 0.4 + generator.logistic(size=300)), weight=200.0)


@pytest.fixture(scope="module")
def real():
    try:
        return on_a9a()
    except ValueError as error:
        pytest.skip(str(error))


def test_sample_gradients_average_to_the_gradient(small):
    point = jnp.asarray([0.3, -0.7, 1.1, 0.2, -0.1])
    each = jax.vmap(lambda *row: small.sample_gradient(point, type(small.data)(*row)))(*small.data)
    assert each.mean(axis=0) == pytest.approx(np.asarray(jax.grad(small.value)(point)), rel=1e-4)


def test_rows_come_in_the_order_asked_for(small):
    key = jax.random.key(0)

    def rows(reward, lanes, steps=700):
        draw = jax.jit(reward.draw, static_argnums=(3, 4))
        _, seen = draw(reward.data, reward.begin(reward.data, key, lanes), key, steps, lanes)
        return np.asarray(seen.label)

    labels = np.asarray(small.data.label)
    cyclic = Logistic(small.features, small.labels, order="cyclic", sweep_rows=250)
    assert np.array_equal(rows(cyclic, None), np.resize(labels[:250], 700))
    rotated = rows(Logistic(small.features, small.labels, order="rotated"), 3)
    starts = [[row for row in range(300) if np.array_equal(np.roll(labels, -row), lane[:300])] for lane in rotated.T]
    assert len({tuple(start) for start in starts if start}) == 3
    random = rows(small, 50)
    assert random.mean() == pytest.approx(labels.mean(), abs=5 * (0.25 / random.size) ** 0.5)


def test_a_sweep_goes_on_where_the_last_block_ended(small):
    cyclic = Logistic(small.features, small.labels, order="cyclic")
    carry = cyclic.begin(cyclic.data, jax.random.key(0), None)
    shown, draw = [], jax.jit(cyclic.draw, static_argnums=(3, 4))
    for steps in (128, 64, 256):
        carry, seen = draw(cyclic.data, carry, jax.random.key(0), steps, None)
        shown.append(np.asarray(seen.label))
    assert np.array_equal(np.concatenate(shown), np.resize(np.asarray(small.data.label), 448))


def test_agents_run_the_sgd_of_the_paper(small):
    seen = simulate(small, standard_normal(5), agents=3, horizon=6, learning_rate=0.01)
    moved = seen.points.reshape(3, 6, 5)
    assert moved[:, 1:] == pytest.approx(moved[:, :-1] + 0.01 * seen.gradients.reshape(3, 6, 5)[:, :-1], abs=1e-5)


def test_langevin_chains_and_hamiltonian_ones_agree(small):
    """Two samplers of exp(R) that share nothing but R; the prior alone is far away."""
    draws = hamiltonian(small, chains=64, warmup=100, draws=60, trajectory=0.6, seed=1)
    truth = summarise(draws, small)
    chains = run(classical(step_size=2e-4), questions(small), steps=40_000, chains=64, burn_in=10_000, seed=2)
    samples = chains.samples.reshape(-1, 5)
    assert truth.distances(samples).max() < 0.05
    assert truth.logit_distances(samples, small).max() < 0.06
    assert truth.distances(np.random.default_rng(0).laplace(size=(4000, 5))).mean() > 0.3
    assert truth.error.max() < 0.05


def test_quantile_distance_is_the_wasserstein_distance():
    generator = np.random.default_rng(0)
    reference = quantiles(generator.standard_normal((100_000, 2)))
    found = quantile_distance(generator.normal([0, 0.5], size=(100_000, 2)), reference)
    assert found == pytest.approx([0, 0.5], abs=0.02)


def test_libsvm_files_are_read_packed_or_not_and_errors_name_them(tmp_path):
    plain, packed = tmp_path / "data", tmp_path / "data.bz2"
    plain.write_text("-1 1:1 3:0.5 # a remark\n\n+1 2:2\n")
    packed.write_bytes(bz2.compress(plain.read_bytes()))
    for path in (plain, packed):
        features, labels = libsvm.read(path, 4)
        assert features.tolist() == [[1, 0, 0.5, 0], [0, 2, 0, 0]]
        assert labels.tolist() == [-1, 1]
    rejected = {
        "1 x": "entry 'x'",
        "1 0:3": "numbered from 1",
        "1 1:nan": "entry '1:nan'",
        "1 999999999:1": "entry",
        "a 1:2": "could not convert",
        "": "no rows",
    }
    for content, reason in rejected.items():
        plain.write_text(content)
        with pytest.raises(ValueError, match=f"data is not in LIBSVM format .*{reason}"):
            libsvm.read(plain)
    with pytest.raises(ValueError, match="more than 1"):
        libsvm.read(packed, 1)
    with pytest.raises(ValueError, match="cannot be read"):
        libsvm.read(tmp_path / "missing")


def test_a9a_is_found_and_checked_or_its_absence_is_explained(tmp_path, monkeypatch):
    monkeypatch.setenv("ONLOOKER_DATA", str(tmp_path))

    def unreachable(*arguments, **options):
        raise ConnectionError

    monkeypatch.setattr(libsvm.pooch, "retrieve", unreachable)
    with pytest.raises(ValueError, match="set ONLOOKER_DATA to that folder"):
        libsvm.a9a()
    (tmp_path / "a9a.bz2").write_bytes(bz2.compress(b"1 1:1\n" * 1000)[:-20])
    with pytest.raises(ValueError, match=r"a9a\.bz2 cannot be read"):
        libsvm.a9a()
    (tmp_path / "a9a").write_text("1 1:1\n")
    with pytest.raises(ValueError, match="sha256 differs"):
        libsvm.a9a()
    with pytest.raises(ValueError, match="one label per row"):
        Logistic(np.zeros((3, 2)), np.zeros(2))
    with pytest.raises(ValueError, match="choose 'random', 'cyclic' or 'rotated'"):
        Logistic(np.zeros((3, 2)), np.zeros(3), order="sorted")
    for options, reason in (
        ({"sweep_rows": 4}, "give 1 to 3"),
        ({"weight": -1.0}, "weight is -1"),
        ({"labels": np.arange(3)}, "3 different values"),
        ({"features": np.full((3, 2), np.nan)}, "NaN"),
    ):
        with pytest.raises(ValueError, match=reason):
            Logistic(**{"features": np.zeros((3, 2)), "labels": [1, 2, 2], **options})
    assert np.asarray(Logistic(np.zeros((3, 2)), np.array([1, 2, 2])).data.label).tolist() == [0, 1, 1]


def test_a9a_has_its_rows_and_the_truth_fits_it(real):
    assert (real.rows, real.dim, int((real.labels > 0).sum())) == (32_561, 124, 7_841)
    truth = a9a_reference()
    assert FILE.stat().st_size <= 200_000
    assert truth.coordinates.shape == (124, 256)
    assert truth.logits.shape == (200, 256)
    assert truth.error.mean() < 0.01
    # It leans to where the reward is: the means turned about, or dealt to other coordinates, have far less of it.
    mean = truth.coordinates.astype(np.float32).mean(axis=1)
    assert real.value(mean) > real.value(-mean) + 10
    assert real.value(mean) > real.value(np.random.default_rng(0).permutation(mean)) + 1


def test_the_listing_divides_zero_by_zero():
    """Thrown out of reach of the pool by a huge gradient it dies at once; with none, a few steps do no harm."""
    reward = Logistic(np.zeros((10, 123), np.float32), np.ones(10))
    assert steps_until_nan(reward, 0, 50) == (50, 0)
    heavy = Logistic(np.ones((10, 123), np.float32), np.ones(10), weight=1e6)
    died, resets = steps_until_nan(heavy, 0, 50)
    assert died < 50
    assert resets == 1


@pytest.mark.slow
def test_a_short_run_on_a9a_finds_the_shipped_truth(real):
    """Another sampler run of 3200 draws: as far off as its own length allows, and the prior is farther."""
    shipped = a9a_reference()
    found = hamiltonian(real, chains=64, warmup=100, draws=50, seed=7).reshape(-1, 124)
    distances = shipped.distances(found)
    assert distances.mean() < 0.06
    assert shipped.logit_distances(found, real).mean() < 0.3
    assert shipped.distances(np.random.default_rng(0).laplace(size=(3200, 124))).mean() > 2 * distances.mean()
