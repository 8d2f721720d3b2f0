"""What a search of a catalog returns: relatives with exact p-values, look-alikes without proof, and what was not compared."""

from dataclasses import dataclass, field
from typing import ClassVar

from kinprint.results.context import NOT_JUDGED, NOT_SHOWN, UNDECLARED
from kinprint.results.findings import (
    DERIVED,
    IDENTICAL,
    NO_EVIDENCE,
    NOT_TESTABLE,
    SHARES_COMPONENTS,
    SHARES_INITIALISATION,
)
from kinprint.results.later import LATER
from kinprint.results.options import Options
from kinprint.results.result import Result
from kinprint.text import Text

RELATED, LOOK_ALIKE, NAMED = "related", "look_alike", "named"
# Verdicts on weights, the most telling first.
RELATIONS = (IDENTICAL, DERIVED, SHARES_COMPONENTS, SHARES_INITIALISATION)
SAME_FILES, SAME_KEPT = "files", "kept"
SEARCH_CLASSES = (RELATED, NO_EVIDENCE, NOT_TESTABLE)


@dataclass(frozen=True)
class SearchedModel:
    """The model that relatives were looked for."""

    reference: str
    name: str
    revision: str | None
    architecture: str
    layers: int
    hidden: int
    parameters: int
    key: str  # SHA-256 of its fingerprint file


@dataclass(frozen=True)
class SharedTest:
    """One exact test of two fingerprints that stands after correction for all entries and tests."""

    test: str
    scope: Text
    log10_p: float  # by itself
    log10_p_search: float  # corrected for every entry of the catalog and every test
    statistic: float | None
    n: int | None


@dataclass(frozen=True)
class Verified:
    """What a full comparison of the weights says, or why there is none."""

    class_: str | None
    kind: str | None
    log10_p: float | None
    sentence: Text
    declared: str | None = field(default=None, metadata=LATER)  # what the cards declare, held against that verdict


@dataclass(frozen=True)
class FoundModel:
    """An entry of the catalog that a search lists.

    ``class_`` is "related" where exact tests on the fingerprints reject independence after correction for every entry and test,
    "look_alike" where only what no order or basis alters is alike, which proves nothing, "named" where the card of the model that
    is looked for names the entry as its base, and fingerprints show nothing of it. ``same`` says that the weight files
    are the same by their identities ("files"), or all that both fingerprints keep ("kept").
    """

    class_: str
    key: str
    name: str
    revision: str | None
    architecture: str
    layers: int
    hidden: int
    parameters: int
    licence: str | None
    declared: bool  # whether the card of either names the other as its base
    same: str | None
    log10_p: float | None
    tests: tuple[SharedTest, ...]
    likeness: tuple[tuple[str, float], ...]  # correlations of what no order or basis alters
    recalled: tuple[tuple[str, float], ...]  # families of recall vectors and the cosine there
    verify: str  # command that gives a full verdict; empty where the entry does not say where the weights are
    verified: Verified | None = None

    @property
    def is_relative(self) -> bool:
        """Whether it is related: by its weights where these gave a verdict, else by exact tests on fingerprints."""
        seen = self.verified.class_ if self.verified is not None else None
        return self.class_ == RELATED if seen in (None, NOT_TESTABLE) else seen in RELATIONS


@dataclass(frozen=True)
class FamilySearched:
    """One family of recall vectors: how many entries have one, and how near the last candidate was."""

    family: str
    entries: int
    candidates: int
    last_cosine: float | None


@dataclass(frozen=True)
class NotCompared:
    """Entries or candidates that could not be compared, with the reason."""

    reason: Text
    count: int
    names: tuple[str, ...]  # the first of them
    # Whether recall had proposed them: they may be what was looked for.
    near: bool = field(default=True, metadata=LATER)


@dataclass(frozen=True)
class SearchPower:
    """The weakest planted relation that this search would have found; ``correlation`` is None where none would have been."""

    what: str  # "all parts"
    correlation: float | None
    tried: tuple[float, ...]
    draws: int


@dataclass(frozen=True)
class SearchReport(Result):
    """A model and its relatives in a catalog, best first."""

    SCHEMA: ClassVar = "kinprint.search"
    CALLED: ClassVar = "a report of a search"
    VERSIONS: ClassVar = (2,)

    schema: str
    schema_version: int
    made_by: str
    query: SearchedModel
    catalog: str  # where it is, without credentials
    entries: int
    class_: str
    sentence: Text
    log10_alpha: float
    found: tuple[FoundModel, ...]
    not_listed: int  # further relatives that were proven, or candidates that were not tested, beyond the limit
    families: tuple[FamilySearched, ...]
    candidates: int
    tested: int  # candidates that the exact tests were run on
    not_compared: tuple[NotCompared, ...]
    power: SearchPower | None
    notes: tuple[Text, ...]
    # Entries that an answer speaks of: not all can be compared.
    compared: int | None = field(default=None, metadata=LATER)
    local: str | None = field(default=None, metadata=LATER)  # folder in which entries of this machine were looked for
    not_tested: int | None = field(default=None, metadata=LATER)  # those of not_listed that no exact test was run on
    limit: int | None = field(default=None, metadata=LATER)  # relatives that were to be listed
    settings: Options | None = field(default=None, metadata=LATER)  # how the model was read, and weights compared

    @property
    def more(self) -> bool:
        """Whether there may be more relatives than are listed, since not all candidates were tested."""
        return (self.not_listed if self.not_tested is None else self.not_tested) > 0

    @property
    def relatives(self) -> tuple[FoundModel, ...]:
        """Entries that are proven to be related by their fingerprints, best first."""
        return tuple(item for item in self.found if item.class_ == RELATED)

    @property
    def look_alikes(self) -> tuple[FoundModel, ...]:
        """Entries that look alike in what no order or basis alters, without proof."""
        return tuple(item for item in self.found if item.class_ == LOOK_ALIKE)

    @property
    def findings(self) -> tuple[str, ...]:
        """What was found, as `--fail-on` and `--exit-code` look at it: verdicts on weights, the answer, what cards declare.

        "not_testable" is among them where a candidate could not be compared, or its weights told nothing, "not_judged" where
        weights could not be read.
        """
        seen = [item.verified for item in self.found if item.verified is not None]
        verdicts = [relation for relation in RELATIONS if any(one.class_ == relation for one in seen)]
        declared = [
            state for state in (UNDECLARED, NOT_SHOWN, NOT_JUDGED) if any(one.declared == state for one in seen)
        ]
        told = [item.near for item in self.not_compared] + [one.class_ == NOT_TESTABLE for one in seen]
        unread = [NOT_TESTABLE] if any(told) else []
        unjudged = [NOT_JUDGED] if any(one.class_ is None for one in seen) else []
        return tuple(dict.fromkeys([*verdicts, self.class_, *declared, *unread, *unjudged]))
