"""LOGEL's grid world: colours on 5 × 5 fields, a reward for each, and agents that climb it by policy gradient.

    R(θ) = w·ψ(θ),   ψ(θ) = E Σₜ γᵗ φ(sₜ₊₁),   φ the colour of the field that is entered

A path takes twenty steps from the start; the goal sends back to the start (Jacq et al., 2019; Ramponi et al., NeurIPS
2020). The features sum to a constant, so only differences of weights can be known. Everything is computed in the table
of logits (states × actions); `Table` and `Network` map their parameters to that table, and pull gradients back.
"""

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

__all__ = ["COLOURS", "WEIGHTS", "Grid", "Network", "Paths", "Seen", "Table", "elsewhere", "learn"]

COLOURS = ("red", "violet", "grey", "pink", "goal")
LETTERS = "RVNPG"
LAYOUT = ("NNNRR", "NNNNR", "NNVNN", "PNNNN", "PPNNG")
WEIGHTS = np.array([0.0, -5.0, -1.0, -3.0, 7.0])
MOVES = ((1, 0), (-1, 0), (0, -1), (0, 1))


class Paths(NamedTuple):
    """States, actions and the states entered, each (rows, paths, steps)."""

    states: np.ndarray
    actions: np.ndarray
    entered: np.ndarray


