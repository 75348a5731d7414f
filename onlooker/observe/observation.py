"""An observation (θ, g): a point a learner visited and the ascent gradient g ≈ ∇R(θ) it took there."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jax import Array

from onlooker.check import check_positive
from onlooker.observe.iterates import gradients_from_iterates
from onlooker.observe.optimiser import Optimiser, as_optimiser

__all__ = ["Observation", "Observations", "observe"]


class Observation(NamedTuple):
    """One observation as an inverse learner's step sees it; or a stack of them along leading axes."""

    point: Array
    gradient: Array


@dataclass(frozen=True)
class Observations:
    """Checked observations, one row each, in the order they were made.

    Attributes
    ----------
    points, gradients
        Float arrays (n, dim); gradients are ascent gradients.
    agents, times
        Who and when, each (n,) or ``None``.
    refused
        How many rows were dropped because a number in them was not finite.
    notes
        Sentences a user should read (what was dropped, what the units are).
    """

    points: np.ndarray
    gradients: np.ndarray
    agents: np.ndarray | None = None
    times: np.ndarray | None = None
    refused: int = 0
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.points)

    @property
    def dim(self) -> int:
        return self.points.shape[1]


def observe(
    points: Any,
    gradients: Any = None,
    *,
    agents: Any = None,
    times: Any = None,
    learning_rate: Any = None,
    descent: bool = False,
    optimiser: Optimiser | str | None = None,
) -> Observations:
    """Check what was seen and make Observations of it.

    Rows with a NaN or an infinity are counted and dropped. A wrong shape is an error.

    Parameters
    ----------
    points
        (n, dim) points visited, each agent's rows in the order it made them (agents may be interleaved).
    gradients
        (n, dim) gradients there. Without them they are read off the iterates of SGD, g = (θ_{k+1} − θ_k)/ε, never
        across an agent's restart.
    agents
        (n,) which agent made each row; without it all rows are one agent's.
    times
        (n,) when each row was made; an agent whose time does not advance was restarted, one whose
        time skips ahead has steps missing, and no gradient is read across either.
    learning_rate
        ε of the learners' SGD, or (n,) of them, of the step from each row to the next. Without it gradients read off
        iterates are in units of ε, and a note says so.
    descent
        The learners minimise a loss and ``gradients`` are the loss's: R = −loss, and the sign is turned.
        (Iterates need no turning: they move uphill on R either way.)
    optimiser
        How the learners step, when gradients are read off iterates: an `Optimiser`, or a name; by default plain SGD.
        Adam and its like are refused: their steps have lost the gradients' size.

    Examples
    --------
    >>> seen = observe([[1.0], [2.0], [np.nan]], [[4.0], [6.0], [8.0]], descent=True)
    >>> len(seen), seen.gradients.tolist()
    (2, [[-4.0], [-6.0]])
    >>> seen.notes
    ('1 of 3 observations held a NaN or an infinity and were refused.',)
    >>> observe([[1.0], [2.0], [2.5]], learning_rate=0.5).gradients.tolist()  # read off one agent's iterates
    [[2.0], [1.0]]
    """
    point_rows = _matrix("points", points)
    count, _ = point_rows.shape
    agent_rows = _column("agents", agents, count)
    time_rows = None if times is None else _numbers("times", _column("times", times, count))
    if time_rows is not None and not np.isfinite(time_rows).all():
        raise ValueError("times holds a NaN or an infinity; give a finite time for every observation.")
    learning_rate = _rates(learning_rate, count)

    notes: list[str] = []
    if gradients is None:
        # What becomes too large is refused below, like what is not finite to begin with.
        with np.errstate(over="ignore", invalid="ignore"):
            rows, gradient_rows, notes = gradients_from_iterates(
                point_rows, agent_rows, time_rows, learning_rate, as_optimiser(optimiser)
            )
        if learning_rate is None:
            notes.append("learning_rate is unknown: gradients, and so R, are in units of the learners' step size ε.")
        point_rows = point_rows[rows]
        agent_rows = None if agent_rows is None else agent_rows[rows]
        time_rows = None if time_rows is None else time_rows[rows]
    else:
        gradient_rows = _matrix("gradients", gradients)
        if gradient_rows.shape != point_rows.shape:
            raise ValueError(
                f"gradients has shape {gradient_rows.shape} but points has {point_rows.shape}; "
                "give one gradient per point."
            )
        if descent:
            gradient_rows = -gradient_rows

    finite = np.isfinite(point_rows).all(axis=1) & np.isfinite(gradient_rows).all(axis=1)
    refused = int(np.count_nonzero(~finite))
    if refused:
        if refused == len(finite):
            raise ValueError(
                "points and gradients hold no row that is finite throughout; there is nothing to learn from."
            )
        notes.append(f"{refused} of {len(finite)} observations held a NaN or an infinity and were refused.")
        point_rows, gradient_rows = point_rows[finite], gradient_rows[finite]
        agent_rows = None if agent_rows is None else agent_rows[finite]
        time_rows = None if time_rows is None else time_rows[finite]
    return Observations(point_rows, gradient_rows, agent_rows, time_rows, refused, tuple(notes))


def _rates(values: Any, count: int) -> Any:
    """None, a positive number, or one for every row."""
    if values is None:
        return None
    if np.ndim(values) == 0:
        check_positive(learning_rate=values)
        return values
    rates = _column("learning_rate", values, count)
    assert rates is not None
    if not (np.issubdtype(rates.dtype, np.number) and (np.isfinite(rates) & (rates > 0)).all()):
        raise ValueError("learning_rate holds something that is no positive number; give one for every row.")
    return rates


def _numbers(name: str, values: Any) -> np.ndarray:
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    array = np.asarray(values)
    if array.dtype == object or not (np.issubdtype(array.dtype, np.number) or array.dtype == bool):
        raise ValueError(
            f"{name} is not an array of numbers (its dtype is {array.dtype}); give floats in one rectangular array."
        )
    if np.iscomplexobj(array):
        raise ValueError(f"{name} is complex; give real numbers.")
    return array


def _matrix(name: str, values: Any) -> np.ndarray:
    array = _numbers(name, values)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2:
        raise ValueError(f"{name} has shape {array.shape}; give (observations, dimensions).")
    if array.shape[0] == 0 or array.shape[1] == 0:
        raise ValueError(f"{name} is empty, of shape {array.shape}; give at least one observation.")
    return array if np.issubdtype(array.dtype, np.floating) else array.astype(np.float64)


def _column(name: str, values: Any, count: int) -> np.ndarray | None:
    if values is None:
        return None
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    array = np.asarray(values)
    if array.shape != (count,):
        raise ValueError(f"{name} has shape {array.shape}; give one entry per observation, ({count},).")
    if array.dtype == object and len({type(value) for value in array}) > 1:
        raise ValueError(f"{name} mixes kinds of values, such as numbers and words; give one kind.")
    return array
