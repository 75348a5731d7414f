"""`reconstruct(points, gradients, agents=agents)` above three dimensions, on families of rewards.

    python -m benchmarks.above3 [--only mixture] [--seeds 2] [--rows 200000] [--oracle]

rms: standard deviation of R̂ − R over draws of exp(R), where R̂ is known; nan: the share where it is not. ends: the same
rms at the learners' last points. quad.: rms of a plain quadratic, rows with large gradients weighted down. oracle: rms
of least squares on a quadratic and the true mixture's own term. W1: mean over 40 random projections of the samples, in
standard deviations of exp(R); floor: the same for as many exact draws. cover: share of 95 % intervals that contain R.
s, draw s: seconds of `reconstruct`, and of its samples. dirs: directions found. held-out: the error on held-out rows.
bound: of the rms, at a case's own number of rows, or 1.3 times the oracle's. A pure quadratic must have no directions.

    python -m benchmarks.above3 --check [--only mixture] [--rows 5000]

shows what the families are like. slope: largest error of ∇R against central differences, in root mean squares of ∇R.
float32: the same of the gradients that learners see. rhat: of the draws, if they are by Hamiltonian Monte Carlo. sd:
standard deviation of R over exp(R). ends: share of the learners' last points where R is above the lowest hundredth of
the draws'. seen: share of the draws inside the ellipsoid of 99 % of the learners' points. steep: the largest gradient
in 99 % quantiles. lag: correlation of an agent's successive gradients.
"""

import argparse
import resource
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

import onlooker
from benchmarks import families
from benchmarks.families import Problem, Seen, in_chunks
from benchmarks.figures import keep
from benchmarks.unseen import projected_distance

# Exact draws at which R̂ is judged, and observed points over which the constant of R̂ − R is taken.
JUDGED, OBSERVED = 5000, 2000
# Largest share of exp(R) where R̂ may be unknown, besides the share where hardly any learner was.
MOST_UNKNOWN = 0.05
# Rows that --quick leaves at least.
FEWEST = 5000
# Gradients longer than so many times the noise are weighted down in the plain quadratic.
LONG = 4.0
# A bound is at least this many times the rms of the oracle, if that is asked for.
ORACLES = 1.3


class Case(NamedTuple):
    """A family in a dimension, seen through a number of rows.

    Attributes
    ----------
    make
        The problem of a seed.
    bound
        Of the rms; ``None``: report only.
    aim
        Whether the bound is an aim.
    pure
        Whether R is quadratic, so that there are no directions to find.
    """

    name: str
    make: Callable[[int], Problem]
    rows: int = 200_000
    bound: float | None = None
    aim: bool = False
    pure: bool = False


def case(family: str, maker: Callable[..., Problem], dim: int, rows: int = 200_000, **rest: Any) -> Case:
    """A case named "family, dim-D"; arguments that a case does not have are the maker's."""
    own = {name: rest.pop(name) for name in ("bound", "aim", "pure") if name in rest}
    few = f", {rows:.0e} rows".replace("e+0", "e") if rows < 200_000 else ""
    return Case(f"{family}, {dim}-D{few}", partial(maker, dim, **rest), rows, **own)


