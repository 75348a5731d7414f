"""Results: an ArviZ tree, a folder on disk and back, nothing half-written."""

import numpy as np
import pytest

import onlooker
from onlooker.field import ridge
from onlooker.store import pack, unpack


@pytest.fixture(scope="module", params=["potential", "replay", "many dimensions"])
def result(request):
    dim = 5 if request.param == "many dimensions" else 2
    points = np.random.default_rng(0).standard_normal((6000, dim))
    method = "auto" if dim == 5 else request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ridge, "REFINEMENTS", 100)
        patch.setattr(ridge, "MOST_UNITS", 64)
        return onlooker.reconstruct(points, -points, method=method, chains=16)


def test_there_and_back(result, tmp_path):
    folder = result.save(tmp_path / "out")
    again = onlooker.load(folder)
    x = 0.5 * np.random.default_rng(1).standard_normal((50, result.dim))
    assert again.reward(x) == pytest.approx(result.reward(x), abs=1e-9, nan_ok=True)
    assert again.explored(x).tolist() == result.explored(x).tolist()
    assert np.array_equal(again.samples, result.samples)
    assert again.warnings == result.warnings
    assert again.diagnostics == result.diagnostics
    if result.potential is not None:
        assert again.reward_error(x) == pytest.approx(result.reward_error(x), nan_ok=True)
    # Saving again replaces it, and leaves nothing else behind; but nobody else's files.
    result.save(folder)
    (folder / "mine.txt").touch()
    with pytest.raises(ValueError, match=r"also holds mine.txt"):
        result.save(folder)
    assert (folder / "mine.txt").exists()
    onlooker.load(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_arviz_reads_it(result):
    tree = result.to_datatree()
    assert tree["posterior"]["position"].dims == ("chain", "draw", "coordinate")
    assert tree["observed_data"]["points"].shape[1] == result.dim
    assert tree.attrs["method"] == result.method
    if result.potential is not None:
        assert tree["sample_stats"]["lp"].shape == result.samples.shape[:2]


def test_other_folders_are_left_alone(result, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ValueError, match="is not a reconstruction"):
        result.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(ValueError, match="holds no reconstruction"):
        onlooker.load(tmp_path)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        onlooker.load(tmp_path / "nowhere")


def test_fits_are_arrays_and_nothing_else(result):
    fit = result.potential if result.potential is not None else result.estimate
    flat = pack(fit)
    assert all(value.dtype.kind in "fiubU" for value in flat.values())
    again = pack(unpack(type(fit), flat))
    assert again.keys() == flat.keys()
    assert all(np.array_equal(again[name], value) for name, value in flat.items())
