"""Reconstruct a reward from recorded observations."""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from onlooker.core.deprecated import renamed
from onlooker.core.messages import Message, deliver, undelivered
from onlooker.core.policies import Coordinates, check_measure
from onlooker.core.settings import check_positive, check_whole
from onlooker.data.log.reader import Log, open_log
from onlooker.data.observations import Observations, observe
from onlooker.data.optimizer import Optimizer
from onlooker.data.quality import inspect
from onlooker.data.trainer import OBJECTIVES, about_trainer, climbed
from onlooker.data.updates import about_updates
from onlooker.fit.jumps.record import about_jumps, confirmed, jumps_in
from onlooker.fit.potential import Potential
from onlooker.reconstruction.by_passes import by_passes, small
from onlooker.reconstruction.by_potential import by_potential
from onlooker.reconstruction.by_replay import by_replay
from onlooker.reconstruction.by_single_kernel import by_single_kernel
from onlooker.reconstruction.draws import Findings
from onlooker.reconstruction.options import Options
from onlooker.reconstruction.result import Reconstruction
from onlooker.workers import Workers, check_workers, engine_for

__all__ = ["METHODS", "reconstruct"]

METHODS = ("auto", "potential", "replay", "passive", "reweighted")
# Smallest number of observations: with fewer, no method yields anything useful.
FEWEST = 50
# Below this improvement over the quadratic, resolution is not the limit and replay is not tried.
WORTH_A_LOOK = 0.005
# Numbers (rows times dimensions) of a large log that replay is given.
REPLAYED = 1 << 22


