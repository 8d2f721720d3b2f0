"""Search: recall among a million entries, right relatives after the tests, false relatives, time.

Queries are the members of a zoo: trained models, and edits of them. It is the bundled one (`tests/family/zoo.json`), or another
(``--zoo``), as `kinprint bench lineage --full` trains it. The catalog holds the trained ones, strangers made of their values
with all places drawn anew, and synthetic entries up to a million. Synthetic vectors are random directions where the null is
known, and resemble each other as independent models of one tokenizer do where it is not (`tokens`). A query's own entry is
left out. What is proposed and not proven is settled as `--verify 3` does it: the weights of the three most alike are compared
with --deep.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.common import Cell, Goal, Report, finish, parser
from kinprint.evidence.rules import LOG10_ALPHA
from kinprint.fingerprints.base import Features
from kinprint.fingerprints.compact.first_look import Side, likeness, worth_testing
from kinprint.fingerprints.compact.planting import planted
from kinprint.fingerprints.compact.proof import prove_sides
from kinprint.fingerprints.methods import METHODS
from kinprint.fingerprints.recall import FAMILIES, features_vectors
from kinprint.lab.lineage.verdicts import judge
from kinprint.lab.red_team.models import ROOT
from kinprint.lab.zoo.held import HeldWeights
from kinprint.lab.zoo.store import Zoo
from kinprint.searching.candidates import LIKE
from kinprint.stats.combine import bonferroni

TOP = 10
STRANGERS_ALIKE = 0.7  # mean cosine of `tokens` among independent members of the zoo
UNRELATED = ("independent", "distilled")
ONE_BASIS = "hidden_matched"  # trained to have its teacher's hidden states: it took over the basis, and is no stranger
CHUNK = 50_000
VERIFIED = 3  # proposals whose weights are compared
SHOWN = ("recalled", "proven", "found", "settled")
Vectors = Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True)
class Known:
    """A model, as a catalog would hold it."""

    name: str
    features: Features
    vectors: Vectors


def unrelated(zoo: Zoo, a: str, b: str) -> bool:
    """Whether nothing of two members goes back to one model, not even norms that were trained among another's weights."""
    return ONE_BASIS not in (a, b) and zoo.relation(a, b) in UNRELATED and not _origins(zoo, a) & _origins(zoo, b)


def _origins(zoo: Zoo, name: str) -> set[str]:
    links = [link.parent for link in zoo.members[name].links if link.kind != "outputs"]
    return {name}.union(*(_origins(zoo, parent) for parent in links))


def known_models(zoo: Zoo, names: Sequence[str]) -> dict[str, Known]:
    """Return the compact fingerprints of members of a zoo."""
    found = {}
    for name in names:
        features = METHODS["compact"].extract(HeldWeights(name, *zoo.load(name)))  # type: ignore[attr-defined]
        found[name] = Known(name, features, features_vectors(features))
    return found


def synthetic(count: int, base: NDArray[np.float64], family: str, seed: int) -> Iterator[NDArray[np.float32]]:
    """Yield chunks of the vectors of synthetic entries."""
    rng = np.random.default_rng([seed, *family.encode()])
    for start in range(0, count, CHUNK):
        x = rng.standard_normal((min(CHUNK, count - start), FAMILIES[family]), dtype=np.float32)
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        if family == "tokens":
            x = np.float32(np.sqrt(1.0 - STRANGERS_ALIKE)) * x + np.float32(np.sqrt(STRANGERS_ALIKE)) * base.astype(
                np.float32
            )
            x /= np.linalg.norm(x, axis=1, keepdims=True)
        yield x


def last_cosines(
    queries: Mapping[str, Known], entries: int, originals: Sequence[Known]
) -> dict[tuple[str, str], float]:
    """Return for each query and family the cosine of the tenth synthetic entry."""
    found: dict[tuple[str, str], float] = {}
    for family in FAMILIES:
        names = [name for name, one in queries.items() if family in one.vectors]
        asked = np.stack([queries[name].vectors[family] for name in names])
        mean = np.mean([one.vectors[family] for one in originals if family in one.vectors], axis=0)
        best = np.full((len(names), TOP), -1.0, dtype=np.float32)
        for chunk in synthetic(entries, mean / np.linalg.norm(mean), family, 1):
            scores = asked @ chunk.T
            best = np.partition(np.concatenate([best, scores], axis=1), -TOP, axis=1)[:, -TOP:]
        found |= {(name, family): float(best[place].min()) for place, name in enumerate(names)}
    return found


