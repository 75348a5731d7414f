"""What an inverse learner is: a step written for one chain, and what it needs to be given.

``step(position, evidence, noise) -> (position, info)`` is a pure function. ``noise`` is standard normal, of shape
(noise_rows, dim), drawn by run.py. ``evidence`` is one of

* an `Observation` of the stream, or a pool of them (whatever the stream yields per step);
* the memory, when the learner has an ``update``: it is updated once per block, for all chains together;
* the answer to a question, an `Observation` at the point ``ask(position, noise)``, when the stream answers.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from onlooker.density import Density

__all__ = ["Info", "InverseLearner", "Step", "distance"]

Step = Callable[[Array, Any, Array], tuple[Array, "Info"]]


class Info(NamedTuple):
    """What a person wants to know about one step of one chain.

    Attributes
    ----------
    weight
        The weight the evidence had, K_Δ(θ − α) for the single-kernel learners, 1 for an answered question.
    distance
        From the chain to the nearest observation of this step.
    projected
        1 when the chain was pushed back by its confinement, else 0.
    """

    weight: Array
    distance: Array
    projected: Array


class InverseLearner(NamedTuple):
    """An inverse learner, ready to run.

    Attributes
    ----------
    name
        As in the tables of the docs.
    step
        The update of one chain.
    settings
        The numbers it was made with, for reports.
    density
        π, for the learners that assume the points come from it; run.py then tests that they do.
    noise_rows
        How many rows of standard normal noise a step takes.
    asks
        It needs answers at points of its own choosing; a stream of other people's gradients is refused.
    ask
        ``ask(position, noise)``: where a question is put; by default at the position.
    init, update
        ``init(dim)`` makes an empty memory, ``update(memory, observations)`` adds a block to it.
    check
        ``check(positions)`` raises when a chain must not start there.
    """

    name: str
    step: Step
    settings: Mapping[str, Any]
    density: Density | None = None
    noise_rows: int = 1
    asks: bool = False
    ask: Callable[[Array, Array], Array] = lambda position, noise: position
    init: Callable[[int], Any] = lambda dim: ()
    update: Callable[[Any, Any], Any] | None = None
    check: Callable[[np.ndarray], None] = lambda positions: None


def distance(point: Array, position: Array) -> Array:
    """‖θ − α‖ of one chain."""
    displacement = point - position
    return jnp.sqrt(jnp.sum(displacement * displacement))