def _cases() -> Iterator[Case]:
    for dim, rows, bound in ((8, 200_000, 0.04), (20, 200_000, 0.05), (40, 400_000, 0.06)):
        yield case("mixture", families.mixture, dim, rows, bound=bound)
    for dim, rows in ((20, 200_000), (40, 400_000)):
        yield case("mixture, aligned", families.mixture, dim, rows, aligned=True, bound=0.09)
        yield case("mixture, aligned, wide", families.mixture, dim, rows, aligned=True, spread=1.6, bound=0.09)
    for dim, rows in ((8, 200_000), (20, 200_000), (40, 400_000)):
        yield case("mixture of three", families.mixture, dim, rows, parts=3, bound=0.06)
    yield case("mixture, unequal", families.mixture, 8, unequal=True)
    yield case("mixture", families.mixture, 5, 10_000)
    yield case("mixture", families.mixture, 8, 10_000)
    yield case("logistic, one row", families.logistic, 30, bound=0.10)
    yield case("logistic, batch of 10", families.logistic, 30, batch=10)
    yield case("logistic, Gaussian prior", families.logistic, 30, prior="Gauss")
    for dim in (6, 10, 15):
        yield case("hierarchical", families.hierarchical, dim, bound=0.3)
    for dim in (6, 12, 20, 30):
        yield case("collinear", families.collinear, dim, bound=0.3 if dim <= 20 else 1.5, aim=True)
    for dim in (4, 6):
        yield case("process scales", families.process_scales, dim)
    yield case("process counts", families.process_counts, 10)
    yield case("counts", families.counts, 8)
    yield case("ODE", families.food_chain, 4, bound=0.15)
    for dim in (6, 10):
        yield case("ODE", families.food_chain, dim, bound=0.6, aim=True)
    yield case("Rosenbrock", families.chain, 5, 10_000, bound=0.15)
    yield case("Rosenbrock", families.chain, 10)
    yield case("banana", families.banana, 10, bound=0.12)
    yield case("funnel", families.funnel, 10)
    yield case("sum of terms", families.sum_of_terms, 6)
    for dim in (5, 8):
        yield case("returns", families.returns, dim)
    yield case("saturating", families.saturating, 8)
    for dim, most in ((8, 200_000), (20, 200_000), (40, 400_000)):
        for rows in (10_000, 50_000, most):
            yield case("quadratic", families.quadratic, dim, rows, pure=True)
    yield case("quadratic at rest", families.at_rest, 8, pure=True)
    yield case("bent at rest", families.at_rest, 8, bend=1.0)
    yield case("quadratic, large steps", families.large_steps, 8, pure=True)
    yield case("bent, large steps", families.large_steps, 8, bend=1.0)


CASES = tuple(_cases())


def score(problem: Problem, rows: int, seed: int, warm: bool, oracle: bool) -> tuple[dict[str, Any], list[str]]:
    """The figures of one reconstruction, and the codes of its warnings."""
    seen = problem.watch(rows, seed)
    for _ in range(2 if warm else 1):
        result, seconds, draw_seconds = _timed(seen, seed)
    samples = result.samples.reshape(-1, problem.dim)
    exact = problem.draws
    places = seen.points[np.random.default_rng(1).integers(0, len(seen.points), OBSERVED)]
    about = np.nanmean(result.reward(places) - problem.value(places))
    judged = exact[:JUDGED]
    difference = result.reward(judged) - problem.value(judged)
    inside = np.abs(difference - about) <= 1.96 * result.reward_error(judged)
    width = exact.std(axis=0)
    half = len(exact) // 2
    figures = {
        "rms": float(np.nanstd(difference)),
        "nan": float(np.isnan(difference).mean()),
        "ends": float(np.nanstd(result.reward(seen.ends) - problem.value(seen.ends))),
        "quadratic": float(np.std(plain_quadratic(seen)(judged) - problem.value(judged))),
        "oracle": _oracle(problem, seen, judged) if oracle else None,
        "seen": families.overlap(problem, seen)[1],
        "distance": projected_distance(samples / width, exact / width),
        "floor": projected_distance(exact[half:][: len(samples)] / width, exact[:half] / width),
        "cover": float(inside[np.isfinite(difference)].mean()),
        "seconds": seconds,
        "draw_seconds": draw_seconds,
        "directions": result.diagnostics.get("directions"),
        "held_out_error": result.diagnostics.get("held_out_error"),
    }
    return figures, [message.code for message in result.warnings]


def _timed(seen: Seen, seed: int) -> tuple[onlooker.Reconstruction, float, float]:
    """A reconstruction, its seconds, and those of its samples, which are drawn when they are first used."""
    began = time.perf_counter()
    result = onlooker.reconstruct(seen.points, seen.gradients, agents=seen.agents, seed=seed)
    fitted = time.perf_counter()
    _ = result.samples
    return result, fitted - began, time.perf_counter() - fitted


