"""Make docs/serve.png, the README's picture of `kinprint serve` after two comparisons, and docs/families.png, a made-up graph.

python tools/serve_screenshot.py        (needs make serve browser)
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "src")]

from kinprint.catalog.adding import add_model  # noqa: E402 - after the path to it
from kinprint.catalog.store import open_catalog  # noqa: E402
from support.graphs import synthetic_graph  # noqa: E402
from support.serving import Server  # noqa: E402

SIZE = {"width": 1100, "height": 620}


def main() -> None:
    from playwright.sync_api import sync_playwright

    models = ROOT / "demo" / "models"
    with tempfile.TemporaryDirectory() as place:
        catalog = Path(place) / "catalog.db"
        with open_catalog(catalog) as opened:
            for name in ("base", "finetune", "grown", "unrelated"):
                add_model(opened, models / name)
        graph = Path(place) / "families.json"
        graph.write_bytes(synthetic_graph(400, second="").to_json())
        how = ("--local", str(models), "--catalog", str(catalog), "--families", str(graph))
        server = Server(Path(place) / "state", *how)
        try:
            for other in ("unrelated", "finetune"):
                assert server.ended(server.start("base", other))["state"] == "done"
            with sync_playwright() as driver:
                program = shutil.which("chromium")
                browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
                page = browser.new_page(viewport=SIZE, color_scheme="light")
                page.goto(f"{server.base}/?lang=en")
                page.screenshot(path=ROOT / "docs" / "serve.png", full_page=True)
                page.set_viewport_size({"width": 1100, "height": 900})
                page.goto(f"{server.base}/families?lang=en")
                page.wait_for_selector("#canvas[data-ready]")
                page.evaluate("() => new Promise((done) => setTimeout(done, 500))")  # drawn when it rests
                page.screenshot(path=ROOT / "docs" / "families.png")
                browser.close()
        finally:
            server.end()
    print("wrote docs/serve.png and docs/families.png")


if __name__ == "__main__":
    main()
