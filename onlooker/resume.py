"""Where a run stands, in a file: after a crash or Ctrl-C it goes on from there as if it had never been cut.

A block of steps has its own key (engine.py), so a run that ends with a block needs nothing but its arrays to go on, and
leaves the same behind, to the last bit.
"""

import hashlib
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from onlooker import checkpoint
from onlooker.engine import Plan, State, Sums
from onlooker.inverse.base import InverseLearner
from onlooker.observe.stream import Stream

__all__ = ["Moment", "Standing", "Survivor"]

# Seconds between two writings, at the least; and how many times longer than a writing takes.
SECONDS, SPARING = 20.0, 20.0


class Moment(NamedTuple):
    """A run as it was: after how many steps, where its chains stood, what was counted."""

    done: int
    positions: Any
    totals: Sums


class Standing(NamedTuple):
    """A run between two calls of the compiled loop."""

    done: int
    state: State
    trace: Any
    totals: Sums
    history: tuple[Moment, ...] = ()


class Survivor:
    """The file a run survives in.

    Parameters
    ----------
    path
        Written beside its place and renamed, so that it is always whole.
    learner, stream, plan, seed, steps, start
        Which run it is: the file of another one is refused. Functions are known by their settings only, data by their
        digest.
    """

    def __init__(
        self, path: Any, learner: InverseLearner, stream: Stream, plan: Plan, seed: int, steps: int, start: State
    ) -> None:
        self.path = Path(path)
        self.run = _fingerprint(learner, stream, plan, seed, steps, start)
        self.next = time.perf_counter() + SECONDS
        self.failure: OSError | None = None

    def standing(self, begun: Standing, moments: list[int]) -> Standing:
        """Where the run was left, or where it begins; ``moments`` are those it keeps."""
        if not self.path.exists():
            return begun
        arrays = checkpoint.read(self.path, "run")
        if str(arrays.pop("run", "")) != self.run:
            raise ValueError(
                f"{self.path} holds another run (other settings, seed, data or version); "
                "give another checkpoint, or delete it."
            )
        passed = sum(moment <= int(arrays["0"]) for moment in moments)
        like = begun._replace(history=(Moment(0, begun.state.positions, begun.totals),) * passed)
        leaves, structure = jax.tree.flatten(like)
        return jax.tree.unflatten(structure, [_restored(leaf, arrays[str(at)]) for at, leaf in enumerate(leaves)])

    def keep(self, standing: Standing, *, now: bool = False) -> None:
        """Write it down, from time to time. A full disk ends no run; ``failure`` says what the last time went wrong."""
        began = time.perf_counter()
        if not now and began < self.next:
            return
        leaves = {str(at): _plain(leaf) for at, leaf in enumerate(jax.tree.leaves(standing))}
        try:
            checkpoint.write(self.path, "run", checkpoint.packed({"run": np.asarray(self.run), **leaves}))
            self.failure = None
        except OSError as error:
            self.failure = error
        ended = time.perf_counter()
        self.next = ended + max(SECONDS, SPARING * (ended - began))


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _plain(leaf: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _restored(like: Any, array: np.ndarray) -> Any:
    if _is_key(like):
        return jax.random.wrap_key_data(jnp.asarray(array))
    return int(array) if isinstance(like, int) else array


def _fingerprint(learner: InverseLearner, stream: Stream, plan: Plan, seed: int, steps: int, start: State) -> str:
    numbers = (plan.chains, plan.width, plan.groups, plan.block, plan.thin, plan.trace_every, plan.burn_in)
    digest = hashlib.sha256()
    described = (learner.name, sorted(learner.settings.items()), numbers, plan.accumulators, plan.dtype, seed, steps)
    digest.update("|".join(map(str, described)).encode())
    for leaf in jax.tree.leaves((stream.data, start)):
        array = _plain(leaf)
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
