"""The rule by which a learner turns gradients into steps, as far as steps can be turned back into gradients.

Plain SGD, momentum and Nesterov can: their steps are linear in the gradients. Adam, RMSProp and their like cannot: they
divide by the gradients' own size, so that gradients a thousand times as large along one coordinate make the same steps.
"""

from dataclasses import dataclass
from typing import Any

from onlooker.check import check_share

__all__ = ["Optimiser", "as_optimiser"]


@dataclass(frozen=True)
class Optimiser:
    """A rule, in the conventions of torch: v_k = ρ v_{k−1} + (1 − d) u_k, u_k = g_k − λ θ_k, θ_{k+1} = θ_k + ε v_k.

    The first buffer is v_0 = u_0; with Nesterov's momentum the step is ε(u_k + ρ v_k).

    Attributes
    ----------
    name
        "sgd" with or without the rest, or that of any other rule.
    momentum, dampening, nesterov, weight_decay
        ρ, d, whether, and λ. R is what g is the gradient of: without the weight decay, which the learner adds.
    """

    name: str = "sgd"
    momentum: float = 0.0
    dampening: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        check_share(momentum=self.momentum or None, dampening=self.dampening or None)
        if self.weight_decay < 0:
            raise ValueError(f"weight_decay is {self.weight_decay!r}; give a number from 0.")
        if self.nesterov and (not self.momentum or self.dampening):
            raise ValueError("nesterov is set without a momentum, or with dampening; give momentum alone.")

    def why_not_from_iterates(self) -> str | None:
        """Why its gradients cannot be read off its iterates, if so."""
        if self.name == "sgd":
            return None
        return (
            f"the optimiser is {self.name}: only the iterates of SGD, with or without momentum, tell gradients. Rules "
            "like Adam and RMSProp divide by the gradients' size, which is then lost. Record the gradients."
        )


def as_optimiser(rule: "Optimiser | str | None", momentum: float = 0.0, **settings: Any) -> Optimiser:
    """By name: "sgd", "momentum", "nesterov" or any other; plain SGD when there is none.

    Examples
    --------
    >>> as_optimiser("nesterov", momentum=0.9)
    Optimiser(name='sgd', momentum=0.9, dampening=0.0, nesterov=True, weight_decay=0.0)
    >>> as_optimiser("adam").why_not_from_iterates() is None
    False
    """
    if isinstance(rule, Optimiser):
        return rule
    name = "sgd" if rule is None else str(rule).strip().lower()
    if name in ("momentum", "nesterov"):
        if not momentum:
            raise ValueError(f"the optimiser is {name} without its momentum; give that too, such as 0.9.")
        return Optimiser("sgd", momentum, nesterov=name == "nesterov", **settings)
    return Optimiser(name, momentum, **settings)
