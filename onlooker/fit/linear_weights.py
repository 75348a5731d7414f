"""Aw = b solved: weights, their jackknife errors, directions that nothing shows, and whether w·ψ is what agents climb.

    away₍ᵢ₎ = w₍₋ᵢ₎ − mean,   cov w = (n − 1)/n Σ away away′,   degrees of v = away·d: (Σv²)²/Σv⁴

The jackknife leaves out rows, or whole agents once a misfit shows, and holds whatever the noise within a row. A
direction v is unidentified if Jv = 0 at all rows; with Jacobians that were rolled out, if vᵀAv is not significantly
positive. Then only d·w with d ⟂ v has a number. Where A hardly rises above the noise of the Jacobians, intervals are
those of Anderson and Rubin: all w whose scores Σ bᵢ − Aᵢw are within their own error of zero.

The misfit test: residuals r = g − Jw of rows of one agent, one to three steps apart, are independent if w·ψ is right:
z = Σ rᵢ·rⱼ over its root sum of squares is standard normal, and 1 − Σ rᵢ·rⱼ / Σ gᵢ·gⱼ is the share explained.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri, stdtrit

from onlooker.fit.linear import LinearSums
from onlooker.fit.linear_directions import directions_of, moments, reliability_of
from onlooker.fit.linear_rates import with_rates

__all__ = ["SETTINGS", "WeightSettings", "Weights", "solve_weights"]


@dataclass(frozen=True)
class WeightSettings:
    """Constants of the solution.

    Attributes
    ----------
    seen
        Standard errors by which Σ gᵢ·gⱼ must exceed zero for a share to be explained.
    part
        Share of a contrast in an unidentified direction that makes it nan.
    sure
        p-value of the misfit test (two-sided) below which whole agents are left out in turn.
    fewest_agents
        Number of agents from which they can be.
    many_agents
        Number of agents with unknown rates from which they are: each rate is fitted anew without the others.
    tested
        Share of the variance of the misfit's sum that the error of w may have: it is itself a misfit that rows share.
    reliable
        Reliability below which intervals are those of Anderson and Rubin.
    values
        Number of coordinates of gradients that the noise of all agents, their geometric mean, counts in that of each.
    """

    seen: float = 3.3
    part: float = 1e-6
    sure: float = 0.01
    fewest_agents: int = 5
    many_agents: int = 8
    tested: float = 0.5
    reliable: float = 0.3
    values: float = 4.0


SETTINGS = WeightSettings()
# Turns in which the free directions of a score test and its variance settle.
TURNS = 4


@dataclass(frozen=True)
class Weights:
    """Weights w of features and all that is known about them.

    Attributes
    ----------
    values
        (k,): w, without any part in unidentified directions.
    covariance
        (k, k): its covariance.
    basis, unidentified
        (k, r) and (k, k − r): orthonormal directions of w that the rows show, and those that they do not.
    away
        (n, k): what leaving each unit out moves.
    scores, slopes
        (n, r) and (n, r, r): b and A of each unit in the basis.
    explained, explained_error
        Share of |∇R|² that w·ψ explains, and its standard error; nan if no gradient is seen through the noise.
    misfit
        z of the misfit test; nan without two rows of one agent.
    reliability
        Share of A that is not noise of the Jacobians, in the direction where it is smallest; 1 if they are exact.
    noise
        Mean squared residual in units of D.
    left
        Share of gᵀDg that residuals have.
    rates, agents
        (m,) learning rates of agents, of mean one, if unknown, and the agents' names.
    by_agent
        Whether whole agents were left out.
    weak
        Whether some directions are unidentified only because the Jacobians are too noisy.
    """

    values: np.ndarray
    covariance: np.ndarray
    basis: np.ndarray
    unidentified: np.ndarray
    away: np.ndarray
    scores: np.ndarray
    slopes: np.ndarray
    explained: float
    explained_error: float
    misfit: float
    reliability: float
    noise: float
    left: float
    by_agent: bool
    weak: bool = False
    rates: np.ndarray | None = None
    agents: np.ndarray | None = None

    def lost(self, directions: np.ndarray) -> np.ndarray:
        """Whether each direction d (m, k) has a part in an unidentified one."""
        part = np.linalg.norm(directions @ self.unidentified, axis=1)
        return part > SETTINGS.part * np.linalg.norm(directions, axis=1)

    def contrast(self, directions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """d·w and its standard error for directions (m, k); nan where nothing was seen of a part of d."""
        error = np.sqrt(np.maximum(np.einsum("ik,kl,il->i", directions, self.covariance, directions), 0))
        lost = self.lost(directions)
        return np.where(lost, np.nan, directions @ self.values), np.where(lost, np.nan, error)

    def degrees(self, directions: np.ndarray) -> np.ndarray:
        """Degrees of freedom of the error: few rows may carry all that is known."""
        moved = (self.away @ directions.T) ** 2
        total = (moved**2).sum(axis=0)
        return np.maximum(moved.sum(axis=0) ** 2 / np.where(total > 0, total, 1), 2)

    def interval(self, directions: np.ndarray, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Confidence limits of d·w for directions (m, k); infinite where the Jacobians are too noisy to bound it."""
        value, error = self.contrast(directions)
        times = stdtrit(self.degrees(directions), 0.5 + level / 2)
        if self.reliability >= SETTINGS.reliable:
            return value - times * error, value + times * error
        limits = np.array(
            [
                self._limits(direction, one, width, edge) if np.isfinite(one) else (np.nan, np.nan)
                for direction, one, width, edge in zip(directions, value, error, times, strict=True)
            ]
        )
        return limits[:, 0], limits[:, 1]

    def _limits(self, direction: np.ndarray, value: float, width: float, edge: float) -> tuple[float, float]:
        """All values c of d·w for which the scores of some w with d·w = c are within their error of zero."""
        along = direction @ self.basis
        start, toward = self.basis.T @ self.values, along / (along @ along)
        free = np.linalg.svd(along[None])[2][1:].T

        def accepted(change: float) -> bool:
            return self._score_test(start + change * toward, free) <= edge**2

        return value - _reach(lambda far: accepted(-far), width), value + _reach(accepted, width)

    def _score_test(self, place: np.ndarray, free: np.ndarray) -> float:
        """S′V⁻¹S of the scores at ``place``, minimised over the free directions."""
        total_slope, n = self.slopes.sum(axis=0), len(self.scores)
        moved = total_slope @ free
        for turn in range(TURNS + 1):
            score = self.scores - self.slopes @ place
            total = score.sum(axis=0)
            centred = score - total / n
            inverse = np.linalg.pinv(centred.T @ centred * n / max(n - len(place), 1), hermitian=True)
            if turn == TURNS or not free.shape[1]:
                return float(total @ inverse @ total)
            place = place + free @ np.linalg.lstsq(moved.T @ inverse @ moved, moved.T @ inverse @ total, rcond=None)[0]
        raise AssertionError


