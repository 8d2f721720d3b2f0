"""A report as CycloneDX ML-BOM: both models as components, what weights say of their pedigree, the evidence as properties.

Weights do not say which of two related models came first. CycloneDX has a word for that, *variants* ("the relationship between
the components is not known"); an ancestor is named only where a model's own card declares it and the weights agree.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kinprint._util.plain import printable
from kinprint.errors import SchemaError
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
from kinprint.render.parentage import DESCENT, NO_PROOF, direction
from kinprint.render.repeat_command import command_of
from kinprint.results.context import Declaration
from kinprint.results.findings import NO_EVIDENCE
from kinprint.results.models import ModelSummary
from kinprint.results.report import Report

if TYPE_CHECKING:
    from cyclonedx.model.component import Component, Pedigree


def report_cyclonedx(report: Report) -> bytes:
    """Return a CycloneDX 1.6 BOM as JSON (UTF-8); the same report always gives the same bytes.

    Raises
    ------
    NeedsExtra
        If cyclonedx-python-lib is not installed.
    SchemaError
        If the report's date is none.
    """
    require_library()
    found = report.declared
    a = _entry("a", report.a, found.a if found is not None else None)
    b = _entry("b", report.b, found.b if found is not None else None)
    return written(
        (a, b),
        [_component(report, report.a, a, b), _component(report, report.b, b, a)],
        _facts(report),
        serial=_serial(report),
        version=report.run.kinprint,
        started=_started(report),
    )


def _entry(letter: str, model: ModelSummary, declares: Declaration | None) -> Entry:
    on_hub = model.kind == "hub"
    return Entry(letter, model.reference, model.location, on_hub, model.commit, model.architecture, declares)


# -- components ----------------------------------------------------------------------------------------------------------


def _component(report: Report, model: ModelSummary, entry: Entry, other: Entry) -> Component:
    return component_of(
        entry,
        entry.ref,
        components=files_of(entry, model.files),
        pedigree=_pedigree(report, entry, other),
        properties=properties(_model_facts(report, model, entry, other)),
    )


def _pedigree(report: Report, entry: Entry, other: Entry) -> Pedigree | None:
    """Return how a model relates to the other one, no further than verdict and card together go."""
    from cyclonedx.model.component import Pedigree

    verdict = report.verdict
    if verdict is None:
        return None
    told, parent = direction(report)
    notes = f"kinprint: {printable(verdict.sentence, SHOWN)} Direction: {told}."
    if verdict.class_ not in DESCENT:
        return Pedigree(notes=f"{notes} {NO_PROOF}." if verdict.class_ == NO_EVIDENCE else notes)
    relatives = [relative(other, entry)]
    if parent is None:
        return Pedigree(variants=relatives, notes=notes)
    if parent == other.key:
        return Pedigree(ancestors=relatives, notes=notes)
    return Pedigree(descendants=relatives, notes=notes)


# -- properties ----------------------------------------------------------------------------------------------------------


def _model_facts(report: Report, model: ModelSummary, entry: Entry, other: Entry) -> Iterator[tuple[str, str]]:
    yield "kinprint:reference", model.reference
    yield "kinprint:compared_with", other.reference
    yield "kinprint:verdict", report.verdict.class_ if report.verdict is not None else "none"
    yield "kinprint:direction", direction(report)[0]
    guessed = " (guessed)" if model.architecture_guessed else ""
    yield "kinprint:architecture", f"{printable(model.architecture, NAME)}{guessed}"
    yield "kinprint:layers", str(model.layers)
    yield "kinprint:parameters", str(model.parameters)
    yield from declared_facts(entry.declares)


def _facts(report: Report) -> Iterator[tuple[str, str]]:
    """Yield what holds for the pair, as names and values; empty values are left out."""
    verdict = report.verdict
    yield "kinprint:report_schema", f"{report.schema}/{report.schema_version}"
    yield "kinprint:status", report.status
    yield "kinprint:reason", report.reason or ""
    yield "kinprint:verdict", verdict.class_ if verdict is not None else "none"
    yield "kinprint:direction", direction(report)[0]
    if verdict is not None:
        yield "kinprint:kind", verdict.kind or ""
        yield "kinprint:sentence", verdict.sentence
        yield "kinprint:log10_p", repr(verdict.log10_p) if verdict.log10_p is not None else ""
        yield "kinprint:threshold", repr(verdict.log10_alpha)
        yield "kinprint:tests", str(verdict.tests)
        yield "kinprint:evidence", "; ".join(verdict.reasons)
        yield "kinprint:limits", "; ".join(verdict.against)
        yield "kinprint:not_tested", "; ".join(verdict.untested)
        yield "kinprint:assumptions", "; ".join(verdict.assumptions)
        if verdict.class_ == NO_EVIDENCE:
            yield "kinprint:no_proof", NO_PROOF
    for control in report.evidence.controls if report.evidence is not None else ():
        found = f"expected {control.expected}, found {control.found or 'nothing'}: {control.status}"
        yield "kinprint:control", f"{printable(control.name, NAME)}: {found}"
    if report.declared is not None:
        yield "kinprint:declared", report.declared.state
        yield "kinprint:declared_against_measured", report.declared.sentence
        yield "kinprint:licences", report.declared.licences or ""
    yield "kinprint:seed", str(report.settings.seed)
    yield "kinprint:bytes_read", str(report.bytes_read)
    for read in report.reads:
        where = f"{printable(read.model, NAME)}, {printable(read.file, NAME)}"
        yield "kinprint:reads_sha256", f"{where}: {read.bytes_read} bytes, {read.sha256}"
    yield "kinprint:command", command_of(report)


def _serial(report: Report) -> uuid.UUID:
    """Return a number that is the report's own: equal for two runs that found the same, whenever they ran."""
    settled = replace(
        report.run,
        started="",
        elapsed_s=0.0,
        requests=0,
        retries=0,
        network_bytes=0,
        cache_bytes=0,
        local_bytes=0,
    )
    return serial_of(replace(report, run=settled).to_json(indent=False))


def _started(report: Report) -> datetime:
    try:
        found = datetime.fromisoformat(report.run.started)
    except ValueError as error:
        raise SchemaError(f"the report does not say when it was made: {printable(report.run.started, 80)!r}") from error
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
