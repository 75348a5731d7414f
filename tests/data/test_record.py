"""Recorders: what an optimiser was given is what is written, and training is the same to the last bit."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pyarrow.parquet
import pytest
import torch

import onlooker
from onlooker.data.log import destination
from onlooker.data.projection import onto, principal_components
from onlooker.data.record.optax import Recorder
from onlooker.data.record.torch import record
from tests.support.messages import message_of

RULES = {
    "sgd": (torch.optim.SGD, {}),
    "momentum": (torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.01}),
    "nesterov": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    "adam": (torch.optim.Adam, {}),
}


def train(rule, settings, steps=30, hook=None, closure=False):
    """A small network on a small regression; every step's parameters and loss gradients."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    optimizer = rule(model.parameters(), lr=0.01, **settings)
    recording = None if hook is None else hook(optimizer, model)
    inputs = torch.randn(200, 3)
    points, gradients = [], []

    def flat(tensors):
        return torch.cat([tensor.detach().reshape(-1) for tensor in tensors]).numpy().copy()

    for _ in range(steps):
        some = inputs[torch.randint(200, (16,))]

        def loss(some=some):
            optimizer.zero_grad()
            value = (model(some)[:, 0] - some.sum(dim=1)).square().mean()
            value.backward()
            gradients.append(flat(parameter.grad for parameter in model.parameters()))
            return value

        points.append(flat(model.parameters()))
        if closure:
            optimizer.step(loss)
        else:
            loss()
            optimizer.step()
    if recording is not None:
        recording.close()
    return np.array(points), np.array(gradients)


@pytest.mark.parametrize("closure", [False, True])
@pytest.mark.parametrize("name", RULES)
def test_torch_gradients_are_recorded_unchanged_and_training_is_unaffected(tmp_path, name, closure):
    rule, settings = RULES[name]
    points, gradients = train(rule, settings, closure=closure)
    recorded, _ = train(
        rule, settings, closure=closure, hook=lambda optimizer, _: onlooker.record(optimizer, tmp_path, agent="me")
    )
    assert np.array_equal(points, recorded)
    log = onlooker.open_log(tmp_path)
    seen = log.read()
    assert np.array_equal(seen.points, points)
    assert np.array_equal(seen.gradients, -gradients)
    assert np.array_equal(seen.times, np.arange(30))
    assert log.about.direction == "ascent"
    assert log.about.learning_rate == 0.01
    assert "loss gradients, turned" in log.about.source
    said = log.about.optimizer
    expected = (settings.get("momentum", 0.0), settings.get("nesterov", False), settings.get("weight_decay", 0.0))
    assert (said.name, said.momentum, said.nesterov, said.weight_decay) == (rule.__name__.lower(), *expected)


def test_the_sign_is_kept_with_maximize(tmp_path):
    point = torch.tensor([1.0, 2.0], requires_grad=True)
    optimizer = torch.optim.SGD([point], lr=0.1, maximize=True)
    with record(optimizer, tmp_path):
        (-(point**2).sum()).backward()
        optimizer.step()
    assert np.array_equal(onlooker.read_log(tmp_path).gradients, [[-2.0, -4.0]])


@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("holes", [False, True])
def test_parameters_of_every_kind(tmp_path, shared, holes):
    """In half precision, by columns, moved by hand, gradients part of a graph; and some of them sparse or missing."""
    half = torch.ones(2, dtype=torch.bfloat16, requires_grad=True)
    turned = torch.arange(6.0).reshape(2, 3).T.requires_grad_()
    rows, idle = torch.nn.Embedding(3, 2, sparse=True), torch.ones(1, requires_grad=True)
    parameters = [half, turned, *([rows.weight, idle] if holes else [])]
    optimizer = torch.optim.SGD(parameters, lr=0.5)
    log = onlooker.LogWriter(tmp_path) if shared else tmp_path
    recording = record(optimizer, log)
    points = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = half.sum() + (turned**2).sum() + rows(torch.tensor([1])).sum()
        if not points:
            loss = loss + 5 * idle.sum()
        loss.backward(create_graph=True)
        points.append(torch.cat([parameter.detach().float().reshape(-1) for parameter in parameters]).numpy())
        optimizer.step()
        turned.data = turned.data + 1
    recording.close()
    if shared:
        log.close()
    seen = onlooker.read_log(tmp_path)
    assert np.array_equal(seen.points, points)
    assert np.array_equal(seen.gradients[:, :8], -np.hstack([np.ones((3, 2)), 2 * seen.points[:, 2:8]]))
    assert not holes or np.array_equal(seen.gradients[:, 8:], [[0, 0, -1, -1, 0, 0, idle] for idle in (-5, 0, 0)])
    assert not any(view.requires_grad for views in recording._rows.views for view in views)


