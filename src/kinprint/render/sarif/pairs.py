"""All pairs of several models as SARIF 2.1.0: the findings of each pair, as if it were alone, after the correction for all.

A verdict that does not stand after that correction is left open, and nothing that a card says is held against it.
"""

from __future__ import annotations

from typing import Any

from kinprint._util.plain import printable
from kinprint.render.parentage import pair_ref
from kinprint.render.repeat_command import pairs_command
from kinprint.render.sarif.log import SHOWN, Judged, place_of, sarif_log
from kinprint.render.tables.pairs import facts_of
from kinprint.render.tables.tidy import Cell
from kinprint.results.tree import PairsReport, PairSummary

_ELSEWHERE = ("sentence", "declared_against_measured", "licences", "model_a", "model_b")  # in messages and places


def pairs_sarif(report: PairsReport) -> bytes:
    """Return the findings of all pairs as SARIF (UTF-8); the same report always gives the same bytes."""
    settings, run = report.tree.settings, report.tree.run
    facts = {
        "kinprint:schema": f"{report.schema}/{report.schema_version}",
        "kinprint:models": len(report.tree.models),
        "kinprint:pairs": settings.pairs,
        "kinprint:threshold": settings.log10_alpha,
        "kinprint:seed": settings.seed,
        "kinprint:bytes_read": run.bytes_read,
        "kinprint:command": printable(pairs_command(report), SHOWN),
    }
    found = [_judged(report, pair) for pair in report.pairs]
    # a report on many models does not say when it was made
    return sarif_log(found, id_="kinprint/pairs/", version=run.kinprint, started=None, facts=facts)


def _judged(report: PairsReport, pair: PairSummary) -> Judged:
    facts = facts_of(report, pair)
    told = {f"kinprint:{name}": _shown(cell) for name, cell in facts.items() if name not in _ELSEWHERE}
    return Judged(
        a=place_of(report.tree.models[pair.a]),
        b=place_of(report.tree.models[pair.b]),
        class_=pair.class_,
        sentence=pair.sentence,
        certainty=_certainty(report, pair),
        declared=pair.declared,
        stands=pair.stands,
        properties={"kinprint:pair": pair_ref(pair), **told},
    )


def _certainty(report: PairsReport, pair: PairSummary) -> str:
    settings = report.tree.settings
    if pair.log10_p is None or pair.log10_p_pairs is None:
        return f"No p-value (threshold log10 p {settings.log10_alpha:g})."
    said = (
        f"log10 p {pair.log10_p:.1f} after correction for the tests of the pair, {pair.log10_p_pairs:.1f} for all "
        f"{settings.pairs} pairs; threshold {settings.log10_alpha:g}."
    )
    return said if pair.stands else f"{said} This does not stand after the correction for all pairs."


def _shown(cell: Cell) -> Any:
    if isinstance(cell, str):
        return printable(cell, SHOWN)
    if isinstance(cell, tuple):
        return [printable(part, SHOWN) if isinstance(part, str) else part for part in cell]
    return cell
