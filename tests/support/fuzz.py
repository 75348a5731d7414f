"""Fuzzing of everything that opens a user's file, with valid files that are damaged in many ways.

    python -m tests.support.fuzz READER INPUTS [SEED]

Long runs have a process of their own, so that a crash of a parser ends only this one. A damaged file must be read as
complete, usable data or rejected in one sentence that names the file, and must not take more than MOST_MEMORY.
"""

import bz2
import contextlib
import dataclasses
import functools
import hashlib
import io
import json
import re
import resource
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet

import onlooker
from onlooker.core.histogram import Histogram
from onlooker.engine.checkpoint import RunFile
from onlooker.engine.identity import Identity
from onlooker.engine.loop import make_plan
from onlooker.engine.settings import RunSettings
from onlooker.engine.state import begin
from onlooker.fit.grid_reward import GridReward, SamplesOnly
from onlooker.paper import report as example_report
from onlooker.paper.naive import naive
from onlooker.paper.rows import Row, at_most, write_metrics
from onlooker.reconstruction import report, store
from onlooker.reconstruction.draws import Findings, given
from onlooker.simulation import libsvm
from onlooker.storage.trees import pack
from tests.support.damage import (
    BYTES,
    JSON,
    TEXT,
    Change,
    Random,
    fields_changed,
    flipped,
    in_a_member,
    lines_changed,
    nothing_like_it,
    other_arrays,
    other_columns,
    packed,
    tokens_changed,
)

MOST_MEMORY = 1 << 30
# Largest time in seconds for one input, on a busy machine.
MOST_SECONDS = 10.0
LONGEST_SENTENCE = 1000

Files = dict[str, bytes]

POINTS = np.random.default_rng(0).standard_normal((30, 2))
COLUMNS = {"points": POINTS, "gradients": -POINTS, "agents": np.arange(30) // 10, "times": np.arange(30) % 10.0}


class Reader(NamedTuple):
    """A kind of file and what reads it.

    Attributes
    ----------
    valid
        Valid inputs, each as the content of its files by name.
    changes
        Ways to damage the content of a file.
    read
        Reads the files in a folder and checks what it has read.
    mend
        Changes damaged files so that a checksum does not give every damage away; default: nothing is changed.
    """

    valid: list[Files]
    changes: list[Change]
    read: Callable[[Path], None]
    mend: Callable[[Files], Files] = lambda files: files


class Outcome(NamedTuple):
    """Results of fuzzing a reader.

    Attributes
    ----------
    inputs
        Number of inputs.
    accepted
        Number of inputs that were read.
    rejected
        Number of inputs that were rejected in one sentence.
    other
        Errors that should not have happened, by kind, with an example.
    slowest
        Largest time for one input, in seconds.
    seconds
        Time for all inputs.
    """

    inputs: int
    accepted: int
    rejected: int
    other: dict[str, str]
    slowest: float
    seconds: float


def read_log(path: Path) -> None:
    seen = onlooker.read_log(path)
    assert len(seen) > 0
    assert seen.points.shape == seen.gradients.shape == (len(seen), seen.dim)
    assert np.isfinite(seen.points).all()
    assert np.isfinite(seen.gradients).all()
    assert seen.agents is None or seen.agents.shape == (len(seen),)
    assert seen.times is None or np.isfinite(seen.times).all()


def _of_npz() -> Reader:
    plain, small = io.BytesIO(), io.BytesIO()
    np.savez(plain, **COLUMNS, direction="descent", learning_rate=0.1)
    np.savez_compressed(small, points=POINTS, agents=COLUMNS["agents"], learning_rate=0.1, optimizer="sgd")
    inside = [in_a_member(change) for change in (*BYTES, *[tokens_changed] * 4)]
    changes = [*BYTES, nothing_like_it, *inside, *[other_arrays] * 6]
    valid = [{"log.npz": content.getvalue()} for content in (plain, small)]
    return Reader(valid, changes, lambda folder: read_log(folder / "log.npz"))


def _of_csv() -> Reader:
    header = "agent,time,point_0,point_1,gradient_0,gradient_1"
    rows = np.column_stack([COLUMNS["agents"], COLUMNS["times"], POINTS, -POINTS])
    whole, iterates = io.BytesIO(), io.BytesIO()
    np.savetxt(whole, rows, "%.6g", ",", header=header, comments="")
    np.savetxt(
        iterates, rows[:, :4] + [0, 1, 0, 0], "%.6g", ",", header="agent,learning_rate,point_0,point_1", comments=""
    )
    valid = [{"log.csv": content.getvalue()} for content in (whole, iterates)]
    return Reader(valid, TEXT, lambda folder: read_log(folder / "log.csv"))


@functools.cache
def _shards() -> Files:
    with tempfile.TemporaryDirectory() as folder:
        with onlooker.LogWriter(folder, rows=10, learning_rate=0.1, optimizer="sgd") as writer:
            names = [f"agent {agent}" for agent in COLUMNS["agents"]]
            writer.add_many(POINTS, -POINTS, agents=names, times=COLUMNS["times"])
        return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}


