"""g_k = (θ_{k+1} − θ_k)/ε: the gradient a plain SGD step took, read off two iterates of one agent.

The paper prints the opposite sign, which is wrong for ascent.
"""

import numpy as np

__all__ = ["gradients_from_iterates"]


def gradients_from_iterates(
    points: np.ndarray,
    agents: np.ndarray | None = None,
    times: np.ndarray | None = None,
    learning_rate: float | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Which rows have a successor in the same agent, and the ascent gradient at each of them.

    Parameters
    ----------
    points
        (n, dim) iterates.
    agents
        (n,) agent of each row; ``None`` means one agent.
    times
        (n,) time of each row; ``None`` means the order of the rows. An agent that comes back to an earlier
        or equal time has been restarted, and one that skips ahead has steps missing: no gradient is read across either.
    learning_rate
        ε; ``None`` leaves the gradients in units of ε, as plain differences.

    Returns
    -------
    rows
        Indices into ``points``, ascending.
    gradients
        (len(rows), dim).
    """
    count = len(points)
    try:
        owner = np.zeros(count, dtype=int) if agents is None else np.unique(agents, return_inverse=True)[1]
    except TypeError:
        raise ValueError("agents mixes kinds that cannot be compared; give numbers or strings throughout.") from None
    order = np.argsort(owner, kind="stable")
    here, after = order[:-1], order[1:]
    follows = owner[here] == owner[after]
    if times is not None:
        elapsed = times[after] - times[here]
        ahead = elapsed[follows & (elapsed > 0)]
        # A longer wait than the shortest means that steps were left out of the record: their sum is no gradient.
        follows &= (elapsed > 0) & (elapsed <= (1.5 * ahead.min() if len(ahead) else 0))
    here, after = here[follows], after[follows]
    if len(here) == 0:
        raise ValueError("points holds no two successive iterates of one agent; give gradients, or longer runs.")
    gradients = points[after] - points[here]
    if learning_rate is not None:
        gradients = gradients / learning_rate
    ascending = np.argsort(here, kind="stable")
    return here[ascending], gradients[ascending]
