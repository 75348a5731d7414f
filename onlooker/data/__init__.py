"""What was seen: observations, streams of them, their quality, and the logs they are kept in.

Nothing here but `stream` imports JAX: recorders run inside training jobs.
"""

from onlooker.data.log.reader import open_log, read_log
from onlooker.data.log.writer import LogWriter
from onlooker.data.observations import Observations, observe
from onlooker.data.optimizer import Optimizer

__all__ = ["LogWriter", "Observations", "Optimizer", "observe", "open_log", "read_log"]
