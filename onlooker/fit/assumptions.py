"""r = g − ∇R̂(θ): what a fit leaves, and whether it is noise. If not, is it curl, agents that disagree, or misfit?

Noise of a row is independent of its place and of earlier rows. So three sums over agents have mean zero if R̂ is right:

    left      Σ rₜ·rₜ₊ₖ over rows of an agent that are one to three steps apart
    curl      Σ r·a over half of the agents, a a field that is no gradient, learnt from the other half
    dissent   Σ r·r′ over pairs of rows of one agent in one cell, less the same over pairs of different agents

Each is divided by its standard error, from the agents' own sums, and by what R̂ explains, which makes it a share. Points
are white (cov z = I) and gradients are in units of their noise. The field a is made orthogonal to gradients of smooth
functions, so that a fit which is too smooth has no curl. Curl is said before dissent: learners that rotate disagree.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import stdtr

from onlooker.core.blas import numpy_threads
from onlooker.core.messages import Message
from onlooker.fit.box import Box
from onlooker.fit.cosine_fit import CosineFit
from onlooker.fit.cosine_sums import CosineSums
from onlooker.fit.groups import Split
from onlooker.fit.random_cosines import Metric, cosines
from onlooker.fit.ridge_frame import Rows, robust_frame, sampled, significantly_alike, successive
from onlooker.fit.ridge_system import solve
from onlooker.fit.ridge_units import gather, predicted

__all__ = ["SETTINGS", "AssumptionSettings", "Found", "Score", "about_assumptions", "examined"]


@dataclass(frozen=True)
class AssumptionSettings:
    """Constants of the tests.

    Attributes
    ----------
    rows
        Rows at most: they show shares of a hundredth, in a third of a second.
    lags
        Steps between rows whose residuals are compared.
    sure
        p-value below which a test fires.
    left, curl, dissent
        Shares of what R̂ explains above which there is a warning: below them R̂ is hardly wrong, and small misfits of
        any fit would be mentioned.
    fewest_agents
        Number of agents, or of stretches of rows, from which sums over agents have a standard error.
    cells
        Cells of white space in which rows of one agent are compared with rows of others.
    orders
        Cosines per axis, by dimension, of the smooth gradients that a field without a potential is orthogonal to.
    waves, length
        Random cosines in their place above three dimensions, and their length in standard deviations.
    full
        Dimension up to which the whole antisymmetric matrix is used, and its strongest planes beyond.
    planes
        Number of these planes.
    """

    rows: int = 1 << 15
    lags: tuple[int, ...] = (1, 2, 3)
    sure: float = 0.01
    left: float = 0.05
    curl: float = 0.005
    dissent: float = 0.02
    fewest_agents: int = 10
    cells: int = 128
    orders: tuple[int, ...] = (0, 24, 14, 7)
    waves: int = 192
    length: float = 3.2
    full: int = 6
    planes: int = 2


SETTINGS = AssumptionSettings()


class Score(NamedTuple):
    """A sum over agents that has mean zero if an assumption holds.

    Attributes
    ----------
    share
        The sum over what R̂ explains.
    chance
        Its p-value.
    """

    share: float
    chance: float

    def fires(self, least: float) -> bool:
        """Whether it is neither small nor chance."""
        return self.share > least and self.chance < SETTINGS.sure


class Found(NamedTuple):
    """The tests; ``None`` where one is not possible.

    Attributes
    ----------
    left
        What agents follow that is neither R̂ nor noise.
    curl
        What has no potential.
    dissent
        What agents do not share.
    """

    left: Score | None
    curl: Score | None
    dissent: Score | None

    @property
    def numbers(self) -> dict[str, float]:
        """Shares, by the names they have among diagnostics."""
        names = {"left": "unexplained_share", "curl": "curl_share", "dissent": "dissent_share"}
        return {name: getattr(self, part).share for part, name in names.items() if getattr(self, part) is not None}


class Left(NamedTuple):
    """What a fit leaves, in white coordinates.

    Attributes
    ----------
    z
        Points (n, dim).
    y
        What is left of the gradients (n, dim).
    explained
        Gradients of R̂ (n, dim).
    weights
        Weight (n,) of each row.
    metric
        Weight (dim,) of each coordinate of a gradient: the precision of its noise.
    agents
        Number (n,) of each row's agent.
    known
        Whether agents are known; otherwise they are stretches of rows.
    """

    z: np.ndarray
    y: np.ndarray
    explained: np.ndarray
    weights: np.ndarray
    metric: np.ndarray
    agents: np.ndarray
    known: bool

    @property
    def dim(self) -> int:
        return self.z.shape[1]

    @property
    def size(self) -> int:
        """Number of agents."""
        return int(self.agents.max()) + 1

    @property
    def rooted(self) -> np.ndarray:
        """What is left (n, dim), times the roots of both weights."""
        return self.y * np.sqrt(self.weights)[:, None] * np.sqrt(self.metric)

    def total(self, field: np.ndarray) -> float:
        """Σ of the weighted squares of a field (n, dim)."""
        return float(self.weights @ (field**2 @ self.metric))

    def by_agent(self, values: np.ndarray) -> np.ndarray:
        """Sums over the rows of each agent."""
        return np.bincount(self.agents, values, self.size)


@numpy_threads()
def examined(
    points: np.ndarray,
    gradients: np.ndarray,
    agents: np.ndarray | None,
    fit: Any,
    seed: int = 0,
    stretches: int = 100,
) -> Found:
    """The tests on rows (n, dim), of which a sample is used; without agents only curl can be tested, over stretches.

    Parameters
    ----------
    points
        Points (n, dim).
    gradients
        Gradients (n, dim).
    agents
        The agent (n,) of each row, if they are known.
    fit
        The fit, with a ``gradient`` and perhaps with ``weights`` (see `onlooker.fit.jumps.expected.residuals_of`).
    seed
        Seed of the sample, the halves and the cells.
    stretches
        Number of stretches of rows that stand for agents if these are not known.
    """
    left = _left(points, gradients, agents, fit, seed, stretches)
    if left.size < SETTINGS.fewest_agents:
        return Found(None, None, None)
    generator = np.random.default_rng(seed)
    if not left.known:
        return Found(None, _curl(left, generator), None)
    return Found(_lagged(left), _curl(left, generator), _dissent(left, generator))


def _left(
    points: np.ndarray, gradients: np.ndarray, agents: np.ndarray | None, fit: Any, seed: int, stretches: int
) -> Left:
    everything = np.zeros(len(points), bool)
    points, gradients, _, agents = sampled(points, gradients, everything, agents, seed, SETTINGS.rows)
    points, gradients = points.astype(float), gradients.astype(float)
    known = agents is not None
    owners = np.arange(len(points)) * stretches // len(points) if agents is None else agents
    owners = np.unique(owners, return_inverse=True)[1]
    weights = getattr(fit, "weights", None)
    weigh = np.ones(len(points)) if weights is None else weights(points, gradients) ** 2
    frame = robust_frame(points, gradients, weigh, successive(agents))
    explained = fit.gradient(points)
    z, y, smooth = frame.points(points), frame.gradients(gradients - explained), frame.gradients(explained)
    metric = frame.precision / frame.precision.mean()
    z, y, smooth = (part.astype(float) for part in (z, y, smooth))
    return Left(z, y, smooth, weigh, metric, owners, known)


def _score(sums: np.ndarray, explained: float) -> Score | None:
    """The score of a sum over agents, from each agent's part (n,)."""
    sums = sums[sums != 0]
    if len(sums) < SETTINGS.fewest_agents or not explained > 0:
        return None
    total, error = float(sums.sum()), float(np.sqrt((sums**2).sum()))
    return Score(float(total / explained), float(stdtr(len(sums) - 1, -total / error)))


