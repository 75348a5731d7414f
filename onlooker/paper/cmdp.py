"""Example 3: what policy-gradient agents climb in a constrained Markov decision process (fig:mdp).

tv_angles and tv_policies are total variations on 20 × 20 bins of (φ(1|1), φ(1|2)), to exp(R) dα and to exp(R) dφ;
sd_of_cost is the standard deviation of B over the samples, rms_of_reward that of R̂ − R where R is within 8 of its
maximum.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import jax.numpy as jnp
import numpy as np

from onlooker.core.messages import undelivered
from onlooker.core.policies import Coordinates, spherical
from onlooker.data.observations import Observations
from onlooker.engine.run import run
from onlooker.explanation.explain import explain
from onlooker.fit.cosine_potential import CosinePotential
from onlooker.fit.memory import binned
from onlooker.inverse import classical, on_policies, remembered, replay
from onlooker.paper import cmdp_figures as figures
from onlooker.paper.ridge_tour import (
    QUARTER,
    STEPS,
    folded_learner,
    listing_learner,
    listing_policies,
    listing_pools,
    tour,
)
from onlooker.paper.rows import Row, at_least, at_most, between
from onlooker.reconstruction.by_replay import frozen, mirrored, silence
from onlooker.reconstruction.reconstruct import reconstruct
from onlooker.reconstruction.result import Reconstruction
from onlooker.simulation.agents import questions, simulate
from onlooker.simulation.cmdp import CMDP, five_states, two_states
from onlooker.simulation.policy_gradient import PolicyGradient, WeakDerivative
from onlooker.simulation.reward import NoisyReward

__all__ = ["PRESETS", "reproduce"]

PRESETS = ("listing", "corrected")
ANGLES = spherical(2, 2)
BINS = 20
# Cells per axis of the square of angles on which laws are integrated: the ridge is about ten cells wide.
FINE = 3000
# R̂ is compared with R where R is within this of its maximum, where exp(R) has its mass.
DEPTH = 8.0
# Limits for 1e5 gradients from paths of 1000 steps, by penalty: rms_of_reward of `potential`, tv_angles of `replay`.
SAMPLED_ACCEPT = {1e3: 0.12, 1e4: 0.7}
REPLAYED_ACCEPT = {1e3: 0.06, 1e4: 0.15}
# A quick run has half as many gradients, and √2 times the error.
QUICK_FACTOR = 1.5


@dataclass
class Square:
    """The exact laws of the two-state example on the square of policies."""

    cmdp: CMDP

    @cached_property
    def laws(self) -> dict[str, np.ndarray]:
        """Masses on 100 × 100 bins of (φ(1|1), φ(1|2)): of exp(R) dα, "angles", and exp(R) dφ, "policies"."""
        axis = (np.arange(FINE) + 0.5) * QUARTER / FINE
        top = self.cmdp.penalised(self.cmdp.optimum().policy)
        masses = {name: np.zeros((5 * BINS, 5 * BINS)) for name in ("angles", "policies")}
        for rows in np.array_split(axis, 30):
            places = np.stack(np.meshgrid(rows, axis, indexing="ij"), axis=-1).reshape(-1, 2)
            policy = ANGLES.policy(places)
            mass = np.exp(self.cmdp.penalised(policy) - top)
            masses["angles"] += _counts(policy, 5 * BINS, mass)
            masses["policies"] += _counts(policy, 5 * BINS, mass * np.exp(ANGLES.log_volume(places)))
        return {name: mass / mass.sum() for name, mass in masses.items()}

    @property
    def coarse_laws(self) -> tuple[np.ndarray, np.ndarray]:
        """Both laws on 20 × 20 bins."""
        return _coarse(self.laws["angles"]), _coarse(self.laws["policies"])

    def distances(self, policies: np.ndarray) -> dict[str, float]:
        """tv_angles, tv_policies and sd_of_cost of samples (…, 2, 2)."""
        share = _counts(policies.reshape(-1, 2, 2), BINS)
        share /= share.sum()
        metrics = {f"tv_{name}": 0.5 * float(np.abs(share - _coarse(mass)).sum()) for name, mass in self.laws.items()}
        return {**metrics, "sd_of_cost": float(self.cmdp.values(policies.reshape(-1, 2, 2))[:, 1].std())}

    def error(self, result: Reconstruction) -> dict[str, float]:
        """rms_of_reward of a reconstruction, and the share of places where R̂ is not given."""
        axis = (np.arange(500) + 0.5) * QUARTER / 500
        places = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
        truth = self.cmdp.penalised(ANGLES.policy(places))
        high = truth > truth.max() - DEPTH
        error = result.reward(places[high]) - truth[high]
        return {"rms_of_reward": float(np.nanstd(error)), "unexplored": float(np.isnan(error).mean())}


def _counts(policies: np.ndarray, bins: int, weights: np.ndarray | None = None) -> np.ndarray:
    return np.histogram2d(policies[:, 0, 0], policies[:, 1, 0], bins, [[0, 1], [0, 1]], weights=weights)[0]


def _coarse(mass: np.ndarray) -> np.ndarray:
    return mass.reshape(BINS, 5, BINS, 5).sum(axis=(1, 3))


def reproduce(preset: str | None, quick: bool, seed: int, folder: Path) -> Iterator[Row]:
    """Run the rows of a preset (by default of both) and draw the figures."""
    square = Square(two_states())
    figures.rewards(square.cmdp, folder / "cmdp-reward.png")
    if preset in (None, "listing"):
        yield from _listing(square, quick, seed, folder)
    if preset in (None, "corrected"):
        yield from _corrected(square, quick, seed, folder)


def _listing(square: Square, quick: bool, seed: int, folder: Path) -> Iterator[Row]:
    """Single chains, each on its own pools; only the second half of each counts, as in the listing."""
    runs = 5 if quick else 20
    paths = {}
    for name, learner in (("as printed", listing_learner()), ("folded", folded_learner())):
        chains = _quietly(
            run,
            learner,
            listing_pools(square.cmdp),
            steps=STEPS,
            chains=runs,
            seed=seed,
            start=np.ones(2),
            thin=1,
            draws=STEPS,
            label=f"multikernel, {name}",
        )
        angles = chains.samples.astype(float)
        paths[name] = angles
        each = [square.distances(listing_policies(path[STEPS // 2 :])) for path in angles]
        metrics = {metric: float(np.mean([distances[metric] for distances in each])) for metric in each[0]}
        passages = tour(angles)
        metrics |= {
            "resets": chains.diagnostics.get("resets", 0) / runs,
            "passages_along": passages.along / runs,
            "passages_back": passages.back / runs,
            "share_back_by_reset": passages.back_by_reset / max(passages.back, 1),
        }
        settings = {**chains.settings, "runs": runs, "steps": STEPS, "seconds": round(chains.seconds, 2)}
        if name == "as printed":
            accept = {"tv_angles": between(0.4, 0.6), "sd_of_cost": between(0.009, 0.013)}
            yield Row("multikernel, the listing as printed", metrics, accept, settings)
        else:
            accept = {"tv_angles": at_least(0.9), "passages_back": at_most(0.2)}
            yield Row("multikernel, the listing folded at both ends, without its resets", metrics, accept, settings)
    figures.path(square.cmdp, paths["as printed"][0], folder / "cmdp-path.png")
    second_half = listing_policies(paths["as printed"][:, STEPS // 2 :]).reshape(-1, 2, 2)
    figures.densities(
        {"the listing": _counts(second_half, 5 * BINS), "exact exp(R) dα": square.laws["angles"]},
        folder / "cmdp-listing.png",
    )


def _corrected(square: Square, quick: bool, seed: int, folder: Path) -> Iterator[Row]:
    samples = {}
    for measure, name in (("coordinates", "replay"), ("policy", "replay, with the Jacobian's drift")):
        row, samples[measure] = _replayed(square, measure, name, quick, seed)
        yield row
    figures.densities(
        {
            "replay: exp(R) dα": _counts(samples["coordinates"], 5 * BINS),
            "exact exp(R) dα": square.laws["angles"],
            "replay: exp(R) dφ": _counts(samples["policy"], 5 * BINS),
            "exact exp(R) dφ": square.laws["policies"],
        },
        folder / "cmdp-density.png",
    )
    yield _fitted(square, seed)
    for penalty in (1e3,) if quick else tuple(SAMPLED_ACCEPT):
        yield from _sampled(penalty, quick, seed)
    yield from _explained(seed, quick)
    if not quick:
        yield _larger(seed)


def _exact_gradients(cmdp: CMDP, count: int, seed: int) -> Observations:
    points = np.random.default_rng(seed).uniform(0, QUARTER, (count, 2))
    return Observations(points, ANGLES.pull(points, cmdp.penalised_gradient(ANGLES.policy(points))))


def _replayed(square: Square, measure: str, name: str, quick: bool, seed: int) -> tuple[Row, np.ndarray]:
    """A hundred chains on the field of 5e5 exact gradients, with the listing's number of steps."""
    seen = _exact_gradients(square.cmdp, 500_000, seed)
    both, _ = mirrored(seen, np.zeros(len(seen), bool), ANGLES.interval)
    low, high = both.points.min(axis=0), both.points.max(axis=0)
    memory = binned(low.tolist(), high.tolist(), cells=256)
    settings: dict[str, Any] = {"step_size": 2e-5, "variant": "fourth order"}
    learner = replay(memory, **settings, state=remembered(memory, both.points, both.gradients))
    chains = _quietly(
        run,
        on_policies(frozen(learner), ANGLES, measure),
        silence(2),
        steps=STEPS,
        burn_in=STEPS // 2,
        chains=100,
        seed=seed,
        start=seen.points[:100],
        draws=STEPS // 8,
        label=name,
    )
    policies = ANGLES.policy(chains.samples.astype(float)).reshape(-1, 2, 2)
    kept = {**chains.settings, "observations": len(seen), "chains": 100, "steps": STEPS, "quick": quick}
    accept = {"sd_of_cost": between(0.0022, 0.0028)}
    if measure == "coordinates":
        accept = {"tv_angles": at_most(0.04), "tv_policies": at_least(0.2), **accept}
    else:
        accept = {"tv_policies": at_most(0.04), "tv_angles": at_least(0.2), **accept}
    kept["seconds"] = round(chains.seconds, 2)
    metrics = {**square.distances(policies), "laws_apart": 0.5 * float(np.abs(np.subtract(*square.coarse_laws)).sum())}
    return Row(name, metrics, accept, kept), policies


