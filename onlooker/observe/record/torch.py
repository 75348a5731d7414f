"""Record a torch optimiser's steps: θ_k and g_k = −∂loss/∂θ as they are just before θ_{k+1} is made.

    with record(optimizer, "runs/", agent=0):
        train()

Any trainer that calls ``optimizer.step()`` will do. The gradient is what the optimiser was given: averaged over the
batch, and clipped if the trainer clips. Weight decay that the optimiser adds itself is not in it.
"""

import warnings
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import numpy as np
import torch

from onlooker.observe.optimiser import Optimiser
from onlooker.observe.projection import Projection
from onlooker.observe.writer import LogWriter, close_at_exit
from onlooker.warning import OnlookerWarning

__all__ = ["Recording", "record", "rule_of"]

# Rows that are handed to the log at once, fewer of more parameters.
TOGETHER, NUMBERS = 64, 1 << 17
# What is written as it is; anything else as float32.
KINDS = {torch.float32: np.float32, torch.float64: np.float64}


def record(
    optimizer: torch.optim.Optimizer,
    log: Any,
    *,
    agent: Hashable | None = None,
    parameters: Iterable[torch.Tensor] | None = None,
    projection: Projection | None = None,
) -> "Recording":
    """Write down every step of an optimiser until the recording is closed.

    Parameters
    ----------
    optimizer
        Any of torch's: SGD, its momentum and Nesterov's are known by their settings, others by their names.
    log
        A folder, or a `LogWriter`, which recordings of many agents may share.
    agent
        Whose steps they are. Say it when there are several: who made which row is worth a lot.
    parameters
        Which tensors to watch; by default all that the optimiser has.
    projection
        Watch only these directions of them: `onto` or `principal_components`.
    """
    return Recording(optimizer, log, agent, parameters, projection)


class Recording:
    """Steps being written down; ``close`` it, or use it in a ``with`` statement."""

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
        strangers = sum(id(tensor) not in signs for tensor in self.parameters)
        if strangers or not self.parameters:
            raise ValueError(
                f"parameters holds {len(self.parameters)} tensors, {strangers} of which the optimiser does not have; "
                "give some of its own."
            )
        sizes = [tensor.numel() for tensor in self.parameters]
        # Gradients of a loss are turned, those of what is maximised are not.
        self._sign = np.repeat([signs[id(tensor)] for tensor in self.parameters], sizes).astype(np.float32)
        self.projection = projection
        size = sum(sizes)
        if projection is not None and projection.directions.shape[1] != size:
            raise ValueError(f"projection is of {projection.directions.shape[1]} parameters but {size} are watched.")
        self._owned = not isinstance(log, LogWriter)
        self.log = LogWriter(log) if self._owned else log
        # Rows are handed to the log a few at a time; one by one when others share it, so that they stay in order, and,
        # once the log has checked one, straight into their place.
        self._straight = False
        room = (int(np.clip(NUMBERS // size, 1, TOGETHER)) if self._owned else 1, size)
        self._points = np.empty(room, np.result_type(*map(_kind, self.parameters)))
        self._gradients = np.empty_like(self._points)
        self._first = self._points[0], self._gradients[0]
        # Of each row, where each parameter goes, and then each gradient: all are copied by one call.
        with torch.inference_mode(False):
            self._places = [
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
        # Schedulers leave a mark on the groups: then there is no one rate.
        steady = len(groups) == 1 and "initial_lr" not in groups[0]
        self.log.describe(
            learning_rate=float(groups[0]["lr"]) if steady else None,
            optimiser=rule_of(optimizer),
            source=f"torch.optim.{type(optimizer).__name__}: loss gradients, turned into ascent gradients",
        )
        self.agent = agent
        self._handle = optimizer.register_step_pre_hook(self._before_step)
        close_at_exit(self)

    def _before_step(self, optimizer: torch.optim.Optimizer, args: tuple, kwargs: dict[str, Any]) -> Any:
        # The optimiser itself is the first argument.
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if closure is None:
            self._write()
            return None
        recorded = self._writing(closure)
        return (
            tuple(recorded if one is closure else one for one in args),
            {name: recorded if one is closure else one for name, one in kwargs.items()},
        )

    def _writing(self, closure: Callable) -> Callable:
        """The closure, which makes the gradients inside the step; what it leaves at first is written down."""
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
        places = self._places[self._count]
        try:
            if [tensor.shape for tensor in self.parameters] != self._shapes:
                raise ValueError("a parameter has another shape than at first; record it anew.")
            try:
                points = [tensor.data for tensor in self.parameters]
                torch._foreach_copy_(places, points + [tensor.grad.data for tensor in self.parameters])
            except (AttributeError, TypeError, RuntimeError):
                # A gradient is missing, or sparse.
                gradients = [tensor.grad for tensor in self.parameters]
                for place, numbers in zip(places, [*self.parameters, *gradients], strict=True):
                    _copy(numbers, place)
            if self._straight and self.log.fill(*self._first, self._sign, self.agent, self._steps):
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
                self._straight = self.projection is None
        except Exception as error:
            self._stop(error)

    def _stop(self, error: Exception) -> None:
        """A full disk must not end a training run, nor anything else that goes wrong here."""
        self._handle.remove()
        warnings.warn(f"recording has stopped: {error}", OnlookerWarning, stacklevel=2)

    def close(self) -> None:
        """Stop. Rows that were gathered are written, unless others share the log: close that, then."""
        self._handle.remove()
        self._hand_over()
        if self._owned:
            self.log.close()

    def __enter__(self) -> "Recording":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def rule_of(optimizer: torch.optim.Optimizer) -> Optimiser:
    """How an optimiser steps, as far as one name and four numbers say it."""
    name = type(optimizer).__name__.lower()
    settings = optimizer.param_groups[0]
    if type(optimizer) is not torch.optim.SGD:
        return Optimiser(name if name != "sgd" else "an sgd of its own")
    alike = all(
        group.get(key) == settings.get(key)
        for group in optimizer.param_groups
        for key in ("lr", "momentum", "dampening", "nesterov", "weight_decay")
    )
    if not alike:
        return Optimiser("sgd of several settings")
    decay = -settings["weight_decay"] if settings["maximize"] else settings["weight_decay"]
    if decay < 0 or not 0 <= settings["momentum"] < 1:
        return Optimiser("sgd with growing weights or momentum")
    return Optimiser("sgd", settings["momentum"], settings["dampening"], settings["nesterov"], decay)


def _copy(tensor: torch.Tensor | None, place: torch.Tensor) -> None:
    if tensor is None:
        place.zero_()
    else:
        numbers = tensor.detach()
        place.copy_(numbers if numbers.layout == torch.strided else numbers.to_dense())


def _kind(tensor: torch.Tensor) -> type:
    return KINDS.get(tensor.dtype, np.float32)
