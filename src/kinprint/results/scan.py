"""What a scan returns: how many models were entered in a catalog, what it took, and what went wrong with which."""

from dataclasses import dataclass
from typing import ClassVar

from kinprint import errors
from kinprint.results.result import Result

SCAN_VERSION = 1


@dataclass(frozen=True)
class ScanFailure:
    """A model that could not be entered: the class of the error and its message, and the next step where one is known."""

    name: str
    revision: str | None
    error: str
    hint: str | None = None

    @property
    def message(self) -> str:
        """What went wrong, without the class where it is one of this program's, which says nothing to readers."""
        kind, _, message = self.error.partition(": ")
        return message if message and isinstance(getattr(errors, kind, None), type) else self.error


@dataclass(frozen=True)
class ScanReport(Result):
    """The outcome of a scan. ``added``, ``known``, ``failed`` and ``failed_before`` add up to ``wanted`` if it came to its end.

    ``known`` stood in the catalog at the same commit, ``failed_before`` failed at the same commit for a reason that stays.
    ``failed`` is in the order of the list that was scanned.
    """

    SCHEMA: ClassVar = "kinprint.scan"
    CALLED: ClassVar = "the report of a scan"
    VERSIONS: ClassVar = (SCAN_VERSION,)

    schema: str
    schema_version: int
    catalog: str
    where: str
    workers: int
    wanted: int
    added: int
    known: int
    failed_before: int
    failed: tuple[ScanFailure, ...]
    seconds: float
    cpu_seconds: float  # of the processes that read models
    requests: int
    retries: int
    network_bytes: int
    bytes_read: int
    fingerprint_bytes: int  # of what was added
    interrupted: bool = False

    @property
    def done(self) -> int:
        """Models that were dealt with."""
        return self.added + self.known + self.failed_before + len(self.failed)

    @property
    def read(self) -> int:
        """Models that were read: not those that failed, were known, or were not tried again."""
        return self.added

    @property
    def per_second(self) -> float:
        """Models read in a second; 0 where none had to be."""
        return self.read / self.seconds if self.seconds > 0.0 else 0.0
