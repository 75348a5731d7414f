"""Inspect a log in seconds: what it contains, whether it is usable, and which method suits it.

The gradients' noise is estimated by a small fit (`fit.jumps.expected`) to some thousand rows, each predicted from
others: the residual is noise, or detail too fine for so small a fit.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from onlooker.core.messages import Message
from onlooker.data.log.reader import Log
from onlooker.data.observations import Observations
from onlooker.data.quality import inspect
from onlooker.data.trainer import about_trainer, climbed
from onlooker.data.updates import about_updates
from onlooker.fit.jumps.expected import fit_expected
from onlooker.fit.jumps.record import given_row, jumps_in
from onlooker.fit.potential import kind_for
from onlooker.reconstruction.by_passes import looked_at
from onlooker.reconstruction.reconstruct import FEWEST
from onlooker.reconstruction.usable import about_rows, independent_rows
from onlooker.workers import Engine

__all__ = ["Inspection", "inspect_large", "inspect_log"]

# Number of consecutive rows for the small fit, which bounds its time.
ROWS = 1 << 13


@dataclass(frozen=True)
class Inspection:
    """The result of an inspection.

    Attributes
    ----------
    usable
        Whether `reconstruct` has a chance.
    method
        The method that suits the log, or "none".
    reason
        Why that method, or why none.
    numbers
        Properties of the log, by name.
    occupancy
        The 5, 50 and 95 % quantiles of the points, (3, dim).
    warnings
        Warnings about the log.
    """

    usable: bool
    method: str
    reason: str
    numbers: dict[str, Any]
    occupancy: np.ndarray
    warnings: list[Message]


def inspect_large(log: Log, engine: Engine, checkpoint: Any = None) -> Inspection:
    """Inspect a log that is not read into memory: all rows are counted and watched, and a sample is looked at."""
    looked = looked_at(log, 0, engine, checkpoint)
    seen, quality = looked.seen, looked.quality
    numbers: dict[str, Any] = {"observations": quality.rows, "dimension": log.dim, "rejected": quality.rejected}
    numbers["torn_shards"] = len(log.torn)
    if quality.agents.number:
        numbers |= {"agents": quality.agents.number, "rows_per_agent": float(np.median(quality.agents.rows))}
    if seen.times is not None:
        numbers["times"] = [float(seen.times.min()), float(seen.times.max())]
    numbers |= looked.numbers
    warnings = list(looked.warnings)
    if looked.jump is not None:
        warnings.append(_about_suspect(looked.jump, looked.rows))
    occupancy = np.quantile(seen.points, [0.05, 0.5, 0.95], axis=0)
    found, explained = _small_fit(seen)
    independent = independent_rows(seen, quality.rows)
    few = about_rows(seen, independent)
    numbers |= found | {"independent_rows": independent}
    return Inspection(*_verdict(seen, explained, few), numbers, occupancy, [*warnings, *few])


def inspect_log(log: Log, seen: Observations) -> Inspection:
    """Inspect a log and its observations."""
    numbers: dict[str, Any] = {"observations": len(seen), "dimension": seen.dim, "rejected": seen.rejected}
    numbers["torn_shards"] = len(log.torn)
    if seen.agents is not None:
        rows = np.unique(seen.agents, return_counts=True)[1]
        numbers |= {"agents": len(rows), "rows_per_agent": float(np.median(rows))}
    if seen.times is not None:
        numbers["times"] = [float(seen.times.min()), float(seen.times.max())]
    occupancy = np.quantile(seen.points, [0.05, 0.5, 0.95], axis=0)
    warnings = [*seen.warnings, *about_trainer(seen)]
    seen = climbed(seen)
    try:
        if len(seen) < FEWEST:
            raise ValueError(f"{len(seen)} observations are too few; a reconstruction needs {FEWEST}.")
        checked, more = inspect(seen)
    except ValueError as error:
        return Inspection(False, "none", str(error), numbers, occupancy, warnings)
    rule, updates = about_updates(checked)
    numbers |= rule
    warnings += [*more, *updates]
    if jumps := jumps_in(checked):
        warnings.append(_about_suspect(given_row(jumps[-1], checked), len(seen)))
    found, explained = _small_fit(checked)
    independent = independent_rows(checked)
    few = about_rows(checked, independent)
    numbers |= found | {"independent_rows": independent}
    return Inspection(*_verdict(checked, explained, few), numbers, occupancy, [*warnings, *few])


def _about_suspect(row: int, rows: int) -> Message:
    text = (
        f"from about row {row} of {rows} on, gradients are not what a small fit to "
        "earlier ones expects: the reward may have jumped, or learners have come to where it looks different. "
        "`onlooker reconstruct` decides which."
    )
    return Message("jump-suspected", text, {"row": row, "rows": rows})


def _small_fit(seen: Observations) -> tuple[dict[str, Any], float]:
    """Numbers of a small fit, and the share of the gradients that it explains."""
    start = (len(seen) - min(len(seen), ROWS)) // 2
    points, gradients = (part[start : start + ROWS].astype(float) for part in (seen.points, seen.gradients))
    _, residuals = fit_expected(points, gradients)
    variance, noise = gradients.var(axis=0), (residuals**2).mean(axis=0)
    explained = float(1 - noise.sum() / max(variance.sum(), 1e-300))
    numbers = {
        "gradient_size": np.sqrt((gradients**2).mean(axis=0)).tolist(),
        "noise": np.sqrt(noise).tolist(),
        "explained": explained,
    }
    return numbers, explained


def _verdict(seen: Observations, explained: float, few: list[Message]) -> tuple[bool, str, str]:
    if few:
        return False, "potential", str(few[0]).rstrip(".")
    kind = kind_for(seen.dim)
    reason = f"no density is needed, and it has error bars; in {seen.dim} dimensions R̂ is a sum of {kind.basis}"
    if kind.limited:
        reason += "; 'auto' also tries replay if that is too smooth"
    if explained <= 0:
        reason += ". But a small fit explains none of the gradients: expect little, or watch longer"
    return True, "potential", reason
