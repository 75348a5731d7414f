"""`explain`: features equal their formulas, weights are found with their errors, and bad input is rejected."""

import numpy as np
import pytest

import onlooker
from onlooker.core.messages import OnlookerWarning
from onlooker.explanation.explain import explain
from onlooker.explanation.paths import paths
from onlooker.explanation.result import Explanation
from onlooker.explanation.tabular import tabular
from onlooker.simulation.grid import COLOURS, WEIGHTS, Grid, Network, Paths, Table, learn
from tests.support.messages import codes

pytestmark = pytest.mark.usefixtures("promotion_allowed")
GRID = Grid()
TABLE = Table(GRID)
CONTRAST = {"goal": 1, "grey": -1}


@pytest.fixture(scope="module")
def seen():
    return learn(GRID, TABLE, agents=12, steps=15, batch=50, seed=[0, 5])


@pytest.fixture(scope="module")
def exact(seen):
    return TABLE.pull(seen.points, GRID.exact(TABLE.logits(seen.points))[1])


@pytest.fixture(scope="module")
def psi():
    return tabular(
        GRID.transitions,
        GRID.colours,
        GRID.first,
        GRID.discount,
        policy=TABLE.logits,
        horizon=GRID.horizon,
        names=COLOURS,
    )


@pytest.fixture(scope="module")
def why(seen, psi):
    return explain(seen.points, seen.gradients, agents=seen.agents, times=seen.times, features=psi)


def given(seen, jacobians, gradients=None, **options):
    gradients = seen.gradients if gradients is None else gradients
    return explain(seen.points, gradients, agents=seen.agents, times=seen.times, jacobians=jacobians, **options)


def rolled(seen, count=50, parts=5, seed=1):
    """Jacobians from paths that the agents did not take, (parts, n, dim, k)."""
    logits = TABLE.logits(seen.points)
    estimates = GRID.estimate(logits, GRID.paths(logits, count, np.random.default_rng(seed)), parts=parts)
    return np.stack([TABLE.pull(seen.points, part) for part in estimates])


def right(why, contrast=CONTRAST, truth=8.0):
    value, error = why.contrast(contrast)
    return abs(value - truth) < 4.5 * error < 0.5 * abs(truth)


def test_features_of_a_known_world_are_exact(psi):
    """ψ and its Jacobian, entropy's too, are those of the world's own recursion, or of finite differences."""
    points = np.random.default_rng(1).standard_normal((3, TABLE.dim))
    values, jacobians = psi.at(points, np.arange(3))
    expected, slopes = GRID.exact(TABLE.logits(points))
    assert np.allclose(values, expected)
    assert np.allclose(jacobians[0].swapaxes(1, 2), TABLE.pull(points, slopes))

    def entropy(point):
        odds = np.exp(TABLE.logits(point))
        chance = odds / odds.sum(axis=-1, keepdims=True)
        return -(chance * np.log(chance)).sum()

    change = 1e-6 * np.random.default_rng(2).standard_normal(TABLE.dim)
    up, down = (entropy(points[0] + sign * change) for sign in (1, -1))
    assert psi.suspected(points)[0, 0] @ change == pytest.approx((up - down) / 2, rel=1e-5)
    many, none = (
        tabular(GRID.transitions, GRID.colours, GRID.first, 0.5, policy=TABLE.logits, horizon=horizon)
        for horizon in (60, None)
    )
    assert np.allclose(many.values(points), none.values(points))


