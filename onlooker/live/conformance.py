"""What every Observer must hold to, whatever it computes."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onlooker.core.conformance import equal, require
from onlooker.live.observer import Observer

__all__ = ["OBSERVER_CHECKS", "Seen", "check_observer"]

# Rows after which an Observer remembers as much as it ever will.
FULL = 250_000


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
    require(equal(seen.answer(one), seen.answer(many)), "learn_one and learn_many disagree")


def saved_it_goes_on(seen: Seen) -> None:
    """Saved and loaded half-way, within a block of rows, it is the Observer that was not."""
    half = len(seen.points) // 2 + 37
    with tempfile.TemporaryDirectory() as folder:
        resumed = Observer.load(seen.learnt(slice(0, half)).save(Path(folder) / "state.ckpt"))
    resumed.learn_many(seen.points[half:], seen.gradients[half:], seen.agents[half:])
    require(equal(seen.answer(resumed), seen.answer(seen.learnt())), "a loaded Observer is another one")


def its_state_is_bounded(seen: Seen) -> None:
    """The file it is saved in stops growing."""
    observer, sizes = seen.observer(0), []
    with tempfile.TemporaryDirectory() as folder:
        for rows in (FULL, 2 * FULL):
            while observer.seen < rows:
                observer.learn_many(seen.points, seen.gradients, seen.agents)
            sizes.append(observer.save(Path(folder) / "state.ckpt").stat().st_size)
    require(sizes[1] < 1.02 * sizes[0], f"its state grew from {sizes[0]} to {sizes[1]} bytes")


def it_keeps_no_hold_of_its_input(seen: Seen) -> None:
    """What the caller does with his arrays afterwards changes nothing; nor is anything done to them."""
    expected = seen.answer(seen.learnt())
    handed = [seen.points.copy(), seen.gradients.copy(), seen.agents.copy()]
    observer = seen.observer(0)
    observer.learn_many(*handed)
    require(all(map(np.array_equal, handed, (seen.points, seen.gradients, seen.agents))), "it changes its input")
    handed[0][:], handed[1][:] = np.nan, np.nan
    require(equal(seen.answer(observer), expected), "it reads its input after it has learnt")


def asked_it_does_not_change(seen: Seen) -> None:
    """A question is not an observation."""
    asked = seen.learnt(slice(0, len(seen.points) // 2))
    seen.answer(asked)
    rest = slice(len(seen.points) // 2, None)
    asked.learn_many(seen.points[rest], seen.gradients[rest], seen.agents[rest])
    require(equal(seen.answer(asked), seen.answer(seen.learnt())), "being asked has changed it")


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
    require(bool(np.nanstd(apart) < np.sqrt(np.nanmean(error**2))), "the order of the agents changes R̂")


OBSERVER_CHECKS = (
    one_by_one_is_all_at_once,
    saved_it_goes_on,
    its_state_is_bounded,
    it_keeps_no_hold_of_its_input,
    asked_it_does_not_change,
    its_agents_may_change_places,
)
