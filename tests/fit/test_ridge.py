"""The fit above three dimensions: its algebra, what it finds, what it must not find, and its samples."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import check_grad

from onlooker.core.density import standard_normal
from onlooker.core.policies import spherical
from onlooker.fit import fit as fit_potential
from onlooker.fit import ridge_dictionary as dictionary
from onlooker.fit.active_subspace import active_subspace
from onlooker.fit.atoms import cluster, drawn_atoms, sharpness
from onlooker.fit.coordinate_units import coordinate_units, passing
from onlooker.fit.hmc import LOST, LOST_DEVIATIONS, State, _found_again
from onlooker.fit.ridge_density import _sine, errors, log_density
from onlooker.fit.ridge_frame import Rows, neighbours, robust_frame, significantly_alike, successive
from onlooker.fit.ridge_potential import Member
from onlooker.fit.ridge_sums import begin_ridge
from onlooker.fit.ridge_system import Head, System, prior
from onlooker.fit.ridge_units import Units, bends, gather, joined_units, predicted, values
from onlooker.fit.sample import stein
from onlooker.fit.stacking import stacked, stacked_losses
from onlooker.fit.steepness import first_fit, growth
from onlooker.fit.trained_units import Numbers, half_loss, trained
from onlooker.fit.variable_projection import _envelope
from onlooker.simulation.agents import simulate
from onlooker.simulation.reward import NoisyReward

DIM = 5


def some_units(generator, dim=DIM):
    """Seven log cosh units in two groups, and six cosines."""
    waves = np.column_stack([generator.standard_normal((6, dim)), generator.uniform(0, 6, 6)])
    cosines = Units(np.zeros((0, dim + 1)), waves, np.zeros(6, int), np.zeros(1, bool))
    both = joined_units(bends(generator.standard_normal((4, dim + 1))), bends(generator.standard_normal((3, dim + 1))))
    return joined_units(both, cosines)


def walks(gradient, dim=DIM, agents=600, steps=20, noise=1.0, seed=0, rate=0.02):
    """Learners from N(0, 1.3²) that take steps on ``gradient``: points, gradients, agents."""
    generator = np.random.default_rng(seed)
    point, points, slopes = 1.3 * generator.standard_normal((agents, dim)), [], []
    for _ in range(steps):
        slope = gradient(point) + noise * generator.standard_normal(point.shape)
        points.append(point)
        slopes.append(slope)
        point = point + rate * slope
    rows = [np.stack(part, axis=1).reshape(-1, dim) for part in (points, slopes)]
    return *rows, np.repeat(np.arange(agents), steps)


def test_the_head_is_penalised_weighted_least_squares():
    """Sums alone, with the quadratic eliminated, against a dense design of every coefficient."""
    generator = np.random.default_rng(0)
    units, precision = some_units(generator), np.exp(generator.standard_normal(DIM))
    z = (generator.standard_normal((300, DIM)) * [1, 2, 0.5, 1, 1] + 0.3).astype(np.float32)
    y, weights = generator.standard_normal((300, DIM)).astype(np.float32), generator.uniform(0.2, 1, 300)
    system = System(gather(units, z, y, weights), units, precision)
    penalty, precisions = 0.7, np.array([3.0, 5.0, 0.2])
    matrix, towards = system.reduced(penalty)
    head = np.linalg.solve(matrix + prior(units, precisions), towards)
    affine = system.affine(head, penalty)

    # In the coordinates in which H's entries are independent: the gradient of every term, as columns.
    def terms(point):
        along = system.turn @ (point - system.mean)
        squares = along[system.rows] * along[system.columns] * np.where(system.rows == system.columns, 0.5, 1.0)
        bend, wave = units.bends[:, :-1] @ point + units.bends[:, -1], units.waves[:, :-1] @ point + units.waves[:, -1]
        return jnp.concatenate([squares, along, jnp.log(jnp.cosh(bend)), -jnp.cos(wave)])

    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        # (rows, coordinates, terms)
        design = np.asarray(jax.vmap(jax.jacobian(terms))(jnp.asarray(z, jnp.float64))).transpose(0, 2, 1)
    root = np.sqrt(weights[:, None] * precision)
    tall = (design * root[:, :, None]).reshape(-1, design.shape[-1])
    normal, right = tall.T @ tall, tall.T @ (y * root).ravel()
    size = len(system.rows)
    normal[np.arange(size), np.arange(size)] += penalty * system.quadratic
    normal[size + DIM :, size + DIM :] += prior(units, precisions)
    expected = np.linalg.solve(normal, right)
    assert head == pytest.approx(expected[size + DIM :], rel=2e-3, abs=2e-4)
    fitted = predicted(affine, units, head, z)
    assert fitted == pytest.approx(np.einsum("nik,k->ni", design, expected), rel=1e-2, abs=2e-3)
    # The posterior variance of any sum of terms, and the error from sums.
    chosen = Head(affine, head, precisions, penalty, 0.0)
    place = system.terms(z[:20].astype(float), values(units, z[:20].astype(float)))
    solved = system.solved(place, chosen, system.factor(chosen))
    assert (solved * place).sum(axis=1) == pytest.approx(
        np.einsum("ni,ij,nj->n", place, np.linalg.inv(normal), place), rel=2e-3
    )
    # The scores of a row's residual are its right-hand side.
    assert system.scores(y, z, weights)[[0, size, -1]] == pytest.approx(right[[0, size, -1]], rel=2e-3)
    dense = np.sum(weights[:, None] * precision * (y - fitted) ** 2) / weights.sum() / DIM
    assert system.error(affine, head, system.sums, precision) == pytest.approx(dense, rel=1e-4)


def test_the_gradient_of_variable_projection_is_that_of_its_loss():
    generator = np.random.default_rng(1)
    z, y = generator.standard_normal((2, 200, DIM)).astype(np.float32)
    rows = Rows(z, y, generator.uniform(0.2, 1, 200).astype(np.float32))
    precision, head, affine = np.exp(generator.standard_normal(DIM)), np.ones(3), np.zeros((DIM, DIM + 1))

    def half_loss(flat, slope):
        found, total = _envelope(bends(flat.reshape(3, DIM + 1)), head, affine, rows, precision)
        return found.ravel() if slope else total / 2

    start = generator.standard_normal(3 * (DIM + 1))
    size = np.linalg.norm(half_loss(start, True))
    error = check_grad(half_loss, lambda flat, _: half_loss(flat, True), start, False, epsilon=3e-3)
    assert error < 5e-3 * size


def test_trained_units_descend_the_loss_of_the_head():
    generator = np.random.default_rng(5)
    z, y = generator.standard_normal((2, 50, DIM)).astype(np.float32)
    weights, precision = generator.uniform(0.2, 1, 50).astype(np.float32), np.exp(generator.standard_normal(DIM))
    units, head = bends(generator.standard_normal((4, DIM + 1))), generator.standard_normal(4)
    affine = generator.standard_normal((DIM, DIM + 1))
    affine[:, :-1] += affine[:, :-1].T
    numbers = units.directions, units.bends[:, -1], head, affine[:, :-1], affine[:, -1]
    loss = half_loss(
        Numbers(*(jnp.asarray(part, jnp.float32) for part in numbers)),
        [jnp.asarray(part) for part in (z, y, weights)],
        jnp.asarray(precision, jnp.float32),
    )
    squares = (y - predicted(affine, units, head, z)) ** 2 @ precision
    assert float(loss) == pytest.approx(0.5 * (weights @ squares) / weights.sum(), rel=1e-4)


@pytest.mark.slow
def test_trained_units_find_bends_along_many_directions():
    generator = np.random.default_rng(6)
    turns = 2 * np.linalg.qr(generator.standard_normal((8, 8)))[0]
    z = generator.standard_normal((20_000, 8)).astype(np.float32)
    y = (np.tanh(z @ turns.T) @ turns + 0.3 * generator.standard_normal(z.shape)).astype(np.float32)
    rows = Rows(z, y, np.ones(len(z), np.float32))
    units = trained(rows, np.ones(8), np.eye(8), np.zeros((8, 9)), 0)
    _, head = dictionary.solve(gather(units, *rows), gather(units, *rows), units, np.ones(8))
    left = y - predicted(head.affine, units, head.weights, z)
    # The noise's variance is .09.
    assert np.mean(left**2) < 0.1 < 0.1 * np.var(y)


def test_shares_are_those_of_least_squares_that_add_up_to_one():
    generator = np.random.default_rng(7)
    left = generator.standard_normal((200, 30, 1)) + [0.3, 0.5, 1.0] * generator.standard_normal((200, 30, 3))
    products = np.einsum("gni,gnj->gij", left, left)
    shares = stacked(products)
    total = products.sum(axis=0)
    best = np.linalg.solve(total, np.ones(3))
    assert shares == pytest.approx(best / best.sum(), abs=0.03)
    assert stacked_losses(products, shares) == pytest.approx(((left @ shares) ** 2).sum(axis=1))
    # A fit that is only worse has no share, and fits that nothing tells apart have about the same.
    worse = np.concatenate([left[..., :1], 3 * left[..., :1]], axis=2)
    assert stacked(np.einsum("gni,gnj->gij", worse, worse)).tolist() == [1, 0]
    alike = generator.standard_normal((200, 30, 2))
    assert stacked(np.einsum("gni,gnj->gij", alike, alike)) == pytest.approx([0.5, 0.5], abs=0.05)


def test_sums_of_parts_are_the_sums_of_the_whole():
    points, gradients, agents = walks(lambda x: -x - np.sin(2 * x))
    held = agents % 5 == 0
    whole = begin_ridge(points, gradients, held, agents=agents)
    one, other = (begin_ridge(points, gradients, held, agents=agents) for _ in range(2))
    whole.add(points, gradients, held)
    cut = 5001
    one.add(points[:cut], gradients[:cut], held[:cut])
    other.add(points[cut:], gradients[cut:], held[cut:])
    joined, expected = one.joined(other).fit(), whole.fit()
    spread = expected.value(points).std()
    # R̂ is known up to a constant.
    assert np.ptp(joined.value(points) - expected.value(points)) < 1e-5 * spread
    assert joined.error(points[:50]) == pytest.approx(expected.error(points[:50]), rel=1e-3)
    # Forgotten rows weigh nothing.
    one.forget(1.0)
    one.add(points, gradients, held)
    assert np.ptp(one.fit().value(points) - expected.value(points)) < 1e-5 * spread


def test_the_frame_makes_points_and_noise_white_whatever_a_few_rows_do():
    generator = np.random.default_rng(2)
    mix, stir = generator.standard_normal((2, DIM, DIM))
    steady = generator.standard_normal((2000, DIM)) @ mix.T + 3
    points = np.repeat(steady, 4, axis=0) + 1e-3 * generator.standard_normal((8000, DIM))
    gradients = -0.2 * points + generator.standard_normal(points.shape) @ stir.T
    agents = np.repeat(np.arange(2000), 4)
    points[:240] += 200 * generator.standard_normal((240, DIM))
    frame = robust_frame(points, gradients, np.ones(8000), successive(agents))
    inside = frame.points(points[240:])
    assert np.cov(inside.T) / np.var(inside) == pytest.approx(np.eye(DIM), abs=0.4)
    noise = np.cov(frame.gradients(gradients[240:] + 0.2 * points[240:]).T)
    size = np.sqrt(frame.precision)
    assert noise * np.outer(size, size) == pytest.approx(np.eye(DIM), abs=0.3)
    assert frame.forward @ frame.backward == pytest.approx(np.eye(DIM), abs=1e-8)


def test_learners_at_rest_tell_nothing_by_their_next_row():
    """There the noise pushes a learner off, and the next slope is against it."""
    points, gradients, agents = walks(lambda x: -x, agents=40, steps=400, rate=0.5)
    late = np.arange(len(points)) % 400 > 200
    assert not significantly_alike(gradients[late], successive(agents[late]))
    early, slopes, owners = walks(lambda x: -x, agents=2000, steps=3)
    assert significantly_alike(slopes, successive(owners))
    pairs = neighbours(early.astype(np.float32), owners, 0)
    assert (owners[pairs[0]] != owners[pairs[1]]).all()


def test_lagged_residuals_show_a_planted_direction_and_chance_none():
    generator = np.random.default_rng(3)
    direction = np.ones(8) / np.sqrt(8)
    counts = []
    for seed in range(20):
        noise = generator.standard_normal((4000, 8)).astype(np.float32)
        pairs = np.arange(0, 3999), np.arange(1, 4000)
        found = active_subspace(noise, np.ones(4000, np.float32), np.ones(8), pairs, seed)
        counts.append(found.number)
    # One fit in 2000 finds one by chance.
    assert sum(counts) == 0
    signal = np.repeat(generator.standard_normal(400), 10)[:, None] * direction
    found = active_subspace((noise + signal).astype(np.float32), np.ones(4000, np.float32), np.ones(8), pairs, 0)
    assert found.number == 1
    assert abs(found.axes[0] @ direction) > 0.95
    assert found.misfit > 1


def test_nothing_is_found_on_a_quadratic_and_a_bend_is():
    curvature = np.diag([1.0, 2.0, 0.5, 1.0, 3.0]) + 0.2
    for seed in range(3):
        points, gradients, agents = walks(lambda x: -x @ curvature, seed=seed)
        found = dictionary.choose(points, gradients, agents % 5 == 0, agents, seed)
        assert (found.directions, found.misfit < 1) == (0, True)
        assert sum(units.number for units in found.members) == 0
    towards = np.array([1.0, -1, 1, 0, 0]) / np.sqrt(3)
    bent = walks(lambda x: -x @ curvature + 2 * np.cos(2 * x @ towards)[:, None] * towards)
    found = dictionary.choose(*bent[:2], bent[2] % 5 == 0, bent[2], 0)
    assert found.directions == 1
    largest = found.members[0].directions
    raw = largest @ found.frame.forward
    raw /= np.linalg.norm(raw, axis=1, keepdims=True)
    assert np.median(np.abs(raw @ towards)) > 0.95


def test_kinks_are_found_on_their_coordinate_alone():
    points, gradients, _ = walks(lambda x: -x - 2 * np.sign(x) * (np.arange(DIM) == 2))
    frame = robust_frame(points, gradients, np.ones(len(points)), None)
    z = frame.points(points)
    rows = Rows(z, frame.gradients(gradients), np.ones(len(z), np.float32))
    for kinks in (True, False):
        own = coordinate_units(frame, points, kinks)
        chosen = passing(own, rows, frame.gradients(gradients + points), frame.precision)
        raw = np.abs(chosen.directions @ frame.forward)
        assert chosen.number > 0
        assert (raw.argmax(axis=1) == 2).all()


def test_kinks_are_looked_for_where_zero_is():
    points = np.random.default_rng(0).standard_normal((1000, DIM)) + 10.0 * (np.arange(DIM) < 2)
    frame = robust_frame(points, points, np.ones(len(points)), None)
    found = coordinate_units(frame, points, True)
    assert len(found.pooled) == DIM - 2
    assert coordinate_units(frame, points + 10.0, True).number == 0


def test_atoms_are_directions_that_occur_again():
    generator = np.random.default_rng(4)
    atoms = generator.standard_normal((30, 12))
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    seen = atoms[generator.integers(0, 30, 5000)] * generator.choice([-1, 1], 5000)[:, None]
    seen = (seen + 0.01 * generator.standard_normal(seen.shape)).astype(np.float32)
    found = cluster(seen / np.linalg.norm(seen, axis=1, keepdims=True))
    assert len(found) == 30
    assert np.abs(found @ atoms.T).max(axis=0).min() > 0.999
    chance = generator.standard_normal((5000, 12)).astype(np.float32)
    assert cluster(chance / np.linalg.norm(chance, axis=1, keepdims=True)) is None


def test_an_atom_turns_as_sharply_as_its_own_gradients_do():
    generator = np.random.default_rng(8)
    kinds, wanted = generator.integers(0, 3, 3000), np.array([0.3, 1.0, 4.0])
    along = 2 * generator.standard_normal(3000) * np.array([1.0, 0.5, 1.0])[kinds]
    slope = 3 - 2 * np.tanh(wanted[kinds] * along) + 0.01 * generator.standard_normal(3000)
    assert sharpness(kinds, along, slope, 3) == pytest.approx(wanted, rel=0.05)


def test_gradients_own_directions_stand_for_terms_too_many_to_occur_again():
    """R = −Σ log cosh(aₖ·x), one term at a time: units on some of the aₖ, in raw coordinates whatever the frame."""
    generator = np.random.default_rng(10)
    points = generator.standard_normal((2000, 12)) * np.linspace(0.5, 2, 12)
    atoms = generator.standard_normal((2000, 12))
    gradients = -atoms * np.tanh((atoms * points).sum(axis=1))[:, None]
    frame = robust_frame(points, gradients, np.ones(2000), None)
    z, weights = frame.points(points), np.ones(2000, np.float32)
    rows = Rows(z, frame.gradients(gradients), weights)
    nothing = dictionary.no_units(12)
    best = dictionary.Candidate(nothing, Head(np.zeros((12, 13)), np.zeros(0), np.zeros(0), 0.0, 0.0), np.zeros(1))
    units = drawn_atoms(frame, rows, best, points, 0)
    raw = units.directions @ frame.forward
    raw /= np.linalg.norm(raw, axis=1, keepdims=True)
    known = atoms / np.linalg.norm(atoms, axis=1, keepdims=True)
    assert np.abs(raw @ known.T).max(axis=1).min() > 0.999
    # They turn at zero of the raw coordinates, twice within a standard deviation.
    turn = points @ frame.forward.T @ units.directions.T - frame.centre @ frame.forward.T @ units.directions.T
    assert (turn + units.bends[:, -1]).std(axis=0) == pytest.approx(np.full(units.number, 2.0), rel=0.1)
    origin = -frame.centre @ frame.forward.T @ units.directions.T + units.bends[:, -1]
    assert origin == pytest.approx(np.zeros(units.number), abs=1e-4)


def test_coordinates_that_hardly_any_gradient_moves_are_passed_over():
    points, gradients, agents = walks(lambda x: -x, agents=2000, steps=3)
    rare = np.where(np.arange(len(points)) % 50 == 0, 1.0, 0.0)
    more = np.column_stack([gradients, rare]).astype(np.float32)
    assert significantly_alike(more, successive(agents))


def test_steep_rows_inform_without_ruling():
    """R = −½|x|² − ½ exp(3x₀): at the edge its slope is a thousand times the usual one."""

    def gradient(x):
        wall = np.zeros_like(x)
        wall[:, 0] = -1.5 * np.exp(np.minimum(3 * x[:, 0], 12))
        return -x + wall

    points, gradients, agents = walks(gradient, rate=1e-4)
    frame, steep = first_fit(points, gradients, points, gradients, successive(agents), 0)
    far = points[:, 0] > 2
    weights = steep.weights(frame.points(points), frame.gradients(gradients))
    assert weights[far].max() < 0.1 * np.median(weights)
    held = agents % 5 == 0
    usual = np.abs(points[:, 0]) < 1
    truth = -0.5 * (points**2).sum(axis=1) - 0.5 * np.exp(3 * points[:, 0])
    fit = fit_potential(points, gradients, held, agents=agents)
    assert (fit.value(points) - truth)[usual].std() < 0.15 * truth[usual].std()
    # A mild reward has equal weights.
    mild, slopes, owners = walks(lambda x: -x)
    _, even = first_fit(mild, slopes, mild, slopes, successive(owners), 0)
    assert even.growth == 0
    squares = np.random.default_rng(0).chisquare(DIM, 4000)[:, None] / DIM
    assert growth(np.sqrt(squares), np.linspace(0, 10, 4000), np.ones(1)) == 0


@pytest.fixture(scope="module")
def bumps():
    """Two correlated bumps in six dimensions: the truth, draws of exp(R), and learners."""
    generator = np.random.default_rng(2)
    root = np.eye(6) + 0.3 * generator.standard_normal((6, 6))
    precision, centres = jnp.asarray(np.linalg.inv(root @ root.T)), jnp.asarray([[1.2] * 6, [-1.2] * 6])

    def reward(point):
        away = point[None] - centres
        return jax.scipy.special.logsumexp(-jnp.einsum("ki,ij,kj->k", away, precision, away) / 2)

    watched = simulate(NoisyReward(6, reward, 0.5), standard_normal(6, 1.5), agents=400, horizon=50, learning_rate=0.05)
    draws = np.asarray(centres)[generator.integers(0, 2, 1000)] + generator.standard_normal((1000, 6)) @ root.T
    return reward, draws, watched


@pytest.fixture(scope="module")
def found(bumps):
    _, _, watched = bumps
    return fit_potential(watched.points, watched.gradients, watched.agents % 5 == 0, agents=watched.agents)


def test_one_direction_tells_two_bumps_apart(bumps, found):
    reward, draws, _ = bumps
    draws = draws[found.explored(draws)]
    assert len(draws) > 950
    error = found.value(draws) - np.asarray(jax.vmap(reward)(jnp.asarray(draws, jnp.float32)))
    assert 1 <= found.directions <= 2
    assert error.std() < 0.1
    assert found.held_out_error < 0.9 * found.quadratic_error
    scores = (error - error.mean()) / found.error(draws)
    assert 0.5 < np.sqrt(np.mean(scores**2)) < 1.6
    slope = (found.value(draws[:5] + 1e-3) - found.value(draws[:5] - 1e-3)) / 2e-3
    assert found.gradient(draws[:5]).sum(axis=1) == pytest.approx(slope, rel=1e-2, abs=1e-2)


def test_chains_have_the_fitted_law_where_learners_were(bumps, found):
    _, draws, _ = bumps
    drawn = found.sample(chains=64, beta=1.0, seed=0)
    assert drawn.mismatch < 0.1
    samples = drawn.samples.reshape(-1, 6)
    assert samples.mean(axis=0) == pytest.approx(draws.mean(axis=0), abs=0.25)
    assert found.explored(samples).mean() > 0.98
    assert not found.explored(samples + 30).any()
    # At another β: E (x − m) ∂R̂ = −1/β, and a draw of half the β is told apart.
    colder = found.sample(chains=64, beta=2.0, seed=0, draws=200).samples.reshape(-1, 6)
    assert stein(lambda points: 2.0 * found.gradient(points), colder, None) < 0.1
    assert stein(found.gradient, colder, None) > 0.4


def test_chains_meet_a_wall_where_the_fit_is_uncertain(bumps, found):
    """log p = βR̂ − wall·max(0, error/limit − 1)², where R̂ and its error are those of a mean of two candidates."""
    rows, units = bumps[2], some_units(np.random.default_rng(9), 6)
    frame, (member, *_) = found.frame, found.members
    sums = gather(units, frame.points(rows.points), frame.gradients(rows.gradients), np.ones(len(rows.points)))
    _, head = dictionary.solve(sums, sums, units, frame.precision)
    found = replace(found, members=(member._replace(share=0.6), Member(units, head, sums, 0.4)))
    heights = 2.0 * found.value(found.typical)
    numbers = found._confined(2.0, np.full(len(heights), 1 / len(heights)), heights)
    z = found.inside(np.concatenate([found.typical[:40], 6 * found.typical[:40]]))
    points = z @ found.frame.backward.T + found.frame.centre
    error = errors(numbers, z)
    excess = np.maximum(error / float(numbers.limit) - 1, 0)
    assert (excess[:40] == 0).mean() > 0.9 > 0.5 > (excess[40:] == 0).mean()
    span = np.quantile(heights, 0.95) - np.quantile(heights, 0.05)
    assert float(numbers.wall) == pytest.approx(max(2.0, span), rel=1e-4)
    expected = 2.0 * found.value(points) - float(numbers.wall) * excess**2
    got = np.asarray(jax.vmap(lambda place: log_density(numbers, place))(jnp.asarray(z, jnp.float32)))
    assert got == pytest.approx(expected, rel=1e-3, abs=1e-2 * span)
    # It is the posterior's and the spread of the candidates; the terms that are kept are nearly all of it.
    alone = [replace(found, members=(one._replace(share=1.0),)) for one in found.members]
    away = np.stack([one.value(points) - one.value(found.typical).mean() for one in alone])
    spread = found.shares @ (away - found.shares @ away) ** 2
    learnt = found.shares @ np.stack([one.error(points) ** 2 for one in alone])
    assert error == pytest.approx(np.sqrt(learnt + spread), rel=0.3)


def test_the_sine_of_chains_is_the_sine():
    angles = np.linspace(-40, 40, 4001).astype(np.float32)
    assert np.asarray(_sine(jnp.asarray(angles))) == pytest.approx(np.sin(angles.astype(float)), abs=2e-6)


def test_chains_that_are_lost_continue_where_others_are():
    lowest = LOST + LOST_DEVIATIONS * np.sqrt(DIM / 2)
    heights = np.array([0.0, 1.0, 2.0, 1.0 - 0.9 * lowest, 1.0 - 1.2 * lowest, np.nan])
    points = jnp.tile(jnp.arange(6.0)[:, None], (1, DIM))
    state = State(points, jnp.arange(6.0), jnp.eye(DIM), jax.random.key(0))
    again = _found_again(state, heights, np.random.default_rng(0))
    assert np.asarray(again.points[:4]).tolist() == np.asarray(points[:4]).tolist()
    assert set(np.asarray(again.points[4:, 0]).tolist()) <= {0.0, 1.0, 2.0, 3.0}
    assert (again.step == again.points[:, 0]).all()


def test_a_fit_that_nothing_tests_says_so(found):
    assert found.found == "successive"
    assert list(found.warnings) == []
    (message,) = replace(found, found="none").warnings
    assert message.code == "misfit-untested"


@pytest.mark.slow
def test_pure_quadratics_have_no_directions_twenty_times():
    for seed in range(20):
        generator = np.random.default_rng(seed)
        axes = np.linalg.qr(generator.standard_normal((8, 8)))[0]
        curvature = (axes * np.exp(generator.uniform(-1, 1.5, 8))) @ axes.T
        points, gradients, agents = walks(lambda x, curvature=curvature: -x @ curvature, dim=8, agents=2000, seed=seed)
        assert dictionary.choose(points, gradients, agents % 5 == 0, agents, seed).directions == 0


@pytest.mark.slow
@pytest.mark.parametrize("measure", ["coordinates", "policy"])
def test_chains_on_a_torus_above_three_dimensions(measure):
    """Four states with two actions: R = −|a − c|²/2s² in angles, with a centre near an end of some intervals."""
    angles, centre, width = spherical(4, 2), np.array([0.8, 0.1, 0.7, 1.5]), 0.15
    points = np.random.default_rng(0).uniform(0, np.pi / 2, (20_000, 4))
    fit = fit_potential(points, -(points - centre) / width**2, np.arange(20_000) % 5 == 0)
    drawn = fit.sample(chains=64, beta=1.0, seed=0, coordinates=angles, measure=measure)
    assert drawn.mismatch < 0.1
    axis = (np.arange(2000) + 0.5) / 2000 * np.pi / 2
    for number, middle in enumerate(centre):
        mass = np.exp(-0.5 * ((axis - middle) / width) ** 2) * (np.sin(2 * axis) if measure == "policy" else 1)
        expected = (mass * axis).sum() / mass.sum()
        assert drawn.samples[..., number].mean() == pytest.approx(expected, abs=0.03)


def test_a_fit_like_an_earlier_one_has_its_priors_and_is_the_same():
    points, gradients, agents = walks(lambda x: -x - np.sin(2 * x), agents=200)
    sums = begin_ridge(points, gradients, agents % 5 == 0, agents=agents)
    sums.add(points, gradients, agents % 5 == 0)
    first = sums.fit()
    again = sums.fit(like=first)
    assert again.resembles(first)
    assert again.members[0].head.quadratic == first.members[0].head.quadratic
    assert again.value(points) == pytest.approx(first.value(points), rel=1e-9)
    other = begin_ridge(points[::2], gradients[::2], agents[::2] % 5 == 0, seed=1, agents=agents[::2])
    other.add(points, gradients, agents % 5 == 0)
    assert not other.fit().resembles(first)
