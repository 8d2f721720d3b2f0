"""Show results in notebooks, each as one HTML fragment."""

from base64 import b64encode

from markupsafe import Markup

from kinprint._util.plain import printable
from kinprint.render.content import report as content
from kinprint.render.content import search as found
from kinprint.render.content.blocks import FAINT, STRONG, Block, Line, Points
from kinprint.render.content.evidence import controls_section
from kinprint.render.content.inspection import inventory_table
from kinprint.render.content.pairs import pairs_sections
from kinprint.render.content.tree import summary
from kinprint.render.drawing.evidence_chart import evidence_chart
from kinprint.render.drawing.tree_svg import tree_svg
from kinprint.render.notebook.layout import fragment
from kinprint.render.texts.words import Words
from kinprint.results.inspection import Inspection
from kinprint.results.report import Report
from kinprint.results.search import SearchReport
from kinprint.results.tree import FamilyTree, PairsReport

_ROLES = ["role", "compared", "n", "cosine", "cosine_null", "pearson", "null_mean", "null_sd", "z", "log_p"]


def report_notebook(report: Report, lang: str = "en") -> str:
    """Return the verdict, a chart of its strongest tests and controls, the roles and the controls."""
    words = Words(lang)
    against = words.say("verdict.against")  # of all lists, a notebook shows only this
    verdict = content.verdict_section(report, words).blocks
    blocks: list[Block | Markup] = [
        Line(f"A: {report.a.reference}", FAINT),
        Line(f"B: {report.b.reference}", FAINT),
        *(block for block in verdict if not isinstance(block, Points) or block.title == against),
    ]
    if report.declared is not None:
        blocks.append(Line(f"{words.say('declared.title')}: {words.engine(report.declared.sentence).text}"))
    if report.verdict is not None and report.evidence is not None:
        blocks.append(evidence_chart(report.verdict, report.evidence, words))
    blocks.append(content.roles_table(report.summary, words).only(*_ROLES))
    if report.evidence is not None:
        blocks += controls_section(report.evidence, words).blocks
    return fragment(blocks, words.say("head.kind"), words)


def inspection_notebook(found: Inspection, lang: str = "en") -> str:
    """Return what one model is made of."""
    words, model = Words(lang), found.model
    facts = [
        f"{model.architecture} {words.say('head.guessed')}" if model.architecture_guessed else model.architecture,
        words.say("head.layers", n=model.layers),
        words.say("head.parameters", n=f"{model.parameters:,}"),
        words.size(model.stored_bytes),
        f"{words.say('data.tensors')}: {words.say('data.tensors.count', n=model.tensors, unmapped=len(model.unmapped))}",
    ]
    notes = [Line(text) for text in content.model_notes(model, words)]
    start: list[Block] = [Line(model.reference, STRONG), Line(", ".join(facts)), inventory_table(found, words)]
    return fragment([*start, *notes], words.say("col.model"), words)


def pairs_notebook(report: PairsReport, lang: str = "en") -> str:
    """Return the matrix of verdicts, the groups, each pair beside its null, then the tree."""
    words = Words(lang)
    blocks = [block for section in pairs_sections(report, words) for block in section.blocks]
    return fragment([*blocks, *_drawn(report.tree, words)], words.say("many.matrix"), words)


def tree_notebook(tree: FamilyTree, lang: str = "en") -> str:
    """Return the drawing of a family tree, as an image, so that nothing in it can act or clash with the page."""
    words = Words(lang)
    return fragment(_drawn(tree, words), words.say("many.nav.tree"), words)


def _drawn(tree: FamilyTree, words: Words) -> list[Block | Markup]:
    picture = Markup('<img src="data:image/svg+xml;base64,{}" alt="{}" style="max-width:100%;background:#fff">')
    image = picture.format(b64encode(tree_svg(tree, words.lang)).decode(), printable(summary(tree, words), 700))
    return [image, *(Line(words.engine(note).text) for note in tree.notes)]


def search_notebook(report: SearchReport, lang: str = "en") -> str:
    """Return the answer and what was found."""
    words = Words(lang)
    blocks: list[Block | Markup] = [*found.answer_lines(report, words), found.found_table(report, words)]
    return fragment(blocks, words.say("search.title", name=found.title(report)), words)
