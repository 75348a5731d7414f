"""Calls in processes of this machine: started anew, so that no thread of this process is copied into them.

If a worker dies, of too little memory for instance, the pool is started again and the calls that were not finished are
made again.
"""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from onlooker.core.blas import one_thread
from onlooker.workers.engine import RETRIES

__all__ = ["Processes"]

# Calls that are handed out for every process: one that runs and one that waits.
AHEAD = 2
# Variables that set the threads of linear algebra in a new process.
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


class Processes:
    """The engine of several processes.

    Parameters
    ----------
    parallel
        Number of processes.
    """

    def __init__(self, parallel: int) -> None:
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            # A worker imports the script, which has no guard and calls this again: the process above says so.
            sys.exit(1)
        self.parallel = parallel

    def __enter__(self) -> "Processes":
        self._pool = self._started()
        return self

    def __exit__(self, *_: Any) -> None:
        self._end()

    def each(self, function: Callable[[Any, Any], Any], items: Sequence[Any], common: Any) -> Iterator[Any]:
        """See `Engine.each`."""
        waiting: dict[int, Future] = {}
        lost = following = 0
        for number in range(len(items)):
            while True:
                try:
                    while following < len(items) and following < number + AHEAD * self.parallel:
                        waiting[following] = self._pool.submit(_called, function, items[following], common)
                        following += 1
                    result = waiting[number].result()
                    break
                except BrokenProcessPool:
                    lost += 1
                    if lost > RETRIES:
                        raise RuntimeError(
                            f"workers={self.parallel}: processes ended {lost} times before their work was done; they "
                            "may have had too little memory. Use fewer."
                        ) from None
                    self._end()
                    self._pool = self._started()
                    done = {key: future for key, future in waiting.items() if _succeeded(future)}
                    again = [key for key in sorted(waiting) if key not in done]
                    waiting = {
                        **done,
                        **{key: self._pool.submit(_called, function, items[key], common) for key in again},
                    }
            del waiting[number]
            yield result

    def _started(self) -> ProcessPoolExecutor:
        """A pool whose first process has begun; processes have linear algebra on one thread."""
        before = {name: os.environ.get(name) for name in THREADS}
        os.environ |= dict.fromkeys(THREADS, "1")
        try:
            context = multiprocessing.get_context("spawn")
            pool = ProcessPoolExecutor(self.parallel, context, initializer=_begun)
            # Processes are started by calls: as many as there will be, while the variables are set.
            begun = [pool.submit(os.getpid) for _ in range(self.parallel)]
            begun[0].result()
        except BrokenProcessPool:
            raise RuntimeError(
                f"workers={self.parallel} starts processes that import your script, and the script makes this call "
                "again: put the call below if __name__ == '__main__':."
            ) from None
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
        return pool

    def _end(self) -> None:
        """End the processes, also those in the midst of a call."""
        processes = list((self._pool._processes or {}).values())
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            if process.is_alive():
                process.terminate()
        for process in processes:
            process.join(timeout=5)


def _succeeded(future: Future) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None


def _begun() -> None:
    # Ctrl-C is for the process that waits for the results.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _called(function: Callable[[Any, Any], Any], item: Any, common: Any) -> Any:
    with one_thread():
        return function(item, common)
