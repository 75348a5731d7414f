"""Samples when they are asked for: drawn at their first use, once, and again with another β or seed."""

import copy
import warnings
from operator import attrgetter
from threading import Thread

import numpy as np
import pytest

import onlooker
from onlooker.fit.cosine_potential import CosinePotential
from tests.support.messages import codes

POINTS = np.random.default_rng(0).standard_normal((2000, 1))
PLACES = np.array([[-0.5], [0.0], [0.5]])


def gaussian():
    """R = −½θ², so that exp(βR) is N(0, 1/β)."""
    return onlooker.reconstruct(POINTS, -POINTS, chains=16, method="potential")


@pytest.fixture(scope="module")
def result():
    return gaussian()


@pytest.fixture
def counted(monkeypatch):
    """The β of each call of `CosinePotential.sample`."""
    calls, sample = [], CosinePotential.sample

    def counting(self, **options):
        calls.append(options["beta"])
        return sample(self, **options)

    monkeypatch.setattr(CosinePotential, "sample", counting)
    return calls


def test_samples_are_drawn_once_at_their_first_use(counted):
    result = gaussian()
    assert result.dim == 1
    assert result.reward(PLACES) @ [-0.5, 1, -0.5] == pytest.approx(0.125, abs=1e-3)
    assert (result.reward_error(PLACES) < 0.1).all()
    assert result.explored(PLACES).all()
    assert counted == []
    threads = [Thread(target=lambda: result.samples) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert result.samples is result.samples
    assert result.diagnostics["rhat"] < 1.01
    assert result.trusted
    assert counted == [1.0]


def test_an_observer_draws_when_samples_are_asked_for(counted):
    live = onlooker.Observer(dim=1, chains=16)
    live.learn_many(POINTS, -POINTS)
    assert np.isfinite(live.reconstruction().reward(PLACES)).all()
    assert counted == []
    assert live.samples is live.reconstruction().samples
    assert live.warnings == []
    assert counted == [1.0]


@pytest.mark.parametrize("use", [repr, attrgetter("warnings"), attrgetter("trusted")])
def test_every_warning_is_there_whenever_it_is_read(use, counted):
    """Learners about a minimum: most of exp(R̂) is where nobody was, which only samples tell."""
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        result = onlooker.reconstruct(POINTS, 2 * POINTS, chains=16, method="potential")
        known = codes(raised)
        use(result)
        after = codes(raised)
        assert "unexplored" in repr(result)
    assert counted == [1.0]
    assert "unexplored" not in known
    assert "unexplored" in after
    assert codes(raised) == after == codes(result)
    assert raised[-1].filename == __file__


def test_strict_draws_because_samples_may_tell_that_the_answer_is_wrong(counted):
    # The samples alone are at fault: learners on one flank of a hill, who never saw its top.
    points = 3 + 0.5 * POINTS
    assert set(codes(onlooker.reconstruct(points, -points).found.warnings)) <= {"reward-span"}
    with pytest.raises(onlooker.OnlookerWarning) as raised:
        onlooker.reconstruct(points, -points, strict=True)
    assert raised.value.message.code == "unexplored"


def test_an_interrupted_draw_leaves_a_result_that_can_be_used(monkeypatch):
    result = gaussian()

    def interrupted(self, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(CosinePotential, "sample", interrupted)
        with pytest.raises(KeyboardInterrupt):
            _ = result.samples
    assert result.draws.drawn is None
    assert np.isfinite(result.reward(PLACES)).all()
    assert result.samples.shape[::2] == (16, 1)


def test_new_samples_have_the_law_asked_for_and_change_nothing(result):
    kept = result.samples.copy()
    for beta in (0.5, 1.0, 4.0):
        samples = result.sample(draws=2000, beta=beta, seed=1)
        assert samples.shape == (16, 2000, 1)
        # 32 000 independent draws: the relative standard error of a variance is √(2/32 000), below a hundredth. At
        # β = ½, 5 % of N(0, 2) are beyond the points, where a wall holds them back.
        assert samples.var() == pytest.approx(1 / beta, rel=0.04 if beta >= 1 else 0.2)
    assert np.array_equal(result.sample(), kept)
    assert not np.array_equal(result.sample(seed=1), kept)
    assert np.array_equal(result.sample(draws=7, seed=3), result.sample(draws=7.0, beta=1, seed=np.int64(3)))
    assert np.array_equal(result.samples, kept)
    assert result.diagnostics["beta"] == 1.0


def test_new_samples_are_judged_unless_they_are_few(result):
    """exp(βR̂) far wider than the data."""
    with pytest.warns(onlooker.OnlookerWarning, match="lies where no learner was"):
        result.sample(beta=0.01)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result.sample(draws=3, beta=0.01)
    assert result.warnings == []


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"draws": 0}, "draws is 0; it must be a whole number of at least 1"),
        ({"draws": 2.5}, "draws is 2.5; it must be a whole number"),
        ({"beta": -1.0}, "beta is -1.0; it must be a positive number"),
        ({"beta": "cold"}, "beta is 'cold'; it must be a positive number"),
        ({"seed": -1}, "seed is -1; it must be a whole number from 0 to 2147483647"),
        ({"seed": None, "draws": True}, "draws is True"),
    ],
)
def test_bad_input_is_named(result, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        result.sample(**options)


def test_loaded_and_copied_results_draw_the_same(result, tmp_path):
    expected = result.sample(draws=5, beta=2.0)
    loaded = onlooker.load(result.save(tmp_path / "result"))
    for again in (loaded, copy.deepcopy(gaussian())):
        assert np.array_equal(again.sample(draws=5, beta=2.0), expected)
        assert np.array_equal(again.sample(), result.samples)
        assert np.array_equal(again.samples, result.samples)


def test_no_samples_where_no_learner_was(tmp_path):
    """In five dimensions, learners on a slope: exp(R̂) lies far beyond them."""
    random = np.random.default_rng(0)
    points = 0.3 * random.standard_normal((400, 5))
    gradients = 180.0 + random.standard_normal(points.shape)
    result = onlooker.reconstruct(points, gradients, chains=16)
    with pytest.warns(onlooker.OnlookerWarning, match="there are no samples"):
        assert result.samples.shape == (16, 0, 5)
    assert "samples-refused" in codes(result.warnings)
    assert not result.trusted
    # R̂ stands where learners were, and the result can be used and kept.
    assert np.isfinite(result.reward(points[:10])).any()
    assert result.maximum().shape == (5,)
    result.plot()
    assert onlooker.load(result.save(tmp_path / "kept")).samples.shape == (16, 0, 5)
