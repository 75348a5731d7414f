"""The result of a reconstruction: R̂ with error bars, samples of exp(βR̂) when asked for, diagnostics and warnings."""

import html
import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from onlooker.core.messages import Message, trusted
from onlooker.core.policies import Coordinates
from onlooker.core.settings import as_places, check_positive, check_seed, check_whole
from onlooker.data.along import Along, along
from onlooker.data.observations import Observations
from onlooker.data.projection import Projection
from onlooker.fit.error_bars import drawn_errors
from onlooker.fit.grid_reward import GridReward
from onlooker.fit.potential import Potential, Reward
from onlooker.reconstruction import plots
from onlooker.reconstruction.draws import Draws, Findings

if TYPE_CHECKING:
    import xarray

    from onlooker.engine.run import Chains
    from onlooker.reconstruction.maximum_region import MaximumRegion

__all__ = ["Reconstruction"]

HAT = "\N{COMBINING CIRCUMFLEX ACCENT}"
# Points per axis of a figure: about its resolution on a screen.
PLOTTED = 120
# Number of samples on a map: more would hide it.
DOTS = 1000
# Largest number of curves in a figure, in two rows of four.
MOST_CURVES = 8


@dataclass(frozen=True, repr=False)
class Reconstruction:
    """A reconstructed reward.

    R̂, its error bars and `explored` need no samples. Those of a fitted potential are drawn when they are first used,
    by `samples` or by what is computed from them, and kept. Warnings about them are raised then.

    Attributes
    ----------
    method
        The method used.
    fitted
        R̂ itself: a fitted potential or, for methods that run chains, a reward on a grid.
    found
        Diagnostics and warnings that are known without samples.
    draws
        The samples, drawn or not.
    observed
        A sample of the observations: "points" and "gradients".
    coordinates
        Coordinates of policies, if the points are policies; otherwise ``None``.
    projection
        The directions that the points are along; ``None`` if points are all parameters.
    groups
        If agents disagree and two groups of them explain it, the group of each agent, 0 or 1; otherwise ``None``. It is
        not saved.
    """

    method: str
    fitted: Reward
    found: Findings
    draws: Draws
    observed: dict[str, np.ndarray] = field(default_factory=dict)
    coordinates: Coordinates | None = None
    # The run that produced the samples, if there was one; not saved.
    _chains: "Chains | None" = None
    projection: Projection | None = None
    groups: dict[Any, int] | None = None
    # All rows, for `along`; not saved.
    _rows: Observations | None = None

    def __repr__(self) -> str:
        known = self.found.diagnostics
        rejected = known.get("rejected", 0)
        about = {
            "method": self.method,
            "rows": f"{known.get('observations', 0):,}" + (f" ({rejected:,} rejected)" if rejected else ""),
            "dimensions": f"{self.dim}",
            "R̂ spans": self._span(),
            "warnings": ", ".join(message.code for message in self.warnings) or "none",
        }
        # The hat of R̂ is a character of zero width.
        return "\n".join(f"{name:<{12 + name.count(HAT)}}{text}" for name, text in about.items())

    def _repr_html_(self) -> str:
        picture = self.landscape() if self.fitted.known else self.plot()
        return f"<pre>{html.escape(repr(self))}</pre>{plots.inline(picture)}"

    def _span(self) -> str:
        """The range of R̂ over the middle nine tenths of the observed points."""
        if not self.fitted.known:
            return "unknown: this method yields samples only"
        span = self.found.diagnostics.get("reward_span")
        if span is None:
            low, high = np.nanquantile(self.reward(self._seen), [0.05, 0.95])
            span = high - low
        return f"{span:.3g} over nine tenths of the rows"

    @property
    def dim(self) -> int:
        return self.draws.dim

    @property
    def samples(self) -> np.ndarray:
        """Samples (chain, draw, dim) of exp(βR̂), drawn at their first use and kept; of chains, thinned.

        There are none, and a warning says why, if none of exp(βR̂) lies where learners were.
        """
        return self.draws.get().samples

    @property
    def diagnostics(self) -> dict[str, Any]:
        """Properties of the data, the fit and the samples, by name; draws the samples."""
        return {**self.found.diagnostics, **self.draws.get().found.diagnostics}

    @property
    def warnings(self) -> list[Message]:
        """Messages to read before the result is used, each with a code, a text and its numbers; draws the samples."""
        return [*self.found.warnings, *self.draws.get().found.warnings]

    @property
    def trusted(self) -> bool:
        """Whether no warning says that the answer may be wrong; draws the samples."""
        return trusted(self.warnings)

    @property
    def policies(self) -> np.ndarray:
        """The samples as policies φ(u|x): (chain, draw, states, actions)."""
        if self.coordinates is None:
            raise ValueError("the points are not known to be policies; pass coordinates to reconstruct.")
        return self.coordinates.policy(self.samples)

    @property
    def potential(self) -> Potential | None:
        """Deprecated: `fitted`, if it is a potential."""
        _deprecated("potential", "fitted")
        return cast(Potential, self.fitted) if self.fitted.everywhere else None

    @property
    def estimate(self) -> GridReward | None:
        """Deprecated: `fitted`, if it is a reward on a grid."""
        _deprecated("estimate", "fitted")
        return cast(GridReward, self.fitted) if self.fitted.known and not self.fitted.everywhere else None

    @property
    def chains(self) -> "Chains | None":
        """Deprecated: the run that produced the samples; call `onlooker.run` to have one."""
        _deprecated("chains", "samples, or call onlooker.run")
        return self._chains

    def _places(self, x: Any) -> np.ndarray:
        points = as_places(x, self.dim)
        return points if self.coordinates is None else self.coordinates.fold(points)[0]

    def reward(self, x: Any) -> np.ndarray:
        """R̂ at x (n, dim), up to a constant; nan where `explored` is false."""
        points = self._places(x)
        return np.where(self.fitted.explored(points), self.fitted.value(points), np.nan)

    def reward_error(self, x: Any) -> np.ndarray:
        """Standard error, at x (n, dim), of R̂ minus its mean over the data; nan where unexplored."""
        points = self._places(x)
        potential = self._with_errors()
        return np.where(potential.explored(points), potential.error(points), np.nan)

    def reward_draws(self, x: Any, n: int = 1000, *, seed: int = 0) -> np.ndarray:
        """Draws (n, places) of what R may be at x (places, dim), minus its mean over the data; nan where unexplored.

        A draw is joint, so that differences between places have the error bars that belong to them, and the share of
        draws in which one place is better than another is the chance that it is.
        """
        check_whole(n=n)
        check_seed(seed=seed)
        points, potential = self._places(x), self._with_errors()
        known = potential.explored(points)
        found = np.full((int(n), len(points)), np.nan)
        if known.any():
            middle = float(potential.value(self._typical).mean())
            errors = drawn_errors(potential.covariance(points[known]), int(n), np.random.default_rng(seed))
            found[:, known] = potential.value(points[known]) - middle + errors
        return found

    def maximum_region(self, level: float = 0.95, *, seed: int = 0) -> "MaximumRegion":
        """The explored places that may be the best one: a set that holds it with probability ``level``.

        See `onlooker.reconstruction.maximum_region`.
        """
        from onlooker.reconstruction.maximum_region import maximum_region

        if not 0 < level < 1:
            raise ValueError(f"level is {level!r}; give a probability between 0 and 1, such as 0.95.")
        check_seed(seed=seed)
        seen = self._seen if self.coordinates is None else self.coordinates.fold(self._seen)[0]
        return maximum_region(self._with_errors(), seen, self.maximum(), level, seed)

    def _with_errors(self) -> Potential:
        if not self.fitted.has_error:
            raise ValueError(f"error bars are known with method='potential' only; {self.method} has none.")
        return cast(Potential, self.fitted)

    @property
    def _typical(self) -> np.ndarray:
        """Explored observed points: R̂ minus its mean over them has the error bars that are reported."""
        potential = self._with_errors()
        known = self._seen[potential.explored(self._seen)]
        return known if len(known) else self._seen

    def explored(self, x: Any) -> np.ndarray:
        """Whether learners, or chains of a reward on a grid, were near x (n, dim)."""
        return self.fitted.explored(self._places(x))

    def sample(self, draws: int | None = None, *, beta: float | None = None, seed: int | None = None) -> np.ndarray:
        """New samples (chain, draw, dim) of exp(βR̂), which leave the result as it is.

        Warnings about them are raised, unless they are fewer than two thousand in all: too few to be judged.

        Parameters
        ----------
        draws
            Number of draws per chain; default: as many as suffice, as in `samples`.
        beta
            β; default: that of the reconstruction.
        seed
            Seed of the draws; default: that of the reconstruction, so that the same law has the same samples.
        """
        law = self.draws.law
        if law is None:
            raise ValueError(
                f"method {self.method!r} has only the samples of its chains; use samples, or reconstruct with "
                "method='potential'."
            )
        law = replace(law, potential=cast(Potential, self.fitted))
        if beta is not None:
            check_positive(beta=beta)
            law = replace(law, beta=float(beta))
        if seed is not None:
            check_seed(seed=seed)
            law = replace(law, seed=int(seed))
        if draws is not None:
            check_whole(draws=draws)
            draws = int(draws)
        return law.sample(draws)

    def maximum(self, *, extrapolate: bool = False) -> np.ndarray:
        """The point (dim,) where R̂ is highest: by ascent from the best samples, or the centre of the highest bin.

        It stays where learners were: if the ascent ends elsewhere, it is the best point that was observed. With
        ``extrapolate`` it is the end of the ascent, where R̂ may be nothing but the fit's own shape. The samples are
        drawn for it.
        """
        interval = None if self.coordinates is None else self.coordinates.interval
        samples = self.samples.reshape(-1, self.dim)
        highest = self.fitted.maximum(samples if len(samples) else self._seen, interval)
        if extrapolate or self.explored(highest[None])[0]:
            return highest
        rewards = self.reward(self._seen)
        return highest if np.isnan(rewards).all() else self._seen[np.nanargmax(rewards)]

    def to_parameters(self, x: Any) -> np.ndarray:
        """The parameters (n, many) at places x (n, dim) of the recorded directions, or x itself if there are none.

        The coordinates that the directions hide are those of their origin. In torch,
        `torch.nn.utils.vector_to_parameters` puts a row back into a model.
        """
        points = as_places(x, self.dim)
        return points if self.projection is None else self.projection.back(points)

    def along(self, agent: Any = None, *, values: Any = None) -> Along:
        """R̂ along the run of an agent, from its own gradients in all recorded dimensions; see `onlooker.along`."""
        if self._rows is None:
            raise ValueError(
                "the rows of a large log, or of a loaded result, are not there; call onlooker.along on what read_log "
                "returns."
            )
        return along(self._rows, agent, values=values)

    @property
    def _seen(self) -> np.ndarray:
        """A sample of the observed points."""
        return self.observed["points"] if "points" in self.observed else self.samples.reshape(-1, self.dim)

    def summit(self) -> np.ndarray:
        """The highest explored point (dim,): the `maximum`."""
        return self.maximum()

    def plot(self) -> Any:
        """A matplotlib Figure of the samples: on a map of βR̂ in two dimensions, the chains' traces otherwise."""
        if not self.samples.size:
            return self.landscape()
        if self.dim != 2:
            return plots.trace(self.samples, 1 if self._chains is None else self._chains.sample_every)
        beta = self.found.diagnostics["beta"]
        flat = self.samples.reshape(-1, 2)
        low, high = np.quantile(flat, [0.001, 0.999], axis=0)
        axes = tuple(np.linspace(*ends, PLOTTED) for ends in zip(low, high, strict=True))
        points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
        shown = flat[:: max(1, len(flat) // DOTS)]
        return plots.reward_map(axes, beta * self.reward(points).reshape(PLOTTED, PLOTTED), shown)

    def landscape(self) -> Any:
        """A matplotlib Figure of R̂ in its own units: a map with its `summit` in two dimensions, else `curves`."""
        if self.dim != 2:
            return self.curves()
        axes = self._axes()
        points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
        values = self.reward(points).reshape(PLOTTED, PLOTTED)
        figure = plots.landscape((axes[0], axes[1]), values, self._seen, self.summit())
        if self.projection is not None:
            plots.label_axes(figure.axes[0], *self.axis_names)
        return figure

    @property
    def axis_names(self) -> list[str]:
        """Names of the coordinates: θ(1), θ(2), …, or directions with the share of the points' variance along all."""
        if self.projection is None:
            return [f"θ({axis + 1})" for axis in range(self.dim)]
        share = self.projection.explained
        known = "" if np.isnan(share) else f" ({share:.0%} of the variance in all {self.dim})"
        return [f"direction {axis + 1}{known if axis == 0 else ''}" for axis in range(self.dim)]

    def curves(self) -> Any:
        """A matplotlib Figure of R̂ along each coordinate, through its `summit`, with error bars if known."""
        axes, summit = self._axes()[:MOST_CURVES], self.summit()
        values, errors = [], []
        for axis, ticks in enumerate(axes):
            points = np.tile(summit, (PLOTTED, 1))
            points[:, axis] = ticks
            values.append(self.reward(points))
            errors.append(self.reward_error(points) if self.fitted.has_error else np.full(PLOTTED, np.nan))
        return plots.curves(axes, values, errors, summit)

    def _axes(self) -> list[np.ndarray]:
        """Evenly spaced values of each coordinate over the observed range."""
        low, high = np.quantile(self._seen, [0.001, 0.999], axis=0)
        return [np.linspace(*ends, PLOTTED) for ends in zip(low, high, strict=True)]

    def to_datatree(self) -> "xarray.DataTree":
        """An ArviZ DataTree: ``posterior``, ``sample_stats`` (βR̂ of a fitted reward) and some ``observed_data``."""
        from onlooker.reconstruction.store import as_datatree

        return as_datatree(self)

    def save(self, folder: Any) -> Path:
        """Write a Zarr store, atomically; an older reconstruction in that folder is replaced."""
        from onlooker.reconstruction.store import save

        return save(self, folder)


def _deprecated(name: str, instead: str) -> None:
    warnings.warn(
        f"Reconstruction.{name} will be removed in the next release; use {instead}.", DeprecationWarning, stacklevel=3
    )
