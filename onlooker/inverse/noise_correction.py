"""w ← (I − μC(α)/D(α))^½ w: inject less noise where gradients bring their own.

A step that injects noise of covariance μD, and whose drift has covariance μ²C(α) from the gradients' noise and the
kernel, moves with covariance μD + μ²C: the chain is too hot. Injecting μD − μ²C instead corrects the sum. `corrected`
wraps any inverse learner and estimates C/D at a few points from the learner's own steps on its own stream, without the
injected noise and with it. Where gradient noise alone exceeds μD the eigenvalues are floored; the share of points where
that happened is in the settings.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from onlooker.core.random import standard_normal
from onlooker.core.settings import check_positive, check_whole
from onlooker.data.stream import Stream
from onlooker.inverse.base import InverseLearner
from onlooker.inverse.classical import classical
from onlooker.inverse.examples import Example, answers

__all__ = ["corrected", "examples"]

# The smallest share of the injected variance that is kept along any direction.
LEAST_SHARE = 0.01
# Steps of the stream drawn at once, as in a run.
BLOCK = 4096
# Steps over which D is averaged; it varies only with the evidence.
FEW = 256


def corrected(
    learner: InverseLearner,
    stream: Stream,
    places: Any,
    *,
    draws: int = 4096,
    batch: int = 1,
    width: float | None = None,
    seed: int = 0,
) -> InverseLearner:
    """The same learner with its injected noise reduced by the covariance of its drift.

    Parameters
    ----------
    learner
        An inverse learner without a memory.
    stream
        The stream that it will run on.
    places
        (n, dim): where the covariance is measured, such as samples of a short first run. Between them the roots are
        averaged with Gaussian weights.
    draws
        Number of steps of the stream taken at each place.
    batch
        Number of steps after which observations are uncorrelated, such as an agent's horizon. The covariance is that of
        sums over ``batch`` steps, so that it includes autocorrelation.
    width
        Standard deviation of the Gaussian weights; by default the median distance of a place to its nearest neighbour.
    seed
        Seed of the stream's random numbers.
    """
    if learner.evidence == "memory":
        raise ValueError(f"{learner.name} has a memory, so its drift has no noise to correct; run it uncorrected.")
    spots = np.asarray(places, dtype=np.float32)
    if spots.ndim != 2 or spots.shape[1] != stream.dim or not len(spots) or not np.isfinite(spots).all():
        raise ValueError(f"places has shape {spots.shape}; give finite positions (n, {stream.dim}).")
    check_whole(draws=draws, batch=batch)
    draws = int(draws) if stream.length is None else min(int(draws), stream.length)
    if draws < 8 * batch:
        raise ValueError(
            f"draws is {draws} (the stream's length at most), under eight batches of {batch}; give a longer stream, "
            "more draws or a smaller batch."
        )
    relative = _relative_covariance(learner, stream, spots, draws, int(batch), seed)
    roots, floored = _roots(relative)
    if width is None:
        width = _typical_distance(spots)
    check_positive(width=width)
    table, where, scale = jnp.asarray(roots, jnp.float32), jnp.asarray(spots), float(width)

    def step(position: Array, evidence: Any, noise: Array) -> tuple[Array, Any]:
        away = jnp.sum((where.astype(position.dtype) - position[None]) ** 2, axis=1) / (2 * scale**2)
        weight = jax.nn.softmax(-away)
        root = jnp.tensordot(weight.astype(position.dtype), table.astype(position.dtype), axes=1)
        return learner.step(position, evidence, noise.at[0].set(root @ noise[0]))

    share = float(np.trace(relative, axis1=1, axis2=2).mean() / stream.dim)
    settings = {**learner.settings, "noise_corrected": share, "noise_floored": floored}
    return learner._replace(step=step, settings=settings)


def _relative_covariance(
    learner: InverseLearner, stream: Stream, places: np.ndarray, draws: int, batch: int, seed: int
) -> np.ndarray:
    """(n, dim, dim): covariance of the drift at each place, in units of the injected noise's covariance."""
    dim = stream.dim
    show = _shown(stream, draws, seed)
    keys = jax.random.split(jax.random.key(seed + 1), draws)

    @jax.jit
    def at(place: Array) -> tuple[Array, Array]:
        def moved(key: Array, evidence: Any, injected: Array) -> Array:
            noise = standard_normal(key, (learner.noise_rows, dim), jnp.float32).at[0].set(injected)
            shown = evidence if stream.answer is None else stream.answer(learner.ask(place, noise), evidence)
            return learner.step(place, shown, noise)[0] - place

        drift = jax.vmap(partial(moved, injected=jnp.zeros(dim, jnp.float32)))(keys, show)
        sums = drift[: draws // batch * batch].reshape(-1, batch, dim).sum(axis=1)
        covariance = jnp.atleast_2d(jnp.cov(sums.T)) / batch
        # A step is linear in the injected noise: what unit noise adds is D's root, which may depend on the evidence.
        few = jax.tree.map(lambda leaf: leaf[:FEW], show)
        unit = [jax.vmap(partial(moved, injected=row))(keys[:FEW], few) for row in jnp.eye(dim, dtype=jnp.float32)]
        added = jnp.stack(unit) - drift[None, :FEW]
        return covariance, jnp.einsum("ani,anj->ij", added, added) / len(drift[:FEW])

    measured = [at(jnp.asarray(place)) for place in places]
    return np.stack([_in_units_of(np.asarray(injected, float), np.asarray(own, float)) for own, injected in measured])


def _in_units_of(injected: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """D^−½ C D^−½, zero along directions without injected noise."""
    values, vectors = np.linalg.eigh(injected)
    usable = values > 1e-12 * max(values.max(), 1e-300)
    root = vectors @ np.diag(np.where(usable, 1 / np.sqrt(np.where(usable, values, 1)), 0)) @ vectors.T
    return root @ covariance @ root


def _shown(stream: Stream, draws: int, seed: int) -> Any:
    """The evidence of one chain over ``draws`` steps."""
    lanes = None if stream.shared else 1
    key = jax.random.key(seed)
    carry = stream.init(stream.data, key, lanes)
    blocks = []
    draw: Callable[..., tuple[Any, Any]] = jax.jit(stream.draw, static_argnums=(3, 4))
    for number in range(-(-draws // BLOCK)):
        steps = min(BLOCK, draws)
        carry, evidence = draw(stream.data, carry, jax.random.fold_in(key, number), steps, lanes)
        blocks.append(evidence)
    joined = jax.tree.map(lambda *parts: jnp.concatenate(parts)[:draws], *blocks)
    return joined if stream.shared else jax.tree.map(lambda leaf: leaf[..., 0], joined)


def _roots(relative: np.ndarray) -> tuple[np.ndarray, float]:
    """(I − M)^½ with eigenvalues floored, and the share of places where the floor applied."""
    values, vectors = np.linalg.eigh(np.eye(relative.shape[-1]) - relative)
    floored = float((values < LEAST_SHARE).any(axis=1).mean())
    roots = np.sqrt(np.maximum(values, LEAST_SHARE))
    return np.einsum("nij,nj,nkj->nik", vectors, roots, vectors), floored


def _typical_distance(places: np.ndarray) -> float:
    if len(places) == 1:
        return 1.0
    apart = np.linalg.norm(places[:, None] - places[None], axis=-1)
    np.fill_diagonal(apart, np.inf)
    return float(max(np.median(apart.min(axis=1)), 1e-6))


def examples() -> dict[str, Example]:
    def made() -> InverseLearner:
        return corrected(classical(step_size=0.1), answers(jnp.float32), np.eye(2), draws=200)

    return {"corrected": Example(made, answers)}
