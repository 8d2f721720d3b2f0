"""What SARIF logs of a pair and of many models have in common: the rules, a result for each finding, and the log itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from kinprint._util.plain import printable
from kinprint.errors import SchemaError
from kinprint.results.context import DECLARED, NOT_SHOWN, UNDECLARED, DeclaredFinding
from kinprint.results.findings import (
    DERIVED,
    IDENTICAL,
    NO_EVIDENCE,
    NOT_TESTABLE,
    SHARES_COMPONENTS,
    SHARES_INITIALISATION,
)
from kinprint.results.models import ModelSummary
from kinprint.results.tree import TreeModel

VERSION = "2.1.0"
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
SHOWN, NAME = 2000, 200  # characters


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


@dataclass(frozen=True)
class Place:
    """A model as a place: its name as the user typed it, and the relative address of something local, if there is such."""

    reference: str
    address: str | None


def place_of(model: ModelSummary | TreeModel) -> Place:
    """Return where a model is: a local one's first weight file; the file's bare name if the model's path is absolute."""
    if model.kind not in ("folder", "file") or not model.files:
        return Place(model.reference, None)
    place = posix_path(model.location)
    folder = place if model.kind == "folder" else place.parent
    return Place(model.reference, relative_address(folder, posix_path(model.files[0].name)))


@dataclass(frozen=True)
class Judged:
    """What was found of two models.

    Attributes
    ----------
    a, b
        The models.
    class_, sentence
        The verdict, both None if none was asked for.
    certainty
        How sure it is, in a sentence.
    declared
        What cards say beside it.
    stands
        Whether the verdict is one after all corrections; if not, the question is left open.
    properties
        What further is told with each result.
    """

    a: Place
    b: Place
    class_: str | None
    sentence: str | None
    certainty: str
    declared: DeclaredFinding | None
    stands: bool = True
    properties: Mapping[str, Any] = field(default_factory=dict)


def sarif_log(
    found: Iterable[Judged], *, id_: str, version: str, started: str | None, facts: Mapping[str, Any]
) -> bytes:
    """Return findings as SARIF (UTF-8).

    Parameters
    ----------
    found
        The pairs.
    id_
        What tells runs of this kind from others, ending in a slash.
    version, started
        Of kinprint, and when it started, if the report tells.
    facts
        Properties of the run.
    """
    invocation = {"executionSuccessful": True} | ({"startTimeUtc": started} if started is not None else {})
    run = {
        "tool": {
            "driver": {
                "name": "kinprint",
                "version": printable(version, NAME),
                "rules": [_described(rule) for rule in _RULES],
            }
        },
        "automationDetails": {"id": id_},
        "invocations": [invocation],
        "results": [result for pair in found for result in _results(pair)],
        "properties": dict(facts),
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


def _results(pair: Judged) -> Iterator[dict[str, Any]]:
    """Yield one result for the verdict, and one more where a card and the weights disagree."""
    declared = pair.declared
    if pair.class_ is None:
        yield _result(pair, "no-verdict", "open", "none", _RULES[_PLACES["no-verdict"]].full)
    else:
        if pair.class_ not in _OF_CLASS:
            raise SchemaError(f"the report has a verdict of an unknown class: {printable(pair.class_, 80)!r}")
        rule = _OF_CLASS[pair.class_]
        kind, level = "fail", _RULES[_PLACES[rule]].level
        message = f"{pair.sentence} {pair.certainty}"
        if declared is not None and declared.state == DECLARED and level == "warning":
            level = "note"  # it is what the card says
        if pair.class_ == NO_EVIDENCE:
            kind, message = "pass", f"{message} This is not proof of independence."
        if not pair.stands:
            kind, level = "open", "none"
        yield _result(pair, rule, kind, level, message)
    if pair.stands and declared is not None and declared.state in _OF_DECLARED:
        rule = _OF_DECLARED[declared.state]
        message = " ".join(filter(None, (declared.sentence, declared.licences)))
        yield _result(pair, rule, "fail", _RULES[_PLACES[rule]].level, message)


def _result(pair: Judged, rule: str, kind: str, level: str, message: str) -> dict[str, Any]:
    # the same finding about the same two models, whatever the figures: what a tool follows from run to run
    key = "\n".join((rule, pair.a.reference, pair.b.reference)).encode("utf-8", "replace")
    result = {
        "ruleId": rule,
        "ruleIndex": _PLACES[rule],
        "kind": kind,
        "level": level,
        "message": {"text": printable(message, SHOWN)},
        "locations": [_location("B", pair.b)],
        "relatedLocations": [{"id": 1, **_location("A", pair.a)}],
        "partialFingerprints": {"kinprint/v1": hashlib.sha256(key).hexdigest()},
    }
    return result | ({"properties": dict(pair.properties)} if pair.properties else {})


def _location(side: str, place: Place) -> dict[str, Any]:
    name = printable(place.reference, NAME)
    logical = {"name": name, "fullyQualifiedName": name, "kind": "resource"}
    found: dict[str, Any] = {"logicalLocations": [logical], "message": {"text": f"model {side}: {name}"}}
    if place.address is not None:
        found["physicalLocation"] = {"artifactLocation": {"uri": place.address}}
    return found


def relative_address(folder: PurePosixPath, file: PurePosixPath) -> str | None:
    """Return the address of something in a folder; its bare name if the folder's path is absolute or leads elsewhere."""
    if file.name in ("", ".."):
        return None
    if folder.is_absolute() or ".." in folder.parts or ":" in str(folder):
        folder = PurePosixPath()
    if file.is_absolute() or ".." in file.parts:
        file = PurePosixPath(file.name)
    return quote(str(folder / file), errors="replace")


def posix_path(text: str) -> PurePosixPath:
    """Return a path of whatever system with slashes."""
    return PurePosixPath(text.replace("\\", "/"))
