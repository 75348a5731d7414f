"""The cost of recording on a GPU: milliseconds per step of an optimizer, projected on the device, as a share of 50 ms.

`python -m benchmarks.recorders_gpu` times SGD steps of 10⁶ and 10⁸ parameters with and without a recording on two
directions, in alternation; the training itself is left out, so that what is added is all that is seen.
"""

import json
import tempfile
import time
from typing import Any

import numpy as np
import torch

import onlooker
from benchmarks.figures import keep
from onlooker.data.projection import Projection

STEPS, TURNS, STEP = 128, 5, 0.05


def tensors(total: int, device: str) -> list[torch.Tensor]:
    """Parameters like those of a transformer: many of a million, some small."""
    side = 1024 if total > 10**7 else 256
    large = total // (side * side)
    shapes = [(side, side)] * large + [(side,)] * large
    found = [torch.randn(shape, device=device).requires_grad_() for shape in shapes]
    for tensor in found:
        tensor.grad = torch.randn_like(tensor)
    return found


def directions(total: int) -> Projection:
    """Two that are orthogonal without a QR of 10⁸ rows."""
    axes = np.zeros((2, total), np.float32)
    axes[0, ::2] = axes[1, 1::2] = 1 / np.sqrt(total / 2)
    return Projection(axes, np.zeros(total, np.float32))


def seconds(optimizer: Any, steps: int) -> float:
    """Seconds per step, on the device and on the host, whichever is longer."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(steps):
        optimizer.step()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / steps


def main() -> None:
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    for about in (10**6, 10**8):
        parameters = tensors(about, "cuda")
        total = sum(tensor.numel() for tensor in parameters)
        optimizer = torch.optim.SGD(parameters, lr=1e-9)
        seconds(optimizer, 20)
        plain = min(seconds(optimizer, STEPS) for _ in range(TURNS))
        plane = directions(total)
        for along in (False, True):
            with (
                tempfile.TemporaryDirectory() as folder,
                onlooker.record(optimizer, folder, agent=0, projection=plane, along=along),
            ):
                seconds(optimizer, STEPS)
                recorded = min(seconds(optimizer, STEPS) for _ in range(TURNS))
            more = recorded - plain
            row = {"parameters": total, "tensors": len(parameters), "along": along, "step_ms": 1e3 * plain}
            row |= {"more_ms": 1e3 * more, "percent_of_50_ms": 100 * more / STEP}
            keep("recorder on a GPU", **{**row, "along": str(along)})
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
