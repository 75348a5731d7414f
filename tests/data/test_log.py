"""Logs: what was written is read, whole shards only, from any position; bad ones are rejected by name and reason."""

import os
import pickle
import shutil
import subprocess
import sys
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import onlooker
from onlooker.data.log import destination, formats
from onlooker.data.log import reader as logs
from onlooker.data.log.shards import names_in
from onlooker.data.log.tail import Tail, available, until
from onlooker.data.optimizer import Optimizer
from tests.support.messages import codes, message_of

RANDOM = np.random.default_rng(0)
POINTS = RANDOM.standard_normal((1000, 2))
GRADIENTS = -POINTS + 0.1 * RANDOM.standard_normal((1000, 2))
AGENTS = np.repeat(np.arange(20), 50)
TIMES = np.tile(np.arange(50.0), 20)


def write(folder, rows=100, **about):
    with onlooker.LogWriter(folder, rows=rows, **about) as writer:
        writer.add_many(POINTS, GRADIENTS, agents=AGENTS, times=TIMES)
    return folder


@pytest.mark.parametrize("one_by_one", [True, False])
@pytest.mark.parametrize("names", [int, "agent {}".format])
def test_what_is_written_is_read(tmp_path, one_by_one, names):
    agents = [names(agent) for agent in AGENTS.tolist()]
    about = {"learning_rate": 0.1, "optimizer": Optimizer("sgd", 0.9, nesterov=True, weight_decay=1e-3), "source": "me"}
    with onlooker.LogWriter(tmp_path, rows=64, **about) as writer:
        if one_by_one:
            for point, gradient, agent in zip(POINTS, GRADIENTS, agents, strict=True):
                writer.add(point, gradient, agent=agent)
        else:
            writer.add_many(POINTS, GRADIENTS, agents=agents)
    log = onlooker.open_log(tmp_path)
    seen = log.read()
    assert np.array_equal(seen.points, POINTS)
    assert np.array_equal(seen.gradients, GRADIENTS)
    assert np.array_equal(seen.agents, AGENTS)
    # Nobody said when: each agent's own steps.
    assert np.array_equal(seen.times, TIMES)
    assert seen.warnings == ()
    assert len(log.shards()) == 16
    assert (log.about.learning_rate, log.about.optimizer, log.about.source) == tuple(about.values())
    assert log.about.direction == "ascent"


