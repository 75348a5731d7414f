"""R(θ) = T·mean_k log p(y_k|ψ_k, θ) − Σ|θ_j|: logistic regression with a Laplace prior, the paper's Example 2.

P(y = 1|ψ, θ) = 1/(1 + exp(−ψᵀθ)); the features ψ begin with a 1 for the bias. A sample gradient uses one row,
∇r(θ, ψ, y) = T ψ (y − P(y = 1|ψ, θ)) − sgn θ. As exp(R) this is a posterior tempered to the weight of T rows.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from onlooker.core.settings import check_positive
from onlooker.simulation.libsvm import a9a
from onlooker.simulation.reward import batch_shape, first_rows, sweep

__all__ = ["Logistic", "Rows", "on_a9a"]


class Rows(NamedTuple):
    """Rows of the data: features ψ (…, dim) and labels y (…), 0 or 1."""

    features: Array
    label: Array


@dataclass(frozen=True, eq=False)
class Logistic:
    """The reward of given rows.

    Attributes
    ----------
    features
        (rows, features) without the bias.
    labels
        (rows,) of two values, the larger for y = 1.
    weight
        T: the likelihood has the weight of T rows.
    order
        "random": a row at random at every step. "rotated": one after another, each lane from a random row.
        "cyclic": one after another from the first row, the same for all lanes, as in the paper; with agents this leads
        to wrong answers (see `mixture.Sweep`).
    sweep_rows
        Number of rows in a cyclic sweep; default: all.
    """

    features: np.ndarray
    labels: np.ndarray
    weight: float = 10.0
    order: str = "random"
    sweep_rows: int | None = None

    def __post_init__(self) -> None:
        for name in ("features", "labels"):
            object.__setattr__(self, name, np.asarray(getattr(self, name)))
        if self.features.ndim != 2 or self.labels.shape != self.features.shape[:1] or not len(self.labels):
            raise ValueError(
                f"features has shape {self.features.shape} and labels {self.labels.shape}; give (rows, features) and "
                "one label per row."
            )
        if not (np.isfinite(self.features).all() and np.isfinite(self.labels).all()):
            raise ValueError("features or labels contain a NaN or an infinity; drop those rows.")
        if len(np.unique(self.labels)) > 2:
            raise ValueError(f"labels has {len(np.unique(self.labels))} different values; give two classes.")
        check_positive(weight=self.weight)
        if self.sweep_rows is not None and not 1 <= self.sweep_rows <= len(self.labels):
            raise ValueError(f"sweep_rows is {self.sweep_rows}; give 1 to {len(self.labels)}, the number of rows.")
        if self.order not in ("random", "cyclic", "rotated"):
            raise ValueError(f"order is {self.order!r}; choose 'random', 'cyclic' or 'rotated'.")

    @property
    def dim(self) -> int:
        return self.features.shape[1] + 1

    @property
    def rows(self) -> int:
        return len(self.labels)

    @cached_property
    def data(self) -> Rows:
        bias = np.ones((self.rows, 1), np.float32)
        features = np.concatenate([bias, self.features.astype(np.float32)], axis=1)
        values = np.unique(self.labels)
        ones = self.labels == values[-1] if len(values) == 2 else self.labels > 0
        # Concrete even if it is first used inside a compiled function.
        with jax.ensure_compile_time_eval():
            return Rows(jnp.asarray(features), jnp.asarray(ones.astype(np.float32)))

    def begin(self, data: Rows, key: Array, lanes: int | None) -> Array:
        """Each lane's first row."""
        return first_rows(key, lanes, self.rows, self.order == "rotated")

    def draw(self, data: Rows, carry: Array, key: Array, steps: int, lanes: int | None) -> tuple[Array, Rows]:
        """ψ, y for every step and lane."""
        if self.order == "random":
            row = jax.random.randint(key, batch_shape(steps, lanes), 0, self.rows)
        else:
            carry, row = sweep(carry, steps, self.sweep_rows or self.rows)
        features = data.features[row]
        return carry, Rows(features if lanes is None else jnp.moveaxis(features, -1, 1), data.label[row])

    def sample_gradient(self, point: Array, xi: Rows) -> Array:
        excess = xi.label - jax.nn.sigmoid(xi.features @ point)
        return self.weight * excess * xi.features - jnp.sign(point)

    def value(self, point: Array) -> Array:
        """R at one point (dim,)."""
        logit = self.data.features @ point
        likelihood = jnp.mean(self.data.label * logit - jax.nn.softplus(logit))
        return self.weight * likelihood - jnp.sum(jnp.abs(point))


def on_a9a(order: str = "random", sweep_rows: int | None = None) -> Logistic:
    """Example 2: a9a, N = 124, T = 10."""
    features, labels = a9a()
    return Logistic(features, labels, 10.0, order, sweep_rows)
