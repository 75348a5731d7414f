"""Behind the page: quick fits, figures of bounded size, logs that appear and disappear, a server for this machine."""

import http.client
import io
import json
import re
import socket
import sys
import zipfile
from contextlib import contextmanager
from dataclasses import replace
from threading import Event, Thread

import jax
import numpy as np
import pyarrow.parquet
import pytest

import onlooker
from onlooker.cli import main
from onlooker.data.log.tail import Batch
from onlooker.fit.cosine_potential import alike
from onlooker.live.page import picture
from onlooker.live.page.picture import History, crowd_at, curve_along, intervals, map_of, view_box
from onlooker.live.page.source import GrowingLog
from onlooker.live.page.watch import Watch
from onlooker.paper.report import write_example_report
from onlooker.paper.rows import Row, at_most, write_metrics
from onlooker.reconstruction.report import MEANING, write_report
from onlooker.simulation.demonstration import AGENTS, REWARDS, Demonstration
from tests.support.browser import until, watching
from tests.support.messages import codes, message_of


def climbing(rows, dim, peak=0.0, seed=0):
    """Points and noisy gradients of R = −|θ − peak|² + Σ sin 3θ / 3."""
    random = np.random.default_rng(seed)
    points = random.standard_normal((rows, dim))
    return points, -2 * (points - peak) + np.cos(3 * points) + random.standard_normal(points.shape)


@pytest.fixture(scope="module")
def observer():
    live = onlooker.Observer(2)
    live.learn_many(*climbing(20_000, 2))
    return live


@pytest.fixture(scope="module")
def result(observer):
    return observer.reconstruction()


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_a_quick_fit_to_the_same_rows_equals_the_full_fit(dim):
    live = onlooker.Observer(dim)
    live.learn_many(*climbing(3000, dim))
    full, places = live.potential(), climbing(200, dim, seed=1)[0]
    quick = live.potential(like=full)
    np.testing.assert_allclose(quick.value(places), full.value(places), atol=1e-9)
    np.testing.assert_allclose(quick.error(places), full.error(places), rtol=1e-6)
    # After more rows it differs, with the same prior.
    live.learn_many(*climbing(900, dim, peak=0.5, seed=2))
    later = live.potential(like=full)
    assert later.settings == full.settings
    assert np.abs(later.value(places) - quick.value(places)).max() > 0.1


def test_map_and_curve_show_the_reward_at_their_axes(result):
    summit, box = result.summit(), np.array([[-1.5, -1.0], [1.0, 2.0]])
    top = result.reward(summit[None])[0]
    drawn = map_of(result, (1, 0), box, summit)
    assert drawn.values.shape == (picture.CELLS, picture.CELLS)
    for row, column in ((0, 0), (10, 60), (71, 3)):
        # Rows follow the second coordinate of the pair, columns the first.
        place = np.array([[drawn.vertical[row], drawn.horizontal[column]]])
        np.testing.assert_allclose(drawn.values[row, column], result.reward(place)[0] - top)
    assert (drawn.horizontal[0], drawn.horizontal[-1], drawn.vertical[0]) == (-1.0, 2.0, -1.5)
    errors = map_of(result, (0, 1), box, summit, errors=True)
    corner = np.array([[errors.horizontal[5], errors.vertical[9]]])
    np.testing.assert_allclose(errors.values[9, 5], result.reward_error(corner)[0])
    along = curve_along(result, 0, box, summit)
    place = np.array([[along.along[20], summit[1]]])
    np.testing.assert_allclose(along.values[20], result.reward(place)[0] - top)
    np.testing.assert_allclose(along.errors[20], result.reward_error(place)[0])


def test_the_map_s_limits_change_only_when_needed():
    points = np.random.default_rng(0).standard_normal((5000, 2))
    view = view_box(points, None)
    np.testing.assert_array_equal(view_box(0.9 * points, view), view)
    assert (np.ptp(view_box(0.3 * points, view), axis=0) < 0.5 * np.ptp(view, axis=0)).all()
    moved = view_box(points + np.array([3.0, 0.0]), view)
    assert moved[1, 0] > view[1, 0]
    np.testing.assert_array_equal(moved[:, 1], view[:, 1])


