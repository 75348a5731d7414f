"""Families of rewards above three dimensions: R, draws of exp(R), and learners that climb R."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.special import logsumexp
from scipy.optimize import minimize

Reward = Callable[[Array], Array]
Draw = Callable[[int, np.random.Generator], np.ndarray]
SampleGradient = Callable[[np.ndarray, np.random.Generator], np.ndarray]

CHAINS, DRAWS = 256, 200
# Trajectories per draw.
THINNED = 3
# Rounds of warm-up of the chains, after each of which the metric is renewed, and steps of each.
ROUNDS, ROUND = 8, 40
LEAPFROGS = 20
# Most learners at once, and points evaluated at once.
LANES, CHUNK = 1000, 4000


class Seen(NamedTuple):
    """What is observed: points and gradients (n, dim), and the agent (n,) of each row, in the order of time."""

    points: np.ndarray
    gradients: np.ndarray
    agents: np.ndarray

    @property
    def ends(self) -> np.ndarray:
        """The last point of each agent."""
        return self.points[np.append(self.agents[1:] != self.agents[:-1], True)]


def first(seen: Seen, count: int) -> Seen:
    """The first rows."""
    return Seen(*(part[:count] for part in seen))


def in_turn(seen: Seen, lanes: int = LANES) -> Seen:
    """The same rows as if so many agents ran at a time, one step of each after the other."""
    begins = np.flatnonzero(np.append(True, seen.agents[1:] != seen.agents[:-1]))
    lengths = np.diff(np.append(begins, len(seen.agents)))
    # Each agent starts when the lane that is free first has ended its last one.
    free = np.zeros(min(lanes, len(begins)), int)
    start = np.empty(len(begins), int)
    for number, length in enumerate(lengths):
        lane = int(np.argmin(free))
        start[number] = free[lane]
        free[lane] += length
    moment = np.repeat(start - begins, lengths) + np.arange(len(seen.agents))
    order = np.argsort(moment, kind="stable")
    return Seen(*(part[order] for part in seen))


class Pace(NamedTuple):
    """θ′ = θ + clip(εg, ±limit) with g = ∇R + σ(1 + .3|θ₁ − c₁|/width)ξ, from c + root·ξ."""

    centre: np.ndarray
    root: np.ndarray
    noise: np.ndarray
    step: np.ndarray
    limit: np.ndarray
    width: float


@dataclass(frozen=True)
class Learners:
    """How learners run: from N(0, spread²) with noise σ and step ε, each for a random number of steps.

    If ``steep``, all of it is in units of exp(R): starts in its standard deviations, noise in root mean squares of ∇R,
    steps in variances.
    """

    spread: float = 1.3
    noise: float = 2.0
    step: float = 2e-3
    steep: bool = False
    horizon: tuple[int, int] = (5, 60)


STEEP = Learners(spread=2.5, noise=1.0, step=0.05, steep=True)
# Longest move of a learner on a steep reward, in standard deviations, and the largest ε × curvature.
LONGEST_MOVE, LARGEST_STEP = 0.25, 0.3
# Starts where R is lower than this below its mean over exp(R) are drawn in.
DEEPEST = 1e5


@dataclass(frozen=True)
class Problem:
    """A reward and what is known of it.

    Attributes
    ----------
    reward
        R of one point (dim,).
    draw
        Exact draws of exp(R), if there is a way; otherwise many chains are run.
    learners
        How learners run.
    sample_gradient
        Gradients as learners see them, if they are not ∇R with Gaussian noise.
    unit
        The part of R that is not quadratic, for the oracle.
    """

    name: str
    dim: int
    reward: Reward
    draw: Draw | None = None
    learners: Learners = Learners()
    sample_gradient: SampleGradient | None = None
    unit: Reward | None = None

    def value(self, points: np.ndarray) -> np.ndarray:
        return in_chunks(self._value, points)

    def gradient(self, points: np.ndarray) -> np.ndarray:
        return in_chunks(self._gradient, points)

    @cached_property
    def _value(self) -> Callable[[Array], Array]:
        return jax.jit(jax.vmap(self.reward))

    @cached_property
    def _gradient(self) -> Callable[[Array], Array]:
        return jax.jit(jax.vmap(jax.grad(self.reward)))

    @cached_property
    def chains(self) -> np.ndarray:
        """Draws (chain, draw, dim) by Hamiltonian Monte Carlo."""
        generator = np.random.default_rng(17)
        start = generator.standard_normal((CHAINS, self.dim))
        if self.learners.steep:
            centre, root = laplace(self.reward, self.dim)
            start = centre + 0.5 * start @ root.T
        else:
            start *= self.learners.spread
        return hamiltonian_draws(self.reward, start)

    @cached_property
    def draws(self) -> np.ndarray:
        """CHAINS × DRAWS draws of exp(R) in random order."""
        generator = np.random.default_rng(12)
        if self.draw is not None:
            return self.draw(CHAINS * DRAWS, generator)
        return generator.permutation(self.chains.reshape(-1, self.dim))

    @cached_property
    def pace(self) -> Pace:
        how, ones = self.learners, np.ones(self.dim)
        if not how.steep:
            root, limit = how.spread * np.eye(self.dim), np.inf * ones
            return Pace(0 * ones, root, how.noise * ones, how.step * ones, limit, 1.0)
        deviation = self.draws.std(axis=0)
        slopes = self.gradient(self.draws[:CHUNK]) * deviation
        fisher = slopes.T @ slopes / len(slopes)
        size = np.sqrt(np.diag(fisher))
        # Between the deviations of a coordinate alone, 1, and given all others, 1/size.
        out = how.spread * deviation / np.sqrt(size)
        return Pace(
            self.draws.mean(axis=0),
            np.linalg.cholesky(np.atleast_2d(np.cov(self.draws.T)) + np.diag(out**2)),
            how.noise * size / deviation,
            min(how.step, LARGEST_STEP / float(np.linalg.eigvalsh(fisher)[-1])) * deviation**2,
            LONGEST_MOVE * deviation,
            float(deviation[0]),
        )

    def watch(self, rows: int, seed: int) -> Seen:
        """The first ``rows`` observations, agent by agent, of lanes in which one agent follows another."""
        generator = np.random.default_rng([41, seed])
        low, high = self.learners.horizon
        lanes = int(np.clip(rows // (2 * (low + high)), 10, LANES))
        starts = self._starts(generator)
        point, agent = np.stack(list(islice(starts, lanes))), np.arange(lanes)
        left = generator.integers(low, high + 1, lanes)
        kept = []
        for _ in range(-(-rows // lanes)):
            gradient = self._observed(point, generator)
            kept.append((point, gradient, agent))
            point = point + np.clip(self.pace.step * gradient, -self.pace.limit, self.pace.limit)
            left = left - 1
            over = left == 0
            if over.any():
                point[over] = np.stack(list(islice(starts, int(over.sum()))))
            left[over] = generator.integers(low, high + 1, over.sum())
            agent = np.where(over, agent.max() + np.cumsum(over), agent)
        points, gradients, agents = (np.concatenate(parts) for parts in zip(*kept, strict=True))
        order = np.argsort(agents, kind="stable")[:rows]
        return Seen(points[order].astype(np.float32), gradients[order].astype(np.float32), agents[order])

    def _starts(self, generator: np.random.Generator) -> Iterator[np.ndarray]:
        centre, steep = self.pace.centre, self.learners.steep
        level = self.value(self.draws[:CHUNK]).mean() - DEEPEST if steep else -np.inf
        while True:
            away = generator.standard_normal((CHUNK, self.dim)) @ self.pace.root.T
            while steep and (deep := ~(self.value(centre + away) >= level)).any():
                away[deep] *= 0.7
            yield from centre + away

    def _observed(self, point: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        if self.sample_gradient is not None:
            return self.sample_gradient(point, generator)
        away = np.abs(point[:, :1] - self.pace.centre[0]) / self.pace.width
        noise = self.pace.noise * (1 + 0.3 * away) * generator.standard_normal(point.shape)
        return np.asarray(self._gradient(jnp.asarray(point, jnp.float32)), float) + noise


def in_chunks(function: Callable[[Array], Array], points: np.ndarray) -> np.ndarray:
    parts = [points[first : first + CHUNK] for first in range(0, len(points), CHUNK)]
    return np.concatenate([np.asarray(function(jnp.asarray(part, jnp.float32)), float) for part in parts])


def laplace(reward: Reward, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """R(x) ≈ R(m) − ½|root⁻¹(x − m)|² about the maximum m that is reached from 0: m and the root."""
    climb = jax.jit(jax.value_and_grad(lambda x: -reward(x)))

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = climb(jnp.asarray(x, jnp.float32))
        return float(value), np.asarray(slope, float)

    found = minimize(objective, np.zeros(dim), jac=True, method="L-BFGS-B")
    hessian = np.asarray(jax.hessian(reward)(jnp.asarray(found.x, jnp.float32)), float)
    curvature, axes = np.linalg.eigh(-hessian)
    return found.x, axes / np.sqrt(np.maximum(curvature, 1e-4 * curvature[-1]))


def hamiltonian_draws(reward: Reward, starts: np.ndarray) -> np.ndarray:
    """x′ = x + ε root p, p′ = p + ε rootᵀ∇R, accepted with probability min(1, exp(−ΔH)): (chain, draw, dim)."""
    root, step = np.linalg.cholesky(np.atleast_2d(np.cov(starts.T))), 0.3
    points, key = jnp.asarray(starts, jnp.float32), jax.random.key(3)
    advance = jax.jit(partial(_advance, reward), static_argnames="steps")
    for _ in range(ROUNDS):
        key, one = jax.random.split(key)
        points, step, _ = advance(one, points, step, jnp.asarray(root, jnp.float32), steps=ROUND)
        root = np.linalg.cholesky(np.atleast_2d(np.cov(np.asarray(points, float).T)))
    # The step is adapted in the rounds only: it must not depend on the chains afterwards.
    _, _, drawn = advance(key, points, step, jnp.asarray(root, jnp.float32), steps=THINNED * DRAWS, adapted=0.0)
    return np.asarray(drawn[::THINNED], float).transpose(1, 0, 2)


def _advance(
    reward: Reward, key: Array, points: Array, step: Array, root: Array, steps: int, adapted: float = 1.0
) -> tuple[Array, Array, Array]:
    height, slope = jax.vmap(reward), jax.vmap(jax.grad(reward))

    def one(state: tuple[Array, Array], key: Array) -> tuple[tuple[Array, Array], Array]:
        (x, step), keys = state, jax.random.split(key, 5)
        p = jax.random.normal(keys[0], x.shape)
        # Every fifth trajectory is short: it frees chains that started where the step is too long.
        size = step * jax.random.uniform(keys[1], minval=0.6) * jnp.where(jax.random.bernoulli(keys[4], 0.2), 0.1, 1.0)
        before = height(x) - 0.5 * jnp.sum(p**2, axis=1)

        def leap(_: Array, moving: tuple[Array, Array]) -> tuple[Array, Array]:
            x, p = moving
            x = x + size * p @ root.T
            return x, p + size * slope(x) @ root

        length = jax.random.randint(keys[2], (), 1, LEAPFROGS + 1)
        there, p = lax.fori_loop(0, length, leap, (x, p + 0.5 * size * slope(x) @ root))
        p = p - 0.5 * size * slope(there) @ root
        gain = height(there) - 0.5 * jnp.sum(p**2, axis=1) - before
        chance = jnp.exp(jnp.minimum(jnp.where(jnp.isfinite(gain), gain, -jnp.inf), 0.0))
        taken = jax.random.uniform(keys[3], chance.shape) < chance
        x = jnp.where(taken[:, None], there, x)
        return (x, step * jnp.exp(0.2 * adapted * (jnp.mean(chance) - 0.8))), x

    (points, step), drawn = lax.scan(one, (points, jnp.float32(step)), jax.random.split(key, steps))
    return points, step, drawn


def axes_and_widths(
    dim: int, generator: np.random.Generator, low: float = 0.4, high: float = 1.3
) -> tuple[np.ndarray, np.ndarray]:
    """Random orthogonal axes, in columns, and log-uniform standard deviations along them."""
    axes = np.linalg.qr(generator.standard_normal((dim, dim)))[0]
    return axes, np.exp(generator.uniform(np.log(low), np.log(high), dim))


def quadratic(
    dim: int,
    seed: int,
    low: float = 0.4,
    high: float = 1.3,
    bend: float = 0.0,
    learners: Learners = Learners(),
) -> Problem:
    """R = −½xᵀC⁻¹x + bend·sin(1.2 w·x) with |w| = 1."""
    generator = np.random.default_rng([1, seed])
    axes, widths = axes_and_widths(dim, generator, low, high)
    precision, towards = (axes / widths**2) @ axes.T, _unit_vector(dim, generator)

    def reward(x: Array) -> Array:
        return -0.5 * x @ precision @ x + bend * jnp.sin(1.2 * towards @ x)

    def draw(count: int, generator: np.random.Generator) -> np.ndarray:
        return generator.standard_normal((count, dim)) * widths @ axes.T

    return Problem("quadratic", dim, reward, None if bend else draw, learners)


def _unit_vector(dim: int, generator: np.random.Generator) -> np.ndarray:
    vector = generator.standard_normal(dim)
    return vector / np.linalg.norm(vector)


def mixture(
    dim: int, seed: int, parts: int = 2, aligned: bool = False, unequal: bool = False, spread: float = 1.3
) -> Problem:
    """R = log Σ_k w_k N(x; m_k, C_k), the means 3.5 standard deviations apart.

    ``aligned``: apart along the widest axes of C. ``unequal``: a covariance for each part.
    """
    generator = np.random.default_rng([2, seed])
    axes, widths = axes_and_widths(dim, generator)
    root = np.linalg.cholesky((axes * widths**2) @ axes.T)
    shares = generator.dirichlet(np.full(parts, 8.0))
    apart = np.linalg.qr(generator.standard_normal((dim, parts - 1)))[0].T
    if aligned:
        apart = axes[:, np.argsort(-widths)[: parts - 1]].T
    apart *= 3.5 / np.linalg.norm(np.linalg.solve(root, apart.T), axis=0)[:, None]
    means = np.concatenate([np.zeros((1, dim)), apart])
    means -= means.mean(axis=0)
    stretch = np.exp(0.25 * generator.standard_normal((parts, dim))) if unequal else np.ones((parts, dim))
    roots = root * stretch[:, None, :]
    precisions = np.linalg.inv(roots @ roots.transpose(0, 2, 1))
    level = np.log(shares) - np.log(stretch).sum(axis=1)

    def reward(x: Array) -> Array:
        away = x - means
        return logsumexp(level - 0.5 * jnp.einsum("ki,kij,kj->k", away, precisions, away))

    slopes = means @ precisions[0]

    def unit(x: Array) -> Array:
        return logsumexp(level - 0.5 * (slopes * means).sum(axis=1) + slopes @ x)

    def draw(count: int, generator: np.random.Generator) -> np.ndarray:
        part, normal = generator.choice(parts, count, p=shares), generator.standard_normal((count, dim))
        turned = np.stack([normal @ one.T for one in roots])
        return means[part] + turned[part, np.arange(count)]

    return Problem("mixture", dim, reward, draw, Learners(spread), unit=None if unequal else unit)


def logistic(
    dim: int, seed: int, batch: int = 1, prior: str = "Laplace", rows: int = 500, weight: float = 10
) -> Problem:
    """R = T·mean_k log p(y_k|ψ_k, x) − Σ|x_j|, or − ½|x|²; a gradient uses a batch of the rows ψ_k."""
    generator = np.random.default_rng([3, seed])
    features = np.concatenate([np.ones((rows, 1)), generator.standard_normal((rows, dim - 1))], axis=1)
    chance = 1 / (1 + np.exp(-0.7 * features @ generator.standard_normal(dim)))
    labels = (generator.random(rows) < chance).astype(float)

    def reward(x: Array) -> Array:
        logit = features @ x
        likelihood = jnp.mean(labels * logit - jax.nn.softplus(logit))
        return weight * likelihood - (jnp.sum(jnp.abs(x)) if prior == "Laplace" else 0.5 * x @ x)

    def sample_gradient(points: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        row = generator.integers(rows, size=(len(points), batch))
        excess = labels[row] - 1 / (1 + np.exp(-np.einsum("nbi,ni->nb", features[row], points)))
        drift = np.sign(points) if prior == "Laplace" else points
        return weight / batch * np.einsum("nb,nbi->ni", excess, features[row]) - drift

    learners = Learners(spread=1.0, step=0.01)
    return Problem("logistic", dim, reward, learners=learners, sample_gradient=sample_gradient)


def hierarchical(dim: int, seed: int) -> Problem:
    """y_i ~ N(μ + τη_i, s_i²), η_i ~ N(0, 1) in x = (μ, log τ, η): a funnel, non-centred."""
    generator = np.random.default_rng([4, seed])
    groups = dim - 2
    error = generator.uniform(0.8, 1.6, groups)
    data = 0.5 + generator.standard_normal(groups) + error * generator.standard_normal(groups)

    def reward(x: Array) -> Array:
        left = (data - x[0] - jnp.exp(x[1]) * x[2:]) / error
        return -0.5 * (left @ left + x[2:] @ x[2:] + (x[0] / 3) ** 2 + x[1] ** 2)

    return Problem("hierarchical", dim, reward, learners=STEEP)


def collinear(dim: int, seed: int) -> Problem:
    """y ~ N(Xβ, σ²) in x = (β, log σ): the eigenvalues of XᵀX are spread over 10³."""
    generator = np.random.default_rng([5, seed])
    predictors, rows = dim - 1, 40 + 2 * dim
    left = np.linalg.qr(generator.standard_normal((rows, predictors)))[0]
    axes = np.linalg.qr(generator.standard_normal((predictors, predictors)))[0]
    matrix = left * np.sqrt(np.logspace(0, 3, predictors)) @ axes.T
    data = matrix @ generator.standard_normal(predictors) + 0.7 * generator.standard_normal(rows)
    nearest, rest = np.linalg.lstsq(matrix, data)[:2]
    squares = matrix.T @ matrix

    def reward(x: Array) -> Array:
        away = x[:-1] - nearest
        likelihood = -0.5 * jnp.exp(-2 * x[-1]) * (rest[0] + away @ squares @ away) - rows * x[-1]
        return likelihood - 0.5 * jnp.sum((x[:-1] / 3) ** 2) - 0.5 * x[-1] ** 2

    return Problem("collinear", dim, reward, learners=STEEP)


def counts(dim: int, seed: int, rows: int = 30) -> Problem:
    """y_i ~ Poisson(exp(ψ_iᵀx)), x ~ N(0, I): exponential walls."""
    generator = np.random.default_rng([6, seed])
    features = np.concatenate([np.ones((rows, 1)), generator.standard_normal((rows, dim - 1))], axis=1)
    seen = generator.poisson(np.exp(features @ (0.4 * generator.standard_normal(dim))))

    def reward(x: Array) -> Array:
        rate = features @ x
        return jnp.sum(seen * rate - jnp.exp(rate)) - 0.5 * x @ x

    return Problem("counts", dim, reward, learners=STEEP)


def cholesky_columns(matrix: Array, count: int) -> Array:
    """A = LLᵀ: the first columns of L, as rows. LAPACK's own routine hangs within loops of many chains on few cores."""

    def eliminate(left: Array, number: Array) -> tuple[Array, Array]:
        column = left[:, number] / jnp.sqrt(left[number, number])
        return left - jnp.outer(column, column), column

    return lax.scan(eliminate, matrix, jnp.arange(count))[1]


