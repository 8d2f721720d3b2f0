"""Define what the verification of an evidence bundle found."""

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
            if item.type is Text:
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
    """Disagreement between what a bundle records and what is the case."""

    kind: str  # "member" of the archive, "manifest", "source", "range", "read" or "field" of the report
    where: str  # which one
    recorded: Text
    found: Text


@dataclass(frozen=True)
class Unchecked(_Presentable):
    """Part that could not be checked, and why."""

    what: Text
    reason: Text


@dataclass(frozen=True)
class ModelRead(_Presentable):
    """A model that the comparison read, and where, as recorded."""

    reference: str
    location: str
    commit: str | None
    asked: bool  # whether it was opened again, and held against the record
    said: Text  # what a reader should know: that the hub is not the user's own, or a branch has moved since
    foreign: bool = False  # whether the hub is not the user's own


@dataclass(frozen=True)
class Verification:
    """Results of `kinprint verify`."""

    schema: str
    schema_version: int
    bundle: str  # name of the file
    digest: str  # stands for all that the bundle holds
    outcome: str
    sentence: Text  # the outcome in words
    a: str  # what the bundle is about, as its report says it
    b: str
    verdict: Text | None
    offline: bool  # whether the enclosed bytes were used, and no source asked
    cached: bool  # whether the caches of this machine could stand for the sources
    models: tuple[ModelRead, ...]
    null: str | None  # SHA-256 of an empirical null that came with the bundle; None for the one of this program
    checks: tuple[Check, ...]
    figures: int  # numbers in the report apart from those of the run
    exact: int  # of these, equal to the last bit
    close: int  # equal within the tolerance
    differ: int
    other_values: int  # what is not a number
    other_differ: int
    tolerance: float  # relative
    versions: tuple[Text, ...]  # how the software that made the bundle differs from this one
    problems: tuple[Problem, ...]  # what does not agree; the first of them
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
