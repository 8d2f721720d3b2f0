"""Show that a change of the code changed no figure: make reports and studies with two checkouts, and compare them field by field.

    python tools/same_figures.py make OUT [--tree CHECKOUT] [--options "--metrics all"]
                                                                all pairs of both families, plain and --deep; six studies
    python tools/same_figures.py compare BEFORE AFTER           every figure to 1e-9; lists renamed, added and missing fields

`make` runs the command line of a checkout, so that it works for any version: about six minutes on two cores. A figure differs
if |before − after| > 1e-9 · max(1, |before|). Sentences are compared too; a changed one is listed, and is no failure.
What may differ between two runs of one version (`run`) is left out.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FAMILIES = ("demo/models", "tests/family")
STUDIES = ("baselines", "metrics", "bias", "sanity", "origin", "scale")
TOLERANCE = 1e-9

RENAMED = {
    "schema_version": "2; was 1",
    "p_method": "an identifier (results.p_values.PMethod), with p_detail beside it; was an English phrase",
    "*_data": "new: template and values of the sentence that stands under the name without _data",
    "verdict.variant, edits.direction": "new: what had to be read out of sentences",
    "settings.thorough": "new: whether to read on where what was read settles class and kind",
    "evidence.controls.name": '"rotated self" and "rotated shuffled self"; were "turned …"',
}
"""Fields of schema 1 that are called or written otherwise in schema 2, with what they are now."""


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("make")
    make.add_argument("out", type=Path)
    make.add_argument("--tree", type=Path, default=ROOT)
    make.add_argument(
        "--options", default="", help="further options of compare, such as --metrics all, the default of old"
    )
    compare = commands.add_parser("compare")
    compare.add_argument("before", type=Path)
    compare.add_argument("after", type=Path)
    asked = parser.parse_args()
    if asked.command == "make":
        return make_all(asked.tree.resolve(), asked.out.resolve(), asked.options.split())
    return compare_all(asked.before, asked.after)


def make_all(tree: Path, out: Path, options: list[str]) -> int:
    """Write reports of all pairs and results of the studies, by the command line of a checkout."""
    jobs = [
        (pair, deep, out / family.replace("/", "-") / ("deep" if deep else "plain"))
        for family in FAMILIES
        for pair in itertools.combinations(sorted(path.parent for path in (tree / family).glob("*/config.json")), 2)
        for deep in (False, True)
    ]

    def one(job: tuple[tuple[Path, Path], bool, Path]) -> bool:
        (a, b), deep, place = job
        target = place / f"{a.name}-{b.name}"
        line = ["compare", *(str(side.relative_to(tree)) for side in (a, b)), "--out", str(target), "--no-cache", "-q"]
        _run(tree, [*line, "--format", "table", "--summary", *options, *(["--deep"] if deep else [])])
        return (target / "report.json").exists()

    with ThreadPoolExecutor(os.cpu_count()) as workers:
        made = list(workers.map(one, jobs))
    _run(tree, ["study", *STUDIES, "--replicas", "-q", "--out", str(out / "studies")])
    found = [(out / "studies" / name / "results.json").exists() for name in STUDIES]
    print(f"{sum(made)} of {len(made)} reports, {sum(found)} of {len(found)} studies in {out}")
    return 0 if all(made) and all(found) else 1


def _run(tree: Path, line: list[str]) -> None:
    env = {**os.environ, "PYTHONPATH": str(tree / "src"), "HF_HUB_OFFLINE": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-m", "kinprint", *line], cwd=tree, env=env, capture_output=True, text=True)
    if done.returncode in (1, 2):  # others tell of models
        print(f"failed: kinprint {' '.join(line)}\n{done.stderr[-2000:]}", file=sys.stderr)


def compare_all(before: Path, after: Path) -> int:
    """Compare all JSON files that `before` has with those of `after`; 0 if every figure is equal."""
    files = sorted(
        path.relative_to(before) for path in before.rglob("*.json") if path.name in ("report.json", "results.json")
    )
    differences: Counter[str] = Counter()
    examples: dict[str, str] = {}
    figures = 0
    for file in files:
        if not (after / file).exists():
            differences["missing file"] += 1
            examples.setdefault("missing file", str(file))
            continue
        old, new = (json.loads((side / file).read_bytes()) for side in (before, after))
        for part in (*old.get("parts", ()), *new.get("parts", ())):  # checks of a study may stand in another order
            part["published"].sort(key=_check_key)
        for kind, where, text in compare(old, new, ""):
            if kind == "same":
                figures += 1
                continue
            key = f"{kind}: {where}"
            differences[key] += 1
            examples.setdefault(key, f"{file}: {text}")
    print(f"{len(files)} files, {figures:,} equal figures, to {TOLERANCE:g}")
    for key, count in sorted(differences.items()):
        print(f"{key} ({count} times), such as {examples[key]}")
    print("renamed or written otherwise:")
    for field, now in RENAMED.items():
        print(f"  {field}: {now}")
    wrong = sum(count for key, count in differences.items() if key.startswith(("FIGURE", "missing", "LENGTH")))
    print(f"{wrong} figures differ or are missing" if wrong else "no figure differs")
    return 1 if wrong or not figures else 0


def compare(old: Any, new: Any, where: str) -> Iterator[tuple[str, str, str]]:
    """Yield for every value "same" or what is different, and at which field (without the numbers of lists)."""
    if where == ".run":
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old:
            if key not in new:
                yield "missing field", f"{where}.{key}", repr(old[key])[:80]
            else:
                yield from compare(old[key], new[key], f"{where}.{key}")
        for key in new.keys() - old.keys():
            yield "added field", f"{where}.{key}" if not key.endswith("_data") else "*_data", ""
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            yield "LENGTH", where, f"{len(old)} and {len(new)}"
        for one, two in zip(old, new, strict=False):
            yield from compare(one, two, where)
    elif isinstance(old, bool) or isinstance(new, bool) or old is None or new is None:
        yield ("same" if old == new else "FIGURE"), where, f"{old!r:.80} and {new!r:.80}"
    elif isinstance(old, int | float) and isinstance(new, int | float):
        equal = math.isclose(old, new, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        written = where == ".schema_version"
        yield ("same" if equal else "written otherwise" if written else "FIGURE"), where, f"{old!r} and {new!r}"
    elif type(old) is type(new):
        yield ("same" if old == new else "words"), where, f"{old!r:.100} and {new!r:.100}"
    else:
        yield "FIGURE", where, f"{old!r:.80} and {new!r:.80}"


def _check_key(check: dict[str, Any]) -> tuple[str, str, str, str]:
    figures = (check["published"], check["measured"], check["tolerance"])
    return (check["trust"], *(f"{figure:.9g}" if isinstance(figure, float) else str(figure) for figure in figures))


if __name__ == "__main__":
    raise SystemExit(main())
