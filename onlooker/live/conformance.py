"""Checks that every Observer must pass, whatever it computes."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onlooker.core.conformance import equal, require
from onlooker.live.observer import Observer

__all__ = ["OBSERVER_CHECKS", "Seen", "check_observer"]

# Number of rows after which an Observer's state has its largest size: more than any fit keeps.
FULL = 250_000


@dataclass(frozen=True)
class Seen:
    """An Observer and the observations that it is tried on.

    Attributes
    ----------
    observer
        Makes an Observer with a given seed.
    points
        (n, dim): the points, some thousands.
    gradients
        (n, dim): the gradients there.
    agents
        (n,): the agents' names.
    places
        (m, dim): points at which answers are compared.
    """

    observer: Callable[[int], Observer]
    points: np.ndarray
    gradients: np.ndarray
    agents: np.ndarray
    places: np.ndarray

    def learnt(self, rows: Any = slice(None), seed: int = 0) -> Observer:
        """A new Observer that has learnt these rows."""
        observer = self.observer(seed)
        observer.learn_many(self.points[rows], self.gradients[rows], self.agents[rows])
        return observer

    def answer(self, observer: Observer) -> np.ndarray:
        """R̂ and its standard error (2, m) at the places."""
        return np.stack([observer.reward(self.places), observer.reward_error(self.places)])


def check_observer(seen: Seen) -> list[str]:
    """Run every check on an Observer; return their names, or raise `BrokenError` at the first that fails."""
    for check in OBSERVER_CHECKS:
        check(seen)
    return [check.__name__ for check in OBSERVER_CHECKS]


def learn_one_and_learn_many_agree(seen: Seen) -> None:
    """``learn_one`` for every row and ``learn_many`` for all rows give the same R̂, to the last bit."""
    one = seen.observer(0)
    rows = range(min(len(seen.points), 3000))
    for row in rows:
        one.learn_one(seen.points[row], seen.gradients[row], seen.agents[row])
    many = seen.learnt(slice(0, len(rows)))
    require(equal(seen.answer(one), seen.answer(many)), "learn_one and learn_many disagree")


def saving_and_loading_changes_nothing(seen: Seen) -> None:
    """Saving and loading in the middle of a block changes nothing."""
    half = len(seen.points) // 2 + 37
    with tempfile.TemporaryDirectory() as folder:
        resumed = Observer.load(seen.learnt(slice(0, half)).save(Path(folder) / "state.ckpt"))
    resumed.learn_many(seen.points[half:], seen.gradients[half:], seen.agents[half:])
    require(equal(seen.answer(resumed), seen.answer(seen.learnt())), "a loaded Observer continues differently")


def state_is_bounded(seen: Seen) -> None:
    """The file that it is saved in does not grow with the number of rows, once it has its largest size."""
    observer, sizes = seen.observer(0), []
    with tempfile.TemporaryDirectory() as folder:
        for rows in (FULL, 2 * FULL):
            while observer.seen < rows:
                observer.learn_many(seen.points, seen.gradients, seen.agents)
            sizes.append(observer.save(Path(folder) / "state.ckpt").stat().st_size)
    require(sizes[1] < 1.02 * sizes[0], f"the saved state grew from {sizes[0]} to {sizes[1]} bytes")


def shares_no_arrays_with_the_caller(seen: Seen) -> None:
    """An Observer neither changes its input nor depends on later changes to it."""
    expected = seen.answer(seen.learnt())
    handed = [seen.points.copy(), seen.gradients.copy(), seen.agents.copy()]
    observer = seen.observer(0)
    observer.learn_many(*handed)
    unchanged = all(map(np.array_equal, handed, (seen.points, seen.gradients, seen.agents)))
    require(unchanged, "the Observer changes its input")
    handed[0][:], handed[1][:] = np.nan, np.nan
    require(equal(seen.answer(observer), expected), "the Observer reads its input after it has learnt")


def asking_does_not_change_it(seen: Seen) -> None:
    """Asking for R̂ between two calls of ``learn_many`` does not change later answers."""
    asked = seen.learnt(slice(0, len(seen.points) // 2))
    seen.answer(asked)
    rest = slice(len(seen.points) // 2, None)
    asked.learn_many(seen.points[rest], seen.gradients[rest], seen.agents[rest])
    require(equal(seen.answer(asked), seen.answer(seen.learnt())), "asking for R̂ changes later answers")


def ignores_the_order_of_agents(seen: Seen) -> None:
    """Agents in another order and under other names give the same R̂, within its standard error."""
    names = np.unique(seen.agents)
    order = np.random.default_rng(1).permutation(len(names))
    rows = np.concatenate([np.flatnonzero(seen.agents == names[agent]) for agent in order])
    other = seen.observer(0)
    renamed = order.argsort()[np.searchsorted(names, seen.agents[rows])]
    other.learn_many(seen.points[rows], seen.gradients[rows], renamed)
    (one, error), (two, _) = seen.answer(seen.learnt()), seen.answer(other)
    apart = (one - np.nanmean(one)) - (two - np.nanmean(two))
    require(bool(np.nanstd(apart) < np.sqrt(np.nanmean(error**2))), "the order of the agents changes R̂")


OBSERVER_CHECKS = (
    learn_one_and_learn_many_agree,
    saving_and_loading_changes_nothing,
    state_is_bounded,
    shares_no_arrays_with_the_caller,
    asking_does_not_change_it,
    ignores_the_order_of_agents,
)
