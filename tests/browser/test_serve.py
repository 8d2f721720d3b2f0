"""The server in a real browser: from the first visit to a verdict, reload, two at once, cancel, phone, axe, no outside request."""

import re
from dataclasses import replace

import pytest

from kinprint.catalog.adding import add_model
from kinprint.catalog.graph import Shown, family_graph
from kinprint.catalog.store import open_catalog
from kinprint.fingerprints.file import write_fingerprint
from kinprint.fingerprints.report import make_fingerprint
from kinprint.sources.settings import Settings
from support.graphs import HOSTILE, synthetic_graph
from support.hub import HubServer
from support.places import DEMO_MODELS

pytest.importorskip("fastapi", reason="the extra serve is not installed")
pytest.importorskip("multipart", reason="the extra serve is not installed")

from support.serving import Server


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """A server with the bundled models, three of which are in its catalog, and with a hub behind it."""
    folder = tmp_path_factory.mktemp("site")
    with open_catalog(folder / "catalog.db") as catalog:
        for name in ("base", "finetune", "unrelated"):
            add_model(catalog, DEMO_MODELS / name, settings=Settings())
        (folder / "families.json").write_bytes(_graph(catalog).to_json())
    how = (
        "--families",
        str(folder / "families.json"),
        "--local",
        str(DEMO_MODELS),
        "--catalog",
        str(folder / "catalog.db"),
        "--rate",
        "100000",
        "--write-rate",
        "1000",
    )
    with HubServer() as hub:
        for name in ("base", "unrelated"):
            hub.add_repo(f"demo/{name}", DEMO_MODELS / name)
        made = Server(folder / "state", *how, HF_ENDPOINT=hub.endpoint)
        yield made
        made.end()


def _graph(catalog):
    """Two that are related and not declared, and a model with a name that no page may believe, declared and not shown."""
    entries = list(catalog.entries())
    stranger = replace(entries[0], key="f" * 64, name=HOSTILE, declared_bases=("base",), licence="<b>mit</b>")
    shown = {(0, 1): Shown(-100.0, 9, 1.0), (0, 2): Shown(-0.1, 9), (0, 3): Shown(-0.2, 9)}
    return family_graph("x", [*entries, stranger], shown)


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
    page.locator("#a").fill("demo/base")  # of the hub
    page.locator("#b").fill("demo/unrelated")
    page.locator("#compare").click()
    page.wait_for_url("**/jobs/**", wait_until="commit")
    page.reload()
    page.wait_for_selector("#verdict")
    assert page.locator("html").get_attribute("lang") == "ko"
    assert "demo/unrelated" in page.locator("#verdict .pair").inner_text()


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
    assert "Relatives:" in page.locator("#answer").inner_text()
    assert "pre-attention norms" in page.locator("main").inner_text()  # by plain names, as in a comparison
    assert str(site.folder) not in page.content()
    file.write_bytes(b"\xff" * 1000)
    page = visitor()
    page.locator("#file").set_input_files(file)
    page.locator("#search").click()
    page.wait_for_selector("#failed")
    assert "not a fingerprint" in page.locator("#failed").inner_text()


def test_the_list_of_results_has_the_answer_of_a_search_in_a_few_words(visitor, stored):
    row = visitor().locator(f"#recent tr:has(a[href*='{stored[1]}'])")
    assert row.locator("td").first.inner_text() == "Relatives: 2 of the 3 compared"


def test_the_theme_is_kept_from_page_to_page(visitor):
    page = visitor()
    page.locator("#theme").select_option("dark")
    page.get_by_role("link", name="API").click()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


SLOW_ANSWERS = """() => { const real = fetch; window.fetch = async (path) => {
  await new Promise((done) => setTimeout(done, 300));
  return real(path);
}; }"""  # as on a busy machine: what was shown before stands meanwhile
A_FRAME = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


@pytest.fixture
def explorer(visitor):
    def open_it(query="", **options):
        page = visitor(f"/families?lang=en{query}", **options)
        page.wait_for_selector("#canvas[data-ready]")
        return page

    return open_it


def test_two_models_of_the_graph_are_chosen_by_keys_and_compared(explorer):
    page = explorer()
    page.locator("#fit").focus()
    page.keyboard.press("Shift+Tab")
    for _ in range(3):  # past the other buttons
        if page.evaluate("document.activeElement.id") != "canvas":
            page.keyboard.press("Shift+Tab")
    seen = set()
    for key in ("Up", "Left", "Down", "Right", "Up", "Left", "Down", "Right", "Up", "Left"):
        page.keyboard.press(f"Arrow{key}")
        name = page.locator("#told").inner_text().removeprefix("At: ")
        if name in ("base", "finetune") and name not in seen:
            seen.add(name)
            page.keyboard.press("Enter")
            page.wait_for_selector(f"#pair input[name={'ab'[len(seen) - 1]}][value={name}]", state="attached")
    assert seen == {"base", "finetune"}
    page.locator("#go").click()
    page.wait_for_selector("#verdict")


