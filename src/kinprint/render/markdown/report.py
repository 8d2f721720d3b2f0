"""Write reports as Markdown: the verdict first, then what it rests on; single measurements are left to tables and pages."""

from kinprint._util.plain import printable
from kinprint.render.content import report as content
from kinprint.render.content.blocks import Block, Line, Points, Section
from kinprint.render.content.evidence import evidence_sections, methods_section, towers_section
from kinprint.render.content.pairs import pairs_sections
from kinprint.render.content.search import search_sections, title
from kinprint.render.content.tree import edges_table
from kinprint.render.markdown.layout import LONGEST_NAME, fenced, markdown_sections, prose
from kinprint.render.repeat_command import command_of
from kinprint.render.texts.words import Words
from kinprint.results.report import Report
from kinprint.results.search import SearchReport
from kinprint.results.tree import PairsReport

_COMMAND = 4000  # characters shown


def report_markdown(report: Report, lang: str = "en") -> str:
    """Return the report as Markdown, ending in a newline."""
    words = Words(lang)
    names = [prose(model.reference, LONGEST_NAME) for model in (report.a, report.b)]
    sections = [
        content.verdict_section(report, words),
        Section(words.say("data.models"), (content.models_table(report, words),)),
        *content.declared_sections(report.declared, words),
        content.roles_section(report, words),
        *(evidence_sections(report.evidence, words) if report.evidence is not None else ()),
        *([towers_section(report.towers, words)] if report.towers else ()),
        *([methods_section(report.methods, words)] if report.methods else ()),
        *content.config_sections(report, words),
        content.untested_section(report, words),
        content.reading_section(report, words),
        _provenance(report, words),
    ]
    parts = [f"# {names[0]} – {names[1]}", *markdown_sections(sections, words)]
    parts += [f"{words.say('command.title')}:", fenced(printable(command_of(report), _COMMAND))]
    return "\n\n".join(parts) + "\n"


def _provenance(report: Report, words: Words) -> Section:
    files, run = content.files_table(report, words), report.run
    made = words.say("foot.made", version=run.kinprint, schema=report.schema, number=report.schema_version)
    started = f"{words.say('settings.started')}: {run.started}; {words.say('settings.seed')}: {report.settings.seed}."
    blocks: list[Block] = [
        *([files] if files.rows else []),
        Line(content.read_line(report, words)),
        *([content.reads_table(report, words)] if report.reads else []),
        Line(f"{started} {made}"),
        Line(words.say("command.lead", version=run.kinprint, python=run.python, numpy=run.numpy)),
    ]
    return Section(words.say("data.title"), tuple(blocks))


def pairs_markdown(report: PairsReport, lang: str = "en") -> str:
    """Return the matrix, the groups, every pair beside its null, and the proposed tree, ending in a newline."""
    words, tree = Words(lang), report.tree
    limits = [words.say(f"many.reading.{key}") for key in ("corrected", "direction", "absence")]
    notes = [words.engine(note).text for note in tree.notes]
    drawn = (edges_table(tree, words), Line(words.say("many.tree.limits"))) if tree.edges else ()
    sections = [
        *pairs_sections(report, words),
        Section(words.say("many.nav.tree"), drawn),
        Section(words.say("nav.reading"), (Points("", (*limits, *notes)),)),
    ]
    title = prose(words.say("many.title", n=len(tree.models)))
    return "\n\n".join([f"# {title}", *markdown_sections(sections, words)]) + "\n"


def search_markdown(report: SearchReport, lang: str = "en") -> str:
    """Return the outcome of a search, the answer first, ending in a newline."""
    words = Words(lang)
    head = f"# {prose(words.say('search.question', name=title(report), entries=f'{report.entries:,}'))}"
    return "\n\n".join([head, *markdown_sections(search_sections(report, words), words)]) + "\n"
