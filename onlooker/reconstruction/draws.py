"""Samples of exp(βR̂), drawn at their first use and kept, with diagnostics and warnings of their own.

R̂ never needs them: a reconstruction knows the law, and draws from it when somebody asks for the samples.
"""

import time
from dataclasses import dataclass, field
from threading import RLock
from typing import Any, NamedTuple

import numpy as np

from onlooker.core.messages import Message, deliver
from onlooker.core.policies import Coordinates
from onlooker.engine.diagnostics import CONVERGED_RHAT, ENOUGH_DRAWS, convergence
from onlooker.fit.potential import Potential
from onlooker.fit.sample import SETTINGS

__all__ = ["Draws", "Findings", "Judged", "Law", "given"]

# Largest share of exp(βR̂) where no learner was.
MOST_UNEXPLORED = 0.05
# Largest mismatch between samples and R̂ that chance explains; the same share of samples may be unresolved.
LARGEST_MISMATCH = 0.1


class Findings(NamedTuple):
    """What was found about a fit or about samples.

    Attributes
    ----------
    diagnostics
        Numbers and settings, by name.
    warnings
        Messages to read before it is used.
    """

    diagnostics: dict[str, Any]
    warnings: list[Message]


class Judged(NamedTuple):
    """Samples (chain, draw, dim), and what was found about them."""

    samples: np.ndarray
    found: Findings


@dataclass(frozen=True)
class Law:
    """exp(βR̂) dx or, of policies φ, exp(βR̂) dφ; and how it is drawn from.

    Attributes
    ----------
    potential
        R̂.
    beta
        β.
    chains
        Number of chains.
    seed
        Seed of the draws.
    coordinates
        Coordinates of policies, if the points are policies.
    measure
        "coordinates" or "policy"; see `Potential.sample`.
    """

    potential: Potential
    beta: float
    chains: int
    seed: int
    coordinates: Coordinates | None = None
    measure: str = "coordinates"

    def draw(self, draws: int | None = None) -> Judged:
        """Draw samples, and judge them; default: as many as suffice."""
        began = time.perf_counter()
        samples, mismatch, unresolved = self.potential.sample(
            chains=self.chains,
            beta=self.beta,
            seed=self.seed,
            enough=lambda drawn: convergence(drawn).reached or not self.potential.explored(_flat(drawn)).any(),
            coordinates=self.coordinates,
            measure=self.measure,
            draws=draws,
        )
        converged, explored = convergence(samples), self.potential.explored(_flat(samples))
        numbers = {
            "unexplored_share": float(1 - explored.mean()),
            "rhat": converged.rhat,
            "ess": converged.ess,
            "sampling_mismatch": mismatch,
            "unresolved_share": unresolved,
            "draw_seconds": time.perf_counter() - began,
        }
        if draws is None and not explored.any():
            return Judged(samples[:, :0], Findings(numbers, [_refused(self.beta)]))
        return Judged(samples, Findings(numbers, _warn_about(numbers, self.potential)))

    def sample(self, draws: int | None = None) -> np.ndarray:
        """Samples (chain, draw, dim); warnings about them are raised, unless they are too few to be judged."""
        samples, found = self.draw(draws)
        if samples.shape[0] * samples.shape[1] >= SETTINGS.fewest_draws:
            deliver(found.warnings)
        return samples


@dataclass(eq=False)
class Draws:
    """Samples that are given, or drawn at their first use and kept.

    They are drawn once, whichever thread asks first. If that is interrupted, they are drawn when they are next used.

    Attributes
    ----------
    law
        The law they are drawn from; ``None`` if they are the positions of chains that have been run.
    drawn
        The samples; ``None`` until they are drawn.
    said
        Codes of warnings that are not raised again.
    """

    law: Law | None
    drawn: Judged | None = None
    said: set[str] = field(default_factory=set)
    _drawing: Any = field(default_factory=RLock, init=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        # A lock can be neither copied nor pickled.
        return Draws, (self.law, self.drawn, self.said)

    @property
    def dim(self) -> int:
        """Dimension of the samples, known without them."""
        if self.drawn is not None:
            return self.drawn.samples.shape[-1]
        assert self.law is not None
        return self.law.potential.dim

    def get(self) -> Judged:
        """The samples; if they are drawn now, warnings about them are raised."""
        new: list[Message] = []
        with self._drawing:
            if self.drawn is None:
                assert self.law is not None
                self.drawn = self.law.draw()
                new = self.drawn.found.warnings
            drawn = self.drawn
        deliver(new, said=self.said)
        return drawn


def given(samples: np.ndarray, law: Law | None = None) -> Draws:
    """Samples (chain, draw, dim) that are known already, such as those of chains or of a file."""
    return Draws(law, Judged(samples, Findings({}, [])))


def _flat(samples: np.ndarray) -> np.ndarray:
    """Samples (chain, draw, dim) as places (n, dim)."""
    return samples.reshape(-1, samples.shape[-1])


def _refused(beta: float) -> Message:
    text = (
        f"none of exp({beta:g}·R̂) lies where learners were, so that there are no samples: R̂ is higher where nothing is "
        "known of it. R̂ itself stands where learners were. Watch learners that start farther out, or for longer."
    )
    return Message("samples-refused", text, {"unexplored_share": 1.0})


def _warn_about(numbers: dict[str, float], potential: Potential) -> list[Message]:
    """Warnings about samples of a fitted potential."""
    warnings: list[Message] = []
    if numbers["unexplored_share"] > MOST_UNEXPLORED:
        text = (
            f"{numbers['unexplored_share']:.0%} of exp(βR) lies where no learner was: its maxima may be out there. "
            "Watch learners that start farther out."
        )
        warnings.append(Message("unexplored", text, {"unexplored_share": numbers["unexplored_share"]}))
    if not potential.independent and not (numbers["rhat"] < CONVERGED_RHAT and numbers["ess"] >= ENOUGH_DRAWS):
        text = (
            f"the chains that sample the fitted reward have not converged (rhat {numbers['rhat']:.3f}, wanted "
            f"below {CONVERGED_RHAT}; worth {numbers['ess']:.0f} draws, wanted {ENOUGH_DRAWS}): it may have "
            "several wells, or there are few chains. R̂ itself does not depend on them."
        )
        warnings.append(Message("samples-not-converged", text, {name: numbers[name] for name in ("rhat", "ess")}))
    if numbers["unresolved_share"] > LARGEST_MISMATCH:
        text = (
            f"{numbers['unresolved_share']:.0%} of the samples are from cells too coarse for exp(βR̂), which is "
            "thinner than they can show: their place is that of exp(βR̂), but not their width."
        )
        warnings.append(Message("samples-coarse", text, {"unresolved_share": numbers["unresolved_share"]}))
    if numbers["sampling_mismatch"] > LARGEST_MISMATCH:
        text = (
            f"samples and R̂ disagree by {numbers['sampling_mismatch']:.2f} (self-check, at most "
            f"{LARGEST_MISMATCH}): they are not draws of exp(βR̂). Whether R̂ is right, its error bars say."
        )
        warnings.append(Message("samples-mismatch", text, {"sampling_mismatch": numbers["sampling_mismatch"]}))
    return warnings
