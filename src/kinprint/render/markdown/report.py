"""A report as GitHub-flavoured Markdown: the verdict first, then what it rests on. Every figure stands beside its null.

Names come from strangers: whatever they hold is shown and starts nothing, in Markdown or in HTML. Single measurements are
left to the tables of `kinprint.render.tables.report`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from kinprint._util.plain import printable
from kinprint._util.sizes import format_size
from kinprint.render.repeat_command import command_of
from kinprint.render.terminal.layout import DASH, number
from kinprint.render.texts.words import IN_ENGLISH
from kinprint.results.context import Declaration
from kinprint.results.findings import TESTED, ControlFinding, Evidence, MethodFinding, Verdict
from kinprint.results.measurements import OK, Skipped
from kinprint.results.models import ModelSummary
from kinprint.results.report import Report

NAME, PROSE, COMMAND = 200, 700, 4000  # characters shown of a name, a sentence, the command
MOST_ROWS = 80
_PLAIN_NAME = re.compile(r"[A-Za-z0-9 ._/@:+=,-]*[A-Za-z0-9._/-]")
_SPECIAL = re.compile(r"([\\`*\[\]|~#!${}])")
_EDGE = re.compile(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_START = re.compile(r"^(\s*\d*)([-+=]|(?<=\d)[.)](?=\s|$))")  # of a list, a rule, a heading
_MENTION = re.compile(r"(?<![A-Za-z0-9])@")
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})

_NO_PROOF = (
    "No evidence is not proof of independence: distillation and training on another model's output leave no trace in weights, "
    "and a relation weaker than the tests had power for would not have been seen."
)
_READING = """\
- Cosine is the median over layers beside its mean over permutations; Pearson (centred cosine) is the mean, and z and p test it
  by permuting one model's indices, all layers together.
- A cosine near its null says nothing, however high: cos = (1 + r·CVa·CVb) / √((1 + CVa²)(1 + CVb²)), so that two norms whose
  weights vary little have a cosine near 1 whatever they learned.
- A p-value such as 10⁻⁵⁰⁶ is no count of trials: it says that chance alone is ruled out if the assumptions hold, and that what
  remains to doubt are the assumptions.
- Corrected p-values are Holm's, over all tests of the evidence. A dash is a figure that does not exist, never zero."""


def report_markdown(report: Report) -> str:
    """Return the report as Markdown, ending in a newline."""
    parts: list[str] = [
        f"# {prose(_short(report.a))} against {prose(_short(report.b))}",
        *_verdict(report),
        *_models(report),
        *_declared(report),
        *_roles(report),
        *(_evidence(report.evidence) if report.evidence is not None else ()),
        *_methods(report.methods),
        *_config_and_tokenizer(report),
        *_not_compared(report),
        "## How to read this",
        _READING,
        *_provenance(report),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


# -- text of strangers ---------------------------------------------------------------------------------------------------


def prose(text: str, limit: int = PROSE) -> str:
    """Return a sentence that shows as it is, wherever in a line or a table it stands."""
    shown = _SPECIAL.sub(r"\\\1", printable(text, limit)).translate(_ENTITIES)
    shown = _EDGE.sub(r"\\_", _START.sub(r"\1\\\2", shown))
    # what GitHub would turn into links, or a notice to somebody
    shown = shown.replace("://", "\\://").replace("www.", "www\\.")
    return _MENTION.sub("`@`", shown).strip()


def name(text: str, limit: int = NAME) -> str:
    """Return a name: as code if it looks like one, else as a sentence."""
    return f"`{text}`" if len(text) <= limit and _PLAIN_NAME.fullmatch(text) else prose(text, limit) or DASH


def _fenced(text: str) -> str:
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}sh\n{text}\n{fence}"


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, figures: int = 0) -> str:
    """Return a table whose last `figures` columns are numbers."""
    words = len(header) - figures
    lines = [header, [":---" if place < words else "---:" for place in range(len(header))], *rows[:MOST_ROWS]]
    made = "\n".join(f"| {' | '.join(cell or DASH for cell in row)} |" for row in lines)
    left = len(rows) - MOST_ROWS
    return f"{made}\n\n… and {left} more rows, in the JSON report." if left > 0 else made


def bullets(lines: Iterable[str]) -> str:
    """Return a list; the lines must be safe to show."""
    return "\n".join(f"- {text or DASH}" for text in lines)


def _label(prefix: str, word: str | None) -> str:
    return prose(IN_ENGLISH.label(prefix, word), NAME) if word else DASH


