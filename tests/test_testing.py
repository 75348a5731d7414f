"""The suite of onlooker/testing.py on every inverse learner and on Observers; and learners that it must find out."""

import importlib
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import onlooker
from onlooker import inverse
from onlooker.data.stream import pooled, recorded
from onlooker.inverse.base import Info, InverseLearner
from onlooker.inverse.examples import observations, observed
from onlooker.testing import LEARNER_CHECKS, BrokenError, Case, Seen, check_learner, check_observer, learner_cases

paper_naive = importlib.import_module("onlooker.paper.naive")
# `naive` too: what is wrong with it is its law.
CASES = {**learner_cases(inverse), **learner_cases(paper_naive)}
WRAPPERS = ("corrected", "on_policies")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in WRAPPERS else name for name in CASES]
)
def test_every_inverse_learner_passes_the_suite(name):
    many = CASES[name].ready[0].evidence in ("pool", "memory")
    assert len(check_learner(CASES[name])) == len(LEARNER_CHECKS) - (not many)


def test_no_inverse_learner_is_left_out(monkeypatch):
    assert len(CASES) >= 11
    home = sys.modules[inverse.passive.__module__]
    monkeypatch.delattr(home, "examples")
    with pytest.raises(BrokenError, match=r"has no examples\(\) to test passive with"):
        learner_cases(inverse)


# --- each check finds out a learner that breaks it


def walk(step, **changes):
    return InverseLearner("walk", step, {}, **changes)


def info():
    return Info(*[jnp.zeros(())] * 3)


def forgetful_of_noise():
    return walk(lambda position, evidence, noise: (position + 1e-3 * evidence.gradient, info()))


def hoarding():
    def update(memory, observations, count):
        return jnp.concatenate([memory, observations.point])

    def step(position, memory, noise):
        return position + noise[0], info()

    return walk(step, init=lambda dim: jnp.zeros((0, dim)), update=update, evidence="memory")


def first_comes_first():
    def step(position, pool, noise):
        moved = position + 1e-3 * pool.gradient[0] + noise[0]
        return moved, inverse.PoolInfo(*[jnp.zeros(())] * 5)

    return walk(step, info=inverse.PoolInfo, evidence="pool")


def cancelling():
    """The length of a chord, 2 sin(w/2), by 1 − cos w."""

    def step(position, evidence, noise):
        angle = 1e-3 * noise[0]
        return position + jnp.sign(angle) * jnp.sqrt(2 * (1 - jnp.cos(angle))) / 1e-3, info()

    return walk(step)


def numb():
    return walk(lambda position, evidence, noise: (position / 0.0 * noise[0], info()))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (forgetful_of_noise, "another seed changes nothing"),
        (hoarding, "grows|shape"),
        (first_comes_first, "order of the agents"),
        (cancelling, "float32 and float64"),
        (numb, "a chain is lost"),
    ],
)
def test_the_suite_finds_broken_learners(make, sentence):
    stream = (lambda dtype: pooled(recorded(observations(40_000), dtype), 4)) if make is first_comes_first else observed
    with pytest.raises((BrokenError, TypeError), match=sentence):
        check_learner(Case(make, stream, start=[0.3, 0.1]))


# --- Observers


def watched(dim, rows=8000):
    generator = np.random.default_rng(dim)
    agents = np.repeat(np.arange(rows // 20), 20)
    points = generator.standard_normal((rows, dim))
    gradients = -points + 0.5 * generator.standard_normal((rows, dim))
    return points, gradients, agents, 0.5 * generator.standard_normal((50, dim))


OBSERVERS = [
    (1, None),
    *(pytest.param(*case, marks=pytest.mark.slow) for case in [(2, "adaptive"), (2, 1e-3), (5, None)]),
]


@pytest.mark.parametrize(("dim", "forgetting"), OBSERVERS)
def test_every_observer_passes_the_suite(dim, forgetting):
    seen = Seen(lambda seed: onlooker.Observer(dim=dim, forgetting=forgetting, seed=seed), *watched(dim))
    assert check_observer(seen)


# --- a GPU, where there is one

REFERENCE = """
import sys, numpy
from tests.test_testing import CASES
numpy.savez(sys.argv[1], **{name: case.run(steps=64).positions for name, case in CASES.items()})
"""


@pytest.mark.skipif(jax.default_backend() == "cpu", reason="there is no accelerator")
def test_an_accelerator_agrees_with_the_cpu(tmp_path):
    file = tmp_path / "cpu.npz"
    subprocess.run([sys.executable, "-c", REFERENCE, file], env={**os.environ, "JAX_PLATFORMS": "cpu"}, check=True)
    with np.load(file) as expected:
        for name, case in CASES.items():
            apart = np.abs(case.run(steps=64).positions - expected[name]).max()
            print(f"{name}: {apart:.1e}")
            assert apart < 1e-4, name
