"""Hold what tools/architectures/survey.py saw of transformers' model types: config, names and shapes as saved, and roles.

The roles are those of a run in which copies, reordered along the axes of their roles, were seen to compute the same logits, as
far as docs/architectures.md says so.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

_FILE = Path(__file__).with_name("surveyed_names.json")


class Surveyed(NamedTuple):
    """A model type: the architecture file, a config, and of every tensor its shape and its roles (none if left out on purpose)."""

    file: str
    config: dict[str, Any]
    shapes: dict[str, tuple[int, ...]]
    roles: dict[str, frozenset[str]]


def _read(entry: dict[str, Any]) -> Surveyed:
    shapes: dict[str, tuple[int, ...]] = {}
    roles: dict[str, frozenset[str]] = {}
    for line, places in entry["tensors"].items():
        pattern, role, size = line.split(" ")
        for place in places.split(" "):
            numbers = iter(place.split(","))
            name = "".join(next(numbers) if letter == "#" else letter for letter in pattern)
            shapes[name] = () if size == "scalar" else tuple(map(int, size.split("x")))
            roles[name] = frozenset() if role == "-" else frozenset(role.split("+"))
    return Surveyed(entry["file"], entry["config"], shapes, roles)


SURVEYED = {name: _read(entry) for name, entry in json.loads(_FILE.read_text(encoding="utf-8")).items()}
