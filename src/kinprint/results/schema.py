"""JSON Schema (draft 2020-12) of what kinprint writes, made from the dataclasses that read and write it.

The rules are those of `kinprint.results.plain_json.build`: ``class_`` is ``class`` in JSON, a tuple is an array, None is null, and
a field that was added after reports of this version were written may be missing. Unknown fields do not fit.
"""

import inspect
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import orjson

from kinprint.results import context, findings, tree
from kinprint.results.inspection import Inspection
from kinprint.results.later import MARK
from kinprint.results.measurements import NO_NULL, NOT_COMPARABLE, OK, Measurement, NullResult, TensorComparison
from kinprint.results.models import ConfigDifference, TokenizerDifference
from kinprint.results.plain_json import DATA, holds_text
from kinprint.results.report import Report
from kinprint.results.result import SCHEMA_VERSION, Result
from kinprint.results.search import (
    LOOK_ALIKE,
    NAMED,
    RELATED,
    SAME_FILES,
    SAME_KEPT,
    SEARCH_CLASSES,
    FoundModel,
    SearchReport,
    Verified,
)
from kinprint.text import Text

DIALECT = "https://json-schema.org/draft/2020-12/schema"
TITLES: dict[type[Result], str] = {
    Report: "comparison",
    tree.PairsReport: "all pairs of several models",
    tree.FamilyTree: "family tree",
    Inspection: "description of one model",
    SearchReport: "search of a catalog",
}
"""What has a schema, and what the schema is called."""

_SIMPLE = {str: "string", Text: "string", int: "integer", float: "number", bool: "boolean"}
_COMPARED = (Report, TensorComparison, ConfigDifference, TokenizerDifference, context.LayerGrid)
_TESTED = (findings.EvidenceTest, findings.LayerAlignment, findings.MethodFinding)
_RELATED = "related"  # what a control is expected to be or found as, beside the classes of verdict
_CLASSES: Mapping[tuple[type, str], tuple[str | int, ...]] = {
    **{(kind, "schema"): (kind.SCHEMA,) for kind in TITLES},
    **{(kind, "schema_version"): (SCHEMA_VERSION,) for kind in TITLES},
    **dict.fromkeys([(kind, "status") for kind in _COMPARED], (OK, NOT_COMPARABLE)),
    **dict.fromkeys([(kind, "status") for kind in _TESTED], (findings.TESTED, findings.OFF)),
    (Measurement, "status"): (OK, NOT_COMPARABLE, NO_NULL),
    (NullResult, "tail"): ("greater", "less"),
    (findings.Verdict, "class_"): findings.CLASSES,
    (findings.ComponentFinding, "state"): ("shared", "partly shared", "not shared", "not tested"),
    (findings.ControlFinding, "status"): ("passed", "failed", "not run"),
    (findings.ControlFinding, "expected"): (*findings.CLASSES, _RELATED),
    (findings.ControlFinding, "found"): (*findings.CLASSES, _RELATED),
    (findings.MethodFinding, "reading"): (findings.BEYOND, findings.INSIDE, findings.NO_NULL),
    (context.LayerGrid, "kind"): ("vector", "matrix"),
    (context.DeclaredFinding, "state"): context.STATES,
    (tree.TreeEdge, "direction"): (tree.FORWARD, tree.BACKWARD, tree.UNDIRECTED),
    (tree.KinLink, "shares"): findings.CLASSES,
    (tree.PairLine, "found"): findings.CLASSES,
    (tree.PairSummary, "class_"): findings.CLASSES,
    (SearchReport, "class_"): SEARCH_CLASSES,
    (FoundModel, "class_"): (RELATED, LOOK_ALIKE, NAMED),
    (Verified, "declared"): context.STATES,
    (FoundModel, "same"): (SAME_FILES, SAME_KEPT),
}


_TEXT_DATA = {"$ref": "#/$defs/Text"}
_VALUES = [{"type": ["string", "number", "null"]}, _TEXT_DATA]
_TEXT = {
    "description": "What a text was made of: its English template, and the values in the template's braces.",
    "type": "object",
    "properties": {
        "key": {"type": "string"},
        "values": {
            "type": "object",
            "additionalProperties": {"anyOf": [*_VALUES, {"type": "array", "items": {"anyOf": _VALUES}}]},
        },
    },
    "required": ["key"],
    "additionalProperties": False,
}


