"""State the outcome of a verification, and the sentence that says what was checked and what was not."""

from dataclasses import dataclass, field
from pathlib import Path

from kinprint._util.plain import printable
from kinprint.bundle.agreement import SAME_MACHINE, Agreement
from kinprint.bundle.rereading import Noted
from kinprint.results import verification as results
from kinprint.results.report import Report
from kinprint.results.verification import FAILED, IN_PART, MOST_SHOWN, NOT_CHECKED, Check, Verification
from kinprint.text import Text, joined

_KINDS = (Text("member"), Text("manifest"), Text("source"), Text("range"), Text("read"), Text("field"))


@dataclass
class CheckState(Noted):
    """Results of the checks so far."""

    offline: bool = False
    cached: bool = False
    checks: list[Check] = field(default_factory=list)
    models: list[results.ModelRead] = field(default_factory=list)
    failures: int = 0  # recorded failures that were not tried again, being offline
    null: str | None = None
    agreement: Agreement | None = None
    tolerance: float = SAME_MACHINE
    versions: tuple[Text, ...] = ()

    def add(self, name: str, total: int, wrong: int, right_text: Text, wrong_text: Text) -> None:
        """Add a check of `total` things, of which at most so many are wrong."""
        agree, said = total - min(total, wrong), wrong_text if wrong else right_text
        self.checks.append(Check(name, results.WRONG if wrong else results.PASSED, total, agree, said))


def conclude(path: Path, digest: str, report: Report, state: CheckState) -> Verification:
    """Return the result of a verification."""
    agreement = state.agreement or Agreement()
    agrees = IN_PART if state.unchecked else results.VERIFIED
    outcome = FAILED if state.problems else NOT_CHECKED if state.agreement is None else agrees
    return Verification(
        schema=results.SCHEMA,
        schema_version=results.SCHEMA_VERSION,
        bundle=path.name,
        digest=digest,
        outcome=outcome,
        sentence=_sentence(outcome, state, agreement),
        a=printable(report.a.reference),
        b=printable(report.b.reference),
        verdict=results.presentable(report.verdict.sentence) if report.verdict else None,
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


def _sentence(outcome: str, state: CheckState, agreement: Agreement) -> Text:
    if outcome == FAILED:
        first, m = state.problems[0], len(state.problems) - 1
        what = {"kind": next((kind for kind in _KINDS if kind == first.kind), first.kind), "where": first.where}
        if not m:
            return Text("Verification failed: 1 difference, {kind} {where}.", **what)
        return Text("Verification failed: {n:,} differences, {kind} {where} and {m:,} more.", n=m + 1, m=m, **what)
    if outcome == NOT_CHECKED:
        why = joined(dict.fromkeys(item.reason for item in state.unchecked[:3]))
        return Text("The archive is sound, but its figures could not be checked: {why}.", why=why)
    figures = Text("{n:,} figures computed anew agree", n=agreement.figures)
    if agreement.close:
        close = len(agreement.close)
        figures = Text("{figures}, {n:,} of them within rounding ({x:g})", figures=figures, n=close, x=state.tolerance)
    if outcome == IN_PART:
        said = _in_part(state, figures)
    elif not state.offline:
        said = Text("Verified: all ranges are as recorded, and {figures}.", figures=figures)
    elif not state.failures:
        said = Text(
            "Verified from the enclosed bytes: {figures}. That these are the models' bytes was not checked (--offline).",
            figures=figures,
        )
    else:
        said = Text(
            "Verified from the enclosed bytes: {figures}. That these are the models' bytes, and {n:,} failures that it "
            "records, was not checked (--offline).",
            figures=figures,
            n=state.failures,
        )
    return joined((said, *_remarks(state)), "spaces")


def _in_part(state: CheckState, figures: Text) -> Text:
    first, more = state.unchecked[0], len(state.unchecked) - 1
    values = {"figures": figures, "what": first.what, "why": first.reason}
    if not more:
        return Text("Verified in part: {figures}, but not checked was {what}: {why}.", **values)
    return Text("Verified in part: {figures}, but not checked was {what}: {why}; and {n:,} more.", **values, n=more)


def _remarks(state: CheckState) -> list[Text]:
    """Return what the result rests on beside this program and the user's own hub: nulls, foreign hubs, caches."""
    found = []
    if state.null is not None:
        own = Text("The null is an empirical null supplied with the bundle (sha256 {digest}).", digest=state.null)
        found.append(own)
    foreign = dict.fromkeys(item.location for item in state.models if item.foreign)
    if foreign:
        found.append(Text("Not read on your hub: {places:commas}.", places=tuple(foreign)[:4]))
    if state.cached and not state.offline:
        found.append(Text("Ranges may be from the caches of this machine (--use-cache)."))
    return found
