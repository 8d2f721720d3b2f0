"""Tables, switches and the command: sorting sorts, filters filter, pages turn, the theme changes."""

import math
import re

import pytest

from kinprint.render.tables.report import report_csv

MISSING = ("–", "")


def column(page, table, number):
    return page.locator(
        f"{table} tbody tr td:nth-child({number}), {table} tbody tr th:nth-child({number})"
    ).all_inner_texts()


def numbers(texts):
    """Read cells as numbers; what is missing becomes NaN."""
    return [math.nan if text.strip() in MISSING else float(text.replace("≤", "").replace(",", "")) for text in texts]


def ordered(values, up):
    present = [value for value in values if not math.isnan(value)]
    return present == sorted(present, reverse=not up) and all(math.isnan(value) for value in values[len(present) :])


@pytest.fixture
def derived(visit, reports):
    return visit("derived").page, reports("derived")


@pytest.mark.parametrize("table", ["#role-table", "#rows"])
def test_sorting_a_column_sorts_it(derived, table):
    page, _ = derived
    heads = page.locator(f"{table} thead th")
    keys = [text.strip() for text in heads.all_inner_texts()]
    for position in [position for position, text in enumerate(keys) if text in ("z", "Observed", "n")] or [3]:
        head = heads.nth(position)
        for state, up in (("ascending", True), ("descending", False)):
            head.locator("button").click()
            assert head.get_attribute("aria-sort") == state
            assert page.locator(f"{table} thead th[aria-sort]").count() == 1
            values = numbers(column(page, table, position + 1))
            assert len(values) > 2
            assert ordered(values, up), (keys[position], values)


def test_sorting_all_measurements_brings_the_extremes_to_the_first_page(derived):
    page, report = derived
    found = [item for each in report.comparisons for item in each.measurements if item.null and item.null.z is not None]
    head = page.locator("#rows thead th[data-key=z]")
    head.locator("button").click()
    lowest = numbers(column(page, "#rows", 7))[0]
    assert lowest == pytest.approx(min(item.null.z for item in found), rel=5e-3, abs=0.01)
    head.locator("button").click()
    highest = numbers(column(page, "#rows", 7))[0]
    assert highest == pytest.approx(max(item.null.z for item in found), rel=5e-3, abs=0.01)


def test_words_sort_too_and_by_keyboard(derived):
    page, _ = derived
    button = page.locator("#role-table thead th").first.locator("button")
    button.focus()
    page.keyboard.press("Enter")
    roles = column(page, "#role-table", 1)
    assert roles == sorted(roles)
    page.keyboard.press("Space")
    assert column(page, "#role-table", 1) == sorted(roles, reverse=True)


def count(page):
    """Return how many rows the table says it has."""
    digits = page.locator("#page-count").inner_text().replace(",", "")
    return max(int(part) for part in "".join(c if c.isdigit() else " " for c in digits).split())


def test_filters_reduce_the_rows(derived):
    page, report = derived
    every = sum(max(1, len(item.measurements)) for item in report.comparisons)
    assert count(page) == every
    page.locator("#rows-metric").select_option(label="pearson")
    assert count(page) == len(report.comparisons)
    assert set(column(page, "#rows", 3)) == {"pearson"}
    page.locator("#rows-search").fill("layers.2.mlp")
    names = [item for item in report.comparisons if "layers.2.mlp" in item.a.tensor]
    assert page.locator("#rows tbody tr").count() == len(names) == 3
    page.locator("#rows-search").fill("no such tensor")
    assert page.locator("#rows tbody tr").count() == 1
    assert page.locator("#rows tbody td").count() == 1  # a line that says so
    page.locator("#rows-search").fill("")
    page.locator("#rows-metric").select_option("")
    page.locator("#layer-first").fill("1")
    page.locator("#layer-first").press("Enter")
    page.locator("#layer-last").fill("1")
    page.locator("#layer-last").press("Enter")
    assert set(column(page, "#rows", 2)) == {"1"}
    page.locator("#layer-first").fill("")
    page.locator("#layer-first").press("Enter")
    page.locator("#layer-last").fill("")
    page.locator("#layer-last").press("Enter")
    assert count(page) == every
    page.locator("#role-chooser summary").click()
    page.locator("#roles-none").click()
    page.locator("#role-boxes label", has_text="attn_q").locator("input").check()
    assert set(column(page, "#rows", 1)) == {"attn_q"}


def test_the_rows_hold_the_reports_numbers(derived):
    page, report = derived
    page.locator("#rows-search").fill("layers.1.self_attn.q_proj")
    item = next(each for each in report.comparisons if each.a.tensor == "model.layers.1.self_attn.q_proj.weight")
    rows = page.locator("#rows tbody tr").all()
    assert len(rows) == len(item.measurements)
    for row, found in zip(rows, item.measurements, strict=True):
        cells = [text.strip() for text in row.locator("td, th").all_inner_texts()]
        assert cells[:3] == [item.role, "1", found.metric]
        null = found.null
        wanted = [found.value, *((null.mean, null.sd, null.z, null.log10_p, null.n) if null else [None] * 5)]
        for text, value in zip(numbers(cells[3:9]), wanted, strict=True):
            if value is None:
                assert math.isnan(text), (found.metric, cells)
            else:
                assert text == pytest.approx(value, rel=5e-3, abs=0.0051), (found.metric, cells)


