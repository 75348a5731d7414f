"""Properties that hold for whatever is given: coordinates, kernels, logs, gradients off iterates, Observer, command."""

import contextlib
import csv
import io
import math
import os
import sys
import tempfile
from pathlib import Path
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import typer
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import onlooker
from onlooker import cli
from onlooker.core.kernels import epanechnikov, fourth_order, gaussian, truncated_gaussian
from onlooker.core.policies import softmax, spherical
from onlooker.data.optimizer import Optimizer
from onlooker.storage.state_file import packed
from onlooker.storage.trees import pack

seeds = st.integers(0, 2**32 - 1)


# Coordinates on policies.


@st.composite
def spaces(draw):
    return draw(st.sampled_from([spherical, softmax]))(draw(st.integers(1, 3)), draw(st.integers(2, 7)))


@st.composite
def places(draw, low=-40.0, high=40.0):
    space = draw(spaces())
    return space, draw(arrays(float, space.dim, elements=st.floats(low, high)))


@st.composite
def insides(draw):
    """A point away from the ends of an interval, where maps have an inverse that rounding does not blur."""
    space, shares = draw(places(0.0, 1.0))
    low, high = (-8.0, 8.0) if space.interval is None else (0.1, math.pi / 2 - 0.1)
    return space, low + (high - low) * shares


@given(places())
def test_any_coordinates_are_those_of_a_policy(given_place):
    space, point = given_place
    policy = space.policy(point)
    assert policy.shape == (space.states, space.actions)
    assert (policy >= 0).all()
    assert np.allclose(policy.sum(axis=-1), 1, rtol=0, atol=1e-14)


@given(spaces(), st.data())
def test_any_policy_has_coordinates(space, data):
    weights = data.draw(arrays(float, (space.states, space.actions), elements=st.floats(0, 1)))
    assume((weights.sum(axis=-1) > 1e-3).all())
    policy = weights / weights.sum(axis=-1, keepdims=True)
    point = space.point(policy)
    assert space.interval is None or ((point >= 0) & (point <= math.pi / 2)).all()
    assert np.allclose(space.policy(point), policy, rtol=0, atol=1e-14)


@given(insides())
def test_coordinates_come_back(given_place):
    space, point = given_place
    assert np.allclose(space.point(space.policy(point)), point, rtol=0, atol=1e-6)


@given(insides())
def test_the_jacobian_is_the_slope_and_the_drift_that_of_its_determinant(given_place):
    space, point = given_place
    nudges = 1e-6 * np.eye(space.dim)

    def slope(function):
        return (function(point + nudges) - function(point - nudges)) / 2e-6

    slopes = slope(space.policy).reshape(space.states, space.actions - 1, space.states, space.actions)
    jacobian = space.jacobian(point)
    for state in range(space.states):
        for other in range(space.states):
            wanted = jacobian[state].T if state == other else 0.0
            assert np.allclose(slopes[state, :, other], wanted, rtol=0, atol=1e-8)
    volume = sum(math.log(abs(np.linalg.det(block[:-1]))) for block in jacobian)
    assert space.log_volume(point) == pytest.approx(volume, abs=1e-6)
    assert np.allclose(slope(space.log_volume) / 2, space.drift(point), rtol=1e-6, atol=1e-6)


@given(places())
@example((spherical(1, 2), np.array([-1e-20])))
@example((spherical(1, 2), np.array([math.nextafter(math.pi / 2, 4)])))
def test_folding_keeps_the_policy_and_is_done_once(given_place):
    space, point = given_place
    folded, sign = space.fold(point)
    again, kept = space.fold(folded)
    assert np.array_equal(again, folded)
    assert (kept == 1).all()
    assert (np.abs(sign) == 1).all()
    assert space.interval is None or ((folded >= 0) & (folded <= math.pi / 2)).all()
    assert np.allclose(space.policy(folded), space.policy(point), rtol=0, atol=1e-12)
    turned = space.jacobian(folded) * space.by_state(sign)[..., None, :]
    assert np.allclose(turned, space.jacobian(point), rtol=0, atol=1e-12)