def test_a_parameter_that_changes_shape_stops_recording(tmp_path):
    point = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.SGD([point], lr=0.1)

    def step(place):
        point.grad, point.data = None, place
        (point**2).sum().backward()
        optimizer.step()

    with record(optimizer, tmp_path):
        step(torch.zeros(3))
        with pytest.warns(onlooker.OnlookerWarning, match="has changed its shape"):
            step(torch.full((1,), 7.0))
    assert np.array_equal(onlooker.read_log(tmp_path).points, [[0, 0, 0]])


def test_some_parameters_or_some_directions(tmp_path):
    points, gradients = train(*RULES["sgd"])
    chosen, along = tmp_path / "chosen", tmp_path / "along"
    directions = onto(np.random.default_rng(0).standard_normal((2, 21)), origin=points[0])
    train(
        *RULES["sgd"],
        hook=lambda optimizer, model: record(optimizer, chosen, parameters=[model[2].weight, model[2].bias]),
    )
    train(*RULES["sgd"], hook=lambda optimizer, _: record(optimizer, along, projection=directions))
    assert np.array_equal(onlooker.read_log(chosen).points, points[:, 16:])
    seen = onlooker.read_log(along)
    assert seen.points == pytest.approx((points - points[0]) @ directions.directions.T, abs=1e-6)
    assert seen.gradients == pytest.approx(-gradients @ directions.directions.T, abs=1e-6)
    with pytest.raises(ValueError, match="has 1 tensors, 1 of which the optimizer does not have"):
        train(*RULES["sgd"], hook=lambda optimizer, _: record(optimizer, chosen, parameters=[torch.zeros(3)]))


@pytest.mark.parametrize("when", ["writing", "bringing it to the disk", "naming"])
def test_a_full_disk_does_not_stop_training(tmp_path, monkeypatch, when):
    def full(*given, **_):
        if when == "writing":
            given[1].write(b"half a shard")
        raise OSError("no space left")

    place, name = {
        "writing": (pyarrow.parquet, "write_table"),
        "bringing it to the disk": (destination.os, "fsync"),
        "naming": (destination, "publish"),
    }[when]
    monkeypatch.setattr(place, name, full)
    with pytest.warns(onlooker.OnlookerWarning, match="recording has stopped"):
        points, _ = train(
            *RULES["sgd"],
            hook=lambda optimizer, _: record(optimizer, onlooker.LogWriter(tmp_path, rows=5)),
        )
    assert np.array_equal(points, train(*RULES["sgd"])[0])
    assert not list(tmp_path.iterdir())


def test_a_full_disk_stops_all_recorders_of_a_log_and_no_training(tmp_path, monkeypatch):
    def full(*_):
        raise OSError("no space left")

    log = onlooker.LogWriter(tmp_path, rows=4)
    points = [torch.ones(2, requires_grad=True) for _ in range(2)]
    optimizers = [torch.optim.SGD([point], lr=0.1) for point in points]
    for agent, optimizer in enumerate(optimizers):
        record(optimizer, log, agent=agent)

    def train_both():
        for _ in range(20):
            for point, optimizer in zip(points, optimizers, strict=True):
                optimizer.zero_grad()
                (point**2).sum().backward()
                optimizer.step()

    with monkeypatch.context() as patched:
        patched.setattr(destination, "publish", full)
        with pytest.warns(onlooker.OnlookerWarning, match="recording has stopped"):
            train_both()
    # When there is room again, it goes on.
    log.add(np.ones(2, np.float32), np.ones(2, np.float32), agent=2, time=0)
    log.close()
    assert 2 in onlooker.read_log(tmp_path).agents


def test_an_unsuitable_log_is_rejected_before_training(tmp_path):
    with onlooker.LogWriter(tmp_path) as log:
        log.add(np.ones(5), np.ones(5))
    point = torch.ones(2, requires_grad=True)
    with pytest.raises(ValueError, match="has a log of 5 dimensions"):
        record(torch.optim.SGD([point], lr=0.1), tmp_path)


