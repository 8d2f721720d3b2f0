"""Compare all pairs of several models: the report of `kinprint compare A B C …`, with the family tree."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kinprint.errors import BadSelection
from kinprint.evidence.facts import shared_fields
from kinprint.results.options import Options
from kinprint.results.report import Report
from kinprint.results.result import SCHEMA_VERSION
from kinprint.results.tree import FamilyTree, PairsReport, PairSummary
from kinprint.tree.driver import METRICS, TREE_OPTIONS, OnReport, build_tree, several
from kinprint.tree.facts import SHARING, PairFacts, judged, over_pairs

PAIRS_OPTIONS = replace(TREE_OPTIONS, metrics=(*METRICS, "cosine"))
"""What each comparison measures unless the user chose: what the tree needs, and the figure that misleads."""

NORMS = ("input_norm", "post_attention_norm")  # roles whose raw cosine is shown: the first that both models have


def compare_many(
    models: Sequence[str | Path], options: Options | None = None, *, on_report: OnReport | None = None, **wishes: Any
) -> PairsReport:
    """Compare all pairs of models.

    `options` say what each comparison looks at, `wishes` are as `kinprint.build_tree` takes them. `on_report` is called with each
    pair's numbers and its full report, which is not kept: ten models make 45 of them.
    """
    references = several(models, "compare_many")
    if len(references) < 2:
        said = f"compare_many: expected two models or more, got {len(references)}"
        raise BadSelection(said, hint="kinprint.compare_many([a, b])")
    found: list[PairSummary] = []
    stated: list[Options] = []

    def keep(a: int, b: int, report: Report) -> None:
        found.append(summarise(a, b, report))
        stated.append(report.settings)
        if on_report is not None:
            on_report(a, b, report)

    tree = build_tree(references, options or PAIRS_OPTIONS, on_report=keep, **wishes)
    pairs = tuple(corrected(pair, tree.settings.pairs) for pair in found)
    return PairsReport(PairsReport.SCHEMA, SCHEMA_VERSION, clusters_of(tree), pairs, tree, stated[0])


def summarise(a: int, b: int, report: Report) -> PairSummary:
    """Reduce one report to what a table of many pairs shows."""
    verdict, evidence = judged(report)
    norms = next((line for role in NORMS for line in report.summary if line.role == role), None)
    controls = [item for item in evidence.controls if item.status != "not run"]
    return PairSummary(
        **shared_fields(verdict, PairSummary),
        a=a,
        b=b,
        log10_p_pairs=None,
        significant=False,
        norm_cosine=norms.median_cosine if norms else None,
        norm_cosine_null=norms.median_cosine_null if norms else None,
        components=evidence.components,
        declared=report.declared,
        controls_passed=sum(item.status == "passed" for item in controls),
        controls_run=len(controls),
        bytes_read=report.bytes_read,
    )


def corrected(pair: PairSummary, pairs: int) -> PairSummary:
    """Correct for the number of pairs (Bonferroni), as the tree does before it draws an edge."""
    stands = pair.class_ in SHARING and PairFacts(pair.a, pair.b, pair.class_, log10_p=pair.log10_p).significant(pairs)
    return replace(pair, log10_p_pairs=over_pairs(pair.log10_p, pairs), significant=stands)


def clusters_of(tree: FamilyTree) -> tuple[tuple[int, ...], ...]:
    """Return the groups that derivation joins, with the copies of their members; larger groups first."""
    groups: dict[tuple[int, int], list[int]] = {}
    for model in tree.models:
        node = tree.models[model.node]
        key = (0, node.family) if node.family is not None else (1, node.index)
        groups.setdefault(key, []).append(model.index)
    return tuple(sorted((tuple(members) for members in groups.values()), key=lambda group: (-len(group), group)))