def _fitted(square: Square, seed: int) -> Row:
    seen = _exact_gradients(square.cmdp, 300, seed)
    began = time.perf_counter()
    result = _quietly(reconstruct, seen.points, seen.gradients, coordinates=ANGLES, method="potential", seed=seed)
    law = cast(CosinePotential, result.fitted).law(1.0)
    share = _counts(ANGLES.policy(law.low + law.width / 2), BINS, law.mass)
    variation = 0.5 * float(np.abs(share - _coarse(square.laws["angles"])).sum())
    settings = {"observations": len(seen), "seconds": round(time.perf_counter() - began, 2)}
    accept = {"rms_of_reward": at_most(0.05), "tv_angles": at_most(0.01)}
    return Row("potential, 300 exact gradients", {**square.error(result), "tv_angles": variation}, accept, settings)


def _sampled(penalty: float, quick: bool, seed: int) -> Iterator[Row]:
    """Gradients from paths of 1000 steps, at points drawn evenly over the square of angles."""
    square = Square(two_states(penalty))
    count = 50_000 if quick else 100_000
    began = time.perf_counter()
    learners = PolicyGradient(square.cmdp, ANGLES, WeakDerivative(horizon=1000))
    seen = simulate(
        learners, ANGLES.uniform("coordinates"), agents=count, horizon=1, learning_rate=1 / penalty, seed=seed
    )
    simulated = time.perf_counter() - began
    for method in ("potential", "replay"):
        began = time.perf_counter()
        result = _quietly(reconstruct, seen.points, seen.gradients, coordinates=ANGLES, method=method, seed=seed)
        metrics = {**square.error(result), **square.distances(result.policies)}
        settings = {
            "penalty": penalty,
            "observations": count,
            "simulation_seconds": round(simulated, 2),
            "seconds": round(time.perf_counter() - began, 2),
            "quick": quick,
        }
        limit = (SAMPLED_ACCEPT if method == "potential" else REPLAYED_ACCEPT)[penalty]
        metric = "rms_of_reward" if method == "potential" else "tv_angles"
        accept = {metric: at_most(QUICK_FACTOR * limit if quick else limit)}
        if penalty <= 1e3:
            # At larger penalties the noise is not small against the distance between the two laws.
            accept["tv_policies"] = at_least(0.2)
        yield Row(f"{method}, sampled gradients, penalty {penalty:.0e}", metrics, accept, settings)


