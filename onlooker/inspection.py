"""What is in a log, and can a reward be made of it? A look that takes seconds, before the reconstruction takes longer.

The gradients' noise is measured by a small fit (`field.expected`) to some thousand rows, each of which is predicted
from others: what it does not explain is noise, or detail that so small a fit cannot show.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from onlooker.field.expected import fit_expected
from onlooker.observe.jumps import correlation_times
from onlooker.observe.log import Log
from onlooker.observe.observation import Observations
from onlooker.observe.quality import inspect
from onlooker.reconstruct import FEWEST, jumps_in

__all__ = ["Inspection", "inspect_log"]

# Rows that the small fit is made from, in a row.
ROWS = 1 << 13
# Independent rows per coefficient of a quadratic below which there is hardly any hope.
FEWEST_PER_COEFFICIENT = 2.0


@dataclass(frozen=True)
class Inspection:
    """What was found.

    Attributes
    ----------
    usable
        Whether `reconstruct` has a chance.
    method, reason
        Which method fits, and why; or why none does.
    numbers
        By name.
    occupancy
        (3, dim): the 5, 50 and 95 % quantiles of the points.
    doubts
        Sentences.
    """

    usable: bool
    method: str
    reason: str
    numbers: dict[str, Any]
    occupancy: np.ndarray
    doubts: list[str]


def inspect_log(log: Log, seen: Observations) -> Inspection:
    """Look at the rows of a log."""
    numbers: dict[str, Any] = {"observations": len(seen), "dimension": seen.dim, "refused": seen.refused}
    numbers["torn_shards"] = len(log.torn)
    if seen.agents is not None:
        rows = np.unique(seen.agents, return_counts=True)[1]
        numbers |= {"agents": len(rows), "rows_per_agent": float(np.median(rows))}
    if seen.times is not None:
        numbers["times"] = [float(seen.times.min()), float(seen.times.max())]
    occupancy = np.quantile(seen.points, [0.05, 0.5, 0.95], axis=0)
    doubts = list(seen.notes)
    try:
        if len(seen) < FEWEST:
            raise ValueError(f"{len(seen)} observations are too few; a reconstruction needs {FEWEST}.")
        checked, more = inspect(seen)
    except ValueError as error:
        return Inspection(False, "none", str(error), numbers, occupancy, doubts)
    doubts += more
    if jumps := jumps_in(seen):
        doubts.append(
            f"from about row {jumps[-1].at} of {len(seen)} on, gradients are not what a small fit to earlier ones "
            "expects: the reward may have jumped, or learners have come to where it looks different. reconstruct tells."
        )
    start = (len(checked) - min(len(checked), ROWS)) // 2
    points, gradients = (part[start : start + ROWS].astype(float) for part in (checked.points, checked.gradients))
    _, residuals = fit_expected(points, gradients)
    variance, noise = gradients.var(axis=0), (residuals**2).mean(axis=0)
    explained = float(1 - noise.sum() / max(variance.sum(), 1e-300))
    independent = len(checked) * _independent_share(checked)
    numbers |= {
        "gradient_size": np.sqrt((gradients**2).mean(axis=0)).tolist(),
        "noise": np.sqrt(noise).tolist(),
        "explained": explained,
        "independent_rows": independent,
    }
    return Inspection(*_verdict(checked, explained, independent), numbers, occupancy, doubts)


def _independent_share(seen: Observations) -> float:
    """How many independent rows a row is worth: one agent's are alike, and agents may have come in any order."""
    if seen.agents is not None and len(np.unique(seen.agents)) > 1:
        order = np.argsort(seen.agents, kind="stable")[: 1 << 16]
        return 1 / correlation_times(seen.points[order].astype(float))[0]
    return 1 / correlation_times(seen.points[: 1 << 16].astype(float))[0]


def _verdict(seen: Observations, explained: float, independent: float) -> tuple[bool, str, str]:
    coefficients = seen.dim * (seen.dim + 3) // 2
    if independent < FEWEST_PER_COEFFICIENT * coefficients:
        return (
            False,
            "potential",
            f"the rows are worth about {independent:.0f} independent ones and a quadratic in {seen.dim} dimensions has "
            f"{coefficients} coefficients: watch more learners, or fewer coordinates",
        )
    basis = "cosines on a quadratic" if seen.dim <= 3 else "units on directions"
    reason = f"no density is needed, and it has error bars; in {seen.dim} dimensions R̂ is made of {basis}"
    if seen.dim <= 3:
        reason += "; 'auto' tries replay too, should that be too smooth"
    if explained <= 0:
        reason += ". But a small fit explains nothing of the gradients: expect little, or watch for longer"
    return True, "potential", reason
