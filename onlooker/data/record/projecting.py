"""Wθ and Wg of many tensors on a GPU in one pass: every number is read once, and nothing is copied.

One program per tile of a tensor adds up its part; a table has the addresses of the tensors. Without Triton, or for
tensors of several types, each tensor is multiplied on its own, which costs two small kernels each.
"""

from collections.abc import Sequence
from typing import Any

import torch

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

__all__ = ["Projector"]

# Numbers of a tile.
TILE = 4096

if triton is not None:

    @triton.jit
    def _tiles(  # type: ignore[no-untyped-def]
        points, gradients, axes, sizes, starts, owners, offsets, out, total, few: tl.constexpr, tile: tl.constexpr
    ):
        program = tl.program_id(0)
        owner = tl.load(owners + program)
        inside = tl.load(offsets + program) + tl.arange(0, tile)
        known = inside < tl.load(sizes + owner)
        where = tl.load(starts + owner) + inside
        point = tl.load(tl.load(points + owner).to(tl.pointer_type(tl.float32)) + inside, mask=known, other=0.0)
        slope = tl.load(tl.load(gradients + owner).to(tl.pointer_type(tl.float32)) + inside, mask=known, other=0.0)
        for axis in tl.static_range(few):
            weight = tl.load(axes + axis * total + where, mask=known, other=0.0)
            tl.store(out + program * 2 * few + axis, tl.sum(weight * point))
            tl.store(out + program * 2 * few + few + axis, tl.sum(weight * slope))


class Projector:
    """Directions on a device, for tensors of these sizes.

    Parameters
    ----------
    axes
        W (few, many), on the device.
    sizes
        Number of coordinates of each tensor.
    """

    def __init__(self, axes: torch.Tensor, sizes: Sequence[int]) -> None:
        self._axes, self._sizes, self._few = axes, list(sizes), len(axes)
        self._parts = list(axes.split(self._sizes, dim=1))
        self._fast = triton is not None and axes.device.type == "cuda" and axes.dtype == torch.float32
        if self._fast:
            counts = torch.tensor(self._sizes)
            tiles = (counts + TILE - 1) // TILE
            owners = torch.repeat_interleave(torch.arange(len(counts)), tiles)
            first = torch.cumsum(tiles, 0) - tiles
            offsets = (torch.arange(len(owners)) - first[owners]) * TILE
            starts = torch.cumsum(counts, 0) - counts
            self._static = [part.to(axes.device) for part in (counts, starts, owners, offsets)]
            self._out = torch.zeros((len(owners), 2 * self._few), device=axes.device)

    def of(self, points: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]) -> tuple[Any, Any]:
        """Wθ and Wg, (few,) each."""
        plain = self._fast and all(
            part.dtype == torch.float32 and part.is_contiguous() for part in (*points, *gradients)
        )
        if not plain:
            return self._one_by_one(points), self._one_by_one(gradients)
        addresses = torch.tensor([[part.data_ptr() for part in points], [part.data_ptr() for part in gradients]])
        table = addresses.to(self._axes.device, non_blocking=True)
        total = self._axes.shape[1]
        with torch.cuda.device(self._axes.device):
            _tiles[(len(self._out),)](
                table[0], table[1], self._axes, *self._static, self._out, total, few=self._few, tile=TILE
            )
        both = self._out.sum(dim=0, dtype=torch.float64).to(torch.float32)
        return both[: self._few], both[self._few :]

    def _one_by_one(self, tensors: Sequence[torch.Tensor]) -> Any:
        along: Any = torch.zeros(self._few, dtype=self._axes.dtype, device=self._axes.device)
        for axes, part in zip(self._parts, tensors, strict=True):
            along = torch.addmv(along, axes, part.reshape(-1).to(self._axes.dtype))
        return along
