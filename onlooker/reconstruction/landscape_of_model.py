"""The landscape of a torch model: gradients at random places of a plane, a batch each, until R̂ is known well enough.

A gradient at a place of the plane has the slopes of the slice there, because h = 0. A few hundred of them show what a
grid of as many forward passes over all data shows.
"""

import copy
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from onlooker.core.settings import check_positive
from onlooker.data.observations import observe
from onlooker.data.projection import Projection, onto
from onlooker.reconstruction.landscape import Landscape, of_rows

__all__ = ["filter_directions", "of_model"]

# Number of places of a round, and of rounds.
ROUND, ROUNDS = 150, 8


def filter_directions(model: torch.nn.Module, count: int = 2, seed: int = 0) -> np.ndarray:
    """Random directions (count, many), each filter as long as the model's own; those of biases and norms are zero.

    A filter is a row of a tensor along its first axis. See Li, Xu, Taylor, Studer, Goldstein: Visualizing the Loss
    Landscape of Neural Nets, 2018.
    """
    generator = torch.Generator().manual_seed(seed)
    directions = []
    for _ in range(count):
        parts = []
        for tensor in model.parameters():
            weights = tensor.detach().cpu().double()
            drawn = torch.randn(weights.shape, generator=generator, dtype=torch.float64)
            if weights.dim() < 2:
                parts.append(torch.zeros(weights.numel(), dtype=torch.float64))
                continue
            rows, own = drawn.reshape(len(drawn), -1), weights.reshape(len(weights), -1)
            parts.append((rows * own.norm(dim=1, keepdim=True) / rows.norm(dim=1, keepdim=True)).reshape(-1))
        directions.append(torch.cat(parts).numpy())
    return np.array(directions)


def of_model(
    model: Any, loss: Any, data: Any, around: Any, directions: Any, size: float, error: float, seed: int
) -> Landscape:
    """See `onlooker.landscape`."""
    check_positive(size=size, error=error)
    if not isinstance(model, torch.nn.Module) or not callable(loss):
        raise TypeError("source and loss are given with data; give a torch model and a function of it and a batch.")
    own = copy.deepcopy(model)
    start = torch.nn.utils.parameters_to_vector(own.parameters()).detach().cpu().double().numpy()
    origin = start if around is None else np.asarray(around, float)
    if isinstance(directions, str) and directions != "filter":
        raise ValueError(f"directions is {directions!r}; with a model give 'filter', or an array of directions.")
    by_filter = directions is None or isinstance(directions, str)
    if by_filter:
        torch.nn.utils.vector_to_parameters(_tensor(origin, own), own.parameters())
        directions = filter_directions(own, seed=seed)
    spans = size * np.atleast_2d(np.asarray(directions, float))
    plane = onto(spans, origin)
    names = tuple(f"{'filter ' if by_filter else ''}direction {axis + 1}" for axis in range(plane.dim))
    random, batches = np.random.default_rng(seed), _again_and_again(data)
    points: list[np.ndarray] = []
    gradients: list[np.ndarray] = []
    for _ in range(ROUNDS):
        for place in random.uniform(-1, 1, (ROUND, plane.dim)) @ spans:
            points.append(plane.points(origin + place))
            gradients.append(plane.gradients(-_gradient(own, loss, next(batches), origin + place)))
        found = _of(np.array(points), np.array(gradients), plane, names, seed)
        _, grid = found.grid()
        known = grid[found.explored(grid)]
        if np.median(found.reward_error(known)) < error * found.reward(known).std():
            break
    return found


def _of(points: np.ndarray, gradients: np.ndarray, plane: Projection, names: tuple[str, ...], seed: int) -> Landscape:
    rows = observe(points, gradients, agents=np.arange(len(points)))
    on_the_plane = np.zeros(len(points))
    return of_rows(rows, rows, plane, on_the_plane, on_the_plane, names, seed)


def _gradient(model: torch.nn.Module, loss: Any, batch: Any, place: np.ndarray) -> np.ndarray:
    torch.nn.utils.vector_to_parameters(_tensor(place, model), model.parameters())
    found = torch.autograd.grad(loss(model, batch), list(model.parameters()), allow_unused=True)
    flat = [
        torch.zeros(tensor.numel()) if part is None else part.detach().reshape(-1).cpu()
        for part, tensor in zip(found, model.parameters(), strict=True)
    ]
    return torch.cat([part.double() for part in flat]).numpy()


def _tensor(place: np.ndarray, model: torch.nn.Module) -> torch.Tensor:
    first = next(model.parameters())
    return torch.as_tensor(place, dtype=first.dtype, device=first.device)


def _again_and_again(data: Any) -> Iterator[Any]:
    for turn in itertools.count():
        nothing = True
        for batch in data:
            nothing = False
            yield batch
        if nothing:
            raise ValueError(
                f"data has no batches{' any more' if turn else ''}; give a list of batches or a DataLoader."
            )
