"""∇ψ(θ) from paths, without a model: Σₜ ∇log π(uₜ|sₜ; θ) (Σ_{t′≥t} γᵗ′ φₜ′ − mean), in independent parts.

Each part of a row's paths gives one unbiased estimate, whose baseline is the mean of the others' features to go. Its
noise makes weights too small unless products are taken across parts, which `explain` does.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from onlooker.core.settings import check_whole
from onlooker.explanation.features import ByFunction, check_independent
from onlooker.explanation.tabular import ENTROPY, entropy_of

__all__ = ["FromPaths", "paths"]


def paths(
    states: Any,
    actions: Any,
    phi: Any,
    discount: float,
    *,
    policy: Callable[[Any], Any] | None = None,
    log_prob: Callable[[Any, Any, Any], Any] | None = None,
    parts: int = 5,
    own: bool = False,
    names: Any = (),
) -> "FromPaths":
    """Features of policies from paths, observed or simulated, for `explain`: for every row, paths of its policy.

    Parameters
    ----------
    states
        (rows, paths, steps): numbers of states; with ``log_prob``, states of any kind (rows, paths, steps, …).
    actions
        (rows, paths, steps), or (rows, paths, steps, …) with ``log_prob``.
    phi
        (rows, paths, steps, k): the features earned at each step.
    discount
        γ, from 0 to 1.
    policy
        θ ↦ logits (states, actions), in jax.numpy.
    log_prob
        In place of ``policy``: (θ, state, action) ↦ log π(action|state; θ), in jax.numpy, of one state and action.
    parts
        Number of independent parts that the paths are divided into: more are never worse.
    own
        Whether the agents' own gradients were computed from these paths. Then `explain` needs those of each part,
        gradients (parts, n, dim): their noise is that of the Jacobians, and products of the two are biased.
    names
        Names of the features.
    """
    return FromPaths(states, actions, phi, discount, policy, log_prob, parts, own, tuple(map(str, names)))


class FromPaths:
    """See `paths`."""

    def __init__(
        self,
        states: Any,
        actions: Any,
        phi: Any,
        discount: float,
        policy: Callable[[Any], Any] | None,
        log_prob: Callable[[Any, Any, Any], Any] | None,
        parts: int,
        own: bool,
        names: tuple[str, ...],
    ) -> None:
        check_whole(parts=parts)
        self.states, self.actions, earned = np.asarray(states), np.asarray(actions), np.asarray(phi)
        if (policy is None) == (log_prob is None):
            raise ValueError("give either policy, which returns a table of logits, or log_prob.")
        if earned.ndim != 4:
            raise ValueError(f"phi has shape {earned.shape}; give the features earned, (rows, paths, steps, k).")
        shape = earned.shape[:3]
        for name, array in (("states", self.states), ("actions", self.actions)):
            if array.shape[:3] != shape:
                raise ValueError(f"{name} has shape {array.shape} but phi {earned.shape}; give one entry per step.")
        if policy is not None and (self.states.dtype.kind not in "iu" or self.actions.dtype.kind not in "iu"):
            raise ValueError("states or actions are not whole numbers; give their numbers, or log_prob for others.")
        if not 0 <= discount <= 1:
            raise ValueError(f"discount is {discount!r}; give a number from 0 to 1.")
        if parts < 2 or shape[1] // parts < 2:
            raise ValueError(
                f"parts is {parts} of {shape[1]} paths a row; give at least 2 parts of at least 2 paths each."
            )
        self.parts, self.own, self.names, self.by_row = int(parts), bool(own), names, shape[0]
        weight = float(discount) ** np.arange(shape[2])
        to_go = (earned * weight[:, None])[:, :, ::-1].cumsum(axis=2)[:, :, ::-1]
        size = shape[1] // parts
        to_go = to_go[:, : size * parts].reshape(shape[0], parts, size, shape[2], -1)
        # The mean of the other paths at the same step is a baseline that does not depend on this path.
        self.ahead = (to_go - to_go.mean(axis=2, keepdims=True)) / (size - 1)
        cut = {}
        for name, array in (("states", self.states), ("actions", self.actions)):
            cut[name] = array[:, : size * parts].reshape(shape[0], parts, size, *array.shape[2:])
        self.states, self.actions = cut["states"], cut["actions"]
        flat = [np.moveaxis(part, 1, 0).reshape(parts, -1) for part in cut.values()]
        check_independent(np.concatenate(flat, axis=1), "paths")
        self._policy, self._log_prob = policy, log_prob
        self.suspects: tuple[str, ...] = () if policy is None else (ENTROPY,)
        self._entropy: ByFunction | None = None
        self._compiled: dict[Any, Callable[..., Any]] = {}

    def at(self, points: np.ndarray, rows: np.ndarray) -> tuple[None, np.ndarray]:
        """The transposed Jacobians (parts, n, k, dim) of these rows."""
        import jax

        points = np.asarray(points, np.result_type(points.dtype, np.float32))
        with jax.enable_x64(points.dtype == np.float64):
            if points.dtype not in self._compiled:
                scores = self._of_table if self._policy is not None else self._of_steps
                self._compiled[points.dtype] = jax.jit(jax.vmap(jax.jacrev(scores)))
            jacobians = np.asarray(self._compiled[points.dtype](points, *self._seen(points, rows)))
        return None, np.moveaxis(jacobians, 1, 0)

    def _seen(self, points: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, ...]:
        """What the scores of these rows are made of: tables of features to go, or steps."""
        ahead = self.ahead[rows].astype(points.dtype)
        if self._policy is None:
            return self.states[rows], self.actions[rows], ahead
        shape = self._table(points)
        n, parts, k = len(rows), self.parts, ahead.shape[-1]
        if (
            self.states.max() >= shape[0]
            or self.actions.max() >= shape[1]
            or min(self.states.min(), self.actions.min()) < 0
        ):
            raise ValueError(
                f"states or actions are outside the policy's table of {shape[0]} states and {shape[1]} actions; give "
                "their numbers, from 0."
            )
        cells = shape[0] * shape[1]
        cell = (self.states[rows] * shape[1] + self.actions[rows]).reshape(n * parts, -1)
        cell = (cell + cells * np.arange(n * parts)[:, None]).ravel()
        flat = ahead.reshape(-1, k)
        tables = [np.bincount(cell, flat[:, one], cells * n * parts) for one in range(k)]
        return (np.stack(tables, axis=-1).reshape(n, parts, *shape, k).astype(points.dtype),)

    def _table(self, points: np.ndarray) -> tuple[int, int]:
        import jax

        assert self._policy is not None
        found = jax.eval_shape(self._policy, jax.ShapeDtypeStruct(points.shape[1:], points.dtype))
        if len(found.shape) != 2:
            raise ValueError(f"policy returns an array of shape {found.shape}; return logits (states, actions).")
        return found.shape

    def _of_table(self, theta: Any, tables: Any) -> Any:
        """Scores (parts, k) whose gradients are the estimates, from tables (parts, states, actions, k)."""
        import jax
        import jax.numpy as jnp

        assert self._policy is not None
        return jnp.einsum("sa,psak->pk", jax.nn.log_softmax(self._policy(theta), axis=-1), tables)

    def _of_steps(self, theta: Any, states: Any, actions: Any, ahead: Any) -> Any:
        """The same from steps, (parts, paths, steps, …)."""
        import jax
        import jax.numpy as jnp

        assert self._log_prob is not None
        each = self._log_prob
        for _ in range(3):
            each = jax.vmap(each, in_axes=(None, 0, 0))
        return jnp.einsum("pnt,pntk->pk", each(theta, states, actions), ahead)

    def suspected(self, points: np.ndarray) -> np.ndarray:
        """The transposed Jacobian of the entropy, (n, 1, dim), if the policy is a table."""
        if self._policy is None:
            return np.zeros((len(points), 0, points.shape[1]), points.dtype)
        if self._entropy is None:
            self._entropy = ByFunction(
                lambda point: point, (), {ENTROPY: entropy_of(self._policy, self._table(points))}
            )
        return self._entropy.suspected(points)
