"""Wθ and Wg of many tensors on a GPU in one pass: every number is read once, and nothing is copied.

One program per tile of a tensor adds up its part; a table has the addresses of the tensors. Without Triton, or for
tensors of several types, they are copied to one before they are multiplied.
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

# Numbers of a tile, and the relative error by which sums in float32 in another order may differ.
TILE, ROUNDING = 4096, 1e-2

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
        self._flat: torch.Tensor | None = None
        self._checked = False
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
            return self._by_copy(points), self._by_copy(gradients)
        if self._checked:
            return self._in_one_pass(points, gradients)
        # Once, the slow way, too: what a compiler makes of the kernel on this machine is not taken on trust.
        self._checked = True
        slow = self._by_copy(points), self._by_copy(gradients)
        try:
            quick = self._in_one_pass(points, gradients)
            self._fast = all(_close(one, other) for one, other in zip(quick, slow, strict=True))
        except Exception:
            self._fast = False
        return slow

    def _in_one_pass(self, points: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]) -> tuple[Any, Any]:
        addresses = torch.tensor([[part.data_ptr() for part in points], [part.data_ptr() for part in gradients]])
        table = addresses.to(self._axes.device, non_blocking=True)
        total = self._axes.shape[1]
        with torch.cuda.device(self._axes.device):
            _tiles[(len(self._out),)](
                table[0], table[1], self._axes, *self._static, self._out, total, few=self._few, tile=TILE
            )
        both = self._out.sum(dim=0, dtype=torch.float64).to(torch.float32)
        return both[: self._few], both[self._few :]

    def _by_copy(self, tensors: Sequence[torch.Tensor]) -> Any:
        """W times all tensors, which are copied one after the other by one call."""
        if self._flat is None:
            self._flat = torch.empty(self._axes.shape[1], dtype=self._axes.dtype, device=self._axes.device)
        views = [part.view_as(one) for part, one in zip(self._flat.split(self._sizes), tensors, strict=True)]
        torch._foreach_copy_(views, list(tensors))
        return torch.mv(self._axes, self._flat)


def _close(one: torch.Tensor, other: torch.Tensor) -> bool:
    return bool(torch.allclose(one, other, rtol=ROUNDING, atol=ROUNDING * float(other.abs().max())))