def test_the_role_table_holds_the_reports_numbers(derived):
    page, report = derived
    rows = page.locator("#role-table tbody tr").all()
    for row, item in zip(rows, report.summary, strict=True):
        cells = [text.strip() for text in row.locator("td, th").all_inner_texts()]
        assert cells[0] == item.role
        wanted = [item.null.n, item.median_cosine, item.median_cosine_null]
        assert numbers(cells[1:4]) == pytest.approx(wanted, rel=5e-3, abs=6e-5)
        assert numbers(cells[7:9]) == pytest.approx([item.null.z, item.null.log10_p], rel=5e-3, abs=0.0051)
        assert numbers(cells[9:11]) == [item.compared, item.not_compared]


def test_pages_turn(derived):
    page, _ = derived
    first = column(page, "#rows", 4)
    assert page.locator("#page-back").is_disabled()
    page.locator("#page-next").click()
    assert column(page, "#rows", 4) != first
    page.locator("#page-last").click()
    assert page.locator("#page-next").is_disabled()
    page.locator("#page-first").click()
    assert column(page, "#rows", 4) == first


# -- switches ----------------------------------------------------------------------------------------------------------------


def background(page):
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_theme_switch_changes_the_background(visit, scheme):
    page = visit("derived", color_scheme=scheme).page
    automatic = background(page)
    seen = {}
    for theme in ("light", "dark", "auto"):
        page.locator("#theme").select_option(theme)
        seen[theme] = background(page)
    assert seen["light"] != seen["dark"]
    assert seen["auto"] == automatic == seen[scheme]


def test_the_command_can_be_copied(visit, reports):
    page = visit("derived", permissions=["clipboard-read", "clipboard-write"]).page
    command = page.locator("#command").inner_text()
    assert command.startswith("kinprint compare ")
    assert reports("derived").b.reference in command
    page.locator("#copy").click()
    page.wait_for_function("document.querySelector('#copy-said').textContent !== ''")
    assert page.evaluate("getSelection().toString() || navigator.clipboard.readText()") == command


def test_what_cannot_be_tested_says_why_and_has_no_empty_part(visit, reports):
    for name, why in (("untestable", "their widths differ: 32 and 64"), ("empty", reports("empty").reason)):
        page = visit(name).page
        assert page.locator("h1").inner_text().endswith(f"Not testable: {why}")
        parts = page.locator("details.part").all()
        assert [part.get_attribute("id") for part in parts] == ["controls", "untested", "declared", "reading", "data"]
        for part in parts:
            assert len([line for line in part.inner_text().split("\n") if line.strip()]) >= 2
        assert page.locator("#picture").count() == 0


def test_links_within_the_page_open_what_they_lead_to(visit):
    page = visit("derived", unfold=False).page
    links = page.locator("a[href^='#']").evaluate_all("(all) => all.map((each) => each.getAttribute('href'))")
    assert [link for link in links if page.locator(link).count() != 1] == []
    for place in ("#untested", "#command"):
        page.locator(f"#verdict a[href='{place}']").click()
        assert page.locator(f"{place}").first.is_visible()


# -- on paper --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lang", ["en", "ko"])
def test_paper_says_how_many_rows_there_are_and_how_to_get_them(visit, reports, lang):
    page = visit("derived", lang).page
    note, pager = page.locator("#explorer .on-paper"), page.locator(".pager")
    assert (note.is_visible(), pager.is_visible()) == (False, True)
    page.emulate_media(media="print")
    assert (note.is_visible(), pager.is_visible()) == (True, False)
    every = len(report_csv(reports("derived")).splitlines()) - 1
    said = note.inner_text()
    assert [int(text.replace(",", "")) for text in re.findall(r"\d[\d,]*", said)].count(every) == 2
    assert said.endswith("kinprint report report.json --csv measurements.csv")
    assert page.locator("#rows tbody tr").count() == 25


def test_paper_tells_rows_that_were_chosen_from_all(derived):
    page, _ = derived
    page.locator("#rows-metric").select_option(label="cosine")
    page.locator("#page-next").click()
    page.emulate_media(media="print")
    chosen = int(page.locator("#page-count").text_content().rpartition("(")[2].split()[0])
    assert 25 < chosen < 50
    said = page.locator("#rows-printed").inner_text()
    assert said.startswith(f"On paper: rows 26 to {chosen} of the {chosen} chosen, of ")
    page.emulate_media(media="screen")
    page.locator("#rows-search").fill("no tensor is called so")
    assert page.locator("#rows-printed").text_content().startswith("On paper: rows 0 to 0 of the 0 chosen")