def process_scales(dim: int, seed: int, rows: int = 18) -> Problem:
    """y ~ N(m, a²k(ℓ) + s²I) in x = (m, log a, log s, log ℓ): a Gaussian process with a length for each input."""
    generator = np.random.default_rng([7, seed])
    inputs = generator.uniform(-2, 2, (rows, dim - 3))
    apart = (inputs[:, None] - inputs) ** 2

    def covariance(x: Any) -> Any:
        kernel = jnp.exp(-0.5 * apart @ jnp.exp(-2 * x[3:]))
        # The first term keeps float32 exact enough far from the data.
        return jnp.exp(2 * x[1]) * (kernel + 1e-4 * np.eye(rows)) + jnp.exp(2 * x[2]) * np.eye(rows)

    truth = np.concatenate([[0.3, 0.0, -1.0], generator.normal(0.2, 0.3, dim - 3)])
    centre = np.concatenate([[0.0, 0.0, -1.0], np.zeros(dim - 3)])
    root = np.linalg.cholesky(np.asarray(covariance(truth), float))
    data = truth[0] + root @ generator.standard_normal(rows)

    def reward(x: Array) -> Array:
        # With y as one more row of the matrix, the last row of L is L⁻¹y.
        away = data - x[0]
        bordered = jnp.block([[covariance(x), away[:, None]], [away[None], jnp.zeros((1, 1))]])
        columns = cholesky_columns(bordered, rows)
        return (
            -0.5 * jnp.sum(columns[:, -1] ** 2) - jnp.sum(jnp.log(jnp.diag(columns))) - 0.5 * jnp.sum((x - centre) ** 2)
        )

    return Problem("process scales", dim, reward, learners=STEEP)


