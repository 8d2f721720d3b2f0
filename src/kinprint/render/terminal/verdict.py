"""The verdict and what it rests on, as terminal text. Names come from strangers and are shown as plain text."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from kinprint._util.plain import printable
from kinprint.render.terminal.layout import DASH, NARROW, figures, line, number, show, table
from kinprint.render.texts.words import IN_ENGLISH
from kinprint.results.findings import TESTED, Evidence, EvidenceTest, Verdict

_STYLES = {
    "identical": "bold magenta",
    "derived": "bold magenta",
    "shares_components": "bold yellow",
    "shares_initialisation": "bold yellow",
    "no_evidence": "bold blue",
    "not_testable": "bold",
}
_SHOWN = 12


def print_evidence(evidence: Evidence, console: Console) -> None:
    """Print the tests, the layer map, the parts that share, the kind of edit, controls and power."""
    _tests(evidence, console)
    _layers(evidence, console)
    _components(evidence, console)
    _edits(evidence, console)
    _controls(evidence, console)


def print_verdict(verdict: Verdict, evidence: Evidence, console: Console, *, explain: bool = False) -> None:
    """Print the sentence, what speaks for and against it, and its limits; with `explain` every rule that was tried."""
    if explain:
        _rules(verdict, evidence, console)
    line(console, "")
    label = printable(IN_ENGLISH.verdict(verdict.class_, verdict.kind, verdict.sentence))
    line(console, f"Verdict: {label}", style=_STYLES.get(verdict.class_, "bold"))
    line(console, printable(verdict.sentence, 600))
    _list(console, "for", verdict.reasons)
    _list(console, "against, and limits", verdict.against)
    _list(console, "not tested", verdict.untested)
    _list(console, "assumed", verdict.assumptions)
    p = DASH if verdict.log10_p is None else f"{verdict.log10_p:.1f}"
    using = f"; empirical null: {verdict.null}" if verdict.null else ""
    line(
        console,
        f"log10 p {p} after Holm's correction for {verdict.tests} tests; threshold {verdict.log10_alpha:g}{printable(using)}",
        style="dim",
    )


def _list(console: Console, title: str, lines: tuple[str, ...]) -> None:
    for position, text in enumerate(lines[:_SHOWN]):
        start = f"  {title}: " if position == 0 else "    · "
        line(console, f"{start}{printable(IN_ENGLISH.reason(text), 400)}")
    if len(lines) > _SHOWN:
        line(console, f"    · and {len(lines) - _SHOWN} more, in the report")


def _tests(evidence: Evidence, console: Console) -> None:
    shown = table()
    shown.add_column("test", overflow="fold")
    shown.add_column("of", overflow="fold")
    narrow = console.width < NARROW
    figures(shown, *(() if narrow else ("n", "layers")), "observed", "null mean", *(() if narrow else ("null sd",)))
    figures(shown, "z", "log10 p", "corrected")
    for test in evidence.tests:
        cells = _numbers(test, narrow=narrow)
        ran = test.status == TESTED
        scope = Text(printable(test.scope))
        shown.add_row(_name(test), scope, *(cells if ran else [DASH] * len(cells)), style="" if ran else "dim")
    show(console, "Evidence: tests of 'these models share nothing'", shown)
    off = [test for test in evidence.tests if test.status != TESTED]
    for test in off[:_SHOWN]:
        what = printable(f"{_test(test.name)} ({test.scope})")
        line(console, f"did not run: {what}: {printable(test.reason or DASH, 200)}", style="yellow")


def _name(test: EvidenceTest) -> Text:
    return Text(printable(_test(test.name)) + ("" if test.layer is None else f", layer {test.layer}"))


def _test(name: str) -> str:
    return IN_ENGLISH.label("test", name)


def _numbers(test: EvidenceTest, *, narrow: bool) -> list[str]:
    start = [] if narrow else [str(test.n), str(test.blocks)]
    middle = (test.statistic, test.null_mean) if narrow else (test.statistic, test.null_mean, test.null_sd)
    figure = (f"{value:.2f}" if value is not None else DASH for value in (test.z, test.log10_p, test.log10_p_holm))
    return [*start, *(number(value) for value in middle), *figure]


def _layers(evidence: Evidence, console: Console) -> None:
    found = evidence.alignment
    if found.status != TESTED:
        line(console, f"Layer map: not made: {printable(found.reason or DASH, 300)}", style="yellow")
        return
    matched = [item for item in found.layers if item.shared]
    kind = printable(IN_ENGLISH.label("mapkind", found.kind))
    line(console, f"Layer map: {kind} {len(matched)} of {len(found.layers)} layers of B match a layer of A")
    if matched and found.kind != "identity":
        pairs = ", ".join(f"{item.layer}←{item.source}" for item in matched)
        line(console, f"  layers of B and where they come from: {pairs}")


def _components(evidence: Evidence, console: Console) -> None:
    if not evidence.components:
        return
    shown = table()
    shown.add_column("part", overflow="fold")
    shown.add_column("shares", overflow="fold")
    figures(shown, "places", "log10 p")
    shown.add_column("", overflow="fold")
    for item in evidence.components:
        places = f"{item.shared} of {item.tested}" if item.tested else DASH
        what = (IN_ENGLISH.label("component", item.component), IN_ENGLISH.label("state", item.state))
        note = Text(printable(item.note or "", 120))
        shown.add_row(*(Text(printable(text)) for text in what), places, number(item.log10_p), note)
    show(console, "Parts", shown)


def _edits(evidence: Evidence, console: Console) -> None:
    if evidence.edits:
        shown = table()
        for name in ("of", "edit"):
            shown.add_column(name, overflow="fold")
        narrow = console.width < NARROW
        names = (
            ("changed", "slope", "corr.") if narrow else ("changed", "ulps", "slope", "corr.", "rel. diff.", "zeros B")
        )
        figures(shown, "tensors", *names, "rank", "bits")
        for item in evidence.edits:
            few = (item.changed_share, item.slope, item.correlation)
            values = (
                few
                if narrow
                else (
                    item.changed_share,
                    item.mean_ulps,
                    item.slope,
                    item.correlation,
                    item.relative_difference,
                    item.zeros_b,
                )
            )
            whole = (DASH if value is None else str(value) for value in (item.rank, item.bits))
            what = (Text(printable(text)) for text in (item.scope, IN_ENGLISH.label("edit", item.edit)))
            shown.add_row(*what, str(item.tensors), *(number(v) for v in values), *whole)
        show(console, "What was done to the weights", shown)
    if evidence.merge is not None:
        merge = evidence.merge
        parts = zip(merge.parents, merge.coefficients, merge.standard_errors, strict=True)
        text = ", ".join(f"{printable(name)} {value:.3f} ± {error:.3f}" for name, value, error in parts)
        line(console, f"As a weighted sum: {text}; explains {merge.r_squared:.2%} of B")
        if merge.note:
            line(console, f"  {printable(merge.note, 300)}", style="yellow")


def _controls(evidence: Evidence, console: Console) -> None:
    shown = table()
    for name in ("control", "expected", "found", "status"):
        shown.add_column(name, overflow="fold")
    figures(shown, "z", "log10 p")
    for item in evidence.controls:
        shown.add_row(
            Text(printable(IN_ENGLISH.control(item.name))),
            Text(printable(IN_ENGLISH.label("class", item.expected))),
            Text(printable(IN_ENGLISH.label("class", item.found)) if item.found else DASH),
            Text(printable(IN_ENGLISH.label("control_status", item.status))),
            number(item.z),
            number(item.log10_p),
        )
    show(console, "Controls: A against models whose answer is known", shown)
    for item in evidence.controls:
        if item.reason:
            said = printable(IN_ENGLISH.reason(item.reason), 300)
            line(console, f"{printable(IN_ENGLISH.control(item.name))}: {said}", style="yellow")
    if evidence.power:
        shown = table()
        for name in ("test", "of", "weakest relation seen with 95 % probability"):
            shown.add_column(name, overflow="fold")
        figures(shown, "least", "n", "width", "layers")
        for power in evidence.power:
            width = DASH if power.width is None else str(power.width)
            what = (Text(printable(text)) for text in (_test(power.name), power.scope, power.quantity))
            shown.add_row(*what, number(power.least), str(power.n), width, str(power.blocks))
        show(console, "Power", shown)
        for power in evidence.power:
            if power.reason:
                said = f"{_test(power.name)} ({power.scope}): {power.reason}"
                line(console, printable(said, 400), style="yellow")


def _rules(verdict: Verdict, evidence: Evidence, console: Console) -> None:
    line(console, "")
    line(console, "Reasoning, rule by rule", style="bold")
    for rule in verdict.rules:
        mark = f"→ {printable(IN_ENGLISH.label('class', rule.outcome))}" if rule.fired else "no, go on"
        line(console, f"  {rule.name}: {printable(rule.question)} {mark}", style="bold" if rule.fired else "")
        for text in rule.inputs:
            line(console, f"      {printable(IN_ENGLISH.reason(text), 300)}")
    line(console, "Reading, stage by stage", style="bold")
    for text in evidence.stages:
        line(console, f"  {printable(text, 300)}")