def test_jacobians_from_paths_are_the_policy_gradient_s_by_table_and_by_density():
    import jax

    points = np.random.default_rng(1).standard_normal((9, TABLE.dim))
    logits = TABLE.logits(points)
    seen = GRID.paths(logits, 8, np.random.default_rng(2))
    earned = GRID.colours[seen.entered]
    expected = np.stack([TABLE.pull(points, part) for part in GRID.estimate(logits, seen, parts=2)])
    by_table = paths(seen.states, seen.actions, earned, GRID.discount, policy=TABLE.logits, parts=2)
    assert np.allclose(by_table.at(points, np.arange(9))[1].swapaxes(2, 3), expected)

    def density(theta, state, action):
        return jax.nn.log_softmax(TABLE.logits(theta)[state])[action]

    by_density = paths(seen.states, seen.actions, earned, GRID.discount, log_prob=density, parts=2)
    assert np.allclose(by_density.at(points[:2], np.arange(2))[1].swapaxes(2, 3), expected[:, :2])


def test_weights_are_read_off_and_only_contrasts_have_numbers(seen, why):
    assert np.isnan(why.weights).all()
    assert [set(direction) for direction in why.unidentified] == [set(COLOURS)]
    assert codes(why.warnings) == ["features-unidentified"]
    assert why.trusted
    for name, weight in zip(COLOURS, WEIGHTS, strict=True):
        if name != "grey":
            assert right(why, {name: 1, "grey": -1}, weight + 1) or name == "red"
    low, high = why.interval(goal=1, grey=-1)
    assert low < 8 < high
    known, error = why.part_known
    assert np.abs(known - (WEIGHTS - WEIGHTS.mean())).max() < 4.5 * error.max()
    assert set(why.suspects) == {"weight decay", "entropy"}
    assert all(abs(value) < 4.5 * error for value, error in why.suspects.values())
    assert why.explained == pytest.approx(1, abs=0.05)
    assert abs(why.misfit) < 3
    assert np.isnan(why.contrast(goal=1).value)
    assert "goal" in repr(why)


def test_the_reward_is_known_where_nobody_was_and_in_other_worlds(seen, why):
    places = TABLE.draw(4, np.random.default_rng(0)) + np.random.default_rng(3).standard_normal((4, TABLE.dim))
    truth = GRID.exact(TABLE.logits(places))[0] @ WEIGHTS
    apart = why.reward(places) - why.reward(places[:1])
    assert np.abs(apart - (truth - truth[0])).max() < 5 * why.reward_error(places).max()
    table = why.table(GRID.features())
    assert table.shape == (25, 4)
    reward = GRID.features() @ WEIGHTS
    assert np.corrcoef(table.ravel(), reward.ravel())[0, 1] > 0.99
    # Colours that add up to more than one are not told apart from the constant.
    assert np.isnan(why.table(np.diag([2.0, 1, 1, 1, 1]))).any()


def test_a_result_is_saved_and_loaded(why, psi, seen, tmp_path):
    path = why.save(tmp_path / "why.explanation")
    for again in (Explanation.load(path, features=psi), onlooker.load(path)):
        assert again.contrast(CONTRAST) == why.contrast(CONTRAST)
        assert again.interval(CONTRAST) == why.interval(CONTRAST)
        assert again.warnings == why.warnings
        assert again.suspects == why.suspects
    with pytest.raises(ValueError, match="needs ψ"):
        again.reward(seen.points[:1])
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ValueError, match="damaged"):
        Explanation.load(path)
    figure = why.plot()
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()][-1] == "the same\nto all"


def test_a_log_is_read_in_one_pass(seen, psi, why, tmp_path):
    with onlooker.LogWriter(tmp_path / "log") as log:
        log.add_many(seen.points, seen.gradients, agents=seen.agents, times=seen.times.astype(float))
    read = explain(tmp_path / "log", features=psi)
    assert read.contrast(CONTRAST) == pytest.approx(why.contrast(CONTRAST), rel=0.05)
    assert read.rows == len(seen.points)
    assert read.misfit == pytest.approx(why.misfit, abs=0.3)


def test_parts_are_needed_where_jacobians_are_rolled_out(seen):
    parts = rolled(seen, 200, 10)
    assert right(given(seen, parts, names=COLOURS))
    plain = given(seen, parts.mean(axis=0), names=COLOURS)
    assert not right(plain)
    assert "features-misfit" in codes(plain.warnings)
    assert not plain.trusted


