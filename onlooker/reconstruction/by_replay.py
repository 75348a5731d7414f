"""Method "replay": kernel regression of the gradients on all observations, and chains on it until they agree."""

import time
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from onlooker.core.histogram import Histogram
from onlooker.core.messages import Message, undelivered
from onlooker.data.observations import Observations
from onlooker.data.splits import held_out
from onlooker.data.stream import Stream, simulated
from onlooker.engine.accumulators import Grid
from onlooker.engine.diagnostics import CONVERGED_RHAT, ENOUGH_DRAWS, Convergence, convergence
from onlooker.engine.run import Chains, run
from onlooker.fit.binned_regression import fit_field, levels
from onlooker.fit.box import CELLS, Box, box_of
from onlooker.fit.grid_reward import GRID_BINS, GridReward, SamplesOnly
from onlooker.fit.kernel_regression import VARIANTS, regress
from onlooker.fit.memory import Bins, Memory, binned, reservoir
from onlooker.fit.potential import Reward
from onlooker.fit.quadratic import fit_quadratic
from onlooker.inverse.base import InverseLearner
from onlooker.inverse.on_policies import on_policies
from onlooker.inverse.replay import BOX_WIDTHS, remembered, replay
from onlooker.reconstruction.draws import Findings, given
from onlooker.reconstruction.options import Options, some_of
from onlooker.reconstruction.result import Reconstruction

__all__ = ["by_replay", "frozen", "mirrored", "silence"]


@dataclass(frozen=True)
class ReplaySettings:
    """Constants of the method "replay".

    Attributes
    ----------
    margin
        Margin of the box about the points, in their widths: room for the chains around the outermost points.
    remembered
        Number of observations in memory above three dimensions: each step of a chain reads all of them.
    tried_on
        Number of held-out rows on which a bandwidth is chosen.
    enough
        Effective number of neighbours per coefficient of the regression on cells.
    stiffness
        μβλ, with λ the largest curvature: the variance of the samples is then right to a hundredth.
    least_stiffness
        Lower bound on βλ for points in standard deviations, so that steps stay finite where R is flat.
    first_round
        Steps of the first round on cells.
    first_round_on_points
        Steps of the first round on points, where each step reads the whole memory.
    rounds
        Largest number of rounds, each as long as all before it: chains that have not converged by then rarely do.
    """

    margin: float = 0.1
    remembered: int = 2048
    tried_on: int = 500
    enough: float = 10.0
    stiffness: float = 0.05
    least_stiffness: float = 0.1
    first_round: int = 20_000
    first_round_on_points: int = 500
    rounds: int = 7


SETTINGS = ReplaySettings()


