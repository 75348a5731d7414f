"""Rows of points and gradients where the parameters are, until they go to the log: in memory, or on a device.

On a device nothing waits: rows are gathered, or projected, there, and a full block is copied to page-locked memory
while training goes on. It is handed over when the next block is full.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from onlooker.data.projection import Projection
from onlooker.data.record.projecting import Projector

__all__ = ["DeviceRows", "HostRows", "copied", "flat_responses", "kind_of", "on_device"]

# Stands for a number that is on the device; no number beside a row is so large.
ON_DEVICE = -1e300
# Types that are recorded as they are; others become float32.
KINDS = {torch.float32: np.float32, torch.float64: np.float64}


def kind_of(parameters: Sequence[torch.Tensor]) -> Any:
    """The type of the rows."""
    return np.result_type(*(KINDS.get(tensor.dtype, np.float32) for tensor in parameters))


class HostRows:
    """Rows in memory: (room, size) points and gradients, as they come.

    Attributes
    ----------
    points, gradients
        The rows.
    """

    def __init__(self, parameters: Sequence[torch.Tensor], room: int) -> None:
        sizes = [tensor.numel() for tensor in parameters]
        self.points = np.empty((room, sum(sizes)), kind_of(parameters))
        self.gradients = np.empty_like(self.points)
        # For each row, the views that its parameters and then its gradients are copied to, all by one call.
        with torch.inference_mode(False):
            self.flat = torch.from_numpy(self.points), torch.from_numpy(self.gradients)
            self.views = [
                [
                    part.view_as(tensor)
                    for numbers in row
                    for part, tensor in zip(numbers.split(sizes), parameters, strict=True)
                ]
                for row in zip(*self.flat, strict=True)
            ]

    def write(self, row: int, parameters: Sequence[torch.Tensor]) -> None:
        """Copy the parameters and their gradients to a row."""
        views = self.views[row]
        try:
            points = [tensor.data for tensor in parameters]
            torch._foreach_copy_(views, points + [tensor.grad.data for tensor in parameters])  # type: ignore[union-attr]
        except (AttributeError, TypeError, RuntimeError):
            # A gradient is missing or sparse.
            gradients = [tensor.grad for tensor in parameters]
            for view, tensor in zip(views, [*parameters, *gradients], strict=True):
                _copy(tensor, view)


class DeviceRows:
    """Rows on the parameters' device, projected there if there is a projection, and numbers beside them.

    Parameters
    ----------
    parameters
        The tensors, all on one device.
    room
        Number of rows in a block.
    projection
        Directions to project on.
    numbers
        Number of columns beside each row.
    """

    def __init__(
        self, parameters: Sequence[torch.Tensor], room: int, projection: Projection | None, numbers: int
    ) -> None:
        self.device = parameters[0].device
        kind = torch.float64 if kind_of(parameters) == np.float64 else torch.float32
        sizes = [tensor.numel() for tensor in parameters]
        dim = sum(sizes) if projection is None else projection.dim
        self._sizes = sizes
        self._block = torch.zeros((2, room, dim), dtype=kind, device=self.device)
        self._beside = torch.zeros((room, numbers), dtype=torch.float64, device=self.device)
        # Numbers that the host knows, and ON_DEVICE where the device does.
        self._plain = np.zeros((room, numbers))
        self._projector: Projector | None = None
        if projection is not None:
            axes = torch.as_tensor(projection.directions, dtype=kind).contiguous().to(self.device)
            self._projector = Projector(axes, sizes)
            self._start = torch.as_tensor(projection.along_origin, dtype=kind, device=self.device)
        # Two blocks in page-locked memory, so that one can be read while the other is written.
        pinned = self.device.type == "cuda"
        self._host = [
            (part.new_empty(part.shape, device="cpu", pin_memory=pinned), beside)
            for part, beside in [
                (self._block, torch.empty(self._beside.shape, dtype=torch.float64, pin_memory=pinned)) for _ in range(2)
            ]
        ]
        self._turn = 0

    def write(
        self, row: int, points: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor], factor: Any = 1.0
    ) -> None:
        """Gather, or project, a row; the gradients are final but for a factor."""
        if self._projector is not None:
            along, slope = self._projector.of(points, gradients)
            torch.sub(along, self._start, out=self._block[0, row])
            torch.mul(slope, factor, out=self._block[1, row])
            return
        for number, parts in enumerate((points, gradients)):
            views = self._block[number, row].split(self._sizes)
            torch._foreach_copy_([view.view_as(part) for view, part in zip(views, parts, strict=True)], list(parts))
        if isinstance(factor, torch.Tensor) or factor != 1:
            self._block[1, row] *= factor

    def beside(self, row: int, values: Sequence[Any]) -> None:
        """Write the numbers beside a row: numbers of Python, or scalars on the device."""
        for number, value in enumerate(values):
            if isinstance(value, torch.Tensor):
                self._beside[row, number] = value.to(self.device)
                self._plain[row, number] = ON_DEVICE
            else:
                self._plain[row, number] = value

    def send(self, count: int) -> "Sent":
        """Begin to copy the first rows to memory."""
        block, beside = self._host[self._turn]
        self._turn = 1 - self._turn
        block[:, :count].copy_(self._block[:, :count], non_blocking=True)
        beside[:count].copy_(self._beside[:count], non_blocking=True)
        event = None
        if self.device.type == "cuda":
            event = torch.cuda.Event()
            event.record()
        return Sent(block[:, :count], beside[:count], self._plain[:count].copy(), event)


class Sent:
    """A block on its way."""

    def __init__(self, block: torch.Tensor, beside: torch.Tensor, plain: np.ndarray, event: Any) -> None:
        self._block, self._beside, self._plain, self._event = block, beside, plain, event

    def arrived(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Points, gradients and the numbers beside them, as soon as they are there."""
        if self._event is not None:
            self._event.synchronize()
        points, gradients = self._block.numpy().copy()
        return points, gradients, np.where(self._plain == ON_DEVICE, self._beside.numpy(), self._plain)


def copied(parameters: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Gradients as they are, zero where they are missing, without layout."""
    return [
        torch.zeros_like(tensor)
        if tensor.grad is None
        else tensor.grad.detach()
        if tensor.grad.layout == torch.strided
        else tensor.grad.detach().to_dense()
        for tensor in parameters
    ]


def _copy(tensor: torch.Tensor | None, view: torch.Tensor) -> None:
    if tensor is None:
        view.zero_()
    else:
        values = tensor.detach()
        view.copy_(values if values.layout == torch.strided else values.to_dense())


def on_device(parameters: list[torch.Tensor]) -> bool:
    """Whether all parameters are on one device other than the CPU."""
    devices = {tensor.device for tensor in parameters}
    return len(devices) == 1 and devices.pop().type != "cpu"


def flat_responses(responses: list[Any], parameters: list[torch.Tensor]) -> torch.Tensor:
    """Responses, numbers or tensors, as one flat tensor."""
    return torch.cat(
        [
            torch.as_tensor(part, dtype=torch.float64).expand(tensor.shape).reshape(-1)
            for part, tensor in zip(responses, parameters, strict=True)
        ]
    )