def _test(word: str, layer: int | None = None) -> str:
    """Return a test under the label that all pages give it, with the name that JSON and CSV have for it."""
    place = "" if layer is None else f", layer {layer}"
    return f"{_label('test', word)}{place} ({name(word)})"


def _control(item: ControlFinding) -> str:
    """Return a control that is always run as words, another as the name of a model."""
    said = IN_ENGLISH.control(item.name)
    return name(item.name) if said == item.name else prose(said, NAME)


# -- verdict -------------------------------------------------------------------------------------------------------------


def _verdict(report: Report) -> Iterator[str]:
    yield "## Verdict"
    verdict = report.verdict
    if report.status != OK:
        yield f"**Not comparable.** {prose(report.reason or DASH)}"
    if verdict is None:
        yield "No verdict: this comparison was asked for measurements alone."
        return
    label = IN_ENGLISH.verdict(verdict.class_, verdict.kind, verdict.sentence)
    yield f"**{prose(label, NAME)}.** {prose(verdict.sentence)}"
    if verdict.class_ == "no_evidence":
        yield _NO_PROOF
    yield _certainty(verdict)
    for title, lines in (
        ("For", verdict.reasons),
        ("Against, and limits", verdict.against),
        ("Not tested", verdict.untested),
        ("Assumed", verdict.assumptions),
    ):
        if lines:
            yield f"{title}:\n\n{bullets(prose(IN_ENGLISH.reason(text)) for text in lines[:MOST_ROWS])}"


def _certainty(verdict: Verdict) -> str:
    using = f" Empirical null: {prose(verdict.null)}." if verdict.null else ""
    return (
        f"log10 p {_p(verdict.log10_p)} after Holm's correction for {verdict.tests} tests; "
        f"threshold {verdict.log10_alpha:g}.{using}"
    )


def _models(report: Report) -> Iterator[str]:
    yield "## Models"
    sides = zip(_facts(report.a), _facts(report.b), strict=True)
    yield markdown_table((" ", "A", "B"), [(what, left, right) for (what, left), (_, right) in sides])


def _facts(model: ModelSummary) -> list[tuple[str, str]]:
    return [
        ("model", name(model.reference)),
        ("commit", name(model.commit) if model.commit else DASH),
        ("architecture", prose(model.architecture, NAME) + (" (guessed)" if model.architecture_guessed else "")),
        ("layers", str(model.layers)),
        ("experts", str(model.experts or DASH)),
        ("width", str(model.hidden or DASH)),
        ("parameters", f"{model.parameters:,}"),
        ("stored", format_size(model.stored_bytes)),
        ("tensors", f"{model.tensors}, {len(model.unmapped)} without a name"),
    ]


def _declared(report: Report) -> Iterator[str]:
    found = report.declared
    if found is None:
        return
    yield "## Declared against measured"
    yield f"**{_label('declared', found.state)}.** {prose(found.sentence)}"
    sides = (found.a, found.b)
    rows = [
        ("declared base", *(", ".join(name(base) for base in side.base_models[:12]) for side in sides)),
        ("relation", *(prose(side.relation or "", NAME) for side in sides)),
        ("licence", *(prose(side.licence or "", NAME) for side in sides)),
        ("said in", *(_said_in(side) for side in sides)),
    ]
    yield markdown_table((" ", "A", "B"), rows)
    if found.licences:
        yield prose(found.licences)


def _said_in(side: Declaration) -> str:
    return ", ".join(name(file) for file in side.where) or prose(side.reason or "")


# -- figures -------------------------------------------------------------------------------------------------------------


def _roles(report: Report) -> Iterator[str]:
    yield "## By role, all layers tested together"
    if not report.summary:
        yield f"Nothing could be compared: {prose(report.reason or DASH)}"
        return
    header = ("role", "p from", "compared", "not", "n", "cosine", "its null", "Pearson", "null mean", "null sd", "z")
    rows = []
    for item in report.summary:
        null = item.null
        observed = item.statistic if item.statistic is not None else item.mean_pearson
        rows.append(
            (
                name(item.role),
                prose(null.p_method if null else f"no test: {item.reason or DASH}", NAME),
                str(item.compared),
                str(item.not_compared),
                str(null.n) if null else DASH,
                number(item.median_cosine),
                number(item.median_cosine_null),
                number(observed),
                number(null.mean) if null else DASH,
                number(null.sd) if null else DASH,
                _z(null.z) if null else DASH,
                _p(null.log10_p) if null else DASH,
            )
        )
    yield markdown_table((*header, "log10 p"), rows, figures=10)


def _evidence(evidence: Evidence) -> Iterator[str]:
    yield from _tests(evidence)
    yield from _parts(evidence)
    yield from _edits(evidence)
    yield from _controls(evidence)
    yield from _power(evidence)


