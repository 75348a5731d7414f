"""The Observer: R̂ at any time, the same however observations are divided into calls, and the new R after a jump."""

import warnings
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from river.drift import ADWIN

import onlooker
from onlooker.core.density import standard_normal
from onlooker.fit import potential as fits
from onlooker.fit.jumps.expected import fit_expected
from onlooker.fit.jumps.watch import JumpWatch
from onlooker.simulation.agents import simulate
from onlooker.simulation.reward import NoisyReward
from tests.support import shapes
from tests.support.messages import codes, message_of

X = np.random.default_rng(0).uniform([-0.8, -0.6], [0.8, 1.6], (200, 2))


def bowl(x, shift=0.0):
    return -((x[..., 0] - shift) ** 2) - 0.5 * (x[..., 1] - 0.5) ** 2


def watch(shift=0.0, agents=500, seed=0):
    reward = NoisyReward(2, lambda point: bowl(point, shift), 0.5)
    return simulate(reward, standard_normal(2, 1.2), agents=agents, horizon=40, learning_rate=0.02, seed=seed)


def test_an_observer_answers_at_any_time():
    seen, live = watch(), onlooker.Observer(dim=2, chains=16)
    with pytest.raises(ValueError, match="it needs 1000"):
        live.reward(X)
    errors = []
    for first in range(0, 20_000, 5000):
        rows = slice(first, first + 5000)
        live.learn_many(seen.points[rows], seen.gradients[rows], seen.agents[rows])
        errors.append(np.nanstd(live.reward(X) - bowl(X)))
    assert errors[-1] < min(0.04, errors[0])
    offline = onlooker.reconstruct(seen.points, seen.gradients, agents=seen.agents)
    assert errors[-1] < 2 * np.nanstd(offline.reward(X) - bowl(X)) + 0.01
    assert ((live.reward_error(X) > 0) & (live.reward_error(X) < 0.1)).all()
    assert live.samples.shape[::2] == (16, 2)
    assert live.warnings == []
    assert np.isnan(live.reward([[40.0, 40.0]])).all()


@pytest.mark.parametrize("forgetting", [1e-3, "adaptive"])
def test_rows_one_by_one_or_all_at_once_give_the_same_bits(forgetting):
    seen = watch(agents=50)
    options = {"dim": 2, "forgetting": forgetting}
    many, one = onlooker.Observer(**options), onlooker.Observer(**options)
    many.learn_many(seen.points[:1500], seen.gradients[:1500], seen.agents[:1500])
    for row in range(1500):
        one.learn_one(seen.points[row], seen.gradients[row], seen.agents[row])
    assert np.array_equal(one.reward(X), many.reward(X), equal_nan=True)


def test_a_forgetting_rate_follows_a_changed_reward():
    """After a jump, R̂ with forgetting is the new reward; without forgetting it is a mixture of both."""
    before, after = watch(), watch(shift=1.0, seed=1)
    errors = {}
    for forgetting in (None, 5e-4):
        live = onlooker.Observer(dim=2, forgetting=forgetting)
        for seen in (before, after):
            live.learn_many(seen.points, seen.gradients, seen.agents)
        errors[forgetting] = np.nanstd(live.reward(X) - bowl(X, 1.0))
    assert errors[5e-4] < 0.1
    assert errors[None] > 0.4


def test_adaptive_forgetting_follows_a_jump():
    before, after = watch(), watch(shift=1.0, seed=1)
    live, told = onlooker.Observer(dim=2, forgetting="adaptive"), onlooker.Observer(dim=2)
    for seen in (before, after):
        for each in (live, told):
            each.learn_many(seen.points, seen.gradients, seen.agents)
    (jump,) = live.jumps
    assert 19_000 < jump.at <= 20_200
    assert live.effective_observations == 40_000 - jump.at
    assert np.nanstd(live.reward(X) - bowl(X, 1.0)) < 0.1
    assert "reward-jumped" not in codes(live)
    # Without adaptive forgetting there is a warning.
    assert np.nanstd(told.reward(X) - bowl(X, 1.0)) > 0.4
    assert "adaptive" in str(message_of(told, "reward-jumped"))
    assert told.reconstruction().diagnostics["jumps"] == 1


