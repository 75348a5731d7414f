"""R on a plane of parameters, from gradients: S(y) = R(y, h = 0), with error bars that know what the plane hides.

Rows lie at (y, h), h the part across the plane. A fit to ∇_y R at the rows is the potential of the mean force, R
averaged over h; the slice S is another function. What tells them apart is known at every row: R along the run in all
dimensions (`onlooker.along`, and the recorded losses, if there are any), and the slope h·∇_h R, so that

    S(y_i) ≈ s_i = R_i − ¾ h·∇_h R ± ¼ h·∇_h R,

exact between a slope (1) and a valley that runs in the plane (½). So

    V(y) = V_fit(y) + mean over the rows around y of (s_i − R̂(y_i))² + (¼ h·∇_h R)².

R̂ is fitted to the rows that lie closest to the plane among their neighbours, as many as make V smallest over a third of
the places that all rows explore, or more.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from onlooker.core.messages import Message, OnlookerWarning, deliver, trusted, undelivered
from onlooker.core.settings import as_places
from onlooker.data.components import of_all
from onlooker.data.log.reader import Log, open_log
from onlooker.data.observations import Observations, observe
from onlooker.data.projection import Projection, onto
from onlooker.data.trainer import about_trainer
from onlooker.reconstruction.landscape_runs import along_all, at_start
from onlooker.reconstruction.reconstruct import FEWEST, reconstruct
from onlooker.reconstruction.result import Reconstruction

__all__ = ["Landscape", "landscape", "of_rows"]


@dataclass(frozen=True)
class LandscapeSettings:
    """Constants of a landscape.

    Attributes
    ----------
    shares
        Shares of the rows that are tried: the closest to the plane among their neighbours.
    fewest
        Fewest rows of a fit.
    neighbours
        Rows among which a row is one of the closest, a multiple of 1/share so that some are left.
    around
        Rows around a place from which its error bar is taken: enough for a variance to be known to a quarter.
    explored
        Share of the places that all rows explore, which fewer rows must explore, too.
    slope, doubt
        Share of h·∇_h R that leads to the plane, and its uncertainty: it is ½ in a valley and 1 on a slope.
    window
        Rows over which R along the run is brought to the level of the recorded losses; runs must be 4 times as long.
    unsure
        Median error bar, as a share of R̂'s standard deviation, beyond which the plane is not trusted.
    cells
        Places along each axis at which fits are compared.
    """

    shares: tuple[float, ...] = (1.0, 0.5, 0.25, 0.1, 0.05, 0.02)
    fewest: int = 100
    neighbours: int = 200
    around: int = 25
    explored: float = 1 / 3
    slope: float = 0.75
    doubt: float = 0.25
    window: int = 51
    unsure: float = 0.5
    cells: int = 25


SETTINGS = LandscapeSettings()


@dataclass(frozen=True)
class Landscape:
    """R̂ on a plane.

    Attributes
    ----------
    result
        The reconstruction in the plane's coordinates; its own error bars know nothing of what the plane hides.
    projection
        The plane: directions and origin.
    path
        (n, 2) where the learners' rows are, along the plane, in the order of the runs.
    agents
        (n,) whose they are.
    explained
        The share of the path's variance in the plane.
    names
        Names of the axes.
    warnings
        Messages to read first.
    used
        (m, 2) the rows that R̂ was fitted to.
    hidden
        (m,) their squared contributions to the error bars.
    level
        What is subtracted from R̂, so that its mean over the path is 0.
    """

    result: Reconstruction
    projection: Projection
    path: np.ndarray
    agents: np.ndarray
    explained: float
    names: tuple[str, ...]
    warnings: tuple[Message, ...]
    used: np.ndarray
    hidden: np.ndarray
    level: float = 0.0

    @property
    def trusted(self) -> bool:
        """Whether no warning says that the answer may be wrong."""
        return trusted(self.warnings)

    def reward(self, x: Any) -> np.ndarray:
        """R̂ at places x (n, 2) of the plane, up to a constant; nan where no learner was near."""
        return self.result.reward(x) - self.level

    def reward_error(self, x: Any) -> np.ndarray:
        """Standard error at x (n, 2) of R̂ as the slice of R, less its mean."""
        places = as_places(x, self.result.dim)
        return np.sqrt(self.result.reward_error(places) ** 2 + _around(self.used, self.hidden, places))

    def explored(self, x: Any) -> np.ndarray:
        """Whether rows that R̂ was fitted to were near x (n, 2)."""
        return self.result.explored(x)

    def to_parameters(self, x: Any) -> np.ndarray:
        """The parameters (n, many) at places x (n, 2) of the plane."""
        return self.projection.back(as_places(x, self.result.dim))

    def maximum(self, *, extrapolate: bool = False) -> np.ndarray:
        """The place (2,) where R̂ is highest: where learners were, unless ``extrapolate``."""
        return self.result.maximum(extrapolate=extrapolate)

    def grid(self, cells: int = SETTINGS.cells) -> tuple[np.ndarray, np.ndarray]:
        """Places along each axis (2, cells) that span the path, and all of their pairs (cells², 2)."""
        axes = np.linspace(self.path.min(axis=0), self.path.max(axis=0), cells).T
        return axes, _pairs(axes)

    def plot(self) -> Any:
        """A matplotlib Figure: R̂ on the plane with the runs drawn on it, and its error bars beside."""
        from onlooker.reconstruction.landscape_plot import drawn

        return drawn(self)


def landscape(
    source: Any,
    loss: Any = None,
    data: Any = None,
    *,
    around: Any = None,
    directions: Any = None,
    size: float = 1.0,
    error: float = 0.05,
    seed: int = 0,
) -> Landscape:
    """R̂ = −loss on a plane of parameters, from gradients instead of a grid of forward passes.

    From a log: on the plane of the runs' own principal directions, or on one that is given. With a torch model, its
    loss and its data, gradients are taken at places of the plane until the error bars are small enough.

    Parameters
    ----------
    source
        A log: its path, `open_log`'s or `read_log`'s result. Or a torch model, which is left as it is.
    loss
        With a model: a function of the model and a batch, which returns the mean loss.
    data
        With a model: a list of batches, or anything that can be iterated more than once.
    around
        The origin (many,): default: with a log the mean of its points, with a model its parameters.
    directions
        "pca" (a log's default), "filter" (a model's default: random directions with the lengths of the model's own
        filters, after Li et al. 2018), or two directions (2, many).
    size
        With a model: how far the plane reaches, in lengths of its directions.
    error
        With a model: the median error bar, as a share of R̂'s standard deviation, that is small enough.
    seed
        Seed of all random numbers.

    Returns
    -------
    Landscape
        R̂ and error bars on the plane, the runs on it, and the way back to parameters.
    """
    if loss is None and data is None:
        found = _of_log(source, around, directions, seed)
    elif loss is None or data is None:
        raise ValueError("loss and data belong together; give both with a model, neither with a log.")
    else:
        from onlooker.reconstruction.landscape_of_model import of_model

        with undelivered():
            found = of_model(source, loss, data, around, directions, size, error, seed)
    deliver(found.warnings)
    return found


def _of_log(source: Any, around: Any, directions: Any, seed: int) -> Landscape:
    if isinstance(source, Observations):
        seen = source
    elif isinstance(source, str | Path | Log):
        seen = (source if isinstance(source, Log) else open_log(source)).read()
    else:
        raise TypeError(
            f"source is of type {type(source).__name__}; give a log, or a torch model with its loss and data."
        )
    if isinstance(directions, str) and directions != "pca":
        raise ValueError(f"directions is {directions!r}; with a log give 'pca', or an array of directions.")
    if seen.projection is not None or (seen.trainer is not None and seen.trainer.parameters):
        if around is not None or not (directions is None or isinstance(directions, str)):
            raise ValueError("the log has points along its own directions; leave around and directions out.")
        if seen.projection is None:
            raise ValueError("the log's file of directions is missing; restore directions-….npz beside its shards.")
        plane, rows, across, distance = seen.projection, seen, seen.marks.get("across"), seen.marks.get("distance")
        names: tuple[str, ...] = tuple(f"direction {axis + 1}" for axis in range(plane.dim))
    else:
        plane = _plane(seen, around, directions)
        kind = "direction" if not (directions is None or isinstance(directions, str)) else "component"
        names = tuple(f"{kind} {axis + 1}" for axis in range(plane.dim))
        rows, across, distance = _split(seen, plane)
    with undelivered():
        return of_rows(seen, rows, plane, across, distance, names, seed)


def _plane(seen: Observations, around: Any, directions: Any) -> Projection:
    if directions is None or isinstance(directions, str):
        plane = of_all(seen.points, 2)
        return plane if around is None else replace(plane, origin=np.asarray(around, float))
    return onto(directions, seen.points.mean(axis=0, dtype=float) if around is None else around)


def _split(seen: Observations, plane: Projection) -> tuple[Observations, np.ndarray, np.ndarray]:
    """Rows along the plane, h·∇_h R and |h|."""
    points, slopes = plane.points(seen.points), plane.gradients(seen.gradients)
    apart = seen.points - plane.origin
    across = np.einsum("nd,nd->n", apart, seen.gradients, dtype=float) - (points * slopes).sum(axis=1)
    squares = np.einsum("nd,nd->n", apart, apart, dtype=float) - (points**2).sum(axis=1)
    return replace(seen, points=points, gradients=slopes), across, np.sqrt(np.maximum(squares, 0))


def of_rows(
    seen: Observations,
    rows: Observations,
    plane: Projection,
    across: np.ndarray | None,
    distance: np.ndarray | None,
    names: tuple[str, ...],
    seed: int,
) -> Landscape:
    """The landscape of rows along a plane, whose runs are in ``seen``.

    Parameters
    ----------
    seen
        The rows as recorded, for R along the runs.
    rows
        The same rows along the plane.
    plane
        The plane.
    across, distance
        h·∇_h R and |h| of each row; ``None`` if unknown.
    names
        Names of the axes.
    seed
        Seed of the fits.
    """
    warnings = [message for message in (*seen.warnings, *about_trainer(seen, "loss")) if message.code != "projected"]
    known = across is not None and distance is not None
    places = rows.points.astype(float)
    axes = np.linspace(places.min(axis=0), places.max(axis=0), SETTINGS.cells).T
    grid = _pairs(axes)
    reward = None
    if known:
        try:
            reward, levelled = along_all(seen, SETTINGS.window)
        except ValueError:
            known = False
    best: Any = None
    reached = tried = 0
    rank = _rank(places, distance) if known and distance is not None else np.zeros(len(places))
    for share in SETTINGS.shares if known else (1.0,):
        chosen = rank < share
        if best is not None and chosen.sum() == tried:
            # No row is farther than its neighbours.
            continue
        tried = int(chosen.sum())
        if tried < max(FEWEST, SETTINGS.fewest if share < 1 else 0):
            continue
        try:
            result = reconstruct(_fitted(rows, chosen), method="potential", seed=seed)
        except (ValueError, OnlookerWarning):
            if share == 1:
                raise
            continue
        hidden = np.zeros(int(chosen.sum()))
        if known and reward is not None and across is not None:
            apart = reward - SETTINGS.slope * across - result.fitted.value(places)
            apart = apart[chosen] - (0.0 if not levelled else apart[chosen].mean())
            if not levelled:
                apart = apart - at_start(seen, reward - SETTINGS.slope * across - result.fitted.value(places))[chosen]
            hidden = apart**2 + (SETTINGS.doubt * across[chosen]) ** 2
        explored = result.explored(grid)
        reached = reached or int(explored.sum())
        bars = result.reward_error(grid[explored]) ** 2 + _around(places[chosen], hidden, grid[explored])
        size = float(np.mean(bars)) if explored.any() else np.inf
        if explored.sum() >= SETTINGS.explored * reached and (best is None or size < best[0]):
            best = size, result, chosen, hidden, explored
    _, result, chosen, hidden, explored = best
    level = float(np.nanmean(result.reward(places))) if np.isfinite(result.reward(places)).any() else 0.0
    warnings += [message for message in result.found.warnings if message.code not in {one.code for one in warnings}]
    agents = np.zeros(len(places), int) if rows.agents is None else rows.agents
    total = float((distance**2).sum()) if distance is not None else np.nan
    within = float(((places - places.mean(axis=0)) ** 2).sum())
    explained = plane.explained if np.isfinite(plane.explained) else within / (within + total)
    found = Landscape(
        replace(result, projection=plane),
        plane,
        places,
        agents,
        explained,
        tuple(
            f"{name} ({share:.0%} of the path)" for name, share in zip(names, _shares(places, explained), strict=True)
        ),
        (),
        places[chosen],
        hidden,
        level,
    )
    return replace(found, warnings=(*warnings, *_about_plane(found, known, grid[explored], distance)))


def _about_plane(found: Landscape, known: bool, grid: np.ndarray, distance: np.ndarray | None) -> list[Message]:
    if not known:
        text = (
            "how far rows are from the plane is not known: R̂ is R averaged over what the plane hides, and its error "
            "bars leave that out. Record all parameters, or with along=True."
        )
        return [Message("slice-unknown", text)]
    values, bars = found.reward(grid), found.reward_error(grid)
    error, spread = float(np.median(bars)), float(values.std())
    if error <= SETTINGS.unsure * spread:
        return []
    far = np.nan if distance is None else float(np.median(distance))
    text = (
        f"learners were {far:.3g} from the plane, and R̂ there says little about R on it: its error bars ({error:.3g}, "
        f"their median) are more than half of its own spread ({spread:.3g}). Start shorter runs on the plane."
    )
    return [Message("slice-unsure", text, {"error": error, "spread": spread, "distance": far})]


def _fitted(rows: Observations, chosen: np.ndarray) -> Observations:
    agents = None if rows.agents is None else rows.agents[chosen]
    return observe(rows.points[chosen], rows.gradients[chosen], agents=agents)


def _rank(places: np.ndarray, distance: np.ndarray) -> np.ndarray:
    """The share of each row's neighbours that are closer to the plane."""
    from scipy.spatial import cKDTree

    scaled = places / np.maximum(places.std(axis=0), 1e-300)
    _, near = cKDTree(scaled).query(scaled, k=min(SETTINGS.neighbours, len(places)))
    return (distance[near] < distance[:, None] * (1 - 1e-9)).mean(axis=1)


def _around(used: np.ndarray, squares: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The mean of squares (m,) at the rows used (m, 2) that are closest to each place (n, 2)."""
    from scipy.spatial import cKDTree

    if not len(places):
        return np.zeros(0)
    scale = np.maximum(used.std(axis=0), 1e-300)
    count = min(SETTINGS.around, len(used))
    _, near = cKDTree(used / scale).query(places / scale, k=count)
    return squares[near.reshape(len(places), count)].mean(axis=1)


def _pairs(axes: np.ndarray) -> np.ndarray:
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))


def _shares(places: np.ndarray, explained: float) -> np.ndarray:
    variance = places.var(axis=0)
    return variance / max(variance.sum(), 1e-300) * explained
