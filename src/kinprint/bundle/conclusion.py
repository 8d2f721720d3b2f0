"""What a verification comes to: the outcome, and the sentence that says what was and what was not checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from kinprint._util.plain import printable
from kinprint.bundle.agreement import SAME_MACHINE, Agreement
from kinprint.results import verification
from kinprint.results.report import Report
from kinprint.results.verification import (
    FAILED,
    IN_PART,
    MOST_SHOWN,
    NOT_CHECKED,
    VERIFIED,
    Check,
    ModelRead,
    Problem,
    Unchecked,
    Verification,
)


@dataclass
class State:
    """What has been found so far."""

    offline: bool = False
    cached: bool = False
    checks: list[Check] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    unchecked: list[Unchecked] = field(default_factory=list)
    models: list[ModelRead] = field(default_factory=list)
    failures: int = 0  # recorded ones, which nobody was asked about as it was offline
    null: str | None = None
    agreement: Agreement | None = None
    tolerance: float = SAME_MACHINE
    versions: tuple[str, ...] = ()


def conclude(path: Path, digest: str, report: Report, state: State) -> Verification:
    """Return the result."""
    agreement = state.agreement or Agreement()
    outcome = (
        FAILED
        if state.problems
        else NOT_CHECKED
        if state.agreement is None
        else IN_PART
        if state.unchecked
        else VERIFIED
    )
    return Verification(
        schema=verification.SCHEMA,
        schema_version=verification.SCHEMA_VERSION,
        bundle=path.name,
        digest=digest,
        outcome=outcome,
        sentence=_sentence(outcome, state, agreement),
        a=printable(report.a.reference),
        b=printable(report.b.reference),
        verdict=printable(report.verdict.sentence, 600) if report.verdict else None,
        offline=state.offline,
        cached=state.cached,
        models=tuple(state.models[:MOST_SHOWN]),
        null=state.null,
        checks=tuple(state.checks),
        figures=agreement.figures,
        exact=agreement.exact,
        close=len(agreement.close),
        differ=len(agreement.differ),
        other_values=agreement.other_values,
        other_differ=len(agreement.other_differ),
        tolerance=state.tolerance,
        versions=state.versions,
        problems=tuple(state.problems[:MOST_SHOWN]),
        problems_in_all=len(state.problems),
        close_figures=tuple(agreement.close[:MOST_SHOWN]),
        unchecked=tuple(state.unchecked[:MOST_SHOWN]),
    )


def _sentence(outcome: str, state: State, agreement: Agreement) -> str:
    if outcome == FAILED:
        first = state.problems[0]
        more = f" and {len(state.problems) - 1:,} more" if len(state.problems) > 1 else ""
        said = f"{len(state.problems):,} difference{'s' if len(state.problems) > 1 else ''}"
        return f"Verification failed: {said}, {first.kind} {first.where}{more}."
    if outcome == NOT_CHECKED:
        reason = "; ".join(dict.fromkeys(item.reason for item in state.unchecked[:3]))
        return f"The archive is sound, but its figures could not be checked: {reason}."
    figures = f"{agreement.figures:,} figures computed anew agree"
    if agreement.close:
        figures += f", {len(agreement.close):,} of them within rounding ({state.tolerance:g})"
    if outcome == IN_PART:
        first_open, count = state.unchecked[0], len(state.unchecked)
        more = f"; and {count - 1:,} more" if count > 1 else ""
        said = f"Verified in part: {figures}, but not checked was {first_open.what}: {first_open.reason}{more}."
    elif state.offline:
        failures = f", and {state.failures:,} failures that it records," if state.failures else ""
        said = (
            f"Verified from the enclosed bytes: {figures}. "
            f"That these are the models' bytes{failures} was not checked (--offline)."
        )
    else:
        said = f"Verified: all ranges are as recorded, and {figures}."
    return said + "".join(f" {remark}" for remark in _remarks(state))


def _remarks(state: State) -> list[str]:
    """Return what the result rests on that is not this program's or this user's own."""
    found = []
    if state.null is not None:
        found.append(f"The null is an empirical null supplied with the bundle (sha256 {state.null}).")
    foreign = dict.fromkeys(item.location for item in state.models if "not on your hub" in item.said)
    if foreign:
        found.append(f"Not read on your hub: {', '.join(list(foreign)[:4])}.")
    if state.cached and not state.offline:
        found.append("Ranges may be from the caches of this machine (--use-cache).")
    return found