def test_the_agents_own_paths_need_their_gradients_by_part(seen):
    logits = TABLE.logits(seen.points)
    size = seen.paths.states.shape[1] // 5
    gradients = np.stack(
        [
            TABLE.pull(
                seen.points,
                GRID.estimate(logits, Paths(*(part[:, one * size : (one + 1) * size] for part in seen.paths)))[0],
            )
            @ WEIGHTS
            for one in range(5)
        ]
    )
    gradients += 0.05 * np.random.default_rng(0).standard_normal(gradients.shape)
    options = {"policy": TABLE.logits, "parts": 5, "own": True, "names": COLOURS}
    own = paths(seen.paths.states, seen.paths.actions, GRID.colours[seen.paths.entered], GRID.discount, **options)
    with pytest.raises(ValueError, match="of each part"):
        explain(seen.points, seen.gradients, agents=seen.agents, features=own)
    assert right(explain(seen.points, gradients, agents=seen.agents, times=seen.times, features=own))


def test_wrong_features_are_noticed_and_the_right_ones_are_not(seen, exact):
    eye = np.eye(5)
    merged = np.stack([eye[0], eye[1] + eye[2], eye[3], eye[4]], axis=1)
    for mix in (merged, eye[:, 4:]):
        why = given(seen, exact @ mix)
        assert "features-misfit" in codes(why.warnings)
        assert why.misfit > 3
        assert why.explained < 0.9
    assert "features-misfit" not in codes(given(seen, exact).warnings)


def test_weight_decay_is_a_suspect_and_spoils_nothing(psi):
    shrinking = learn(GRID, TABLE, agents=12, steps=15, decay=0.3, seed=[1, 5])
    why = explain(shrinking.points, shrinking.gradients, agents=shrinking.agents, features=psi)
    assert "suspect-found" in codes(why.warnings)
    value, error = why.suspects["weight decay"]
    assert abs(value - 0.3) < 4.5 * error
    assert right(why)


def test_iterates_alone_give_weights_up_to_scale_and_rates(psi):
    rates = np.geomspace(0.03, 0.3, 12)
    seen = learn(GRID, TABLE, agents=12, steps=16, rate=rates, seed=[2, 5])
    why = explain(seen.points, agents=seen.agents, times=seen.times, features=psi)
    assert "learning-rate-unknown" in codes(why.warnings)
    found = np.array([why.rates[str(agent)] for agent in range(12)])
    assert np.corrcoef(found, rates)[0, 1] > 0.98
    ratio = why.contrast(goal=1, grey=-1).value / why.contrast(violet=1, grey=-1).value
    assert ratio == pytest.approx(8 / -4, rel=0.15)


def test_descent_that_was_forgotten_is_noticed(seen, exact):
    why = given(seen, exact, -seen.gradients, names=COLOURS)
    assert "sign-reversed" in codes(why.warnings)
    assert right(given(seen, exact, -seen.gradients, names=COLOURS, descent=True))
    with pytest.raises(OnlookerWarning, match="against their gradients"):
        given(seen, exact, -seen.gradients, strict=True)


def test_the_agents_own_estimator_leaves_nothing(seen):
    own = TABLE.pull(seen.points, GRID.estimate(TABLE.logits(seen.points), seen.paths)[0])
    assert "residuals-none" in codes(given(seen, own).warnings)


def test_what_is_not_tested_is_said(seen, exact):
    rows = np.arange(len(seen.points))
    alone = explain(seen.points, seen.gradients, agents=rows, jacobians=exact)
    assert "features-untested" in codes(alone.warnings)
    noisy = given(seen, rolled(seen, 10, 5))
    assert "jacobians-unreliable" in codes(noisy.warnings) or np.isnan(noisy.part_known[0]).any()