def candidates(query: Known, originals: Mapping[str, Known], last: Mapping[tuple[str, str], float]) -> set[str]:
    """Return the originals among the ten nearest of any family."""
    found = set()
    for family, vector in query.vectors.items():
        near = {
            name: float(vector @ one.vectors[family])
            for name, one in originals.items()
            if family in one.vectors and name != query.name
        }
        first = sorted(near, key=lambda name: -near[name])[:TOP]
        found |= {name for name in first if near[name] > last[query.name, family]}
    return found


def outcome(query: Known, other: Known, entries: int) -> str:
    """Return what a search says of a candidate: related, alike, or nothing."""
    one, two = Side(query.features, "A"), Side(other.features, "B")
    if worth_testing(one, two):
        log10_p = prove_sides(one, two).log10_p
        if log10_p is not None and bonferroni(log10_p, entries) <= LOG10_ALPHA:
            return "related"
    return "alike" if _alike(query, other) else "nothing"


def _alike(a: Known, b: Known) -> bool:
    like = likeness(a.features, b.features)
    return any(like.get(name, 0.0) >= least for name, least in LIKE.items())


def verified(zoo: Zoo, a: str, b: str) -> bool:
    """Whether a comparison of the weights, with --deep, says that two members are related."""
    return (judge(zoo, a, b).value or 0.0) > 0.0


def confirmed(zoo: Zoo, query: Known, originals: Mapping[str, Known], proposed: set[str]) -> set[str]:
    """Return which of the proposals most alike a comparison of the weights confirms."""
    order = sorted(proposed, key=lambda name: (-max(likeness(query.features, originals[name].features).values()), name))
    return {name for name in order[:VERIFIED] if verified(zoo, query.name, name)}


def by_attack(
    zoo: Zoo,
    queries: Mapping[str, Known],
    originals: Mapping[str, Known],
    entries: int,
    false: list[tuple[str, str]],
) -> tuple[list[dict[str, Cell]], Counter[str]]:
    """Return a row for each attack, and totals; add strangers that are called related to `false`."""
    last = last_cosines(queries, entries, list(originals.values()))
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    total: Counter[str] = Counter()
    for name, query in queries.items():
        relatives = {other for other in originals if other != name and zoo.relation(name, other) not in UNRELATED}
        near = candidates(query, originals, last)
        said = {other: outcome(query, originals[other], entries) for other in near}
        strange = {other for other in near if unrelated(zoo, name, other)}
        false += [(name, other) for other in strange if said[other] == "related"]
        if not relatives:
            continue
        member = zoo.members[name]
        row = counts[member.attack]
        right = [said[other] for other in near & relatives]
        told = {
            "n": 1,
            "recalled": bool(right),
            "proven": "related" in right,
            "found": bool({"related", "alike"} & {*right}),
        }
        told["settled"] = told["proven"]
        if told["found"] and not told["proven"]:
            sure = confirmed(zoo, query, originals, {other for other in near if said[other] == "alike"})
            told["settled"] = bool(sure & relatives)
            false += [(name, other) for other in sure if unrelated(zoo, name, other)]
        for key, value in told.items():
            row[key] += value
            total[key] += value
            if member.preserves_function:
                total[f"kept {key}"] += value
    rows: list[dict[str, Cell]] = [
        {
            "attack": attack,
            "n": row["n"],
            **{f"{key} %": round(100 * row[key] / row["n"], 1) for key in SHOWN},
        }
        for attack, row in sorted(counts.items(), key=lambda item: (item[1]["found"] / item[1]["n"], item[0]))
    ]
    return rows, total


