"""Bad data that a fit cannot see by itself: a wrong sign, flipped agents, duplicated rows, one place, too few agents.

A gradient of the wrong sign is predicted as well as the right one. But agents that climb move along their gradients:
the cosine of θ_{k+1} − θ_k with g_k is near 1. And without agents, at the outermost points the reward falls off:
gradients point inward.
"""

from dataclasses import replace

import numpy as np

from onlooker.observe.observation import Observations

__all__ = ["agreement_with_steps", "held_out", "inspect", "pointing_inward"]

# Share of observations that are held out, and stretches of the record when nobody wrote down whose they are.
HELD_OUT = 0.2
STRETCHES = 50
# Outermost points looked at, and the share of inward gradients below which the sign is doubted.
OUTERMOST = 0.05
FEWEST_INWARD = 0.25
# How far out, in widths of the middle nine tenths, a point or a gradient is a runaway learner's.
FARTHEST = 10.0
STEEPEST = 1000.0
# Rows that are looked at at a time.
CHUNK = 1 << 18
# More duplicated rows than that are worth a word.
DUPLICATES = 0.01


def inspect(seen: Observations, closed: bool = False) -> tuple[Observations, list[str]]:
    """Observations without duplicates, and sentences about what is wrong with them; refuses what has no answer.

    ``closed`` says that points live in an interval: there is no outside where the reward would have to fall off.
    """
    flat = np.flatnonzero(np.ptp(seen.points, axis=0) == 0)
    if len(flat) == seen.dim:
        raise ValueError("points are all equal; a reward cannot be reconstructed from one place.")
    if len(seen) <= seen.dim:
        raise ValueError(f"points holds {len(seen)} rows of {seen.dim} dimensions; watch more, or fewer coordinates.")
    if len(flat):
        raise ValueError(f"points never move along coordinate {flat[0]}; leave it out.")
    warnings = []
    seen, runaway = _without_runaways(seen)
    if runaway:
        warnings.append(
            f"{runaway} of {len(seen) + runaway} observations are of learners that ran away ({FARTHEST:g} times as far "
            f"out as nine tenths of the points, or with gradients {STEEPEST:g} times theirs) and were left out: their "
            "learning rate is too large there."
        )
    total = len(seen)
    seen = _unique(seen)
    if total - len(seen) > DUPLICATES * total:
        warnings.append(
            f"{total - len(seen)} of {total} observations are duplicates and were dropped: counted twice they would "
            "make error bars too small."
        )
    if not np.ptp(seen.gradients, axis=0).any():
        warnings.append("gradients are all equal: as far as was seen the reward is a plane without a maximum.")
    else:
        warnings += _warn_about_sign(seen, closed)
    needed = seen.dim * (seen.dim + 3) // 2
    if seen.agents is not None and len(np.unique(seen.agents)) < needed:
        warnings.append(
            f"there are {len(np.unique(seen.agents))} agents but a quadratic in {seen.dim} dimensions has {needed} "
            "coefficients: watch more agents, or fewer coordinates."
        )
    return seen, warnings


def _without_runaways(seen: Observations) -> tuple[Observations, int]:
    """Observations that are not absurdly far from the others, and how many were left out."""
    kept = np.ones(len(seen), bool)
    for values, factor in ((seen.points, FARTHEST), (seen.gradients, STEEPEST)):
        # Column by column: nothing as large as all of them is made.
        for column in values.T:
            low, middle, high = np.quantile(column, [0.05, 0.5, 0.95])
            width = high - low if high > low else np.inf
            kept &= np.abs(column - middle) <= factor * width
    return (seen, 0) if kept.all() else (_rows(seen, np.flatnonzero(kept)), int(np.count_nonzero(~kept)))


def _rows(seen: Observations, rows: np.ndarray) -> Observations:
    return replace(
        seen,
        points=seen.points[rows],
        gradients=seen.gradients[rows],
        agents=None if seen.agents is None else seen.agents[rows],
        times=None if seen.times is None else seen.times[rows],
    )


def _unique(seen: Observations) -> Observations:
    # Whether there are any is found sooner, and in less memory, than which.
    found = _fingerprints(seen)
    found.sort()
    if (found[1:] != found[:-1]).all():
        return seen
    _, first = np.unique(_fingerprints(seen), return_index=True)
    return _rows(seen, np.sort(first))