def _tests(evidence: Evidence) -> Iterator[str]:
    yield "## Tests of “these models share nothing”"
    ran = [test for test in evidence.tests if test.status == TESTED]
    header = ("test", "of", "null", "n", "layers", "observed", "null mean", "null sd", "z", "log10 p", "corrected")
    rows = [
        (
            _test(test.name, test.layer),
            prose(test.scope, NAME),
            prose(test.null, NAME),
            str(test.n),
            str(test.blocks),
            *(number(value) for value in (test.statistic, test.null_mean, test.null_sd)),
            _z(test.z),
            _p(test.log10_p),
            _p(test.log10_p_holm),
        )
        for test in ran
    ]
    yield markdown_table(header, rows, figures=8) if rows else "Not one test ran."
    off = [test for test in evidence.tests if test.status != TESTED]
    if off:
        lines = [f"{_test(test.name)} of {prose(test.scope, NAME)}: {prose(test.reason or DASH)}" for test in off]
        yield f"Did not run:\n\n{bullets(lines[:MOST_ROWS])}"


def _parts(evidence: Evidence) -> Iterator[str]:
    yield "## Layers and parts"
    found = evidence.alignment
    if found.status != TESTED:
        yield f"Layer map: not made: {prose(found.reason or DASH)}"
    else:
        matched = [item for item in found.layers if item.shared]
        kind = _label("mapkind", found.kind)
        yield f"Layer map: {kind} {len(matched)} of {len(found.layers)} layers of B match a layer of A."
        if matched and found.kind != "identity":
            yield f"Layer of B ← layer of A: {', '.join(f'{item.layer}←{item.source}' for item in matched)}"
    rows = [
        (
            _label("component", item.component),
            _label("state", item.state),
            prose(item.note or ""),
            f"{item.shared} of {item.tested}" if item.tested else DASH,
            _p(item.log10_p),
        )
        for item in evidence.components
    ]
    if rows:
        yield markdown_table(("part", "shares", "note", "places", "log10 p"), rows, figures=2)
    shared = sum(item.shared for item in evidence.experts)
    if evidence.experts:
        yield f"Experts: {shared} of {len(evidence.experts)} of B match an expert or MLP of A."


def _edits(evidence: Evidence) -> Iterator[str]:
    if evidence.edits:
        yield "## What was done to the weights"
        header = ("of", "edit", "tensors", "identical", "changed", "slope", "corr.", "rel. diff.", "rank", "bits")
        rows = [
            (
                name(item.scope),
                _label("edit", item.edit),
                str(item.tensors),
                str(item.identical),
                *(
                    number(value)
                    for value in (item.changed_share, item.slope, item.correlation, item.relative_difference)
                ),
                *(DASH if value is None else str(value) for value in (item.rank, item.bits)),
            )
            for item in evidence.edits
        ]
        yield markdown_table(header, rows, figures=8)
    merge = evidence.merge
    if merge is not None:
        parts = zip(merge.parents, merge.coefficients, merge.standard_errors, strict=True)
        text = ", ".join(f"{name(parent)} {value:.3f} ± {error:.3f}" for parent, value, error in parts)
        note = f" {prose(merge.note)}" if merge.note else ""
        yield f"As a weighted sum: {text}; explains {merge.r_squared:.2%} of B.{note}"


def _controls(evidence: Evidence) -> Iterator[str]:
    yield "## Controls: A against models whose answer is known"
    rows = [
        (
            _control(item),
            _label("class", item.expected),
            _label("class", item.found),
            _label("control_status", item.status),
            prose(IN_ENGLISH.reason(item.reason or "")),
            _z(item.z),
            _p(item.log10_p),
        )
        for item in evidence.controls
    ]
    header = ("control", "expected", "found", "status", "reason", "z", "log10 p")
    yield markdown_table(header, rows, figures=2) if rows else "No control was run."


def _power(evidence: Evidence) -> Iterator[str]:
    if not evidence.power:
        return
    yield "## Power: the weakest relation that would have been seen"
    rows = [
        (
            _test(item.name),
            name(item.scope),
            prose(item.quantity if item.reason is None else f"{item.quantity}: {item.reason}"),
            number(item.least),
            f"{item.power:.0%}",
            f"{item.log10_alpha:.1f}",
            str(item.n),
            str(item.width or DASH),
            str(item.blocks),
        )
        for item in evidence.power
    ]
    yield markdown_table(
        ("test", "of", "quantity", "least", "power", "log10 α", "n", "width", "layers"), rows, figures=6
    )


