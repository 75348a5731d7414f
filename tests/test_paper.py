"""The reproduced examples: their report, and (slow) that every row is within its range."""

import json

import pytest

from onlooker.paper import bayes, posterior
from onlooker.paper.demo import demo
from onlooker.paper.report import Row, at_least, at_most, between, print_rows, widen, write_metrics
from onlooker.paper.schematic import schematic


def test_rows_are_judged_by_their_ranges_and_written_whole(tmp_path, capsys):
    good = Row("passive", {"d1": 0.02, "d2": 0.5}, {"d1": at_most(0.03), "d2": at_least(0.4)}, {"step_size": 1e-3})
    bad = Row("naive", {"d1": 0.2}, {"d1": between(0.0, 0.1)})
    assert good.within
    assert not bad.within
    print_rows("a table", [good, bad])
    assert "OUTSIDE" in capsys.readouterr().out
    content = json.loads(write_metrics(tmp_path, "bayes", None, 3, [good, bad]).read_text())
    assert content["example"] == "bayes"
    assert content["seed"] == 3
    assert content["rows"][0] == {
        "name": "passive",
        "step_size": 1e-3,
        "d1": 0.02,
        "d2": 0.5,
        "accept": {"d1": [None, 0.03], "d2": [0.4, None]},
        "within": True,
    }
    assert widen(bad.accept, 0.1)["d1"] == pytest.approx((-0.1, 0.2))
    with pytest.raises(ValueError, match="accepts"):
        Row("empty", {"d1": 0.1}, {})


def test_the_demo_draws_and_tells(tmp_path):
    said: list[str] = []
    path = demo(tmp_path, said.append, steps=40_000)
    assert path.stat().st_size > 20_000
    assert any("total variation" in line for line in said)


def test_the_schematic_draws(tmp_path):
    schematic().savefig(tmp_path / "schematic.png")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("example", [bayes, posterior], ids=["bayes", "posterior"])
@pytest.mark.parametrize("quick", [True, False], ids=["quick", "full"])
def test_every_row_is_within_its_range(example, seed, quick, tmp_path):
    rows = list(example.reproduce(None, quick, seed, tmp_path))
    assert [row.name for row in rows if not row.within] == []