def _reach(accepted: Callable[[float], bool], width: float) -> float:
    """How far from zero a value is accepted: outward by doubling, then halving; infinite if always."""
    near, far = 0.0, max(width, 1e-12)
    for _ in range(24):
        if not accepted(far):
            break
        near, far = far, 2 * far
    else:
        return np.inf
    for _ in range(14):
        middle = (near + far) / 2
        near, far = (middle, far) if accepted(middle) else (near, middle)
    return (near + far) / 2


def solve_weights(sums: LinearSums, rates_unknown: bool = False, *, by_agent: bool = False) -> Weights:
    """Solve for the weights.

    Parameters
    ----------
    sums
        The sums.
    rates_unknown
        Whether the gradients of each agent are in units of a learning rate of its own.
    by_agent
        Whether whole agents are left out in turn for the errors; default: only once a misfit shows.
    """
    exact = sums.parts == 1
    labels, agents = np.unique(sums.agents, return_inverse=True)
    row = np.ones(len(sums))
    basis, unseen, weak = directions_of(sums)
    rates = np.ones(len(labels))
    for turn in range(3 if exact else 1):
        a, b = _within(sums, row, basis)
        u, rates = with_rates(a, b, agents) if rates_unknown else (_solved(a.sum(axis=0), b.sum(axis=0)), rates)
        left = _residuals(sums, basis @ u, rates[agents])
        if exact and turn < 2:
            # Estimated Jacobians have noise that residuals share; weights of agents would be made of it.
            row = _agent_weights(sums, left, agents)
    w, factor = basis @ u, rates[agents]
    own_rates = _without_agents(a, b, agents, u) if rates_unknown and len(labels) >= SETTINGS.many_agents else None
    a, b = a * factor[:, None, None] ** 2, b * factor[:, None]
    away = _without_each(a, b) if own_rates is None else own_rates
    reliability = 1.0 if exact else reliability_of(sums, basis)
    if weak:
        # What was left out may be climbed: residuals say nothing.
        found = Agreement(np.nan, np.nan, np.nan)
    else:
        found = _agreement(sums, w, basis @ _covariance(away) @ basis.T, factor, row)
    by_agent = by_agent or bool(abs(found.z) > -ndtri(SETTINGS.sure / 2))
    by_agent = by_agent and len(labels) >= SETTINGS.fewest_agents
    if own_rates is None and by_agent:
        a, b = _summed(a, agents), _summed(b, agents)
        away = _without_each(a, b)
    return Weights(
        w,
        basis @ _covariance(away) @ basis.T,
        basis,
        unseen,
        away @ basis.T,
        b,
        a,
        found.share,
        found.error,
        found.z,
        reliability,
        float(left.sum() / max(sums.count * sums.dim, 1)),
        float(left.sum() / max(sums.powers.sum(), 1e-300)),
        by_agent or own_rates is not None,
        weak,
        rates if rates_unknown else None,
        sums.names[labels],
    )