def test_the_crowd_at_a_place_is_its_kernel_ess():
    points = np.random.default_rng(0).standard_normal((4000, 2))
    bandwidth = points.std(axis=0) * 4000 ** (-1 / 6)
    weight = np.exp(-0.5 * (((points - [0.5, 0.0]) / bandwidth) ** 2).sum(axis=1))
    np.testing.assert_allclose(crowd_at(np.array([0.5, 0.0]), points), weight.sum() ** 2 / (weight**2).sum())
    assert crowd_at(np.array([9.0, 9.0]), points) < 10 < crowd_at(np.zeros(2), points)


def test_history_is_bounded_and_a_column_is_the_last_look_before_it(result, monkeypatch):
    monkeypatch.setattr(picture, "REMEMBERED", 20)
    history, box = History(), np.array([[-1.0, -1.0], [1.0, 1.0]])
    assert history.strip(0) is None
    summits = [np.array([0.01 * number, 0.0]) for number in range(50)]
    for number, summit in enumerate(summits):
        history.add(1000 * number, result, box, summit)
        strip = history.strip(0)
        # The first look and the latest are always there.
        assert len(strip.moments) <= 20
        assert (strip.moments[0], strip.moments[-1]) == (0, 1000 * number)
    assert strip.values.shape == (picture.PLACES, picture.COLUMNS)
    middles = (np.arange(picture.COLUMNS) + 0.5) / picture.COLUMNS * 49_000
    for column in (0, 100, 239):
        look = strip.moments[strip.moments <= middles[column]][-1] // 1000
        expected = curve_along(result, 0, box, summits[look]).values
        np.testing.assert_allclose(strip.values[:, column], expected)
    np.testing.assert_allclose(strip.summits, 0.01 * strip.moments / 1000)


def test_intervals_are_computed_for_a_bounded_number_of_coordinates():
    samples = np.random.default_rng(0).standard_normal((500, 124))
    drawn = intervals(samples, 2 * samples)
    assert len(drawn.coordinates) == picture.MOST_INTERVALS
    np.testing.assert_allclose(drawn.seen, 2 * drawn.found)
    np.testing.assert_allclose(drawn.found, np.quantile(samples[:, drawn.coordinates], [0.05, 0.95], axis=0))


class Still:
    """A source of the given batches."""

    name, message, warnings = "a test", "", ()

    def __init__(self, *batches):
        self._batches = batches

    def batches(self, stopped):
        yield from self._batches

    def coordinate(self, axis):
        return f"θ({axis + 1})"

    def truth(self, seen):
        return None


def test_a_watch_fits_all_rows_and_notices_a_jump():
    before, after = climbing(6000, 1), climbing(6000, 1, peak=1.5, seed=1)
    watch = Watch(Still(Batch(*before, None), Batch(*after, None))).start()
    until(lambda: watch.status().over)
    # A quick fit includes all rows at once; the coverage is that of a full fit, which follows within seconds.
    look = until(lambda: watch.look if watch.look and watch.look.seen == 12_000 and watch.look.coverage > 0.9 else None)
    status = watch.status()
    watch.stop()
    assert (status.seen, status.rejected, status.message) == (12_000, 0, "")
    (jump,) = status.jumps
    assert abs(jump.at - 6000) < 100
    places = np.linspace(-1, 2, 50)
    expected = -((places - 1.5) ** 2) + np.sin(3 * places) / 3
    assert abs(look.summit[0] - places[expected.argmax()]) < 0.1
    assert look.coverage <= 1
    assert 10 < look.crowd < 5000


def test_a_watch_reports_waiting_and_failures():
    few = Watch(Still(Batch(*climbing(500, 2), None))).start()
    until(lambda: "500 observations; it needs 1000" in few.status().waiting_for)
    few.stop()
    assert few.look is None

    wrong = Watch(Still(Batch(*climbing(2000, 2), None), Batch(*climbing(10, 3), None))).start()
    until(lambda: "watching has stopped: points has 3 dimensions" in wrong.status().message)
    wrong.stop()
    status = wrong.status()
    assert (status.seen, status.over, status.failed) == (2000, True, True)
    with pytest.raises(ValueError, match="forgetting is 2"):
        Watch(Still(), forgetting=2)


@contextmanager
def collected(source):
    """Collect the batches of a source in another thread, which is stopped at the end."""
    seen, stop = [], Event()
    thread = Thread(target=lambda: seen.extend(source.batches(stop.is_set)), daemon=True)
    thread.start()
    yield seen
    stop.set()
    thread.join(timeout=10)
    assert not thread.is_alive()


