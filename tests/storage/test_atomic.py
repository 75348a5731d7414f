"""What is written is there whole or not at all, whatever goes wrong."""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import onlooker
from onlooker.reconstruction.folder import write_result
from onlooker.storage import atomic
from onlooker.storage.signature import check_format


def full(*_):
    raise OSError(28, "No space left on device")


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    file = atomic.replace_file(tmp_path / "deep" / "state", b"old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        atomic.replace_file(file, b"new")
    assert file.read_bytes() == b"old"
    monkeypatch.undo()
    # What the failure left behind is used up by the next writing.
    atomic.replace_file(file, b"new")
    assert [path.name for path in file.parent.iterdir()] == ["state"]
    assert file.read_bytes() == b"new"


def test_a_folder_is_replaced_when_all_of_it_is_written(tmp_path):
    place = tmp_path / "result"

    def write(word, fail=False):
        with atomic.replacing_folder(place) as written:
            written.mkdir()
            (written / "first").write_text(word)
            if fail:
                full()
            (written / "second").write_text(word)

    write("old")
    with pytest.raises(OSError, match="No space"):
        write("new", fail=True)
    assert {path.name: path.read_text() for path in place.iterdir()} == {"first": "old", "second": "old"}
    write("new")
    assert {path.name: path.read_text() for path in place.iterdir()} == {"first": "new", "second": "new"}
    assert list(tmp_path.iterdir()) == [place]


def test_no_two_writers_get_the_same_name(tmp_path):
    def publish(number):
        hidden = atomic.hidden_in(tmp_path)
        hidden.write_text(str(number))
        name = atomic.publish(hidden, (tmp_path / str(free) for free in range(100)))
        hidden.unlink()
        return name

    with ThreadPoolExecutor(8) as pool:
        names = list(pool.map(publish, range(40)))
    assert sorted(int(name.name) for name in names) == list(range(40))
    assert [name.read_text() for name in names] == [str(number) for number in range(40)]


def test_a_summary_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    points = np.random.default_rng(0).standard_normal((300, 1))
    fit = onlooker.reconstruct(points, -points, chains=2)
    write_result(tmp_path, fit, log="old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_result(tmp_path, fit, log="new")
    assert '"log": "old"' in (tmp_path / "summary.json").read_text()


@pytest.mark.parametrize("found", [2, 1.5, float("nan")])
def test_a_later_format_is_rejected(tmp_path, found):
    check_format(tmp_path, 1, known=1)
    check_format(tmp_path, 0, known=1)
    with pytest.raises(ValueError, match=r"has format .* and this Onlooker reads up to 1; install a newer one"):
        check_format(tmp_path, found, known=1)


def test_a_folder_is_kept_when_its_replacement_fails(tmp_path):
    place = tmp_path / "result"
    place.mkdir()
    (place / "first").write_text("old")
    # Nothing is written, so that there is nothing to rename.
    with pytest.raises(FileNotFoundError), atomic.replacing_folder(place):
        pass
    assert (place / "first").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["result"]
