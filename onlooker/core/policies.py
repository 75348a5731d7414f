"""Coordinates on randomised policies φ(u|x): they keep chains and learners' steps within the probabilities.

* `spherical`: φ(u|x) = cos²a_u Π_{p<u} sin²a_p, the last without its cosine (`eq:expo`). U − 1 angles per state, in
  [0, π/2]. R is even about both ends, so points outside the interval are folded back.
* `softmax`: φ(u|x) ∝ exp(l_u) with the last logit zero, U − 1 real numbers per state.

A chain in coordinates a samples exp(R) da, which is not exp(R) dφ: for that law the drift ½∇log|det ∂φ/∂a| must be
added. ``measure`` says which one is meant: "coordinates" or "policy".

Functions take NumPy or JAX arrays and return the same kind. Coordinates are (…, dim), state after state; policies are
(…, states, actions).
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from onlooker.core.density import Density
from onlooker.core.settings import as_floats, check_whole

__all__ = ["MEASURES", "Coordinates", "as_policy", "by_name", "check_measure", "softmax", "spherical"]

MEASURES = ("coordinates", "policy")
# Floor of a probability before its logarithm is taken: just above the smallest normal float32.
SMALLEST = 1e-37


def check_measure(measure: str, coordinates: "Coordinates | None" = None) -> None:
    """Raise an error if there is no such measure, or no law of that kind in these coordinates."""
    if measure not in MEASURES:
        raise ValueError(f"measure is {measure!r}; choose 'coordinates' for exp(R) da or 'policy' for exp(R) dφ.")
    if measure == "coordinates" and coordinates is not None and coordinates.interval is None:
        raise ValueError(
            f"measure 'coordinates' has no law with {coordinates.name}: exp(R) does not fall off towards infinite "
            "logits, where policies are pure; choose 'policy'."
        )


@dataclass(frozen=True)
class Coordinates:
    """Coordinates of policies; `spherical` and `softmax` make them.

    Attributes
    ----------
    states
        Number of states.
    actions
        Number of actions.
    """

    states: int
    actions: int

    # The interval of every coordinate; ``None`` for the real numbers.
    interval: ClassVar[tuple[float, float] | None] = None
    name: ClassVar[str] = ""

    def __post_init__(self) -> None:
        check_whole(states=self.states, actions=self.actions)
        for name in ("states", "actions"):
            object.__setattr__(self, name, int(getattr(self, name)))
        if self.actions < 2:
            raise ValueError(f"actions is {self.actions}; give at least 2, so that there is something to choose.")

    @property
    def dim(self) -> int:
        """The number of coordinates, states · (actions − 1)."""
        return self.states * (self.actions - 1)

    def by_state(self, point: Any) -> Any:
        """Reshape coordinates (…, dim) to (…, states, actions − 1)."""
        point = as_floats(point)
        if point.shape[-1:] != (self.dim,):
            raise ValueError(
                f"points have shape {point.shape}; for {self.states} states and {self.actions} actions give "
                f"coordinates (…, {self.dim})."
            )
        return point.reshape(*point.shape[:-1], self.states, self.actions - 1)

    def policy(self, point: Any) -> Any:
        """φ (…, states, actions) at coordinates (…, dim)."""
        raise NotImplementedError

    def point(self, policy: Any) -> Any:
        """Coordinates (…, dim) of policies (…, states, actions)."""
        raise NotImplementedError

    def jacobian(self, point: Any) -> Any:
        """∂φ(u|x)/∂a_p(x), (…, states, actions, actions − 1); other states' coordinates do not matter."""
        raise NotImplementedError

    def log_volume(self, point: Any) -> Any:
        """log|det ∂φ/∂a|, where φ stands for all but the last probability of every state."""
        raise NotImplementedError

    def drift(self, point: Any) -> Any:
        """½∇log|det ∂φ/∂a|: a chain with this additional drift samples exp(R) dφ."""
        raise NotImplementedError

    def fold(self, point: Any) -> tuple[Any, Any]:
        """The point inside the interval with the same policy, and the factor ±1 for its gradient."""
        raise NotImplementedError

    def pull(self, point: Any, gradient: Any) -> Any:
        """∇_a R = (∂φ/∂a)ᵀ ∇_φ R, from the gradient with respect to φ, (…, states, actions)."""
        gradient = as_floats(gradient)
        if gradient.shape[-2:] != (self.states, self.actions):
            raise ValueError(
                f"gradient has shape {gradient.shape}; give (…, states, actions), here "
                f"(…, {self.states}, {self.actions})."
            )
        pulled = (self.jacobian(point) * gradient[..., None]).sum(-2)
        return pulled.reshape(*pulled.shape[:-2], self.dim)

    def uniform(self, measure: str = "policy") -> Density:
        """A density to start learners from: uniform over policies or, for angles, over coordinates."""
        check_measure(measure)
        if measure == "coordinates":
            return self._even()
        constant = self.states * math.lgamma(self.actions)

        def sample(key: Array, shape: tuple[int, ...]) -> Array:
            waits = jax.random.exponential(key, (*shape, self.states, self.actions))
            return self.point(waits / waits.sum(axis=-1, keepdims=True))

        def log_prob(point: Array) -> Array:
            return jnp.where(self._inside(point), constant + self.log_volume(point), -jnp.inf)

        return Density(log_prob, sample, self.dim)

    def _inside(self, point: Array) -> Array:
        """Whether all coordinates are inside the interval."""
        low, high = (-jnp.inf, jnp.inf) if self.interval is None else self.interval
        return jnp.all((point >= low) & (point <= high))

    def _even(self) -> Density:
        raise NotImplementedError


