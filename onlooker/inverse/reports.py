"""What the steps of inverse learners report, and the diagnostics and warnings that follow from it.

A report is a NamedTuple of numbers about one step of one chain. The engine adds them up; ``squares`` names the fields
whose squares it adds up too, and ``summary`` turns the sums into diagnostics and warnings. A learner that reports
something else defines its own type of report.
"""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from jax import Array

from onlooker.core.messages import Message

__all__ = ["FieldInfo", "Info", "PoolInfo", "Report", "Summary", "Totals", "kernel_ess"]

# With fewer observations within reach of a chain, its histogram is mostly injected noise.
FEWEST_OBSERVATIONS = 1000
# With fewer effective observations in a pool, one of them takes nearly all the weight and nothing is averaged.
FEWEST_NEIGHBOURS = 1.5
# Farther away, in bandwidths, the nearest observation of a pool is not a neighbour.
FARTHEST_NEIGHBOUR = 3.0
# With a larger share of steps pushed back by the confinement, or without drift, chains sample another law.
LARGEST_SHARE = 0.05


class Totals(NamedTuple):
    """Sums of the reports of a run.

    Attributes
    ----------
    sums
        By name, (chain,): the sum over all steps of each chain that was not lost. Sums of squares are called
        ``NAME_squared``.
    steps
        Number of steps.
    settings
        The settings of the learner.
    shown
        Number of observations that the stream shows of a pool; ``None`` for all.
    """

    sums: Mapping[str, np.ndarray]
    steps: int
    settings: Mapping[str, Any]
    shown: int | None = None

    def mean(self, name: str) -> float:
        """The mean over steps and chains."""
        return float(np.mean(self.sums[name]) / self.steps)


class Summary(NamedTuple):
    """What follows from the reports of a run.

    Attributes
    ----------
    diagnostics
        Numbers about the run, by their names.
    warnings
        One for each problem that they show.
    """

    diagnostics: dict[str, float]
    warnings: list[Message]


class Report(Protocol):
    """What an inverse learner's ``info`` must be: a NamedTuple class with these two functions."""

    _fields: ClassVar[tuple[str, ...]]

    @staticmethod
    def squares() -> tuple[str, ...]:
        """Names of the fields whose squares are added up too."""

    @staticmethod
    def summary(totals: Totals) -> Summary:
        """Diagnostics and warnings of a run, from its sums."""


class Info(NamedTuple):
    """What a step on one observation reports.

    Attributes
    ----------
    weight
        The weight of the evidence: K_Δ(θ − α) for the single-kernel learners, the ratio K_Δ/p for `active`, 1 for
        `classical`.
    distance
        From the chain to the observation of this step.
    projected
        1 when the chain was pushed back by its confinement, else 0.
    """

    weight: Array
    distance: Array
    projected: Array

    @staticmethod
    def squares() -> tuple[str, ...]:
        return ("weight",)

    @staticmethod
    def summary(totals: Totals) -> Summary:
        """The kernel ESS is that of the whole run."""
        diagnostics = {
            "kernel_weight": totals.mean("weight"),
            "kernel_ess": kernel_ess(totals.sums["weight"], totals.sums["weight_squared"]),
            "nearest_distance": totals.mean("distance"),
            "projected_share": totals.mean("projected"),
        }
        return Summary(diagnostics, [*_confined(diagnostics), *_starved(diagnostics, totals.settings)])


class PoolInfo(NamedTuple):
    """What a step on a pool reports.

    Attributes
    ----------
    kernel_ess
        (Σw)²/Σw² of the pool's weights: the effective number of its observations.
    distance
        From the chain to the nearest observation of the pool.
    projected
        1 when the chain was pushed back by its confinement, else 0.
    empty
        1 when the kernel reached no observation, so that there was no drift, else 0.
    reset
        1 when the chain was reset, else 0.
    """

    kernel_ess: Array
    distance: Array
    projected: Array
    empty: Array
    reset: Array

    @staticmethod
    def squares() -> tuple[str, ...]:
        return ()

    @staticmethod
    def summary(totals: Totals) -> Summary:
        """The kernel ESS is that of a pool, averaged over the steps whose kernel reached an observation."""
        diagnostics = {
            "kernel_ess": totals.mean("kernel_ess") / max(1 - totals.mean("empty"), 1e-9),
            "nearest_distance": totals.mean("distance"),
            "projected_share": totals.mean("projected"),
            "empty_share": totals.mean("empty"),
            "resets": round(float(np.sum(totals.sums["reset"]))),
        }
        bandwidth = totals.settings.get("bandwidth", math.inf)
        return Summary(
            diagnostics,
            [*_cut(diagnostics, totals.shown), *_confined(diagnostics), *_far_pools(diagnostics, bandwidth)],
        )


