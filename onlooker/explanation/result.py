"""What was found: R̂(θ) = ŵ·ψ(θ), with error bars, what cannot be known, and whether the features suffice."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from onlooker.core.messages import Message, trusted
from onlooker.core.settings import as_places
from onlooker.fit.linear_weights import Weights

__all__ = ["Estimate", "Explanation"]

# Share of |ψ| in an unidentified direction that rounding of float32 may leave.
ROUNDING = 1e-4


class Estimate(NamedTuple):
    """A number and its standard error; nan if it cannot be known."""

    value: float
    error: float


@dataclass(frozen=True, repr=False)
class Explanation:
    """The reward as weights of features, as `explain` finds it.

    Attributes
    ----------
    names
        Names of the features.
    suspected
        Names of the terms that agents may climb besides them.
    found
        All weights, those of the suspects after those of the features.
    dim
        Dimension of the points.
    rows
        Number of observations.
    reference
        Mean of ψ over the observations, (k,), if ψ is known: R̂ is zero there.
    warnings
        Messages to read before the result is used.
    features
        ψ; ``None`` if only Jacobians are known, or after loading without it.
    """

    names: tuple[str, ...]
    suspected: tuple[str, ...]
    found: Weights
    dim: int
    rows: int
    reference: np.ndarray | None = None
    warnings: list[Message] = field(default_factory=list)
    features: Any = None

    def __repr__(self) -> str:
        lines = [f"Explanation of {self.rows:,} rows of {self.dim:,} dimensions by {len(self.names)} features"]
        alone = np.isfinite(self.weights)
        for name, value, error, known in zip(self.names, *self.part_known, alone, strict=True):
            lines.append(f"  {name:<20} {value:.4g} ± {error:.2g}{'' if known else ', up to what is unidentified'}")
        lines += [f"  ({name:<18} {value:.4g} ± {error:.2g})" for name, (value, error) in self.suspects.items()]
        lines.append(
            f"  explained {self.explained:.3g}, misfit z {self.misfit:.2g}, reliability {self.reliability:.2g}"
        )
        lines += [f"  warning: {message}" for message in self.warnings]
        return "\n".join(lines)

    @property
    def trusted(self) -> bool:
        """Whether no warning says that the answer may be wrong."""
        return trusted(self.warnings)

    @property
    def weights(self) -> np.ndarray:
        """ŵ, (k,); nan for those of which only contrasts with others are known."""
        return self.found.contrast(self._unit)[0]

    @property
    def weight_error(self) -> np.ndarray:
        """Standard errors of the weights, (k,)."""
        return self.found.contrast(self._unit)[1]

    @property
    def part_known(self) -> tuple[np.ndarray, np.ndarray]:
        """The weights without their part in unidentified directions, and its errors: what all of them have in common.

        If only differences are known, these are the weights less their mean.
        """
        known = np.eye(len(self.found.values)) - self.found.unidentified @ self.found.unidentified.T
        value, error = self.found.contrast(known[: len(self.names)])
        return value, error

    @property
    def suspects(self) -> dict[str, Estimate]:
        """The weights of what agents may climb besides the features."""
        value, error = self.found.contrast(np.eye(len(self.found.values))[len(self.names) :])
        return {name: Estimate(*map(float, pair)) for name, *pair in zip(self.suspected, value, error, strict=True)}

    @property
    def unidentified(self) -> list[dict[str, float]]:
        """Combinations of weights that nothing that was seen depends on: any multiple of one can be added to ŵ."""
        return [named(direction, self._all_names) for direction in self.found.unidentified.T]

    @property
    def explained(self) -> float:
        """Share of |∇R|² that features and suspects explain, without the noise; nan if that cannot be told."""
        return self.found.explained

    @property
    def misfit(self) -> float:
        """z of the misfit test: standard normal if the features are right; nan if it is not possible."""
        return self.found.misfit

    @property
    def reliability(self) -> float:
        """Share of the Jacobians' products that is not their own noise, at worst; 1 if they are exact."""
        return self.found.reliability

    @property
    def rates(self) -> dict[str, float] | None:
        """Learning rates of the agents relative to their mean, if they were not known."""
        if self.found.rates is None or self.found.agents is None:
            return None
        return dict(zip(self.found.agents.tolist(), self.found.rates.tolist(), strict=True))

    def contrast(self, weights: Mapping[str, float] | None = None, /, **more: float) -> Estimate:
        """Σ dᵢwᵢ and its standard error; nan if it cannot be known.

        Parameters
        ----------
        weights
            dᵢ by name, such as ``{"goal": 1, "grey": -1}``.
        more
            The same for names that are Python's: ``contrast(goal=1, grey=-1)``.
        """
        value, error = self.found.contrast(self._direction({**(weights or {}), **more})[None])
        return Estimate(float(value[0]), float(error[0]))

    def interval(
        self, weights: Mapping[str, float] | None = None, /, *, level: float = 0.95, **more: float
    ) -> tuple[float, float]:
        """Confidence limits of Σ dᵢwᵢ, by Student's t.

        With Jacobians that are hardly reliable it is Anderson's and Rubin's set, which covers all the same, and may be
        infinite.

        Parameters
        ----------
        weights
            dᵢ by name; see `contrast`.
        level
            The probability with which they hold.
        more
            dᵢ by name.
        """
        if not 0 < level < 1:
            raise ValueError(f"level is {level!r}; give a probability between 0 and 1.")
        low, high = self.found.interval(self._direction({**(weights or {}), **more})[None], level)
        return float(low[0]), float(high[0])

    def reward(self, x: Any) -> np.ndarray:
        """R̂ at x (n, dim), also where no learner was, less its mean over the observations; nan if it is not known."""
        return self._of(self._values(x) - self.reference)[0]

    def reward_error(self, x: Any) -> np.ndarray:
        """Standard error of `reward` at x (n, dim)."""
        return self._of(self._values(x) - self.reference)[1]

    def table(self, phi: Any) -> np.ndarray:
        """The reward w·φ of features φ (…, k), of any world, less its mean over them; nan where it cannot be known.

        For a world that nobody saw: features of its states, or of its states and actions.
        """
        earned = np.asarray(phi, float)
        if earned.ndim < 2 or earned.shape[-1] != len(self.names):
            raise ValueError(f"phi has shape {earned.shape}; give features (…, {len(self.names)}).")
        flat = earned.reshape(-1, len(self.names))
        return self._of(flat - flat.mean(axis=0))[0].reshape(earned.shape[:-1])

    def plot(self) -> Any:
        """A matplotlib Figure: bars of the weights with 95 % intervals, and in grey what cannot be known."""
        from onlooker.explanation.plots import bars

        return bars(self)

    def save(self, path: Any) -> Path:
        """Write one file, which appears complete or not at all; ψ itself is not in it."""
        from onlooker.explanation.store import save

        return save(self, Path(path))

    @classmethod
    def load(cls, path: Any, features: Any = None) -> "Explanation":
        """Load a saved explanation.

        Parameters
        ----------
        path
            The file.
        features
            ψ, if `reward` is to be asked.
        """
        from onlooker.explanation.store import load

        return load(Path(path), features)

    @property
    def _unit(self) -> np.ndarray:
        return np.eye(len(self.found.values))[: len(self.names)]

    @property
    def _all_names(self) -> tuple[str, ...]:
        return (*self.names, *self.suspected)

    def _direction(self, weights: Mapping[str, float]) -> np.ndarray:
        if not weights:
            raise ValueError("a contrast is empty; give the weights' factors by name, such as goal=1, grey=-1.")
        if unknown := sorted(set(weights) - set(self._all_names)):
            raise ValueError(f"there is no feature {unknown[0]!r}; the names are {', '.join(self._all_names)}.")
        return np.array([float(weights.get(name, 0)) for name in self._all_names])

    def _values(self, x: Any) -> np.ndarray:
        if self.features is None or self.reference is None or not hasattr(self.features, "values"):
            raise ValueError(
                "R̂ needs ψ, which is not known here; use contrast or table, or give features as a function."
            )
        points = as_places(x, self.dim)
        return np.asarray(self.features.values(points), float)

    def _of(self, away: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """w·d and its error for differences d of ψ (n, k), whose part below rounding is not looked at."""
        directions = np.concatenate([away, np.zeros((len(away), len(self.suspected)))], axis=1)
        hidden = self.found.unidentified
        lost = directions @ hidden
        size = np.linalg.norm(directions, axis=1)
        size = ROUNDING * np.maximum(size, size.mean() if len(size) else 0)
        small = np.linalg.norm(lost, axis=1) <= size
        directions = np.where(small[:, None], directions - lost @ hidden.T, directions)
        return self.found.contrast(directions)


def named(direction: np.ndarray, names: tuple[str, ...]) -> dict[str, float]:
    """A direction of weights by name, its largest entry 1, without entries that are rounding."""
    largest = direction[np.argmax(np.abs(direction))]
    scaled = direction / largest
    return {name: round(float(part), 4) for name, part in zip(names, scaled, strict=True) if abs(part) > 1e-3}
