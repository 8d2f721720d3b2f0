"""Name the facts of a report that machine-readable forms (CycloneDX, SARIF) share: typed values under one set of names."""

from collections.abc import Mapping
from datetime import UTC, datetime

from kinprint._util.plain import printable
from kinprint.errors import SchemaError
from kinprint.render.repeat_command import command_of, pairs_command
from kinprint.render.tables.tidy import Cell
from kinprint.results.report import Report
from kinprint.results.tree import PairsReport

SHOWN, NAME = 2000, 200  # characters of a text, and of a name

Facts = Mapping[str, Cell]


def report_facts(report: Report) -> dict[str, Cell]:
    """Return what a comparison of two models found, None or empty where a fact does not exist."""
    verdict, found = report.verdict, report.declared
    return {
        "status": report.status,
        "reason": report.reason or "",
        "verdict": verdict.class_ if verdict else None,
        "kind": (verdict.kind or None) if verdict else None,
        "log10_p": verdict.log10_p if verdict else None,
        "threshold": verdict.log10_alpha if verdict else None,
        "tests": verdict.tests if verdict else None,
        "limits": verdict.against if verdict else (),
        "not_tested": verdict.untested if verdict else (),
        "declared": found.state if found is not None else None,
        "seed": report.settings.seed,
        "bytes_read": report.bytes_read,
        "command": command_of(report),
    }


def pairs_facts(report: PairsReport) -> dict[str, Cell]:
    """Return what holds for all pairs of many models."""
    settings = report.tree.settings
    return {
        "models": len(report.tree.models),
        "pairs": settings.pairs,
        "threshold": settings.log10_alpha,
        "seed": settings.seed,
        "bytes_read": report.tree.run.bytes_read,
        "command": pairs_command(report),
    }


def schema_of(report: Report | PairsReport) -> str:
    """Return the schema of a report with its version."""
    return f"{report.schema}/{report.schema_version}"


def started(report: Report) -> datetime:
    """Return when the comparison was made, in UTC where the report names no zone; raise SchemaError if it says no date."""
    try:
        found = datetime.fromisoformat(report.run.started)
    except ValueError as error:
        raise SchemaError(f"the report does not say when it was made: {printable(report.run.started, 80)!r}") from error
    return found.replace(tzinfo=found.tzinfo or UTC)