Value = Callable[[np.ndarray], np.ndarray]


def least_squares_quadratic(points: np.ndarray, gradients: np.ndarray, weights: np.ndarray) -> tuple[Value, Value]:
    """SH + HS = C + Cᵀ with S = Σw(x−m)(x−m)ᵀ, C = Σw(x−m)gᵀ: R̂ = b·(x−m) + ½(x−m)ᵀH(x−m), and its gradient."""
    share = weights / weights.sum()
    centre, slope = share @ points, share @ gradients
    away = points - centre
    spread, axes = np.linalg.eigh((away * share[:, None]).T @ away)
    across = axes.T @ (away * share[:, None]).T @ (gradients - slope) @ axes
    curvature = axes @ ((across + across.T) / (spread[:, None] + spread)) @ axes.T

    def value(x: np.ndarray) -> np.ndarray:
        return (x - centre) @ slope + 0.5 * np.einsum("ni,ni->n", (x - centre) @ curvature, x - centre)

    return value, lambda x: slope + (x - centre) @ curvature


def plain_quadratic(seen: Seen) -> Value:
    """R̂ quadratic, with weights min(1, (4s√N/|g|)²), s the noise, and each coordinate in its own spread."""
    low, middle, high = np.quantile(seen.points, [0.1, 0.5, 0.9], axis=0)
    width = (high - low) / 2.56
    points, gradients = (seen.points - middle) / width, seen.gradients * width
    same = seen.agents[1:] == seen.agents[:-1]
    steps = (gradients[1:] - gradients[:-1])[same]
    noise_squared = np.median((steps**2).sum(axis=1)) / 2
    weights = np.minimum(1.0, LONG**2 * noise_squared / (gradients**2).sum(axis=1))
    value, _ = least_squares_quadratic(points, gradients, weights)
    return lambda x: value((x - middle) / width)


def _oracle(problem: Problem, seen: Seen, judged: np.ndarray) -> float | None:
    """R̂ = quadratic + a f, f the true term: a from the parts of g and ∇f that no quadratic explains."""
    if problem.unit is None:
        return None
    points, gradients = seen.points.astype(float), seen.gradients.astype(float)
    even = np.ones(len(points))
    slopes = in_chunks(jax.jit(jax.vmap(jax.grad(problem.unit))), points)
    left = [field - least_squares_quadratic(points, field, even)[1](points) for field in (gradients, slopes)]
    amplitude = (left[0] * left[1]).sum() / (left[1] ** 2).sum()
    value, _ = least_squares_quadratic(points, gradients - amplitude * slopes, even)
    term = in_chunks(jax.jit(jax.vmap(problem.unit)), judged)
    return float(np.std(value(judged) + amplitude * term - problem.value(judged)))


def verdict(one: Case, found: dict[str, Any], rows: int) -> tuple[bool | None, str]:
    """Whether the figures are within the bound, or ``None`` if none applies; and in words."""
    if one.pure:
        if found["directions"] is None:
            return None, ""
        within = found["directions"] == 0
        return within, "no directions" if within else "DIRECTIONS"
    if one.bound is None or rows < one.rows:
        return None, ""
    # A quadratic and the true term, known beforehand, do no better than the oracle.
    bound = max(one.bound, ORACLES * (found["oracle"] or 0.0))
    within = found["rms"] <= bound and found["nan"] <= MOST_UNKNOWN + 1 - found["seen"]
    words = ("within the aim", "short of the aim") if one.aim else ("within", "OUTSIDE")
    return within, words[0] if within else words[1]


# Name, width and format of each printed figure.
COLUMNS = (
    ("rms", "rms", 7, ".3f"),
    ("nan", "nan", 6, ".3f"),
    ("ends", "ends", 7, ".3f"),
    ("quad.", "quadratic", 7, ".2f"),
    ("oracle", "oracle", 7, ".3f"),
    ("W1", "distance", 7, ".3f"),
    ("floor", "floor", 6, ".3f"),
    ("cover", "cover", 6, ".2f"),
    ("s", "seconds", 6, ".1f"),
    ("draw s", "draw_seconds", 7, ".1f"),
    ("dirs", "directions", 5, ".0f"),
    ("held-out", "held_out_error", 10, ".4g"),
    ("bound", "bound", 6, ".2f"),
)
HEADING = f"{'case':34}{'rows':>7}{'seed':>5}" + "".join(f"{title:>{width}}" for title, _, width, _ in COLUMNS)


