"""Read what agents want, in words, off their policies' gradients.

    python examples/explain.py [picture.png]

Thirty agents learn to walk in a world of coloured fields. Onlooker sees their policies and the gradients they take, but
not their rewards. It reads off what each colour is worth to them, with error bars, says what cannot be known, and what
else they follow. The same worth holds in worlds that nobody saw: a fresh agent walks one.
"""

import sys
import warnings
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

import onlooker
from onlooker.explanation.plots import draw_bars
from onlooker.simulation.grid import COLOURS, WEIGHTS, Grid, Network, Table, elsewhere, learn

WORLD = Grid()
POLICIES = Table(WORLD)
SHADES = {"R": "#d95f5f", "V": "#7570b3", "N": "0.8", "P": "#f2a6c8", "G": "#f5c518"}


def walk(world: Grid, weights: np.ndarray, steps: int = 150) -> tuple[np.ndarray, float]:
    """The fields that a fresh agent visits after it has learnt to climb w·ψ, and its true return."""
    policies = Network(world, 16, spread=0.3)
    place = policies.draw(1, np.random.default_rng(3))
    weights = weights / np.linalg.norm(weights)
    for _ in range(steps):
        gradient = policies.pull(place, world.exact(policies.logits(place))[1] @ weights[:, None])[..., 0]
        place = place + 0.3 * gradient / max(np.linalg.norm(gradient), 0.3)
    paths = world.paths(policies.logits(place), 1, np.random.default_rng(0))
    value = world.exact(policies.logits(place))[0][0] @ WEIGHTS
    return np.append(paths.states[0, 0], paths.entered[0, 0, -1]), float(value)


def draw_world(axes: Any, world: Grid, path: np.ndarray, title: str) -> None:
    size = len(world.layout)
    for x, row in enumerate(world.layout):
        for y, letter in enumerate(row):
            axes.add_patch(Rectangle((y - 0.5, x - 0.5), 1, 1, color=SHADES[letter], linewidth=0))
    rows, columns = np.divmod(path, size)
    shift = np.linspace(-0.15, 0.15, len(path))
    axes.plot(columns + shift, rows + shift, color="0.15", linewidth=1.2, marker=".", markersize=4)
    axes.plot(world.start[1], world.start[0], "o", color="0.15", markersize=8, fillstyle="none")
    axes.set_xlim(-0.5, size - 0.5)
    axes.set_ylim(size - 0.5, -0.5)
    axes.set_aspect("equal")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_title(title, fontsize=10)


def main(picture: str = "explain.png", agents: int = 30, steps: int = 20) -> dict[str, float]:
    warnings.simplefilter("ignore", onlooker.OnlookerWarning)
    # What is seen: policies and gradients. The rewards of the colours are hidden.
    seen = learn(WORLD, POLICIES, agents=agents, steps=steps, seed=8)

    psi = onlooker.tabular(
        WORLD.transitions,
        WORLD.colours,  # of the field that a move leads to
        WORLD.first,
        WORLD.discount,
        policy=POLICIES.logits,
        horizon=WORLD.horizon,
        names=COLOURS,
    )
    why = onlooker.explain(seen.points, seen.gradients, agents=seen.agents, times=seen.times, features=psi)
    print(why)
    goal, error = why.contrast(goal=1, grey=-1)
    print(f"the goal is worth {goal:.2f} ± {error:.2f} more than a grey field; the truth is 8")

    # A feature taken away: grey and violet fields look alike to whoever describes the world so.
    merged = np.delete(WORLD.colours + np.outer(WORLD.colours[:, 1], np.eye(5)[2]), 1, axis=1)
    jacobians = POLICIES.pull(seen.points, WORLD.exact(POLICIES.logits(seen.points), merged)[1])
    names = [name for name in COLOURS if name != "violet"]
    wrong = onlooker.explain(
        seen.points, seen.gradients, agents=seen.agents, times=seen.times, jacobians=jacobians, names=names
    )
    print("without violet:", *wrong.warnings, sep="\n  ")

    # The goal moves out of favour, live.
    later = np.array([0.0, -5.0, -1.0, 3.0, 0.0])
    moved = learn(WORLD, POLICIES, agents=12, steps=40, later=(20, later), seed=9)
    live = onlooker.Observer(POLICIES.dim, features=psi, forgetting="adaptive")
    when, course = [], []
    for step in range(40):
        rows = moved.times == step
        live.learn_many(moved.points[rows], moved.gradients[rows], moved.agents[rows])
        if live.seen >= 72:
            when.append(step)
            course.append(live.explanation().part_known)
    jumps = [round(jump.at / 12, 1) for jump in live.jumps]
    print("the rewards changed after step 20; seen after", [round(jump.found / 12, 1) for jump in live.jumps])

    # The same worth in a world that nobody saw.
    other = elsewhere(8, seed=11)[4]
    known = why.part_known[0]
    path, earned = walk(other, known)
    _, best = walk(other, WEIGHTS - WEIGHTS.mean())
    print(f"a fresh agent in a new world earns {earned:.2f} by the recovered reward, {best:.2f} by the true one")

    figure = Figure(figsize=(13, 7), layout="constrained")
    panels = figure.subplot_mosaic([["home", "bars", "bars"], ["other", "live", "live"]], width_ratios=[1, 1.2, 1.2])
    last = WORLD.paths(POLICIES.logits(seen.points[-1:]), 1, np.random.default_rng(1))
    draw_world(panels["home"], WORLD, np.append(last.states[0, 0], last.entered[0, 0, -1]), "one of the agents watched")
    draw_bars(panels["bars"], why, truth=WEIGHTS)
    panels["bars"].set_title("what they want", fontsize=10)
    draw_world(panels["other"], other, path, f"a fresh agent, a new world: {earned:.1f} of {best:.1f}")
    for number, name in enumerate(COLOURS):
        value, bar = (np.array([part[which][number] for part in course]) for which in (0, 1))
        shade = {"grey": "0.5"}.get(name, list(SHADES.values())[number])
        panels["live"].fill_between(when, value - 2 * bar, value + 2 * bar, color=shade, alpha=0.3, linewidth=0)
        panels["live"].plot(when, value, color=shade, label=name)
    for jump in jumps:
        panels["live"].axvline(jump, color="0.25", linestyle=":", linewidth=1)
    panels["live"].set_xlabel("step")
    panels["live"].set_title("live: the rewards change after step 20", fontsize=10)
    panels["live"].legend(fontsize=8, ncols=5, frameon=False)
    figure.savefig(picture, dpi=110)
    return {"goal": goal, "error": error, "misfit": wrong.misfit, "earned": earned, "best": best, "jumps": len(jumps)}


if __name__ == "__main__":
    main(*sys.argv[1:])
