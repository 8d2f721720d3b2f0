"""Hold a query against the candidates of a catalog: exact tests where anything agrees, corrected for every entry."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from kinprint.catalog.entry import Candidate, Entry
from kinprint.catalog.store import Catalog
from kinprint.errors import DegenerateInput, FormatError, NotFound, SchemaError
from kinprint.evidence.rules import LOG10_ALPHA
from kinprint.fingerprints.base import Features
from kinprint.fingerprints.compact.first_look import Side, comparable, likeness, worth_testing
from kinprint.fingerprints.compact.proof import Proof, prove_sides
from kinprint.fingerprints.file import from_bytes
from kinprint.fingerprints.recall import METHOD
from kinprint.fingerprints.run import check_arrays
from kinprint.stats.combine import bonferroni
from kinprint.text import Text

LIKE = {"tokens": 0.95, "sorted": 0.8}
"""Correlation from which an entry is listed as looking alike. Of the products of token embeddings independent models of one
tokenizer come to 0.75, those of one random start to 0.85, children to 0.96 and more; sorted norms of strangers to 0.35."""

_FLOOR = -100  # log10 p from which more tests make a p-value larger by their correction, and nothing makes it smaller
_RAW = ("norms", "rows", "embeddings")  # parts that keep values, and not products or ranks of them
_ALIKE_DIGITS = 3  # of cosines that stand out alike: a part that was left alone gives 1, but for rounding
_ROUNDED = 1e-3  # share of values that may be rounded to the neighbouring step where sums were added in another order
BY_CARD = "card"  # what proposes the base that a card names
OTHER_SHAPE = Text("no part of its fingerprint has the kind and the shape of one of this model's")
NAMES = 5  # of entries that could not be compared


@dataclass(frozen=True)
class Found:
    """A candidate that is related, or looks alike."""

    entry: Entry
    cosines: Sequence[tuple[str, float]]
    likeness: dict[str, float]
    proof: Proof | None = None
    log10_p: float | None = None  # corrected for every entry and test
    same: bool = False  # all that both keep


@dataclass
class Outcome:
    """What became of all candidates."""

    related: list[Found] = field(default_factory=list)
    alike: list[Found] = field(default_factory=list)
    tested: int = 0
    beyond: int = 0  # candidates that agree in something and were not tested, because enough were found
    reasons: Counter[Text] = field(default_factory=Counter)
    names: dict[Text, list[str]] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)  # keys of all that were looked at
    agreeing: set[str] = field(default_factory=set)  # keys of those that agree in something
    held: int = 0  # candidates that tests could be run on, had anything agreed

    def missed(self, reason: Text, name: str) -> None:
        """Note a candidate that could not be compared."""
        self.reasons[reason] += 1
        self.names.setdefault(reason, []).append(name)


def features_of(raw: bytes) -> Features:
    """Return the compact part of a fingerprint file; DegenerateInput where there is none that can be used."""
    try:
        found = from_bytes(raw, "the file").features.get(METHOD)
    except (FormatError, SchemaError) as error:
        raise DegenerateInput("its fingerprint cannot be read: {why}", why=error.message[:200]) from error
    if found is None:
        raise DegenerateInput("its fingerprint has no compact part")
    if found.version != 1:
        raise DegenerateInput("its compact part is of version {a}, expected {b}", a=found.version, b=1)
    check_arrays(found, "B")
    return found


def by_entry(candidates: Sequence[Candidate]) -> dict[str, list[tuple[str, float]]]:
    """Group candidates by entry, those first that stand out most of what strangers show in their family.

    Many relatives keep one part as it was, such as norms: of those that stand out alike, those first that agree in more parts,
    so that a copy is never the one beyond the limit. What a card names comes before all.
    """
    found: dict[str, list[tuple[str, float]]] = {}
    for item in candidates:
        found.setdefault(item.key, []).append((item.family, float(item.cosine)))

    def order(pair: tuple[str, list[tuple[str, float]]]) -> tuple[float, ...]:
        cosines = [cosine for _, cosine in pair[1]]
        strangers = not _is_named(pair[1])
        return strangers, -round(max(cosines), _ALIKE_DIGITS), -sum(max(0.0, cosine) for cosine in cosines)

    return dict(sorted(found.items(), key=order))


def _is_named(cosines: Sequence[tuple[str, float]]) -> bool:
    return any(family == BY_CARD for family, _ in cosines)


def hold_against(
    query: Features,
    catalog: Catalog,
    candidates: Sequence[Candidate],
    entries: int,
    limit: int,
    outcome: Outcome,
    tell: Callable[[int, int], None],
) -> None:
    """Look at every candidate not seen yet, and run the exact tests on those that agree in anything, up to `limit` relatives.

    What a card names is always tested.
    """
    own = Side(query, "A")
    new = {key: cosines for key, cosines in by_entry(candidates).items() if key not in outcome.seen}
    outcome.seen |= new.keys()
    for done, (key, cosines) in enumerate(new.items()):
        tell(done, len(new))
        label = key[:12]
        try:
            entry = catalog.get(key)
            label = entry.name
            raw = catalog.fingerprint(key)
        except FormatError:  # one damaged entry must not hide the others
            outcome.missed(Text("it is damaged: see {command}", command="kinprint catalog check"), label)
            continue
        except NotFound:
            outcome.missed(Text("it was removed while the search ran"), label)
            continue
        try:
            features = features_of(raw)
            alike, other = likeness(query, features), Side(features, "B")
            agrees = worth_testing(own, other)
            fits = agrees or comparable(own, other)
        except DegenerateInput as error:
            outcome.missed(error.reason, entry.name)
            continue
        outcome.held += fits
        if not fits:
            outcome.missed(OTHER_SHAPE, entry.name)
        if agrees:
            outcome.agreeing.add(key)
        if agrees and len(outcome.related) >= limit and not _is_named(cosines):
            outcome.beyond += 1
            continue
        proof = prove_sides(own, other) if agrees else None
        outcome.tested += agrees
        log10_p = None if proof is None or proof.log10_p is None else bonferroni(proof.log10_p, entries)
        found = Found(entry, cosines, alike, proof, log10_p, same_kept(query, features))
        if log10_p is not None and log10_p <= LOG10_ALPHA:
            outcome.related.append(found)
        elif any(alike.get(name, 0.0) >= least for name, least in LIKE.items()):
            outcome.alike.append(found)
        elif proof is not None and proof.log10_p is None and proof.reason is not None:
            outcome.missed(proof.reason, entry.name)
    outcome.related.sort(key=_order)
    outcome.alike.sort(key=lambda item: (-max(item.likeness.values()), item.entry.name))


def _order(item: Found) -> tuple[object, ...]:
    """Order relatives by p-values to a power of ten; where these are at their floor, by what stands, and how strongly."""
    standing, correlation = (item.proof.standing, item.proof.correlation) if item.proof is not None else (0, 0.0)
    return not item.same, max(round(item.log10_p or 0.0), _FLOOR), -standing, -correlation, item.entry.name


def same_kept(a: Features, b: Features) -> bool:
    """Whether all that two fingerprints keep is the same."""
    return a.arrays.keys() == b.arrays.keys() and all(
        array.shape == b.arrays[name].shape and array.tobytes() == b.arrays[name].tobytes()
        for name, array in a.arrays.items()
    )


def same_weights(a: Features, b: Features) -> bool:
    """Whether two fingerprints may be of the same weights: what is kept of them as it is, but for roundings of another machine."""
    raw = [name for name, array in a.arrays.items() if array.dtype == np.int8 and name.partition(".")[0] in _RAW]
    if not raw:
        return same_kept(a, b)
    pairs = [(a.arrays[name], b.arrays[name]) for name in raw if name in b.arrays]
    if len(pairs) < len(raw) or any(one.shape != two.shape for one, two in pairs):
        return False
    apart = [np.abs(one.astype(np.int16) - two) for one, two in pairs]
    return all(each.max(initial=0) <= 1 and (each > 0).mean() <= _ROUNDED for each in apart if each.size)
