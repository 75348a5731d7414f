"""The result of a run: samples (chain, draw, dim), histograms, diagnostics and warnings."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from onlooker.core.forgetting import effective_count
from onlooker.core.histogram import Histogram
from onlooker.core.messages import Message, trusted
from onlooker.engine.accumulators import Grid, Moments
from onlooker.engine.diagnostics import rhat, summarised
from onlooker.engine.loop import Plan, Sums, chain_axis
from onlooker.engine.state import RunState
from onlooker.fit.grid_reward import GridReward
from onlooker.inverse.base import InverseLearner

if TYPE_CHECKING:
    import xarray

__all__ = ["Chains", "Snapshot", "as_chains"]


@dataclass(frozen=True)
class Snapshot:
    """The state of a run after a number of steps.

    Attributes
    ----------
    step
        Number of steps taken.
    positions
        (chain, dim): the positions of the chains. With many chains their histogram gives the reward at that moment.
    histogram
        What the grid had counted; with a forgetting rate, mostly the recent past. ``None`` without a grid.
    """

    step: int
    positions: np.ndarray
    histogram: Histogram | None


@dataclass
class Chains:
    """The result of a run.

    Attributes
    ----------
    learner
        Name of the inverse learner.
    settings
        Settings of the inverse learner.
    steps
        Number of steps taken.
    chains
        Number of chains.
    seconds
        Duration of the run, without the part before a resumption.
    interrupted
        Whether it took fewer steps than it was asked for.
    positions
        (chain, dim): the chains' last positions.
    samples
        (chain, draw, dim): positions every ``sample_every`` steps after the burn-in.
    sample_every
        Number of steps between two samples.
    histogram
        Joint histogram of all chains, or ``None``.
    marginals
        For each chain (or pooled) one histogram per coordinate, or ``None``.
    mean
        Mean of all positions counted.
    covariance
        Covariance of all positions counted.
    diagnostics
        Numbers about the run, by their names.
    warnings
        What makes the result doubtful, or limits it.
    history
        Snapshots of the run; empty unless ``snapshots`` was given.
    """

    learner: str
    settings: dict[str, Any]
    steps: int
    chains: int
    seconds: float
    interrupted: bool
    positions: np.ndarray
    samples: np.ndarray
    sample_every: int
    histogram: Histogram | None
    marginals: list[list[Histogram]] | None
    mean: np.ndarray
    covariance: np.ndarray
    diagnostics: dict[str, float]
    warnings: list[Message] = field(default_factory=list)
    history: list[Snapshot] = field(default_factory=list)

    @property
    def trusted(self) -> bool:
        """Whether no warning says that the chains may sample a wrong law."""
        return trusted(self.warnings)

    def reward(self, x: Any) -> np.ndarray:
        """R̂ = log p̂/β at points (n, dim), zero at its maximum and nan where no chain was; needs a ``grid``."""
        return self._estimate()(x)

    def explored(self, x: Any) -> np.ndarray:
        """Whether a chain was near points (n, dim); needs a ``grid``."""
        return self._estimate().explored(x)

    def to_datatree(self) -> "xarray.DataTree":
        """The samples and the diagnostics in the ArviZ schema."""
        import xarray

        chains, draws, dim = self.samples.shape
        names = {"chain": np.arange(chains), "draw": np.arange(draws), "coordinate": np.arange(dim)}
        posterior = xarray.Dataset({"alpha": (tuple(names), self.samples)}, names)
        attributes = {
            "learner": self.learner,
            "steps": self.steps,
            "warnings": [str(message) for message in self.warnings],
            "codes": [message.code for message in self.warnings],
        }
        numbers = xarray.Dataset({name: ((), value) for name, value in self.diagnostics.items()}, attrs=attributes)
        return xarray.DataTree.from_dict({"posterior": posterior, "diagnostics": numbers})

    @staticmethod
    def joined(parts: "Sequence[Chains]") -> "Chains":
        """The whole of parts of one run (`run` with ``part=``), given in their order.

        Positions, samples, counts and snapshots are those of the whole run; numbers among the diagnostics are means
        over the parts' chains, or sums where they count something, and rhat is computed again.
        """
        return joined(parts)

    def _estimate(self) -> GridReward:
        if self.histogram is None:
            raise ValueError(
                "grid was not given to run, so there is no reward to read off; give one, such as Grid.cube(3.0, dim)."
            )
        return GridReward(self.histogram, self.settings.get("beta", 1.0))


def joined(parts: Sequence[Chains]) -> Chains:
    """See `Chains.joined`."""
    if not parts:
        raise ValueError("parts is empty; give what run(part=(0, n)), …, run(part=(n - 1, n)) returned.")
    first = parts[0]
    for part in parts:
        same = (part.learner, part.steps, part.sample_every) == (first.learner, first.steps, first.sample_every)
        if not same or len(part.history) != len(first.history):
            raise ValueError(
                f"parts are of different runs: {first.learner} after {first.steps} steps, and {part.learner} after "
                f"{part.steps}; give parts of one run that were run to the same step."
            )
    shares = np.array([part.chains for part in parts], float)
    shares /= shares.sum()
    mean = shares @ np.stack([part.mean for part in parts])
    covariance = np.zeros_like(first.covariance)
    for share, part in zip(shares, parts, strict=True):
        covariance = covariance + share * (part.covariance + np.outer(part.mean - mean, part.mean - mean))
    samples = np.concatenate([part.samples for part in parts])
    diagnostics = {name: float(shares @ [part.diagnostics[name] for part in parts]) for name in first.diagnostics}
    for name in ("lost_chains", "chain_steps_per_second"):
        diagnostics[name] = sum(part.diagnostics[name] for part in parts)
    diagnostics["rhat"] = rhat(samples)
    marginals = None if first.marginals is None else [chain for part in parts for chain in part.marginals or []]
    if marginals is not None and len(marginals) == len(parts):
        # Those of all chains together.
        marginals = [[_summed(coordinate) for coordinate in zip(*marginals, strict=True)]]
    by_code = {message.code: message for part in reversed(parts) for message in part.warnings}
    return Chains(
        learner=first.learner,
        settings=first.settings,
        steps=first.steps,
        chains=sum(part.chains for part in parts),
        seconds=max(part.seconds for part in parts),
        interrupted=any(part.interrupted for part in parts),
        positions=np.concatenate([part.positions for part in parts]),
        samples=samples,
        sample_every=first.sample_every,
        histogram=_summed([part.histogram for part in parts]),
        marginals=marginals,
        mean=mean,
        covariance=covariance,
        diagnostics=diagnostics,
        warnings=list(by_code.values()),
        history=[
            Snapshot(
                moments[0].step,
                np.concatenate([moment.positions for moment in moments]),
                _summed([moment.histogram for moment in moments]),
            )
            for moments in zip(*(part.history for part in parts), strict=True)
        ],
    )


def _summed(histograms: "Sequence[Histogram | None]") -> Any:
    """A histogram with the counts of several over the same edges; ``None`` if there are none."""
    known = [histogram for histogram in histograms if histogram is not None]
    if not known:
        return None
    effective = None
    if known[0].effective is not None:
        effective = float(sum(histogram.effective or 0.0 for histogram in known))
    return Histogram(known[0].edges, np.sum([histogram.counts for histogram in known], axis=0), effective)


def as_chains(
    plan: Plan,
    learner: InverseLearner,
    shown: int | None,
    run: RunState,
    *,
    seconds: float,
    rate: float,
    steps: int,
    warnings: list[Message],
) -> Chains:
    """The result of a run that took ``run.done`` of ``steps`` steps; ``warnings`` go before those about chains."""
    done, state, trace, totals, history = run
    histogram, marginals = _counted(plan, totals, done)
    mean, covariance = Moments().mean_and_covariance(totals.moments, np.asarray(state.about, float))
    first = plan.burn_in // plan.trace_every
    samples = chain_axis(plan, np.asarray(trace)[first : done // plan.trace_every])
    positions = chain_axis(plan, state.positions)
    sums = dict(zip(plan.sums, chain_axis(plan, totals.info).T, strict=True))
    diagnostics, about_chains = summarised(learner, sums, max(done, 1), samples, positions, shown)
    return Chains(
        learner=learner.name,
        settings=dict(learner.settings),
        steps=done,
        chains=plan.part_chains,
        seconds=seconds,
        interrupted=done < steps,
        positions=positions,
        samples=samples,
        sample_every=plan.trace_every,
        histogram=histogram,
        marginals=marginals,
        mean=mean,
        covariance=covariance,
        diagnostics={**diagnostics, "chain_steps_per_second": rate},
        warnings=[*warnings, *about_chains],
        history=[
            Snapshot(moment.done, chain_axis(plan, moment.positions), _counted(plan, moment.totals, moment.done)[0])
            for moment in history
        ],
    )


def _counted(plan: Plan, totals: Sums, done: int) -> tuple[Histogram | None, list[list[Histogram]] | None]:
    """The histogram of the grid and those of the marginals."""
    histogram, histograms = None, None
    rows = done // plan.thin - plan.burn_in // plan.thin
    for accumulator, counts in zip(plan.accumulators, totals.accumulated, strict=True):
        worth = effective_count(accumulator.forgetting, max(rows, 0), plan.thin)
        if isinstance(accumulator, Grid):
            histogram = accumulator.histogram(counts, worth * plan.part_chains)
        else:
            per_histogram = 1 if accumulator.per_chain else plan.part_chains
            histograms = accumulator.histograms(counts, worth * per_histogram)
    return histogram, histograms
