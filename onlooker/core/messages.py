"""Warnings as values: a code for programs to compare, a text for people to read, and the numbers in the text.

All packages return `Message`s; the public calls (`reconstruct`, `run`, `Observer`, the recorders) raise each of them
once as an `OnlookerWarning`, by `deliver`. docs/when-not-to-trust-it.md explains every code.
"""

import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

__all__ = ["CODES", "Message", "OnlookerWarning", "as_message", "deliver", "in_short", "trusted", "undelivered"]

# Every code, and whether it says that the answer (R̂, its maximum, or the samples) may be wrong.
CODES: Mapping[str, bool] = {
    # Observations.
    "rows-rejected": False,
    "rows-runaway": False,
    "rows-duplicated": False,
    "steps-skipped": False,
    "steps-long": True,
    "learning-rate-unknown": False,
    "optimizer-unknown": True,
    "points-flat": True,
    "gradients-equal": True,
    "sign-reversed": True,
    "sign-mixed": True,
    "sign-doubtful": True,
    "agents-few": True,
    "rows-dependent": True,
    "gradients-clipped": True,
    "loss-scaled": True,
    "decay-added": False,
    "decay-decoupled": False,
    "loss-unscaled": False,
    "clipping-undone": False,
    "gradients-summed": False,
    "surrogate": True,
    # Logs and recorders.
    "shards-torn": False,
    "log-thinned": False,
    "log-replaced": False,
    "projected": False,
    "slice-unknown": True,
    "slice-unsure": True,
    "halves-missing": False,
    "losses-disagree": True,
    "recording-stopped": True,
    "steps-lost": False,
    "parameters-added": True,
    # The fit and its samples.
    "reward-span": False,
    "misfit-untested": False,
    "misfit": True,
    "field-turns": True,
    "agents-disagree": True,
    "errors-wide": True,
    "unexplored": True,
    "samples-refused": True,
    "samples-not-converged": True,
    "samples-coarse": True,
    "samples-mismatch": True,
    "reward-jumped": True,
    "jump-suspected": False,
    "jumps-unseen": False,
    "dimensions-many": False,
    # Features.
    "features-unidentified": False,
    "features-misfit": True,
    "features-untested": False,
    "jacobians-unreliable": True,
    "residuals-none": False,
    "suspect-found": False,
    # Chains.
    "density-zero": True,
    "density-mismatch": True,
    "pools-alike": True,
    "pools-cut": True,
    "pools-narrow": True,
    "pools-far": True,
    "pools-empty": True,
    "chains-lost": True,
    "chains-confined": True,
    "chains-disagree": True,
    "chains-reset": True,
    "kernel-starved": True,
    "interrupted": False,
    "checkpoint-stale": False,
    "program-changed": False,
    "checkpoint-unverified": True,
    # A warning that an older version saved as text only.
    "uncoded": True,
}
# Whether `deliver` stays silent because an outer caller delivers.
_held_back: ContextVar[bool] = ContextVar("_held_back", default=False)
# The number of characters of a file's content, or of a parser's error, that an error text quotes: about a line.
LONGEST = 160


@dataclass(frozen=True)
class Message:
    """A warning about an answer.

    Attributes
    ----------
    code
        One of `CODES`; compare this, never the text.
    text
        One or two sentences: what was found, and what to do about it.
    numbers
        The numbers in the text, by name.

    Examples
    --------
    >>> warning = Message("rows-rejected", "3 of 10 rows held a NaN and were rejected.", {"rejected": 3, "rows": 10})
    >>> warning.code, str(warning), warning.doubtful
    ('rows-rejected', '3 of 10 rows held a NaN and were rejected.', False)
    """

    code: str
    text: str
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise ValueError(f"code is {self.code!r}; add it to CODES in onlooker/core/messages.py and to the docs.")

    def __str__(self) -> str:
        return self.text

    def __hash__(self) -> int:
        return hash((self.code, self.text))

    @property
    def doubtful(self) -> bool:
        """Whether the code says that the answer may be wrong."""
        return CODES[self.code]


class OnlookerWarning(UserWarning):
    """A `Message`, raised as a warning, or with ``strict=True`` as an error.

    Attributes
    ----------
    message
        The message, which is also in the result's ``warnings``.
    """

    def __init__(self, message: Message, about: str = "") -> None:
        super().__init__(f"{about}: {message}" if about else str(message))
        self.message = message


def trusted(messages: Iterable[Message]) -> bool:
    """Whether none of the messages says that the answer may be wrong."""
    return not any(message.doubtful for message in messages)


def deliver(
    messages: Iterable[Message], *, strict: bool = False, about: str = "", said: set[str] | None = None
) -> None:
    """Raise every message once as an `OnlookerWarning`; with ``strict``, raise the first doubtful one as an error.

    The warning points at the line outside this package that made the call.

    Parameters
    ----------
    messages
        The messages to raise.
    strict
        Whether a message that says the answer may be wrong is an error.
    about
        The subject of the messages, put before each of them.
    said
        Codes that are not raised again; those of the messages are added.
    """
    if said is not None:
        messages = [message for message in messages if message.code not in said]
        said |= {message.code for message in messages}
    messages = [] if _held_back.get() else list(messages)
    if strict:
        for message in messages:
            if message.doubtful:
                raise OnlookerWarning(message, about)
    for message in messages:
        warnings.warn(OnlookerWarning(message, about), stacklevel=_levels_inside() + 1)


def _levels_inside() -> int:
    """The number of stack frames from the caller of this function to the last one inside this package."""
    frame: FrameType | None = sys._getframe(1)
    levels = 0
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "onlooker":
        frame, levels = frame.f_back, levels + 1
    return levels


@contextmanager
def undelivered() -> Iterator[None]:
    """Raise no message inside this context: the caller finds them in the results and delivers those it keeps."""
    before = _held_back.set(True)
    try:
        yield
    finally:
        _held_back.reset(before)


def as_message(saved: Any) -> Message:
    """Read a message from a file: a dictionary of its fields or, from an older version, its text.

    A code that this version does not know becomes "uncoded".
    """
    if isinstance(saved, str):
        return Message("uncoded", saved)
    if not (isinstance(saved, dict) and isinstance(saved.get("code"), str) and isinstance(saved.get("text"), str)):
        raise ValueError("its warnings are not messages")
    numbers = saved.get("numbers", {})
    return Message(saved["code"] if saved["code"] in CODES else "uncoded", saved["text"], numbers)


def in_short(quoted: Any) -> str:
    """The first line of an error, or of text from a file, cut to fit into a sentence."""
    lines = str(quoted).strip().splitlines()
    text = lines[0].rstrip(".") if lines else type(quoted).__name__
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} …"
