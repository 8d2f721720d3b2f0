"""What a report says, read from either side: compare(A, B) and compare(B, A) must say the same."""

from __future__ import annotations

from typing import Any

from kinprint.results.report import Report


def said(report: Report, *, back: bool = False) -> tuple[Any, ...]:
    """Return class, kinds, variant, p-value and layer map; of a comparison the other way round with `back`."""
    verdict, evidence = report.verdict, report.evidence
    assert verdict is not None
    assert evidence is not None
    places = [(source, item.layer) for item in evidence.alignment.layers for source in item.sources]
    places = sorted((layer, source) for source, layer in places) if back else sorted(places)
    p = None if verdict.log10_p is None else round(verdict.log10_p, 6)
    return verdict.class_, verdict.kind, verdict.kinds, verdict.variant, p, places