def test_a_growing_log_may_be_missing_moved_and_moved_back(tmp_path):
    folder = tmp_path / "runs"
    for nowhere in (tmp_path / "log.npz", tmp_path / "no" / "where"):
        with pytest.raises(FileNotFoundError, match="does not exist"):
            GrowingLog(nowhere)
    source = GrowingLog(folder)
    points, gradients = climbing(30, 2)
    with collected(source) as seen:
        assert source.message == f"{folder} does not exist yet; waiting for a recorder to create it."
        folder.mkdir()
        until(lambda: source.message == f"{folder} has no rows yet; waiting for the first.")
        (folder / "notes.txt").touch()
        # A log without rows is waited for, too.
        with onlooker.LogWriter(tmp_path / "empty") as writer:
            writer.add_many(points[:1], gradients[:1])
        (shard,) = (tmp_path / "empty").glob("*.parquet")
        pyarrow.parquet.write_table(pyarrow.parquet.read_table(shard)[:0], folder / "0000000000.parquet")
        until(lambda: "has files, but no rows of a log yet" in source.message)
        (folder / "0000000000.parquet").unlink()
        writer = onlooker.LogWriter(folder)
        writer.add_many(points[:10], gradients[:10])
        writer.flush()
        until(lambda: len(seen) == 1)
        assert source.message == ""
        folder.rename(tmp_path / "elsewhere")
        until(lambda: "was moved or deleted" in source.message)
        (tmp_path / "elsewhere").rename(folder)
        writer.add_many(points[10:], gradients[10:])
        writer.close()
        until(lambda: len(seen) == 2)
        assert source.message == ""
    np.testing.assert_array_equal(np.concatenate([batch.points for batch in seen]), points)
    np.testing.assert_array_equal(np.concatenate([batch.gradients for batch in seen]), gradients)


@pytest.mark.parametrize("way", ["moved away first", "swapped at once", "emptied"])
def test_a_replaced_log_is_read_from_its_start(tmp_path, way):
    folder = tmp_path / "runs"
    for name, rows in (("runs", 10), ("new", 20)):
        with onlooker.LogWriter(tmp_path / name) as writer:
            writer.add_many(*climbing(rows, 2, seed=rows))
    source = GrowingLog(folder)
    with collected(source) as seen:
        until(lambda: len(seen) == 1)
        if way == "emptied":
            for shard in folder.iterdir():
                shard.unlink()
        else:
            folder.rename(tmp_path / "old")
        if way != "swapped at once":
            until(lambda: "was moved or deleted" in source.message)
        if folder.exists():
            for shard in (tmp_path / "new").iterdir():
                shard.rename(folder / shard.name)
        else:
            (tmp_path / "new").rename(folder)
        until(lambda: len(seen) == 2)
    assert [(len(batch.points), batch.replaced) for batch in seen] == [(10, False), (20, True)]
    assert "log-replaced" in codes(source)


def test_a_watch_starts_again_with_a_replaced_log():
    before, after = climbing(3000, 2), climbing(2000, 1)
    watch = Watch(Still(Batch(*before, None), Batch(*after, None, replaced=True))).start()
    until(lambda: watch.status().over)
    look = until(lambda: watch.look if watch.look is not None and watch.look.result.dim == 1 else None)
    watch.stop()
    assert (watch.status().seen, look.seen, watch.status().jumps) == (2000, 2000, [])
    assert len(look.summit) == 1


def test_a_shard_being_copied_is_read_when_complete(tmp_path):
    with onlooker.LogWriter(tmp_path / "whole") as writer:
        for seed in range(2):
            writer.add_many(*climbing(10, 2, seed=seed))
            writer.flush()
    first, second = sorted((tmp_path / "whole").glob("*.parquet"))
    folder = tmp_path / "runs"
    folder.mkdir()
    (folder / first.name).write_bytes(first.read_bytes())
    source = GrowingLog(folder)
    with collected(source) as seen:
        until(lambda: len(seen) == 1)
        (folder / second.name).write_bytes(second.read_bytes()[:500])
        until(lambda: codes(source) == ["shards-torn"])
        (folder / second.name).write_bytes(second.read_bytes())
        until(lambda: len(seen) == 2)
        assert source.warnings == []
    np.testing.assert_array_equal(seen[1].points, climbing(10, 2, seed=1)[0])


