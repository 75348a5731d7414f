"""What a recorder writes under each trainer setting, on a known quadratic: for tests/data and `benchmarks.trainers`.

The loss is ½(θ − c)ᵀH(θ − c) + ξ_k·θ with noise ξ_k that is known, so that the true gradient of every step is.
"""

import contextlib
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

import onlooker

STEPS = 200
CURVATURE = torch.tensor([0.5, 1.0, 2.0, 0.7, 1.5, 1.0])
CENTRE = torch.tensor([1.0, -0.5, 0.3, 0.0, 0.8, -1.0])


@dataclass
class Setting:
    """One row of the table.

    Attributes
    ----------
    name
        What the row says.
    optimizer
        Makes the optimizer of two tensors.
    naive
        Whether the recorder's divisions are put back: a row that must fail.
    """

    name: str
    optimizer: Callable[[list[torch.Tensor]], torch.optim.Optimizer]
    scaler: bool = False
    clip: float | None = None
    accumulation: int = 1
    told: bool = True
    autocast: torch.dtype | None = None
    closure: bool = False
    schedule: str = ""
    later: bool = False
    compiled: bool = False
    ascends: bool = False
    expected: float = 1.0
    naive: bool = False
    options: dict[str, Any] = field(default_factory=dict)


def sgd(**settings: Any) -> Callable[[list[torch.Tensor]], torch.optim.Optimizer]:
    return lambda tensors: torch.optim.SGD(tensors, lr=0.05, **settings)


def adam(kind: Any = torch.optim.Adam, **settings: Any) -> Callable[[list[torch.Tensor]], torch.optim.Optimizer]:
    return lambda tensors: kind(tensors, lr=0.02, **settings)


def grouped(tensors: list[torch.Tensor]) -> torch.optim.Optimizer:
    groups = [
        {"params": tensors[:1], "lr": 0.05, "weight_decay": 0.1},
        {"params": tensors[1:], "lr": 0.01, "maximize": False},
    ]
    return torch.optim.SGD(groups, lr=0.03)


SETTINGS = (
    Setting("SGD", sgd()),
    Setting("momentum .9", sgd(momentum=0.9)),
    Setting("Nesterov .9", sgd(momentum=0.9, nesterov=True)),
    Setting("SGD, weight decay .1", sgd(weight_decay=0.1)),
    Setting("SGD, foreach", sgd(foreach=True)),
    Setting("SGD, fused", sgd(fused=True)),
    Setting("Adam", adam()),
    Setting("Adam, foreach", adam(foreach=True)),
    Setting("Adam, fused", adam(fused=True)),
    Setting("AdamW", adam(torch.optim.AdamW, weight_decay=0.1)),
    Setting("RMSprop", adam(torch.optim.RMSprop)),
    Setting("LBFGS, closure", lambda tensors: torch.optim.LBFGS(tensors, lr=0.1, max_iter=3), closure=True),
    Setting("maximize", sgd(maximize=True), ascends=True),
    Setting("maximize, Adam, fused", adam(maximize=True, fused=True), ascends=True),
    Setting("GradScaler", sgd(), scaler=True),
    Setting("GradScaler, SGD fused", sgd(fused=True), scaler=True),
    Setting("GradScaler, Adam fused", adam(fused=True), scaler=True),
    Setting("GradScaler, AdamW fused, clipped", adam(torch.optim.AdamW, fused=True), scaler=True, clip=0.5),
    Setting("clip_grad_norm_ .5", sgd(), clip=0.5),
    Setting("accumulation × 4, the loss divided", sgd(), accumulation=4),
    Setting("accumulation × 4, accumulation=4", sgd(), accumulation=4, options={"accumulation": 4}, told=False),
    Setting("accumulation × 4, not told (said)", sgd(), accumulation=4, told=False, expected=4.0),
    Setting("autocast bfloat16", sgd(), autocast=torch.bfloat16),
    Setting("autocast float16, GradScaler, fused", adam(fused=True), autocast=torch.float16, scaler=True),
    Setting("schedule made before record", sgd(), schedule="before"),
    Setting("schedule made after record", sgd(), schedule="after"),
    Setting("parameter groups", grouped),
    Setting("parameters added later (said)", sgd(), later=True),
    Setting("torch.compile", sgd(), compiled=True),
    Setting("must fail: GradScaler fused, not divided", sgd(fused=True), scaler=True, naive=True),
    Setting("must fail: clipped, not undone", sgd(), clip=0.5, naive=True),
)


