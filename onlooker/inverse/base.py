"""The interface of an inverse learner: a step of one chain, and declarations of what it needs.

``step(position, evidence, noise) -> (position, info)`` is a pure function. ``noise`` is standard normal, of shape
(noise_rows, dim), drawn by `engine.loop`. ``evidence`` is one of

* an `Observation` of the stream, or a pool of them (whatever the stream yields per step);
* the memory, when the learner has an ``update``: it is updated once per block, for all chains together;
* the stream's answer at the point ``ask(position, noise)``, when the stream answers questions.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from onlooker.core.density import Density
from onlooker.inverse.reports import FieldInfo, Info, PoolInfo

__all__ = ["EVIDENCE", "FieldInfo", "Info", "InverseLearner", "PoolInfo", "Step", "distance"]

# The kinds of evidence.
EVIDENCE = ("observation", "pool", "memory", "answers")
Step = Callable[[Array, Any, Array], tuple[Array, Any]]


class InverseLearner(NamedTuple):
    """An inverse learner, ready to run: its step, what the step needs and what it reports.

    Attributes
    ----------
    name
        Shown in reports; no code depends on it.
    step
        The update of one chain.
    settings
        Its settings, shown in reports and compared before a run continues from a checkpoint.
    density
        π, for learners that assume that the points come from it; `run` then tests whether they do.
    noise_rows
        Number of rows of standard normal noise that a step takes.
    ask
        ``ask(position, noise)`` returns the point at which to ask for a gradient; by default the position.
    init
        ``init(dim)`` returns an empty memory.
    update
        ``update(memory, observations, count)`` adds the first ``count`` rows of a block to the memory. The others lie
        past the end of the stream.
    info
        The type of its reports: `Info`, `PoolInfo`, `FieldInfo`, or another `inverse.reports.Report`.
    check
        ``check(positions)`` raises an error if a chain must not start at one of them.
    evidence
        What a step uses: "observation", one per step; "pool", several per step; "memory", the result of ``update``; or
        "answers", gradients at points that it chooses. `run` rejects a stream that does not offer it.
    plain_noise
        Whether its noise is √μ w, its drift half a gradient and μ its setting ``step_size``, so that a further term can
        be added to its drift.

    Examples
    --------
    A complete learner: Langevin dynamics in which the weight of an observation falls with its distance.

    >>> from onlooker import Observations, recorded, run
    >>> def trusting(*, step_size, reach):
    ...     def step(position, evidence, noise):
    ...         away = distance(evidence.point, position)
    ...         weight = jnp.exp(-away / reach)
    ...         moved = position + step_size / 2 * weight * evidence.gradient + step_size**0.5 * noise[0]
    ...         return moved, Info(weight, away, jnp.zeros(()))
    ...
    ...     return InverseLearner("trusting", step, {"step_size": step_size, "reach": reach}, plain_noise=True)
    >>> points = np.random.default_rng(0).standard_normal((4000, 2))
    >>> chains = run(trusting(step_size=0.05, reach=1.0), recorded(Observations(points, -points)), chains=8)
    >>> chains.learner, chains.steps, chains.diagnostics["kernel_ess"] > 100
    ('trusting', 4000, True)
    """

    name: str
    step: Step
    settings: Mapping[str, Any]
    density: Density | None = None
    noise_rows: int = 1
    ask: Callable[[Array, Array], Array] = lambda position, noise: position
    init: Callable[[int], Any] = lambda dim: ()
    update: Callable[[Any, Any, Array], Any] | None = None
    info: type[Any] = Info
    check: Callable[[np.ndarray], None] = lambda positions: None
    evidence: str = "observation"
    plain_noise: bool = False


def distance(point: Array, position: Array) -> Array:
    """‖θ − α‖ of one chain."""
    displacement = point - position
    return jnp.sqrt(jnp.sum(displacement * displacement))
