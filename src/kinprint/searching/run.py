"""Search a catalog for the relatives of a model."""

import math
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kinprint._util.progress import Progress, quiet
from kinprint._version import __version__
from kinprint.catalog.adding import fingerprint_model
from kinprint.catalog.entry import Candidate, Item
from kinprint.catalog.store import Catalog, open_catalog
from kinprint.comparison.pipeline import compare
from kinprint.errors import BadSelection, DegenerateInput, KinprintError
from kinprint.evidence.verdict import LOG10_ALPHA
from kinprint.fingerprints.file import SUFFIX
from kinprint.refs import path_text
from kinprint.results.findings import NO_EVIDENCE, NOT_TESTABLE
from kinprint.results.options import Options
from kinprint.results.search import (
    LOOK_ALIKE,
    RELATED,
    SAME_FILES,
    SAME_KEPT,
    FamilySearched,
    FoundModel,
    NotCompared,
    SearchedModel,
    SearchReport,
    SharedTest,
    Verified,
)
from kinprint.searching.candidates import NAMES, Found, Outcome, features_of, hold_against
from kinprint.searching.power import power_of
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings
from kinprint.stats.combine import bonferroni
from kinprint.text import Text

CANDIDATES = 10  # of each family: what recall@10 in docs/search.md speaks of
LIMIT = 10  # relatives that are proven and listed
_SIZE_ONLY = " bytes"  # how the identity of a file ends where only its size is known