def test_float32_stays_float32(tmp_path):
    with onlooker.LogWriter(tmp_path) as writer:
        writer.add_many(POINTS.astype(np.float32), GRADIENTS.astype(np.float32))
    seen = onlooker.read_log(tmp_path)
    assert seen.points.dtype == np.float32
    assert np.array_equal(seen.gradients, GRADIENTS.astype(np.float32))
    assert seen.agents is None


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "garbage"])
def test_a_torn_shard_is_skipped_and_counted(tmp_path, damage):
    shard = sorted(write(tmp_path).glob("*.parquet"))[3]
    content = bytearray(shard.read_bytes())
    content = {
        "cut": content[: len(content) // 2],
        # In the midst of the gradients: the page's checksum notices.
        "flip": bytearray([*content[:2500], content[2500] ^ 1, *content[2501:]]),
        "empty": bytearray(),
        "garbage": bytearray(b"PAR1" + bytes(500)),
    }[damage]
    shard.write_bytes(bytes(content))
    log = onlooker.open_log(tmp_path)
    seen = log.read()
    assert log.torn == {shard.name}
    assert np.array_equal(seen.points, np.delete(POINTS, slice(300, 400), axis=0))
    assert message_of(seen, "shards-torn").numbers == {"shards": 1}


def test_reading_on_from_any_position_gives_the_same_pieces(tmp_path):
    log = onlooker.open_log(write(tmp_path, rows=300))
    whole = list(log.batches())
    assert [position for _, position in whole] == [
        f"{number:010d}.parquet:{n}" for number, n in enumerate((300,) * 3 + (100,))
    ]
    for number, (_, position) in enumerate(whole):
        rest = list(log.batches(after=position))
        assert [after for _, after in rest] == [after for _, after in whole[number + 1 :]]
        assert all(
            np.array_equal(one.points, other.points)
            for (one, _), (other, _) in zip(rest, whole[number + 1 :], strict=True)
        )
    # In the midst of a shard.
    first, _ = next(log.batches(after="0000000001.parquet:250"))
    assert np.array_equal(first.points, POINTS[550:600])


def test_many_writers_share_a_folder(tmp_path):
    def add(number):
        with onlooker.LogWriter(tmp_path, rows=7) as writer:
            for row in range(100):
                writer.add(POINTS[row], GRADIENTS[row], agent=f"agent {number}")

    threads = [threading.Thread(target=add, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seen = onlooker.read_log(tmp_path)
    assert len(seen) == 600
    for agent in range(6):
        assert np.array_equal(seen.points[seen.agents == agent], POINTS[:100])


def test_writers_that_begin_at_once_give_the_log_one_name(tmp_path):
    writers = [onlooker.LogWriter(tmp_path, rows=1000) for _ in range(16)]
    for number, writer in enumerate(writers):
        # Each of them finds an empty folder.
        writer.add(POINTS[number], GRADIENTS[number])
    threads = [threading.Thread(target=writer.close) for writer in writers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    shards = sorted(tmp_path.iterdir())
    assert len(shards) == 16
    assert {formats.metadata(shard)["log"] for shard in shards} == {onlooker.open_log(tmp_path).name}


def test_a_writer_does_not_list_its_folder_for_every_shard(tmp_path, monkeypatch):
    listed = []
    monkeypatch.setattr(destination, "names_in", lambda folder: listed.append(folder) or names_in(folder))
    with onlooker.LogWriter(tmp_path, rows=10) as writer:
        writer.add_many(POINTS, GRADIENTS)
        assert len(listed) <= 2
        # Others have taken thousands of numbers since.
        shard = (tmp_path / "0000000000.parquet").read_bytes()
        for number in range(100, 400):
            (tmp_path / f"{number:010d}.parquet").write_bytes(shard)
        writer.add_many(POINTS[:10], GRADIENTS[:10])
        writer.flush()
    assert (tmp_path / "0000000400.parquet").exists()
    assert len(listed) <= 3


def test_late_shards_of_one_writer_are_read(tmp_path):
    shards = sorted(write(tmp_path / "one", rows=100).glob("*.parquet"))
    log = tmp_path / "log"
    for writer in "ab":
        (log / writer).mkdir(parents=True)
    (log / ".log").write_text("the log")

    def appear(number, writer, name):
        shutil.copy(shards[number], log / writer / f"{name:010d}.parquet")

    for number in range(3):
        appear(number, "b", number)
    opened = onlooker.open_log(log)
    assert opened.name == "the log"
    position = list(opened.batches())[-1][1]
    for number in range(3, 6):
        appear(number, "a", number)
    appear(6, "b", 3)
    late = list(opened.batches(after=position))
    assert {position for _, position in late[-1:]} == {"a/0000000005.parquet:100;b/0000000003.parquet:100"}
    assert np.array_equal(np.concatenate([rows.points for rows, _ in late]), POINTS[300:700])
    assert list(opened.batches(after=late[-1][1])) == []
    again = list(until(opened, position))
    assert again[-1].position == position
    assert np.array_equal(np.concatenate([batch.points for batch in again]), POINTS[:300])
    # In the order of the times at which their writers began them; without the file they are other logs.
    assert np.array_equal(onlooker.read_log(log).points, POINTS[:700])
    (log / ".log").unlink()
    with pytest.raises(ValueError, match=r"has no \.parquet shards"):
        onlooker.open_log(log)


def test_a_file_system_without_links_will_do(tmp_path, monkeypatch):
    def none(*_):
        raise OSError("not supported")

    monkeypatch.setattr(os, "link", none)
    assert np.array_equal(onlooker.read_log(write(tmp_path)).points, POINTS)


def test_a_growing_log_is_followed(tmp_path):
    found, stop = [], threading.Event()
    with onlooker.LogWriter(tmp_path, rows=100) as writer:
        writer.add_many(POINTS[:100], GRADIENTS[:100])
        writer.flush()

        def follow():
            for batch in Tail(tmp_path).batches(lambda: stop.is_set() and len(found) >= len(POINTS)):
                found.extend(batch.points)

        follower = threading.Thread(target=follow)
        follower.start()
        writer.add_many(POINTS[100:], GRADIENTS[100:])
    stop.set()
    follower.join(timeout=10)
    assert np.array_equal(found, POINTS)


def test_a_position_within_a_shard_is_gone_on_from(tmp_path):
    log = onlooker.open_log(write(tmp_path))
    read = 0
    for batch in available(log, most=70):
        assert len(batch.points) <= 70
        read += len(batch.points)
        rest = [row for later in available(log, batch.position) for row in later.points]
        assert np.array_equal(np.reshape(rest, (-1, 2)), POINTS[read:])
        again = [row for earlier in until(log, batch.position, 60) for row in earlier.points]
        assert np.array_equal(again, POINTS[:read])
    assert read == 1000


def test_all_formats_say_the_same(tmp_path):
    columns = {"agent": AGENTS, "time": TIMES}
    columns |= {f"point_{axis}": POINTS[:, axis] for axis in range(2)}
    columns |= {f"gradient_{axis}": GRADIENTS[:, axis] for axis in range(2)}
    pa.parquet.write_table(pa.table(columns), tmp_path / "flat.parquet")
    lists = {"point": POINTS.tolist(), "gradient": GRADIENTS.tolist(), "agent": AGENTS.astype(str), "time": TIMES}
    pa.parquet.write_table(pa.table(lists), tmp_path / "lists.parquet")
    header = ",".join(columns)
    np.savetxt(tmp_path / "rows.csv", np.column_stack(list(columns.values())), "%.17g", ",", header=header, comments="")
    arrays = {"points": POINTS, "gradients": GRADIENTS, "agents": AGENTS, "times": TIMES}
    np.savez(tmp_path / "arrays.npz", **arrays)
    for name in ("flat.parquet", "lists.parquet", "rows.csv", "arrays.npz"):
        seen = onlooker.read_log(tmp_path / name)
        assert np.array_equal(seen.points, POINTS), name
        assert np.array_equal(seen.gradients, GRADIENTS), name
        assert np.array_equal(seen.agents, AGENTS), name
        assert np.array_equal(seen.times, TIMES), name


def test_a_loss_s_gradients_are_turned_by_their_schema_and_a_wrong_sign_is_noticed(tmp_path):
    points = 1.5 * np.random.default_rng(1).standard_normal((100, 2))
    columns: dict = {"points": [], "gradients": [], "agents": [], "times": []}
    for time in range(40):
        gradients = -points + 0.2 * np.random.default_rng((2, time)).standard_normal(points.shape)
        for name, value in zip(columns, (points, gradients, np.arange(100), np.full(100, time)), strict=True):
            columns[name].append(value)
        points = points + 0.05 * gradients
    rows = {name: np.concatenate(values) for name, values in columns.items()}
    loss = {**rows, "gradients": -rows["gradients"]}
    said, unsaid = tmp_path / "said", tmp_path / "unsaid"
    for folder, direction in ((said, "descent"), (unsaid, "ascent")):
        with onlooker.LogWriter(folder, direction=direction) as writer:
            writer.add_many(loss["points"], loss["gradients"], agents=loss["agents"], times=loss["times"])
    np.savez(tmp_path / "said.npz", **loss, direction="descent")
    for path in (said, tmp_path / "said.npz"):
        seen = onlooker.read_log(path)
        assert np.array_equal(seen.gradients, rows["gradients"])
        right = onlooker.reconstruct(seen, chains=4)
        assert "sign-reversed" not in codes(right)
    wrong = onlooker.reconstruct(onlooker.read_log(unsaid), chains=4)
    assert "sign-reversed" in codes(wrong)
    told = onlooker.read_log(unsaid, descent=True)
    assert np.array_equal(told.gradients, rows["gradients"])


def test_of_a_log_too_large_for_memory_some_agents_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "MOST_NUMBERS", 700)
    seen = onlooker.read_log(write(tmp_path))
    agents, counts = np.unique(seen.agents, return_counts=True)
    assert 2 <= len(agents) <= 12
    assert (counts == 50).all()
    assert "about one in 3" in str(message_of(seen, "log-thinned"))


def _npz(path, **arrays):
    np.savez(path, **arrays)


def _parquet(path, **columns):
    pa.parquet.write_table(pa.table(columns), path)


@pytest.mark.parametrize(
    ("name", "make", "sentence"),
    [
        ("a.npz", lambda path: _npz(path, x=POINTS), "has no array points, only x"),
        (
            "a.npz",
            lambda path: _npz(path, points=POINTS, gradients=GRADIENTS[:5]),
            "has 1000 points but gradient values of shape (5, 2)",
        ),
        (
            "a.npz",
            lambda path: _npz(path, points=POINTS, gradients=GRADIENTS[:, :1]),
            "points of 2 dimensions but gradients",
        ),
        ("a.npz", lambda path: _npz(path, points=np.array([{}, {}])), "cannot be read"),
        ("a.npz", lambda path: path.write_bytes(b"PK\3\4 nothing"), "is not a whole .npz file"),
        ("a.npz", lambda path: _npz(path, points=POINTS, direction="up"), "says direction is 'up'"),
        ("a.csv", lambda path: path.write_text("x,y\n1,2\n"), "has no column point or point_0, only x, y"),
        ("a.csv", lambda path: path.write_text("point_0,gradient_0\n1,2\n3\n"), "is not a CSV file with a header"),
        (
            "a.csv",
            lambda path: path.write_text("point_0,gradient_0\n1,up\n"),
            "invalid value 'up'",
        ),
        (
            "a.csv",
            lambda path: path.write_text("point_0,point_1,gradient_0\n1,2,3\n"),
            "give as many gradients as points",
        ),
        ("a.csv", lambda path: path.write_text("point_0, gradient_0\n1,2\n"), "a column ' gradient_0' with spaces"),
        ("a.csv", lambda path: path.write_text("point_0,point_2\n1,2\n"), "has a column point_2 but not all before it"),
        ("a.csv", lambda path: path.write_text("point_0,point_0\n1,2\n"), "or twice"),
        ("a.parquet", lambda path: _parquet(path, gradient=[[1.0]]), "has no column point"),
        ("a.parquet", lambda path: _parquet(path, point=[[1.0], [1.0, 2.0]]), "lists of 1, 2 numbers in point"),
        ("a.parquet", lambda path: _parquet(path, point=[[1.0], None]), "1 rows without a point"),
        ("a.parquet", lambda path: _parquet(path, point=["up", "down"]), "give lists of numbers"),
        ("a.parquet", lambda path: path.write_bytes(b"PAR1"), "is not a whole Parquet file"),
        ("a.pkl", lambda path: path.write_bytes(pickle.dumps(POINTS)), "is a pickle, which could run any code"),
        ("a.npz", lambda path: path.write_bytes(pickle.dumps(POINTS)), "is a pickle, which could run any code"),
        ("a.txt", lambda path: path.write_text("hello"), "is not a log"),
        ("a.csv", lambda path: path.write_text(""), "is empty"),
        ("a.csv", lambda path: path.write_text("point_0,gradient_0\nnan,1\n"), "no row without a NaN or an infinity"),
        ("folder", lambda path: path.mkdir(), "has no .parquet shards"),
        ("missing", lambda path: None, "does not exist"),
    ],
)
def test_bad_logs_are_rejected_by_name_and_reason(tmp_path, name, make, sentence):
    path = tmp_path / name
    make(path)
    with pytest.raises((ValueError, FileNotFoundError)) as rejected:
        onlooker.read_log(path)
    assert sentence in str(rejected.value)
    assert str(path) in str(rejected.value) or "finite" in sentence
    assert "\n" not in str(rejected.value)


def test_shards_that_do_not_belong_are_named(tmp_path):
    write(tmp_path)
    _parquet(tmp_path / "0000000100.parquet", point=[[1.0, 2.0, 3.0]], gradient=[[1.0, 2.0, 3.0]])
    with pytest.raises(ValueError, match=r"0000000100.parquet (says|has points of 3 dimensions)"):
        onlooker.read_log(tmp_path)
    _parquet(tmp_path / "0000000100.parquet", point=[[1.0, 2.0]])
    with pytest.raises(ValueError, match="has no gradients, unlike the log's first shard"):
        onlooker.read_log(tmp_path)


def test_rows_with_a_nan_are_counted(tmp_path):
    broken = GRADIENTS.copy()
    broken[::10, 1] = np.nan
    with onlooker.LogWriter(tmp_path) as writer:
        writer.add_many(POINTS, broken, agents=AGENTS)
    seen = onlooker.read_log(tmp_path)
    assert (len(seen), seen.rejected) == (900, 100)


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"point": [1.0, 2.0, 3.0], "gradient": [1.0, 2.0, 3.0]}, "has a log of 2 dimensions with gradients"),
        ({"point": [1.0, 2.0]}, "has a log of 2 dimensions with gradients"),
        ({"point": "north", "gradient": [1.0, 2.0]}, "point has shape"),
    ],
)
def test_a_row_of_the_wrong_shape_is_rejected(tmp_path, row, sentence):
    write(tmp_path)
    with onlooker.LogWriter(tmp_path) as writer, pytest.raises(ValueError, match=sentence):
        writer.add(**row)
    with onlooker.LogWriter(tmp_path) as writer:
        writer.add(POINTS[0], GRADIENTS[0], agent=0)
        with pytest.raises(ValueError, match="this row has gradient, point but the log has agent"):
            writer.add(POINTS[0], GRADIENTS[0])
        with pytest.raises(ValueError, match="gradients has shape"):
            writer.add_many(POINTS, GRADIENTS[:5])
    assert len(onlooker.read_log(tmp_path)) == 1001


