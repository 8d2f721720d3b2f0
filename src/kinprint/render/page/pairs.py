"""One self-contained HTML file for all pairs of several models: matrix, groups, tree, and every pair beside its null."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from kinprint._util.plain import printable
from kinprint.render.content.pairs import MARKS, strongest_first
from kinprint.render.content.tree import title
from kinprint.render.drawing.tree_svg import tree_svg
from kinprint.render.page.markup import PageWords
from kinprint.render.page.payload import embedded
from kinprint.render.page.report import environment, inlined
from kinprint.render.repeat_command import pairs_command
from kinprint.results.tree import PairsReport, TreeModel

_SCRIPTS = ("core.js", "page.js")
_STYLES = ("page.css", "many.css", "print.css")
_WORDS = ("js.copied", "js.copy_failed")
LONGEST_COMMAND = 8000


@dataclass(frozen=True)
class Cell:
    """One cell of the matrix: empty on the diagonal, else a verdict."""

    class_: str | None
    sign: str
    doubtful: bool  # does not stand after the correction for all pairs
    place: int | None  # of the pair in the list below the matrix


def pairs_html(report: PairsReport, lang: str = "en") -> bytes:
    """Return the report as one HTML file in the language `lang`; the same report gives the same bytes."""
    words = PageWords(lang)
    pairs = strongest_first(report)
    places = {frozenset((pair.a, pair.b)): number for number, pair in enumerate(pairs)}
    names = [title(model) for model in report.tree.models]
    command = pairs_command(report)
    shown = printable(command, LONGEST_COMMAND)
    text = (
        environment()
        .get_template("many.html")
        .render(
            report=report,
            run=report.tree.run,
            title=words.say("many.title", n=len(names)),
            v=words,
            pairs=pairs,
            names=names,
            matrix=[
                (model, [_cell(report, model, other, places) for other in report.tree.models])
                for model in report.tree.models
            ],
            signs=[(MARKS[name], name) for name in MARKS],
            groups=[group for group in report.clusters if len(group) > 1],
            alone=report.alone,
            not_testable=report.not_testable,
            tree=Markup(tree_svg(report.tree, lang).decode()),  # noqa: S704 - which escapes all names
            command=shown,
            command_hidden=shown != command,
            payload=embedded({"lang": lang, "words": {key: words.say(key) for key in _WORDS}}),
            **inlined(_STYLES, _SCRIPTS),
        )
    )
    return text.encode()


def _cell(report: PairsReport, one: TreeModel, two: TreeModel, places: dict[frozenset[int], int]) -> Cell:
    if one.index == two.index:
        return Cell(None, "", False, None)
    if one.node == two.node:
        return Cell("identical", MARKS["identical"], False, places.get(frozenset((one.index, two.index))))
    pair = report.pair(one.index, two.index)
    if pair is None:
        return Cell(None, "", False, None)
    return Cell(pair.class_, MARKS[pair.class_], not pair.stands, places[frozenset((pair.a, pair.b))])
