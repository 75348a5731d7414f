"""Fit a reward whose gradient predicts the observed ones; then draw from exp(βR̂)."""

import time
from typing import Any

import numpy as np

from onlooker.field.ridge import fit_ridge
from onlooker.field.smooth import SmoothPotential, fit_smooth
from onlooker.inverse.potential import sample_potential
from onlooker.methods.options import Options, some_of
from onlooker.observe.observation import Observations
from onlooker.observe.quality import held_out
from onlooker.reconstruction import Potential, Reconstruction
from onlooker.reward.diagnostics import CONVERGED_RHAT, ENOUGH_DRAWS, convergence

__all__ = ["by_potential", "fit_potential", "from_potential"]

# βR should span neither so little nor so much over the data that its law is flat, or one point.
LEAST_SPAN, MOST_SPAN = 0.5, 50.0
LARGEST_MISMATCH = 0.1


def by_potential(seen: Observations, doubts: list[str], options: Options) -> Reconstruction:
    """Fit and draw."""
    began = time.perf_counter()
    potential = fit_potential(seen, options)
    return from_potential(potential, seen, doubts, options, time.perf_counter() - began)


def fit_potential(seen: Observations, options: Options) -> Potential:
    """Cosines in up to three dimensions, units on directions above."""
    held = held_out(seen, options.seed)
    if seen.dim <= 3:
        return fit_smooth(seen.points, seen.gradients, held, options.seed, options.interval)
    return fit_ridge(seen.points, seen.gradients, held, options.seed)


def from_potential(
    potential: Potential, seen: Observations, doubts: list[str], options: Options, fit_seconds: float
) -> Reconstruction:
    """Samples of a fitted reward, and what there is to say about both."""
    began = time.perf_counter()
    samples, mismatch, unresolved = sample_potential(
        potential,
        chains=options.chains,
        beta=options.beta,
        seed=options.seed,
        enough=lambda drawn: convergence(drawn).reached,
        coordinates=options.coordinates,
        measure=options.measure,
    )
    converged = convergence(samples)
    some = seen.points[np.random.default_rng(options.seed).integers(0, len(seen), 5000)]
    low, high = np.quantile(potential.value(some), [0.05, 0.95])
    diagnostics = {
        "observations": len(seen),
        "refused": seen.refused,
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
    doubts = [*doubts, *_doubts_about(diagnostics, independent=isinstance(potential, SmoothPotential))]
    return Reconstruction(
        "potential",
        samples,
        diagnostics,
        doubts,
        potential,
        observed=some_of(seen, options.seed),
        coordinates=options.coordinates,
    )


def _doubts_about(diagnostics: dict[str, Any], independent: bool) -> list[str]:
    """Sentences about a fitted potential and its draws, which may have been independent."""
    doubts = []
    span = diagnostics["beta"] * diagnostics["reward_span"]
    if not LEAST_SPAN <= span <= MOST_SPAN:
        wanted = 10 / max(diagnostics["reward_span"], 1e-300)
        doubts.append(
            f"βR spans {span:.3g} over nine tenths of the data, so that exp(βR) is "
            f"{'flat' if span < 1 else 'a spike'}: beta={wanted:.2g} would show its shape."
        )
    if diagnostics["unexplored_share"] > 0.05:
        tried = diagnostics.get("reach", 1.0) > 1
        doubts.append(
            f"{diagnostics['unexplored_share']:.0%} of exp(βR) lies where no learner was: its maxima may be out there. "
            + (
                "The samples there extrapolate the fit, which did predict held-out gradients at the outermost points "
                "from inner ones. "
                if tried
                else ""
            )
            + "Watch learners that start farther out."
        )
    if not independent and not (diagnostics["rhat"] < CONVERGED_RHAT and diagnostics["ess"] >= ENOUGH_DRAWS):
        doubts.append(
            f"the chains that sample the fitted reward have not converged (rhat {diagnostics['rhat']:.3f}, wanted "
            f"below {CONVERGED_RHAT}; worth {diagnostics['ess']:.0f} draws, wanted {ENOUGH_DRAWS}): it may have "
            "several wells, or there are few chains. R̂ itself does not depend on them."
        )
    if diagnostics["unresolved_share"] > LARGEST_MISMATCH:
        doubts.append(
            f"{diagnostics['unresolved_share']:.0%} of the samples are from cells too coarse for exp(βR̂), which is "
            "thinner than they can show: trust R̂, and the samples' place but not their width."
        )
    if diagnostics["sampling_mismatch"] > LARGEST_MISMATCH:
        doubts.append(
            f"samples and R̂ disagree by {diagnostics['sampling_mismatch']:.2f} (self-check, at most "
            f"{LARGEST_MISMATCH}): trust R̂, not the samples."
        )
    return doubts
