"""Jumps: the statistic has its law if nothing changes, changes are detected soon, and other events raise no alarm."""

import os
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import f as f_distribution

import onlooker
from onlooker.core.density import standard_normal
from onlooker.fit.jumps import statistic as jumps
from onlooker.fit.jumps import watch as jump_watch
from onlooker.fit.jumps.judged import residuals_change
from onlooker.fit.jumps.settings import SETTINGS, JumpSettings
from onlooker.fit.jumps.statistic import JumpTest, correlation_times, score_count
from onlooker.fit.jumps.watch import JumpWatch
from onlooker.fit.nearby import Nearby, Slope
from onlooker.fit.ridge_frame import Frame
from onlooker.fit.ridge_units import no_units
from onlooker.fit.steepness import Steepness
from onlooker.simulation.agents import record, running_pools, simulate
from onlooker.simulation.reward import NoisyReward
from onlooker.simulation.switching import Scheduled
from onlooker.storage.trees import pack, unpack
from tests.support.messages import codes

KNOWN = np.ones(100_000, bool)


def noise(count, dim, seed=0):
    random = np.random.default_rng(seed)
    return random.standard_normal((count, dim)), random.standard_normal((count, dim))


def watched(points, gradients, **options):
    watch = JumpWatch(points.shape[1], **options)
    watch.update(points, gradients)
    return watch


def bowls(count, *, shift=0.0, stretch=1.0, scale=1.0, first=None, seed=0):
    """Points and noisy gradients of −½‖x‖² and, from row ``first`` on, of −½·stretch·‖x − shift‖²."""
    points, errors = noise(count, 2, seed)
    after = (np.arange(count) >= (count if first is None else first))[:, None]
    return points, np.where(after, -stretch * (points - shift), -points) + scale * errors


def test_the_statistic_is_hotelling_s():
    """While nothing changes, T² of the first window has the tail of F over many independent stretches."""
    points, residuals = noise(2000, 2)
    test = JumpTest.against(points, residuals, residuals, 0.5)
    size, freedom = score_count(2), 2000 - score_count(2)
    # The mean of the earlier rows has an error too, which matters for long windows.
    assert (test.divisors >= test.windows * (1 + test.windows / 2000)).all()
    found = []
    for number in range(1500):
        test.sums, test.threshold, test.chance = np.zeros((1, size)), -1.0, 1.0
        assert test.update(*noise(16, 2, seed=1 + number), KNOWN[:16]) == 15
        found.append(test.statistic * freedom / (size * 1999))
    for level in (0.5, 0.1, 0.05):
        share = np.mean(np.array(found) > f_distribution.isf(level, size, freedom))
        # 4.5 standard errors; estimating κ_w ≥ 1 and clipping may lower the share further.
        assert level * 0.6 - 4.5 * np.sqrt(level / 1500) < share < level + 4.5 * np.sqrt(level / 1500)


def test_rows_that_cannot_be_predicted_do_not_hide_a_jump():
    """In ten dimensions, every other row unknown: the others show a change of three standard deviations at once."""
    points, residuals = noise(4000, 10)
    test = JumpTest.against(points, residuals, residuals, 1e-8)
    points, residuals = noise(200, 10, seed=1)
    known = np.arange(200) % 2 == 0
    later = test.update(points, residuals + 3 * (np.arange(10) == 4), known)
    assert later is not None
    assert later < 70
    # Without the jump there is no alarm, however few rows are known.
    again = JumpTest.against(*noise(4000, 10), noise(4000, 10)[1], 1e-8)
    assert again.update(points, residuals, np.arange(200) % 9 == 0) is None


def test_jumps_are_the_same_row_by_row_or_all_at_once():
    points, gradients = bowls(3000, shift=1.0, first=2000)
    whole = watched(points, gradients)
    one, detected = JumpWatch(2), []
    for row in range(3000):
        one.update(points[row : row + 1], gradients[row : row + 1])
        detected += [row + 1] * one.jump_detected
    assert detected == [jump.found for jump in whole.jumps]
    assert [jump[:2] for jump in one.jumps] == [jump[:2] for jump in whole.jumps]
    assert len(one.jumps) == 1


