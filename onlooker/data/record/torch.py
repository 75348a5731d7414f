"""Record a torch optimizer's steps: θ_k and g_k = −∂loss/∂θ, read just before each step.

    with record(optimizer, "runs/", agent=0):
        train()

This works with any trainer that calls ``optimizer.step()``. The gradient is that of the loss: averaged over the
batch, divided by the loss scale of a `GradScaler`, as it was before torch's functions clipped it by its length, and
without the weight decay that the optimizer adds. The log knows all of that. A step that a scaler skips is not recorded.
"""

from collections.abc import Hashable, Iterable
from typing import Any

import torch

from onlooker.data.projection import Projection
from onlooker.data.record.recording import Recording
from onlooker.data.record.rules import rule_of
from onlooker.data.trainer import Trainer

__all__ = ["Recording", "Silent", "record", "rule_of"]


def record(
    optimizer: torch.optim.Optimizer,
    log: Any,
    *,
    agent: Hashable | None = None,
    parameters: Iterable[torch.Tensor] | None = None,
    projection: Projection | None = None,
    along: bool | None = None,
    accumulation: int = 1,
    averaged: bool = False,
    algorithm: str = "",
    surrogate: str = "",
    every_rank: bool = False,
    report_to: str | None = None,
) -> "Recording | Silent":
    """Record every step of an optimizer until the recording is closed.

    Parameters
    ----------
    optimizer
        A torch optimizer, or a wrapper of Accelerate or Lightning around one. The log names it, its weight decay and,
        for SGD, momentum, dampening and Nesterov.
    log
        A folder, or a `LogWriter`, which several agents may share.
    agent
        The name of the agent. Give it whenever there are several agents.
    parameters
        The tensors to record; default: all of the optimizer's.
    projection
        Record only these directions: `onto` or `principal_components`. The log keeps them.
    along
        Whether to record R's change along the run, one number a step from all recorded parameters, also with a
        projection. ``half`` needs it. Default: with a projection of parameters in memory.
    accumulation
        Number of backward passes per step, if the trainer adds them up and does not divide: the recorder does.
    averaged
        Whether the trainer divides its loss by the number of backward passes, so that nothing remains to be said.
    algorithm, surrogate
        What is trained, for the log, if it is not simply a loss: "PPO", "a clipped surrogate of the return".
    every_rank
        Under `torch.distributed` only the first process records, because all have the same parameters. True if they
        are different learners.
    report_to
        "tensorboard" to write rows, R̂ along the run, and warnings to its files in the log's folder.

    Returns
    -------
    Recording
        A `Silent` one, which records nothing, on the other processes.
    """
    if not every_rank and _rank() > 0:
        return Silent()
    trainer = Trainer(algorithm, surrogate, accumulation=accumulation)
    return Recording(_unwrapped(optimizer), log, agent, parameters, projection, along, trainer, averaged, report_to)


class Silent:
    """A recording that records nothing: that of all processes but the first."""

    def loss(self, value: Any) -> None:
        pass

    def half(self, loss: Any = None, *, scale: float = 1.0) -> None:
        pass

    def close(self) -> None:
        pass

    def __enter__(self) -> "Silent":
        return self

    def __exit__(self, *_: Any) -> None:
        pass


def _unwrapped(optimizer: Any) -> torch.optim.Optimizer:
    """The optimizer itself: wrappers skip steps, and have hooks of their own that nobody calls."""
    while isinstance(inner := getattr(optimizer, "optimizer", None), torch.optim.Optimizer):
        optimizer = inner
    return optimizer


def _rank() -> int:
    """The number of this process among those that train together; 0 if it trains alone."""
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return 0
    return torch.distributed.get_rank()
