"""The server in a real browser: from the first visit to a verdict, reload, two at once, cancel, phone, axe, no outside request."""

import re

import pytest

from kinprint.catalog.adding import add_model
from kinprint.catalog.store import open_catalog
from kinprint.fingerprints.file import write_fingerprint
from kinprint.fingerprints.report import make_fingerprint
from kinprint.sources.settings import Settings
from support.places import DEMO_MODELS

pytest.importorskip("fastapi", reason="the extra serve is not installed")
pytest.importorskip("multipart", reason="the extra serve is not installed")

from support.serving import Server


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """A server with the bundled models, three of which are in its catalog."""
    folder = tmp_path_factory.mktemp("site")
    with open_catalog(folder / "catalog.db") as catalog:
        for name in ("base", "finetune", "unrelated"):
            add_model(catalog, DEMO_MODELS / name, settings=Settings())
    how = (
        "--local",
        str(DEMO_MODELS),
        "--catalog",
        str(folder / "catalog.db"),
        "--rate",
        "100000",
        "--write-rate",
        "1000",
    )
    made = Server(folder / "state", *how)
    yield made
    made.end()


@pytest.fixture
def visitor(browser, site):
    """Open the site in a context of its own; at the end it must have asked nobody else, and have said nothing."""
    contexts, problems = [], []

    def open_it(path="/?lang=en", **options):
        context = browser.new_context(
            **{"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce"} | options
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("console", lambda message: problems.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "request",
            lambda request: None if request.url.startswith((site.base, "data:")) else problems.append(request.url),
        )
        page.goto(site.base + path)
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert problems == []


@pytest.fixture(scope="session")
def stored(site):
    """Ids of a comparison and of a search that are done."""
    pair = site.start("base", "finetune")
    reply = site.ask("/search", form={"model": "grown"})
    search = reply.headers["Location"].partition("?")[0].rpartition("/")[2]
    assert [site.ended(id_)["state"] for id_ in (pair, search)] == ["done", "done"]
    return pair, search


def test_from_the_first_visit_to_a_verdict_with_one_click(visitor):
    page = visitor()
    page.locator("button.example").first.click()  # the only one
    page.wait_for_selector("#verdict")
    assert "Derived, further training" in page.locator("#verdict-title").inner_text()
    assert re.search(r"/results/[0-9a-f]{16}", page.url)


def test_a_reload_in_the_middle_loses_nothing_and_the_names_can_be_typed(visitor):
    page = visitor("/?lang=ko")
    page.locator("#a").fill("base")
    page.locator("#b").fill("unrelated")
    page.locator("#compare").click()
    page.wait_for_url("**/jobs/**", wait_until="commit")
    page.reload()
    page.wait_for_selector("#verdict")
    assert page.locator("html").get_attribute("lang") == "ko"


@pytest.mark.nightly
def test_two_browsers_at_once_each_see_their_own(visitor):
    one, two = visitor(), visitor()
    one.locator("button.example", has_text="grown").click()
    two.locator("button.example", has_text="unrelated").click()
    for page, other in ((one, "grown"), (two, "unrelated")):
        page.wait_for_selector("#verdict")
        assert other in page.locator("#verdict .pair").inner_text()


def test_verified_with_one_click(visitor, stored):
    page = visitor(f"/results/{stored[0]}?lang=en")
    page.locator("#verify").click()
    page.wait_for_selector("#outcome")
    assert page.locator("#outcome").get_attribute("data-outcome") == "verified"


def test_the_served_page_works_as_the_written_one(visitor, stored):
    page = visitor(f"/results/{stored[0]}?lang=en")
    page.locator("#language").click()
    page.wait_for_function("document.documentElement.lang === 'ko'")
    assert "파생" in page.locator("#verdict-title").inner_text()
    assert "내려받기" in page.locator(".service").inner_text()
    with page.expect_download() as download:
        page.locator(".service summary").click()
        page.get_by_role("link", name="report.json").click()
    assert download.value.suggested_filename == f"{stored[0]}-report.json"


def test_an_uploaded_fingerprint_finds_its_relatives_and_junk_is_refused(visitor, site, tmp_path):
    file = tmp_path / "mine.kfp"
    write_fingerprint(file, make_fingerprint(DEMO_MODELS / "finetune", settings=Settings()))
    page = visitor()
    page.locator("#file").set_input_files(file)
    page.locator("#search").click()
    page.wait_for_selector("#answer")
    assert "Related to" in page.locator("#answer").inner_text()
    assert str(site.folder) not in page.content()
    file.write_bytes(b"\xff" * 1000)
    page = visitor()
    page.locator("#file").set_input_files(file)
    page.locator("#search").click()
    page.wait_for_selector("#failed")
    assert "not a fingerprint" in page.locator("#failed").inner_text()


def test_the_theme_is_kept_from_page_to_page(visitor):
    page = visitor()
    page.locator("#theme").select_option("dark")
    page.get_by_role("link", name="API").click()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


PLACES = ("/", "/results/{0}/verification", "/results/{0}/cite", "/results/{1}", "/models/grown", "/api", "/nothing")
LOOKS = [(place, "light", "en", 1280) for place in PLACES] + [
    (place, "dark", "ko", 390) for place in ("/", "/models/grown")
]


@pytest.mark.parametrize(("place", "scheme", "lang", "width"), LOOKS)
def test_axe_finds_nothing_serious_and_nothing_sticks_out(
    browser, site, stored, violations, overflow, place, scheme, lang, width
):
    context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme, bypass_csp=True)
    page = context.new_page()
    page.goto(f"{site.base}{place.format(*stored)}?lang={lang}")
    assert page.locator("html").get_attribute("lang") == lang
    assert violations(page) == []
    assert overflow(page)[0] <= 0
    context.close()
