"""Read architecture files: JSON in, validated :class:`~kinprint.arch.templates.Architecture` out.

The format is described in ``docs/architectures.md``. A mistake in a file is reported with the file and the key.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Any

from kinprint.arch.roles import BIASES, Role
from kinprint.arch.templates import (
    LANGUAGE,
    Architecture,
    Condition,
    DimRule,
    Exclusion,
    Formula,
    NameRule,
    Split,
    name_key,
)  # fmt: skip
from kinprint.errors import FormatError
from kinprint.text import Text

_KEYS = {
    "summary": str, "extends": str, "model_types": list, "architectures": list, "prefixes": list, "block": str,
    "dims": dict, "norm_offset": (int, float), "suffixes": dict, "model": dict, "layer": dict, "encoder_block": str,
    "encoder_layer": dict, "exclude": list, "tower": str, "positions": str,
}  # fmt: skip
_MERGED = ("dims", "suffixes", "model", "layer", "encoder_layer")
"""An extending file adds to these, key by key; null removes a key."""
_BASE = "_common"
_FORMULA = re.compile(r"=[a-z_]+(?:[*/][a-z_]+)*")
_VARIABLES = re.compile(r"\{([a-z]*)\}")


def _fail(file: str, where: str, expected: str) -> FormatError:
    return FormatError(f"architecture file {file}.json, {where}: expected {expected}")


@cache
def file_names() -> tuple[str, ...]:
    """Names of all architecture files, without the shared ones that start with an underscore."""
    entries = (entry.name for entry in resources.files("kinprint.arch").joinpath("data").iterdir())
    return tuple(sorted(name.removesuffix(".json") for name in entries if name.endswith(".json") and name[0] != "_"))


def read_packaged(file: str) -> dict[str, Any]:
    """Parse one packaged data file."""
    try:
        text = resources.files("kinprint.arch").joinpath("data", f"{file}.json").read_text(encoding="utf-8")
    except FileNotFoundError:
        raise FormatError(f"there is no architecture file {file}.json") from None
    try:
        raw = json.loads(text)
    except json.JSONDecodeError as error:
        raise FormatError(f"architecture file {file}.json is not JSON: {error}") from None
    if not isinstance(raw, dict):
        raise _fail(file, "top level", f"an object, got {type(raw).__name__}")
    return raw


@cache
def load(file: str) -> Architecture:
    """Read, validate and compile one packaged architecture file."""
    return compile_architecture(file, merged(file, read_packaged(file)))


@cache
def load_all() -> tuple[Architecture, ...]:
    """Read every architecture file."""
    return tuple(load(name) for name in file_names())


@cache
def selectors() -> Mapping[str, str]:
    """Map model types (in lower case) and class names (OLMo's differ in case only) to the file that claims them."""
    found: dict[str, str] = {}
    for name in file_names():
        raw = read_packaged(name)
        types = (str(claimed).lower() for claimed in raw.get("model_types", ()))
        for claimed in (*types, *map(str, raw.get("architectures", ()))):
            if found.setdefault(claimed, name) != name:
                raise _fail(name, repr(claimed), f"a name not claimed by {found[claimed]}.json already")
    return found


def merged(file: str, raw: Mapping[str, Any], seen: tuple[str, ...] = ()) -> dict[str, Any]:
    """Check the outer form of a file and lay it over the one it extends."""
    for key, value in raw.items():
        if key not in _KEYS:
            raise _fail(file, f"key {key!r}", f"one of {', '.join(_KEYS)}")
        if not isinstance(value, _KEYS[key]) or isinstance(value, bool):  # type: ignore[arg-type]
            raise _fail(file, f"key {key!r}", f"another type than {type(value).__name__}")
    if file == _BASE:
        return dict(raw)
    parent = raw.get("extends", _BASE)
    if parent in (*seen, file):
        raise _fail(file, "key 'extends'", f"no cycle, got {' → '.join((*seen, file, parent))}")
    result = merged(parent, read_packaged(parent), (*seen, file))
    for key in ("model_types", "architectures", "summary"):  # these say who the file itself is for
        result.pop(key, None)
    for key, value in raw.items():
        if key in _MERGED:
            result[key] = {**result.get(key, {}), **value}
        elif key == "exclude":
            result[key] = [
                *value,
                *result.get(key, []),
            ]  # the first that fits holds: what is special before what is general
        else:
            result[key] = value
    for key in ("model", "layer", "encoder_layer"):
        result[key] = {name: value for name, value in result.get(key, {}).items() if value is not None}
    return result


def compile_architecture(file: str, data: Mapping[str, Any]) -> Architecture:
    """Validate a merged file and compile its templates. Raise FormatError naming the file and the key at fault."""
    if not data.get("summary"):
        raise _fail(file, "key 'summary'", "a line saying what the file covers")
    dims = {name: _dim_rules(file, name, rules, data["dims"]) for name, rules in data["dims"].items()}
    blocks = {
        key: data.get(key, "") for key in ("block", "encoder_block") if key == "block" or data.get("encoder_layer")
    }
    for key, block in blocks.items():
        if block.count("{layer}") != 1 or not block.endswith(".{layer}."):
            raise _fail(file, f"key {key!r}", f"text ending in '.{{layer}}.', got {block!r}")
    prefixes = _strings(file, "prefixes", data.get("prefixes", [""]))
    rules: dict[str, NameRule] = {}
    templates = list(_templates(file, data, blocks))
    for template, rule in templates:
        key = template.replace("{layer}", "#").replace("{expert}", "#")
        for prefix in prefixes:
            rules.setdefault(prefix + key, rule)
    offset = float(data.get("norm_offset", 0.0))
    return Architecture(
        name=file,
        summary=data["summary"],
        model_types=_strings(file, "model_types", data.get("model_types", [])),
        class_names=_strings(file, "architectures", data.get("architectures", [])),
        dims=dims,
        rules=rules,
        block_heads=frozenset(prefix + blocks["block"].removesuffix(".{layer}.") for prefix in prefixes),
        exclusions=tuple(_exclusion(file, entry) for entry in data.get("exclude", [])),
        tower=data.get("tower", LANGUAGE),
        special=len(templates) + len(data.get("exclude", [])) + (1000 if offset else 0),
        fixed_positions=data.get("positions") == "fixed",
    )


def _strings(file: str, key: str, values: object) -> tuple[str, ...]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise _fail(file, f"key {key!r}", "a list of strings")
    return tuple(values)


def _exclusion(file: str, entry: object) -> Exclusion:
    if not isinstance(entry, dict) or not entry.keys() <= {"pattern", "reason", "packs", "optional", "residual"}:
        raise _fail(
            file, "key 'exclude'", f"objects of pattern, reason and perhaps packs, optional or residual, got {entry!r}"
        )
    pattern, reason, packs = entry.get("pattern"), entry.get("reason"), entry.get("packs")
    if not isinstance(pattern, str) or not isinstance(reason, str) or not (packs is None or isinstance(packs, str)):
        raise _fail(file, "key 'exclude'", f"strings for pattern, reason and packs, got {entry!r}")
    text = pattern.removeprefix("*").removesuffix("*")
    if not text or set(text) & set("*?["):
        raise _fail(file, f"exclude pattern {pattern!r}", "text, with * at the start, the end or both")
    if packs is not None and (pattern[0] != "*" or pattern[-1] == "*"):
        raise _fail(file, f"exclude pattern {pattern!r}", "* at the start only, as 'packs' replaces the suffix")
    if not isinstance(optional := entry.get("optional", False), bool):
        raise _fail(file, f"exclude pattern {pattern!r}", f"true or false for optional, got {optional!r}")
    residual = entry.get("residual", [])
    axes = residual if isinstance(residual, list) else [residual]
    if not all(type(axis) is int for axis in axes):
        raise _fail(file, f"exclude pattern {pattern!r}", f"numbers of axes for residual, got {residual!r}")
    return Exclusion(pattern, Text.of(reason, {}), packs, optional, tuple(axes))


def _dim_rules(file: str, name: str, rules: object, known: Mapping[str, object]) -> tuple[DimRule, ...]:
    if not isinstance(rules, list):
        raise _fail(file, f"dim {name!r}", f"a list of rules, got {rules!r}")
    return tuple(_dim_rule(file, name, rule, known) for rule in rules)


def _dim_rule(file: str, name: str, rule: object, known: Mapping[str, object]) -> DimRule:
    if isinstance(rule, int) and not isinstance(rule, bool) and rule > 0:
        return rule
    if isinstance(rule, str) and rule.startswith("="):
        if not _FORMULA.fullmatch(rule):
            raise _fail(file, f"dim {name!r}", f"dims joined by * and /, got {rule!r}")
        pieces = re.split(r"([*/])", "*" + rule[1:])[1:]
        terms = tuple(zip(pieces[::2], pieces[1::2], strict=True))
        for _, dim in terms:
            if dim not in known or dim == name:
                raise _fail(file, f"dim {name!r}", f"the names of other dims, got {dim!r}")
        return Formula(terms)
    if isinstance(rule, str) and rule:
        return rule
    if isinstance(rule, dict) and rule.keys() == {"flag", "default", "then"} and isinstance(rule["default"], bool):
        return Condition(str(rule["flag"]), rule["default"], _dim_rules(file, name, rule["then"], known))
    raise _fail(file, f"dim {name!r}", f"a config key, =formula, positive number or flag/default/then, got {rule!r}")


def _templates(file: str, data: Mapping[str, Any], blocks: Mapping[str, str]) -> Iterator[tuple[str, NameRule]]:
    """Expand modules to tensors: their weight and, where a role for it exists, their bias."""
    suffixes = data.get("suffixes", {})
    kinds = {kind: _strings(file, f"suffixes.{kind}", suffixes.get(kind, [kind])) for kind in ("weight", "bias")}
    offset = float(data.get("norm_offset", 0.0))
    priority = 0
    sections = {"model": "", "layer": blocks["block"], "encoder_layer": blocks.get("encoder_block", "")}
    for section, head in sections.items():
        for module, entry in data[section].items():
            where = f"{section}.{module}"
            spec = {"role": entry} if isinstance(entry, str) else entry
            if not isinstance(spec, dict) or not spec.keys() <= {"role", "split", "transposed", "exact", "stacked"}:
                raise _fail(file, where, "a role, or an object of role or split, transposed, exact, stacked")
            full = module if "{layer}" in module else head + module  # where no block holds all of a layer (XLM)
            variables = _variables(file, where, full)
            indices = len(name_key(_VARIABLES.sub("0", full) + ".")[1])  # layer, expert, and those that are written out
            base = NameRule(None, indices=indices, has_layer="layer" in variables, has_expert="expert" in variables)
            base = replace(base, encoder=section == "encoder_layer")
            weight = _role_or_split(file, where, spec, data["dims"])
            _check_scope(file, where, weight, (*variables, "expert") if spec.get("stacked") else variables)
            if spec.get("exact"):
                yield full, _rule(base, weight, spec, priority, offset)
                priority += 1
                continue
            for kind, names in kinds.items():
                target = weight if kind == "weight" else _bias(weight)
                if target is None:
                    continue
                for name in names:
                    flags = spec if kind == "weight" else {}  # a bias has one axis: nothing to transpose
                    yield f"{full}.{name}", _rule(base, target, flags, priority, offset)
                    priority += 1


def _rule(base: NameRule, target: Role | Split, spec: Mapping[str, Any], priority: int, offset: float) -> NameRule:
    return replace(
        base,
        role=target if isinstance(target, Role) else None,
        split=target if isinstance(target, Split) else None,
        transposed=bool(spec.get("transposed", False)),
        priority=priority,
        offset=offset if isinstance(target, Role) and target.info.kind == "norm" else 0.0,
        stacked=bool(spec.get("stacked", False)),
    )


def _variables(file: str, where: str, template: str) -> tuple[str, ...]:
    found = tuple(_VARIABLES.findall(template))
    if set(found) - {"layer", "expert"} or len(set(found)) != len(found):
        raise _fail(file, where, "{layer} and {expert} as the only variables, once each")
    if found[:1] != ("layer",) and name_key(f"{template}.")[1]:
        raise _fail(file, where, "no literal index before {layer}")
    return found


def _check_scope(file: str, where: str, target: Role | Split, variables: tuple[str, ...]) -> None:
    roles = [role for role, _ in target.parts] if isinstance(target, Split) else [target]
    expected = {"model": (), "layer": ("layer",), "expert": ("layer", "expert")}
    for role in roles:
        if variables != expected[role.info.scope]:
            raise _fail(file, where, f"variables {expected[role.info.scope]} for role {role.value}, got {variables}")


def _role(file: str, where: str, value: object) -> Role:
    try:
        return Role(str(value))
    except ValueError:
        raise _fail(file, where, f"a role, got {value!r}") from None


def _role_or_split(file: str, where: str, spec: Mapping[str, Any], dims: Mapping[str, object]) -> Role | Split:
    if ("role" in spec) == ("split" in spec):
        raise _fail(file, where, "either role or split")
    if "role" in spec:
        return _role(file, where, spec["role"])
    split = spec["split"]
    if not isinstance(split, dict) or not split.keys() <= {"repeat", "parts"}:
        raise _fail(file, where, f"a split of repeat and parts, got {split!r}")
    repeat, parts = split.get("repeat"), split.get("parts")
    if repeat is not None and repeat not in dims:
        raise _fail(file, where, f"the name of a dim as repeat, got {repeat!r}")
    if not isinstance(parts, list) or not parts:
        raise _fail(file, where, "parts: a list of [role, dim]")
    compiled = []
    for part in parts:
        if not isinstance(part, list) or len(part) != 2 or part[1] not in dims:
            raise _fail(file, where, f"parts of the form [role, dim], got {part!r}")
        compiled.append((_role(file, where, part[0]), str(part[1])))
    if len({role for role, _ in compiled}) != len(compiled):
        raise _fail(file, where, "each role once in a split")
    return Split(repeat, tuple(compiled))


def _bias(weight: Role | Split) -> Role | Split | None:
    if isinstance(weight, Role):
        return BIASES.get(weight)
    parts = [(BIASES.get(role), size) for role, size in weight.parts]
    known = tuple((role, size) for role, size in parts if role is not None)
    return Split(weight.repeat, known) if len(known) == len(parts) else None
