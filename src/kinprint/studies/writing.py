"""Write what a study found: RESULTS.md in one language, every table as CSV, everything as JSON, figures as PNG and SVG."""

import csv
import io
import os
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson

from kinprint._util.files import make_folder, write_whole
from kinprint._util.plain import printable
from kinprint._util.progress import Progress, quiet
from kinprint._util.sizes import format_size
from kinprint.errors import NeedsExtra
from kinprint.render.texts.words import Words
from kinprint.studies.outcome import Cell, Check, Column, ModelOutcome, Outcome, PartOutcome, Picture, Table, columns
from kinprint.text import Text

SCHEMA = "kinprint-study"
SCHEMA_VERSION = 1


def write_outcome(
    outcome: Outcome,
    folder: Path,
    *,
    language: str = "en",
    command: str = "",
    progress: Progress = quiet,
    pool: Executor | None = None,
) -> Path:
    """Write everything into `folder`, figures drawn by a `pool` of processes if given; return the path of RESULTS.md."""
    tables = [item for part in outcome.parts for item in part.section.tables]
    pictures = [picture for part in outcome.parts for picture in part.section.pictures]
    notes = [
        SYNTHETIC * (outcome.synthetic and part.uses_models) for part in outcome.parts for _ in part.section.pictures
    ]
    make_folder(folder / "tables" if tables else folder)
    for item in tables:
        write_whole(folder / "tables" / f"{item.name}.csv", _csv(item))
    write_whole(folder / "results.json", orjson.dumps(_data(outcome, command), option=orjson.OPT_INDENT_2))
    drawn: dict[str, tuple[str, ...]] = {}
    undrawn: list[tuple[str, Text]] = []
    rendered = (pool.map if pool else map)(_drawn, pictures, notes)
    for number, (picture, files) in enumerate(zip(pictures, rendered, strict=True)):
        progress("drawing", number, len(pictures))
        if isinstance(files, Text):
            undrawn.append((picture.name, files))
            continue
        make_folder(folder / "figures")
        for suffix, data in files:
            write_whole(folder / "figures" / f"{picture.name}.{suffix}", data)
        drawn[picture.name] = tuple(f"{picture.name}.{suffix}" for suffix, _ in files)
    target = folder / "RESULTS.md"
    write_whole(target, _Page(outcome, language, command, drawn, undrawn).text().encode())
    return target


def write_index(outcomes: Sequence[Outcome], pages: Sequence[Path], target: Path, *, language: str = "en") -> None:
    """Write one page that leads to those of several studies, with what each found."""
    lines = [f"# {Text('Studies').render(language)}", ""]
    if any(outcome.synthetic for outcome in outcomes):
        lines += [f"> **{_inline(REPLICAS.render(language))}**", ""]
    for outcome, page in zip(outcomes, pages, strict=True):
        title, found = (_inline(text.render(language)) for text in (outcome.title, outcome.finding))
        lines.append(f"- [{title}]({quote(os.path.relpath(page, target.parent))}): {found}")
    write_whole(target, "\n".join([*lines, ""]).encode())


TAIL = Text(
    "log10 p is that of a normal tail where this is trusted, or of counted draws. Elsewhere it is an upper bound: the true p may "
    "be smaller, far smaller where z is large. kinprint compare knows closer bounds."
)
SYNTHETIC = "synthetic replicas, not the models themselves"  # what stands inside each picture of them
Files = list[tuple[str, bytes]]  # suffix and content


def _drawn(picture: Picture, note: str = "") -> Files | Text:
    try:
        drawn = picture.draw()
    except NeedsExtra as error:
        return Text("{why}; {hint}", why=error.message, hint=error.hint or "")
    from kinprint.studies.figure_style import rendered  # needs matplotlib, which is there if the lines above passed

    return list(rendered(drawn, note))


def _csv(item: Table) -> bytes:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([column.key for column in item.columns])
    writer.writerows([["" if cell is None else cell for cell in row] for row in item.rows])
    return stream.getvalue().encode()


