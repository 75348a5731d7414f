"""∇J and ∇B_k from one sample path of a CMDP: score function, weak derivatives, SPSA.

Each estimator simulates one path of the policy φ(a) and returns J, the B_k and their gradients.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from onlooker.core.policies import Coordinates
from onlooker.core.random import two_uniforms
from onlooker.core.settings import check_positive, check_whole
from onlooker.simulation.cmdp import CMDP

__all__ = ["Estimate", "Estimator", "Score", "Spsa", "WeakDerivative"]

# Resolution of the random numbers that choose an action: 23 bits.
RAREST = 2.0**-23


class Estimate(NamedTuple):
    """The estimates from one path.

    Attributes
    ----------
    value
        (1 + constraints,): J and the B_k.
    gradient
        (1 + constraints, dim): of each, with respect to the coordinates.
    slack
        (dim,), with mean zero: any multiple of it may be subtracted from a gradient. The best factor is the value, but
        from another path.
    steps
        Number of simulated steps of the process.
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
    """A CMDP and a policy as simulations use them: cumulative probabilities, and payoffs by state and action."""

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
        return jnp.sum(uniform.astype(self.choices.dtype) >= self.choices[state], dtype=jnp.int32)

    def move(self, state: Array, action: Array, uniform: Array) -> Array:
        return jnp.sum(uniform.astype(self.moves.dtype) >= self.moves[state, action], dtype=jnp.int32)

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
        T, the number of steps in the average.
    window
        Scores older than this number of steps (up to twice this number) are left out of z: the process has forgotten
        them, and they cause most of the variance. ``None`` keeps all.
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
        # Actions that are too rare for the random numbers' resolution have no score.
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
            newer = newer + own[state][:, None] * slopes[state, action][None]
            earned, trace = model.earn(state, action), older + newer
            counts = (number >= self.warm_up).astype(earned.dtype)
            return (
                model.move(state, action, go),
                older,
                newer,
                value + counts * earned,
                gradient + counts * earned[:, None, None] * trace[None],
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

    At regular intervals a pair of phantoms leaves the path, one acting by φ⁺ and one by φ⁻. Both continue with the same
    random numbers until they meet; their rewards differ only up to then.

    Parameters
    ----------
    horizon
        As in `Score`.
    warm_up
        As in `Score`.
    every
        Steps between two pairs.
    longest
        Number of steps after which a pair that has not met is dropped.
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
            raise ValueError(f"every is {self.every} but horizon is {self.horizon}; give a smaller every.")

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
            weight = jnp.zeros(slopes.shape[::2], point.dtype).at[state, which].set((cmdp.actions - 1) * size)
            return apart[:, None] * weight.reshape(1, -1), steps

        gradients, steps = jax.vmap(pair)(left, jax.random.split(pair_key, pairs))
        gradient = jnp.mean(gradients, axis=0)
        value = jnp.sum(earned, axis=0) / (pairs * self.every)
        walked = self.warm_up + pairs * self.every + jnp.sum(steps)
        return Estimate(value, gradient, jnp.zeros_like(point), walked)


def _walk(model: _Model, key: Array, first: Array, steps: int, state: Array) -> tuple[Array, Array]:
    """Simulate steps from a state: the last state, and the sums of the payoffs."""

    def step(number: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        state, earned = carry
        choose, go = two_uniforms(key, number)
        action = model.act(state, choose)
        return model.move(state, action, go), earned + model.earn(state, action)

    return lax.fori_loop(first, first + steps, step, (state, jnp.zeros_like(model.payoffs[0, 0])))


def _part(model: _Model, key: Array, state: Array, actions: Array, longest: int) -> tuple[Array, Array]:
    """The difference of the two phantoms' payoffs until they meet, and the number of steps of both."""
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
    horizon
        As in `Score`, for each of the two paths.
    warm_up
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
        gradient = ((ahead - behind) / (2 * self.width))[:, None] * sign[None]
        steps = 2.0 * (self.warm_up + self.horizon)
        return Estimate((ahead + behind) / 2, gradient, jnp.zeros_like(point), jnp.asarray(steps))
