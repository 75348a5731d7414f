"""g ≈ ∇R(a) from sample paths of a CMDP alone: score function, weak derivatives, SPSA.

Each estimator simulates one path of the policy φ(a) and hands back J, the B_k and their gradients. R's penalty is a
square: from one path E B̂² ≠ B², and the gradient of (B̂ − limit)² is biased. Two independent batches a and b are not:

    g = ½(∇J_a + ∇J_b) − λ Σ_k [(B_a − limit)∇B_b + (B_b − limit)∇B_a].

`PolicyGradient` is a `Reward`: agents of learners/agents.py climb it.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from onlooker.check import check_positive, check_whole
from onlooker.coordinates import Coordinates
from onlooker.learners.cmdp import CMDP
from onlooker.learners.reward import Memoryless, batch_shape
from onlooker.noise import two_uniforms

__all__ = ["Assessment", "Estimate", "Estimator", "PolicyGradient", "Score", "Spsa", "WeakDerivative", "assess"]

# Of the random numbers that choose an action: 23 bits.
RAREST = 2.0**-23


class Estimate(NamedTuple):
    """What one path says.

    Attributes
    ----------
    value
        (1 + constraints,): J and the B_k.
    gradient
        (1 + constraints, dim): of each, with respect to the coordinates.
    slack
        (dim,), of mean zero: any constant times it may be taken off a gradient. The best constant is the value, but
        not that of the same path.
    steps
        How many steps of the process were simulated.
    """

    value: Array
    gradient: Array
    slack: Array
    steps: Array


class Estimator(Protocol):
    """A way to estimate gradients from paths."""

    @property
    def name(self) -> str: ...

    def estimate(self, cmdp: CMDP, coordinates: Coordinates, point: Array, key: Array) -> Estimate: ...


class _Model(NamedTuple):
    """A CMDP and a policy as a simulation reads them: cumulative probabilities, and payoffs by state and action."""

    choices: Array
    moves: Array
    payoffs: Array

    @classmethod
    def of(cls, cmdp: CMDP, policy: Array) -> "_Model":
        moves = np.cumsum(cmdp.moves, axis=2)[:, :, :-1].transpose(1, 0, 2)
        payoffs = np.moveaxis(cmdp.payoffs, 0, -1)
        return cls(
            jnp.cumsum(policy, axis=1)[:, :-1], jnp.asarray(moves, policy.dtype), jnp.asarray(payoffs, policy.dtype)
        )

    def act(self, state: Array, uniform: Array) -> Array:
        return jnp.sum(uniform >= self.choices[state], dtype=jnp.int32)

    def move(self, state: Array, action: Array, uniform: Array) -> Array:
        return jnp.sum(uniform >= self.moves[state, action], dtype=jnp.int32)

    def earn(self, state: Array, action: Array) -> Array:
        return self.payoffs[state, action]


def _check_warm_up(steps: int) -> None:
    if steps != 0:
        check_whole(warm_up=steps)


def _begin(cmdp: CMDP, key: Array) -> Array:
    return jax.random.randint(key, (), 0, cmdp.states, jnp.int32)


@dataclass(frozen=True)
class Score:
    """∇J = E (1/T) Σ_n (ρ_n − b) z_n, with z_n the sum of ∇log φ(u_m|x_m) over m ≤ n.

    Parameters
    ----------
    horizon
        T, the steps that are averaged over.
    window
        Scores older than this many steps (to twice as many) are left out of z: the process has forgotten them, and
        they are most of the variance. ``None`` keeps them all.
    warm_up
        Steps before averaging begins, so that the state's law is the stationary one.
    """

    horizon: int = 1000
    window: int | None = 50
    warm_up: int = 50
    name = "score function"

    def __post_init__(self) -> None:
        check_whole(horizon=self.horizon, **({} if self.window is None else {"window": self.window}))
        _check_warm_up(self.warm_up)

    def estimate(self, cmdp: CMDP, coordinates: Coordinates, point: Array, key: Array) -> Estimate:
        begin_key, key = jax.random.split(key)
        policy = coordinates.policy(point)
        model = _Model.of(cmdp, policy)
        # Actions too rare for the random numbers are taken too often, or never: without a score of theirs.
        share = policy[..., None]
        slopes = jnp.where(share > RAREST, coordinates.jacobian(point) / jnp.maximum(share, RAREST), 0)
        own = jnp.eye(cmdp.states, dtype=point.dtype)
        window = self.window or self.horizon + self.warm_up

        def step(number: Array, carry: Any) -> Any:
            state, older, newer, value, gradient, slack = carry
            choose, go = two_uniforms(key, number)
            action = model.act(state, choose)
            fresh = number % window == 0
            older, newer = jnp.where(fresh, newer, older), jnp.where(fresh, 0, newer)
            newer = newer + own[state][:, None] * slopes[state, action]
            earned, trace = model.earn(state, action), older + newer
            counts = (number >= self.warm_up).astype(earned.dtype)
            return (
                model.move(state, action, go),
                older,
                newer,
                value + counts * earned,
                gradient + counts * earned[:, None, None] * trace,
                slack + counts * trace,
            )

        shape, rows = (cmdp.states, cmdp.actions - 1), 1 + len(cmdp.cost)
        zero = jnp.zeros(shape, point.dtype)
        carry = (
            _begin(cmdp, begin_key),
            zero,
            zero,
            jnp.zeros(rows, point.dtype),
            jnp.zeros((rows, *shape), point.dtype),
            zero,
        )
        steps = self.warm_up + self.horizon
        *_, value, gradient, slack = lax.fori_loop(0, steps, step, carry)
        return Estimate(
            value / self.horizon,
            gradient.reshape(rows, -1) / self.horizon,
            slack.reshape(-1) / self.horizon,
            jnp.asarray(float(steps)),
        )


@dataclass(frozen=True)
class WeakDerivative:
    """∇J = E c(x)[V(x, u⁺) − V(x, u⁻)]: the derivative of φ(·|x) is c(φ⁺ − φ⁻), a difference of two laws of actions.

    Every so many steps of the path a pair of phantoms leaves it, one acting by φ⁺, one by φ⁻, and both go on with the
    same random numbers until they meet; what they earn on the way is all that differs.

    Parameters
    ----------
    horizon, warm_up
        As in `Score`.
    every
        Steps between two pairs.
    longest
        Steps after which a pair that has not met is given up.
    """

    horizon: int = 1000
    every: int = 25
    longest: int = 200
    warm_up: int = 50
    name = "weak derivative"

    def __post_init__(self) -> None:
        check_whole(horizon=self.horizon, every=self.every, longest=self.longest)
        _check_warm_up(self.warm_up)
        if self.every > self.horizon:
            raise ValueError(f"every is {self.every}, beyond the horizon of {self.horizon}; let pairs leave sooner.")

    def estimate(self, cmdp: CMDP, coordinates: Coordinates, point: Array, key: Array) -> Estimate:
        model = _Model.of(cmdp, coordinates.policy(point))
        slopes = coordinates.jacobian(point)
        pairs = self.horizon // self.every
        begin_key, path_key, pair_key = jax.random.split(key, 3)
        state = _walk(model, path_key, jnp.int32(0), self.warm_up, _begin(cmdp, begin_key))[0]

        def stretch(state: Array, number: Array) -> tuple[Array, tuple[Array, Array]]:
            first = self.warm_up + number * self.every
            after, earned = _walk(model, path_key, first, self.every, state)
            return after, (state, earned)

        _, (left, earned) = lax.scan(stretch, state, jnp.arange(pairs))

        def pair(state: Array, key: Array) -> tuple[Array, Array]:
            which_key, plus_key, minus_key, walk_key = jax.random.split(key, 4)
            which = jax.random.randint(which_key, (), 0, cmdp.actions - 1)
            slope = slopes[state, :, which]
            size = jnp.sum(jnp.maximum(slope, 0))

            def draw(key: Array, part: Array) -> Array:
                total = jnp.cumsum(part)
                return jnp.sum(jax.random.uniform(key) * total[-1] >= total[:-1], dtype=jnp.int32)

            actions = jnp.stack([draw(plus_key, jnp.maximum(slope, 0)), draw(minus_key, jnp.maximum(-slope, 0))])
            apart, steps = _part(model, walk_key, state, actions, self.longest)
            place = jnp.zeros(slopes.shape[::2], point.dtype).at[state, which].set((cmdp.actions - 1) * size)
            return apart[:, None] * place.reshape(-1), steps

        gradients, steps = jax.vmap(pair)(left, jax.random.split(pair_key, pairs))
        gradient = jnp.mean(gradients, axis=0)
        value = jnp.sum(earned, axis=0) / (pairs * self.every)
        walked = self.warm_up + pairs * self.every + jnp.sum(steps)
        return Estimate(value, gradient, jnp.zeros_like(point), walked)


def _walk(model: _Model, key: Array, first: Array, steps: int, state: Array) -> tuple[Array, Array]:
    """So many steps from a state: where they lead, and the sums of what is earned."""

    def step(number: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        state, earned = carry
        choose, go = two_uniforms(key, number)
        action = model.act(state, choose)
        return model.move(state, action, go), earned + model.earn(state, action)

    return lax.fori_loop(first, first + steps, step, (state, jnp.zeros_like(model.payoffs[0, 0])))


def _part(model: _Model, key: Array, state: Array, actions: Array, longest: int) -> tuple[Array, Array]:
    """What the first of two phantoms earns more than the second until they meet, and the steps both took."""
    act, move, earn = jax.vmap(model.act, (0, None)), jax.vmap(model.move, (0, 0, None)), jax.vmap(model.earn)

    def go_on(carry: Any) -> Any:
        number, states, actions, apart, steps = carry
        go, choose = two_uniforms(key, number)
        earned = earn(states, actions)
        after = move(states, actions, go)
        return number + 1, after, act(after, choose), apart + earned[0] - earned[1], steps + 2.0

    def are_apart(carry: Any) -> Array:
        number, states, actions, *_ = carry
        return (number < longest) & ((states[0] != states[1]) | (actions[0] != actions[1]))

    carry = (jnp.int32(0), jnp.stack([state, state]), actions, jnp.zeros_like(model.payoffs[0, 0]), jnp.zeros(()))
    *_, apart, steps = lax.while_loop(are_apart, go_on, carry)
    return apart, steps


@dataclass(frozen=True)
class Spsa:
    """∇J ≈ [J(a + cδ) − J(a − cδ)]/2c · δ with a random δ of ±1 in every coordinate; biased by O(c²).

    Parameters
    ----------
    horizon, warm_up
        As in `Score`, for each of the two paths.
    width
        c.
    common
        Both paths have the same random numbers.
    """

    horizon: int = 1000
    width: float = 0.02
    common: bool = True
    warm_up: int = 50
    name = "SPSA"

    def __post_init__(self) -> None:
        check_whole(horizon=self.horizon)
        check_positive(width=self.width)
        _check_warm_up(self.warm_up)

    def estimate(self, cmdp: CMDP, coordinates: Coordinates, point: Array, key: Array) -> Estimate:
        sign_key, path_key = jax.random.split(key)
        sign = jax.random.rademacher(sign_key, point.shape, point.dtype)

        def value(shift: Array, along: Array) -> Array:
            key, begin_key = jax.random.split(jax.random.fold_in(path_key, 0 if self.common else along))
            model = _Model.of(cmdp, coordinates.policy(point + self.width * shift * sign))
            state, _ = _walk(model, key, jnp.int32(0), self.warm_up, _begin(cmdp, begin_key))
            return _walk(model, key, jnp.int32(self.warm_up), self.horizon, state)[1] / self.horizon

        ahead, behind = jax.vmap(value)(jnp.array([1.0, -1.0]), jnp.arange(2))
        gradient = ((ahead - behind) / (2 * self.width))[:, None] * sign
        steps = 2.0 * (self.warm_up + self.horizon)
        return Estimate((ahead + behind) / 2, gradient, jnp.zeros_like(point), jnp.asarray(steps))


@dataclass(frozen=True, eq=False)
class PolicyGradient(Memoryless):
    """The penalised reward of a CMDP, known through policy gradients.

    Attributes
    ----------
    cmdp, coordinates
        What is climbed, and in which coordinates.
    estimator
        `Score()`, `WeakDerivative()` or `Spsa()`.
    batches
        2, or 1 for the biased gradient of the paper's single path.
    """

    cmdp: CMDP
    coordinates: Coordinates
    estimator: Estimator
    batches: int = 2

    def __post_init__(self) -> None:
        if (self.coordinates.states, self.coordinates.actions) != (self.cmdp.states, self.cmdp.actions):
            raise ValueError(
                f"coordinates are of {self.coordinates.states} states and {self.coordinates.actions} actions, the CMDP "
                f"has {self.cmdp.states} and {self.cmdp.actions}; give coordinates of its own."
            )
        if not hasattr(self.estimator, "estimate"):
            raise TypeError(
                f"estimator is {self.estimator!r}; give Score(), WeakDerivative() or Spsa(), with settings of your own."
            )
        if self.batches not in (1, 2):
            raise ValueError(f"batches is {self.batches!r}; choose 2, or 1 for the biased gradient.")

    @property
    def dim(self) -> int:
        return self.coordinates.dim

    def value(self, point: Any) -> Any:
        """R at coordinates (…, dim), exactly, NumPy or JAX."""
        return self.cmdp.penalised(self.coordinates.policy(point))

    def gradient(self, point: np.ndarray) -> np.ndarray:
        """∇R at coordinates (…, dim), exactly."""
        return self.coordinates.pull(point, self.cmdp.penalised_gradient(self.coordinates.policy(point)))

    def sample(self, data: Any, key: Array, steps: int, lanes: int | None) -> Array:
        return jax.random.split(key, batch_shape(steps, lanes))

    def sample_gradient(self, point: Array, xi: Array) -> Array:
        return self.sample_with_cost(point, xi)[0]

    def sample_with_cost(self, point: Array, key: Array) -> tuple[Array, Array]:
        """A gradient estimate, and the steps that were simulated for it."""
        folded, sign = self.coordinates.fold(point)
        limit = jnp.asarray(self.cmdp.limit, point.dtype)

        def batch(key: Array) -> Estimate:
            return self.estimator.estimate(self.cmdp, self.coordinates, folded, key)

        if self.batches == 1:
            one = batch(key)
            # A baseline that is no path's own: what actions earn on the average over the table.
            baseline = jnp.asarray(self.cmdp.payoffs.mean(axis=(1, 2)), point.dtype)
            slopes = one.gradient - baseline[:, None] * one.slack
            penalty = 2 * (one.value[1:] - limit) @ slopes[1:]
            return sign * (slopes[0] - self.cmdp.penalty * penalty), one.steps
        both = jax.vmap(batch)(jax.random.split(key))
        # Each batch's baseline is the other's value.
        slopes = both.gradient - both.value[::-1, :, None] * both.slack[:, None]
        excess = both.value[:, 1:] - limit
        penalty = excess[0] @ slopes[1, 1:] + excess[1] @ slopes[0, 1:]
        return sign * (jnp.mean(slopes[:, 0], axis=0) - self.cmdp.penalty * penalty), jnp.sum(both.steps)


class Assessment(NamedTuple):
    """An estimator at one place.

    Attributes
    ----------
    exact
        ∇R, (dim,).
    mean, error
        Of the estimates, and the standard error of their mean.
    deviation
        √E‖g − E g‖² of one estimate.
    steps
        Simulated for one estimate, on the average.
    work
        deviation·√steps: what a fixed budget of steps leaves of the noise, whatever the horizon.
    """

    exact: np.ndarray
    mean: np.ndarray
    error: np.ndarray
    deviation: float
    steps: float
    work: float


def assess(reward: PolicyGradient, point: Any, estimates: int = 10_000, seed: int = 0) -> Assessment:
    """Bias, variance and cost of a policy gradient at one place (dim,)."""
    check_whole(estimates=estimates)
    place = np.asarray(point, float)
    if estimates < 2:
        raise ValueError(f"estimates is {estimates}; a variance needs at least 2.")
    if place.shape != (reward.dim,) or not np.isfinite(place).all():
        raise ValueError(f"point is {point!r}; give {reward.dim} finite coordinates.")
    found, steps = (
        np.asarray(part, float) for part in _estimates(reward, jnp.asarray(place, jnp.float32), estimates, seed)
    )
    deviation = float(np.sqrt(found.var(axis=0, ddof=1).sum()))
    cost = float(steps.mean())
    error = found.std(axis=0, ddof=1) / math.sqrt(estimates)
    return Assessment(reward.gradient(place), found.mean(axis=0), error, deviation, cost, deviation * math.sqrt(cost))


@partial(jax.jit, static_argnames=("reward", "estimates"))
def _estimates(reward: PolicyGradient, point: Array, estimates: int, seed: int) -> tuple[Array, Array]:
    keys = jax.random.split(jax.random.key(seed), estimates)
    return lax.map(lambda key: reward.sample_with_cost(point, key), keys, batch_size=min(estimates, 2000))