def _data(outcome: Outcome, command: str) -> dict[str, Any]:
    """Return everything as JSON knows it. A number that is not finite is null, as orjson writes it."""
    first = {"schema": SCHEMA, "schema_version": SCHEMA_VERSION} | _fields(outcome, "study", "title", "source")
    rest = {"command": command, "settings": outcome.settings, "models": [asdict(one) for one in outcome.models]}
    parts = []
    for part, found in ((part, part.section) for part in outcome.parts):
        tables = [
            _fields(item, "name", "title") | {"columns": [column.key for column in item.columns], "rows": item.rows}
            for item in found.tables
        ]
        lists = {"tables": tables, "published": [_fields(check, *_CHECK_FIELDS) for check in found.checks]}
        figures = [_fields(item, "name", "caption") for item in found.pictures]
        parts.append(_fields(part, "name", "title") | _fields(found, "notes", "missing") | lists | {"figures": figures})
    return first | rest | {"parts": parts, "bytes_read": outcome.bytes_read}


_CHECK_FIELDS = ("what", "published", "measured", "difference", "tolerance", "trust", "agrees", "reason")


def _fields(item: object, *names: str) -> dict[str, Any]:
    return {name: getattr(item, name) for name in names}


_TRUST = {
    "measured": Text("measured by published code"),
    "derived": Text("computed from published numbers"),
    "text": Text("text only"),
    "picture": Text("read off a picture"),
    "wrong": Text("known to be wrong"),
}