def test_effective_observations_after_the_box_was_outgrown():
    random = np.random.default_rng(0)
    live = onlooker.Observer(dim=1)
    live.learn_many(0.1 * random.standard_normal((30_000, 1)), random.standard_normal((30_000, 1)))
    assert live.effective_observations == 30_000
    live.learn_many(random.standard_normal((2000, 1)), random.standard_normal((2000, 1)))
    assert live.effective_observations < 23_000


def test_the_warning_names_the_share_from_before_a_jump():
    random = np.random.default_rng(0)
    points = random.standard_normal((45_000, 1))
    gradients = -points + random.standard_normal(points.shape) + 5.0 * (np.arange(45_000) >= 5000)[:, None]
    live = onlooker.Observer(dim=1)
    live.learn_many(points[:10_000], gradients[:10_000])
    assert message_of(live, "reward-jumped").numbers["before"] == pytest.approx(0.5, abs=0.005)
    live.learn_many(points[10_000:], gradients[10_000:])
    assert message_of(live, "reward-jumped").numbers["before"] == pytest.approx(0.11, abs=0.005)
    for bad in (1, True, -0.1, "Adaptive"):
        with pytest.raises(ValueError, match="'adaptive' or None"):
            onlooker.Observer(dim=1, forgetting=bad)
    live.learn_one(np.nan, 1.0)
    live.learn_many([], [])
    assert live.rejected == 1
    with pytest.warns(DeprecationWarning, match="Observer.refused is now called rejected"):
        assert live.refused == 1


class Adwin:
    """river's ADWIN on the norm of the residuals of a small fit to the rows since the last jump."""

    def __init__(self, rows=1000):
        self.rows, self.jump_detected = rows, False
        self._begin()

    def _begin(self):
        self.first, self.expected, self.adwin = [], None, ADWIN(delta=1e-6, clock=8)

    def update(self, points, gradients):
        self.jump_detected = False
        if self.expected is None:
            self.first.append((points, gradients))
            if sum(len(some) for some, _ in self.first) >= self.rows:
                self.expected = fit_expected(*map(np.concatenate, zip(*self.first, strict=True))).fit
            return
        for length in np.linalg.norm(gradients - self.expected.gradient(points), axis=1):
            self.adwin.update(length)
            if self.adwin.drift_detected:
                self.jump_detected = True
                return self._begin()


def test_another_detector_notices_the_jump(tmp_path):
    """A detector needs two members. Its jumps are saved with the Observer; the detector itself is not."""
    random = np.random.default_rng(0)
    points, errors = random.standard_normal((2, 6000, 1))
    gradients = -points + errors + 4.0 * (np.arange(6000) >= 4000)[:, None]
    live = onlooker.Observer(dim=1, forgetting="adaptive", detector=Adwin())
    live.learn_many(points[:5000], gradients[:5000])
    (jump,) = live.jumps
    assert 4000 <= jump.at < jump.found <= 4300
    assert live.effective_observations == 5000 - jump.at
    live.save(tmp_path / "live")
    with pytest.raises(ValueError, match="without its detector, Adwin"):
        onlooker.Observer.load(tmp_path / "live")
    again = onlooker.Observer.load(tmp_path / "live", detector=Adwin())
    again.learn_many(points[5000:], gradients[5000:])
    assert again.jumps[0][:2] == jump[:2]
    assert again.reward([[1.0], [0.0]]) @ [1, -1] == pytest.approx(3.5, abs=0.3)
    with pytest.raises(TypeError, match=r"update\(points, gradients\) and jump_detected"):
        onlooker.Observer(dim=1, detector=ADWIN())
    strict = onlooker.Observer(dim=1, detector=JumpWatch(1, false_alarms=1e-12))
    strict.learn_many(points, gradients)
    assert strict.jumps[0].threshold > 40
    with pytest.raises(ValueError, match="give a new one"):
        onlooker.Observer(dim=1, detector=strict._watch)


