"""Whether error bars cover: families of rewards, learners and records, over many seeds.

    python -m benchmarks.bars [--only well] [--seeds 10] [--first 100] [--to 3]

rms: root mean square error of R̂, over R's own spread, both less their mean over a sample of the learners' points. uni
and vis: share of places at which the error is below two standard errors, uniform in the explored part of the box of the
central 99 % of the points, and at the explored ones of the learners' points. poor: share of single fits that cover less
than .80 of either. width: root mean square standard error over root mean square error, uni. s and bars s: seconds of
the fit without and of the error bars.

Learners climb with noise of standard deviation σ, or mini-batches of their own data. "small" records have 300 to 10,000
rows.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from benchmarks.figures import keep
from onlooker.data.observations import observe
from onlooker.data.splits import held_out
from onlooker.fit import fit

Field = Callable[[np.ndarray], np.ndarray]
Noisy = Callable[[np.ndarray, np.random.Generator], np.ndarray]

# Places that are scored, and candidates for those that are uniform.
PLACES, CANDIDATES = 600, 40_000


class World(NamedTuple):
    """A reward, the gradients learners see, where they start, and their step size."""

    value: Field
    noisy: Noisy
    start: Noisy
    rate: float


class Case(NamedTuple):
    """A family of worlds, and a record of it."""

    name: str
    make: Callable[[np.random.Generator], World]
    dim: int
    agents: int
    steps: int


def climbed(case: Case, seed: int) -> tuple[World, np.ndarray, np.ndarray, np.ndarray]:
    """The world, points, gradients and agents of a record, agent after agent."""
    random = np.random.default_rng(seed)
    world = case.make(random)
    place = world.start(np.zeros((case.agents, case.dim)), random)
    points, gradients = [], []
    for _ in range(case.steps):
        gradient = world.noisy(place, random)
        points.append(place)
        gradients.append(gradient)
        place = place + world.rate * gradient
    rows = [np.stack(part, axis=1).reshape(-1, case.dim) for part in (points, gradients)]
    return world, *rows, np.repeat(np.arange(case.agents), case.steps)


def slope_of(value: Field) -> Field:
    """∇ by central differences."""

    def slope(x: np.ndarray) -> np.ndarray:
        steps = 1e-4 * np.eye(x.shape[1])
        return np.stack([(value(x + step) - value(x - step)) / 2e-4 for step in steps], axis=1)

    return slope


LANDSCAPES: dict[str, Field] = {
    "well": lambda x: -0.6 * (x[:, 0] ** 2 - 1) ** 2 - 0.8 * (x[:, 1] - 0.4 * x[:, 0]) ** 2 + 0.3 * x[:, 0],
    "bump": lambda x: -0.5 * (x**2).sum(axis=1) + 1.5 * np.exp(-0.5 * ((x - [0.8, -0.6]) ** 2).sum(axis=1) / 0.15**2),
    "lattice": lambda x: -0.3 * (x**2).sum(axis=1) + np.sin(2 * x[:, 0]) * np.cos(2.5 * x[:, 1]),
    "kink": lambda x: (
        -1.5 * np.sqrt(x[:, 0] ** 2 + 0.01) - np.logaddexp(0, 6 * x[:, 1] + 3 * x[:, 0]) / 3 + 0.7 * x[:, 1]
    ),
    "wells": lambda x: -2 * (x[:, 0] ** 2 - 1) ** 2 * 0.3 + 0.4 * x[:, 0],
}


def noisy_slope(value: Field, sigma: float, uneven: bool) -> Noisy:
    """Gradients with noise; if uneven, more of it far out, and more along the first coordinate."""
    slope = slope_of(value)

    def gradient(x: np.ndarray, random: np.random.Generator) -> np.ndarray:
        size = np.full(x.shape, sigma)
        if uneven:
            size = size * (0.3 + 0.7 * (x**2).sum(axis=1, keepdims=True)) * np.array([1.5, 0.4])
        return slope(x) + size * random.standard_normal(x.shape)

    return gradient


def about_zero(spread: float) -> Noisy:
    return lambda x, random: spread * np.clip(random.standard_normal(x.shape), -1.8, 1.8)


def landscape(name: str, sigma: float = 1.0, uneven: bool = False) -> Callable[[np.random.Generator], World]:
    value = LANDSCAPES[name]
    return lambda random: World(value, noisy_slope(value, sigma, uneven), about_zero(1.2), 0.03)


def logistic(dim: int, strength: float, alike: float, batch: int = 32) -> Callable[[np.random.Generator], World]:
    """Mini-batch logistic regression on 600 rows of correlated features."""

    def make(_: np.random.Generator) -> World:
        random = np.random.default_rng(round(1000 * strength + 10 * dim))
        common = random.standard_normal((600, 1))
        features = np.sqrt(1 - alike) * random.standard_normal((600, dim)) + np.sqrt(alike) * common
        chance = 1 / (1 + np.exp(-strength * features @ np.linspace(1, -0.5, dim)))
        rows = features * np.where(random.random(600) < chance, 1.0, -1.0)[:, None]

        def value(x: np.ndarray) -> np.ndarray:
            return -np.logaddexp(0, -x @ rows.T).mean(axis=1)

        def noisy(x: np.ndarray, random: np.random.Generator) -> np.ndarray:
            chosen = rows[random.integers(0, len(rows), (len(x), batch))]
            wrong = 1 / (1 + np.exp(np.einsum("abd,ad->ab", chosen, x)))
            return np.einsum("ab,abd->ad", wrong, chosen) / batch

        return World(value, noisy, lambda x, random: 2 * random.standard_normal(x.shape), 0.5)

    return make


def oscillator(_: np.random.Generator) -> World:
    """Amplitude, damping, frequency and phase of a damped oscillation, from mini-batches of its 60 points."""
    random = np.random.default_rng(5)
    times, true = np.linspace(0, 6, 60), np.array([0.0, -1.5, 0.3, 0.2])

    def parts(x: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, ...]:
        amplitude, damping, rate, phase = (x[:, axis, None] for axis in range(4))
        size, angle = np.exp(amplitude - np.exp(damping) * t), np.exp(rate) * t + phase
        return size * np.cos(angle), size * np.sin(angle), np.exp(damping), np.exp(rate)

    seen = parts(true[None], times[None])[0][0] + 0.05 * random.standard_normal(60)

    def value(x: np.ndarray) -> np.ndarray:
        return -2 * ((parts(x, times[None])[0] - seen) ** 2).mean(axis=1)

    def noisy(x: np.ndarray, random: np.random.Generator) -> np.ndarray:
        chosen = random.integers(0, 60, (len(x), 8))
        t = times[chosen]
        cosine, sine, damping, rate = parts(x, t)
        slopes = np.stack([cosine, -damping * t * cosine, -sine * rate * t, -sine], axis=2)
        return -4 * ((cosine - seen[chosen])[:, :, None] * slopes).mean(axis=1)

    return World(value, noisy, lambda x, random: true + 0.35 * random.standard_normal(x.shape), 0.05)


def bandit(dim: int) -> Callable[[np.random.Generator], World]:
    """REINFORCE on a contextual bandit of three actions, with mini-batches of 16."""

    def make(_: np.random.Generator) -> World:
        random = np.random.default_rng(1000)
        features = random.standard_normal((40, 3, dim))
        wage = random.standard_normal((40, 3)) + features[:, :, 0] - 0.5 * features[:, :, 1] * features[:, :, 2]

        def chances(x: np.ndarray, here: np.ndarray) -> np.ndarray:
            score = np.einsum("...ad,...d->...a", here, x)
            chance = np.exp(score - score.max(axis=-1, keepdims=True))
            return chance / chance.sum(axis=-1, keepdims=True)

        def value(x: np.ndarray) -> np.ndarray:
            return (chances(x[:, None], features[None]) * wage).sum(axis=-1).mean(axis=1)

        def noisy(x: np.ndarray, random: np.random.Generator) -> np.ndarray:
            context = random.integers(0, 40, (len(x), 16))
            here = features[context]
            chance = chances(x[:, None], here)
            action = (chance.cumsum(axis=-1) < random.random((len(x), 16, 1))).sum(axis=-1).clip(max=2)
            reward = np.take_along_axis(wage[context], action[:, :, None], 2)[:, :, 0]
            reward = reward + 0.5 * random.standard_normal(action.shape)
            taken = np.take_along_axis(here, action[:, :, None, None], 2)[:, :, 0]
            score = taken - np.einsum("nba,nbad->nbd", chance, here)
            return (score * reward[:, :, None]).mean(axis=1)

        return World(value, noisy, lambda x, random: random.standard_normal(x.shape), 0.4)

    return make


def mixture(dim: int) -> Callable[[np.random.Generator], World]:
    """Three normal components."""

    def make(_: np.random.Generator) -> World:
        centres = 3.3 * np.random.default_rng(77 + dim).standard_normal((3, dim)) / np.sqrt(dim)

        def value(x: np.ndarray) -> np.ndarray:
            heights = -0.5 * ((x[:, None] - centres) ** 2).sum(axis=-1) + np.log([0.5, 0.3, 0.2])
            return np.logaddexp.reduce(heights, axis=1)

        noisy = noisy_slope(value, 1.0, False)
        return World(value, noisy, lambda x, random: 1.6 * random.standard_normal(x.shape), 0.05)

    return make


def funnel(dim: int) -> Callable[[np.random.Generator], World]:
    """A hierarchical posterior: group means with a log scale."""

    def value(x: np.ndarray) -> np.ndarray:
        scale, rest = x[:, :1], x[:, 1:]
        each = -0.5 * rest**2 * np.exp(-2 * scale) - scale - 0.5 * (rest - 1) ** 2
        return each.sum(axis=1) - 0.5 * x[:, 0] ** 2

    return lambda random: World(value, noisy_slope(value, 1.0, False), about_zero(0.7), 0.01)


CASES = (
    Case("well 50×40", landscape("well"), 2, 50, 40),
    Case("well 1000×40 uneven", landscape("well", uneven=True), 2, 1000, 40),
    Case("bump 100×40", landscape("bump"), 2, 100, 40),
    Case("bump 2000×50", landscape("bump"), 2, 2000, 50),
    Case("lattice 300×30", landscape("lattice"), 2, 300, 30),
    Case("lattice 20×250", landscape("lattice"), 2, 20, 250),
    Case("kink 400×40", landscape("kink", 0.5), 2, 400, 40),
    Case("kink 2000×50 uneven", landscape("kink", 0.5, True), 2, 2000, 50),
    Case("two wells 1-D 100×40", landscape("wells"), 1, 100, 40),
    Case("logistic 3-D 100×30", logistic(3, 2.0, 0.5), 3, 100, 30),
    Case("logistic 3-D 500×60", logistic(3, 5.0, 0.8), 3, 500, 60),
    Case("small well 30×10", landscape("well"), 2, 30, 10),
    Case("small lattice 40×25", landscape("lattice"), 2, 40, 25),
    Case("small logistic 2-D 15×40", logistic(2, 2.0, 0.5), 2, 15, 40),
    Case("small kink 200×50", landscape("kink", 0.5), 2, 200, 50),
    Case("oscillator 4-D 150×40", oscillator, 4, 150, 40),
    Case("bandit 5-D 300×40", bandit(5), 5, 300, 40),
    Case("mixture 5-D 300×40", mixture(5), 5, 300, 40),
    Case("mixture 10-D 1000×40", mixture(10), 10, 1000, 40),
    Case("logistic 8-D 400×50", logistic(8, 2.0, 0.5), 8, 400, 50),
    Case("funnel 6-D 1000×40", funnel(6), 6, 1000, 40),
)


class Covered(NamedTuple):
    """How the error bars of one fit do."""

    rms: float
    uniform: float
    visited: float
    width: float
    fit: float
    bars: float


def covered(case: Case, seed: int) -> Covered:
    """Fit one record, and compare with the truth."""
    world, points, gradients, agents = climbed(case, seed)
    seen = observe(points, gradients, agents=agents)
    began = time.perf_counter()
    plain = fit(seen.points, seen.gradients, held_out(seen, seed), seed, agents=seen.agents)
    fitted = time.perf_counter()
    reward = plain.judged(seen.points, seen.gradients, seen.agents, seed)
    judged = time.perf_counter()
    random = np.random.default_rng(seed + 10_000)
    low, high = np.quantile(seen.points, [0.005, 0.995], axis=0)
    places = random.uniform(low, high, (CANDIDATES, case.dim))
    places = places[reward.explored(places)][:PLACES]
    at = seen.points[random.integers(0, len(seen.points), PLACES)].astype(float)
    at = at[reward.explored(at)]
    if case.dim > 3:
        # Hardly anything of a box is explored: half-way between learners, and at them.
        places = (at + at[random.permutation(len(at))]) / 2
        places = places[reward.explored(places)]
    typical = reward.typical
    about = reward.value(typical).mean() - world.value(typical).mean()

    def apart(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return reward.value(x) - world.value(x) - about, reward.error(x)

    (error, bar), (error_there, bar_there) = apart(places), apart(at)
    return Covered(
        float(np.sqrt(np.mean(error**2)) / world.value(places).std()),
        float(np.mean(np.abs(error) < 2 * bar)),
        float(np.mean(np.abs(error_there) < 2 * bar_there)),
        float(np.sqrt(np.mean(bar**2) / np.mean(error**2))),
        fitted - began,
        judged - fitted,
    )


def chosen(only: str, most: int) -> Iterator[Case]:
    return (case for case in CASES if only in case.name and case.dim <= most)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name contains it")
    parser.add_argument("--seeds", type=int, default=10, help="number of seeds")
    parser.add_argument("--first", type=int, default=100, metavar="SEED", help="the first seed")
    parser.add_argument("--to", type=int, default=99, metavar="DIM", help="cases up to this dimension")
    options = parser.parse_args()
    columns = ("rms", "uni", "vis", "poor", "width", "s", "bars s")
    print(f"{'case':28}" + "".join(f"{name:>8}" for name in columns))
    for case in chosen(options.only, options.to):
        found = [covered(case, seed) for seed in range(options.first, options.first + options.seeds)]
        mean = Covered(*np.mean(found, axis=0))
        poor = float(np.mean([min(one.uniform, one.visited) < 0.8 for one in found]))
        width = float(np.median([one.width for one in found]))
        row = (mean.rms, mean.uniform, mean.visited, poor, width, mean.fit, mean.bars)
        print(f"{case.name:28}" + "".join(f"{number:8.2f}" for number in row), flush=True)
        numbers = dict(zip(columns, row, strict=True))
        keep("bars", case=case.name, first=options.first, seeds=options.seeds, **numbers)


if __name__ == "__main__":
    main()
