"""Record a Lightning model: a callback that records each of its optimizers (`record.torch`) while it is fitted.

    Trainer(callbacks=[LightningCallback("runs/", agent=0)])

Lightning divides the loss by the number of accumulated batches, clips inside the step, and unscales: all of that is
seen or undone. The loss of each step is recorded beside its row.
"""

from collections.abc import Hashable
from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import Callback

from onlooker.data.log.writer import LogWriter
from onlooker.data.projection import Projection
from onlooker.data.record.torch import Recording, Silent, record

__all__ = ["LightningCallback"]


class LightningCallback(Callback):
    """Record every step of the optimizers: of one in the folder, of several in ``0/``, ``1/``, ….

    Parameters
    ----------
    log
        A folder, or, for one optimizer, a `LogWriter`, which several agents may share.
    agent
        The name of the agent. Give it whenever there are several agents.
    projection
        Record only these directions.
    halves
        Whether to record |a − b|² of the two halves of an even number of accumulated batches.
    report_to
        "tensorboard" to write scalars, too.
    """

    def __init__(
        self,
        log: Any,
        *,
        agent: Hashable | None = None,
        projection: Projection | None = None,
        halves: bool = False,
        report_to: str | None = None,
    ) -> None:
        super().__init__()
        self.target, self.agent, self.projection = log, agent, projection
        self.halves, self.report_to = halves, report_to
        self._recordings: list[Recording | Silent] = []
        self._passes = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        several = len(trainer.optimizers) > 1
        if several and isinstance(self.target, LogWriter):
            raise ValueError(f"log is a LogWriter, but there are {len(trainer.optimizers)} optimizers; give a folder.")
        if self.halves and (several or trainer.accumulate_grad_batches % 2):
            raise ValueError(
                "halves is given, but there is not one optimizer with an even accumulate_grad_batches; give "
                "accumulate_grad_batches=2, or leave halves out."
            )
        self._recordings = [
            record(
                optimizer,
                Path(self.target) / str(number) if several else self.target,
                agent=self.agent,
                projection=self.projection,
                along=True if self.halves else None,
                averaged=True,
                report_to=self.report_to,
            )
            for number, optimizer in enumerate(trainer.optimizers)
        ]
        self._passes = 0

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:
        if len(self._recordings) == 1:
            self._recordings[0].loss(loss.detach() * trainer.accumulate_grad_batches)

    def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
        self._passes += 1
        if self.halves and self._passes % trainer.accumulate_grad_batches == trainer.accumulate_grad_batches // 2:
            scaler = getattr(trainer.precision_plugin, "scaler", None)
            self._recordings[0].half(scale=1.0 if scaler is None else scaler.get_scale())

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        for recording in self._recordings:
            recording.close()
        self._recordings = []

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.on_train_end(trainer, pl_module)