PARQUET = [*BYTES, *BYTES, nothing_like_it, *[other_columns] * 6]


def _of_parquet() -> Reader:
    lists = {"point": POINTS.tolist(), "gradient": (-POINTS).tolist(), "agent": COLUMNS["agents"].astype(str)}
    flat = {"agent": pa.array(["a", "b"] * 15).dictionary_encode(), "time": COLUMNS["times"], "point_0": POINTS[:, 0]}
    valid = [{"log.parquet": next(iter(_shards().values()))}]
    for columns, options in ((lists, {}), (flat, {"compression": "gzip"}), (flat, {"data_page_version": "2.0"})):
        written = io.BytesIO()
        pa.parquet.write_table(pa.table(columns), written, **options)
        valid.append({"log.parquet": written.getvalue()})
    return Reader(valid, PARQUET, lambda folder: read_log(folder / "log.parquet"))


def _of_shards() -> Reader:
    return Reader([_shards()], PARQUET, read_log)


@functools.cache
def results() -> tuple[onlooker.Reconstruction, ...]:
    """Tiny results of each kind: a fitted potential, a grid reward, and samples only."""
    points = np.random.default_rng(1).standard_normal((1200, 1))
    fitted = onlooker.reconstruct(points, -points + 0.1, chains=2)
    samples = fitted.samples[:, :4]
    fitted = dataclasses.replace(
        fitted,
        found=Findings(fitted.diagnostics, fitted.warnings),
        draws=given(samples, fitted.draws.law),
        observed={name: part[:4] for name, part in fitted.observed.items()},
    )
    estimate = GridReward(Histogram.of(samples, (np.linspace(-2.0, 2.0, 9),)))
    numbers = {"beta": 1.0, "observations": 9}
    doubt = onlooker.Message("uncoded", "doubt it.")
    gridded = onlooker.Reconstruction("replay", estimate, Findings(numbers, [doubt]), given(samples))
    nothing, angles = SamplesOnly(1, "replay"), onlooker.policies.spherical(1, 2)
    alone = onlooker.Reconstruction("replay", nothing, Findings(numbers, []), given(samples), coordinates=angles)
    return fitted, gridded, alone


def read_result(folder: Path) -> None:
    result = onlooker.load(folder / "result")
    chains, draws, dim = result.samples.shape
    assert chains * draws * dim > 0
    assert np.isfinite(result.samples).all()
    assert all(isinstance(warning, onlooker.Message) for warning in result.warnings)
    assert isinstance(result.diagnostics, dict)
    if result.fitted.known:
        assert result.reward(result.samples[0]).shape == (draws,)
        assert result.explored(result.samples[0]).shape == (draws,)


@functools.cache
def _stored() -> list[Files]:
    stores = []
    for result in results():
        with tempfile.TemporaryDirectory() as folder:
            saved = result.save(Path(folder) / "result")
            stores.append(
                {
                    str(path.relative_to(folder)): path.read_bytes()
                    for path in sorted(saved.rglob("*"))
                    if path.is_file()
                }
            )
    return stores


def in_json(change: Change) -> Change:
    """Make a change to JSON files; flip bits of other files."""
    return lambda content, random: (change if content[:1] == b"{" else flipped)(content, random)


def _of_result() -> Reader:
    return Reader(_stored(), [*BYTES, nothing_like_it, *map(in_json, (tokens_changed, fields_changed))], read_result)


def without_digest(files: Files) -> Files:
    """The files without their digest, as an older version wrote them, so that changes are not noticed by it."""
    root = "result/zarr.json"
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
        tree = json.loads(files[root])
        tree["attributes"].pop("digest", None)
        return {**files, root: json.dumps(tree).encode()}
    return files


def _of_result_without_digest() -> Reader:
    changes = [*BYTES, nothing_like_it, *map(in_json, [tokens_changed] * 4 + [fields_changed] * 8)]
    stores = [without_digest(files) for files in _stored()]
    return Reader([stores[1], stores[2], stores[1], stores[2], stores[0]], changes, read_result, without_digest)


@functools.cache
def _checkpoints() -> list[Files]:
    random = np.random.default_rng(0)
    found = []
    for dim, forgetting in ((1, None), (4, "adaptive")):
        live = onlooker.Observer(dim=dim, forgetting=forgetting, chains=2)
        points = random.standard_normal((130, dim))
        live.learn_many(points, -points)
        with tempfile.TemporaryDirectory() as folder:
            found.append({"state.ckpt": live.save(Path(folder) / "state.ckpt").read_bytes()})
    return found


