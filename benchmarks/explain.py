"""`onlooker.explain` on LOGEL's grid world: the same observations for everybody, right and wrong features, coverage.

    python -m benchmarks.explain [--only errors wrong …] [--seeds 3] [--runs 40] [--first 0]

error: |P(ŵ − w)|/|Pw|, P taking out the mean, which cannot be known; worlds: what the greedy policy of the recovered
reward loses in 30 other, slippery worlds of the same colours, 0 perfect, 1 chance; cover: of 95 % intervals, of the
weights less their mean; left: the share of |∇R|² that is not explained, z: of the misfit test; said: whether there
was a warning about it. Agents climb by 50 paths a step, and "rolled out" means 50 other paths a row, in 5 parts.

    errors     ours, and the peers, by seed: grid 75 parameters, network 1,924
    cover      coverage, and how often right features are called wrong
    wrong      features that miss something; agents with a baseline of values; weight decay
    fresh      a fresh agent in new worlds, trained on each recovered reward: the true return
    jump       `Observer(features=…, forgetting="adaptive")`: weights that jump
    limit      the hidden limit and penalty of the paper's constrained process
    rates      iterates alone, agents whose rates differ tenfold
    large      seconds and memory by dimension
"""

import argparse
import resource
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import onlooker
from benchmarks.explain_peers import lfl, logel, off, to_weights
from benchmarks.figures import keep
from onlooker.core.messages import undelivered
from onlooker.explanation.result import Explanation
from onlooker.simulation.grid import COLOURS, WEIGHTS, Grid, Network, Seen, Table, elsewhere, learn

HOME = Grid()
CENTRED = np.eye(5) - 0.2
# Seeds of all parts of this benchmark; none was looked at while the estimator was written.
SALT = 2511
ROLLOUTS, PARTS = 50, 5
Features = Any


def policies_of(kind: str, hidden: int = 64) -> Any:
    return Table(HOME) if kind == "grid" else Network(HOME, hidden)


def watched(kind: str, seed: int, **options: Any) -> tuple[Any, Seen]:
    """Policies, and what agents with them did."""
    policies = policies_of(kind)
    rate = options.pop("rate", 0.1 if kind == "grid" else 0.02)
    return policies, learn(HOME, policies, rate=rate, seed=[seed, SALT], **options)


def known(policies: Any, colours: np.ndarray | None = None, names: Any = COLOURS) -> Features:
    """Features with the model known."""
    colours = HOME.colours if colours is None else colours
    names = names if len(names) == colours.shape[1] else ()
    start, discount, horizon = HOME.first, HOME.discount, HOME.horizon
    return onlooker.tabular(
        HOME.transitions, colours, start, discount, policy=policies.logits, horizon=horizon, names=names
    )


def rolled(policies: Any, seen: Seen, seed: int, count: int = ROLLOUTS, parts: int = PARTS) -> Features:
    """Features from paths that the agents did not take."""
    seen_paths = HOME.paths(policies.logits(seen.points), count, np.random.default_rng([seed, SALT, 1]))
    earned = HOME.colours[seen_paths.entered]
    return onlooker.paths(
        seen_paths.states,
        seen_paths.actions,
        earned,
        HOME.discount,
        policy=policies.logits,
        parts=parts,
        names=COLOURS,
    )


def explained(seen: Seen, gradients: Any = None, **options: Any) -> Explanation:
    gradients = seen.gradients if gradients is None else gradients
    with undelivered():
        return onlooker.explain(seen.points, gradients, agents=seen.agents, times=seen.times, **options)


def plain_of(features: Features, seen: Seen) -> np.ndarray:
    """The mean of rolled-out Jacobians, (n, dim, k), as LOGEL uses it."""
    return features.at(seen.points, np.arange(len(seen.points)))[1].mean(axis=0).swapaxes(1, 2)


def weights_of(why: Explanation) -> np.ndarray:
    """The weights without what cannot be known of them; nan if there are none."""
    return why.found.values[: len(why.names)]


