"""The benchmark's pages: Markdown for readers, CSV for programs, a heatmap for the eye."""

from __future__ import annotations

import csv
import io
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kinprint._util.files import write_whole
from kinprint._version import __version__
from kinprint.lab.lineage.running import Key
from kinprint.lab.lineage.scoring import AttackScore, MethodCost, MethodOutcome
from kinprint.lab.lineage.trials import RELATED, UNRELATED, Trial
from kinprint.lab.lineage.verdicts import VERDICT
from kinprint.lab.zoo.store import Zoo

REPORT, CELLS, PAIRS = "lineage.md", "cells.csv", "pairs.csv"


@dataclass(frozen=True)
class Benchmark:
    """All that one run of the benchmark found."""

    zoo: Zoo
    trials: Sequence[Trial]
    outcomes: Mapping[Key, MethodOutcome]
    cells: Sequence[AttackScore]
    costs: Sequence[MethodCost]
    methods: Sequence[str]
    command: str
    seed: int


def write_report(bench: Benchmark, folder: Path) -> list[Path]:
    """Write Markdown and CSV files, and return them."""
    pages = {REPORT: markdown(bench), CELLS: _cells_csv(bench.cells), PAIRS: _pairs_csv(bench)}
    for name, text in pages.items():
        write_whole(folder / name, text.encode())
    return [folder / name for name in pages]


def _cells_csv(cells: Sequence[AttackScore]) -> str:
    page = io.StringIO()
    rows = csv.writer(page, lineterminator="\n")
    rows.writerow(["method", "attack", "pairs", "off", "auc", "tpr_at_1_percent", "tpr_at_0.1_percent", "median"])
    for cell in cells:
        figures = [_plain(value) for value in (cell.auc, cell.at_1, cell.at_01, cell.median)]
        rows.writerow([cell.method, cell.attack, cell.pairs, cell.off, *figures])
    return page.getvalue()


def _pairs_csv(bench: Benchmark) -> str:
    page = io.StringIO()
    rows = csv.writer(page, lineterminator="\n")
    rows.writerow(["method", "a", "b", "relation", "attack", "strength", "value", "log10_p", "note"])
    for trial in bench.trials:
        for method in bench.methods:
            found = bench.outcomes.get((method, trial.a, trial.b))
            if found is not None:
                strength = "" if trial.strength is None else f"{trial.strength:g}"
                figures = [_plain(found.value), _plain(found.log10_p), found.reason or found.note or ""]
                rows.writerow([method, trial.a, trial.b, trial.relation, trial.attack, strength, *figures])
    return page.getvalue()


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:.5g}"


# -- Markdown ------------------------------------------------------------------------------------------------------------


def markdown(bench: Benchmark) -> str:
    """Return the page."""
    parts = [_head(bench), _overall(bench)]
    if VERDICT in bench.methods:
        parts.append(_verdicts(bench))
    parts += [_attacks(bench, "auc", "AUC by attack"), _attacks(bench, "at_1", "True positives at 1 % false positives")]
    parts += [_between(bench), _failures(bench), _HOW]
    return "\n\n".join(parts) + "\n"


def _head(bench: Benchmark) -> str:
    count = Counter(trial.answer for trial in bench.trials)
    record = bench.zoo.record
    versions = ", ".join(f"{name} {version}" for name, version in record.versions.items())
    bases = [name for name, member in bench.zoo.members.items() if not member.parents]
    return (
        "# Lineage benchmark\n\n"
        f"Made by `{bench.command}` with kinprint {__version__}, Python {platform.python_version()}, "
        f"numpy {np.__version__}; seed {bench.seed}.\n"
        f"Zoo: tier {record.tier}, {len(bases)} bases trained from random weights ({', '.join(bases)}), "
        f"{len(bench.zoo.members)} members in all; trained with {versions}.\n"
        f"{count[RELATED]} related pairs, {count[UNRELATED]} unrelated ones (hard negatives included), "
        f"{len(bench.trials) - count[RELATED] - count[UNRELATED]} in between (same initialisation, or embeddings or "
        "norms alone).\n\n"
        "The models are tiny and really trained; relations are known by construction. Figures speak for these models.\n\n"
        "![AUC and true positives by method and attack](lineage.png)"
    )


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    align = ["---"] + ["---:"] * (len(header) - 1)
    return "\n".join([_row(header), _row(align), *(_row(row) for row in rows)])


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _overall(bench: Benchmark) -> str:
    cells = {cell.method: cell for cell in bench.cells if cell.attack == "all"}
    rows = []
    unrelated = Counter(
        method
        for trial in bench.trials
        for method in bench.methods
        if trial.answer == UNRELATED and (method, trial.a, trial.b) in bench.outcomes
    )
    for cost in bench.costs:
        cell = cells[cost.method]
        found = [_share(value) for value in (cell.auc, cell.at_1, cell.at_01)]
        peak = "–" if cost.peak_bytes is None else f"{cost.peak_bytes / 1e6:.1f}"
        took = [f"{1e3 * cost.seconds:.0f}", f"{cost.bytes_read / 1e3:.0f}", peak]
        rows.append([cost.method, *found, *took, str(unrelated[cost.method]), f"{cost.off} of {cost.pairs}"])
    header = [
        "method",
        "AUC",
        "TPR at 1 %",
        "TPR at 0.1 %",
        "ms a pair",
        "kB read",
        "peak MB",
        "unrelated pairs",
        "off",
    ]
    return "## All attacks together\n\n" + _grid(header, rows)