def read_checkpoint(folder: Path) -> None:
    live = onlooker.Observer.load(folder / "state.ckpt")
    assert live.dim >= 1
    assert live.seen >= 0
    assert pack(live)


def in_the_arrays(change: Change) -> Change:
    """Make a change to the arrays of a checkpoint, and recompute its digest."""

    def inside(content: bytes, random: Random) -> bytes:
        title, _, rest = content.partition(b"\n")
        title, arrays = title + b"\n", change(rest[32:], random)
        return title + hashlib.sha256(title + arrays).digest() + arrays

    return inside


def _of_checkpoint() -> Reader:
    return Reader(_checkpoints(), [*BYTES, nothing_like_it], read_checkpoint)


def _forged() -> list[Change]:
    inside = [in_a_member(change) for change in (*BYTES, *[tokens_changed] * 4)]
    return [in_the_arrays(change) for change in (*BYTES, *inside, *[other_arrays] * 8)]


def _of_forged_checkpoint() -> Reader:
    return Reader(_checkpoints(), _forged(), read_checkpoint)


@functools.cache
def _run_file() -> RunFile:
    """The checkpoint of a run of 64 steps that has ended."""
    points = np.random.default_rng(0).standard_normal((64, 2)).astype(np.float32)
    stream = onlooker.recorded(onlooker.Observations(points, -points))
    learner = naive(step_size=1e-2, bandwidth=0.5)
    settings = RunSettings(steps=64, chains=3, draws=4, snapshots=2)
    plan = make_plan(learner, stream, settings)
    begun = begin(plan, learner, stream, settings, np.zeros(2))
    identity = Identity.of(plan, learner, stream, settings, begun)
    with tempfile.TemporaryDirectory() as folder:
        return RunFile(Path(folder) / "run.ckpt", identity, begun, settings.moments(plan.block), 64)


def _runs() -> list[Files]:
    file = _run_file()
    with tempfile.TemporaryDirectory() as folder:
        file.path = Path(folder) / "run.ckpt"
        file.keep(file.begun, now=True)
        return [{"run.ckpt": file.path.read_bytes()}]


def read_run(folder: Path) -> None:
    file = _run_file()
    file.path = folder / "run.ckpt"
    standing = file.resumed()
    assert 0 <= standing.done <= 64
    assert np.shape(standing.trace) == file.begun.trace.shape


def _of_run() -> Reader:
    return Reader(_runs(), [*BYTES, nothing_like_it], read_run)


def _of_forged_run() -> Reader:
    return Reader(_runs(), _forged(), read_run)


LIBSVM = b"-1 3:1 11:0.5 14:1\n+1 1:1 6:-2e-1 # a remark\n\n-1 5:1\n1 2:0.25 3:1\n" * 3


def read_libsvm(path: Path) -> None:
    features, labels = libsvm.read(path)
    assert features.ndim == 2
    assert len(features) == len(labels) > 0
    assert np.isfinite(features).all()
    assert np.isfinite(labels).all()


def _of_libsvm() -> Reader:
    return Reader([{"data": LIBSVM}], TEXT, lambda folder: read_libsvm(folder / "data"))


def _of_packed_libsvm() -> Reader:
    changes = [
        *BYTES,
        nothing_like_it,
        *(packed(change) for change in (tokens_changed, lines_changed, nothing_like_it)),
    ]
    return Reader([{"data.bz2": bz2.compress(LIBSVM)}], changes, lambda folder: read_libsvm(folder / "data.bz2"))


@functools.cache
def _version(name: str) -> str:
    return metadata.version(name)


def quick_reports() -> Any:
    """Look up the versions that a report quotes only once, which is faster."""
    return mock.patch.object(report, "version", _version)


def _of_metrics() -> Reader:
    rows = [
        Row("replay", {"variation": 0.1}, {"variation": at_most(0.2)}, {"steps": 10, "kernel": "gaussian"}),
        Row("naive", {"variation": 0.5}, {"variation": (0.4, None)}),
    ]
    with tempfile.TemporaryDirectory() as folder:
        about = {"command": "onlooker reproduce bayes", "figures": ["a.png"]}
        written = write_metrics(Path(folder), "bayes", "text", 0, rows, True, **about).read_bytes()

    def read(folder: Path) -> None:
        with quick_reports():
            made = example_report.write_example_report(folder, folder / "report.html")
        assert made.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
        made.unlink()

    return Reader([{"metrics.json": written, "a.png": b"\x89PNG"}], [in_json(change) for change in JSON], read)


