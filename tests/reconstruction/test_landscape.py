"""Landscapes: R on a plane covers the true slice, where a reconstruction of the projected rows alone does not."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import onlooker
from onlooker.reconstruction.landscape_of_model import filter_directions
from tests.support.messages import codes

DIM = 5
# θ₁ and θ₂ span the plane; learners drift along θ₃, where R rises, the more so the farther out they are.
DIRECTIONS = np.eye(DIM)[:2]


def reward(points):
    y, h = points[..., :2], points[..., 2:]
    slope = (1.0 + 0.1 * (y**2).sum(-1)) * h[..., 0]
    return -0.1 * (y**2).sum(-1) - 0.25 * (h**2).sum(-1) + slope


def runs(folder, count=60, steps=16, rate=0.15, noise=0.1, losses=True, **options):
    generator = torch.Generator().manual_seed(0)
    with onlooker.LogWriter(folder) as log:
        for agent in range(count):
            start = torch.zeros(DIM, dtype=torch.float64)
            start[:2] = 4 * torch.rand(2, generator=generator) - 2
            point = start.requires_grad_()
            optimizer = torch.optim.SGD([point], lr=rate)
            with onlooker.record(optimizer, log, agent=agent, along=True, **options) as recording:
                for _ in range(steps):
                    drawn = noise * torch.randn(2, DIM, generator=generator, dtype=torch.float64)
                    optimizer.zero_grad()
                    value = -reward(point)
                    recording.half(value + drawn[0] @ point)
                    if losses:
                        recording.loss(value)
                    (value + drawn.mean(dim=0) @ point).backward()
                    optimizer.step()
    return onlooker.read_log(folder)


def compared(found, grid, values, bars):
    truth = reward(np.concatenate([grid, np.zeros((len(grid), DIM - 2))], axis=1))
    error = values - truth
    error = error - error.mean()
    return float(np.sqrt((error**2).mean())), float((np.abs(error) < 2 * bars).mean()), float(truth.std())


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    whole, few = (tmp_path_factory.mktemp(name) for name in ("whole", "few"))
    projection = onlooker.projection.onto(DIRECTIONS)
    return runs(whole), runs(few, projection=projection), few


@pytest.mark.parametrize("projected", [pytest.param(False, marks=pytest.mark.trainers), True])
def test_the_slice_is_covered_where_the_mean_force_is_not(logs, projected):
    whole, few, _ = logs
    given = {} if projected else {"directions": DIRECTIONS, "around": np.zeros(DIM)}
    found = onlooker.landscape(few if projected else whole, **given)
    _, grid = found.grid(15)
    grid = grid[found.explored(grid)]
    assert len(grid) > 60
    rms, coverage, spread = compared(found, grid, found.reward(grid), found.reward_error(grid))
    assert rms < 0.35 * spread
    assert coverage > 0.85
    assert np.median(found.reward_error(grid)) < 1.5 * spread
    result = onlooker.reconstruct(few)
    places = grid[result.explored(grid)]
    bare = compared(found, places, result.reward(places), result.reward_error(places))
    assert bare[0] > 2 * rms
    assert bare[1] < 0.5
    back = found.to_parameters(grid[:3])
    assert back == pytest.approx(np.concatenate([grid[:3], np.zeros((3, 3))], axis=1), abs=1e-9)
    assert np.abs(found.maximum()).max() < 0.5
    assert found.explained < 1


@pytest.mark.trainers
def test_far_from_the_plane_it_is_said(logs):
    whole, few, folder = logs
    unknown = onlooker.landscape(replace(few, marks={}))
    assert "slice-unknown" in codes(unknown.warnings)
    assert not unknown.trusted
    far = replace(whole, points=whole.points + 4 * np.array([0, 0, 0, 1.0, 0]))
    far = replace(far, gradients=far.gradients - 8 * np.array([0, 0, 0, 1.0, 0]))
    assert "slice-unsure" in codes(onlooker.landscape(far, directions=DIRECTIONS, around=np.zeros(DIM)).warnings)
    for options, sentence in (
        ({"directions": DIRECTIONS}, "has points along its own directions"),
        ({"loss": len}, "loss and data belong together"),
        ({"directions": "filter"}, "directions is 'filter'; with a log give 'pca'"),
    ):
        with pytest.raises(ValueError, match=sentence):
            onlooker.landscape(folder, **options)
    with pytest.raises(TypeError, match="source is of type int; give a log, or a torch model"):
        onlooker.landscape(3)


@pytest.mark.trainers
def test_principal_directions_and_the_figure(logs):
    whole, _, _ = logs
    found = onlooker.landscape(whole)
    assert found.projection.origin == pytest.approx(whole.points.mean(axis=0))
    assert 0.5 < found.explained < 1
    assert found.names[0].startswith("component 1 (")
    assert len(found.plot().axes) == 4


@pytest.mark.trainers
def test_the_landscape_of_a_model():
    """A linear regression: the loss on a filter-normalised plane is a quadratic that is known; the model stays."""
    torch.manual_seed(0)
    model = torch.nn.Linear(6, 2)
    before = torch.nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    inputs = torch.randn(400, 6)
    targets = inputs @ torch.randn(6, 2)
    batches = [(inputs[rows], targets[rows]) for rows in torch.arange(400).split(40)]

    def loss(model, batch):
        return (model(batch[0]) - batch[1]).square().mean()

    found = onlooker.landscape(model, loss, batches, seed=1)
    assert torch.equal(torch.nn.utils.parameters_to_vector(model.parameters()), before)
    _, grid = found.grid(9)
    grid = grid[found.explored(grid)]
    truth = []
    for point in torch.as_tensor(found.to_parameters(grid), dtype=torch.float32):
        torch.nn.utils.vector_to_parameters(point, model.parameters())
        truth.append(-loss(model, (inputs, targets)).item())
    error = found.reward(grid) - truth
    assert np.std(error) < 0.05 * np.std(truth)
    assert found.trusted
    spans = filter_directions(model, seed=3)
    weights = model.weight.detach().numpy()
    assert np.linalg.norm(spans[0][:12].reshape(2, 6), axis=1) == pytest.approx(np.linalg.norm(weights, axis=1))
    assert not spans[:, 12:].any()
    with pytest.raises(ValueError, match="data has no batches"):
        onlooker.landscape(model, loss, [])
