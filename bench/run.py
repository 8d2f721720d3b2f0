"""Run all benches, print their tables, write ``bench/results/latest.json``; exit 1 if a required goal is missed.

With ``--page`` the committed ``bench/RESULTS.md`` is written anew from this run; with ``--joined FILE`` also from what earlier runs
on this machine wrote of the benches that this one leaves out (``--only``).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))  # so that `python bench/run.py` finds its neighbours as `python -m bench` does

LATEST = HERE / "results" / "latest.json"
PAGE = HERE / "RESULTS.md"
BENCHES = {
    "startup": ["bench.startup"],
    "layer_grid": ["bench.layer_grid"],
    "remote_norms": ["bench.remote_norms", "--all"],
    "verdict": ["bench.verdict"],
    "growth": ["bench.growth"],
    "local_read": ["bench.local_read"],
    "gguf": ["bench.gguf"],
    "studies": ["bench.studies"],
    "deep": ["bench.deep"],
    "fingerprints": ["bench.fingerprints"],
    "adding": ["bench.adding"],
    "catalog": ["bench.catalog"],
    "search": ["bench.search"],
    "whole_search": ["bench.whole_search"],
    "reports": ["bench.reports"],
    "scan": ["bench.scan"],
    "serve_browser": ["bench.serve_browser"],
    "scale": ["bench.scale"],
    "calibration": ["bench.calibration"],
}
# Tests run in small sizes what these measure.
NOT_QUICK = frozenset({"studies", "search", "whole_search", "scan", "serve_browser", "scale"})
WAITS = "remote_norms"  # for its rivals, most of the time: in small sizes the others run beside it
_ABOUT = """# Bench results

Written by `python -m bench --page`. To repeat: `make bench` (about fifteen minutes, most of it spent waiting for the slowest
rivals and on the studies, and some ten for the calibration, which has a page of its own); `make bench-quick` is a smoke
test. Each table compares ways of doing one thing in one run on one machine; of times only the ratios are judged, and "NO"
marks a goal that this run missed.

Machine: {machine}.

**The floor** of the remote bench is the least time in which one tensor of such a repository can be read at all. It is
measured, not computed: five requests, each of which needs the answer to the one before (description of the branch, index,
look-up of a shard, header, tensor), over one kept-alive connection to the hub and one to the CDN, written with `http.client`;
over TLS the two handshakes count too. It parses nothing but the commit. The hub runs in a process of its own on the same
machine, delays each response by 50 ms, and over TLS the first response on a connection by 100 ms more: the round trips of a
TCP and a TLS 1.3 handshake. kinprint and the floor run in turns, and their medians are compared. kinprint reads all norms in
that time and is told only the repository's name. Imports are done before the clock starts; opening and closing the session
is inside. The slow ways run once.

"Bytes received" are bodies as the server counts them. "Needed" are the index, the headers of the shards that hold norms, and
the norms. Peak memory is that of a new process which imports kinprint and reads all norms. The two loops of the layer bench
compute the same figures to 1e-9: the first calls `scipy.stats.pearsonr` and `norm.logsf` for each pair, the lean one spells
all out in numpy. Most of the first one's time is spent inside these calls, so the second is the fairer measure of the algebra.

The verdict bench runs `kinprint compare` from names to verdict on sparse repositories whose truth is known, as a user would,
against the same hub; it takes 1.8 GB of disk. What it may transfer and hold in memory is judged, and the verdicts; how long
it takes is set beside the floor of one tensor, which leaves out all computing.

**Growth** is the exponent of CPU and of peak memory in what must be read, as models get deeper, wider, get more experts or more
tensors: judged is the exponent at the top, from the largest model but one to one twice as large. Models are sparse,
the largest takes 0.3 GB of disk, and no budget cuts what is read.

**Plain reading** of a local file is one thread that takes it batch by batch from the page cache, with `read()` or with
`readinto()` into one buffer; the faster of the two is what the goal is held against. kinprint reads with all cores and decodes
to float32, which doubles the bytes of BF16; the barest loop that does the same is shown as the floor. Decoding of GGUF is held
against the `gguf` package in one thread, bit by bit.

