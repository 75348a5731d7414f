"""Files that are almost right are read or rejected in one sentence; nothing is unpickled or allocates gigabytes."""

import ast
import bz2
import io
import json
import os
import pickle
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import onlooker
from onlooker.simulation import libsvm
from onlooker.storage import state_file as checkpoint
from onlooker.storage.trees import pack
from tests.support import fuzz

ROOT = Path(__file__).parent.parent
FEW, MANY = 150, 10_000


@pytest.mark.parametrize("reader", fuzz.READERS)
def test_every_reader_reads_or_rejects(tmp_path, reader):
    outcome = fuzz.fuzz(reader, FEW, tmp_path)
    assert outcome.other == {}
    assert outcome.rejected > 0
    assert outcome.slowest < fuzz.MOST_SECONDS
    # A digest gives every change away.
    assert outcome.accepted == 0 or reader != "checkpoint"


@pytest.mark.parametrize("reader", fuzz.READERS)
def test_every_reader_reads_what_is_right(tmp_path, reader):
    found = fuzz.READERS[reader]()
    for number, files in enumerate(found.valid):
        fuzz.write(tmp_path / str(number), files, {})
        found.read(tmp_path / str(number))


@pytest.mark.slow
@pytest.mark.parametrize("reader", fuzz.READERS)
def test_every_reader_reads_or_rejects_ten_thousand(reader, capsys):
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
    command = [sys.executable, "-m", "tests.support.fuzz", reader, str(MANY), "1"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1800)
    # A negative one is the signal that ended it.
    assert done.returncode == 0, done.stderr[-2000:]
    outcome = fuzz.Outcome(**json.loads(done.stdout.splitlines()[-1]))
    with capsys.disabled():
        print(
            f"\n{reader}: {outcome.inputs} inputs, {outcome.accepted} accepted, {outcome.rejected} rejected, "
            f"{outcome.inputs - outcome.accepted - outcome.rejected} other, {outcome.seconds:.0f} s"
        )
    assert outcome.other == {}
    assert outcome.slowest < fuzz.MOST_SECONDS


@pytest.mark.filterwarnings("ignore:Object at")
def test_a_result_with_a_flipped_bit_or_missing_file_is_rejected(tmp_path):
    files = fuzz.READERS["result"]().valid[1]
    random = np.random.default_rng(0)
    for name in sorted(files.keys() - {"result/zarr.json"}):
        for changed in ({**files, name: fuzz.flipped(files[name], random)}, {**files, name: files[name][:-1]}):
            fuzz.write(tmp_path, changed, {})
            with pytest.raises(ValueError, match="its digest does not match"):
                onlooker.load(tmp_path / "result")
        fuzz.write(tmp_path, files, {})
        (tmp_path / name).unlink()
        with pytest.raises(ValueError, match="its digest does not match"):
            onlooker.load(tmp_path / "result")
    fuzz.write(tmp_path, files, {})
    # What a file manager leaves behind is none of it.
    (tmp_path / "result" / ".DS_Store").touch()
    (tmp_path / "result" / "posterior" / "Thumbs.db").touch()
    fuzz.read_result(tmp_path)


MODULES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
CALLS = {"eval", "exec", "torch.load", "yaml.load", "yaml.unsafe_load", "pandas.read_pickle"}