def _covariance(away: np.ndarray) -> np.ndarray:
    return (len(away) - 1) / len(away) * away.T @ away


def _within(sums: LinearSums, row: np.ndarray, basis: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    a, b = moments(sums)
    return row[:, None, None] * (basis.T @ a @ basis), row[:, None] * (b @ basis)


def _solved(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    try:
        return np.linalg.solve(a, b)
    except np.linalg.LinAlgError:
        return np.linalg.lstsq(a, b, rcond=None)[0]


def _residuals(sums: LinearSums, w: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """(n,): rᵀDr of each row."""
    square = np.einsum("k,nkl,l->n", w, sums.plain, w)
    return np.maximum(sums.powers - 2 * factor * (sums.targets @ w) + factor**2 * square, 0)


def _agent_weights(sums: LinearSums, left: np.ndarray, agents: np.ndarray) -> np.ndarray:
    """(n,): one over the noise of each row's agent, of mean one."""
    total, count = np.bincount(agents, left), np.bincount(agents, sums.counts) * sums.dim
    if not total.any():
        return np.ones(len(left))
    each = np.maximum(total / count, 1e-12 * total.max() / count.max())
    usual = np.exp(np.average(np.log(each), weights=count))
    row = ((count + SETTINGS.values) / (total + SETTINGS.values * usual))[agents]
    return row / row.mean()


def _summed(values: np.ndarray, units: np.ndarray) -> np.ndarray:
    total = np.zeros((units.max() + 1, *values.shape[1:]))
    np.add.at(total, units, values)
    return total


def _without_each(slopes: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """(n, r): how far w moves when each unit is left out, less the mean of it."""
    a, b = slopes.sum(axis=0) - slopes, scores.sum(axis=0) - scores
    try:
        found = np.linalg.solve(a, b[..., None])[..., 0]
    except np.linalg.LinAlgError:
        found = np.stack([np.linalg.lstsq(one, two, rcond=None)[0] for one, two in zip(a, b, strict=True)])
    return found - found.mean(axis=0)


def _without_agents(a: np.ndarray, b: np.ndarray, agents: np.ndarray, u: np.ndarray) -> np.ndarray:
    """The same for agents with rates of their own, in the direction of w: its length is not known."""
    found = []
    for agent in range(agents.max() + 1):
        kept = agents != agent
        one, _ = with_rates(a[kept], b[kept], np.unique(agents[kept], return_inverse=True)[1])
        found.append(one * np.linalg.norm(u) / np.linalg.norm(one))
    moved = np.array(found)
    return moved - moved.mean(axis=0)


class Agreement(NamedTuple):
    """z of the misfit test, the share explained, and its standard error."""

    z: float
    share: float
    error: float


def _agreement(
    sums: LinearSums, w: np.ndarray, covariance: np.ndarray, factor: np.ndarray, row: np.ndarray
) -> Agreement:
    if not (sums.pairs > 0).any():
        return Agreement(np.nan, np.nan, np.nan)
    square = np.einsum("k,nkl,l->n", w, sums.lag_products, w)
    same = row * (sums.lag_powers - factor * (sums.lag_targets @ w) + factor**2 * square)
    every = row * sums.lag_powers
    # With estimated Jacobians, w − ŵ is a misfit that rows share: δ′Lδ has variance 2 tr (L cov w)².
    moved = np.tensordot(row * factor**2, sums.lag_products, 1) @ covariance if sums.parts > 1 else np.zeros((1, 1))
    own, shared = float((same**2).sum()), 2 * float(np.trace(moved @ moved))
    if shared > SETTINGS.tested * (own + shared):
        return Agreement(np.nan, np.nan, np.nan)
    spread = np.sqrt(own + shared)
    z = float(same.sum() / spread) if spread > 0 else 0.0
    # Where gradients do not agree with later ones, as at rest, nothing can be said about a share.
    if every.sum() <= SETTINGS.seen * np.sqrt((every**2).sum()):
        return Agreement(z, np.nan, np.nan)
    return Agreement(z, float(1 - same.sum() / every.sum()), float(spread / every.sum()))
