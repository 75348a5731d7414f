"""Record a torch optimizer's steps: θ_k and g_k = −∂loss/∂θ, read just before each step.

    with record(optimizer, "runs/", agent=0):
        train()

This works with any trainer that calls ``optimizer.step()``. The gradient is the one that the optimizer receives:
averaged over the batch, and clipped if the trainer clips it. Weight decay that the optimizer adds is not included.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import numpy as np
import torch

from onlooker.core.messages import Message, deliver
from onlooker.data.log.writer import LogWriter, close_at_exit
from onlooker.data.optimizer import Optimizer
from onlooker.data.projection import Projection

__all__ = ["Recording", "record", "rule_of"]

# Rows are passed to the log TOGETHER, fewer if they have more than NUMBERS values (512 KiB of float32).
TOGETHER, NUMBERS = 64, 1 << 17
# Types that are recorded as they are; others become float32.
KINDS = {torch.float32: np.float32, torch.float64: np.float64}


def record(
    optimizer: torch.optim.Optimizer,
    log: Any,
    *,
    agent: Hashable | None = None,
    parameters: Iterable[torch.Tensor] | None = None,
    projection: Projection | None = None,
) -> "Recording":
    """Record every step of an optimizer until the recording is closed.

    Parameters
    ----------
    optimizer
        A torch optimizer. The log names it; for SGD it also has momentum, dampening, Nesterov and weight decay.
    log
        A folder, or a `LogWriter`, which several agents may share.
    agent
        The name of the agent. Give it whenever there are several agents.
    parameters
        The tensors to record; default: all of the optimizer's.
    projection
        Record only these directions: `onto` or `principal_components`.
    """
    return Recording(optimizer, log, agent, parameters, projection)


class Recording:
    """A recording in progress; call ``close``, or use it in a ``with`` statement."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        log: Any,
        agent: Hashable | None,
        parameters: Iterable[torch.Tensor] | None,
        projection: Projection | None,
    ) -> None:
        groups = optimizer.param_groups
        signs = {id(tensor): 1 if group.get("maximize") else -1 for group in groups for tensor in group["params"]}
        self.parameters = list(
            (tensor for group in groups for tensor in group["params"]) if parameters is None else parameters
        )
        foreign = sum(id(tensor) not in signs for tensor in self.parameters)
        if foreign or not self.parameters:
            raise ValueError(
                f"parameters has {len(self.parameters)} tensors, {foreign} of which the optimizer does not have; give "
                "tensors of the optimizer."
            )
        sizes = [tensor.numel() for tensor in self.parameters]
        # The sign is −1 for gradients of a loss, and 1 if the optimizer maximises.
        self._sign = np.repeat([signs[id(tensor)] for tensor in self.parameters], sizes).astype(np.float32)
        self.projection = projection
        size = sum(sizes)
        if projection is not None and projection.directions.shape[1] != size:
            raise ValueError(f"projection is of {projection.directions.shape[1]} parameters but {size} are recorded.")
        self._owned = not isinstance(log, LogWriter)
        self.log = LogWriter(log) if self._owned else log
        # Rows are passed to the log in batches, or one by one if the log is shared, so that they stay in order; once
        # the log has checked the first row, the following ones are written straight into its buffer.
        self._direct = False
        room = (int(np.clip(NUMBERS // size, 1, TOGETHER)) if self._owned else 1, size)
        self._points = np.empty(room, np.result_type(*map(_kind, self.parameters)))
        self._gradients = np.empty_like(self._points)
        self._first = self._points[0], self._gradients[0]
        # For each row, the views that its parameters and then its gradients are copied to, all by one call.
        with torch.inference_mode(False):
            self._views = [
                [
                    part.view_as(tensor)
                    for numbers in row
                    for part, tensor in zip(numbers.split(sizes), self.parameters, strict=True)
                ]
                for row in zip(torch.from_numpy(self._points), torch.from_numpy(self._gradients), strict=True)
            ]
        self._shapes = [tensor.shape for tensor in self.parameters]
        self._count = self._steps = 0
        self.log.check_dimension(size if projection is None else projection.dim)
        # A scheduler sets initial_lr: then the learning rate is not constant.
        steady = len(groups) == 1 and "initial_lr" not in groups[0]
        self.log.describe(
            learning_rate=float(groups[0]["lr"]) if steady else None,
            optimizer=rule_of(optimizer),
            source=f"torch.optim.{type(optimizer).__name__}: loss gradients, turned into ascent gradients",
        )
        self.agent = agent
        self._handle = optimizer.register_step_pre_hook(self._before_step)
        close_at_exit(self)

    def _before_step(self, optimizer: torch.optim.Optimizer, args: tuple, kwargs: dict[str, Any]) -> Any:
        # The first argument is the optimizer itself.
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if closure is None:
            self._write()
            return None
        recorded = self._writing(closure)
        return (
            tuple(recorded if argument is closure else argument for argument in args),
            {name: recorded if argument is closure else argument for name, argument in kwargs.items()},
        )

    def _writing(self, closure: Callable) -> Callable:
        """The closure, which computes gradients inside the step; those of its first call are recorded."""
        written = False

        def recorded(*args: Any, **kwargs: Any) -> Any:
            nonlocal written
            loss = closure(*args, **kwargs)
            if not written:
                self._write()
                written = True
            return loss

        return recorded

    def _write(self) -> None:
        views = self._views[self._count]
        try:
            if [tensor.shape for tensor in self.parameters] != self._shapes:
                raise ValueError("a parameter has changed its shape; start a new recording.")
            try:
                points = [tensor.data for tensor in self.parameters]
                torch._foreach_copy_(views, points + [tensor.grad.data for tensor in self.parameters])
            except (AttributeError, TypeError, RuntimeError):
                # A gradient is missing or sparse.
                gradients = [tensor.grad for tensor in self.parameters]
                for view, tensor in zip(views, [*self.parameters, *gradients], strict=True):
                    _copy(tensor, view)
            if self._direct and self.log.fill(*self._first, self._sign, self.agent, self._steps):
                self._steps += 1
                return
        except Exception as error:
            self._stop(error)
            return
        self._count += 1
        if self._count == len(self._points):
            self._hand_over()

    def _hand_over(self) -> None:
        count, self._count = self._count, 0
        first, self._steps = self._steps, self._steps + count
        if not count:
            return
        points, gradients = self._points[:count], self._gradients[:count]
        gradients *= self._sign
        try:
            if self.projection is not None:
                points, gradients = self.projection.points(points), self.projection.gradients(gradients)
            if self._owned:
                agents = None if self.agent is None else [self.agent] * count
                times = np.arange(first, first + count, dtype=float)
                self.log.add_many(points, gradients, agents=agents, times=times)
            else:
                self.log.add(points[0], gradients[0], agent=self.agent, time=float(first))
                self._direct = self.projection is None
        except Exception as error:
            self._stop(error)

    def _stop(self, error: Exception) -> None:
        """Stop recording and warn: no error here, such as a full disk, may end a training run."""
        self._handle.remove()
        deliver([Message("recording-stopped", f"recording has stopped: {error}")])

    def close(self) -> None:
        """Stop, and write the remaining rows. A shared `LogWriter` stays open: close it when all agents are done."""
        self._handle.remove()
        self._hand_over()
        if self._owned:
            self.log.close()

    def __enter__(self) -> "Recording":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def rule_of(optimizer: torch.optim.Optimizer) -> Optimizer:
    """The rule of a torch optimizer; one that is not plain `torch.optim.SGD` is described by its name alone."""
    name = type(optimizer).__name__.lower()
    settings = optimizer.param_groups[0]
    if type(optimizer) is not torch.optim.SGD:
        return Optimizer(name if name != "sgd" else "an sgd of its own")
    alike = all(
        group.get(key) == settings.get(key)
        for group in optimizer.param_groups
        for key in ("lr", "momentum", "dampening", "nesterov", "weight_decay")
    )
    if not alike:
        return Optimizer("sgd of several settings")
    decay = -settings["weight_decay"] if settings["maximize"] else settings["weight_decay"]
    if decay < 0 or not 0 <= settings["momentum"] < 1:
        return Optimizer("sgd with growing weights or momentum")
    return Optimizer("sgd", settings["momentum"], settings["dampening"], settings["nesterov"], decay)


def _copy(tensor: torch.Tensor | None, view: torch.Tensor) -> None:
    if tensor is None:
        view.zero_()
    else:
        values = tensor.detach()
        view.copy_(values if values.layout == torch.strided else values.to_dense())


def _kind(tensor: torch.Tensor) -> type:
    return KINDS.get(tensor.dtype, np.float32)