def process_counts(dim: int, seed: int) -> Problem:
    """y_i ~ Poisson(exp(1 + f_i)), f = a·chol(k(ℓ))η, η ~ N(0, I) in x = (log a, log ℓ, η)."""
    generator = np.random.default_rng([8, seed])
    sites = dim - 2
    apart = np.subtract.outer(np.arange(sites), np.arange(sites)) ** 2
    seen = generator.poisson(np.exp(1 + np.sin(1.2 * np.arange(sites) + generator.uniform(0, 6))))

    def reward(x: Array) -> Array:
        kernel = jnp.exp(-0.5 * apart * jnp.exp(-2 * x[1])) + 1e-4 * np.eye(sites)
        rate = 1 + jnp.exp(x[0]) * x[2:] @ cholesky_columns(kernel, sites)
        return jnp.sum(seen * rate - jnp.exp(rate)) - 0.5 * (x[2:] @ x[2:] + x[0] ** 2 + (2 * x[1]) ** 2)

    return Problem("process counts", dim, reward, learners=STEEP)


def runge_kutta(slope: Callable[[Array], Array], start: Array, step: float, steps: int) -> Array:
    """u′ = slope(u) by the classical fourth-order rule: states (steps, …) after each step."""

    def advance(u: Array, _: None) -> tuple[Array, Array]:
        first = slope(u)
        second = slope(u + 0.5 * step * first)
        third = slope(u + 0.5 * step * second)
        u = u + step / 6 * (first + 2 * second + 2 * third + slope(u + step * third))
        return u, u

    return lax.scan(advance, start, None, length=steps)[1]