# Kernels.

kernels = st.one_of(
    st.sampled_from([gaussian, epanechnikov, fourth_order]),
    st.integers(3, 40).map(lambda tenths: truncated_gaussian(tenths / 10)),
)
bandwidths = st.floats(0.05, 20.0)
# Few: JAX compiles anew for each.
dimensions = st.sampled_from([1, 2, 3, 9])


def reach(kernel):
    """Beyond it, in bandwidths, there is nothing worth counting."""
    return 1.0 if kernel is epanechnikov else 16.0 if kernel.tail else float(kernel.name.partition("(")[2][:-1])


def at_radii(kernel, radii, dim, bandwidth=1.0):
    rows = jnp.zeros((len(radii), dim)).at[:, 0].set(radii)
    return np.asarray(jax.vmap(lambda row: kernel(row, bandwidth))(rows))


@settings(max_examples=15)
@given(kernels, dimensions)
def test_a_kernel_integrates_to_one_and_has_its_order(kernel, dim):
    nodes, weights = np.polynomial.legendre.leggauss(200)
    with jax.enable_x64(True):
        end = reach(kernel)
        radii = end * (nodes + 1) / 2
        shells = at_radii(kernel, radii, dim) * weights * end / 2 * 2 * math.pi ** (dim / 2) / math.gamma(dim / 2)
    whole, second, fourth = ((shells * radii ** (dim - 1 + power)).sum() for power in (0, 2, 4))
    assert whole == pytest.approx(1, abs=1e-6)
    if kernel.order == 2:
        assert second > 0.01
    else:
        assert second == pytest.approx(0, abs=1e-6)
        assert fourth < -0.1


@settings(max_examples=15)
@given(kernels, dimensions, bandwidths, st.data())
def test_a_kernel_is_even_scales_and_ends_where_it_says(kernel, dim, bandwidth, data):
    step = data.draw(arrays(float, dim, elements=st.floats(-3, 3)))
    signs = data.draw(arrays(float, dim, elements=st.sampled_from([-1.0, 1.0])))
    with jax.enable_x64(True):
        value = float(kernel(jnp.asarray(step * bandwidth), bandwidth))
        assert float(kernel(jnp.asarray(step * bandwidth * signs), bandwidth)) == value
        distance = float(np.linalg.norm(step))
        assume(abs(distance - reach(kernel)) > 1e-4)
        assert value == pytest.approx(float(kernel(jnp.asarray(step), 1.0)) * bandwidth**-dim, rel=1e-9, abs=1e-300)
        if kernel.tail == 0:
            assert (value > 0) == (distance < reach(kernel))
        if kernel.signed:
            with pytest.raises(ValueError, match="no logarithm"):
                kernel.log(jnp.asarray(step), bandwidth)
        elif value > 1e-290:
            assert float(kernel.log(jnp.asarray(step * bandwidth), bandwidth)) == pytest.approx(
                math.log(value), abs=1e-9
            )


# Logs.

numbers = st.one_of(st.floats(width=32), st.sampled_from([0.0, -0.0, 1e-45, math.nan, math.inf, -math.inf]))
words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)
plain_words = st.text("abcäöü 019-", max_size=6)


@st.composite
def recordings(draw, elements=numbers, kinds=(np.float32, np.float64), names=words):
    """Points, gradients and agents (or None) of some rows."""
    dim, count = draw(st.integers(1, 6)), draw(st.integers(1, 30))
    kind = draw(st.sampled_from(kinds))
    points, gradients = (draw(arrays(kind, (count, dim), elements=elements)) for _ in range(2))
    agent = draw(st.sampled_from([None, st.integers(-(2**62), 2**62), names]))
    agents = None if agent is None else draw(st.lists(agent, min_size=count, max_size=count))
    return points, gradients, agents


def cuts(draw, count):
    """Where to cut so many rows, in order; pieces may be empty."""
    inner = sorted(draw(st.lists(st.integers(0, count), max_size=5)))
    return list(zip([0, *inner], [*inner, count], strict=True))