@dataclass(frozen=True)
class Grid:
    """The world.

    Attributes
    ----------
    layout
        Rows of letters, a colour each.
    start
        Row and column of the start.
    slip
        Probability that a random move is made instead of the chosen one.
    horizon
        Steps of a path.
    discount
        γ.
    """

    layout: tuple[str, ...] = LAYOUT
    start: tuple[int, int] = (0, 0)
    slip: float = 0.0
    horizon: int = 20
    discount: float = 0.96

    @property
    def states(self) -> int:
        return len(self.layout) ** 2

    @cached_property
    def colours(self) -> np.ndarray:
        """(states, 5): φ, the colour of a field."""
        return np.eye(len(LETTERS))[[LETTERS.index(letter) for row in self.layout for letter in row]]

    @property
    def first(self) -> int:
        """The start's number."""
        return self.start[0] * len(self.layout) + self.start[1]

    @cached_property
    def step(self) -> np.ndarray:
        """(states, 4): the field that a move leads to."""
        size = len(self.layout)
        step = np.full((self.states, len(MOVES)), self.first)
        for state, (x, y) in enumerate(np.ndindex(size, size)):
            if self.layout[x][y] != "G":
                for action, (dx, dy) in enumerate(MOVES):
                    step[state, action] = min(max(x + dx, 0), size - 1) * size + min(max(y + dy, 0), size - 1)
        return step

    @cached_property
    def transitions(self) -> np.ndarray:
        """(actions, states, states), as in `onlooker.simulation.cmdp.CMDP`."""
        moves = np.eye(self.states)[self.step.T]
        return (1 - self.slip) * moves + self.slip * moves.mean(axis=0)

    def features(self, colours: np.ndarray | None = None) -> np.ndarray:
        """φ(s, u) = E φ(s'), (states, actions, k)."""
        return np.einsum("asp,pk->sak", self.transitions, self.colours if colours is None else colours)

    def exact(self, logits: np.ndarray, colours: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """ψ (n, k), and its Jacobian in the logits (n, states, actions, k), of tables (n, states, actions)."""
        policy, earned = _softmax(logits), self.features(colours)
        chance, count = self.transitions, len(logits)
        law = np.zeros((self.horizon, count, self.states))
        law[0, :, self.first] = 1
        for t in range(self.horizon - 1):
            law[t + 1] = np.einsum("ns,nsa,asp->np", law[t], policy, chance, optimize=True)
        value = np.zeros((count, self.states, earned.shape[-1]))
        jacobian = np.zeros((count, *earned.shape))
        for t in reversed(range(self.horizon)):
            ahead = self.discount**t * earned + np.einsum("asp,npk->nsak", chance, value, optimize=True)
            value = np.einsum("nsa,nsak->nsk", policy, ahead)
            jacobian += law[t][:, :, None, None] * policy[..., None] * (ahead - value[:, :, None])
        return value[:, self.first], jacobian

    def paths(self, logits: np.ndarray, count: int, random: np.random.Generator) -> Paths:
        """Paths of each policy, (n, count, horizon)."""
        policy = np.cumsum(_softmax(logits), axis=-1)
        state = np.full((len(logits), count), self.first)
        row = np.arange(len(logits))[:, None]
        states, actions, entered = [], [], []
        for _ in range(self.horizon):
            action = (random.random((len(logits), count, 1)) > policy[row, state][..., :-1]).sum(axis=-1)
            moved = action
            if self.slip:
                slips = random.random(action.shape) < self.slip
                moved = np.where(slips, random.integers(0, len(MOVES), action.shape), action)
            states.append(state)
            actions.append(action)
            state = self.step[state, moved]
            entered.append(state)
        return Paths(*(np.stack(part, axis=-1) for part in (states, actions, entered)))

    def estimate(
        self, logits: np.ndarray, paths: Paths, earned: Any = None, parts: int = 1, baseline: Any = None
    ) -> np.ndarray:
        """The policy-gradient estimate of the Jacobian, (parts, n, states, actions, k), from paths in parts.

        Parameters
        ----------
        logits
            (n, states, actions).
        paths
            Paths of each.
        earned
            φ or rewards (states, k) of the fields entered; default: the colours.
        parts
            Number of independent parts.
        baseline
            (states, k) subtracted from discounted rewards to go; default: their mean at the same step.
        """
        earned = (self.colours if earned is None else earned)[paths.entered]
        decay = (self.discount ** np.arange(self.horizon))[:, None]
        to_go = (earned * decay)[:, :, ::-1].cumsum(axis=2)[:, :, ::-1]
        count, size = len(logits), paths.states.shape[1] // parts
        policy, k = _softmax(logits), earned.shape[-1]
        cells = self.states * len(MOVES)
        found = np.empty((parts, count, self.states, len(MOVES), k))
        for part in range(parts):
            mine = slice(part * size, (part + 1) * size)
            ahead = to_go[:, mine]
            if baseline is not None:
                ahead = ahead - baseline[paths.states[:, mine]] * decay
            elif size > 1:
                ahead = (ahead - ahead.mean(axis=1, keepdims=True)) * size / (size - 1)
            cell = paths.states[:, mine] * len(MOVES) + paths.actions[:, mine]
            cell = (cell + cells * np.arange(count)[:, None, None]).ravel()
            flat = ahead.reshape(-1, k)
            taken = np.stack([np.bincount(cell, flat[:, one], count * cells) for one in range(k)], axis=-1)
            taken = taken.reshape(count, self.states, len(MOVES), k)
            found[part] = (taken - policy[..., None] * taken.sum(axis=2, keepdims=True)) / size
        return found

    def best(self, reward: np.ndarray, discount: float = 0.96) -> np.ndarray:
        """The greedy policy (states,) of a reward (states, actions), by policy iteration."""
        here, choice = np.arange(self.states), reward.argmax(axis=1)
        for _ in range(50):
            chain = self.transitions[choice, here]
            value = np.linalg.solve(np.eye(self.states) - discount * chain, reward[here, choice])
            ahead = reward + discount * np.einsum("asp,p->sa", self.transitions, value)
            better = np.where(ahead[here, choice] >= ahead.max(axis=1) - 1e-9, choice, ahead.argmax(axis=1))
            if (better == choice).all():
                break
            choice = better
        return choice

    def worth(self, choice: np.ndarray | None, weights: np.ndarray = WEIGHTS, discount: float = 0.96) -> float:
        """The true discounted value at the start of a deterministic policy, or of the uniform one (None)."""
        reward, here = self.features() @ weights, np.arange(self.states)
        chain, earned = (
            (self.transitions.mean(axis=0), reward.mean(axis=1))
            if choice is None
            else (self.transitions[choice, here], reward[here, choice])
        )
        return float(np.linalg.solve(np.eye(self.states) - discount * chain, earned)[self.first])

    def regret(self, reward: np.ndarray, weights: np.ndarray = WEIGHTS) -> float:
        """The share that the greedy policy of a reward loses of what the true one gains over chance."""
        top, none = self.worth(self.best(self.features() @ weights), weights), self.worth(None, weights)
        return (top - self.worth(self.best(reward), weights)) / (top - none)


def elsewhere(count: int = 30, seed: int = 7) -> list[Grid]:
    """Other worlds of the same colours: layouts, starts and goals drawn at random, and slippery."""
    random, worlds = np.random.default_rng(seed), []
    for _ in range(count):
        letters = random.choice(list("RVNP"), 25, p=[0.2, 0.25, 0.3, 0.25])
        start, goal = random.choice(25, 2, replace=False)
        letters[goal] = "G"
        layout = tuple("".join(letters[first : first + 5]) for first in range(0, 25, 5))
        worlds.append(Grid(layout, (int(start) // 5, int(start) % 5), slip=0.1))
    return worlds


def _softmax(logits: np.ndarray) -> np.ndarray:
    raised = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return raised / raised.sum(axis=-1, keepdims=True)


class Policies(Protocol):
    """Parameters θ of a table of logits."""

    dim: int

    def draw(self, count: int, random: np.random.Generator) -> np.ndarray: ...

    def logits(self, points: np.ndarray) -> np.ndarray: ...

    def pull(self, points: np.ndarray, slopes: np.ndarray) -> np.ndarray: ...


class Table:
    """Three free logits a state, the fourth zero: LOGEL's policy, of 75 parameters."""

    def __init__(self, grid: Grid) -> None:
        self.states, self.dim = grid.states, grid.states * (len(MOVES) - 1)

    def draw(self, count: int, random: np.random.Generator) -> np.ndarray:
        """The uniform policy, (count, dim)."""
        return np.zeros((count, self.dim))

    def logits(self, points: Any) -> Any:
        """Tables (…, states, 4) of points (…, dim), of NumPy or JAX."""
        table = points.reshape(*points.shape[:-1], self.states, len(MOVES) - 1)
        return points.__array_namespace__().concatenate([table, 0 * table[..., :1]], axis=-1)

    def pull(self, points: np.ndarray, slopes: np.ndarray) -> np.ndarray:
        """Gradients in the table, (n, states, actions, k), as gradients in θ, (n, dim, k)."""
        return slopes[:, :, :-1].reshape(len(points), self.dim, -1)


class Network:
    """A softmax policy of two layers, tanh(W s + b) V + c, on one-hot states: 30·hidden + 4 parameters."""

    def __init__(self, grid: Grid, hidden: int = 64, spread: float = 1.0) -> None:
        self.states, self.hidden, self.spread = grid.states, hidden, spread
        self.dim = (grid.states + 1 + len(MOVES)) * hidden + len(MOVES)

    def draw(self, count: int, random: np.random.Generator) -> np.ndarray:
        """Random networks, (count, dim)."""
        inner, outer = (self.states + 1) * self.hidden, len(MOVES) * (self.hidden + 1)
        scale = np.concatenate([np.ones(inner), np.full(outer, self.hidden**-0.5)])
        return self.spread * scale * random.standard_normal((count, self.dim))

    def parts(self, points: Any) -> tuple[Any, Any, Any, Any]:
        """W, b, V and c."""
        cuts = np.cumsum([0, self.states * self.hidden, self.hidden, self.hidden * len(MOVES), len(MOVES)])
        w, b, v, c = (points[..., low:high] for low, high in itertools.pairwise(cuts))
        front = points.shape[:-1]
        return (
            w.reshape(*front, self.states, self.hidden),
            b[..., None, :],
            v.reshape(*front, self.hidden, -1),
            c[..., None, :],
        )

    def logits(self, points: Any) -> Any:
        """Tables (…, states, 4) of points (…, dim), of NumPy or JAX."""
        w, b, v, c = self.parts(points)
        return points.__array_namespace__().tanh(w + b) @ v + c

    def pull(self, points: np.ndarray, slopes: np.ndarray) -> np.ndarray:
        """Gradients in the table, (n, states, actions, k), as gradients in θ, (n, dim, k)."""
        w, b, v, _ = self.parts(points)
        out = np.tanh(w + b)
        n, k = len(points), slopes.shape[-1]
        to_v = np.einsum("nsh,nsak->nhak", out, slopes, optimize=True).reshape(n, -1, k)
        inner = np.einsum("nsak,nha->nshk", slopes, v, optimize=True) * (1 - out**2)[..., None]
        return np.concatenate([inner.reshape(n, -1, k), inner.sum(axis=1), to_v, slopes.sum(axis=1)], axis=1)


class Seen(NamedTuple):
    """What agents did: their points and gradients (n, dim), the paths of each row, agents and times (n,)."""

    points: np.ndarray
    gradients: np.ndarray
    paths: Paths
    agents: np.ndarray
    times: np.ndarray


def learn(
    grid: Grid,
    policies: Policies,
    *,
    agents: int = 30,
    steps: int = 20,
    batch: int = 50,
    rate: Any = 0.1,
    seed: Any = 0,
    weights: np.ndarray = WEIGHTS,
    later: tuple[int, np.ndarray] | None = None,
    decay: float = 0.0,
    baseline: np.ndarray | None = None,
) -> Seen:
    """Agents that climb w·ψ by rolled-out gradients.

    Parameters
    ----------
    grid, policies
        The world, and what the parameters mean.
    agents, steps, batch
        Number of agents, of steps of each, and of paths for each step.
    rate
        Learning rate, or one for each agent.
    seed
        Seed of all random numbers.
    weights
        w.
    later
        A step and the weights from it on.
    decay
        λ of −½λ|θ|², which is added to the reward.
    baseline
        (states, 1) subtracted from rewards to go; default: their mean.
    """
    random = np.random.default_rng(seed)
    points, rates = policies.draw(agents, random), np.broadcast_to(np.asarray(rate, float), agents)
    seen: list[tuple[Any, ...]] = []
    for step in range(steps):
        w = later[1] if later is not None and step >= later[0] else weights
        logits = policies.logits(points)
        paths = grid.paths(logits, batch, random)
        if baseline is None:
            slopes = grid.estimate(logits, paths)[0] @ w[:, None]
        else:
            slopes = grid.estimate(logits, paths, (grid.colours @ w)[:, None], baseline=baseline)[0]
        gradients = policies.pull(points, slopes)[..., 0] - decay * points
        seen.append((points, gradients, paths, np.arange(agents), np.full(agents, step)))
        points = points + rates[:, None] * gradients
    columns = list(zip(*seen, strict=True))
    paths = Paths(*(np.concatenate(part) for part in zip(*columns[2], strict=True)))
    rest = [np.concatenate(columns[number]) for number in (0, 1, 3, 4)]
    return Seen(rest[0], rest[1], paths, rest[2], rest[3])
