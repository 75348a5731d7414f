"""What a reconstruction is: samples, a reward with error bars, numbers and sentences about them; saved and loaded."""

import hashlib
import json
import math
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import minimize

from onlooker.check import as_places, in_short
from onlooker.coordinates import Coordinates, by_name
from onlooker.field.ridge import RidgePotential
from onlooker.field.smooth import SmoothPotential
from onlooker.reward import plots
from onlooker.reward.estimate import RewardEstimate
from onlooker.run import Chains
from onlooker.store import pack, unpack

# Takes a second to import, with all that it brings: only who saves or loads waits for it.
if TYPE_CHECKING:
    import xarray

__all__ = ["STORE", "Potential", "Reconstruction", "load"]

Potential = SmoothPotential | RidgePotential
# What makes a folder one of ours.
FORMAT = "onlooker reconstruction 1"
# Its name in the folder of a command's result.
STORE = "result.zarr"
# The file that makes a folder a store.
ROOT = "zarr.json"
# All that a store has on its first level.
OWN = {ROOT, "posterior", "sample_stats", "observed_data", "fit"}
# Numbers that any result may have, and those that a byte on the disk can stand for.
FEW_NUMBERS, MOST_UNPACKED = 1 << 23, 100
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

    def to_datatree(self) -> "xarray.DataTree":
        """An ArviZ DataTree: ``posterior``, ``sample_stats`` (βR̂ of a fitted reward) and some ``observed_data``."""
        import arviz_base

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
        import xarray

        path = Path(folder).resolve()
        if path == Path.cwd():
            raise ValueError("the folder is the one you are in; give a new one, such as 'out/mine'.")
        if path.exists() and any(path.iterdir() if path.is_dir() else [path]) and not _is_ours(path):
            raise ValueError(f"{path} exists and is not a reconstruction; choose another folder.")
        there = {one.name for one in path.iterdir() if not one.name.startswith(".")} if path.is_dir() else set()
        if others := sorted(there - OWN):
            raise ValueError(f"{path} also holds {', '.join(others[:4])}, which saving would delete; choose another.")
        tree = self.to_datatree()
        fit = self.potential if self.potential is not None else self.estimate
        if fit is not None:
            tree["fit"] = xarray.DataTree(_dataset(pack(fit), type(fit).__name__))
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".writing-", ignore_cleanup_errors=True) as scratch:
            written = Path(scratch) / "result"
            tree.to_zarr(written, mode="w", consolidated=False)
            _sign(written)
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
    digest = _attributes(path).get("digest")
    if digest is not None and digest != _digest(path):
        raise ValueError(f"{path} is damaged: its content is not what was written; use a copy, or make it again.")
    try:
        result = _checked(_read(path))
        if digest is None:
            _try(result)
        return result
    except MemoryError:
        raise
    except Exception as error:
        # Zarr, its codecs and xarray each fail in their own ways.
        raise ValueError(f"{path} is damaged ({in_short(error)}); use a copy, or make it again.") from None


def _read(path: Path) -> Reconstruction:
    import xarray

    files = _files(path)
    promised, there = sum(map(_promised, files)), sum(file.stat().st_size for file in files)
    if promised > FEW_NUMBERS + MOST_UNPACKED * there:
        raise ValueError(f"its arrays promise {promised} numbers and there are {there} bytes")
    with xarray.open_datatree(path, engine="zarr", consolidated=False, zarr_format=3) as opened:
        tree = opened.load()
    fit = _fit(tree["fit"].to_dataset()) if "fit" in tree.children else None
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


