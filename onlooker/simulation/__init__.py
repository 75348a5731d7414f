"""The simulated world: rewards, agents that climb them, and streams of their steps.

The names below are imported when they are first used, each from its own module.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onlooker.simulation.agents import (
        independent,
        independent_pools,
        questions,
        record,
        running,
        running_pools,
        simulate,
    )
    from onlooker.simulation.cmdp import CMDP, five_states, switched_states, two_states
    from onlooker.simulation.logistic import Logistic
    from onlooker.simulation.mixture import Mixture
    from onlooker.simulation.policy_gradient import PolicyGradient, Score, Spsa, WeakDerivative
    from onlooker.simulation.reward import NoisyReward, Reward
    from onlooker.simulation.switching import Scheduled, Switching

__all__ = [
    "CMDP",
    "Logistic",
    "Mixture",
    "NoisyReward",
    "PolicyGradient",
    "Reward",
    "Scheduled",
    "Score",
    "Spsa",
    "Switching",
    "WeakDerivative",
    "five_states",
    "independent",
    "independent_pools",
    "questions",
    "record",
    "running",
    "running_pools",
    "simulate",
    "switched_states",
    "two_states",
]

# The module that each name lives in.
_HOME = {
    "CMDP": "cmdp",
    "Logistic": "logistic",
    "Mixture": "mixture",
    "NoisyReward": "reward",
    "PolicyGradient": "policy_gradient",
    "Reward": "reward",
    "Scheduled": "switching",
    "Score": "policy_gradient",
    "Spsa": "policy_gradient",
    "Switching": "switching",
    "WeakDerivative": "policy_gradient",
    "five_states": "cmdp",
    "independent": "agents",
    "independent_pools": "agents",
    "questions": "agents",
    "record": "agents",
    "running": "agents",
    "running_pools": "agents",
    "simulate": "agents",
    "switched_states": "cmdp",
    "two_states": "cmdp",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'onlooker.simulation' has no attribute {name!r}")
    return getattr(import_module(f"onlooker.simulation.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