def in_columns(found: dict[str, Any]) -> str:
    return "".join(
        f"{'—':>{width}}" if found[name] is None else f"{found[name]:{width}{form}}" for _, name, width, form in COLUMNS
    )


def run(one: Case, rows: int, seed: int, options: argparse.Namespace) -> bool | None:
    """Score, print and keep one case; whether it is within its bound."""
    found, codes = score(one.make(seed), rows, seed, options.warm, options.oracle)
    found["bound"] = one.bound if rows >= one.rows else None
    within, words = verdict(one, found, rows)
    keep("above3", case=one.name, rows=rows, seed=seed, aim=one.aim, within=within, codes=" ".join(codes), **found)
    text = f"{one.name:34}{rows:7d}{seed:5d}{in_columns(found)}  {words}"
    print(f"{text.rstrip()}{' ! ' if codes else ''}{' '.join(codes)}", flush=True)
    return within


def asked(about: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name contains it")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first seed")
    parser.add_argument("--rows", type=int, help="number of rows, instead of each case's own")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, to try it out")
    parser.add_argument("--oracle", action="store_true", help="also the oracle of mixtures")
    parser.add_argument("--warm", action="store_true", help="reconstruct twice, and time the second")
    parser.add_argument("--check", action="store_true", help="show what the families are like instead")
    parser.add_argument("--list", action="store_true", help="only print the cases")
    return parser.parse_args()


def check(chosen: list[Case], rows: int, seeds: int) -> None:
    """Print what the families are like."""
    names = ("slope", "float32", "rhat", "sd", "ends", "seen", "steep", "lag")
    print(f"{'case':34}{'seed':>5}" + "".join(f"{name:>9}" for name in names))
    for one in chosen:
        for seed in range(seeds):
            found = families.describe(one.make, rows, seed)
            shown = "".join(
                f"{found[name]:9.1e}" if found[name] < 1e-2 else f"{found[name]:9.3f}" for name in names[:2]
            )
            print(f"{one.name:34}{seed:5d}{shown}{''.join(f'{found[name]:9.3f}' for name in names[2:])}", flush=True)


def main(cases: Sequence[Case] = CASES, about: str | None = __doc__) -> None:
    options = asked(about)
    chosen = [one for one in cases if options.only in one.name]
    if options.list:
        for one in chosen:
            print(f"{one.name:34}{one.rows:7d}  {'—' if one.bound is None else f'{one.bound:.2f}'}")
        return
    if options.check:
        check(chosen, options.rows or 5000, options.seeds)
        return
    if not options.warm:
        print("seconds include compilation; --warm times a second call")
    print(HEADING)
    # They are printed by their codes.
    warnings.simplefilter("ignore", onlooker.OnlookerWarning)
    failed, pure = 0, []
    for one in chosen:
        rows = options.rows or (min(one.rows, max(one.rows // 10, FEWEST)) if options.quick else one.rows)
        for seed in range(options.first, options.first + options.seeds):
            try:
                within = run(one, rows, seed, options)
            except Exception as error:
                failed += 1
                text = " ".join(str(error).split())
                keep("above3", case=one.name, rows=rows, seed=seed, error=f"{type(error).__name__}: {text}")
                print(f"{one.name:34}{rows:7d}{seed:5d}  FAILED {type(error).__name__}: {text[:120]}", flush=True)
            else:
                if one.pure and within is not None:
                    pure.append(within)
    if pure:
        keep("above3, pure quadratics", right=sum(pure), count=len(pure))
        print(f"pure quadratics without directions: {sum(pure)} of {len(pure)}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    keep("above3, memory", gib=peak)
    print(f"peak memory {peak:.2f} GiB")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