# Rates without and with a third species, and first sizes.
RATES = {2: (1.0, 0.7, 0.8, 0.4), 3: (1.4, 0.7, 0.6, 0.5, 0.6, 0.5, 0.3)}
FIRST = (1.5, 1.2, 0.8)


def _grow(rates: Array, sizes: Array) -> Array:
    """(log x₁)′ = r(1 − x₁/8) − ax₂, (log x₂)′ = −m + bx₁ − cx₃, (log x₃)′ = −n + dx₂; x₃ may be missing."""
    x = jnp.exp(jnp.minimum(sizes, 20.0))
    if len(sizes) == 2:
        r, a, m, b = rates
        return jnp.stack([r * (1 - x[0] / 8) - a * x[1], -m + b * x[0]])
    r, a, m, b, c, n, d = rates
    return jnp.stack([r * (1 - x[0] / 8) - a * x[1], -m + b * x[0] - c * x[2], -n + d * x[1]])


def food_chain(dim: int, seed: int, noise: float = 0.4) -> Problem:
    """y ~ N(log x(t), noise²), x hunters and hunted; unknown are log rates (4-D) and log first sizes (6-D, 10-D)."""
    generator = np.random.default_rng([9, seed])
    species = 3 if dim == 10 else 2
    rates = np.log(RATES[species])
    first = np.log(FIRST[:species])
    truth = np.concatenate([rates, first])[:dim]

    def observed(x: Array) -> Array:
        start = x[len(rates) :] if dim > len(rates) else jnp.asarray(first)
        return runge_kutta(partial(_grow, jnp.exp(x[: len(rates)])), start, 0.1, 80)[7::8]

    data = np.asarray(observed(jnp.asarray(truth)), float)
    data = data + noise * generator.standard_normal(data.shape)

    def reward(x: Array) -> Array:
        # From 0 the maximum is reached; the parameters count from their prior mean.
        return -0.5 * jnp.sum((observed(x + truth) - data) ** 2) / noise**2 - 0.5 * jnp.sum((x / 0.5) ** 2)

    return Problem("food chain", dim, reward, learners=STEEP)