def test_a_learning_rate_schedule_is_recorded_as_no_single_rate(tmp_path):
    point = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([point], lr=0.1)
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, step / 10))
    with record(optimizer, tmp_path):
        (point**2).sum().backward()
        optimizer.step()
    assert onlooker.open_log(tmp_path).about.learning_rate is None


def train_optax(recorder=None, steps=50, agents=None, collect=16, optimizer=None):
    rule = optax.adam(0.05)
    if optimizer is None:
        optimizer = rule if recorder is None else optax.chain(recorder.transformation, rule)
    target = jnp.array([1.0, -2.0, 0.5])

    def loss(parameters, noise):
        return jnp.sum((jnp.tanh(parameters["a"]) - target) ** 2) + parameters["b"] * noise

    def step(parameters, state, noise):
        gradients = jax.grad(loss)(parameters, noise)
        # Optax divides by an int32 count of steps.
        with jax.numpy_dtype_promotion("standard"):
            updates, state = optimizer.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state, gradients

    parameters = {"a": jnp.zeros(3), "b": jnp.zeros(())}
    if agents:
        parameters = jax.tree.map(lambda leaf: jnp.stack([leaf + 0.1 * number for number in range(agents)]), parameters)
        step = jax.vmap(step, in_axes=(0, 0, None))
    state = jax.vmap(optimizer.init)(parameters) if agents else optimizer.init(parameters)
    step, found = jax.jit(step), []
    for number in range(steps):
        before = parameters
        parameters, state, gradients = step(parameters, state, jnp.sin(number * 1.0))
        found.append((before, gradients))
        if recorder is not None and number % collect == collect - 1:
            recorder.collect(state)
    if recorder is not None:
        recorder.close(state)

    def flat(tree):
        return np.concatenate([np.asarray(tree["a"]), np.asarray(tree["b"])[..., None]], axis=-1)

    return (np.stack([flat(one[part]) for one in found]) for part in (0, 1))


@pytest.mark.parametrize("agents", [None, 4])
def test_optax_gradients_are_recorded_unchanged_and_training_is_unaffected(tmp_path, agents):
    points, gradients = train_optax(agents=agents)
    recorder = onlooker.record(optax.adam(0.05), tmp_path, agent=10, rule="adam")
    assert isinstance(recorder, Recorder)
    recorded, _ = train_optax(recorder, agents=agents, optimizer=recorder.optimizer)
    assert np.array_equal(points, recorded)
    log = onlooker.open_log(tmp_path)
    seen = log.read()
    assert np.array_equal(seen.points, points.reshape(-1, 4))
    assert np.array_equal(seen.gradients, -gradients.reshape(-1, 4))
    assert np.array_equal(seen.agents, np.tile(10 + np.arange(agents or 1), 50))
    assert log.about.optimizer.name == "adam"


def test_unsupported_optimizers_are_named(tmp_path):
    with pytest.raises(TypeError, match="optimizer is of type dict; give a torch optimizer or an optax"):
        onlooker.record({}, tmp_path)
    with pytest.raises(TypeError, match="parameters is not an option for an optax optimizer; the options are rows"):
        onlooker.record(optax.sgd(0.1), tmp_path, parameters=[])
    assert not list(tmp_path.iterdir())


def test_lost_optax_steps_are_counted(tmp_path):
    recorder = Recorder(tmp_path, rows=10)
    with pytest.warns(onlooker.OnlookerWarning, match="6 steps were not recorded: at most 10"):
        train_optax(recorder)
    assert recorder.lost == 3 * 6
    assert len(onlooker.read_log(tmp_path)) == 50 - 18


def test_an_optax_recorder_starts_again_with_a_new_run(tmp_path):
    recorder = Recorder(onlooker.LogWriter(tmp_path), agent=0)
    train_optax(recorder, steps=50)
    train_optax(recorder, steps=10)
    recorder.log.close()
    assert len(onlooker.read_log(tmp_path)) == 60


