"""z = L(x − c), y = L⁻ᵀg: coordinates in which points and noise are white.

cov(z) = I and the noise of y is uncorrelated, with precision δ: there the entries of a quadratic are independent. Both
covariances are robust. The noise is estimated from differences of successive residuals of one agent, in which R hardly
changes; without such pairs, from the residuals themselves, which also contain what a quadratic misses.
"""

from typing import NamedTuple

import numpy as np

__all__ = [
    "Frame",
    "Pairs",
    "Rows",
    "neighbours",
    "robust_frame",
    "sampled",
    "significantly_alike",
    "successive",
    "white",
]

# Rows of a sample; it is of whole agents if there are so many, and otherwise of so many stretches of rows.
MOST_ROWS, MANY_AGENTS, STRETCHES = 1 << 18, 100, 1000
# Points farther out than this many times the median distance count less in the points' covariance.
FAR = 2.0
# Rounds in which they are found, and the change of the logarithm of a variance that ends them.
ROUNDS, SETTLED = 12, 0.02
# Rows at most in nearest-neighbour pairs: their search takes a second.
MOST_NEIGHBOURS = 20_000
# Standard errors by which products of successive gradients must exceed zero.
ALIKE = 4.0
# Variances below this share of the largest are raised to it: points in a plane have no others.
LEAST_VARIANCE = 1e-10

Pairs = tuple[np.ndarray, np.ndarray]


class Frame(NamedTuple):
    """White coordinates.

    Attributes
    ----------
    centre
        c.
    forward
        L.
    backward
        L⁻¹.
    precision
        δ, the inverse variances of the noise of y.
    """

    centre: np.ndarray
    forward: np.ndarray
    backward: np.ndarray
    precision: np.ndarray

    def points(self, points: np.ndarray) -> np.ndarray:
        return ((points - self.centre) @ self.forward.T).astype(np.float32)

    def gradients(self, gradients: np.ndarray) -> np.ndarray:
        return (gradients @ self.backward).astype(np.float32)


