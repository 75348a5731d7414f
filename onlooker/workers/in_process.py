"""One call after the other in this process."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from onlooker.core.blas import one_thread

__all__ = ["InProcess"]


class InProcess:
    """The engine of one process."""

    parallel = 1

    def __enter__(self) -> "InProcess":
        return self

    def __exit__(self, *_: Any) -> None:
        return None

    def each(self, function: Callable[[Any, Any], Any], items: Sequence[Any], common: Any) -> Iterator[Any]:
        """See `Engine.each`."""
        for item in items:
            with one_thread():
                result = function(item, common)
            yield result
