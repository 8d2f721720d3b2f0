"""The HTML report in a real browser: Debian's chromium, driven by playwright, with the page opened from disk.

Without chromium, playwright or axe-core these tests are skipped with the reason; KINPRINT_REQUIRE_BROWSER=1 makes that a failure.
"""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pytest

from kinprint.comparison.pipeline import compare
from kinprint.results.options import Options
from kinprint.sources.settings import Settings
from support.places import ROOT
from support.reports import empty_report, hostile_model, hostile_report, untestable_report, wide_report

AXE = ROOT / "tools" / "browser" / "node_modules" / "axe-core" / "axe.min.js"
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
REQUIRED = os.environ.get("KINPRINT_REQUIRE_BROWSER") == "1"  # read now: tests run in a cleaned environment
FEW = ("cosine", "pearson", "spearman")  # where the number of measurements is not the point


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)


def _missing(reason: str) -> NoReturn:
    if REQUIRED:
        pytest.fail(f"{reason}, and KINPRINT_REQUIRE_BROWSER=1")
    pytest.skip(reason)


# -- the browser ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def browser():
    """One browser for all tests; each of them has a context of its own."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("playwright is not installed")
    program = shutil.which("chromium")
    if program is None:
        _missing("chromium is not installed")
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=program, headless=True, args=list(FLAGS))
        yield started
        started.close()


@pytest.fixture(scope="session")
def axe_script() -> str:
    """The accessibility checker, as npm gave it."""
    if not AXE.is_file():
        _missing("axe-core is not installed (npm install --prefix tools/browser)")
    return AXE.read_text(encoding="utf-8")


@dataclass
class Visit:
    """One opened page and everything it did that a report must not do."""

    page: Any
    address: str
    requests: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        """Return all of it in words; none means that the page was quiet."""
        kinds = {
            "request": self.requests,
            "console": self.messages,
            "error": self.errors,
            "dialog": self.dialogs,
        }
        return [f"{kind}: {text[:300]}" for kind, found in kinds.items() for text in found]


Visitor = Callable[..., Visit]


def _watch(context: Any, path: Path) -> Visit:
    """Open a file; block and record whatever else it asks for."""
    page = context.new_page()
    visit = Visit(page, path.as_uri())

    def gate(route: Any, request: Any) -> None:
        if request.url.split("#")[0] == visit.address and request.is_navigation_request():
            route.continue_()
        else:
            visit.requests.append(f"{request.method} {request.url}")
            route.abort()

    def dismiss(dialog: Any) -> None:
        visit.dialogs.append(dialog.message)
        dialog.dismiss()

    page.route("**/*", gate)
    page.on("console", lambda message: visit.messages.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: visit.errors.append(str(error)))
    page.on("dialog", dismiss)
    page.set_default_timeout(10_000)
    page.goto(visit.address, wait_until="load")
    return visit


_UNFOLD = """async () => {
  while (document.getElementById("kinprint-data") && document.documentElement.className !== "js")
    await new Promise((done) => setTimeout(done, 5));
  document.querySelectorAll("details.part").forEach((each) => { each.open = true; });
}"""


@pytest.fixture
def watch(browser):
    """Open a file in a context of its own; what the page does is recorded, not judged."""
    contexts = []

    def open_it(path: Path, *, width: int = 1280, height: int = 900, **options: Any) -> Visit:
        context = browser.new_context(
            viewport={"width": width, "height": height}, reduced_motion="reduce", locale="en-GB", **options
        )
        contexts.append(context)
        return _watch(context, path)

    yield open_it
    for context in contexts:
        context.close()


@pytest.fixture
def visit(watch, written):
    """Open the page of one of `reports`, and its parts unless told otherwise; at the end of the test it must have been quiet."""
    visits: list[Visit] = []

    def open_it(name: str, lang: str = "en", *, unfold: bool = True, **options: Any) -> Visit:
        visits.append(watch(written(name, lang), **options))
        if unfold and options.get("java_script_enabled", True):
            visits[-1].page.evaluate(_UNFOLD)  # when the scripts have their data
        return visits[-1]

    yield open_it
    assert [problem for each in visits for problem in each.problems] == []


# -- what is opened --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def reports(tmp_path_factory):
    """Make reports by name, each once."""
    made: dict[str, Any] = {}

    def demo(other: str, **options: Any):
        sides = [str(ROOT / "demo" / "models" / name) for name in ("base", other)]
        return compare(*sides, Options(**options), settings=Settings())

    def hostile():
        folder = hostile_model(tmp_path_factory.mktemp("hostile"))
        return compare(str(folder), str(folder), Options(metrics=FEW), settings=Settings())

    makers = {
        "derived": lambda: demo("finetune"),
        "grown": lambda: demo("grown", metrics=FEW),
        "no_evidence": lambda: demo("unrelated", metrics=FEW),
        "untestable": lambda: untestable_report(tmp_path_factory.mktemp("untestable")),
        "empty": lambda: empty_report(tmp_path_factory.mktemp("empty")),
        "hostile model": hostile,
        "hostile": lambda: hostile_report(find("derived")),
        "hostile throughout": lambda: hostile_report(find("hostile model"), everything=True),
        "wide": lambda: wide_report(tmp_path_factory.mktemp("wide"), metrics=FEW),
    }

    def find(name: str):
        if name not in made:
            made[name] = makers[name]()
        return made[name]

    return find


@pytest.fixture(scope="session")
def written(reports, tmp_path_factory):
    """Write a report's page; return the file."""
    from kinprint.render.page.report import report_html

    folder = tmp_path_factory.mktemp("pages")

    def write(name: str, lang: str = "en") -> Path:
        path = folder / f"{name.replace(' ', '-')}.{lang}.html"
        if not path.exists():
            path.write_bytes(report_html(reports(name), lang=lang))
        return path

    return write


# -- what is asked of a page -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def violations(axe_script):
    """Return what axe calls serious or critical, one line for each element."""

    def check(page: Any) -> list[str]:
        page.add_script_tag(content=axe_script)  # the page's own policy forbids it: the context has to bypass that
        found = page.evaluate("async () => (await axe.run(document, {resultTypes: ['violations']})).violations")
        return [
            f"{item['impact']}: {item['id']}: {node['html'][:200]} {json.dumps(node['any'][:1])[:300]}"
            for item in found
            if item["impact"] in ("serious", "critical")
            for node in item["nodes"]
        ]

    return check


@pytest.fixture(scope="session")
def overflow():
    """Return how many pixels the page is wider than its window, and which elements stick out of it."""

    def check(page: Any) -> tuple[int, list[str]]:
        return tuple(page.evaluate(_OVERFLOW))

    return check


_OVERFLOW = """() => {
  const wide = document.scrollingElement.scrollWidth - window.innerWidth;
  const scrolls = (element) => {
    for (let at = element.parentElement; at; at = at.parentElement)
      if (["auto", "scroll", "hidden", "clip"].includes(getComputedStyle(at).overflowX) && at !== document.body
          && at !== document.documentElement) return true;
    return false;
  };
  const out = [...document.body.querySelectorAll("*")]
    .filter((e) => e.getBoundingClientRect().right > window.innerWidth + 1 && !scrolls(e))
    .map((e) => `${e.tagName.toLowerCase()}#${e.id}.${e.getAttribute("class")}: ${Math.round(e.getBoundingClientRect().right)}`);
  return [wide, out.slice(0, 8)];
}"""
