"""Write findings on pairs of models as a SARIF 2.1.0 log: the rules, and a result for each finding."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from kinprint._util.plain import printable
from kinprint.errors import SchemaError
from kinprint.render.facts import NAME, SHOWN, Facts
from kinprint.results import findings
from kinprint.results.context import DECLARED, NOT_SHOWN, UNDECLARED, DeclaredFinding
from kinprint.results.models import ModelSummary
from kinprint.results.tree import TreeModel

VERSION = "2.1.0"
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_RULES: dict[str, dict[str, str]] = json.loads(files("kinprint.render.sarif").joinpath("rules.json").read_bytes())
"""Level ("error", "warning", "note" or "none"), short and full description of each rule, by its name."""
_OF_CLASS = {class_: class_.replace("_", "-") for class_ in findings.CLASSES} | {
    findings.IDENTICAL: "identical-weights",
    findings.DERIVED: "derived-from",
}
_RESTS = "The report itself, with every figure beside its null, says on what this rests."
_OF_DECLARED = {UNDECLARED: "undeclared-derivation", NOT_SHOWN: "declared-not-shown"}


@dataclass(frozen=True)
class Judged:
    """What was found of two models."""

    a: ModelSummary | TreeModel
    b: ModelSummary | TreeModel
    class_: str | None  # the verdict; None if none was asked for
    sentence: str | None
    certainty: str  # how sure the verdict is, in a sentence
    declared: DeclaredFinding | None
    stands: bool = True  # after all corrections; if not, the question is left open
    facts: Facts = field(default_factory=dict)  # told with each result


def sarif_log(found: Iterable[Judged], facts: Facts, *, id_: str, version: str, started: str | None) -> bytes:
    """Return findings as SARIF (UTF-8), with `facts` as properties of the run; `id_` names runs of this kind, with a slash."""
    rules = [_described(name, rule) for name, rule in _RULES.items()]
    run = {
        "tool": {"driver": {"name": "kinprint", "version": printable(version, NAME), "rules": rules}},
        "automationDetails": {"id": id_},
        "invocations": [{"executionSuccessful": True} | ({"startTimeUtc": started} if started is not None else {})],
        "results": [result for pair in found for result in _results(pair)],
        "properties": _properties(facts),
    }
    log = {"$schema": SCHEMA, "version": VERSION, "runs": [run]}
    return json.dumps(log, indent=2, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def _properties(facts: Facts) -> dict[str, Any]:
    def shown(cell: Any) -> Any:
        if isinstance(cell, tuple):
            return [shown(part) for part in cell]
        return printable(cell, SHOWN) if isinstance(cell, str) else cell

    return {f"kinprint:{name}": shown(cell) for name, cell in facts.items()}


def _described(name: str, rule: dict[str, str]) -> dict[str, Any]:
    return {
        "id": name,
        "name": name.title().replace("-", ""),
        "shortDescription": {"text": f"{rule['short']}."},
        "fullDescription": {"text": rule["full"]},
        "help": {"text": f"{rule['full']} {_RESTS}"},
        "defaultConfiguration": {"level": rule["level"]},
    }


def _results(pair: Judged) -> Iterator[dict[str, Any]]:
    """Yield one result for the verdict, and one more where a card and the weights disagree."""
    declared = pair.declared
    if pair.class_ is None:
        yield _result(pair, "no-verdict", "open", "none", _RULES["no-verdict"]["full"])
    else:
        if pair.class_ not in _OF_CLASS:
            raise SchemaError(f"the report has a verdict of an unknown class: {printable(pair.class_, 80)!r}")
        rule = _OF_CLASS[pair.class_]
        kind, level = "fail", _RULES[rule]["level"]
        message = f"{pair.sentence} {pair.certainty}"
        if declared is not None and declared.state == DECLARED and level == "warning":
            level = "note"  # it is what the card says
        if pair.class_ == findings.NO_EVIDENCE:
            kind, message = "pass", f"{message} This is not proof of independence."
        if not pair.stands:
            kind, level = "open", "none"
        yield _result(pair, rule, kind, level, message)
    if pair.stands and declared is not None and declared.state in _OF_DECLARED:
        rule = _OF_DECLARED[declared.state]
        message = " ".join(filter(None, (declared.sentence, declared.licences)))
        yield _result(pair, rule, "fail", _RULES[rule]["level"], message)


def _result(pair: Judged, rule: str, kind: str, level: str, message: str) -> dict[str, Any]:
    # the same finding about the same two models, whatever the figures: what a tool follows from run to run
    key = "\n".join((rule, pair.a.reference, pair.b.reference)).encode("utf-8", "replace")
    result = {
        "ruleId": rule,
        "ruleIndex": list(_RULES).index(rule),
        "kind": kind,
        "level": level,
        "message": {"text": printable(message, SHOWN)},
        "locations": [_location("B", pair.b)],
        "relatedLocations": [{"id": 1, **_location("A", pair.a)}],
        "partialFingerprints": {"kinprint/v1": hashlib.sha256(key).hexdigest()},
    }
    return result | ({"properties": _properties(pair.facts)} if pair.facts else {})


def _location(side: str, model: ModelSummary | TreeModel) -> dict[str, Any]:
    """Return where a model is: its name as the user typed it, and the relative address of a local one's first weight file."""
    name = printable(model.reference, NAME)
    logical = {"name": name, "fullyQualifiedName": name, "kind": "resource"}
    found: dict[str, Any] = {"logicalLocations": [logical], "message": {"text": f"model {side}: {name}"}}
    if model.kind in ("folder", "file") and model.files:
        place = _posix_path(model.location)
        folder = place if model.kind == "folder" else place.parent
        address = _relative_address(folder, _posix_path(model.files[0].name))
        found |= {"physicalLocation": {"artifactLocation": {"uri": address}}} if address is not None else {}
    return found


def _relative_address(folder: PurePosixPath, file: PurePosixPath) -> str | None:
    """Return the address of a file in a folder; its bare name if the folder's path is absolute or leads elsewhere."""
    if file.name in ("", ".."):
        return None
    if folder.is_absolute() or ".." in folder.parts or ":" in str(folder):
        folder = PurePosixPath()
    if file.is_absolute() or ".." in file.parts:
        file = PurePosixPath(file.name)
    return quote(str(folder / file), errors="replace")


def _posix_path(text: str) -> PurePosixPath:
    """Return a path of whatever system with slashes."""
    return PurePosixPath(text.replace("\\", "/"))
