"""Remember everything, regress the gradient on it, and run chains on that field until they agree."""

import time
import warnings
from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from onlooker.field.binned import fit_field, levels
from onlooker.field.cosine import Box, box_of
from onlooker.field.kernel_regression import VARIANTS, regress
from onlooker.field.memory import CELLS, Bins, Memory, binned, reservoir
from onlooker.field.quadratic import fit_quadratic
from onlooker.inverse.base import InverseLearner
from onlooker.inverse.replay import BOX_WIDTHS, remembered, replay
from onlooker.inverse.simplex import on_policies
from onlooker.methods.options import Options, some_of
from onlooker.observe.observation import Observations
from onlooker.observe.quality import held_out
from onlooker.observe.stream import Stream, simulated
from onlooker.reconstruction import Reconstruction
from onlooker.reward.accumulate import Grid, Histogram
from onlooker.reward.diagnostics import CONVERGED_RHAT, ENOUGH_DRAWS, Convergence, convergence
from onlooker.reward.estimate import RewardEstimate
from onlooker.run import Chains, run
from onlooker.warning import OnlookerWarning

__all__ = ["by_replay", "frozen", "mirrored", "silence"]

# The margin of the box about the points, in their widths.
MARGIN = 0.1
# Observations that are remembered as such, above three dimensions.
REMEMBERED = 2048
# Rows that a bandwidth is chosen with, and on.
TRIED_ON = 500
# μβλ of the stiffest places: their variance is then right to a hundredth.
STIFFNESS = 0.05
# Where there is hardly a slope, steps are as for a slope of this, in standard deviations of the points.
LEAST_STIFFNESS = 0.1
# Steps of the first rounds; on points a step is a look at all of them.
FIRST_ROUND = 20_000
FIRST_ROUND_ON_POINTS = 500
ROUNDS = 7


