"""Checks that every inverse learner must pass, whatever it computes: of its bookkeeping, not of its law."""

import contextlib
import inspect
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from onlooker.core.conformance import equal, require
from onlooker.core.messages import undelivered
from onlooker.core.random import standard_normal
from onlooker.data.stream import LONGEST_BLOCK, Stream
from onlooker.engine.run import Chains, run
from onlooker.inverse.base import InverseLearner
from onlooker.inverse.examples import Example

__all__ = ["LEARNER_CHECKS", "Case", "check_learner", "learner_cases"]

# Largest rounding error of a step in float32, relative to the positions or 1: about 170 units in the last place.
ROUNDING = 2e-5
# Most positions that a run keeps of each chain.
DRAWS = 64


@dataclass(frozen=True)
class Case(Example):
    """An example of an inverse learner, with the runs that its checks share."""

    @cached_property
    def ready(self) -> tuple[InverseLearner, Stream]:
        """The learner and its stream in float32, made once so that all checks share compiled code."""
        return self.learner(), self.stream(jnp.float32)

    def run(self, learner: InverseLearner | None = None, **options: Any) -> Chains:
        chosen = {"steps": self.steps, "chains": self.chains, "start": self.start, "draws": DRAWS, **options}
        # Warnings about so short a run are expected.
        with undelivered():
            return run(learner or self.ready[0], self.ready[1], **chosen)

    @cached_property
    def whole(self) -> Chains:
        return self.run()


def check_learner(case: Case) -> list[str]:
    """Run every check on an inverse learner and return the names of the checks; `BrokenError` at the first that fails.

    `ignores_the_order_of_agents` is only for learners that use many observations at once.
    """
    passed = []
    for check in LEARNER_CHECKS:
        if check is not ignores_the_order_of_agents or _is_shown_many(case):
            check(case)
            passed.append(check.__name__)
    return passed


def is_unchanged_when_cut_into_calls(case: Case) -> None:
    """A run in one call and a run in many are equal to the last bit."""
    cut = case.run(snapshots=7)
    require(len(cut.history) > 1, "the run is too short to be cut; give the case more steps")
    require(_same(case.whole, cut), "a run that was cut into calls differs")


