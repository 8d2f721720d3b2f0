"""Accessibility: axe finds nothing serious, and the keyboard reaches everything that the mouse does."""

import itertools

import pytest

# In CI every page, scheme and language once with each other one; all of them together at night.
SAMPLE = {("derived", "light", "en"), ("derived", "dark", "ko"), ("hostile", "dark", "en")}
LOOKS = [
    pytest.param(*look, marks=() if look in SAMPLE else pytest.mark.nightly)
    for look in itertools.product(("derived", "hostile", "no_evidence", "empty"), ("light", "dark"), ("en", "ko"))
]


@pytest.mark.parametrize(("name", "scheme", "lang"), LOOKS)
def test_axe_finds_nothing_serious(visit, violations, name, scheme, lang):
    page = visit(name, lang, color_scheme=scheme, bypass_csp=True).page
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert violations(page) == []


def test_axe_finds_nothing_serious_on_a_phone(visit, violations):
    page = visit("grown", width=320, height=640, bypass_csp=True, has_touch=True, is_mobile=True).page
    assert violations(page) == []


@pytest.mark.parametrize("theme", [pytest.param("light", marks=pytest.mark.nightly), "dark"])
def test_axe_agrees_with_a_chosen_theme(visit, violations, theme):
    other = {"light": "dark", "dark": "light"}[theme]
    page = visit("derived", color_scheme=other, bypass_csp=True).page
    page.locator("#theme").select_option(theme)
    assert violations(page) == []


def test_the_skip_link_comes_first_and_leads_to_the_verdict(visit):
    page = visit("derived").page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.locator(".skip").is_visible()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id || location.hash") in ("verdict", "#verdict")


def test_headings_are_in_order(visit):
    for name in ("derived", "untestable"):
        levels = visit(name).page.evaluate(
            "[...document.querySelectorAll('h1,h2,h3,h4')].map((each) => +each.tagName[1])"
        )
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert [pair for pair in itertools.pairwise(levels) if pair[1] > pair[0] + 1] == []


def test_every_control_can_be_reached_by_tab(visit):
    page = visit("derived").page
    wanted = set(page.evaluate(_REACHABLE))
    assert {"role-cells", "theme", "language", "heat-role", "rows-search", "page-next", "save"} <= wanted
    seen = set()
    for _ in range(400):
        page.keyboard.press("Tab")
        found = page.evaluate("document.activeElement === document.body ? '' : (document.activeElement.id || '-')")
        if not found:
            break
        seen.add(found)
    assert wanted - seen == set()


# Radio buttons are one stop together, and what is disabled or closed is none.
_REACHABLE = """() => [...document.querySelectorAll("button, select, input, [tabindex='0']")]
  .filter((each) => each.id && each.checkVisibility() && !each.disabled && !(each.type === "radio" && !each.checked))
  .filter((each) => !each.closest("details:not([open])"))
  .map((each) => each.id)"""


def test_focus_is_seen(visit):
    page = visit("derived").page
    for name in ("#theme", "#page-next", "#role-cells"):
        page.locator(name).focus()
        page.keyboard.press("Shift+Tab")
        page.keyboard.press("Tab")
        style = page.evaluate(
            "(({outlineStyle, outlineWidth}) => [outlineStyle, outlineWidth])(getComputedStyle(document.activeElement))"
        )
        assert style[0] != "none", name
        assert float(style[1].removesuffix("px")) >= 1.5, name
