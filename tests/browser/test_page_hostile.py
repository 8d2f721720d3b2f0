"""Names chosen by an enemy are shown and never act."""

import pytest

from support.reports import HOSTILE

NAMES = ("hostile", "hostile model", "hostile throughout")


@pytest.mark.parametrize("lang", ["en", pytest.param("ko", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", NAMES)
def test_no_element_comes_from_a_name(visit, name, lang):
    plain, spoilt = visit("derived", lang).page, visit(name, lang).page
    for page in (plain, spoilt):
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert _count(spoilt) == _count(plain)
    assert spoilt.evaluate(_HANDLERS) == []
    assert spoilt.evaluate("document.title").isprintable()


def _count(page):
    kinds = (
        "script",
        "img",
        "iframe",
        "object",
        "embed",
        "form",
        "base",
        "style",
        "link",
        "meta",
        "a",
        "video",
        "audio",
    )
    found = {kind: page.locator(kind).count() for kind in kinds}
    outside = (
        "[...document.querySelectorAll('[href], [src]')].map((e) => e.getAttribute('href') || e.getAttribute('src'))"
    )
    found["leads away"] = [text for text in page.evaluate(outside) if not text.startswith(("#", "data:"))]
    return found


_HANDLERS = """() => [...document.querySelectorAll("*")].flatMap((each) => [...each.attributes])
  .filter((each) => each.name.startsWith("on") || (each.name === "style" && each.value.includes("fixed")))
  .map((each) => `${each.name}=${each.value}`.slice(0, 100))"""


def test_they_are_there_as_text(visit):
    page = visit("hostile model").page
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    text = page.locator("body").inner_text()
    for wanted in (HOSTILE[0], HOSTILE[1], HOSTILE[2], HOSTILE[6]):
        assert wanted in text, wanted
    # not "no 49 anywhere": the folder of the run, whose number is any, is part of the name
    assert "{{7*7}}" in page.locator("#data bdi", has_text="7*7").first.inner_text()


@pytest.mark.parametrize("name", NAMES)
def test_no_mark_that_turns_or_hides_text_is_left(visit, name):
    page = visit(name).page
    shown = page.evaluate("document.documentElement.outerHTML")
    assert [f"U+{ord(mark):04X}" for mark in "\u202e\u202c\u2066\u200f\x07\x1b\x7f\ufeff" if mark in shown] == []


def test_hovering_and_searching_among_them_stays_inert(visit):
    found = visit("hostile throughout")
    page = found.page
    page.locator("#rows-search").fill("<script>")
    for box in (page.locator("#role-cells").bounding_box(), page.locator("#rows").bounding_box()):
        for step in range(12):
            page.mouse.move(box["x"] + box["width"] * step / 12, box["y"] + min(box["height"], 300) / 2)
    page.locator("#rows thead button").nth(0).click()
    assert page.locator("#tip *, #role-value img, #role-value script").locator("script, img, svg, a").count() == 0
    assert found.problems == []


def test_long_names_are_cut_and_the_whole_is_within_reach(visit):
    page = visit("hostile model").page
    longest = page.evaluate("Math.max(...[...document.querySelectorAll('bdi')].map((each) => each.textContent.length))")
    assert longest < 1000
    assert page.evaluate("[...document.querySelectorAll('[title]')].some((each) => each.title.length >= 10000)")