def chain(dim: int, seed: int) -> Problem:
    """R = −.6 Σ(x_{i+1} − x_i² + .7)² − .4 Σ(x_i − .3)²: Rosenbrock's function as a chain."""

    def reward(x: Array) -> Array:
        return -0.6 * jnp.sum((x[1:] - x[:-1] ** 2 + 0.7) ** 2) - 0.4 * jnp.sum((x - 0.3) ** 2)

    return Problem("Rosenbrock", dim, reward, learners=Learners(spread=1.0))


def banana(dim: int, seed: int) -> Problem:
    """R = −½z₁² − (z₂ − z₁² + 1)² + a quadratic of the other coordinates, turned."""

    def core(z: Array) -> Array:
        return -0.5 * z[0] ** 2 - (z[1] - z[0] ** 2 + 1) ** 2

    def transport(normal: np.ndarray) -> np.ndarray:
        return np.stack([normal[:, 0], normal[:, 0] ** 2 - 1 + np.sqrt(0.5) * normal[:, 1]], axis=1)

    return embedded("banana", dim, seed, core, transport)


def funnel(dim: int, seed: int) -> Problem:
    """R = −z₁²/3 − ½z₁ − ½z₂²exp(−z₁) + a quadratic of the other coordinates, turned."""

    def core(z: Array) -> Array:
        return -(z[0] ** 2) / 3 - 0.5 * z[1] ** 2 * jnp.exp(-z[0]) - 0.5 * z[0]

    def transport(normal: np.ndarray) -> np.ndarray:
        first = np.sqrt(1.5) * normal[:, 0]
        return np.stack([first, np.exp(0.5 * first) * normal[:, 1]], axis=1)

    return embedded("funnel", dim, seed, core, transport)


