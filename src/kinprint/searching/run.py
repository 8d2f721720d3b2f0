"""Search a catalog for the relatives of a model."""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from kinprint._util.plain import printable
from kinprint._util.progress import Progress, quiet
from kinprint._version import __version__
from kinprint.catalog.adding import fingerprint_model
from kinprint.catalog.entry import Candidate, Entry, Item
from kinprint.catalog.file import PATH_CHARS
from kinprint.catalog.graph import same_files
from kinprint.catalog.store import Catalog, open_catalog
from kinprint.comparison.pipeline import compare
from kinprint.errors import BadSelection, DegenerateInput, FormatError, NotFound
from kinprint.evidence.rules import LOG10_ALPHA
from kinprint.fingerprints.base import Features
from kinprint.fingerprints.recall import IN_PLACE
from kinprint.refs import path_text
from kinprint.results.findings import NO_EVIDENCE, NOT_TESTABLE
from kinprint.results.options import USUAL_LIMIT, Options
from kinprint.results.search import (
    LOOK_ALIKE,
    NAMED,
    RELATED,
    SAME_FILES,
    SAME_KEPT,
    FamilySearched,
    FoundModel,
    NotCompared,
    SearchedModel,
    SearchReport,
    SharedTest,
)
from kinprint.searching.candidates import (
    BY_CARD,
    NAMES,
    OTHER_SHAPE,
    Found,
    Outcome,
    features_of,
    hold_against,
    same_weights,
)
from kinprint.searching.power import power_of
from kinprint.searching.verifying import command_of, place_of, sentence_of, verified
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings
from kinprint.stats.combine import bonferroni
from kinprint.text import Text

CANDIDATES = 10  # of each family: what recall@10 in docs/search.md speaks of
_WIDER = 4  # times as many are looked at where the nearest all agree
_IN_PLACE = frozenset(IN_PLACE)
_OTHER_WIDTH = Text(
    "they are not of this model's width, and no candidate has a part of the kind and the shape of one of its"
)


def search(
    query: str | Path,
    catalog: Catalog | str | Path | None = None,
    options: Options | None = None,
    *,
    verify: int = 0,
    limit: int = USUAL_LIMIT,
    local: str | Path | None = None,
    settings: Settings | None = None,
    session: Session | None = None,
    progress: Progress | None = None,
    **chosen: Any,
) -> SearchReport:
    """Find the relatives of a model in a catalog.

    Parameters
    ----------
    query : hub id, folder, file, URL, or fingerprint file (``.kfp``).
    catalog : an open catalog, its file or address; None for the user's own.
    options, chosen : for reading the model, and for the comparisons of `verify`.
    verify : compare the weights of the first so many that were found, and of bases that the card names, for a full verdict.
    limit : relatives that are proven and listed, and as many look-alikes.
    local : folder in which entries without a repository are, each under its name: a catalog keeps no paths.
    settings, session, progress : as for `kinprint.compare`.
    """
    if limit < 1 or verify < 0:
        raise BadSelection(f"limit {limit} and verify {verify}: expected at least 1 and at least 0")
    wanted, folder = Options.of(options, **chosen).check(), None if local is None else Path(local)
    if folder is not None and not folder.is_dir():
        raise NotFound(f"no such folder: {folder}", hint="it holds the models of this machine that the catalog names")
    how: dict[str, Any] = {"settings": settings, "session": session, "progress": progress}
    if not isinstance(catalog, Catalog):
        with open_catalog(catalog, read_only=True) as opened:
            return search(query, opened, options, verify=verify, limit=limit, local=local, **how, **chosen)
    item = fingerprint_model(query, options, **how, **chosen)
    report = search_item(path_text(query), item, catalog, wanted, limit=limit, local=folder, progress=progress)
    tell = progress or quiet
    report = verified(
        report,
        catalog.get,
        wanted,
        count=verify,
        local=folder,
        compare_with=lambda asked, place: compare(path_text(query), place, asked, **how),
        holds=lambda key, place: _holds(catalog, key, fingerprint_model(place, **_of_place(place, wanted), **how)),
        tell=lambda done, of: tell("verify", done, of),
    )
    return _with_power(report, item)  # weights may have disproved all relatives


