"""Each trainer, small: everything is recorded, and training is the same to the last bit. `make test-trainers`."""

import numpy as np
import pytest
import torch

import onlooker
from onlooker.data.trainer import about_trainer

pytestmark = pytest.mark.trainers

NETWORK = {"net_arch": [4]}
OFF_POLICY = {"learning_starts": 20, "buffer_size": 200, "batch_size": 8}
# The environment, settings, what is recorded where, and words of the log about it.
AGENTS = {
    "A2C": ("CartPole-v1", {}, ("",), "surrogate"),
    "PPO": ("CartPole-v1", {"n_steps": 32, "batch_size": 16, "n_epochs": 2}, ("",), "clipped surrogate"),
    "DQN": ("CartPole-v1", OFF_POLICY, ("",), "semi-gradient"),
    "SAC": ("Pendulum-v1", OFF_POLICY, ("actor", "critic", "entropy"), "semi-gradients"),
    "TD3": ("Pendulum-v1", OFF_POLICY, ("actor", "critic"), "semi-gradients"),
    "DDPG": ("Pendulum-v1", OFF_POLICY, ("actor", "critic"), "semi-gradients"),
}


def flat(parameters):
    return torch.cat([parameter.detach().float().reshape(-1) for parameter in parameters]).numpy().copy()


@pytest.mark.parametrize("name", AGENTS)
def test_stable_baselines3(tmp_path, name):
    import stable_baselines3

    from onlooker.callbacks import SB3Callback
    from onlooker.data.record.sb3 import optimizers_of

    world, settings, logs, words = AGENTS[name]

    def learn(callback=None):
        kind = getattr(stable_baselines3, name)
        model = kind("MlpPolicy", world, policy_kwargs=dict(NETWORK), seed=0, device="cpu", **settings)
        start = {one: flat(optimizer.param_groups[0]["params"]) for one, optimizer in optimizers_of(model).items()}
        model.learn(100, callback=callback)
        return start, {
            one: flat(optimizer.param_groups[0]["params"]) for one, optimizer in optimizers_of(model).items()
        }

    start, end = learn()
    again = learn(SB3Callback(tmp_path, agent=0))[1]
    assert all(np.array_equal(end[part], again[part]) for part in end)
    assert len(logs) == len(end)
    for part, (optimizer, first) in zip(logs, start.items(), strict=True):
        seen = onlooker.read_log(tmp_path / part)
        assert np.array_equal(seen.points[0], first), optimizer
        assert len(seen) >= 10
        said = {message.code: message for message in about_trainer(seen)}
        assert words in str(said["surrogate"])
        assert said["surrogate"].numbers["algorithm"] == name
        if name in ("A2C", "PPO"):
            # Clipped at .5, and recorded as before.
            assert said["clipping-undone"].numbers["limit"] == 0.5
            norms = np.linalg.norm(seen.gradients, axis=1) * seen.marks["clip"]
            assert norms.max() == pytest.approx(0.5, rel=1e-3)


def test_one_optimizer_of_several_and_no_shared_log_for_all(tmp_path):
    import stable_baselines3

    from onlooker.callbacks import SB3Callback

    def model():
        return stable_baselines3.TD3("MlpPolicy", "Pendulum-v1", policy_kwargs=dict(NETWORK), seed=0, **OFF_POLICY)

    with onlooker.LogWriter(tmp_path) as log:
        model().learn(40, callback=SB3Callback(log, agent=0, optimizers=["actor"]))
        with pytest.raises(ValueError, match="has the optimizers actor, critic"):
            model().learn(40, callback=SB3Callback(log, agent=1))
        with pytest.raises(ValueError, match="optimizers has 'policy', but TD3 has actor, critic"):
            model().learn(40, callback=SB3Callback(log, agent=1, optimizers=["policy"]))
    assert len(onlooker.read_log(tmp_path)) >= 10


INPUTS = torch.randn(64, 5, generator=torch.Generator().manual_seed(0))
TARGETS = INPUTS @ torch.arange(5.0)


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))


def true_gradients(points, batches):
    """Ascent gradients of the mean loss of each batch at given points of the network."""
    model, found = network(), []
    for point, batch in zip(points, batches, strict=True):
        torch.nn.utils.vector_to_parameters(torch.as_tensor(point), model.parameters())
        model.zero_grad()
        (model(INPUTS[batch])[:, 0] - TARGETS[batch]).square().mean().backward()
        found.append(-flat(parameter.grad for parameter in model.parameters()))
    return np.array(found)


BATCHES = [torch.arange(64)[start : start + 16] for start in range(0, 64, 16)] * 3


