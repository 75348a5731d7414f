"""Method "potential": fit a reward whose gradient predicts the observed ones."""

import time
from typing import Any

import numpy as np

from onlooker.core.messages import Message
from onlooker.data.observations import Observations
from onlooker.data.splits import held_out
from onlooker.fit.assumptions import about_assumptions, examined
from onlooker.fit.groups import Split, two_groups
from onlooker.fit.potential import Potential, fit
from onlooker.reconstruction.draws import Draws, Findings, Law
from onlooker.reconstruction.options import Options, some_of
from onlooker.reconstruction.result import Reconstruction
from onlooker.reconstruction.usable import about_rows, independent_rows

__all__ = ["by_potential", "from_potential"]

# Range of βR over the data: below it exp(βR) is flat, above it a spike.
LEAST_SPAN, MOST_SPAN = 0.5, 50.0
# Number of rows from which the span of R̂ is computed: its quantiles are then accurate to about a hundredth.
LOOKED_AT = 5000
# Number of rows over which error bars are compared with R̂'s own spread.
BARS = 500


def by_potential(seen: Observations, warnings: list[Message], options: Options) -> tuple[Potential, Reconstruction]:
    """Fit; returns the potential, and the result with it."""
    began = time.perf_counter()
    held = held_out(seen, options.seed)
    potential = fit(seen.points, seen.gradients, held, options.seed, options.interval, seen.agents)
    potential = potential.judged(seen.points, seen.gradients, seen.agents, options.seed)
    return potential, from_potential(potential, seen, warnings, options, time.perf_counter() - began)


def from_potential(
    potential: Potential,
    seen: Observations,
    warnings: list[Message],
    options: Options,
    fit_seconds: float,
    rows: int | None = None,
) -> Reconstruction:
    """The result for a fitted reward: what is known without samples, which are drawn when they are used.

    The observations may be a sample of so many ``rows``.
    """
    sample = seen.points[np.random.default_rng(options.seed).integers(0, len(seen), LOOKED_AT)]
    low, high = np.quantile(potential.value(sample), [0.05, 0.95])
    span = float(high - low)
    independent = independent_rows(seen, rows)
    assumptions = examined(seen.points, seen.gradients, seen.agents, potential, options.seed)
    split = None
    if seen.agents is not None and any(one.code == "agents-disagree" for one in about_assumptions(assumptions)):
        split = two_groups(seen.points, seen.gradients, seen.agents, potential)
    diagnostics = {
        "observations": len(seen),
        "rejected": seen.rejected,
        "beta": options.beta,
        "held_out_error": potential.held_out_error,
        "quadratic_error": potential.quadratic_error,
        "reward_span": span,
        "independent_rows": independent,
        **assumptions.numbers,
        "fit_seconds": fit_seconds,
        **potential.settings,
        **options.about,
    }
    law = Law(potential, options.beta, options.chains, options.seed, options.coordinates, options.measure)
    return Reconstruction(
        "potential",
        potential,
        Findings(
            diagnostics,
            [
                *warnings,
                *about_rows(seen, independent),
                *potential.warnings,
                *about_assumptions(assumptions, split),
                *_about_errors(potential, sample),
                *_about_span(span, options.beta),
            ],
        ),
        Draws(law),
        some_of(seen, options.seed),
        options.coordinates,
        groups=None if split is None else _named(split, seen),
    )


def _named(split: Split, seen: Observations) -> dict[Any, int]:
    """The group of each agent, by its name."""
    names = split.agents if seen.agent_names is None else seen.agent_names[split.agents]
    return dict(zip(names.tolist(), split.groups.tolist(), strict=True))


def _about_errors(potential: Potential, sample: np.ndarray) -> list[Message]:
    """A warning if error bars are wider than R̂ varies over a sample of the points (n, dim)."""
    if not potential.has_error:
        return []
    few = sample[:BARS]
    error, spread = float(np.median(potential.error(few))), float(potential.value(few).std())
    if error <= spread:
        return []
    text = (
        f"the error bars of R̂ ({error:.3g}, their median over the data) are wider than R̂ varies there ({spread:.3g}): "
        "the record does not say what learners maximise. Watch more of them, or for longer."
    )
    return [Message("errors-wide", text, {"error": error, "spread": spread})]


def _about_span(span: float, beta: float) -> list[Message]:
    """A warning if exp(βR̂) is flat or a spike where the data are."""
    if LEAST_SPAN <= beta * span <= MOST_SPAN:
        return []
    wanted = 10 / max(span, 1e-300)
    text = (
        f"βR spans {beta * span:.3g} over nine tenths of the data, so that exp(βR) is "
        f"{'flat' if beta * span < 1 else 'a spike'}: beta={wanted:.2g} would show its shape."
    )
    return [Message("reward-span", text, {"span": beta * span, "beta": wanted})]
