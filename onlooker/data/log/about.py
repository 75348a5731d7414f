"""A log's description of itself, stored in the metadata of its shards or beside the arrays of a file."""

import warnings
from dataclasses import dataclass, replace

import numpy as np

from onlooker.core.messages import in_short
from onlooker.data.optimizer import Optimizer, as_optimizer
from onlooker.data.trainer import Trainer, trainer_of
from onlooker.storage.signature import check_format
from onlooker.storage.stores import Place

__all__ = ["DIRECTIONS", "About", "about_of", "began_of"]

DIRECTIONS = ("ascent", "descent")
FORMAT = 1
UNKNOWN = Trainer()
# Longest optimizer name that is read: files may come from strangers, and errors quote the name.
LONGEST_NAME = 100


@dataclass(frozen=True)
class About:
    """A log's description of itself.

    Attributes
    ----------
    name
        Identifier of the log, the same in all of its shards.
    dim
        Dimension of the points.
    learning_rate
        ε of the learners; ``None`` if it is unknown or not the same for all.
    optimizer
        The learners' update rule; ``None`` if unknown.
    direction
        "ascent" if the gradients are those of R, "descent" if they are those of a loss, R = −loss.
    source
        Where the gradients come from, as free text.
    trainer
        What is known about the learners' trainer.
    projection
        Name of the file with the directions that the points are along; empty if points are all parameters.
    """

    name: str
    dim: int
    learning_rate: float | None = None
    optimizer: Optimizer | None = None
    direction: str = "ascent"
    source: str = ""
    trainer: Trainer = UNKNOWN
    projection: str = ""

    @property
    def optimiser(self) -> Optimizer | None:
        """The old name of ``optimizer``."""
        warnings.warn("a log's about.optimiser is now called optimizer.", DeprecationWarning, stacklevel=2)
        return self.optimizer

    def to_metadata(self) -> dict[str, str]:
        """The description as strings by key; unknown entries are left out."""
        words = {"onlooker": FORMAT, "log": self.name, "dimension": self.dim, "direction": self.direction}
        if self.learning_rate is not None:
            words["learning_rate"] = repr(float(self.learning_rate))
        if self.optimizer is not None:
            words["optimizer"] = self.optimizer.name
            words |= {name: getattr(self.optimizer, name) for name in ("momentum", "dampening", "weight_decay")}
            words["nesterov"] = str(self.optimizer.nesterov).lower()
        if self.source:
            words["source"] = self.source
        if text := self.trainer.to_text():
            words["trainer"] = text
        if self.projection:
            words["projection"] = self.projection
        return {name: str(word) for name, word in words.items()}


def began_of(words: dict[str, str]) -> float:
    """The time at which a shard's writer got its first row; 0 if it did not note it."""
    try:
        return float(words.get("began", 0))
    except ValueError:
        return 0.0


def about_of(path: Place, words: dict[str, str], dim: int, name: str) -> About:
    """Parse the description found in a file, which may come from a stranger; an error names the file and the key."""

    def number(key: str) -> float | None:
        try:
            return None if words.get(key) in (None, "", "None") else float(words[key])
        except ValueError:
            raise ValueError(f"{path} says {key} is {in_short(repr(words[key]))}, which is not a number.") from None

    if (version := number("onlooker")) is not None:
        check_format(path, version, FORMAT)
    direction = words.get("direction", "ascent").strip().lower()
    if direction not in DIRECTIONS:
        raise ValueError(f"{path} says direction is {in_short(repr(direction))}; it can be {' or '.join(DIRECTIONS)}.")
    if (stated := number("dimension")) is not None and stated != dim:
        raise ValueError(f"{path} says dimension is {stated:g} but its points have {dim} dimensions.")
    learning_rate, optimizer = number("learning_rate"), None
    if learning_rate is not None and not 0 < learning_rate < np.inf:
        learning_rate = None
    # Logs of version 0.1 spell it "optimiser".
    rule = words.get("optimizer", words.get("optimiser"))
    if rule is not None or {"momentum", "weight_decay"} & words.keys():
        settings = {key: number(key) or 0.0 for key in ("momentum", "dampening", "weight_decay")}
        nesterov = words.get("nesterov", "").lower() in ("true", "1")
        try:
            optimizer = as_optimizer((rule or "sgd")[:LONGEST_NAME], **settings)
            optimizer = replace(optimizer, nesterov=nesterov or optimizer.nesterov)
        except ValueError as error:
            raise ValueError(f"{path}: {in_short(error)}.") from None
    try:
        trainer = trainer_of(words.get("trainer", ""))
    except ValueError as error:
        raise ValueError(f"{path}: {error}.") from None
    if optimizer is not None and optimizer.name == "sgd" and optimizer.weight_decay and not trainer.decay:
        trainer = replace(trainer, decay=((dim, optimizer.weight_decay),))
    own = words.get("log", name), dim, learning_rate, optimizer, direction, words.get("source", "")
    return About(*own, trainer, words.get("projection", ""))
