"""The page opens from disk, quietly, in both languages, at every width, without scripts, and on paper."""

import re
import shutil
import subprocess

import pytest

from kinprint.render.page import page_html
from kinprint.results.report import Report
from support.places import GOLDEN_REPORTS

GOLDEN = GOLDEN_REPORTS
REPORTS = ("derived", "grown", "no_evidence", "empty", "hostile", "hostile model", "hostile throughout", "wide")
WIDTHS = (320, 360, 768, 1280)
RAISED = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


@pytest.mark.parametrize("lang", ["en", "ko"])
@pytest.mark.parametrize("name", REPORTS)
def test_it_opens_without_an_error_or_a_request(visit, reports, name, lang):
    page = visit(name, lang).page
    assert page.locator("html").get_attribute("lang") == lang
    assert page.locator("h1").count() == 1
    assert page.locator("#verdict .sentence").inner_text().strip()
    page.wait_for_timeout(100)  # the fixture asserts silence at the end: leave late work its time


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
    path.write_bytes(page_html(Report.from_json((GOLDEN / "report_v1.json").read_bytes())))
    found = watch(path)
    assert found.page.locator("#role-table tbody tr").count() == 2
    assert len(found.page.locator("#heatmap").inner_text().splitlines()) > 1  # says that it has none
    assert found.problems == []


@pytest.mark.parametrize("lang", ["en", pytest.param("ko", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", REPORTS)
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
    for selector in ("h1", "#verdict .sentence", "#untested-title", "#reading-title", "nav"):
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
    rows = page.locator("#role-table tbody tr")
    assert rows.count() == len(report.summary)
    assert [row.split()[0] for row in rows.all_inner_texts()] == [item.role for item in report.summary]
    assert page.locator("#untested").inner_text().count("\n") > 3
    assert page.locator("#picture svg.track").first.is_visible()
    assert page.locator("#command").is_visible()
    # what needs scripts is not there to be tried in vain, and the page says so
    assert [each.is_visible() for each in page.locator(".needs-js").all()] == [False] * page.locator(
        ".needs-js"
    ).count()
    assert all(each.is_visible() for each in page.locator(".without-js").all())


@pytest.mark.parametrize("name", ["derived", "empty"])
def test_on_paper_everything_is_open_and_nothing_asks_to_be_pressed(visit, name):
    page = visit(name).page
    page.emulate_media(media="print")
    page.evaluate(_TWO_FRAMES)  # pages hear of another medium when they are next drawn
    assert page.locator("details").count() >= 1
    hidden = page.evaluate(_HIDDEN_IN_DETAILS)
    assert hidden == []
    for selector in (
        "nav",
        "button:not(.sort)",
        "select",
        "input",
    ):  # those that sort are the headings of their columns
        assert [each for each in page.locator(selector).all() if each.is_visible()] == [], selector
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background in ("rgb(255, 255, 255)", "rgba(0, 0, 0, 0)")


_TWO_FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
_HIDDEN_IN_DETAILS = """() => [...document.querySelectorAll("details")]
  .filter((each) => !each.closest(".needs-js"))
  .flatMap((each) => [...each.children].filter((child) => child.tagName !== "SUMMARY"))
  .filter((child) => !child.checkVisibility({contentVisibilityAuto: true, visibilityProperty: true}) || !child.offsetHeight)
  .map((child) => child.outerHTML.slice(0, 120))"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_prints_to_pdf(visit, scheme):
    raw = visit("derived", color_scheme=scheme).page.pdf(format="A4", print_background=True)
    assert raw.startswith(b"%PDF-")
    pages = len(re.findall(rb"/Type\s*/Page\b", raw))
    assert 1 < pages < 60
