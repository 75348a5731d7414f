"""The command: one sentence and exit code 2 for bad input, no traceback, and its own name and version."""

import subprocess
import sys

import pytest


def onlooker(*arguments):
    return subprocess.run([sys.executable, "-m", "onlooker", *arguments], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("reproduce", "nothing"), "there is no example 'nothing'"),
        (("reproduce", "bayes", "--preset", "wrong"), "bayes has no preset 'wrong'"),
        (("reproduce", "bayes", "--seed", "x"), "--seed"),
        (("reproduce", "bayes", "--out", "/dev/null/x"), "--out /dev/null/x cannot be made"),
        (("dance",), "No such command 'dance'"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(arguments, sentence):
    done = onlooker(*arguments)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""


def test_version_and_help():
    assert onlooker("--version").stdout.startswith("onlooker 0.")
    shown = onlooker("--help").stdout
    assert "demo" in shown
    assert "reproduce" in shown
