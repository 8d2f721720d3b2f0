"""The page opens from disk, quietly, in both languages, at every width, without scripts, and on paper."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from kinprint.render.page.report import report_html
from kinprint.results.report import Report
from support.places import GOLDEN_REPORTS

GOLDEN = GOLDEN_REPORTS
REPORTS = (
    "derived",
    "untestable",
    "grown",
    "no_evidence",
    "empty",
    "hostile",
    "hostile model",
    "hostile throughout",
    "wide",
)
BROAD = ("derived", "hostile throughout", "wide")  # the longest words and the widest tables
WIDTHS = (320, 360, 768, 1280)
RAISED = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


@pytest.mark.parametrize("lang", ["en", pytest.param("ko", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", REPORTS)
def test_it_opens_without_an_error_or_a_request(visit, reports, name, lang):
    page = visit(name, lang, unfold=False, height=800).page
    assert page.locator("html").get_attribute("lang") == lang
    assert page.locator("h1").count() == 1
    assert page.locator("#verdict .sentence").inner_text().strip()
    # the summary fits a laptop and a phone: verdict, reasons, picture, limits, who made it
    if not name.startswith("hostile"):
        shown = ["h1", ".sentence", ".reasons", ".facts"] + ["#picture"] * (name not in ("empty", "untestable"))
        for width, height in ((1280, 800), (390, 844)):
            page.set_viewport_size({"width": width, "height": height})
            places = {part: page.locator(f"#verdict {part}").bounding_box() for part in shown}
            low = {part: box["y"] + box["height"] for part, box in places.items()}
            assert {part: end for part, end in low.items() if end > height} == {}, width
            assert page.locator("details[open]").count() == 0
    page.wait_for_timeout(100)  # the fixture asserts silence at the end: leave late work its time


@pytest.mark.parametrize("name", ["derived", "untestable", "wide"])
def test_one_file_speaks_both_languages_and_saves_the_report(visit, reports, written, name):
    page = visit(name).page
    english, korean = page.locator("body").inner_text(), visit(name, "ko").page.locator("body").inner_text()
    button = page.locator("#language")
    assert (button.inner_text(), button.get_attribute("lang")) == ("한국어", "ko")
    button.click()
    assert page.locator("html").get_attribute("lang") == "ko"
    assert page.locator("body").inner_text() == korean
    button.click()
    assert page.locator("body").inner_text() == english
    with page.expect_download() as saved:
        page.locator("#save").click()
    assert Path(saved.value.path()).read_bytes() == reports(name).to_json()
    assert saved.value.suggested_filename == "report.json"


def test_two_models_of_48_layers_fit_in_3_megabytes(written, reports):
    assert reports("wide").a.layers == reports("wide").b.layers == 48
    assert len(reports("wide").grids) == 9
    for lang in ("en", "ko"):
        assert written("wide", lang).stat().st_size < 3_000_000


def test_its_policy_allows_nothing_but_itself(watch, written):
    found = watch(written("derived"))
    page = found.page
    policy = page.locator("meta[http-equiv='Content-Security-Policy']").get_attribute("content")
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";") if rule.strip())
    assert rules["default-src"] == "'none'"
    assert re.fullmatch(r"('sha256-[A-Za-z0-9+/=]+' ?)+", rules["script-src"])
    assert "unsafe" not in rules["script-src"]
    assert not re.search(r"https?:|\*", policy)
    assert found.problems == []
    # and it holds: what is added afterwards does not run
    page.evaluate("document.body.append(Object.assign(document.createElement('div'), {id: 'late'}))")
    page.evaluate("document.getElementById('late').setAttribute('onclick', 'window.ran = 1')")
    page.evaluate("document.getElementById('late').click()")
    assert page.evaluate("window.ran") is None
    assert len(found.problems) == 1
    assert "Content Security Policy" in found.problems[0]


def test_a_report_of_an_earlier_version_opens(watch, tmp_path):
    path = tmp_path / "old.html"
    path.write_bytes(report_html(Report.from_json((GOLDEN / "report_v1.json").read_bytes())))
    found = watch(path)
    assert found.page.locator("#role-table tbody tr").count() == 2
    assert found.page.locator("#heatmap").count() == 0
    assert found.problems == []


@pytest.mark.parametrize("lang", ["en", pytest.param("ko", marks=pytest.mark.nightly)])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in BROAD else pytest.mark.nightly) for name in REPORTS]
)
def test_nothing_sticks_out_at_any_width(visit, overflow, name, lang):
    page = visit(name, lang, width=WIDTHS[-1]).page
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    found = {}
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        page.wait_for_timeout(150)  # charts are drawn anew
        found[width] = overflow(page)
    assert {width: result for width, result in found.items() if result[0] > 0 or result[1]} == {}


def test_text_can_be_twice_as_large(visit, overflow):
    page = visit("derived", width=640).page
    page.evaluate("document.documentElement.style.fontSize = '200%'")
    assert overflow(page)[0] <= 0


# -- Korean ----------------------------------------------------------------------------------------------------------------


def test_korean_is_korean(visit):
    page = visit("derived", "ko").page
    text = page.locator("main").inner_text()
    hangul = len(re.findall("[가-힣]", text))
    assert hangul > 1000
    for selector in ("h1", "#verdict .sentence", "#untested h2", "#reading h2", "#verdict .facts"):
        assert re.search("[가-힣]{2}", page.locator(selector).inner_text()), selector
    # what is not translated says so, for those who hear the page
    english = page.locator("main [lang=en]").all_inner_texts()
    assert [part for part in english if re.search("[가-힣]", part)] == []


def test_hangul_has_glyphs(visit):
    lister = shutil.which("fc-list")
    if lister is None or not subprocess.run([lister, ":lang=ko"], capture_output=True, check=True).stdout:
        pytest.skip("no font on this machine has Hangul")
    drawn = visit("derived", "ko").page.evaluate(_GLYPHS)
    assert drawn["한"] != drawn["missing"]
    assert drawn["글"] != drawn["missing"]
    assert drawn["한"] != drawn["글"]
    assert drawn["missing"] == drawn["missing too"]  # so a missing glyph would have been seen


_GLYPHS = """() => {
  const font = getComputedStyle(document.querySelector("#verdict .sentence")).fontFamily;
  const draw = (text) => {
    const canvas = Object.assign(document.createElement("canvas"), {width: 80, height: 80});
    const pen = canvas.getContext("2d");
    pen.font = `48px ${font}`;
    pen.fillText(text, 8, 60);
    return canvas.toDataURL();
  };
  return {"한": draw("한"), "글": draw("글"), missing: draw("\\u{E0FFE}"), "missing too": draw("\\u{E0FFD}")};
}"""


# -- without scripts, and on paper -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lang", ["en", "ko"])
def test_it_reads_without_scripts(visit, reports, lang):
    page = visit("derived", lang, java_script_enabled=False).page
    report = reports("derived")
    assert len(page.locator("#verdict .sentence").inner_text()) > 40
    if lang == "en":
        raised = re.sub(r"10\^(-?\d+)", lambda power: "10" + power[1].translate(RAISED), report.verdict.sentence)
        assert page.locator("#verdict .sentence").inner_text() in (report.verdict.sentence, raised)
    for part in page.locator("details.part > summary").all():
        part.click()  # parts open without scripts
    rows = page.locator("#role-table tbody tr")
    assert rows.count() == len(report.summary)
    assert [row.split()[0] for row in rows.all_inner_texts()] == [item.role for item in report.summary]
    assert page.locator("#untested").inner_text().count("\n") > 3
    assert page.locator("#picture svg").first.is_visible()
    assert page.locator("#role-cells path").first.is_visible()
    assert page.locator("#command").is_visible()
    # what needs scripts is not there to be tried in vain, and the page says so
    assert [each.is_visible() for each in page.locator(".needs-js").all()] == [False] * page.locator(
        ".needs-js"
    ).count()
    assert all(each.is_visible() for each in page.locator(".without-js").all())


@pytest.mark.parametrize(("name", "scheme"), [("derived", "light"), ("no_evidence", "dark"), ("untestable", "light")])
def test_on_paper_it_has_two_pages_and_what_was_opened(visit, name, scheme):
    page = visit(name, color_scheme=scheme, unfold=False).page
    assert pages(page) <= 2
    page.emulate_media(media="print")
    for selector in ("button:not(.sort)", "select", "input"):  # those that sort are the headings of their columns
        assert [each for each in page.locator(selector).all() if each.is_visible()] == [], selector
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") in (
        "rgb(255, 255, 255)",
        "rgba(0, 0, 0, 0)",
    )
    assert page.locator(".foot code").is_visible()
    assert not page.locator("#untested .lines").first.is_visible()
    page.emulate_media(media="screen")
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    page.emulate_media(media="print")
    assert page.locator("#untested .lines").first.is_visible()
    assert pages(page) > 2


def pages(page):
    raw = page.pdf(format="A4", print_background=True)
    assert raw.startswith(b"%PDF-")
    return len(re.findall(rb"/Type\s*/Page\b", raw))
