"""Define the report of a comparison: frozen dataclasses, the same in Python, in versioned JSON and on screen.

JSON holds no NaN: a number that does not exist is null, and the ``status`` and ``reason`` beside it say why.
"""

from __future__ import annotations  # plain_json looks the types of the fields up by name

import importlib
from dataclasses import field
from typing import Any, ClassVar

from kinprint._util.plain import printable
from kinprint._util.records import dataclass
from kinprint.results import plain_json
from kinprint.results.context import DeclaredFinding, FileReads, LayerGrid
from kinprint.results.findings import Evidence, MethodFinding, TowerFinding, Verdict
from kinprint.results.later import LATER
from kinprint.results.measurements import OK, RoleSummary, Skipped, TensorComparison
from kinprint.results.models import ConfigDifference, ModelSummary, TokenizerDifference
from kinprint.results.options import Options
from kinprint.results.result import Result
from kinprint.text import Text


@dataclass(frozen=True)
class Run:
    """Time, traffic and versions of a run: the only fields that may differ between two runs of the same comparison."""

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
    """Results of one comparison: measurements beside their nulls, the evidence drawn from them, and the verdict.

    ``verdict`` and ``evidence`` are None only in a comparison that was asked for measurements alone.
    """

    SCHEMA: ClassVar = "kinprint.report"
    CALLED: ClassVar = "a report"

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
    towers: tuple[TowerFinding, ...] = field(default=(), metadata=LATER)  # that both have, beside what was compared

    @property
    def plot(self) -> Any:
        """Figures of this report on matplotlib, each with the null beside the value: ``.null()``, ``.layers()``, ``.map()``."""
        return importlib.import_module("kinprint.render.plots").Plots(self)

    def short_json(self) -> bytes:
        """Return the JSON without measurements, layer grids and ranges: the findings, under a schema of their own."""
        rest = plain_json.to_plain(self)
        for name in ("comparisons", "grids", "reads"):
            del rest[name]
        return plain_json.write_json(rest | {"schema": f"{self.SCHEMA}.findings"})

    def __repr__(self) -> str:
        # a prompt, a log or a notebook prints this: the whole report has hundreds of kilobytes
        found = [self.status] if self.status != OK else []
        if self.verdict is None:
            found.append("no verdict")
        else:
            found += [printable(word, 40) for word in (self.verdict.class_, self.verdict.kind) if word]
            found += [f"log10 p {self.verdict.log10_p:.1f}"] if self.verdict.log10_p is not None else []
        names = f"{printable(self.a.reference, 80)} and {printable(self.b.reference, 80)}"
        return f"<Report: {names}: {', '.join(found)}>"