def test_rows_are_never_cast_or_broadcast(tmp_path):
    with onlooker.LogWriter(tmp_path) as writer:
        writer.add([1.0, 2.0], [1.0, 2.0], agent=1)
        for row, sentence in (
            (([5.0], [1.0, 2.0]), "point has shape"),
            ((7.0, 8.0), "point has shape"),
            (([1.0, 2.0], [1.0]), "gradient has shape"),
            (([1j, 2.0], [1.0, 2.0]), "point has dtype complex128"),
        ):
            with pytest.raises(ValueError, match=sentence):
                writer.add(*row, agent=1)
        with pytest.raises(ValueError, match="agent has dtype"):
            writer.add([1.0, 2.0], [1.0, 2.0], agent="one")
        with pytest.raises(ValueError, match="point has shape"):
            writer.add_many(np.ones((3, 1)), np.ones((3, 1)), agents=[1, 1, 1])
        with pytest.raises(ValueError, match="agents mixes types"):
            writer.add_many(np.ones((2, 2)), np.ones((2, 2)), agents=[1, "one"])
        writer.add([3.0, 4.0], [1.0, 2.0], agent=1)
    with pytest.raises(ValueError, match="the log is closed"):
        writer.add([3.0, 4.0], [1.0, 2.0], agent=1)
    seen = onlooker.read_log(tmp_path)
    assert np.array_equal(seen.points, [[1, 2], [3, 4]])
    # A row that was rejected took no time.
    assert np.array_equal(seen.times, [0, 1])


