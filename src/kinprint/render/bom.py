"""A report as CycloneDX ML-BOM: both models as components, what weights say of their pedigree, the evidence as properties.

Weights do not say which of two related models came first. CycloneDX has a word for that, *variants* ("the relationship between
the components is not known"); an ancestor is named only where a model's own card declares it and the weights agree.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kinprint.annexes import DECLARED, Declaration
from kinprint.errors import NeedsExtra, SchemaError
from kinprint.findings import DERIVED, IDENTICAL, NO_EVIDENCE
from kinprint.plain import printable
from kinprint.render.command import command_of
from kinprint.results import FileSummary, ModelSummary, Report

if TYPE_CHECKING:
    from cyclonedx.model import Property
    from cyclonedx.model.component import Component, Pedigree
    from cyclonedx.model.license import DisjunctiveLicense

EXTRA = "bom"
UNKNOWN = "not determined by weights"
NO_PROOF = "no evidence of a relation was found; this does not prove that there is none"
_SPACE = uuid.uuid5(uuid.NAMESPACE_URL, "urn:kinprint:bom")
_DEFAULT_HUB = "https://huggingface.co"  # what a package address of type huggingface means if it names no other
_SHOWN, _NAME = 2000, 200  # characters
_REPO = re.compile(r"(?:^|/)(?P<owner>[A-Za-z0-9][A-Za-z0-9._-]*)/(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)$")
_SHA256 = re.compile(r'etag:"?([0-9a-f]{64})"?')
_COMMIT = re.compile(r"[0-9a-f]{7,64}")


@dataclass(frozen=True)
class _Side:
    """One of the two models, and what its papers say."""

    letter: str
    model: ModelSummary
    declares: Declaration | None


def bom_json(report: Report) -> bytes:
    """Return a CycloneDX 1.6 BOM as JSON (UTF-8); the same report always gives the same bytes.

    Raises
    ------
    NeedsExtra
        If cyclonedx-python-lib is not installed.
    SchemaError
        If the report's date is none.
    """
    try:
        output: Any = importlib.import_module("cyclonedx.output.json")
    except ImportError as error:
        raise NeedsExtra("writing a CycloneDX BOM", extra=EXTRA) from error
    from cyclonedx.model.bom import Bom, BomMetaData
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.model.tool import ToolRepository

    found = report.declared
    a = _Side("a", report.a, found.a if found is not None else None)
    b = _Side("b", report.b, found.b if found is not None else None)
    tool = Component(
        name="kinprint", version=printable(report.run.kinprint, _NAME), type=ComponentType.APPLICATION, bom_ref="tool"
    )
    bom = Bom(
        serial_number=_serial(report),
        components=[_component(report, a, b), _component(report, b, a)],
        metadata=BomMetaData(timestamp=_started(report), tools=ToolRepository(components=[tool])),
        properties=_properties(_facts(report)),
    )
    data = json.loads(output.JsonV1Dot6(bom).output_as_string())
    # the library has no model cards yet; the format has
    architectures = {f"model-{side.letter}": side.model.architecture for side in (a, b)}
    for component in data["components"]:
        family = printable(architectures[component["bom-ref"]], _NAME)
        component["modelCard"] = {"modelParameters": {"architectureFamily": family}}
    return json.dumps(data, indent=2, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def direction(report: Report) -> tuple[str, str | None]:
    """Return what is known of which model came first, and the letter of the one that is declared to ("a", "b" or None)."""
    found, verdict = report.declared, report.verdict
    if found is None or verdict is None or verdict.class_ not in (DERIVED, IDENTICAL) or found.state != DECLARED:
        return UNKNOWN, None
    if len(found.named_by) != 1:  # nobody, or each the other
        return UNKNOWN, None
    parent, child = ("b", "a") if found.named_by == ("A",) else ("a", "b")
    return (
        f"declared: the card of {child.upper()} names {parent.upper()} as its base; weights do not tell the direction",
        parent,
    )


# -- components ----------------------------------------------------------------------------------------------------------


def _component(report: Report, side: _Side, other: _Side) -> Component:
    return _bare(
        side,
        f"model-{side.letter}",
        components=[_file(side, number, file) for number, file in enumerate(side.model.files)],
        pedigree=_pedigree(report, side, other),
        properties=_properties(_model_facts(report, side, other)),
    )


def _bare(side: _Side, reference: str, **more: Any) -> Component:
    """Return a model as component: its name, version, licence and package address, as far as they are known."""
    from cyclonedx.model.component import Component, ComponentType
    from packageurl import PackageURL

    model = side.model
    repo = repository(model)
    named: dict[str, Any] = {"name": printable(model.reference, _NAME)}
    if repo is not None:
        owner, name = repo
        commit = model.commit.lower() if model.commit and _COMMIT.fullmatch(model.commit.lower()) else None
        named = {"group": owner, "name": name, "version": commit}
        hub = model.location.removesuffix(f"/{owner}/{name}")
        elsewhere = {"repository_url": hub} if hub != _DEFAULT_HUB else None
        named["purl"] = PackageURL("huggingface", owner, name, version=commit, qualifiers=elsewhere)
    return Component(
        type=ComponentType.MACHINE_LEARNING_MODEL, bom_ref=reference, licenses=_licences(side.declares), **named, **more
    )


def repository(model: ModelSummary) -> tuple[str, str] | None:
    """Return owner and name of a model of the hub; None for others, and where the report does not tell them."""
    if model.kind != "hub":
        return None
    found = _REPO.search(model.location)
    return (found["owner"], found["name"]) if found else None


def _licences(declares: Declaration | None) -> list[DisjunctiveLicense]:
    from cyclonedx.model.license import DisjunctiveLicense, LicenseAcknowledgement
    from cyclonedx.spdx import fixup_id

    if declares is None or not declares.licence or not declares.licence.strip():
        return []
    known = fixup_id(declares.licence)
    name = None if known else printable(declares.licence, _NAME)
    return [DisjunctiveLicense(id=known, name=name, acknowledgement=LicenseAcknowledgement.DECLARED)]


def _file(side: _Side, number: int, file: FileSummary) -> Component:
    """Return a weight file. Only the hub tells a digest of a whole file (its entity tag); kinprint reads ranges."""
    from cyclonedx.model import HashAlgorithm, HashType
    from cyclonedx.model.component import Component, ComponentType

    facts = [("kinprint:size", str(file.size)), ("kinprint:identity", file.identity)]
    tag = _SHA256.fullmatch(file.identity) if side.model.kind == "hub" else None
    hashes = []
    if tag:
        hashes.append(HashType(alg=HashAlgorithm.SHA_256, content=tag[1]))
        facts.append(("kinprint:hash_source", "as the hub states it; kinprint did not read the whole file"))
    return Component(
        type=ComponentType.FILE,
        name=printable(file.name, _NAME),
        bom_ref=f"model-{side.letter}-file-{number}",
        hashes=hashes,
        properties=_properties(facts),
    )


def _pedigree(report: Report, side: _Side, other: _Side) -> Pedigree | None:
    """Return how a model relates to the other one, no further than verdict and card together go."""
    from cyclonedx.model.component import Pedigree

    verdict = report.verdict
    if verdict is None:
        return None
    told, parent = direction(report)
    notes = f"kinprint: {printable(verdict.sentence, _SHOWN)} Direction: {told}."
    if verdict.class_ not in (DERIVED, IDENTICAL):
        return Pedigree(notes=f"{notes} {NO_PROOF}." if verdict.class_ == NO_EVIDENCE else notes)
    relative = [_bare(other, f"model-{other.letter}-related-to-{side.letter}")]
    if parent is None:
        return Pedigree(variants=relative, notes=notes)
    if parent == other.letter:
        return Pedigree(ancestors=relative, notes=notes)
    return Pedigree(descendants=relative, notes=notes)


# -- properties ----------------------------------------------------------------------------------------------------------


def _properties(facts: Iterator[tuple[str, str]] | list[tuple[str, str]]) -> list[Property]:
    from cyclonedx.model import Property

    return [Property(name=name, value=printable(value, _SHOWN)) for name, value in facts if value]


def _model_facts(report: Report, side: _Side, other: _Side) -> Iterator[tuple[str, str]]:
    model = side.model
    yield "kinprint:reference", model.reference
    yield "kinprint:compared_with", other.model.reference
    yield "kinprint:verdict", report.verdict.class_ if report.verdict is not None else "none"
    yield "kinprint:direction", direction(report)[0]
    yield (
        "kinprint:architecture",
        f"{printable(model.architecture, _NAME)}{' (guessed)' if model.architecture_guessed else ''}",
    )
    yield "kinprint:layers", str(model.layers)
    yield "kinprint:parameters", str(model.parameters)
    yield "kinprint:declared_relation", (side.declares.relation or "") if side.declares is not None else ""
    for base in side.declares.base_models if side.declares is not None else ():
        yield "kinprint:declared_base", base


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
        yield "kinprint:control", f"{printable(control.name, _NAME)}: {found}"
    if report.declared is not None:
        yield "kinprint:declared", report.declared.state
        yield "kinprint:declared_against_measured", report.declared.sentence
        yield "kinprint:licences", report.declared.licences or ""
    yield "kinprint:seed", str(report.settings.seed)
    yield "kinprint:bytes_read", str(report.bytes_read)
    for read in report.reads:
        where = f"{printable(read.model, _NAME)}, {printable(read.file, _NAME)}"
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
    content = replace(report, run=settled).to_json(indent=False)
    return uuid.uuid5(_SPACE, hashlib.sha256(content).hexdigest())


def _started(report: Report) -> datetime:
    try:
        found = datetime.fromisoformat(report.run.started)
    except ValueError as error:
        raise SchemaError(f"the report does not say when it was made: {printable(report.run.started, 80)!r}") from error
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
