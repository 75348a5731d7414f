"""One `record` for all frameworks: the optimizer's type selects the recorder, which is imported on demand."""

from collections.abc import Hashable
from importlib import import_module
from typing import TYPE_CHECKING, Any, overload

from onlooker.core.extras import needs_extra

if TYPE_CHECKING:
    import optax
    import torch

    from onlooker.data.optimizer import Optimizer
    from onlooker.data.projection import Projection
    from onlooker.data.record.optax import Recorder
    from onlooker.data.record.torch import Recording, Silent

__all__ = ["record"]

# Options that only one of the two frameworks has.
TORCH_ONLY = ("parameters", "along", "accumulation", "averaged", "algorithm", "surrogate", "every_rank", "report_to")
OPTAX_ONLY = ("rows", "rule", "learning_rate", "weight_decay", "decoupled")


@overload
def record(
    optimizer: "torch.optim.Optimizer",
    log: Any,
    *,
    agent: Hashable | None = None,
    projection: "Projection | None" = None,
    features: Any = None,
    names: Any = None,
    parameters: Any = None,
    along: bool | None = None,
    accumulation: int = 1,
    averaged: bool = False,
    algorithm: str = "",
    surrogate: str = "",
    every_rank: bool = False,
    report_to: str | None = None,
) -> "Recording | Silent": ...


@overload
def record(
    optimizer: "optax.GradientTransformation",
    log: Any,
    *,
    agent: Hashable | None = None,
    projection: "Projection | None" = None,
    features: Any = None,
    names: Any = None,
    rows: int | None = None,
    rule: "Optimizer | str | None" = None,
    learning_rate: float | None = None,
    weight_decay: float = 0.0,
    decoupled: bool = False,
) -> "Recorder": ...


def record(
    optimizer: Any,
    log: Any,
    *,
    agent: Hashable | None = None,
    projection: "Projection | None" = None,
    features: Any = None,
    names: Any = None,
    **options: Any,
) -> Any:
    """Record an optimizer's steps in a log: its points, and the gradients it received there, as ascent gradients.

    With torch every step is recorded until the recording is closed::

        with onlooker.record(torch.optim.SGD(model.parameters(), lr=0.1), "runs/", agent=0):
            train()

    An optax transformation keeps no state: train with the recorder's optimizer and collect from time to time::

        recorder = onlooker.record(optax.adam(0.05), "runs/", agent=0, rule="adam", learning_rate=0.05)
        state = recorder.optimizer.init(parameters)
        ...
        recorder.collect(state)
        recorder.close(state)

    Parameters
    ----------
    optimizer
        A torch optimizer, or an optax transformation.
    log
        A folder, whose log is continued if it has one, or a `LogWriter`, which several agents may share.
    agent
        The name of the agent. Give it whenever there are several agents.
    projection
        Record only these directions: `onlooker.projection.onto` or `principal_components`.
    features
        ψ of a reward w·ψ(θ), for `explain`: a function of the point in jax.numpy. Then ``log`` is a folder in which
        only sums of k × k numbers are written, kilobytes for any number of parameters. This loads JAX.
    names
        Names of the features.

    Other Parameters
    ----------------
    parameters : iterable of tensors
        torch: the tensors to record; default: all of the optimizer's.
    along : bool
        torch: whether to record R's change along the run, one number a step; default: with a projection.
    accumulation : int
        torch: number of backward passes per step, if the trainer adds them up without dividing.
    averaged : bool
        torch: whether the trainer divides its loss by the number of backward passes.
    algorithm, surrogate : str
        torch: what is trained, for the log, if it is not simply a loss.
    every_rank : bool
        torch: whether every process of `torch.distributed` records; default: the first.
    report_to : str
        torch: "tensorboard" to write scalars to its files, too.
    rows : int
        optax: the largest number of steps between two calls of ``collect``; default: 16 to 256.
    rule : str
        optax: the optimizer's name for the log, such as "sgd" or "adam".
    learning_rate : float
        optax: the learning rate for the log.
    weight_decay, decoupled : float, bool
        optax: λ of a decay in the chain, and whether it is beside the step, for the log.

    Returns
    -------
    Recording or Recorder
        `onlooker.data.record.torch.Recording`, a context manager, or `onlooker.data.record.optax.Recorder`.
    """
    if features is not None:
        return _sums_alone(optimizer, log, features, names, agent=agent, projection=projection, **options)
    homes = {base.__module__.split(".")[0] for base in type(optimizer).__mro__}
    if "torch" in homes and hasattr(optimizer, "param_groups"):
        _check(options, TORCH_ONLY, "a torch")
        with needs_extra("torch", "recording a torch optimizer"):
            from onlooker.data.record.torch import record as record_torch
        return record_torch(optimizer, log, agent=agent, projection=projection, **options)
    if "optax" in homes:
        _check(options, OPTAX_ONLY, "an optax")
        from onlooker.data.record.optax import Recorder

        rule = options.pop("rule", None)
        return Recorder(log, agent=agent, projection=projection, optimizer=rule, before=optimizer, **options)
    raise TypeError(
        f"optimizer is of type {type(optimizer).__name__}; give a torch optimizer or an optax transformation, or use "
        "onlooker.callbacks."
    )


def _sums_alone(optimizer: Any, log: Any, features: Any, names: Any, **options: Any) -> Any:
    """A recording whose log is one of sums, which it closes. Their package lies above this one."""
    writer = import_module("onlooker.explanation.record").SumsWriter(log, features, names)
    recording = record(optimizer, writer, **options)
    recording._owned = True
    return recording


def _check(options: dict[str, Any], known: tuple[str, ...], whose: str) -> None:
    if unknown := sorted(options.keys() - set(known)):
        raise TypeError(f"{unknown[0]} is not an option for {whose} optimizer; the options are {', '.join(known)}.")
