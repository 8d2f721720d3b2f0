"""A comparison of two models, or a description of one, as a fragment for notebooks."""

from __future__ import annotations

from markupsafe import Markup

from kinprint.render.content import report as content
from kinprint.render.content.blocks import FAINT, Block, Line, Points, Section
from kinprint.render.content.evidence import controls_section
from kinprint.render.content.inspection import inventory_table
from kinprint.render.notebook.chart import evidence_chart
from kinprint.render.notebook.layout import fragment
from kinprint.render.texts.words import Words
from kinprint.results.inspection import Inspection
from kinprint.results.report import Report

_ROLES = ["role", "compared", "n", "cosine", "cosine_null", "pearson", "null_mean", "null_sd", "z", "log_p"]


def report_notebook(report: Report, lang: str = "en") -> str:
    """Return the verdict, a chart of its strongest tests and controls, the roles and the controls."""
    words = Words(lang)
    blocks: list[Block | Markup] = [
        Line(f"A: {report.a.reference}", FAINT),
        Line(f"B: {report.b.reference}", FAINT),
        *_brief(content.verdict_section(report, words), words),
    ]
    if report.declared is not None:
        blocks.append(Line(f"{words.say('declared.title')}: {words.engine(report.declared.sentence).text}"))
    if report.verdict is not None and report.evidence is not None:
        blocks.append(evidence_chart(report.verdict, report.evidence, words))
    blocks.append(content.roles_table(report.summary, words).only(*_ROLES))
    if report.evidence is not None:
        blocks += controls_section(report.evidence, words).blocks
    return fragment(blocks, f"kinprint: {words.say('head.kind')}", words)


def _brief(section: Section, words: Words) -> list[Block]:
    """Return a verdict without all lists but what speaks against it."""
    against = words.say("verdict.against")
    return [block for block in section.blocks if not isinstance(block, Points) or block.title == against]


def inspection_notebook(found: Inspection, lang: str = "en") -> str:
    """Return what one model is made of."""
    words = Words(lang)
    model = found.model
    facts = [
        f"{model.architecture} {words.say('head.guessed')}" if model.architecture_guessed else model.architecture,
        words.say("head.layers", n=model.layers),
        words.say("head.parameters", n=f"{model.parameters:,}"),
        words.size(model.stored_bytes),
        f"{words.say('data.tensors')}: {words.say('data.tensors.count', n=model.tensors, unmapped=len(model.unmapped))}",
    ]
    notes = (Line(text) for text in content.model_notes(model, words))
    blocks: list[Block] = [
        Line(model.reference, "strong"),
        Line(", ".join(facts)),
        inventory_table(found, words),
        *notes,
    ]
    return fragment(blocks, f"kinprint: {words.say('col.model')}", words)
