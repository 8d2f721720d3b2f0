"""Define what the verification of an evidence bundle found."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from kinprint._util.plain import printable
from kinprint.results.plain_json import write_json
from kinprint.text import Text, verbatim

SCHEMA = "kinprint.verification"
SCHEMA_VERSION = 1

VERIFIED = "verified"  # everything was checked, and agrees
IN_PART = "verified_in_part"  # everything that could be checked agrees; something could not be
FAILED = "failed"  # something does not agree
NOT_CHECKED = "not_checked"  # the statistics could not be computed anew

PASSED, WRONG, OPEN = "ok", "failed", "not checked"

EXIT_CODES = {VERIFIED: 0, IN_PART: 5, FAILED: 9, NOT_CHECKED: 7}
"""What a script sees; a bundle that cannot be read at all is 6, one that is not there 3."""

MOST_SHOWN = 200  # problems and close figures that are listed; all are counted
MOST_CHARACTERS = 600  # of a text that a bundle can decide


def presentable(text: str) -> Text:
    """Return text fit to be shown: as given if it is short and printable, else the printable characters of its beginning."""
    shown = printable(text, MOST_CHARACTERS)
    return verbatim(text if shown == text else shown)


class _Presentable:
    """Dataclass whose texts are made fit to be shown: whoever made the bundle wrote them."""

    def __post_init__(self) -> None:
        item: Any
        for item in fields(self):  # type: ignore[arg-type]  # every subclass is a dataclass
            value = getattr(self, item.name)
            if item.type == "Text":
                object.__setattr__(self, item.name, presentable(value))
            elif isinstance(value, str):
                object.__setattr__(self, item.name, printable(value, 64 if item.name == "commit" else MOST_CHARACTERS))


@dataclass(frozen=True)
class Check:
    """One step of the verification: how many values were checked, how many agree, and what that means in words."""

    name: str
    state: str
    checked: int
    agree: int
    said: Text


@dataclass(frozen=True)
class Problem(_Presentable):
    """Disagreement between what a bundle records and what is the case.

    Attributes
    ----------
    kind : "member" of the archive, "manifest", "source", "range", "read" or "field" of the report.
    where : Which one.
    recorded, found : What the bundle says, and what is the case.
    """

    kind: str
    where: str
    recorded: Text
    found: Text


@dataclass(frozen=True)
class Unchecked(_Presentable):
    """Part that could not be checked, and why."""

    what: Text
    reason: Text


@dataclass(frozen=True)
class ModelRead(_Presentable):
    """A model that the comparison read, and where.

    Attributes
    ----------
    reference, location, commit : As recorded. Held against each other, and against what was opened, unless `asked` is
        false.
    asked : Whether it was opened again for the verification.
    said : What a reader should know: that the hub is not the user's own, or a branch has moved since.
    foreign : Whether the hub is not the user's own.
    """

    reference: str
    location: str
    commit: str | None
    asked: bool
    said: Text
    foreign: bool = False


@dataclass(frozen=True)
class Verification:
    """Results of `kinprint verify`.

    Attributes
    ----------
    bundle, digest : Name of the file, and the digest that stands for all it holds.
    outcome, sentence : The result, as a word and as a sentence.
    a, b, verdict : What the bundle is about, as its report says it.
    offline : Whether the enclosed bytes were used, and no source asked.
    cached : Whether the caches of this machine could stand for the sources.
    models : What was read, and where.
    null : SHA-256 of an empirical null that came with the bundle, against which its figures were judged; None for the one
        that ships with this program.
    figures, exact, close, differ : Numbers in the report apart from those of the run: all, equal to the last bit, equal
        within `tolerance` (relative), and not equal.
    other_values, other_differ : Likewise for what is not a number.
    versions : How the software that made the bundle differs from this one.
    problems, problems_in_all, close_figures, unchecked : What does not agree, what agrees only within the tolerance, and
        what could not be checked.
    """

    schema: str
    schema_version: int
    bundle: str
    digest: str
    outcome: str
    sentence: Text
    a: str
    b: str
    verdict: Text | None
    offline: bool
    cached: bool
    models: tuple[ModelRead, ...]
    null: str | None
    checks: tuple[Check, ...]
    figures: int
    exact: int
    close: int
    differ: int
    other_values: int
    other_differ: int
    tolerance: float
    versions: tuple[Text, ...]
    problems: tuple[Problem, ...]
    problems_in_all: int
    close_figures: tuple[Problem, ...]
    unchecked: tuple[Unchecked, ...]

    @property
    def exit_code(self) -> int:
        """Exit code of the command line."""
        if self.outcome == NOT_CHECKED and not self.offline:
            return EXIT_CODES[IN_PART]
        return EXIT_CODES[self.outcome]

    def to_json(self, *, indent: bool = True) -> bytes:
        """Return the verification as JSON (UTF-8)."""
        return write_json(self, indent=indent)