@renamed(optimiser="optimizer")
def reconstruct(
    points: Any,
    gradients: Any = None,
    *,
    agents: Any = None,
    times: Any = None,
    learning_rate: Any = None,
    descent: bool = False,
    optimizer: Optimizer | str | None = None,
    density: Any = None,
    beta: float = 1.0,
    method: str = "auto",
    step_size: float | None = None,
    bandwidth: float | None = None,
    chains: int = 64,
    seed: int = 0,
    strict: bool = False,
    coordinates: Coordinates | None = None,
    measure: str = "coordinates",
    workers: Workers = None,
    checkpoint: Any = None,
    objective: str = "training",
) -> Reconstruction:
    """Reconstruct the reward that gradient learners maximise.

    Every warning is raised once as an `OnlookerWarning`, and listed in the result. A fitted potential is not sampled
    here: its samples are drawn when they are first used, and warnings about them are raised then.

    Parameters
    ----------
    points
        Points (n, dim), or iterates if no gradients are given; see `observe`. Or a log of any size: its path, its
        address in an object store (s3://bucket/runs, gs://…, abfs://…), or what `open_log` returns. Or Observations,
        such as `read_log` returns; the next six parameters are then not used.
    gradients
        Gradients (n, dim); see `observe`.
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
    density
        π, the density of the points: a distribution with ``log_prob`` or a log-density function. Needed by the paper's
        methods only.
    beta
        β: the samples follow exp(βR). Larger values concentrate them around the maxima.
    method
        "potential" fits a reward whose gradient predicts the observed ones; "replay" runs chains on
        a kernel regression of the gradients; "passive" and "reweighted" are the paper's, and need the density. "auto"
        is "potential", or "replay" if the potential is too smooth and predicts held-out gradients worse.
    step_size
        μ of the chains, for methods other than "potential"; default: chosen from the data.
    bandwidth
        Δ of the kernel, for methods other than "potential"; default: chosen from the data.
    chains
        Number of chains of samples.
    seed
        Seed of all random numbers.
    strict
        Whether to raise an `OnlookerWarning` as an error when a warning says that the answer may be wrong. Samples are
        then drawn at once, because some warnings are about them.
    coordinates
        `spherical(states, actions)` or `softmax(states, actions)` if the points are coordinates of policies: angles are
        folded into [0, π/2], and R is assumed to be even about both ends.
    measure
        With coordinates a of policies φ, "coordinates" for samples of exp(βR) da or "policy" for exp(βR) dφ.
    workers
        Who reads a large log: a number of processes of this machine, or "ray"; default: this process.
    checkpoint
        Folder, on a disk or in a store, for sums over parts of a large log: after an interruption, or when the log has
        grown, only the rest is read.
    objective
        For a log whose optimizer adds a weight decay: "training" for what learners climb, R = −loss − ½λ|θ|², or "loss"
        for R = −loss.

    Examples
    --------
    >>> import numpy as np
    >>> points = np.random.default_rng(0).standard_normal((2000, 1))
    >>> result = reconstruct(points, 1 - 2 * points)  # R = θ − θ²
    >>> high, low = result.reward([[0.5], [0.0]])
    >>> round(float(high - low), 3), result.method, result.warnings, result.trusted
    (0.25, 'potential', [], True)
    >>> result.reward([[40.0]])  # where no learner was
    array([nan])
    """
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; choose one of {', '.join(METHODS)}.")
    given = {"step_size": step_size, "bandwidth": bandwidth}
    check_positive(beta=beta, **{name: value for name, value in given.items() if value is not None})
    check_whole(chains=chains)
    check_workers(workers)
    _check_coordinates(coordinates, measure, method)
    if objective not in OBJECTIVES:
        raise ValueError(f"objective is {objective!r}; choose one of {', '.join(OBJECTIVES)}.")
    options = Options(float(beta), int(chains), seed, density, step_size, bandwidth, coordinates, measure, objective)
    if isinstance(points, Observations):
        seen = points
    elif isinstance(points, str | os.PathLike | Log):
        if any(part is not None for part in (gradients, agents, times)):
            raise ValueError("gradients, agents or times is given with a log, which has its own; leave them out.")
        log = _opened(points, learning_rate, optimizer, descent)
        if method in ("auto", "potential") and not small(log):
            return _delivered(lambda: _of_log(log, method, options, workers, checkpoint), strict)
        seen = log.read()
    else:
        seen = observe(
            points,
            gradients,
            agents=agents,
            times=times,
            learning_rate=learning_rate,
            descent=descent,
            optimizer=optimizer,
        )
    if checkpoint is not None and not isinstance(points, str | os.PathLike | Log):
        raise ValueError("checkpoint is given with rows in memory; it is for a log, given by its path.")
    if len(seen) < FEWEST:
        raise ValueError(f"points has {len(seen)} usable observations; a reconstruction needs at least {FEWEST}.")
    told = about_trainer(seen, objective)
    rows = climbed(replace(seen, warnings=(*seen.warnings, *told)), objective)

    def reconstructed() -> Reconstruction:
        return replace(_reconstructed(rows, method, options), projection=seen.projection, _rows=seen)

    return _delivered(reconstructed, strict)


def _delivered(reconstructed: Callable[[], Reconstruction], strict: bool) -> Reconstruction:
    """A result, whose warnings are raised."""
    with undelivered():
        result = reconstructed()
        warnings = result.warnings if strict else result.found.warnings
    deliver(warnings, strict=strict)
    return result


def _opened(log: Any, learning_rate: Any, optimizer: Optimizer | str | None, descent: bool) -> Log:
    """A log, given by its path or opened."""
    if not isinstance(log, Log):
        return open_log(log, learning_rate=learning_rate, optimizer=optimizer, descent=descent or None)
    if learning_rate is not None or optimizer is not None or descent:
        raise ValueError("learning_rate, optimizer or descent is given with an opened log; give it to open_log.")
    return log