def _verdicts(bench: Benchmark) -> str:
    """Count the verdicts of `compare --deep` by relation."""
    table: dict[str, Counter[str]] = {}
    for trial in bench.trials:
        found = bench.outcomes.get((VERDICT, trial.a, trial.b))
        if found is not None:
            said = "not testable" if found.value is None else (found.note or "").split(" ")[0].replace("_", " ")
            table.setdefault(trial.relation, Counter())[said] += 1
    classes = sorted({name for counts in table.values() for name in counts})
    rows = [[relation, *(str(counts.get(name, 0)) for name in classes)] for relation, counts in table.items()]
    unrelated = sum((table.get(name, Counter()) for name in ("independent", "distilled")), Counter[str]())
    total = unrelated.total()
    false = total - unrelated["no evidence"] - unrelated["not testable"]
    kept = [t for t in bench.trials if t.preserves and t.answer == RELATED]
    seen = [bench.outcomes.get((VERDICT, t.a, t.b)) for t in kept]
    hit = sum(item is not None and (item.value or 0.0) >= 1.0 for item in seen)
    return (
        f"## Verdicts of `kinprint compare --deep`\n\n{_grid(['relation', *classes], rows)}\n\n"
        f"False accusations: {false} of {total} unrelated pairs. Function-preserving changes called derived or identical: "
        f"{hit} of {len(kept)}."
    )


def _attacks(bench: Benchmark, field: str, title: str) -> str:
    by_attack: dict[str, dict[str, AttackScore]] = {}
    for cell in bench.cells:
        by_attack.setdefault(cell.attack, {})[cell.method] = cell
    rows = []
    for attack, cells in by_attack.items():
        pairs = max(cell.pairs for cell in cells.values())
        rows.append([attack, str(pairs), *(_share(getattr(cells[name], field)) for name in bench.methods)])
    return f"## {title}\n\n" + _grid(["attack", "pairs", *bench.methods], rows)


def _between(bench: Benchmark) -> str:
    """Return what methods say where neither answer is wrong: medians."""
    groups: dict[str, list[Trial]] = {}
    for trial in bench.trials:
        if trial.answer not in (RELATED, UNRELATED):
            name = trial.relation if trial.relation == "same_init" else trial.group
            groups.setdefault(name, []).append(trial)
    rows = []
    for name, group in groups.items():
        medians = []
        for method in bench.methods:
            values = [
                found.value
                for trial in group
                if (found := bench.outcomes.get((method, trial.a, trial.b))) is not None and found.value is not None
            ]
            medians.append(f"{float(np.median(values)):.3f}" if values else "–")
        rows.append([name, str(len(group)), *medians])
    note = "Median values; a relation of this kind is neither counted as found nor as a false alarm."
    return f"## In between\n\n{note}\n\n" + _grid(["pairs", "n", *bench.methods], rows)


def _failures(bench: Benchmark) -> str:
    lines = ["## Where methods fail", ""]
    for method in bench.methods:
        missed = [
            f"{cell.attack} ({cell.at_1:.2f})"
            for cell in bench.cells
            if cell.method == method and cell.attack != "all" and cell.at_1 is not None and cell.at_1 < 1.0
        ]
        lines.append(f"- **{method}**: {', '.join(missed) if missed else 'none at 1 % false positives'}")
    return "\n".join(lines)


_HOW = """## How to read this

- AUC is the chance that a related pair of this attack scores above an unrelated pair, ties counting half; 0.5 is a coin.
- True positives are the share of related pairs above the value that 1 % (or 0.1 %) of the unrelated pairs exceed.
- A method that does not apply to a related pair (other widths, no shared tokens) did not find it; unrelated pairs that it \
cannot answer do not count for it.
- Unrelated pairs are members against bases that they have nothing of: many pairs, few independent models. The third \
digit at 0.1 % is worth little.
- The number after an attack is its strength: noise and low rank relative to the weights, bits, share pruned or kept, \
share of this parent in a merge, and for training steps times peak learning rate.
- Portable methods were run as fingerprint files would be, each model on its own.
- Independent models of the tests' own null (kin, verdict) come from another, separately trained family."""
