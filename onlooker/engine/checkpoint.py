"""The checkpoint of a run, from which it continues after a crash or Ctrl-C as if it had never stopped.

A block of steps has its own key (loop.py), so a run that stopped at the end of a block needs only its arrays to
continue, and ends with the same positions, draws and counts, to the last bit.
"""

import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onlooker.core.messages import Message
from onlooker.engine.identity import Identity, plain
from onlooker.engine.state import Moment, RunState
from onlooker.storage import state_file
from onlooker.storage.trees import named_leaves

__all__ = ["RunFile"]

# Least seconds between two writes, the most work that a crash loses; and the least multiple of the seconds that a write
# takes, which keeps writing below a twentieth of the run.
SECONDS, SPARING = 20.0, 20.0


class RunFile:
    """The checkpoint file of a run.

    Parameters
    ----------
    path
        Where it is; a write replaces it whole or not at all.
    identity
        Identifies the run; the file of another run is rejected.
    begun
        The run before its first step.
    moments
        The steps at which snapshots are taken.
    steps
        Number of steps of the whole run.
    """

    def __init__(self, path: Any, identity: Identity, begun: RunState, moments: list[int], steps: int) -> None:
        self.path = Path(path)
        self.identity, self.begun, self.moments, self.steps = identity, begun, moments, steps
        self.next = time.perf_counter() + SECONDS
        self.failure: OSError | None = None
        self.warnings: list[Message] = []

    def resumed(self) -> RunState:
        """The run as the file has it, or at its beginning if there is no file."""
        if not self.path.exists():
            self.keep(self.begun, now=True)
            if self.failure is not None:
                raise ValueError(f"checkpoint {self.path} cannot be written ({self.failure}); give another path.")
            return self.begun
        arrays = state_file.read(self.path, "run")
        text = str(arrays.pop("run", ""))
        # Version 0.1 wrote one digest instead of JSON.
        older = not text.startswith("{")
        if not older:
            self._compare(text)
        run = self._unpacked(arrays)
        if older:
            self._compare_older(run)
        return run

    def _compare(self, text: str) -> None:
        differing, unsure = self.identity.differences(text)
        if differing:
            raise ValueError(
                f"{self.path} holds another run (it differs in {', '.join(differing)}); give another checkpoint, or "
                "delete it."
            )
        if unsure:
            text = (
                f"{self.path} was written with another version of JAX or Onlooker, whose compiled functions cannot be "
                "compared: settings, shapes, seed and data are the same. Delete the file if the learner's functions "
                "have changed."
            )
            self.warnings.append(Message("program-changed", text))

    def _compare_older(self, run: RunState) -> None:
        """Compare what a file of version 0.1 allows to compare: its digest is of a program that is printed no more."""
        state, begun = run.state, self.begun.state
        if not (np.array_equal(plain(state.key), plain(begun.key)) and np.array_equal(state.about, plain(begun.about))):
            raise ValueError(f"{self.path} holds another run (seed or start); give another checkpoint, or delete it.")
        text = (
            f"{self.path} was written by version 0.1, which did not record settings and data: only shapes, seed and "
            "start could be compared. Delete the file unless it is of this learner on these data."
        )
        self.warnings.append(Message("checkpoint-unverified", text))

    def _unpacked(self, arrays: dict[str, np.ndarray]) -> RunState:
        # Version 0.1 numbered the arrays.
        done = arrays.get("done", arrays.get("0", np.zeros(0)))
        if done.shape != () or done.dtype.kind not in "iu" or not 0 <= done <= self.steps:
            raise ValueError(f"{self.path} is damaged: it does not say how far the run got; delete it.")
        passed = sum(moment <= done for moment in self.moments)
        before = Moment(0, self.begun.state.positions, self.begun.totals)
        like = self.begun._replace(history=(before,) * passed)
        leaves = named_leaves(like)
        numbered = {str(number): name for number, name in enumerate(leaves)}
        arrays = {numbered.get(name, name): array for name, array in arrays.items()}
        kinds = {name: (plain(leaf).shape, plain(leaf).dtype.kind) for name, leaf in leaves.items()}
        if {name: (array.shape, array.dtype.kind) for name, array in arrays.items()} != kinds:
            raise ValueError(f"{self.path} is damaged: it holds other arrays than this run has; delete it.")
        restored = [_restored(leaf, arrays[name]) for name, leaf in leaves.items()]
        return jax.tree.unflatten(jax.tree.structure(like), restored)

    def keep(self, run: RunState, *, now: bool = False) -> None:
        """Save if the interval has elapsed. A failed write does not stop the run; the error is kept in ``failure``."""
        began = time.perf_counter()
        if not now and began < self.next:
            return
        leaves = {name: plain(leaf) for name, leaf in named_leaves(run).items()}
        try:
            content = state_file.packed({"run": np.asarray(self.identity.text()), **leaves})
            state_file.write(self.path, "run", content)
            self.failure = None
        except OSError as error:
            self.failure = error
        ended = time.perf_counter()
        self.next = ended + max(SECONDS, SPARING * (ended - began))


def _restored(like: Any, array: np.ndarray) -> Any:
    if isinstance(like, jax.Array) and jax.dtypes.issubdtype(like.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.asarray(array))
    return int(array) if isinstance(like, int) else array
