"""Calls as tasks of Ray: of the cluster that `ray.init` or RAY_ADDRESS names, or of one started on this machine.

A cluster that is started here listens on 127.0.0.1 only, has no dashboard and reports no usage. Ray makes a task again
whose worker or node died.
"""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from onlooker._version import __version__
from onlooker.core.blas import one_thread
from onlooker.core.extras import needs_extra
from onlooker.workers.engine import RETRIES

__all__ = ["OnRay", "on_ray"]

# Tasks in flight for every processor: one that runs and one that waits.
AHEAD = 2
# Bytes of Ray's object store on this machine: sums are small.
STORE = 200 * 2**20


class OnRay:
    """The engine of a Ray cluster.

    Parameters
    ----------
    ray
        The module, connected to a cluster.
    gpus
        Number of GPUs of every call.
    """

    def __init__(self, ray: Any, gpus: float = 0) -> None:
        self._ray, self._gpus = ray, gpus

    @property
    def parallel(self) -> int:
        """Number of processors of the cluster, or of GPUs if calls have some."""
        found = self._ray.cluster_resources().get("GPU" if self._gpus else "CPU", 1)
        return max(1, int(found / (self._gpus or 1)))

    def each(self, function: Callable[[Any, Any], Any], items: Sequence[Any], common: Any) -> Iterator[Any]:
        """See `Engine.each`."""
        ray = self._ray
        shared = ray.put(common)
        options = {"num_cpus": 1, "num_gpus": self._gpus, "max_retries": RETRIES}
        task = ray.remote(**options)(_called)
        pending: dict[Any, int] = {}
        done: dict[int, Any] = {}
        following = 0
        try:
            for number in range(len(items)):
                while number not in done:
                    # Counted from the result that is due, so that results that wait for it stay few.
                    while following < len(items) and following < number + AHEAD * self.parallel:
                        pending[task.remote(__version__, function, items[following], shared)] = following
                        following += 1
                    for ready in ray.wait(list(pending), num_returns=1)[0]:
                        done[pending.pop(ready)] = self._result(ready)
                yield done.pop(number)
        finally:
            for reference in pending:
                ray.cancel(reference)

    def _result(self, reference: Any) -> Any:
        """The result of a task; the error of the function itself, not Ray's, if it failed."""
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except self._ray.exceptions.RayError as error:
            raise RuntimeError(f"workers='ray': a task was lost {RETRIES} times ({_first_line(error)}).") from None


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__


def _called(version: str, function: Callable[[Any, Any], Any], item: Any, common: Any) -> Any:
    if version != __version__:
        raise RuntimeError(
            f"this worker has Onlooker {__version__} and the caller {version}; install the same version on all nodes."
        )
    with one_thread():
        return function(item, common)


@contextmanager
def on_ray(gpus: float = 0) -> Iterator[OnRay]:
    """The engine, connected; a cluster that was started here ends with the context."""
    # Read when Ray is imported. Errors of tasks are raised here, and need not be printed as well.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")
    with needs_extra("ray", "workers='ray'"):
        import ray
    if ray.is_initialized():
        yield OnRay(ray, gpus)
        return
    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if os.environ.get("RAY_ADDRESS"):
        ray.init(**quiet)
    else:
        with _loopback():
            ray.init(
                address="local",
                include_dashboard=False,
                _node_ip_address="127.0.0.1",
                object_store_memory=STORE,
                **quiet,
            )
    try:
        yield OnRay(ray, gpus)
    finally:
        ray.shutdown()


@contextmanager
def _loopback() -> Iterator[None]:
    """Let Ray take 127.0.0.1 as the address of this machine, as it does on systems that it supports no cluster on.

    Elsewhere it replaces 127.0.0.1 by an address that other machines reach, and its ports run anybody's code.
    """
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before
