"""Record an optax optimizer's steps θ_k and g_k = −∂loss/∂θ, by a transformation that passes gradients on unchanged.

    recorder = Recorder("runs/", agent=0)
    optimizer = optax.chain(recorder.transformation, optax.sgd(0.1))
    for step in range(steps):
        parameters, state = train(parameters, state)  # jitted, scanned, as you like
        if step % 16 == 15:
            recorder.collect(state)
    recorder.close(state)

Rows are kept in the optimizer's state, on the device, and collected from there: a callback into Python inside a
compiled step would take as long as several steps. Put the transformation first in the chain, where updates are still
the loss's gradients.
"""

from collections.abc import Hashable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.flatten_util import ravel_pytree

from onlooker.core.deprecated import renamed
from onlooker.core.messages import Message, deliver
from onlooker.core.settings import check_whole
from onlooker.data.log.writer import LogWriter
from onlooker.data.optimizer import Optimizer, as_optimizer
from onlooker.data.projection import Projection
from onlooker.data.trainer import Trainer

__all__ = ["Recorded", "Recorder"]

# The default number of rows kept in the state: NUMBERS values (64 KiB of float32), within MOST and FEWEST rows.
NUMBERS = 1 << 14
MOST, FEWEST = 1 << 8, 1 << 4


class Recorded(NamedTuple):
    """The last steps, points and ascent gradients (rows, dim), and the number of steps so far."""

    points: Array
    gradients: Array
    steps: Array


class Recorder:
    """Write the steps of an optax optimizer to a log.

    Parameters
    ----------
    log
        A folder, or a `LogWriter`, which several agents may share.
    agent
        The name of the agent. For optimizers under ``vmap``, the number of the first agent; the others follow it.
    rows
        The largest number of steps between two calls of ``collect``; default: 16 to 256, fewer for more parameters.
    projection
        Record only these directions.
    optimizer
        The optimizer that follows in the chain, for the log: a name such as "sgd" or "adam".
    learning_rate
        Its learning rate, for the log.
    weight_decay
        λ of a decay that follows in the chain, for the log.
    decoupled
        Whether that decay is beside the step, as in `optax.adamw`; otherwise it is added to the gradient.
    before
        The transformation that follows the recorder's; ``recorder.optimizer`` is the chain of the two.
    """

    @renamed(optimiser="optimizer")
    def __init__(
        self,
        log: Any,
        *,
        agent: Hashable | None = None,
        rows: int | None = None,
        projection: Projection | None = None,
        optimizer: Optimizer | str | None = None,
        learning_rate: float | None = None,
        weight_decay: float = 0.0,
        decoupled: bool = False,
        before: optax.GradientTransformation | None = None,
    ) -> None:
        if rows is not None:
            check_whole(rows=rows)
        self._owned = not isinstance(log, LogWriter)
        self.log = LogWriter(log) if self._owned else log
        self.log.describe(
            learning_rate=learning_rate,
            optimizer=None if optimizer is None else as_optimizer(optimizer),
            source="optax: loss gradients, turned into ascent gradients",
        )
        self.agent, self.rows, self.projection = agent, rows, projection
        self.log.along(projection)
        self._decay = float(weight_decay), bool(decoupled)
        self.lost = 0
        self._before = before
        self._collected = 0

    @property
    def optimizer(self) -> optax.GradientTransformation:
        """The optimizer to train with: the recorder's transformation, then ``before`` if it was given."""
        return self.transformation if self._before is None else optax.chain(self.transformation, self._before)

    @property
    def transformation(self) -> optax.GradientTransformation:
        """The transformation that records; put it first in a chain."""

        def init(parameters: Any) -> Recorded:
            point = self._along(parameters, origin=True)
            dim = point.shape[0]
            rows = self.rows or int(np.clip(NUMBERS // dim, FEWEST, MOST))
            room = jnp.zeros((rows, dim), point.dtype)
            return Recorded(room, room, jnp.zeros((), jnp.int32))

        def update(updates: Any, state: Recorded, parameters: Any = None) -> tuple[Any, Recorded]:
            if parameters is None:
                raise ValueError("parameters are not given; call optimizer.update(gradients, state, parameters).")
            row = state.steps % state.points.shape[0]
            points = state.points.at[row].set(self._along(parameters, origin=True))
            gradients = state.gradients.at[row].set(-self._along(updates, origin=False))
            return updates, Recorded(points, gradients, state.steps + 1)

        return optax.GradientTransformation(init, update)

    def _along(self, tree: Any, origin: bool) -> Array:
        flat = ravel_pytree(tree)[0]
        if flat.dtype not in (jnp.float32, jnp.float64):
            flat = flat.astype(jnp.float32)
        if self.projection is None:
            return flat
        start = jnp.asarray(self.projection.origin, flat.dtype) if origin else 0
        return jnp.asarray(self.projection.directions, flat.dtype) @ (flat - start)

    def collect(self, state: Any) -> int:
        """Write the steps since the last call and return their number; steps that were overwritten add to ``lost``."""
        states = [
            leaf
            for leaf in jax.tree.leaves(state, is_leaf=lambda part: isinstance(part, Recorded))
            if isinstance(leaf, Recorded)
        ]
        if len(states) != 1:
            raise ValueError(f"state contains {len(states)} recorders; give the state of a chain with this one alone.")
        points, gradients, counts = (np.asarray(part) for part in states[0])
        points, gradients = (part.reshape(-1, *part.shape[-2:]) for part in (points, gradients))
        room = points.shape[1]
        if self._decay[0]:
            dim = points.shape[-1]
            many = dim if self.projection is None else self.projection.directions.shape[1]
            parameters = 0 if self.projection is None else many
            pieces = ((many, self._decay[0]),)
            self.log.describe_trainer(Trainer(decay=pieces, decoupled=self._decay[1], parameters=parameters))
        ended = int(counts.max())
        # Fewer steps than before mean that another run has begun.
        begun = self._collected if ended >= self._collected else 0
        first = max(begun, ended - room)
        if first > begun:
            self.lost += first - begun
            text = (
                f"{first - begun} steps were not recorded: at most {room} fit between two calls of collect. Call it "
                "more often, or give a larger rows."
            )
            deliver([Message("steps-lost", text, {"lost": first - begun})])
        if ended > first:
            steps = np.arange(first, ended)
            # In the order of the steps; within a step, all optimizers under vmap.
            ordered = (part[:, steps % room].swapaxes(0, 1).reshape(-1, part.shape[-1]) for part in (points, gradients))
            self.log.add_many(
                *ordered, agents=self._agents(len(points), len(steps)), times=np.repeat(steps, len(points))
            )
        self._collected = ended
        return ended - first

    def _agents(self, count: int, steps: int) -> Any:
        if count == 1:
            return None if self.agent is None else [self.agent] * steps
        start = 0 if self.agent is None else self.agent
        if not isinstance(start, int):
            raise ValueError(
                f"agent is {start!r} but {count} optimizers run under vmap; give the number of the first agent."
            )
        return np.tile(start + np.arange(count), steps)

    def close(self, state: Any = None) -> None:
        """Collect from the state, if it is given, and close a log that this recorder opened."""
        if state is not None:
            self.collect(state)
        if self._owned:
            self.log.close()
