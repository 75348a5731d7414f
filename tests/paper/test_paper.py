"""The reproduced examples: their report, and (slow) that every row is within its range."""

import json

import numpy as np
import pytest

from onlooker.paper import bayes, cmdp, posterior, tracking
from onlooker.paper.demo import demo
from onlooker.paper.ridge_tour import Tour, _Table, listing_policies, tour
from onlooker.paper.rows import Row, at_least, at_most, between, print_rows, widen, write_metrics
from onlooker.simulation.cmdp import two_states
from tools.schematic import schematic


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


def test_the_demo_writes_its_picture_and_table(tmp_path):
    said: list[str] = []
    path = demo(tmp_path, said.append, agents=400)
    assert path.stat().st_size > 20_000
    assert any("standard errors" in line for line in said)
    (left,) = (line.split() for line in said if line.startswith("share of the left hill"))
    assert abs(float(left[-2]) - float(left[-1])) < 0.1


def test_the_schematic_draws(tmp_path):
    schematic().savefig(tmp_path / "schematic.png")


def test_the_listing_s_table_of_gradients():
    example = two_states()
    table = _Table.of(example)
    # Nodes (i, j) are φ = (i, j)/100, from 1: a central difference inside, …
    above, below = (np.array([[0.2, 0.8], [share, 1 - share]]) for share in (0.41, 0.39))
    expected = (example.penalised(above) - example.penalised(below)) * 50
    assert table.slopes[19, 39, 1] == pytest.approx(expected)
    # … zero on the first row, and next to φ = 1 a difference with the zeros that were never filled.
    assert not table.slopes[0].any()
    assert not table.slopes[:, 0].any()
    before = example.penalised(np.array([[0.98, 0.02], [0.4, 0.6]]))
    assert table.slopes[98, 39, 0] == pytest.approx(-before * 50)
    # By the chain rule of φ = sin²α, at the nearest node.
    angles = np.arcsin(np.sqrt([0.2001, 0.3999]))
    found = np.asarray(table.sample_gradient(np.asarray(angles, np.float32), None))
    assert found == pytest.approx(table.slopes[19, 39] * np.sin(2 * angles), rel=1e-3)
    assert listing_policies(angles)[:, 0] == pytest.approx([0.2001, 0.3999])


def test_passages_along_the_ridge_are_told_apart():
    low, middle, high, outside = 0.1, 0.8, 1.2, 1.9

    def path(*places):
        return np.stack([np.array(places), np.full(len(places), 0.5)], axis=1)

    assert tour(np.stack([path(low, middle, high, middle, low)])) == Tour(1, 1, 0)
    assert tour(np.stack([path(low, middle, high, outside, low)])) == Tour(1, 1, 1)
    assert tour(np.stack([path(low, middle, low, middle, low)])) == Tour(0, 0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("example", [bayes, posterior, cmdp, tracking], ids=["bayes", "posterior", "cmdp", "tracking"])
@pytest.mark.parametrize("quick", [True, False], ids=["quick", "full"])
def test_every_row_is_within_its_range(example, seed, quick, tmp_path):
    rows = list(example.reproduce(None, quick, seed, tmp_path))
    assert [row.name for row in rows if not row.within] == []
