"""Logs of sums: nothing but k × k numbers is written, and they tell the same as the rows."""

import json

import numpy as np
import pytest

import onlooker
from onlooker.cli import main
from onlooker.explanation.explain import explain
from onlooker.explanation.record import SumsWriter

pytestmark = pytest.mark.usefixtures("promotion_allowed")
W = np.array([1.0, -2.0])
NAMES = ["first", "cube"]
DIM = 2000


def psi(at):
    import jax.numpy as jnp

    return jnp.stack([at[: DIM // 2].mean() * DIM, (at[DIM // 2 :] ** 3).mean() * DIM / 3])


def walk(agent, steps=40):
    """Points and gradients of one agent."""
    random = np.random.default_rng(agent)
    point, points, gradients = random.standard_normal(DIM), [], []
    for _ in range(steps):
        slope = 2 * np.concatenate([np.full(DIM // 2, W[0]), W[1] * point[DIM // 2 :] ** 2])
        gradient = slope + random.standard_normal(DIM)
        points.append(point)
        gradients.append(gradient)
        point = point + 1e-3 * gradient
    return np.stack(points), np.stack(gradients), np.full(steps, agent)


@pytest.fixture(scope="module")
def rows():
    return [walk(agent) for agent in range(3)]


def test_sums_of_several_writers_tell_what_the_rows_tell(rows, tmp_path, monkeypatch, capsys):
    for points, gradients, agents in rows:
        with SumsWriter(tmp_path / "sums", psi, NAMES) as log:
            for part in np.array_split(np.arange(40), 3):
                log.add_many(points[part], gradients[part], agents=agents[part])
    written = list((tmp_path / "sums").iterdir())
    assert len(written) == 3
    # Kilobytes, where the rows take 3.8 MB.
    assert sum(file.stat().st_size for file in written) < 100_000
    read = explain(tmp_path / "sums")
    points, gradients, agents = (np.concatenate(part) for part in zip(*rows, strict=True))
    whole = explain(points, gradients, agents=agents, features=psi, names=NAMES)
    assert read.names == tuple(NAMES)
    assert read.rows == 120
    assert read.weights == pytest.approx(whole.weights, abs=3 * whole.weight_error.max())
    assert read.weight_error == pytest.approx(whole.weight_error, rel=0.3)
    assert read.suspects.keys() == whole.suspects.keys()
    assert np.abs(read.weights - W).max() < 4.5 * read.weight_error.max()
    with pytest.raises(ValueError, match="has 2 features"):
        explain(tmp_path / "sums", names=["one"])
    monkeypatch.setattr("sys.argv", ["onlooker", "explain", str(tmp_path / "sums"), "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 0
    assert "cube" in capsys.readouterr().out
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["weights"] == pytest.approx(dict(zip(NAMES, read.weights, strict=True)))
    assert onlooker.load(tmp_path / "out" / "explanation").contrast(cube=1) == read.contrast(cube=1)
    monkeypatch.setattr("sys.argv", ["onlooker", "report", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as stop:
        main()
    report = (tmp_path / "out" / "report.html").read_text()
    assert stop.value.code == 0
    assert all(word in report for word in ("What these learners want", "cube", "weight decay (suspect)"))
    written[0].write_bytes(written[0].read_bytes()[:-9])
    with pytest.raises(ValueError, match="damaged"):
        explain(tmp_path / "sums")


def little(at):
    import jax.numpy as jnp

    return jnp.stack([at[:10].sum(), -0.5 * (at[10:] ** 2).sum()])


def test_an_optax_optimizer_is_recorded_as_sums(tmp_path):
    import jax
    import jax.numpy as jnp
    import optax

    options = {"features": little, "names": ["up", "near"], "rows": 100}
    recorder = onlooker.record(optax.sgd(0.05), tmp_path / "log", agent=0, **options)

    def step(carry, noise):
        point, state = carry
        gradient = -(jnp.where(jnp.arange(20) < 10, 0.3, -2 * point) + noise)
        updates, state = recorder.optimizer.update(gradient, state, point)
        return (optax.apply_updates(point, updates), state), None

    begin = jnp.ones(20), recorder.optimizer.init(jnp.ones(20))
    (_, state), _ = jax.lax.scan(step, begin, jax.random.normal(jax.random.key(0), (100, 20)))
    recorder.close(state)
    why = explain(tmp_path / "log")
    assert why.rows == 100
    assert np.abs(why.weights - [0.3, 2.0]).max() < 4.5 * why.weight_error.max() < 2
    assert [file.suffix for file in (tmp_path / "log").iterdir()] == [".sums"]


@pytest.mark.slow
def test_a_torch_optimizer_is_recorded_as_sums(tmp_path):
    torch = pytest.importorskip("torch")
    parameters = torch.nn.Parameter(torch.ones(20))
    optimizer = torch.optim.SGD([parameters], lr=0.05)
    generator = torch.Generator().manual_seed(0)
    with onlooker.record(optimizer, tmp_path / "log", agent=0, features=little, names=["up", "near"]):
        for _ in range(100):
            optimizer.zero_grad()
            noise = torch.randn(20, generator=generator)
            reward = 0.3 * parameters[:10].sum() - 0.5 * 2 * (parameters[10:] ** 2).sum() + noise @ parameters
            (-reward).backward()
            optimizer.step()
    why = explain(tmp_path / "log")
    assert why.rows == 100
    assert np.abs(why.weights - [0.3, 2.0]).max() < 4.5 * why.weight_error.max()
    assert [file.suffix for file in (tmp_path / "log").iterdir()] == [".sums"]


def test_what_a_log_of_sums_does_not_take(tmp_path):
    writer = SumsWriter(tmp_path, lambda at: at[:1])
    writer.add_many(np.ones((2, 3)), np.ones((2, 3)))
    with pytest.raises(ValueError, match="of 3 dimensions but points have 4"):
        writer.add_many(np.ones((2, 4)), np.ones((2, 4)))
