"""Offline: observations in, a Reconstruction out."""

from dataclasses import replace
from typing import Any

from onlooker.check import check_positive, check_whole
from onlooker.coordinates import Coordinates, check_measure
from onlooker.field.cosine import LENGTHS
from onlooker.field.smooth import SmoothPotential
from onlooker.jump_watch import FALSE_ALARMS, JumpWatch
from onlooker.methods.options import Options
from onlooker.methods.potential import by_potential
from onlooker.methods.replay import by_replay
from onlooker.methods.single_kernel import by_single_kernel
from onlooker.observe.jumps import Jump, JumpTest
from onlooker.observe.observation import Observations, observe
from onlooker.observe.optimiser import Optimiser
from onlooker.observe.quality import inspect
from onlooker.reconstruction import Potential, Reconstruction
from onlooker.threads import one_thread

__all__ = ["METHODS", "about_jumps", "jumps_in", "reconstruct"]

METHODS = ("auto", "potential", "replay", "passive", "reweighted")
FEWEST = 50
# The chance that a reward that never jumped is said to have, at some row of the record.
FALSE_ALARM = 0.01
# Rows before and after a jump that must show it once more, and how few before it can tell.
LOOKED_AT = 1 << 13
FEWEST_BEFORE = 100
# Cosines that explain less than this share of what the quadratic leaves have no resolution to be at the end of.
WORTH_A_LOOK = 0.005


def reconstruct(
    points: Any,
    gradients: Any = None,
    *,
    agents: Any = None,
    times: Any = None,
    learning_rate: Any = None,
    descent: bool = False,
    optimiser: Optimiser | str | None = None,
    density: Any = None,
    beta: float = 1.0,
    method: str = "auto",
    step_size: float | None = None,
    bandwidth: float | None = None,
    chains: int = 64,
    seed: int = 0,
    coordinates: Coordinates | None = None,
    measure: str = "coordinates",
) -> Reconstruction:
    """Reconstruct the reward that gradient learners maximise.

    Parameters
    ----------
    points, gradients, agents, times, learning_rate, descent, optimiser
        What was seen; see `observe`. Or, alone, the Observations that `read_log` makes of a log.
    density
        π, the density the points come from: a distribution with ``log_prob`` or a log-density function, for the
        paper's methods.
    beta
        β: chains sample exp(βR). Larger sharpens the picture around the maxima.
    method
        "potential" fits a reward whose gradient predicts the observed ones, and draws from it; "replay" runs chains on
        a kernel regression of the gradients; "passive" and "reweighted" are the paper's, and need the density. "auto"
        is "potential", or "replay" where that is too smooth and predicts gradients held out from both worse.
    step_size, bandwidth
        μ of the chains and Δ of the kernel, of the methods that have them; by default chosen from the data.
    chains, seed
        How many chains of samples, and the seed of everything random.
    coordinates
        `spherical(states, actions)` or `softmax(states, actions)` when the points are coordinates of policies: angles
        are folded into [0, π/2], and R is taken to be even about its ends.
    measure
        With coordinates a, whether samples are of exp(βR) da, "coordinates", or of exp(βR) dφ, "policy".

    Examples
    --------
    >>> import numpy as np
    >>> points = np.random.default_rng(0).standard_normal((2000, 1))
    >>> result = reconstruct(points, 1 - 2 * points)  # R = θ − θ²
    >>> high, low = result.reward([[0.5], [0.0]])
    >>> round(float(high - low), 3), result.method, result.warnings
    (0.25, 'potential', [])
    >>> result.reward([[40.0]])  # where no learner was
    array([nan])
    """
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; choose one of {', '.join(METHODS)}.")
    given = {"step_size": step_size, "bandwidth": bandwidth}
    check_positive(beta=beta, **{name: value for name, value in given.items() if value is not None})
    check_whole(chains=chains)
    _check_coordinates(coordinates, measure, method)
    if isinstance(points, Observations):
        seen = points
    else:
        seen = observe(
            points,
            gradients,
            agents=agents,
            times=times,
            learning_rate=learning_rate,
            descent=descent,
            optimiser=optimiser,
        )
    if len(seen) < FEWEST:
        raise ValueError(f"points holds {len(seen)} usable observations; a reconstruction needs at least {FEWEST}.")
    options = Options(float(beta), int(chains), seed, density, step_size, bandwidth, coordinates, measure)
    if coordinates is not None:
        coordinates.by_state(seen.points)
    checked, doubts = inspect(seen, closed=options.interval is not None)
    if coordinates is not None:
        checked, seen = (_folded(rows, coordinates) for rows in (checked, seen))
    if len(checked) < FEWEST:
        raise ValueError(f"points holds {len(checked)} different observations; a reconstruction needs {FEWEST}.")
    doubts = [*seen.notes, *doubts]
    jumps = jumps_in(seen)
    if method in ("passive", "reweighted"):
        return by_single_kernel(method, checked, [*doubts, *about_jumps(jumps, seen)], options)
    if method == "replay":
        return by_replay(checked, [*doubts, *about_jumps(jumps, seen)], options)
    fitted = by_potential(checked, doubts, options)
    found = _or_replay(fitted, checked, doubts, options) if method == "auto" else fitted
    assert fitted.potential is not None
    jumps = [jump for jump in jumps if _confirmed(jump, seen, fitted.potential)]
    return replace(found, warnings=[*found.warnings, *about_jumps(jumps, seen)])