@dataclass
class _Page:
    """RESULTS.md, line by line."""

    outcome: Outcome
    language: str
    command: str
    drawn: dict[str, tuple[str, ...]]  # files by figure
    undrawn: Sequence[tuple[str, Text]]  # figures and why they could not be drawn
    lines: list[str] = field(default_factory=list)

    def text(self) -> str:
        self._head()
        for part in self.outcome.parts:
            self._part(part)
        self._missing()
        return "\n".join(self.lines).rstrip() + "\n"

    def _say(self, text: Text) -> str:
        return _inline(text.render(self.language))

    def _add(self, *lines: str) -> None:
        self.lines += [*lines, ""]

    def _head(self) -> None:
        outcome, checks = self.outcome, self.outcome.checks
        self._add(f"# {self._say(outcome.title)}")
        self._add(self._say(outcome.summary))
        self._add(self._say(Text("Source: {source}.", source=outcome.source)))
        if outcome.synthetic:
            self._add(f"> **{self._say(REPLICAS)}**")
        if outcome.models:
            head = columns("model; where; architecture; layers; width; parameters; commit")
            self._table(head, [_model_row(one, Words(self.language)) for one in outcome.models])
        if checks:
            sure = outcome.sure_checks
            wrong = sum(check.trust == "wrong" for check in checks)
            said = Text(
                "Published figures: {agree} of {all} agree with the measured ones within the tolerance shown beside each; "
                "{open} more are shown without a result, and {wrong} are known to be wrong and are marked as such.",
                agree=sum(check.agrees is True for check in sure),
                all=len(sure),
                open=len(checks) - len(sure) - wrong,
                wrong=wrong,
            )
            self._add(self._say(said))
            if sure and outcome.only_made_up:
                self._add(self._say(Text("Those with a result are of made-up vectors; none is of the models above.")))
        tables = [table for part in outcome.parts for table in part.section.tables]
        if any(column.key == "log10_p" for table in tables for column in table.columns):
            self._add(self._say(TAIL))
        read = Text("Read: {size}. Seed: {seed}.", size=format_size(outcome.bytes_read), seed=outcome.settings["seed"])
        self._add(self._say(read) + (f" `{printable(self.command, 400).replace('`', '')}`" if self.command else ""))

    def _part(self, part: PartOutcome) -> None:
        section = part.section
        self._add(f"## {self._say(part.title)}")
        for note in section.notes:
            self._add(self._say(note))
        for item in section.tables:
            self._add(f"### {self._say(item.title)}")
            self._table(item.columns, item.rows[: item.shown])
            if len(item.rows) > item.shown:
                link = f"[{item.name}.csv](tables/{item.name}.csv)"
                said = "The first {shown} of {all} rows; all are in {link}."
                self._add(Text(said, shown=item.shown, all=len(item.rows), link=link).render(self.language))
        for picture in section.pictures:
            self._picture(picture)
        if section.checks:
            self._add(f"### {self._say(Text('Published against measured'))}")
            self._checks(section.checks)
        for text in section.missing:
            self._add(f"**{self._say(Text('Missing'))}:** {self._say(text)}")

    def _picture(self, picture: Picture) -> None:
        files = self.drawn.get(picture.name)
        if files is None:
            return
        best = next((name for name in files if name.endswith((".gif", ".png"))), files[0])
        caption = self._say(picture.caption)
        others = " · ".join(f"[{Path(name).suffix[1:].upper()}](figures/{name})" for name in files)
        self._add(f"![{caption.replace('[', '(').replace(']', ')')}](figures/{best})", "", f"*{caption}* ({others})")

    def _checks(self, checks: Sequence[Check]) -> None:
        rows: list[tuple[Cell, ...]] = []
        for check in checks:
            more, gap, trust = f".{check.digits + 1}f", check.difference, _TRUST[check.trust]
            agrees = Text("agrees") if check.agrees else Text("differs")
            if check.trust == "wrong":
                agrees = Text("published value is wrong")
            elif check.agrees is None:
                agrees = Text("not compared")
            measured = None if check.measured is None else format(check.measured, more)
            difference = None if gap is None else format(gap, "+" + more)
            why = trust if check.reason is None else Text("{trust}: {why}", trust=trust, why=check.reason)
            numbers = (f"{check.published:.{check.digits}f}", measured, difference, f"{check.tolerance:.2g}")
            rows.append((check.what, *numbers, agrees, why))
        head = "what; published; measured; difference; tolerance; result; is: published value is"
        self._table(columns(head), rows)

    def _table(self, columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> None:
        lines = ["| " + " | ".join(self._say(column.heading) for column in columns) + " |"]
        lines.append("|" + "---|" * len(columns))
        for row in rows:
            cells = zip(row, columns, strict=True)
            shown = [self._say(x) if isinstance(x, Text) else _inline(show(x, column)) for x, column in cells]
            lines.append("| " + " | ".join(shown) + " |")
        self._add(*lines)

    def _missing(self) -> None:
        self._add(f"## {self._say(Text('What is missing, and why'))}")
        found = [(self._say(part.title), self._say(text)) for part, text in self.outcome.missing]
        found += [(name, self._say(text)) for name, text in self.undrawn]
        self._add(*[f"- {where}: {why}" for where, why in found] or [self._say(Text("Nothing."))])


REPLICAS = Text(
    "These models are statistical replicas, not the models themselves: synthetic checkpoints with the real names, shapes and layer "
    "counts, whose vectors were made to have the published means, standard deviations and correlations. Agreement below shows "
    "that the study computes what the publications computed; it is no new measurement of the real models."
)


def show(cell: float | int | str | bool | None, column: Column) -> str:
    """Return a cell as a reader sees it; what is not there is a dash."""
    if cell is None or (isinstance(cell, float) and cell != cell):
        return "–"
    if isinstance(cell, float):
        if column.scientific:
            return f"{cell:.{3 if column.digits is None else column.digits}e}"
        return f"{cell:.4g}" if column.digits is None else f"{cell:.{column.digits}f}"
    if isinstance(cell, int) and not isinstance(cell, bool) and abs(cell) >= 10_000:
        return f"{cell:,}"
    return str(cell)


def _model_row(one: ModelOutcome, words: Words) -> tuple[Cell, ...]:
    architecture = Text("could not be opened: {why}", why=one.problem) if one.problem else one.architecture
    parameters = None if one.parameters is None else words.parameters(one.parameters)
    commit = one.commit[:12] if one.commit else None
    return one.name, one.reference, architecture, one.layers, one.width, parameters, commit


def _inline(text: str) -> str:
    """Make text inert in Markdown: one line, no markup, no control characters."""
    flat = printable(text, 2000).replace("\n", " ")
    for character, escaped in (("\\", "\\\\"), ("|", "\\|"), ("<", "&lt;"), ("[", "\\["), ("]", "\\]"), ("`", "'")):
        flat = flat.replace(character, escaped)
    return flat
