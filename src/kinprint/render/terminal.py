"""Results as terminal tables. Names come from strangers: they are shown as plain text, never as markup."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kinprint.plain import printable
from kinprint.results import (
    NO_NULL,
    OK,
    Inspection,
    Measurement,
    ModelSummary,
    NullResult,
    Report,
    RoleSummary,
    Skipped,
    TensorComparison,
)
from kinprint.sizes import format_size

DASH = "–"
NARROW = 124  # below so many columns, tables leave out what can be spared
_BOUND = "upper bound"


def print_report(report: Report, console: Console, *, details: bool = True) -> None:
    """Print a comparison: differences, every metric by role and layer, and the summary last, where the eye ends."""
    _models(report, console)
    _config(report, console)
    _tokenizer(report, console)
    if details:
        for role in dict.fromkeys(item.role for item in report.comparisons):
            _role_table([item for item in report.comparisons if item.role == role], console)
    _summary(report, console)
    _skipped(report.skipped, console)
    for note in report.notes:
        _line(console, f"note: {printable(note)}", style="yellow")
    _how_to_read(report, console)
    _cost(report, console)


def _table(*, header: bool = True) -> Table:
    """Return an empty table in the one style used here: light, so that figures fit a narrow terminal."""
    return Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False, show_header=header)


def _show(console: Console, title: str, table: Table) -> None:
    _line(console, "")
    _line(console, printable(title), style="bold")
    console.print(table)


def _figures(table: Table, *names: str) -> None:
    """Add columns of numbers, which are never cut."""
    for name in names:
        table.add_column(name, justify="right", no_wrap=True, min_width=min(len(name), 6))


# -- a comparison, part by part ----------------------------------------------------------------------------------------


def _models(report: Report, console: Console) -> None:
    table = _table()
    table.add_column("")
    for side in ("A", "B"):
        table.add_column(side, overflow="fold")
    a, b = _model_lines(report.a), _model_lines(report.b)
    for (what, left), (_, right) in zip(a, b, strict=True):
        table.add_row(what, Text(left), Text(right))
    _show(console, "Models", table)
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
        _line(console, f"{side}: {printable(note)}", style="yellow")
    for item in model.excluded:
        _line(console, f"{side}: {item.count} {item.what} excluded: {printable(item.reason)}", style="yellow")


def _config(report: Report, console: Console) -> None:
    config = report.config
    if config.status != OK:
        _line(console, f"Config: not compared: {printable(config.reason or DASH)}", style="yellow")
        return
    if not config.differences:
        _line(console, f"Config: all {config.equal_keys} keys are equal")
        return
    table = _table()
    for column in ("key", "A", "B"):
        table.add_column(column, overflow="fold")
    for item in config.differences:
        left = printable(item.a or "") if item.a_present else "(absent)"
        right = printable(item.b or "") if item.b_present else "(absent)"
        table.add_row(Text(printable(item.key)), Text(left), Text(right))
    _show(console, f"Config: {len(config.differences)} keys differ, {config.equal_keys} are equal", table)


def _tokenizer(report: Report, console: Console) -> None:
    found = report.tokenizer
    if found.status != OK:
        _line(console, f"Tokenizer: not compared: {printable(found.reason or DASH)}", style="yellow")
    elif found.identical_files:
        _line(console, f"Tokenizer: identical{f' ({found.reason})' if found.reason else ''}")
    else:
        merges = (
            DASH if found.merges_common is None else f"{found.merges_common} of {found.merges_a} / {found.merges_b}"
        )
        _line(
            console,
            f"Tokenizer: {printable(found.kind_a or DASH)} / {printable(found.kind_b or DASH)}, {found.tokens_a} / "
            f"{found.tokens_b} tokens, {found.tokens_common} in common (Jaccard {_number(found.jaccard)}), "
            f"{found.same_id} with the same id; merges in common: {merges}",
        )


def _role_table(items: list[TensorComparison], console: Console) -> None:
    first = items[0]
    axis = f"null: permuted {first.permuted_axis} indices" if first.permuted_axis else "no null"
    table = _table()
    narrow = console.width < NARROW
    table.add_column("layer", no_wrap=True)
    table.add_column("metric", no_wrap=True)
    _figures(table, "observed", "null mean", "null sd", "z", "log10 p", *(() if narrow else ("n",)))
    if not narrow:
        table.add_column("p from", no_wrap=True)
    reasons: dict[str, list[str]] = {}
    for item in items:
        place = DASH if item.layer is None else str(item.layer)
        if item.expert is not None:
            place += f" e{item.expert}"
        if not item.measurements:
            reasons.setdefault(f"not comparable: {item.reason}", []).append(place)
        for number, measured in enumerate(item.measurements):
            cells = _measurement_cells(measured, narrow=narrow)
            table.add_row(place if number == 0 else "", *cells, end_section=measured is item.measurements[-1])
            if measured.reason:
                reasons.setdefault(measured.reason, []).append(place)
    _show(console, f"{first.role}  ({axis})", table)
    for reason, places in reasons.items():
        _line(console, f"  layer {_shortened(places)}: {printable(reason)}", style="yellow")


def _shortened(places: list[str], most: int = 6) -> str:
    return ", ".join(places[:most]) + (f" and {len(places) - most} more" if len(places) > most else "")


def _measurement_cells(measured: Measurement, *, narrow: bool) -> list[Text]:
    null = measured.null
    value = _number(measured.value)
    if null is None:
        word = "no null" if measured.status == NO_NULL else "undefined"
        cells = [measured.metric, value, DASH, DASH, DASH, DASH, DASH, word]
    else:
        figures = _number(null.mean), _number(null.sd), _z(null.z), _log_p(null), str(null.n), _method(null)
        cells = [measured.metric, value, *figures]
    if narrow:
        del cells[-2:]
    return [Text(cell) for cell in cells]


def _summary(report: Report, console: Console) -> None:
    if report.status != OK:
        _line(console, f"Not comparable: {printable(report.reason or DASH, 700)}", style="bold red")
    narrow = console.width < NARROW
    table = _table()
    table.add_column("role", no_wrap=True)
    _figures(table, *(() if narrow else ("compared", "not", "n")), "cosine", "its null", "Pearson")
    _figures(table, *(() if narrow else ("null mean",)), "null sd", "z", "log10 p")
    if not narrow:
        table.add_column("p from", no_wrap=True)
    for item in report.summary:
        table.add_row(*_summary_cells(item, narrow=narrow))
    _show(console, "By role, all layers tested together", table)
    reasons: dict[str, list[str]] = {}
    ways: dict[str, list[str]] = {}
    for item in report.summary:
        if item.null is None:
            reasons.setdefault(item.reason or DASH, []).append(item.role)
        elif item.permutation is not None and item.compared > 1:
            ways.setdefault(item.permutation, []).append(item.role)
    for way, roles in ways.items():
        _line(console, f"{printable(way)}: {', '.join(roles)}", style="dim")
    for reason, roles in reasons.items():
        _line(console, f"no test of {_shortened(roles)}: {printable(reason)}", style="yellow")


def _summary_cells(item: RoleSummary, *, narrow: bool) -> list[Text]:
    null = item.null
    statistic = item.statistic if item.statistic is not None else item.mean_pearson
    cells = [item.role]
    cells += [] if narrow else [str(item.compared), str(item.not_compared), str(null.n) if null else DASH]
    cells += [_number(item.median_cosine), _number(item.median_cosine_null), _number(statistic)]
    cells += [] if narrow else [_number(null.mean) if null else DASH]
    cells += [_number(null.sd), _z(null.z), _log_p(null)] if null else [DASH, DASH, DASH]
    cells += [] if narrow else [_method(null) if null else "no test"]
    return [Text(cell) for cell in cells]


def _skipped(skipped: tuple[Skipped, ...], console: Console) -> None:
    for item in skipped:
        _line(console, f"not compared: {item.count} {item.what}: {printable(item.reason)}", style="yellow")


def _how_to_read(report: Report, console: Console) -> None:
    _line(console, "")
    _line(
        console,
        "Cosine is the median over layers, Pearson (centred cosine) the mean; z and p test that mean, permuting one",
    )
    _line(
        console,
        "model's indices. A cosine near its null says nothing, however high: it follows from the spreads alone.",
    )
    example = next((i for i in report.comparisons if i.explained and abs(i.explained.observed) > 0.5), None)
    if example and example.explained:
        e = example.explained
        where = example.role if example.layer is None else f"{example.role} of layer {example.layer}"
        _line(
            console,
            f"Example, {where}: r {e.r:.4f}, CV {e.cv_a:.4f} and {e.cv_b:.4f} give cosine {e.predicted:.6f} "
            f"(observed {e.observed:.6f}; with r = 0 it would be {e.if_independent:.6f}).",
        )
    _line(console, "This version states evidence and draws no conclusion.", style="bold")


def _cost(report: Report, console: Console) -> None:
    run, budget = report.run, report.settings.budget_bytes
    of_budget = f" of a budget of {format_size(budget)}" if budget is not None else ""
    _line(
        console,
        f"read {format_size(report.bytes_read)}{of_budget} ({format_size(run.network_bytes)} network, "
        f"{format_size(run.cache_bytes)} cache, {format_size(run.local_bytes)} local), "
        f"{run.requests} requests, {run.elapsed_s:.1f} s",
        style="dim",
    )


# -- one model -----------------------------------------------------------------------------------------------------------


def print_inspection(found: Inspection, console: Console) -> None:
    """Print one model: facts, tensors by role, norms by layer, tensors without a name."""
    table = _table(header=False)
    for what, value in _model_lines(found.model):
        table.add_row(what, Text(value))
    table.add_row("location", Text(printable(found.model.location)))
    table.add_row("files", str(len(found.model.files)))
    _show(console, "Model", table)
    _model_notes("note", found.model, console)
    _show(console, "Tensors by role", _inventory_table(found, narrow=console.width < NARROW))
    if found.norms:
        _show(console, "Norm weights", _norm_table(found))
    if found.model.unmapped:
        _line(console, f"{len(found.model.unmapped)} tensors without a name:", style="yellow")
        for name in found.model.unmapped:
            _line(console, f"  {printable(name)}")
    else:
        _line(console, "every stored tensor has a name or was excluded for the reason given")
    _line(console, f"read {format_size(found.bytes_read)} in {found.requests} requests", style="dim")


def _inventory_table(found: Inspection, *, narrow: bool) -> Table:
    table = _table()
    table.add_column("role", no_wrap=True)
    _figures(table, "tensors", "layers", "shape")
    table.add_column("dtype", no_wrap=True)
    _figures(table, "bytes")
    if not narrow:
        table.add_column("stored as", overflow="fold")
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
        table.add_row(*(Text(cell) for cell in (cells if narrow else [*cells, stored])))
    return table


def _norm_table(found: Inspection) -> Table:
    table = _table()
    table.add_column("role", no_wrap=True)
    _figures(table, "layer", "width", "mean", "std", "min", "max", "CV", "NaN/Inf")
    for item in found.norms:
        numbers = (item.mean, item.std, item.minimum, item.maximum, item.cv)
        layer = DASH if item.layer is None else str(item.layer)
        table.add_row(item.role, layer, str(item.width), *(_number(value) for value in numbers), str(item.nonfinite))
    return table


# -- numbers -------------------------------------------------------------------------------------------------------------


def _number(value: float | None) -> str:
    if value is None:
        return DASH
    if abs(value) < 1e-12:
        return "0"
    if 100 <= abs(value) < 1e5:
        return f"{value:.1f}"
    return f"{value:.4f}" if 1e-3 <= abs(value) < 100 else f"{value:.2e}"


def _z(value: float | None) -> str:
    if value is None:
        return DASH
    return f"{value:+.2f}" if abs(value) < 100 else f"{value:+.0f}"


def _log_p(null: NullResult) -> str:
    if null.log10_p is None:
        return DASH
    figure = min(null.log10_p, 0.0) + 0.0
    return f"{'≤ ' if _BOUND in null.p_method else ''}{figure:.2f}" if figure > -100 else f"{figure:.0f}"


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


def _line(console: Console, text: str, style: str = "") -> None:
    console.print(Text(text, style=style), soft_wrap=True)


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
    table = _table()
    table.add_column("model", overflow="fold")
    _figures(table, "files", "ranges", "bytes")
    for name, (count, ranges, stored) in sorted(models.items()):
        table.add_row(Text(printable(name)), str(count), str(ranges), format_size(stored))
    _show(console, title, table)
