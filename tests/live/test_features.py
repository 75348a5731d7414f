"""An Observer of features: any division into calls gives the same weights, and a jump is forgotten."""

import numpy as np
import pytest

import onlooker
from onlooker.data.log.tail import Batch
from onlooker.live.features import FeatureObserver
from tests.support.messages import codes

pytestmark = pytest.mark.usefixtures("promotion_allowed")
BEFORE, AFTER = np.array([2.0, -1.0]), np.array([-1.0, 1.0])
NAMES = ["first", "cube"]


def psi(at):
    import jax.numpy as jnp

    return jnp.stack([at[0], at[1] ** 3 / 3])


def rows(count, w, seed, agents=8):
    random = np.random.default_rng(seed)
    points = random.standard_normal((count, 2))
    slopes = np.stack([np.ones(count) * w[0], points[:, 1] ** 2 * w[1]], axis=1)
    return points, slopes + 0.5 * random.standard_normal((count, 2)), np.arange(count) % agents


@pytest.fixture(scope="module")
def observers():
    """One that learns in one call, and one in many, with a save in between."""
    at_once, in_parts = (onlooker.Observer(2, features=psi, names=NAMES, forgetting="adaptive") for _ in range(2))
    points, gradients, agents = (
        np.concatenate(pair) for pair in zip(rows(200, BEFORE, 0), rows(100, AFTER, 1), strict=True)
    )
    at_once.learn_many(points, gradients, agents)
    cuts = np.split(np.arange(300), [1, 50, 71, 150, 299])
    for cut in cuts[:3]:
        in_parts.learn_many(points[cut], gradients[cut], agents[cut])
    return at_once, in_parts, (points, gradients, agents, cuts[3:])


def test_division_into_calls_and_a_saved_file_change_nothing(observers, tmp_path):
    at_once, in_parts, (points, gradients, agents, cuts) = observers
    path = in_parts.save(tmp_path / "live")
    continued = onlooker.Observer.load(path, features=psi)
    for cut in cuts:
        continued.learn_many(points[cut], gradients[cut], agents[cut])
    assert isinstance(continued, FeatureObserver)
    assert continued.seen == at_once.seen == 300
    assert np.array_equal(continued.weights, at_once.weights)
    assert np.array_equal(continued.weight_error, at_once.weight_error)
    assert continued.jumps == at_once.jumps
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(ValueError, match="damaged"):
        onlooker.Observer.load(path, features=psi)


def test_a_jump_is_forgotten_and_the_new_weights_are_learnt(observers):
    live = observers[0]
    (jump,) = live.jumps
    assert 200 < jump.found <= 232
    assert abs(jump.at - 200) <= 16
    assert np.abs(live.weights - AFTER).max() < 4.5 * live.weight_error.max()
    assert live.contrast(first=1, cube=-1).value == pytest.approx(-2, abs=0.5)
    assert np.isfinite(live.reward(np.zeros((1, 2)))).all()
    assert "reward-jumped" not in codes(live.warnings)
    keeps = onlooker.Observer(2, features=psi)
    points, gradients, agents, _ = observers[2]
    keeps.learn_many(points, gradients, agents)
    assert "reward-jumped" in codes(keeps.warnings)


def test_a_log_is_followed_and_weights_fade(tmp_path):
    points, gradients, agents = rows(160, BEFORE, 2)
    with onlooker.LogWriter(tmp_path / "log") as log:
        log.add_many(points, gradients, agents=agents)
    live = onlooker.Observer(2, features=psi, forgetting=0.02)
    assert live.learn_log(tmp_path / "log", checkpoint=tmp_path / "state") == 160
    assert live.learn_log(tmp_path / "log") == 0
    # Σ (1 − γ)^age.
    assert live._gathered.sums.count == pytest.approx((1 - 0.98**160) / 0.02, rel=0.1)
    assert onlooker.Observer.load(tmp_path / "state", features=psi).position == live.position


def test_what_an_observer_of_features_does_not_take():
    with pytest.raises(ValueError, match="has seen 0"):
        onlooker.Observer(2, features=psi).weights  # noqa: B018
    with pytest.raises(ValueError, match="points has 3 dimensions"):
        onlooker.Observer(2, features=psi).learn_many(np.ones((1, 3)), np.ones((1, 3)))
    states, actions = np.arange(2 * 9 * 4 * 2).reshape(2, 9, 4, 2)
    paths = onlooker.paths(states, actions, np.ones((9, 4, 2, 1)), 0.9, log_prob=lambda *_: 0.0, parts=2)
    with pytest.raises(ValueError, match="given rows only"):
        onlooker.Observer(2, features=paths)


class Given:
    """A source of rows that ends."""

    name, message, warnings = "rows", "", ()

    def __init__(self, *columns):
        self.columns = columns

    def batches(self, stopped):
        for part in np.array_split(np.arange(len(self.columns[0])), 3):
            yield Batch(*(column[part] for column in self.columns))


def test_the_page_shows_bars_of_weights_and_their_course(observers):
    from bokeh.document import Document

    from onlooker.live.page.features import FeaturePage, FeatureWatch

    points, gradients, agents, _ = observers[2]
    watch = FeatureWatch(Given(points, gradients, agents.astype(str)), psi, NAMES)
    page = FeaturePage(watch, Document())
    assert "waiting" in page._heading.text
    watch.start()
    watch._thread.join(timeout=60)
    page.update()
    status = watch.status()
    assert (status.over, status.failed, status.seen) == (True, False, 300)
    assert page._bars.data["name"][:2] == NAMES
    assert page._bars.data["weight"][:2] == pytest.approx(AFTER, abs=0.5)
    assert (page._bars.data["low"] <= page._bars.data["weight"]).all()
    assert page._lines[0].data["seen"][-1] == 300
    assert "finished" in page._heading.text
    assert "1</b><span>jumps" in page._numbers.text
