"""Read the weights of features off watched learners: R(θ) = w·ψ(θ), for features ψ that somebody can name."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from onlooker.core.blas import one_thread
from onlooker.core.deprecated import renamed
from onlooker.core.messages import Message, deliver
from onlooker.data.log.reader import Log, open_log, torn_shards
from onlooker.data.observations import Observations, observe, usable_rows
from onlooker.data.optimizer import Optimizer
from onlooker.explanation.features import Features, as_features
from onlooker.explanation.gathered import Gathered, gather
from onlooker.explanation.record import recorded_sums, sums_in
from onlooker.explanation.result import Explanation
from onlooker.explanation.warnings import about_explanation, about_sign
from onlooker.fit.linear import LinearSums
from onlooker.fit.linear_directions import directions_of
from onlooker.fit.linear_weights import Weights, solve_weights

__all__ = ["explain", "explained_by"]

# Smallest number of observations.
FEWEST = 8
# Numbers of points that are copied, in the order of agents, at a time.
TOGETHER = 1 << 22
# Rows whose gradients are this many times as strong as the median row's were made by learners that ran away.
STEEPEST = 1e6


@renamed(optimiser="optimizer")
def explain(
    points: Any,
    gradients: Any = None,
    *,
    agents: Any = None,
    times: Any = None,
    learning_rate: Any = None,
    descent: bool = False,
    optimizer: Optimizer | str | None = None,
    features: Callable[[Any], Any] | Features | None = None,
    jacobians: Any = None,
    names: Any = None,
    unknown_rates: bool | None = None,
    strict: bool = False,
) -> Explanation:
    """Explain what gradient learners maximise by features: the weights w of R(θ) = w·ψ(θ), with error bars.

    It works in any number of dimensions, where `reconstruct` needs few, and the weights hold in worlds that nobody saw.
    Weight decay, and the entropy of policies that are known, are always kept as terms that agents may climb besides.
    Every warning is raised once as an `OnlookerWarning`, and listed in the result.

    Parameters
    ----------
    points
        Points (n, dim), or iterates if no gradients are given; see `observe`. Or a log: its path, or what `open_log`
        returns; a folder of sums, which ``record(features=…)`` writes, needs no features here. Or Observations, such as
        `read_log` returns; the next six parameters are then not used.
    gradients
        Gradients (n, dim); see `observe`. Or (parts, n, dim) if ``features`` are from the agents' own paths.
    agents
        The agent of each row (n,); see `observe`.
    times
        The time of each row (n,); see `observe`.
    learning_rate
        The learners' step size, for iterates without gradients; see `observe`.
    descent
        Whether the gradients are those of a loss; see `observe`.
    optimizer
        The learners' update rule, for iterates without gradients; see `observe`.
    features
        ψ: a function of one point (dim,) that returns (k,) numbers, in jax.numpy; or what `tabular` or `paths` returns.
    jacobians
        In place of ``features``: ∂ψ/∂θ at every row, (n, dim, k). If they are estimated, (parts, n, dim, k) in
        independent parts: the noise of one estimate would make the weights too small.
    names
        Names of the features.
    unknown_rates
        Whether the gradients of each agent are in units of a learning rate of its own; default: if they come from
        iterates without ``learning_rate``. The weights then have no scale.
    strict
        Whether to raise an `OnlookerWarning` as an error when a warning says that the answer may be wrong.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> random = np.random.default_rng(0)
    >>> points = random.standard_normal((500, 2))
    >>> gradients = np.stack([np.ones(500), -2 * points[:, 1]], axis=1) + random.standard_normal((500, 2))
    >>> why = explain(
    ...     points,
    ...     gradients,
    ...     agents=np.arange(500) // 10,
    ...     features=lambda at: jnp.stack([at[0], -0.5 * at[1] ** 2]),
    ...     names=["right", "near"],
    ... )
    >>> why.weights.round().tolist(), bool(why.weight_error.max() < 0.1), why.warnings
    ([1.0, 2.0], True, [])
    """
    if isinstance(points, str | os.PathLike) and (files := sums_in(Path(points))):
        why = explained_by(recorded_sums(files, features, names), [], bool(unknown_rates))
        deliver(why.warnings, strict=strict)
        return why
    described = as_features(features, jacobians, names)
    if isinstance(points, str | os.PathLike | Log):
        if any(part is not None for part in (gradients, agents, times)):
            raise ValueError("gradients, agents or times is given with a log, which has its own; leave them out.")
        gathered, messages, rateless = _from_log(points, described, learning_rate, optimizer, descent)
    else:
        gathered, messages, rateless = _from_rows(
            described, points, gradients, agents, times, learning_rate, descent, optimizer
        )
    why = explained_by(gathered, messages, rateless if unknown_rates is None else bool(unknown_rates))
    deliver(why.warnings, strict=strict)
    return why


def _from_rows(
    features: Features,
    points: Any,
    gradients: Any,
    agents: Any,
    times: Any,
    learning_rate: Any,
    descent: bool,
    optimizer: Any,
) -> tuple[Gathered, list[Message], bool]:
    """Sums over rows in memory, warnings, and whether rates are unknown."""
    parted = None
    if isinstance(points, Observations):
        seen, rows = points, None
    else:
        if features.by_row is not None and gradients is None:
            raise ValueError(
                "jacobians or paths are given without gradients; call onlooker.observe on the iterates first, and give "
                "one Jacobian for each observation that it returns."
            )
        parted = np.asarray(gradients) if gradients is not None and np.ndim(gradients) == 3 else None
        if parted is not None:
            _check_parts(parted, features, len(points))
            gradients = parted.mean(axis=0)
            parted = -parted if descent else parted
        settings = {"agents": agents, "times": times, "learning_rate": learning_rate}
        seen = observe(points, gradients, descent=descent, optimizer=optimizer, **settings)
        rows = None
        if gradients is not None and seen.rejected:
            rows = np.flatnonzero(usable_rows(*(np.reshape(part, (len(points), -1)) for part in (points, gradients))))
    if features.own and parted is None:
        raise ValueError(
            "features are from the agents' own paths, whose noise is that of the gradients; give the gradients of each "
            "part, (parts, n, dim), or paths of your own."
        )
    total = len(seen) + (seen.rejected if rows is not None else 0)
    if features.by_row not in (None, total):
        raise ValueError(
            f"jacobians or paths are of {features.by_row} rows but there are {total} observations; give one for each."
        )
    if len(seen) < FEWEST:
        raise ValueError(f"points has {len(seen)} usable observations; weights need at least {FEWEST}.")
    rows = np.arange(len(seen)) if rows is None else rows
    rises = seen.gradients if parted is None else parted[:, rows]
    names = np.zeros(len(seen), int) if seen.agents is None else seen.agents
    # By agent: then only the last rows of one have to be kept.
    order = np.lexsort((np.arange(len(seen)), np.unique(names, return_inverse=True)[1]))
    with one_thread():
        gathered = gather(features, seen.points, rises, rows)
        for few in np.array_split(order, -(-len(order) * seen.dim // TOGETHER)):
            when = None if seen.times is None else seen.times[few]
            who = None if seen.agents is None else names[few]
            gathered.add(seen.points[few], rises[..., few, :], who, when, rows[few])
    if seen.agent_names is not None:
        gathered.sums.names = np.array([str(seen.agent_names[int(name)]) for name in gathered.sums.names])
    rateless = any(message.code == "learning-rate-unknown" for message in seen.warnings)
    return gathered, list(seen.warnings), rateless


def _check_parts(gradients: np.ndarray, features: Features, count: int) -> None:
    if not features.own and not (features.by_row is not None and features.parts > 1):
        raise ValueError(
            f"gradients has shape {gradients.shape}; give (n, dim). Only with features from the agents' own paths are "
            "they given by part."
        )
    if gradients.shape[:2] != (features.parts, count):
        raise ValueError(f"gradients has shape {gradients.shape}; give ({features.parts}, {count}, dim).")


def _from_log(
    log: Any, features: Features, learning_rate: Any, optimizer: Any, descent: bool
) -> tuple[Gathered, list[Message], bool]:
    """Sums over a log, in one pass if it has gradients: it may be larger than memory."""
    if not isinstance(log, Log):
        log = open_log(log, learning_rate=learning_rate, optimizer=optimizer, descent=descent or None)
    elif learning_rate is not None or optimizer is not None or descent:
        raise ValueError("learning_rate, optimizer or descent is given with an opened log; give it to open_log.")
    if not log.has_gradients or features.by_row is not None:
        return _from_rows(features, log.read(), None, None, None, None, False, None)
    gathered, rejected, read, messages = None, 0, 0, []
    with one_thread():
        for batch, _ in log.batches():
            new = observe(batch.points, batch.gradients, agents=batch.agents, times=batch.times)
            rejected, read = rejected + new.rejected, read + len(batch.points)
            if not len(new):
                continue
            if gathered is None:
                gathered = gather(features, new.points, new.gradients, np.arange(len(new)))
            gathered.add(new.points, new.gradients, new.agents, new.times)
    if gathered is None or gathered.rows < FEWEST:
        raise ValueError(f"{log.path} has {read - rejected} usable observations; weights need at least {FEWEST}.")
    if rejected:
        text = f"{rejected} of {read} observations held a NaN or an infinity and were rejected."
        messages.append(Message("rows-rejected", text, {"rejected": rejected, "rows": read}))
    if log.torn:
        messages.append(torn_shards(len(log.torn)))
    return gathered, messages, False


def explained_by(gathered: Gathered, messages: list[Message] | None = None, unknown_rates: bool = False) -> Explanation:
    """The result of sums over observations.

    Parameters
    ----------
    gathered
        The sums.
    messages
        Warnings about the observations.
    unknown_rates
        See `explain`.
    """
    sums, count = gathered.sums, gathered.count
    names = gathered.features.names or tuple(f"feature {number + 1}" for number in range(count))
    messages = [*(messages or []), *about_sign(sums)]
    kept, runaway = _without_runaways(sums)
    if runaway:
        text = (
            f"{runaway} rows have gradients {STEEPEST**0.5:g} times as large as usual and were left out: the learning "
            "rate is too large there."
        )
        messages.append(Message("rows-runaway", text, {"left_out": runaway, "rows": len(sums)}))
    with one_thread():
        _check_features(kept, names)
        columns, suspects = _with_suspects(kept, count, gathered.suspects)
        found = _solved(kept, columns, count, unknown_rates)
    if not found.basis[:count].any():
        raise ValueError("no feature's weight can be told from these rows: their Jacobians are zero, or only noise.")
    why = Explanation(names, suspects, found, sums.dim, gathered.rows, gathered.mean, messages, gathered.features)
    return replace(why, warnings=[*messages, *about_explanation(why)])


def _solved(sums: LinearSums, columns: np.ndarray, count: int, unknown_rates: bool) -> Weights:
    """The weights of some columns, of which the first are the features.

    A suspect of negative weight, which no learner has, would hide what the features miss: agents that all move alike
    seem to have a negative weight decay. So it takes no part in the misfit test.
    """
    found = solve_weights(sums.columns(columns), unknown_rates)
    possible = columns[(np.arange(len(columns)) < count) | (found.values > 0)]
    if len(possible) == len(columns):
        return found
    tested = solve_weights(sums.columns(possible), unknown_rates)
    if tested.by_agent and not found.by_agent:
        found = solve_weights(sums.columns(columns), unknown_rates, by_agent=True)
    return replace(found, misfit=tested.misfit, explained=tested.explained, explained_error=tested.explained_error)


def _without_runaways(sums: LinearSums) -> tuple[LinearSums, int]:
    """Sums without rows of enormous gradients, and the number of these."""
    power = sums.powers / np.maximum(sums.counts, 1e-300)
    usual = power <= STEEPEST * max(float(np.median(power)), 1e-300)
    return (sums, 0) if usual.all() else (sums.chosen(usual), int(np.count_nonzero(~usual)))


def _check_features(sums: LinearSums, names: tuple[str, ...]) -> None:
    """Raise for features that depend on nothing or are each other's copies, and for more features than numbers."""
    plain = sums.plain.sum(axis=0)
    size = np.diag(plain)[: len(names)]
    if not size.all():
        name = names[int(np.argmin(size > 0))]
        raise ValueError(f"{name} does not depend on θ: its Jacobian is zero at every row; leave it out.")
    if len(names) > sums.count * sums.dim:
        raise ValueError(
            f"there are {len(names)} features but only {sums.count * sums.dim:g} numbers in the gradients; give fewer."
        )
    # Of independent parts, copies have equal products all the same.
    alike = np.abs(plain[: len(names), : len(names)]) / np.sqrt(np.outer(size, size))
    one, two = np.unravel_index(np.argmax(np.triu(alike, 1)), alike.shape)
    if one != two and alike[one, two] > 1 - 1e-12:
        raise ValueError(f"{names[one]} and {names[two]} are the same feature, up to a factor; leave one out.")


def _with_suspects(sums: LinearSums, count: int, suspects: tuple[str, ...]) -> tuple[np.ndarray, tuple[str, ...]]:
    """The columns of the features, and of the suspects that are no combination of them; and these suspects' names."""
    columns = list(range(count))
    lost = directions_of(sums.columns(np.array(columns)))[1].shape[1]
    for number in range(len(suspects)):
        tried = [*columns, count + number]
        if directions_of(sums.columns(np.array(tried)))[1].shape[1] == lost:
            columns = tried
    return np.array(columns), tuple(suspects[column - count] for column in columns[count:])
