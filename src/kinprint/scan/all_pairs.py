"""Hold all entries of a catalog against each other, on the engine of scans, and make their family graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import combinations
from typing import Any

from kinprint._util.progress import Progress, quiet
from kinprint.catalog.entry import Entry, Problem
from kinprint.catalog.graph import Pair, Shown, declared_pairs, family_graph
from kinprint.catalog.store import Catalog
from kinprint.errors import DegenerateInput, FormatError, NotFound
from kinprint.fingerprints.compact.first_look import Side
from kinprint.fingerprints.compact.proof import prove_sides
from kinprint.fingerprints.file import from_bytes
from kinprint.fingerprints.recall import METHOD, recall_vectors
from kinprint.results.graph import FamilyGraph
from kinprint.scan.engine import Job, Rate, work_off
from kinprint.scan.frames import Message, pack
from kinprint.scan.worker import Parent
from kinprint.scan.workers import Workers
from kinprint.text import Text, text_from_data

WORK = "kinprint.scan.all_pairs:work"
ALL_PAIRS_UP_TO = 60  # entries; their 1,770 pairs take some minutes, and beyond that recall vectors choose
CANDIDATES = 10  # nearest entries of each family of recall vectors
_PAIRS = 16  # of one task: about two seconds of work


def catalog_graph(
    catalog: Catalog,
    workers: Workers,
    *,
    candidates: int | None = None,
    problems: list[Problem] | None = None,
    progress: Progress = quiet,
) -> FamilyGraph:
    """Test pairs of entries and return the graph: all pairs of a small catalog, else those that are declared or near in recall.

    `candidates` is the number of near entries for each family of vectors, 0 for all pairs. An entry whose record is damaged is
    not in the graph, and joins `problems`.
    """
    entries = list(catalog.entries(problems=problems))
    unread: dict[int, Text] = {}  # damaged entries, which stop no other
    few = ALL_PAIRS_UP_TO if candidates is None else len(entries) if candidates == 0 else 0
    if len(entries) <= few:
        pairs: list[Pair] = list(combinations(range(len(entries)), 2))
    else:
        pairs = sorted(
            {*_near(catalog, entries, candidates or CANDIDATES, progress, unread), *declared_pairs(entries)[0]}
        )
    shown: dict[Pair, Shown] = {}
    rate = Rate()

    def tell(_under_way: int) -> None:
        progress(f"pairs, {rate.per_s:.3g}/s", len(shown), len(pairs))

    for asked, answer in work_off(_jobs(catalog, entries, pairs, unread), workers, tell):
        shown.update(_answered(asked, answer))
        for _ in asked:
            rate.count()
    return family_graph(catalog.place, entries, shown, unread)


def _fingerprint(catalog: Catalog, entries: list[Entry], number: int, unread: dict[int, Text]) -> bytes | None:
    """Return the fingerprint of an entry; None if it is damaged or gone, which is noted in `unread`."""
    entry = entries[number]
    try:
        return catalog.fingerprint(entry.key)
    except (FormatError, NotFound) as error:
        unread[number] = Text("the entry {name} cannot be read: {why}", name=entry.name, why=error.message)
        return None


def _near(
    catalog: Catalog, entries: list[Entry], k: int, progress: Progress, unread: dict[int, Text]
) -> Iterator[Pair]:
    numbers = {entry.key: number for number, entry in enumerate(entries)}
    for number, entry in enumerate(entries):
        progress("recall", number, len(entries))
        data = _fingerprint(catalog, entries, number, unread)
        vectors = {} if data is None else recall_vectors(from_bytes(data, entry.name))
        for found in catalog.nearest(vectors, k, exclude=(entry.key,)):
            if (other := numbers.get(found.key)) is not None:
                yield min(number, other), max(number, other)


def _jobs(
    catalog: Catalog, entries: list[Entry], pairs: Iterable[Pair], unread: dict[int, Text]
) -> Iterator[Job[list[Pair]]]:
    """Yield tasks of some pairs each, with the fingerprints that they need; none of pairs with an entry that is damaged."""
    waiting = list(pairs)
    for start in range(0, len(waiting), _PAIRS):
        some = waiting[start : start + _PAIRS]
        needed = sorted({number for pair in some for number in pair} - unread.keys())
        read = {number: _fingerprint(catalog, entries, number, unread) for number in needed}
        parts = {number: data for number, data in read.items() if data is not None}
        places = {number: place for place, number in enumerate(parts)}
        some = [pair for pair in some if places.keys() >= set(pair)]
        if some:
            yield Job(some, pack({"pairs": [[places[a], places[b]] for a, b in some]}, list(parts.values())))


def work(task: Message, _parent: Parent) -> Message:
    """Test some pairs; called in a worker process."""
    found = [_test(task.parts[a], task.parts[b]) for a, b in task.head["pairs"]]
    return Message({"shown": found})


def _test(a: bytes, b: bytes) -> dict[str, Any]:
    try:
        proof = prove_sides(_side(a), _side(b))
    except (DegenerateInput, FormatError) as error:
        return {"log10_p": None, "reason": error.reason.to_data()}
    reason = None if proof.reason is None else proof.reason.to_data()
    told = {"log10_p": proof.log10_p, "tests": proof.tests_run, "in_place": proof.in_place}
    return told | {"standing": proof.standing, "correlation": proof.correlation, "reason": reason}


@lru_cache(maxsize=64)
def _side(raw: bytes) -> Side:
    """Decode a fingerprint, once for as long as its pairs come one after the other."""
    features = from_bytes(raw, "a stored fingerprint").features.get(METHOD)
    if features is None:
        raise DegenerateInput("a fingerprint keeps nothing that exact tests need; add the model again")
    return Side(features, METHOD)


def _answered(asked: list[Pair], answer: Message) -> Iterator[tuple[Pair, Shown]]:
    told = answer.head.get("error")
    if told is not None:
        why = Text("the tests were ended: {why}", why=f"{told['class']}: {told['message']}")
        yield from ((pair, Shown(None, reason=why)) for pair in asked)
        return
    for pair, found in zip(asked, answer.head["shown"], strict=True):
        reason = None if found["reason"] is None else text_from_data(found["reason"])
        figures = {name: found[name] for name in ("tests", "in_place", "standing", "correlation") if name in found}
        yield pair, Shown(found["log10_p"], **figures, reason=reason)
