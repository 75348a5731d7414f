"""What every inverse learner, and every Observer, must hold to, whatever it computes: one suite, run on each.

    from onlooker.checks import Case, check_learner
    check_learner(Case(lambda: my_learner(step_size=1e-3), lambda dtype: recorded(seen, dtype)))

A check is a function of a case that raises `BrokenError`, in a sentence; to add one is to write it and to list it.
These are checks of the bookkeeping. That a learner also samples the law it should is for tests of its own.
"""

import contextlib
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from onlooker.inverse.base import InverseLearner, PoolInfo
from onlooker.noise import standard_normal
from onlooker.observe.stream import LONGEST_BLOCK, Stream
from onlooker.observer import Observer
from onlooker.run import Chains, run
from onlooker.warning import OnlookerWarning

__all__ = ["LEARNER_CHECKS", "OBSERVER_CHECKS", "BrokenError", "Case", "Seen", "check_learner", "check_observer"]

# What float32 may lose in one step, relative to the larger of 1 and the positions.
ROUNDING = 2e-5
# Positions that a run keeps of each chain, at the most.
DRAWS = 64
# Rows after which an Observer remembers as much as it ever will.
FULL = 250_000


class BrokenError(AssertionError):
    """A check that did not hold."""


@dataclass(frozen=True)
class Case:
    """An inverse learner and something to run it on.

    Attributes
    ----------
    learner
        Makes it; called again for another precision.
    stream
        ``stream(dtype)`` makes what it runs over, of at least ``steps`` steps if it has an end.
    start
        Where chains begin, if not by default.
    steps, chains
        How far and how wide: enough for more than two blocks of steps.
    """

    learner: Callable[[], InverseLearner]
    stream: Callable[[Any], Stream]
    start: Any = None
    steps: int = 10_000
    chains: int = 24

    @cached_property
    def ready(self) -> tuple[InverseLearner, Stream]:
        """Both, in float32: made once, so that all checks share what is compiled for them."""
        return self.learner(), self.stream(jnp.float32)

    def run(self, learner: InverseLearner | None = None, **options: Any) -> Chains:
        chosen = {"steps": self.steps, "chains": self.chains, "start": self.start, "draws": DRAWS, **options}
        with warnings.catch_warnings():
            # So short a run has reason to warn.
            warnings.simplefilter("ignore", OnlookerWarning)
            return run(learner or self.ready[0], self.ready[1], **chosen)

    @cached_property
    def whole(self) -> Chains:
        return self.run()


def check_learner(case: Case) -> list[str]:
    """Every check on one inverse learner; the names of those that held, or `BrokenError` at the first that does not.

    `agents_may_change_places` is for those that are shown many observations at once.
    """
    held = []
    for check in LEARNER_CHECKS:
        if check is not agents_may_change_places or _is_shown_many(case):
            check(case)
            held.append(check.__name__)
    return held


def cut_into_calls_it_is_the_same(case: Case) -> None:
    """Learnt in one call or in many, the run is the same to the last bit."""
    cut = case.run(snapshots=7)
    _require(len(cut.history) > 1, "the run is too short to be cut; give the case more steps")
    _require(_same(case.whole, cut), "a run that was cut into calls is another one")


