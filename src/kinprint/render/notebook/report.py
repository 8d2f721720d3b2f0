"""Results as small HTML fragments for notebooks: no script, nothing from elsewhere, every name escaped.

Colours follow JupyterLab's theme where there is one, else the reader's preference for light or dark.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Iterable, Sequence

from markupsafe import Markup, escape

from kinprint._util.plain import printable
from kinprint._util.sizes import format_size
from kinprint.render.drawing.tree_labels import summary, title
from kinprint.render.drawing.tree_svg import tree_svg
from kinprint.render.terminal.layout import BOUND, DASH, number
from kinprint.render.terminal.pairs import LEGEND, found, sign, strongest_first
from kinprint.render.texts.words import IN_ENGLISH
from kinprint.results.context import NOT_SHOWN, UNDECLARED
from kinprint.results.findings import NO_EVIDENCE, TESTED, Evidence, EvidenceTest, Verdict
from kinprint.results.inspection import Inspection
from kinprint.results.measurements import OK, RoleSummary
from kinprint.results.report import Report
from kinprint.results.tree import FamilyTree, PairsReport

MOST_ROWS, MOST_TESTS = 40, 5
_NAME, _PROSE, _GROUP, _BAR_NAME = 120, 700, 2800, 52
_STYLE = Markup(
    """<style>