def test_a_quick_fit_asks_for_a_full_one_when_learners_moved():
    live = onlooker.Observer(2)
    live.learn_many(*climbing(5000, 2))
    earlier = live.potential()
    assert alike(live.potential(like=earlier), earlier)
    points, gradients = climbing(30_000, 2)
    live.learn_many(points + 50.0, gradients)
    later = live.potential(like=earlier)
    # It does not depend on the earlier fit: it equals the full fit.
    assert not alike(later, earlier)
    places = points[:50] + 50.0
    np.testing.assert_array_equal(later.value(places), live.potential().value(places))


def test_files_are_read_once_and_gradients_of_a_loss_change_sign(tmp_path):
    points, gradients = climbing(50, 2)
    np.savez(tmp_path / "log.npz", points=points, gradients=gradients)
    source = GrowingLog(tmp_path / "log.npz", descent=True)
    (batch,) = source.batches(lambda: False)
    np.testing.assert_array_equal(batch.gradients, -gradients)
    assert source.message == f"all rows of {tmp_path / 'log.npz'} have been read."
    np.savez(tmp_path / "steps.npz", points=points, agents=np.zeros(50))
    with pytest.raises(ValueError, match="iterates without gradients"):
        GrowingLog(tmp_path / "steps.npz")


def test_components_are_those_of_all_rows_so_far(tmp_path):
    """The first 1000 rows vary along the first two coordinates, the next along the third: all come again, as of now."""
    random = np.random.default_rng(0)
    points = random.standard_normal((1500, 6)) * [5, 2, 0.1, 0.1, 0.1, 0.1]
    points[7] = np.nan
    points = np.concatenate([points, random.standard_normal((3000, 6)) * [0.1, 2, 30, 0.1, 0.1, 0.1]])
    with onlooker.LogWriter(tmp_path / "log") as writer:
        writer.add_many(points[:600], points[:600])
        writer.flush()
        writer.add_many(points[600:1500], points[600:1500])
        writer.flush()
        writer.add_many(points[1500:], points[1500:])
    source = GrowingLog(tmp_path / "log", components=2)
    with collected(source) as seen:
        first, second, *_ = until(lambda: seen if sum(len(one.points) for one in seen) >= 1500 + 4500 else None)
    assert first.points.shape == (1500, 2)
    assert not first.replaced
    known = np.isfinite(points).all(axis=1)
    assert np.abs(np.corrcoef(first.points[known[:1500], 0], points[:1500][known[:1500], 0])[0, 1]) > 0.999
    assert second.replaced
    count = len(second.points)
    assert count >= 3500
    assert np.abs(np.corrcoef(second.points[known[:count], 0], points[:count][known[:count], 2])[0, 1]) > 0.999
    assert message_of(source, "projected").numbers == {"directions": 2, "dimensions": 6}


