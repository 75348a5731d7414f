"""What a reconstruction is: samples, a reward with error bars, numbers and sentences about them; saved and loaded."""

import json
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import arviz_base
import numpy as np
import xarray
from scipy.optimize import minimize

from onlooker.check import as_places
from onlooker.coordinates import Coordinates, by_name
from onlooker.field.ridge import RidgePotential
from onlooker.field.smooth import SmoothPotential
from onlooker.reward import plots
from onlooker.reward.estimate import RewardEstimate
from onlooker.run import Chains
from onlooker.store import pack, unpack

__all__ = ["STORE", "Potential", "Reconstruction", "load"]

Potential = SmoothPotential | RidgePotential
# What makes a folder one of ours.
FORMAT = "onlooker reconstruction 1"
# Its name in the folder of a command's result.
STORE = "result.zarr"
# Places per axis of a picture.
PLOTTED = 120
# Coordinates that have a curve of their own.
MOST_CURVES = 8
# Climbs to the maximum, the samples their starts are the best of, and the step of their slopes in standard deviations
# of the samples.
CLIMBS = 5
LOOKED_AT = 8192
NUDGE = 0.01
FITS: dict[str, type] = {kind.__name__: kind for kind in (SmoothPotential, RidgePotential, RewardEstimate)}


@dataclass(frozen=True)
class Reconstruction:
    """A reconstructed reward.

    Attributes
    ----------
    method
        What was used.
    samples
        (chain, draw, dim) of exp(βR̂), thinned.
    diagnostics, warnings
        Numbers about it, and sentences a user should read.
    potential
        The fitted reward, of method "potential".
    estimate
        R̂ on a grid, of the other methods, for dim ≤ 3.
    chains
        The run behind the samples, of the other methods; not saved.
    observed
        Some of the observations: "points" and "gradients".
    coordinates
        Of policies, when the points are such; ``None`` otherwise.
    """

    method: str
    samples: np.ndarray
    diagnostics: dict[str, Any]
    warnings: list[str]
    potential: Potential | None = None
    estimate: RewardEstimate | None = None
    chains: Chains | None = None
    observed: dict[str, np.ndarray] = field(default_factory=dict)
    coordinates: Coordinates | None = None

    @property
    def dim(self) -> int:
        return self.samples.shape[-1]

    @property
    def policies(self) -> np.ndarray:
        """The samples as policies φ(u|x): (chain, draw, states, actions)."""
        if self.coordinates is None:
            raise ValueError("the points are no coordinates of policies; pass coordinates to reconstruct.")
        return self.coordinates.policy(self.samples)

    def _places(self, x: Any) -> np.ndarray:
        points = as_places(x, self.dim)
        return points if self.coordinates is None else self.coordinates.fold(points)[0]

    def reward(self, x: Any) -> np.ndarray:
        """R̂ at x (n, dim), up to a constant; nan where `explored` is false."""
        points = self._places(x)
        if self.potential is None:
            return self._grid()(points)
        return np.where(self.potential.explored(points), self.potential.value(points), np.nan)

    def reward_error(self, x: Any) -> np.ndarray:
        """Standard error of R̂ at x (n, dim), of its difference from R̂'s mean over the data; given the basis."""
        points = self._places(x)
        if self.potential is None:
            raise ValueError(f"error bars need a method that fits a potential; {self.method} has none.")
        return np.where(self.potential.explored(points), self.potential.error(points), np.nan)

    def explored(self, x: Any) -> np.ndarray:
        """Whether there were data, or chains, at x (n, dim)."""
        points = self._places(x)
        return self._grid().explored(points) if self.potential is None else self.potential.explored(points)

    def maximum(self) -> np.ndarray:
        """Where R̂ is highest, (dim,): climbed to from the best samples; of a grid, the middle of its highest bin."""
        if self.potential is None:
            grid = self._grid()
            best = np.unravel_index(int(np.nanargmax(grid.values)), grid.values.shape)
            return np.array([centres[index] for centres, index in zip(grid.centres, best, strict=True)])
        potential, flat = self.potential, self.samples.reshape(-1, self.dim)
        spread = flat.std(axis=0)
        low, high = flat.min(axis=0), flat.max(axis=0)
        if self.coordinates is not None and self.coordinates.interval is not None:
            low, high = (np.full(self.dim, end) for end in self.coordinates.interval)
        shifts = np.concatenate([np.zeros((1, self.dim)), *(sign * NUDGE * np.diag(spread) for sign in (1, -1))])

        def downhill(place: np.ndarray) -> tuple[float, np.ndarray]:
            around = np.clip(place + shifts, low, high)
            heights = potential.value(around)
            rise = heights[1 : 1 + self.dim] - heights[1 + self.dim :]
            return -heights[0], -rise / np.diagonal(around[1 : 1 + self.dim] - around[1 + self.dim :])

        some = flat[:: max(1, len(flat) // LOOKED_AT)]
        starts = some[np.argsort(-potential.value(some))[:: max(1, len(some) // 1000)][:CLIMBS]]
        climbed = [minimize(downhill, start, jac=True, bounds=list(zip(low, high, strict=True))) for start in starts]
        return min(climbed, key=lambda found: found.fun).x

    @property
    def _seen(self) -> np.ndarray:
        """Some of the places where learners were."""
        return self.observed.get("points", self.samples.reshape(-1, self.dim))

    def summit(self) -> np.ndarray:
        """Where R̂ is highest of what was explored, (dim,): its maximum or, if that is outside, the best place seen."""
        maximum = self.maximum()
        rewards = self.reward(self._seen)
        if self.explored(maximum[None])[0] or np.isnan(rewards).all():
            return maximum
        return self._seen[np.nanargmax(rewards)]

    def plot(self) -> Any:
        """A matplotlib Figure: R̂ in two dimensions, in units of 1/β below its maximum; the chains' traces otherwise."""
        if self.dim != 2:
            return plots.trace(self.samples, 1 if self.chains is None else self.chains.sample_every)
        beta = self.diagnostics["beta"]
        if self.potential is None:
            grid = self._grid()
            return plots.reward_map(grid.centres, beta * grid.values)
        low, high = np.quantile(self.samples.reshape(-1, 2), [0.001, 0.999], axis=0)
        axes = tuple(np.linspace(*ends, PLOTTED) for ends in zip(low, high, strict=True))
        places = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
        return plots.reward_map(axes, beta * self.reward(places).reshape(PLOTTED, PLOTTED))

    def landscape(self) -> Any:
        """A matplotlib Figure of R̂ in its own units: a map in two dimensions, else `curves`."""
        if self.dim != 2:
            return self.curves()
        axes = self._axes()
        places = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
        values = self.reward(places).reshape(PLOTTED, PLOTTED)
        return plots.landscape((axes[0], axes[1]), values, self._seen, self.summit())

    def curves(self) -> Any:
        """A matplotlib Figure of R̂ along each coordinate, through its summit, with error bars where there are any."""
        axes, summit = self._axes()[:MOST_CURVES], self.summit()
        values, errors = [], []
        for axis, along in enumerate(axes):
            places = np.tile(summit, (PLOTTED, 1))
            places[:, axis] = along
            values.append(self.reward(places))
            errors.append(np.full(PLOTTED, np.nan) if self.potential is None else self.reward_error(places))
        return plots.curves(axes, values, errors, summit)

    def _axes(self) -> list[np.ndarray]:
        """Where learners were, along each coordinate."""
        low, high = np.quantile(self._seen, [0.001, 0.999], axis=0)
        return [np.linspace(*ends, PLOTTED) for ends in zip(low, high, strict=True)]

    def to_datatree(self) -> xarray.DataTree:
        """An ArviZ DataTree: ``posterior``, ``sample_stats`` (βR̂ of a fitted reward) and some ``observed_data``."""
        groups: dict[str, Any] = {"posterior": {"position": self.samples}}
        if self.potential is not None:
            log_density = self.diagnostics["beta"] * self.potential.value(self.samples.reshape(-1, self.dim))
            groups["sample_stats"] = {"lp": log_density.reshape(self.samples.shape[:2])}
        if self.observed:
            groups["observed_data"] = self.observed
        dims = {name: ["coordinate"] for name in ("position", "points", "gradients")}
        dims |= {name: ["observation", "coordinate"] for name in self.observed}
        tree = arviz_base.from_dict(groups, dims=dims)
        about: dict[str, Any] = {"format": FORMAT, "method": self.method}
        about |= {"diagnostics": self.diagnostics, "warnings": self.warnings}
        if self.coordinates is not None:
            about["policies"] = [self.coordinates.name, self.coordinates.states, self.coordinates.actions]
        tree.attrs.update({name: _text(value) for name, value in about.items()})
        return tree

    def save(self, folder: Any) -> Path:
        """Write it as a Zarr store, whole or not at all; an older reconstruction there is replaced."""
        path = Path(folder).resolve()
        if path == Path.cwd():
            raise ValueError("the folder is the one you are in; give a new one, such as 'out'.")
        if path.exists() and any(path.iterdir() if path.is_dir() else [path]) and not _is_ours(path):
            raise ValueError(f"{path} exists and is not a reconstruction; choose another folder.")
        tree = self.to_datatree()
        fit = self.potential if self.potential is not None else self.estimate
        if fit is not None:
            tree["fit"] = xarray.DataTree(_dataset(pack(fit), type(fit).__name__))
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".writing-", ignore_cleanup_errors=True) as scratch:
            written = Path(scratch) / "result"
            tree.to_zarr(written, mode="w", consolidated=False)
            if path.exists():
                os.replace(path, Path(scratch) / "older")
            os.replace(written, path)
        return path

    def _grid(self) -> RewardEstimate:
        if self.estimate is None:
            raise ValueError(
                f"R̂ in {self.dim} dimensions needs a method that fits a potential; {self.method} has samples only."
            )
        return self.estimate


def load(folder: Any) -> Reconstruction:
    """A reconstruction that was saved: its own folder, or that of a command's result, which holds it as result.zarr."""
    path = Path(folder)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; give the folder that a reconstruction was saved in.")
    if not _is_ours(path) and _is_ours(path / STORE):
        path = path / STORE
    if not _is_ours(path):
        packed = " An archive must be unpacked first." if path.suffix == ".zip" else ""
        raise ValueError(f"{path} holds no reconstruction; give the folder that one was saved in.{packed}")
    with xarray.open_datatree(path, engine="zarr", consolidated=False) as opened:
        tree = opened.load()
    fit = None
    if "fit" in tree.children:
        fit = _fit(tree["fit"].to_dataset())
    observed = tree["observed_data"].data_vars if "observed_data" in tree.children else {}
    return Reconstruction(
        tree.attrs["method"],
        np.asarray(tree["posterior/position"]),
        json.loads(tree.attrs["diagnostics"]),
        json.loads(tree.attrs["warnings"]),
        potential=None if isinstance(fit, RewardEstimate) else fit,
        estimate=fit if isinstance(fit, RewardEstimate) else None,
        observed={str(name): value.values for name, value in observed.items()},
        coordinates=by_name(*json.loads(tree.attrs["policies"])) if "policies" in tree.attrs else None,
    )


def _dataset(flat: dict[str, np.ndarray], kind: str) -> xarray.Dataset:
    """Arrays as variables, words as attributes. Axes are named by their length: equal ones share a name."""
    words = {name: str(value) for name, value in flat.items() if value.dtype.kind == "U"}
    arrays = {
        name.replace("/", "."): (tuple(f"axis_{axis}_of_{size}" for axis, size in enumerate(value.shape)), value)
        for name, value in flat.items()
        if name not in words
    }
    return xarray.Dataset(arrays, attrs={"kind": kind, "words": json.dumps(words)})


def _fit(dataset: xarray.Dataset) -> Any:
    flat = {str(name).replace(".", "/"): value.values for name, value in dataset.data_vars.items()}
    flat |= {name: np.asarray(word) for name, word in json.loads(dataset.attrs["words"]).items()}
    return unpack(FITS[dataset.attrs["kind"]], flat)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=float)


def _is_ours(path: Path) -> bool:
    try:
        attributes = json.loads((path / "zarr.json").read_text())["attributes"]
    except (OSError, ValueError, KeyError):
        return False
    return attributes.get("format") == FORMAT
