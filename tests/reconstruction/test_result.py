"""Results: an ArviZ tree, a folder on disk and back, nothing half-written."""

import dataclasses

import numpy as np
import pytest

import onlooker
from onlooker.reconstruction.draws import Findings
from onlooker.storage.trees import pack, unpack


@pytest.fixture(scope="module", params=["potential", "replay", "many dimensions"])
def result(request):
    dim = 5 if request.param == "many dimensions" else 2
    points = np.random.default_rng(0).standard_normal((6000, dim))
    method = "auto" if dim == 5 else request.param
    return onlooker.reconstruct(points, -points, method=method, chains=16)


def test_a_saved_result_loads_unchanged(result, tmp_path):
    folder = result.save(tmp_path / "out")
    again = onlooker.load(folder)
    x = 0.5 * np.random.default_rng(1).standard_normal((50, result.dim))
    assert again.reward(x) == pytest.approx(result.reward(x), abs=1e-9, nan_ok=True)
    assert again.explored(x).tolist() == result.explored(x).tolist()
    assert np.array_equal(again.samples, result.samples)
    assert again.warnings == result.warnings
    assert again.diagnostics == result.diagnostics
    if result.fitted.has_error:
        assert again.reward_error(x) == pytest.approx(result.reward_error(x), nan_ok=True)
    # Saving again replaces it, and leaves nothing else behind; but nobody else's files.
    result.save(folder)
    (folder / "mine.txt").touch()
    with pytest.raises(ValueError, match=r"also contains mine.txt"):
        result.save(folder)
    assert (folder / "mine.txt").exists()
    onlooker.load(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_arviz_reads_a_result(result):
    tree = result.to_datatree()
    assert tree["posterior"]["position"].dims == ("chain", "draw", "coordinate")
    assert tree["observed_data"]["points"].shape[1] == result.dim
    assert tree.attrs["method"] == result.method
    if result.fitted.everywhere:
        assert tree["sample_stats"]["lp"].shape == result.samples.shape[:2]


def test_save_does_not_overwrite_other_folders(result, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ValueError, match="is not a reconstruction"):
        result.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(ValueError, match="is not a saved reconstruction"):
        onlooker.load(tmp_path)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        onlooker.load(tmp_path / "nowhere")


def test_fits_are_arrays_and_nothing_else(result):
    fit = result.fitted
    flat = pack(fit)
    assert all(value.dtype.kind in "fiubU" for value in flat.values())
    again = pack(unpack(type(fit), flat))
    assert again.keys() == flat.keys()
    assert all(np.array_equal(again[name], value, equal_nan=value.dtype.kind == "f") for name, value in flat.items())


def test_repr_is_five_lines_and_html_has_a_picture(result):
    """Method, rows, dimensions, R̂'s span and warnings; in a notebook, with the picture."""
    message = onlooker.Message("reward-jumped", "the reward jumped.")
    known = Findings({**result.found.diagnostics, "rejected": 3}, [message])
    shown = dataclasses.replace(result, found=known)
    lines = dict(line.split(None, 1) for line in repr(shown).replace("R̂ spans", "span").splitlines())
    assert list(lines) == ["method", "rows", "dimensions", "span", "warnings"]
    assert (lines["method"], lines["dimensions"], lines["warnings"]) == (
        result.method,
        str(result.dim),
        "reward-jumped",
    )
    assert lines["rows"] == f"{result.diagnostics['observations']:,} (3 rejected)"
    seen = result.reward(result.observed["points"])
    low, high = np.nanquantile(seen, [0.05, 0.95])
    assert float(lines["span"].split()[0]) == pytest.approx(high - low, rel=0.2)
    page = shown._repr_html_()
    assert "reward-jumped" in page
    assert "<img" in page


def test_a_fitted_potential_is_sampled_again_and_chains_are_not(result):
    if not result.fitted.everywhere:
        with pytest.raises(ValueError, match="method 'replay' has only the samples of its chains; use samples, or"):
            result.sample(beta=2.0)
        return
    # R = −½|θ|²: 16 chains of 200 draws, whose variance has an error of some hundredths.
    samples = result.sample(draws=200, beta=4.0, seed=1)
    assert samples.shape == (16, 200, result.dim)
    assert samples.var() == pytest.approx(0.25, rel=0.15)


def test_the_picture_of_samples_shows_them(result):
    """In every dimension: dots on a map in two, traces otherwise."""
    drawn = np.concatenate([line.get_xydata() for axes in result.plot().axes for line in axes.lines])
    if result.dim == 2:
        assert {tuple(place) for place in drawn} <= {tuple(place) for place in result.samples.reshape(-1, 2)}
        assert len(drawn) >= 1000
    else:
        assert set(result.samples[0, :, 0]) <= set(drawn[:, 1])
