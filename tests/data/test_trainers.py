"""What stands between a loss and a step: recorded rightly, or said; all processes of one training; two halves."""

import multiprocessing
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

import onlooker
from onlooker.data.log.about import about_of
from onlooker.data.projection import onto
from onlooker.data.record.rows import DeviceRows
from onlooker.data.trainer import Trainer, about_trainer, climbed, common, trainer_of
from tests.support.trainer_settings import SETTINGS, measured, train

BY_NAME = {setting.name: setting for setting in SETTINGS}
# These take the longest.
SLOWER = ("foreach", "LBFGS", "autocast", "torch.compile")
TESTED = [
    pytest.param(name, marks=[pytest.mark.trainers] if any(word in name for word in SLOWER) else []) for name in BY_NAME
]
SAID = {
    "SGD, weight decay .1": ("decay-added",),
    "AdamW": ("decay-decoupled",),
    "GradScaler, SGD fused": ("loss-unscaled",),
    "GradScaler, Adam fused": ("loss-unscaled",),
    "GradScaler, AdamW fused, clipped": ("decay-decoupled", "clipping-undone"),
    "clip_grad_norm_ .5": ("clipping-undone",),
    "accumulation × 4, the loss divided": ("gradients-summed",),
    "accumulation × 4, not told (said)": ("gradients-summed",),
    "autocast float16, GradScaler, fused": ("loss-unscaled",),
    "parameter groups": ("decay-added",),
    "parameters added later (said)": ("parameters-added",),
    "must fail: GradScaler fused, not divided": ("loss-unscaled",),
    "must fail: clipped, not undone": ("clipping-undone",),
}


@pytest.mark.parametrize("name", TESTED)
def test_gradients_are_recorded_as_the_loss_has_them(name):
    setting = BY_NAME[name]
    found = measured(setting)
    assert found.same
    assert found.rows == found.steps == (199 if setting.scaler else 200)
    assert found.codes == SAID.get(name, ())
    if setting.naive:
        assert not 0.5 < found.ratio < 2
    else:
        assert found.ratio == pytest.approx(setting.expected, rel=1e-3 if setting.autocast else 1e-6)
        assert found.worst < (1e-2 if setting.autocast else 1e-6)


def test_rows_on_a_device_are_those_in_memory(tmp_path, monkeypatch):
    """The path of devices, on the CPU: the same rows and numbers; skipped steps are left out when they arrive."""
    setting = replace(BY_NAME["GradScaler, AdamW fused, clipped"], options={"along": True})
    _, _, expected = train(setting, str(tmp_path / "memory"))
    monkeypatch.setattr("onlooker.data.record.recording.on_device", lambda _: True)
    _, true, seen = train(setting, str(tmp_path / "device"))
    assert np.abs(seen.gradients - true).max() < 1e-5
    assert np.array_equal(seen.points, expected.points)
    for name, values in expected.marks.items():
        assert seen.marks[name] == pytest.approx(values, rel=1e-4, abs=1e-6, nan_ok=True), name
    directions = onto(np.random.default_rng(0).standard_normal((2, 6)), origin=np.arange(6.0))
    train(replace(setting, options={"projection": directions}), str(tmp_path / "projected"))
    log = onlooker.open_log(tmp_path / "projected")
    assert log.read().points == pytest.approx(directions.points(expected.points), abs=1e-5)
    assert np.array_equal(log.projection.directions, directions.directions)
    assert DeviceRows([torch.zeros(3)], 4, None, 2).send(2).arrived()[0].shape == (2, 3)


def of_two_ranks(rank, folder, every_rank):
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = torch.randn(5, 2, 8, 3)
    with onlooker.record(optimizer, f"{folder}/log", agent=rank, every_rank=every_rank):
        for both in inputs:
            optimizer.zero_grad()
            (model(both[rank])[:, 0] - both[rank].sum(dim=1)).square().mean().backward()
            optimizer.step()
    torch.distributed.barrier()
    del model, optimizer
    torch.distributed.destroy_process_group()


