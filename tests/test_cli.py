"""The command: one sentence and exit code 2 for bad input, no traceback, and its own name and version."""

import json
import subprocess
import sys

import numpy as np
import pytest

import onlooker
from onlooker import __version__
from onlooker.cli import main


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("reproduce", "nothing"), "there is no example 'nothing'"),
        (("reproduce", "bayes", "--preset", "wrong"), "bayes has no preset 'wrong'"),
        (("reproduce", "cmdp", "--preset", "text"), "cmdp has no preset 'text'; choose one of corrected, listing"),
        (("reproduce", "all", "--preset", "wrong"), "all has no preset 'wrong'"),
        (("reproduce", "bayes", "--seed", "x"), "--seed"),
        (("reproduce", "bayes", "--out", "/dev/null/x"), "--out /dev/null/x cannot be written to"),
        (("dance",), "No such command 'dance'"),
        (("inspect", "nothing.npz"), "nothing.npz does not exist"),
        (("reconstruct", "nothing"), "nothing does not exist"),
        (("reconstruct", "nothing", "--method", "passive"), "choose one of auto, potential, replay"),
        (("inspect", "nothing", "--optimizer", "momentum"), "momentum but momentum is not given"),
        (("watch",), "give either a SOURCE to watch or --demo"),
        (("watch", "nothing", "--demo"), "give either a SOURCE to watch or --demo"),
        (("watch", "nothing.npz"), "nothing.npz does not exist"),
        (("watch", "no/where"), "no/where does not exist"),
        (("watch", "--demo", "--components", "2"), "--components and --checkpoint are for a log"),
        (("watch", "--demo", "--forgetting", "3"), "forgetting is 3.0"),
        (("watch", "--demo", "--port", "70000"), "--port"),
        (("explain", "nothing"), "nothing does not exist"),
        (("explain", "docs"), "--features is not given"),
        (("explain", "docs", "--features", "json"), "give MODULE:FUNCTION"),
        (("explain", "docs", "--features", "no_such:psi"), "cannot be imported"),
        (("explain", "docs", "--features", "json:psi"), "which json does not have"),
        (("report", "nothing"), "nothing does not exist"),
        (("report", "docs"), "docs is not a saved reconstruction"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(arguments, sentence, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["onlooker", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    said = capsys.readouterr()
    assert stop.value.code == 2
    assert sentence in said.err
    assert len(said.err.strip().splitlines()) == 1
    assert said.out == ""


def test_the_module_runs_as_a_command():
    done = subprocess.run([sys.executable, "-m", "onlooker", "--help"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    assert all(command in done.stdout for command in ("demo", "reproduce", "--version"))


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["onlooker", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        main()
    return stop.value.code


def test_a_log_is_inspected_and_reconstructed(tmp_path, capsys, monkeypatch):
    random = np.random.default_rng(0)
    points = random.standard_normal((4000, 2))
    gradients = 2 * points + random.standard_normal(points.shape)
    np.savez(
        tmp_path / "log.npz", points=points, gradients=gradients, agents=np.arange(4000) // 20, direction="descent"
    )
    assert run(monkeypatch, "inspect", tmp_path / "log.npz") == 0
    said = capsys.readouterr().out
    assert all(words in said for words in ("gradients (descent)", "4,000", "usable: yes", "method: potential", "θ(2"))
    assert run(monkeypatch, "reconstruct", tmp_path / "log.npz", "--out", tmp_path / "out", "--chains", 8) == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["method"] == "potential"
    assert np.abs(summary["maximum"]).max() < 0.1
    assert {"held_out_error", "length", "observations"} <= summary["diagnostics"].keys()
    assert all((tmp_path / "out" / name).exists() for name in summary["files"])
    result = onlooker.load(tmp_path / "out" / "result.zarr")
    assert result.reward([[1.0, 0.0], [0.0, 0.0]]) @ [1, -1] == pytest.approx(-1, abs=0.1)


def test_iterates_in_a_csv_and_what_is_said_on_the_command_line(tmp_path, capsys, monkeypatch):
    random = np.random.default_rng(0)
    rows, buffer, point = [], np.zeros((60, 2)), random.standard_normal((60, 2))
    for step in range(40):
        rows += [(agent, step, *point[agent]) for agent in range(60)]
        buffer = 0.9 * buffer - point + 0.5 * random.standard_normal(point.shape)
        point = point + 0.02 * buffer
    path = tmp_path / "iterates.csv"
    path.write_text("agent,time,point_0,point_1\n" + "\n".join(",".join(map(str, row)) for row in rows) + "\n")
    known = ("--learning-rate", 0.02, "--optimizer", "momentum", "--momentum", 0.9)
    assert run(monkeypatch, "reconstruct", path, "--out", tmp_path / "out", "--chains", 4, *known) == 0
    result = onlooker.load(tmp_path / "out" / "result.zarr")
    assert result.reward([[0.8, 0.0], [0.0, 0.0]]) @ [1, -1] == pytest.approx(-0.32, abs=0.1)
    capsys.readouterr()
    assert run(monkeypatch, "inspect", path) == 0
    said = capsys.readouterr()
    assert "iterates without gradients" in said.out
    assert "in units of the learners' step size" in said.err
    assert "taken for those of plain SGD" in said.err
    assert run(monkeypatch, "inspect", path, "--optimizer", "adam") == 2
    assert "the optimizer is adam: gradients can be computed" in capsys.readouterr().err


def test_a_log_that_is_not_usable(tmp_path, capsys, monkeypatch):
    np.savez(tmp_path / "still.npz", points=np.ones((100, 2)), gradients=np.ones((100, 2)))
    assert run(monkeypatch, "inspect", tmp_path / "still.npz") == 1
    said = capsys.readouterr().out
    assert "usable: no" in said
    assert "points are all equal" in said


def test_version(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["onlooker", "--version"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"onlooker {__version__}\n"
