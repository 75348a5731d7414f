"""Whether rows suffice: how many independent ones they are worth, against the coefficients of a quadratic.

Successive rows of one agent are correlated. They are put in order by agents, whatever order they came in: n rows are
worth n/τ independent ones, τ = 1 + 2Σρ_k their correlation time. This is the one verdict of `inspect`, `reconstruct`,
reports and the live page.
"""

import numpy as np

from onlooker.core.messages import Message
from onlooker.data.observations import Observations
from onlooker.fit.jumps.statistic import correlation_times

__all__ = ["about_rows", "independent_rows"]

# Independent rows per coefficient of a quadratic below which a fit has little chance.
FEWEST_PER_COEFFICIENT = 2.0
# Number of rows from which the correlation time is computed.
ROWS = 1 << 16


def independent_rows(seen: Observations, of: int | None = None) -> float:
    """The number of independent rows that the rows are worth, or so many rows that they are a fair sample of."""
    points = seen.points
    if seen.agents is not None and (seen.agents != seen.agents[0]).any():
        points = points[np.argsort(seen.agents, kind="stable")[:ROWS]]
    return (len(seen) if of is None else of) / correlation_times(points[:ROWS].astype(float))[0]


def about_rows(seen: Observations, independent: float) -> list[Message]:
    """A warning if the rows are worth too few independent ones."""
    coefficients = seen.dim * (seen.dim + 3) // 2
    if independent >= FEWEST_PER_COEFFICIENT * coefficients:
        return []
    text = (
        f"the rows are worth about {independent:.0f} independent ones and a quadratic in {seen.dim} dimensions has "
        f"{coefficients} coefficients: watch more learners, or use fewer coordinates."
    )
    return [Message("rows-dependent", text, {"independent": independent, "coefficients": coefficients})]