def embedded(name: str, dim: int, seed: int, core: Reward, transport: Callable[[np.ndarray], np.ndarray]) -> Problem:
    """R = core(z₁, z₂) − ½z₃…ᵀC⁻¹z₃… with z = Qx, Q orthogonal; ``transport`` turns N(0, I) into exp(core)."""
    generator = np.random.default_rng([10, seed])
    turn = np.linalg.qr(generator.standard_normal((dim, dim)))[0]
    axes, widths = axes_and_widths(dim - 2, generator)
    precision = (axes / widths**2) @ axes.T

    def reward(x: Array) -> Array:
        z = turn @ x
        return core(z[:2]) - 0.5 * z[2:] @ precision @ z[2:]

    def draw(count: int, generator: np.random.Generator) -> np.ndarray:
        normal = generator.standard_normal((count, dim))
        return np.concatenate([transport(normal[:, :2]), normal[:, 2:] * widths @ axes.T], axis=1) @ turn

    return Problem(name, dim, reward, draw)


def sum_of_terms(dim: int, seed: int) -> Problem:
    """R = −.35|x|² + .6 Σ_k sin(2c_k u_k·x + φ_k) exp(−.3(v_k·x)²): every term in two dimensions."""
    generator = np.random.default_rng([11, seed])
    directions = generator.standard_normal((dim, 2, dim)) / np.sqrt(dim)
    pitch, phase = generator.uniform(0.8, 1.6, dim), generator.uniform(0, 2 * np.pi, dim)

    def reward(x: Array) -> Array:
        along, across = directions[:, 0] @ x, directions[:, 1] @ x
        return -0.35 * x @ x + 0.6 * jnp.sum(jnp.sin(2 * pitch * along + phase) * jnp.exp(-0.3 * across**2))

    return Problem("sum of terms", dim, reward)


