"""Write the results of the benchmark as Markdown and CSV."""

import csv
import io
import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kinprint._util.files import make_folder, write_whole
from kinprint._version import __version__
from kinprint.lab.lineage.scoring import AttackScore, Key, MethodCost, MethodOutcome, known, of_method
from kinprint.lab.lineage.trials import RELATED, UNRELATED, Trial
from kinprint.lab.lineage.verdicts import VERDICT, tells_what_was_done
from kinprint.lab.red_team import running
from kinprint.lab.zoo.store import Zoo
from kinprint.results.findings import DERIVED

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
    """Write Markdown and CSV files, and return them; the red team's table, if the folder has one, gives the page its section."""
    red_team = folder / running.FILE
    page = markdown(bench)
    if red_team.is_file():
        page = running.placed(page, running.section(running.from_csv(red_team.read_text(encoding="utf-8"))))
    pages = {REPORT: page, CELLS: _cells_csv(bench.cells), PAIRS: _pairs_csv(bench)}
    make_folder(folder)
    for name, text in pages.items():
        write_whole(folder / name, text.encode())
    return [folder / name for name in pages]


def _csv(header: str, rows: Iterable[Sequence[object]]) -> str:
    page = io.StringIO()
    writer = csv.writer(page, lineterminator="\n")
    writer.writerow(header.split())
    writer.writerows(rows)
    return page.getvalue()


def _cells_csv(cells: Sequence[AttackScore]) -> str:
    rows = (
        [x.method, x.attack, x.pairs, x.off, *(_plain(value) for value in (x.auc, x.at_1, x.at_01, x.median))]
        for x in cells
    )
    return _csv("method attack pairs off auc tpr_at_1_percent tpr_at_0.1_percent median", rows)


def _pairs_csv(bench: Benchmark) -> str:
    rows: list[list[str]] = []
    for trial in bench.trials:
        told = [trial.a, trial.b, trial.relation, trial.attack, _plain(trial.strength, "g")]
        rows += (
            [method, *told, _plain(found.value), _plain(found.log10_p), found.reason or found.note or ""]
            for method in bench.methods
            for found in of_method(bench.outcomes, method, [trial])
        )
    return _csv("method a b relation attack strength value log10_p note", rows)


def _plain(value: float | None, form: str = ".5g") -> str:
    return "" if value is None else f"{value:{form}}"


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


def _grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    align = ["---"] + ["---:"] * (len(header) - 1)
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, align, *rows))


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _overall(bench: Benchmark) -> str:
    cells = {cell.method: cell for cell in bench.cells if cell.attack == "all"}
    unrelated = [trial for trial in bench.trials if trial.answer == UNRELATED]
    rows = []
    for cost in bench.costs:
        cell = cells[cost.method]
        found = [_share(value) for value in (cell.auc, cell.at_1, cell.at_01)]
        peak = "–" if cost.peak_bytes is None else f"{cost.peak_bytes / 1e6:.1f}"
        took = [f"{1e3 * cost.seconds:.0f}", f"{cost.bytes_read / 1e3:.0f}", peak]
        against = str(len(of_method(bench.outcomes, cost.method, unrelated)))
        rows.append([cost.method, *found, *took, against, f"{cost.off} of {cost.pairs}"])
    header = [
        "method", "AUC", "TPR at 1 %", "TPR at 0.1 %", "ms a pair", "kB read", "peak MB", "unrelated pairs", "off",
    ]  # fmt: skip
    return "## All attacks together\n\n" + _grid(header, rows)


def _verdicts(bench: Benchmark) -> str:
    """Count the verdicts of `compare --deep` by relation."""
    table: dict[str, Counter[str]] = {}
    for trial in bench.trials:
        for found in of_method(bench.outcomes, VERDICT, [trial]):
            said = "not testable" if found.value is None else (found.note or "").split(" ")[0].replace("_", " ")
            table.setdefault(trial.relation, Counter())[said] += 1
    classes = sorted({name for counts in table.values() for name in counts})
    rows = [[relation, *(str(counts.get(name, 0)) for name in classes)] for relation, counts in table.items()]
    unrelated = sum((table.get(name, Counter()) for name in ("independent", "distilled")), Counter[str]())
    total = unrelated.total()
    false = total - unrelated["no evidence"] - unrelated["not testable"]
    kept = [trial for trial in bench.trials if trial.preserves and trial.answer == RELATED]
    hit = sum((found.value or 0.0) >= 1.0 for found in of_method(bench.outcomes, VERDICT, kept))
    return (
        f"## Verdicts of `kinprint compare --deep`\n\n{_grid(['relation', *classes], rows)}\n\n"
        f"False accusations: {false} of {total} unrelated pairs. Function-preserving changes called derived or identical: "
        f"{hit} of {len(kept)}.\n\n{_kinds(bench)}"
    )


def _kinds(bench: Benchmark) -> str:
    """Count the kinds that say what was done, and name the others."""
    named: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    for trial in bench.trials:
        for found in of_method(bench.outcomes, VERDICT, [trial] if trial.relation == "derived" else []):
            class_, _, kind = (found.note or "").partition(" ")
            if class_ != DERIVED:
                continue
            right = tells_what_was_done(trial.attack, kind)
            named["no kind" if kind in ("", "unknown") else "right" if right else "wrong"] += 1
            wrong[f"{trial.group} called {kind} ({trial.a})"] += not right and kind not in ("", "unknown")
    untrue = ", ".join(sorted(+wrong)) or "none"
    return (
        f"Of {named.total()} pairs called derived, the kind named is true of what was done in {named['right']}; "
        f"no kind is named in {named['no kind']}; untrue in {named['wrong']}: {untrue}."
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
        values = [known(of_method(bench.outcomes, method, group)) for method in bench.methods]
        rows.append([name, str(len(group)), *(_share(float(np.median(x)) if x.size else None) for x in values)])
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