def search(
    query: str | Path,
    catalog: Catalog | str | Path | None = None,
    options: Options | None = None,
    *,
    verify: int = 0,
    limit: int = LIMIT,
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
    verify : compare the weights of the first so many that were found, for a full verdict.
    limit : relatives that are proven and listed, and as many look-alikes.
    settings, session, progress : as for `kinprint.compare`.
    """
    if limit < 1 or verify < 0:
        raise BadSelection(f"limit {limit} and verify {verify}: expected at least 1 and at least 0")
    wanted = Options.of(options, **chosen).check()
    if not isinstance(catalog, Catalog):
        with open_catalog(catalog, read_only=True) as opened:
            how: dict[str, Any] = {"settings": settings, "session": session, "progress": progress}
            return search(query, opened, options, verify=verify, limit=limit, **how, **chosen)
    item = fingerprint_model(query, options, settings=settings, session=session, progress=progress, **chosen)
    report = search_item(path_text(query), item, catalog, limit=limit, progress=progress)
    found = list(report.found)
    for place, one in enumerate(found[:verify]):
        (progress or quiet)("verify", place, min(verify, len(found)))
        how = {"options": replace(wanted, deep=wanted.deep or one.class_ == LOOK_ALIKE), "session": session}
        verified = _verify(report.query.reference, one, settings=settings, progress=progress, **how)
        found[place] = replace(one, verified=verified)
    return replace(report, found=tuple(found))


def search_item(
    reference: str, item: Item, catalog: Catalog, *, limit: int = LIMIT, progress: Progress | None = None
) -> SearchReport:
    """Find the relatives of a model whose fingerprint is at hand."""
    tell, entry, notes = progress or quiet, item.entry, list[Text]()
    total = catalog.count()
    candidates = catalog.nearest(item.vectors, CANDIDATES, exclude=(entry.key,)) if total else []
    if catalog.find(entry.name, entry.revision) is not None:
        notes.append(Text("a model of this name and revision is in the catalog; the same fingerprint is not listed"))
    features, outcome = None, Outcome()
    try:
        features = features_of(item.fingerprint, entry.name)
        outcome = hold_against(features, catalog, candidates, max(1, total), limit, lambda *at: tell("search", *at))
    except DegenerateInput as error:
        outcome.missed(Text("the model that is looked for: {why}", why=error.reason), entry.name)
    families = _families(item, catalog, candidates)
    found = [*(_found(reference, item, one, total) for one in outcome.related)]
    found += [_found(reference, item, one, total) for one in outcome.alike[:limit]]
    class_ = RELATED if outcome.related else NO_EVIDENCE if item.vectors and features is not None else NOT_TESTABLE
    power = None
    if class_ == NO_EVIDENCE and features is not None and total:
        last = {one.family: one.last_cosine if one.last_cosine is not None else -1.0 for one in families}
        power = power_of(features, item.vectors, last, total)
    return SearchReport(
        schema=SearchReport.SCHEMA,
        schema_version=SearchReport.VERSIONS[-1],
        made_by=f"kinprint {__version__}",
        query=SearchedModel(
            reference,
            entry.name,
            entry.revision,
            entry.architecture,
            entry.layers,
            entry.hidden,
            entry.parameters,
            entry.key,
        ),
        catalog=catalog.place,
        entries=total,
        class_=class_,
        sentence=_sentence(class_, found, total),
        log10_alpha=LOG10_ALPHA,
        found=tuple(found),
        not_listed=outcome.beyond + max(0, len(outcome.alike) - limit),
        families=families,
        candidates=len({one.key for one in candidates}),
        tested=outcome.tested,
        not_compared=_not_compared(outcome, families, total),
        power=power,
        notes=tuple(notes),
    )


def _families(item: Item, catalog: Catalog, candidates: Sequence[Candidate]) -> tuple[FamilySearched, ...]:
    known = dict(catalog.families())
    found = []
    for family in item.vectors:
        cosines = [float(one.cosine) for one in candidates if one.family == family]
        full = len(cosines) >= CANDIDATES  # where fewer came, whatever is there was a candidate
        found.append(FamilySearched(family, known.get(family, 0), len(cosines), min(cosines) if full else None))
    return tuple(found)


def _not_compared(outcome: Outcome, families: Sequence[FamilySearched], total: int) -> tuple[NotCompared, ...]:
    found = [NotCompared(why, count, tuple(outcome.names[why][:NAMES])) for why, count in outcome.reasons.items()]
    lacking = total - max((one.entries for one in families), default=0)
    if lacking:
        found.append(
            NotCompared(
                Text("they have no vector of a kind that this model has: nothing can propose them"), lacking, ()
            )
        )
    return tuple(found)


def _found(reference: str, query: Item, one: Found, total: int) -> FoundModel:
    entry, tests = one.entry, one.proof.tests if one.proof is not None else ()
    shared = [
        SharedTest(test.name, test.scope, test.log10_p, p, test.statistic, test.n)
        for test in tests
        if test.log10_p is not None and (p := bonferroni(test.log10_p_claim or 0.0, max(1, total))) <= LOG10_ALPHA
    ]
    related = one.log10_p is not None and one.log10_p <= LOG10_ALPHA
    kept = SAME_KEPT if one.same else None
    declared = entry.name in query.entry.declared_bases or query.entry.name in entry.declared_bases
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
        same=SAME_FILES if _same_files(query.entry.files, entry.files) else kept,
        log10_p=one.log10_p,
        tests=tuple(sorted(shared, key=lambda test: test.log10_p_search)),
        likeness=tuple(sorted(one.likeness.items())),
        recalled=tuple(one.cosines),
        verify=_command(reference, entry.name, entry.revision, deep=not related),
    )


def _same_files(one: Sequence[tuple[str, str]], two: Sequence[tuple[str, str]]) -> bool:
    """Whether weight files are the same by their identities; equal sizes say nothing."""
    ids = [sorted(identity for _, identity in files) for files in (one, two)]
    return bool(ids[0]) and ids[0] == ids[1] and not any(identity.endswith(_SIZE_ONLY) for identity in ids[0])


def _command(reference: str, name: str, revision: str | None, *, deep: bool) -> str:
    if revision is None or reference.endswith(SUFFIX):
        return ""
    return shlex.join(["kinprint", "compare", reference, f"{name}@{revision}", *(["--deep"] if deep else [])])


def _sentence(class_: str, found: Sequence[FoundModel], total: int) -> Text:
    if class_ == NOT_TESTABLE:
        return Text("Not testable: the fingerprint of this model has nothing that a search could use.")
    alike = sum(one.class_ == LOOK_ALIKE for one in found)
    if class_ == RELATED:
        related = len(found) - alike
        worst = max(one.log10_p or 0.0 for one in found if one.class_ == RELATED)
        return Text(
            "{n} of {total:,} models share weights or their initialisation with this one: for unrelated models the chance that "
            "any one of all agrees like the weakest of these is below 10^{p}.",
            n=related,
            total=total,
            p=math.ceil(worst),
        )
    if alike:
        return Text(
            "No relative among {total:,} models is proven; {n} look alike in what no change of order or basis alters. "
            "Compare the weights (--verify).",
            total=total,
            n=alike,
        )
    return Text("No relative among {total:,} models.", total=total)


def _verify(reference: str, one: FoundModel, **how: Any) -> Verified:
    """Compare the weights of a model that was found; `how` is passed on to `compare`."""
    if reference.endswith(SUFFIX):
        return Verified(None, None, None, Text("not verified: the model that is looked for was given as a fingerprint"))
    if one.revision is None:
        return Verified(None, None, None, Text("not verified: the entry does not say where its weights are"))
    try:
        made = compare(reference, f"{one.name}@{one.revision}", **how)
    except KinprintError as error:
        return Verified(None, None, None, Text("not verified: {why}", why=error.message))
    verdict = made.verdict
    if verdict is None:
        return Verified(NOT_TESTABLE, None, None, made.reason or Text("nothing could be compared"))
    return Verified(verdict.class_, verdict.kind, verdict.log10_p, verdict.sentence)