class Rows(NamedTuple):
    """Rows in the frame.

    Attributes
    ----------
    z
        Points (n, dim).
    y
        Gradients (n, dim).
    weights
        Weights (n,).
    """

    z: np.ndarray
    y: np.ndarray
    weights: np.ndarray

    def at_most(self, count: int) -> "Rows":
        """So many rows, evenly chosen."""
        step = -(-len(self.z) // count)
        return Rows(*(part[::step] for part in self))


def sampled(
    points: np.ndarray,
    gradients: np.ndarray,
    held: np.ndarray,
    agents: np.ndarray | None,
    seed: int,
    most: int = MOST_ROWS,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    """At most about so many rows: whole agents, or stretches."""
    if len(points) <= most:
        return points, gradients, held, agents
    share = most / len(points)
    owners = None if agents is None else np.unique(agents, return_inverse=True)[1]
    if owners is None or owners.max() < MANY_AGENTS:
        owners = np.arange(len(points)) * STRETCHES // len(points)
    chosen = (np.random.default_rng(seed).random(owners.max() + 1) < share)[owners]
    return points[chosen], gradients[chosen], held[chosen], None if agents is None else agents[chosen]


def successive(agents: np.ndarray | None) -> Pairs | None:
    """Indices of successive rows of one agent."""
    if agents is None:
        return None
    order = np.argsort(agents, kind="stable")
    same = agents[order][1:] == agents[order][:-1]
    return (order[:-1][same], order[1:][same]) if same.any() else None


def neighbours(z: np.ndarray, agents: np.ndarray, seed: int) -> Pairs | None:
    """Pairs of nearest rows of different agents: their noise is independent, whatever their learners do."""
    # Imported here: it takes long, and most fits do without.
    from scipy.spatial import cKDTree

    chosen = np.random.default_rng(seed).permutation(len(z))[:MOST_NEIGHBOURS]
    near = cKDTree(z[chosen]).query(z[chosen], k=4)[1][:, 1:]
    other = agents[chosen][near] != agents[chosen][:, None]
    found = other.any(axis=1)
    if found.sum() < len(chosen) // 10:
        return None
    nearest = near[np.arange(len(chosen)), other.argmax(axis=1)]
    return chosen[found], chosen[nearest[found]]


def significantly_alike(gradients: np.ndarray, pairs: Pairs | None) -> bool:
    """Whether gradients of pairs are positively correlated: learners at rest or at large steps have the opposite."""
    if pairs is None or len(pairs[0]) < 100:
        return False
    away = gradients - np.median(gradients, axis=0)
    spread = np.median(np.abs(away), axis=0)
    # A coordinate that most gradients leave alone, such as that of a rare feature, tells nothing.
    known = spread > 0
    # Bounded, so that a few steep rows do not decide.
    bounded = np.clip(away[:, known] / spread[known], -3, 3)
    products = (bounded[pairs[0]] * bounded[pairs[1]]).sum(axis=1)
    return bool(products.mean() > ALIKE * products.std() / np.sqrt(len(products)))


def robust_frame(points: np.ndarray, gradients: np.ndarray, weights: np.ndarray, pairs: Pairs | None) -> Frame:
    """The frame of weighted rows; ``pairs`` of rows with independent noise and nearly the same gradient, if known."""
    centre = np.median(points, axis=0).astype(float)
    low, high = np.quantile(points, [0.1, 0.9], axis=0)
    scale = np.maximum((high - low) / 2.56, 1e-3 * np.maximum(points.std(axis=0, dtype=float), 1e-300))
    scaled = ((points - centre) / scale).astype(np.float32)
    near = np.ones(len(points))
    before = np.zeros(points.shape[1])
    for _ in range(ROUNDS):
        share = weights * near
        total = share.sum()
        shift = share @ scaled / total
        away = (scaled - shift.astype(np.float32)).astype(np.float32)
        covariance = ((away * share[:, None].astype(np.float32)).T @ away).astype(float) / total
        variance, axes = np.linalg.eigh(covariance)
        variance = np.maximum(variance, LEAST_VARIANCE * variance.max())
        distance = np.linalg.norm(away @ (axes / np.sqrt(variance)).astype(np.float32), axis=1)
        near = np.minimum(1, FAR * np.median(distance) / np.maximum(distance, 1e-12)) ** 2
        if near.mean() > 0.999 or np.abs(np.log(variance / np.maximum(before, 1e-300))).max() < SETTLED:
            break
        before = variance
    inward = (axes / np.sqrt(variance)) @ axes.T
    outward = (axes * np.sqrt(variance)) @ axes.T
    centre = centre + scale * shift
    z = away @ inward.astype(np.float32)
    y = (gradients * scale) @ outward
    left = y - _plain_quadratic(z, y, share)
    if pairs is not None:
        first, second = pairs
        noise = (left[first] - left[second]) / np.sqrt(2)
        share = np.minimum(weights[first], weights[second])
    else:
        noise, share = left, weights
    # Differences far beyond the usual are of steep places, not of noise.
    size = (noise**2).sum(axis=1)
    share = share * np.minimum(1, 4 * np.median(size) / np.maximum(size, 1e-300)) ** 2
    variance, turn = np.linalg.eigh((noise * share[:, None]).T @ noise / share.sum())
    variance = np.maximum(variance, 1e-8 * variance.max() + 1e-300)
    return Frame(centre, turn.T @ inward / scale, scale[:, None] * (outward @ turn), 1 / variance)


def _plain_quadratic(z: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Gradients (n, dim) of a weighted quadratic fit at white points."""
    total = weights.sum()
    mean = weights @ y / total
    across = ((z * weights[:, None]).T @ (y - mean)) / total
    return mean + z @ ((across + across.T) / 2)


def white(gradients: np.ndarray, precision: np.ndarray) -> np.ndarray:
    """Gradients in units of the noise."""
    return gradients * np.sqrt(precision).astype(np.float32)
