"""ψ(θ) = E Σₜ γᵗ φ(sₜ, uₜ) in a known Markov decision process: exact, from arrays, and differentiated by JAX.

    ψ = d₀ᵀ (I − γP_θ)⁻¹ φ_θ,   P_θ = Σᵤ π_θ(u|s) P(s′|s, u),   φ_θ = Σᵤ π_θ(u|s) φ(s, u)

or the sum of the first ``horizon`` steps. A reward w·φ(s, u) of states and actions then is R(θ) = w·ψ(θ).
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from onlooker.core.settings import check_whole
from onlooker.explanation.features import ByFunction

__all__ = ["entropy_of", "tabular"]

ENTROPY = "entropy"


def tabular(
    transitions: Any,
    phi: Any,
    start: Any,
    discount: float,
    *,
    policy: Callable[[Any], Any],
    horizon: int | None = None,
    names: Any = (),
) -> ByFunction:
    """Features of policies in a Markov decision process whose transitions are known, for `explain`.

    Besides the features, `explain` then keeps the entropy of the policy, Σₛ H(π(·|s)), as something that agents may
    climb.

    Parameters
    ----------
    transitions
        (actions, states, states): the probability of the next state, in the last axis.
    phi
        (states, actions, k): the features of an action in a state; or (states, k): those of the state that it leads to.
    start
        The number of the state in which paths start, or its distribution (states,).
    discount
        γ, from 0 to 1; 1 needs a horizon.
    policy
        θ ↦ logits (states, actions), in jax.numpy: actions are drawn with probabilities softmax(logits).
    horizon
        Number of steps of a path; default: infinite.
    names
        Names of the features.

    Examples
    --------
    >>> stay, swap = np.eye(2), 1 - np.eye(2)
    >>> psi = tabular([stay, swap], np.eye(2), 0, 0.5, policy=lambda t: t.reshape(2, 2), names=["left", "right"])
    >>> psi.values(np.zeros((1, 4))).round(3)
    array([[1., 1.]])
    """
    chance, earned, law, steps = _checked(transitions, phi, start, discount, horizon)

    def psi(theta: Any) -> Any:
        import jax
        import jax.numpy as jnp

        logits = _logits(policy, theta, earned.shape[:2])
        act = jax.nn.softmax(logits, axis=-1)
        kind = act.dtype
        chain = jnp.einsum("sa,asp->sp", act, jnp.asarray(chance, kind))
        once = jnp.einsum("sa,sak->sk", act, jnp.asarray(earned, kind))
        begin = jnp.asarray(law, kind)
        if steps is None:
            ahead = jnp.linalg.solve(jnp.eye(len(law), dtype=kind) - jnp.asarray(discount, kind) * chain, once)
            return begin @ ahead

        def step(now: Any, weight: Any) -> tuple[Any, Any]:
            return now @ chain, weight * (now @ once)

        weights = jnp.asarray(float(discount) ** np.arange(steps), kind)
        return jax.lax.scan(step, begin, weights)[1].sum(axis=0)

    return ByFunction(psi, tuple(map(str, names)), {ENTROPY: entropy_of(policy, earned.shape[:2])})


def entropy_of(policy: Callable[[Any], Any], shape: tuple[int, int]) -> Callable[[Any], Any]:
    """θ ↦ Σₛ H(π(·|s))."""

    def entropy(theta: Any) -> Any:
        import jax
        import jax.numpy as jnp

        logs = jax.nn.log_softmax(_logits(policy, theta, shape), axis=-1)
        return -jnp.sum(jnp.exp(logs) * logs)

    return entropy


def _logits(policy: Callable[[Any], Any], theta: Any, shape: tuple[int, int]) -> Any:
    logits = policy(theta)
    if getattr(logits, "shape", None) != shape:
        found = getattr(logits, "shape", None)
        raise ValueError(f"policy returns an array of shape {found}; return logits (states, actions), {shape}.")
    return logits


def _checked(
    transitions: Any, phi: Any, start: Any, discount: float, horizon: int | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int | None]:
    """Transitions, φ (states, actions, k), the start's distribution and the horizon."""
    chance, earned = np.asarray(transitions, float), np.asarray(phi, float)
    if chance.ndim != 3 or chance.shape[1] != chance.shape[2]:
        raise ValueError(f"transitions has shape {chance.shape}; give (actions, states, states).")
    if (chance < 0).any() or not np.allclose(chance.sum(axis=2), 1, atol=1e-6):
        raise ValueError("transitions has rows that are no distributions; the next state is the last axis.")
    actions, states, _ = chance.shape
    if earned.ndim == 2 and len(earned) == states:
        earned = np.einsum("asp,pk->sak", chance, earned)
    if earned.ndim != 3 or earned.shape[:2] != (states, actions):
        raise ValueError(
            f"phi has shape {earned.shape}; give ({states}, {actions}, k), or ({states}, k) of next states."
        )
    law = np.eye(states)[int(start)] if np.ndim(start) == 0 else np.asarray(start, float)
    if law.shape != (states,) or (law < 0).any() or not np.isclose(law.sum(), 1, atol=1e-6):
        raise ValueError(f"start is not a distribution over {states} states; give one, or the number of a state.")
    if not 0 <= discount <= 1 or (discount == 1 and horizon is None):
        raise ValueError(f"discount is {discount!r}; give a number from 0 to 1, and a horizon if it is 1.")
    if horizon is not None:
        check_whole(horizon=horizon)
    return chance, earned, law, None if horizon is None else int(horizon)