def returns(dim: int, seed: int, width: int = 30) -> Problem:
    """R = 4 logistic(.6 a·tanh(Wx + b)) − .25|x|²: a return that saturates, of a policy with a hidden layer."""
    generator = np.random.default_rng([12, seed])
    weights = 1.5 * generator.standard_normal((width, dim)) / np.sqrt(dim)
    head, offset = generator.standard_normal((2, width))

    def reward(x: Array) -> Array:
        return 4 * jax.nn.sigmoid(0.6 * head @ jnp.tanh(weights @ x + offset)) - 0.25 * x @ x

    return Problem("returns", dim, reward, learners=Learners(spread=1.5, noise=3.0))


def saturating(dim: int, seed: int) -> Problem:
    """R = 6 exp(−aᵀC⁻¹a/N) + 3 logistic(2b₁b₂ − |b|²/N) − .2|x|² with a = x − c, b = x − c′."""
    generator = np.random.default_rng([13, seed])
    axes, widths = axes_and_widths(dim, generator, 0.7, 2.0)
    precision = (axes / widths**2) @ axes.T
    first, second = 0.6 * generator.standard_normal(dim), 0.8 * generator.standard_normal(dim)

    def reward(x: Array) -> Array:
        a, b = x - first, x - second
        peak = 6 * jnp.exp(-a @ precision @ a / dim)
        return peak + 3 * jax.nn.sigmoid(2 * b[0] * b[1] - b @ b / dim) - 0.2 * x @ x

    return Problem("saturating", dim, reward, learners=Learners(spread=1.6))


