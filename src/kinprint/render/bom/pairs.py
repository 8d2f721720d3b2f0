"""All pairs of several models as one CycloneDX ML-BOM: each model a component, its pedigree what stands after all corrections.

An ancestor is named where a card declares it and the weights agree, as for two models. An arrow of the tree is a hypothesis: notes
and properties tell it. Relatives without a declared direction are *variants* of each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kinprint._util.plain import printable
from kinprint.render.bom.parts import (
    NAME,
    SHOWN,
    Entry,
    component_of,
    declared_facts,
    files_of,
    properties,
    relative,
    require_library,
    serial_of,
    written,
)
from kinprint.render.parentage import DESCENT, NO_PROOF, direction_among, model_ref, pair_ref, related
from kinprint.render.repeat_command import pairs_command
from kinprint.render.tables.pairs import DOES_NOT_STAND, facts_of
from kinprint.render.tables.tidy import Cell
from kinprint.results.context import Declaration
from kinprint.results.findings import NO_EVIDENCE, NOT_TESTABLE
from kinprint.results.tree import PairsReport, PairSummary, TreeModel

if TYPE_CHECKING:
    from cyclonedx.model.component import Component, Pedigree


def pairs_cyclonedx(report: PairsReport) -> bytes:
    """Return a CycloneDX 1.6 BOM as JSON (UTF-8); the same report always gives the same bytes.

    Raises
    ------
    NeedsExtra
        If cyclonedx-python-lib is not installed.
    """
    require_library()
    entries = [_entry(report, model) for model in report.tree.models]
    run = replace(report.tree.run, elapsed_s=0.0, bytes_read=0)
    settled = replace(report, tree=replace(report.tree, run=run))
    return written(
        entries,
        [_component(report, model, entries) for model in report.tree.models],
        _facts(report),
        serial=serial_of(settled.to_json(indent=False)),
        version=run.kinprint,
        started=None,  # a report on many models does not tell
    )


def _entry(report: PairsReport, model: TreeModel) -> Entry:
    return Entry(
        key=str(model.index + 1),
        reference=model.reference,
        location=model.location,
        on_hub=model.kind == "hub" if model.kind else model.commit is not None,  # nothing else has commits
        commit=model.commit,
        architecture=model.architecture,
        declares=_declared(report, model.index),
    )


def _declared(report: PairsReport, index: int) -> Declaration | None:
    """Return what the card and config of a model say; every pair that it is in tells the same."""
    for pair in report.pairs:
        if pair.declared is not None and index in (pair.a, pair.b):
            return pair.declared.a if index == pair.a else pair.declared.b
    return None


# -- components ----------------------------------------------------------------------------------------------------------


def _component(report: PairsReport, model: TreeModel, entries: Sequence[Entry]) -> Component:
    entry = entries[model.index]
    return component_of(
        entry,
        entry.ref,
        components=files_of(entry, model.files),
        pedigree=_pedigree(report, model, entries),
        properties=properties(_model_facts(report, model, entry)),
    )


def _pedigree(report: PairsReport, model: TreeModel, entries: Sequence[Entry]) -> Pedigree:
    """Return how a model relates to the others, no further than standing verdicts and cards go."""
    from cyclonedx.model.component import Pedigree

    own = entries[model.index]
    ancestors: list[Component] = []
    descendants: list[Component] = []
    variants: list[Component] = []
    notes: list[str] = []
    pairs = [pair for pair in report.pairs if model.index in (pair.a, pair.b)]
    for pair in pairs:
        if not related(pair):
            continue
        other = entries[pair.b if pair.a == model.index else pair.a]
        told, parent = direction_among(report, pair)
        notes.append(f"{other.ref}: {printable(pair.sentence, SHOWN)} Direction: {told}.")
        if parent is not None:
            (descendants if parent == model.index else ancestors).append(relative(other, own))
        elif pair.class_ in DESCENT:
            variants.append(relative(other, own))
    if model.node != model.index:
        notes.append(
            f"The weights are those of {model_ref(model.node)}; its relations to further models are told there."
        )
    elif not notes:
        notes.append(_none_found(pairs))
    return Pedigree(
        ancestors=ancestors, descendants=descendants, variants=variants, notes="kinprint: " + "\n".join(notes)
    )


def _none_found(pairs: Sequence[PairSummary]) -> str:
    tested = [pair for pair in pairs if pair.class_ != NOT_TESTABLE]
    if not tested:
        return "this model could not be tested against any of the others: whether it is related to them is not known."
    found = [f"none of {len(tested)} pairs that could be tested shows a relation that stands."]
    if weak := sum(pair.class_ != NO_EVIDENCE for pair in tested):
        found.append(f"{weak} would by themselves, and do not after the correction for all pairs.")
    return " ".join([*found, "This does not prove that there is none."])


# -- properties ----------------------------------------------------------------------------------------------------------


def _model_facts(report: PairsReport, model: TreeModel, entry: Entry) -> Iterator[tuple[str, str]]:
    yield "kinprint:number", entry.key
    yield "kinprint:name", model.name
    yield "kinprint:reference", model.reference
    yield "kinprint:architecture", printable(model.architecture, NAME)
    yield "kinprint:layers", str(model.layers)
    yield "kinprint:experts", str(model.experts) if model.experts else ""
    yield "kinprint:parameters", str(model.parameters)
    yield "kinprint:same_weights_as", model_ref(model.node) if model.node != model.index else ""
    for pair in report.pairs:
        if model.index in (pair.a, pair.b) and related(pair):
            yield "kinprint:related_by", pair_ref(pair)
    yield from declared_facts(entry.declares)


def _facts(report: PairsReport) -> Iterator[tuple[str, str]]:
    """Yield what holds for all pairs, then each pair under its own name; empty values are left out."""
    settings = report.tree.settings
    yield "kinprint:report_schema", f"{report.schema}/{report.schema_version}"
    yield "kinprint:models", str(len(report.tree.models))
    yield "kinprint:pairs", str(settings.pairs)
    yield "kinprint:threshold", repr(settings.log10_alpha)
    yield "kinprint:correction", f"Holm over the tests of each pair, Bonferroni over {settings.pairs} pairs"
    for group in report.clusters:
        yield "kinprint:group", ", ".join(map(model_ref, group)) if len(group) > 1 else ""
    for note in report.tree.notes:
        yield "kinprint:note", note
    if any(pair.class_ == NO_EVIDENCE for pair in report.pairs):
        yield "kinprint:no_proof", NO_PROOF
    yield "kinprint:seed", str(settings.seed)
    yield "kinprint:bytes_read", str(report.tree.run.bytes_read)
    yield "kinprint:command", pairs_command(report)
    for pair in report.pairs:
        yield from ((f"kinprint:pair:{pair_ref(pair)}:{name}", value) for name, value in _pair_facts(report, pair))


def _pair_facts(report: PairsReport, pair: PairSummary) -> Iterator[tuple[str, str]]:
    if not pair.stands:
        p = "none" if pair.log10_p_pairs is None else f"{pair.log10_p_pairs!r}"
        yield DOES_NOT_STAND, f"{facts_of(report, pair)['sentence']} (log10 p {p})"
        return
    for name, cell in facts_of(report, pair).items():
        yield name, _text(cell)


def _text(cell: Cell) -> str:
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, tuple):
        return "; ".join(map(str, cell))
    return "" if cell is None else cell if isinstance(cell, str) else repr(cell)
