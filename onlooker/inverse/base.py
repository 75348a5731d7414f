"""What an inverse learner is: a step written for one chain, and what it needs to be given.

``step(position, evidence, noise) -> (position, info)`` is a pure function. ``noise`` is standard normal, of shape
(noise_rows, dim), drawn by engine.py. ``evidence`` is one of

* an `Observation` of the stream, or a pool of them (whatever the stream yields per step);
* the memory, when the learner has an ``update``: it is updated once per block, for all chains together;
* the answer to a question, what the stream answers at the point ``ask(position, noise)``, when it does.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from onlooker.density import Density

__all__ = ["FieldInfo", "Info", "InverseLearner", "PoolInfo", "Step", "distance"]

Step = Callable[[Array, Any, Array], tuple[Array, Any]]


class Info(NamedTuple):
    """What a person wants to know about one step of one chain.

    Attributes
    ----------
    weight
        The weight the evidence had: K_Δ(θ − α) for the single-kernel learners, the ratio K_Δ/p for `active`, 1 for
        `classical`.
    distance
        From the chain to the observation of this step.
    projected
        1 when the chain was pushed back by its confinement, else 0.
    """

    weight: Array
    distance: Array
    projected: Array


class PoolInfo(NamedTuple):
    """The same when a step is shown a pool.

    Attributes
    ----------
    kernel_ess
        (Σw)²/Σw² of the pool's weights: how many of its observations count.
    distance
        From the chain to the nearest observation of the pool.
    projected
        1 when the chain was pushed back by its confinement, else 0.
    empty
        1 when the kernel reached no observation and there was no drift.
    reset
        1 when the chain was begun again.
    """

    kernel_ess: Array
    distance: Array
    projected: Array
    empty: Array
    reset: Array


class FieldInfo(NamedTuple):
    """What a step on a remembered field reports.

    Attributes
    ----------
    kernel_ess
        Effective neighbours behind the gradient.
    bandwidth
        The one it took, in the points' units (the mean over axes), after widening.
    projected
        1 outside the box, where the gradient is that of its edge and a pull back.
    """

    kernel_ess: Array
    bandwidth: Array
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
        ``init(dim)`` makes an empty memory, ``update(memory, observations, count)`` adds a block to it: its first
        ``count`` rows, the others are past the end of the record.
    info
        What its steps report.
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
    update: Callable[[Any, Any, Array], Any] | None = None
    info: type[Info] | type[PoolInfo] | type[FieldInfo] = Info
    check: Callable[[np.ndarray], None] = lambda positions: None


def distance(point: Array, position: Array) -> Array:
    """‖θ − α‖ of one chain."""
    displacement = point - position
    return jnp.sqrt(jnp.sum(displacement * displacement))
