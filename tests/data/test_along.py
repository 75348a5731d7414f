"""R along runs: equal to its formula, right at rest and on a slope, with errors that cover; naive sums fail."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import onlooker
from onlooker.data.along import along
from onlooker.data.components import Components, of_all
from onlooker.data.live_components import LiveComponents
from onlooker.data.projection import onto, principal_components
from tests.support.messages import codes

DIM, STEPS = 8, 250


def run(folder, *, rule=torch.optim.SGD, seed=0, steps=STEPS, start=3.0, rate=0.03, quartic=0.05, losses=False, **more):
    """Halves of a batch with known noise on R = −½|θ|² − ¼q|θ|⁴; returns the rows, and R at them."""
    settings = {name: more.pop(name) for name in ("momentum", "nesterov", "projection") if name in more}
    projection = settings.pop("projection", None)
    generator = torch.Generator().manual_seed(seed)
    point = (start * torch.ones(DIM, dtype=torch.float64) / DIM**0.5).requires_grad_()
    optimizer = rule([point], lr=rate, **settings)
    true = []
    with onlooker.record(optimizer, folder, agent=seed, along=True, projection=projection) as recording:
        for _ in range(steps):
            noise = torch.randn(2, DIM, generator=generator, dtype=torch.float64) * 2**0.5
            optimizer.zero_grad()
            value = 0.5 * (point @ point) + 0.25 * quartic * (point @ point) ** 2
            recording.half(value + noise[0] @ point)
            if losses:
                recording.loss(value.detach() + 0.1 * noise[0, 0])
            true.append(-value.item())
            (value + noise.mean(dim=0) @ point).backward()
            optimizer.step()
    return np.array(true)


def test_marks_equal_their_formulas(tmp_path):
    """SGD: gain, ½ε|d|² = ⅛ε|a − b|², the variance and |a − b|², from gradients and noise written again in NumPy."""
    run(tmp_path, steps=30)
    seen = onlooker.read_log(tmp_path)
    generator = torch.Generator().manual_seed(0)
    noise = np.array(
        [(torch.randn(2, DIM, generator=generator, dtype=torch.float64) * 2**0.5).numpy() for _ in range(30)]
    )
    difference = (noise[:, 0] - noise[:, 1])[:-1]
    taken = np.diff(seen.points, axis=0)
    marks = seen.marks
    assert marks["gain"][1:] == pytest.approx((0.5 * (seen.gradients[1:] + seen.gradients[:-1]) * taken).sum(axis=1))
    assert marks["halves"][1:] == pytest.approx((difference**2).sum(axis=1))
    assert marks["correction"][1:] == pytest.approx(0.03 / 8 * (difference**2).sum(axis=1))
    before = np.concatenate([np.zeros((1, DIM)), taken[:-1]])
    own = (0.5 * difference * taken).sum(axis=1)
    assert marks["variance"][1:] == pytest.approx(
        (0.5 * ((0.5 * difference * before).sum(axis=1) + own)) ** 2 + 0.75 * own**2
    )


@pytest.mark.parametrize(
    ("rule", "settings", "share"),
    [
        (torch.optim.SGD, {"momentum": 0.9}, 1.0),
        (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}, 1.9),
        (torch.optim.Adam, {}, None),
    ],
)
def test_the_response_is_the_derivative_of_a_step(rule, settings, share):
    """Against the difference of two steps from the same state with gradients that differ by little."""
    from onlooker.data.record.rules import group_of, response

    def stepped(more):
        torch.manual_seed(0)
        point = torch.randn(5, dtype=torch.float64).requires_grad_()
        optimizer = rule([point], lr=0.01, **settings)
        for number in range(4):
            point.grad = torch.randn(5, dtype=torch.float64)
            if number == 3:
                point.grad += more
                found = response(optimizer, point, group_of(optimizer)[id(point)], point.grad)
            optimizer.step()
        return point.detach().clone(), found

    (high, _), (low, _), (_, found) = stepped(1e-5), stepped(-1e-5), stepped(0.0)
    derivative = (low - high) / 2e-5
    assert torch.allclose(torch.as_tensor(found, dtype=torch.float64).expand(5), derivative, rtol=1e-4)
    assert share is None or found == pytest.approx(0.01 * share)


@pytest.mark.parametrize(
    ("rule", "start"), [(torch.optim.SGD, 0.0), pytest.param(torch.optim.Adam, 3.0, marks=pytest.mark.trainers)]
)
def test_along_covers_and_naive_sums_fail(tmp_path, rule, start):
    """Ten runs: z-scores at the end have mean 0 and are no larger than normal; at rest, the naive sums are off."""
    scores, naive, plain, bare = [], [], [], []
    for seed in range(10):
        folder = tmp_path / str(seed)
        true = run(folder, rule=rule, seed=seed, start=start)
        seen = onlooker.read_log(folder)
        found = along(seen)
        assert found.halves
        scores.append((found.reward[-1] - (true[-1] - true[0])) / found.error[-1])
        steps = np.diff(seen.points, axis=0)
        for sums, gradients in ((naive, seen.gradients[1:]), (plain, 0.5 * (seen.gradients[1:] + seen.gradients[:-1]))):
            sums.append(((gradients * steps).sum() - (true[-1] - true[0])) / found.error[-1])
        without = along(replace(seen, marks={}))
        bare.append((without.reward[-1] - (true[-1] - true[0])) / without.error[-1])
        assert codes(without.warnings) == ["halves-missing"]
    # 10 scores: their mean beyond 1.3 or their mean square above 3.8 happens once in ten thousand if they are normal.
    assert abs(np.mean(scores)) < 1.3
    assert np.mean(np.square(scores)) < 3.8
    assert np.abs(bare).max() < 3.7
    if start == 0:
        assert np.mean(plain) > 5
    if rule is torch.optim.SGD and start == 0:
        assert np.mean(np.square(naive)) > np.mean(np.square(scores))


def test_along_with_a_projection_is_that_of_all_parameters(tmp_path):
    whole, few = tmp_path / "whole", tmp_path / "few"
    directions = onto(np.random.default_rng(0).standard_normal((2, DIM)), origin=np.full(DIM, 0.1))
    run(whole)
    run(few, projection=directions)
    one, other = (onlooker.read_log(folder) for folder in (whole, few))
    assert other.points == pytest.approx(directions.points(one.points))
    for name in ("gain", "correction", "variance", "halves"):
        assert other.marks[name] == pytest.approx(one.marks[name], nan_ok=True)
    hidden = one.points - directions.origin - other.points @ directions.directions
    assert other.marks["distance"] == pytest.approx(np.linalg.norm(hidden, axis=1))
    assert other.marks["across"] == pytest.approx((hidden * one.gradients).sum(axis=1))
    assert along(other).reward == pytest.approx(along(one).reward)
    lost = replace(other, marks={})
    with pytest.raises(ValueError, match="nothing of R along the run"):
        along(lost)


def test_losses_fix_the_level_and_are_compared(tmp_path):
    true = run(tmp_path, losses=True)
    seen = onlooker.read_log(tmp_path)
    found = along(seen)
    assert found.warnings == ()
    assert (found.reward - true).mean() == pytest.approx(0, abs=0.02)
    wrong = along(seen, values=-true + np.linspace(0, 5, STEPS))
    assert codes(wrong.warnings) == ["losses-disagree"]
    assert wrong.warnings[0].doubtful
    with pytest.raises(ValueError, match="values has shape"):
        along(seen, values=[1.0])
    with pytest.raises(ValueError, match="agent is 'me'; choose one of 0"):
        along(seen, "me")


def test_a_result_knows_its_runs(tmp_path):
    with onlooker.LogWriter(tmp_path) as log:
        for seed in range(20):
            generator = torch.Generator().manual_seed(seed)
            point = torch.randn(2, generator=generator).requires_grad_()
            optimizer = torch.optim.SGD([point], lr=0.05)
            with onlooker.record(optimizer, log, agent=f"agent {seed}"):
                for _ in range(30):
                    optimizer.zero_grad()
                    (0.5 * point.square().sum() + 0.2 * torch.randn(2, generator=generator) @ point).backward()
                    optimizer.step()
    result = onlooker.reconstruct(tmp_path)
    found = result.along("agent 3")
    rows = onlooker.read_log(tmp_path)
    points = rows.points[rows.agents == list(rows.agent_names).index("agent 3")]
    assert found.reward[-1] == pytest.approx(float(np.diff(result.reward(points[[0, -1]]))[0]), abs=0.15)
    assert np.array_equal(result.to_parameters(points[:2]), points[:2])


def test_components_of_parts_are_those_of_all():
    random = np.random.default_rng(0)
    points = random.standard_normal((900, 40)) * np.concatenate([[5, 3], np.full(38, 0.5)]) + 7
    whole = principal_components(points, 2)
    assert np.abs(of_all(points, 2).directions @ whole.directions.T) == pytest.approx(np.eye(2), abs=1e-3)
    parts = Components(2)
    for part in np.array_split(points, 13):
        parts.add(part)
    found = parts.projection()
    assert found.origin == pytest.approx(whole.origin)
    assert found.explained == pytest.approx(whole.explained, rel=1e-3)
    # Their signs stay, whatever comes.
    parts.add(points - 2 * points.mean(axis=0))
    again = parts.projection()
    assert (np.sum(again.directions * found.directions, axis=1) > 0).all()
    with pytest.raises(ValueError, match="fewer than 3 directions"):
        of_all(points[:, :2], 3)


def test_live_components_do_not_depend_on_batches():
    random = np.random.default_rng(0)
    points = random.standard_normal((5000, 6)) * [5, 2, 0.1, 0.1, 0.1, 0.1]
    points[1500:, 2] *= 300
    one, other = LiveComponents(2), LiveComponents(2)
    assert one.add(points)
    assert [other.add(part) for part in np.array_split(points, 50)].count(True) == 2
    assert np.array_equal(one.projection.directions, other.projection.directions)
    assert np.abs(one.projection.directions[0, 2]) > 0.99