def _checked(result: Reconstruction) -> Reconstruction:
    """What was read, if it is of one piece: its parts have the right kinds and dimensions."""
    samples, said = result.samples, result.warnings
    if samples.ndim != 3 or not samples.size or samples.dtype.kind != "f":
        raise ValueError(f"its samples are of shape {samples.shape}, {samples.dtype}")
    if not isinstance(result.diagnostics, dict) or not isinstance(result.method, str):
        raise ValueError("its diagnostics or its method are missing")
    if not (isinstance(said, list) and all(isinstance(warning, str) for warning in said)):
        raise ValueError("its warnings are no sentences")
    if result.coordinates is not None and result.coordinates.dim != result.dim:
        raise ValueError(f"its policies have {result.coordinates.dim} coordinates and its samples {result.dim}")
    for name, rows in result.observed.items():
        if rows.ndim != 2 or rows.shape[1] != result.dim or rows.dtype.kind != "f":
            raise ValueError(f"what was observed, {name}, is of shape {rows.shape}, {rows.dtype}")
    return result


def _try(result: Reconstruction) -> None:
    """Ask for a reward, once: of a fit without a digest nobody knows whether its arrays belong together."""
    if not np.isfinite(result.samples).all():
        raise ValueError("its samples are not finite")
    place = result.samples[0, :1].astype(float)
    with np.errstate(all="raise", under="ignore"):
        if result.potential is not None:
            result.potential.error(place)
        if result.potential is not None or result.estimate is not None:
            result.reward(place)


def _files(path: Path) -> list[Path]:
    """All that Zarr wrote; what others may have put beside it does not count. A chunk's name is a number, or c."""
    inside = [(one, one.relative_to(path).parts) for one in path.rglob("*")]
    chunks = [one for one, parts in inside if "c" in parts and (one.name.isdecimal() or one.name == "c")]
    described = [one for one, _ in inside if one.name == ROOT]
    return sorted(one for one in [*chunks, *described] if one.is_file())


def _promised(file: Path) -> int:
    """How many numbers an array's description asks room for, all at once or as one chunk."""
    about = json.loads(file.read_text(encoding="utf-8")) if file.name == ROOT else {}
    if about.get("node_type", "array") != "array" or "shape" not in about:
        return 0
    chunk = about["chunk_grid"]["configuration"]["chunk_shape"]
    return max(math.prod(map(abs, about["shape"])), math.prod(map(abs, chunk)))


def _digest(path: Path) -> str:
    """Of a store's files and of what it says about itself."""
    found = hashlib.sha256()
    about = {name: word for name, word in _attributes(path).items() if name != "digest"}
    found.update(json.dumps(about, sort_keys=True).encode())
    for file in _files(path):
        if file != path / ROOT:
            content = file.read_bytes()
            found.update(f"\n{file.relative_to(path).as_posix()} {len(content)}\n".encode() + content)
    return found.hexdigest()


def _sign(path: Path) -> None:
    """Write a store's digest into it."""
    tree = json.loads((path / ROOT).read_text(encoding="utf-8"))
    tree["attributes"]["digest"] = _digest(path)
    (path / ROOT).write_text(json.dumps(tree, indent=2), encoding="utf-8")


def _dataset(flat: dict[str, np.ndarray], kind: str) -> "xarray.Dataset":
    """Arrays as variables, words as attributes. Axes are named by their length: equal ones share a name."""
    import xarray

    words = {name: str(value) for name, value in flat.items() if value.dtype.kind == "U"}
    arrays = {
        name.replace("/", "."): (tuple(f"axis_{axis}_of_{size}" for axis, size in enumerate(value.shape)), value)
        for name, value in flat.items()
        if name not in words
    }
    return xarray.Dataset(arrays, attrs={"kind": kind, "words": json.dumps(words)})


def _fit(dataset: "xarray.Dataset") -> Any:
    flat = {str(name).replace(".", "/"): value.values for name, value in dataset.data_vars.items()}
    flat |= {name: np.asarray(word) for name, word in json.loads(dataset.attrs["words"]).items()}
    return unpack(FITS[dataset.attrs["kind"]], flat)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=float)


def _attributes(path: Path) -> dict[str, Any]:
    """What a store says about itself; nothing, if it is none."""
    try:
        attributes = json.loads((path / ROOT).read_text(encoding="utf-8"))["attributes"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}
    return attributes if isinstance(attributes, dict) else {}


def _is_ours(path: Path) -> bool:
    return _attributes(path).get("format") == FORMAT
