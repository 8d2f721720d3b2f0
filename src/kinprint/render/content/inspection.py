"""Describe one model, section by section: facts, tensors by role, norms by layer."""

from __future__ import annotations

from kinprint.render.content.blocks import WARNING, Cell, Line, Section, Table
from kinprint.render.content.cells import code, count, name, numbers, table
from kinprint.render.content.report import model_facts, model_notes
from kinprint.render.texts.words import Words
from kinprint.results.inspection import Inspection


def inspection_sections(found: Inspection, words: Words) -> list[Section]:
    """Return what one model is made of."""
    model = found.model
    facts = [(Cell(what), cell) for what, cell in model_facts(model, words)]
    facts.append((Cell(words.say("data.files")), count(len(model.files))))
    notes = (Line(text, WARNING) for text in model_notes(model, words))
    title = words.say("col.model")
    sections = [
        Section(title, (table(words, title, "fact value", facts), *notes)),
        Section(words.say("inspect.roles"), (inventory_table(found, words),)),
    ]
    if found.norms:
        sections.append(Section(words.say("inspect.norms"), (norms_table(found, words),)))
    return sections


def inventory_table(found: Inspection, words: Words) -> Table:
    """Return one row for each role, shape and dtype."""
    rows = [
        (
            code(item.role),
            count(item.tensors),
            count(item.layers or None),
            Cell(" × ".join(map(str, item.shape)), "figure"),
            code(item.dtype),
            Cell(words.size(item.stored_bytes), "figure", item.stored_bytes),
            name(item.example + (f" {words.say('inspect.part')}" if item.fused else "")),
        )
        for item in found.roles
    ]
    columns = "role tensors# places# shape# dtype bytes# stored_as-"
    return table(words, words.say("inspect.roles"), columns, rows)


def norms_table(found: Inspection, words: Words) -> Table:
    """Return one row for each norm: statistics of its weights."""
    rows = [
        (
            code(item.role),
            count(item.layer),
            count(item.width),
            *numbers(words, item.mean, item.std, item.minimum, item.maximum, item.cv),
            count(item.nonfinite),
        )
        for item in found.norms
    ]
    columns = "role layer# width# mean# sd# least_value# largest_value# cv# nonfinite#"
    return table(words, words.say("inspect.norms"), columns, rows)
