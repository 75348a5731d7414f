"""The Python in the README and the docs runs as it stands."""

import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent


def blocks(page):
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def test_the_readme_s_example(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = blocks("README.md")
    names: dict = {}
    exec(code, names)
    peak, origin = names["result"].reward([[0.5, 0.0], [0.0, 0.0]])
    assert peak - origin == pytest.approx(0.25, abs=0.02)
    assert names["result"].reward_error([[0.5, 0.0]])[0] < 0.02
    assert names["result"].warnings == []
    assert Path("reward.png").stat().st_size > 5000


def test_the_inverse_learners_example():
    (code,) = blocks("docs/inverse-learners.md")
    names: dict = {}
    exec(code.replace("500_000", "20_000"), names)
    assert np.isfinite(names["chains"].mean).all()


def test_the_examples_of_pools_and_questions():
    pools, questions = blocks("docs/which-learner.md")
    names: dict = {}
    exec(pools.replace("100_000", "1_000"), names)
    assert names["chains"].diagnostics["kernel_ess"] > 1.5
    exec(questions.replace("4000", "400"), names)
    assert np.isfinite(names["chains"].covariance).all()


def test_the_reconstruct_page():
    (code,) = blocks("docs/reconstruct.md")
    names: dict = {}
    exec(code, names)
    assert names["result"].warnings == []


def test_nothing_is_left_to_fill_in():
    for page in [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md")]:
        assert not re.search(r"PLACEHOLDER|TODO|FIXME|ACCURACY", page.read_text()), page.name


def test_links_between_pages_lead_somewhere():
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