@dataclass(frozen=True)
class Figures:
    """What a setting leads to.

    Attributes
    ----------
    ratio
        Σ recorded·true / Σ true².
    worst
        Largest error of a row over the mean length of a gradient.
    rows, steps
        Number of rows in the log, and of steps that were made.
    same
        Whether training without the recorder ends at the same bits.
    codes
        Codes of what is said.
    """

    ratio: float
    worst: float
    rows: int
    steps: int
    same: bool
    codes: tuple[str, ...]


def loss_of(tensors: list[torch.Tensor], noise: torch.Tensor, setting: Setting) -> torch.Tensor:
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    cast = contextlib.nullcontext()
    if setting.autocast is not None:
        cast = torch.autocast("cpu", dtype=setting.autocast)
    with cast:
        # A product with the identity is what autocast rounds.
        value = 0.5 * (CURVATURE * (flat - CENTRE) ** 2).sum() + noise @ flat
        if setting.autocast is not None:
            value = value + 0.0 * (torch.eye(6) @ flat.detach()).float().sum()
    return -value if setting.ascends else value


def train(setting: Setting, folder: str | None) -> tuple[np.ndarray, np.ndarray, Any]:
    """Train; returns the final point, the true gradients of the steps that were made, and what was recorded."""
    torch.manual_seed(1)
    tensors = [torch.randn(2, 2).requires_grad_(), torch.randn(2).requires_grad_()]
    noise = torch.randn(STEPS, setting.accumulation, 6)
    optimizer = setting.optimizer(tensors)
    scaler = torch.amp.GradScaler("cpu", enabled=setting.scaler, init_scale=2.0**10, growth_interval=40)
    value = torch.compile(loss_of, backend="eager") if setting.compiled else loss_of

    def schedule() -> Any:
        return torch.optim.lr_scheduler.StepLR(optimizer, 50, 0.5)

    scheduler = schedule() if setting.schedule == "before" else None
    recording: Any = contextlib.nullcontext()
    if folder is not None:
        recording = onlooker.record(optimizer, folder, agent=0, **setting.options)
    scheduler = schedule() if setting.schedule == "after" else scheduler
    true: list[np.ndarray] = []
    with recording:
        for step in range(STEPS):
            if setting.later and step == STEPS // 2:
                optimizer.add_param_group({"params": [torch.zeros(3, requires_grad=True)]})
            flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
            true.append(-(CURVATURE * (flat - CENTRE) + noise[step].mean(dim=0)).numpy())
            if setting.closure:

                def again(step: int = step) -> torch.Tensor:
                    optimizer.zero_grad()
                    found = value(tensors, noise[step, 0], setting)
                    found.backward()
                    return found

                optimizer.step(again)
                continue
            optimizer.zero_grad()
            for part in noise[step]:
                shared = setting.accumulation if setting.told else 1
                scaler.scale(value(tensors, part, setting) / shared).backward()
            if setting.scaler and step == 60:
                tensors[1].grad[0] = torch.inf
            if setting.clip is not None:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(tensors, setting.clip)
            if setting.scaler and step == 60:
                # Skipped.
                true.pop()
            scaler.step(optimizer)
            scaler.update()
            if scheduler is not None:
                scheduler.step()
    final = torch.cat([tensor.detach().reshape(-1) for tensor in tensors]).numpy()
    return final, np.array(true), None if folder is None else onlooker.read_log(folder)


def measured(setting: Setting) -> Figures:
    """Train with and without the recorder."""
    from onlooker.data.trainer import about_trainer

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        final, true, seen = train(setting, folder)
        about = onlooker.open_log(folder).about
    plain, _, _ = train(setting, None)
    recorded = seen.gradients.astype(float)
    if setting.naive:
        for name in ("scale", "clip"):
            recorded = recorded * seen.marks.get(name, np.ones(len(recorded)))[:, None]
    ratio = float((recorded * true).sum() / (true**2).sum()) if len(recorded) == len(true) else np.nan
    length = np.linalg.norm(true, axis=1).mean() * setting.expected
    worst = float(np.abs(recorded - setting.expected * true).max() / length) if np.isfinite(ratio) else np.nan
    said = [one.message.message.code for one in caught if isinstance(one.message, onlooker.OnlookerWarning)]
    said += [message.code for message in about_trainer(seen)]
    if setting.schedule and about.learning_rate is not None:
        said.append("a constant learning rate!")
    return Figures(ratio, worst, len(recorded), len(true), np.array_equal(final, plain), tuple(said))