def _of_place(place: str, wanted: Options) -> dict[str, Any]:
    """Return which files and bases of those that were named a comparison takes for a place of this machine."""
    return {"bases": wanted.bases, "files": tuple(file for file in wanted.files if (Path(place) / file).is_file())}


def _holds(catalog: Catalog, key: str, found: Item) -> bool:
    """Whether a model is, as far as fingerprints tell, the one that was entered.

    The files of fingerprints of one model differ where a copy in the hub's own cache was read, or by another version.
    """
    with suppress(DegenerateInput, FormatError, NotFound):
        return same_weights(features_of(catalog.fingerprint(key)), features_of(found.fingerprint))
    return False


def search_item(
    reference: str,
    item: Item,
    catalog: Catalog,
    options: Options | None = None,
    *,
    limit: int = USUAL_LIMIT,
    local: Path | None = None,
    progress: Progress | None = None,
) -> SearchReport:
    """Find the relatives of a model whose fingerprint is at hand, which was read with `options`."""
    entry, settings, total = item.entry, (options or Options()).public(), catalog.count()
    itself, notes = _itself(item, catalog)
    named = _named(entry, catalog, itself, notes)
    outcome = Outcome()
    features, families = _held(item, catalog, (itself, named), total, limit, outcome, notes, progress or quiet)
    not_compared = _not_compared(outcome, families, total, catalog, itself)
    compared = max(0, total - len(itself) - sum(one.count for one in not_compared))
    if compared and not outcome.held and not catalog.has_width(entry.hidden, besides={*outcome.seen, *itself}):
        not_compared = (*not_compared, NotCompared(_OTHER_WIDTH, compared, (), near=False))
        compared = 0
    alike = _listed(outcome.alike, named, limit)
    listed = [_found(reference, item, one, total, local, settings) for one in (*outcome.related, *alike)]
    unshown = [Found(one, (), {}) for one in named if one.key not in {shown.key for shown in listed}]
    by_card = [replace(_found(reference, item, one, total, local, settings), class_=NAMED) for one in unshown]
    found = (*listed, *by_card)
    usable = features is not None and not _IN_PLACE.isdisjoint(item.vectors) and compared > 0
    class_ = RELATED if outcome.related else NO_EVIDENCE if usable else NOT_TESTABLE
    report = SearchReport(
        schema=SearchReport.SCHEMA,
        schema_version=SearchReport.VERSIONS[-1],
        made_by=f"kinprint {__version__}",
        query=_searched(reference, entry),
        catalog=catalog.place,
        entries=total,
        class_=class_,
        sentence=_untested(item, features, total)
        if class_ == NOT_TESTABLE
        else sentence_of(class_, found, compared, more=outcome.beyond > 0),
        log10_alpha=LOG10_ALPHA,
        found=found,
        not_listed=outcome.beyond + len(outcome.alike) - len(alike),
        families=families,
        candidates=len(outcome.seen),
        tested=outcome.tested,
        not_compared=not_compared,
        power=None,
        notes=tuple(notes),
        compared=compared,
        local=None if local is None else printable(path_text(local), PATH_CHARS),
        not_tested=outcome.beyond,
        limit=limit,
        settings=settings,
    )
    return _with_power(report, item)