def test_stable_baselines3(tmp_path):
    stable_baselines3 = pytest.importorskip("stable_baselines3")
    from onlooker.callbacks import SB3Callback

    def learn(callback=None):
        model = stable_baselines3.A2C("MlpPolicy", "CartPole-v1", policy_kwargs={"net_arch": [4]}, seed=0, device="cpu")
        model.learn(100, callback=callback)
        return torch.cat([parameter.detach().reshape(-1) for parameter in model.policy.parameters()]).numpy()

    chosen = SB3Callback(tmp_path, agent=0, parameters=lambda model: model.policy.action_net.parameters())
    assert np.array_equal(learn(), learn(chosen))
    log = onlooker.open_log(tmp_path)
    assert (log.dim, log.row_count(), log.about.optimizer.name) == (10, 20, "rmsprop")


def test_directions():
    random = np.random.default_rng(0)
    origin, axes = random.standard_normal(50), np.linalg.qr(random.standard_normal((50, 3)))[0].T
    along = random.standard_normal((40, 3)) * [5, 2, 0.01]
    found = principal_components(origin + along @ axes, 2)
    assert np.linalg.svd(found.directions @ axes[:2].T)[1] == pytest.approx(1, abs=1e-4)
    assert found.explained == pytest.approx(1, abs=1e-4)
    more = principal_components(np.concatenate([origin + along @ axes] * 2), 2)
    assert more.directions == pytest.approx(found.directions, abs=1e-6)
    assert found.back(found.points(origin + along @ axes)) == pytest.approx(origin + along @ axes, abs=0.05)
    skewed = onto([[2.0, 0, 0], [1.0, 1.0, 0]])
    assert skewed.directions == pytest.approx(np.eye(3)[:2])
    for bad, sentence in (([[1.0, 1.0], [2.0, 2.0]], "linearly dependent"), ([[1.0], [2.0]], "directions has shape")):
        with pytest.raises(ValueError, match=sentence):
            onto(bad)


def test_the_mean_force_in_a_subspace():
    """R = −½(y − z)² − ½z² with z independent of y: averaged over z, −½y²; at z = 1 alone it would be −½(y − 1)²."""
    random = np.random.default_rng(0)
    points = random.standard_normal((20_000, 2))
    gradients = np.stack([points[:, 1] - points[:, 0], points[:, 0] - 2 * points[:, 1]], axis=1)
    seen = onlooker.observe(points, gradients, agents=np.repeat(np.arange(400), 50))
    result = onlooker.reconstruct(onto([[1.0, 0.0]])(seen), chains=4)
    places = np.linspace(-2, 2, 21)[:, None]
    apart = result.reward(places) + 0.5 * places[:, 0] ** 2
    assert np.nanstd(apart) < 0.05
    assert message_of(result, "projected").numbers == {"directions": 1, "dimensions": 2}


def test_unclosed_logs_are_written_at_exit(tmp_path):
    program = f"""
import numpy, torch, onlooker
from onlooker.data.record.torch import record
writer = onlooker.LogWriter({str(tmp_path / "plain")!r})
for _ in range(50):
    writer.add(numpy.ones(2), numpy.ones(2))
point = torch.ones(3, requires_grad=True)
optimizer = torch.optim.SGD([point], lr=0.1)
recording = record(optimizer, {str(tmp_path / "hooked")!r})
for _ in range(10):
    optimizer.zero_grad()
    (point**2).sum().backward()
    optimizer.step()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert onlooker.open_log(tmp_path / "plain").row_count() == 50
    assert onlooker.open_log(tmp_path / "hooked").row_count() == 10


@pytest.mark.parametrize("names", [None, "agent {}".format, int])
def test_recorders_that_share_a_log_keep_their_order(tmp_path, names):
    points = [torch.full((2,), float(number), requires_grad=True) for number in range(3)]
    optimizers = [torch.optim.SGD([point], lr=0.1) for point in points]
    expected = []
    with onlooker.LogWriter(tmp_path, rows=4) as log:
        for number, optimizer in enumerate(optimizers):
            record(optimizer, log, agent=None if names is None else names(number))
        for _ in range(5):
            for point, optimizer in zip(points, optimizers, strict=True):
                optimizer.zero_grad()
                ((point - 7) ** 2).sum().backward()
                expected.append((point.detach().numpy().copy(), -point.grad.numpy().copy()))
                optimizer.step()
    seen = onlooker.read_log(tmp_path)
    assert np.array_equal(seen.points, [point for point, _ in expected])
    assert np.array_equal(seen.gradients, [gradient for _, gradient in expected])
    assert np.array_equal(seen.times, np.repeat(np.arange(5), 3))
    assert names is None or np.array_equal(seen.agents, np.tile(np.arange(3), 5))