def _of_log(log: Log, method: str, options: Options, workers: Workers, checkpoint: Any) -> Reconstruction:
    """By passes over a log that is not read into memory."""
    with engine_for(workers) as engine:
        read = by_passes(log, options, engine, checkpoint)
    result, numbers = read.result, read.result.found.diagnostics
    if method == "auto" and _too_smooth(read.potential, numbers):
        # Chains on a kernel regression need rows in memory: they have some.
        seen = log.read(most=REPLAYED)
        told = about_trainer(seen, options.objective)
        seen = climbed(seen, options.objective)
        checked, warnings = inspect(seen, closed=options.interval is not None)
        if options.coordinates is not None:
            checked = _folded(checked, options.coordinates)
        replayed = by_replay(checked, [*seen.warnings, *told, *warnings], options)
        result = replace(_better(replayed, result), projection=seen.projection)
    found = result.found
    warnings = [*found.warnings, *about_jumps(read.jumps, read.seen, read.rows)]
    return replace(result, found=Findings(found.diagnostics, warnings))


def _reconstructed(seen: Observations, method: str, options: Options) -> Reconstruction:
    coordinates = options.coordinates
    if coordinates is not None:
        coordinates.by_state(seen.points)
    checked, warnings = inspect(seen, closed=options.interval is not None)
    if coordinates is not None:
        checked = _folded(checked, coordinates)
    if len(checked) < FEWEST:
        raise ValueError(f"points has {len(checked)} distinct observations; a reconstruction needs at least {FEWEST}.")
    numbers, updates = about_updates(checked)
    warnings = [*seen.warnings, *warnings, *updates]
    # A loss scale that changes looks like a jump of the reward.
    jumps = [] if any(message.code == "loss-scaled" for message in updates) else jumps_in(checked)
    if method not in ("auto", "potential"):
        warnings += about_jumps(jumps, checked, len(seen))
        return (
            by_replay(checked, warnings, options)
            if method == "replay"
            else by_single_kernel(method, checked, warnings, options)
        )
    potential, result = by_potential(checked, warnings, options)
    jumps = [jump for jump in jumps if confirmed(jump, checked, potential)]
    if method == "auto":
        result = _or_replay(potential, result, checked, warnings, options)
    found = result.found
    warnings = [*found.warnings, *about_jumps(jumps, checked, len(seen))]
    return replace(result, found=Findings({**found.diagnostics, **numbers}, warnings))


def _folded(seen: Observations, coordinates: Coordinates) -> Observations:
    folded, sign = coordinates.fold(seen.points)
    return replace(seen, points=folded, gradients=sign * seen.gradients)


def _check_coordinates(coordinates: Any, measure: str, method: str) -> None:
    if coordinates is None:
        if measure != "coordinates":
            raise ValueError(f"measure is {measure!r} without coordinates; give some, such as spherical(2, 2).")
        return
    if not isinstance(coordinates, Coordinates):
        raise TypeError(
            f"coordinates is {type(coordinates).__name__}; give spherical(states, actions) or softmax(states, actions)."
        )
    check_measure(measure, coordinates)
    if method in ("passive", "reweighted"):
        raise ValueError(f"method {method!r} does not take coordinates; choose 'auto', 'potential' or 'replay'.")


def _or_replay(
    potential: Potential, fitted: Reconstruction, seen: Observations, warnings: list[Message], options: Options
) -> Reconstruction:
    """The fitted potential, unless it is at its finest resolution and replay predicts held-out gradients better."""
    if not _too_smooth(potential, fitted.found.diagnostics):
        return fitted
    return _better(by_replay(seen, warnings, options), fitted)


def _too_smooth(potential: Potential, numbers: Any) -> bool:
    """Whether the fit is at its finest resolution and explains gradients, so that replay may do better."""
    explains = numbers["held_out_error"] < (1 - WORTH_A_LOOK) * numbers["quadratic_error"]
    return potential.at_finest and explains


def _better(replayed: Reconstruction, fitted: Reconstruction) -> Reconstruction:
    """The one that predicts held-out gradients better."""
    errors = (one.found.diagnostics["held_out_error"] for one in (replayed, fitted))
    return replayed if next(errors) < next(errors) else fitted