def _held(
    item: Item,
    catalog: Catalog,
    apart: tuple[Sequence[str], Sequence[Entry]],
    total: int,
    limit: int,
    outcome: Outcome,
    notes: list[Text],
    tell: Progress,
) -> tuple[Features | None, tuple[FamilySearched, ...]]:
    """Hold a model against the candidates of every family, and what its card names; keys that are the model itself are left out."""
    (itself, named), features, candidates = apart, None, list[Candidate]()
    asked = [Candidate(one.key, BY_CARD, -1.0) for one in named]
    each = at_first = max(CANDIDATES, limit)
    if not catalog.recall_is_exact:
        notes.append(
            Text(
                "the catalog is searched by lists, of which a part is looked through: of the nearest some may be missed"
            )
        )
    try:
        features = features_of(item.fingerprint)
        for each in (at_first, _WIDER * at_first):
            candidates = catalog.nearest(item.vectors, each, exclude=itself) if total else []
            both = [*candidates, *asked]
            hold_against(features, catalog, both, max(1, total), limit, outcome, lambda *at: tell("search", *at))
            if not _crowded(candidates, each, outcome):
                break
        else:
            notes.append(
                Text("all of the {n} nearest agree in something: there may be more relatives (--limit)", n=each)
            )
    except DegenerateInput as error:
        outcome.missed(Text("the model that is looked for: {why}", why=error.reason), item.entry.name)
    return features, _families(item, catalog, candidates, each)


def _listed(alike: Sequence[Found], named: Sequence[Entry], limit: int) -> list[Found]:
    """Return the look-alikes that are listed: so many, and what the card names."""
    keys = {one.key for one in named}
    return [one for place, one in enumerate(alike) if place < limit or one.entry.key in keys]


def _with_power(report: SearchReport, item: Item) -> SearchReport:
    """Return the report with the weakest relation that would have been found, where none was."""
    if report.class_ != NO_EVIDENCE or report.power is not None:
        return report
    last = {one.family: one.last_cosine if one.last_cosine is not None else -1.0 for one in report.families}
    power = power_of(features_of(item.fingerprint), item.vectors, last, report.entries)
    if power.correlation is not None:
        return replace(report, power=power)
    said = Text(
        "Not testable: no relation planted in this model, up to a correlation of {r}, would have been found.",
        r=power.tried[-1],
    )
    return replace(report, power=power, class_=NOT_TESTABLE, sentence=said)


def _searched(reference: str, entry: Entry) -> SearchedModel:
    shape = entry.architecture, entry.layers, entry.hidden, entry.parameters
    return SearchedModel(printable(reference, PATH_CHARS), entry.name, entry.revision, *shape, entry.key)


def _found_as(
    name: str, catalog: Catalog, notes: list[Text], revision: str | None = None, *, any_case: bool = False
) -> Entry | None:
    """Return the entry of a name; None also for a damaged one, which is noted."""
    try:
        return catalog.find(name, revision, any_case=any_case)
    except FormatError as error:
        notes.append(
            Text("an entry has the name {name}, and its record cannot be read: {why}", name=name, why=error.message)
        )
        return None


def _named(entry: Entry, catalog: Catalog, itself: Sequence[str], notes: list[Text]) -> list[Entry]:
    """Return the entries that the model's card names as its bases, each once; a base that is not here is noted."""
    found: dict[str, Entry] = {}
    for base in dict.fromkeys(entry.declared_bases):
        said = len(notes)
        one = _found_as(base, catalog, notes, any_case=True)
        if one is not None and one.key not in itself:
            found[one.key] = one
        elif one is None and len(notes) == said:  # a damaged one is noted already
            notes.append(
                Text("the card names {name} as its base, which the catalog does not have: not compared", name=base)
            )
    return list(found.values())


def _itself(item: Item, catalog: Catalog) -> tuple[tuple[str, ...], list[Text]]:
    """Return the key of the entry that is the very model, to be left out, and what to say of one that may be.

    A repository at a commit is one model. The name of a folder says nothing: a copy under the same name is a copy.
    """
    entry, notes = item.entry, list[Text]()
    known = _found_as(entry.name, catalog, notes, entry.revision)
    if known is None:
        return (), notes
    if entry.revision is None:
        return (), [
            Text(
                "an entry has the name of this model; a name on this machine does not tell whether it is the same model"
            )
        ]
    if known.key != entry.key and not _holds(catalog, known.key, item):
        return (), [Text("this repository at this commit is in the catalog with another fingerprint, which is listed")]
    return (known.key,), [Text("this repository at this commit is in the catalog; it is not listed, nor counted")]


