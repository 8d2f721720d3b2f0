"""Tabulate all pairs of several models: the matrix of verdicts, the groups, and every pair beside its null."""

from collections.abc import Iterable

from kinprint.render.content.blocks import FAINT, STRONG, WARNING, Block, Cell, Column, Line, Section, Table
from kinprint.render.content.cells import figure, listing, name, titled
from kinprint.render.content.report import CARD_AND_WEIGHTS_DISAGREE
from kinprint.render.content.tree import title
from kinprint.render.texts.words import Words
from kinprint.results.findings import CLASSES, IDENTICAL
from kinprint.results.tree import PairsReport, PairSummary, TreeModel

MARKS = dict(zip(CLASSES, "=Dci·?", strict=True))
"""Signs of verdicts in the matrix."""
_GROUP = 2800  # characters of a list of names


def pairs_sections(report: PairsReport, words: Words) -> list[Section]:
    """Return the matrix with the groups, the pairs, and where cards and weights disagree."""
    disagree = tuple(declared_lines(report, words))
    return [
        titled(matrix_table(report, words), Line(legend(words), FAINT), *groups(report, words)),
        titled(pairs_table(report, words), Line(words.say("many.reading.cosine"), FAINT)),
        Section(words.say("declared.title"), disagree),
    ]


def legend(words: Words) -> str:
    """Return what the signs of the matrix mean."""
    signs = [f"{sign} {words.label('class', name)}" for name, sign in MARKS.items()]
    return ", ".join([*signs, f"( ) {words.say('many.doubtful')}"])


def verdict_between(report: PairsReport, one: TreeModel, two: TreeModel) -> tuple[str, bool] | None:
    """Return the class of two models, and whether it stands among all pairs; None for a model and itself, or if not compared."""
    if one.node == two.node:
        return None if one.index == two.index else (IDENTICAL, True)
    pair = report.pair(one.index, two.index)
    return None if pair is None else (pair.class_, pair.stands)


def _sign(found: tuple[str, bool] | None) -> Cell:
    """Return the cell of two models, in brackets if the verdict does not stand."""
    sign = MARKS[found[0]] if found else ""
    return Cell(sign if found is None or found[1] else f"({sign})")


def strongest_first(report: PairsReport) -> list[PairSummary]:
    """Return the pairs in the order in which tables show them."""
    return sorted(report.pairs, key=lambda item: (item.log10_p_pairs or 0.0, item.a, item.b))


def verdict_of(pair: PairSummary, words: Words) -> str:
    """Return a pair's verdict in words, and whether it stands after the correction for all pairs."""
    said = words.verdict(pair.class_, pair.kind, pair.variant)
    return said if pair.stands else f"{said} ({words.say('many.doubtful')})"


def matrix_table(report: PairsReport, words: Words) -> Table:
    """Return one row and one column for each model."""
    models = report.tree.models
    heads = [Column("number", ""), Column("model", words.say("col.model"))]
    columns = (*heads, *(Column(str(one.index), str(one.index + 1)) for one in models))
    rows = tuple(
        (Cell(str(one.index + 1)), name(title(one)), *(_sign(verdict_between(report, one, two)) for two in models))
        for one in models
    )
    return Table(words.say("many.matrix"), columns, rows)


def groups(report: PairsReport, words: Words) -> list[Block]:
    """Return the groups of models that derive from each other, and the models that stand alone."""
    names = [title(model) for model in report.tree.models]

    def said(key: str, members: Iterable[int], tone: str) -> Line:
        return Line(f"{words.say(key)} {', '.join(names[index] for index in members)}", tone, _GROUP)

    found = [said("many.group", group, STRONG) for group in report.clusters if len(group) > 1]
    found += [said("many.alone", report.alone, "")] if report.alone else []
    found += [said("many.not_testable", report.not_testable, WARNING)] if report.not_testable else []
    return [*found]


def pairs_table(report: PairsReport, words: Words) -> Table:
    """Return one row for each pair, the strongest first."""
    names = [title(model) for model in report.tree.models]
    return listing(
        words,
        "many.nav.pairs",
        "pair verdict log_p=log10_p:p all_pairs=log10_p_pairs:p norm_cosine:number cosine_null=norm_cosine_null:number "
        "controls_passed#",
        strongest_first(report),
        pair=lambda pair: name(f"{names[pair.a]} – {names[pair.b]}"),
        verdict=lambda pair: Cell(verdict_of(pair, words)),
        controls_passed=lambda pair: figure(f"{pair.controls_passed}/{pair.controls_run}", pair.controls_passed),
    )


def declared_lines(report: PairsReport, words: Words) -> Iterable[Line]:
    """Yield the pairs whose cards do not say what their weights say."""
    names = [title(model) for model in report.tree.models]
    for pair in report.pairs:
        if pair.stands and pair.declared is not None and pair.declared.state in CARD_AND_WEIGHTS_DISAGREE:
            who = f"{names[pair.a]} (A), {names[pair.b]} (B)"
            yield Line(f"{who}: {words.engine(pair.declared.sentence).text}", WARNING)