def test_jumps_do_not_depend_on_how_rows_are_cut(agents):
    """Several correlated rows count as one unit here, and a piece may be shorter than a unit."""
    points, gradients = agents[0][:20_000], agents[1][:20_000] + 2.0 * (np.arange(20_000) >= 15_000)[:, None]
    whole, cut = watched(points, gradients), JumpWatch(2)
    random, first = np.random.default_rng(0), 0
    while first < 20_000:
        last = first + random.integers(1, 60)
        cut.update(points[first:last], gradients[first:last])
        first = last
    assert whole._test is None or whole._test.unit > 1
    assert [jump[:2] for jump in cut.jumps] == [jump[:2] for jump in whole.jumps]
    assert len(whole.jumps) == 1


def test_units_do_not_matter():
    """R as a function of x in other units is the same reward and has the same jumps."""
    points, gradients = bowls(3000, shift=0.7, first=2000)
    units = np.array([1e3, 1e-4])
    one, other = watched(points, gradients), watched(points * units + 5 * units, gradients / units)
    assert [jump[:2] for jump in one.jumps] == [jump[:2] for jump in other.jumps]


@pytest.mark.parametrize(("change", "longest"), [({"shift": 1.0}, 120), ({"shift": 3.0}, 25), ({"stretch": 2.0}, 90)])
def test_a_change_of_slope_or_curvature_is_found_and_placed(change, longest):
    """A change of curvature leaves the mean residual at zero, so a test of the mean alone would miss it."""
    found = [watched(*bowls(4000, first=3000, seed=seed, **change)).jumps for seed in range(5)]
    for jumps_found in found:
        assert len(jumps_found) == 1
        jump = jumps_found[0]
        assert 3000 < jump.found <= 3000 + longest
        assert abs(jump.at - 3000) <= 20
        assert jump.statistic > jump.threshold


def test_a_change_orthogonal_to_quadratics_is_not_detected():
    points, gradients = bowls(20_000, seed=1)
    gradients[10_000:] += 0.5 * np.cos(8 * points[10_000:])
    assert watched(points, gradients).count == 0
    # A change by a parabola of the same size is detected.
    gradients[10_000:] += 0.5 * np.sqrt(0.5) * points[10_000:]
    assert watched(points, gradients).count == 1


@pytest.mark.parametrize("tail", ["normal", "skewed", "heavy"])
def test_false_alarms_are_as_rare_as_asked(tail):
    """A rate of .002 per row allows 200 in 1e5 rows. Clipping keeps it with heavy tails, see the next test."""
    random = np.random.default_rng(1)
    points = 2 * random.standard_normal((100_000, 1))
    errors = {"normal": random.standard_normal, "skewed": random.standard_exponential}.get(tail)
    rows = random.standard_t(3, points.shape) if errors is None else errors(points.shape)
    assert watched(points, -points + rows, false_alarms=2e-3).count < 100
    assert watched(points, -points + rows).count == 0


def test_heavy_tails_raise_alarms_without_clipping_and_window_variance(monkeypatch):
    random = np.random.default_rng(1)
    points = 2 * random.standard_normal((100_000, 1))
    monkeypatch.setattr(jumps, "SETTINGS", JumpSettings(reach=1e9))
    monkeypatch.setattr(jumps, "_own_statistic", lambda units: np.inf)
    assert watched(points, -points + random.standard_t(3, points.shape)).count > 3


@pytest.fixture(scope="module")
def agents():
    """Rows of 1500 agents, one after the other, on a reward that is not quadratic."""
    reward = NoisyReward(2, lambda x: -0.5 * x[0] ** 2 - 2 * (x[1] - 0.5 * x[0] ** 2) ** 2, 0.5)
    seen = simulate(reward, standard_normal(2), agents=1500, horizon=100, learning_rate=1e-2)
    return np.asarray(seen.points, float), np.asarray(seen.gradients, float)


