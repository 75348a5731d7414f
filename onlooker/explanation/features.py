"""ψ(θ) and its Jacobian, row by row: from a function that JAX differentiates, or from arrays.

Only the k pull-backs of a row are computed, so that memory is of order k·dim.
"""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

__all__ = ["ByFunction", "Features", "GivenJacobians", "as_features"]

# Numbers of Jacobians that are computed at a time: 64 MB of float32.
TOGETHER = 1 << 24
# Rows at a time at most.
ROWS = 64


class Features(Protocol):
    """Features ψ: θ ↦ ℝᵏ of a reward R(θ) = w·ψ(θ), and what else agents may climb.

    Attributes
    ----------
    names
        Names of the features; empty if they have none.
    parts
        Number of independent parts in which Jacobians are estimated; 1 if they are exact.
    own
        Whether the Jacobians come from the paths that the agents' gradients come from.
    by_row
        Number of rows that there are Jacobians for; ``None`` if there is one for any point.
    suspects
        Names of terms that may be in the reward besides the features.
    """

    names: tuple[str, ...]
    parts: int
    own: bool
    by_row: int | None
    suspects: tuple[str, ...]

    def at(self, points: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
        """ψ (n, k) if it is known, and the transposed Jacobians (parts, n, k, dim).

        Parameters
        ----------
        points
            Points (n, dim).
        rows
            Numbers (n,) of the points' rows.
        """
        ...

    def suspected(self, points: np.ndarray) -> np.ndarray:
        """The transposed Jacobians of the suspects, (n, s, dim)."""
        ...


class ByFunction:
    """Features given as a function of one point, which JAX differentiates.

    Parameters
    ----------
    function
        ψ: (dim,) ↦ (k,).
    names
        Names of the features.
    suspects
        Functions (dim,) ↦ () of terms that may be in the reward besides the features, by name.
    """

    def __init__(
        self,
        function: Callable[[Any], Any],
        names: tuple[str, ...] = (),
        suspects: dict[str, Callable[[Any], Any]] | None = None,
    ) -> None:
        self.function, self.names = function, names
        self.parts, self.own = 1, False
        self.by_row: int | None = None
        self._others = suspects or {}
        self.suspects: tuple[str, ...] = tuple(self._others)
        self._compiled: dict[Any, Callable[..., Any]] = {}

    def values(self, points: np.ndarray) -> np.ndarray:
        """ψ at points, (n, k)."""
        return self._pulled("features", self.function, points)[0]

    def at(self, points: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """ψ (n, k) and its transposed Jacobians (1, n, k, dim)."""
        values, jacobians = self._pulled("features", self.function, points)
        return values, jacobians[None]

    def suspected(self, points: np.ndarray) -> np.ndarray:
        """The transposed Jacobians of the suspects, (n, s, dim)."""
        if not self._others:
            return np.zeros((len(points), 0, points.shape[1]), points.dtype)
        import jax.numpy as jnp

        def every(point: Any) -> Any:
            return jnp.stack([other(point) for other in self._others.values()])

        return self._pulled("suspects", every, points)[1]

    def _pulled(self, name: str, function: Callable[..., Any], points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Values (n, k) and transposed Jacobians (n, k, dim), in the points' own precision."""
        import jax
        from jax.errors import ConcretizationTypeError, TracerArrayConversionError

        points = np.asarray(points, np.result_type(points.dtype, np.float32))
        with jax.enable_x64(points.dtype == np.float64):
            try:
                return self._in_chunks(name, function, points)
            except (TracerArrayConversionError, ConcretizationTypeError) as error:
                raise TypeError(
                    f"{name} cannot be differentiated by JAX ({type(error).__name__}); write the function with "
                    "jax.numpy, or give jacobians."
                ) from None
            except TypeError:
                if points.dtype == np.float32:
                    raise
        # A function with arrays of float32 in its loops takes no float64.
        with jax.enable_x64(False):
            return self._in_chunks(name, function, points.astype(np.float32))

    def _in_chunks(self, name: str, function: Callable[..., Any], points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        import jax

        count = self._count(name, function, points[:1])
        n, dim = points.shape
        size = _padded(n, TOGETHER // (count * dim))
        key = name, points.dtype, count
        if key not in self._compiled:
            self._compiled[key] = jax.jit(jax.vmap(_pulls(function, count)))
        values, jacobians = np.empty((n, count), points.dtype), np.empty((n, count, dim), points.dtype)
        for first in range(0, n, size):
            rows = slice(first, first + size)
            chunk = points[rows]
            short = size - len(chunk)
            padded = np.concatenate([chunk, np.repeat(chunk[:1], short, axis=0)]) if short else chunk
            for whole, part in zip((values, jacobians), self._compiled[key](padded), strict=True):
                whole[rows] = np.asarray(part)[: len(chunk)]
        return values, jacobians

    def _count(self, name: str, function: Callable[..., Any], point: np.ndarray) -> int:
        import jax

        shape = jax.eval_shape(function, jax.ShapeDtypeStruct(point.shape[1:], point.dtype))
        found = getattr(shape, "shape", None)
        if found is None or len(found) != 1 or not found[0]:
            what = f"an array of shape {found}" if found is not None else type(shape).__name__
            raise ValueError(f"{name} returns {what} for one point; return an array of one number per feature, (k,).")
        return int(found[0])


def _padded(n: int, most: int) -> int:
    """The number of rows that are computed at a time: a power of two, so that few shapes are compiled."""
    return 1 << min(max(n - 1, 0).bit_length(), ROWS.bit_length() - 1, max(most, 1).bit_length() - 1)


def _pulls(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    """One evaluation and ``count`` pull-backs."""
    import jax
    import jax.numpy as jnp

    def both(point: Any) -> tuple[Any, Any]:
        values, pull = jax.vjp(function, point)
        return values, jax.vmap(lambda row: pull(row)[0])(jnp.eye(count, dtype=values.dtype))

    return both


class GivenJacobians:
    """Jacobians given as an array, one for each row.

    Parameters
    ----------
    jacobians
        (n, dim, k) if exact, or (parts, n, dim, k) if estimated in independent parts.
    names
        Names of the features.
    """

    def __init__(self, jacobians: Any, names: tuple[str, ...] = ()) -> None:
        array = np.asarray(jacobians)
        if array.ndim not in (3, 4) or array.dtype.kind not in "biuf" or not array.shape[-1]:
            raise ValueError(
                f"jacobians has shape {array.shape}; give (rows, dim, k), or (parts, rows, dim, k) if estimated."
            )
        if array.ndim == 4 and len(array) < 2:
            raise ValueError(
                "jacobians has 1 part; estimate at least 2 independent parts, or give (rows, dim, k) if they are exact."
            )
        check_independent(array if array.ndim == 4 else array[None], "jacobians")
        self.jacobians = array if array.ndim == 4 else array[None]
        self.names = names
        self.parts, self.own = len(self.jacobians), False
        self.by_row: int | None = self.jacobians.shape[1]
        self.suspects: tuple[str, ...] = ()

    def at(self, points: np.ndarray, rows: np.ndarray) -> tuple[None, np.ndarray]:
        """The transposed Jacobians (parts, n, k, dim) of these rows."""
        dim, k = self.jacobians.shape[2:]
        if dim != points.shape[1]:
            turned = "; its last two axes look exchanged" if k == points.shape[1] else ""
            raise ValueError(
                f"jacobians is of {dim} dimensions and {k} features but points has {points.shape[1]} dimensions"
                f"{turned}; give (…, rows, dim, k)."
            )
        return None, self.jacobians[:, rows].swapaxes(2, 3)

    def suspected(self, points: np.ndarray) -> np.ndarray:
        """None besides those of all features."""
        return np.zeros((len(points), 0, points.shape[1]))


def check_independent(parts: np.ndarray, name: str) -> None:
    """Raise if parts (parts, …) are copies of each other."""
    for number in range(1, len(parts)):
        if np.array_equal(parts[0], parts[number]):
            raise ValueError(f"{name} has equal parts (0 and {number}); estimate each part from paths of its own.")


def as_features(features: Any, jacobians: Any, names: Any) -> Features:
    """The features of a call: exactly one of a function, an object such as `tabular` returns, and Jacobians."""
    if (features is None) == (jacobians is None):
        raise ValueError("give either features, a function of one point, or jacobians.")
    if isinstance(names, str):
        raise ValueError(f"names is {names!r}; give a list of names, one for each feature.")
    words = () if names is None else tuple(map(str, names))
    if len(set(words)) < len(words):
        twice = next(word for word in words if words.count(word) > 1)
        raise ValueError(f"names has {twice!r} twice; give each feature a name of its own.")
    if jacobians is not None:
        return GivenJacobians(jacobians, words)
    if hasattr(features, "at") and hasattr(features, "suspected"):
        if words:
            features.names = words
        return features
    if not callable(features):
        raise TypeError(
            f"features is {type(features).__name__}; give a function of one point, or what onlooker.tabular or "
            "onlooker.paths returns."
        )
    return ByFunction(features, words)
