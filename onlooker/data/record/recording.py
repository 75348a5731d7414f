"""A recording in progress: what happens just before each step of a torch optimizer, until it is closed.

Rows wait in memory or on the device (`rows`), with numbers beside them: the learning rate, the loss, by what the
gradient was scaled and clipped, and, with ``along``, the marks of the step that led there (`halves`).
"""

import weakref
from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from onlooker.core.messages import Message, deliver
from onlooker.core.settings import check_whole
from onlooker.data.log.lifetime import close_at_exit
from onlooker.data.log.writer import LogWriter
from onlooker.data.marks import ALONG, HIDDEN
from onlooker.data.projection import Projection
from onlooker.data.record import clipping
from onlooker.data.record.halves import Trapezoid
from onlooker.data.record.hidden import Hidden
from onlooker.data.record.rows import DeviceRows, HostRows, Sent, copied, flat_responses, on_device
from onlooker.data.record.rules import decay_of, group_of, rate_of, reject_sharded, response, rule_of
from onlooker.data.record.scalars import scalars_for
from onlooker.data.trainer import Trainer

__all__ = ["Recording"]

# Rows are passed to the log TOGETHER, fewer if they have more than NUMBERS values (512 KiB of float32).
TOGETHER, NUMBERS = 64, 1 << 17
# Number of steps after which backward passes are no longer counted, if there has been one per step.
COUNTED = 100
# Numbers beside every row.
USUAL = ("learning_rate", "loss", "scale", "clip", "limit", "passes")


