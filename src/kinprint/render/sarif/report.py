"""A report as SARIF 2.1.0 (OASIS), for the tools that show findings of continuous integration.

One result for the verdict, and one more where a model's card and its weights disagree. "No evidence" passes; it is no proof.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from kinprint._util.plain import printable
from kinprint.errors import SchemaError
from kinprint.render.repeat_command import command_of
from kinprint.render.sarif.log import NAME, SHOWN, Judged, place_of, sarif_log
from kinprint.results.findings import Verdict
from kinprint.results.report import Report


def report_sarif(report: Report) -> bytes:
    """Return the report's findings as SARIF (UTF-8); the same report always gives the same bytes."""
    verdict = report.verdict
    found = Judged(
        a=place_of(report.a),
        b=place_of(report.b),
        class_=None if verdict is None else verdict.class_,
        sentence=None if verdict is None else verdict.sentence,
        certainty="" if verdict is None else _certainty(verdict),
        declared=report.declared,
    )
    return sarif_log(
        [found],
        id_="kinprint/compare/",
        version=report.run.kinprint,
        started=_started(report),
        facts=_facts(report),
    )


def _certainty(verdict: Verdict) -> str:
    if verdict.log10_p is None:
        return f"No p-value (threshold log10 p {verdict.log10_alpha:g})."
    return (
        f"log10 p {verdict.log10_p:.1f} after correction for {verdict.tests} tests; threshold {verdict.log10_alpha:g}."
    )


def _facts(report: Report) -> dict[str, Any]:
    verdict, found = report.verdict, report.declared
    return {
        "kinprint:schema": f"{report.schema}/{report.schema_version}",
        "kinprint:status": report.status,
        "kinprint:reason": printable(report.reason or "", SHOWN),
        "kinprint:verdict": verdict.class_ if verdict is not None else None,
        "kinprint:kind": printable(verdict.kind, NAME) if verdict is not None and verdict.kind else None,
        "kinprint:log10_p": verdict.log10_p if verdict is not None else None,
        "kinprint:threshold": verdict.log10_alpha if verdict is not None else None,
        "kinprint:tests": verdict.tests if verdict is not None else None,
        "kinprint:limits": [printable(text, SHOWN) for text in verdict.against] if verdict is not None else [],
        "kinprint:not_tested": [printable(text, SHOWN) for text in verdict.untested] if verdict is not None else [],
        "kinprint:declared": found.state if found is not None else None,
        "kinprint:seed": report.settings.seed,
        "kinprint:bytes_read": report.bytes_read,
        "kinprint:command": printable(command_of(report), SHOWN),
    }


def _started(report: Report) -> str:
    try:
        found = datetime.fromisoformat(report.run.started)
    except ValueError as error:
        raise SchemaError(f"the report does not say when it was made: {printable(report.run.started, 80)!r}") from error
    return found.replace(tzinfo=found.tzinfo or UTC).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