def hidden_limit(seed: int, agents: int = 200, steps: int = 30, penalty: float = 1e3) -> dict[str, dict[str, float]]:
    """The limit and the penalty that agents keep to, read off their gradients, for two sets of features.

    R = J − λ(B − limit)² is linear in J, B and B²: −w(B)/2w(B²) is the limit and −w(B²)/w(J) the penalty. By the
    rule of the derivative, the limit's error is that of w(B) + 2 limit w(B²), divided by 2w(B²).
    """
    world = two_states(penalty)
    learners = PolicyGradient(world, ANGLES, WeakDerivative(horizon=300, every=10))
    start = ANGLES.uniform("coordinates")
    seen = simulate(learners, start, agents=agents, horizon=steps, learning_rate=0.1 / penalty, seed=seed)

    def values(angles: Any) -> Any:
        reward, cost = world.values(ANGLES.policy(angles))
        return jnp.stack([reward, cost, cost**2])

    found = {}
    for name, psi, names in (
        ("J, B and B²", values, ("J", "B", "B²")),
        ("J alone", lambda angles: values(angles)[:1], ("J",)),
    ):
        points, gradients = seen.points.astype(float), seen.gradients.astype(float)
        options = {"agents": seen.agents, "times": seen.times, "features": psi, "names": names}
        why = _quietly(explain, points, gradients, **options)
        metrics = {"explained": why.explained, "misfit": why.misfit}
        if len(names) == 3:
            reward, cost, square = why.weights
            limit = -cost / (2 * square)
            error = why.contrast({"B": 1, "B²": 2 * limit}).error / abs(2 * square)
            metrics |= {"limit": limit, "limit_error": error, "penalty": -square / reward, "reward_weight": reward}
        found[name] = {name: float(value) for name, value in metrics.items()}
    return found


