"""Functions that workers import and call."""

import os
import signal
import time
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_info


def squared(item: int, common: int) -> tuple[int, int]:
    return item**2 + common, os.getpid()


def threads(item: int, common: None) -> int:
    np.ones((2, 2)) @ np.ones((2, 2))
    return max(library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas")


def failing(item: int, common: int) -> int:
    if item == common:
        raise ValueError(f"item is {item}; give another.")
    return item


def killed_once(item: int, mark: str) -> int:
    """The fourth call kills its worker, unless it was called before."""
    if item == 3:
        try:
            Path(mark).touch(exist_ok=False)
        except FileExistsError:
            return item
        os.kill(os.getpid(), signal.SIGKILL)
    return item


def asleep(item: int, seconds: float) -> int:
    time.sleep(seconds)
    return item


def deadly(item: int, common: None) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
