"""Draw a family tree as SVG: one row for each model, so that nothing overlaps, whatever the number and names of models.

Colours are from the palette of Okabe & Ito, which colour-blind readers can tell apart; arrows and dashes say the same again.
"""

import unicodedata
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

from kinprint._util.plain import printable
from kinprint.render.content import tree as content
from kinprint.render.texts.words import Words
from kinprint.results.tree import BACKWARD, FORWARD, FamilyTree, TreeEdge, TreeModel
from kinprint.text import ENGLISH

ROW, INDENT, MARGIN, BOX = 54, 46, 24, 36
LANE = 14  # between lines that pass on the left
NAME_PX, NOTE_PX = 14, 12
MOST_NAME_PX = 420
INK, FAINT, EDGE, ARROW, AGAINST, TIE_INK = "#1a1a1a", "#5f6368", "#7a7a7a", "#0072b2", "#d55e00", "#8c5a00"
FILL, ALONE_FILL = "#eef5fa", "#f4f4f4"
_WIDE = ("W", "F")


@dataclass
class _Row:
    """One model, and where its box stands."""

    model: TreeModel
    edge: TreeEdge | None
    x: float
    y: float
    width: float


@dataclass
class _Sheet:
    """Elements drawn so far, lines under boxes."""

    lines: list[str] = field(default_factory=list)
    boxes: list[str] = field(default_factory=list)

    def line(self, path: str, colour: str, *, dash: str = "", marker: str = "", wide: float = 1.6) -> None:
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        ends = f' marker-end="url(#{marker})"' if marker else ""
        self.lines.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{wide}"{dashed}{ends}/>')

    def text(self, x: float, y: float, words: str, *, px: int = NOTE_PX, colour: str = INK, bold: bool = False) -> None:
        weight = ' font-weight="600"' if bold else ""
        self.boxes.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{px}" fill="{colour}"{weight}>{safe(words)}</text>'
        )


def safe(text: str, limit: int = 400) -> str:
    """Return untrusted text, escaped for XML."""
    return escape(printable(text, limit), {'"': "&quot;", "'": "&#39;"})


def breadth(text: str, px: int) -> float:
    """Return an upper estimate of the width of drawn text, since fonts differ; names and titles are bold."""
    each = 0.62 if px == NOTE_PX else 0.72
    return sum(1.1 * px if unicodedata.east_asian_width(c) in _WIDE else each * px for c in text)


def fitted(text: str, px: int, most: float) -> str:
    """Return text cut in the middle to fit: names of models differ at their ends."""
    if breadth(text, px) <= most:
        return text
    keep = len(text)
    while keep > 2 and breadth(_cut(text, keep), px) > most:
        keep -= 1
    return _cut(text, keep)


def _cut(text: str, keep: int) -> str:
    left = (keep + 1) // 2
    return f"{text[:left]}…{text[len(text) - keep // 2 :]}"


def tree_svg(tree: FamilyTree, lang: str = ENGLISH) -> bytes:
    """Return the drawing, self-contained: no script, font, image or link."""
    words = Words(lang)
    crossing = content.ties(tree)
    second = [edge for edge in tree.edges if tree.above(edge.child) is not edge]
    lanes = len(crossing) + len(second)
    left = MARGIN + (LANE * (lanes + 1) if lanes else 0)
    rows = _rows(tree, left)
    sheet = _Sheet()
    placed = {row.model.index: row for row in rows}
    for row in rows:
        if row.edge is not None:
            _draw_edge(sheet, placed[row.edge.parent], row)
    for lane, edge in enumerate(second):
        _draw_pass(sheet, placed[edge.parent], placed[edge.child], left - LANE * (lane + 1), ARROW, "7 3 2 3", "arrow")
    for lane, tie in enumerate(crossing, start=len(second)):
        _draw_pass(sheet, placed[tie.two], placed[tie.one], left - LANE * (lane + 1), TIE_INK, "2 4", "")
    column = max((row.x + row.width for row in rows), default=0.0) + 20
    tied = {node for tie in crossing for node in (tie.one, tie.two)}
    right = max((_draw_row(sheet, tree, row, column, row.model.index in tied, words) for row in rows), default=column)
    foot = (rows[-1].y if rows else 60) + ROW + 14
    head = content.summary(tree, words)
    right = max(right, MARGIN + breadth(head, 16), *(_foot(sheet, tree, crossing, foot, words)))
    height = foot + 20 * (len(crossing) + len(_legend(tree, words))) + MARGIN
    sheet.text(MARGIN, 34, head, px=16, bold=True)
    return _document(head, sheet, right + MARGIN, height)


