"""docs/notebook.ipynb runs, prints what is kept in it, and is a notebook."""

import importlib.util
import json

import pytest

from support.places import ROOT

FILE = ROOT / "docs" / "notebook.ipynb"
NOTEBOOK = json.loads(FILE.read_text(encoding="utf-8"))


def printed(outputs):
    return ["".join(output["text"]) for output in outputs if output["output_type"] == "stream"]


def test_it_is_a_notebook_with_its_outputs():
    assert (NOTEBOOK["nbformat"], NOTEBOOK["nbformat_minor"]) == (4, 5)
    names = [cell["id"] for cell in NOTEBOOK["cells"]]
    assert len(set(names)) == len(names)
    code = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert sum("image/png" in output.get("data", ()) for cell in code for output in cell["outputs"]) == 2
    assert FILE.stat().st_size < 300_000


@pytest.mark.slow
def test_it_prints_what_is_kept_in_it(monkeypatch):
    for needed in ("pandas", "matplotlib"):
        pytest.importorskip(needed)
    monkeypatch.setenv("KINPRINT_CACHE", "off")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    place = importlib.util.spec_from_file_location("run_notebook", ROOT / "tools" / "run_notebook.py")
    tool = importlib.util.module_from_spec(place)
    place.loader.exec_module(tool)
    for cell, outputs in tool.run_cells(NOTEBOOK, FILE.parent):
        assert printed(outputs) == printed(cell["outputs"])
        assert [output["output_type"] for output in outputs] == [output["output_type"] for output in cell["outputs"]]
