"""What is remembered: the last, a fair sample, or sums; in bounded memory and in whatever pieces it comes."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2

from onlooker.data.observations import Observation
from onlooker.data.splits import HELD_OUT
from onlooker.fit.memory import STRETCH, binned, reservoir, ring
from onlooker.inverse.replay import remembered


def block(numbers, dim=1):
    rows = jnp.asarray(np.repeat(np.asarray(numbers, np.float32)[:, None], dim, axis=1))
    return Observation(rows, -rows)


def test_a_ring_holds_the_last():
    memory = ring(4)
    state = memory.init(1)
    state = memory.add(state, block(range(3)), jnp.int32(3))
    assert int(state.filled) == 3
    # Ten rows of which seven are real: only the last four of them stay.
    state = memory.add(state, block(range(3, 13)), jnp.int32(7))
    assert sorted(np.asarray(state.point)[:, 0]) == [6, 7, 8, 9]
    assert np.asarray(state.gradient) == pytest.approx(-np.asarray(state.point))
    assert int(state.seen) == 10


def test_a_reservoir_is_a_fair_sample():
    """How often each of ten stretches of the stream is kept: χ², false alarm 1e-4. The last rows alone must fail."""
    counts = {"reservoir": np.zeros(10), "ring": np.zeros(10)}
    for seed in range(40):
        for name, memory in (("reservoir", reservoir(50, seed)), ("ring", ring(50))):
            state = memory.init(1)
            for first in range(0, 1000, 100):
                state = memory.add(state, block(range(first, first + 100)), jnp.int32(100))
            counts[name] += np.histogram(np.asarray(state.point)[:, 0], bins=10, range=(0, 1000))[0]
    limit = chi2.isf(1e-4, 9)
    assert ((counts["reservoir"] - 200) ** 2 / 200).sum() < limit
    assert ((counts["ring"] - 200) ** 2 / 200).sum() > 10 * limit


def test_bins_hold_sums_and_count_what_they_miss():
    generator = np.random.default_rng(0)
    points, gradients = generator.uniform(-1.2, 1.2, (6000, 2)), generator.standard_normal((6000, 2))
    memory = binned((-1, -1), (1, 1), cells=8)
    state = remembered(memory, points, gradients)
    assert np.asarray(state.counts[1]).sum() > 500
    inside = (np.abs(points) < 1).all(axis=1)
    edges = [np.linspace(-1, 1, 9)] * 2
    held = np.arange(6000) // STRETCH % HELD_OUT == HELD_OUT - 1
    for fold, rows in ((0, inside & ~held), (1, inside & held)):
        assert np.asarray(state.counts[fold]) == pytest.approx(np.histogramdd(points[rows], edges)[0])
        for axis in range(2):
            expected = np.histogramdd(points[rows], edges, weights=gradients[rows, axis])[0]
            assert np.asarray(state.gradients[fold, ..., axis]) == pytest.approx(expected, abs=1e-3)
    assert int(state.outside) == np.count_nonzero(~inside)
    assert memory.numbers(2) == state.counts.size + state.gradients.size


def test_bins_forget_row_by_row():
    """(1 − γ)^age, the same in one piece or in many."""
    memory = binned((0.0,), (10.0,), cells=10, forgetting=0.1)
    whole = memory.add(memory.init(1), block(range(10)), jnp.int32(10), jnp.zeros(10, bool))
    pieces = memory.init(1)
    for number in range(10):
        pieces = memory.add(pieces, block([number]), jnp.int32(1), jnp.zeros(1, bool))
    assert np.asarray(whole.counts[0]) == pytest.approx(0.9 ** np.arange(9, -1, -1.0), rel=1e-5)
    assert np.asarray(pieces.counts[0]) == pytest.approx(np.asarray(whole.counts[0]), rel=1e-5)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: ring(0), "size is 0"),
        (lambda: binned((0.0,), (0.0,)), "corners of a box"),
        (lambda: binned((0.0,) * 4, (1.0,) * 4), "one, two or three dimensions"),
        (lambda: binned((0.0,), (1.0,), forgetting=1.0), "forgetting is 1.0"),
    ],
)
def test_bad_memory_settings_are_rejected(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()
