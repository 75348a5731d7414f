"""The examples in docstrings, which the reference shows, come out as they stand."""

import doctest
import importlib
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("promotion_allowed")
ROOT = Path(__file__).parent.parent
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "onlooker").rglob("*.py")
    if ">>> " in path.read_text()
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_come_out_as_they_stand(name):
    # By name: `onlooker.run` is also a function.
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0


def test_the_main_functions_have_examples():
    assert len(MODULES) >= 12
