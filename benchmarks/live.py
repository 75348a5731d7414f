"""An `Observer` above three dimensions, on the families of `benchmarks.above3`.

    python -m benchmarks.live [--only mixture] [--rows 1000000] [--turns] [--jumps 20]

rows/s: of learning, with everything that is done again meanwhile. answer s: R̂ at a hundred points, the second time it
is asked for with new rows. rms: that of R̂ over draws of exp(R), as in `benchmarks.above3`. apart: root mean square of
the difference from `reconstruct` on the last rows that were learnt, over the standard errors of both. alarms: jumps
reported, though R never jumps. found: share of the jumps that were reported within 500 rows, and the median delay:
after 30,000 rows, gradients change by one of their standard deviations along a random direction, other each time.

Rows come agent after agent or, with --turns, of a thousand agents in turn.
"""

import argparse
import time
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import onlooker
from benchmarks import families
from benchmarks.above3 import CASES, JUDGED, Case
from benchmarks.families import Problem, Seen
from benchmarks.figures import keep

# Rows before a jump, and within which it must be found.
CALM, WITHIN = 30_000, 500
# Rows of one call, and places at which R̂ is asked for.
CALL, PLACES = 1000, 100
# Rows that `reconstruct` is given for comparison.
COMPARED = 200_000


def learnt(observer: onlooker.Observer, seen: Seen) -> float:
    """Show an observer all rows, by calls of a thousand; the seconds it took."""
    began = time.perf_counter()
    for first in range(0, len(seen.points), CALL):
        some = slice(first, first + CALL)
        observer.learn_many(seen.points[some], seen.gradients[some], agents=seen.agents[some])
    return time.perf_counter() - began


def detection(seen: Seen, jumps: int, seed: int) -> tuple[float, float]:
    """Share of so many jumps that are found in time by an Observer that has learnt the same rows; median delay."""
    random, dim = np.random.default_rng(seed), seen.points.shape[1]
    low, high = np.quantile(seen.gradients, [0.1587, 0.8413], axis=0)
    calm = onlooker.Observer(dim, forgetting="adaptive")
    learnt(calm, families.first(seen, CALM))
    after = Seen(*(part[CALM : CALM + WITHIN] for part in seen))
    delays = []
    with TemporaryDirectory() as folder:
        state = calm.save(Path(folder) / "calm")
        for _ in range(jumps):
            direction = random.standard_normal(dim)
            size = (high - low) / 2 * direction / np.linalg.norm(direction)
            observer = onlooker.Observer.load(state)
            before = len(observer.jumps)
            learnt(observer, after._replace(gradients=after.gradients + size))
            delays += [jump.found - CALM for jump in observer.jumps[before:][:1]]
    return len(delays) / jumps, float(np.median(delays)) if delays else np.nan


def score(problem: Problem, seen: Seen, jumps: int, seed: int) -> dict[str, float]:
    """The figures of one Observer."""
    observer = onlooker.Observer(problem.dim, forgetting="adaptive")
    last = len(seen.points) - CALL
    seconds = learnt(observer, Seen(*(part[:last] for part in seen)))
    places = problem.draws[:PLACES]
    observer.reward(places)
    learnt(observer, Seen(*(part[last:] for part in seen)))
    began = time.perf_counter()
    observer.reward(places)
    answer = time.perf_counter() - began
    judged = problem.draws[:JUDGED]
    live = observer.reward(judged)
    whole = onlooker.reconstruct(*(part[-COMPARED:] for part in seen[:2]), agents=seen.agents[-COMPARED:], seed=1)
    bars = np.sqrt(observer.reward_error(judged) ** 2 + whole.reward_error(judged) ** 2)
    apart = live - whole.reward(judged)
    apart = (apart - np.nansum(apart / bars**2) / np.nansum(1 / bars**2)) / bars
    found, delay = detection(seen, jumps, seed) if jumps else (np.nan, np.nan)
    return {
        "rate": last / seconds,
        "answer": answer,
        "rms": float(np.nanstd(live - problem.value(judged))),
        "apart": float(np.sqrt(np.nanmean(apart**2))),
        "alarms": len(observer.jumps),
        "found": found,
        "delay": delay,
    }


COLUMNS = (
    ("rows/s", "rate", 8, ".0f"),
    ("answer s", "answer", 9, ".2f"),
    ("rms", "rms", 7, ".3f"),
    ("apart", "apart", 6, ".2f"),
    ("alarms", "alarms", 7, ".0f"),
    ("found", "found", 6, ".2f"),
    ("delay", "delay", 6, ".0f"),
)


def run(one: Case, options: argparse.Namespace, seed: int) -> None:
    problem = one.make(seed)
    seen = problem.watch(options.rows, seed)
    if options.turns:
        seen = families.in_turn(seen)
    found = score(problem, seen, options.jumps, seed)
    keep("live", case=one.name, rows=options.rows, turns=float(options.turns), seed=seed, **found)
    cells = "".join(f"{found[name]:{width}{form}}" for _, name, width, form in COLUMNS)
    print(f"{one.name:34}{options.rows:8d}{seed:5d}{cells}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name contains it")
    parser.add_argument("--rows", type=int, default=1_000_000, help="number of rows")
    parser.add_argument("--turns", action="store_true", help="agents in turn, not one after the other")
    parser.add_argument("--jumps", type=int, default=20, help="number of jumps; 0: none are tried")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore", onlooker.OnlookerWarning)
    print(f"{'case':34}{'rows':>8}{'seed':>5}" + "".join(f"{title:>{width}}" for title, _, width, _ in COLUMNS))
    done = set()
    for one in CASES:
        # The number of rows is the same for all of them here.
        name = one.name.split(" rows")[0].rsplit(", ", 1)[0] if "rows" in one.name else one.name
        if options.only in one.name and name not in done:
            done.add(name)
            run(one._replace(name=name), options, options.seed)


if __name__ == "__main__":
    main()