def covered(why: Explanation, truth: np.ndarray = WEIGHTS) -> np.ndarray:
    """Whether each of the weights less their mean is in its interval; nan if nothing is said of it."""
    directions = np.zeros((5, len(why.found.values)))
    directions[:, :5] = CENTRED
    low, high = why.found.interval(directions)
    value = CENTRED @ truth
    return np.where(np.isnan(low), np.nan, (low <= value) & (value <= high))


def noticed(why: Explanation) -> bool:
    return "features-misfit" in {message.code for message in why.warnings}


def worlds_lost(w: np.ndarray, worlds: list[Grid]) -> float:
    return float(np.mean([world.regret(world.features() @ w) for world in worlds]))


def show(part: str, name: str, **figures: float) -> None:
    keep("explain", part=part, name=name, **figures)
    cells = "  ".join(f"{label} {value:.4g}" for label, value in figures.items())
    print(f"{part:<8}{name:<58}{cells}", flush=True)


def methods(kind: str, policies: Any, seen: Seen, seed: int) -> dict[str, Callable[[], Any]]:
    """Everybody who is given the same rows: weights, or an explanation."""
    rollouts = rolled(policies, seen, seed)
    plain = plain_of(rollouts, seen)
    rate = 0.1 if kind == "grid" else 0.02
    steps, each = rate * seen.gradients, np.full(len(plain), rate)
    policy = softmax(policies.logits(seen.points))
    own = policies.pull(seen.points, HOME.estimate(policies.logits(seen.points), seen.paths)[0])
    return {
        "ours, model known": lambda: explained(seen, features=known_once(policies, kind)),
        "ours, rolled out": lambda: explained(seen, features=rollouts),
        "must fail: ours, parts not told apart": lambda: explained(seen, jacobians=plain, names=COLOURS),
        "LOGEL, rolled out, rates known": lambda: logel(steps, plain, each),
        "LOGEL as published, rolled out": lambda: logel(steps, plain),
        "LOGEL, rates known, the learner's own paths": lambda: logel(steps, own, each),
        "LfL, policies and model exact": lambda: to_weights(HOME, lfl(HOME, policy, seen.agents, seen.times)),
    }


def softmax(logits: np.ndarray) -> np.ndarray:
    raised = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return raised / raised.sum(axis=-1, keepdims=True)


def errors(options: argparse.Namespace) -> None:
    worlds = elsewhere()
    for kind in ("grid", "network"):
        for seed in range(options.first, options.first + options.seeds):
            policies, seen = watched(kind, seed)
            for name, find in methods(kind, policies, seen, seed).items():
                began = time.perf_counter()
                why = find()
                seconds = time.perf_counter() - began
                w = weights_of(why) if isinstance(why, Explanation) else why
                figures = {"error": off(w), "worlds": worlds_lost(w, worlds), "s": seconds}
                if isinstance(why, Explanation):
                    figures |= {"cover": np.nanmean(covered(why)), "left": 1 - why.explained, "z": why.misfit}
                    figures |= {"reliability": why.reliability, "said": noticed(why)}
                show("errors", f"{kind}, seed {seed}: {name}", **figures)


COVER = {
    "grid 30 × 20, model known": ("grid", {}, False),
    "grid 30 × 20, rolled out": ("grid", {}, True),
    "network 30 × 20, model known": ("network", {}, False),
    "network 30 × 20, rolled out": ("network", {}, True),
    "grid 1 × 15, model known": ("grid", {"agents": 1, "steps": 15}, False),
    "grid 1 × 15, batch 5, model known": ("grid", {"agents": 1, "steps": 15, "batch": 5}, False),
}