def _folded(seen: Observations, coordinates: Coordinates) -> Observations:
    folded, sign = coordinates.fold(seen.points)
    return replace(seen, points=folded, gradients=sign * seen.gradients)


def jumps_in(seen: Observations) -> list[Jump]:
    """From where on gradients are not what the rows before let expect."""
    watch = JumpWatch(seen.dim, min(FALSE_ALARMS, FALSE_ALARM / len(seen)))
    watch.learn(seen.points, seen.gradients)
    return list(watch.jumps)


def _confirmed(jump: Jump, seen: Observations, potential: Potential) -> bool:
    """Whether gradients change there by the whole fit, too.

    The watch expects what a small fit says. Where learners move on to places that it describes badly, it is surprised
    by the reward as it always was. The whole fit knows both: only rewards that differ it cannot have both.
    """
    rows = slice(max(0, jump.at - LOOKED_AT), jump.at), slice(jump.at, jump.at + LOOKED_AT)
    before, after = (
        (points, seen.gradients[part] - potential.gradient(points), potential.explored(points))
        for part in rows
        for points in [seen.points[part].astype(float)]
    )
    known = before[2]
    if known.sum() < FEWEST_BEFORE:
        return True
    gradients = seen.gradients[rows[0]][known]
    with one_thread():
        test = JumpTest.against(before[0][known], before[1][known], gradients, FALSE_ALARM / LOOKED_AT)
        return test.update(*after) is not None


def about_jumps(jumps: list[Jump], seen: Observations) -> list[str]:
    """What to say of them."""
    if not jumps:
        return []
    times = "once" if len(jumps) == 1 else f"{len(jumps)} times"
    return [
        f"the reward jumped {times}, last about row {jumps[-1].at} of {len(seen)} in the order given: R̂ is a "
        "mixture of rewards. Reconstruct the rows since then, or use Observer(forgetting='adaptive')."
    ]


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
        raise ValueError(f"coordinates are not for method {method!r} here; choose 'auto', 'potential' or 'replay'.")


def _or_replay(found: Reconstruction, seen: Observations, doubts: list[str], options: Options) -> Reconstruction:
    """The fitted potential, unless it is at the end of its resolution and replay predicts held-out gradients better."""
    fit, numbers = found.potential, found.diagnostics
    explains = numbers["held_out_error"] < (1 - WORTH_A_LOOK) * numbers["quadratic_error"]
    if not (isinstance(fit, SmoothPotential) and fit.cosines.length <= min(LENGTHS) and explains):
        return found
    other = by_replay(seen, doubts, options)
    return other if other.diagnostics["held_out_error"] < numbers["held_out_error"] else found
