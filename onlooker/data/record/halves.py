"""ΔR ≈ ½(g + g′)·Δθ − ½ cov(Δθ, g): one number a step, in all dimensions, from two gradients and two half batches.

A step Δθ = F(g) contains the noise of its own gradient: the trapezoid alone adds ½ tr(F′Σ) a step, ½ε tr Σ for SGD,
which is all it sees of a learner at rest. Two half batches with gradients a, b, g = ½(a + b), have d = ½(a − b) of
covariance Σ and no mean: E ½ Σ_j F′_j d_j² = ½ tr(F′Σ). For SGD that is ⅛ε|a − b|², and the corrected step ½ε a·b + ….

The noise left has variance E(½d·(Δθ₋ + Δθ))², Δθ₋ the step before: each gradient counts in two trapezoids. That has a
quarter of the ε² tr Σ² of its own step, ¾(d·Δθ)² the other three, so that

    V = (½d·(Δθ₋ + Δθ))² + ¾(d·Δθ)²

is right at rest and somewhat too large on a slope.
"""

from collections.abc import Sequence
from typing import Any

import torch

from onlooker.data.marks import ALONG

__all__ = ["Trapezoid"]


class Trapezoid:
    """The marks of each step, from successive points and ascent gradients, each a list of tensors."""

    def __init__(self) -> None:
        self._points: list[torch.Tensor] = []
        self._gradients: list[torch.Tensor] = []
        self._step: list[torch.Tensor] | None = None
        # d of the row before, and ½ Σ F′d².
        self._half: list[torch.Tensor] | None = None
        self._correction: Any = float("nan")

    def to(
        self,
        points: Sequence[torch.Tensor],
        gradients: Sequence[torch.Tensor],
        half: list[torch.Tensor] | None = None,
        responses: Sequence[Any] | None = None,
        skipped: Any = None,
    ) -> list[Any]:
        """Go on to a row; returns the values of `ALONG` of the step that led there, numbers or scalars on a device.

        Parameters
        ----------
        points, gradients
            The row: θ and g. They are copied.
        half
            d = ½(a − b) there, if it is known.
        responses
            F′ there, for each tensor.
        skipped
            A scalar on a device that is not 0 if there is no such row after all, because its step is skipped.
        """
        marks: list[Any] = [float("nan")] * len(ALONG)
        if self._points:
            step = list(torch._foreach_sub(list(points), self._points))
            between = torch._foreach_add(list(gradients), self._gradients)
            marks[0] = 0.5 * _dot(between, step)
            if self._half is not None:
                marks[1], marks[3] = self._correction, 4 * _dot(self._half, self._half)
                own = _dot(self._half, step)
                before = 0.0 if self._step is None else _dot(self._half, self._step)
                marks[2] = (0.5 * (before + own)) ** 2 + 0.75 * own**2
            if skipped is not None:
                step = _unless(skipped, self._step, step)
                points = _unless(skipped, self._points, points)
                gradients = _unless(skipped, self._gradients, gradients)
            self._step = step
            torch._foreach_copy_(self._points, list(points))
            torch._foreach_copy_(self._gradients, list(gradients))
        else:
            self._points = [tensor.clone() for tensor in points]
            self._gradients = [tensor.clone() for tensor in gradients]
        correction: Any = float("nan")
        if half is not None and responses is not None:
            correction = 0.5 * sum((factor * part**2).sum() for factor, part in zip(responses, half, strict=True))
            if skipped is not None:
                half = _unless(skipped, self._half, half)
                correction = torch.where(skipped > 0, self._correction, correction)
        self._half, self._correction = half, correction
        return marks


def _unless(
    skipped: torch.Tensor, before: Sequence[torch.Tensor] | None, now: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """What is so now or, where a step is skipped, what was so before."""
    if before is None:
        return list(now)
    return [torch.where(skipped > 0, old, new) for old, new in zip(before, now, strict=True)]


def _dot(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> Any:
    return sum(torch.dot(a.reshape(-1), b.reshape(-1)) for a, b in zip(one, other, strict=True))