def by_replay(seen: Observations, doubts: list[str], options: Options) -> Reconstruction:
    """The field of all observations, then chains on it, in standard deviations of the points.

    Coordinates of policies are left as they are. What is close to an end of their interval is remembered a second time,
    mirrored in it: R is even there.
    """
    if seen.dim in CELLS and options.bandwidth is not None:
        raise ValueError("bandwidth is chosen from held-out gradients by replay in few dimensions; leave it out.")
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
    make = _with_bins if seen.dim in CELLS else _with_points
    if seen.dim in CELLS:
        rows, held = mirrored(scaled, held, options.interval)
    else:
        # A line is as good at an end as anywhere, and there would be two to the dimension images of a corner.
        rows = scaled
    learner, numbers = make(rows, held, options)
    if coordinates is not None:
        learner = on_policies(learner, coordinates, options.measure)
    fitted = time.perf_counter() - began
    rounds, converged = _run_until_converged(learner, scaled, options)
    samples = np.concatenate([one.samples for one in rounds], axis=1) * spread + centre
    estimate = None
    if rounds[0].histogram is not None:
        counts = np.sum([one.histogram.counts for one in rounds if one.histogram is not None], axis=0)
        edges = zip(rounds[0].histogram.edges, spread, centre, strict=True)
        moved = tuple(edge * width + middle for edge, width, middle in edges)
        found = Histogram(moved, counts)
        estimate = RewardEstimate(found, options.beta)
        if coordinates is not None and options.measure == "policy":
            places = np.stack(np.meshgrid(*found.centres, indexing="ij"), axis=-1)
            estimate = replace(estimate, log_weight=coordinates.log_volume(places))
    diagnostics = {
        **rounds[-1].diagnostics,
        "observations": len(seen),
        "refused": seen.refused,
        "beta": options.beta,
        "step_size": learner.settings["step_size"],
        **numbers,
        **options.about,
        "rhat": converged.rhat,
        "ess": converged.ess,
        "fit_seconds": fitted,
        "draw_seconds": time.perf_counter() - began - fitted,
    }
    doubts = [*doubts, *(sentence for sentence in rounds[-1].warnings if "chains disagree" not in sentence)]
    if not converged.reached:
        doubts.append(
            f"the chains have not converged (rhat {converged.rhat:.3f}, wanted below {CONVERGED_RHAT}; worth "
            f"{converged.ess:.0f} draws, wanted {ENOUGH_DRAWS}): the field may have several wells, or there are few "
            "chains."
        )
    thinned = samples[:, :: max(1, samples.shape[1] // 1000)]
    carried = some_of(seen, options.seed)
    return Reconstruction("replay", thinned, diagnostics, doubts, None, estimate, rounds[-1], carried, coordinates)


def mirrored(
    seen: Observations, held: np.ndarray, interval: tuple[float, float] | None
) -> tuple[Observations, np.ndarray]:
    """Observations and, behind either end of their interval, the mirror images of those before it."""
    if interval is None:
        return seen, held
    points, gradients = seen.points, seen.gradients
    margin = MARGIN * (interval[1] - interval[0])
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
    """Rounds twice as long as all before, the first one thrown away."""
    shortest = FIRST_ROUND if seen.dim in CELLS else FIRST_ROUND_ON_POINTS
    dim, generator = seen.dim, np.random.default_rng(options.seed)
    grid = None
    if dim <= 3:
        low, high = np.quantile(seen.points, [0, 1], axis=0)
        grid = Grid(tuple(low.tolist()), tuple(high.tolist()), 40 if dim < 3 else 24)
    positions: Any = seen.points[generator.integers(0, len(seen), options.chains)]
    kept: list[Chains] = []
    found = Convergence(np.nan, np.nan)
    for number in range(ROUNDS):
        with warnings.catch_warnings():
            # What they say is in the result, once.
            warnings.simplefilter("ignore", OnlookerWarning)
            one = run(
                learner,
                silence(dim),
                steps=shortest * 2 ** max(0, number - 1),
                chains=options.chains,
                seed=options.seed + number,
                start=positions,
                grid=grid,
            )
        positions = one.positions
        if number == 0 and not one.interrupted:
            continue
        kept.append(one)
        found = convergence(np.concatenate([each.samples for each in kept], axis=1))
        if found.reached or one.interrupted or one.diagnostics["lost_chains"]:
            break
    return kept, found


@cache
def silence(dim: int) -> Stream:
    """A stream that shows nothing: the field is there already."""

    def draw(data: Any, carry: Any, key: Array, steps: int, lanes: int | None) -> tuple[Any, Array]:
        return carry, jnp.zeros((steps, 1))

    return simulated(dim, draw, shared=True, numbers=1)


def frozen(learner: InverseLearner) -> InverseLearner:
    """The learner with the memory it begins with, whatever it is shown."""
    return learner._replace(update=lambda memory, observations, count: memory)


def _with_bins(seen: Observations, held: np.ndarray, options: Options) -> tuple[InverseLearner, dict[str, Any]]:
    box, cells = box_of(seen.points, MARGIN), CELLS[seen.dim]
    if options.interval is not None:
        # The mirror images are the margin.
        low, high = options.interval
        margin = MARGIN * (high - low)
        box = Box(np.full(seen.dim, low - margin), np.full(seen.dim, high + margin))
    memory = binned(box.low.tolist(), box.high.tolist())
    state = remembered(memory, seen.points, seen.gradients, held)
    assert isinstance(state, Bins)
    field, width = fit_field(state, 10.0), (box.high - box.low) / cells
    # The wall around the box is stiff too.
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
    step = options.step_size or STIFFNESS / stiffness
    return frozen(replay(memory, step_size=step, beta=options.beta, state=state)), numbers


def _stiffness(gradient: np.ndarray, state: Bins, width: np.ndarray) -> float:
    """The largest slope of a gradient, where it is among the steepest twentieth of occupied cells."""
    dim = gradient.shape[-1]
    occupied = np.asarray(state.counts.sum(axis=0)) > 0
    slopes = [np.abs(np.gradient(gradient[..., j], width[i], axis=i))[occupied] for i in range(dim) for j in range(dim)]
    return max(float(np.quantile(np.max(slopes, axis=0), 0.95)), 1e-12)


def _with_points(seen: Observations, held: np.ndarray, options: Options) -> tuple[InverseLearner, dict[str, Any]]:
    memory: Memory = reservoir(REMEMBERED, options.seed)
    points, gradients = seen.points, seen.gradients
    trend, _ = fit_quadratic(points[~held], gradients[~held], points[held], gradients[held])
    stiffness = options.beta * float(np.abs(np.linalg.eigvalsh(trend.curvature)).max())
    step = options.step_size or STIFFNESS / max(stiffness, LEAST_STIFFNESS)
    width, error = (options.bandwidth, np.nan) if options.bandwidth else _bandwidth(seen, held, options.seed)
    state = remembered(memory, points, gradients)
    learner = replay(memory, step_size=step, bandwidth=width, beta=options.beta, variant="linear", state=state)
    numbers = {"held_out_error": error, "variant": "linear", "bandwidth": width}
    return frozen(learner), {**numbers, "memory_numbers": memory.numbers(seen.dim)}


def _bandwidth(seen: Observations, held: np.ndarray, seed: int) -> tuple[float, float]:
    """The bandwidth with which remembered rows predict gradients held out best, and that error."""
    generator = np.random.default_rng(seed)
    train, test = (
        generator.permutation(np.flatnonzero(rows))[:most] for rows, most in ((~held, REMEMBERED), (held, TRIED_ON))
    )
    points, gradients, places, truth = (
        jnp.asarray(part, jnp.float32)
        for part in (seen.points[train], seen.gradients[train], seen.points[test], seen.gradients[test])
    )
    kept = jnp.ones(len(train), bool)

    @jax.jit
    def error(width: Array) -> Array:
        def one(place: Array) -> Array:
            return regress(place, points, gradients, kept, width)[0]

        return jnp.mean(jnp.sum((jax.lax.map(one, places, batch_size=50) - truth) ** 2, axis=1))

    errors = {float(width): float(error(jnp.float32(width))) for width in 2.0 ** np.arange(-4, 3, 0.5)}
    return min(errors.items(), key=lambda item: item[1])