def _lagged(left: Left) -> Score | None:
    """Products of what is left of rows one to three steps apart; None if gradients do not stay alike so long."""
    pairs = successive(left.agents)
    whole = left.y + left.explained
    if pairs is None or not significantly_alike(whole, pairs):
        return None
    order = np.argsort(left.agents, kind="stable")
    rooted, owners = left.rooted[order], left.agents[order]
    full = (whole * np.sqrt(left.weights)[:, None] * np.sqrt(left.metric))[order]
    sums, explained = np.zeros(left.size), 0.0
    for lag in SETTINGS.lags:
        same = owners[lag:] == owners[:-lag]
        sums += np.bincount(owners[lag:][same], (rooted[lag:] * rooted[:-lag]).sum(axis=1)[same], left.size)
        explained += float((full[lag:] * full[:-lag]).sum(axis=1)[same].sum())
    return _score(sums, explained)


def _curl(left: Left, generator: np.random.Generator) -> Score | None:
    """A field without a potential that is learnt from half of the agents, on the other half."""
    if left.dim == 1:
        return None
    first = (generator.permutation(left.size) % 2 == 0)[left.agents]
    fields = _turning(left) if left.dim < len(SETTINGS.orders) else None
    sums = np.zeros(left.size)
    for half in (first, ~first):
        if fields is None:
            field = _without_potential(left, _rotation(left, half))
        else:
            weighted = fields * (left.weights[:, None] * left.metric)
            normal = np.einsum("pni,qni->pq", weighted[:, half], fields[:, half])
            towards = np.einsum("pni,ni->p", weighted[:, half], left.y[half])
            normal += 1e-9 * np.trace(normal) * np.eye(len(normal))
            field = np.tensordot(np.linalg.solve(normal, towards), fields, 1)
        along = left.weights * ((left.y * field) @ left.metric)
        sums += left.by_agent(np.where(half, 0.0, along))
    return _score(sums, left.total(left.explained))


