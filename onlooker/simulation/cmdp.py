"""max_φ J(φ) subject to B_k(φ) ≤ limit_k: constrained Markov decision processes, solved exactly.

J and B_k are averages of a reward and of costs over the stationary law of a randomised policy φ(u|x). With a discount γ
they are (1 − γ) Σ_n γⁿ of their expectations from a start law ν. This equals the average over the process that restarts
with probability 1 − γ at every step, and is computed in this way.

Learners climb R(φ) = J(φ) − λ Σ_k (B_k(φ) − limit_k)² with λ = ``penalty``: the constraints are assumed to be active at
the optimum, as in the paper (`eq:penalty_reward`, whose square is misplaced).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from onlooker.core.policies import as_policy
from onlooker.core.settings import check_positive

__all__ = ["CMDP", "Optimum", "five_states", "switched_states", "two_states"]

# Tolerance for sums of probabilities in float64, and the frequency below which a state or an action counts as unused.
ROUNDING = 1e-9
# Number of deterministic policies that are searched for one that is multichain, to name it in the error.
LOOKED_THROUGH = 5000


class Optimum(NamedTuple):
    """The solution of the linear programme over state-action frequencies.

    Attributes
    ----------
    value
        J at the optimum.
    cost
        The B_k at the optimum.
    policy
        φ, (states, actions); in states that are never visited, the first action.
    frequencies
        (states, actions), summing to one.
    randomised
        Number of states in which more than one action is taken.
    """

    value: float
    cost: np.ndarray
    policy: np.ndarray
    frequencies: np.ndarray
    randomised: int


@dataclass(frozen=True, eq=False)
class CMDP:
    """A finite constrained Markov decision process.

    Parameters
    ----------
    transitions
        (actions, states, states): P_ij(u).
    reward
        (states, actions), to be maximised.
    cost
        (constraints, states, actions), or (states, actions) for one constraint.
    limit
        The limit of each average cost.
    penalty
        λ.
    discount
        γ, or ``None`` for average rewards.
    start
        ν, the start law of a discounted process; default: uniform. Averages do not depend on it.
    """

    transitions: np.ndarray
    reward: np.ndarray
    cost: np.ndarray
    limit: np.ndarray
    penalty: float
    discount: float | None = None
    start: np.ndarray = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        transitions = _numbers("transitions", self.transitions)
        if transitions.ndim != 3 or transitions.shape[1] != transitions.shape[2] or transitions.size == 0:
            raise ValueError(f"transitions has shape {transitions.shape}; give (actions, states, states).")
        actions, states, _ = transitions.shape
        _check_rows("transitions", transitions)
        reward = _numbers("reward", self.reward)
        if reward.shape != (states, actions):
            raise ValueError(f"reward has shape {reward.shape}; give (states, actions), here ({states}, {actions}).")
        cost = _numbers("cost", self.cost)
        cost = cost[None] if cost.ndim == 2 else cost
        if cost.shape[1:] != (states, actions):
            raise ValueError(
                f"cost has shape {cost.shape}; give (constraints, states, actions), here (…, {states}, {actions})."
            )
        limit = np.atleast_1d(_numbers("limit", self.limit))
        if limit.shape != (len(cost),):
            raise ValueError(f"limit has shape {limit.shape} but there are {len(cost)} costs; give one limit for each.")
        if not (isinstance(self.penalty, Real) and self.penalty == 0):
            check_positive(penalty=self.penalty)
        if self.discount is not None and not (isinstance(self.discount, Real) and 0 < self.discount < 1):
            raise ValueError(f"discount is {self.discount!r}; give a number between 0 and 1, or None for averages.")
        start = np.full(states, 1 / states) if self.start is None else _numbers("start", self.start)
        if start.shape != (states,):
            raise ValueError(f"start has shape {start.shape}; give a probability for each of {states} states.")
        _check_rows("start", start)
        for name, value in (
            ("transitions", transitions),
            ("reward", reward),
            ("cost", cost),
            ("limit", limit),
            ("start", start),
        ):
            object.__setattr__(self, name, value)
        if self.discount is None:
            object.__setattr__(self, "_order", _recurrent_first(transitions))
        else:
            first = int(np.argmax(start))
            object.__setattr__(self, "_order", [first, *(x for x in range(states) if x != first)])

    @property
    def states(self) -> int:
        return self.transitions.shape[1]

    @property
    def actions(self) -> int:
        return self.transitions.shape[0]

    @property
    def moves(self) -> np.ndarray:
        """(actions, states, states): the transitions, including the restarts of a discounted process."""
        if self.discount is None:
            return self.transitions
        return self.discount * self.transitions + (1 - self.discount) * self.start

    @property
    def payoffs(self) -> np.ndarray:
        """(1 + constraints, states, actions): the reward, then the costs."""
        return np.concatenate([self.reward[None], self.cost])

    def but(self, **changes: Any) -> "CMDP":
        """A copy with some fields changed: another reward, limit, penalty, …"""
        return replace(self, **changes)

    def occupation(self, policy: Any) -> Any:
        """The stationary law of the states under policies (…, states, actions), NumPy or JAX.

        Computed by elimination without subtraction (Grassmann, Taksar and Heyman): exact up to rounding in any
        precision, and differentiable. The last state is one to which every policy returns.
        """
        return self._occupation(as_policy(policy, self.states, self.actions))

    def _occupation(self, policy: Any) -> Any:
        xp = policy.__array_namespace__()
        order = self._order  # type: ignore[attr-defined]
        moves = self.moves[:, order][:, :, order].astype(policy.dtype)
        chain = xp.einsum("...ia,aij->...ij", policy[..., order, :], moves)
        shares = []
        for last in range(self.states - 1, 0, -1):
            away = chain[..., last, :last]
            share = chain[..., :last, last] / away.sum(-1)[..., None]
            chain = chain[..., :last, :last] + share[..., :, None] * away[..., None, :]
            shares.append(share)
        law = xp.ones_like(policy[..., :1, 0])
        for share in reversed(shares):
            law = xp.concatenate([law, (law * share).sum(-1)[..., None]], axis=-1)
        law = law / law.sum(-1)[..., None]
        return law[..., np.argsort(order)]

    def values(self, policy: Any) -> Any:
        """J and the B_k, (…, 1 + constraints), of policies (…, states, actions), NumPy or JAX."""
        policy = as_policy(policy, self.states, self.actions)
        xp = policy.__array_namespace__()
        frequencies = self._occupation(policy)[..., None] * policy
        return xp.einsum("...xu,kxu->...k", frequencies, self.payoffs.astype(policy.dtype))

    def penalised(self, policy: Any) -> Any:
        """R = J − λ Σ_k (B_k − limit_k)², NumPy or JAX."""
        values = self.values(policy)
        excess = values[..., 1:] - self.limit.astype(values.dtype)
        return values[..., 0] - self.penalty * (excess**2).sum(-1)

    def gradients(self, policy: np.ndarray) -> np.ndarray:
        """∂J/∂φ(u|x) and ∂B_k/∂φ(u|x), (…, 1 + constraints, states, actions), from Poisson's equation.

        Each is p(x) Q(x, u), where p is the stationary law and Q = ρ + P(u)h. Along a change of φ that keeps its
        sums, which is all that matters, they are the derivatives.
        """
        policy = as_policy(policy, self.states, self.actions)
        states = self.states
        law = self._occupation(policy)
        chain = np.einsum("...ia,aij->...ij", policy, self.moves)
        earned = np.einsum("...xu,kxu->...xk", policy, self.payoffs)
        bias = np.linalg.solve(np.eye(states) - chain + law[..., None, :], earned)
        ahead = np.einsum("uxy,...yk->...kxu", self.moves, bias)
        return law[..., None, :, None] * (self.payoffs + ahead)

    def penalised_gradient(self, policy: np.ndarray) -> np.ndarray:
        """∂R/∂φ(u|x), (…, states, actions)."""
        excess = self.values(policy)[..., 1:] - self.limit
        slopes = self.gradients(policy)
        return slopes[..., 0, :, :] - 2 * self.penalty * np.einsum("...k,...kxu->...xu", excess, slopes[..., 1:, :, :])

    def optimum(self, constrained: bool = True) -> Optimum:
        """The best policy, by linear programming, with or without the limits."""
        from scipy.optimize import linprog

        states, actions = self.states, self.actions
        # Σ_u x(j, u) = Σ_{i,u} x(i, u) P_ij(u), and Σ x = 1.
        balance = np.repeat(np.eye(states), actions, axis=1) - self.moves.transpose(2, 1, 0).reshape(states, -1)
        constrained = constrained and len(self.cost) > 0
        kept = self.cost.reshape(-1, states * actions) if constrained else None
        solved = linprog(
            -self.reward.reshape(-1),
            A_ub=kept,
            b_ub=self.limit if constrained else None,
            A_eq=np.vstack([balance, np.ones(states * actions)]),
            b_eq=np.append(np.zeros(states), 1.0),
            method="highs",
        )
        if solved.status == 2:
            least = [
                -self.but(reward=-cost, cost=self.cost, limit=self.limit).optimum(constrained=False).value
                for cost in self.cost
            ]
            raise ValueError(
                f"limit is {self.limit.tolist()}, which no policy keeps (LP infeasible): the least that each cost can "
                f"be by itself is {[round(value, 6) for value in least]}; raise the limits."
            )
        if solved.status != 0:
            raise RuntimeError(f"the linear programme was not solved: {solved.message}")
        frequencies = np.maximum(solved.x, 0).reshape(states, actions)
        visited = frequencies.sum(axis=1)
        chosen = np.where(visited[:, None] > ROUNDING, frequencies, np.eye(actions)[0])
        policy = chosen / chosen.sum(axis=1, keepdims=True)
        values = self.values(policy)
        randomised = int(np.sum((policy > ROUNDING).sum(axis=1) > 1))
        return Optimum(float(values[0]), values[1:], policy, frequencies, randomised)


def _numbers(name: str, values: Any) -> np.ndarray:
    array = np.asarray(values, dtype=float)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} contains a NaN or an infinity; give finite numbers.")
    return array


def _check_rows(name: str, rows: np.ndarray) -> None:
    if (rows < 0).any():
        raise ValueError(f"{name} contains a negative probability ({rows.min():.3g}); give probabilities.")
    away = np.abs(rows.sum(axis=-1) - 1)
    if away.max() > ROUNDING:
        worst = np.unravel_index(int(np.argmax(away)), away.shape) if away.ndim else ()
        index = f" [{', '.join(str(int(part)) for part in worst)}]" if worst else ""
        raise ValueError(f"{name}{index} sums to {rows.sum(axis=-1)[worst]:.6g}; every row must sum to one.")


def _recurrent_first(transitions: np.ndarray) -> list[int]:
    """The states, beginning with one to which every policy returns; an error if there is none.

    Such a state makes the model unichain: a policy with two recurrent classes would miss it in one of them.
    """
    states = transitions.shape[1]
    reaches = transitions > 0
    period = _period(np.asarray(reaches.any(axis=0)))
    if period > 1:
        raise ValueError(
            f"transitions are periodic with period {period} under every policy, so averages over paths depend on the "
            "step; give some state a positive probability to stay, or give a discount."
        )
    for state in range(states):
        # The states from which some choice of actions always avoids this one.
        avoiding = np.arange(states) != state
        while True:
            stays = ~(reaches & ~avoiding).any(axis=2)
            still = avoiding & stays.any(axis=0)
            if (still == avoiding).all():
                break
            avoiding = still
        if not avoiding.any():
            return [state, *(other for other in range(states) if other != state)]
    raise ValueError(_why_not_unichain(reaches))


def _why_not_unichain(reaches: np.ndarray) -> str:
    actions, states, _ = reaches.shape
    if actions**states <= LOOKED_THROUGH:
        for choice in product(range(actions), repeat=states):
            classes = _recurrent_classes(reaches[list(choice), np.arange(states)])
            if len(classes) > 1:
                return (
                    f"transitions are multichain: with actions {list(choice)} (one per state, from 0) the states "
                    f"{classes[0]} and {classes[1]} never reach each other, so that the average depends on the start; "
                    "connect them, or give a discount."
                )
    return (
        "transitions have no state that every policy returns to, which averages need here (a unichain model); connect "
        "the states, or give a discount."
    )


def _recurrent_classes(graph: np.ndarray) -> list[list[int]]:
    """Closed sets of states that reach each other."""
    from scipy.sparse.csgraph import connected_components

    count, label = connected_components(graph, directed=True, connection="strong")
    members = [np.flatnonzero(label == number) for number in range(count)]
    return [group.tolist() for group in members if not graph[group][:, label != label[group[0]]].any()]


def _period(graph: np.ndarray) -> int:
    """The greatest common divisor of the lengths of cycles in the recurrent class; 1 if there are several classes."""
    classes = _recurrent_classes(graph)
    if len(classes) > 1:
        return 1
    inside = graph[np.ix_(classes[0], classes[0])]
    depth = np.full(len(inside), -1)
    depth[0], queue, period = 0, [0], 0
    while queue:
        here = queue.pop()
        for there in np.flatnonzero(inside[here]):
            if depth[there] < 0:
                depth[there] = depth[here] + 1
                queue.append(int(there))
            period = int(np.gcd(period, depth[here] + 1 - depth[there]))
    return period


def two_states(penalty: float = 1e5) -> CMDP:
    """The paper's example. Its optimum is J = 104/3 at φ(1|1) = 0, φ(1|2) = 7/26."""
    return CMDP(
        transitions=np.array([[[0.8, 0.2], [0.3, 0.7]], [[0.6, 0.4], [0.1, 0.9]]]),
        reward=np.array([[1.0, 100.0], [30.0, 2.0]]),
        cost=np.array([[0.2, 0.3], [2.0, 1.0]]),
        limit=np.array([1.0]),
        penalty=penalty,
    )


def switched_states(penalty: float = 1e3) -> tuple[CMDP, CMDP]:
    """The paper's example, and the same with its two large rewards exchanged: the optimum jumps along the ridge."""
    before = two_states(penalty)
    return before, before.but(reward=[[1.0, 30.0], [100.0, 2.0]])


def five_states(seed: int = 2, penalty: float = 100.0, slack: Sequence[float] = (0.3, 0.3)) -> CMDP:
    """A larger model, drawn at random: five states, three actions, two costs, so ten coordinates.

    Limits lie between the cost of the best unconstrained policy and the least cost, so both are active.
    """
    generator = np.random.default_rng(seed)
    transitions = generator.dirichlet(np.full(5, 0.7), (3, 5))
    free = CMDP(
        transitions=transitions,
        reward=generator.uniform(0, 10, (5, 3)),
        cost=generator.uniform(0, 1, (2, 5, 3)),
        limit=np.ones(2),
        penalty=penalty,
    )
    spent = free.optimum(constrained=False).cost
    least = np.array([-free.but(reward=-cost).optimum(constrained=False).value for cost in free.cost])
    return free.but(limit=spent - np.asarray(slack) * (spent - least))
