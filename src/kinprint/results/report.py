"""What kinprint returns and writes: plain frozen dataclasses, versioned, the same object in Python, JSON and on screen.

JSON holds no NaN: a number that does not exist is null, and the ``status`` and ``reason`` beside it say why.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any

from kinprint.results.context import DeclaredFinding, FileReads, LayerGrid
from kinprint.results.findings import Evidence, MethodFinding, Verdict
from kinprint.results.later import LATER
from kinprint.results.measurements import OK, RoleSummary, Skipped, TensorComparison
from kinprint.results.models import ConfigDifference, ModelSummary, TokenizerDifference
from kinprint.results.options import Options
from kinprint.results.plain_json import read_json, write_json
from kinprint.results.result import Result
from kinprint.text import Text

SCHEMA = "kinprint.report"
SCHEMA_VERSION = 2
READABLE = (1, SCHEMA_VERSION)
"""Versions that open: a report of schema 1 has English sentences without their data."""


@dataclass(frozen=True)
class Run:
    """What may differ between two runs of the same comparison: time, traffic, versions. Nothing else in a report may."""

    kinprint: str
    python: str
    numpy: str
    started: str
    elapsed_s: float
    requests: int
    retries: int
    network_bytes: int
    cache_bytes: int
    local_bytes: int
    problem: Text | None = field(default=None, metadata=LATER)  # of the range cache, which is no reason to fail


@dataclass(frozen=True)
class Report(Result):
    """Everything one comparison found: measurements beside their nulls, the evidence drawn from them, and the verdict.

    ``verdict`` and ``evidence`` are None only in a comparison that was asked for measurements alone.
    """

    schema: str
    schema_version: int
    status: str  # "ok", or "not_comparable" if not one tensor could be compared
    reason: Text | None
    a: ModelSummary
    b: ModelSummary
    settings: Options
    bytes_read: int
    bytes_planned: int
    config: ConfigDifference
    tokenizer: TokenizerDifference
    summary: tuple[RoleSummary, ...]
    comparisons: tuple[TensorComparison, ...]
    skipped: tuple[Skipped, ...]
    notes: tuple[Text, ...]
    verdict: Verdict | None
    evidence: Evidence | None
    run: Run
    methods: tuple[MethodFinding, ...] = field(default=(), metadata=LATER)  # of those asked for by name
    grids: tuple[LayerGrid, ...] = field(default=(), metadata=LATER)
    declared: DeclaredFinding | None = field(default=None, metadata=LATER)
    reads: tuple[FileReads, ...] = field(default=(), metadata=LATER)  # empty if the session kept no ledger

    @property
    def plot(self) -> Any:
        """Figures of this report on matplotlib, each with the null beside the value: ``.null()``, ``.layers()``, ``.map()``."""
        return importlib.import_module("kinprint.render.plots").Plots(self)

    def __repr__(self) -> str:
        # a prompt, a log or a notebook prints this: the whole report has hundreds of kilobytes
        printable = importlib.import_module("kinprint._util.plain").printable
        found = [self.status] if self.status != OK else []
        if self.verdict is None:
            found.append("no verdict")
        else:
            found += [printable(word, 40) for word in (self.verdict.class_, self.verdict.kind) if word]
            found += [f"log10 p {self.verdict.log10_p:.1f}"] if self.verdict.log10_p is not None else []
        names = f"{printable(self.a.reference, 80)} and {printable(self.b.reference, 80)}"
        return f"<Report: {names}: {', '.join(found)}>"

    def to_json(self, *, indent: bool = True) -> bytes:
        """Return the report as JSON (UTF-8)."""
        return write_json(self, indent=indent)

    @classmethod
    def from_json(cls, raw: bytes) -> Report:
        """Read a report back; a schema of another version is refused, not guessed at."""
        return read_json(cls, raw, "a report", SCHEMA, READABLE)
