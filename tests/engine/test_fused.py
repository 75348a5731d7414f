"""The kernel for GPUs makes the steps of the plain loop: here by Pallas's interpreter, on the same noise."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from onlooker.core.density import standard_normal
from onlooker.engine import fused
from onlooker.engine import loop as engine
from onlooker.engine.fused import fused_block, suits
from onlooker.engine.loop import State, make_plan
from onlooker.engine.run import run
from onlooker.engine.settings import RunSettings
from onlooker.inverse import ball, nonreversible, passive, reweighted
from onlooker.paper.naive import naive
from onlooker.simulation.agents import independent, independent_pools, questions
from onlooker.simulation.reward import NoisyReward


def world(dim, shared=True):
    return independent(NoisyReward(dim, lambda x: -jnp.sum(x**4)), standard_normal(dim), shared=shared)


LEARNERS = {
    "passive": lambda dim: passive(standard_normal(dim), step_size=5e-3, bandwidth=0.8),
    "passive, second form": lambda dim: passive(standard_normal(dim), step_size=5e-3, bandwidth=0.8, form="second"),
    "reweighted": lambda dim: reweighted(standard_normal(dim), step_size=1e-4, bandwidth=0.8),
    "naive": lambda dim: naive(step_size=1e-3, bandwidth=0.8),
}
SETTINGS = [
    ("passive", 2, 37),
    ("passive, second form", 2, 64),
    ("reweighted", 4, 50),
    pytest.param("naive", 1, 64, marks=pytest.mark.slow),
]


def one_block(name, dim, **changes):
    """A plan with a short block, a state in the middle of a run, and the evidence of its block."""
    learner, stream = LEARNERS[name](dim), world(dim)
    assert suits(learner, stream, np.float32)
    plan = make_plan(learner, stream, RunSettings(steps=1000, chains=75, draws=4))
    plan = dataclasses.replace(plan, block=64, **changes)
    key = jax.random.key(3)
    positions = jax.random.normal(jax.random.key(4), (plan.groups, dim, plan.width))
    state = State(key, jnp.asarray(5), positions, positions, stream.init(stream.data, key, None), None)
    noise_key, evidence_key = jax.random.split(jax.random.fold_in(key, 5))
    draw = jax.jit(stream.draw, static_argnums=(3, 4))
    keys = jax.vmap(lambda group: jax.random.key_data(jax.random.fold_in(noise_key, group)))(jnp.arange(plan.groups))
    return plan, stream, state, keys, draw(stream.data, state.carry, evidence_key, plan.block, None)[1]


@pytest.mark.parametrize(("name", "dim", "steps"), SETTINGS)
def test_a_block_is_the_plain_loop_s(name, dim, steps):
    plan, stream, state, keys, evidence = one_block(name, dim)
    plain, recorded, info = jax.jit(partial(engine._block, plan))(stream.data, state, jnp.asarray(steps))
    kernel = jax.jit(partial(fused_block, plan, interpret=True))
    found = kernel(keys, state.positions, evidence, jnp.asarray(steps))
    for mine, theirs in zip(found, (plain.positions, recorded, info), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-6)
    # Other noise is another block: the comparison can fail.
    other = kernel(keys + 1, state.positions, evidence, jnp.asarray(steps))
    assert np.abs(other[0] - plain.positions).max() > 1e-3


def test_a_run_is_the_plain_run(monkeypatch):
    learner, stream = LEARNERS["passive"](2), world(2)
    settings = {"steps": 300, "chains": 40, "thin": 4, "seed": 2, "start": np.zeros(2), "progress": False}
    plain = run(learner, stream, **settings)
    monkeypatch.setattr(engine, "_can_be_fused", lambda *given: True)
    monkeypatch.setattr(fused, "fused_block", partial(fused_block, interpret=True))
    kernel = run(learner, stream, **settings)
    np.testing.assert_allclose(kernel.samples, plain.samples, atol=1e-5)
    np.testing.assert_allclose(kernel.covariance, plain.covariance, rtol=1e-4)
    assert kernel.diagnostics["kernel_ess"] == pytest.approx(plain.diagnostics["kernel_ess"], rel=1e-4)


@pytest.mark.parametrize("chains", [1000, 1 << 18])
def test_it_compiles_for_a_gpu_as_far_as_that_can_be_seen_here(chains):
    plan, _, state, keys, evidence = one_block("passive", 2, chains=chains)
    traced = jax.jit(partial(fused_block, plan)).trace(keys, state.positions, evidence, jnp.asarray(64))
    assert "triton" in traced.lower(lowering_platforms=("cuda",)).as_text().lower()


def test_unsuitable_plans_use_the_plain_loop():
    two, learner = standard_normal(2), LEARNERS["passive"](2)
    rotation = np.array([[0.0, 1.0], [-1.0, 0.0]])
    reward = NoisyReward(2, lambda x: -jnp.sum(x**2))
    assert not suits(nonreversible(two, rotation=rotation, step_size=1e-3, bandwidth=0.5), world(2), np.float32)
    assert not suits(learner, world(2), np.float64)
    assert not suits(learner, world(2, shared=False), np.float32)
    assert not suits(learner, independent_pools(reward, two, 4, shared=True), np.float32)
    assert not suits(learner, questions(reward), np.float32)
    assert not suits(LEARNERS["passive"](3), world(3), np.float32)
    # A norm of where the chain has moved to, which depends on the kernel's: the GPU's compiler would hang.
    confined = passive(two, step_size=5e-3, bandwidth=0.8, confine=ball(3.0))
    assert not suits(confined, world(2), np.float32)
    # Nor is anything on a CPU.
    assert not engine._can_be_fused(learner, world(2), np.float32, 64)
