"""Digests of results: what a refactoring must leave unchanged to the last bit.

    python tools/digests.py > before.json        # at one commit
    python tools/digests.py --against before.json  # at another: exits with 1 if a digest differs

Every entry is the SHA-256 of the arrays that a public call returns: `reconstruct` in 1 to 10 dimensions, an Observer
with every kind of forgetting, and `run` of every inverse learner; with ``--examples`` also of the judged metrics of
every ``reproduce EXAMPLE --quick`` at seed 0, which takes ten minutes.
"""

import argparse
import hashlib
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# The last bits of sums depend on how many threads BLAS has; it reads this when NumPy is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax.numpy as jnp
import numpy as np

import onlooker
from onlooker import inverse


def named(*places: str) -> Any:
    """The first of some objects that exists, each given as ``module:name``."""
    for place in places:
        module, name = place.split(":")
        try:
            return getattr(__import__(module, fromlist=[name]), name)
        except (ImportError, AttributeError):
            continue
    raise ImportError(f"none of {places} exists")


standard_normal = named("onlooker.core.density:standard_normal", "onlooker.density:standard_normal")
spherical = named("onlooker.core.policies:spherical", "onlooker.coordinates:spherical")
binned = named("onlooker.fit.memory:binned", "onlooker.field.memory:binned")
naive = named("onlooker.paper.naive:naive", "onlooker.inverse:naive")
questions = named("onlooker.simulation.agents:questions", "onlooker.learners.agents:questions")
NoisyReward = named("onlooker.simulation.reward:NoisyReward", "onlooker.learners.reward:NoisyReward")


def digest(*arrays: Any) -> str:
    found = hashlib.sha256()
    for array in map(np.asarray, arrays):
        found.update(f"{array.dtype}{array.shape}".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:16]


