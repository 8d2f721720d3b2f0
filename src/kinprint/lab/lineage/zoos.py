"""Where zoos are kept, and which one a run uses."""

from __future__ import annotations

import os
from pathlib import Path

from kinprint._util.progress import Progress
from kinprint.lab.zoo.build import build
from kinprint.lab.zoo.members import Training, ZooMember
from kinprint.lab.zoo.plan import FULL
from kinprint.lab.zoo.store import FILE, Zoo

QUICK_BASES = ("a0", "a1", "b0")


def cache_folder() -> Path:
    """Return the folder for zoos in the user's cache."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "kinprint" / "zoo"


def quick_plan() -> tuple[ZooMember, ...]:
    """Return three bases, the changes made of them without training, and the light fine-tunes."""
    kept: dict[str, ZooMember] = {}
    for member in FULL:
        if member.name in QUICK_BASES:
            kept[member.name] = member
        elif isinstance(member.how, Training):
            if member.links and member.links[0].parent in kept and member.name.endswith("finetune-light"):
                kept[member.name] = member
        elif member.links and all(link.parent in kept for link in member.links):
            kept[member.name] = member
    return tuple(kept.values())


def open_or_build(place: Path | None, *, full: bool, workers: int, progress: Progress) -> Zoo:
    """Open the zoo in a folder, or train the full or the quick one there; what is already trained is not trained again."""
    if place is not None and not full and (place / FILE).is_file():
        return Zoo.open(place)
    folder = place or cache_folder() / ("full" if full else "quick")
    if full:
        return build(folder, "full", progress=progress, workers=workers)
    return build(folder, "quick", progress=progress, workers=workers, plan=quick_plan())
