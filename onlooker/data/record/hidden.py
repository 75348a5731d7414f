"""What a projection y = W(θ − θ₀) hides, as two numbers a row: h·g and |h|, h the part of θ − θ₀ across the directions.

From them a landscape knows how far a row is from its plane, and how R changes on the way there, to first order.
"""

from collections.abc import Sequence
from typing import Any

import torch

from onlooker.data.projection import Projection

__all__ = ["Hidden"]


class Hidden:
    """Directions and origin where the parameters are, one tensor or as many as there are parameters."""

    def __init__(self, projection: Projection, tensors: Sequence[torch.Tensor]) -> None:
        sizes = [tensor.numel() for tensor in tensors]
        kind, device = tensors[0].dtype, tensors[0].device
        directions, origin = (torch.as_tensor(part, dtype=kind) for part in (projection.directions, projection.origin))
        self._axes = [part.contiguous().to(device) for part in directions.split(sizes, dim=1)]
        self._origin = [part.contiguous().to(device) for part in origin.split(sizes)]

    def of(self, points: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]) -> list[Any]:
        """h·g and |h| of a row."""
        across: Any = 0.0
        squares: Any = 0.0
        along: Any = 0.0
        slope: Any = 0.0
        for axes, origin, point, gradient in zip(self._axes, self._origin, points, gradients, strict=True):
            apart, flat = point.reshape(-1) - origin, gradient.reshape(-1)
            across, squares = across + torch.dot(apart, flat), squares + torch.dot(apart, apart)
            along, slope = along + axes @ apart, slope + axes @ flat
        return [across - torch.dot(along, slope), (squares - torch.dot(along, along)).clamp(min=0).sqrt()]
