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
from onlooker.observe.observation import Observations, observe
from onlooker.observe.optimiser import Optimiser
from onlooker.observe.quality import inspect
from onlooker.reconstruction import Reconstruction

__all__ = ["METHODS", "about_jumps", "reconstruct"]

METHODS = ("auto", "potential", "replay", "passive", "reweighted")
FEWEST = 50
# The chance that a reward that never jumped is said to have, at some row of the record.
FALSE_ALARM = 0.01
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
        folded, sign = coordinates.fold(checked.points)
        checked = replace(checked, points=folded, gradients=sign * checked.gradients)
    if len(checked) < FEWEST:
        raise ValueError(f"points holds {len(checked)} different observations; a reconstruction needs {FEWEST}.")
    doubts = [*seen.notes, *doubts, *about_jumps(seen)]
    if method in ("passive", "reweighted"):
        return by_single_kernel(method, checked, doubts, options)
    if method == "replay":
        return by_replay(checked, doubts, options)
    found = by_potential(checked, doubts, options)
    return _or_replay(found, checked, doubts, options) if method == "auto" else found


def about_jumps(seen: Observations) -> list[str]:
    """What to say when gradients change from some row on."""
    watch = JumpWatch(seen.dim, min(FALSE_ALARMS, FALSE_ALARM / len(seen)))
    watch.learn(seen.points, seen.gradients)
    if not watch.jumps:
        return []
    times = "once" if watch.count == 1 else f"{watch.count} times"
    return [
        f"the reward jumped {times}, last about row {watch.jumps[-1].at} of {len(seen)} in the order given: R̂ is a "
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