@dataclass(frozen=True)
class _Spherical(Coordinates):
    interval: ClassVar[tuple[float, float] | None] = (0.0, math.pi / 2)
    name: ClassVar[str] = "spherical"

    def policy(self, point: Any) -> Any:
        angles = self.by_state(point)
        xp = angles.__array_namespace__()
        left, shares = xp.ones_like(angles[..., 0]), []
        for p in range(self.actions - 1):
            shares.append(left * xp.cos(angles[..., p]) ** 2)
            left = left * xp.sin(angles[..., p]) ** 2
        return xp.stack([*shares, left], axis=-1)

    def point(self, policy: Any) -> Any:
        policy = as_policy(policy, self.states, self.actions)
        xp = policy.__array_namespace__()
        policy = xp.maximum(policy, xp.zeros_like(policy))
        # The probability left after u actions, summed from the end: no cancellation where it is small.
        left = xp.flip(xp.cumsum(xp.flip(policy, axis=-1), axis=-1), axis=-1)
        angles = xp.arctan2(xp.sqrt(left[..., 1:]), xp.sqrt(policy[..., :-1]))
        return angles.reshape(*angles.shape[:-2], self.dim)

    def jacobian(self, point: Any) -> Any:
        angles = self.by_state(point)
        xp = angles.__array_namespace__()
        one = xp.ones_like(angles[..., 0])
        cosine, sine, double = xp.cos(angles) ** 2, xp.sin(angles) ** 2, xp.sin(2 * angles)
        last = self.actions - 1

        def entry(u: int, p: int) -> Any:
            if p > u:
                return 0 * one
            factors = [double[..., q] if q == p else sine[..., q] for q in range(u)]
            if u < last:
                factors.append(-double[..., u] if p == u else cosine[..., u])
            return math.prod(factors, start=one)

        rows = [xp.stack([entry(u, p) for p in range(last)], axis=-1) for u in range(self.actions)]
        return xp.stack(rows, axis=-2)

    def _following(self, angles: Any) -> np.ndarray:
        """U − 1 − p for p = 1 … U − 1, beside angles: the number of further angles that share the rest of an angle."""
        number = np.arange(self.actions - 2, -1, -1).astype(angles.dtype)
        return number.reshape((1,) * (angles.ndim - 1) + (-1,))

    def log_volume(self, point: Any) -> Any:
        angles = self.by_state(self.fold(point)[0])
        xp = angles.__array_namespace__()
        double, sine = xp.sin(2 * angles), xp.sin(angles) ** 2
        floor = SMALLEST * xp.ones_like(double)
        logs = xp.log(xp.maximum(double, floor)) + self._following(angles) * xp.log(xp.maximum(sine, floor))
        return logs.sum((-2, -1))

    def drift(self, point: Any) -> Any:
        inside, sign = self.fold(point)
        angles = self.by_state(inside)
        xp = angles.__array_namespace__()
        floor = SMALLEST * xp.ones_like(angles)

        def cotangent(angle: Any) -> Any:
            # At the ends it has poles: there it is large and has the right sign.
            return xp.cos(angle) / xp.maximum(xp.sin(angle), floor)

        return sign * (cotangent(2 * angles) + self._following(angles) * cotangent(angles)).reshape(inside.shape)

    def fold(self, point: Any) -> tuple[Any, Any]:
        point = as_floats(point)
        xp = point.__array_namespace__()
        turned = point % math.pi
        far = turned > math.pi / 2
        one = xp.ones_like(point)
        return xp.where(far, math.pi - turned, turned), xp.where(far, -one, one)

    def _even(self) -> Density:
        def sample(key: Array, shape: tuple[int, ...]) -> Array:
            return jax.random.uniform(key, (*shape, self.dim), maxval=math.pi / 2)

        def log_prob(point: Array) -> Array:
            return jnp.where(self._inside(point), -self.dim * math.log(math.pi / 2), -jnp.inf)

        return Density(log_prob, sample, self.dim)


