"""Write what a survey saw into a file that tests read: of each model type its config's sizes, and the role of every tensor.

Tensors that differ in layer or expert alone stand in one line: name with # for numbers, roles, shape, and the numbers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kinprint.arch import Naming

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")


def name_list(config: Mapping[str, Any], naming: Naming, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """Return the entry of one type."""
    roles: dict[str, list[str]] = {}
    for tensor in (tensor for each in (naming, *(inner for _, inner in naming.towers)) for tensor in each.tensors):
        found = roles.setdefault(tensor.name.partition("[")[0], [])
        if tensor.role.value not in found:
            found.append(tensor.role.value)
    left_out = {item.name for item in naming.excluded}
    lines: dict[str, str] = {}
    for name in sorted(shapes):
        role = "+".join(sorted(roles.get(name, ()))) or ("-" if name in left_out else "?")
        size = "x".join(map(str, shapes[name])) or "scalar"
        key, place = f"{_NUMBER.sub('#', name)} {role} {size}", ",".join(_NUMBER.findall(name))
        lines[key] = f"{lines.get(key, '')} {place}".strip()
    return {"file": naming.architecture, "config": _sizes(config), "tensors": lines}


def _sizes(config: Mapping[str, Any]) -> dict[str, Any]:
    """Keep what a naming can depend on: numbers and flags, the type, and the same of its parts."""
    kept = {key: value for key, value in config.items() if isinstance(value, (bool, int)) and not key.startswith("_")}
    kept |= {key: config[key] for key in ("model_type", "architectures") if config.get(key)}
    parts = ("text_config", "vision_config", "audio_config", "encoder_config", "encoder", "decoder")
    return kept | {key: _sizes(inner) for key in parts if isinstance(inner := config.get(key), dict)}


def write_lists(path: Path, entries: Mapping[str, Any]) -> None:
    """Write all entries, one line a tensor, so that a change can be read."""
    path.write_text(json.dumps(dict(sorted(entries.items())), indent=0, ensure_ascii=False) + "\n")
