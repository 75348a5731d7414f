"""Whoever does the work, the answer is the same to the last bit; and errors are one sentence."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import onlooker
import onlooker.reconstruction.by_passes
from onlooker.core.extras import MissingExtraError
from onlooker.data.log.formats import metadata
from onlooker.data.log.tail import Tail
from onlooker.data.projection import onto
from onlooker.data.trainer import Trainer
from onlooker.storage.stores import as_place
from onlooker.workers import engine_for
from tests.support.logs import climbers, cut_small, write
from tests.support.store import served
from tests.workers.calls import deadly, failing, killed_once, squared, threads

ROOT = Path(__file__).parents[2]
PLACES = np.linspace(-1.5, 1.5, 41)[:, None]
ROWS = 24_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write(tmp_path_factory.mktemp("log"), climbers(ROWS))


@pytest.fixture(scope="module")
def ray_cluster():
    """One session of Ray with two workers for all tests."""
    ray = pytest.importorskip("ray")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        _node_ip_address="127.0.0.1",
        object_store_memory=200 * 2**20,
        log_to_driver=False,
        logging_level="ERROR",
        runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}},
    )
    yield ray
    ray.shutdown()


def bits(result):
    """All that must be equal: R̂, its error bars, and what was counted."""
    known = result.found.diagnostics
    counted = [known[name] for name in ("observations", "held_out_error", "quadratic_error", "sampled")]
    return result.reward(PLACES).tobytes() + result.reward_error(PLACES).tobytes() + np.array(counted).tobytes()


def check_each(engine, tmp_path, alone=False):
    """What every engine must do."""
    found = list(engine.each(squared, range(9), 5))
    assert [value for value, _ in found] == [number**2 + 5 for number in range(9)]
    assert all((worker == os.getpid()) == alone for _, worker in found)
    assert list(engine.each(squared, [], 5)) == []
    assert set(engine.each(threads, range(2), None)) == {1}
    with pytest.raises(ValueError, match=r"^item is 4; give another\.$"):
        list(engine.each(failing, range(9), 4))
    if not alone:
        assert list(engine.each(killed_once, range(9), str(tmp_path / "killed"))) == list(range(9))
        assert (tmp_path / "killed").exists()


def test_this_process_calls_one_after_the_other(tmp_path):
    with engine_for(None) as engine:
        check_each(engine, tmp_path, alone=True)
        assert engine.parallel == 1
        # Only what is asked for is done.
        assert next(engine.each(squared, range(1, 10**9), 0))[0] == 1


@pytest.mark.cluster
def test_processes_do_the_same(folder, tmp_path, monkeypatch):
    with engine_for(2) as engine:
        check_each(engine, tmp_path)
        with pytest.raises(RuntimeError, match="workers=2: processes ended 6 times"):
            list(engine.each(deadly, range(2), None))
        # The pool is there again.
        assert len(list(engine.each(squared, range(3), 1))) == 3
    cut_small(monkeypatch)
    alone = onlooker.reconstruct(folder, chains=4)
    assert bits(onlooker.reconstruct(folder, chains=4, workers=2)) == bits(alone)


@pytest.mark.cluster
def test_ray_does_the_same_also_if_a_worker_is_killed(folder, ray_cluster, tmp_path, monkeypatch):
    with engine_for("ray") as engine:
        assert engine.parallel == 2
        check_each(engine, tmp_path)
    assert ray_cluster.is_initialized()
    cut_small(monkeypatch)
    alone = onlooker.reconstruct(folder, chains=4)
    assert bits(onlooker.reconstruct(folder, chains=4, workers="ray")) == bits(alone)
    many = onlooker.reconstruct_many({"one": folder, "two": folder}, chains=4, workers="ray")
    assert many["one"].found.diagnostics["observations"] == ROWS
    # Workers have another SAMPLE: there the log is small, and read into memory.
    assert np.array_equal(many["one"].reward(PLACES), many["two"].reward(PLACES), equal_nan=True)


@pytest.mark.cluster
def test_ray_compares_versions(ray_cluster, monkeypatch):
    monkeypatch.setattr("onlooker.workers.ray.__version__", "0.0.1")
    with engine_for("ray") as engine, pytest.raises(RuntimeError, match=r"and the caller 0\.0\.1; install the same"):
        list(engine.each(squared, range(2), 0))


@pytest.mark.slow
def test_a_lost_node_changes_nothing(folder, monkeypatch):
    """Ray on a head and two nodes of one processor each, of which one is killed at a third of the work."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    cut_small(monkeypatch)
    alone = onlooker.reconstruct(folder, chains=4)
    memory = 100 * 2**20
    head = {"num_cpus": 0, "object_store_memory": memory, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        nodes = [cluster.add_node(num_cpus=1, object_store_memory=memory) for _ in range(2)]
        path = {"env_vars": {"PYTHONPATH": str(ROOT)}}
        ray.init(address=cluster.address, runtime_env=path, log_to_driver=False, logging_level="ERROR")
        cluster.wait_for_nodes()
        passes = onlooker.reconstruction.by_passes
        unpack, made = passes.unpack, []

        def losing(kind, flat):
            made.append(kind)
            if len(made) == 4:
                cluster.remove_node(nodes[0], allow_graceful=False)
            return unpack(kind, flat)

        monkeypatch.setattr(passes, "unpack", losing)
        assert bits(onlooker.reconstruct(folder, chains=4, workers="ray")) == bits(alone)
        assert sum(node["Alive"] for node in ray.nodes()) == 2
    finally:
        ray.shutdown()
        cluster.shutdown()


def test_a_missing_extra_is_named(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with (
        pytest.raises(MissingExtraError, match=r"workers='ray' needs ray: pip install 'onlooker\[ray\]'"),
        engine_for("ray"),
    ):
        pass


@pytest.mark.cluster
def test_a_script_without_a_guard_gets_a_sentence(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("from onlooker.workers import engine_for\nwith engine_for(2):\n    pass\n")
    ran = subprocess.run(
        [sys.executable, script],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 1
    assert "put the call below if __name__ == '__main__':" in ran.stderr.splitlines()[-1]
    assert ran.stderr.count("Traceback") == 1


def test_onlooker_alone_imports_no_engine():
    script = "import onlooker, sys; onlooker.reconstruct; print('ray' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert ran.stdout.strip() == "False"


@pytest.mark.cluster
def test_a_store_is_read_and_written_as_a_disk_is(folder, tmp_path, monkeypatch):
    pytest.importorskip("moto")
    cut_small(monkeypatch)
    alone = onlooker.reconstruct(folder, chains=4)
    with served() as store:
        for shard in sorted(folder.glob("*.parquet")):
            (as_place("s3://runs/log") / shard.name).write_bytes(shard.read_bytes())
        store.busy = 2
        found = onlooker.reconstruct("s3://runs/log", chains=4, checkpoint="s3://runs/kept")
        assert store.answered == 2
        assert bits(found) == bits(alone)
        monkeypatch.setattr("onlooker.reconstruction.by_passes.summed", None)
        assert bits(onlooker.reconstruct("s3://runs/log", chains=4, checkpoint="s3://runs/kept")) == bits(alone)
        many_writers_and_a_late_one(tmp_path)
        what_a_trainer_did()
        store_errors(store)


def many_writers_and_a_late_one(tmp_path):
    """Every whole shard is read once, whoever wrote it and whenever it appeared; one log has one name."""
    rows = climbers(1600)
    # The fourth is late: its shards appear at the end.
    writers = [onlooker.LogWriter("s3://runs/fleet", rows=25 if number != 3 else 1000) for number in range(16)]
    observer = onlooker.Observer(dim=1)
    for turn in range(4):
        for number, writer in enumerate(writers):
            first = 100 * number + 25 * turn
            some = slice(first, first + 25)
            if (number, turn) == (5, 2):
                # Killed: the rows that it has buffered are lost, its shards are not.
                writer.add_many(rows["points"][some][:10], rows["gradients"][some][:10])
                writer._count, writer._closed = 0, True
            if writer._closed:
                continue
            writer.add_many(rows["points"][some], rows["gradients"][some])
            if number != 3:
                writer.flush()
        observer.learn_log("s3://runs/fleet")
    assert observer.seen == 1600 - 100 - 50
    for writer in writers:
        writer.close()
    observer.learn_log("s3://runs/fleet")
    assert observer.seen == 1550
    log = onlooker.open_log("s3://runs/fleet")
    read = log.read()
    kept = np.r_[0:550, 600:1600]
    assert sorted(read.points.ravel().tolist()) == sorted(rows["points"][kept].ravel().tolist())
    assert len({name.partition("/")[0] for name in log.shard_names()}) == 16
    assert {metadata(log.place(name))["log"] for name in log.shard_names()} == {log.name}
    followed = Tail(as_place("s3://runs/fleet")).batches(lambda: False)
    assert np.array_equal(np.concatenate([next(followed).points for _ in log.shard_names()]), read.points)
    # Brought to a disk, it is read in the same order.
    for name in [*log.shard_names(), ".log"]:
        copy = tmp_path / "fleet" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((log.path / name).read_bytes())
    assert np.array_equal(onlooker.read_log(tmp_path / "fleet").points, read.points)


def what_a_trainer_did():
    """Marks, what is known of the trainer, and directions."""
    along, rows = onto([[1.0, 1.0]], origin=[0.5, 1.0]), climbers(400)
    clip = np.where(np.arange(400) % 2, 1.0, 0.5)
    trainer = Trainer(decay=((2, 0.1),), parameters=2, recorded=True)
    for half in (slice(0, 200), slice(200, 400)):
        with onlooker.LogWriter("s3://runs/trained", rows=50) as log:
            log.along(along)
            log.describe_trainer(trainer)
            log.add_many(rows["points"][half], rows["gradients"][half], clip=clip[half])
    seen = onlooker.read_log("s3://runs/trained")
    assert np.array_equal(seen.points, rows["points"])
    assert np.array_equal(seen.marks["clip"], clip)
    assert seen.trainer == trainer
    assert np.array_equal(seen.projection.origin, along.origin)
    with onlooker.LogWriter("s3://runs/trained") as log, pytest.raises(ValueError, match="along other directions"):
        log.along(onto([[1.0, -1.0]]))


def store_errors(store):
    with pytest.raises(OSError, match=r"^s3://nowhere/log: there is no such bucket\.$"):
        onlooker.reconstruct("s3://nowhere/log")
    with pytest.raises(OSError, match=r"there is no such bucket\.$"):
        onlooker.LogWriter("s3://nowhere/log")
    with pytest.raises(FileNotFoundError, match="s3://runs/empty does not exist; give a folder of shards"):
        onlooker.reconstruct("s3://runs/empty")
    with pytest.raises(ValueError, match="is an address of another kind"):
        onlooker.reconstruct("ftp://runs/log")
    store.busy = 1000
    with pytest.raises(OSError, match="too busy"):
        onlooker.reconstruct("s3://runs/log")
    store.busy = 0


@pytest.mark.cluster
def test_chains_are_the_same_on_any_devices_and_in_parts():
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=4"
    command = [sys.executable, "-W", "ignore", "-m", "tests.support.on_devices"]
    environment = {**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    found = json.loads(ran.stdout)
    assert found.pop("devices") == 4
    for learner, runs in found.items():
        assert runs["spread"] == runs["alone"], learner
        assert runs["parts"] == runs["alone"], learner