def _crowded(candidates: Sequence[Candidate], each: int, outcome: Outcome) -> bool:
    """Whether some family is so full of what agrees that further relatives may not have been among its nearest."""
    agreeing = Counter(one.family for one in candidates if one.key in outcome.agreeing)
    return max(agreeing.values(), default=0) >= each


def _untested(item: Item, features: Features | None, total: int) -> Text:
    if features is None or _IN_PLACE.isdisjoint(item.vectors):
        return Text("Not testable: the fingerprint of this model has nothing that a search could use.")
    if total == 0:
        return Text("Not testable: the catalog has no entries.")
    return Text("Not testable: none of the entries of the catalog ({n:,}) could be compared with this model.", n=total)


def _families(item: Item, catalog: Catalog, candidates: Sequence[Candidate], each: int) -> tuple[FamilySearched, ...]:
    known = dict(catalog.families())
    found = []
    for family in item.vectors:
        cosines = [float(one.cosine) for one in candidates if one.family == family]
        full = len(cosines) >= each  # where fewer came, whatever is there was a candidate
        found.append(FamilySearched(family, known.get(family, 0), len(cosines), min(cosines) if full else None))
    return tuple(found)


def _not_compared(
    outcome: Outcome, families: Sequence[FamilySearched], total: int, catalog: Catalog, itself: Sequence[str]
) -> tuple[NotCompared, ...]:
    found = [
        # another shape is no gap: what derives from this model has its parts
        NotCompared(why, count, tuple(outcome.names[why][:NAMES]), near=why != OTHER_SHAPE)
        for why, count in outcome.reasons.items()
    ]
    comparable = [one for one in families if one.family in _IN_PLACE]
    if total > max((one.entries for one in comparable), default=0):
        # those that were looked at, because of another family or of a card, are among the reasons, or were compared
        asked = [one.family for one in comparable]
        lacking, names = catalog.lacking(asked, NAMES, besides={*outcome.seen, *itself})
        if lacking:
            why = Text("their fingerprints have no part that exact tests could hold against this model's")
            found.append(NotCompared(why, lacking, tuple(names), near=False))
    return tuple(found)


def _found(reference: str, query: Item, one: Found, total: int, local: Path | None, settings: Options) -> FoundModel:
    entry, tests = one.entry, one.proof.tests if one.proof is not None else ()
    shared = [
        SharedTest(test.name, test.scope, test.log10_p, p, test.statistic, test.n)
        for test in tests
        if test.log10_p is not None and (p := bonferroni(test.log10_p_claim or 0.0, max(1, total))) <= LOG10_ALPHA
    ]
    related = one.log10_p is not None and one.log10_p <= LOG10_ALPHA
    kept = SAME_KEPT if one.same else None
    declared = _names(query.entry, entry) or _names(entry, query.entry)
    return FoundModel(
        class_=RELATED if related else LOOK_ALIKE,
        key=entry.key,
        name=entry.name,
        revision=entry.revision,
        architecture=entry.architecture,
        layers=entry.layers,
        hidden=entry.hidden,
        parameters=entry.parameters,
        licence=entry.licence,
        declared=declared,
        same=SAME_FILES if same_files(query.entry, entry) else kept,
        log10_p=one.log10_p,
        tests=tuple(sorted(shared, key=lambda test: test.log10_p_search)),
        likeness=tuple(sorted(one.likeness.items())),
        recalled=tuple(cosine for cosine in one.cosines if cosine[0] != BY_CARD),
        verify=command_of(reference, place_of(entry, local), replace(settings, deep=settings.deep or not related)),
    )


def _names(one: Entry, other: Entry) -> bool:
    """Whether the card of one names the other as its base; the hub's names are the same in capitals."""
    return other.name.lower() in {base.lower() for base in one.declared_bases}