def write(folder, recording, pieces, rows):
    points, gradients, agents = recording
    with onlooker.LogWriter(folder, rows=rows) as writer:
        for first, last in pieces:
            some = None if agents is None else agents[first:last]
            writer.add_many(points[first:last], gradients[first:last], agents=some)


def alike(one, other):
    """To the last bit, but for which NaN it is."""
    return one.dtype == other.dtype and np.where(np.isnan(one), np.nan, one).tobytes() == (
        np.where(np.isnan(other), np.nan, other).tobytes()
    )


def in_order(agents):
    """Agents by when they were first seen."""
    seen = list(dict.fromkeys(agents))
    return [seen.index(agent) for agent in agents]


@given(recordings(), st.integers(1, 12), st.data())
def test_what_is_written_is_read_in_order_whole_or_in_pieces(recording, rows, data):
    points, gradients, agents = recording
    with tempfile.TemporaryDirectory() as folder:
        write(folder, recording, cuts(data.draw, len(points)), rows)
        log = onlooker.open_log(folder)
        read = [piece for piece, _ in log.batches()]
        assert alike(np.concatenate([piece.points for piece in read]), points)
        assert alike(np.concatenate([piece.gradients for piece in read]), gradients)
        named = [str(name) for piece in read if piece.agents is not None for name in piece.agents]
        assert named == list(map(str, agents or []))
        shard, row = divmod(data.draw(st.integers(0, len(points) - 1)), rows)
        rest = [piece.points for piece, _ in log.batches(after=f"{shard:010d}.parquet:{row}")]
        assert alike(np.concatenate(rest), points[shard * rows + row :])


@given(recordings(), st.integers(1, 12))
def test_any_rows_that_are_not_finite_are_rejected_and_counted(recording, rows):
    points, gradients, agents = recording
    finite = np.isfinite(points).all(axis=1) & np.isfinite(gradients).all(axis=1)
    with tempfile.TemporaryDirectory() as folder:
        write(folder, recording, [(0, len(points))], rows)
        if not finite.any():
            with pytest.raises(ValueError, match="no row without a NaN or an infinity"):
                onlooker.read_log(folder)
            return
        seen = onlooker.read_log(folder)
    assert seen.rejected == np.count_nonzero(~finite)
    assert alike(seen.points, points[finite])
    assert alike(seen.gradients, gradients[finite])
    kept = None if agents is None else [name for name, good in zip(agents, finite, strict=True) if good]
    assert (seen.agents is None) == (agents is None)
    assert agents is None or in_order(seen.agents.tolist()) == in_order(kept)


@given(recordings(kinds=(np.float64,), names=plain_words))
def test_all_formats_hold_the_same_rows(recording):
    points, gradients, agents = recording
    assume((np.isfinite(points) & np.isfinite(gradients)).all(axis=1).any())
    flat = {f"point_{axis}": column for axis, column in enumerate(points.T)}
    flat |= {f"gradient_{axis}": column for axis, column in enumerate(gradients.T)}
    flat |= {} if agents is None else {"agent": agents}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write(folder / "shards", recording, [(0, len(points))], 7)
        named = {} if agents is None else {"agents": agents}
        np.savez(folder / "log.npz", points=points, gradients=gradients, **named)
        np.savez_compressed(folder / "small.npz", points=points, gradients=gradients, **named)
        pa.parquet.write_table(pa.table(flat), folder / "log.parquet")
        with (folder / "log.csv").open("w", newline="", encoding="utf-8") as file:
            lines = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC)
            lines.writerows([list(flat), *zip(*(map(_as_written, column) for column in flat.values()), strict=True)])
        whole, *others = [
            onlooker.read_log(folder / name) for name in ("shards", "log.npz", "small.npz", "log.parquet", "log.csv")
        ]
    for seen in others:
        assert seen.rejected == whole.rejected
        assert alike(seen.points, whole.points)
        assert alike(seen.gradients, whole.gradients)
        assert agents is None or in_order(seen.agents.tolist()) == in_order(whole.agents.tolist())


def _as_written(value):
    return value if isinstance(value, str | int) else float(value)


