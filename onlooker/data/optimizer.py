"""The rule by which a learner turns gradients into steps, for rules whose gradients can be recovered from the steps.

This works for plain SGD, momentum and Nesterov, whose steps are linear in the gradients. It does not for Adam, RMSProp
and similar rules: they divide by the gradients' own size, so gradients a thousand times as large along one coordinate
make the same steps.
"""

from dataclasses import dataclass
from typing import Any

from onlooker.core.settings import check_share

__all__ = ["Optimizer", "as_optimizer"]


@dataclass(frozen=True)
class Optimizer:
    """A rule, in the conventions of torch: v_k = ρ v_{k−1} + (1 − d) u_k, u_k = g_k − λ θ_k, θ_{k+1} = θ_k + ε v_k.

    The first buffer is v_0 = u_0; with Nesterov's momentum the step is ε(u_k + ρ v_k).

    Attributes
    ----------
    name
        "sgd", with or without the other fields, or the name of any other rule.
    momentum
        ρ.
    dampening
        d.
    nesterov
        Whether the momentum is Nesterov's.
    weight_decay
        λ. It is not part of R, whose gradient is g.
    """

    name: str = "sgd"
    momentum: float = 0.0
    dampening: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        check_share(momentum=self.momentum or None, dampening=self.dampening or None)
        if self.weight_decay < 0:
            raise ValueError(f"weight_decay is {self.weight_decay!r}; it must not be negative.")
        if self.nesterov and (not self.momentum or self.dampening):
            raise ValueError("nesterov needs momentum and no dampening; give momentum alone.")

    def why_not_from_iterates(self) -> str | None:
        """The reason why gradients cannot be recovered from its iterates, or ``None`` if they can."""
        if self.name == "sgd":
            return None
        return (
            f"the optimizer is {self.name}: gradients can be computed from the iterates of SGD alone, with or without "
            "momentum. Rules like Adam and RMSProp divide by the gradients' size. Record the gradients."
        )


def as_optimizer(rule: "Optimizer | str | None", momentum: float = 0.0, **settings: Any) -> Optimizer:
    """An `Optimizer` from a name: "sgd", "momentum", "nesterov" or any other; ``None`` is plain SGD.

    Examples
    --------
    >>> as_optimizer("nesterov", momentum=0.9)
    Optimizer(name='sgd', momentum=0.9, dampening=0.0, nesterov=True, weight_decay=0.0)
    >>> as_optimizer("adam").why_not_from_iterates() is None
    False
    """
    if isinstance(rule, Optimizer):
        return rule
    name = "sgd" if rule is None else str(rule).strip().lower()
    if name in ("momentum", "nesterov"):
        if not momentum:
            raise ValueError(f"the optimizer is {name} but momentum is not given; give it too, such as 0.9.")
        return Optimizer("sgd", momentum, nesterov=name == "nesterov", **settings)
    return Optimizer(name, momentum, **settings)