def bad(seen, exact):
    rows, dim = seen.points.shape
    import jax.numpy as jnp

    nan = exact.copy()
    nan[7, 3, 1] = np.nan
    return {
        "give either features": {},
        "returns an array of shape": {"features": lambda at: at.reshape(5, -1)},
        "cannot be differentiated by JAX": {"features": lambda at: np.asarray(at)[:2]},
        "feature 3 does not depend on θ": {
            "features": lambda at: jnp.stack([at[0], at[1] * at[2], jnp.zeros((), at.dtype)])
        },
        "are the same feature": {"jacobians": exact[..., [0, 1, 1]], "names": ["a", "b", "c"]},
        "axes look exchanged": {"jacobians": exact.swapaxes(1, 2)},
        "holds a NaN or an infinity at row 7": {"jacobians": nan},
        "equal parts": {"jacobians": np.stack([exact, exact])},
        "has 1 part": {"jacobians": exact[None]},
        "are of 100 rows but there are 180": {"jacobians": exact[:100]},
        "jacobians has shape": {"jacobians": exact[..., 0]},
        "names has 2 entries": {"jacobians": exact, "names": ["a", "b"]},
        "twice": {"jacobians": exact, "names": ["a", "b", "a", "c", "d"]},
        "names is 'abcde'": {"jacobians": exact, "names": "abcde"},
        "features is list": {"features": [1, 2]},
        "gradients has shape": {
            "features": lambda at: at[:2],
            "gradients": np.ones((2, rows, dim)),
        },
        "given without gradients": {"gradients": None, "jacobians": exact},
        "no feature's weight": {"jacobians": np.random.default_rng(0).standard_normal((2, rows, dim, 2))},
    }


def test_bad_input_is_one_sentence(seen, exact):
    for sentence, options in bad(seen, exact).items():
        gradients = options.pop("gradients", seen.gradients)
        with pytest.raises((ValueError, TypeError), match=sentence) as caught:
            explain(seen.points, gradients, agents=seen.agents, **options)
        assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="at least 8"):
        explain(seen.points[:7], seen.gradients[:7], jacobians=exact[:7])
    with pytest.raises(ValueError, match="Adam"):
        explain(seen.points, optimizer="adam", agents=seen.agents, features=lambda at: at[:2])
    with pytest.raises(ValueError, match="there is no feature 'gold'"):
        given(seen, exact, names=COLOURS).contrast(gold=1)
    with pytest.raises(ValueError, match="2 features but only"):
        explain(np.arange(9.0), np.ones(9), jacobians=np.random.default_rng(0).standard_normal((9, 1, 12)))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"transitions": np.ones((4, 25, 25))}, "no distributions"),
        ({"transitions": GRID.transitions.swapaxes(0, 1)}, "give .actions, states, states."),
        ({"phi": np.ones((7, 2))}, "phi has shape"),
        ({"start": np.ones(25)}, "not a distribution"),
        ({"discount": 1.0}, "a horizon if it is 1"),
    ],
)
def test_bad_worlds_are_rejected(change, sentence):
    world = {"transitions": GRID.transitions, "phi": GRID.colours, "start": 0, "discount": 0.9, **change}
    with pytest.raises(ValueError, match=sentence):
        tabular(*world.values(), policy=TABLE.logits)


def test_the_network_s_pull_back_is_its_derivative():
    network = Network(GRID, hidden=3)
    points = network.draw(2, np.random.default_rng(0))
    slopes = np.random.default_rng(1).standard_normal((2, 25, 4, 1))
    change = 1e-6 * np.random.default_rng(2).standard_normal(points.shape)
    moved = ((network.logits(points + change) - network.logits(points - change)) * slopes[..., 0]).sum(axis=(1, 2)) / 2
    assert np.allclose((network.pull(points, slopes)[..., 0] * change).sum(axis=1), moved, rtol=1e-5)
