"""The server in headless chromium without a GPU: a first visit to a verdict, frames of the explorer with 10,000 made-up models."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

from bench.common import Goal, Report, finish, parser

ROOT = Path(__file__).resolve().parents[1]
FRAMES, VERDICT_S = 30.0, 5.0
# Every frame the pointer or the wheel moves; counted are frames that the page drew, by its own count.
DRIVE = """async (seconds) => {
  const canvas = document.getElementById('canvas'), box = canvas.getBoundingClientRect();
  const at = (x, y) => ({ pointerId: 1, clientX: box.left + x, clientY: box.top + y, cancelable: true });
  const first = Number(canvas.dataset.frames), from = performance.now();
  let number = 0, longest = 0, last = from;
  canvas.dispatchEvent(new PointerEvent('pointerdown', at(200, 200)));
  await new Promise((done) => {
    const step = (now) => {
      number += 1;
      longest = Math.max(longest, now - last);
      last = now;
      const [x, y] = [200 + 60 * Math.sin(number / 20), 200 + 60 * Math.cos(number / 17)];
      if (number % 3) canvas.dispatchEvent(new PointerEvent('pointermove', at(x, y)));
      else canvas.dispatchEvent(new WheelEvent('wheel', { ...at(200, 200), deltaY: 30 * Math.sin(number / 40) }));
      if (now - from < 1000 * seconds) requestAnimationFrame(step); else done();
    };
    requestAnimationFrame(step);
  });
  canvas.dispatchEvent(new PointerEvent('pointercancel', at(200, 200)));
  return { fps: (Number(canvas.dataset.frames) - first) / (performance.now() - from) * 1000, longest };
}"""


def main(argv: list[str] | None = None) -> int:
    """Measure and judge."""
    asked = parser("bench.serve_browser", __doc__).parse_args(argv)
    program = shutil.which("chromium")
    if program is None or not all(map(find_spec, ("playwright", "fastapi"))):
        print("NOT RUN: needs make serve browser")
        return finish([], asked.json)
    sys.path[:0] = [str(ROOT / "tests")]
    from playwright.sync_api import sync_playwright

    from support.graphs import synthetic_graph
    from support.serving import Server

    count, seconds = (1_000, 1) if asked.quick else (10_000, 10)
    graph = synthetic_graph(count)
    with tempfile.TemporaryDirectory() as place, sync_playwright() as driver:
        file = Path(place) / "families.json"
        file.write_bytes(graph.to_json(indent=False))
        server = Server(Path(place) / "state", "--local", str(ROOT / "demo" / "models"), "--families", str(file))
        try:
            browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            began = time.perf_counter()
            page.goto(server.base)
            page.locator("button.example").first.click()
            page.wait_for_selector("#verdict")
            verdict = time.perf_counter() - began
            began = time.perf_counter()
            page.goto(f"{server.base}/families")
            page.wait_for_selector("#canvas[data-ready]", timeout=120_000)
            ready = time.perf_counter() - began
            seen = page.evaluate(DRIVE, seconds)
            browser.close()
        finally:
            server.end()
    row = {
        "verdict, 1 click, s": round(verdict, 1),
        "models": count,
        "relations": len(graph.edges),
        "first picture s": round(ready, 1),
        "frames a second": round(seen["fps"], 1),
        "longest frame ms": round(seen["longest"]),
    }
    leave = 3 if asked.quick else 1
    goals = (
        Goal("first visit to the verdict of two demo models", verdict, "<=", VERDICT_S * leave, "s"),
        Goal(f"frames a second, {count:,} models", float(seen["fps"]), ">=", FRAMES / leave, ""),
    )
    return finish([Report("serve_browser", "The server in a browser", (row,), goals)], asked.json)


if __name__ == "__main__":
    raise SystemExit(main())
