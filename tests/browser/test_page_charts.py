"""The map of roles and the layer grids: what they say is what the report says, by mouse and by keyboard."""

import math
import re

import pytest

NUMBER = r"[-+−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?"


def figures(text):
    """Return the numbers of a sentence, in order."""
    return [float(part.replace(",", "").replace("−", "-")) for part in re.findall(NUMBER, text)]


def shown_in(value, text):
    """Whether a number stands in the text, to the digits that the page writes."""
    return any(
        math.isclose(value, found, rel_tol=2e-3, abs_tol=6e-5) or abs(value - found) < 0.0051 for found in figures(text)
    )


def measured(report, role, layer, metric):
    (item,) = [each for each in report.comparisons if (each.role, each.layer) == (role, layer)]
    return next(found for found in item.measurements if found.metric == metric)


# -- heatmap ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def derived(visit, reports):
    return visit("derived").page, reports("derived")


def grid_of(report, role):
    return next(grid for grid in report.grids if grid.role == role)


def sweep(page, selector, steps=14):
    """Move the mouse over an element, row by row; return each distinct text of the tooltip."""
    target = page.locator(selector)
    target.scroll_into_view_if_needed()
    box = target.bounding_box()
    seen = {}
    for down in range(1, steps):
        for right in range(1, steps):
            page.mouse.move(box["x"] + box["width"] * right / steps, box["y"] + box["height"] * down / steps)
            tip = page.locator("#tip")
            if tip.is_visible():
                seen[tip.inner_text()] = (right, down)
    return seen


@pytest.mark.parametrize(
    ("role", "panel"),
    [
        ("input_norm", "cosine"),
        ("attn_q", "pearson"),
        pytest.param("input_norm", "pearson", marks=pytest.mark.nightly),
        pytest.param("attn_q", "cosine", marks=pytest.mark.nightly),
    ],
)
def test_hovering_a_heatmap_shows_the_reports_numbers(derived, role, panel):
    page, report = derived
    page.locator("#heat-role").select_option(label=role)
    grid = grid_of(report, role)
    seen = sweep(page, f"#heat-{panel}")
    cells = {}
    for text in seen:
        a, b, *values = figures(text)
        cells[int(a), int(b)] = values
    assert len(cells) == len(seen) >= 0.8 * len(grid.layers_a) * len(grid.layers_b)
    for (a, b), values in cells.items():
        i, j = grid.layers_a.index(a), grid.layers_b.index(b)
        wanted = [rows[i][j] for rows in grid.grids().values()]
        assert values[:4] == pytest.approx(wanted, rel=2e-3, abs=0.0051), (a, b)


def test_cells_lie_where_their_layers_say(derived):
    """Further right is a later layer of B, further down a later layer of A."""
    page, _ = derived
    seen = sweep(page, "#heat-cosine")
    places = {tuple(int(part) for part in figures(text)[:2]): place for text, place in seen.items()}
    for (a, b), (right, down) in places.items():
        for (other_a, other_b), (other_right, other_down) in places.items():
            if a == other_a and b < other_b:
                assert right < other_right
            if b == other_b and a < other_a:
                assert down < other_down


def test_arrow_keys_move_through_the_heatmap(derived):
    page, report = derived
    role = page.locator("#heat-role option:checked").inner_text()
    grid = grid_of(report, role)
    page.locator("#heat-cosine").focus()
    said = page.locator("#heat-value")
    assert said.get_attribute("aria-live") == "polite"
    steps = [("Home", 0, 0), ("ArrowRight", 0, 1), ("ArrowDown", 1, 1), ("ArrowDown", 2, 1), ("ArrowLeft", 2, 0)]
    steps += [("ArrowUp", 1, 0), ("End", -1, -1), ("ArrowRight", -1, -1)]
    for key, i, j in steps:
        page.keyboard.press(key)
        values = figures(said.inner_text())
        assert values[:2] == [grid.layers_a[i], grid.layers_b[j]], key
        wanted = [rows[i][j] for rows in grid.grids().values()]
        assert values[2:6] == pytest.approx(wanted, rel=2e-3, abs=0.0051), key


def test_the_switch_to_z_changes_panels_legend_and_picture(derived):
    page, report = derived
    page.locator("#heat-role").select_option(label="attn_q")
    panels = page.locator("#heat-panels figure")
    assert panels.count() == 2
    before = page.locator("#heat-panels").inner_text()
    picture = page.evaluate("document.querySelector('#heat-cosine').toDataURL()")
    page.locator("#heat-z").check()
    assert page.locator("#heat-panels canvas[data-kind=z]").count() == panels.count() == 1
    after = page.locator("#heat-panels").inner_text()
    assert after != before
    most = max(abs(value) for row in grid_of(report, "attn_q").grids()["z"] for value in row if value is not None)
    scale = [abs(value) for value in figures(page.locator("#heat-panels .scale").inner_text())]
    assert scale[0] == scale[1] >= most  # the scale states what it spans, and holds the largest cell
    assert page.evaluate("document.querySelector('#heat-panels canvas').toDataURL()") != picture
    page.locator("#heat-values").check()
    assert page.locator("#heat-panels").inner_text() == before


