"""R along a run: R(θ_t) − R(θ_0) = Σ ½(g + g′)·Δθ − ½ cov(Δθ, g), in all recorded dimensions, with error bars.

The trapezoid sees the gradient of the step at both ends, and a step is correlated with the noise of its own gradient;
`onlooker.data.record.halves` derives the correction and the variance, both from gradients of two half batches. The next
gradient alone, g′·Δθ, has no such noise, but adds ½ΔθᵀHΔθ a step: a learner at rest seems to fall for ever.

Without halves nobody can tell noise from curvature along one run: the correction is then taken from differences of
successive gradients, which is right for small steps, and its whole amount counts as an error.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from onlooker.core.messages import Message
from onlooker.data.log.reader import Log, open_log
from onlooker.data.observations import Observations

__all__ = ["Along", "agents_of", "along"]

# Number of stretches of a run in which recorded losses are compared with R̂, and the z-score beyond which they differ:
# once in ten thousand runs by chance.
STRETCHES, DISAGREE = 10, 4.4


@dataclass(frozen=True)
class Along:
    """R̂ along the run of one agent.

    Attributes
    ----------
    agent
        The agent.
    times
        (n,) the times of its rows; their number if they have none.
    reward
        (n,) R̂ there: 0 at the first row, or minus the recorded loss on average.
    variance
        (n,) variance of R̂ there less R̂ at the first row; of two later rows, their difference.
    values
        (n,) minus the recorded losses, nan where there are none; ``None`` if there are none at all.
    halves
        Whether noise is known from two half batches.
    warnings
        What may be wrong.
    """

    agent: Any
    times: np.ndarray
    reward: np.ndarray
    variance: np.ndarray
    values: np.ndarray | None
    halves: bool
    warnings: tuple[Message, ...] = ()

    @property
    def error(self) -> np.ndarray:
        """(n,) standard error of R̂ less R̂ at the first row."""
        return np.sqrt(self.variance)


def agents_of(seen: Observations) -> list[Any]:
    """The agents, by their names."""
    if seen.agents is None:
        return [None]
    numbers = np.unique(seen.agents)
    return list(numbers if seen.agent_names is None else seen.agent_names[numbers])


def along(source: Any, agent: Any = None, *, values: Any = None) -> Along:
    """R̂ along one agent's run: minus the change of its loss, from gradients alone.

    Parameters
    ----------
    source
        A log: its path, or what `open_log` or `read_log` returns.
    agent
        The agent; default: the only one.
    values
        Losses (n,) at the agent's rows, which fix the level and are compared with R̂. Default: those that were recorded.
    """
    seen = source
    if not isinstance(source, Observations):
        seen = (source if isinstance(source, Log) else open_log(source)).read()
    rows = _rows_of(seen, agent)
    times = np.arange(len(rows)) if seen.times is None else seen.times[rows]
    order = np.argsort(times, kind="stable")
    rows, times = rows[order], times[order]
    marks = {name: column[rows] for name, column in seen.marks.items()}
    gain, correction, variance, halves = _increments(seen, rows, marks)
    if len(rows) > 1 and not np.isfinite(gain[1:]).any():
        raise ValueError("the log has points along directions, and nothing of R along the run; record with along=True.")
    warnings = []
    reward, spread = np.cumsum(gain - correction), np.cumsum(variance)
    if not halves:
        spread = spread + np.cumsum(np.abs(correction)) ** 2
        text = (
            "no gradients of half batches were recorded, so that noise cannot be told from curvature along a run: R̂ "
            "along it is uncertain by all of the correction for noise. Call recording.half."
        )
        warnings.append(Message("halves-missing", text, {"correction": float(np.abs(correction).sum())}))
    losses = marks.get("loss") if values is None else np.asarray(values, float)
    if losses is not None:
        if losses.shape != rows.shape:
            raise ValueError(
                f"values has shape {losses.shape} but agent {agent!r} has {len(rows)} rows; give one each."
            )
        reward, more = _levelled(reward, spread, -losses)
        warnings += more
    return Along(agent, times, reward, spread, None if losses is None else -losses, halves, tuple(warnings))


def _rows_of(seen: Observations, agent: Any) -> np.ndarray:
    names = agents_of(seen)
    if agent is None and len(names) == 1:
        return np.arange(len(seen))
    matching = [number for number, name in enumerate(names) if name == agent or str(name) == str(agent)]
    if not matching or seen.agents is None:
        few = ", ".join(map(str, names[:5])) + (", …" if len(names) > 5 else "")
        raise ValueError(f"agent is {agent!r}; choose one of {few}.")
    return np.flatnonzero(seen.agents == np.unique(seen.agents)[matching[0]])


def _increments(
    seen: Observations, rows: np.ndarray, marks: dict[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
    """The trapezoid, its correction and variance for the step that led to each row, and whether there are halves."""
    none = np.zeros(len(rows))
    if "gain" in marks and np.isfinite(marks["gain"][1:]).any():
        gain = np.nan_to_num(marks["gain"])
        known = np.isfinite(marks.get("correction", none * np.nan))
        if known.any():
            filled = {
                name: np.where(known, marks[name], np.mean(marks[name][known])) for name in ("correction", "variance")
            }
            filled["correction"][0] = filled["variance"][0] = 0.0
            return gain, filled["correction"], filled["variance"], True
        if seen.projection is not None or (seen.trainer is not None and seen.trainer.parameters):
            # Nothing but the gain: all of it may be noise.
            return gain, none, np.abs(gain) ** 2, False
    if seen.projection is not None or (seen.trainer is not None and seen.trainer.parameters):
        return none * np.nan, none, none, False
    points, gradients = seen.points[rows].astype(float), seen.gradients[rows].astype(float)
    steps, change = np.diff(points, axis=0), np.diff(gradients, axis=0)
    gain = np.concatenate([[0.0], 0.5 * np.einsum("nd,nd->n", gradients[1:] + gradients[:-1], steps)])
    # ε by regression of the steps on the gradients: with momentum the share of a step's own gradient is smaller.
    rate = max(float((steps * gradients[:-1]).sum() / max((gradients[:-1] ** 2).sum(), 1e-300)), 0.0)
    noise = change / np.sqrt(2)
    correction = np.concatenate([[0.0], 0.5 * rate * (noise**2).sum(axis=1)])
    both = steps + np.concatenate([np.zeros_like(steps[:1]), steps[:-1]])
    variance = (0.5 * (noise * both).sum(axis=1)) ** 2 + 0.75 * (noise * steps).sum(axis=1) ** 2
    return gain, correction, np.concatenate([[0.0], variance]), False


def _levelled(reward: np.ndarray, variance: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, list[Message]]:
    """R̂ at the level of the values, and a warning if it changes otherwise than they do."""
    known = np.flatnonzero(np.isfinite(values))
    if len(known) < 2 * STRETCHES:
        return (reward + np.mean((values - reward)[known]) if len(known) else reward), []
    apart = (values - reward)[known]
    level = float(apart.mean())
    # The noise of a loss, from successive ones.
    noise = float(np.mean(np.diff(apart) ** 2) / 2)
    parts = np.array_split(np.arange(len(known)), STRETCHES)
    means = np.array([apart[part].mean() for part in parts])
    middle = np.array([variance[known[part]].mean() for part in parts])
    change = means[1:] - means[0]
    scores = change / np.sqrt(middle[1:] - middle[0] + noise * (1 / len(parts[0]) + 1 / len(parts[-1])) + 1e-300)
    worst = int(np.abs(scores).argmax())
    if abs(scores[worst]) < DISAGREE:
        return reward + level, []
    text = (
        f"the recorded loss falls by {change[worst]:.3g} more than the gradients say ({scores[worst]:.1f} standard "
        "errors): they are not of the same loss, or not every step was recorded."
    )
    return reward + level, [Message("losses-disagree", text, {"change": float(change[worst])})]