def _turning(left: Left) -> np.ndarray:
    """Fields (fields, n, dim) that turn in each plane, evenly and more on one side, without their smooth gradients."""
    z, dim = left.z, left.dim
    fading = np.exp(-(z**2).sum(axis=1) / (8 * dim))
    fields = []
    for one in range(dim):
        for other in range(one):
            turning = np.zeros_like(z)
            turning[:, one], turning[:, other] = -z[:, other] * fading, z[:, one] * fading
            fields += [turning, *(turning * z[:, [axis]] for axis in range(dim))]
    low, high = z.min(axis=0), z.max(axis=0)
    box = Box(low - 0.1 * (high - low), high + 0.1 * (high - low))
    order, root = SETTINGS.orders[dim], np.sqrt(left.metric)
    kept, factor = [], None
    for field in fields:
        # Cosines in coordinates in which every gradient has the same noise.
        sums = CosineSums(Box(box.low / root, box.high / root), order)
        sums.add(z / root, field * root, left.weights)
        if factor is None:
            normal = sums.normal_matrix()
            factor = cho_factor(normal + 1e-7 * np.trace(normal) / len(normal) * np.eye(len(normal)))
        found = np.concatenate([[0.0], cho_solve(factor, sums.towards.reshape(-1)[1:])]).reshape((order,) * dim)
        smooth = CosineFit(sums.box, found, factor, 0.0, 0.0, 0.0, 0.0, "").gradient(z / root)
        kept.append(field - smooth / root)
    return np.stack(kept)


def _rotation(left: Left, half: np.ndarray) -> np.ndarray:
    """S z (n, dim), S the antisymmetric matrix closest to what is left of half the rows, or its strongest planes."""
    z, weights = left.z[half], left.weights[half]
    across = (left.y[half] * weights[:, None]).T @ z / weights.sum()
    turning = (across - across.T) / 2
    if left.dim > SETTINGS.full:
        out, size, inward = np.linalg.svd(turning)
        # Singular values of an antisymmetric matrix come in pairs.
        few = 2 * SETTINGS.planes
        turning = (out[:, :few] * size[:few]) @ inward[:few]
        turning = (turning - turning.T) / 2
    return left.z @ turning.T