"""


def run_bench(command: list[str], *, quick: bool) -> tuple[list[dict[str, object]], int]:
    """Run one bench in an interpreter of its own, so that neither imports nor settings of one reach another."""
    with tempfile.TemporaryDirectory(prefix="bench-") as made:
        out = Path(made) / "out.json"
        line = [sys.executable, "-m", *command, "--json", str(out), *(["--quick"] if quick else [])]
        status = subprocess.run(line, cwd=HERE.parent, check=False).returncode
        reports = json.loads(out.read_text(encoding="utf-8"))["reports"] if out.exists() else []
    return reports, status


def page(parts: Sequence[dict[str, Any]]) -> str:
    """Return the committed page for documents as written to JSON: of each bench the first that has it."""
    from bench.common import Report, goal_table

    document, *others = parts
    by_bench: dict[str, list[dict[str, Any]]] = {}
    for name in BENCHES:
        found = ([each for each in part["reports"] if each["bench"].startswith(name)] for part in parts)
        by_bench[name] = next(filter(None, found), [])
    if lacking := [name for name, found in by_bench.items() if not found]:
        raise SystemExit(f"bench: the page needs all benches, and {', '.join(lacking)} did not run")
    for other in others:
        if {**other["machine"], "load_1min": None} != {**document["machine"], "load_1min": None}:
            raise SystemExit(f"bench: runs of two machines make no page: {document['machine']} and {other['machine']}")

    said, loads = document["machine"], [part["machine"]["load_1min"] for part in parts]
    machine = (
        f"{said['cores']} cores ({said['architecture']}, {said['system']}), Python {said['python']}, numpy {said['numpy']}, "
        f"urllib3 {said['urllib3']}; load average at the end of each run: {', '.join(map(str, loads))}"
    )
    reports = [Report.from_dict(each) for name in BENCHES for each in by_bench[name]]
    known = [goal for report in reports for goal in report.goals if goal.before is not None]
    first = "\n".join(["### Goals, before and now", "", *goal_table(known), "", ""]) if known else ""
    return _ABOUT.format(machine=machine) + first + "\n".join(report.markdown() for report in reports)


def main(argv: list[str] | None = None) -> int:
    """Run what was asked for."""
    from bench.common import parser, write_json

    line = parser("bench", __doc__)
    line.add_argument("--only", action="append", choices=sorted(BENCHES), help="may be repeated")
    line.add_argument("--page", action="store_true", help="write bench/RESULTS.md; needs all benches")
    line.add_argument(
        "--joined", action="append", type=Path, default=[], metavar="FILE", help="what an earlier run wrote"
    )
    line.add_argument(
        "--before", type=Path, metavar="CHECKOUT", help="another version, whose verdicts are timed in the same run"
    )
    asked = line.parse_args(argv)
    benches = BENCHES
    if asked.before:
        benches = BENCHES | {"verdict": [*BENCHES["verdict"], "--before", str(asked.before.resolve())]}
    if asked.page and (asked.quick or (asked.only and not asked.joined)):
        line.error("--page needs a full run of all benches")
    reports: list[dict[str, object]] = []
    failed: list[str] = []
    left_out = BENCHES.keys() - set(asked.only) if asked.only else NOT_QUICK if asked.quick else ()
    chosen = [name for name in BENCHES if name not in left_out]
    with ThreadPoolExecutor(1) as pool:
        beside = pool.submit(run_bench, BENCHES[WAITS], quick=True) if asked.quick and WAITS in chosen else None
        for name in sorted(chosen, key=lambda name: bool(beside) and name == WAITS):  # last, if it was begun
            print(f"## {name}\n", flush=True)
            began = time.perf_counter()
            begun = beside if name == WAITS else None
            found, status = begun.result() if begun else run_bench(benches[name], quick=asked.quick)
            print(f"{name} took {time.perf_counter() - began:.0f} s\n", flush=True)
            reports += found
            if status != 0:
                failed.append(name)
    out = asked.json or LATEST
    write_json(out, reports)
    if asked.page:
        parts = [json.loads(file.read_text(encoding="utf-8")) for file in (out, *asked.joined)]
        PAGE.write_text(page(parts), encoding="utf-8")
    print(f"Missed or failed: {', '.join(failed)}" if failed else "All goals met.")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