def _of_summary() -> Reader:
    gridded = results()[1]
    summary = {"log": "runs", "command": "onlooker reconstruct runs", "about": {"dimension": "1", "source": "me"}}
    summary |= {"method": "replay", "maximum": [0.5], "maximum_explored": True, "diagnostics": gridded.diagnostics}

    def read(folder: Path) -> None:
        (folder / store.STORE).mkdir(exist_ok=True)
        # Results have readers of their own, and pictures are slow.
        with (
            quick_reports(),
            mock.patch.object(report, "load", return_value=gridded),
            mock.patch.object(report, "_pictures", return_value=[]),
        ):
            made = report.write_report(folder)
        assert made.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
        made.unlink()

    return Reader([{"summary.json": json.dumps(summary).encode()}], JSON, read)


READERS: dict[str, Callable[[], Reader]] = {
    "npz": _of_npz,
    "csv": _of_csv,
    "parquet": _of_parquet,
    "shards": _of_shards,
    "result": _of_result,
    "result without digest": _of_result_without_digest,
    "checkpoint": _of_checkpoint,
    "forged checkpoint": _of_forged_checkpoint,
    "run": _of_run,
    "forged run": _of_forged_run,
    "libsvm": _of_libsvm,
    "libsvm.bz2": _of_packed_libsvm,
    "metrics.json": _of_metrics,
    "summary.json": _of_summary,
}


def changed(reader: Reader, number: int, seed: int) -> Files:
    """Valid files of which one is damaged or missing."""
    random = np.random.default_rng((seed, number))
    valid = reader.valid[number % len(reader.valid)]
    files = dict(valid)
    name = str(random.choice(list(files)))
    change = reader.changes[random.integers(len(reader.changes))]
    if len(files) > 1 and random.random() < 0.05:
        del files[name]
    elif not files[name]:
        files[name] = nothing_like_it(b"", random)
    else:
        files[name] = change(files[name], random)
    if all(files.get(one) == content for one, content in valid.items()):
        files[name] += b"?"
    return reader.mend(files)


def write(folder: Path, files: Files, there: Files) -> None:
    """Write files to a folder in which there are other files, or the same."""
    for gone in there.keys() - files.keys():
        (folder / gone).unlink()
    for name, content in files.items():
        if there.get(name) is not content:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)


@contextlib.contextmanager
def little_memory() -> Iterator[None]:
    """Limit the process to MOST_MEMORY more than it uses now."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def judged(read: Callable[[Path], None], folder: Path) -> str:
    """Read a folder: "accepted", "rejected" (in one sentence), or a description of another error."""
    try:
        read(folder)
    except (ValueError, FileNotFoundError) as error:
        # Errors of NumPy or of a parser do not name the file, and must not reach the user.
        sentence = str(error)
        if folder.name not in sentence:
            return f"does not name the file: {_where(error)}"
        if "\n" in sentence or len(sentence) > LONGEST_SENTENCE:
            return f"is no sentence: {_where(error)}"
        return "rejected"
    except Exception as error:
        return _where(error)
    return "accepted"


def _where(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in last if "onlooker" in frame.filename or frame.filename.endswith("fuzz.py")]
    frame = ours[-1]
    return f"{type(error).__name__} in {Path(frame.filename).name}:{frame.lineno}: {str(error)[:200]!r}"


def fuzz(name: str, count: int, folder: Path, seed: int = 0, alone: bool = False) -> Outcome:
    """Read damaged files one after the other.

    Parameters
    ----------
    name
        Name of the reader.
    count
        Number of inputs.
    folder
        Folder for the files.
    seed
        Seed of the damage.
    alone
        Whether to limit the memory, because the process does nothing else.
    """
    reader = READERS[name]()
    found: Counter[str] = Counter()
    other: dict[str, str] = {}
    slowest, began = 0.0, time.perf_counter()
    written: list[Files] = [{} for _ in reader.valid]
    # Arrow's threads must start before memory is limited: Arrow waits forever for one that cannot start.
    for number, files in enumerate(reader.valid):
        write(folder / f"right-{number}", files, {})
        reader.read(folder / f"right-{number}")
    with little_memory() if alone else contextlib.nullcontext(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", RuntimeWarning)
        for number in range(count):
            files, which = changed(reader, number, seed), number % len(reader.valid)
            place = folder / f"almost-right-{which}"
            write(place, files, written[which])
            written[which] = files
            start = time.perf_counter()
            verdict = judged(reader.read, place)
            slowest = max(slowest, time.perf_counter() - start)
            found[verdict if verdict in ("accepted", "rejected") else "other"] += 1
            if verdict not in ("accepted", "rejected"):
                other.setdefault(re.sub(r": .*", "", verdict, flags=re.DOTALL), f"input {number}: {verdict}")
    assert pa.total_allocated_bytes() < MOST_MEMORY
    return Outcome(count, found["accepted"], found["rejected"], other, slowest, time.perf_counter() - began)


def main(name: str, count: int, seed: int = 0) -> None:
    with tempfile.TemporaryDirectory() as folder:
        outcome = fuzz(name, count, Path(folder), seed, alone=True)
    print(json.dumps(outcome._asdict()))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