.kinprint-nb{--kp-ink:var(--jp-content-font-color1,var(--vscode-editor-foreground,#1a1a1a));
--kp-faint:var(--jp-content-font-color2,var(--vscode-descriptionForeground,#595959));
--kp-paper:var(--jp-layout-color0,var(--vscode-editor-background,#fff));
--kp-line:var(--jp-border-color1,#c4c4c4);--kp-mark:#0072b2;--kp-past:#b34700;
color:var(--kp-ink);background:var(--kp-paper);padding:.2em .8em;
font-family:var(--jp-content-font-family,system-ui,sans-serif);font-size:14px;line-height:1.45;
max-width:64em;overflow-x:auto}
@media (prefers-color-scheme:dark){.kinprint-nb{
--kp-ink:var(--jp-content-font-color1,var(--vscode-editor-foreground,#ececec));
--kp-faint:var(--jp-content-font-color2,var(--vscode-descriptionForeground,#b0b0b0));
--kp-paper:var(--jp-layout-color0,var(--vscode-editor-background,#16181c));
--kp-line:var(--jp-border-color1,#5a5a5a);--kp-mark:#56b4e9;--kp-past:#e69f00}}
.kinprint-nb p{margin:.35em 0}
.kinprint-nb .kp-class{font-size:1.2em;font-weight:600}
.kinprint-nb .kp-faint,.kinprint-nb caption{color:var(--kp-faint)}
.kinprint-nb table{border-collapse:collapse;margin:.7em 0;font-size:.93em;font-variant-numeric:tabular-nums}
.kinprint-nb caption{text-align:left;font-weight:600;padding:.2em 0}
.kinprint-nb th,.kinprint-nb td{border:0;border-bottom:1px solid var(--kp-line);padding:.2em .6em;text-align:right;
background:none;color:inherit;vertical-align:top}
.kinprint-nb th:first-child,.kinprint-nb td:first-child{text-align:left}
.kinprint-nb td{white-space:nowrap}
.kinprint-nb td:first-child{min-width:10em;white-space:normal;overflow-wrap:anywhere}
.kinprint-nb svg text{fill:currentColor}
</style>"""
)


def report_notebook(report: Report) -> str:
    """Return the verdict, a picture of its strongest tests and controls, the roles and the controls."""
    parts = [
        Markup("<p>{} <span class=kp-faint>against</span> {}</p>").format(
            _shown(report.a.reference), _shown(report.b.reference)
        ),
        *_verdict(report),
        _declared(report),
        _picture(report.verdict, report.evidence),
        _roles(report.summary),
        _controls(report.evidence),
    ]
    return _fragment(parts, "kinprint: comparison of two models")


def tree_notebook(tree: FamilyTree) -> str:
    """Return the drawing of a family tree, as an image, so that nothing in it can act or clash with the page."""
    return _fragment(_drawn(tree), "kinprint: family tree")


def pairs_notebook(report: PairsReport) -> str:
    """Return all pairs of several models: the matrix of verdicts, the groups, each pair beside its null, then the tree."""
    models = report.tree.models
    names = [title(model) for model in models]
    matrix = [
        (_shown(f"{one.index + 1} {names[one.index]}"), *(sign(report, one, two) for two in models)) for one in models
    ]
    parts = [
        _table(f"Verdicts of {len(report.pairs)} pairs", ("model", *(str(one.index + 1) for one in models)), matrix),
        Markup("<p class=kp-faint>{}</p>").format(LEGEND.replace("   ", ", ")),
        *_groups(report, names),
        _pairs(report, names),
        *_disagreements(report, names),
        *_drawn(report.tree),
    ]
    return _fragment(parts, "kinprint: all pairs of several models")


def inspection_notebook(found: Inspection) -> str:
    """Return what one model is made of."""
    model = found.model
    guessed = " (guessed)" if model.architecture_guessed else ""
    facts = (
        f"{printable(model.architecture, _NAME)}{guessed}, {model.layers} layers, {model.parameters:,} parameters, "
        f"{format_size(model.stored_bytes)} stored, {len(model.unmapped)} of {model.tensors} tensors without a name"
    )
    rows = [
        (
            _shown(item.role),
            str(item.tensors),
            str(item.layers or DASH),
            " × ".join(map(str, item.shape)),
            _shown(item.dtype),
            format_size(item.stored_bytes),
        )
        for item in found.roles
    ]
    header = ("role", "tensors", "layers", "shape", "dtype", "bytes")
    parts = [
        Markup("<p class=kp-class>{}</p>").format(_shown(model.reference)),
        _p(facts),
        _table("Tensors by role", header, rows),
        *(_p(_shown(note, _PROSE)) for note in model.notes),
    ]
    return _fragment(parts, "kinprint: description of a model")


# -- parts of a comparison -----------------------------------------------------------------------------------------------


def _verdict(report: Report) -> list[Markup]:
    verdict = report.verdict
    parts = []
    if report.status != OK:
        parts.append(_p("Not comparable: ", _shown(report.reason or DASH, _PROSE)))
    if verdict is None:
        return [*parts, _p("No verdict: this comparison was asked for measurements alone.")]
    label = IN_ENGLISH.verdict(verdict.class_, verdict.kind, verdict.sentence)
    parts.insert(0, Markup("<p class=kp-class>{}</p>").format(_shown(label)))
    parts.insert(1, _p(_shown(verdict.sentence, _PROSE)))
    if verdict.class_ == NO_EVIDENCE:
        parts.append(_p("No evidence is not proof of independence."))
    certainty = (
        f"log10 p {_two(verdict.log10_p)} after Holm's correction for {verdict.tests} tests; "
        f"threshold {verdict.log10_alpha:g}"
    )
    limits = "; ".join(IN_ENGLISH.reason(text) for text in verdict.against)
    parts.append(Markup("<p class=kp-faint>{}</p>").format(_shown(certainty, _PROSE)))
    if limits:
        parts.append(Markup("<p class=kp-faint>Against, and limits: {}</p>").format(_shown(limits, _PROSE)))
    return parts


def _declared(report: Report) -> Markup:
    if report.declared is None:
        return Markup("")
    return _p("Declared against measured: ", _shown(report.declared.sentence, _PROSE))


def _picture(verdict: Verdict | None, evidence: Evidence | None) -> Markup:
    """Draw the strongest tests and the controls as bars of −log10 p (on a logarithmic scale) beside the threshold."""
    if verdict is None or evidence is None:
        return Markup("")
    ran = [
        (_label(test), test.log10_p_holm, test.p_method)
        for test in evidence.tests
        if test.status == TESTED and test.log10_p_holm is not None
    ]
    bars = sorted(ran, key=lambda bar: bar[1])[:MOST_TESTS]
    bars += [
        (f"control: {IN_ENGLISH.control(item.name)}", item.log10_p, "")
        for item in evidence.controls
        if item.log10_p is not None
    ]
    if not bars:
        return Markup("")
    left, wide, high = 330.0, 310.0, 20
    last = max(12.0, *(-value for _, value, _ in bars), -verdict.log10_alpha)
    limit = left + wide * _share(-verdict.log10_alpha, last)
    lines = []
    for place, (label, value, method) in enumerate(bars):
        y = 8 + high * place
        colour = "var(--kp-past)" if value <= verdict.log10_alpha else "var(--kp-mark)"
        length = max(1.5, wide * _share(-value, last))
        lines.append(
            Markup(
                '<text x="{}" y="{}" text-anchor="end" font-size="12">{}</text>'
                '<rect x="{}" y="{}" width="{:.1f}" height="11" style="fill:{}"/>'
                '<text x="{:.1f}" y="{}" font-size="12">{}</text>'
            ).format(
                left - 6,
                y + 10,
                printable(label, _BAR_NAME),
                left,
                y,
                length,
                colour,
                left + length + 5,
                y + 10,
                _log_p(value, method),
            )
        )
    bottom = 8 + high * len(bars)
    rule = Markup(
        '<path d="M{0:.1f} 2V{1}" style="stroke:var(--kp-ink);stroke-dasharray:4 3"/>'
        '<text x="{0:.1f}" y="{2}" text-anchor="middle" font-size="12">threshold {3}</text>'
    ).format(limit, bottom, bottom + 14, f"{verdict.log10_alpha:g}")
    told = f"log10 p, corrected, of the {len(ran[:MOST_TESTS])} strongest of {len(ran)} tests and of the controls"
    caption = f"{told}; longer is less like chance; ≤ marks an upper bound"
    return Markup(
        '<figure style="margin:.6em 0"><svg viewBox="0 0 710 {}" style="width:100%;max-width:710px" role="img" '
        'aria-label="{}">{}{}</svg><figcaption class=kp-faint>{}</figcaption></figure>'
    ).format(bottom + 20, told, Markup("").join(lines), rule, caption)


def _label(test: EvidenceTest) -> str:
    """Return a test in plain words, as the page has them, and of what it is; an unknown one by its own name."""
    said = IN_ENGLISH.label("test", test.name)
    return f"{said}: {test.scope}" + (f", layer {test.layer}" if test.layer is not None else "")


def _share(size: float, last: float) -> float:
    return math.log1p(max(0.0, size)) / math.log1p(last)


def _roles(summaries: Sequence[RoleSummary]) -> Markup:
    header = ("role", "compared", "n", "cosine", "its null", "Pearson", "null mean", "null sd", "z", "log10 p")
    rows = []
    for item in summaries:
        null = item.null
        observed = item.statistic if item.statistic is not None else item.mean_pearson
        figures = (DASH,) * 4
        if null:
            figures = (number(null.mean), number(null.sd), _two(null.z), _log_p(null.log10_p, null.p_method))
        rows.append(
            (
                _shown(item.role),
                str(item.compared),
                str(null.n) if null else DASH,
                number(item.median_cosine),
                number(item.median_cosine_null),
                number(observed),
                *figures,
            )
        )
    return _table("By role, all layers tested together", header, rows)


def _controls(evidence: Evidence | None) -> Markup:
    if evidence is None:
        return Markup("")
    rows = [
        (
            _shown(IN_ENGLISH.control(item.name)),
            _shown(IN_ENGLISH.label("class", item.expected)),
            _shown(IN_ENGLISH.label("class", item.found) if item.found else DASH),
            _shown(IN_ENGLISH.label("control_status", item.status)),
            _two(item.z),
            _two(item.log10_p),
        )
        for item in evidence.controls
    ]
    header = ("control", "expected", "found", "status", "z", "log10 p")
    reasons = [
        _p(_shown(IN_ENGLISH.control(item.name)), ": ", _shown(IN_ENGLISH.reason(item.reason), _PROSE))
        for item in evidence.controls
        if item.reason
    ]
    return Markup("").join([_table("Controls: A against models whose answer is known", header, rows), *reasons])


# -- parts of all pairs --------------------------------------------------------------------------------------------------


def _groups(report: PairsReport, names: Sequence[str]) -> list[Markup]:
    together = [", ".join(names[index] for index in group) for group in report.clusters if len(group) > 1]
    alone, untested = (", ".join(names[index] for index in found) for found in (report.alone, report.not_testable))
    parts = [
        _p("Group, derived from one another or from a common ancestor: ", _shown(group, _GROUP)) for group in together
    ]
    if alone:
        parts.append(_p("Derives from none of the others, as far as was seen: ", _shown(alone, _GROUP)))
    if untested:
        parts.append(_p("Could not be tested against any of the others: ", _shown(untested, _GROUP)))
    return parts


def _pairs(report: PairsReport, names: Sequence[str]) -> Markup:
    rows = [
        (
            _shown(f"{names[pair.a]} – {names[pair.b]}", 2 * _NAME),
            _shown(found(pair)),
            _two(pair.log10_p),
            _two(pair.log10_p_pairs),
            number(pair.norm_cosine),
            number(pair.norm_cosine_null),
            f"{pair.controls_passed} of {pair.controls_run}",
        )
        for pair in strongest_first(report)
    ]
    header = ("pair", "verdict", "log10 p", "for all pairs", "raw norm cosine", "its null", "controls passed")
    return _table("Pairs, strongest first", header, rows)


def _disagreements(report: PairsReport, names: Sequence[str]) -> list[Markup]:
    said = [
        (f"{names[pair.a]} (A) and {names[pair.b]} (B): ", pair.declared.sentence)
        for pair in report.pairs
        if pair.stands and pair.declared is not None and pair.declared.state in (UNDECLARED, NOT_SHOWN)
    ]
    parts = [_p(_shown(who, 2 * _NAME), _shown(sentence, _PROSE)) for who, sentence in said[:MOST_ROWS]]
    left = len(said) - MOST_ROWS
    return [*parts, _p(f"… and {left} more in the report")] if left > 0 else parts


def _drawn(tree: FamilyTree) -> list[Markup]:
    picture = Markup('<img src="data:image/svg+xml;base64,{}" alt="{}" style="max-width:100%;background:#fff">')
    image = picture.format(b64encode(tree_svg(tree)).decode(), printable(summary(tree), _PROSE))
    return [image, *(_p(_shown(note, _PROSE)) for note in tree.notes)]


# -- pieces --------------------------------------------------------------------------------------------------------------


def _shown(text: str, limit: int = _NAME) -> Markup:
    """Return text as HTML, not for attributes: what may run from right to left is kept apart from what stands beside it."""
    shown = printable(text, limit)
    return escape(shown) if shown.isascii() else Markup("<bdi>{}</bdi>").format(shown)


def _two(value: float | None) -> str:
    return DASH if value is None else f"{round(value, 2) + 0.0:.2f}"


def _log_p(value: float | None, method: str) -> str:
    """Write a log10 p, with a sign where the true one may be smaller."""
    return f"≤ {_two(value)}" if value is not None and BOUND in method else _two(value)


def _p(*words: str | Markup) -> Markup:
    return Markup("<p>{}</p>").format(Markup("").join(escape(word) for word in words))


def _table(title: str, header: Sequence[str], rows: Sequence[Sequence[str | Markup]]) -> Markup:
    if not rows:
        return Markup("")
    head = Markup("").join(Markup("<th scope=col>{}</th>").format(cell) for cell in header)
    body = Markup("").join(
        Markup("<tr>{}</tr>").format(Markup("").join(Markup("<td>{}</td>").format(cell) for cell in row))
        for row in rows[:MOST_ROWS]
    )
    left = len(rows) - MOST_ROWS
    more = _p(f"… and {left} more rows in the report") if left > 0 else Markup("")
    return Markup("<table><caption>{}</caption><thead><tr>{}</tr></thead><tbody>{}</tbody></table>{}").format(
        title, head, body, more
    )


def _fragment(parts: Iterable[Markup], label: str) -> str:
    content = Markup("").join(parts)
    return str(
        Markup('<div class="kinprint-nb" role="group" aria-label="{}">{}{}</div>').format(label, _STYLE, content)
    )