def test_the_heatmap_is_not_one_colour_and_follows_the_theme(derived):
    page, _ = derived
    colours = page.evaluate(_COLOURS)
    assert colours > 5
    light = page.evaluate("document.querySelector('#heat-cosine').toDataURL()")
    page.locator("#theme").select_option("dark")
    assert page.evaluate("document.querySelector('#heat-cosine').toDataURL()") != light


_COLOURS = """() => {
  const canvas = document.querySelector("#heat-cosine");
  const raw = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const seen = new Set();
  for (let at = 0; at < raw.length; at += 4) if (raw[at + 3] === 255) seen.add(`${raw[at]},${raw[at + 1]},${raw[at + 2]}`);
  return seen.size;
}"""


def test_the_layer_map_can_be_laid_over(visit):
    page = visit("grown").page
    plain = page.evaluate("document.querySelector('#heat-cosine').toDataURL()")
    page.locator("#heat-map").check()
    assert page.evaluate("document.querySelector('#heat-cosine').toDataURL()") != plain


def test_a_finger_shows_values_too(visit):
    page = visit("derived", width=360, height=740, has_touch=True, is_mobile=True).page
    for target, said in (("#heat-pearson", "#heat-value"), ("#role-cells", "#role-value")):
        mark = page.locator(target).first
        mark.scroll_into_view_if_needed()
        box = mark.bounding_box()
        page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + min(box["height"] / 2, 60))
        assert figures(page.locator(said).inner_text()), target


def test_unlike_numbers_of_layers_make_a_heatmap_that_is_not_square(visit, reports):
    page, report = visit("grown").page, reports("grown")
    role = page.locator("#heat-role option:checked").inner_text()
    grid = grid_of(report, role)
    assert len(grid.layers_a) != len(grid.layers_b)
    page.locator("#heat-cosine").focus()
    page.keyboard.press("End")
    page.keyboard.press("End")
    assert figures(page.locator("#heat-value").inner_text())[:2] == [grid.layers_a[-1], grid.layers_b[-1]]


# -- map of roles ------------------------------------------------------------------------------------------------------------


def test_the_map_of_roles_says_the_reports_numbers(derived):
    page, report = derived
    seen = sweep(page, "#role-cells", steps=18)
    assert len(seen) > 20
    box = page.locator("#role-cells")
    box.focus()
    said = []
    for key in ("Home", "ArrowRight", "ArrowDown", "ArrowDown", "ArrowLeft", "End"):
        page.keyboard.press(key)
        said.append(page.locator("#role-value").inner_text())
    assert len(set(said)) == 6
    for text in [*seen, *said]:
        role = next(item.role for item in report.summary if re.search(rf"\b{item.role}\b", text))
        if not figures(text):
            assert "nothing was compared here" in text
            continue
        layer = next((item for item in range(4) if re.search(rf"\blayer {item}\b", text)), None)
        found = measured(report, role, layer, "pearson")
        assert shown_in(found.value, text), text
        assert shown_in(found.null.z, text), text


def test_the_legend_shows_its_cells_alone(derived):
    page, _ = derived
    entries = page.locator("#role-legend button")
    bins = page.locator("#role-cells .bin")
    assert entries.count() == bins.count() >= 2
    fills = bins.evaluate_all("(all) => all.map((path) => getComputedStyle(path).fill)")
    assert len(set(fills)) == len(fills)  # no two look alike
    faded = page.locator("#role-cells .bin.faded")
    for place, pressed in ((0, 1), (1, 2), (0, 1), (1, 0)):  # one alone, two, the other, and all again
        entries.nth(place).click()
        assert page.locator("#role-legend [aria-pressed=true]").count() == pressed
        assert faded.count() == (bins.count() - pressed if pressed else 0)


def test_the_identity_is_worked_live(derived):
    page, _ = derived
    a, b, sign = (float(page.locator("#identity").get_attribute(f"data-{name}")) for name in ("a", "b", "sign"))
    for r in (-1.0, 0.0, 0.5):
        page.locator("#identity-r").fill(str(r))
        cosine = (sign + r * a * b) / math.sqrt((1 + a * a) * (1 + b * b))
        assert shown_in(cosine, page.locator("#identity-out").inner_text())
