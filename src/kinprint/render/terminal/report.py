"""Results as terminal tables. Names come from strangers: they are shown as plain text, never as markup."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kinprint._util.plain import printable
from kinprint._util.sizes import format_size
from kinprint.render.terminal.layout import DASH, NARROW, figures, line, number, show, table
from kinprint.render.terminal.methods import print_methods
from kinprint.render.terminal.verdict import print_evidence, print_verdict
from kinprint.results.context import NOT_SHOWN, UNDECLARED
from kinprint.results.inspection import Inspection
from kinprint.results.measurements import NO_NULL, OK, Measurement, NullResult, RoleSummary, Skipped, TensorComparison
from kinprint.results.models import ModelSummary
from kinprint.results.report import Report

_BOUND = "upper bound"


def print_report(report: Report, console: Console, *, details: bool = True, explain: bool = False) -> None:
    """Print a comparison: differences, every metric by role and layer, evidence, and the verdict last, where the eye ends."""
    _models(report, console)
    _config(report, console)
    _tokenizer(report, console)
    _declared(report, console)
    if details:
        for role in dict.fromkeys(item.role for item in report.comparisons):
            _role_table([item for item in report.comparisons if item.role == role], console)
    _summary(report, console)
    _skipped(report.skipped, console)
    for note in report.notes:
        line(console, f"note: {printable(note)}", style="yellow")
    _how_to_read(report, console)
    if report.evidence is not None:
        print_evidence(report.evidence, console)
    if report.methods:
        print_methods(report.methods, console)
    _cost(report, console)
    if report.verdict is not None and report.evidence is not None:
        print_verdict(report.verdict, report.evidence, console, explain=explain)


# -- a comparison, part by part ----------------------------------------------------------------------------------------


def _models(report: Report, console: Console) -> None:
    rows = table()
    rows.add_column("")
    for side in ("A", "B"):
        rows.add_column(side, overflow="fold")
    a, b = _model_lines(report.a), _model_lines(report.b)
    for (what, left), (_, right) in zip(a, b, strict=True):
        rows.add_row(what, Text(left), Text(right))
    show(console, "Models", rows)
    for side, model in (("A", report.a), ("B", report.b)):
        _model_notes(side, model, console)


def _model_lines(model: ModelSummary) -> list[tuple[str, str]]:
    guessed = " (guessed)" if model.architecture_guessed else ""
    return [
        ("model", printable(model.reference)),
        ("commit", printable(model.commit or DASH)),
        ("architecture", f"{printable(model.architecture)}{guessed}"),
        ("layers", str(model.layers)),
        ("experts", str(model.experts) if model.experts else DASH),
        ("width", str(model.hidden) if model.hidden else DASH),
        ("parameters", f"{model.parameters / 1e9:.3f} B" if model.parameters >= 1e7 else f"{model.parameters:,}"),
        ("stored", format_size(model.stored_bytes)),
        ("tensors", f"{model.tensors}, {len(model.unmapped)} without a name"),
    ]


def _model_notes(side: str, model: ModelSummary, console: Console) -> None:
    for note in model.notes:
        line(console, f"{side}: {printable(note)}", style="yellow")
    for item in model.excluded:
        line(console, f"{side}: {item.count} {item.what} excluded: {printable(item.reason)}", style="yellow")


def _config(report: Report, console: Console) -> None:
    config = report.config
    if config.status != OK:
        line(console, f"Config: not compared: {printable(config.reason or DASH)}", style="yellow")
        return
    if not config.differences:
        line(console, f"Config: all {config.equal_keys} keys are equal")
        return
    rows = table()
    for column in ("key", "A", "B"):
        rows.add_column(column, overflow="fold")
    for item in config.differences:
        left = printable(item.a or "") if item.a_present else "(absent)"
        right = printable(item.b or "") if item.b_present else "(absent)"
        rows.add_row(Text(printable(item.key)), Text(left), Text(right))
    show(console, f"Config: {len(config.differences)} keys differ, {config.equal_keys} are equal", rows)


def _tokenizer(report: Report, console: Console) -> None:
    found = report.tokenizer
    if found.status != OK:
        line(console, f"Tokenizer: not compared: {printable(found.reason or DASH)}", style="yellow")
    elif found.identical_files:
        line(console, f"Tokenizer: identical{f' ({found.reason})' if found.reason else ''}")
    else:
        merges = (
            DASH if found.merges_common is None else f"{found.merges_common} of {found.merges_a} / {found.merges_b}"
        )
        line(
            console,
            f"Tokenizer: {printable(found.kind_a or DASH)} / {printable(found.kind_b or DASH)}, {found.tokens_a} / "
            f"{found.tokens_b} tokens, {found.tokens_common} in common (Jaccard {number(found.jaccard)}), "
            f"{found.same_id} with the same id; merges in common: {merges}",
        )


def _declared(report: Report, console: Console) -> None:
    found = report.declared
    if found is None:
        return
    for side, said in (("A", found.a), ("B", found.b)):
        bases = ", ".join(printable(name, 80) for name in said.base_models)
        parts = [f"base {bases}"] if bases else []
        parts += [f"licence {printable(said.licence, 80)}"] if said.licence else []
        if parts:
            line(console, f"{side} declares: {'; '.join(parts)} ({', '.join(said.where)})")
    loud = found.state in (UNDECLARED, NOT_SHOWN)
    line(console, f"Declared against measured: {printable(found.sentence, 500)}", style="bold yellow" if loud else "")
    if found.licences:
        line(console, printable(found.licences, 300), style="yellow")


def _role_table(items: list[TensorComparison], console: Console) -> None:
    first = items[0]
    axis = f"null: permuted {first.permuted_axis} indices" if first.permuted_axis else "no null"
    rows = table()
    narrow = console.width < NARROW
    rows.add_column("layer", no_wrap=True)
    rows.add_column("metric", no_wrap=True)
    figures(rows, "observed", "null mean", "null sd", "z", "log10 p", *(() if narrow else ("n",)))
    if not narrow:
        rows.add_column("p from", no_wrap=True)
    reasons: dict[str, list[str]] = {}
    for item in items:
        place = DASH if item.layer is None else str(item.layer)
        if item.expert is not None:
            place += f" e{item.expert}"
        if not item.measurements:
            reasons.setdefault(f"not comparable: {item.reason}", []).append(place)
        for position, measured in enumerate(item.measurements):
            cells = _measurement_cells(measured, narrow=narrow)
            rows.add_row(place if position == 0 else "", *cells, end_section=measured is item.measurements[-1])
            if measured.reason:
                reasons.setdefault(measured.reason, []).append(place)
    show(console, f"{first.role}  ({axis})", rows)
    for reason, places in reasons.items():
        line(console, f"  layer {_shortened(places)}: {printable(reason)}", style="yellow")


def _shortened(places: list[str], most: int = 6) -> str:
    return ", ".join(places[:most]) + (f" and {len(places) - most} more" if len(places) > most else "")


def _measurement_cells(measured: Measurement, *, narrow: bool) -> list[Text]:
    null = measured.null
    value = number(measured.value)
    if null is None:
        word = "no null" if measured.status == NO_NULL else "undefined"
        cells = [measured.metric, value, DASH, DASH, DASH, DASH, DASH, word]
    else:
        figures = number(null.mean), number(null.sd), _z(null.z), _log_p(null), str(null.n), _method(null)
        cells = [measured.metric, value, *figures]
    if narrow:
        del cells[-2:]
    return [Text(cell) for cell in cells]


def _summary(report: Report, console: Console) -> None:
    if report.status != OK:
        line(console, f"Not comparable: {printable(report.reason or DASH, 700)}", style="bold red")
    narrow = console.width < NARROW
    rows = table()
    rows.add_column("role", no_wrap=True)
    figures(rows, *(() if narrow else ("compared", "not", "n")), "cosine", "its null", "Pearson")
    figures(rows, *(() if narrow else ("null mean",)), "null sd", "z", "log10 p")
    if not narrow:
        rows.add_column("p from", no_wrap=True)
    for item in report.summary:
        rows.add_row(*_summary_cells(item, narrow=narrow))
    show(console, "By role, all layers tested together", rows)
    reasons: dict[str, list[str]] = {}
    ways: dict[str, list[str]] = {}
    for item in report.summary:
        if item.null is None:
            reasons.setdefault(item.reason or DASH, []).append(item.role)
        elif item.permutation is not None and item.compared > 1:
            ways.setdefault(item.permutation, []).append(item.role)
    for way, roles in ways.items():
        line(console, f"{printable(way)}: {', '.join(roles)}", style="dim")
    for reason, roles in reasons.items():
        line(console, f"no test of {_shortened(roles)}: {printable(reason)}", style="yellow")


def _summary_cells(item: RoleSummary, *, narrow: bool) -> list[Text]:
    null = item.null
    statistic = item.statistic if item.statistic is not None else item.mean_pearson
    cells = [item.role]
    cells += [] if narrow else [str(item.compared), str(item.not_compared), str(null.n) if null else DASH]
    cells += [number(item.median_cosine), number(item.median_cosine_null), number(statistic)]
    cells += [] if narrow else [number(null.mean) if null else DASH]
    cells += [number(null.sd), _z(null.z), _log_p(null)] if null else [DASH, DASH, DASH]
    cells += [] if narrow else [_method(null) if null else "no test"]
    return [Text(cell) for cell in cells]


def _skipped(skipped: tuple[Skipped, ...], console: Console) -> None:
    for item in skipped:
        line(console, f"not compared: {item.count} {item.what}: {printable(item.reason)}", style="yellow")


def _how_to_read(report: Report, console: Console) -> None:
    line(console, "")
    line(
        console,
        "Cosine is the median over layers, Pearson (centred cosine) the mean; z and p test that mean, permuting one",
    )
    line(
        console,
        "model's indices. A cosine near its null says nothing, however high: it follows from the spreads alone.",
    )
    example = next((i for i in report.comparisons if i.explained and abs(i.explained.observed) > 0.5), None)
    if example and example.explained:
        e = example.explained
        where = example.role if example.layer is None else f"{example.role} of layer {example.layer}"
        line(
            console,
            f"Example, {where}: r {e.r:.4f}, CV {e.cv_a:.4f} and {e.cv_b:.4f} give cosine {e.predicted:.6f} "
            f"(observed {e.observed:.6f}; with r = 0 it would be {e.if_independent:.6f}).",
        )


def _cost(report: Report, console: Console) -> None:
    run, budget = report.run, report.settings.budget_bytes
    if run.problem:
        line(console, f"note: {printable(run.problem)}", style="yellow")
    of_budget = f" of a budget of {format_size(budget)}" if budget is not None else ""
    line(
        console,
        f"read {format_size(report.bytes_read)}{of_budget} ({format_size(run.network_bytes)} network, "
        f"{format_size(run.cache_bytes)} cache, {format_size(run.local_bytes)} local), "
        f"{run.requests} requests, {run.elapsed_s:.1f} s",
        style="dim",
    )


# -- one model -----------------------------------------------------------------------------------------------------------


def print_inspection(found: Inspection, console: Console) -> None:
    """Print one model: facts, tensors by role, norms by layer, tensors without a name."""
    rows = table(header=False)
    for what, value in _model_lines(found.model):
        rows.add_row(what, Text(value))
    rows.add_row("location", Text(printable(found.model.location)))
    rows.add_row("files", str(len(found.model.files)))
    show(console, "Model", rows)
    _model_notes("note", found.model, console)
    show(console, "Tensors by role", _inventory_table(found, narrow=console.width < NARROW))
    if found.norms:
        show(console, "Norm weights", _norm_table(found))
    if found.model.unmapped:
        line(console, f"{len(found.model.unmapped)} tensors without a name:", style="yellow")
        for name in found.model.unmapped:
            line(console, f"  {printable(name)}")
    else:
        line(console, "every stored tensor has a name or was excluded for the reason given")
    line(console, f"read {format_size(found.bytes_read)} in {found.requests} requests", style="dim")


def _inventory_table(found: Inspection, *, narrow: bool) -> Table:
    rows = table()
    rows.add_column("role", no_wrap=True)
    figures(rows, "tensors", "layers", "shape")
    rows.add_column("dtype", no_wrap=True)
    figures(rows, "bytes")
    if not narrow:
        rows.add_column("stored as", overflow="fold")
    for item in found.roles:
        shape = " × ".join(map(str, item.shape))
        cells = [
            item.role,
            str(item.tensors),
            str(item.layers or DASH),
            shape,
            item.dtype,
            format_size(item.stored_bytes),
        ]
        stored = printable(item.example, 80) + (" (part)" if item.fused else "")
        rows.add_row(*(Text(cell) for cell in (cells if narrow else [*cells, stored])))
    return rows


def _norm_table(found: Inspection) -> Table:
    rows = table()
    rows.add_column("role", no_wrap=True)
    figures(rows, "layer", "width", "mean", "std", "min", "max", "CV", "NaN/Inf")
    for item in found.norms:
        numbers = (item.mean, item.std, item.minimum, item.maximum, item.cv)
        layer = DASH if item.layer is None else str(item.layer)
        rows.add_row(item.role, layer, str(item.width), *(number(value) for value in numbers), str(item.nonfinite))
    return rows


# -- numbers -------------------------------------------------------------------------------------------------------------


def _z(value: float | None) -> str:
    if value is None:
        return DASH
    return f"{value:+.2f}" if abs(value) < 100 else f"{value:+.0f}"


def _log_p(null: NullResult) -> str:
    if null.log10_p is None:
        return DASH
    figure = min(null.log10_p, 0.0) + 0.0
    return f"{'≤ ' if _BOUND in null.p_method else ''}{figure:.{2 if figure > -100 else 0}f}"


def _method(null: NullResult) -> str:
    """Name the source of a p-value in a word or two; the report's JSON has it in full."""
    if null.n_draws and null.p_method.startswith("Monte-Carlo"):
        return f"{null.n_draws} draws"
    for start, short in (
        ("normal tail on exact permutation moments,", "normal, held"),
        ("normal", "normal"),
        ("moment", "moments"),
    ):
        if null.p_method.startswith(start):
            return short
    return null.p_method.split(" ", 1)[0].rstrip(":,")


def print_cache(folder: str, cap_bytes: int, files: list[tuple[dict[str, object], int, int]], console: Console) -> None:
    """Print the range cache's contents, by model."""
    models: dict[str, list[int]] = {}
    for facts, ranges, stored in files:
        commit = str(facts.get("commit") or "")[:8]
        name = f"{facts['repo']}@{commit}" if facts.get("repo") else str(facts.get("url") or "unknown")
        totals = models.setdefault(name, [0, 0, 0])
        for position, amount in enumerate((1, ranges, stored)):
            totals[position] += amount
    total = sum(stored for _, _, stored in files)
    title = f"Range cache {folder}: {format_size(total)} of at most {format_size(cap_bytes)}"
    rows = table()
    rows.add_column("model", overflow="fold")
    figures(rows, "files", "ranges", "bytes")
    for name, (count, ranges, stored) in sorted(models.items()):
        rows.add_row(Text(printable(name)), str(count), str(ranges), format_size(stored))
    show(console, title, rows)
