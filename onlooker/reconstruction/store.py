"""Save and load reconstructions as Zarr stores: a DataTree in the ArviZ schema, the fit, and a digest of both.

A store is untrusted when read: sizes in its metadata are checked against the bytes in its files.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onlooker.core.messages import Message, as_message, in_short
from onlooker.core.policies import Coordinates, by_name
from onlooker.data.projection import Projection
from onlooker.fit import potential as fits
from onlooker.fit.earlier_ridge import EarlierRidge
from onlooker.fit.grid_reward import GridReward, SamplesOnly
from onlooker.reconstruction.draws import Findings, Law, given
from onlooker.reconstruction.result import Reconstruction
from onlooker.storage.atomic import replacing_folder
from onlooker.storage.signature import check_format, digest_of
from onlooker.storage.trees import pack, unpack

# Imported where it is used because it takes a second.
if TYPE_CHECKING:
    import xarray

__all__ = ["STORE", "as_datatree", "load", "save"]

# The title and format number that mark a store as ours.
TITLE, VERSION = "onlooker reconstruction", 1
# How the file of an explanation begins.
EXPLANATION = b"onlooker Explanation "
# Name of the store in the folder that a command writes.
STORE = "result.zarr"
# The file that marks a folder as a Zarr store.
ROOT = "zarr.json"
# Everything at the top level of a store.
OWN = {ROOT, "posterior", "sample_stats", "observed_data", "fit", "directions"}
# Bounds on the numbers in a store: always allowed, and allowed per byte on disk.
FEW_NUMBERS, MOST_UNPACKED = 1 << 23, 100
# Class names of rewards in files of version 0.1.
FORMER_NAMES = {"SmoothPotential": "CosinePotential", "RewardEstimate": "GridReward"}


def as_datatree(result: Reconstruction) -> "xarray.DataTree":
    """See `Reconstruction.to_datatree`."""
    import arviz_base

    groups: dict[str, Any] = {"posterior": {"position": result.samples}}
    if result.fitted.everywhere:
        log_density = result.found.diagnostics["beta"] * result.fitted.value(result.samples.reshape(-1, result.dim))
        groups["sample_stats"] = {"lp": log_density.reshape(result.samples.shape[:2])}
    if result.observed:
        groups["observed_data"] = result.observed
    dims = {name: ["coordinate"] for name in ("position", "points", "gradients")}
    dims |= {name: ["observation", "coordinate"] for name in result.observed}
    tree = arviz_base.from_dict(groups, dims=dims)
    about: dict[str, Any] = {"format": f"{TITLE} {VERSION}", "method": result.method}
    about |= {"diagnostics": result.diagnostics, "warnings": [asdict(message) for message in result.warnings]}
    if result.coordinates is not None:
        about["policies"] = [result.coordinates.name, result.coordinates.states, result.coordinates.actions]
    tree.attrs.update({name: _text(value) for name, value in about.items()})
    return tree


def save(result: Reconstruction, folder: Any) -> Path:
    """See `Reconstruction.save`."""
    import xarray

    path = Path(folder).resolve()
    if path == Path.cwd():
        raise ValueError("folder is the current directory; give another one, such as 'out/mine'.")
    if path.exists() and any(path.iterdir() if path.is_dir() else [path]) and not _is_ours(path):
        raise ValueError(f"{path} exists and is not a reconstruction; choose another folder.")
    names = {entry.name for entry in path.iterdir() if not entry.name.startswith(".")} if path.is_dir() else set()
    if others := sorted(names - OWN):
        raise ValueError(
            f"{path} also contains {', '.join(others[:4])}, which saving would delete; choose another folder."
        )
    tree = as_datatree(result)
    if result.fitted.known:
        tree["fit"] = xarray.DataTree(_dataset(pack(result.fitted), type(result.fitted).__name__))
    if result.projection is not None:
        tree["directions"] = xarray.DataTree(_dataset(pack(result.projection), "Projection"))
    with replacing_folder(path) as written:
        tree.to_zarr(written, mode="w", consolidated=False)
        _sign(written)
    return path


def load(folder: Any) -> Any:
    """Load a reconstruction from the folder it was saved in, or from one written by a command, as its result.zarr.

    The file of a saved explanation is loaded as an `onlooker.Explanation`.
    """
    path = Path(folder)
    if path.is_file():
        with path.open("rb") as file:
            if file.read(len(EXPLANATION)) == EXPLANATION:
                import onlooker

                return onlooker.Explanation.load(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; give the folder that a reconstruction was saved in.")
    if not _is_ours(path) and _is_ours(path / STORE):
        path = path / STORE
    if not _is_ours(path):
        packed = " An archive must be unpacked first." if path.suffix == ".zip" else ""
        raise ValueError(f"{path} is not a saved reconstruction; give the folder that one was saved in.{packed}")
    check_format(path, _format(path) or 0, VERSION)
    digest = _attributes(path).get("digest")
    if digest is not None and digest != _digest(path):
        raise ValueError(f"{path} is damaged: its digest does not match; use a copy, or reconstruct again.")
    try:
        result = _checked(_read(path))
        if digest is None:
            _try(result)
        return result
    except MemoryError:
        raise
    except Exception as error:
        # Zarr, its codecs and xarray each fail in their own ways.
        raise ValueError(f"{path} is damaged ({in_short(error)}); use a copy, or reconstruct again.") from None


def _read(path: Path) -> Reconstruction:
    import xarray

    files = _files(path)
    claimed, present = sum(map(_claimed, files)), sum(file.stat().st_size for file in files)
    if claimed > FEW_NUMBERS + MOST_UNPACKED * present:
        raise ValueError(f"its arrays claim {claimed} numbers but there are {present} bytes")
    with xarray.open_datatree(path, engine="zarr", consolidated=False, zarr_format=3) as opened:
        tree = opened.load()
    method, samples = tree.attrs["method"], np.asarray(tree["posterior/position"])
    fitted = _fit(tree["fit"].to_dataset()) if "fit" in tree.children else SamplesOnly(samples.shape[-1], method)
    observed = tree["observed_data"].data_vars if "observed_data" in tree.children else {}
    coordinates = by_name(*json.loads(tree.attrs["policies"])) if "policies" in tree.attrs else None
    diagnostics = _renamed(json.loads(tree.attrs["diagnostics"]))
    return Reconstruction(
        method,
        fitted,
        Findings(diagnostics, _messages(json.loads(tree.attrs["warnings"]))),
        given(samples, _law(fitted, diagnostics, len(samples), coordinates) if fitted.everywhere else None),
        observed={str(name): value.values for name, value in observed.items()},
        coordinates=coordinates,
        projection=_projection(tree["directions"].to_dataset()) if "directions" in tree.children else None,
    )


def _projection(dataset: "xarray.Dataset") -> Projection:
    parts = {str(name): np.asarray(value.values) for name, value in dataset.data_vars.items()}
    return Projection(parts["directions"], parts["origin"], float(parts["explained"]))


def _law(fitted: Any, diagnostics: dict[str, Any], chains: int, coordinates: Coordinates | None) -> Law:
    """The law that the samples were drawn from."""
    beta, seed = float(diagnostics["beta"]), int(diagnostics.get("seed", 0))
    return Law(fitted, beta, chains, seed, coordinates, diagnostics.get("measure", "coordinates"))


def _renamed(diagnostics: Any) -> Any:
    """Diagnostics of version 0.1 by their names of today."""
    if not isinstance(diagnostics, dict):
        return diagnostics
    return {"rejected" if name == "refused" else name: number for name, number in diagnostics.items()}


def _messages(saved: Any) -> list[Message]:
    if not isinstance(saved, list):
        raise ValueError("its warnings are not messages")
    return [as_message(message) for message in saved]


def _checked(result: Reconstruction) -> Reconstruction:
    """The result, if its parts have the right types and dimensions."""
    samples = result.samples
    if samples.ndim != 3 or not samples.shape[0] * samples.shape[2] or samples.dtype.kind != "f":
        raise ValueError(f"its samples are of shape {samples.shape}, {samples.dtype}")
    if not isinstance(result.found.diagnostics, dict) or not isinstance(result.method, str):
        raise ValueError("its diagnostics or its method are missing")
    if result.coordinates is not None and result.coordinates.dim != result.dim:
        raise ValueError(f"its policies have {result.coordinates.dim} coordinates and its samples {result.dim}")
    if result.projection is not None:
        shape, origin = result.projection.directions.shape, result.projection.origin
        if len(shape) != 2 or shape[0] != result.dim or origin.shape != shape[1:]:
            raise ValueError(f"its directions are of shape {shape} and its samples have {result.dim} dimensions")
    for name, rows in result.observed.items():
        if rows.ndim != 2 or rows.shape[1] != result.dim or rows.dtype.kind != "f":
            raise ValueError(f"its observed {name} are of shape {rows.shape}, {rows.dtype}")
    return result


def _try(result: Reconstruction) -> None:
    """Evaluate the reward once: without a digest, the arrays of a fit may not match each other."""
    if not np.isfinite(result.samples).all():
        raise ValueError("its samples are not finite")
    point = result.samples[0, :1].astype(float)
    if not len(point):
        point = result.observed.get("points", np.zeros((1, result.dim)))[:1].astype(float)
    with np.errstate(all="raise", under="ignore"):
        if result.fitted.has_error:
            result.fitted.error(point)
        if result.fitted.known:
            result.reward(point)


def _files(path: Path) -> list[Path]:
    """The files that Zarr wrote, without others beside them. The name of a chunk is a number, or c."""
    inside = [(file, file.relative_to(path).parts) for file in path.rglob("*")]
    chunks = [file for file, parts in inside if "c" in parts and (file.name.isdecimal() or file.name == "c")]
    metadata = [file for file, _ in inside if file.name == ROOT]
    return sorted(file for file in [*chunks, *metadata] if file.is_file())


def _claimed(file: Path) -> int:
    """The number of values that an array's metadata claims, in all or in one chunk."""
    about = json.loads(file.read_text(encoding="utf-8")) if file.name == ROOT else {}
    if about.get("node_type", "array") != "array" or "shape" not in about:
        return 0
    chunk = about["chunk_grid"]["configuration"]["chunk_shape"]
    return max(math.prod(map(abs, about["shape"])), math.prod(map(abs, chunk)))


