"""No file grows beyond what a reader takes in at once, nor a function of the product beyond a screen."""

import ast

import pytest

from support.places import ROOT

FILE, FUNCTION = 500, 60  # lines, as CONTRIBUTING.md says
ROOMS = ("src", "bench", "demo", "tools", "tests")


def files(room):
    return [path for path in sorted((ROOT / room).rglob("*.py")) if "node_modules" not in path.parts]


@pytest.mark.parametrize("room", ROOMS)
def test_files_are_short(room):
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in files(room)}
    assert lines
    assert not {str(path): count for path, count in lines.items() if count >= FILE}


@pytest.mark.parametrize("room", [room for room in ROOMS if room != "tests"])
def test_functions_are_short(room):
    found = 0
    for path in files(room):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found += 1
                assert (node.end_lineno or 0) - node.lineno < FUNCTION, f"{path}: {node.name}"
    assert found
