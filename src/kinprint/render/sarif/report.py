"""Write reports as SARIF 2.1.0 (OASIS), for the tools that show findings of continuous integration.

One result for the verdict of each pair, and one more where a model's card and its weights disagree. "No evidence" passes, and is no
proof. A verdict that does not stand after the correction for all pairs is left open, and no card is held against it.
"""

from dataclasses import replace
from datetime import UTC

from kinprint._util.plain import printable
from kinprint.render.facts import NAME, pairs_facts, report_facts, schema_of, started
from kinprint.render.parentage import pair_ref
from kinprint.render.sarif.log import Judged, sarif_log
from kinprint.render.tables.report import facts_of
from kinprint.results.findings import Verdict
from kinprint.results.report import Report
from kinprint.results.tree import PairsReport, PairSummary

_ELSEWHERE = ("sentence", "declared_against_measured", "licences", "model_a", "model_b")  # in messages and places


def report_sarif(report: Report) -> bytes:
    """Return the report's findings as SARIF (UTF-8); the same report always gives the same bytes."""
    verdict = report.verdict
    found = Judged(report.a, report.b, None, None, "", report.declared)
    if verdict is not None:
        found = replace(found, class_=verdict.class_, sentence=verdict.sentence, certainty=_certainty(verdict))
    return sarif_log(
        [found],
        {"schema": schema_of(report), **report_facts(report)},
        # code scanning keeps one run of each name: that of another pair must not take its place
        id_=f"kinprint/compare/{printable(f'{report.a.reference} {report.b.reference}', NAME)}/",
        version=report.run.kinprint,
        started=started(report).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    )


def _certainty(verdict: Verdict) -> str:
    if verdict.log10_p is None:
        return f"No p-value (threshold log10 p {verdict.log10_alpha:g})."
    corrected = f"log10 p {verdict.log10_p:.1f} after correction for {verdict.tests} tests"
    return f"{corrected}; threshold {verdict.log10_alpha:g}."


def pairs_sarif(report: PairsReport) -> bytes:
    """Return the findings of all pairs as SARIF (UTF-8); the same report always gives the same bytes."""
    return sarif_log(
        [_judged(report, pair) for pair in report.pairs],
        {"schema": schema_of(report), **pairs_facts(report)},
        id_="kinprint/pairs/",
        version=report.tree.run.kinprint,
        started=None,  # a report on many models does not say when it was made
    )


def _judged(report: PairsReport, pair: PairSummary) -> Judged:
    a, b = (report.tree.models[index] for index in (pair.a, pair.b))
    facts = {name: cell for name, cell in facts_of(report, pair).items() if name not in _ELSEWHERE}
    certainty, told = _certainty_among(report, pair), {"pair": pair_ref(pair), **facts}
    return Judged(a, b, pair.class_, pair.sentence, certainty, pair.declared, pair.stands, told)


def _certainty_among(report: PairsReport, pair: PairSummary) -> str:
    settings = report.tree.settings
    if pair.log10_p is None or pair.log10_p_pairs is None:
        return f"No p-value (threshold log10 p {settings.log10_alpha:g})."
    said = (
        f"log10 p {pair.log10_p:.1f} after correction for the tests of the pair, {pair.log10_p_pairs:.1f} for all "
        f"{settings.pairs} pairs; threshold {settings.log10_alpha:g}."
    )
    return said if pair.stands else f"{said} This does not stand after the correction for all pairs."
