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


def test_the_table_takes_the_place_of_the_last_one(tmp_path):
    file = tmp_path / "page.md"
    file.write_text("before\n<!-- campaign -->\n| old |\n<!-- end of the campaign -->\nafter\n", encoding="utf-8")
    campaign.keep(file, ["| new |", "|---|"])
    assert file.read_text(encoding="utf-8").splitlines() == [
        "before", "<!-- campaign -->", "| new |", "|---|", "<!-- end of the campaign -->", "after",
    ]  # fmt: skip


def test_the_page_has_a_place_for_it_and_the_files_are_there():
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    assert page.count("<!-- campaign -->\n") == page.count("<!-- end of the campaign -->") == 1
    assert [path for path in campaign.FILES if not (ROOT / path).is_file()] == []
