"""What the commands on logs are given: workers, a log with options of the command line, its rows."""

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from onlooker.core.settings import check_whole

if TYPE_CHECKING:
    from onlooker.data.log.reader import Log
    from onlooker.data.observations import Observations

__all__ = ["described", "opened_log", "rows_of", "workers_of"]


def workers_of(given: str | None) -> int | str | None:
    """What ``workers=`` is given as in Python."""
    from onlooker.workers import check_workers

    asked = int(given) if given is not None and given.isdecimal() else given
    check_workers(asked)
    return asked


def opened_log(
    path: str,
    learning_rate: float | None,
    optimizer: str | None,
    momentum: float,
    weight_decay: float,
    descent: bool | None,
) -> "Log":
    """Open a log; options of the command line take precedence over what the log says."""
    from onlooker.data.log.reader import open_log
    from onlooker.data.optimizer import as_optimizer

    given = {"momentum": momentum, "weight_decay": weight_decay}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value}
    rule = None if optimizer is None else as_optimizer(optimizer, **changes)
    opened = open_log(path, learning_rate=learning_rate, optimizer=rule, descent=descent)
    if changes and rule is None:
        # Replace only what was given here.
        opened = open_log(
            path,
            learning_rate=learning_rate,
            optimizer=replace(opened.about.optimizer or as_optimizer(None), **changes),
            descent=descent,
        )
    return opened


def rows_of(opened: "Log", components: int | None) -> "Observations":
    """Read a log into memory, and project its points on their principal components if these are asked for."""
    from onlooker.core.terminal import progress
    from onlooker.data.components import of_all

    if components is not None:
        check_whole(components=components)
    with progress("reading", opened.row_count() or None, None) as report:
        seen = opened.read(report)
    if components is not None:
        projection = of_all(seen.points, components)
        print(f"{components} components explain {projection.explained:.0%} of the points' variance", file=sys.stderr)
        seen = projection(seen)
    return seen


def described(log: "Log") -> str:
    """What a log says of itself, in a line."""
    about = log.about
    rule = "unknown optimizer" if about.optimizer is None else about.optimizer.name
    if about.optimizer is not None and about.optimizer.momentum:
        rule += f", {'Nesterov ' if about.optimizer.nesterov else ''}momentum {about.optimizer.momentum:g}"
    rate = "unknown" if about.learning_rate is None else f"{about.learning_rate:g}"
    kind = f"gradients ({about.direction})" if log.has_gradients else "iterates without gradients"
    return f"{kind}, {rule}, learning rate {rate}" + (f"; {about.source}" if about.source else "")
