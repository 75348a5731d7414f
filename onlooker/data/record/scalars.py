"""Scalars for TensorBoard while a run is recorded: rows, R̂ along the run, the loss beside it, and warnings as text."""

from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from onlooker.core.extras import needs_extra
from onlooker.core.messages import Message

__all__ = ["Scalars", "scalars_for"]


class Scalars:
    """Writes to TensorBoard's files, in ``tensorboard/`` in the log's folder, by agent."""

    def __init__(self, folder: Path, agent: Hashable | None) -> None:
        with needs_extra("trainers", "report_to='tensorboard'"):
            from torch.utils.tensorboard import SummaryWriter
        name = "run" if agent is None else str(agent).replace("/", "-")
        self._writer = SummaryWriter(str(folder / "tensorboard" / name))
        self._reward = 0.0

    def add(self, first: int, columns: Mapping[str, np.ndarray]) -> None:
        """Add rows, the first of which has this number."""
        count = len(columns["loss"])
        last = first + count - 1
        self._writer.add_scalar("onlooker/rows", last + 1, last)
        if "gain" in columns:
            climbed = np.nan_to_num(columns["gain"]) - np.nan_to_num(columns["correction"])
            self._reward += float(climbed.sum())
            self._writer.add_scalar("onlooker/reward along the run", self._reward, last)
        if np.isfinite(columns["loss"][-1]):
            self._writer.add_scalar("onlooker/loss", float(columns["loss"][-1]), last)

    def say(self, message: Message) -> None:
        """Add a warning."""
        self._writer.add_text("onlooker/warnings", f"{message.code}: {message}")

    def close(self) -> None:
        self._writer.close()


def scalars_for(report_to: str | None, folder: Any, agent: Hashable | None) -> Scalars | None:
    """What ``report_to`` asks for; ``None`` for nothing."""
    if report_to is None:
        return None
    if report_to != "tensorboard":
        raise ValueError(f"report_to is {report_to!r}; give 'tensorboard', or leave it out.")
    return Scalars(Path(folder), agent)
