"""Gradients read off iterates: torch's own optimisers made the steps, and what comes back is what they were given."""

import numpy as np
import pytest
import torch

import onlooker
from onlooker import Optimizer
from tests.support.messages import codes

STEPS = 60


def run(rule=torch.optim.SGD, schedule=None, start=0, **settings):
    """Points and ascent gradients of one agent on a noisy bowl, from step ``start`` on."""
    torch.manual_seed(1)
    point = torch.tensor([2.0, -1.0, 0.5], dtype=torch.float64, requires_grad=True)
    optimizer = rule([point], lr=0.05, **settings)
    points, gradients, rates = [], [], []
    for step in range(STEPS):
        if schedule is not None:
            optimizer.param_groups[0]["lr"] = schedule(step)
        optimizer.zero_grad()
        loss = (point**2 * torch.tensor([1.0, 2.0, 0.5])).sum() + torch.randn(3, dtype=torch.float64) @ point
        loss.backward()
        points.append(point.detach().numpy().copy())
        gradients.append(-point.grad.numpy())
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
    return np.array(points)[start:], np.array(gradients)[start:], np.array(rates)[start:]


RULES = {
    "plain": {},
    "momentum": {"momentum": 0.9},
    "dampened": {"momentum": 0.8, "dampening": 0.3},
    "nesterov": {"momentum": 0.9, "nesterov": True},
    "decayed": {"weight_decay": 0.1},
    "all of it": {"momentum": 0.95, "nesterov": True, "weight_decay": 0.05},
}


@pytest.mark.parametrize("schedule", [None, lambda step: 0.05 / (1 + step)])
@pytest.mark.parametrize("name", RULES)
def test_gradients_are_recovered_from_torch_iterates(name, schedule):
    points, gradients, rates = run(schedule=schedule, **RULES[name])
    seen = onlooker.observe(points, learning_rate=rates, optimizer=Optimizer("sgd", **RULES[name]))
    assert np.array_equal(seen.points, points[:-1])
    assert seen.gradients == pytest.approx(gradients[:-1], abs=1e-9)
    if RULES[name]:
        # Taken for plain SGD they are something else.
        assert np.abs(onlooker.observe(points, learning_rate=rates).gradients - gradients[:-1]).max() > 0.1


@pytest.mark.parametrize(("name", "lost", "error"), [("momentum", 1, 1e-9), ("nesterov", 19, 1e-4)])
def test_a_run_that_is_not_seen_from_its_start_loses_its_first_gradients(name, lost, error):
    points, gradients, _ = run(start=10, **RULES[name])
    rule, times = Optimizer("sgd", **RULES[name]), np.arange(10.0, STEPS)
    seen = onlooker.observe(points, times=times, learning_rate=0.05, optimizer=rule)
    assert np.array_equal(seen.points, points[lost:-1])
    assert seen.gradients == pytest.approx(gradients[lost:-1], abs=error)


def test_agents_do_not_mix():
    points, gradients, _ = run(momentum=0.9)
    both, agents = np.repeat(points, 2, axis=0), np.tile([0, 1], STEPS)
    both[1::2] += 7
    seen = onlooker.observe(both, agents=agents, learning_rate=0.05, optimizer=Optimizer("sgd", 0.9))
    for agent in (0, 1):
        assert seen.gradients[seen.agents == agent] == pytest.approx(gradients[:-1], abs=1e-9)


@pytest.mark.parametrize("rule", [torch.optim.Adam, torch.optim.RMSprop])
def test_adam_has_lost_the_gradients_size(rule):
    """Along one coordinate a thousand times the gradients, and the same iterates: so it is rejected."""
    found = []
    for scale in (1.0, 1000.0):
        torch.manual_seed(1)
        point = torch.tensor([2.0, -1.0], dtype=torch.float64, requires_grad=True)
        optimizer = rule([point], lr=0.01)
        for _ in range(STEPS):
            optimizer.zero_grad()
            (point**2 @ torch.tensor([1.0, scale], dtype=torch.float64)).backward()
            optimizer.step()
        found.append(point.detach().numpy())
    assert np.abs(found[0] - found[1]).max() < 1e-6
    with pytest.raises(ValueError, match=f"the optimizer is {rule.__name__.lower()}: gradients can be computed"):
        onlooker.observe(np.zeros((5, 2)), optimizer=rule.__name__)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"optimizer": "momentum"}, "momentum but momentum is not given"),
        ({"optimizer": Optimizer("sgd", weight_decay=0.1)}, "weight_decay cannot be undone without it"),
        ({"learning_rate": [0.1, 0.2]}, "learning_rate has shape"),
        ({"learning_rate": [0.1, 0.2, 0.0]}, "learning_rate has entries that are not positive numbers"),
    ],
)
def test_optimizers_that_cannot_be_inverted_are_rejected(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        onlooker.observe(np.arange(3.0)[:, None], **options)


def test_an_unknown_learning_rate_is_warned_about():
    points, gradients, _ = run(momentum=0.9)
    seen = onlooker.observe(points, optimizer=Optimizer("sgd", 0.9))
    assert seen.gradients == pytest.approx(0.05 * gradients[:-1], abs=1e-9)
    assert codes(seen) == ["learning-rate-unknown"]