def begins_like_a_longer_run(case: Case) -> None:
    """A shorter run equals the beginning of a longer one; with a memory, which takes whole blocks, but for the last."""
    every = case.whole.sample_every
    short = case.run(steps=(case.steps // every - 1) * every)
    certain = short.steps if case.ready[0].update is None else short.steps // LONGEST_BLOCK * LONGEST_BLOCK
    kept = certain // every
    require(short.sample_every == every and kept > 1, "the run is too short; give the case more steps")
    require(
        equal(case.whole.samples[:, :kept], short.samples[:, :kept]),
        "a shorter run is not the beginning of a longer one",
    )
    require(equal(short.samples[:, -1], short.positions), "a run does not end at its last draw")


def is_unchanged_when_resumed(case: Case) -> None:
    """A run that is interrupted and continues from its checkpoint equals an uninterrupted one."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "run.ckpt"
        with _interrupted(after=1):
            part = case.run(checkpoint=file)
        require(part.interrupted and 0 < part.steps < case.steps, "the run could not be interrupted")
        require(_same(case.whole, case.run(checkpoint=file)), "a resumed run differs from an uninterrupted one")


def memory_is_bounded(case: Case) -> None:
    """Neither the result nor the learner's memory grows with the number of observations."""
    learner, stream = case.ready
    most = stream.dim * (stream.dim + 1 + case.chains * (DRAWS + 1))
    require(_numbers(case.whole) <= most, f"a run of {case.steps} steps keeps more than {DRAWS} draws and two moments")
    if learner.update is not None:
        memory = learner.init(stream.dim)
        shown = _shown(stream, 64, None)
        once = jax.eval_shape(learner.update, memory, shown, jnp.int32(64))
        after = jax.eval_shape(learner.update, once, shown, jnp.int32(64))
        require(jax.tree.map(jnp.shape, after) == jax.tree.map(jnp.shape, memory), "the learner's memory grows")


def shares_no_arrays_with_the_caller(case: Case) -> None:
    """A run neither changes its arguments and earlier results nor depends on later changes to them."""
    fresh = case.stream(jnp.float32)
    if fresh.observations is not None:
        given = fresh.observations.points, fresh.observations.gradients
        copies = [part.copy() for part in given]
        for part in given:
            part[:] = 7.0
        shown = _first(fresh)
        # The arrays belong to the caller: restore them.
        for part, copy in zip(given, copies, strict=True):
            part[:] = copy
        require(equal(shown, _first(case.ready[1])), "a stream depends on arrays of the caller after it was made")
    before = case.whole.positions.astype(float)
    start = before.copy()
    first = case.run(start=start)
    require(np.array_equal(start, before), "a run changes the start it is given")
    positions, samples = first.positions.copy(), first.samples.copy()
    start[:] = np.nan
    second = case.run(start=before)
    require(equal(first.positions, positions) and equal(first.samples, samples), "a run changes an earlier result")
    require(_same(first, second), "a run changes its stream")


def is_determined_by_its_seed(case: Case) -> None:
    """Runs with the same seed are equal, with another seed they differ."""
    first, again, other = (case.run(seed=seed) for seed in (3, 3, 4))
    require(_same(first, again), "two runs with one seed differ")
    require(not np.array_equal(first.positions, other.positions), "another seed changes nothing")


def is_traced_once(case: Case) -> None:
    """Neither another call nor another seed traces the step again."""
    learner, traces = case.ready[0], [0]

    def counted(position: Any, evidence: Any, noise: Any) -> Any:
        traces[0] += 1
        return learner.step(position, evidence, noise)

    counting = learner._replace(step=counted)
    case.run(counting)
    once = traces[0]
    case.run(counting, seed=5)
    require(0 < once <= 4 and traces[0] == once, f"the step was traced {once} times, then {traces[0] - once} more")


def ignores_the_order_of_agents(case: Case) -> None:
    """The order of rows in a pool, or in a block added to a memory, does not matter."""
    learner, stream = case.ready
    positions, noise = _starts(case, learner, stream, jnp.float32)
    shown = _shown(stream, 64, None)
    order = np.random.default_rng(0).permutation(stream.pool or 64)
    if learner.update is not None:
        memory, update = learner.init(stream.dim), jax.jit(learner.update)
        evidence = update(memory, shown, jnp.int32(64))
        mixed = update(memory, jax.tree.map(lambda leaf: leaf[order], shown), jnp.int32(64))
    else:
        evidence = jax.tree.map(lambda leaf: leaf[0], shown)
        mixed = jax.tree.map(lambda leaf: leaf[order], evidence)
    step = jax.jit(jax.vmap(learner.step, in_axes=(0, None, 0)))
    moved = [np.asarray(step(positions, shown, noise)[0], float) for shown in (evidence, mixed)]
    require(_near(*moved), "the order of the agents changes a step")


def agrees_in_float32_and_float64(case: Case) -> None:
    """One step in float32 equals the step in float64 up to rounding, from the same positions, noise and evidence."""
    moved = []
    for dtype, wide in ((jnp.float32, False), (jnp.float64, True)):
        with jax.enable_x64(wide):
            learner, stream = case.learner(), case.stream(dtype)
            positions, noise = _starts(case, learner, stream, dtype)
            # Both get the same evidence, whatever a stream draws in another precision.
            shown = _as(_shown(case.stream(jnp.float32), 64, None if stream.shared else 1), dtype)
            if not stream.shared:
                shown = jax.tree.map(lambda leaf: leaf[..., 0], shown)

            def step(position: Any, row: Any, noise: Any, learner: Any = learner, stream: Any = stream) -> Any:
                evidence = row if stream.answer is None else stream.answer(learner.ask(position, noise), row)
                return learner.step(position, evidence, noise)[0]

            if learner.update is not None:
                shown = jax.jit(learner.update)(learner.init(stream.dim), shown, jnp.int32(64))
                moved.append(jax.jit(jax.vmap(step, in_axes=(0, None, 0)))(positions, shown, noise))
            else:
                rows = jax.tree.map(lambda leaf: leaf[: case.chains], shown)
                moved.append(jax.jit(jax.vmap(step))(positions, rows, noise))
    require(_near(*(np.asarray(positions, float) for positions in moved)), "float32 and float64 disagree in one step")


def has_its_name_and_finite_numbers(case: Case) -> None:
    """A result has its learner's name and settings, and finite positions and diagnostics."""
    learner, result = case.ready[0], case.whole
    require(
        result.learner == learner.name and result.settings == dict(learner.settings),
        "the result does not have the learner's name and settings",
    )
    require(bool(np.isfinite(result.positions).all()), "a chain is lost")
    for name, value in result.diagnostics.items():
        # A coordinate that never moves has no rhat.
        require(name == "rhat" or bool(np.isfinite(value)), f"it reports {name} as {value}")


LEARNER_CHECKS = (
    has_its_name_and_finite_numbers,
    is_unchanged_when_cut_into_calls,
    begins_like_a_longer_run,
    is_unchanged_when_resumed,
    memory_is_bounded,
    shares_no_arrays_with_the_caller,
    is_determined_by_its_seed,
    is_traced_once,
    ignores_the_order_of_agents,
    agrees_in_float32_and_float64,
)


def learner_cases(package: Any) -> dict[str, Case]:
    """The cases that the inverse learners of a package propose: what ``examples()`` in the module of each returns.

    Parameters
    ----------
    package
        A module. Its learners are the functions in ``__all__`` whose return annotation is `InverseLearner`.
    """
    cases: dict[str, Case] = {}
    for name in package.__all__:
        member = getattr(package, name)
        if not callable(member) or inspect.signature(member).return_annotation not in (
            InverseLearner,
            "InverseLearner",
        ):
            continue
        home = sys.modules[member.__module__]
        require(hasattr(home, "examples"), f"{member.__module__} has no examples() to test {name} with")
        cases |= {title: Case(**vars(example)) for title, example in home.examples().items()}
    return cases


def _same(left: Chains, right: Chains) -> bool:
    # Moments are added up in float32 within a call, and the length of calls depends on the clock.
    return (
        equal(left.positions, right.positions)
        and equal(left.samples, right.samples)
        and np.allclose(left.mean, right.mean, atol=1e-5, equal_nan=True)
        and np.allclose(left.covariance, right.covariance, rtol=1e-4, equal_nan=True)
    )


def _near(left: np.ndarray, right: np.ndarray) -> bool:
    return bool((np.abs(left - right) <= ROUNDING * np.maximum(1.0, np.abs(right))).all())


def _numbers(result: Chains) -> int:
    return sum(value.size for value in vars(result).values() if isinstance(value, np.ndarray))


def _as(tree: Any, dtype: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, tree)


def _first(stream: Stream) -> np.ndarray:
    return np.concatenate([np.asarray(part).ravel() for part in jax.tree.leaves(_shown(stream, 64, None))])


def _is_shown_many(case: Case) -> bool:
    learner, stream = case.ready
    return learner.evidence in ("pool", "memory") and stream.answer is None


def _shown(stream: Stream, steps: int, lanes: int | None) -> Any:
    """The first block of what a stream shows."""
    keys = jax.random.split(jax.random.key(0))
    draw = jax.jit(stream.draw, static_argnums=(3, 4))
    return draw(stream.data, stream.init(stream.data, keys[0], lanes), keys[1], steps, lanes)[1]


def _starts(case: Case, learner: InverseLearner, stream: Stream, dtype: Any) -> tuple[Any, Any]:
    """Positions near the start, and noise, for one step of every chain; the same in every precision."""
    keys = jax.random.split(jax.random.key(1))
    start = jnp.zeros((1, stream.dim), jnp.float32) if case.start is None else jnp.float32(case.start)[None]
    spread = 0.05 * standard_normal(keys[0], (case.chains, stream.dim), jnp.float32)
    noise = standard_normal(keys[1], (case.chains, learner.noise_rows, stream.dim), jnp.float32)
    return (start + spread).astype(dtype), noise.astype(dtype)


@contextlib.contextmanager
def _interrupted(after: int) -> Iterator[None]:
    """Simulate Ctrl-C after ``after`` calls of the compiled loop."""

    @contextlib.contextmanager
    def interrupts() -> Iterator[Callable[[], bool]]:
        calls = iter(range(10**9))
        yield lambda: next(calls) >= after

    with mock.patch("onlooker.engine.run.interrupts", interrupts):
        yield
