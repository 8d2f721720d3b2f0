"""Compare the config.json of two models: context for a reader, never evidence of derivation."""

import json
from collections.abc import Mapping

import orjson

from kinprint.results.measurements import NOT_COMPARABLE, OK
from kinprint.results.models import ConfigDifference, KeyDifference
from kinprint.text import Text

_SHOWN = 200  # characters of a config value that a report keeps


def compare_configs(a: Mapping[str, object], b: Mapping[str, object]) -> ConfigDifference:
    """List every key whose value differs or which only one side has; nested objects are compared key by key."""
    if not a or not b:
        missing = Text("model {side} has no {file}", side="A" if not a else "B", file="config.json")
        reason = missing if a or b else Text("both models have no config.json")
        return ConfigDifference(NOT_COMPARABLE, reason, 0, ())
    left, right = _flatten(a), _flatten(b)
    differences = []
    equal = 0
    for key in sorted(left.keys() | right.keys()):
        if key in left and key in right and left[key] == right[key]:
            equal += 1
            continue
        one, two = (side[key][:_SHOWN] if key in side else None for side in (left, right))
        differences.append(KeyDifference(key[:_SHOWN], one, two, key in left, key in right))
    return ConfigDifference(OK, None, equal, tuple(differences))


def _flatten(config: Mapping[str, object], prefix: str = "", depth: int = 0) -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in config.items():
        if isinstance(value, dict) and value and depth < 4:
            flat |= _flatten(value, f"{prefix}{key}.", depth + 1)
        else:
            flat[f"{prefix}{key}"] = _as_text(value)
    return flat


def _as_text(value: object) -> str:
    try:
        text = orjson.dumps(value)
        if b"null" not in text:
            return text.decode()
    except orjson.JSONEncodeError:  # nested deeper than orjson writes, though it reads it, or a very large integer
        pass
    try:  # orjson writes NaN and infinities as null; what a config says is not to look like what it does not
        return json.dumps(value, separators=(",", ":"))
    except RecursionError:
        return "(nested too deeply to show)"