def _explained(seed: int, quick: bool) -> Iterator[Row]:
    """What `explain` reads off 6,000 gradients of agents that keep a limit, which nobody told it."""
    began = time.perf_counter()
    found = hidden_limit(seed, agents=100 if quick else 200)
    settings = {"seconds": round(time.perf_counter() - began, 2), "quick": quick}
    accept = {
        "limit": between(0.985, 1.015) if quick else between(0.99, 1.01),
        "penalty": between(700, 1400) if quick else between(800, 1250),
        "explained": at_least(0.9),
    }
    yield Row("explain, features J, B and B²", found["J, B and B²"], accept, settings)
    wrong = {"explained": at_most(0.7), "misfit": at_least(3)}
    yield Row("explain, must fail: feature J alone", found["J alone"], wrong, settings)


def _larger(seed: int) -> Row:
    """Five states, three actions, two constraints: R̂ from running agents, and the policy at its maximum."""
    cmdp, angles = five_states(), spherical(5, 3)
    learners = PolicyGradient(cmdp, angles, WeakDerivative(horizon=500, every=10))
    seen = simulate(learners, angles.uniform("coordinates"), agents=2000, horizon=50, learning_rate=2e-3, seed=seed)
    began = time.perf_counter()
    result = _quietly(
        reconstruct,
        seen.points,
        seen.gradients,
        agents=seen.agents,
        times=seen.times,
        coordinates=angles,
        measure="policy",
        seed=seed,
    )
    best = angles.policy(_quietly(result.maximum))
    seconds = time.perf_counter() - began
    places = _exact_places(cmdp, angles, seed)
    error = result.reward(places) - cmdp.penalised(angles.policy(places))
    values = cmdp.values(best)
    metrics = {
        "rms_of_reward": float(np.nanstd(error)),
        "unexplored": float(np.isnan(error).mean()),
        # The linear programme's optimum under the same costs, less the value of this policy.
        "behind_optimum": cmdp.but(limit=values[1:]).optimum().value - float(values[0]),
        "rhat": result.diagnostics["rhat"],
    }
    settings = {"penalty": cmdp.penalty, "observations": len(seen), "seconds": round(seconds, 2)}
    accept = {"rms_of_reward": at_most(0.13), "behind_optimum": at_most(0.3)}
    return Row("potential, five states, sampled gradients", metrics, accept, settings)


def _exact_places(cmdp: CMDP, coordinates: Coordinates, seed: int) -> np.ndarray:
    """Samples of exp(R) dφ, from chains with exact gradients."""
    random = np.random.default_rng(seed)
    exact = NoisyReward(coordinates.dim, lambda place: cmdp.penalised(coordinates.policy(place)), 0.0)
    chains = _quietly(
        run,
        on_policies(classical(step_size=1e-3), coordinates, "policy"),
        questions(exact),
        steps=40_000,
        burn_in=20_000,
        chains=100,
        seed=seed,
        start=coordinates.point(random.dirichlet(np.ones(coordinates.actions), (100, coordinates.states))),
        draws=20,
        label="exact gradients",
    )
    return chains.samples.reshape(-1, coordinates.dim).astype(float)


def _quietly(function: Any, *arguments: Any, **options: Any) -> Any:
    """Call a function without delivering its warnings: rows hold what matters. Ctrl-C in a run ends the example."""
    with undelivered():
        result = function(*arguments, **options)
    if getattr(result, "interrupted", False):
        raise KeyboardInterrupt
    return result
