"""A whole search: the fingerprint of a model of 106 billion parameters against a million entries, from recall to the answer.

Entries are the synthetic ones of `bench.catalog`. Those that recall proposes are given fingerprints of strangers of the query's own
size: its values with all places drawn anew. So every candidate is read, looked at and, where anything agrees, tested. Then a
child is entered whose values correlate with the query's at 0.9. "The command" is `kinprint search` on a fingerprint file,
start-up included.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bench import startup
from bench.catalog import FULL, QUICK, fill_file, lineages
from bench.common import Cell, Goal, Report, finish, from_outside, median, parser
from bench.verdict import FILLED_ROWS, TINY
from kinprint.catalog.adding import fingerprint_model
from kinprint.catalog.entry import Item, Vectors, key_of
from kinprint.catalog.sqlite import SqliteCatalog
from kinprint.catalog.store import Catalog
from kinprint.fingerprints.compact.planting import planted
from kinprint.fingerprints.file import Fingerprint, from_bytes, to_bytes
from kinprint.fingerprints.recall import METHOD, features_vectors
from support.layouts import write_sparse_glm_air

WHOLE_S, ROUNDS, SEED = 1.0, 5, 7
# What a child process runs: the search itself, on a fingerprint that is at hand, first and again.
_CHILD = """
import json, resource, sys, time
from pathlib import Path
from kinprint.catalog.adding import fingerprint_model
from kinprint.catalog.sqlite import SqliteCatalog
from kinprint.catalog.store import Catalog
from kinprint.searching.run import search_item
item, took = fingerprint_model(Path(sys.argv[2])), []
with SqliteCatalog(Path(sys.argv[1]), read_only=True) as catalog:
    for _ in range(int(sys.argv[3]) + 1):
        began, used = time.perf_counter(), time.process_time()
        report = search_item("query.kfp", item, catalog)
        took.append((time.perf_counter() - began, time.process_time() - used))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
told = {"class": report.class_, "candidates": report.candidates, "tested": report.tested, "missed": len(report.not_compared)}
print(json.dumps(told | {"took": took, "peak": peak}))
"""


def relative(item: Item, correlation: float, seed: int, vectors: Vectors | None = None) -> Item:
    """Return a model of the query's size whose values correlate with the query's, with its own vectors or given ones."""
    whole = from_bytes(item.fingerprint, "query")
    features = planted(whole.features[METHOD], correlation, seed)
    raw = to_bytes(Fingerprint(replace(whole.description, model=f"planted-{seed}"), {METHOD: features}))
    entry = replace(item.entry, key=key_of(raw), name=f"planted-{seed}")
    return Item(entry, raw, features_vectors(features) if vectors is None else vectors)


def give_fingerprints(catalog: Catalog, item: Item) -> int:
    """Put strangers with fingerprints in the place of the entries that recall proposes."""
    near = sorted({one.key for one in catalog.nearest(item.vectors, 10)})
    for seed, key in enumerate(near):
        asked = "SELECT family, data FROM vectors JOIN entries USING (id) WHERE key = ?"
        rows = catalog._all(asked, key)  # type: ignore[attr-defined]
        vectors = {str(family): np.frombuffer(data, np.float32) for family, data in rows}
        catalog.remove(key)
        catalog.add_all([relative(item, 0.0, seed, vectors)])
    catalog.index()
    return len(near)


def told(path: Path, query: Path) -> dict[str, Any]:
    """Run the searches in a process of their own."""
    line = [sys.executable, "-c", _CHILD, str(path), str(query), str(ROUNDS)]
    found: dict[str, Any] = json.loads(subprocess.run(line, capture_output=True, check=True).stdout)
    return found


def main(argv: list[str] | None = None) -> int:
    """Measure searches without and with a relative."""
    given = parser("bench.whole_search", __doc__).parse_args(argv)
    count: int = QUICK if given.quick else FULL
    rows: list[dict[str, Cell]] = []
    goals: list[Goal] = []
    with tempfile.TemporaryDirectory(prefix="bench-search-") as place:
        folder = Path(place)
        size: dict[str, Any] = TINY if given.quick else {}
        made = write_sparse_glm_air(folder / "model", seed=1, filled_rows=FILLED_ROWS, **size)
        item, path, query = fingerprint_model(folder / "model"), folder / "c.db", folder / "query.kfp"
        query.write_bytes(item.fingerprint)
        fill_file(path, count, lineages(count, SEED), SEED)
        with SqliteCatalog(path) as catalog:
            give_fingerprints(catalog, item)
        for way, expected in (("no relative", "no_evidence"), ("one relative", "related")):
            if expected == "related":
                with SqliteCatalog(path) as catalog:
                    catalog.add_all([relative(item, 0.9, 10_000)])
            seen = told(path, query)
            if seen["class"] != expected or seen["missed"]:
                raise SystemExit(f"whole_search: {way}: {seen}")
            command = [*startup.command()[:-1], "search", str(query), "--catalog", str(path), "--format", "json", "-q"]
            cost = from_outside(command, folder / "out.json", os.environ)
            walls, cpus = zip(*seen["took"][1:], strict=True)
            row: dict[str, Cell] = {"search": way, "s": median(walls), "CPU s": median(cpus)}
            row |= {"first s": seen["took"][0][0], "candidates": seen["candidates"], "tested": seen["tested"]}
            rows.append(row | {"peak MB": seen["peak"] / 1e6, "the command s": cost.wall})
            goals.append(Goal(f"whole search, {way}", median(walls), "<=", WHOLE_S, "s", not given.quick))
    title = f"A whole search: a model of {made.main_parameters / 1e9:.4g} B parameters against {count:,} entries"
    return finish([Report("whole_search", title, tuple(rows), tuple(goals))], given.json)


if __name__ == "__main__":
    raise SystemExit(main())
