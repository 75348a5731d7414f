"""Many reconstructions at once: one task for each log, as `reconstruct` would do it."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from onlooker.core.messages import deliver, undelivered
from onlooker.core.terminal import progress
from onlooker.data.observations import Observations
from onlooker.reconstruction.reconstruct import reconstruct
from onlooker.reconstruction.result import Reconstruction
from onlooker.workers import Workers, engine_for

__all__ = ["reconstruct_many"]

# Options of `reconstruct` that are not for many at once.
NOT_FOR_MANY = ("points", "gradients", "agents", "times", "strict")


def reconstruct_many(logs: Mapping[Any, Any], *, workers: Workers = None, **options: Any) -> dict[Any, Reconstruction]:
    """Reconstruct a reward from each of several logs or arrays: of clients, of sweeps, of days.

    Warnings are raised with the name of the log that they are about, and listed in its result. An error names its log,
    and ends the call.

    Parameters
    ----------
    logs
        By name: a log's path or address, or Observations (see `observe`).
    workers
        Where each of them is reconstructed, as in `reconstruct`: this process by default, a number of processes, or
        "ray".
    options
        Other options of `reconstruct`, for all of them. With ``checkpoint``, each has its own files in the folder.

    Examples
    --------
    >>> import numpy as np
    >>> points = np.random.default_rng(0).standard_normal((500, 1))
    >>> from onlooker import observe
    >>> of = {"steep": observe(points, -2 * points), "flat": observe(points, -points)}
    >>> many = reconstruct_many(of)
    >>> {name: round(float(np.ptp(result.reward([[0.0], [1.0]]))), 2) for name, result in many.items()}
    {'steep': 1.0, 'flat': 0.5}
    """
    if not isinstance(logs, Mapping):
        raise TypeError(f"logs is {type(logs).__name__}; give a dictionary of logs by their names.")
    if wrong := [name for name in NOT_FOR_MANY if name in options]:
        raise ValueError(f"{wrong[0]} cannot be given for many logs at once; leave it out.")
    for name, log in logs.items():
        if not isinstance(log, Observations | str | os.PathLike):
            raise TypeError(
                f"logs[{name!r}] is {type(log).__name__}; give a log's path or address, or observe(points, gradients)."
            )
    # Workers may be in another folder.
    items = [(str(name), log if isinstance(log, Observations) else _absolute(log)) for name, log in logs.items()]
    if options.get("checkpoint") is not None:
        options["checkpoint"] = _absolute(options["checkpoint"])
    results = {}
    with engine_for(workers) as engine, progress("reconstructing", len(items), None) as report:
        for name, result in zip(logs, engine.each(_one, items, options), strict=True):
            results[name] = result
            report(len(results))
    for name, result in results.items():
        deliver(result.found.warnings, about=str(name))
    return results


def _absolute(path: Any) -> str:
    return str(path) if "://" in str(path) else str(Path(path).absolute())


def _one(item: tuple[str, Any], options: dict[str, Any]) -> Reconstruction:
    name, log = item
    with undelivered():
        try:
            # All rows of every log would be too much to keep, and to send.
            return replace(reconstruct(log, **options), _rows=None)
        except (ValueError, TypeError, OSError) as error:
            raise type(error)(f"{name}: {error}") from None