def runs_what_it_reads(tree):
    """What in a module's source could unpickle, or run, what it is given: line and name."""
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [one.name for one in node.names if one.name.split(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom):
            names = [str(node.module)] if str(node.module).split(".")[0] in MODULES else []
        elif isinstance(node, ast.Call):
            names = [name for name in [ast.unparse(node.func)] if name in CALLS]
            allowed = [ast.unparse(one.value) for one in node.keywords if one.arg == "allow_pickle"]
            names += [f"allow_pickle={value}" for value in allowed if value != "False"]
        yield from ((node.lineno, name) for name in names)


def test_nothing_in_the_package_unpickles():
    program = "import pickle\nfrom dill import load\neval('1')\ntorch.load(f)\nnp.load(f, allow_pickle=yes)"
    assert len(list(runs_what_it_reads(ast.parse(program)))) == 5
    sources = sorted((ROOT / "onlooker").rglob("*.py"))
    assert len(sources) > 50
    for path in sources:
        assert list(runs_what_it_reads(ast.parse(path.read_text(encoding="utf-8")))) == [], path


class Malicious:
    """Unpickled, it leaves a file behind."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


def test_a_malicious_pickle_is_never_run(tmp_path):
    mark = tmp_path / "it was run"
    bad = Malicious(mark)
    # What unpickling it would do.
    act, given = bad.__reduce__()
    act(*given)
    assert mark.exists()
    mark.unlink()
    points = np.ones((3, 2))
    np.savez(tmp_path / "points.npz", points=np.array([bad], dtype=object))
    np.savez(tmp_path / "agents.npz", points=points, agents=np.array([bad] * 3, dtype=object))
    np.savez(tmp_path / "words.npz", points=points, optimizer=np.array(bad, dtype=object))
    with zipfile.ZipFile(tmp_path / "bare.npz", "w") as archive:
        archive.writestr("points.npy", pickle.dumps(bad))
    for name in ("log.npz", "log.csv", "log.parquet", "log.pkl"):
        (tmp_path / name).write_bytes(pickle.dumps(bad))
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / "0000000000.parquet").write_bytes(pickle.dumps(bad))
    logs = sorted({*tmp_path.glob("*.npz"), *tmp_path.glob("log.*"), tmp_path / "shards"})
    assert len(logs) == 9
    for path in logs:
        with pytest.raises(ValueError, match=path.name):
            onlooker.read_log(path)
    arrays = io.BytesIO()
    np.savez(arrays, dim=np.array([bad], dtype=object))
    content = fuzz.in_the_arrays(lambda *_: arrays.getvalue())(b"onlooker Observer 1\n" + bytes(32), fuzz.Random)
    (tmp_path / "state.ckpt").write_bytes(content)
    with pytest.raises(ValueError, match="pickled objects"):
        onlooker.Observer.load(tmp_path / "state.ckpt")
    assert not mark.exists()


@pytest.mark.parametrize(
    ("attributes", "sentence"),
    [
        ({"warnings": "[1]"}, "its warnings are not messages"),
        ({"diagnostics": "[]"}, "its diagnostics or its method"),
        ({"method": 3}, "its diagnostics or its method"),
        ({"policies": '["spherical", 2, 3]'}, "its policies have 4 coordinates and its samples 1"),
    ],
)
def test_a_result_with_inconsistent_parts_is_rejected(tmp_path, attributes, sentence):
    files = fuzz.without_digest(fuzz.READERS["result"]().valid[2])
    root = json.loads(files["result/zarr.json"])
    root["attributes"] |= attributes
    fuzz.write(tmp_path, {**files, "result/zarr.json": json.dumps(root).encode()}, {})
    with pytest.raises(ValueError, match=f"is damaged .*{sentence}"):
        onlooker.load(tmp_path / "result")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("_rows/taken", -5),
        ("_rows/waiting/points", np.ones((3, 2))),
        ("_rows/waiting/held", np.ones(())),
        ("dim", 3),
        ("_watch/dim", 10**15),
    ],
)
def test_an_observer_with_inconsistent_parts_is_rejected(tmp_path, field, value):
    live = onlooker.Observer(dim=1)
    live.learn_many(np.ones((130, 1)), np.ones((130, 1)))
    arrays = {**pack(live), field: np.asarray(value)}
    checkpoint.write(tmp_path / "state.ckpt", "Observer", checkpoint.packed(arrays))
    with pytest.raises(ValueError, match=r"state\.ckpt does not hold what an Observer has learnt"):
        onlooker.Observer.load(tmp_path / "state.ckpt")


@pytest.mark.filterwarnings("ignore:Object at")
def test_a_pickle_among_a_result_s_arrays_is_never_run(tmp_path):
    """Zarr's second format knows a filter that unpickles; the third does not, and only that is read."""
    mark = tmp_path / "it was run"
    files = fuzz.without_digest(fuzz.READERS["result"]().valid[2])
    old = {"zarr_format": 2, "shape": [1], "chunks": [1], "dtype": "|O", "fill_value": None, "order": "C"}
    old |= {"compressor": None, "filters": [{"id": "pickle"}]}
    place = "result/posterior/position"
    files = {name: content for name, content in files.items() if not name.startswith(place)}
    files |= {f"{place}/.zarray": json.dumps(old).encode(), f"{place}/.zattrs": b"{}"}
    files |= {f"{place}/0": pickle.dumps(Malicious(mark))}
    fuzz.write(tmp_path, files, {})
    with pytest.raises(ValueError, match="is damaged"):
        onlooker.load(tmp_path / "result")
    assert not mark.exists()


def test_pandas_metadata_in_a_parquet_file_is_ignored(tmp_path):
    mark = tmp_path / "it was run"
    bad = pickle.dumps(Malicious(mark))
    words = {b"pandas": bad, b"ARROW:extension:name": b"arrow.py_extension_type", b"ARROW:extension:metadata": bad}
    table = pa.table({"point": [[1.0, 2.0]] * 4, "gradient": [[1.0, 2.0]] * 4})
    fields = [
        field.with_metadata({b"ARROW:extension:name": b"arrow.py_extension_type", **words}) for field in table.schema
    ]
    pa.parquet.write_table(table.cast(pa.schema(fields, metadata=words)), tmp_path / "log.parquet")
    assert len(onlooker.read_log(tmp_path / "log.parquet")) == 4
    assert not mark.exists()


def test_invalid_unicode_is_rejected(tmp_path):
    strange = np.full(4, 2**31 - 1, np.uint32).view("U1")
    np.savez(tmp_path / "log.npz", points=np.ones((4, 2)), agents=strange)
    with pytest.raises(ValueError, match=r"log\.npz has an array agents that cannot be read \(.*not valid Unicode"):
        onlooker.read_log(tmp_path / "log.npz")


def test_an_archive_that_lies_about_its_size_is_rejected(tmp_path):
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (200000000, 2), }"
    array = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(64)
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        archive.writestr("points.npy", array)
    lie = (len(array) - 64 + 200_000_000 * 2 * 8).to_bytes(4, "little")
    # Its sizes, packed and not, stand in two places: the second of each pair is the one that is lied about.
    pair = 2 * len(array).to_bytes(4, "little")
    content = written.getvalue().replace(pair, pair[:4] + lie)
    (tmp_path / "log.npz").write_bytes(content)
    with fuzz.little_memory(), pytest.raises(ValueError, match="it cannot unpack to the 32"):
        onlooker.read_log(tmp_path / "log.npz")


