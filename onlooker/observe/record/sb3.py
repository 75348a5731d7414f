"""Record a stable-baselines3 agent: a callback that hooks its policy's optimiser (`record.torch`) while it learns.

    model.learn(10_000, callback=RecordCallback("runs/", agent=0))

Gradients are of the algorithm's own loss (for A2C and PPO a surrogate, with its entropy and value terms), as ascent.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback

from onlooker.observe.projection import Projection
from onlooker.observe.record.torch import Recording, record

__all__ = ["RecordCallback"]


class RecordCallback(BaseCallback):
    """Writes down every step of the policy's optimiser.

    Parameters
    ----------
    log, agent, projection
        As of `record.torch.record`.
    parameters
        Which tensors to watch, from the model: ``lambda model: model.policy.action_net.parameters()``; by default all
        that the optimiser has.
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
