"""Checks for bad data that a fit cannot detect: wrong signs, duplicated rows, runaway learners, too few agents.

Gradients of the wrong sign can be fitted as well as the right ones. But agents that climb move along their gradients:
the cosine of θ_{k+1} − θ_k with g_k is near 1. Without agents, gradients at the outermost points should point inward,
because the reward falls off there.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from onlooker.core.messages import Message
from onlooker.data.marks import of_rows
from onlooker.data.observations import Observations

__all__ = [
    "DUPLICATES",
    "Limits",
    "about_number",
    "about_runaways",
    "about_steps",
    "agreement_with_steps",
    "fingerprints",
    "inspect",
    "pointing_inward",
    "usual_limits",
    "usual_rows",
]

# Share of the points that count as outermost, where the reward should fall off.
OUTERMOST = 0.05
# Share of inward gradients among them below which there is a warning; noise alone gives one half.
FEWEST_INWARD = 0.25
# Distance from the median beyond which a row is an outlier, in widths of the middle nine tenths, for points and for
# gradients. Gradients grow faster than points on the way out, so their limit is wider.
FARTHEST = 10.0
STEEPEST = 1000.0
# Number of rows that are processed at a time, to bound memory.
CHUNK = 1 << 18
# Share of duplicated rows above which there is a warning.
DUPLICATES = 0.01
# Standard deviation across a line or plane, in those of the coordinates, below which points are said to lie on it; the
# rows looked at; and the most coordinates.
FLATTEST, MOST_LOOKED_AT, MOST_AXES = 1e-3, 50_000, 200


def inspect(seen: Observations, closed: bool = False) -> tuple[Observations, list[Message]]:
    """Return the observations without duplicates and outliers, and warnings; raise if no reconstruction is possible.

    With ``closed``, coordinates lie in an interval and the reward need not fall off at its ends.
    """
    flat = np.flatnonzero(np.ptp(seen.points, axis=0) == 0)
    if len(flat) == seen.dim:
        raise ValueError("points are all equal; a reward cannot be reconstructed from a single point.")
    if len(seen) <= seen.dim:
        raise ValueError(f"points has {len(seen)} rows of {seen.dim} dimensions; give more rows, or fewer coordinates.")
    if len(flat):
        raise ValueError(f"points never move along coordinate {flat[0]}; leave it out.")
    warnings: list[Message] = []
    seen, runaway = _without_runaways(seen)
    if runaway:
        warnings.append(about_runaways(runaway, len(seen) + runaway))
    total = len(seen)
    seen = _unique(seen)
    if total - len(seen) > DUPLICATES * total:
        text = (
            f"{total - len(seen)} of {total} observations are duplicates and were dropped: counted twice they would "
            "make error bars too small."
        )
        warnings.append(Message("rows-duplicated", text, {"dropped": total - len(seen), "rows": total}))
    if not np.ptp(seen.gradients, axis=0).any():
        text = "gradients are all equal: as far as was seen the reward is a plane without a maximum."
        warnings.append(Message("gradients-equal", text))
    elif not (seen.trainer is not None and seen.trainer.recorded):
        # The sign of what a recorder reads is known; a learner with momentum may well move against it.
        warnings += _warn_about_sign(seen, closed)
    warnings += _warn_about_flatness(seen)
    if seen.agents is not None:
        warnings += about_number(len(np.unique(seen.agents)), seen.dim)
    return seen, warnings


def about_runaways(left_out: int, rows: int) -> Message:
    """The warning that some of these rows were outliers and left out."""
    text = (
        f"{left_out} of {rows} observations are of learners that ran away ({FARTHEST:g} times as far "
        f"out as nine tenths of the points, or with gradients {STEEPEST:g} times theirs) and were left out: their "
        "learning rate is too large there."
    )
    return Message("rows-runaway", text, {"left_out": left_out, "rows": rows})


def about_number(agents: int, dim: int) -> list[Message]:
    """A warning if there are fewer agents than coefficients of a quadratic in this dimension."""
    needed = dim * (dim + 3) // 2
    if agents >= needed:
        return []
    text = (
        f"there are fewer agents ({agents}) than coefficients of a quadratic in dimension {dim} ({needed}): "
        "watch more agents, or fewer coordinates."
    )
    return [Message("agents-few", text, {"agents": agents, "coefficients": needed})]


def _warn_about_flatness(seen: Observations) -> list[Message]:
    """A warning if all points lie on a line or a plane, or nearly: where R̂ is not on it, it is made up."""
    if seen.dim < 2 or seen.dim > MOST_AXES:
        return []
    few = seen.points[:: max(1, len(seen) // MOST_LOOKED_AT)].astype(float)
    size = np.linalg.eigvalsh(np.corrcoef(few.T))
    thin = size <= FLATTEST**2
    if not thin.any() or len(few) <= 2 * seen.dim:
        return []
    left = seen.dim - int(np.count_nonzero(thin))
    what = {1: "a line", 2: "a plane"}.get(left, f"a flat part of {left} dimensions")
    width = float(np.sqrt(max(size[0], 0)))
    text = (
        f"the points lie on {what}, or within {width:.1g} of it where they spread by 1: R̂ is known there alone, and "
        "nothing is known of what learners would do beside it. Watch learners that start elsewhere, or give "
        "coordinates along it."
    )
    return [Message("points-flat", text, {"dimensions": left, "width": width})]


def usual_rows(points: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    """Mask (n,) of the rows that are not outliers. This is the only outlier rule: offline, live and for jumps.

    A point is an outlier if it is more than FARTHEST widths of the middle nine tenths away from the median of a
    coordinate, a gradient beyond STEEPEST. Such learners diverged, because their learning rate is too large there.
    """
    return usual_limits(points, gradients).hold(points, gradients)


class Limits(NamedTuple):
    """Median and largest distance from it, (2·dim,) each: the coordinates of the points, then of the gradients."""

    middle: np.ndarray
    reach: np.ndarray

    def hold(self, points: np.ndarray, gradients: np.ndarray) -> np.ndarray:
        """Mask (n,) of the rows within the limits."""
        inside = np.ones(len(points), bool)
        # Column by column, so that no array of the full size is created.
        for column, middle, reach in zip((*points.T, *gradients.T), self.middle, self.reach, strict=True):
            inside &= np.abs(column - middle) <= reach
        return inside


def usual_limits(points: np.ndarray, gradients: np.ndarray) -> Limits:
    """The limits that `usual_rows` applies, computed from these rows, for later rows."""
    limits = []
    for values, factor in ((points, FARTHEST), (gradients, STEEPEST)):
        for column in values.T:
            low, middle, high = np.quantile(column, [0.05, 0.5, 0.95])
            limits.append((middle, factor * (high - low if high > low else np.inf)))
    return Limits(*np.array(limits, float).T)


def _without_runaways(seen: Observations) -> tuple[Observations, int]:
    """Observations without outliers, and the number of rows left out."""
    usual = usual_rows(seen.points, seen.gradients)
    return (seen, 0) if usual.all() else (_rows(seen, np.flatnonzero(usual)), int(np.count_nonzero(~usual)))


def _rows(seen: Observations, rows: np.ndarray) -> Observations:
    return replace(
        seen,
        points=seen.points[rows],
        gradients=seen.gradients[rows],
        agents=None if seen.agents is None else seen.agents[rows],
        times=None if seen.times is None else seen.times[rows],
        rows=rows if seen.rows is None else seen.rows[rows],
        marks=of_rows(seen.marks, rows),
    )


def _unique(seen: Observations) -> Observations:
    # Testing whether there are any duplicates is faster, and takes less memory, than finding them.
    ordered = fingerprints(seen)
    ordered.sort()
    if (ordered[1:] != ordered[:-1]).all():
        return seen
    _, first = np.unique(fingerprints(seen), return_index=True)
    return _rows(seen, np.sort(first))


def fingerprints(seen: Observations) -> np.ndarray:
    """64-bit hashes (n,) of the rows, which sort faster than rows; different rows collide with probability 2⁻⁶⁴."""
    hashes = np.zeros(len(seen), np.uint64)
    for values in (seen.points, seen.gradients):
        for column in values.T:
            hashes ^= column.astype(float).view(np.uint64)
            # One step of splitmix64.
            hashes += np.uint64(0x9E3779B97F4A7C15)
            hashes ^= hashes >> np.uint64(30)
            hashes *= np.uint64(0xBF58476D1CE4E5B9)
            hashes ^= hashes >> np.uint64(27)
    if seen.agents is not None:
        # An agent with a zero gradient does not move: its rows are equal but not duplicates.
        still = np.flatnonzero(~seen.gradients.any(axis=1))
        when = still.astype(float) if seen.times is None else seen.times[still].astype(float)
        hashes[still] += when.view(np.uint64)
    return hashes


def _warn_about_sign(seen: Observations, closed: bool) -> list[Message]:
    along = agreement_with_steps(seen)
    if along is not None:
        return about_steps(along)
    inward = 1.0 if closed else pointing_inward(seen)
    if inward < FEWEST_INWARD:
        text = (
            f"at the outermost points only {inward:.0%} of the gradients point inward: if the reward falls off out "
            "there, their sign is wrong. Pass descent=True for a loss's gradients."
        )
        return [Message("sign-doubtful", text, {"inward": inward})]
    return []


def about_steps(along: np.ndarray) -> list[Message]:
    """A warning if agents, by the mean cosine (agents,) of their steps with their gradients, move against these."""
    if np.median(along) < 0:
        cosine = float(np.median(along))
        text = (
            f"agents move against their gradients (cosine {cosine:.2f}): these look like a loss's "
            "gradients. Pass descent=True (or leave it out, if passed); as it stands the reward is upside down."
        )
        return [Message("sign-reversed", text, {"cosine": cosine})]
    flipped = int(np.count_nonzero(along < -0.3))
    if flipped:
        text = (
            f"{flipped} of {len(along)} agents move against their gradients: their sign, or their optimizer, "
            "differs from the others'. Leave them out."
        )
        return [Message("sign-mixed", text, {"reversed": flipped, "agents": len(along)})]
    return []


def agreement_with_steps(seen: Observations) -> np.ndarray | None:
    """Mean cosine of each agent's steps with its gradients; ``None`` if agents are unknown or have one row each."""
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
    """Share of the outermost points whose gradient points to the centre."""
    spread = seen.points.std(axis=0, dtype=float)
    scaled = (seen.points - np.median(seen.points, axis=0)) / (spread + 1e-300)
    distance = np.linalg.norm(scaled, axis=1)
    outer = distance >= np.quantile(distance, 1 - OUTERMOST)
    return float(np.mean(np.einsum("nd,nd->n", scaled[outer], seen.gradients[outer] * spread) < 0))