def cover(options: argparse.Namespace) -> None:
    alarms = tested = 0
    for name, (kind, more, roll) in COVER.items():
        held, naive, error, runs = [], [], [], options.runs
        zs = []
        for seed in range(options.first, options.first + runs):
            policies, seen = watched(kind, 1000 + seed, **more)
            why = explained(seen, features=rolled(policies, seen, seed) if roll else known_once(policies, kind))
            held.append(covered(why))
            if kind == "network" and not roll:
                naive.append(one_number(seen, known_once(policies, kind)))
            error.append(off(weights_of(why)))
            zs.append(why.misfit)
            alarms, tested = alarms + noticed(why), tested + np.isfinite(why.misfit)
        show(
            "cover",
            f"{name}, {runs} runs",
            cover=np.nanmean(held),
            silent=np.isnan(held).mean(),
            error=np.median(error),
            z=np.nanmean(zs),
            sd_of_z=np.nanstd(zs),
        )
        if naive:
            show("cover", f"{name}: must fail: noise taken for one number", cover=np.mean(naive))
    show("cover", "right features called wrong", alarms=alarms, tested=tested, share=alarms / tested)


def one_number(seen: Seen, features: Features) -> np.ndarray:
    """`covered` by plain least squares whose errors take the noise for one number."""
    jacobians = features.at(seen.points, np.arange(len(seen.points)))[1][0]
    gram = np.einsum("nkd,nld->kl", jacobians, jacobians, optimize=True)
    inverse = np.linalg.pinv(gram, rcond=1e-9, hermitian=True)
    w = inverse @ np.einsum("nkd,nd->k", jacobians, seen.gradients, optimize=True)
    left = seen.gradients - np.einsum("nkd,k->nd", jacobians, w, optimize=True)
    error = np.sqrt(left.var() * np.einsum("ik,kl,il->i", CENTRED, inverse, CENTRED))
    return np.abs(CENTRED @ (w - WEIGHTS)) < 1.96 * error


_KNOWN: dict[str, tuple[Any, Features]] = {}


def known_once(policies: Any, kind: str) -> Features:
    """The same function for all runs, so that it is compiled once."""
    if kind not in _KNOWN:
        _KNOWN[kind] = policies, known(policies)
    return _KNOWN[kind][1]


def merged(one: int, other: int) -> np.ndarray:
    """Colours of which two are taken for one."""
    mix = np.eye(5)
    mix[:, one] += mix[:, other]
    return np.delete(mix, other, axis=1)


PLACE = np.stack([np.repeat(np.arange(5), 5), np.tile(np.arange(5), 5)], axis=1) / 4.0
WRONG: dict[str, np.ndarray] = {
    "right": HOME.colours,
    "right, one for each field": np.eye(25),
    "must fail: violet taken for grey": HOME.colours @ merged(2, 1),
    "must fail: pink taken for grey": HOME.colours @ merged(2, 3),
    "must fail: goal alone": HOME.colours[:, 4:],
    "must fail: where, not what": PLACE,
    "must fail: a discount of .7 for .96": HOME.colours,
}


def wrong(options: argparse.Namespace) -> None:
    for kind, size in (("grid", {"agents": 12, "steps": 15}), ("network", {"agents": 20, "steps": 12})):
        rows: dict[str, list[tuple[float, ...]]] = {}
        for seed in range(options.first, options.first + options.seeds):
            policies, seen = watched(kind, 2000 + seed, **size)
            for name, colours in WRONG.items():
                if kind == "network" and len(colours.T) == 25:
                    continue
                world = Grid(discount=0.7) if "discount" in name else HOME
                slopes = world.exact(policies.logits(seen.points), colours)[1]
                why = explained(seen, jacobians=policies.pull(seen.points, slopes))
                rows.setdefault(name, []).append((1 - why.explained, why.misfit, noticed(why)))
        for name, found in rows.items():
            left, z, said = np.mean(found, axis=0)
            show("wrong", f"{kind}: {name}", left=left, z=z, least_z=min(row[1] for row in found), said=said)
    uniform = np.linalg.solve(
        np.eye(25) - 0.96 * HOME.transitions.mean(axis=0), (HOME.features() @ WEIGHTS).mean(axis=1)
    )
    for seed in range(options.first, options.first + options.seeds):
        policies, seen = watched("grid", 3000 + seed, agents=12, steps=15, baseline=uniform[:, None])
        own = policies.pull(seen.points, HOME.estimate(policies.logits(seen.points), seen.paths)[0])
        why = explained(seen, jacobians=own)
        name = "must fail: own paths, the learner has a baseline of values"
        show("wrong", f"seed {seed}: {name}", error=off(weights_of(why)), z=why.misfit, said=noticed(why))
        policies, seen = watched("grid", 4000 + seed, agents=12, steps=15, decay=0.3)
        features = known_once(policies, "grid")
        why = explained(seen, features=features)
        value, error = why.suspects["weight decay"]
        show("wrong", f"seed {seed}: weight decay .3", error=off(weights_of(why)), decay=value, its_error=error)
        bare = plain_weights(features, seen)
        show("wrong", f"seed {seed}: must fail: weight decay .3 without the suspect", error=off(bare))
        alone = why.contrast(goal=1).value
        show("wrong", f"seed {seed}: must fail: a weight alone (nan)", goal=alone)