class FieldInfo(NamedTuple):
    """What a step on a remembered field reports.

    Attributes
    ----------
    kernel_ess
        Effective number of neighbours that the gradient is averaged over.
    bandwidth
        The bandwidth after widening, in the points' units (the mean over axes).
    projected
        1 outside the box, where the gradient is that at its edge and the chain is pulled back, else 0.
    """

    kernel_ess: Array
    bandwidth: Array
    projected: Array

    @staticmethod
    def squares() -> tuple[str, ...]:
        return ()

    @staticmethod
    def summary(totals: Totals) -> Summary:
        diagnostics = {
            "kernel_ess": totals.mean("kernel_ess"),
            "bandwidth_used": totals.mean("bandwidth"),
            "projected_share": totals.mean("projected"),
        }
        return Summary(diagnostics, [*_confined(diagnostics), *_starved(diagnostics, totals.settings)])


def kernel_ess(weight: np.ndarray, weight_squared: np.ndarray) -> float:
    """(Σw)²/Σw²: the effective number of observations that a chain used, the median over chains."""
    used = np.divide(weight**2, weight_squared, out=np.zeros_like(weight), where=weight_squared > 0)
    return float(np.median(used))


def _confined(diagnostics: Mapping[str, float]) -> list[Message]:
    share = diagnostics["projected_share"]
    if share <= LARGEST_SHARE:
        return []
    text = (
        f"chains were pushed back by their confinement in {share:.0%} of the steps: near "
        "its edge they sample the confinement, not the reward."
    )
    return [Message("chains-confined", text, {"projected_share": share})]


def _starved(diagnostics: Mapping[str, float], settings: Mapping[str, Any]) -> list[Message]:
    if not settings.get("bandwidth") or diagnostics["kernel_ess"] >= FEWEST_OBSERVATIONS:
        return []
    text = (
        f"the kernel gave a chain only {diagnostics['kernel_ess']:.0f} observations' worth of gradients: the "
        "samples say more about the noise than about the reward. Take a larger bandwidth or observe for longer."
    )
    return [Message("kernel-starved", text, {"kernel_ess": diagnostics["kernel_ess"]})]


def _cut(diagnostics: Mapping[str, float], shown: int | None) -> list[Message]:
    if shown is None or diagnostics["kernel_ess"] <= shown / 2:
        return []
    text = (
        f"the simulator shows the nearest {shown} of a pool, but {diagnostics['kernel_ess']:.1f} of them count: "
        "members that are not shown would count too. Show more, or draw whole pools."
    )
    return [Message("pools-cut", text, {"shown": shown, "kernel_ess": diagnostics["kernel_ess"]})]


def _far_pools(diagnostics: Mapping[str, float], bandwidth: float) -> list[Message]:
    warnings: list[Message] = []
    if diagnostics["kernel_ess"] < FEWEST_NEIGHBOURS and diagnostics["empty_share"] < 0.5:
        text = (
            f"the pools are not averaged (kernel ESS {diagnostics['kernel_ess']:.2f}, below {FEWEST_NEIGHBOURS}): one "
            "observation takes all the weight however far away it is. Take larger pools or a larger bandwidth; in many "
            "dimensions neither helps, and the chains follow gradients from elsewhere."
        )
        warnings.append(Message("pools-narrow", text, {"kernel_ess": diagnostics["kernel_ess"]}))
    distance = diagnostics["nearest_distance"] / bandwidth
    if distance > FARTHEST_NEIGHBOUR:
        text = (
            f"the nearest observation of a pool is {distance:.1f} bandwidths away on average (more than "
            f"{FARTHEST_NEIGHBOUR:g}): the chains use gradients from elsewhere."
        )
        warnings.append(Message("pools-far", text, {"bandwidths": distance}))
    if diagnostics["empty_share"] > LARGEST_SHARE:
        text = (
            f"in {diagnostics['empty_share']:.0%} of the steps the kernel reached none of the pool and there was no "
            "drift: take a larger bandwidth or a Gaussian kernel."
        )
        warnings.append(Message("pools-empty", text, {"empty_share": diagnostics["empty_share"]}))
    if diagnostics["resets"]:
        text = f"chains were reset {diagnostics['resets']:.0f} times: they sample the reset rule, not the reward."
        warnings.append(Message("chains-reset", text, {"resets": diagnostics["resets"]}))
    return warnings
