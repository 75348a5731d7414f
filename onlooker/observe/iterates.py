"""g_k from θ_k, θ_{k+1} of one agent: SGD's steps turned back into gradients, also with momentum and weight decay.

With v_k = (θ_{k+1} − θ_k)/ε_k, for momentum ρ and dampening d the gradient less the weight decay is

    u_k = (v_k − ρ v_{k−1})/(1 − d),        u_0 = v_0,

and for Nesterov's momentum, by the buffer m_k = u_k + ρ m_{k−1} = v_k/(1 + ρ) + r m_{k−1}, r = ρ/(1 + ρ),

    u_k = (v_k − ρ² m_{k−1})/(1 + ρ).

Then g_k = u_k + λθ_k. The paper prints the opposite sign, which is wrong for ascent.
"""

import numpy as np

from onlooker.observe.optimiser import Optimiser

__all__ = ["gradients_from_iterates"]

# What is left, at the most, of a Nesterov buffer that was not seen from its beginning.
FORGOTTEN = 1e-6
# A wait longer than this many of the shortest means that steps were left out of the record.
LONGEST_WAIT = 1.5


def gradients_from_iterates(
    points: np.ndarray,
    agents: np.ndarray | None = None,
    times: np.ndarray | None = None,
    learning_rate: np.ndarray | float | None = None,
    optimiser: Optimiser | None = None,
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Which rows have a successor in the same agent, and the ascent gradient at each of them.

    Parameters
    ----------
    points
        (n, dim) iterates.
    agents
        (n,) agent of each row; ``None`` means one agent.
    times
        (n,) time of each row; ``None`` means the order of the rows. An agent that comes back to an earlier or equal
        time has been restarted, and one that skips ahead has steps missing: no gradient is read across either. A run
        that begins at another time than 0 is not seen from its start: under momentum its first gradients are left out.
    learning_rate
        ε, or (n,) of them; ``None`` leaves the gradients in units of ε, as plain differences.
    optimiser
        By default plain SGD.

    Returns
    -------
    rows
        Indices into ``points``, ascending.
    gradients
        (len(rows), dim).
    notes
        Sentences about steps that were left out, or taken for what they may not be.

    Examples
    --------
    >>> iterates = np.array([[0.0], [1.0], [1.5], [9.0], [9.5]])
    >>> rows, gradients, notes = gradients_from_iterates(iterates, np.array(list("aaabb")), learning_rate=0.5)
    >>> rows.tolist(), gradients.ravel().tolist()  # none across from one agent to the other
    ([0, 1, 3], [2.0, 1.0, 1.0])
    """
    optimiser = Optimiser() if optimiser is None else optimiser
    if (reason := optimiser.why_not_from_iterates()) is not None:
        raise ValueError(f"points come without gradients, and {reason}")
    if optimiser.weight_decay and learning_rate is None:
        raise ValueError("weight_decay cannot be undone without learning_rate; give it, or record the gradients.")
    count = len(points)
    owner = np.zeros(count, dtype=int) if agents is None else np.unique(agents, return_inverse=True)[1]
    order = np.argsort(owner, kind="stable")
    here, after = order[:-1], order[1:]
    follows = owner[here] == owner[after]
    steps_made, notes = np.count_nonzero(follows), []
    if times is not None:
        elapsed = times[after] - times[here]
        ahead = elapsed[follows & (elapsed > 0)]
        # The sum of several steps is no gradient.
        shortest = ahead.min() if len(ahead) else 0
        follows &= (elapsed > 0) & (elapsed <= LONGEST_WAIT * shortest)
        restarts = np.count_nonzero(elapsed[owner[here] == owner[after]] <= 0)
        if skipped := int(steps_made - restarts - np.count_nonzero(follows)):
            notes.append(
                f"{skipped} of {steps_made} steps were left out: they took longer than the shortest, {shortest:g}, so "
                "that others must be missing. If times are a clock's, leave them out."
            )
        if shortest > 1 and (times == np.round(times)).all():
            notes.append(
                f"the shortest wait between an agent's rows is {shortest:g}: each was taken for one step. If only "
                "every so many steps were written down, the gradients are wrong by that."
            )
    # A run goes on where the step before ended.
    begins = np.concatenate([[True], ~follows[:-1]])[follows]
    here, after = here[follows], after[follows]
    if len(here) == 0:
        raise ValueError("points holds no two successive iterates of one agent; give gradients, or longer runs.")
    steps = (points[after] - points[here]).astype(float)
    if learning_rate is not None:
        steps /= np.broadcast_to(np.asarray(learning_rate, float), count)[here][:, None]
    known = np.ones(len(here), bool)
    if optimiser.momentum:
        age = np.arange(len(here)) - np.maximum.accumulate(np.where(begins, np.arange(len(here)), 0))
        from_start = np.ones(len(here), bool) if times is None else (times[here] == 0)[np.arange(len(here)) - age]
        steps, needed = _without_momentum(steps, age, optimiser)
        known = from_start | (age >= needed)
    if not known.any():
        raise ValueError("points holds no run that is seen for long enough to tell its momentum; give gradients.")
    here, steps = here[known], steps[known]
    if optimiser.weight_decay:
        steps += optimiser.weight_decay * points[here]
    ascending = np.argsort(here, kind="stable")
    return here[ascending], steps[ascending].astype(points.dtype), notes


def _without_momentum(steps: np.ndarray, age: np.ndarray, optimiser: Optimiser) -> tuple[np.ndarray, int]:
    """u (n, dim) from v, of rows so many steps into their run; and how many steps make up for an unseen beginning."""
    momentum = optimiser.momentum
    if not optimiser.nesterov:
        fresh = (steps - momentum * _earlier(steps, age, 1)) / (1 - optimiser.dampening)
        return np.where(age[:, None] == 0, steps, fresh), 1
    rate = momentum / (1 + momentum)
    # m_k = Σ_j r^j v_{k−j}/(1 + ρ), twice as many terms with every turn.
    buffer, terms = steps / (1 + momentum), 1
    while terms <= age.max() and rate**terms > 0:
        buffer = buffer + rate**terms * _earlier(buffer, age, terms)
        terms *= 2
    fresh = (steps - momentum**2 * _earlier(buffer, age, 1)) / (1 + momentum)
    return fresh, int(np.ceil(np.log(FORGOTTEN) / np.log(rate)))


def _earlier(rows: np.ndarray, age: np.ndarray, steps: int) -> np.ndarray:
    """The rows of so many steps before in the same run; zero before it began."""
    shifted = np.zeros_like(rows)
    shifted[steps:] = rows[:-steps] if steps < len(rows) else 0
    shifted[age < steps] = 0
    return shifted
