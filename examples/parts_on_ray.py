"""Chains in parts, each of them a task of Ray: one GPU each, or one processor if there is none.

    python examples/parts_on_ray.py [PARTS]

Parts know nothing of each other, so they may run on different machines, at different times, and again if one was lost.
Together they are the run that one device would have made: the same positions, draws and counts.
"""

import sys

import numpy as np
from onlooker.density import standard_normal

import onlooker
from onlooker.inverse import passive
from onlooker.workers.ray import on_ray

CHAINS, STEPS = 6000, 2000


def part_of_a_run(number: int, parts: int) -> onlooker.Chains:
    """One part; a function of this kind is all that Ray needs."""
    points = np.random.default_rng(0).standard_normal((50_000, 2)).astype(np.float32)
    stream = onlooker.recorded(onlooker.observe(points, -2 * points))
    learner = passive(standard_normal(2), step_size=0.01, bandwidth=0.5)
    grid = onlooker.Grid.cube(3.0, dim=2)
    return onlooker.run(learner, stream, steps=STEPS, chains=CHAINS, grid=grid, part=(number, parts), progress=False)


def main(parts: int) -> onlooker.Chains:
    """Run the parts as tasks, and join them."""
    import ray

    gpus = int(ray.cluster_resources().get("GPU", 0) > 0)
    with on_ray(gpus) as engine:
        return onlooker.Chains.joined(list(engine.each(part_of_a_run, range(parts), parts)))


if __name__ == "__main__":
    with on_ray():
        chains = main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
    print(f"{chains.chains} chains in parts, {chains.steps} steps each")
    print("R̂ at (0, 0) and (1, 0):", chains.reward([[0.0, 0.0], [1.0, 0.0]]).round(2))
