"""What a torch optimizer says about itself: its rule, its weight decay, and by how much a gradient moves the weights.

The response ∂(θ′ − θ)/∂g is of use because a step is correlated with the noise of its own gradient: their covariance is
tr(response · Σ).
"""

from typing import Any

import torch

from onlooker.data.optimizer import Optimizer
from onlooker.data.trainer import Trainer

__all__ = ["decay_of", "group_of", "rate_of", "reject_sharded", "response", "rule_of"]

# Optimizers whose weight decay is beside the step.
DECOUPLED = {"adamw", "adamwschedulefree", "lion"}
# Optimizers that keep a part of the parameters or gradients on each process.
SHARDED = {"ZeroRedundancyOptimizer", "DeepSpeedZeroOptimizer"}


def rule_of(optimizer: torch.optim.Optimizer) -> Optimizer:
    """The rule of a torch optimizer; one that is not plain `torch.optim.SGD` is described by its name alone."""
    name = type(optimizer).__name__.lower()
    settings = optimizer.param_groups[0]
    if type(optimizer) is not torch.optim.SGD:
        return Optimizer(name if name != "sgd" else "an sgd of its own")
    alike = all(
        group.get(key) == settings.get(key)
        for group in optimizer.param_groups
        for key in ("lr", "momentum", "dampening", "nesterov", "weight_decay")
    )
    if not alike:
        return Optimizer("sgd of several settings")
    if (decay := _number(settings["weight_decay"])) < 0 or not 0 <= settings["momentum"] < 1:
        return Optimizer("sgd with growing weights or momentum")
    return Optimizer("sgd", settings["momentum"], settings["dampening"], settings["nesterov"], decay)


def group_of(optimizer: torch.optim.Optimizer) -> dict[int, dict[str, Any]]:
    """The parameter group of each tensor, by its id."""
    return {id(tensor): group for group in optimizer.param_groups for tensor in group["params"]}


def rate_of(optimizer: torch.optim.Optimizer) -> float:
    """The learning rate now; nan if groups have several, or if it is on a device."""
    if len(optimizer.param_groups) == 1:
        return _number(optimizer.param_groups[0].get("lr"))
    rates = {_number(group.get("lr")) for group in optimizer.param_groups}
    return rates.pop() if len(rates) == 1 else float("nan")


def decay_of(optimizer: torch.optim.Optimizer, parameters: list[torch.Tensor]) -> Trainer:
    """The weight decay of these tensors: pieces of (number of coordinates, λ), and whether it is beside the step."""
    groups = group_of(optimizer)
    pieces: list[tuple[int, float]] = []
    for tensor in parameters:
        # Also with maximize=True, torch adds λθ to what is minimised.
        decay = _number(groups[id(tensor)].get("weight_decay") or 0.0)
        if pieces and pieces[-1][1] == decay:
            pieces[-1] = pieces[-1][0] + tensor.numel(), decay
        else:
            pieces.append((tensor.numel(), decay))
    if not any(decay for _, decay in pieces):
        return Trainer()
    beside = type(optimizer).__name__.lower() in DECOUPLED or any(
        group.get("decoupled_weight_decay") for group in optimizer.param_groups
    )
    return Trainer(decay=tuple(pieces), decoupled=beside)


def reject_sharded(optimizer: torch.optim.Optimizer, parameters: list[torch.Tensor]) -> None:
    """Raise if parameters or gradients are spread over processes: no process has a point or its gradient."""
    flat = any(hasattr(tensor, "_is_flat_param") or type(tensor).__name__ == "FlatParameter" for tensor in parameters)
    if flat or any(type(tensor.data).__name__ == "DTensor" or hasattr(tensor, "placements") for tensor in parameters):
        raise ValueError(
            "optimizer has parameters that are spread over processes (FSDP, tensor parallel), so that no process has a "
            "whole gradient; record under DDP, or pass parameters= that are whole."
        )
    if type(optimizer).__name__ in SHARDED:
        raise ValueError(
            f"optimizer is a {type(optimizer).__name__}, which keeps a part of the parameters on each process; record "
            "an optimizer that has all of them."
        )


def response(optimizer: torch.optim.Optimizer, tensor: torch.Tensor, group: dict[str, Any], gradient: Any) -> Any:
    """∂(θ′ − θ)/∂g, by coordinates, of the coming step, g the ascent gradient; nan for an unknown rule.

    It is read off the optimizer's state before the step. ``gradient`` is the gradient of the step, of either sign.
    """
    rate, state = _number(group["lr"]), optimizer.state.get(tensor, {})
    if isinstance(optimizer, torch.optim.SGD):
        if not group["momentum"]:
            return rate
        fresh = 1.0 if state.get("momentum_buffer") is None else 1.0 - group["dampening"]
        return rate * (1.0 + group["momentum"] * fresh if group["nesterov"] else fresh)
    if isinstance(optimizer, torch.optim.Adam | torch.optim.AdamW) and not group.get("amsgrad"):
        one, two = (_number(beta) for beta in group["betas"])
        step = _number(state["step"]) + 1 if state else 1.0
        # A decay in the gradient is a shift that the derivative does not see.
        mean = (one * state["exp_avg"] if state else 0.0) + (1 - one) * gradient
        square = (two * state["exp_avg_sq"] if state else 0.0) + (1 - two) * gradient**2
        shrunk = 1 - one**step, 1 - two**step
        root = (square / shrunk[1]).sqrt()
        direct = (1 - one) / shrunk[0] / (root + group["eps"])
        through = mean / shrunk[0] * (1 - two) * gradient / shrunk[1] / (root + 1e-30) / (root + group["eps"]) ** 2
        return rate * (direct - through)
    return float("nan")


def _number(value: Any) -> float:
    if type(value) is float:
        return value
    if value is None or (isinstance(value, torch.Tensor) and value.device.type != "cpu"):
        return float("nan")
    return float(value)
