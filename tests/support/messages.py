"""Find warnings by their codes."""

from collections.abc import Iterable
from typing import Any

from onlooker.core.messages import Message

__all__ = ["codes", "message_of"]


def codes(source: Any) -> list[str]:
    """The codes of a result's warnings, of a list of messages, or of what `pytest.warns` caught."""
    return [message.code for message in _messages(source)]


def message_of(source: Any, code: str) -> Message:
    """The one message with this code."""
    (found,) = [message for message in _messages(source) if message.code == code]
    return found


def _messages(source: Any) -> Iterable[Message]:
    for one in getattr(source, "warnings", source):
        # A caught warning has the exception as its message, and the exception has the `Message`.
        raised = getattr(one, "message", one)
        yield getattr(raised, "message", raised)
