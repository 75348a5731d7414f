"""The settings of a run, checked once."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from onlooker.core.settings import check_whole
from onlooker.data.stream import LONGEST_BLOCK, Stream
from onlooker.engine.accumulators import Grid, Marginals
from onlooker.inverse.base import EVIDENCE, InverseLearner

__all__ = ["RunSettings", "check_compatible", "check_part"]


@dataclass(frozen=True)
class RunSettings:
    """The settings of a run, as `run` describes them.

    Attributes
    ----------
    steps
        Number of steps.
    chains
        Number of chains.
    seed
        Seed of the noise, of a simulated stream, and of the starts when they are not given.
    thin
        Every ``thin``-th position is counted; a power of two.
    burn_in
        Steps before counting begins.
    draws
        Largest number of positions kept per chain.
    snapshots
        Number of snapshots kept; ``None`` for none.
    dtype
        float32 or float64.
    grid
        Bins in which positions are counted jointly, or ``None``.
    marginals
        Bins in which each coordinate is counted, or ``None``.
    """

    steps: int
    chains: int = 64
    seed: int = 0
    thin: int = 8
    burn_in: int = 0
    draws: int = 1000
    snapshots: int | None = None
    dtype: Any = np.float32
    grid: Grid | None = None
    marginals: Marginals | None = None

    def __post_init__(self) -> None:
        check_whole(steps=self.steps, chains=self.chains, thin=self.thin, draws=self.draws)
        for name in ("steps", "chains", "thin", "draws"):
            object.__setattr__(self, name, int(getattr(self, name)))
        if self.steps >= 2**31:
            raise ValueError(f"steps is {self.steps}; a run has at most 2**31 - 1, start another run where it ends.")
        if self.thin & (self.thin - 1) or self.thin > LONGEST_BLOCK // 8:
            raise ValueError(f"thin is {self.thin}; it must be a power of two up to {LONGEST_BLOCK // 8}.")
        if self.burn_in != int(self.burn_in) or not 0 <= self.burn_in < self.steps:
            raise ValueError(
                f"burn_in is {self.burn_in}; it must be a whole number from 0 to {self.steps - 1}, below steps."
            )
        kind = np.dtype(self.dtype)
        if kind not in (np.float32, np.float64):
            raise ValueError(f"dtype is {kind}; choose float32 or float64.")
        if jax.dtypes.canonicalize_dtype(kind) != kind:
            raise ValueError(f"dtype {kind} needs jax.config.update('jax_enable_x64', True) first.")
        check_whole(snapshots=1 if self.snapshots is None else self.snapshots)
        for name, value in (("burn_in", int(self.burn_in)), ("dtype", kind)):
            object.__setattr__(self, name, value)

    @property
    def accumulators(self) -> tuple[Grid | Marginals, ...]:
        """The grid and the marginals, where given."""
        return tuple(part for part in (self.grid, self.marginals) if part is not None)

    def moments(self, block: int) -> list[int]:
        """The steps of the snapshots: the ends of equal parts of the run, moved to the ends of their blocks."""
        if self.snapshots is None:
            return []
        ends = -(-np.linspace(0, self.steps, int(self.snapshots) + 1)[1:] // block) * block
        return [int(step) for step in np.unique(np.minimum(ends, self.steps))]


def check_compatible(learner: InverseLearner, stream: Stream, grid: Grid | None, steps: int | None) -> int:
    """Check that learner, stream and grid go together; return the number of steps, by default the stream's length."""
    if not isinstance(stream, Stream):
        raise TypeError(f"stream is {type(stream).__name__}; make a stream with recorded(observations).")
    if learner.evidence not in EVIDENCE:
        raise ValueError(f"{learner.name} needs evidence {learner.evidence!r}; declare one of {', '.join(EVIDENCE)}.")
    if learner.evidence == "answers" and stream.answer is None:
        raise ValueError(
            f"{learner.name} needs gradients at its own positions, which this stream lacks; use an oracle."
        )
    if learner.evidence == "pool" and stream.pool is None:
        raise ValueError(f"{learner.name} needs pools; make them with pooled(stream, size).")
    if learner.evidence == "observation" and stream.pool is not None:
        raise ValueError(
            f"{learner.name} takes one observation per step but the stream shows pools; use "
            "multikernel, or declare evidence='pool'."
        )
    if learner.evidence == "memory" and learner.update is None:
        raise ValueError(f"{learner.name} needs a memory but has no update; declare an update.")
    if learner.evidence == "memory" and not stream.shared:
        raise ValueError(
            f"{learner.name} keeps one memory for all chains but each has a stream of its own; use a shared stream."
        )
    if learner.density is not None:
        learner.density.check(stream.dim)
    if grid is not None and len(grid.low) != stream.dim:
        raise ValueError(
            f"grid has {len(grid.low)} axes but the points {stream.dim} dimensions; give one axis per dimension."
        )
    if steps is None:
        if stream.length is None:
            raise ValueError("steps is not given and the stream is endless; give the number of steps.")
        return stream.length
    check_whole(steps=steps)
    if stream.length is not None and steps > stream.length:
        raise ValueError(f"steps is {steps} but the stream holds {stream.length} observations; ask for fewer.")
    return int(steps)


def check_part(part: Any, groups: int) -> None:
    """Check that ``part`` is (i, of) with 0 ≤ i < of, and that a run of so many groups of chains has as many parts."""
    whole = isinstance(part, tuple | list) and len(part) == 2 and all(hasattr(value, "__index__") for value in part)
    if not whole or not 0 <= part[0] < part[1]:
        raise ValueError(f"part is {part!r}; give (i, of), the i-th of so many parts, counted from 0.")
    if part[1] > groups:
        raise ValueError(
            f"part is {part!r} but the run has {groups} groups of chains, which are not divided; use at most "
            f"{groups} parts, or more chains."
        )
