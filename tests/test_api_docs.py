"""docs/api.md: every example is run, and prints what it says it prints."""

import doctest

import pytest

from support.places import ROOT

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL


@pytest.mark.slow
def test_the_examples_of_the_api_are_true(tmp_path, monkeypatch, capsys):
    for needed in ("pandas", "matplotlib"):
        pytest.importorskip(needed)
    (tmp_path / "demo").symlink_to(ROOT / "demo")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KINPRINT_CACHE", "off")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8").replace("```\n", "\n")
    examples = doctest.DocTestParser().get_doctest(text, {}, "docs/api.md", "docs/api.md", 0)
    assert len(examples.examples) > 30
    done = doctest.DocTestRunner(optionflags=FLAGS).run(examples)
    assert done.failed == 0, capsys.readouterr().out
    assert (tmp_path / "map.png").stat().st_size > 5000
