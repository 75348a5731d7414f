"""g_k from θ_k, θ_{k+1} of one agent: gradients recovered from the steps of SGD, also with momentum and weight decay.

Let v_k = (θ_{k+1} − θ_k)/ε_k. With momentum ρ and dampening d, the gradient minus the weight decay is

    u_k = (v_k − ρ v_{k−1})/(1 − d),        u_0 = v_0,

and with Nesterov's momentum, whose buffer is m_k = u_k + ρ m_{k−1} = v_k/(1 + ρ) + r m_{k−1}, r = ρ/(1 + ρ),

    u_k = (v_k − ρ² m_{k−1})/(1 + ρ).

Then g_k = u_k + λθ_k. The paper prints the opposite sign, which is wrong for ascent.
"""

import numpy as np

from onlooker.core.deprecated import renamed
from onlooker.core.messages import Message
from onlooker.data.optimizer import Optimizer

__all__ = ["gradients_from_iterates"]

# Largest remaining share of the unknown start of a Nesterov buffer; near float32's precision.
FORGOTTEN = 1e-6
# An interval longer than this multiple of the shortest means that steps are missing: halfway between one step and two.
LONGEST_WAIT = 1.5


@renamed(optimiser="optimizer")
def gradients_from_iterates(
    points: np.ndarray,
    agents: np.ndarray | None = None,
    times: np.ndarray | None = None,
    learning_rate: np.ndarray | float | None = None,
    optimizer: Optimizer | None = None,
) -> tuple[np.ndarray, np.ndarray, list[Message]]:
    """Find the rows that have a successor by the same agent, and the ascent gradient at each of them.

    Parameters
    ----------
    points
        Iterates (n, dim).
    agents
        Agent of each row, (n,); default: one agent.
    times
        Time of each row, (n,); default: the order of the rows. An agent whose time does not increase was
        restarted, and one whose time skips ahead has missing steps: no gradient is recovered across either. A run that
        begins at a time other than 0 has an unknown start: with momentum its first gradients are left out.
    learning_rate
        ε, or ε of each row, (n,); ``None`` leaves the gradients in units of ε, as plain differences.
    optimizer
        How the agents step; default: plain SGD.

    Returns
    -------
    rows
        Indices into ``points``, in ascending order.
    gradients
        Ascent gradients (len(rows), dim).
    warnings
        Messages about steps that were left out, and about assumptions that may be wrong.

    Examples
    --------
    >>> iterates = np.array([[0.0], [1.0], [1.5], [9.0], [9.5]])
    >>> rows, gradients, warnings = gradients_from_iterates(iterates, np.array(list("aaabb")), learning_rate=0.5)
    >>> rows.tolist(), gradients.ravel().tolist()  # none from one agent to another
    ([0, 1, 3], [2.0, 1.0, 1.0])
    """
    optimizer = Optimizer() if optimizer is None else optimizer
    if (reason := optimizer.why_not_from_iterates()) is not None:
        raise ValueError(f"gradients are not given, and {reason}")
    if optimizer.weight_decay and learning_rate is None:
        raise ValueError(
            "learning_rate is not given, and weight_decay cannot be undone without it; give it, or give gradients."
        )
    count = len(points)
    owner = np.zeros(count, dtype=int) if agents is None else np.unique(agents, return_inverse=True)[1]
    order = np.argsort(owner, kind="stable")
    here, after = order[:-1], order[1:]
    follows = owner[here] == owner[after]
    total = np.count_nonzero(follows)
    warnings: list[Message] = []
    if times is not None:
        elapsed = times[after] - times[here]
        ahead = elapsed[follows & (elapsed > 0)]
        # The sum of several steps is not a gradient.
        shortest = ahead.min() if len(ahead) else 0
        follows &= (elapsed > 0) & (elapsed <= LONGEST_WAIT * shortest)
        restarts = np.count_nonzero(elapsed[owner[here] == owner[after]] <= 0)
        if skipped := int(total - restarts - np.count_nonzero(follows)):
            text = (
                f"{skipped} of {total} steps were left out: they took longer than the shortest, {shortest:g}, so "
                "rows must be missing between them. If times come from a clock, leave times out."
            )
            warnings.append(Message("steps-skipped", text, {"skipped": skipped, "steps": int(total)}))
        if shortest > 1 and (times == np.round(times)).all():
            text = (
                f"the shortest time between an agent's rows is {shortest:g}, which was taken for one step. If only one "
                f"step in {shortest:g} was recorded, the gradients are wrong; record every step, or gradients."
            )
            warnings.append(Message("steps-long", text, {"shortest": float(shortest)}))
    # A run continues where the step before ended.
    begins = np.concatenate([[True], ~follows[:-1]])[follows]
    here, after = here[follows], after[follows]
    if len(here) == 0:
        raise ValueError("points has no two successive iterates of one agent; give gradients, or longer runs.")
    steps = (points[after] - points[here]).astype(float)
    if learning_rate is not None:
        steps /= np.broadcast_to(np.asarray(learning_rate, float), count)[here][:, None]
    known = np.ones(len(here), bool)
    if optimizer.momentum:
        age = np.arange(len(here)) - np.maximum.accumulate(np.where(begins, np.arange(len(here)), 0))
        from_start = np.ones(len(here), bool) if times is None else (times[here] == 0)[np.arange(len(here)) - age]
        steps, needed = _without_momentum(steps, age, optimizer)
        known = from_start | (age >= needed)
    if not known.any():
        raise ValueError(
            "points has no run that is long enough to recover its momentum; give gradients, or longer runs."
        )
    here, steps = here[known], steps[known]
    if optimizer.weight_decay:
        steps += optimizer.weight_decay * points[here]
    ascending = np.argsort(here, kind="stable")
    return here[ascending], steps[ascending].astype(points.dtype), warnings


def _without_momentum(steps: np.ndarray, age: np.ndarray, optimizer: Optimizer) -> tuple[np.ndarray, int]:
    """u (n, dim) from v and each row's step number in its run, and the steps until an unknown start is forgotten."""
    momentum = optimizer.momentum
    if not optimizer.nesterov:
        fresh = (steps - momentum * _earlier(steps, age, 1)) / (1 - optimizer.dampening)
        return np.where(age[:, None] == 0, steps, fresh), 1
    rate = momentum / (1 + momentum)
    # m_k = Σ_j r^j v_{k−j}/(1 + ρ); every iteration doubles the number of terms.
    buffer, terms = steps / (1 + momentum), 1
    while terms <= age.max() and rate**terms > 0:
        buffer = buffer + rate**terms * _earlier(buffer, age, terms)
        terms *= 2
    fresh = (steps - momentum**2 * _earlier(buffer, age, 1)) / (1 + momentum)
    return fresh, int(np.ceil(np.log(FORGOTTEN) / np.log(rate)))


def _earlier(rows: np.ndarray, age: np.ndarray, steps: int) -> np.ndarray:
    """For each row, the row ``steps`` earlier in the same run; zero before its start."""
    shifted = np.zeros_like(rows)
    shifted[steps:] = rows[:-steps] if steps < len(rows) else 0
    shifted[age < steps] = 0
    return shifted