def _rows(tree: FamilyTree, left: float) -> list[_Row]:
    rows: list[_Row] = []
    nodes = {model.index: model for model in tree.nodes}

    def place(model: TreeModel, x: float, y: float, edge: TreeEdge | None) -> None:
        name = fitted(content.label(tree, model), NAME_PX, MOST_NAME_PX)
        rows.append(_Row(model, edge, x, y, breadth(name, NAME_PX) + 24))
        for below in tree.children(model.index):
            place(nodes[below.child], x + INDENT, rows[-1].y + ROW, below)

    for root in tree.roots():
        place(root, left, rows[-1].y + ROW + 12 if rows else 62.0, None)  # 12 between families
    return rows


def _draw_edge(sheet: _Sheet, parent: _Row, child: _Row) -> None:
    assert child.edge is not None
    x, top, y = parent.x + 18, parent.y + BOX, child.y + BOX / 2
    if child.edge.direction == FORWARD:
        sheet.line(f"M{x:.1f} {top:.1f}V{y:.1f}H{child.x - 2:.1f}", ARROW, marker="arrow", wide=2.2)
    elif child.edge.direction == BACKWARD:
        sheet.line(f"M{child.x:.1f} {y:.1f}H{x:.1f}V{top + 2:.1f}", AGAINST, dash="8 3", marker="against", wide=2.2)
    else:
        sheet.line(f"M{x:.1f} {top:.1f}V{y:.1f}H{child.x:.1f}", EDGE)


def _draw_pass(sheet: _Sheet, start: _Row, end: _Row, x: float, colour: str, dash: str, marker: str) -> None:
    """Draw a line that passes all rows between on the left."""
    one, two = start.y + BOX - 8, end.y + 8
    path = f"M{start.x:.1f} {one:.1f}H{x:.1f}V{two:.1f}H{end.x - (2 if marker else 0):.1f}"
    sheet.line(path, colour, dash=dash, marker=marker)


def _draw_row(sheet: _Sheet, tree: FamilyTree, row: _Row, column: float, tied: bool, words: Words) -> float:
    """Draw a model's box and what is said of it; returns where the row ends."""
    model, edge = row.model, row.edge
    whole = content.label(tree, model)
    fill = FILL if model.family is not None else ALONE_FILL
    sheet.boxes.append(
        f'<g><title>{safe(f"{whole}: {model.reference}", 2000)}</title><rect x="{row.x:.1f}" y="{row.y:.1f}" '
        f'width="{row.width:.1f}" height="{BOX}" rx="7" fill="{fill}" stroke="{INK}" stroke-width="1"/></g>'
    )
    sheet.text(row.x + 12, row.y + 23, fitted(whole, NAME_PX, MOST_NAME_PX), px=NAME_PX, bold=True)
    if edge is None:
        alone = words.say("tree.tied") if tied else content.standing_alone(tree, model, words)
        said = [content.size(model, words), *([] if model.family is not None else [alone])]
    else:
        said = [
            f"{content.kind(edge, words)}; {content.firmness(edge, words)}",
            content.heading(tree, edge, words) + content.second_parents(tree, edge.child, edge, words),
        ]
    top = row.y + (15 if len(said) > 1 else 22)
    for number, text in enumerate(said):
        sheet.text(column, top + 16 * number, text, colour=FAINT if number else INK)
    return column + max(breadth(text, NOTE_PX) for text in said)


def _legend(tree: FamilyTree, words: Words) -> list[str]:
    if not tree.edges:
        return []
    return [words.say("tree.legend.lines"), words.say("tree.legend.figures", pairs=tree.settings.pairs)]


def _foot(sheet: _Sheet, tree: FamilyTree, crossing: list[content.Tie], y: float, words: Words) -> list[float]:
    """Write the ties and the legend under the drawing; returns how far the lines reach."""
    lines = [(words.say("tree.tie", tie=content.tie_line(tree, tie, words)), TIE_INK) for tie in crossing]
    lines += [(text, FAINT) for text in _legend(tree, words)]
    for number, (text, colour) in enumerate(lines):
        sheet.text(MARGIN, y + 20 * number, text, colour=colour)
    return [MARGIN + breadth(text, NOTE_PX) for text, _ in lines] or [0.0]


def _document(head: str, sheet: _Sheet, width: float, height: float) -> bytes:
    markers = "".join(
        f'<marker id="{name}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="11" markerHeight="11" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L10 5L0 10z" fill="{colour}"/></marker>'
        for name, colour in (("arrow", ARROW), ("against", AGAINST))
    )
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" role="img" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="system-ui, \'DejaVu Sans\', Arial, sans-serif">'
    )
    parts = [
        opening,
        f"<title>{safe(head)}</title>",
        f"<defs>{markers}</defs>",
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
        *sheet.lines,
        *sheet.boxes,
        "</svg>",
    ]
    return "\n".join(parts).encode() + b"\n"
