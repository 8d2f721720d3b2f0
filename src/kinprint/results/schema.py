"""JSON Schema (draft 2020-12) of what kinprint writes, made from the dataclasses that read and write it.

The rules are those of `kinprint.results.plain_json.build`: ``class_`` is ``class`` in JSON, a tuple is an array, None is null, and
a field that was added after reports of this version were written may be missing. Unknown fields do not fit.
"""

from __future__ import annotations

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
from kinprint.results.inspection import INSPECTION_SCHEMA, Inspection
from kinprint.results.later import LATER
from kinprint.results.measurements import (
    NO_NULL,
    NOT_COMPARABLE,
    OK,
    Measurement,
    NullResult,
    TensorComparison,
)
from kinprint.results.models import ConfigDifference, TokenizerDifference
from kinprint.results.plain_json import DATA, holds_text
from kinprint.results.report import SCHEMA, SCHEMA_VERSION, Report
from kinprint.text import Text

DIALECT = "https://json-schema.org/draft/2020-12/schema"
TITLES = {
    "report": "comparison",
    "pairs": "all pairs of several models",
    "tree": "family tree",
    "inspection": "description of one model",
}
"""What has a schema, by the name under which it is published, and what it is of."""

_SIMPLE = {str: "string", Text: "string", int: "integer", float: "number", bool: "boolean"}
_TENSOR_STATUS = (OK, NOT_COMPARABLE)
_RELATED = "related"  # what a control is expected to be or found as, beside the classes of verdict
_CLASSES: Mapping[tuple[type, str], tuple[str | int, ...]] = {
    (Report, "schema"): (SCHEMA,),
    (Report, "schema_version"): (SCHEMA_VERSION,),
    (Report, "status"): _TENSOR_STATUS,
    (Measurement, "status"): (OK, NOT_COMPARABLE, NO_NULL),
    (TensorComparison, "status"): _TENSOR_STATUS,
    (ConfigDifference, "status"): _TENSOR_STATUS,
    (TokenizerDifference, "status"): _TENSOR_STATUS,
    (NullResult, "tail"): ("greater", "less"),
    (Inspection, "schema"): (INSPECTION_SCHEMA,),
    (Inspection, "schema_version"): (SCHEMA_VERSION,),
    (findings.Verdict, "class_"): findings.CLASSES,
    (findings.EvidenceTest, "status"): (findings.TESTED, findings.OFF),
    (findings.LayerAlignment, "status"): (findings.TESTED, findings.OFF),
    (findings.ComponentFinding, "state"): ("shared", "partly shared", "not shared", "not tested"),
    (findings.ControlFinding, "status"): ("passed", "failed", "not run"),
    (findings.ControlFinding, "expected"): (*findings.CLASSES, _RELATED),
    (findings.ControlFinding, "found"): (*findings.CLASSES, _RELATED),
    (findings.MethodFinding, "status"): (findings.TESTED, findings.OFF),
    (findings.MethodFinding, "reading"): (findings.BEYOND, findings.INSIDE, findings.NO_NULL),
    (context.LayerGrid, "status"): _TENSOR_STATUS,
    (context.LayerGrid, "kind"): ("vector", "matrix"),
    (context.DeclaredFinding, "state"): (
        context.UNDECLARED,
        context.DECLARED,
        context.OTHER_DECLARED,
        context.NOT_SHOWN,
        context.NOTHING_DECLARED,
        context.NOT_JUDGED,
    ),
    (tree.FamilyTree, "schema"): (tree.TREE_SCHEMA,),
    (tree.FamilyTree, "schema_version"): (tree.TREE_SCHEMA_VERSION,),
    (tree.TreeEdge, "direction"): (tree.FORWARD, tree.BACKWARD, tree.UNDIRECTED),
    (tree.KinLink, "shares"): findings.CLASSES,
    (tree.PairLine, "found"): findings.CLASSES,
    (tree.PairsReport, "schema"): (tree.PAIRS_SCHEMA,),
    (tree.PairsReport, "schema_version"): (tree.PAIRS_SCHEMA_VERSION,),
    (tree.PairSummary, "class_"): findings.CLASSES,
}


_VALUES = [{"type": ["string", "number", "null"]}, {"$ref": "#/$defs/Text"}]
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


def report_schema() -> dict[str, Any]:
    """Return the JSON Schema of a report."""
    return _named("report", Report, SCHEMA_VERSION)


def pairs_schema() -> dict[str, Any]:
    """Return the JSON Schema of a report on all pairs of several models."""
    return _named("pairs", tree.PairsReport, tree.PAIRS_SCHEMA_VERSION)


def tree_schema() -> dict[str, Any]:
    """Return the JSON Schema of a family tree."""
    return _named("tree", tree.FamilyTree, tree.TREE_SCHEMA_VERSION)


def inspection_schema() -> dict[str, Any]:
    """Return the JSON Schema of what `kinprint inspect` writes."""
    return _named("inspection", Inspection, SCHEMA_VERSION)


def schemas() -> dict[str, bytes]:
    """Return all schemas as they are published, by the names in `TITLES`."""
    made = (report_schema(), pairs_schema(), tree_schema(), inspection_schema())
    option = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    return {name: orjson.dumps(schema, option=option) for name, schema in zip(TITLES, made, strict=True)}


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


def _named(name: str, kind: type, version: int) -> dict[str, Any]:
    made = json_schema(kind)
    head = {
        "$schema": made.pop("$schema"),
        "$id": f"urn:kinprint:schema:{name}:{version}",
        "title": f"kinprint: {TITLES[name]}, version {version}",
    }
    return {**head, **made}


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
        parts = [_of(item, definitions) for item in items]
        return {
            "type": "array",
            "prefixItems": parts,
            "items": False,
            "minItems": len(parts),
            "maxItems": len(parts),
        }
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
    return {**schema, "type": [schema["type"], "null"]} | (
        {"enum": [*schema["enum"], None]} if "enum" in schema else {}
    )


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
            properties[key + DATA] = _text_data(schema)
        if not LATER.items() <= item.metadata.items():
            required.append(key)
    return {
        "description": told,
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _text_data(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of the data beside a text, or beside texts: one for each, null where a text has no values."""
    one = {"$ref": "#/$defs/Text"}
    return {"type": "array", "items": {"anyOf": [one, {"type": "null"}]}} if schema["type"] == "array" else one


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
    for names, body in re.findall(r"^(\w+(?:, \w+)*)\n((?:[ ]+.*\n?)+)", section[1] if section else "", re.MULTILINE):
        words = " ".join(body.split())
        together = f"{names}: {words}" if "," in names else words
        told.update(dict.fromkeys(names.split(", "), together))
    return first, told
