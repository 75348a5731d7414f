"""The suite of onlooker/checks.py on every inverse learner and on Observers; and learners that it must find out."""

import inspect
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import onlooker
from onlooker import inverse
from onlooker.checks import LEARNER_CHECKS, BrokenError, Case, Seen, check_learner, check_observer
from onlooker.coordinates import spherical
from onlooker.density import standard_normal
from onlooker.field.memory import binned
from onlooker.inverse.base import Info, InverseLearner
from onlooker.learners.agents import questions
from onlooker.learners.reward import NoisyReward
from onlooker.observe.observation import Observations
from onlooker.observe.stream import pooled, recorded

BOWL = NoisyReward(2, lambda point: -0.5 * jnp.sum(point**2), 0.5)
DENSITY = standard_normal(2)
COMMON = {"step_size": 1e-2, "bandwidth": 0.5}


def seen(rows=10_000):
    generator = np.random.default_rng(0)
    points, noise = generator.standard_normal((2, rows, 2), np.float32)
    return Observations(aligned(points), aligned(-points + np.float32(0.5) * noise))


def aligned(array):
    """In memory that JAX would share with us on a CPU, if it were allowed to."""
    room = np.empty(array.nbytes + 64, np.uint8)
    first = -room.ctypes.data % 64
    copy = room[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[:] = array
    return copy


def shown(dtype):
    return recorded(seen(), dtype)


def asked(dtype):
    return questions(BOWL)


def noise_corrected():
    return inverse.corrected(inverse.classical(step_size=0.1), questions(BOWL), np.eye(2), draws=200)


CASES = {
    "classical": Case(lambda: inverse.classical(step_size=1e-2), asked),
    "active": Case(lambda: inverse.active(step_size=1e-2, spread=0.3, bandwidth=0.2), asked),
    "passive": Case(lambda: inverse.passive(DENSITY, **COMMON), shown, start=[0.3, 0.1]),
    "passive, second form": Case(lambda: inverse.passive(DENSITY, form="second", **COMMON), shown, start=[0.3, 0.1]),
    "reweighted": Case(lambda: inverse.reweighted(DENSITY, confine=inverse.ball(3.0), **COMMON), shown, start=[0.3, 0]),
    "nonreversible": Case(
        lambda: inverse.nonreversible(DENSITY, rotation=np.array([[0.0, 1], [-1, 0]]), **COMMON), shown, start=[0.3, 0]
    ),
    "naive": Case(lambda: inverse.naive(**COMMON), shown),
    "multikernel": Case(
        lambda: inverse.multikernel(**COMMON), lambda dtype: pooled(recorded(seen(90_000), dtype), 10), steps=9000
    ),
    "replay": Case(lambda: inverse.replay(binned([-4, -4], [4, 4], cells=16), step_size=1e-2), shown, chains=8),
    "corrected": Case(noise_corrected, asked),
    "on_policies": Case(
        lambda: inverse.on_policies(inverse.classical(step_size=1e-3), spherical(2, 2), "policy"),
        asked,
        start=[0.7, 0.6],
    ),
}


WRAPPERS = ("corrected", "on_policies")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in WRAPPERS else name for name in CASES]
)
def test_every_inverse_learner_holds_to_them(name):
    many = name in ("multikernel", "replay")
    assert len(check_learner(CASES[name])) == len(LEARNER_CHECKS) - (not many)


def test_no_inverse_learner_is_left_out():
    made = {
        name
        for name in inverse.__all__
        if inspect.signature(getattr(inverse, name)).return_annotation is InverseLearner
    }
    assert made <= set(CASES)
    assert len(made) >= 9


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

    return walk(step, init=lambda dim: jnp.zeros((0, dim)), update=update)


def first_comes_first():
    def step(position, pool, noise):
        moved = position + 1e-3 * pool.gradient[0] + noise[0]
        return moved, inverse.PoolInfo(*[jnp.zeros(())] * 5)

    return walk(step, info=inverse.PoolInfo)


def cancelling():
    return walk(lambda position, evidence, noise: (position + ((noise[0] + 1e4) - 1e4), info()))


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
def test_what_breaks_them_is_found_out(make, sentence):
    stream = (lambda dtype: pooled(recorded(seen(40_000), dtype), 4)) if make is first_comes_first else shown
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
def test_every_observer_holds_to_them(dim, forgetting):
    seen = Seen(lambda seed: onlooker.Observer(dim=dim, forgetting=forgetting, seed=seed), *watched(dim))
    assert check_observer(seen)


# --- a GPU, where there is one

REFERENCE = """
import sys, numpy
from tests.test_checks import CASES
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
