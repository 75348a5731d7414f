"""Record a model that transformers' Trainer trains: a callback that records its optimizer (`record.torch`).

    Trainer(…, callbacks=[TransformersCallback("runs/", agent=0)])

The Trainer divides its loss by the number of accumulated batches and clips gradients at length 1 unless told otherwise;
the recorded gradients are those before.
"""

from collections.abc import Hashable
from typing import Any

from transformers import TrainerCallback

from onlooker.data.projection import Projection
from onlooker.data.record.torch import Recording, Silent, record

__all__ = ["TransformersCallback"]


class TransformersCallback(TrainerCallback):
    """Record every step of the Trainer's optimizer.

    Parameters
    ----------
    log
        A folder, or a `LogWriter`, which several agents may share.
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
        self.log, self.agent, self.projection = log, agent, projection
        self.halves, self.report_to = halves, report_to
        self._recording: Recording | Silent | None = None
        self._passes = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.halves and args.gradient_accumulation_steps % 2:
            raise ValueError(
                f"halves is given, but gradient_accumulation_steps is {args.gradient_accumulation_steps}; make it even."
            )
        self._recording = record(
            kwargs["optimizer"],
            self.log,
            agent=self.agent,
            projection=self.projection,
            along=True if self.halves else None,
            averaged=True,
            report_to=self.report_to,
        )

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._passes += 1
        if self.halves and self._recording is not None and self._passes == args.gradient_accumulation_steps // 2:
            self._recording.half()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._passes = 0

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._recording is not None:
            self._recording.close()
            self._recording = None
