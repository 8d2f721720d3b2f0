"""A report as SARIF 2.1.0 (OASIS), for the tools that show findings of continuous integration.

One result for the verdict, and one more where a model's card and its weights disagree. "No evidence" passes; it is no proof.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from kinprint.annexes import DECLARED, NOT_SHOWN, UNDECLARED
from kinprint.errors import SchemaError
from kinprint.findings import (
    DERIVED,
    IDENTICAL,
    NO_EVIDENCE,
    NOT_TESTABLE,
    SHARES_COMPONENTS,
    SHARES_INITIALISATION,
    Verdict,
)
from kinprint.plain import printable
from kinprint.render.command import command_of
from kinprint.results import ModelSummary, Report

VERSION = "2.1.0"
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_SHOWN, _NAME = 2000, 200


@dataclass(frozen=True)
class _Rule:
    id: str
    level: str  # "error", "warning", "note", "none"
    short: str
    full: str


_RULES = (
    _Rule(
        "undeclared-derivation",
        "error",
        "Derivation that no card declares",
        "The weights of two models are related, and neither model's card says so.",
    ),
    _Rule(
        "declared-not-shown",
        "warning",
        "Declared derivation that the weights do not show",
        "A card names a base model, but the weights show no trace of it. The weights may have been replaced or trained anew, or "
        "the card may be wrong.",
    ),
    _Rule(
        "identical-weights",
        "warning",
        "The weights are the same",
        "All weights are byte for byte the same.",
    ),
    _Rule(
        "derived-from",
        "warning",
        "One model derives from the other, or both from a common ancestor",
        "Agreement like this would not happen between unrelated models. The tests do not say which of the two came first.",
    ),
    _Rule(
        "shares-components",
        "warning",
        "The models share parts",
        "Some parts of the two models agree as unrelated models would not, others do not.",
    ),
    _Rule(
        "shares-initialisation",
        "note",
        "The models share a random start, or too little to tell",
        "What the models share is less than training would leave in common.",
    ),
    _Rule(
        "not-testable",
        "warning",
        "The models cannot be tested",
        "No test could have seen even a copy, or a control failed: nothing can be said about this pair.",
    ),
    _Rule(
        "no-evidence",
        "none",
        "No evidence of derivation",
        "No test found more agreement than unrelated models show. This is not proof of independence: distillation and training "
        "on another model's output leave no trace in weights.",
    ),
    _Rule(
        "no-verdict",
        "none",
        "No verdict was asked for",
        "The comparison was asked for measurements alone.",
    ),
)
_PLACES = {rule.id: place for place, rule in enumerate(_RULES)}
_OF_CLASS = {
    IDENTICAL: "identical-weights",
    DERIVED: "derived-from",
    SHARES_COMPONENTS: "shares-components",
    SHARES_INITIALISATION: "shares-initialisation",
    NO_EVIDENCE: "no-evidence",
    NOT_TESTABLE: "not-testable",
}
_OF_DECLARED = {UNDECLARED: "undeclared-derivation", NOT_SHOWN: "declared-not-shown"}


def sarif_json(report: Report) -> bytes:
    """Return the report's findings as SARIF (UTF-8); the same report always gives the same bytes."""
    run = {
        "tool": {
            "driver": {
                "name": "kinprint",
                "version": printable(report.run.kinprint, _NAME),
                "rules": [_described(rule) for rule in _RULES],
            }
        },
        "automationDetails": {"id": "kinprint/compare/"},
        "invocations": [{"executionSuccessful": True, "startTimeUtc": _started(report)}],
        "results": list(_results(report)),
        "properties": _facts(report),
    }
    log = {"$schema": SCHEMA, "version": VERSION, "runs": [run]}
    return json.dumps(log, indent=2, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def _described(rule: _Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "name": rule.id.title().replace("-", ""),
        "shortDescription": {"text": f"{rule.short}."},
        "fullDescription": {"text": rule.full},
        "help": {"text": f"{rule.full} The report itself, with every figure beside its null, says on what this rests."},
        "defaultConfiguration": {"level": rule.level},
    }


def _results(report: Report) -> Iterator[dict[str, Any]]:
    verdict, found = report.verdict, report.declared
    if verdict is None:
        yield _result(report, "no-verdict", "open", "none", _RULES[_PLACES["no-verdict"]].full)
    else:
        if verdict.class_ not in _OF_CLASS:
            raise SchemaError(f"the report has a verdict of an unknown class: {printable(verdict.class_, 80)!r}")
        rule = _OF_CLASS[verdict.class_]
        passed = verdict.class_ == NO_EVIDENCE
        level = _RULES[_PLACES[rule]].level
        if found is not None and found.state == DECLARED and level == "warning":
            level = "note"  # it is what the card says
        message = f"{verdict.sentence} {_certainty(verdict)}"
        if passed:
            message = f"{message} This is not proof of independence."
        yield _result(report, rule, "pass" if passed else "fail", level, message)
    if found is not None and found.state in _OF_DECLARED:
        rule = _OF_DECLARED[found.state]
        message = " ".join(filter(None, (found.sentence, found.licences)))
        yield _result(report, rule, "fail", _RULES[_PLACES[rule]].level, message)


def _result(report: Report, rule: str, kind: str, level: str, message: str) -> dict[str, Any]:
    # the same finding about the same two models, whatever the figures: what a tool follows from run to run
    key = "\n".join((rule, report.a.reference, report.b.reference)).encode("utf-8", "replace")
    return {
        "ruleId": rule,
        "ruleIndex": _PLACES[rule],
        "kind": kind,
        "level": level,
        "message": {"text": printable(message, _SHOWN)},
        "locations": [_location("B", report.b)],
        "relatedLocations": [{"id": 1, **_location("A", report.a)}],
        "partialFingerprints": {"kinprint/v1": hashlib.sha256(key).hexdigest()},
    }


def _location(side: str, model: ModelSummary) -> dict[str, Any]:
    name = printable(model.reference, _NAME)
    logical = {"name": name, "fullyQualifiedName": name, "kind": "resource"}
    found: dict[str, Any] = {"logicalLocations": [logical], "message": {"text": f"model {side}: {name}"}}
    address = _address(model)
    if address is not None:
        found["physicalLocation"] = {"artifactLocation": {"uri": address}}
    return found


def _address(model: ModelSummary) -> str | None:
    """Return a local model's first weight file as a relative address; the file's bare name if the model's path is absolute."""
    if model.kind not in ("folder", "file") or not model.files:
        return None
    file = PurePosixPath(model.files[0].name.replace("\\", "/"))
    folder = PurePosixPath(model.location.replace("\\", "/"))
    inside = folder if model.kind == "folder" else folder.parent
    if inside.is_absolute() or ".." in inside.parts or ":" in str(inside):
        inside = PurePosixPath()
    if file.is_absolute() or ".." in file.parts:
        file = PurePosixPath(file.name)
    return quote(str(inside / file), errors="replace")


def _certainty(verdict: Verdict) -> str:
    if verdict.log10_p is None:
        return f"No p-value (threshold log10 p {verdict.log10_alpha:g})."
    return (
        f"log10 p {verdict.log10_p:.1f} after correction for {verdict.tests} tests; threshold {verdict.log10_alpha:g}."
    )


def _facts(report: Report) -> dict[str, Any]:
    verdict, found = report.verdict, report.declared
    return {
        "kinprint:schema": f"{report.schema}/{report.schema_version}",
        "kinprint:status": report.status,
        "kinprint:reason": printable(report.reason or "", _SHOWN),
        "kinprint:verdict": verdict.class_ if verdict is not None else None,
        "kinprint:kind": printable(verdict.kind, _NAME) if verdict is not None and verdict.kind else None,
        "kinprint:log10_p": verdict.log10_p if verdict is not None else None,
        "kinprint:threshold": verdict.log10_alpha if verdict is not None else None,
        "kinprint:tests": verdict.tests if verdict is not None else None,
        "kinprint:limits": [printable(text, _SHOWN) for text in verdict.against] if verdict is not None else [],
        "kinprint:not_tested": [printable(text, _SHOWN) for text in verdict.untested] if verdict is not None else [],
        "kinprint:declared": found.state if found is not None else None,
        "kinprint:seed": report.settings.seed,
        "kinprint:bytes_read": report.bytes_read,
        "kinprint:command": printable(command_of(report), _SHOWN),
    }


def _started(report: Report) -> str:
    try:
        found = datetime.fromisoformat(report.run.started)
    except ValueError as error:
        raise SchemaError(f"the report does not say when it was made: {printable(report.run.started, 80)!r}") from error
    return found.replace(tzinfo=found.tzinfo or UTC).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
