"""Write reports as CycloneDX ML-BOM: models as components, what weights say of their pedigree, the evidence as properties.

Weights do not say which of two related models came first. CycloneDX has a word for that, *variants* ("the relationship between
the components is not known"); an ancestor is named only where a model's own card declares it and the weights agree. An arrow of a
family tree is a hypothesis: notes and properties tell it. Of many models, a pedigree is what stands after all corrections.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kinprint._util.plain import printable
from kinprint.render.bom.parts import Entry, Pedigree, as_text, bom_json
from kinprint.render.facts import NAME, SHOWN, Facts, pairs_facts, report_facts, schema_of, started
from kinprint.render.parentage import DESCENT, NO_PROOF, direction, direction_among, model_ref, pair_ref, related
from kinprint.render.tables.report import DOES_NOT_STAND, facts_of
from kinprint.render.tables.tidy import Cell
from kinprint.results.context import Declaration
from kinprint.results.findings import NO_EVIDENCE, NOT_TESTABLE
from kinprint.results.report import Report
from kinprint.results.tree import PairsReport, PairSummary, TreeModel

_UNTOLD: dict[str, Any] = {"started": "", "elapsed_s": 0.0, "requests": 0, "retries": 0}
_UNTOLD |= {"network_bytes": 0, "cache_bytes": 0, "local_bytes": 0}

# -- two models ----------------------------------------------------------------------------------------------------------


def report_cyclonedx(report: Report) -> bytes:
    """Return a CycloneDX 1.6 BOM as JSON (UTF-8); the same report always gives the same bytes."""
    found = report.declared
    a = Entry("a", report.a, found.a if found is not None else None)
    b = Entry("b", report.b, found.b if found is not None else None)
    return bom_json(
        [(one, _pedigree(report, two), _model_facts(report, one, two)) for one, two in ((a, b), (b, a))],
        _facts(report),
        # the serial number is equal for two runs that found the same, whenever they ran
        content=replace(report, run=replace(report.run, **_UNTOLD)).to_json(indent=False),
        version=report.run.kinprint,
        started=started(report),
    )


def _pedigree(report: Report, other: Entry) -> Pedigree | None:
    """Return how a model relates to the `other` one, no further than verdict and card together go."""
    verdict = report.verdict
    if verdict is None:
        return None
    told, parent = direction(report)
    notes = f"kinprint: {printable(verdict.sentence, SHOWN)} Direction: {told}."
    if verdict.class_ not in DESCENT:
        return Pedigree(f"{notes} {NO_PROOF}." if verdict.class_ == NO_EVIDENCE else notes, {})
    kind = "variants" if parent is None else "ancestors" if parent == other.key else "descendants"
    return Pedigree(notes, {kind: [other]})


def _model_facts(report: Report, entry: Entry, other: Entry) -> Facts:
    model = report.a if entry.key == "a" else report.b
    return {
        "reference": model.reference,
        "compared_with": other.model.reference,
        "verdict": report.verdict.class_ if report.verdict is not None else "none",
        "direction": direction(report)[0],
        "architecture": printable(model.architecture, NAME) + (" (guessed)" if model.architecture_guessed else ""),
        "layers": model.layers,
        "parameters": model.parameters,
    }


def _facts(report: Report) -> Facts:
    """Return what holds for the pair."""
    verdict, declared = report.verdict, report.declared
    facts = {name: as_text(cell) for name, cell in report_facts(report).items()}
    facts |= {"report_schema": schema_of(report), "direction": direction(report)[0]}
    facts |= {"verdict": facts["verdict"] or "none"}
    if verdict is not None:
        facts |= {"sentence": verdict.sentence, "no_proof": NO_PROOF if verdict.class_ == NO_EVIDENCE else ""}
        facts |= {"evidence": "; ".join(verdict.reasons), "assumptions": "; ".join(verdict.assumptions)}
    if declared is not None:
        facts |= {"declared_against_measured": declared.sentence, "licences": declared.licences or ""}
    controls = tuple(
        f"{printable(control.name, NAME)}: expected {control.expected}, found {control.found or 'nothing'}: {control.status}"
        for control in (report.evidence.controls if report.evidence is not None else ())
    )
    reads = tuple(
        f"{printable(read.model, NAME)}, {printable(read.file, NAME)}: {read.bytes_read} bytes, {read.sha256}"
        for read in report.reads
    )
    return {**facts, "control": controls, "reads_sha256": reads}


# -- many models ---------------------------------------------------------------------------------------------------------


def pairs_cyclonedx(report: PairsReport) -> bytes:
    """Return a CycloneDX 1.6 BOM of many models as JSON (UTF-8); the same report always gives the same bytes."""
    tree = report.tree
    entries = [Entry(str(model.index + 1), model, _declared(report, model.index)) for model in tree.models]
    return bom_json(
        [
            (entries[model.index], _pedigree_among(report, model, entries), _facts_among(report, model))
            for model in tree.models
        ],
        _common_facts(report),
        content=replace(report, tree=replace(tree, run=replace(tree.run, elapsed_s=0.0, bytes_read=0))).to_json(
            indent=False
        ),
        version=tree.run.kinprint,
        started=None,  # a report on many models does not tell
    )


def _declared(report: PairsReport, index: int) -> Declaration | None:
    """Return what the card and config of a model say; every pair that it is in tells the same."""
    for pair in report.pairs:
        if pair.declared is not None and index in (pair.a, pair.b):
            return pair.declared.a if index == pair.a else pair.declared.b
    return None


def _pedigree_among(report: PairsReport, model: TreeModel, entries: Sequence[Entry]) -> Pedigree:
    """Return how a model relates to the others, no further than standing verdicts and cards go."""
    relatives: dict[str, list[Entry]] = defaultdict(list)
    notes: list[str] = []
    pairs = [pair for pair in report.pairs if model.index in (pair.a, pair.b)]
    for pair in filter(related, pairs):
        other = entries[pair.b if pair.a == model.index else pair.a]
        told, parent = direction_among(report, pair)
        notes.append(f"{other.ref}: {printable(pair.sentence, SHOWN)} Direction: {told}.")
        if parent is not None:
            relatives["descendants" if parent == model.index else "ancestors"].append(other)
        elif pair.class_ in DESCENT:
            relatives["variants"].append(other)
    if model.node != model.index:
        same = model_ref(model.node)
        notes.append(f"The weights are those of {same}; its relations to further models are told there.")
    elif not notes:
        notes.append(_none_found(pairs))
    return Pedigree("kinprint: " + "\n".join(notes), relatives)


def _none_found(pairs: Sequence[PairSummary]) -> str:
    tested = [pair for pair in pairs if pair.class_ != NOT_TESTABLE]
    if not tested:
        return "this model could not be tested against any of the others: whether it is related to them is not known."
    found = [f"none of {len(tested)} pairs that could be tested shows a relation that stands."]
    if weak := sum(pair.class_ != NO_EVIDENCE for pair in tested):
        found.append(f"{weak} would by themselves, and do not after the correction for all pairs.")
    return " ".join([*found, "This does not prove that there is none."])


def _facts_among(report: PairsReport, model: TreeModel) -> Facts:
    return {
        "number": model.index + 1,
        "name": model.name,
        "reference": model.reference,
        "architecture": printable(model.architecture, NAME),
        "layers": model.layers,
        "experts": model.experts or None,
        "parameters": model.parameters,
        "same_weights_as": model_ref(model.node) if model.node != model.index else "",
        "related_by": tuple(
            pair_ref(pair) for pair in report.pairs if model.index in (pair.a, pair.b) and related(pair)
        ),
    }


def _common_facts(report: PairsReport) -> Facts:
    """Return what holds for all pairs, then each pair under its own name."""
    shared = pairs_facts(report)
    facts: dict[str, Cell] = {
        **shared,
        "report_schema": schema_of(report),
        "correction": f"Holm over the tests of each pair, Bonferroni over {shared['pairs']} pairs",
        "group": tuple(", ".join(map(model_ref, group)) for group in report.clusters if len(group) > 1),
        "note": report.tree.notes,
        "no_proof": NO_PROOF if any(pair.class_ == NO_EVIDENCE for pair in report.pairs) else "",
    }
    for pair in report.pairs:
        cells = facts_of(report, pair)
        if not pair.stands:
            cells = {DOES_NOT_STAND: f"{cells['sentence']} (log10 p {as_text(pair.log10_p_pairs) or 'none'})"}
        facts |= {f"pair:{pair_ref(pair)}:{name}": as_text(cell) for name, cell in cells.items()}
    return facts
