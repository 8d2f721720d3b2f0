"""The table of the campaign adds up, and stands in docs/reliability.md."""

import pytest

from support import campaign
from support.fuzzing import fuzz
from support.places import ROOT


def test_cases_are_counted_also_where_some_fail():
    def attempt(raw):
        assert int(raw) % 10

    numbers = iter(range(100))
    with pytest.raises(AssertionError) as caught:
        fuzz(attempt, lambda _rng: b"%d" % next(numbers), seed=1, cases=40, part="a part")
    assert "failed in all: [0, 10, 20, 30]" in caught.value.__notes__[0]
    campaign.tried("another part", 7)
    assert campaign.table(campaign.COUNTS)[2:] == ["| a part | 40 | 36 | 4 |", "| another part | 7 | 7 | 0 |"]


def test_lines_take_the_place_of_the_last_on_their_part_and_say_the_commit(tmp_path):
    file = tmp_path / "page.md"
    file.write_text("before\n<!-- campaign -->\n<!-- end of the campaign -->\nafter\n", encoding="utf-8")
    for tried, commit in (({"a": 1, "c": 3}, "first"), ({"b": 2, "c": 4}, "second")):
        campaign.keep(file, campaign.table({(part, "tried"): count for part, count in tried.items()}), commit)
    assert file.read_text(encoding="utf-8").splitlines() == [
        "before", "<!-- campaign -->",
        "| part | tried | survived | failed | commit |", "|---|---|---|---|---|",
        "| a | 1 | 1 | 0 | first |", "| b | 2 | 2 | 0 | second |", "| c | 4 | 4 | 0 | second |",
        "<!-- end of the campaign -->", "after",
    ]  # fmt: skip
    assert len(campaign.commit()) >= 7


def test_the_page_has_a_place_for_it_and_the_files_are_there():
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    assert page.count("<!-- campaign -->\n") == page.count("<!-- end of the campaign -->") == 1
    assert [path for path in campaign.FILES if not (ROOT / path).is_file()] == []