# Curvatures of about 1: a hundred relaxation times, and gradients of successive rows that are anti-correlated.
AT_REST = Learners(spread=1.5, noise=2.3, step=0.2, horizon=(800, 800))
LARGE_STEPS = Learners(spread=1.5, noise=0.9, step=0.8)


def at_rest(dim: int, seed: int, bend: float = 0.0) -> Problem:
    return quadratic(dim, seed, 0.8, 1.25, bend, AT_REST)


def large_steps(dim: int, seed: int, bend: float = 0.0) -> Problem:
    return quadratic(dim, seed, 0.8, 1.25, bend, LARGE_STEPS)


def slope_errors(
    make: Callable[[int], Problem], seed: int, problem: Problem, points: np.ndarray
) -> tuple[float, float]:
    """Largest error of ∇R against central differences, and of ∇R in float32, in root mean squares of ∇R.

    The problem is made again in float64: JAX confuses the constants of a function traced in both precisions.
    """
    with jax.enable_x64(True):
        reward = make(seed).reward
        value, slope = jax.jit(jax.vmap(reward)), jax.jit(jax.vmap(jax.grad(reward)))
        exact, shift = np.asarray(slope(jnp.asarray(points))), 1e-5
        sides = [
            [np.asarray(value(jnp.asarray(points + one))) for one in (shift * axis, -shift * axis)]
            for axis in np.eye(points.shape[1])
        ]
    central = np.stack([up - down for up, down in sides], axis=1) / (2 * shift)
    size = np.sqrt((exact**2).mean())
    return float(np.abs(central - exact).max() / size), float(np.abs(problem.gradient(points) - exact).max() / size)


def largest_rhat(chains: np.ndarray) -> float:
    from numpyro.diagnostics import split_gelman_rubin

    return max(float(split_gelman_rubin(chains[..., axis])) for axis in range(chains.shape[-1]))


def steepness(seen: Seen) -> tuple[float, float]:
    """The largest gradient in 99 % quantiles, and the correlation of successive gradients of an agent."""
    gradients = seen.gradients / seen.gradients.std(axis=0)
    length = np.linalg.norm(gradients, axis=1)
    same = seen.agents[1:] == seen.agents[:-1]
    first, second = gradients[:-1][same], gradients[1:][same]
    return float(length.max() / np.quantile(length, 0.99)), float((first * second).sum() / (first**2).sum())


def overlap(problem: Problem, seen: Seen) -> tuple[float, float]:
    """Share of the learners' ends where R is as high as over exp(R), and of exp(R) inside the learners' ellipsoid."""
    heights = problem.value(problem.draws[:5000])
    ends = np.mean(problem.value(seen.ends) >= np.quantile(heights, 0.01))
    centre, root = seen.points.mean(axis=0), np.linalg.cholesky(np.atleast_2d(np.cov(seen.points.T.astype(float))))
    far = [np.linalg.norm(np.linalg.solve(root, (x - centre).T), axis=0) for x in (seen.points, problem.draws)]
    return float(ends), float(np.mean(far[1] <= np.quantile(far[0], 0.99)))


def describe(make: Callable[[int], Problem], rows: int, seed: int) -> dict[str, float]:
    """What a problem is like, by name."""
    problem = make(seed)
    seen = problem.watch(rows, seed)
    places = np.concatenate([problem.draws[:50], seen.points[:: max(1, rows // 50)][:50]]).astype(float)
    slope, rough = slope_errors(make, seed, problem, places)
    ends, inside = overlap(problem, seen)
    steep, lag = steepness(seen)
    return {
        "slope": slope,
        "float32": rough,
        "rhat": 1.0 if problem.draw is not None else largest_rhat(problem.chains),
        "sd": float(problem.value(problem.draws[:5000]).std()),
        "ends": ends,
        "seen": inside,
        "steep": steep,
        "lag": lag,
    }
