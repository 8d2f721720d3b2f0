"""A peer kit beside `kinprint search`: whom of the bundled zoo it calls related, and whom kinprint proves.

    python -m bench.peers --kit PYTHON       (an interpreter that has cisco-ai-provenance-kit 1.0.0 and torch)

Each member is held against all trained ones. The kit decides in two ways: by its own rule, in which equal configurations alone
are a "Confirmed Match", and by the score of its five weight signals, with the threshold (0.75) that its makers fitted. It runs
whole, from folders, without a network. The same pairs go through the exact tests of a search, corrected for all entries.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.common import Cell, Report, finish, parser
from bench.search import UNRELATED, known_models, outcome, unrelated
from kinprint.lab.red_team.models import ROOT
from kinprint.lab.zoo.store import Zoo

# What the kit's interpreter runs: every model is read once, every pair scored by the kit itself.
_CHILD = """
import functools, json, pathlib, sys
from provenancekit.core.scanner import ModelProvenanceScanner
folder = pathlib.Path(sys.argv[1])
scanner = ModelProvenanceScanner()
scanner._extract_model = functools.cache(scanner._extract_model)
told = []
for a, b in json.loads((folder / "pairs.json").read_text()):
    try:
        scores = scanner.compare(str(folder / a), str(folder / b)).scores
        told.append([scores.provenance_decision, scores.identity_score, scores.pipeline_score])
    except Exception as error:
        told.append([f"failed: {type(error).__name__}: {error}"[:200], None, None])
(folder / "told.json").write_text(json.dumps(told))
"""
THRESHOLD = 0.75  # SIMILARITY_THRESHOLD of the kit
Told = tuple[str, float | None, float | None]
WAYS: dict[str, Callable[[Told], bool]] = {
    "kit, its decision": lambda told: (told[2] or 0.0) >= THRESHOLD,
    "kit, its weight signals alone": lambda told: (told[1] or 0.0) >= THRESHOLD,
}


def ask_kit(kit: str, zoo: Zoo, names: Sequence[str], pairs: Sequence[tuple[str, str]]) -> list[Told]:
    """Return decision, score of the weights and score of every pair."""
    with tempfile.TemporaryDirectory(prefix="bench-peers-") as place:
        folder = Path(place)
        for name in names:
            zoo.write(name, folder / name)
        (folder / "pairs.json").write_text(json.dumps(pairs))
        env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        env |= {"HF_HUB_OFFLINE": "1", "HOME": place, "XDG_CACHE_HOME": f"{place}/cache"}
        subprocess.run([kit, "-c", _CHILD, place], check=True, env=env, capture_output=True)
        return [(told[0], told[1], told[2]) for told in json.loads((folder / "told.json").read_text())]


def main(argv: list[str] | None = None) -> int:
    """Hold both against the same pairs."""
    asked = parser("bench.peers", __doc__)
    asked.add_argument("--kit", required=True, metavar="PYTHON")
    asked.add_argument("--every", type=int, default=1, help="of the members, every so many")
    given = asked.parse_args(argv)
    zoo = Zoo.open(ROOT / "tests" / "family")
    originals = [name for name in zoo.members if name in zoo.record.stored]
    names = list(dict.fromkeys([*originals, *list(zoo.members)[:: 30 if given.quick else given.every]]))
    known = known_models(zoo, names)
    pairs = [(a, b) for a in names for b in originals if a != b]
    said = ask_kit(given.kit, zoo, names, pairs)
    rows: list[dict[str, Cell]] = []
    answers = {way: [rule(told) for told in said] for way, rule in WAYS.items()}
    answers["kinprint search, proven"] = [outcome(known[a], known[b], len(originals)) == "related" for a, b in pairs]
    for way, called in answers.items():
        kin: dict[str, bool] = {}
        for (a, b), yes in zip(pairs, called, strict=True):
            if zoo.relation(a, b) not in UNRELATED:
                kin[a] = kin.get(a, False) or yes
        strange = [yes for (a, b), yes in zip(pairs, called, strict=True) if unrelated(zoo, a, b)]
        row: dict[str, Cell] = {"way": way, "models with a relative": len(kin), "found": sum(kin.values()) / len(kin)}
        rows.append(row | {"unrelated pairs": len(strange), "called related": sum(strange)})
    failed = sorted({told[0] for told in said if told[0].startswith("failed")})
    return finish([Report("peers", "Peer kits on the zoo", tuple(rows), (), tuple(failed[:5]))], given.json)


if __name__ == "__main__":
    raise SystemExit(main())
