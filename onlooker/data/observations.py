"""Observations (θ, g): points that a learner visited, with the ascent gradients g ≈ ∇R(θ) it followed there."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from onlooker.core.deprecated import old_name, renamed
from onlooker.core.messages import Message
from onlooker.core.settings import check_positive
from onlooker.data.iterates import gradients_from_iterates
from onlooker.data.optimizer import Optimizer, as_optimizer

# For type annotations only: recorders must run without JAX.
if TYPE_CHECKING:
    from jax import Array

    from onlooker.data.projection import Projection
    from onlooker.data.trainer import Trainer

__all__ = ["LARGEST", "Observation", "Observations", "observe", "usable_rows"]

# Larger numbers are rejected like infinities: products of four of them overflow float64.
LARGEST = 1e100


class Observation(NamedTuple):
    """One observation as an inverse learner's step receives it, or a stack of them along leading axes."""

    point: "Array"
    gradient: "Array"


@dataclass(frozen=True)
class Observations:
    """Checked observations, one per row, in the order in which they were recorded.

    Attributes
    ----------
    points
        (n, dim) floats: the points visited.
    gradients
        (n, dim) floats: the ascent gradients there.
    agents
        (n,) the agent that made each row; ``None`` if unknown.
    times
        (n,) the time of each row; ``None`` if unknown.
    rejected
        Number of rows that were rejected because they contain a NaN or an infinity.
    warnings
        Messages about rejected rows and about the units of the gradients.
    rows
        (n,) indices of these rows among those given to `onlooker.data.quality.inspect`; ``None`` if all were kept.
    agent_names
        Names of the agents if ``agents`` holds indices into them, as in a log; ``None`` if ``agents`` holds the names.
    marks
        Numbers (n,) by name about what a trainer did at each row (`onlooker.data.marks`); those that say something.
    trainer
        What a log knows about the trainer; ``None`` if there is no log.
    projection
        The directions that the points are along; ``None`` if points are all parameters, or if it is unknown.
    """

    points: np.ndarray
    gradients: np.ndarray
    agents: np.ndarray | None = None
    times: np.ndarray | None = None
    rejected: int = 0
    warnings: tuple[Message, ...] = ()
    rows: np.ndarray | None = None
    agent_names: np.ndarray | None = None
    marks: Mapping[str, np.ndarray] = field(default_factory=dict)
    trainer: "Trainer | None" = None
    projection: "Projection | None" = None

    def __len__(self) -> int:
        return len(self.points)

    @property
    def dim(self) -> int:
        return self.points.shape[1]

    @property
    def refused(self) -> int:
        """Deprecated: `rejected`."""
        return old_name(self, "refused", "rejected")


@renamed(optimiser="optimizer")
def observe(
    points: Any,
    gradients: Any = None,
    *,
    agents: Any = None,
    times: Any = None,
    learning_rate: Any = None,
    descent: bool = False,
    optimizer: Optimizer | str | None = None,
) -> Observations:
    """Check arrays of points and gradients and return them as `Observations`.

    Rows with a NaN or an infinity are counted and dropped. Zero rows are an empty batch. A wrong shape is an error.

    Parameters
    ----------
    points
        (n, dim) points visited, the rows of each agent in the order of its steps (agents may be interleaved).
    gradients
        (n, dim) gradients there. Default: computed from the iterates of SGD, g = (θ_{k+1} − θ_k)/ε, never across a
        restart of an agent.
    agents
        (n,) the agent that made each row. Default: all rows are of one agent.
    times
        (n,) the time of each row. If the time of an agent does not advance, it was restarted; if it skips ahead, steps
        are missing. No gradient is computed across either.
    learning_rate
        ε of the learners' SGD, or (n,) values for the steps from each row to the next. Without it, gradients computed
        from iterates are in units of ε, and a warning says so.
    descent
        Whether ``gradients`` are those of a loss that the learners minimise. Then R = −loss and their sign is changed.
        (Not needed for iterates: they move uphill on R either way.)
    optimizer
        The learners' update rule, used to compute gradients from iterates: an `Optimizer` or a name. Default: plain
        SGD. Adam and similar rules are rejected: their steps do not contain the size of the gradients.

    Examples
    --------
    >>> observations = observe([[1.0], [2.0], [np.nan]], [[4.0], [6.0], [8.0]], descent=True)
    >>> len(observations), observations.gradients.tolist()
    (2, [[-4.0], [-6.0]])
    >>> str(observations.warnings[0])
    '1 of 3 observations held a NaN or an infinity and were rejected.'
    >>> observe([[1.0], [2.0], [2.5]], learning_rate=0.5).gradients.tolist()  # from the iterates of one agent
    [[2.0], [1.0]]
    """
    point_rows = _matrix("points", points)
    count, _ = point_rows.shape
    agent_rows = _column("agents", agents, count)
    time_rows = None if times is None else _numbers("times", _column("times", times, count))
    if time_rows is not None and not np.isfinite(time_rows).all():
        raise ValueError("times contains a NaN or an infinity; give a finite time for every observation.")
    learning_rate = _rates(learning_rate, count)

    warnings: list[Message] = []
    if gradients is None:
        # Gradients that overflow are rejected below, with those that were not finite to begin with.
        with np.errstate(over="ignore", invalid="ignore"):
            rows, gradient_rows, warnings = gradients_from_iterates(
                point_rows, agent_rows, time_rows, learning_rate, as_optimizer(optimizer)
            )
        if learning_rate is None:
            text = "learning_rate is unknown: gradients, and so R, are in units of the learners' step size ε."
            warnings.append(Message("learning-rate-unknown", text))
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

    finite = usable_rows(point_rows, gradient_rows)
    rejected = int(np.count_nonzero(~finite))
    if rejected:
        text = f"{rejected} of {len(finite)} observations held a NaN or an infinity and were rejected."
        warnings.append(Message("rows-rejected", text, {"rejected": rejected, "rows": len(finite)}))
        point_rows, gradient_rows = point_rows[finite], gradient_rows[finite]
        agent_rows = None if agent_rows is None else agent_rows[finite]
        time_rows = None if time_rows is None else time_rows[finite]
    return Observations(point_rows, gradient_rows, agent_rows, time_rows, rejected, tuple(warnings))


def usable_rows(points: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    """Mask (n,) of the rows whose numbers are all finite and below LARGEST."""
    usable = np.ones(len(points), bool)
    # Row by row or column by column, so that no array of the full size is created.
    # NumPy warns of a signalling NaN in a file.
    with np.errstate(invalid="ignore"):
        if points.shape[1] > len(points):
            pairs = zip(points, gradients, strict=True)
            return np.array([all((np.abs(part) < np.float64(LARGEST)).all() for part in pair) for pair in pairs], bool)
        for column in (*points.T, *gradients.T):
            usable &= np.abs(column) < np.float64(LARGEST)
    return usable


def _rates(values: Any, count: int) -> Any:
    """``None``, one positive number, or one for every row."""
    if values is None:
        return None
    if np.ndim(values) == 0:
        check_positive(learning_rate=values)
        return values
    rates = _column("learning_rate", values, count)
    assert rates is not None
    if not (np.issubdtype(rates.dtype, np.number) and (np.isfinite(rates) & (rates > 0)).all()):
        raise ValueError(
            "learning_rate has entries that are not positive numbers; give a positive number for every row."
        )
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
    if array.shape[1] == 0 or np.shape(values) == (0,):
        raise ValueError(f"{name} is empty and does not say how many dimensions it has; give shape (0, dimensions).")
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
        raise ValueError(f"{name} mixes types of values, such as numbers and strings; give one type.")
    return array
