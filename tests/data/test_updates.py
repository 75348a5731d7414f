"""What trainers do to gradients: clipping, loss scales, weight decay; and what only looks like it."""

import numpy as np
import pytest

import onlooker
from onlooker.data.observations import observe
from onlooker.data.updates import Lengths, Steps, about_updates, steps_of
from tests.support.messages import codes


def trained(agents=60, steps=60, dim=2, rate=0.03, decay=0.0, momentum=0.0, clip=None, scale=None, rates=None, **more):
    """SGD on a bowl with ripples: observations as a trainer records them."""
    generator = np.random.default_rng(more.get("seed", 0))
    slope, noise = more.get("slope", lambda x: -x * (1 + 0.5 * np.cos(2 * x))), more.get("noise", 1.0)
    point = 1.2 * np.clip(generator.standard_normal((agents, dim)), -1.8, 1.8)
    buffer, points, gradients = np.zeros_like(point), [], []
    for step in range(steps):
        gradient = slope(point) + noise * generator.standard_normal(point.shape)
        if clip == "each":
            gradient = np.clip(gradient, -2, 2)
        elif clip:
            gradient *= np.minimum(1, clip / (np.linalg.norm(gradient, axis=1, keepdims=True) + 1e-6))
        points.append(point)
        gradients.append(gradient * (scale(step) if scale else 1.0))
        buffer = momentum * buffer + gradient - decay * point
        point = point + rate * (rates(step) if rates else 1.0) * buffer
    rows = [np.stack(part, axis=1).reshape(-1, dim).astype(np.float32) for part in (points, gradients)]
    return observe(*rows, agents=np.repeat(np.arange(agents), steps))


@pytest.mark.parametrize(("momentum", "decay"), [(0.0, 0.0), (0.9, 0.0), (0.0, 1e-3), (0.9, 0.01), (0.9, 1.0)])
def test_the_optimizer_is_read_off_its_steps(momentum, decay):
    seen = trained(momentum=momentum, decay=decay)
    rule = steps_of(seen).rule()
    assert rule[:3] == pytest.approx((0.03, momentum, decay), rel=0.01, abs=1e-6)
    assert rule.left < 1e-6
    _, warnings = about_updates(seen)
    assert [message.code for message in warnings] == (["decay-added"] if decay else [])
    if decay:
        assert warnings[0].numbers["decay"] == pytest.approx(decay, rel=0.01)


def test_nothing_is_said_of_steps_that_another_rule_made():
    seen = trained()
    normal = np.random.default_rng(1).standard_normal(seen.points.shape)
    other = observe(seen.points + 0.01 * normal, seen.gradients, agents=seen.agents)
    assert steps_of(other).rule() is None
    assert about_updates(other) == ({}, [])


def test_sums_over_parts_are_sums_over_all():
    whole = trained(decay=0.1)
    half = whole.agents < 30
    parts = [observe(whole.points[rows], whole.gradients[rows], agents=whole.agents[rows]) for rows in (half, ~half)]
    one, other = (steps_of(part) for part in parts)
    assert one.joined(other).rule() == pytest.approx(steps_of(whole).rule(), rel=1e-9)
    assert (one.joined(other).ratios == steps_of(whole).ratios).all()
    lengths = np.concatenate([np.random.default_rng(0).uniform(0, 3, 1000), np.full(50, 3.0)])
    split = Lengths.of(lengths[:1020]).joined(Lengths.of(lengths[1020:]))
    assert split == Lengths.of(lengths)
    # Where the first part has not seen the limit, its rows only count.
    assert Lengths.of(lengths[:1000]).joined(Lengths.of(lengths[1000:])).same == 50
    assert Steps().rule() is None


@pytest.mark.parametrize("clip", [1.0, 2.0, 3.0, "each"])
def test_clipped_gradients_are_noticed(clip):
    seen = trained(clip=clip)
    numbers, (message,) = about_updates(seen)
    assert message.code == "gradients-clipped"
    assert message.numbers["limit"] == pytest.approx(2.0 if clip == "each" else clip, rel=1e-5)
    lengths = np.abs(seen.gradients).ravel() if clip == "each" else np.linalg.norm(seen.gradients, axis=1)
    assert numbers["clipped_share"] == pytest.approx(np.mean(lengths > lengths.max() * (1 - 1e-4)))


@pytest.mark.parametrize(
    "honest",
    [
        {},
        {"dim": 7},
        {"slope": lambda x: -np.tanh(3 * x), "noise": 0.0},
        {"slope": lambda x: -np.sign(x), "noise": 0.3},
        {"rates": lambda step: 0.5 ** (step // 20)},
        {"rates": lambda step: np.cos(step / 40)},
    ],
)
def test_honest_rows_raise_no_warning(honest):
    for seed in range(5):
        assert about_updates(trained(seed=seed, **honest))[1] == []


@pytest.mark.parametrize("scale", [lambda step: 2.0 ** (step // 20), lambda step: 4.0 if step == 7 else 1.0])
def test_a_loss_scale_that_changes_is_no_jump_of_the_reward(scale):
    seen = trained(dim=1, agents=200, scale=scale)
    with pytest.warns(onlooker.OnlookerWarning, match="loss scale"):
        result = onlooker.reconstruct(seen, method="potential")
    assert "loss-scaled" in codes(result)
    assert "reward-jumped" not in codes(result)
    assert not result.trusted
