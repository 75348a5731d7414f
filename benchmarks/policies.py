"""Policy gradients and chains on policies: bias, noise and cost; coordinates; stuck agents; speed.

    python -m benchmarks.policies [--only estimators]

estimators: at a point on the ridge of the paper's CMDP (penalty 1e5, paths of 1000 steps): bias in standard errors of
100 000 estimates, deviation·√steps, and seconds for 1e5 estimates, with two batches and with one.
coordinates: steps of exact gradient ascent from the same 200 policies until R is within 1 of the best that any reached,
at the best of several learning rates, for angles and for logits.
stuck: the share of 300 exact agents that end below the best of them, with the constraints and without.
speed: the listing's loop with one and a hundred chains, relative to GNU Octave's 1250 iterations a second.
"""

import argparse
import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy.optimize import brentq

from benchmarks.figures import keep
from onlooker.core.policies import Coordinates, softmax, spherical
from onlooker.engine.run import OnlookerWarning, run
from onlooker.paper.ridge_tour import listing_learner, listing_pools
from onlooker.simulation.cmdp import CMDP, five_states, two_states
from onlooker.simulation.policy_gradient import PolicyGradient, Score, Spsa, WeakDerivative, assess

OCTAVE = 1250
ESTIMATES = 100_000


def estimators() -> None:
    cmdp, angles = two_states(), spherical(2, 2)
    second = brentq(lambda a: cmdp.values(angles.policy(np.array([1.3, a])))[1] - 1, 0.5, 1.4)
    place = np.array([1.3, second])
    print(f"{'estimator':34} batches  bias/error   deviation   steps  dev·√steps  s for 1e5")
    for name, estimator in (
        ("score function, window None", Score(window=None)),
        ("score function, window 50", Score()),
        ("weak derivative", WeakDerivative()),
        ("SPSA", Spsa()),
        ("SPSA, own numbers", Spsa(common=False)),
    ):
        for batches in (2, 1):
            reward = PolicyGradient(cmdp, angles, estimator, batches)
            found = assess(reward, place, ESTIMATES)
            off = (found.mean - found.exact) / found.error
            seconds = _seconds(reward, 1e5)
            keep(
                "estimator", who=name, batches=batches, off=float(abs(off).max()), work=found.work, seconds_1e5=seconds
            )
            print(
                f"{name:34} {batches:7d} {off[0]:6.1f} {off[1]:5.1f} {found.deviation:11.0f} {found.steps:7.0f} "
                f"{found.work:11.3g} {seconds:10.1f}",
                flush=True,
            )


def _seconds(reward: PolicyGradient, estimates: float) -> float:
    batch = 4000
    many = jax.jit(jax.vmap(reward.sample_gradient))
    points = reward.coordinates.uniform().sample(jax.random.key(0), (batch,))  # type: ignore[misc]
    jax.block_until_ready(many(points, jax.random.split(jax.random.key(1), batch)))
    began = time.perf_counter()
    jax.block_until_ready(many(points, jax.random.split(jax.random.key(2), batch)))
    return (time.perf_counter() - began) * estimates / batch


def climb(cmdp: CMDP, coordinates: Coordinates, policies: np.ndarray, rate: float, steps: int) -> np.ndarray:
    """R of exact gradient ascent from policies, (steps, agents)."""
    value = jax.vmap(lambda point: cmdp.penalised(coordinates.policy(point)))
    slope = jax.vmap(jax.grad(lambda point: cmdp.penalised(coordinates.policy(point))))
    rule = optax.sgd(rate)

    def step(points, _):
        update, _ = rule.update(-slope(points), rule.init(points))
        return points + update, value(points)

    start = jnp.asarray(coordinates.point(policies), jnp.float32)
    return np.asarray(jax.jit(lambda points: jax.lax.scan(step, points, None, length=steps)[1])(start))


def coordinates() -> None:
    print(f"{'problem':28} {'coordinates':10} best rate   median steps to within 1 of the best agent's R")
    for name, cmdp in (
        ("two states, penalty 1e3", two_states(1e3)),
        ("two states, penalty 1e4", two_states(1e4)),
        ("five states, penalty 100", five_states()),
    ):
        policies = np.random.default_rng(0).dirichlet(np.ones(cmdp.actions), (200, cmdp.states))
        heights = {
            (make(cmdp.states, cmdp.actions).name, rate): climb(
                cmdp, make(cmdp.states, cmdp.actions), policies, rate, 3000
            )
            for make in (spherical, softmax)
            for rate in (4 / cmdp.penalty * 2.0 ** np.arange(-4, 9)).tolist()
        }
        top = max(np.nanmax(height) for height in heights.values())
        for kind in ("spherical", "softmax"):
            best = (np.inf, 0.0)
            for (coordinates, rate), height in heights.items():
                close = height > top - 1
                reached = np.where(close.any(axis=0), close.argmax(axis=0), np.inf)
                if coordinates == kind:
                    best = min(best, (float(np.median(reached)), rate))
            keep("coordinates", problem=name, kind=kind, steps=best[0])
            print(f"{name:28} {kind:10} {best[1]:9.2g}   {best[0]:.0f}", flush=True)


def stuck() -> None:
    policies = np.random.default_rng(0).dirichlet(np.ones(3), (300, 5))
    for name, cmdp, rate in (
        ("constrained, penalty 1e3", five_states(penalty=1e3), 2e-3),
        ("not constrained", five_states(penalty=0.0), 0.1),
    ):
        ends = climb(cmdp, spherical(5, 3), policies, rate, 20_000)[-1].astype(float)
        below = ends < ends.max() - 0.2
        levels, counts = np.unique(np.round(ends, 1), return_counts=True)
        common = ", ".join(f"{level:.1f} ({count})" for level, count in zip(levels, counts, strict=True) if count >= 3)
        optimum = cmdp.optimum(constrained=cmdp.penalty > 0)
        keep("stuck", who=name, share=float(below.mean()))
        print(
            f"{name}: best R {ends.max():.2f}, stuck {below.mean():.0%}\n"
            f"  R at the end (agents): {common}, others ({counts[counts < 3].sum()})\n"
            f"  LP optimum: J = {optimum.value:.2f}, randomised in {optimum.randomised} states",
            flush=True,
        )


def speed() -> None:
    pools, learner = listing_pools(two_states()), listing_learner()
    for chains in (1, 100):
        for _ in range(2):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", OnlookerWarning)
                found = run(learner, pools, steps=100_000, chains=chains, start=np.ones(2))
        rate = found.diagnostics["chain_steps_per_second"]
        times = rate / OCTAVE
        keep("listing's loop", chains=chains, rate=rate, octave_ratio=times)
        print(f"listing's loop, {chains:3d} chains: {rate:9.0f} iterations/s, {times:.0f} × GNU Octave's {OCTAVE}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {"estimators": estimators, "coordinates": coordinates, "stuck": stuck, "speed": speed}
    parser.add_argument("--only", choices=list(parts))
    chosen = parser.parse_args().only
    for name, part in parts.items():
        if chosen in (None, name):
            print(f"\n{name}")
            part()


if __name__ == "__main__":
    main()
