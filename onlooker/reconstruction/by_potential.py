"""Method "potential": fit a reward whose gradient predicts the observed ones, then draw from exp(βR̂)."""

import time
from typing import Any

import numpy as np

from onlooker.core.messages import Message
from onlooker.data.observations import Observations
from onlooker.data.splits import held_out
from onlooker.engine.diagnostics import CONVERGED_RHAT, ENOUGH_DRAWS, convergence
from onlooker.fit.potential import Potential, fit
from onlooker.reconstruction.options import Options, some_of
from onlooker.reconstruction.result import Reconstruction

__all__ = ["by_potential", "from_potential"]

# Range of βR over the data: below it exp(βR) is flat, above it a spike.
LEAST_SPAN, MOST_SPAN = 0.5, 50.0
# Largest mismatch between samples and R̂ that chance explains; the same share of samples may be unresolved.
LARGEST_MISMATCH = 0.1
# Number of rows from which the span of R̂ is computed: its quantiles are then accurate to about a hundredth.
LOOKED_AT = 5000


def by_potential(seen: Observations, warnings: list[Message], options: Options) -> tuple[Potential, Reconstruction]:
    """Fit and draw; returns the potential, and the result with it."""
    began = time.perf_counter()
    held = held_out(seen, options.seed)
    potential = fit(seen.points, seen.gradients, held, options.seed, options.interval)
    return potential, from_potential(potential, seen, warnings, options, time.perf_counter() - began)


def from_potential(
    potential: Potential, seen: Observations, warnings: list[Message], options: Options, fit_seconds: float
) -> Reconstruction:
    """The result for a fitted reward: its samples, diagnostics and warnings."""
    began = time.perf_counter()
    samples, mismatch, unresolved = potential.sample(
        chains=options.chains,
        beta=options.beta,
        seed=options.seed,
        enough=lambda drawn: convergence(drawn).reached,
        coordinates=options.coordinates,
        measure=options.measure,
    )
    converged = convergence(samples)
    sample = seen.points[np.random.default_rng(options.seed).integers(0, len(seen), LOOKED_AT)]
    low, high = np.quantile(potential.value(sample), [0.05, 0.95])
    diagnostics = {
        "observations": len(seen),
        "rejected": seen.rejected,
        "beta": options.beta,
        "held_out_error": potential.held_out_error,
        "quadratic_error": potential.quadratic_error,
        "reward_span": float(high - low),
        "unexplored_share": float(1 - potential.explored(samples.reshape(-1, seen.dim)).mean()),
        "rhat": converged.rhat,
        "ess": converged.ess,
        "sampling_mismatch": mismatch,
        "unresolved_share": unresolved,
        "fit_seconds": fit_seconds,
        "draw_seconds": time.perf_counter() - began,
        **potential.settings,
        **options.about,
    }
    warnings = [*warnings, *_warn_about(diagnostics, potential.independent)]
    return Reconstruction(
        "potential",
        samples,
        diagnostics,
        warnings,
        potential,
        observed=some_of(seen, options.seed),
        coordinates=options.coordinates,
    )


def _warn_about(diagnostics: dict[str, Any], independent: bool) -> list[Message]:
    """Warnings about a fitted potential and its draws."""
    warnings: list[Message] = []
    span = diagnostics["beta"] * diagnostics["reward_span"]
    if not LEAST_SPAN <= span <= MOST_SPAN:
        wanted = 10 / max(diagnostics["reward_span"], 1e-300)
        text = (
            f"βR spans {span:.3g} over nine tenths of the data, so that exp(βR) is "
            f"{'flat' if span < 1 else 'a spike'}: beta={wanted:.2g} would show its shape."
        )
        warnings.append(Message("reward-span", text, {"span": span, "beta": wanted}))
    if diagnostics["unexplored_share"] > 0.05:
        tried = diagnostics.get("reach", 1.0) > 1
        text = (
            f"{diagnostics['unexplored_share']:.0%} of exp(βR) lies where no learner was: its maxima may be out there. "
            + (
                "The samples there extrapolate the fit, which did predict held-out gradients at the outermost points "
                "from inner ones. "
                if tried
                else ""
            )
            + "Watch learners that start farther out."
        )
        warnings.append(Message("unexplored", text, {"unexplored_share": diagnostics["unexplored_share"]}))
    if not independent and not (diagnostics["rhat"] < CONVERGED_RHAT and diagnostics["ess"] >= ENOUGH_DRAWS):
        text = (
            f"the chains that sample the fitted reward have not converged (rhat {diagnostics['rhat']:.3f}, wanted "
            f"below {CONVERGED_RHAT}; worth {diagnostics['ess']:.0f} draws, wanted {ENOUGH_DRAWS}): it may have "
            "several wells, or there are few chains. R̂ itself does not depend on them."
        )
        numbers = {name: diagnostics[name] for name in ("rhat", "ess")}
        warnings.append(Message("samples-not-converged", text, numbers))
    if diagnostics["unresolved_share"] > LARGEST_MISMATCH:
        text = (
            f"{diagnostics['unresolved_share']:.0%} of the samples are from cells too coarse for exp(βR̂), which is "
            "thinner than they can show: trust R̂, and the samples' place but not their width."
        )
        warnings.append(Message("samples-coarse", text, {"unresolved_share": diagnostics["unresolved_share"]}))
    if diagnostics["sampling_mismatch"] > LARGEST_MISMATCH:
        text = (
            f"samples and R̂ disagree by {diagnostics['sampling_mismatch']:.2f} (self-check, at most "
            f"{LARGEST_MISMATCH}): trust R̂, not the samples."
        )
        warnings.append(Message("samples-mismatch", text, {"sampling_mismatch": diagnostics["sampling_mismatch"]}))
    return warnings