def test_reward_is_nan_just_after_a_jump():
    points = np.random.default_rng(0).standard_normal((3000, 1))
    live = onlooker.Observer(dim=1, forgetting="adaptive")
    live.learn_many(points[:2500], -points[:2500])
    live.learn_many(points[2500:2600], -points[2500:2600] + 5)
    assert len(live.jumps) == 1
    assert np.isnan(live.reward([[0.0]])).all()
    with pytest.raises(ValueError, match="has jumped and the observer has seen"):
        _ = live.samples
    live.learn_many(points[2600:], -points[2600:] + 5)
    assert live.reward([[2.0], [0.0]]) @ [1, -1] == pytest.approx(8.0, abs=0.1)


def test_asking_does_not_change_what_is_learnt():
    """Asking for R̂ at some times does not change later answers."""
    seen, asked, silent = watch(agents=100), *(onlooker.Observer(dim=2, forgetting="adaptive") for _ in range(2))
    for first in range(0, 4000, 1250):
        rows = slice(first, first + 1250)
        for live in (asked, silent):
            live.learn_many(seen.points[rows], seen.gradients[rows], seen.agents[rows])
        asked.reward(X)
    assert (asked.reward(X) == silent.reward(X)).all()


def test_learners_that_leave_the_box_enlarge_it():
    live = onlooker.Observer(dim=2)
    for scale in (0.3, 3.0):
        points = scale * np.random.default_rng(0).standard_normal((5000, 2))
        live.learn_many(points, -points)
    assert np.isfinite(live.reward([[2.0, 2.0]])).all()


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(fits, "FITS", tuple(replace(kind, kept=1500) for kind in fits.FITS))
    for dim in (2, 5):
        live = onlooker.Observer(dim=dim)
        points = np.random.default_rng(0).standard_normal((5000, dim))
        live.learn_many(points, -points)
        assert len(live._rows.recent) == 1500
        assert live.seen == 5000


@pytest.mark.slow
def test_the_reward_in_more_than_three_dimensions():

    points = np.random.default_rng(0).standard_normal((6000, 4))
    live = onlooker.Observer(dim=4)
    live.learn_many(points, -points)
    found = live.reward(points[:200])
    assert np.nanstd(found + 0.5 * (points[:200] ** 2).sum(axis=1)) < 0.1