def plain_weights(features: Features, seen: Seen) -> np.ndarray:
    """Weights by `onlooker.fit.linear` without suspects."""
    from onlooker.fit.linear import begin_linear
    from onlooker.fit.linear_weights import solve_weights

    jacobians = features.at(seen.points, np.arange(len(seen.points)))[1]
    sums = begin_linear(jacobians, seen.gradients)
    sums.add(jacobians, seen.gradients, seen.agents, seen.times)
    return solve_weights(sums).values


def train(world: Grid, weights: np.ndarray, steps: int = 150) -> float:
    """The true return of a small network that climbs w·ψ in a world by its exact gradient."""
    policies = Network(world, 16, spread=0.3)
    place = policies.draw(1, np.random.default_rng(3))
    w = (weights - weights.mean()) / np.linalg.norm(weights - weights.mean())
    for _ in range(steps):
        gradient = policies.pull(place, world.exact(policies.logits(place))[1] @ w[:, None])[..., 0]
        place = place + 0.3 * gradient / max(np.linalg.norm(gradient), 0.3)
    return float(world.exact(policies.logits(place))[0][0] @ WEIGHTS)


def fresh(options: argparse.Namespace) -> None:
    worlds = elsewhere(8, seed=11)
    top = np.mean([train(world, WEIGHTS) for world in worlds])
    show("fresh", "trained on the true reward", earned=top)
    for seed in range(options.first, options.first + options.seeds):
        policies, seen = watched("grid", 5000 + seed, agents=12, steps=15)
        rollouts = rolled(policies, seen, 5000 + seed)
        plain = plain_of(rollouts, seen)
        policy = softmax(policies.logits(seen.points))
        found = {
            "ours, model known": weights_of(explained(seen, features=known_once(policies, "grid"))),
            "ours, rolled out": weights_of(explained(seen, features=rollouts)),
            "LOGEL, rolled out": logel(0.1 * seen.gradients, plain),
            "LfL": to_weights(HOME, lfl(HOME, policy, seen.agents, seen.times)),
        }
        for name, w in found.items():
            earned = np.mean([train(world, w) for world in worlds])
            show("fresh", f"seed {seed}: {name}", earned=earned, of_the_true=earned / top)


