"""Observations are checked by name; gradients from iterates have the right sign and never cross a restart."""

import jax.numpy as jnp
import numpy as np
import pytest

import onlooker
from onlooker.data.observations import observe
from tests.support.messages import codes, message_of


def ascent(start, steps, learning_rate, gradient):
    points = [np.asarray(start, float)]
    for _ in range(steps):
        points.append(points[-1] + learning_rate * gradient(points[-1]))
    return np.array(points)


def test_gradients_from_iterates_point_uphill():
    points = ascent([1.0, -2.0], 5, 0.1, lambda point: -point)
    seen = observe(points, learning_rate=0.1)
    assert seen.points == pytest.approx(points[:-1])
    assert seen.gradients == pytest.approx(-points[:-1])
    assert seen.warnings == ()


def test_unknown_learning_rate_is_flagged_and_in_its_units():
    points = ascent([1.0], 4, 0.1, lambda point: -point)
    seen = observe(points)
    assert seen.gradients == pytest.approx(-0.1 * points[:-1])
    assert codes(seen) == ["learning-rate-unknown"]


def test_no_gradient_is_read_across_a_restart():
    first, second = (ascent([start], 3, 0.1, lambda point: -point) for start in (1.0, 5.0))
    points = np.stack([first, second], axis=1).reshape(-1, 1)
    agents = np.tile(["a", "b"], 4)
    seen = observe(points, agents=agents, learning_rate=0.1)
    assert seen.points == pytest.approx(points[:-2])
    assert seen.gradients == pytest.approx(-points[:-2])
    assert seen.agents.tolist() == ["a", "b"] * 3
    # One agent that starts again: its clock says so.
    again = observe(np.concatenate([first, second]), times=[0, 1, 2, 3, 0, 1, 2, 3], learning_rate=0.1)
    assert again.gradients == pytest.approx(-np.concatenate([first[:-1], second[:-1]]))


def test_no_gradient_is_read_across_missing_steps():
    """A record with steps left out: what is between is a sum of gradients, not one."""
    seen = observe(np.array([[0.0], [1.0], [11.0], [12.0]]), times=[0, 1, 11, 12], learning_rate=1.0)
    assert seen.points.ravel().tolist() == [0, 11]
    assert seen.gradients.ravel().tolist() == [1, 1]


def test_losses_are_turned_into_rewards_but_iterates_are_not():
    points = ascent([1.0], 3, 0.1, lambda point: -point)
    assert observe(points, points, descent=True).gradients == pytest.approx(-points)
    assert observe(points, learning_rate=0.1, descent=True).gradients == pytest.approx(-points[:-1])


def test_rows_that_are_not_finite_are_rejected_and_counted():
    points, gradients = np.zeros((5, 2)), np.ones((5, 2))
    gradients[1, 0], points[3, 1] = np.nan, np.inf
    seen = observe(points, gradients, agents=np.arange(5))
    assert (len(seen), seen.rejected) == (3, 2)
    assert seen.agents.tolist() == [0, 2, 4]
    assert np.isfinite(seen.points).all()
    assert np.isfinite(seen.gradients).all()
    assert message_of(seen, "rows-rejected").numbers == {"rejected": 2, "rows": 5}


def test_inputs_are_not_changed_and_may_be_other_arrays():
    points = np.zeros((2, 2), np.float32)
    seen = observe(jnp.asarray(points), jnp.ones((2, 2)), descent=True)
    assert seen.points.dtype == np.float32
    assert observe([[1, 2], [3, 4]], [[1, 1], [1, 1]]).points.dtype == np.float64
    assert (points == 0).all()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"points": np.zeros((3, 2, 2)), "gradients": np.zeros((3, 2, 2))}, "points has shape"),
        ({"points": np.zeros((3, 2)), "gradients": np.zeros((3, 3))}, "gradients has shape"),
        ({"points": np.zeros((3, 0)), "gradients": np.zeros((3, 0))}, "points is empty"),
        ({"points": [], "gradients": []}, "points is empty"),
        ({"points": [["a"]], "gradients": [[1.0]]}, "not an array of numbers"),
        ({"points": np.zeros((3, 2)), "agents": [0, 1]}, "agents has shape"),
        ({"points": np.zeros((3, 2)), "learning_rate": -1.0}, "learning_rate is -1"),
        ({"points": np.zeros((3, 2)), "learning_rate": "fast"}, "learning_rate is 'fast'"),
        ({"points": np.zeros((3, 2)), "times": ["a", "b", "c"]}, "times is not an array of numbers"),
        ({"points": np.zeros((3, 2)), "times": [0, np.nan, 2]}, "times contains a NaN"),
        ({"points": np.zeros((3, 2)), "agents": np.array([None, "a", 1], object)}, "agents mixes types"),
        ({"points": np.zeros((3, 2)), "agents": [0, 1, 2]}, "no two successive iterates"),
        ({"points": np.zeros((3, 2)) * 1j, "gradients": np.zeros((3, 2))}, "complex"),
    ],
)
def test_bad_input_is_one_sentence_that_names_the_argument(arguments, sentence):
    with pytest.raises(ValueError, match=sentence) as error:
        observe(**arguments)
    assert "\n" not in str(error.value)


def test_an_empty_batch_is_an_empty_batch():
    nothing, nan = np.zeros((0, 2)), np.full((3, 2), np.nan)
    assert len(observe(nothing, nothing)) == 0
    seen = observe(np.zeros((3, 2)), nan)
    assert (seen.points.shape, seen.gradients.shape, seen.rejected) == ((0, 2), (0, 2), 3)
    live = onlooker.Observer(dim=2)
    for points, gradients in ((nothing, nothing), (nan, nan), (np.ones((3, 2)), nan)):
        live.learn_many(points, gradients)
    assert (live.seen, live.rejected) == (0, 6)
    with pytest.warns(DeprecationWarning, match="Observations.refused is now called rejected"):
        assert seen.refused == 3
    with pytest.raises(ValueError, match="has 0 usable observations"):
        onlooker.reconstruct(np.ones((3, 2)), nan)
    with pytest.raises(ValueError, match="observations is empty"):
        onlooker.recorded(seen)