@pytest.mark.slow
def test_learners_of_a_steep_reward_raise_no_alarm_and_a_jump_is_found():
    """R = −½|x|² − ½ exp(2x₀) + cos(2w·x) in five dimensions, climbed by agents in turn; then its slope jumps."""
    towards = np.array([0.0, 1, 1, 1, 0]) / np.sqrt(3)
    generator, point = np.random.default_rng(0), None
    live = onlooker.Observer(dim=5, forgetting="adaptive")
    for step in range(1200):
        if step % 60 == 0:
            point = 1.5 * generator.standard_normal((25, 5))
        slope = -point - 2 * np.sin(2 * point @ towards)[:, None] * towards
        slope[:, 0] -= np.exp(np.minimum(2 * point[:, 0], 12))
        if step >= 1000:
            slope[:, 3] += 1.5
        slope += generator.standard_normal(slope.shape)
        live.learn_many(point, slope, agents=np.arange(25) + 100 * (step // 60))
        point = point + 0.02 * np.clip(slope, -50, 50)
        if step == 999:
            assert live.jumps == []
            fit = live.potential()
            assert fit.directions >= 1
            assert fit.found == "successive"
    (jump,) = live.jumps
    assert abs(jump.at - 25_000) <= 100
    assert jump.found <= 25_500


def test_bad_input_is_rejected_by_name():
    live = onlooker.Observer(dim=2)
    with pytest.raises(ValueError, match="points has 3 dimensions"):
        live.learn_many(np.zeros((5, 3)), np.zeros((5, 3)))
    with pytest.raises(ValueError, match="forgetting is 2"):
        onlooker.Observer(dim=2, forgetting=2)
    with pytest.warns(DeprecationWarning, match="leave method out"):
        onlooker.Observer(dim=2, method="auto")
    points = np.random.default_rng(0).standard_normal((1200, 2))
    gradients = -points
    gradients[::100] = np.nan
    live.learn_many(points, gradients)
    assert live.rejected == 12
    with pytest.raises(ValueError, match="x has shape"):
        live.reward(np.zeros((3, 3)))
    assert np.isfinite(live.reward(jnp.zeros((1, 2)))).all()


def test_a_detector_sees_no_runaway_rows_and_dates_jumps_by_all_rows():
    random = np.random.default_rng(0)
    points, errors = random.standard_normal((2, 6000, 2))
    gradients = -points + errors + 4.0 * (np.arange(6000) >= 4000)[:, None]
    away = np.arange(1500, 6000, 50)
    points[away], gradients[away] = 1e6, 1e9
    live = onlooker.Observer(dim=2, forgetting="adaptive")
    given = []
    update = live._watch.update
    live._watch.update = lambda *rows: (given.append(rows[:2]), update(*rows))[1]
    live.learn_many(points, gradients)
    assert max(np.abs(part).max() for rows in given for part in rows) < 100
    (jump,) = live.jumps
    assert 3950 <= jump.at <= 4050
    assert live._watch.seen == live.seen == 6000
    # A block that is all runaways shows nothing, and detects nothing.
    live.learn_many(np.tile(points[away[:50]], (2, 1)), np.tile(gradients[away[:50]], (2, 1)))
    assert (len(live.jumps), live._watch.seen) == (1, 6100)


def test_single_agents_bad_rows_and_an_outgrown_box():
    points = np.random.default_rng(0).standard_normal((3000, 1))
    for name in "abcde":
        live = onlooker.Observer(dim=1)
        live.learn_many(points, -points, [name] * 3000)
        assert np.nanstd(live.reward(points[:100]) + 0.5 * points[:100, 0] ** 2) < 0.05
    live.learn_one([np.nan], [1.0])
    live.learn_one([1.0], [-1.0], agent=(1, 2))
    assert (live.rejected, live.seen) == (1, 3001)
    # Narrow rows come before wide ones: the sums begin again at the same row, however rows are divided into calls.
    wide = np.concatenate([0.1 * points[:1000], np.tile(points, (10, 1)) + np.arange(30_000)[:, None] % 7 / 7])
    whole, pieces = onlooker.Observer(dim=1), onlooker.Observer(dim=1)
    whole.learn_many(wide, -wide)
    for first in range(0, len(wide), 700):
        pieces.learn_many(wide[first : first + 700], -wide[first : first + 700])
    assert whole.reward(points[:50]) == pytest.approx(pieces.reward(points[:50]), abs=1e-8, nan_ok=True)
    assert whole._sums.train.count + whole._sums.held.count > 28_000


def test_learners_that_run_away_are_left_out():
    """A few gradients a million times too steep, before and after the sums begin, hardly change R̂."""
    points = np.random.default_rng(0).standard_normal((3900, 1))
    gradients = -points + np.cos(3 * points)
    gradients[50::200] = 1e6
    for forgetting in (None, 1e-3):
        live = onlooker.Observer(dim=1, forgetting=forgetting)
        live.learn_many(points, gradients)
        assert live.reward([[0.5], [-0.5]]) @ [1, -1] == pytest.approx(2 / 3 * np.sin(1.5), abs=0.02)
        assert message_of(live, "rows-runaway").numbers["left_out"] > 10


def test_each_warning_is_raised_once():
    points = np.random.default_rng(0).standard_normal((3000, 1))
    live = onlooker.Observer(dim=1)
    jumped = -points + 5.0 * (np.arange(3000) >= 2000)[:, None]
    jumped[5] = np.nan
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        for _ in range(2):
            live.learn_many(points, jumped)
            live.reward([[0.0]])
            _ = live.reconstruction().samples
    said = [one.message.message.code for one in raised]
    assert len(said) == len(set(said))
    assert said[:2] == ["rows-rejected", "reward-jumped"]
    # The warnings point at the caller, which for `reward` is the wrapper that checks shapes in tests.
    assert {one.filename for one in raised} <= {__file__, shapes.__file__}


def test_a_coordinate_that_never_moves_is_an_error():
    points = np.random.default_rng(0).standard_normal((2000, 2)) * [1, 0]
    live = onlooker.Observer(dim=2)
    live.learn_many(points, -points)
    with pytest.raises(ValueError, match="never move along coordinate 1"):
        live.reward(points[:3])
