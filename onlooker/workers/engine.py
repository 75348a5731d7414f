"""The protocol of an engine, and which engine ``workers=`` asks for."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from onlooker.core.settings import check_whole

__all__ = ["RETRIES", "Engine", "Workers", "check_workers", "engine_for"]

# What a user can give: None or 1 for this process, a number of processes, or "ray".
Workers = int | str | None
# How often a call is made again whose worker died: a call that kills every worker must end with an error.
RETRIES = 5


class Engine(Protocol):
    """Calls functions somewhere."""

    @property
    def parallel(self) -> int:
        """Number of calls that run at the same time."""
        ...

    def each(self, function: Callable[[Any, Any], Any], items: Sequence[Any], common: Any) -> Iterator[Any]:
        """Yield function(item, common) for every item, in the order of the items.

        Parameters
        ----------
        function
            A function of a module, which a worker can import.
        items
            What differs between the calls.
        common
            What is the same in all calls; it is sent with each of them, or once to every node.
        """
        ...


def check_workers(workers: Any) -> None:
    """Raise unless ``workers`` is None, a whole number, or "ray"."""
    if workers is None or workers == "ray":
        return
    if isinstance(workers, str) or not hasattr(workers, "__index__"):
        raise ValueError(f"workers is {workers!r}; give a number of processes, or 'ray'.")
    check_whole(workers=workers)


def engine_for(workers: Workers) -> AbstractContextManager[Engine]:
    """The engine that ``workers`` asks for, as a context that ends its processes."""
    check_workers(workers)
    if workers == "ray":
        from onlooker.workers.ray import on_ray

        return on_ray()
    if workers is None or int(workers) == 1:
        from onlooker.workers.in_process import InProcess

        return InProcess()
    from onlooker.workers.processes import Processes

    return Processes(int(workers))
