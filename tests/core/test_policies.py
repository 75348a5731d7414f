"""Coordinates on policies: their maps, their volume, and which law a chain in them has."""

import jax.numpy as jnp
import numpy as np
import pytest

from onlooker import run
from onlooker.core.density import standard_normal
from onlooker.core.policies import softmax, spherical
from onlooker.inverse import classical, fold, on_policies, passive
from onlooker.simulation.agents import questions
from onlooker.simulation.exact.law import GridLaw, cells
from onlooker.simulation.reward import NoisyReward
from tests.support.statistics import follows

BOTH = pytest.mark.parametrize("make", [spherical, softmax], ids=["spherical", "softmax"])


def policies(states, actions, count=4):
    return np.random.default_rng(0).dirichlet(np.ones(actions), (count, states))


def differences(function, point, step=1e-6):
    """∂function/∂point by central differences, on a last axis."""
    nudges = step * np.eye(len(point))
    return np.stack([(function(point + nudge) - function(point - nudge)) / (2 * step) for nudge in nudges], axis=-1)


@BOTH
@pytest.mark.parametrize("actions", [2, 3, 4, 5])
def test_maps_and_their_derivatives(make, actions):
    coordinates = make(2, actions)
    for policy in policies(2, actions):
        point = coordinates.point(policy)
        assert coordinates.policy(point) == pytest.approx(policy, abs=1e-12)
        full = differences(coordinates.policy, point)
        jacobian = coordinates.jacobian(point)
        width = actions - 1
        for state in range(2):
            own = slice(state * width, (state + 1) * width)
            assert jacobian[state] == pytest.approx(full[state][:, own], abs=1e-7)
            assert np.delete(full[state], np.r_[own], axis=1) == pytest.approx(0, abs=1e-7)
        volume = sum(np.linalg.slogdet(block[:-1])[1] for block in jacobian)
        assert coordinates.log_volume(point) == pytest.approx(volume, abs=1e-9)
        assert coordinates.drift(point) == pytest.approx(differences(coordinates.log_volume, point) / 2, abs=1e-6)


def test_the_paper_s_angles():
    angles = np.array([0.3, 0.7, 1.1])
    sine, cosine = np.sin(angles) ** 2, np.cos(angles) ** 2
    expected = [cosine[0], sine[0] * cosine[1], sine[0] * sine[1] * cosine[2], sine[0] * sine[1] * sine[2]]
    assert spherical(1, 4).policy(angles)[0] == pytest.approx(expected)
    # The drift of the two-action case, cot 2a, and of softmax, (1 − Uφ)/2.
    assert spherical(1, 2).drift(np.array([0.4])) == pytest.approx([1 / np.tan(0.8)])
    assert softmax(1, 2).drift(np.array([1.0])) == pytest.approx([(1 - 2 / (1 + np.exp(-1))) / 2])


@BOTH
def test_a_pure_policy_has_coordinates(make):
    coordinates = make(1, 3)
    for pure in np.eye(3):
        assert coordinates.policy(coordinates.point(pure[None])) == pytest.approx(pure[None], abs=1e-12)
        assert np.isfinite(coordinates.jacobian(coordinates.point(pure[None]))).all()


def test_folding_keeps_the_policy_and_turns_the_gradient():
    angles = spherical(1, 3)
    outside = np.array([-0.3, 2.0])
    inside, sign = angles.fold(outside)
    assert inside == pytest.approx([0.3, np.pi - 2.0])
    assert angles.policy(inside) == pytest.approx(angles.policy(outside))
    slope = differences(angles.policy, outside)
    assert slope * sign == pytest.approx(differences(angles.policy, inside), abs=1e-7)


def test_reflection_at_both_ends():
    moved, touched = fold(0.0, 1.0)(jnp.array([0.2, 0.9, 0.5]), jnp.array([-0.3, 0.3, 0.1]))
    assert np.asarray(moved) == pytest.approx([0.1, 0.8, 0.6], abs=1e-6)
    assert touched == 1
    moved, touched = fold(0.0)(jnp.array([0.2, 0.9]), jnp.array([-0.3, 5.0]))
    assert np.asarray(moved) == pytest.approx([0.1, 5.9], abs=1e-6)
    with pytest.raises(ValueError, match="low is 1"):
        fold(1.0, 0.0)


SLOPE = 2.0