def test_agents_one_after_the_other_raise_no_alarm(agents, monkeypatch):
    points, gradients = agents
    assert watched(points, gradients).count <= 1
    # If the rows of an agent counted as independent, there would be many alarms.
    for module in (jumps, jump_watch):
        monkeypatch.setattr(module, "correlation_times", lambda points: (1.0, 1.0))
    assert watched(points, gradients).count > 10


def test_consecutive_new_agents_raise_no_alarm(monkeypatch):
    """Agents take turns in the order of their ages, so those that have just begun, far out, follow one another."""
    points, errors = noise(150_000, 1)
    points *= np.where(np.arange(150_000) % 100 < 15, 2.0, 0.4)[:, None]
    assert watched(points, -points + errors).count == 0
    monkeypatch.setattr(jumps, "_own_statistic", lambda units: np.inf)
    assert watched(points, -points + errors).count > 3


def test_learners_that_follow_a_jump_are_detected_again():
    """A hundred learners that never restart climb the current reward, so that they move after each jump."""
    pair = tuple(NoisyReward(1, lambda x, place=place: -((x[0] - place) ** 2)) for place in (-1.0, 1.0))
    times = tuple(200 * (1 + jump) for jump in range(10))
    reward = Scheduled(pair, times, tuple(jump % 2 for jump in range(11)))
    (seen,) = record(running_pools(reward, standard_normal(1), 100, learning_rate=0.05, horizon=10**6), 2200)
    watch = watched(np.asarray(seen.points, float), np.asarray(seen.gradients, float))
    found = np.array([jump.found for jump in watch.jumps])
    assert sum(((found > 100 * time) & (found < 100 * time + 1000)).any() for time in times) >= 9
    assert len(found) <= 12


def test_one_learner_is_too_few_to_detect_jumps_and_warns():
    place, rows = 3.0, []
    random = np.random.default_rng(0)
    for _ in range(4000):
        gradient = -place + random.standard_normal()
        rows.append((place, gradient))
        place += 0.002 * gradient
    points, gradients = np.array(rows).T[:, :, None]
    assert not watched(points, gradients).watching
    live = onlooker.Observer(dim=1, forgetting="adaptive")
    live.learn_many(points, gradients)
    assert "jumps-unseen" in codes(live)
    assert watched(*bowls(3000)).watching


def test_one_outlier_does_not_blind_the_detector():
    points, gradients = bowls(6000, shift=1.0, first=5000)
    gradients[2000] = 1e6
    assert [5000 < jump.found < 5150 for jump in watched(points, gradients).jumps] == [True]


def test_rows_outside_the_explored_region_are_ignored():
    """Learners move away, and their noise is so skewed that clipping gives it a mean."""
    random = np.random.default_rng(0)
    points = random.standard_normal((20_000, 1)) + np.where(np.arange(20_000) < 10_000, 0, 30)[:, None]
    errors = np.where(random.random((20_000, 1)) < 0.1, 4.5, -0.5)
    assert watched(points, -points + errors).count == 0


def test_a_jump_is_detected_after_the_rows_of_a_few_agents(agents):
    points, gradients = agents
    moved = gradients + np.where(np.arange(len(points)) >= 100_000, 2.0, 0.0)[:, None]
    found = watched(points, moved).jumps
    assert [100_000 < jump.found < 102_000 for jump in found if jump.found > 99_000][:1] == [True]


def test_correlation_times_of_a_walk_and_of_agents_that_take_turns():
    """An AR(1) has τ = (1 + ρ)/(1 − ρ); agents that take turns are correlated at long lags only."""
    random = np.random.default_rng(0)
    walk = np.zeros((20_000, 1))
    for row in range(1, len(walk)):
        walk[row] = 0.9 * walk[row - 1] + random.standard_normal()
    assert correlation_times(walk) == pytest.approx((19, 19), rel=0.3)
    turns = np.tile(random.standard_normal((100, 1)), (40, 1)) + 0.1 * random.standard_normal((4000, 1))
    whole, run = correlation_times(turns)
    assert whole > 20
    assert run < 1.5
    assert correlation_times(random.standard_normal((5000, 2))) == pytest.approx((1, 1), abs=0.2)


