"""Record an optax optimiser's steps: θ_k and g_k = −∂loss/∂θ, by a transformation that hands gradients on as they are.

    recorder = Recorder("runs/", agent=0)
    optimiser = optax.chain(recorder.transformation, optax.sgd(0.1))
    for step in range(steps):
        parameters, state = train(parameters, state)  # jitted, scanned, as you like
        if step % 16 == 15:
            recorder.collect(state)
    recorder.close(state)

Rows are kept in the optimiser's state, on the device, and collected from there: a call back into Python in the middle
of a compiled step would cost several steps' time. Put it first in the chain, where gradients are still the loss's.
"""

import warnings
from collections.abc import Hashable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.flatten_util import ravel_pytree

from onlooker.check import check_whole
from onlooker.observe.optimiser import Optimiser, as_optimiser
from onlooker.observe.projection import Projection
from onlooker.observe.writer import LogWriter
from onlooker.warning import OnlookerWarning

__all__ = ["Recorded", "Recorder"]

# Numbers of the rows that wait in the state, and how many rows that is at the most and at the least.
NUMBERS = 1 << 14
MOST, FEWEST = 1 << 8, 1 << 4


class Recorded(NamedTuple):
    """The last steps: points and ascent gradients (rows, dim), and how many there have been."""

    points: Array
    gradients: Array
    steps: Array


class Recorder:
    """Writes the steps of an optax optimiser to a log.

    Parameters
    ----------
    log
        A folder, or a `LogWriter`.
    agent
        Whose steps they are. Of optimisers that run side by side under ``vmap``, the first one's number: the others
        count on from it.
    rows
        Steps there is room for between two calls of ``collect``; by default 16 to 256, fewer of more parameters.
    projection
        Watch only these directions.
    optimiser, learning_rate
        What follows in the chain, for the log to say: a name such as "sgd" or "adam", and its rate.
    """

    def __init__(
        self,
        log: Any,
        *,
        agent: Hashable | None = None,
        rows: int | None = None,
        projection: Projection | None = None,
        optimiser: Optimiser | str | None = None,
        learning_rate: float | None = None,
    ) -> None:
        if rows is not None:
            check_whole(rows=rows)
        self._owned = not isinstance(log, LogWriter)
        self.log = LogWriter(log) if self._owned else log
        self.log.describe(
            learning_rate=learning_rate,
            optimiser=None if optimiser is None else as_optimiser(optimiser),
            source="optax: loss gradients, turned into ascent gradients",
        )
        self.agent, self.rows, self.projection = agent, rows, projection
        self.lost = 0
        self._collected = 0

    @property
    def transformation(self) -> optax.GradientTransformation:
        """To be the first of a chain."""

        def init(parameters: Any) -> Recorded:
            point = self._along(parameters, origin=True)
            dim = point.shape[0]
            rows = self.rows or int(np.clip(NUMBERS // dim, FEWEST, MOST))
            room = jnp.zeros((rows, dim), point.dtype)
            return Recorded(room, room, jnp.zeros((), jnp.int32))

        def update(updates: Any, state: Recorded, parameters: Any = None) -> tuple[Any, Recorded]:
            if parameters is None:
                raise ValueError("parameters are not given; call optimiser.update(gradients, state, parameters).")
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
        """Write down the steps since the last time, and say how many; those that found no more room are counted."""
        found = [
            leaf
            for leaf in jax.tree.leaves(state, is_leaf=lambda part: isinstance(part, Recorded))
            if isinstance(leaf, Recorded)
        ]
        if len(found) != 1:
            raise ValueError(f"the state holds {len(found)} recorders; give that of a chain with this one in it.")
        points, gradients, counts = (np.asarray(part) for part in found[0])
        points, gradients = (part.reshape(-1, *part.shape[-2:]) for part in (points, gradients))
        room = points.shape[1]
        ended = int(counts.max())
        # Fewer steps than before are those of another run.
        begun = self._collected if ended >= self._collected else 0
        first = max(begun, ended - room)
        if first > begun:
            self.lost += first - begun
            warnings.warn(
                f"{first - begun} steps were not recorded: there is room for {room} between two calls of collect. "
                "Call it more often, or give rows.",
                OnlookerWarning,
                stacklevel=2,
            )
        if ended > first:
            steps = np.arange(first, ended)
            # Step by step, at each of them all that run side by side.
            ordered = (part[:, steps % room].swapaxes(0, 1).reshape(-1, part.shape[-1]) for part in (points, gradients))
            self.log.add_many(
                *ordered, agents=self._agents(len(points), len(steps)), times=np.repeat(steps, len(points))
            )
        self._collected = ended
        return ended - first

    def _agents(self, side_by_side: int, steps: int) -> Any:
        if side_by_side == 1:
            return None if self.agent is None else [self.agent] * steps
        start = 0 if self.agent is None else self.agent
        if not isinstance(start, int):
            raise ValueError(
                f"agent is {start!r} but {side_by_side} optimisers run side by side; give the first number."
            )
        return np.tile(start + np.arange(side_by_side), steps)

    def close(self, state: Any = None) -> None:
        """Collect once more, if the state is given, and write all of it."""
        if state is not None:
            self.collect(state)
        if self._owned:
            self.log.close()