# Gradients off iterates.

shares = st.floats(0.05, 0.95)
rules = st.one_of(
    st.builds(Optimizer, weight_decay=st.floats(0, 0.5)),
    st.builds(Optimizer, momentum=shares, dampening=st.floats(0, 0.5), weight_decay=st.floats(0, 0.5)),
    st.builds(Optimizer, momentum=shares, nesterov=st.just(True), weight_decay=st.floats(0, 0.5)),
)


def climb(start, gradients, rate, rule):
    """θ₀ … θₙ of the rule, as `Optimizer` has it."""
    iterates, buffer = [start], None
    for gradient in gradients:
        new = gradient - rule.weight_decay * iterates[-1]
        buffer = new if buffer is None else rule.momentum * buffer + (1 - rule.dampening) * new
        iterates.append(iterates[-1] + rate * (new + rule.momentum * buffer if rule.nesterov else buffer))
    return np.array(iterates)


@given(seeds, rules, st.lists(st.integers(1, 8), min_size=1, max_size=5), st.integers(1, 4), st.floats(1e-3, 10))
def test_steps_are_turned_back_into_the_gradients_that_made_them(seed, rule, lengths, dim, rate):
    assume(max(lengths) > 1)
    random = np.random.default_rng(seed)
    points, gradients, agents = [], [], []
    for agent, length in enumerate(lengths):
        made = random.standard_normal((length, dim))
        # Far from each other: what is read across two of them is nothing like a gradient.
        points.append(climb(1e3 * agent + random.standard_normal(dim), made[:-1], rate, rule))
        gradients.append(np.where(np.arange(length)[:, None] < length - 1, made, np.nan))
        agents.append(np.full(length, agent))
    # Interleaved at random, each agent's rows in their order.
    owner = random.permutation(np.concatenate(agents))
    order = np.argsort(np.argsort(owner, kind="stable"), kind="stable")
    points, gradients = (np.concatenate(part)[order] for part in (points, gradients))
    seen = onlooker.observe(points, agents=owner, learning_rate=rate, optimizer=rule)
    known = ~np.isnan(gradients).any(axis=1)
    assert np.array_equal(seen.points, points[known])
    assert np.array_equal(seen.agents, owner[known])
    # θ is known to so many digits only.
    assert np.allclose(seen.gradients, gradients[known], rtol=1e-6, atol=1e-9 * (1 + np.abs(points).max() / rate))


# An Observer, however it is fed.


@settings(max_examples=6)
@given(st.sampled_from([1, 2, 4]), st.sampled_from([None, 1e-3, "adaptive"]), st.booleans(), seeds, st.data())
def test_an_observer_knows_the_same_however_rows_come(dim, forgetting, named, seed, data):
    count = 2450
    random = np.random.default_rng(seed)
    points = random.standard_normal((count, dim))
    gradients = -points + 0.5 * random.standard_normal((count, dim))
    gradients[1500:] += 2.0
    gradients[random.integers(count, size=20), 0] = np.nan
    agents = np.arange(count) // 20 if named else None
    whole, cut = (onlooker.Observer(dim=dim, forgetting=forgetting, seed=3) for _ in range(2))
    whole.learn_many(points, gradients, agents)
    inner = sorted(data.draw(st.lists(st.integers(0, count), max_size=8)))
    with tempfile.TemporaryDirectory() as folder:
        for first, last in zip([0, *inner], [*inner, count], strict=True):
            match data.draw(st.sampled_from(["all", "one by one", "saved"])):
                case "one by one":
                    middle = min(last, first + 130)
                    for row in range(first, middle):
                        cut.learn_one(points[row], gradients[row], None if agents is None else agents[row])
                    first = middle
                case "saved":
                    cut = onlooker.Observer.load(cut.save(Path(folder) / "state.ckpt"))
            if first < last:
                cut.learn_many(
                    points[first:last], gradients[first:last], None if agents is None else agents[first:last]
                )
    assert packed(pack(cut)) == packed(pack(whole))
    assert cut.rejected == np.count_nonzero(np.isnan(gradients).any(axis=1))
    assert [*cut.jumps] == [*whole.jumps]


