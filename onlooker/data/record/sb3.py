"""Record a stable-baselines3 agent: a callback that records its policy's optimizer (`record.torch`) during learning.

    model.learn(10_000, callback=SB3Callback("runs/", agent=0))

Gradients are ascent gradients of the algorithm's loss (for A2C and PPO a surrogate with entropy and value terms).
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback

from onlooker.data.projection import Projection
from onlooker.data.record.torch import Recording, record

__all__ = ["RecordCallback", "SB3Callback"]


class SB3Callback(BaseCallback):
    """Record every step of the policy's optimizer.

    Parameters
    ----------
    log
        A folder, or a `LogWriter`, which several agents may share.
    agent
        The name of the agent. Give it whenever there are several agents.
    parameters
        The tensors to record, as a function of the model: ``lambda model: model.policy.action_net.parameters()``;
        default: all of the optimizer's.
    projection
        Record only these directions: `onto` or `principal_components`.
    """

    def __init__(
        self,
        log: Any,
        *,
        agent: Hashable | None = None,
        parameters: Callable[[BaseAlgorithm], Iterable[torch.Tensor]] | None = None,
        projection: Projection | None = None,
    ) -> None:
        super().__init__()
        self.log, self.agent, self.choose, self.projection = log, agent, parameters, projection
        self._recording: Recording | None = None

    def _on_training_start(self) -> None:
        chosen = None if self.choose is None else self.choose(self.model)
        self._recording = record(
            self.model.policy.optimizer, self.log, agent=self.agent, parameters=chosen, projection=self.projection
        )

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        if self._recording is not None:
            self._recording.close()
            self._recording = None


# The name of version 0.1.
RecordCallback = SB3Callback
