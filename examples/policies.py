"""Reconstruct the reward that policy-gradient agents climb.

    python examples/policies.py [picture.png]

Five hundred agents learn to control a two-state process. Onlooker sees the coordinates of their policies and noisy
gradients, but not the transitions, the rewards, or the cost that they try to keep at its limit. It reconstructs the
reward they climb, with error bars, and the policy that maximises it.
"""

import sys

import numpy as np
from matplotlib.figure import Figure

import onlooker
from onlooker.simulation.agents import simulate
from onlooker.simulation.cmdp import two_states
from onlooker.simulation.policy_gradient import PolicyGradient, WeakDerivative


def main(picture: str = "policies.png") -> None:
    # The simulated world, which Onlooker does not see.
    world, angles = two_states(penalty=1e3), onlooker.policies.spherical(states=2, actions=2)
    agents = PolicyGradient(world, angles, WeakDerivative(horizon=300, every=10))
    log = simulate(agents, angles.uniform("coordinates"), agents=500, horizon=60, learning_rate=1e-4)

    # The reconstruction.
    result = onlooker.reconstruct(
        log.points, log.gradients, agents=log.agents, times=log.times, coordinates=angles, measure="policy"
    )
    wanted = angles.policy(result.maximum())
    print("they want to take action 1 with probability", wanted[:, 0].round(3), "in states 1 and 2")
    print(*result.warnings, sep="\n")

    # The truth.
    axis = np.linspace(0, 1, 201)
    first = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)
    policies = np.stack([first, 1 - first], axis=-1)
    reward = world.penalised(policies)
    best = np.array(np.unravel_index(reward.argmax(), reward.shape)) / 200
    print(
        "what they climb is highest at",
        best,
        "; the linear programme's optimum is",
        world.optimum().policy[:, 0].round(3),
    )
    places = angles.point(policies).reshape(-1, 2)
    found, error = result.reward(places).reshape(reward.shape), result.reward_error(places).reshape(reward.shape)
    high = reward > reward.max() - 8
    apart = (found - reward)[high]
    print(f"R̂ − R near the maximum: standard deviation {apart.std():.3f}, error bars {np.median(error[high]):.3f}")

    figure = Figure(figsize=(12, 4), layout="constrained")
    panels = figure.subplots(1, 3, sharex=True, sharey=True)
    shares = angles.policy(log.points.astype(float))[..., 0]
    for agent in range(60):
        panels[0].plot(*shares[log.agents == agent].T, linewidth=0.8, color="#1f77b4", alpha=0.7)
    panels[0].plot(*shares[log.times == 0][:60].T, ".", color="#1f77b4", markersize=4)
    panels[0].set_title("what is seen: 60 of 500 agents", fontsize=11)
    levels = np.linspace(-30, 0, 16)
    for axes, values, title in ((panels[1], found, "what they climb: R̂"), (panels[2], reward, "the truth: R")):
        below = np.clip(values - np.nanmax(values), -30, 0)
        shown = axes.contourf(axis, axis, below.T, levels=levels, cmap="magma")
        axes.set_title(title, fontsize=11)
    panels[1].plot(
        *wanted[:, 0], "*", color="#1b9e77", markersize=14, markeredgecolor="white", label="max R̂", clip_on=False
    )
    panels[2].plot(*best, "*", color="#1b9e77", markersize=14, markeredgecolor="white", label="max R", clip_on=False)
    for axes in panels:
        axes.set_xlabel("φ(1|1)")
        axes.set_ylabel("φ(1|2)")
        axes.set_aspect("equal")
    for axes in panels[1:]:
        axes.legend(loc="lower right", fontsize=9)
    figure.colorbar(shown, ax=panels, label="below the maximum")
    figure.savefig(picture, dpi=110)


if __name__ == "__main__":
    main(*sys.argv[1:])
