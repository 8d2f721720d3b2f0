"""Build a zoo: train missing members in worker processes, keep them, and never train them again.

A trained member is kept with the hash of its entry in the plan and of all it is made from, so that a build that was
interrupted goes on where it was, and a changed entry trains what depends on it and nothing else.
"""

import importlib.util
import json
import platform
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from kinprint._util.files import write_whole
from kinprint._util.progress import Progress, quiet
from kinprint.errors import BadSetting, NeedsExtra, NotFound
from kinprint.lab.zoo.derive import save_state
from kinprint.lab.zoo.members import Loaded, Training, ZooMember, keys_of
from kinprint.lab.zoo.plan import FULL, QUICK
from kinprint.lab.zoo.relations import Record
from kinprint.lab.zoo.store import FILE, Zoo, hashes_of
from kinprint.lab.zoo.workers import Task, run_tasks

MODELS = "models"
NOTE_FILE = "member.json"
FILES = ("config.json", "model.safetensors", "tokenizer.json")
TIERS: dict[str, tuple[ZooMember, ...]] = {"full": FULL, "quick": QUICK}


def build(
    folder: Path | str,
    tier: str = "full",
    *,
    progress: Progress = quiet,
    workers: int = 2,
    plan: Sequence[ZooMember] | None = None,
) -> Zoo:
    """Train what is missing, write zoo.json and return the zoo. Built again with nothing changed, nothing is trained.

    `plan` names other members than those of the tier. (The tiny zoo is not built: the project bundles its models.) `progress`
    gets "train", the training steps done, and all of this run. Each of the `workers` has one thread; the models do not depend on
    their number. Raise NeedsExtra if something is to be trained and torch or tokenizers
    is missing, BadSetting if there is no such tier or less than one worker, StorageError if the folder cannot be written.
    """
    if plan is None and tier not in TIERS:
        raise BadSetting(f"there is no tier {tier!r} to build, expected {', '.join(TIERS)}")
    if workers < 1:
        raise BadSetting(f"at least one worker is needed, got {workers}")
    members = {member.name: member for member in (TIERS[tier] if plan is None else plan)}
    kept = _Kept(Path(folder), members, keys_of(members))
    tasks = kept.missing()
    if tasks:
        _need_torch()
        run_tasks(tasks, kept.folder, members, workers=workers, progress=progress)
    record = kept.record(tier)
    write_whole(kept.folder / FILE, record.to_json())
    return Zoo(kept.folder, record)


def _need_torch() -> None:
    if any(importlib.util.find_spec(module) is None for module in ("torch", "tokenizers")):
        raise NeedsExtra("training the zoo", extra="torch")


def versions() -> dict[str, str]:
    """Return the versions that the weights of trained members depend on."""
    found = {"python": platform.python_version(), "machine": f"{platform.system()} {platform.machine()}"}
    for package in ("numpy", "torch", "tokenizers"):
        if importlib.util.find_spec(package) is not None:
            found[package] = metadata.version(package)
    return found


def store_member(folder: Path, name: str, key: str, model: Loaded, measured: Mapping[str, Any]) -> None:
    """Write a trained member so that it is there whole or not at all."""
    target, fresh = folder / MODELS / name, folder / MODELS / f".{name}.new"
    shutil.rmtree(fresh, ignore_errors=True)
    save_state(fresh, *model)
    note = {"key": key, "sha256": hashes_of(fresh, list(FILES)), "measured": dict(measured), "versions": versions()}
    write_whole(fresh / NOTE_FILE, (json.dumps(note, indent=1) + "\n").encode())
    # A folder cannot replace one that is not empty; in between, the member counts as missing.
    shutil.rmtree(target, ignore_errors=True)
    fresh.replace(target)


@dataclass(frozen=True)
class _Kept:
    """The trained members of a plan that a folder holds."""

    folder: Path
    members: Mapping[str, ZooMember]
    keys: Mapping[str, str]

    def note(self, name: str) -> dict[str, Any] | None:
        """Return what was noted when a member was trained, None if it has to be trained (again)."""
        place = self.folder / MODELS / name
        try:
            note: dict[str, Any] = json.loads((place / NOTE_FILE).read_text(encoding="utf-8"))
            whole = note["key"] == self.keys[name] and note["sha256"] == hashes_of(place, list(FILES))
        except (FileNotFoundError, NotFound, ValueError, KeyError):
            return None
        return note if whole else None

    def missing(self) -> list[Task]:
        """Return what has to be trained, in the plan's order, each with what must be trained before it."""
        tasks: dict[str, Task] = {}
        trained_before: dict[str, frozenset[str]] = {}
        for name, member in self.members.items():
            before = frozenset().union(*(trained_before[need] for need in member.needs))
            if isinstance(member.how, Training):
                if self.note(name) is None:
                    waits = frozenset(before & tasks.keys())
                    tasks[name] = Task(name, self.keys[name], member.how.steps, waits)
                before |= {name}
            trained_before[name] = before
        return list(tasks.values())

    def record(self, tier: str) -> Record:
        """Return the record of a folder that has everything. Raise NotFound if a trained member is missing after all."""
        stored: dict[str, tuple[str, Mapping[str, str]]] = {}
        measured: dict[str, Mapping[str, Any]] = {}
        for name, member in self.members.items():
            if isinstance(member.how, Training):
                note = self.note(name)
                if note is None:
                    raise NotFound(f"{name} was trained and is not in {self.folder}", hint="build the zoo again")
                stored[name] = f"{MODELS}/{name}", note["sha256"]
                measured[name] = {**note["measured"], "versions": note["versions"]}
        command = f"kinprint.lab.zoo.build.build(folder, tier={tier!r})"
        return Record(tier, command, versions(), self.members, stored, measured)