def _methods(methods: tuple[MethodFinding, ...]) -> Iterator[str]:
    if not methods:
        return
    yield "## Fingerprint methods"
    rows = []
    for item in methods:
        null = item.chance if item.chance is not None and item.chance.exact else item.empirical or item.chance
        reading = item.reading if item.status == TESTED else f"not run: {item.reason or DASH}"
        size = str(null.n) if null is not None else DASH
        rows.append(
            (
                name(item.method),
                prose(reading),
                prose(null.name if null is not None else "", NAME),
                size,
                number(item.value),
                *((DASH,) * 4 if null is None else (number(null.mean), number(null.sd), _z(null.z), _p(null.log10_p))),
            )
        )
    header = ("method", "reading", "null", "n", "value", "null mean", "null sd", "z", "log10 p")
    yield markdown_table(header, rows, figures=6)


# -- what else was looked at, what was not, and where all of it came from --------------------------------------------------


def _config_and_tokenizer(report: Report) -> Iterator[str]:
    yield "## Config and tokenizer"
    config, tokens = report.config, report.tokenizer
    if config.status != OK:
        yield f"Config: not compared: {prose(config.reason or DASH)}"
    elif not config.differences:
        yield f"Config: all {config.equal_keys} keys are equal."
    else:
        yield f"Config: {len(config.differences)} keys differ, {config.equal_keys} are equal."
        rows = [
            (
                name(item.key),
                name(item.a or "") if item.a_present else "(absent)",
                name(item.b or "") if item.b_present else "(absent)",
            )
            for item in config.differences
        ]
        yield markdown_table(("key", "A", "B"), rows)
    if tokens.status != OK:
        yield f"Tokenizer: not compared: {prose(tokens.reason or DASH)}"
    elif tokens.identical_files:
        yield "Tokenizer: identical."
    else:
        counts = [DASH if n is None else str(n) for n in (tokens.tokens_a, tokens.tokens_b, tokens.tokens_common)]
        yield (
            f"Tokenizer: {counts[0]} and {counts[1]} tokens, {counts[2]} in common (Jaccard {number(tokens.jaccard)}), "
            f"{DASH if tokens.same_id is None else tokens.same_id} with the same id."
        )


def _not_compared(report: Report) -> Iterator[str]:
    lines = [_skipped("", item) for item in report.skipped]
    for side, model in (("A", report.a), ("B", report.b)):
        lines += [_skipped(f"{side}: ", item) for item in model.excluded]
        lines += [f"{side}: {prose(note)}" for note in model.notes]
    lines += [prose(note) for note in report.notes]
    lines += [
        f"all pairs of layers of {name(grid.role)}: {prose(grid.reason or DASH)}"
        for grid in report.grids
        if grid.status != OK
    ]
    if lines:
        yield "## Not compared, and notes"
        yield bullets(lines[:MOST_ROWS])


def _skipped(start: str, item: Skipped) -> str:
    return f"{start}{item.count} {prose(item.what, NAME)}: {prose(item.reason)}"


def _provenance(report: Report) -> Iterator[str]:
    yield "## Provenance"
    rows = [
        (side, name(file.name), name(file.identity) if file.identity else DASH, f"{file.size:,}")
        for side, model in (("A", report.a), ("B", report.b))
        for file in model.files
    ]
    yield (
        markdown_table((" ", "weight file", "identity", "bytes"), rows, figures=1)
        if rows
        else "No weight file was opened."
    )
    if report.reads:
        reads = [
            (
                name(item.model),
                name(item.file),
                name(item.sha256),
                str(len(item.spans)),
                f"{item.bytes_read:,}",
            )
            for item in report.reads
        ]
        yield markdown_table(
            ("model", "file", "sha256 of the list of ranges read", "spans", "bytes read"), reads, figures=2
        )
    run = report.run
    yield (
        f"Read {report.bytes_read:,} bytes; seed {report.settings.seed}; kinprint {prose(run.kinprint, 40)}, "
        f"Python {prose(run.python, 40)}, NumPy {prose(run.numpy, 40)}; started {prose(run.started, 40)}; "
        f"report schema version {report.schema_version}."
    )
    yield "To repeat it:"
    yield _fenced(printable(command_of(report), COMMAND))


def _short(model: ModelSummary) -> str:
    return model.reference if len(model.reference) <= NAME else f"{model.reference[: NAME - 1]}…"


def _p(value: float | None) -> str:
    if value is None:
        return DASH
    return f"{value:.1f}" if value <= -10 else f"{value:.2f}"


def _z(value: float | None) -> str:
    return DASH if value is None else f"{value:+.2f}"