def result_schema(kind: type[Result]) -> dict[str, Any]:
    """Return the JSON Schema of a kind of result, with its address and title."""
    made, name = json_schema(kind), kind.SCHEMA.removeprefix("kinprint.")
    head = {
        "$schema": made.pop("$schema"),
        "$id": f"urn:kinprint:schema:{name}:{SCHEMA_VERSION}",
        "title": f"kinprint: {TITLES[kind]}, version {SCHEMA_VERSION}",
    }
    return {**head, **made}


def schemas() -> dict[str, bytes]:
    """Return all schemas as they are published, by name: report, pairs, tree and inspection."""
    option = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    return {kind.SCHEMA.removeprefix("kinprint."): orjson.dumps(result_schema(kind), option=option) for kind in TITLES}


def published() -> dict[str, bytes]:
    """Return all schemas by the name of their file. Those of version 1 are kept beside them as they were."""
    return {f"{name}-v{SCHEMA_VERSION}.json": schema for name, schema in schemas().items()}


def publish(folder: str | Path) -> None:
    """Write all schemas into a folder, which must exist."""
    for name, content in published().items():
        (Path(folder) / name).write_bytes(content)


def json_schema(kind: type) -> dict[str, Any]:
    """Return the schema of JSON data that `plain_json.build` makes a `kind` of; each dataclass stands in ``$defs``."""
    if not is_dataclass(kind):
        raise TypeError(f"expected a dataclass, got {kind!r}")
    definitions: dict[str, Any] = {}
    top = _of(kind, definitions)
    return {"$schema": DIALECT, **top, "$defs": dict(sorted(definitions.items()))}


def _of(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of one declared type; dataclasses met on the way are added to `definitions`."""
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        (option,) = (option for option in typing.get_args(kind) if option is not types.NoneType)
        return _or_null(_of(option, definitions))
    if origin is tuple:
        items = typing.get_args(kind)
        if len(items) == 2 and items[1] is Ellipsis:
            return {"type": "array", "items": _of(items[0], definitions)}
        size = {"minItems": len(items), "maxItems": len(items)}
        return {"type": "array", "prefixItems": [_of(item, definitions) for item in items], "items": False, **size}
    if is_dataclass(kind) and isinstance(kind, type):
        name = kind.__name__
        if name not in definitions:
            definitions[name] = {}  # so that a type that holds itself does not recurse
            definitions[name] = _object(kind, definitions)
        return {"$ref": f"#/$defs/{name}"}
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return {"type": "string", "enum": [member.value for member in kind]}
    return {"type": _SIMPLE[kind]}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    listed = {"enum": [*schema["enum"], None]} if "enum" in schema else {}
    return {**schema, "type": [schema["type"], "null"], **listed}


def _object(kind: type, definitions: dict[str, Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    told, told_of = _docstring(kind)
    properties, required = {}, []
    for item in fields(kind):
        key = item.name.rstrip("_")
        schema = _of(hints[item.name], definitions)
        allowed = _CLASSES.get((kind, item.name))
        if allowed is not None:
            schema = _restricted(schema, allowed)
        if item.name in told_of:
            schema = {**schema, "description": told_of[item.name]}
        properties[key] = schema
        if holds_text(hints[item.name]):
            definitions.setdefault("Text", _TEXT)
            # beside texts one for each, null where a text has no values
            each = {"type": "array", "items": {"anyOf": [_TEXT_DATA, {"type": "null"}]}}
            properties[key + DATA] = each if schema["type"] == "array" else _TEXT_DATA
        if MARK not in item.metadata:
            required.append(key)
    made = {"description": told, "type": "object", "properties": properties, "required": required}
    return made | {"additionalProperties": False}


def _restricted(schema: dict[str, Any], allowed: tuple[str | int, ...]) -> dict[str, Any]:
    if len(allowed) == 1:
        return {**schema, "const": allowed[0]}
    null = [None] if isinstance(schema["type"], list) else []
    return {**schema, "enum": [*allowed, *null]}


def _docstring(kind: type) -> tuple[str, dict[str, str]]:
    """Return the first paragraph of a class's docstring, and what its numpydoc section says of each field."""
    text = inspect.getdoc(kind) or ""
    first = " ".join(text.split("\n\n", 1)[0].split())
    section = re.search(r"^(?:Parameters|Attributes)\n-+\n(.*)", text, re.MULTILINE | re.DOTALL)
    told: dict[str, str] = {}
    for names, body in re.findall(r"^(\w+(?:, \w+)*) : (.*(?:\n[ ]+.*)*)", section[1] if section else "", re.MULTILINE):
        words = " ".join(body.split())
        together = f"{names}: {words}" if "," in names else words
        told.update(dict.fromkeys(names.split(", "), together))
    return first, told