def by_replay(seen: Observations, warnings: list[Message], options: Options) -> Reconstruction:
    """Estimate the gradient field from all observations and run chains on it, in standardised coordinates.

    Coordinates of policies are not standardised. Observations close to an end of their interval are also added mirrored
    in it, since R is even there.
    """
    if seen.dim in CELLS and options.bandwidth is not None:
        raise ValueError("bandwidth is chosen by method 'replay' itself in up to three dimensions; leave it out.")
    held = held_out(seen, options.seed)
    began = time.perf_counter()
    centre, spread = seen.points.mean(axis=0, dtype=float), seen.points.std(axis=0, dtype=float)
    coordinates = options.coordinates
    if coordinates is not None:
        centre, spread = np.zeros(seen.dim), np.ones(seen.dim)
    points, gradients = np.empty_like(seen.points), np.empty_like(seen.gradients)
    for axis in range(seen.dim):
        points[:, axis] = (seen.points[:, axis] - centre[axis]) / spread[axis]
        gradients[:, axis] = seen.gradients[:, axis] * spread[axis]
    scaled = replace(seen, points=points, gradients=gradients)
    if seen.dim in CELLS:
        learner, numbers = _with_bins(*mirrored(scaled, held, options.interval), options)
    else:
        # Not mirrored: a local line is as accurate at an end as anywhere, and a corner would have 2^dim images.
        learner, numbers = _with_points(scaled, held, options)
    if coordinates is not None:
        learner = on_policies(learner, coordinates, options.measure)
    fit_seconds = time.perf_counter() - began
    rounds, converged = _run_until_converged(learner, scaled, options)
    samples = np.concatenate([chains.samples for chains in rounds], axis=1) * spread + centre
    fitted: Reward = SamplesOnly(seen.dim, "replay")
    if rounds[0].histogram is not None:
        counts = np.sum([chains.histogram.counts for chains in rounds if chains.histogram is not None], axis=0)
        edges = zip(rounds[0].histogram.edges, spread, centre, strict=True)
        moved = tuple(edge * width + middle for edge, width, middle in edges)
        grid = GridReward(Histogram(moved, counts), options.beta)
        if coordinates is not None and options.measure == "policy":
            centres = np.stack(np.meshgrid(*grid.centres, indexing="ij"), axis=-1)
            grid = replace(grid, log_weight=coordinates.log_volume(centres))
        fitted = grid
    diagnostics = {
        **rounds[-1].diagnostics,
        "observations": len(seen),
        "rejected": seen.rejected,
        "beta": options.beta,
        "step_size": learner.settings["step_size"],
        **numbers,
        **options.about,
        "rhat": converged.rhat,
        "ess": converged.ess,
        "fit_seconds": fit_seconds,
        "draw_seconds": time.perf_counter() - began - fit_seconds,
    }
    # Agreement of the chains is judged over all rounds, below.
    warnings = [*warnings, *(message for message in rounds[-1].warnings if message.code != "chains-disagree")]
    if not converged.reached:
        text = (
            f"the chains have not converged (rhat {converged.rhat:.3f}, wanted below {CONVERGED_RHAT}; worth "
            f"{converged.ess:.0f} draws, wanted {ENOUGH_DRAWS}): the field may have several wells, or there are few "
            "chains."
        )
        warnings.append(Message("samples-not-converged", text, converged._asdict()))
    thinned = samples[:, :: max(1, samples.shape[1] // 1000)]
    carried = some_of(seen, options.seed)
    found = Findings(diagnostics, warnings)
    return Reconstruction("replay", fitted, found, given(thinned), carried, coordinates, rounds[-1])


def mirrored(
    seen: Observations, held: np.ndarray, interval: tuple[float, float] | None
) -> tuple[Observations, np.ndarray]:
    """Observations, and mirror images of those close to an end of the interval, beyond that end."""
    if interval is None:
        return seen, held
    points, gradients = seen.points, seen.gradients
    margin = SETTINGS.margin * (interval[1] - interval[0])
    for axis in range(seen.dim):
        sign = np.where(np.arange(seen.dim) == axis, -1, 1)
        for end in interval:
            near = np.flatnonzero(np.abs(points[:, axis] - end) < margin)
            image = points[near] * sign + 2 * end * (sign < 0)
            points, gradients = np.concatenate([points, image]), np.concatenate([gradients, gradients[near] * sign])
            held = np.concatenate([held, held[near]])
    return replace(seen, points=points, gradients=gradients, agents=None, times=None), held


def _run_until_converged(
    learner: InverseLearner, seen: Observations, options: Options
) -> tuple[list[Chains], Convergence]:
    """Run rounds, each as long as all before it; the first is discarded."""
    shortest = SETTINGS.first_round if seen.dim in CELLS else SETTINGS.first_round_on_points
    dim, generator = seen.dim, np.random.default_rng(options.seed)
    grid = None
    if dim in GRID_BINS:
        low, high = np.quantile(seen.points, [0, 1], axis=0)
        grid = Grid(tuple(low.tolist()), tuple(high.tolist()), GRID_BINS[dim])
    positions: Any = seen.points[generator.integers(0, len(seen), options.chains)]
    kept: list[Chains] = []
    converged = Convergence(np.nan, np.nan)
    for number in range(SETTINGS.rounds):
        with undelivered():
            chains = run(
                learner,
                silence(dim),
                steps=shortest * 2 ** max(0, number - 1),
                chains=options.chains,
                seed=options.seed + number,
                start=positions,
                grid=grid,
            )
        positions = chains.positions
        if number == 0 and not chains.interrupted:
            continue
        kept.append(chains)
        converged = convergence(np.concatenate([each.samples for each in kept], axis=1))
        if converged.reached or chains.interrupted or chains.diagnostics["lost_chains"]:
            break
    return kept, converged


@cache
def silence(dim: int) -> Stream:
    """A stream without observations, for a learner whose field is fitted already."""

    def draw(data: Any, carry: Any, key: Array, steps: int, lanes: int | None) -> tuple[Any, Array]:
        return carry, jnp.zeros((steps, 1))

    return simulated(dim, draw, shared=True, numbers=1)


def frozen(learner: InverseLearner) -> InverseLearner:
    """The learner with its memory fixed: observations do not change it."""
    return learner._replace(update=lambda memory, observations, count: memory)


def _with_bins(seen: Observations, held: np.ndarray, options: Options) -> tuple[InverseLearner, dict[str, Any]]:
    box, cells = box_of(seen.points, SETTINGS.margin), CELLS[seen.dim]
    if options.interval is not None:
        # The mirror images fill the margin.
        low, high = options.interval
        margin = SETTINGS.margin * (high - low)
        box = Box(np.full(seen.dim, low - margin), np.full(seen.dim, high + margin))
    memory = binned(box.low.tolist(), box.high.tolist())
    state = remembered(memory, seen.points, seen.gradients, held)
    assert isinstance(state, Bins)
    field, width = fit_field(state, SETTINGS.enough), (box.high - box.low) / cells
    # The wall around the box is stiff as well.
    wall = BOX_WIDTHS**2 / float(np.min(box.high - box.low)) ** 2
    stiffness = max(options.beta * _stiffness(np.asarray(field.gradient), state, width), wall)
    row, column = (int(index) for index in field.choice)
    numbers = {
        "held_out_error": float(field.error),
        "variant": VARIANTS[row],
        "bandwidth": float(levels(cells)[column] * width.mean()),
        "outside_share": float(state.outside) / len(seen),
        "memory_numbers": memory.numbers(seen.dim),
    }
    step = options.step_size or SETTINGS.stiffness / stiffness
    return frozen(replay(memory, step_size=step, beta=options.beta, state=state)), numbers


def _stiffness(gradient: np.ndarray, state: Bins, width: np.ndarray) -> float:
    """The 95 % quantile over occupied cells of the largest derivative of the gradient."""
    dim = gradient.shape[-1]
    occupied = np.asarray(state.counts.sum(axis=0)) > 0
    slopes = [np.abs(np.gradient(gradient[..., j], width[i], axis=i))[occupied] for i in range(dim) for j in range(dim)]
    return max(float(np.quantile(np.max(slopes, axis=0), 0.95)), 1e-12)


def _with_points(seen: Observations, held: np.ndarray, options: Options) -> tuple[InverseLearner, dict[str, Any]]:
    memory: Memory = reservoir(SETTINGS.remembered, options.seed)
    points, gradients = seen.points, seen.gradients
    trend, _ = fit_quadratic(points[~held], gradients[~held], points[held], gradients[held])
    stiffness = options.beta * float(np.abs(np.linalg.eigvalsh(trend.curvature)).max())
    step = options.step_size or SETTINGS.stiffness / max(stiffness, SETTINGS.least_stiffness)
    width, error = (options.bandwidth, np.nan) if options.bandwidth else _bandwidth(seen, held, options.seed)
    state = remembered(memory, points, gradients)
    learner = replay(memory, step_size=step, bandwidth=width, beta=options.beta, variant="linear", state=state)
    numbers = {"held_out_error": error, "variant": "linear", "bandwidth": width}
    return frozen(learner), {**numbers, "memory_numbers": memory.numbers(seen.dim)}


def _bandwidth(seen: Observations, held: np.ndarray, seed: int) -> tuple[float, float]:
    """The bandwidth with which remembered rows predict held-out gradients best, and its error."""
    generator = np.random.default_rng(seed)
    train, test = (
        generator.permutation(np.flatnonzero(rows))[:most]
        for rows, most in ((~held, SETTINGS.remembered), (held, SETTINGS.tried_on))
    )
    points, gradients, held_points, held_gradients = (
        jnp.asarray(part, jnp.float32)
        for part in (seen.points[train], seen.gradients[train], seen.points[test], seen.gradients[test])
    )
    kept = jnp.ones(len(train), bool)

    @jax.jit
    def error(width: Array) -> Array:
        def predicted(point: Array) -> Array:
            return regress(point, points, gradients, kept, width)[0]

        missed = jax.lax.map(predicted, held_points, batch_size=50) - held_gradients
        return jnp.mean(jnp.sum(missed**2, axis=1))

    errors = {float(width): float(error(jnp.float32(width))) for width in 2.0 ** np.arange(-4, 3, 0.5)}
    return min(errors.items(), key=lambda item: item[1])