def _without_potential(left: Left, field: np.ndarray) -> np.ndarray:
    """A field (n, dim) less the gradient of a quadratic and random cosines that is nearest to it."""
    units = cosines(Metric(np.eye(left.dim)), SETTINGS.length, SETTINGS.waves, 0)
    rows = Rows(*(np.asarray(part, np.float32) for part in (left.z, field, left.weights)))
    sums = gather(units, *rows)
    _, head = solve(sums, sums, units, left.metric)
    return field - predicted(head.affine, units, head.weights, rows.z)


def _dissent(left: Left, generator: np.random.Generator) -> Score | None:
    """Pairs of rows of one agent in a cell, less pairs of different agents there."""
    # Imported here: it takes long, and other tests do without.
    from scipy.spatial import cKDTree

    centres = left.z[generator.choice(len(left.z), min(SETTINGS.cells, len(left.z)), replace=False)]
    cell = cKDTree(centres).query(left.z)[1]
    key, stay = np.unique(left.agents * len(centres) + cell, return_inverse=True)
    agent, place = key // len(centres), key % len(centres)
    rooted = left.rooted
    rows = np.bincount(stay).astype(float)
    squares = np.bincount(stay, (rooted**2).sum(axis=1))
    sums = np.stack([np.bincount(stay, column) for column in rooted.T], axis=1)
    within, pairs = (sums**2).sum(axis=1) - squares, rows * (rows - 1)
    size = len(centres)
    together = np.stack([np.bincount(place, column, size) for column in sums.T], axis=1)
    between = (together**2).sum(axis=1) - np.bincount(place, (sums**2).sum(axis=1), size)
    other_pairs = np.bincount(place, rows, size) ** 2 - np.bincount(place, rows**2, size)
    shared = np.divide(between, other_pairs, out=np.zeros(size), where=other_pairs > 0)
    fit = other_pairs[place] > 0
    apart = np.bincount(agent[fit], (within - pairs * shared[place])[fit], left.size)
    explained = left.total(left.explained) / len(left.z) * pairs[fit].sum()
    return _score(apart, explained)


def about_assumptions(found: Found, split: Split | None = None) -> list[Message]:
    """The warning that says most: curl before dissent, and either before what is merely left.

    Parameters
    ----------
    found
        The tests.
    split
        Groups in which agents disagree less.
    """
    if found.curl is not None and found.curl.fires(SETTINGS.curl):
        text = (
            f"agents follow a field that turns in circles, {found.curl.share:.1%} as strong as what R̂ explains: no "
            "reward has such gradients. R̂ is the reward that comes closest. Clipping, surrogate losses, and agents "
            "that react to each other have this effect."
        )
        return [Message("field-turns", text, {"share": found.curl.share, "chance": found.curl.chance})]
    if found.dissent is not None and found.dissent.fires(SETTINGS.dissent):
        text = (
            f"agents disagree: {found.dissent.share:.1%} of what R̂ explains is followed by single agents and not by "
            "others at the same places. R̂ is a mean of their rewards. "
        )
        if split is None:
            text += "Reconstruct groups of agents apart."
        else:
            few = int(split.groups.sum())
            text += f"{few} of {len(split.groups)} agents follow another one: reconstruct result.groups apart."
        return [Message("agents-disagree", text, {"share": found.dissent.share, "chance": found.dissent.chance})]
    if found.left is not None and found.left.fires(SETTINGS.left):
        text = (
            f"{found.left.share:.1%} of what agents follow is neither R̂ nor noise: R̂ is too smooth, or no reward "
            "explains it. More rows, or fewer coordinates, may help."
        )
        return [Message("misfit", text, {"share": found.left.share, "chance": found.left.chance})]
    return []