# The command.

COMMANDS = {
    name: [parameter for parameter in command.params if parameter.param_type_name == "option"]
    for name, command in typer.main.get_command(cli.app).commands.items()
}
# Names of files that cannot leave the folder, and a few that are special.
names = st.text(st.characters(exclude_characters="/"), max_size=20).filter(lambda name: name not in ("..", "."))
arguments = st.one_of(
    names,
    st.integers(-(10**20), 10**20).map(str),
    st.floats().map(str),
    st.sampled_from(["log.npz", "empty", "log.csv", "all", "bayes", "text", "auto", "sgd", "adam", "momentum", "0.9"]),
    st.sampled_from(["", "-", "--", "--help", "--nothing", "\0", "x" * 300, "/dev/null/x", "\udc80", "1" * 5000]),
)


few_numbers = st.one_of(st.integers(-2, 5).map(str), st.sampled_from(["nan", "inf", "-0.5", "0.5", "1e400", "2.5"]))
positions = st.one_of(
    st.just(["log.npz"]), st.sampled_from([["log.csv"], ["bayes"], ["all"], []]), st.lists(arguments, max_size=2)
)


@st.composite
def command_lines(draw):
    command = draw(st.sampled_from([*COMMANDS, *COMMANDS, "dance"]))
    words = [command, *draw(positions)]
    for option in draw(st.lists(st.sampled_from(COMMANDS.get(command) or COMMANDS["demo"]), max_size=3)):
        name = draw(st.sampled_from([*option.opts, *option.secondary_opts]))
        words += [name] if option.is_flag else [f"{name}={draw(st.one_of(few_numbers, arguments))}"]
    return words


class Refused(ValueError):  # noqa: N818
    """What is long is never begun."""


def never(*_, **__):
    raise Refused("this is where it would begin.")


@contextlib.contextmanager
def nothing_long():
    """A folder to be in, with a log in it, where nothing is computed or served."""
    from onlooker.live.page import serve, watch
    from onlooker.paper import bayes, cmdp, demo, logistic, posterior, tracking

    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.chdir(folder))
        rows = np.arange(24.0).reshape(12, 2)
        np.savez("log.npz", points=rows**1.1, gradients=-rows)
        Path("log.csv").write_text("point_0,point_1\n1,2\n2,4\n4,5\n")
        Path("empty").mkdir()
        long = [
            (demo, "demo"),
            (serve, "serve"),
            (watch, "Watch"),
            (sys.modules["onlooker.reconstruction.reconstruct"], "reconstruct"),
        ]
        long += [(module, "reproduce") for module in (bayes, cmdp, logistic, posterior, tracking)]
        for module, name in long:
            stack.enter_context(mock.patch.object(module, name, never))
        stack.enter_context(mock.patch.object(os, "_exit", never))
        yield


def run(line):
    """Exit code, and what the command says on standard output and error."""
    said = [io.TextIOWrapper(io.BytesIO(), "utf-8", errors=how) for how in ("strict", "backslashreplace")]
    with (
        mock.patch.object(sys, "argv", ["onlooker", *line]),
        contextlib.redirect_stdout(said[0]),
        contextlib.redirect_stderr(said[1]),
        pytest.raises(SystemExit) as stop,
    ):
        cli.main()
    for stream in said:
        stream.flush()
    return stop.value.code, *(stream.buffer.getvalue().decode() for stream in said)


@settings(max_examples=60)
@given(command_lines())
@example(["inspect", "log.npz", "--components", "99"])
@example(["reconstruct", "log.npz", "--out", "\0"])
@example(["report", "\0"])
@example(["report", "\udc80"])
@example(["watch", "\0"])
def test_any_command_line_gets_one_sentence(line):
    with nothing_long():
        code, _, said = run(line)
    assert code in (0, 1, 2), said
    assert "Traceback" not in said
    if code == 2:
        assert "onlooker: " in said
        assert len(said.split("onlooker: ", 1)[1].strip()) > 10