@pytest.mark.parametrize("settings", [{}, {"gradient_clip_val": 0.5}, {"precision": "bf16-mixed"}])
def test_lightning(tmp_path, settings):
    import lightning

    from onlooker.callbacks import LightningCallback

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = network()

        def training_step(self, batch, _):
            return (self.model(batch[0])[:, 0] - batch[1]).square().mean()

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=0.01, weight_decay=0.1)

    def fit(callbacks):
        module = Module()
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(INPUTS, TARGETS), batch_size=8)
        quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
        trainer = lightning.Trainer(
            accelerator="cpu",
            max_epochs=3,
            accumulate_grad_batches=2,
            callbacks=callbacks,
            enable_model_summary=False,
            default_root_dir=tmp_path,
            **quiet,
            **settings,
        )
        trainer.fit(module, loader)
        return flat(module.parameters())

    log = tmp_path / "log"
    assert np.array_equal(fit([]), fit([LightningCallback(log, agent=0, halves=True)]))
    seen = onlooker.read_log(log)
    expected = true_gradients(seen.points, BATCHES)
    rounding = 0.05 if "precision" in settings else 1e-6
    assert len(seen) == 12
    assert np.abs(seen.gradients - expected).max() < rounding * np.abs(expected).max()
    codes = [message.code for message in about_trainer(seen)]
    assert codes == ["decay-decoupled", *(["clipping-undone"] if "gradient_clip_val" in settings else [])]
    # The loss of the last of the accumulated batches, and |a − b|² of the step before each row.
    halves = [
        (true_gradients([p], [b[:8]]) - true_gradients([p], [b[8:]]))[0]
        for p, b in zip(seen.points, BATCHES, strict=True)
    ]
    assert seen.marks["halves"][1:] == pytest.approx([half @ half for half in halves[:-1]], rel=100 * rounding)
    assert np.isfinite(seen.marks["loss"]).all()


def test_transformers(tmp_path):
    import transformers

    from onlooker.callbacks import TransformersCallback

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = network()

        def forward(self, inputs, labels):
            return {"loss": (self.model(inputs)[:, 0] - labels).square().mean()}

    rows = [{"inputs": point, "labels": target} for point, target in zip(INPUTS, TARGETS, strict=True)]

    def fit(callbacks):
        model = Model()
        arguments = transformers.TrainingArguments(
            str(tmp_path / "out"),
            num_train_epochs=3,
            per_device_train_batch_size=8,
            gradient_accumulation_steps=2,
            learning_rate=0.01,
            weight_decay=0.1,
            report_to=[],
            use_cpu=True,
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            train_sampling_strategy="sequential",
        )
        transformers.Trainer(model, arguments, train_dataset=rows, callbacks=callbacks).train()
        return flat(model.parameters())

    log = tmp_path / "log"
    assert np.array_equal(fit([]), fit([TransformersCallback(log, agent=0, halves=True)]))
    seen = onlooker.read_log(log)
    # The Trainer puts the parameters with decay first.
    order = np.concatenate([np.arange(15), np.arange(18, 21), np.arange(15, 18), [21]])
    expected = true_gradients(seen.points[:, np.argsort(order)], BATCHES)[:, order]
    assert len(seen) == 12
    assert np.abs(seen.gradients - expected).max() < 1e-5 * np.abs(expected).max()
    assert [message.code for message in about_trainer(seen)] == ["decay-decoupled", "clipping-undone"]
    assert seen.trainer.decay == ((18, 0.1), (4, 0.0))
    assert np.isfinite(seen.marks["halves"][1:]).all()


def test_accelerate(tmp_path):
    import accelerate

    from onlooker.callbacks import record_accelerated

    def fit(log):
        accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(INPUTS, TARGETS), batch_size=8)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        recording = None if log is None else record_accelerated(accelerator, optimizer, log, agent=0)
        for _ in range(3):
            for inputs, targets in loader:
                with accelerator.accumulate(model):
                    accelerator.backward((model(inputs)[:, 0] - targets).square().mean())
                    if accelerator.sync_gradients:
                        accelerator.clip_grad_norm_(model.parameters(), 0.5)
                    optimizer.step()
                    optimizer.zero_grad()
        if recording is not None:
            recording.close()
        return flat(model.parameters())

    assert np.array_equal(fit(None), fit(tmp_path))
    seen = onlooker.read_log(tmp_path)
    expected = true_gradients(seen.points, BATCHES)
    assert len(seen) == 12
    assert np.abs(seen.gradients - expected).max() < 1e-5 * np.abs(expected).max()
    assert [message.code for message in about_trainer(seen)] == ["clipping-undone"]


def test_tensorboard(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    point = torch.tensor([3.0, -1.0], requires_grad=True)
    optimizer = torch.optim.SGD([point], lr=0.01)
    with onlooker.record(optimizer, tmp_path, agent="me", along=True, report_to="tensorboard") as recording:
        for _ in range(200):
            optimizer.zero_grad()
            loss = (point**2).sum()
            loss.backward()
            recording.loss(loss)
            optimizer.step()
    events = EventAccumulator(str(tmp_path / "tensorboard" / "me"))
    events.Reload()
    assert events.Scalars("onlooker/rows")[-1].value == 200
    losses, rewards = (
        [one.value for one in events.Scalars(f"onlooker/{name}")] for name in ("loss", "reward along the run")
    )
    assert rewards[-1] == pytest.approx(10 - losses[-1], abs=1e-3)
