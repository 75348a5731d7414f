"""An Observer learns a log: its new rows, to the last bit as if it had never stopped."""

from typing import Any

import numpy as np

from onlooker.data.log.reader import Log, open_log
from onlooker.data.log.tail import Batch, available, check_same_log
from onlooker.data.observations import Observations
from onlooker.data.trainer import about_trainer
from onlooker.live.settings import SETTINGS

__all__ = ["LearnsLogs"]


class LearnsLogs:
    """What an Observer has to learn logs."""

    def learn_log(self: Any, log: Any, *, checkpoint: Any = None, every: int = SETTINGS.checkpoint_every) -> int:
        """Learn the log's new rows; return their number.

        Parameters
        ----------
        log
            A path, or a log that `open_log` opened.
        checkpoint
            File to save the Observer to, at intervals and at the end. After a crash, `load` it and learn the same log
            again: R̂ is the same, to the last bit, as without the crash.
        every
            Number of observations between two checkpoints.
        """
        log = log if isinstance(log, Log) else open_log(log)
        check_same_log(log, self.log)
        with self._reading:
            before = saved = self.seen
            for batch in available(log, self.position):
                with self._learning:
                    self.learn_batch(batch)
                    self._note_torn(log)
                if checkpoint is not None and self.seen - saved >= every:
                    self.save(checkpoint)
                    saved = self.seen
            self._note_torn(log)
            nothing = np.zeros((0, log.dim))
            self._say(about_trainer(Observations(nothing, nothing, trainer=log.trainer, projection=log.projection)))
            if checkpoint is not None:
                self.save(checkpoint)
            return self.seen - before

    def learn_batch(self: Any, batch: Batch) -> None:
        """Add rows of a log and set the position after them; `save` never writes one without the other."""
        with self._learning:
            self.learn_many(batch.points, batch.gradients, batch.agents)
            self.log, self.position = batch.log, batch.position

    def _note_torn(self: Any, log: Log) -> None:
        with self._learning:
            self.torn = tuple(sorted({*self.torn, *log.torn}))
