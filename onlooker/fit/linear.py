"""R(θ) = w·ψ(θ): gradients are linear in the weights, g = Jw + noise with J = ∇ψ, and so sums give w in any dimension.

    A = Σᵢ JᵢᵀDJᵢ,   b = Σᵢ JᵢᵀDgᵢ,   Aw = b

Of every row only products of k × k numbers are kept. D is diagonal, one over the noise of each coordinate, from the
sample that the sums begin with. If J is rolled out, in G independent parts, A is the mean of JₐᵀDJ_c over parts a ≠ c,
which is unbiased; the product of the mean J with itself is not, and shrinks w. If g was computed from the same paths, b
is the mean over a ≠ c as well. Of rows up to three steps apart in one run, the same products are kept. Noise is new at
every step, a misfit is not; and an earlier J is an instrument, whose noise is not that of this row.
`onlooker.fit.linear_weights` solves for w.
"""

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from onlooker.fit.linear_products import cosine, multiplied, noise_scale, taken

__all__ = ["SETTINGS", "LinearSettings", "LinearSums", "begin_linear"]


@dataclass(frozen=True)
class LinearSettings:
    """Constants of the sums.

    Attributes
    ----------
    lags
        Steps between rows of one agent whose residuals are compared.
    shrink
        Number of rows that the mean noise of all coordinates counts in that of each: one coordinate of a small sample
        is not trusted alone.
    rounds
        Times that D is computed from the residuals of a fit with the D before it.
    together
        Numbers of a Jacobian that are processed at a time, to bound memory: 32 MB of float64.
    kept
        Numbers of the last rows of all agents at most, for products with later rows: half a gigabyte of float32.
    most_rows
        Rows of products kept. Beyond, the older rows of each agent are summed in pairs, which the jackknife allows.
    """

    lags: int = 3
    shrink: float = 5.0
    rounds: int = 2
    together: int = 1 << 22
    kept: int = 1 << 27
    most_rows: int = 1 << 13


SETTINGS = LinearSettings()


@dataclass
class _Last:
    """The last rows of each agent, scaled by √D, whose products with later rows are still to come.

    Attributes
    ----------
    jacobians, gradients, points
        (m, k, dim), (m, dim), (m, dim); points are not scaled.
    agents, times, order
        (m,): the agent's number, the time, and the number of the row.
    """

    jacobians: np.ndarray
    gradients: np.ndarray
    points: np.ndarray
    agents: np.ndarray
    times: np.ndarray
    order: np.ndarray

    def then(self, new: "_Last") -> "_Last":
        """These rows and later ones; without copying if there are none."""
        if not len(self.agents):
            return new
        return _Last(*(np.concatenate([getattr(self, part.name), getattr(new, part.name)]) for part in fields(self)))

    def of(self, rows: np.ndarray) -> "_Last":
        return _Last(*(getattr(self, part.name)[rows] for part in fields(self)))


