"""The command: one sentence and exit code 2 for bad input, no traceback, and its own name and version."""

import subprocess
import sys

import pytest

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


def test_version(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["onlooker", "--version"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"onlooker {__version__}\n"