def test_memory_is_bounded_and_bad_options_are_errors():
    watch = JumpWatch(2)
    for seed in range(8):
        watch.update(*bowls(30_000, seed=seed))
    assert watch.seen == watch.since == 240_000
    assert len(watch._recent) == 65_536
    assert len(watch._test.sums) <= 1025
    for bad in (np.nan, 1e200):
        with pytest.raises(ValueError, match=r"give them to onlooker\.observe first"):
            watch.update(np.full((3, 2), bad), np.zeros((3, 2)))
    assert watch.seen == 240_000
    for bad in (0, 1.0, "often", None):
        with pytest.raises(ValueError, match="false_alarms is"):
            JumpWatch(2, false_alarms=bad)
    with pytest.raises(ValueError, match=r"give both as \(n, 2\)"):
        watch.update(np.zeros((3, 1)), np.zeros((3, 1)))


@pytest.mark.slow
def test_ten_million_observations_in_constant_memory():
    """Resident memory after two and after ten million, with jumps and forgetting, and R̂ asked for in between."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        pytest.skip("no /proc here")
    for forgetting in ("adaptive", 1e-5):
        live, marks, random = onlooker.Observer(dim=1, forgetting=forgetting), [], np.random.default_rng(0)
        for block in range(100):
            points, errors = random.standard_normal((2, 100_000, 1))
            live.learn_many(points, -points + 2.0 * (block // 20 % 2) + errors)
            live.reward([[0.0]])
            marks.append(int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20)
        assert live.seen == 10**7
        assert 4 <= len(live.jumps) < 10
        # MiB; the rows themselves would take 160.
        assert marks[-1] - marks[20] < 20


def test_a_jump_is_detected_above_three_dimensions():
    random = np.random.default_rng(0)
    points, errors = random.standard_normal((2, 6000, 6))
    shift = np.where(np.arange(6000) >= 4000, 1.0, 0.0)[:, None] * np.eye(6)[2]
    found = watched(points, -(points - shift) + errors).jumps
    assert len(found) == 1
    assert 4000 < found[0].found < 4200


def exact_fit(curvature=-1.0, growth=0.0, steepest=np.inf):
    """∇R̂ = curvature · x in five dimensions, known within six standard deviations."""
    affine = np.column_stack([curvature * np.eye(5), np.zeros(5)])
    steep = Steepness(growth, affine, no_units(5), np.zeros(0), np.ones(5))
    slope = Slope(no_units(5), affine, np.zeros(0), 1.0)
    return Nearby(Frame(np.zeros(5), np.eye(5), np.eye(5), np.ones(5)), steep, (slope,), 6.0, steepest)


def walking(rows, scale, seed=0):
    """Points of learners who walk ``scale`` spreads out, and noisy gradients of −½|x|²."""
    points, errors = noise(rows, 5, seed)
    points = points + np.linspace(0, scale, rows)[:, None]
    return points, -points + errors


def test_a_full_fit_predicts_gradients_and_confirms_jumps():
    points, gradients = walking(8000, 1.7)
    held = np.arange(8000) // 20 % 5 == 0
    changed = gradients + (np.arange(8000) >= 6000)[:, None] * np.eye(5)[1]

    def jumps(slopes, judge):
        watch = JumpWatch(5)
        for first in range(0, 8000, 100):
            some = slice(first, first + 100)
            watch.update(points[some], slopes[some], judge, held[some])
        return watch.jumps

    assert jumps(gradients, exact_fit) == ()
    (jump,) = jumps(changed, exact_fit)
    assert abs(jump.at - 6000) < 50
    assert 6000 < jump.found < 6500
    # Without a fit yet, nothing is predicted; a fit that the jump does not contradict is believed.
    assert jumps(changed, lambda: None) == ()
    following = iter([exact_fit()] * 200)
    assert jumps(changed, lambda: next(following)) == (jump,)


def test_residuals_of_a_full_fit_change_only_where_the_reward_does():
    points, gradients = walking(4000, 0.3)
    changed = gradients + (np.arange(4000) >= 2000)[:, None] * np.eye(5)[1]
    assert not residuals_change(points, gradients, 2000, exact_fit(), 1e-6)
    assert residuals_change(points, changed, 2000, exact_fit(), 1e-6)
    # A fit that errs by a slope of one follows the rows that it has seen: only unseen ones tell how it errs.
    seen = (np.arange(4000) % 3 != 0) & (np.arange(4000) < 2000)
    followed = gradients + ~seen[:, None] * np.eye(5)[1]
    assert residuals_change(points, followed, 2000, exact_fit(), 1e-6)
    assert not residuals_change(points, followed, 2000, exact_fit(), 1e-6, ~seen)
    # Too few rows before: the watch is believed.
    assert residuals_change(points, gradients, 20, exact_fit(), 1e-6)


def test_one_agent_among_many_is_no_jump():
    points, gradients = walking(4000, 0.3)
    agents = np.arange(4000) // 50
    odd = gradients + (agents == 40)[:, None] * 3 * np.eye(5)[1]
    assert residuals_change(points, odd, 2000, exact_fit(), 1e-6)
    assert not residuals_change(points, odd, 2000, exact_fit(), 1e-6, agents=agents)
    changed = gradients + (agents >= 40)[:, None] * np.eye(5)[1]
    assert residuals_change(points, changed, 2000, exact_fit(), 1e-6, agents=agents)
    # Of a few agents each may be the one that tells.
    assert residuals_change(points, odd, 2000, exact_fit(), 1e-6, agents=agents // 10)


def test_a_full_fit_is_asked_again_as_more_rows_come(monkeypatch):
    points, gradients = walking(8000, 0.3)
    changed = gradients + (np.arange(8000) >= 6000)[:, None] * np.eye(5)[1]
    held, asked = np.arange(8000) // 20 % 5 == 0, []

    def watched_by(answers, rows=8000):
        asked.clear()
        monkeypatch.setattr(jump_watch, "residuals_change", lambda *rows, **more: (asked.append(rows), answers())[1])
        watch = JumpWatch(5)
        watch.update(points[:rows], changed[:rows], exact_fit, held[:rows])
        return watch

    alarm = watched_by(lambda: True).jumps[0]
    later = watched_by(lambda: len(asked) == 3).jumps[0]
    assert later.at == alarm.at
    counts = np.array([len(rows[0]) for rows in asked]) - asked[0][2]
    assert counts.tolist() == [alarm.found - alarm.at, *(np.ceil(1.25 * counts[:2])).astype(int)]
    assert later.found == alarm.at + counts[2]
    # A suspicion that is not confirmed in time is dropped, and rows are tested again.
    never = watched_by(lambda: False, alarm.found + 1000)
    assert never.jumps == ()
    assert never.watching
    assert np.diff([rows[2] for rows in asked]).max() > SETTINGS.asked_for
    # A saved watch remembers what it suspects.
    suspecting = watched_by(lambda: False, alarm.found + 10)
    assert suspecting._suspect is not None
    assert unpack(JumpWatch, pack(suspecting))._suspect == suspecting._suspect


def test_residuals_count_by_their_steepness_and_steep_places_are_not_judged():
    points = np.array([[0.0, 0, 0, 0, 0], [3.0, 0, 0, 0, 0], [0, 0, 7.0, 0, 0]])
    fit = exact_fit(growth=0.5, steepest=1.0)
    # s = |x|²/5 and ω = 1/(1 + s/2); the last two are too steep, or too far.
    assert fit.weights(points, np.zeros_like(points)) == pytest.approx(1 / np.sqrt(1 + np.array([0, 0.9, 4.9])))
    assert fit.explored(points).tolist() == [True, False, False]
    assert exact_fit().explored(points).tolist() == [True, True, False]
