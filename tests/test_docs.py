"""The Python in the README and the docs runs as it stands."""

import ast
import importlib
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import onlooker
from onlooker.core.policies import spherical
from onlooker.inverse import on_policies
from onlooker.testing import LEARNER_CHECKS, check_learner, learner_cases

pytestmark = pytest.mark.usefixtures("promotion_allowed")
ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# The signature of a step is no programme.
NOT_RUN = {"docs/architecture.md"}


def blocks(page):
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def test_the_readme_s_example(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # As after `make demo`.
    Path("out/demo").mkdir(parents=True)
    first, code = blocks("README.md")
    names: dict = {}
    exec(first, names)
    exec(code, names)
    peak, origin = names["result"].reward([[0.5, 0.0], [0.0, 0.0]])
    assert peak - origin == pytest.approx(0.25, abs=0.02)
    assert names["result"].reward_error([[0.5, 0.0]])[0] < 0.02
    assert names["result"].warnings == []
    assert [abs(jump.at - 50_000) < 20 for jump in names["live"].jumps] == [True]
    assert names["live"].reward(names["places"]) @ [1, -1] == pytest.approx(1.75, abs=0.05)
    assert Path("out/reward.png").stat().st_size > 5000


def test_what_is_asked_of_a_result(capsys):
    (code,) = blocks("docs/what-is-estimated.md")
    names: dict = {}
    exec(code, names)
    draws, region = names["draws"], names["region"]
    assert (draws[:, 1] > draws[:, 0]).mean() > 0.9
    assert region.holds([[0.3, 0.0]])[0]
    assert "times the second" in capsys.readouterr().out


def test_the_start_page_s_example():
    (code,) = blocks("docs/index.md")
    names: dict = {}
    exec(code, names)
    assert names["result"].reward(names["places"]) @ [1, -1] == pytest.approx(0.25, abs=0.04)
    assert names["result"].warnings == []


def test_the_warnings_of_a_result_are_printed_by_code(capsys):
    (code,) = blocks("docs/when-not-to-trust-it.md")
    points = np.random.default_rng(0).standard_normal((2000, 1))
    exec(code, {"result": onlooker.reconstruct(points, 2 * points)})
    assert "sign-doubtful {'inward': 0.0} at the outermost points" in capsys.readouterr().out


def test_the_skeleton_of_a_learner_passes_the_suite(monkeypatch):
    module = ModuleType("onlooker.inverse.skeleton")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(blocks("docs/contributing.md")[0], vars(module))
    (case,) = learner_cases(module).values()
    assert len(check_learner(case)) == len(LEARNER_CHECKS) - 1
    assert on_policies(case.ready[0], spherical(1, 3), "policy").settings["measure"] == "policy"


def test_the_worked_example_of_contributing(monkeypatch):
    """Its pieces where it says that they go: a module of its own, and the ends of two files of tests."""
    _, learner, formula, law = blocks("docs/contributing.md")
    assert len((learner + formula + law).splitlines()) < 100
    module = ModuleType("onlooker.inverse.preconditioned")
    exec(learner, vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for file, code in (("test_inverse", formula), ("test_laws", law)):
        names = dict(vars(importlib.import_module(f"tests.inverse.{file}")))
        there = set(names)
        exec(code, names)
        tests = [name for name in names if name.startswith("test_") and name not in there]
        assert tests
        for test in tests:
            names[test]()
    with pytest.raises(ValueError, match="positive definite"):
        module.preconditioned(names["POINTS"], matrix=-np.eye(2), step_size=1e-3, bandwidth=0.3)


def test_every_page_with_python_is_run_here():
    run = set(re.findall(r'blocks\("([^"]+)"\)', Path(__file__).read_text()))
    assert {str(page.relative_to(ROOT)) for page in PAGES if "```python" in page.read_text()} == run | NOT_RUN


def test_every_figure_is_in_the_gallery():
    shown = set(re.findall(r"\(figures/([^)]+)\)", (ROOT / "docs/gallery.md").read_text()))
    assert shown == {figure.name for figure in (ROOT / "docs/figures").iterdir()}


def test_every_page_is_in_the_site_s_navigation():
    listed = set(re.findall(r"([\w/-]+\.md)", (ROOT / "mkdocs.yml").read_text()))
    assert listed == {str(page.relative_to(ROOT / "docs")) for page in PAGES[1:]}


def test_the_examples_of_tracking():
    live, adwin, chains = blocks("docs/tracking.md")
    names: dict = {}
    exec(live, names)
    assert [abs(jump.at - 20_000) < 50 for jump in names["live"].jumps] == [True]
    assert names["live"].reward(names["places"]) @ [1, -1] == pytest.approx(0.5, abs=0.15)
    exec(adwin, names)
    names["other"].learn_many(names["points"], names["gradients"])
    assert [20_000 <= jump.at < 22_000 for jump in names["other"].jumps] == [True]
    exec(chains, names)
    assert len(names["chains"].history) > 1
    assert len(names["moments"]) == names["chains"].samples.shape[1]


def test_the_inverse_learners_example():
    code, _ = blocks("docs/inverse-learners.md")
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


def test_the_page_of_the_live_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (code,) = blocks("docs/live.md")
    exec(code, {})
    assert Path(capsys.readouterr().out.strip()).read_text().startswith("<!DOCTYPE html>")


def test_the_reconstruct_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    offline, replayed, live = blocks("docs/reconstruct.md")
    names: dict = {}
    exec(offline, names)
    assert names["result"].warnings == names["again"].warnings == []
    assert "posterior" in names["tree"].children
    exec(replayed, names)
    assert np.diag(names["chains"].covariance) == pytest.approx([1, 1], rel=0.2)
    exec(live, names)
    peak, origin = names["live"].reward([[0.5, 0.0], [0.0, 0.0]])
    assert peak - origin == pytest.approx(-0.125, abs=0.02)


def test_the_noise_correction_example():
    first, code = blocks("docs/inverse-learners.md")
    names: dict = {}
    exec(first.replace("500_000", "2_000"), names)
    exec(code.replace("20_000", "2_000"), names)
    assert names["better"].settings["noise_corrected"] > 0.1


def test_the_page_of_real_learners(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, _, recorded, collected, offline, live, along = blocks("docs/real-learners.md")
    names: dict = {}
    for code in (recorded, collected, offline, live):
        exec(code, names)
    assert len(names["seen"]) == 5000
    assert onlooker.open_log("runs-optax/").row_count() == 100
    for found in (names["result"], names["live"]):
        assert found.reward([[1.0, 0.0], [0.0, 0.0]]) @ [1, -1] == pytest.approx(1, abs=0.1)
    exec(along, names)
    assert names["few"].shape == (300, 2)


def test_the_page_of_features(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    offline, live = blocks("docs/explain.md")
    names: dict = {}
    exec(offline, names)
    value, error = names["why"].contrast(goal=1, grey=-1)
    assert abs(value - 8) < 4.5 * error < 2
    exec(live, names)
    assert names["live"].jumps == []
    assert names["live"].contrast(goal=1, grey=-1).value == pytest.approx(value, abs=2 * error)


@pytest.mark.trainers
def test_the_first_five_minutes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    quick, asked, *_ = blocks("docs/real-learners.md")
    names: dict = {}
    exec(quick, names)
    exec(asked, names)
    losses = names["run"].values
    assert names["run"].reward[-1] - names["run"].reward[0] == pytest.approx(
        losses[-100:].mean() - losses[0], abs=4 * names["run"].error[-1]
    )
    assert names["weights"].shape == (1, 97)


@pytest.mark.trainers
def test_the_page_of_landscapes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = blocks("docs/landscapes.md")
    names: dict = {}
    exec(code, names)
    found, true = names["around"].reward(names["grid"]), np.array(names["true"])
    known = np.isfinite(found)
    assert np.corrcoef(found[known], true[known])[0, 1] > 0.95
    assert np.isfinite(names["rewards"]).sum() > 20


def test_nothing_is_left_to_fill_in():
    for page in [ROOT / "CHANGELOG.md", *PAGES]:
        assert not re.search(r"PLACEHOLDER|TODO|FIXME|ACCURACY|[A-Z]+_FIGURES", page.read_text()), page.name


def test_every_test_that_a_page_names_exists():
    for page in PAGES:
        for file, name in re.findall(r"pytest(?: -m slow)? (tests/[\w/]+\.py)(?: -k \"?(\w+))?", page.read_text()):
            assert re.search(rf"def test_\w*{name}", (ROOT / file).read_text()), f"{page.name}: {file} -k {name}"


def test_every_file_that_the_architecture_names_exists():
    for name in re.findall(r"`([\w/]+\.py)`", (ROOT / "docs/architecture.md").read_text()):
        assert "NAME" in name or (ROOT / "onlooker" / name).exists() or (ROOT / name).exists(), name


def offered(module):
    """``__all__`` of a module, which is not imported: it may need an extra."""
    tree = ast.parse(Path(importlib.util.find_spec(module).origin).read_text())
    (names,) = (ast.literal_eval(line.value) for line in tree.body if ast.unparse(line).startswith("__all__ ="))
    return names


def test_every_entry_of_the_reference_exists():
    for page in (ROOT / "docs/api").glob("*.md"):
        for path, members in re.findall(r"^::: ([\w.]+)\n(?:.*members: \[(.*)\])?", page.read_text(), re.MULTILINE):
            entries = [f"{path}.{name}" for name in members.split(", ")] if members else [path]
            for home, name in (entry.rsplit(".", 1) for entry in entries):
                assert name in offered(home), f"{page.name}: {home}.{name}"


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_policies_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fleet, hidden, model = blocks("docs/policies.md")
    names: dict = {}
    exec(fleet.replace("agents=500", "agents=250"), names)
    wanted = names["angles"].policy(names["result"].maximum())
    assert wanted[:, 0] == pytest.approx([0, 0.372], abs=0.03)
    exec(hidden, names)
    assert -names["cost"] / (2 * names["square"]) == pytest.approx(1, abs=0.01)
    exec(model, names)
    assert names["best"].cost == pytest.approx([0.6])
    assert names["best"].randomised == 1