def _fingerprints(seen: Observations) -> np.ndarray:
    """(n,) words of 64 bits, equal where rows are and by chance once in 2⁶⁴: they are sorted faster than rows."""
    found = np.zeros(len(seen), np.uint64)
    for values in (seen.points, seen.gradients):
        for column in values.T:
            found ^= column.astype(float).view(np.uint64)
            # One step of splitmix64.
            found += np.uint64(0x9E3779B97F4A7C15)
            found ^= found >> np.uint64(30)
            found *= np.uint64(0xBF58476D1CE4E5B9)
            found ^= found >> np.uint64(27)
    if seen.agents is not None:
        # A learner that sees no gradient stays where it is: those rows are alike, and each of them counts.
        still = np.flatnonzero(~seen.gradients.any(axis=1))
        when = still.astype(float) if seen.times is None else seen.times[still].astype(float)
        found[still] += when.view(np.uint64)
    return found


def _warn_about_sign(seen: Observations, closed: bool) -> list[str]:
    along = agreement_with_steps(seen)
    if along is not None:
        if np.median(along) < 0:
            return [
                f"agents move against their gradients (cosine {np.median(along):.2f}): these look like a loss's "
                "gradients. Pass descent=True (or leave it out, if passed); as it stands the reward is upside down."
            ]
        flipped = int(np.count_nonzero(along < -0.3))
        if flipped:
            return [
                f"{flipped} of {len(along)} agents move against their gradients: their sign, or their optimiser, "
                "differs from the others'. Leave them out."
            ]
        return []
    inward = 1.0 if closed else pointing_inward(seen)
    if inward < FEWEST_INWARD:
        return [
            f"at the outermost points only {inward:.0%} of the gradients point inward: if the reward falls off out "
            "there, their sign is wrong. Pass descent=True for a loss's gradients."
        ]
    return []


def agreement_with_steps(seen: Observations) -> np.ndarray | None:
    """Mean cosine of each agent's steps with its gradients; ``None`` when agents are unknown or made one row each."""
    if seen.agents is None:
        return None
    names, agents = np.unique(seen.agents, return_inverse=True)
    order = np.argsort(agents, kind="stable")
    total, count = np.zeros(len(names)), np.zeros(len(names))
    for first in range(0, len(order) - 1, CHUNK):
        here, after = order[:-1][first : first + CHUNK], order[1:][first : first + CHUNK]
        same = agents[here] == agents[after]
        if seen.times is not None:
            same &= seen.times[after] > seen.times[here]
        here, after = here[same], after[same]
        steps, taken = seen.points[after].astype(float) - seen.points[here], seen.gradients[here].astype(float)
        lengths = np.linalg.norm(steps, axis=1) * np.linalg.norm(taken, axis=1)
        moved = lengths > 0
        cosine = np.einsum("nd,nd->n", steps, taken)[moved] / lengths[moved]
        total += np.bincount(agents[here][moved], cosine, minlength=len(names))
        count += np.bincount(agents[here][moved], minlength=len(names))
    return total[count > 0] / count[count > 0] if count.any() else None


def pointing_inward(seen: Observations) -> float:
    """Share of the outermost points whose gradient points to the middle."""
    spread = seen.points.std(axis=0, dtype=float)
    scaled = (seen.points - np.median(seen.points, axis=0)) / (spread + 1e-300)
    distance = np.linalg.norm(scaled, axis=1)
    outer = distance >= np.quantile(distance, 1 - OUTERMOST)
    return float(np.mean(np.einsum("nd,nd->n", scaled[outer], seen.gradients[outer] * spread) < 0))


def held_out(seen: Observations, seed: int = 0) -> np.ndarray:
    """Which rows to hold out, (n,): whole agents, never single rows, which their neighbours in time would give away.

    Agents are taken at random until they have a fifth of the rows. Where that leaves less than half of it, or more than
    twice, because a few agents have nearly all the rows, stretches of the record are taken instead.
    """
    if seen.agents is not None:
        agents = np.unique(seen.agents, return_inverse=True)[1]
        chosen = _taken(agents, seed)
        if HELD_OUT / 2 <= chosen.mean() <= 2 * HELD_OUT:
            return chosen
    return _taken(np.arange(len(seen)) * STRETCHES // len(seen), seed)


def _taken(units: np.ndarray, seed: int) -> np.ndarray:
    """Rows of units taken at random until they have their share."""
    sizes = np.bincount(units)
    order = np.random.default_rng(seed).permutation(len(sizes))
    before = np.cumsum(sizes[order]) - sizes[order]
    taken = np.zeros(len(sizes), bool)
    taken[order[before < HELD_OUT * len(units)]] = True
    return taken[units]