def _digest(path: Path) -> str:
    """Digest of a store's files and attributes."""

    def parts() -> Iterator[bytes]:
        about = {name: word for name, word in _attributes(path).items() if name != "digest"}
        yield json.dumps(about, sort_keys=True).encode()
        for file in _files(path):
            if file != path / ROOT:
                content = file.read_bytes()
                yield f"\n{file.relative_to(path).as_posix()} {len(content)}\n".encode() + content

    return digest_of(parts()).hexdigest()


def _sign(path: Path) -> None:
    """Write a store's digest into it."""
    tree = json.loads((path / ROOT).read_text(encoding="utf-8"))
    tree["attributes"]["digest"] = _digest(path)
    (path / ROOT).write_text(json.dumps(tree, indent=2), encoding="utf-8")


def _dataset(flat: dict[str, np.ndarray], kind: str) -> "xarray.Dataset":
    """Arrays as variables, strings as attributes. Axes of equal number and length share a name."""
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
    kinds = {kind.__name__: kind for kind in (*(fit.potential for fit in fits.FITS), GridReward, EarlierRidge)}
    name = dataset.attrs["kind"]
    if name == "RidgePotential" and "frame/centre" not in flat:
        return unpack(EarlierRidge, flat)
    return unpack(kinds[FORMER_NAMES.get(name, name)], flat)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=float)


def _attributes(path: Path) -> dict[str, Any]:
    """The attributes of a store; empty if it is not one."""
    try:
        attributes = json.loads((path / ROOT).read_text(encoding="utf-8"))["attributes"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}
    return attributes if isinstance(attributes, dict) else {}


def _is_ours(path: Path) -> bool:
    return _format(path) is not None


def _format(path: Path) -> int | None:
    """The format number of a store; ``None`` if it is not ours."""
    title, _, number = str(_attributes(path).get("format")).rpartition(" ")
    return int(number) if title == TITLE and number.isdecimal() else None