@dataclass
class LinearSums:
    """Products of Jacobians and gradients, a row each.

    Attributes
    ----------
    scale
        D, (dim,).
    parts
        Number of independent parts of each Jacobian; 1 if it is exact.
    products
        (n, k, k): A of each row, times its weight.
    plain
        (n, k, k): the product of the mean Jacobian with itself; the same as ``products`` if it is exact.
    targets
        (n, k): b of each row.
    powers
        (n,): gᵀDg.
    lag_products, lag_targets, lag_powers, past_targets
        (n, k, k), (n, k), (n,), (n, k): Σ JⱼᵀDJᵢ, Σ JᵢᵀDgⱼ + JⱼᵀDgᵢ, Σ gᵢᵀDgⱼ, Σ JⱼᵀDgᵢ over the rows j up to three
        steps before row i.
    pairs
        (n,): the number of these rows j.
    along
        (n,): cosine of the step that led to the row with the gradient before it; nan if unknown.
    counts, agents, order
        (n,): number of observations in the row, number of the agent in ``names``, number of the row.
    names
        Names of the agents.
    dim
        Dimension of the points.
    """

    scale: np.ndarray
    parts: int
    products: np.ndarray
    plain: np.ndarray
    targets: np.ndarray
    powers: np.ndarray
    lag_products: np.ndarray
    lag_targets: np.ndarray
    lag_powers: np.ndarray
    past_targets: np.ndarray
    pairs: np.ndarray
    along: np.ndarray
    counts: np.ndarray
    agents: np.ndarray
    order: np.ndarray
    names: np.ndarray
    dim: int
    added: int = 0
    _last: _Last | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.powers)

    @property
    def features(self) -> int:
        """k, suspects included."""
        return self.targets.shape[1]

    @property
    def count(self) -> float:
        """Weight of the observations."""
        return float(self.counts.sum())

    def add(
        self,
        jacobians: np.ndarray,
        gradients: np.ndarray,
        agents: Any = None,
        times: Any = None,
        points: Any = None,
    ) -> None:
        """Add rows, those of each agent in the order of its steps.

        Parameters
        ----------
        jacobians
            (parts, n, k, dim): the transposed Jacobians of the features, in independent parts; one if exact.
        gradients
            (n, dim), or (parts, n, dim) if each part was computed from the same paths as that part of the Jacobian.
        agents
            (n,) names of agents; default: one agent.
        times
            (n,): where an agent's time does not advance, it was restarted.
        points
            (n, dim): with them, the sign of the gradients can be checked against the steps.
        """
        n, size = jacobians.shape[1], int(np.prod(jacobians.shape[2:])) * len(jacobians)
        codes = self._codes(np.zeros(n, int) if agents is None else np.asarray(agents))
        when = np.arange(self.added, self.added + n, dtype=float) if times is None else np.asarray(times, float)
        step = max(1, SETTINGS.together // size)
        new: list[dict[str, np.ndarray]] = []
        for first in range(0, n, step):
            rows = slice(first, first + step)
            place = None if points is None else points[rows]
            new.append(self._chunk(jacobians[:, rows], gradients[..., rows, :], codes[rows], when[rows], place))
        for name in new[0] if new else ():
            setattr(self, name, np.concatenate([getattr(self, name), *(one[name] for one in new)]))
        self.compress()

    def _codes(self, agents: np.ndarray) -> np.ndarray:
        """Numbers of agents in ``names``, to which new ones are added."""
        labels = agents.astype(str)
        known = {str(name): number for number, name in enumerate(self.names)}
        for name in dict.fromkeys(labels.tolist()):
            known.setdefault(name, len(known))
        self.names = np.array(list(known), str)
        return np.array([known[name] for name in labels.tolist()], int)

    def _chunk(
        self, jacobians: np.ndarray, gradients: np.ndarray, agents: np.ndarray, times: np.ndarray, points: Any
    ) -> dict[str, np.ndarray]:
        if len(jacobians) != self.parts:
            text = f"jacobians has {len(jacobians)} parts but the sums were begun with {self.parts}; give as many."
            raise ValueError(text)
        made = multiplied(jacobians, gradients, self.scale)
        n = len(agents)
        kept = np.result_type(jacobians.dtype, np.float32)
        places = np.zeros((n, 0)) if points is None else np.asarray(points)
        order = np.arange(self.added, self.added + n)
        new = _Last(made.mean.astype(kept), made.gradient.astype(kept), places, agents, times, order)
        self.added += n
        return {
            "products": made.products,
            "plain": made.plain,
            "targets": made.targets,
            "powers": (made.gradient**2).sum(axis=1),
            **self._lagged(new),
            "counts": np.ones(n),
            "agents": agents,
            "order": order,
        }

    def _lagged(self, new: _Last) -> dict[str, np.ndarray]:
        """Products of the new rows with the rows of the same agent up to three steps before them."""
        n, (k, first) = len(new.agents), (self.features, int(new.order[0]))
        products, targets = np.zeros((n, k, k)), np.zeros((n, k))
        past = np.zeros((n, k))
        powers, pairs, along = np.zeros(n), np.zeros(n), np.full(n, np.nan)
        rows = new if self._last is None else self._last.then(new)
        sorted_rows = np.lexsort((rows.order, rows.agents))
        agents, times = rows.agents[sorted_rows], rows.times[sorted_rows]
        # Runs: pairs never cross a restart.
        breaks = (agents[1:] != agents[:-1]) | (times[1:] <= times[:-1])
        runs = np.concatenate([[0], np.cumsum(breaks)])
        for lag in range(1, SETTINGS.lags + 1):
            late, early = sorted_rows[lag:], sorted_rows[:-lag]
            chosen = (runs[lag:] == runs[:-lag]) & (rows.order[late] >= first)
            late, early = late[chosen], early[chosen]
            if not len(late):
                continue
            at = rows.order[late] - first
            one, two = taken(rows.jacobians, late), taken(rows.jacobians, early)
            g_one, g_two = taken(rows.gradients, late), taken(rows.gradients, early)
            across = (one @ two.swapaxes(1, 2)).astype(float)
            products[at] += across.swapaxes(1, 2)
            past[at] += (two @ g_one[..., None])[..., 0]
            targets[at] += (one @ g_two[..., None])[..., 0]
            powers[at] += np.einsum("ij,ij->i", g_one, g_two, dtype=float)
            pairs[at] += 1
            if lag == 1 and rows.points.shape[1]:
                along[at] = cosine(
                    rows.points[late] - rows.points[early], g_two / np.sqrt(self.scale, dtype=g_two.dtype)
                )
        # The last rows of each agent, and of the agents seen last if there are too many.
        ends = np.concatenate([np.flatnonzero(agents[1:] != agents[:-1]), [len(agents) - 1]])
        back = (ends[:, None] - np.arange(SETTINGS.lags)).ravel()
        owner = np.repeat(agents[ends], SETTINGS.lags)
        back = back[(back >= 0) & (agents[np.maximum(back, 0)] == owner)]
        most = max(SETTINGS.lags, SETTINGS.kept // max(1, k * self.dim))
        last = np.sort(sorted_rows[back])[-most:]
        self._last = rows if len(last) == len(rows.agents) else rows.of(last)
        return {
            "lag_products": products,
            "lag_targets": targets + past,
            "past_targets": past,
            "lag_powers": powers,
            "pairs": pairs,
            "along": along,
        }

    def joined(self, other: "LinearSums") -> "LinearSums":
        """The rows of both. Their D may differ: each weighs its own rows, by the noise found in them."""
        if (self.features, self.dim, self.parts > 1) != (other.features, other.dim, other.parts > 1):
            raise ValueError(
                f"sums are of {self.features} and {other.features} features in {self.dim} and {other.dim} dimensions; "
                "join sums of the same features."
            )
        both = LinearSums(**{part.name: getattr(self, part.name) for part in fields(self)})
        codes = both._codes(other.names)
        renumbered = {"agents": codes[other.agents], "order": other.order + self.added}
        for name in ROWS:
            theirs = renumbered.get(name, getattr(other, name))
            setattr(both, name, np.concatenate([getattr(self, name), theirs]))
        both.added, both._last = self.added + other.added, None
        both.compress()
        return both

    def forget(self, share: float) -> None:
        """Multiply the weight of everything added so far by 1 − share."""
        for name in FADED:
            setattr(self, name, (1 - share) * getattr(self, name))

    def since(self, order: int) -> "LinearSums":
        """The rows from a number on."""
        return self.chosen(self.order >= order)

    def chosen(self, rows: np.ndarray) -> "LinearSums":
        """Some of the rows, by mask or number."""
        parts = {part.name: getattr(self, part.name) for part in fields(self)}
        return LinearSums(**{**parts, **{name: parts[name][rows] for name in ROWS}})

    def columns(self, which: np.ndarray) -> "LinearSums":
        """The sums of some of the features."""
        parts = {part.name: getattr(self, part.name) for part in fields(self)}
        for name in ("products", "plain", "lag_products"):
            parts[name] = parts[name][:, which][:, :, which]
        for name in ("targets", "lag_targets", "past_targets"):
            parts[name] = parts[name][:, which]
        return LinearSums(**{**parts, "_last": None})

    def check(self) -> None:
        """Raise unless all arrays, as read from a file, are of one size."""
        n, k = self.targets.shape
        wanted = {"products": (n, k, k), "plain": (n, k, k), "lag_products": (n, k, k)}
        for name in ROWS:
            if getattr(self, name).shape != wanted.get(name, (n, k) if "targets" in name else (n,)):
                raise ValueError(f"its {name} is of shape {getattr(self, name).shape}")
        if n and not 0 <= self.agents.min() <= self.agents.max() < len(self.names):
            raise ValueError("its agents do not match")

    def compressed(self, most: int) -> "LinearSums":
        """The same in fewer rows, if they can be summed in pairs."""
        copy = self.chosen(np.arange(len(self)))
        copy.compress(most)
        return copy

    def compress(self, most: int | None = None) -> None:
        """Sum older rows of each agent in pairs, if there are too many rows."""
        most = SETTINGS.most_rows if most is None else most
        while len(self) > most:
            old = np.arange(len(self)) < len(self) - most // 2
            by_agent = np.lexsort((self.order, self.agents))
            by_agent = by_agent[old[by_agent]]
            agents = self.agents[by_agent]
            place = np.arange(len(agents)) - np.searchsorted(agents, agents)
            first = (place % 2 == 0)[:-1] & (agents[1:] == agents[:-1])
            one, two = by_agent[:-1][first], by_agent[1:][first]
            if not len(one):
                return
            for name in SUMMED:
                values = getattr(self, name).copy()
                values[two] += values[one]
                setattr(self, name, values)
            left = np.ones(len(self), bool)
            left[one] = False
            for name in ROWS:
                setattr(self, name, getattr(self, name)[left])


FADED = (
    "products",
    "plain",
    "targets",
    "powers",
    "lag_products",
    "lag_targets",
    "lag_powers",
    "past_targets",
    "counts",
)
SUMMED = (*FADED, "pairs")
ROWS = (*SUMMED, "along", "agents", "order")


def begin_linear(jacobians: np.ndarray, gradients: np.ndarray) -> LinearSums:
    """Empty sums, whose D is that of a sample of rows.

    D is one over the squared residuals of each coordinate, shrunk towards their mean.

    Parameters
    ----------
    jacobians
        (parts, n, k, dim); see `LinearSums.add`.
    gradients
        (n, dim), or (parts, n, dim).
    """
    parts, _, k, _ = jacobians.shape
    return _empty(noise_scale(jacobians, gradients, SETTINGS.shrink, SETTINGS.rounds, SETTINGS.together), parts, k)


def _empty(scale: np.ndarray, parts: int, k: int) -> LinearSums:
    arrays: dict[str, Any] = {name: np.zeros(0) for name in ROWS}
    arrays |= {name: np.zeros((0, k, k)) for name in ("products", "plain", "lag_products")}
    arrays |= {name: np.zeros((0, k)) for name in ("targets", "lag_targets", "past_targets")}
    arrays |= {name: np.zeros(0, int) for name in ("agents", "order")}
    return LinearSums(scale=scale, parts=parts, names=np.zeros(0, "U1"), dim=len(scale), **arrays)
