"""Find out which models a scan is to read: names, folders, lists of them, and all repositories of organisations."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TextIO

from kinprint._util.files import is_file, is_folder, user_path
from kinprint.errors import BadReference, NotFound, StorageError
from kinprint.refs import is_weights
from kinprint.sources.session import Session

LONGEST_LINE = 4096
MOST_MODELS = 10_000_000
FINGERPRINT = ".kfp"
_COMMIT = re.compile(r"^(?P<repo>[^@]+)@(?P<commit>[0-9a-f]{40})$")


@dataclass(frozen=True, slots=True)
class Wanted:
    """One model as it is asked for; ``commit`` where it is known before anything is asked."""

    model: str
    commit: str | None = None

    @property
    def reference(self) -> str:
        """The model at its commit, if that is known."""
        return self.model if self.commit is None else f"{self.model}@{self.commit}"


def wanted(given: Iterable[str], stdin: TextIO) -> list[Wanted]:
    """Return the models that arguments name, each once: models, folders of models, files with a model on each line, - for stdin."""
    found: dict[Wanted, None] = {}
    for text in given:
        path = user_path(text)
        if text == "-":
            found.update(dict.fromkeys(map(_wanted, lines_of(stdin, "standard input"))))
        elif is_folder(path):
            found.update(dict.fromkeys(Wanted(folder) for folder in _models_in(path, text)))
        elif is_file(path) and not is_weights(path.name) and path.suffix != FINGERPRINT:
            found.update(dict.fromkeys(map(_wanted, _listed(path))))
        else:
            found[_wanted(text)] = None
    if len(found) > MOST_MODELS:
        raise BadReference(f"{len(found)} models; expected at most {MOST_MODELS} in one scan")
    return list(found)


def well_known() -> list[Wanted]:
    """Return the best-known open models of the hub, whose names come with kinprint."""
    place = resources.files("kinprint.catalog").joinpath("data", "well_known.txt")
    return [Wanted(name) for name in lines_of(io.StringIO(place.read_text(encoding="utf-8")), "the list of kinprint")]


def wanted_of(owners: Iterable[str], session: Session) -> list[Wanted]:
    """Return all models that organisations or users have on the hub, with their commits."""
    return [Wanted(model.repo, model.commit) for owner in owners for model in session.models_of(owner)]


def _wanted(text: str) -> Wanted:
    pinned = _COMMIT.match(text.removeprefix("hf://"))
    return Wanted(pinned["repo"], pinned["commit"]) if pinned and pinned["repo"].count("/") == 1 else Wanted(text)


def _models_in(folder: Path, text: str) -> list[str]:
    """Return a folder that holds weights, or else those of its folders that do."""
    if _has_weights(folder):
        return [text]
    inside = [str(path) for path in sorted(folder.iterdir()) if path.is_dir() and _has_weights(path)]
    if not inside:
        said = f"{text}: neither the folder nor a folder in it holds a file of weights"
        raise NotFound(said, hint="give folders of models, names of the hub, or a file with one of them on each line")
    return inside


def _has_weights(folder: Path) -> bool:
    """Whether a folder holds weights, as far as it can be read: else it may, and whoever reads it is told why not."""
    try:
        return any(path.is_file() and is_weights(path.name) for path in folder.iterdir())
    except OSError:
        return True


def _listed(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8") as stream:
            yield from lines_of(stream, str(path))
    except OSError as error:
        raise StorageError(f"cannot read the list {path}: {error.strerror}") from error


def lines_of(stream: TextIO, where: str) -> Iterator[str]:
    """Yield one model a line; # begins a comment. A mark of UTF-8, with which some editors begin a text, belongs to no name."""
    number = 0
    try:
        while line := stream.readline(LONGEST_LINE + 1):
            number += 1
            if len(line) > LONGEST_LINE:
                said = f"{where}, line {number}: more than {LONGEST_LINE} letters; expected one model a line"
                raise BadReference(said)
            text = line.removeprefix("\ufeff").partition("#")[0].strip()
            if text:
                yield text
    except UnicodeDecodeError as error:
        said = f"{where}, after line {number}: not UTF-8; expected a text with one model a line"
        raise BadReference(said) from error
