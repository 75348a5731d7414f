"""Record a stable-baselines3 agent: a callback that records each of its optimizers (`record.torch`) while it learns.

    model.learn(10_000, callback=SB3Callback("runs/", agent=0))

None of these algorithms follows the gradient of the return alone: PPO and A2C follow a surrogate with entropy and value
terms, DQN, SAC, TD3 and DDPG semi-gradients, of targets that move with the parameters. The log says so.
"""

from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import Any

import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback

from onlooker.data.log.writer import LogWriter
from onlooker.data.projection import Projection
from onlooker.data.record.torch import Recording, Silent, record

__all__ = ["RecordCallback", "SB3Callback", "optimizers_of"]

# What the gradients of each algorithm are of.
SURROGATES = {
    "PPO": "a clipped surrogate of the return with entropy and value terms, which changes with every rollout",
    "A2C": "a surrogate of the return with entropy and value terms, which changes with every rollout",
    "DQN": "a semi-gradient of the temporal-difference error: its targets are taken as constants",
    "SAC": "semi-gradients: of a critic's error, and of what the critic says of the actor",
    "TD3": "semi-gradients: of a critic's error, and of what the critic says of the actor",
    "DDPG": "semi-gradients: of a critic's error, and of what the critic says of the actor",
}
OTHERS = "a surrogate of the return"


class SB3Callback(BaseCallback):
    """Record every step of the agent's optimizers: of one in the folder, of several in ``actor/``, ``critic/``, ….

    Parameters
    ----------
    log
        A folder. If the algorithm has one optimizer (PPO, A2C, DQN), also a `LogWriter`, which agents may share.
    agent
        The name of the agent. Give it whenever there are several agents.
    parameters
        The tensors to record, as a function of the model: ``lambda model: model.policy.action_net.parameters()``; only
        optimizers that have them are recorded. Default: all.
    projection
        Record only these directions: `onto` or `principal_components`.
    optimizers
        Names of the optimizers to record, such as ``["actor"]``; default: all.
    """

    def __init__(
        self,
        log: Any,
        *,
        agent: Hashable | None = None,
        parameters: Callable[[BaseAlgorithm], Iterable[torch.Tensor]] | None = None,
        projection: Projection | None = None,
        optimizers: Iterable[str] | None = None,
    ) -> None:
        super().__init__()
        self.log, self.agent, self.choose, self.projection = log, agent, parameters, projection
        self.wanted = None if optimizers is None else list(optimizers)
        self._recordings: list[Recording | Silent] = []

    def _on_training_start(self) -> None:
        found = optimizers_of(self.model)
        if unknown := sorted(set(self.wanted or found) - found.keys()):
            raise ValueError(f"optimizers has {unknown[0]!r}, but {type(self.model).__name__} has {', '.join(found)}.")
        chosen = {name: found[name] for name in self.wanted or found}
        tensors = None if self.choose is None else list(self.choose(self.model))
        if tensors is not None:
            known = {id(tensor) for tensor in tensors}
            chosen = {name: one for name, one in chosen.items() if known & _ids(one)}
            if not chosen:
                raise ValueError("parameters gives tensors that no optimizer has; give tensors of the model's.")
        if len(chosen) > 1 and isinstance(self.log, LogWriter):
            raise ValueError(
                f"log is a LogWriter, but {type(self.model).__name__} has the optimizers {', '.join(chosen)}, whose "
                "points differ; give a folder, or choose one with optimizers=."
            )
        algorithm = type(self.model).__name__
        for name, optimizer in chosen.items():
            own = None if tensors is None else [tensor for tensor in tensors if id(tensor) in _ids(optimizer)]
            self._recordings.append(
                record(
                    optimizer,
                    self.log if len(found) == 1 or len(chosen) == 1 else Path(self.log) / name,
                    agent=self.agent,
                    parameters=own,
                    projection=self.projection,
                    algorithm=algorithm,
                    surrogate=SURROGATES.get(algorithm, OTHERS),
                )
            )

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        for recording in self._recordings:
            recording.close()
        self._recordings = []


def optimizers_of(model: BaseAlgorithm) -> dict[str, torch.optim.Optimizer]:
    """The optimizers of an algorithm: "policy", or "actor", "critic" and "entropy"."""
    places = {
        "policy": getattr(model.policy, "optimizer", None),
        "actor": getattr(getattr(model, "actor", None), "optimizer", None),
        "critic": getattr(getattr(model, "critic", None), "optimizer", None),
        "entropy": getattr(model, "ent_coef_optimizer", None),
    }
    found = {name: one for name, one in places.items() if isinstance(one, torch.optim.Optimizer)}
    if not found:
        raise ValueError(f"{type(model).__name__} has no optimizer that is known; call onlooker.record on its own.")
    return found


def _ids(optimizer: torch.optim.Optimizer) -> set[int]:
    return {id(tensor) for group in optimizer.param_groups for tensor in group["params"]}


# The name of version 0.1.
RecordCallback = SB3Callback