@dataclass(frozen=True)
class _Softmax(Coordinates):
    name: ClassVar[str] = "softmax"

    def policy(self, point: Any) -> Any:
        logits = self.by_state(point)
        xp = logits.__array_namespace__()
        logits = xp.concatenate([logits, xp.zeros_like(logits[..., :1])], axis=-1)
        weight = xp.exp(logits - logits.max(axis=-1, keepdims=True))
        return weight / weight.sum(axis=-1, keepdims=True)

    def point(self, policy: Any) -> Any:
        policy = as_policy(policy, self.states, self.actions)
        xp = policy.__array_namespace__()
        logs = xp.log(xp.maximum(policy, SMALLEST * xp.ones_like(policy)))
        logits = logs[..., :-1] - logs[..., -1:]
        return logits.reshape(*logits.shape[:-2], self.dim)

    def jacobian(self, point: Any) -> Any:
        policy = self.policy(point)
        own = np.eye(self.actions)[:, :-1].astype(policy.dtype)
        there = policy[..., None, :-1]
        return policy[..., :, None] * (own.reshape((1,) * (there.ndim - 2) + own.shape) - there)

    def log_volume(self, point: Any) -> Any:
        policy = self.policy(point)
        xp = policy.__array_namespace__()
        return xp.log(xp.maximum(policy, SMALLEST * xp.ones_like(policy))).sum((-2, -1))

    def drift(self, point: Any) -> Any:
        drift = (1 - self.actions * self.policy(point)[..., :-1]) / 2
        return drift.reshape(*drift.shape[:-2], self.dim)

    def fold(self, point: Any) -> tuple[Any, Any]:
        point = as_floats(point)
        return point, point.__array_namespace__().ones_like(point)

    def _even(self) -> Density:
        raise ValueError("softmax coordinates have no uniform density, being unbounded; give measure='policy'.")


def spherical(states: int, actions: int) -> Coordinates:
    """Angles a: φ(u|x) = cos²a_u Π_{p<u} sin²a_p.

    Examples
    --------
    >>> angles = spherical(states=1, actions=3)
    >>> point = angles.point([[0.5, 0.25, 0.25]])
    >>> (point / math.pi).round(3).tolist()
    [0.25, 0.25]
    >>> angles.policy(point).round(3).tolist()
    [[0.5, 0.25, 0.25]]
    >>> inside, sign = angles.fold(-point)  # the same policy, the opposite gradient
    >>> (inside / math.pi).round(3).tolist(), sign.tolist()
    ([0.25, 0.25], [-1.0, -1.0])
    """
    return _Spherical(states, actions)


def softmax(states: int, actions: int) -> Coordinates:
    """Logits l, the last one zero: φ(u|x) ∝ exp(l_u).

    Examples
    --------
    >>> softmax(states=1, actions=2).policy([math.log(3)]).round(3).tolist()
    [[0.75, 0.25]]
    """
    return _Softmax(states, actions)


def by_name(name: str, states: int, actions: int) -> Coordinates:
    """`spherical` or `softmax`, by the name that is saved in files."""
    return {"spherical": spherical, "softmax": softmax}[name](states, actions)


# Tolerance for probabilities and their sums, generous enough for policies computed in float32.
ROUNDING = 1e-4


def as_policy(values: Any, states: int, actions: int) -> Any:
    """Policies (…, states, actions), probabilities over actions in every state; JAX arrays are not checked."""
    policy = as_floats(values)
    if policy.shape[-2:] != (states, actions):
        raise ValueError(f"policy has shape {policy.shape}; give (…, states, actions), here (…, {states}, {actions}).")
    if isinstance(policy, np.ndarray) and policy.size:
        if not policy.min() >= -ROUNDING:
            raise ValueError(f"policy contains {policy.min():.3g}; give probabilities.")
        total = policy.sum(axis=-1)
        if not np.abs(total - 1).max() <= ROUNDING:
            worst = total.reshape(-1)[np.abs(total - 1).argmax()]
            raise ValueError(f"policy has a row that sums to {worst:.6g}; every state's probabilities must sum to one.")
    return policy