def test_a_child_has_a_writer_of_its_own(tmp_path):
    program = f"""
import os, numpy, onlooker
writer = onlooker.LogWriter({str(tmp_path)!r}, rows=5)
writer.add_many(numpy.ones((7, 2)), numpy.ones((7, 2)))
child = os.fork()
writer.add_many(numpy.zeros((6, 2)) + (child == 0), numpy.ones((6, 2)))
writer.close()
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=60)
    # What the parent had gathered is written once.
    assert onlooker.open_log(tmp_path).row_count() == 7 + 6 + 6


def test_no_gradient_is_read_across_a_torn_shard(tmp_path):
    points = np.cumsum(np.ones((1000, 1)), axis=0)
    with onlooker.LogWriter(tmp_path, rows=100, learning_rate=0.5, optimizer="sgd") as writer:
        writer.add_many(points)
    sorted(tmp_path.glob("*.parquet"))[4].write_bytes(b"")
    seen = onlooker.read_log(tmp_path)
    assert np.array_equal(seen.gradients, np.full((898, 1), 2.0))


def test_a_learning_rate_that_is_none_is_no_rate(tmp_path):
    with onlooker.LogWriter(tmp_path) as writer:
        writer.describe(learning_rate=0.0)
        writer.add_many(POINTS, GRADIENTS)
    assert onlooker.open_log(tmp_path).about.learning_rate is None
    np.savez(tmp_path / "a.npz", points=POINTS, gradients=GRADIENTS, learning_rate=-1.0)
    assert len(onlooker.read_log(tmp_path / "a.npz")) == 1000


def test_a_newer_format_is_rejected(tmp_path):
    table = pa.table({"point": POINTS[:5].tolist(), "gradient": GRADIENTS[:5].tolist()})
    pa.parquet.write_table(table.replace_schema_metadata({"onlooker": "2"}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="has format 2 and this Onlooker reads up to 1"):
        onlooker.read_log(tmp_path / "a.parquet")
