"""A reward that jumps, watched live.

    python examples/tracking.py [picture.png]

A hundred agents climb the same hidden reward, which changes twice at unknown times. The Observer sees only points and
noisy gradients. It detects both changes, forgets the rows before them, and has the new reward a few hundred
observations later, with error bars.
"""

import sys

import numpy as np
from matplotlib.figure import Figure

import onlooker
from onlooker.core.density import standard_normal
from onlooker.simulation.agents import record, running_pools
from onlooker.simulation.reward import NoisyReward
from onlooker.simulation.switching import Scheduled

PEAKS = (-1.0, 1.0, 0.3)
AGENTS, STEPS = 100, 900


def hill(peak: float) -> NoisyReward:
    return NoisyReward(1, lambda x: -2 * (x[0] - peak) ** 2 - 0.5 * x[0] ** 4, noise_scale=10.0)


def main(picture: str = "tracking.png") -> None:
    # The simulated world, which the Observer does not see.
    world = Scheduled(tuple(map(hill, PEAKS)), times=(300, 600), regimes=(0, 1, 2))
    agents = running_pools(world, standard_normal(1, 1.5), AGENTS, learning_rate=0.02, horizon=30)
    log = next(record(agents, STEPS))

    # The Observer.
    live = onlooker.Observer(dim=1, forgetting="adaptive")
    places = np.linspace(-2.5, 2.5, 101)
    shown = {}
    for first in range(0, len(log), 500):
        rows = slice(first, first + 500)
        live.learn_many(log.points[rows], log.gradients[rows], log.agents[rows])
        if live.seen in (30_000, 30_500, 40_000, 60_500, 90_000):
            shown[live.seen] = (live.reward(places), live.reward_error(places))
    for jump in live.jumps:
        print(f"the reward jumped at observation {jump.at}, noticed at {jump.found}")
    print(f"R̂ is worth {live.effective_observations:.0f} observations")

    figure = Figure(figsize=(13, 3.2), layout="constrained")
    for axes, (seen, (found, error)) in zip(figure.subplots(1, len(shown), sharey=True), shown.items(), strict=True):
        peak = PEAKS[(seen - 1) // (300 * AGENTS)]
        truth = -2 * (places - peak) ** 2 - 0.5 * places**4
        axes.plot(places, truth - truth.max(), color="0.25", linewidth=3, alpha=0.5, label="the reward")
        # R̂ has a free constant: it is chosen so that both agree where the reward is high.
        high = np.isfinite(found) & (truth > truth.max() - 4)
        found = found - np.mean((found - truth)[high]) - truth.max()
        axes.plot(places, found, color="#1f77b4", label="R̂ ± 2 errors")
        axes.fill_between(places, found - 2 * error, found + 2 * error, color="#1f77b4", alpha=0.25)
        axes.set_title(f"after {seen:,} observations", fontsize=10)
        axes.set_xlabel("θ")
        axes.set_ylim(-20, 3)
    figure.axes[0].set_ylabel("reward, its maximum = 0")
    figure.axes[0].legend(loc="lower center", fontsize=8)
    figure.savefig(picture, dpi=110)
    print(f"the picture is in {picture}")


if __name__ == "__main__":
    main(*sys.argv[1:])