def rows(dim: int, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points, gradients of a bowl with a ripple, and the agents that made them, 20 rows each."""
    generator = np.random.default_rng(dim)
    points = generator.standard_normal((count, dim))
    gradients = -points + 0.5 * np.cos(2 * points) + 0.5 * generator.standard_normal((count, dim))
    return points, gradients, np.repeat(np.arange(count // 20), 20)


def reconstructions() -> Iterator[tuple[str, Callable[[], str]]]:
    for dim, count in ((1, 4000), (2, 8000), (3, 8000), (4, 2000), (6, 2000), (10, 2000)):
        for whose in ("nobody's", "agents'"):
            if whose == "agents'" and dim not in (1, 2, 4):
                continue

            def made(dim: int = dim, count: int = count, whose: str = whose) -> str:
                points, gradients, agents = rows(dim, count)
                result = onlooker.reconstruct(points, gradients, agents=agents if whose == "agents'" else None)
                places = points[:50] * 0.5
                return digest(result.reward(places), result.reward_error(places), result.samples, result.maximum())

            yield f"reconstruct {dim}-D, {whose} rows", made
    for method in ("replay", "passive", "reweighted"):

        def paper(method: str = method) -> str:
            points, gradients, _ = rows(2, 8000)
            density = None if method == "replay" else standard_normal(2)
            result = onlooker.reconstruct(points, gradients, method=method, density=density, chains=16)
            return digest(result.reward(points[:50] * 0.5), result.samples)

        yield f"reconstruct 2-D, {method}", paper

    def angles() -> str:
        points, gradients, _ = rows(2, 8000)
        result = onlooker.reconstruct(np.abs(points) % 1.5, gradients, coordinates=spherical(2, 2), measure="policy")
        return digest(result.samples, result.maximum())

    yield "reconstruct 2-D, policies", angles


def observers() -> Iterator[tuple[str, Callable[[], str]]]:
    for dim in (1, 2, 3, 5):
        for forgetting in (None, 1e-3, "adaptive"):
            if dim == 5 and forgetting != "adaptive":
                continue

            def made(dim: int = dim, forgetting: Any = forgetting) -> str:
                points, gradients, agents = rows(dim, 6000)
                live = onlooker.Observer(dim=dim, forgetting=forgetting)
                live.learn_many(points[:2500], gradients[:2500])
                live.learn_many(points[2500:4000], gradients[2500:4000], agents[2500:4000])
                live.learn_many(points[4000:], gradients[4000:] + 3.0)
                places = points[:50] * 0.5
                jumps = [(jump.at, jump.found) for jump in live.jumps]
                return digest(live.reward(places), live.reward_error(places), np.array(jumps), live.seen)

            yield f"Observer {dim}-D, forgetting {forgetting}", made


def runs() -> Iterator[tuple[str, Callable[[], str]]]:
    bowl = NoisyReward(2, lambda point: -0.5 * jnp.sum(point**2), 0.5)
    density, common = standard_normal(2), {"step_size": 1e-2, "bandwidth": 0.5}
    points, gradients, _ = rows(2, 9000)
    shown = onlooker.recorded(onlooker.observe(points, gradients))
    pools, asked = onlooker.pooled(shown, 10), questions(bowl)
    turn = np.array([[0.0, 1], [-1, 0]])
    plain = inverse.classical(step_size=1e-2)
    learners = {
        "classical": (lambda: plain, asked),
        "active": (lambda: inverse.active(step_size=1e-2, spread=0.3, bandwidth=0.2), asked),
        "passive": (lambda: inverse.passive(density, **common), shown),
        "passive, second form": (lambda: inverse.passive(density, form="second", **common), shown),
        "reweighted": (lambda: inverse.reweighted(density, confine=inverse.ball(3.0), **common), shown),
        "nonreversible": (lambda: inverse.nonreversible(density, rotation=turn, **common), shown),
        "naive": (lambda: naive(**common), shown),
        "multikernel": (lambda: inverse.multikernel(**common), pools),
        "replay": (lambda: inverse.replay(binned([-4, -4], [4, 4], cells=16), step_size=1e-2), shown),
        "corrected": (lambda: inverse.corrected(plain, asked, np.eye(2), draws=200), asked),
        "on_policies": (lambda: inverse.on_policies(plain, spherical(2, 2), "policy"), asked),
    }
    for name, (learner, stream) in learners.items():

        def made(learner: Any = learner, stream: Any = stream) -> str:
            grid = onlooker.Grid((-3.0, -3.0), (3.0, 3.0), 20)
            start = np.array([0.3, 0.1])
            chains = onlooker.run(learner(), stream, steps=900, chains=16, grid=grid, start=start, progress=False)
            return digest(chains.positions, chains.samples, chains.mean, chains.covariance, chains.histogram.counts)

        yield f"run {name}", made


def examples() -> Iterator[tuple[str, Callable[[], str]]]:
    for name in ("bayes", "posterior", "logistic", "cmdp", "tracking"):

        def made(name: str = name) -> str:
            module = __import__(f"onlooker.paper.{name}", fromlist=["reproduce"])
            with tempfile.TemporaryDirectory() as folder:
                rows = list(module.reproduce(None, True, 0, Path(folder)))
            judged = {row.name: {metric: float(row.metrics[metric]) for metric in row.accept} for row in rows}
            return hashlib.sha256(json.dumps(judged, sort_keys=True).encode()).hexdigest()[:16]

        yield f"reproduce {name} --quick", made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", type=Path, help="a file that this script wrote at another commit")
    parser.add_argument("--only", default="", help="entries with this text in their name")
    parser.add_argument("--examples", action="store_true", help="the paper's examples, too")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found = {}
    for entries in (runs(), observers(), reconstructions(), *([examples()] if options.examples else [])):
        for name, made in entries:
            if options.only in name:
                try:
                    found[name] = made()
                except Exception as error:
                    found[name] = f"{type(error).__name__}: {error}"
                print(f"{name}: {found[name]}", file=sys.stderr, flush=True)
    print(json.dumps(found, indent=1))
    if options.against is None:
        return 0
    before = json.loads(options.against.read_text())
    differing = [name for name in found if found[name] != before.get(name)]
    for name in differing:
        print(f"differs: {name}: {before.get(name)} before, {found[name]} now", file=sys.stderr)
    print(f"{len(found) - len(differing)} of {len(found)} digests are equal", file=sys.stderr)
    return 1 if differing else 0


if __name__ == "__main__":
    raise SystemExit(main())