class Recording:
    """A recording in progress; call ``close``, or use it in a ``with`` statement."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        log: Any,
        agent: Hashable | None,
        parameters: Iterable[torch.Tensor] | None,
        projection: Projection | None,
        along: bool | None = None,
        trainer: Trainer | None = None,
        averaged: bool = False,
        report_to: str | None = None,
    ) -> None:
        groups = group_of(optimizer)
        self._chosen = parameters is not None
        self.parameters = list(
            (tensor for group in optimizer.param_groups for tensor in group["params"])
            if parameters is None
            else parameters
        )
        foreign = sum(id(tensor) not in groups for tensor in self.parameters)
        if foreign or not self.parameters:
            raise ValueError(
                f"parameters has {len(self.parameters)} tensors, {foreign} of which the optimizer does not have; give "
                "tensors of the optimizer."
            )
        reject_sharded(optimizer, self.parameters)
        trainer = trainer or Trainer()
        check_whole(accumulation=trainer.accumulation)
        # The sign is −1 for gradients of a loss, and 1 if the optimizer maximises.
        self._signs = [1.0 if groups[id(tensor)].get("maximize") else -1.0 for tensor in self.parameters]
        sizes = [tensor.numel() for tensor in self.parameters]
        self._sign = np.repeat(self._signs, sizes).astype(np.float32)
        self.projection, size = projection, sum(sizes)
        if projection is not None and projection.directions.shape[1] != size:
            raise ValueError(f"projection is of {projection.directions.shape[1]} parameters but {size} are recorded.")
        self._device = on_device(self.parameters)
        dim = size if projection is None else projection.dim
        self._trapezoid = (
            Trapezoid() if (projection is not None and not self._device if along is None else along) else None
        )
        self._known = USUAL if self._trapezoid is None else (*USUAL, *ALONG, *(HIDDEN if projection else ()))
        self._hidden: Hidden | None = None
        self._owned = not isinstance(log, LogWriter)
        self.log = LogWriter(log) if self._owned else log
        self.log.check_dimension(dim)
        self.log.along(projection)
        # Rows are passed to the log in batches, or one by one if the log is shared, so that they stay in order; once
        # the log has checked the first row, the following ones are written straight into its buffer.
        self._direct = False
        room = int(np.clip(NUMBERS // size, 1, TOGETHER)) if self._owned else 1
        if self._device:
            # One more column says whether the scaler skips the step.
            self._rows: Any = DeviceRows(self.parameters, TOGETHER, projection, len(self._known) + 1)
            room = TOGETHER
        else:
            self._rows = HostRows(self.parameters, room)
            self._first = self._rows.points[0], self._rows.gradients[0]
        self._numbers = np.empty((room, len(self._known)))
        self._factors = np.ones(room)
        self._shapes = [tensor.shape for tensor in self.parameters]
        self._room, self._count, self._steps = room, 0, 0
        self._sent: Sent | None = None
        self._loss: Any = float("nan")
        self._half: tuple[list[torch.Tensor], float] | None = None
        self._described = self._added = False
        self._tensors = len(groups)
        self.agent, self._optimizer = agent, optimizer
        self._trainer = replace(
            trainer,
            **{name: getattr(decay_of(optimizer, self.parameters), name) for name in ("decay", "decoupled")},
            parameters=0 if projection is None else size,
            recorded=True,
        )
        self._scalars = scalars_for(report_to, self.log.folder, agent)
        self._passes, self._averaged, self._never_more = 0, averaged, True
        counted = next((tensor for tensor in self.parameters if tensor.requires_grad), None)
        self._handles = [optimizer.register_step_pre_hook(self._before_step)]
        if counted is not None and not averaged:
            self._handles.append(counted.register_hook(lambda _: self._count_pass(counted)))
        clipping.listen()
        # Also when a recording that nobody closed is gone.
        self._listening = weakref.finalize(self, clipping.stop_listening)
        close_at_exit(self)

    def loss(self, value: Any) -> None:
        """Say what the loss of the coming step is: it is recorded beside the row."""
        self._loss = value.detach() if isinstance(value, torch.Tensor) else float(value)

    def half(self, loss: torch.Tensor | None = None, *, scale: float = 1.0) -> None:
        """Record |a − b|² of the coming step, from the gradients a, b of two halves of its batch.

        Without a loss, call it when the gradients of the first half have been accumulated; the rest of the batch must
        be as large. With the loss of one half of the batch, its gradient is computed by a further backward pass.

        Parameters
        ----------
        loss
            The mean loss of one half of the batch; its graph is kept.
        scale
            The loss scale that the gradients, or this loss, have, unless the optimizer unscales them (``fused=True``).
        """
        if self._trapezoid is None:
            raise ValueError("half is called on a recording without along=True; give it to onlooker.record.")
        if loss is None:
            self._half = [2 * part for part in copied(self.parameters)], scale
        else:
            found = torch.autograd.grad(loss, self.parameters, retain_graph=True, allow_unused=True)
            parts = [
                torch.zeros_like(tensor) if part is None else part.detach()
                for part, tensor in zip(found, self.parameters, strict=True)
            ]
            self._half = parts, scale

    def _count_pass(self, tensor: torch.Tensor) -> None:
        self._passes = 1 if tensor.grad is None else self._passes + 1
        if self._steps + self._count > COUNTED and self._passes == 1 and self._never_more:
            self._handles.pop().remove()
        self._never_more = self._never_more and self._passes == 1

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
            self._passes = 0
            loss = closure(*args, **kwargs)
            if not written:
                if isinstance(loss, torch.Tensor | float):
                    self.loss(loss)
                self._write()
                written = True
            return loss

        return recorded

    def _write(self) -> None:
        try:
            if [tensor.shape for tensor in self.parameters] != self._shapes:
                raise ValueError("a parameter has changed its shape; start a new recording.")
            if not self._described:
                self._describe()
            scale, skipped = (getattr(self._optimizer, name, None) for name in ("grad_scale", "found_inf"))
            if self._device:
                self._write_on_device(scale, skipped)
            elif skipped is None or not float(skipped):
                self._write_in_memory(1.0 if scale is None else float(scale))
        except Exception as error:
            self._stop(error)
        finally:
            self._passes, self._loss, self._half = 0, float("nan"), None
            if clipping.anything():
                clipping.forget(self.parameters)

    def _describe(self) -> None:
        """Describe the log at the first step: a scheduler that sets initial_lr may be made after the recording."""
        groups, self._described = self._optimizer.param_groups, True
        steady = len(groups) == 1 and "initial_lr" not in groups[0]
        rate = rate_of(self._optimizer)
        self._rate = rate if steady and np.isfinite(rate) else None
        self._tell()

    def _tell(self) -> None:
        kind = type(self._optimizer).__name__
        self.log.describe(
            learning_rate=self._rate,
            optimizer=rule_of(self._optimizer),
            source=f"torch.optim.{kind}: loss gradients, turned into ascent gradients",
        )
        self.log.describe_trainer(self._trainer)

    def _write_in_memory(self, scale: float) -> None:
        row, rows = self._count, self._rows
        rows.write(row, self.parameters)
        clip, limit = clipping.undone(self.parameters, rows.views[row][len(self.parameters) :])
        passes = 1.0 if self._averaged else (self._passes or 1) / self._trainer.accumulation
        factor = self._trainer.accumulation * scale * (clip or 1.0)
        numbers = [rate_of(self._optimizer), float(self._loss), scale, clip, limit, passes]
        self._look_for_more()
        if self._direct and self.log.fill(
            *self._first, self._sign / factor, self.agent, self._steps, dict(zip(self._known, numbers, strict=True))
        ):
            self._steps += 1
            return
        self._factors[row] = factor
        if self._trapezoid is not None:
            gradients = rows.gradients[row]
            gradients *= self._sign / factor
            self._factors[row] = 0.0
            numbers += map(float, self._along([rows.flat[0][row]], [rows.flat[1][row]], scale))
        self._numbers[row] = numbers
        self._count += 1
        if self._count == self._room:
            self._hand_over()

    @torch.no_grad()
    def _write_on_device(self, scale: Any, skipped: Any) -> None:
        gradients = copied(self.parameters)
        clip, limit = clipping.undone(self.parameters, gradients)
        whole: Any = self._trainer.accumulation if scale is None else scale * self._trainer.accumulation
        whole = whole * (1.0 if isinstance(clip, float) and not clip else clip)
        points = [tensor.data for tensor in self.parameters]
        self._look_for_more()
        factor: Any = self._signs[0] / whole
        if self._trapezoid is not None or len(set(self._signs)) > 1:
            gradients = [part * (sign / whole) for part, sign in zip(gradients, self._signs, strict=True)]
            factor = 1.0
        self._rows.write(self._count, points, gradients, factor)
        passes = 1.0 if self._averaged else (self._passes or 1) / self._trainer.accumulation
        numbers = [rate_of(self._optimizer), self._loss, 1.0 if scale is None else scale, clip, limit, passes]
        if self._trapezoid is not None:
            numbers += self._along(points, gradients, scale, skipped)
        self._rows.beside(self._count, [*numbers, 0.0 if skipped is None else skipped])
        self._count += 1
        if self._count == self._room:
            self._hand_over()

    @torch.no_grad()
    def _along(
        self, points: list[torch.Tensor], gradients: list[torch.Tensor], scale: Any, skipped: Any = None
    ) -> list[Any]:
        """The marks of the step that led here, from final gradients."""
        assert self._trapezoid is not None
        half = responses = None
        if self._half is not None:
            groups = group_of(self._optimizer)
            parts, own = self._half
            parts = [
                part * (sign / (own * self._trainer.accumulation))
                for part, sign in zip(parts, self._signs, strict=True)
            ]
            responses = [
                response(self._optimizer, tensor, groups[id(tensor)], tensor.grad / (1.0 if scale is None else scale))
                for tensor in self.parameters
            ]
            if len(points) == 1:
                responses = [flat_responses(responses, self.parameters)]
                parts = [torch.cat([part.reshape(-1) for part in parts]).to(gradients[0].dtype)]
            half = torch._foreach_sub([part.to(g.dtype) for part, g in zip(parts, gradients, strict=True)], gradients)
        if self.projection is not None and self._hidden is None:
            self._hidden = Hidden(self.projection, points)
        hidden = [] if self._hidden is None else self._hidden.of(points, gradients)
        marks = self._trapezoid.to(points, gradients, None if half is None else list(half), responses, skipped)
        return [*marks, *hidden]

    def _look_for_more(self) -> None:
        """Say so once if the optimizer was given more parameters."""
        groups = self._optimizer.param_groups
        count = len(groups[0]["params"])
        if len(groups) > 1:
            count = sum(len(group["params"]) for group in groups)
        more, self._tensors = count - self._tensors, count
        if more and not self._chosen and not self._added:
            self._added = True
            text = f"{more} tensors were added to the optimizer after recording began, and are not recorded."
            deliver([Message("parameters-added", text, {"tensors": more})])

    def _hand_over(self) -> None:
        count, self._count = self._count, 0
        if self._device:
            earlier, self._sent = self._sent, self._rows.send(count) if count else None
            if earlier is not None:
                self._deliver_sent(earlier)
            return
        if not count:
            return
        points, gradients = self._rows.points[:count], self._rows.gradients[:count]
        factors = self._factors[:count]
        # Rows with a factor of 0 are final.
        final = factors == 0
        if not final.all():
            with np.errstate(divide="ignore", invalid="ignore"):
                gradients *= self._sign if (factors == 1).all() else self._sign / factors[:, None]
        if self.projection is not None:
            points, gradients = self.projection.points(points), self.projection.gradients(gradients)
        self._deliver(points, gradients, self._numbers[:count])

    def _deliver_sent(self, sent: Sent) -> None:
        points, gradients, numbers = sent.arrived()
        done = numbers[:, -1] == 0
        self._deliver(points[done], gradients[done], numbers[done, :-1])

    def _deliver(self, points: np.ndarray, gradients: np.ndarray, numbers: np.ndarray) -> None:
        count = len(points)
        first, self._steps = self._steps, self._steps + count
        columns = dict(zip(self._known, numbers.T, strict=True))
        try:
            rates = columns["learning_rate"]
            if self._rate is not None and (rates != self._rate).any():
                self._rate = None
                self._tell()
            rates, own = columns.pop("learning_rate"), self._owned or self._device
            if own:
                agents = None if self.agent is None else [self.agent] * count
                times = np.arange(first, first + count, dtype=float)
                self.log.add_many(points, gradients, agents=agents, times=times, learning_rates=rates, **columns)
            else:
                marks = {name: float(values[0]) for name, values in columns.items()}
                self.log.add(
                    points[0],
                    gradients[0],
                    agent=self.agent,
                    time=float(first),
                    learning_rate=float(rates[0]),
                    **marks,
                )
                self._direct = self.projection is None and self._trapezoid is None
            if self._scalars is not None:
                self._scalars.add(first, columns)
        except Exception as error:
            self._stop(error)

    def _stop(self, error: Exception) -> None:
        """Stop recording and warn: no error here, such as a full disk, may end a training run."""
        self._leave()
        message = Message("recording-stopped", f"recording has stopped: {error}")
        if self._scalars is not None:
            self._scalars.say(message)
        deliver([message])

    def _leave(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._listening()

    def close(self) -> None:
        """Stop, and write the remaining rows. A shared `LogWriter` stays open: close it when all agents are done."""
        self._leave()
        self._hand_over()
        if self._device:
            self._hand_over()
        if self._scalars is not None:
            self._scalars.close()
        if self._owned:
            self.log.close()

    def __enter__(self) -> "Recording":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
