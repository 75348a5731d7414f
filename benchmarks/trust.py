"""Broken assumptions: how often `reconstruct`'s tests notice them, and how often they mention one that holds.

    python -m benchmarks.trust [--only well] [--runs 20] [--first 0]

share: median of the share that each test reports (see `onlooker.fit.assumptions`), left, curl and dissent. said: of all
runs, how often each warning was given. s: seconds of the fit, and of the tests.

Learners climb a reward with noise of standard deviation 1 in so many agents times steps. A rotation adds ω·Sθ to the
slope, S antisymmetric of norm 1; dissenters climb −|θ − 1|²/2; an offset adds a random vector to all gradients of an
agent, a factor multiplies them; clipped gradients are no longer than the limit.
"""

import argparse
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks.figures import keep
from onlooker.data.observations import Observations, observe
from onlooker.data.splits import held_out
from onlooker.data.updates import about_updates
from onlooker.fit import fit
from onlooker.fit.assumptions import Found, about_assumptions, examined

Slope = Callable[[np.ndarray], np.ndarray]


def bend(x: np.ndarray) -> np.ndarray:
    """Two wells along the diagonal."""
    root = np.sqrt(x.shape[1])
    return -x + 1.5 * np.tanh(2 * x.sum(axis=1, keepdims=True) / root) / root


def bump(x: np.ndarray) -> np.ndarray:
    """A narrow peak on a bowl."""
    return -0.5 * x - 8 * x * np.exp(-(x**2).sum(axis=1, keepdims=True) / (2 * 0.25**2))


SLOPES: dict[str, Slope] = {
    "well": lambda x: -x,
    "ripples": lambda x: -x + 1.5 * np.sin(3 * x),
    "kink": lambda x: -np.sign(x) - 0.3 * x,
    "bend": bend,
    "bump": bump,
}


class World(NamedTuple):
    """Learners, and what is wrong with them."""

    slope: str = "well"
    dim: int = 2
    agents: int = 100
    steps: int = 40
    rate: float = 0.03
    rotation: float = 0.0
    dissenters: float = 0.0
    offset: float = 0.0
    factor: float = 0.0
    limit: float = np.inf
    uneven: bool = False

    def __str__(self) -> str:
        usual = World()
        rest = [
            f"{name} {value:g}"
            for name, value in self._asdict().items()
            if value != getattr(usual, name) and name not in ("slope", "dim", "agents", "steps")
        ]
        return ", ".join([f"{self.slope} {self.dim}-D {self.agents}×{self.steps}", *rest])

    def watch(self, seed: int) -> Observations:
        """What is observed."""
        generator = np.random.default_rng(seed)
        shape = (self.agents, self.dim)
        other = (generator.random(self.agents) < self.dissenters)[:, None]
        factor = np.exp(self.factor * generator.standard_normal((self.agents, 1)))
        offset = self.offset * generator.standard_normal(shape)
        turning = generator.standard_normal((self.dim, self.dim))
        turning -= turning.T
        turning *= self.rotation / max(np.linalg.norm(turning, 2), 1e-12)
        point, points, gradients = 1.2 * np.clip(generator.standard_normal(shape), -1.8, 1.8), [], []
        for _ in range(self.steps):
            gradient = factor * np.where(other, 1 - point, SLOPES[self.slope](point)) + offset + point @ turning.T
            size = 0.3 + 0.7 * np.minimum((point**2).sum(axis=1, keepdims=True), 3) if self.uneven else 1.0
            gradient = gradient + size * generator.standard_normal(shape)
            gradient *= np.minimum(1, self.limit / np.linalg.norm(gradient, axis=1, keepdims=True))
            points.append(point)
            gradients.append(gradient)
            point = point + self.rate * gradient
        rows = [np.stack(part, axis=1).reshape(-1, self.dim) for part in (points, gradients)]
        return observe(*rows, agents=np.repeat(np.arange(self.agents), self.steps))


WORLDS = (
    *(World(slope) for slope in ("well", "ripples", "kink", "bump")),
    World(agents=1000),
    World("ripples", agents=400, uneven=True),
    World("ripples", agents=40, steps=500, rate=0.3),
    World("ripples", 5, 300),
    World("bend", 5, 300),
    World("bend", 5, 40, 1000, rate=0.3),
    World("well", 5, 100, 100, rate=1.0),
    World("bend", 10, 1000),
    World("kink", 10, 300),
    *(World(rotation=strength) for strength in (0.1, 0.2, 0.4)),
    World("ripples", agents=1000, rotation=0.1),
    *(World(dim=5, rotation=strength) for strength in (0.2, 0.4)),
    World(dim=10, agents=300, rotation=0.4),
    *(World(dissenters=share) for share in (0.05, 0.1, 0.2, 0.5)),
    *(World(agents=1000, dissenters=share) for share in (0.02, 0.05)),
    World(dim=5, dissenters=0.2),
    World(dim=10, agents=300, dissenters=0.2),
    World(offset=0.2),
    World(factor=0.4),
    *(World(limit=limit) for limit in (1.0, 2.0, 3.0)),
)


def judged(seen: Observations) -> tuple[Found, list[str], float, float]:
    """What the tests find, the codes they lead to, and the seconds of the fit and of the tests."""
    began = time.perf_counter()
    reward = fit(seen.points, seen.gradients, held_out(seen, 0), 0, agents=seen.agents)
    fitted = time.perf_counter()
    found = examined(seen.points, seen.gradients, seen.agents, reward)
    messages: list[Any] = [*about_assumptions(found), *about_updates(seen)[1]]
    return found, [message.code for message in messages], fitted - began, time.perf_counter() - fitted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="worlds whose name contains it")
    parser.add_argument("--runs", type=int, default=20, help="number of seeds")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first seed")
    options = parser.parse_args()
    print(f"{'world':46}{'left':>8}{'curl':>8}{'dissent':>8}{'fit s':>7}{'s':>6}  said")
    for world in WORLDS:
        if options.only not in str(world):
            continue
        shares: dict[str, list[float]] = {name: [] for name in Found._fields}
        said: Counter[str] = Counter()
        seconds = np.zeros(2)
        for seed in range(options.first, options.first + options.runs):
            found, codes, *took = judged(world.watch(seed))
            said.update(codes)
            seconds += np.array(took) / options.runs
            for name, score in found._asdict().items():
                shares[name].append(np.nan if score is None else score.share)
        middle = {name: float(np.median(values)) for name, values in shares.items()}
        counts = {code: float(count) for code, count in said.items()}
        keep("trust", world=str(world), runs=options.runs, **middle, **counts)
        cells = "".join(f"{middle[name]:8.4f}" for name in Found._fields)
        words = ", ".join(f"{code} {count}/{options.runs}" for code, count in said.items()) or "nothing"
        print(f"{world!s:46}{cells}{seconds[0]:7.2f}{seconds[1]:6.2f}  {words}", flush=True)


if __name__ == "__main__":
    main()
