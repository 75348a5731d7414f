"""Runs of three learners on this process's devices, as digests: what one device, several, and parts must have alike.

XLA_FLAGS=--xla_force_host_platform_device_count=4 python -m tests.support.on_devices PARTS
"""

import hashlib
import json

import jax
import numpy as np

import onlooker
from onlooker import inverse
from onlooker.core.density import standard_normal
from onlooker.engine.devices import Devices
from onlooker.fit.memory import binned

# Neither a multiple of the groups nor of a block.
CHAINS, STEPS = 3500, 700


def learners() -> dict[str, inverse.InverseLearner]:
    """One that steps by each observation, one that weighs it, and one with a memory."""
    given = {"step_size": 0.01, "bandwidth": 0.5}
    return {
        "passive": inverse.passive(standard_normal(2), **given),
        "reweighted": inverse.reweighted(standard_normal(2), **given),
        "replay": inverse.replay(binned(low=(-4, -4), high=(4, 4)), step_size=0.02),
    }


def digests(learner: inverse.InverseLearner, parts: int) -> dict[str, str]:
    """Digests of positions, samples and counts of a run in so many parts."""
    points = np.random.default_rng(0).standard_normal((5000, 2)).astype(np.float32)
    stream = onlooker.recorded(onlooker.observe(points, (-2 * points).astype(np.float32)))
    options = {
        "steps": STEPS,
        "chains": CHAINS,
        "grid": onlooker.Grid.cube(4.0, 2, bins=12),
        "marginals": onlooker.Marginals(-4.0, 4.0, bins=6, per_chain=True),
        "snapshots": 2,
    }
    cut = [{"part": (number, parts)} for number in range(parts)] if parts > 1 else [{}]
    made = [onlooker.run(learner, stream, **options, **part) for part in cut]
    chains = onlooker.Chains.joined(made) if parts > 1 else made[0]
    assert chains.histogram is not None
    assert chains.marginals is not None
    arrays = {
        "positions": chains.positions,
        "samples": chains.samples,
        "counts": chains.histogram.counts.astype(np.int64),
        "per chain": np.array([[one.counts for one in chain] for chain in chains.marginals]).astype(np.int64),
        "snapshots": np.stack([moment.positions for moment in chains.history]),
    }
    found = {
        what: hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16] for what, array in arrays.items()
    }
    return {**found, "chains": str(chains.chains), "mean": f"{chains.mean.round(4) + 0.0}"}


def main() -> None:
    found: dict[str, object] = {"devices": len(jax.local_devices())}
    several = Devices.for_run
    for name, learner in learners().items():
        runs = {"spread": digests(learner, 1)}
        Devices.for_run = lambda plan, first: None
        runs |= {"alone": digests(learner, 1), "parts": digests(learner, 3)}
        Devices.for_run = several
        found[name] = runs
    print(json.dumps(found))


if __name__ == "__main__":
    main()