def test_the_demonstration_climbs_the_reward_that_it_names(monkeypatch):
    from onlooker.simulation import demonstration as source

    monkeypatch.setattr(source, "DWELL", (20, 30))
    demonstration = Demonstration(pace=0)
    first, second = demonstration.world.times[:2]
    batches = iter(demonstration.batches(lambda: False))
    rows = [next(batches) for _ in range(second * AGENTS // source.SHOWN + 1)]
    points, gradients = (np.concatenate([getattr(batch, name) for batch in rows]) for name in ("points", "gradients"))

    def explained(regime, some):
        """The slope of the gradients on ∇R of a reward: 1 if they are of this reward."""
        slope = np.asarray(jax.vmap(jax.grad(REWARDS[regime]))(points[some]))
        return float((slope * gradients[some]).sum() / (slope**2).sum())

    for regime, some in ((0, slice(first * AGENTS)), (1, slice(first * AGENTS, second * AGENTS))):
        assert abs(explained(regime, some) - 1) < 0.15
        assert abs(explained(1 - regime, some) - 1) > 0.5
        truth = demonstration.truth(some.stop - 1)
        np.testing.assert_allclose(truth(points[:5]), jax.vmap(REWARDS[regime])(points[:5]), rtol=1e-5)


def asked(port, path, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_the_page_is_served_to_this_machine_alone_and_ends_at_ctrl_c(tmp_path, monkeypatch, capsys):
    points, gradients = climbing(3000, 2)
    np.savez(tmp_path / "log.npz", points=points, gradients=gradients)
    with watching(tmp_path / "log.npz") as (address, terminal):
        port = int(address.rpartition(":")[2])
        # The server does not listen on another address of the same machine.
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port), timeout=5)
        status, page = asked(port, "/")
        assert status == 200
        assert b"Onlooker" in page
        # All scripts of the page come from this server.
        assert all(source.startswith(b"/static/") for source in re.findall(rb'src="([^"]*)"', page))
        terminal.wait_for("have been read")
        status, archive = until(
            lambda: asked(port, "/estimate.zip") if asked(port, "/estimate.zip")[0] == 200 else None
        )
        with zipfile.ZipFile(io.BytesIO(archive)) as packed:
            packed.extractall(tmp_path / "downloaded")
        summary = json.loads((tmp_path / "downloaded/estimate/summary.json").read_text())
        assert summary["diagnostics"]["observations"] == 3000
        found = onlooker.load(tmp_path / "downloaded/estimate/result.zarr")
        np.testing.assert_allclose(found.maximum(), summary["maximum"], atol=1e-6)
        assert asked(port, "/picture.png")[1].startswith(b"\x89PNG")
        # Other host names are rejected: a page elsewhere could make its own name point to this machine.
        assert asked(port, "/picture.png", Host=f"elsewhere.example:{port}")[0] == 403
        upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
        upgrade["Sec-WebSocket-Key"] = "x3JJHMbDL1EzLkh9GBhXDw=="
        assert asked(port, "/ws", **upgrade, Origin="http://elsewhere.example")[0] == 403
        # A second onlooker cannot use the same port.
        monkeypatch.setattr(sys, "argv", ["onlooker", "watch", "--demo", "--port", str(port)])
        with pytest.raises(SystemExit):
            main()
        assert f"port {port} is in use; give another with --port" in capsys.readouterr().err
        assert terminal.interrupt() == 0
    assert "saw 3,000 observations; the reward never jumped." in terminal.said
    assert "Traceback" not in terminal.said


def test_a_report_is_complete_in_one_file(result, tmp_path):
    beware = onlooker.Message("unexplored", "beware of <b>this</b>")
    doubtful = replace(result, found=result.found._replace(warnings=[beware]))
    doubtful.save(tmp_path / "result")
    path = write_report(tmp_path / "result")
    text = path.read_text()
    assert path == tmp_path / "report.html"
    assert re.findall(r'(?:src|href)="(?!data:)', text) == []
    assert "http" not in re.sub(r'base64,[^"]*|http-equiv', "", text)
    assert text.count("data:image/png;base64,") == 3
    assert "beware of &lt;b&gt;this&lt;/b&gt;" in text
    # Warnings come before the figures.
    assert text.index("beware") < text.index("<figure>")
    assert all(name.replace("_", " ") in text for name in result.diagnostics)
    assert "onlooker.Observer" in text
    assert "No warnings." in write_report(result.save(tmp_path / "calm"), tmp_path / "calm.html").read_text()


@pytest.mark.parametrize("method", ["replay", "passive"])
def test_every_number_of_a_report_has_a_meaning(method, tmp_path):
    points, gradients = climbing(600, 1)
    density = {"density": onlooker.density.standard_normal(1)} if method == "passive" else {}
    found = onlooker.reconstruct(points, gradients, method=method, **density)
    assert set(found.diagnostics) <= set(MEANING)
    text = write_report(found.save(tmp_path / "result")).read_text()
    assert f"onlooker.reconstruct(points, gradients, method=&#x27;{method}&#x27;" in text
    assert ("density=π" in text) == (method == "passive")


def test_a_report_of_a_reproduced_example_lists_its_rows(tmp_path):
    good = Row("passive", {"tv": 0.05}, {"tv": at_most(0.1)}, {"chains": 256})
    bad = Row("naive", {"tv": 0.4}, {"tv": at_most(0.1)})
    write_metrics(tmp_path, "bayes", None, 3, [good, bad], True, command="onlooker reproduce bayes", figures=["a.png"])
    for name in ("a.png", "older.png"):
        (tmp_path / name).write_bytes(b"\x89PNG")
    text = write_example_report(tmp_path).read_text()
    assert "1 of 2 rows within their ranges; seed 3" in text
    assert "it was interrupted" in text
    assert "naive is outside the range" in text
    assert text.count("data:image/png") == 1
    assert "onlooker reproduce bayes" in text
    assert "chains 256" in text


@pytest.mark.parametrize("content", ["not json", "[]", '{"rows": [{}]}', '{"example": "bayes", "rows": 5}'])
def test_damaged_metrics_are_an_error_and_nothing_is_written(tmp_path, content):
    (tmp_path / "metrics.json").write_text(content)
    with pytest.raises(ValueError, match=r"metrics\.json (is|was not)"):
        write_example_report(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.json"]
