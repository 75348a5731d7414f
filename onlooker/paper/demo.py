"""A demonstration of ten seconds: learners climb a reward, and R̂ is compared with the truth."""

import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from onlooker.core.density import standard_normal
from onlooker.core.messages import undelivered
from onlooker.paper import figures
from onlooker.reconstruction import plots
from onlooker.reconstruction.reconstruct import reconstruct
from onlooker.simulation.agents import simulate
from onlooker.simulation.reward import NoisyReward

__all__ = ["demo"]

# R = log(.4 N(θ; left) + .6 N(θ; right)) up to a constant, and the noise of its gradients.
HILLS, SHARES, WIDTHS, NOISE = np.array([[-0.9, -0.5], [0.8, 0.6]]), (0.4, 0.6), (0.35, 0.45), 2.0
# Learners, their steps and learning rate, and where they start.
AGENTS, HORIZON, RATE, SPREAD = 5000, 20, 0.01, 1.0
# Places along each axis, how far out, and how far below the maximum R is judged and drawn.
PLACES, FAR, DEPTH = 81, 2.4, 8.0
# Chains of the paper's learner.
CHAINS = 64


def hills(point: Array) -> Array:
    """R."""
    share, width = jnp.asarray(SHARES), jnp.asarray(WIDTHS)
    squared = jnp.sum((point[None] - jnp.asarray(HILLS)) ** 2, axis=1) / width**2
    return jax.scipy.special.logsumexp(jnp.log(share / width**2) - squared / 2)


def demo(folder: Path, say: Callable[[str], None] = print, seed: int = 0, agents: int = AGENTS) -> Path:
    """Run it, print R̂ beside R, and draw overview.png in ``folder``."""
    density = standard_normal(2, SPREAD)
    reward = NoisyReward(2, hills, NOISE)
    seen = simulate(reward, density, agents=agents, horizon=HORIZON, learning_rate=RATE, seed=seed)
    say(f"{agents:,} learners climb a reward that stays hidden: {len(seen):,} points and noisy gradients are seen.")
    began = time.perf_counter()
    result = reconstruct(seen.points, seen.gradients, agents=seen.agents, seed=seed)
    took = time.perf_counter() - began

    value = jax.jit(jax.vmap(hills))
    axis = np.linspace(-FAR, FAR, PLACES)
    places = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    real = np.asarray(value(places), float)
    top = places[real.argmax()]
    high = (real > real.max() - DEPTH) & result.explored(places)
    found = result.reward(places)
    # R̂ is known up to a constant: the one that fits best near the top.
    level = float(np.mean(found[high] - real[high])) + real.max()
    missed = found[high] - level - (real[high] - real.max())
    covered = float(np.mean(np.abs(missed) < 2 * result.reward_error(places[high])))
    say(
        f"reconstruct took {took:.1f} s. Where R is within {DEPTH:g} of its maximum, R̂ is off by "
        f"{np.sqrt(np.mean(missed**2)):.2f} (root mean square),\n"
        f"and {covered:.0%} of the places are within two of its standard errors.\n"
    )
    mass = np.exp(real - real.max()) / np.exp(real - real.max()).sum()
    mean = mass @ places
    flat = result.samples.reshape(-1, 2)
    rows = {
        "highest at": (result.maximum(), top),
        "mean of exp(R)": (flat.mean(axis=0), mean),
        "its standard deviation": (flat.std(axis=0), np.sqrt(mass @ (places - mean) ** 2)),
    }
    say(f"{'':<24}{'Onlooker':>18}{'truth':>18}")
    for name, (ours, true) in rows.items():
        say(f"{name:<24}{_pair(ours):>18}{_pair(true):>18}")
    left = np.linalg.norm(flat - HILLS[0], axis=1) < np.linalg.norm(flat - HILLS[1], axis=1)
    really = mass @ (np.linalg.norm(places - HILLS[0], axis=1) < np.linalg.norm(places - HILLS[1], axis=1))
    say(f"{'share of the left hill':<24}{left.mean():>18.2f}{really:>18.2f}")

    with undelivered():
        paper = reconstruct(seen, method="passive", density=density, chains=CHAINS, seed=seed)
    theirs = paper.reward(places)
    theirs = theirs - np.nanmax(theirs) if np.isfinite(theirs).any() else theirs
    along = np.linspace(-1.2, 2.2, 200)
    line = HILLS[0] + along[:, None] * (HILLS[1] - HILLS[0])
    slices = result.reward(line) - level, result.reward_error(line), np.asarray(value(line), float) - real.max()
    figure = figures.demonstration(
        (np.asarray(seen.points), np.asarray(seen.gradients)),
        (axis, axis),
        (found - level, real - real.max(), theirs),
        (along * float(np.linalg.norm(HILLS[1] - HILLS[0])), *slices),
        DEPTH,
    )
    return plots.save(figure, folder / "overview.png", dpi=110)


def _pair(both: np.ndarray) -> str:
    return f"({both[0]:.2f}, {both[1]:.2f})"