def jump(options: argparse.Namespace) -> None:
    """Agents of 30 steps, twelve rows each; the weights of pink and of the goal change at step 15."""
    later = np.array([0.0, -5.0, -1.0, 0.0, 4.0])
    for change in (None, (15, later)):
        false, found, errors_after = [], [], []
        for seed in range(options.first, options.first + options.runs):
            policies, seen = watched("grid", 7000 + seed, agents=12, steps=30, later=change)
            live = onlooker.Observer(TABLE, features=known_once(policies, "grid"), forgetting="adaptive")
            with undelivered():
                live.learn_many(seen.points, seen.gradients, seen.agents)
            at = [one.found for one in live.jumps]
            false.append(any(row <= 12 * 15 for row in at) if change else bool(at))
            if change:
                # The agents' step after the jump in which it was seen: twelve rows are one step.
                found.append(min((-(-(row - 12 * 15) // 12) for row in at if row > 12 * 15), default=np.inf))
                with undelivered():
                    errors_after.append(off(weights_of(live.explanation()), later))
        if change is None:
            show("jump", f"no jump, {options.runs} runs of 360 rows", false_alarms=np.mean(false))
            continue
        figures = {"false_alarms": np.mean(false), "seen": np.isfinite(found).mean(), "steps": np.median(found)}
        figures |= {"most_steps": max(found), "error_after": np.median(errors_after)}
        show("jump", f"two weights jump, {options.runs} runs", **figures)


TABLE = Table(HOME).dim


def rates(options: argparse.Namespace) -> None:
    for seed in range(options.first, options.first + options.seeds):
        true = 10 ** np.random.default_rng([seed, SALT]).uniform(-1.5, -0.5, 12)
        policies, seen = watched("grid", 6000 + seed, agents=12, steps=16, rate=true)
        with undelivered():
            why = onlooker.explain(
                seen.points, agents=seen.agents, times=seen.times, features=known_once(policies, "grid")
            )
        assert why.rates is not None
        found = np.array([why.rates[str(agent)] for agent in range(12)])
        steps = true[seen.agents][:, None] * seen.gradients
        jacobians = policies.pull(seen.points, HOME.exact(policies.logits(seen.points))[1])
        for name, w in (("ours", weights_of(why)), ("LOGEL, model known", logel(steps, jacobians))):
            centred, truth = CENTRED @ w, CENTRED @ WEIGHTS
            scaled = np.linalg.norm(centred * (centred @ truth) / (centred @ centred) - truth) / np.linalg.norm(truth)
            more = {"correlation_of_rates": np.corrcoef(found, true)[0, 1]} if name == "ours" else {}
            show("rates", f"seed {seed}: {name}", error_up_to_scale=scaled, **more)


def limit(options: argparse.Namespace) -> None:
    from onlooker.paper.cmdp import hidden_limit

    for seed in range(options.first, options.first + options.seeds):
        for name, figures in hidden_limit(seed).items():
            show("limit", f"seed {seed}: 200 agents × 30 steps, features {name}", **figures)


def large(options: argparse.Namespace) -> None:
    for hidden, rows in ((3334, 100), (33334, 20), (33334, 60)):
        policies = Network(HOME, hidden)
        seen = learn(HOME, policies, agents=rows // 10, steps=10, rate=0.5 / hidden, seed=[0, SALT])
        seen = seen._replace(
            points=seen.points.astype(np.float32), gradients=seen.gradients.astype(np.float32), paths=None
        )
        features = known(policies)
        for count in (1, 2, 4, 8, 16, 32, 64):
            # Compiled before the clock starts.
            features.at(seen.points[:count], np.arange(count))
            features.suspected(seen.points[:count])
        first = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began, used = time.perf_counter(), time.process_time()
        why = explained(seen, features=features)
        taken, used = (1000 * time_ / rows for time_ in (time.perf_counter() - began, time.process_time() - used))
        last = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        show(
            "large",
            f"{policies.dim:,} parameters, {rows} rows",
            ms_a_row=taken,
            of_a_processor=used,
            gib_more=(last - first) / 2**20,
            error=off(weights_of(why)),
            cover=np.nanmean(covered(why)),
        )


def main() -> None:
    every = {part.__name__: part for part in (errors, cover, wrong, fresh, jump, limit, rates, large)}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=every, default=list(every), help="parts")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds of single rows")
    parser.add_argument("--runs", type=int, default=40, help="number of runs of coverage")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first seed")
    options = parser.parse_args()
    warnings.simplefilter("ignore", onlooker.OnlookerWarning)
    for name in options.only:
        every[name](options)


if __name__ == "__main__":
    main()
