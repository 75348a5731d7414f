"""Constrained MDPs: exact values, optimum by linear programming, and the sentences for models that have none."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from onlooker.core.policies import spherical
from onlooker.simulation.cmdp import CMDP, five_states, two_states


def random_cmdp(seed, states=4, actions=3, constraints=1, **options):
    generator = np.random.default_rng(seed)
    free = CMDP(
        transitions=generator.dirichlet(np.ones(states), (actions, states)),
        reward=generator.uniform(0, 10, (states, actions)),
        cost=generator.uniform(0, 1, (constraints, states, actions)),
        limit=np.ones(constraints),
        penalty=10.0,
        **options,
    )
    # What always choosing evenly costs: some policy keeps that.
    return free.but(limit=free.values(np.full((states, actions), 1 / actions))[1:])


def random_policies(cmdp, count, seed=0):
    return np.random.default_rng(seed).dirichlet(np.ones(cmdp.actions), (count, cmdp.states))


def test_the_paper_s_example_has_its_optimum():
    best = two_states().optimum()
    assert best.value == pytest.approx(104 / 3, abs=1e-8)
    assert best.policy == pytest.approx(np.array([[0, 1], [7 / 26, 19 / 26]]), abs=1e-8)
    assert best.cost == pytest.approx([1.0], abs=1e-8)
    assert best.randomised == 1


@pytest.mark.parametrize("discount", [None, 0.9])
def test_values_are_those_of_the_stationary_law(discount):
    cmdp = random_cmdp(0, discount=discount)
    for policy in random_policies(cmdp, 5):
        if discount is None:
            # The law after a thousand steps, from anywhere.
            chain = np.einsum("ia,aij->ij", policy, cmdp.transitions)
            law = np.linalg.matrix_power(chain, 1000)[0]
        else:
            # (1 − γ) Σ γⁿ of the law after n steps.
            chain = np.einsum("ia,aij->ij", policy, cmdp.transitions)
            law = (1 - discount) * cmdp.start @ np.linalg.inv(np.eye(4) - discount * chain)
        assert cmdp.occupation(policy) == pytest.approx(law, abs=1e-12)
        assert cmdp.values(policy)[0] == pytest.approx((law[:, None] * policy * cmdp.reward).sum(), abs=1e-10)


def test_states_that_are_left_for_ever_have_no_mass():
    # From state 0 one always goes to 1 or 2, which keep to themselves.
    moves = np.array([[[0.0, 0.5, 0.5], [0.0, 0.2, 0.8], [0.0, 0.7, 0.3]]] * 2)
    moves[1, 1] = [0.0, 0.9, 0.1]
    cmdp = CMDP(moves, np.ones((3, 2)), np.ones((3, 2)), np.array([2.0]), 1.0)
    law = cmdp.occupation(np.full((3, 2), 0.5))
    assert law[0] == 0
    assert law.sum() == pytest.approx(1)


@pytest.mark.parametrize("discount", [None, 0.8])
def test_gradients_are_derivatives_along_policies(discount):
    cmdp = random_cmdp(1, constraints=2, discount=discount)
    angles = spherical(4, 3)
    slope = jax.jit(jax.grad(lambda place: cmdp.penalised(angles.policy(place))))
    for policy in random_policies(cmdp, 3):
        point = angles.point(policy)
        pulled = angles.pull(point, cmdp.penalised_gradient(policy))
        with jax.enable_x64(True):
            exact = slope(jnp.asarray(point))
        assert pulled == pytest.approx(np.asarray(exact), abs=1e-9)


def test_the_penalty_is_on_the_square_of_the_excess():
    cmdp = two_states(100.0)
    policy = random_policies(cmdp, 1)[0]
    value, cost = cmdp.values(policy)
    assert cmdp.penalised(policy) == pytest.approx(value - 100 * (cost - 1) ** 2)
    assert cmdp.penalised(policy) != pytest.approx(value - 100 * (cost**2 - 1))


@pytest.mark.parametrize("seed", range(5))
def test_an_optimum_is_randomised_in_no_more_states_than_there_are_constraints(seed):
    for constraints in (1, 2):
        cmdp = random_cmdp(seed, constraints=constraints)
        best = cmdp.optimum()
        assert best.randomised <= constraints
        assert (best.cost <= cmdp.limit + 1e-9).all()
        assert best.value <= cmdp.optimum(constrained=False).value + 1e-9
        assert cmdp.optimum(constrained=False).randomised == 0
        # No policy that keeps the limits does better.
        values = cmdp.values(random_policies(cmdp, 2000))
        kept = (values[:, 1:] <= cmdp.limit).all(axis=1)
        assert (values[kept, 0] <= best.value).all()


def test_the_larger_example_has_two_active_constraints():
    cmdp = five_states()
    best = cmdp.optimum()
    assert best.cost == pytest.approx(cmdp.limit, abs=1e-9)
    assert best.randomised == 2


def test_float32_and_jax_agree_with_float64():
    cmdp = two_states()
    policy = random_policies(cmdp, 10)
    compiled = jax.jit(cmdp.values)(jnp.asarray(policy, jnp.float32))
    assert np.asarray(compiled) == pytest.approx(cmdp.values(policy), rel=1e-5)


BAD = {
    "transitions \\[0, 1\\] sums to 0.9": {"transitions": [[[0.5, 0.5], [0.4, 0.5]], [[0.5, 0.5], [0.5, 0.5]]]},
    "negative probability": {"transitions": [[[1.5, -0.5], [0.5, 0.5]]] * 2},
    "transitions has shape": {"transitions": np.ones((2, 2))},
    "reward has shape \\(3,\\)": {"reward": np.ones(3)},
    "reward contains a NaN": {"reward": [[np.nan, 1], [1, 1]]},
    "cost has shape": {"cost": np.ones((1, 3, 2))},
    "limit has shape \\(2,\\) but there are 1 costs": {"limit": [1, 2]},
    "penalty is -1": {"penalty": -1},
    "discount is 1": {"discount": 1.0},
    "start sums to 2": {"start": [1.0, 1.0]},
    "multichain: with actions \\[0, 0\\]": {"transitions": [np.eye(2), [[0.5, 0.5], [0.5, 0.5]]]},
    "periodic with period 2": {"transitions": [[[0, 1], [1, 0]]] * 2},
}


@pytest.mark.parametrize(("sentence", "change"), BAD.items(), ids=list(BAD))
def test_bad_models_get_a_sentence(sentence, change):
    with pytest.raises(ValueError, match=sentence):
        two_states().but(**change)


def test_a_discount_makes_any_model_unichain():
    two_states().but(transitions=[np.eye(2), np.eye(2)], discount=0.9).optimum()


def test_an_infeasible_constraint_is_rejected():
    with pytest.raises(ValueError, match=r"LP infeasible.*0\.733333"):
        two_states().but(limit=[0.7]).optimum()


def test_policies_are_checked():
    cmdp = two_states()
    assert cmdp.values([[1, 0], [0, 1]]) == pytest.approx(cmdp.values(np.array([[1.0, 0.0], [0.0, 1.0]])))
    with pytest.raises(ValueError, match="a row that sums to 2"):
        cmdp.values([[1, 1], [0, 1]])
    with pytest.raises(ValueError, match="policy has shape"):
        cmdp.penalised(np.ones((2, 3)) / 3)


def test_no_constraint_is_an_mdp():
    free = two_states().but(cost=np.zeros((0, 2, 2)), limit=[])
    assert free.optimum().value == pytest.approx(60)
    assert free.optimum().randomised == 0