def false_pairs(
    zoo: Zoo, queries: Mapping[str, Known], entries: int, most: int, false: list[tuple[str, str]]
) -> Counter[str]:
    """Hold unrelated members against each other, as a search would; add those called related to `false`."""
    pairs = [pair for pair in combinations(queries, 2) if unrelated(zoo, *pair)]
    step = max(1, len(pairs) // most)
    sides = {name: Side(one.features, name) for name, one in queries.items()}
    found: Counter[str] = Counter()
    for a, b in pairs[::step]:
        found["pairs"] += 1
        if worth_testing(sides[a], sides[b]):
            found["tested"] += 1
            log10_p = prove_sides(sides[a], sides[b]).log10_p
            if log10_p is not None and bonferroni(log10_p, entries) <= LOG10_ALPHA:
                false.append((a, b))
        if _alike(queries[a], queries[b]):
            found["alike"] += 1
            if verified(zoo, a, b):
                false.append((a, b))
    return found


def strangers(originals: Sequence[Known], entries: int, count: int) -> tuple[int, int, float]:
    """Hold models against strangers made of real values; return how many were tested, and how many called related."""
    tested = false = 0
    began = time.process_time()
    for seed in range(count):
        one = originals[seed % len(originals)]
        own, other = Side(one.features, "A"), Side(planted(one.features, 0.0, seed), "B")
        if worth_testing(own, other):
            tested += 1
            log10_p = prove_sides(own, other).log10_p
            false += log10_p is not None and bonferroni(log10_p, entries) <= LOG10_ALPHA
    return tested, false, time.process_time() - began


@dataclass(frozen=True)
class Size:
    """How much is run: every so many members of the zoo, entries, unrelated pairs and strangers."""

    every: int
    entries: int
    pairs: int
    strangers: int


FULL, QUICK = Size(1, 1_000_000, 20_000, 1000), Size(30, 5_000, 30, 5)


def measure(size: Size, folder: Path) -> Report:
    """Run everything on the zoo of a folder."""
    zoo = Zoo.open(folder)
    names = list(zoo.members)[:: size.every]
    stored = [name for name in zoo.members if name in zoo.record.stored]
    originals = known_models(zoo, stored)
    queries = known_models(zoo, [name for name in names if name not in originals])
    queries |= {name: originals[name] for name in names if name in originals}
    entries = size.entries
    false: list[tuple[str, str]] = []
    rows, total = by_attack(zoo, queries, originals, entries, false)
    pairs = false_pairs(zoo, queries, entries, size.pairs, false)
    tested, wrong, cpu = strangers(list(originals.values()), entries, size.strangers)
    goals = (
        Goal("recall@10, all attacks", total["recalled"] / total["n"], ">=", 0.99, ""),
        Goal("proven or proposed, all attacks", total["found"] / total["n"], ">=", 0.99, "", required=False),
        Goal("proven, or proposed and verified", total["settled"] / total["n"], ">=", 0.99, "", required=False),
        Goal("changes that keep the function, found", total["kept found"] / max(1, total["kept n"]), ">=", 1.0, ""),
        Goal("false relatives, zoo", float(len(false)), "<=", 0.0, ""),
        Goal("false relatives, strangers of real values", float(wrong), "<=", 0.0, ""),
    )
    facts: dict[str, Cell] = {
        "entries": entries,
        "zoo": zoo.record.tier,
        "queries": len(queries),
        "children": total["n"],
        "proven": round(total["proven"] / total["n"], 4),
        "unrelated pairs": pairs["pairs"],
        "unrelated pairs that exact tests were run on": pairs["tested"],
        "unrelated pairs that look alike": pairs["alike"],
        "strangers": size.strangers,
        "strangers that exact tests were run on": tested,
        "CPU ms a stranger": round(1e3 * cpu / size.strangers, 1),
    }
    title = f"Search among {entries:,} entries: recalled by vectors, proven by exact tests, found with what is proposed"
    notes = tuple(f"called related, and unrelated: {a} and {b}" for a, b in false)
    return Report("search", title, tuple(rows), goals, notes, facts)


def main(argv: list[str] | None = None) -> int:
    """Run it on the bundled zoo, or another."""
    line = parser("bench.search", __doc__)
    line.add_argument("--zoo", type=Path, default=ROOT / "tests" / "family", metavar="FOLDER", help="another zoo")
    asked = line.parse_args(argv)
    return finish([measure(QUICK if asked.quick else FULL, asked.zoo)], asked.json)


if __name__ == "__main__":
    raise SystemExit(main())