def test_a_click_chooses_and_a_drag_moves(explorer):
    page = explorer()
    box = page.locator("#canvas").bounding_box()
    spots = [(x, y) for y in range(10, int(box["height"]), 20) for x in range(10, int(box["width"]) - 60, 20)]
    for x, y in spots:
        page.mouse.move(box["x"] + x, box["y"] + y)
        if page.locator("#canvas.over").count():
            break
    page.mouse.click(box["x"] + x, box["y"] + y)
    page.wait_for_selector("#side-a .chosen")
    assert page.locator("#go").is_disabled()
    frames = int(page.locator("#canvas").get_attribute("data-frames"))
    page.mouse.move(box["x"] + 300, box["y"] + 400)
    page.mouse.down()
    page.mouse.move(box["x"] + 200, box["y"] + 300, steps=5)
    page.mouse.up()
    page.mouse.wheel(0, -200)
    page.evaluate(A_FRAME)
    assert int(page.locator("#canvas").get_attribute("data-frames")) > frames
    assert page.locator("#side-b .chosen").count() == 0


def test_filters_change_graph_and_table_alike_and_stay_in_the_address(explorer):
    page = explorer()
    page.evaluate(SLOW_ANSWERS)
    assert page.locator("#relations tbody tr").count() == 2
    for name, other in (("Shown but not declared", "finetune"), ("Declared but not shown", "img src=x")):
        page.get_by_role("link", name=name).click()
        page.wait_for_selector(".explorer[aria-busy=false]")
        assert page.locator("#canvas").get_attribute("data-relations") == "1"
        assert page.locator("#relations tbody tr").count() == 1
        assert other in page.locator("#relations").inner_text()
    assert "kind=not_shown" in page.url
    page.locator("[name=text]").fill("unrel")
    page.get_by_role("link", name="Everything").click()
    page.wait_for_selector("#canvas[data-models='4']")
    page.locator("[name=text]").fill("unrel")
    page.wait_for_selector("#canvas[data-models='1']")
    page.locator("#language").click()
    page.wait_for_selector("html[lang=ko] #canvas[data-models='1'][data-ready]")


def test_on_paper_there_is_the_table(explorer):
    page = explorer()
    page.emulate_media(media="print")
    assert not page.locator("#canvas").is_visible()
    assert page.locator("#relations").is_visible()


def test_without_scripts_there_are_filters_and_the_table(visitor):
    page = visitor("/families?lang=en", java_script_enabled=False)
    assert not page.locator("#canvas").is_visible()
    page.locator("[name=kind]").select_option("shown")
    page.locator("#filters button").click()
    assert page.locator("#relations tbody tr").count() == 1


def test_a_models_page_shows_its_layers_and_what_is_declared_beside_what_is_shown(visitor, stored):
    page = visitor("/models/finetune?lang=en")
    assert page.locator("svg.layers").count() >= 1
    assert page.get_by_role("link", name="base", exact=True).first.is_visible()
    page.get_by_role("link", name="in the graph").click()
    page.wait_for_selector("#canvas[data-ready][data-relations='1']")


@pytest.mark.nightly
def test_ten_thousand_models_are_drawn_and_moved(browser, tmp_path):
    file = tmp_path / "families.json"
    file.write_bytes(synthetic_graph(10_000).to_json(indent=False))
    server = Server(tmp_path / "state", "--families", str(file))
    page = browser.new_page()
    page.goto(f"{server.base}/families")
    page.wait_for_selector("#canvas[data-ready][data-models='10000']", timeout=120_000)
    page.locator("#canvas").focus()
    before = int(page.locator("#canvas").get_attribute("data-frames"))
    for _ in range(20):
        page.keyboard.press("Shift+ArrowLeft")
        page.evaluate(A_FRAME)
    assert int(page.locator("#canvas").get_attribute("data-frames")) >= before + 20  # bench.serve_browser: in what time
    page.close()
    server.end()


PLACES = (
    "/families",
    "/models/finetune",
    "/",
    "/results/{0}/verification",
    "/results/{0}/cite",
    "/results/{1}",
    "/models/grown",
    "/api",
    "/nothing",
)
LOOKS = [(place, "light", "en", 1280) for place in PLACES] + [
    (place, "dark", "ko", 390) for place in ("/", "/models/finetune", "/families")
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