def _final_shares(coordinates, measure):
    """φ(1) of 3000 independent chains on R = 2φ(1), three actions; logits are slower, and bear longer steps."""
    step_size = 1e-3 if coordinates.interval else 2e-2
    reward = NoisyReward(2, lambda place: SLOPE * coordinates.policy(place)[0, 0], 0.0)
    start = coordinates.point(policies(1, 3, count=3000))
    chains = run(
        on_policies(classical(step_size=step_size), coordinates, measure),
        questions(reward),
        steps=3000,
        chains=3000,
        start=start,
        seed=3,
    )
    return coordinates.policy(chains.positions.astype(float))[:, 0, 0]


def _law(log_density):
    axis = cells(0.0, 1.0, 0.001)
    mass = np.exp(log_density(axis))
    return GridLaw((axis,), mass / mass.sum())


# On the simplex of three actions φ(1) has density 2(1 − φ); angles that are even on [0, π/2] give it 1/√(φ(1 − φ)).
ON_POLICIES = _law(lambda share: SLOPE * share + np.log(1 - share))
ON_ANGLES = _law(lambda share: SLOPE * share - 0.5 * np.log(share * (1 - share)))


@pytest.mark.parametrize(
    ("make", "measure", "law", "other"),
    [
        (spherical, "coordinates", ON_ANGLES, ON_POLICIES),
        (spherical, "policy", ON_POLICIES, ON_ANGLES),
        (softmax, "policy", ON_POLICIES, ON_ANGLES),
    ],
    ids=["angles", "policies by angles", "policies by logits"],
)
def test_samples_have_the_law_of_the_chosen_measure(make, measure, law, other):
    shares = _final_shares(make(1, 3), measure)
    assert follows(shares, law)
    assert not follows(shares, other)


def test_unsuitable_coordinates_and_measures_are_rejected():
    with pytest.raises(ValueError, match="has no law with softmax"):
        on_policies(classical(step_size=1e-3), softmax(2, 2), "coordinates")
    with pytest.raises(ValueError, match="plain noise"):
        on_policies(passive(standard_normal(2), step_size=1e-3, bandwidth=0.1), spherical(2, 2), "policy")
    with pytest.raises(ValueError, match="measure is 'phi'"):
        on_policies(classical(step_size=1e-3), spherical(2, 2), "phi")
    with pytest.raises(ValueError, match="actions is 1"):
        spherical(2, 1)
    with pytest.raises(ValueError, match=r"shape \(3,\); for 2 states and 2 actions give coordinates"):
        spherical(2, 2).policy(np.zeros(3))
    with pytest.raises(ValueError, match="softmax coordinates have no uniform density"):
        softmax(2, 2).uniform("coordinates")


def test_chains_can_reach_pure_policies():
    angles = spherical(2, 2)
    for end in (0.0, np.pi / 2):
        drift = angles.drift(np.array([end, 0.7]))
        assert np.isfinite(drift).all()
        assert np.sign(drift[0]) == (1 if end == 0 else -1)
    reward = NoisyReward(2, lambda place: jnp.zeros(()), 0.0)
    for start in ([0.0, 0.5], [np.pi / 2, 0.5]):
        chains = run(
            on_policies(classical(step_size=1e-3), angles, "policy"),
            questions(reward),
            steps=50,
            chains=10,
            start=np.array(start),
        )
        assert np.isfinite(chains.positions).all()


def test_a_chain_inside_its_interval_is_not_pushed_back():
    for place in np.random.default_rng(0).uniform(0.1, 1.4, 20).astype(np.float32):
        moved, touched = fold(0.0, np.pi / 2)(jnp.asarray([place]), jnp.asarray([0.01]))
        assert touched == 0
        assert moved[0] == np.float32(place) + np.float32(0.01)


def test_lists_whole_numbers_and_wrong_policies():
    angles = spherical(2, 2)
    assert angles.policy([0.3, 0.5]) == pytest.approx(angles.policy(np.array([0.3, 0.5])))
    assert angles.point([[1, 0], [0, 1]]) == pytest.approx([0, np.pi / 2])
    for wrong, sentence in (
        ([[1, 1], [0, 1]], "a row that sums to 2"),
        ([[2, -1], [0, 1]], "policy contains -1"),
        ([[1.0, 0.0]], "policy has shape"),
    ):
        with pytest.raises(ValueError, match=sentence):
            angles.point(wrong)
    with pytest.raises(ValueError, match="gradient has shape"):
        angles.pull(np.zeros(2), np.zeros(2))
