"""Warnings about the weights of features: what is unknown, what does not fit, what else agents climb."""

from collections.abc import Mapping

import numpy as np
from scipy.special import ndtri

from onlooker.core.messages import Message
from onlooker.explanation.gathered import DECAY
from onlooker.explanation.result import Explanation
from onlooker.fit.linear import LinearSums

__all__ = ["about_explanation", "about_sign"]

# p-value (two-sided) below which the misfit test and suspects are mentioned.
SURE = 0.01
# Reliability of Jacobians below which their noise may hide everything.
LEAST_RELIABLE = 0.1
# Share of gᵀDg below which residuals are rounding.
ROUNDING = 1e-9
# Cosine below which one agent moves against its gradients, and below which most do; restarts give about zero.
AGAINST, UNSIGNED = -0.3, -0.1
# Names at most in a sentence.
MOST_NAMED = 6


def about_explanation(why: Explanation) -> list[Message]:
    """All warnings about a result."""
    return [*_unidentified(why), *_reliability(why), *_misfit(why), *_suspects(why)]


def _unidentified(why: Explanation) -> list[Message]:
    found = [_combination(why, direction) for direction in why.unidentified]
    if not found:
        return []
    lost = [name for name, value in zip(why.names, why.weights, strict=True) if np.isnan(value)]
    alone = "any weight" if len(lost) == len(why.names) else f"the weight of {_listed(lost)}"
    text = (
        f"nothing that was seen depends on {'; nor on '.join(found)}: {alone} by itself is nan. Ask for contrasts, "
        "such as the difference of two weights."
    )
    return [Message("features-unidentified", text, {"directions": len(found)})]


def _alike(direction: Mapping[str, float]) -> bool:
    return all(abs(part - 1) < 1e-3 for part in direction.values())


def _combination(why: Explanation, direction: Mapping[str, float]) -> str:
    if len(direction) == 1:
        return next(iter(direction))
    if list(direction) == list(why.names) and _alike(direction):
        return "a number added to all weights"
    if _alike(direction):
        return f"a number added to each of {_listed(list(direction))}"
    return "the combination " + " ".join(f"{part:+.3g}·{name}" for name, part in direction.items())


def _listed(names: list[str]) -> str:
    shown = names[:MOST_NAMED]
    if len(names) > MOST_NAMED:
        return f"{', '.join(shown)} and {len(names) - MOST_NAMED} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else "".join(shown)


def _reliability(why: Explanation) -> list[Message]:
    if why.reliability >= LEAST_RELIABLE:
        return []
    text = (
        f"the Jacobians are mostly noise (reliability {why.reliability:.2g}): intervals say how little is known. Roll "
        "out ten times as many paths a row, or give features whose expectation is known."
    )
    return [Message("jacobians-unreliable", text, {"reliability": why.reliability})]


def _misfit(why: Explanation) -> list[Message]:
    if why.found.left < ROUNDING:
        text = (
            "the gradients are the Jacobians times the weights, to rounding: they were computed from the same paths, "
            "or without noise. The errors are those of rounding."
        )
        return [Message("residuals-none", text, {"left": why.found.left})]
    if np.isnan(why.misfit):
        text = (
            "whether the features suffice was not tested: no two rows are of one agent. Pass agents=, or watch agents "
            "for longer."
            if why.reliability > LEAST_RELIABLE and not why.found.weak
            else "whether the features suffice was not tested: the Jacobians are too noisy. Roll out more paths a row."
        )
        return [Message("features-untested", text)]
    if abs(why.misfit) < -ndtri(SURE / 2):
        return []
    left = max(1 - why.explained, 0) if np.isfinite(why.explained) else np.nan
    share = f"{left:.0%} of what the agents follow" if left >= 0.005 else "a part of what the agents follow"
    text = (
        f"{share} is neither these features nor noise (z = {why.misfit:.1f}): a feature is missing, or one stands for "
        "two that differ, or the gradients are those of a surrogate."
    )
    return [Message("features-misfit", text, {"left": float(left), "z": why.misfit})]


def _suspects(why: Explanation) -> list[Message]:
    messages = []
    for name, (value, error) in why.suspects.items():
        if np.isnan(value) or not error:
            continue
        low, high = why.interval({name: 1}, level=1 - SURE)
        if low <= 0 <= high:
            continue
        text = (
            f"the agents also climb {name}, with weight {value:.3g} ± {error:.2g}; the weights of the features allow "
            "for it."
        )
        if name == DECAY and value < 0:
            text = (
                f"the agents move away from zero, as by a negative weight decay ({value:.3g} ± {error:.2g}), which no "
                "optimizer has: a feature is missing."
            )
        messages.append(Message("suspect-found", text, {"suspect": name, "weight": value, "error": error}))
    return messages


def about_sign(sums: LinearSums) -> list[Message]:
    """A warning if agents move against their gradients."""
    known = np.isfinite(sums.along)
    if not known.any():
        return []
    count = np.bincount(sums.agents[known])
    along = np.bincount(sums.agents[known], sums.along[known])[count > 0] / count[count > 0]
    cosine = float(np.median(along))
    if cosine < UNSIGNED:
        text = (
            f"agents move against their gradients (cosine {cosine:.2f}): these look like a loss's gradients. Pass "
            "descent=True (or leave it out, if passed); as it stands all weights have the wrong sign."
        )
        return [Message("sign-reversed", text, {"cosine": cosine})]
    flipped = int(np.count_nonzero(along < AGAINST))
    if not flipped:
        return []
    text = (
        f"{flipped} of {len(along)} agents move against their gradients: their sign, or their optimizer, differs from "
        "the others'. Leave them out."
    )
    return [Message("sign-mixed", text, {"reversed": flipped, "agents": len(along)})]
