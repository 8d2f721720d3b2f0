"""Describe one model, section by section: facts, tensors by role, norms by layer."""

from kinprint.render.content.blocks import WARNING, Line, Section, Table
from kinprint.render.content.cells import count, facts_table, figure, listing, name, titled
from kinprint.render.content.report import model_facts, model_notes
from kinprint.render.texts.words import Words
from kinprint.results.inspection import Inspection


def inspection_sections(found: Inspection, words: Words) -> list[Section]:
    """Return what one model is made of."""
    model = found.model
    facts = model_facts(model, words) | {"data.files": count(len(model.files))}
    notes = (Line(text, WARNING) for text in model_notes(model, words))
    sections = [titled(facts_table(words, "col.model", facts), *notes), titled(inventory_table(found, words))]
    return [*sections, titled(norms_table(found, words))] if found.norms else sections


def inventory_table(found: Inspection, words: Words) -> Table:
    """Return one row for each role, shape and dtype."""
    return listing(
        words,
        "inspect.roles",
        "role:code tensors:count places# shape# dtype:code bytes=stored_bytes:size stored_as-",
        found.roles,
        places=lambda item: count(item.layers or None),
        shape=lambda item: figure(" × ".join(map(str, item.shape))),
        stored_as=lambda item: name(item.example + (f" {words.say('inspect.part')}" if item.fused else "")),
    )


def norms_table(found: Inspection, words: Words) -> Table:
    """Return one row for each norm: statistics of its weights."""
    columns = "role:code layer:count width:count mean:number sd=std:number least_value=minimum:number "
    columns += "largest_value=maximum:number cv:number nonfinite:count"
    return listing(words, "inspect.norms", columns, found.norms)
