"""The list of mutations does not rot: each still fits its source, and its tests are there."""

import ast
from pathlib import Path

import pytest

from tests.support.mutation_list import MUTATIONS
from tests.support.mutations import ROOT

FUNCTIONS: dict[str, set[str]] = {}


def functions(file: str) -> set[str]:
    if file not in FUNCTIONS:
        tree = ast.parse((Path(__file__).parent / file).read_text())
        FUNCTIONS[file] = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return FUNCTIONS[file]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_mutations_change_one_text_and_name_existing_tests(mutation):
    assert (ROOT / mutation.file).read_text().count(mutation.old) == 1
    assert mutation.new != mutation.old
    compile((ROOT / mutation.file).read_text().replace(mutation.old, mutation.new), mutation.file, "exec")
    assert mutation.tests
    for test in mutation.tests:
        file, function = test.split("[")[0].split("::")
        assert function in functions(file)


def test_every_mutation_has_a_name_of_its_own():
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)