@pytest.mark.trainers
@pytest.mark.parametrize("every_rank", [False, True])
def test_one_process_records_the_gradients_of_all(tmp_path, every_rank):
    context = multiprocessing.get_context("spawn")
    ranks = [context.Process(target=of_two_ranks, args=(rank, str(tmp_path), every_rank)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(60)
    assert [rank.exitcode for rank in ranks] == [0, 0]
    seen = onlooker.read_log(tmp_path / "log")
    assert len(seen) == (10 if every_rank else 5)
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    inputs = torch.randn(5, 16, 3)
    for point, gradient, time in zip(seen.points, seen.gradients, seen.times, strict=True):
        torch.nn.utils.vector_to_parameters(torch.as_tensor(point), model.parameters())
        model.zero_grad()
        both = inputs[int(time)]
        (model(both)[:, 0] - both.sum(dim=1)).square().mean().backward()
        true = torch.cat([parameter.grad.reshape(-1) for parameter in model.parameters()])
        assert gradient == pytest.approx(-true.numpy(), abs=1e-6)


def test_parameters_that_no_process_has_are_rejected(tmp_path):
    class FlatParameter(torch.nn.Parameter):
        pass

    optimizer = torch.optim.SGD([FlatParameter(torch.zeros(3))], lr=0.1)
    with pytest.raises(ValueError, match=r"spread over processes \(FSDP, tensor parallel\)"):
        onlooker.record(optimizer, tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_learners_climb_is_the_loss_with_its_decay(tmp_path):
    """R = −½|θ − c|² with λ = .5: learners climb R − ¼|θ|², highest at c/1.5, and R alone is highest at c."""
    generator = torch.Generator().manual_seed(0)
    centre = torch.tensor([1.5, 0.5])
    with onlooker.LogWriter(tmp_path) as log:
        for agent in range(30):
            point = (2 * torch.randn(2, generator=generator)).requires_grad_()
            optimizer = torch.optim.SGD([point], lr=0.05, weight_decay=0.5)
            with onlooker.record(optimizer, log, agent=agent):
                for _ in range(40):
                    optimizer.zero_grad()
                    loss = 0.5 * (point - centre).square().sum() + 0.3 * torch.randn(2, generator=generator) @ point
                    loss.backward()
                    optimizer.step()
    for objective, best in (("training", centre / 1.5), ("loss", centre)):
        with pytest.warns(onlooker.OnlookerWarning, match="weight decay"):
            result = onlooker.reconstruct(tmp_path, objective=objective)
        low, high = best.numpy() - 0.5, best.numpy()
        true = (1.5 if objective == "training" else 1.0) * 0.25
        assert np.diff(result.reward([low, high]))[0] == pytest.approx(true, abs=0.05)
        assert [message.code for message in result.found.warnings].count("decay-added") == 1
    with pytest.raises(ValueError, match="objective is 'reward'; choose one of training, loss"):
        onlooker.reconstruct(tmp_path, objective="reward")
    live = onlooker.Observer(dim=2)
    live.learn_log(tmp_path)
    ends = np.stack([centre.numpy() / 1.5 - 0.5, centre.numpy() / 1.5])
    assert np.diff(live.reward(ends))[0] == pytest.approx(0.375, abs=0.05)


def test_what_the_log_knows_is_said_by_inspect_and_on_the_page(tmp_path):
    from onlooker.live.page.source import GrowingLog
    from onlooker.reconstruction.inspect_log import inspect_log

    setting = replace(
        BY_NAME["GradScaler, SGD fused"], clip=0.5, options={"algorithm": "PPO", "surrogate": "a surrogate"}
    )
    train(setting, str(tmp_path))
    expected = {"surrogate", "clipping-undone"}
    log = onlooker.open_log(tmp_path)
    inspection = inspect_log(log, log.read())
    assert expected <= {message.code for message in inspection.warnings}
    # One agent: the verdict is that of reconstruct.
    assert not inspection.usable
    assert "rows-dependent" in {message.code for message in inspection.warnings}
    source = GrowingLog(tmp_path)
    rows = source.batches(lambda: False)
    assert len(next(rows).points) == 199
    assert {message.code for message in source.warnings} == expected
    assert source.sign_known


def test_decay_along_directions():
    """W(g − λθ) = Wg − λ(y + Wθ₀); pieces with different λ are mixed by directions, and nothing is added."""
    random = np.random.default_rng(0)
    points, gradients = random.standard_normal((2, 20, 4))
    along = onto(random.standard_normal((2, 4)), origin=random.standard_normal(4))
    seen = replace(along(onlooker.observe(points, gradients)), trainer=Trainer(decay=((4, 0.3),), parameters=4))
    assert climbed(seen).gradients == pytest.approx(along.gradients(gradients - 0.3 * points), abs=1e-12)
    assert climbed(seen, "loss").gradients is seen.gradients
    pieces = Trainer(decay=((1, 0.3), (3, 0.0)), parameters=4)
    assert np.array_equal(climbed(replace(seen, trainer=pieces)).gradients, seen.gradients)
    assert "differs between parameters" in str(about_trainer(replace(seen, trainer=pieces))[0])
    whole = replace(onlooker.observe(points, gradients), trainer=replace(pieces, parameters=0))
    assert climbed(whole).gradients == pytest.approx(gradients - points * [0.3, 0, 0, 0], abs=1e-12)


def test_what_a_log_says_of_its_trainer_is_not_believed_blindly(tmp_path):
    said = Trainer("PPO", "a surrogate", ((3, 0.1), (2, 0.0)), True, 4, 0)
    assert trainer_of(said.to_text()) == said
    assert trainer_of("") == Trainer()
    assert common(said, replace(said, algorithm="A2C")) == replace(said, algorithm="")
    decays = ('{"decay": 3}', '{"decay": [[1]]}', '{"decay": [[0, 1]]}')
    for bad in ("{", "[]", *decays, '{"accumulation": 0}', '{"algorithm": 1}'):
        with pytest.raises(ValueError, match=r"log\.parquet: its trainer"):
            about_of(tmp_path / "log.parquet", {"trainer": bad}, 5, "log")


def test_a_log_keeps_its_directions(tmp_path):
    along = onto([[1.0, 1.0, 0.0]], origin=[0.5, 0.0, 1.0])

    def run(folder, projection):
        point = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
        optimizer = torch.optim.SGD([point], lr=0.1)
        with onlooker.record(optimizer, folder, projection=projection):
            (point**2).sum().backward()
            optimizer.step()

    run(tmp_path, along)
    run(tmp_path, along)
    seen = onlooker.read_log(tmp_path)
    assert np.array_equal(seen.projection.origin, along.origin)
    assert [message.code for message in seen.warnings] == ["projected"]
    with pytest.raises(ValueError, match="has a log along other directions"):
        run(tmp_path, onto([[1.0, -1.0, 0.0]]))
    (file,) = tmp_path.glob("directions-*.npz")
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(ValueError, match="no directions that can be read"):
        onlooker.read_log(tmp_path)
    file.unlink()
    seen = onlooker.read_log(tmp_path)
    assert seen.projection is None
    assert "the file of directions is missing" in str(about_trainer(seen)[0])


def test_optax_chains_are_recorded_before_they_clip_and_decay(tmp_path):
    import jax
    import jax.numpy as jnp
    import optax

    chain = optax.chain(optax.clip_by_global_norm(0.5), optax.add_decayed_weights(0.1), optax.sgd(0.1))
    recorder = onlooker.record(chain, tmp_path, agent=0, rule="sgd", learning_rate=0.1, weight_decay=0.1)
    point = jnp.array([3.0, -1.0])
    state, true = recorder.optimizer.init(point), []
    for _ in range(8):
        gradient = 2 * point
        true.append(-np.asarray(gradient))
        updates, state = recorder.optimizer.update(gradient, state, point)
        point = jax.tree.map(lambda one, other: one + other, point, updates)
    recorder.close(state)
    seen = onlooker.read_log(tmp_path)
    assert np.array_equal(seen.gradients, true)
    assert [message.code for message in about_trainer(seen)] == ["decay-added"]
    assert climbed(seen).gradients == pytest.approx(seen.gradients - 0.1 * seen.points)


@pytest.mark.trainers
def test_recording_needs_neither_jax_nor_scipy(tmp_path):
    program = f"""
import sys
for name in ("jax", "jaxlib", "scipy", "numpyro", "matplotlib", "xarray", "zarr", "optax", "arviz_base", "typer"):
    sys.modules[name] = None
import torch, onlooker
point = torch.ones(3, requires_grad=True)
optimizer = torch.optim.SGD([point], lr=0.1)
with onlooker.record(optimizer, {str(tmp_path)!r}, agent=0, along=True):
    (point**2).sum().backward()
    optimizer.step()
print(len(onlooker.read_log({str(tmp_path)!r})))
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, timeout=60, capture_output=True, text=True)
    assert done.stdout.strip() == "1"


@pytest.mark.parametrize("by_value", [False, True])
def test_tensors_that_are_clipped_apart(tmp_path, by_value):
    """Each by its own length: undone for each. By value: 0 stands for what cannot be undone, and it is said."""
    tensors = [torch.full((3,), 2.0, requires_grad=True), torch.full((2,), 0.1, requires_grad=True)]
    optimizer = torch.optim.SGD(tensors, lr=0.01)
    true = []
    with onlooker.record(optimizer, tmp_path, agent=0):
        for _ in range(10):
            optimizer.zero_grad()
            sum(tensor.square().sum() for tensor in tensors).backward()
            true.append(-torch.cat([tensor.grad for tensor in tensors]).numpy())
            if by_value:
                torch.nn.utils.clip_grad_value_(tensors, 1.0)
            else:
                torch.nn.utils.clip_grad_norm_(tensors[0], 1.0)
            optimizer.step()
    seen = onlooker.read_log(tmp_path)
    codes = [message.code for message in about_trainer(seen)]
    if by_value:
        assert (seen.marks["clip"] == 0).all()
        assert codes == ["gradients-clipped"]
        assert seen.gradients == pytest.approx(np.clip(true, -1, 1))
    else:
        assert seen.gradients == pytest.approx(np.array(true), rel=1e-5)
    assert torch.nn.utils.clip_grad_norm_ is torch.nn.utils.clip_grad.clip_grad_norm_