def test_too_large_claims_are_rejected_before_allocation(tmp_path, monkeypatch):
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 2), }"
    with zipfile.ZipFile(tmp_path / "log.npz", "w") as archive:
        archive.writestr("points.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(64))
    (tmp_path / "wide").write_text("1 100000:1\n" + "1\n" * 20_000)
    monkeypatch.setattr(libsvm, "MOST_BYTES", 1 << 24)
    (tmp_path / "bomb.bz2").write_bytes(bz2.compress(bytes(1 << 24)) * 2)
    files = fuzz.without_digest(fuzz.READERS["result"]().valid[2])
    for name in ("result/posterior/position/zarr.json", "result/posterior/chain/zarr.json"):
        files[name] = re.sub(rb'("shape": \[\s*)2', rb"\g<1>2000000000", files[name])
    fuzz.write(tmp_path, files, {})
    with fuzz.little_memory():
        with pytest.raises(ValueError, match="header claims 16000000000000 bytes but there are 64"):
            onlooker.read_log(tmp_path / "log.npz")
        with pytest.raises(ValueError, match="too large"):
            libsvm.read(tmp_path / "wide")
        with pytest.raises(ValueError, match="unpacks to more than"):
            libsvm.read(tmp_path / "bomb.bz2")
        with pytest.raises(ValueError, match="its arrays claim"):
            onlooker.load(tmp_path / "result")
