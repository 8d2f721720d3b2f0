"""The page on all pairs of several models, in the browser."""

import pytest

from kinprint.render.page.report import pairs_html
from support.reports import HOSTILE, pairs_report


@pytest.fixture
def opened(watch, tmp_path):
    """Open the page on three models; at the end of the test it must have been quiet."""
    visits = []

    def open_it(names=("base", "child", "other"), lang="en", **options):
        (tmp_path / "pairs.html").write_bytes(pairs_html(pairs_report(names), lang=lang))
        visits.append(watch(tmp_path / "pairs.html", **options))
        return visits[-1].page

    yield open_it
    assert [problem for each in visits for problem in each.problems] == []


@pytest.mark.parametrize("lang", ["en", "ko"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(opened, violations, lang, scheme):
    page = opened(lang=lang, color_scheme=scheme, bypass_csp=True)
    assert page.locator("html").get_attribute("lang") == lang
    assert violations(page) == []


@pytest.mark.parametrize("width", [320, 768, 1280])
def test_nothing_overflows(opened, overflow, width):
    assert overflow(opened(HOSTILE[-3:], width=width)) == (0, [])


def test_a_phone_shows_all_columns_of_a_small_matrix_and_the_whole_tree(opened, overflow):
    page = opened(width=360)
    assert page.locator("#matrix .scroll").evaluate("(box) => box.scrollWidth - box.clientWidth") == 0
    assert page.locator("#tree .scroll, #tree svg").count() == 0
    assert overflow(page) == (0, [])
    assert page.locator("#matrix .cell-derived").first.inner_text() == "derived"
    page.locator("#language").click()
    assert page.locator("html").get_attribute("lang") == "ko"
    assert page.locator("#matrix .cell-derived").first.inner_text() == "파생"


def test_names_in_the_matrix_are_not_broken_on_a_phone(opened):
    page = opened(["base", "finetune", "unrelated", "permuted", "quantised"], width=360)
    names = page.locator("#matrix th bdi")
    assert names.count() == 10
    assert names.evaluate_all("(all) => all.filter((name) => name.getClientRects().length > 1).length") == 0


def test_a_cell_leads_to_its_pair_and_columns_sort(opened):
    page = opened()
    page.locator(".matrix .cell-derived a").first.click()
    assert page.evaluate("location.hash") == "#pair-0"
    table = page.locator("#pairs table")
    first = table.locator("tbody tr th").first
    before = first.inner_text()
    for _ in range(2):
        table.get_by_role("button", name="log10 p").first.click()
    assert first.inner_text() != before
    assert table.locator("[aria-sort=descending]").count() == 1


def test_hostile_names_are_inert(opened):
    page = opened(HOSTILE[:3])
    assert page.locator("script").count() == 2
    assert page.locator("img").count() == 0
    page.locator("#data summary").click()
    assert "<script>alert(1)</script>" in page.locator("#data").inner_text()