def a_shorter_run_is_its_beginning(case: Case) -> None:
    """What comes later never changes what came before; a memory is shown whole blocks, so up to the last of these."""
    every = case.whole.sample_every
    short = case.run(steps=(case.steps // every - 1) * every)
    certain = short.steps if case.ready[0].update is None else short.steps // LONGEST_BLOCK * LONGEST_BLOCK
    kept = certain // every
    _require(short.sample_every == every and kept > 1, "the run is too short; give the case more steps")
    _require(_equal(case.whole.samples[:, :kept], short.samples[:, :kept]), "a shorter run is not a longer one's start")
    _require(_equal(short.samples[:, -1], short.positions), "a run does not end where its last draw is")


def resumed_it_is_the_same(case: Case) -> None:
    """Interrupted, and gone on with from its checkpoint, it ends as if it had never been."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "run.ckpt"
        with _interrupted(after=1):
            part = case.run(checkpoint=file)
        _require(part.interrupted and 0 < part.steps < case.steps, "the run could not be interrupted half-way")
        _require(_same(case.whole, case.run(checkpoint=file)), "a resumed run is not the uninterrupted one")


def memory_is_bounded(case: Case) -> None:
    """What a run keeps, and what the learner remembers, do not grow with the observations."""
    learner, stream = case.ready
    most = stream.dim * (stream.dim + 1 + case.chains * (DRAWS + 1))
    _require(_numbers(case.whole) <= most, f"a run of {case.steps} steps keeps more than {DRAWS} draws and two moments")
    if learner.update is not None:
        memory = learner.init(stream.dim)
        shown = _shown(stream, 64, None)
        after = learner.update(learner.update(memory, shown, jnp.int32(64)), shown, jnp.int32(64))
        _require(jax.tree.map(jnp.shape, after) == jax.tree.map(jnp.shape, memory), "the learner's memory grows")


def nothing_is_shared_with_the_caller(case: Case) -> None:
    """Neither what was handed in nor what came out is written to by a run, or read by a later one."""
    fresh = case.stream(jnp.float32)
    if fresh.observations is not None:
        handed = fresh.observations.points, fresh.observations.gradients
        kept = [part.copy() for part in handed]
        for part in handed:
            part[:] = 7.0
        shown = _first(fresh)
        # They are the caller's.
        for part, was in zip(handed, kept, strict=True):
            part[:] = was
        _require(_equal(shown, _first(case.ready[1])), "a stream reads what it was made from once more")
    before = case.whole.positions.astype(float)
    start = before.copy()
    first = case.run(start=start)
    _require(np.array_equal(start, before), "a run changes the start it is given")
    positions, samples = first.positions.copy(), first.samples.copy()
    start[:] = np.nan
    second = case.run(start=before)
    _require(_equal(first.positions, positions) and _equal(first.samples, samples), "results are shared")
    _require(_same(first, second), "a run changes its stream")


def a_seed_says_all(case: Case) -> None:
    """The same seed is the same run, another seed is another."""
    one, again, other = (case.run(seed=seed) for seed in (3, 3, 4))
    _require(_same(one, again), "two runs with one seed differ")
    _require(not np.array_equal(one.positions, other.positions), "another seed changes nothing")


def it_is_traced_once(case: Case) -> None:
    """Neither a further call nor another seed traces the step again."""
    learner, traces = case.ready[0], [0]

    def counted(position: Any, evidence: Any, noise: Any) -> Any:
        traces[0] += 1
        return learner.step(position, evidence, noise)

    counting = learner._replace(step=counted)
    case.run(counting)
    once = traces[0]
    case.run(counting, seed=5)
    _require(0 < once <= 4 and traces[0] == once, f"the step was traced {once} times, then {traces[0] - once} more")


def agents_may_change_places(case: Case) -> None:
    """The order of a pool, or of a block that is remembered, means nothing."""
    learner, stream = case.ready
    positions, noise = _starts(case, learner, stream, jnp.float32)
    shown = _shown(stream, 64, None)
    order = np.random.default_rng(0).permutation(stream.pool or 64)
    if learner.update is not None:
        memory = learner.init(stream.dim)
        evidence = learner.update(memory, shown, jnp.int32(64))
        mixed = learner.update(memory, jax.tree.map(lambda leaf: leaf[order], shown), jnp.int32(64))
    else:
        evidence = jax.tree.map(lambda leaf: leaf[0], shown)
        mixed = jax.tree.map(lambda leaf: leaf[order], evidence)
    step = jax.vmap(learner.step, in_axes=(0, None, 0))
    moved = [np.asarray(step(positions, one, noise)[0], float) for one in (evidence, mixed)]
    _require(_near(*moved), "the order of the agents changes a step")


def float32_is_enough(case: Case) -> None:
    """One step in float32 is the step in float64, up to rounding: from the same places, noise and evidence."""
    moved = []
    for dtype, wide in ((jnp.float32, False), (jnp.float64, True)):
        with jax.enable_x64(wide):
            learner, stream = case.learner(), case.stream(dtype)
            positions, noise = _starts(case, learner, stream, dtype)
            # Both are shown the same, whatever a stream draws in another precision.
            shown = _as(_shown(case.stream(jnp.float32), 64, None if stream.shared else 1), dtype)
            if not stream.shared:
                shown = jax.tree.map(lambda leaf: leaf[..., 0], shown)

            def step(position: Any, row: Any, one: Any, learner: Any = learner, stream: Any = stream) -> Any:
                evidence = row if stream.answer is None else stream.answer(learner.ask(position, one), row)
                return learner.step(position, evidence, one)[0]

            if learner.update is not None:
                shown = learner.update(learner.init(stream.dim), shown, jnp.int32(64))
                moved.append(jax.vmap(step, in_axes=(0, None, 0))(positions, shown, noise))
            else:
                moved.append(jax.vmap(step)(positions, jax.tree.map(lambda leaf: leaf[: case.chains], shown), noise))
    _require(_near(*(np.asarray(one, float) for one in moved)), "float32 and float64 disagree in one step")


def it_says_what_it_was(case: Case) -> None:
    """A result names its learner and numbers, and has no NaN to tell."""
    learner, result = case.ready[0], case.whole
    _require(result.learner == learner.name and result.settings == dict(learner.settings), "the learner is misnamed")
    _require(bool(np.isfinite(result.positions).all()), "a chain is lost")
    for name in learner.info._fields:
        reported = [value for key, value in result.diagnostics.items() if name in key]
        _require(bool(np.isfinite(reported).all()), f"it reports {name} as {reported}")


LEARNER_CHECKS = (
    it_says_what_it_was,
    cut_into_calls_it_is_the_same,
    a_shorter_run_is_its_beginning,
    resumed_it_is_the_same,
    memory_is_bounded,
    nothing_is_shared_with_the_caller,
    a_seed_says_all,
    it_is_traced_once,
    agents_may_change_places,
    float32_is_enough,
)


@dataclass(frozen=True)
class Seen:
    """An Observer, what it is shown, and where it is asked.

    Attributes
    ----------
    observer
        Makes it, with a seed.
    points, gradients, agents
        What it is shown: some thousands of rows.
    places
        (n, dim): where R̂ is asked.
    """

    observer: Callable[[int], Observer]
    points: np.ndarray
    gradients: np.ndarray
    agents: np.ndarray
    places: np.ndarray

    def learnt(self, rows: Any = slice(None), seed: int = 0) -> Observer:
        observer = self.observer(seed)
        observer.learn_many(self.points[rows], self.gradients[rows], self.agents[rows])
        return observer

    def answer(self, observer: Observer) -> np.ndarray:
        return np.stack([observer.reward(self.places), observer.reward_error(self.places)])


def check_observer(seen: Seen) -> list[str]:
    """Every check on an Observer; the names of those that held, or `BrokenError` at the first that does not."""
    for check in OBSERVER_CHECKS:
        check(seen)
    return [check.__name__ for check in OBSERVER_CHECKS]


def one_by_one_is_all_at_once(seen: Seen) -> None:
    """``learn_one`` for every row, ``learn_many`` for all: the same answer, to the last bit."""
    one = seen.observer(0)
    rows = range(min(len(seen.points), 3000))
    for row in rows:
        one.learn_one(seen.points[row], seen.gradients[row], seen.agents[row])
    many = seen.learnt(slice(0, len(rows)))
    _require(_equal(seen.answer(one), seen.answer(many)), "learn_one and learn_many disagree")


def saved_it_goes_on(seen: Seen) -> None:
    """Saved and loaded half-way, within a block of rows, it is the Observer that was not."""
    half = len(seen.points) // 2 + 37
    with tempfile.TemporaryDirectory() as folder:
        resumed = Observer.load(seen.learnt(slice(0, half)).save(Path(folder) / "state.ckpt"))
    resumed.learn_many(seen.points[half:], seen.gradients[half:], seen.agents[half:])
    _require(_equal(seen.answer(resumed), seen.answer(seen.learnt())), "a loaded Observer is another one")


def its_state_is_bounded(seen: Seen) -> None:
    """The file it is saved in stops growing."""
    observer, sizes = seen.observer(0), []
    with tempfile.TemporaryDirectory() as folder:
        for rows in (FULL, 2 * FULL):
            while observer.seen < rows:
                observer.learn_many(seen.points, seen.gradients, seen.agents)
            sizes.append(observer.save(Path(folder) / "state.ckpt").stat().st_size)
    _require(sizes[1] < 1.02 * sizes[0], f"its state grew from {sizes[0]} to {sizes[1]} bytes")


def it_keeps_no_hold_of_its_input(seen: Seen) -> None:
    """What the caller does with his arrays afterwards changes nothing; nor is anything done to them."""
    expected = seen.answer(seen.learnt())
    handed = [seen.points.copy(), seen.gradients.copy(), seen.agents.copy()]
    observer = seen.observer(0)
    observer.learn_many(*handed)
    _require(all(map(np.array_equal, handed, (seen.points, seen.gradients, seen.agents))), "it changes its input")
    handed[0][:], handed[1][:] = np.nan, np.nan
    _require(_equal(seen.answer(observer), expected), "it reads its input after it has learnt")


def asked_it_does_not_change(seen: Seen) -> None:
    """A question is not an observation."""
    asked = seen.learnt(slice(0, len(seen.points) // 2))
    seen.answer(asked)
    rest = slice(len(seen.points) // 2, None)
    asked.learn_many(seen.points[rest], seen.gradients[rest], seen.agents[rest])
    _require(_equal(seen.answer(asked), seen.answer(seen.learnt())), "being asked has changed it")


def its_agents_may_change_places(seen: Seen) -> None:
    """Agents that come in another order, under other names: the same R̂, within its standard error."""
    names = np.unique(seen.agents)
    order = np.random.default_rng(1).permutation(len(names))
    rows = np.concatenate([np.flatnonzero(seen.agents == names[agent]) for agent in order])
    other = seen.observer(0)
    renamed = order.argsort()[np.searchsorted(names, seen.agents[rows])]
    other.learn_many(seen.points[rows], seen.gradients[rows], renamed)
    (one, error), (two, _) = seen.answer(seen.learnt()), seen.answer(other)
    apart = (one - np.nanmean(one)) - (two - np.nanmean(two))
    _require(bool(np.nanstd(apart) < np.sqrt(np.nanmean(error**2))), "the order of the agents changes R̂")


OBSERVER_CHECKS = (
    one_by_one_is_all_at_once,
    saved_it_goes_on,
    its_state_is_bounded,
    it_keeps_no_hold_of_its_input,
    asked_it_does_not_change,
    its_agents_may_change_places,
)


def _require(holds: bool, sentence: str) -> None:
    if not holds:
        raise BrokenError(f"{sentence}.")


def _same(one: Chains, other: Chains) -> bool:
    # Moments are added up in float32 within a call, and how long calls are follows the clock.
    return (
        _equal(one.positions, other.positions)
        and _equal(one.samples, other.samples)
        and np.allclose(one.mean, other.mean, atol=1e-5, equal_nan=True)
        and np.allclose(one.covariance, other.covariance, rtol=1e-4, equal_nan=True)
    )


def _equal(one: np.ndarray, other: np.ndarray) -> bool:
    return np.array_equal(one, other, equal_nan=True)


def _near(one: np.ndarray, other: np.ndarray) -> bool:
    return bool((np.abs(one - other) <= ROUNDING * np.maximum(1.0, np.abs(other))).all())


def _numbers(result: Chains) -> int:
    return sum(value.size for value in vars(result).values() if isinstance(value, np.ndarray))


def _as(tree: Any, dtype: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, tree)


def _first(stream: Stream) -> np.ndarray:
    return np.concatenate([np.asarray(part).ravel() for part in jax.tree.leaves(_shown(stream, 64, None))])


def _is_shown_many(case: Case) -> bool:
    learner, stream = case.ready
    return (learner.info is PoolInfo or learner.update is not None) and stream.answer is None


def _shown(stream: Stream, steps: int, lanes: int | None) -> Any:
    """The first block of what a stream shows."""
    keys = jax.random.split(jax.random.key(0))
    return stream.draw(stream.data, stream.init(stream.data, keys[0], lanes), keys[1], steps, lanes)[1]


def _starts(case: Case, learner: InverseLearner, stream: Stream, dtype: Any) -> tuple[Any, Any]:
    """Positions near what is seen, and noise, for one step of every chain; the same in every precision."""
    keys = jax.random.split(jax.random.key(1))
    places = jnp.zeros(stream.dim) if case.start is None else jnp.asarray(case.start)
    spread = 0.05 * standard_normal(keys[0], (case.chains, stream.dim), jnp.float32)
    noise = standard_normal(keys[1], (case.chains, learner.noise_rows, stream.dim), jnp.float32)
    return (places + spread).astype(jnp.float32).astype(dtype), noise.astype(dtype)


@contextlib.contextmanager
def _interrupted(after: int) -> Iterator[None]:
    """Ctrl-C after so many calls of the compiled loop."""

    @contextlib.contextmanager
    def interrupts() -> Iterator[Callable[[], bool]]:
        calls = iter(range(10**9))
        yield lambda: next(calls) >= after

    # The package's attribute of this name is the function.
    with mock.patch.object(sys.modules["onlooker.run"], "interrupts", interrupts):
        yield
