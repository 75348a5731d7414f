"""Where a run stands, in a file: after a crash or Ctrl-C it goes on from there as if it had never been cut.

A block of steps has its own key (engine.py), so a run that ends with a block needs nothing but its arrays to go on, and
leaves the same positions, draws and counts behind, to the last bit.
"""

import hashlib
import re
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr

import onlooker
from onlooker import checkpoint
from onlooker.engine import Plan, State, Sums, advance
from onlooker.observe.stream import Stream

__all__ = ["Moment", "Standing", "Survivor"]

# Seconds between two writings, at the least; and how many times longer than a writing takes.
SECONDS, SPARING = 20.0, 20.0
ADDRESS = re.compile("0x[0-9a-f]+")


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
    plan, stream, begun, zeros, moments, steps
        Which run it is: the file of another one is refused. What is compiled for it is looked at, so that another
        density, region or reward is another run; only of a Python function that answers questions the name is all there
        is to know.
    """

    def __init__(
        self, path: Any, plan: Plan, stream: Stream, begun: Standing, zeros: Sums, moments: list[int], steps: int
    ) -> None:
        self.path = Path(path)
        self.begun, self.moments, self.steps = begun, moments, steps
        self.run = _fingerprint(plan, stream, begun, zeros, moments, steps)
        self.next = time.perf_counter() + SECONDS
        self.failure: OSError | None = None

    def standing(self) -> Standing:
        """Where the run was left, or where it begins."""
        if not self.path.exists():
            self.keep(self.begun, now=True)
            if self.failure is not None:
                raise ValueError(f"checkpoint {self.path} cannot be written ({self.failure}); give another place.")
            return self.begun
        arrays = checkpoint.read(self.path, "run")
        if str(arrays.pop("run", "")) != self.run:
            raise ValueError(
                f"{self.path} holds another run (other settings, functions, data, seed or versions); "
                "give another checkpoint, or delete it."
            )
        done = arrays.get("0", np.zeros(0))
        if done.shape != () or done.dtype.kind not in "iu" or not 0 <= done <= self.steps:
            raise ValueError(f"{self.path} is damaged: it does not say how far the run got; delete it.")
        passed = sum(moment <= done for moment in self.moments)
        before = Moment(0, self.begun.state.positions, self.begun.totals)
        leaves, structure = jax.tree.flatten(self.begun._replace(history=(before,) * passed))
        kinds = {str(at): (_plain(leaf).shape, _plain(leaf).dtype.kind) for at, leaf in enumerate(leaves)}
        if {name: (array.shape, array.dtype.kind) for name, array in arrays.items()} != kinds:
            raise ValueError(f"{self.path} is damaged: it holds other arrays than this run has; delete it.")
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


def _constants(program: Any) -> Iterator[Any]:
    """Of a jaxpr and of all inside it: what is printed of it does not show them."""
    yield from getattr(program, "consts", ())
    for equation in getattr(program, "jaxpr", program).eqns:
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=_is_program):
            if _is_program(value):
                yield from _constants(value)


def _is_program(value: Any) -> bool:
    return isinstance(value, Jaxpr | ClosedJaxpr)


def _fingerprint(plan: Plan, stream: Stream, begun: Standing, zeros: Sums, moments: list[int], steps: int) -> str:
    """A digest of the program, its constants and all that it starts from; addresses in memory are left out."""
    program = jax.make_jaxpr(partial(advance, plan))(stream.data, begun.state, begun.trace, zeros, np.int32(steps))
    versions = (onlooker.__version__, jax.__version__, jax.default_backend())
    digest = hashlib.sha256()
    for part in (*versions, steps, moments, ADDRESS.sub("", str(program.jaxpr))):
        digest.update(f"{part}|".encode())
    for leaf in [*_constants(program), *jax.tree.leaves((stream.data, begun))]:
        array = _plain(leaf)
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
