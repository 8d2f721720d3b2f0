"""Mark fields added after the first version of a schema; a module of its own, so that options load nothing else."""

from dataclasses import Field
from typing import Any

LATER = {"later": True}
"""Marks a field that was added after reports of this schema were written: it has a default, and may be missing."""


def is_later(item: Field[Any]) -> bool:
    """Whether a field is marked so."""
    return LATER.items() <= item.metadata.items()
