"""Tabulate tests, parts, edits, controls, power and methods of a report, alike for every form."""

from collections.abc import Iterable, Sequence

from kinprint._util.plain import ranges
from kinprint.render.content.blocks import FAINT, SENTENCE, WARNING, Block, Cell, Line, Points, Section, Table
from kinprint.render.content.cells import beside_null, count, figure, listing, log_p, name, numbers, sentence, table
from kinprint.render.texts.words import DASH, Words
from kinprint.results import findings


def evidence_sections(evidence: findings.Evidence, words: Words) -> list[Section]:
    """Return what the verdict rests on, part by part."""
    return [
        tests_section(evidence, words),
        layers_section(evidence, words),
        *edits_sections(evidence, words),
        controls_section(evidence, words),
        *power_sections(evidence, words),
    ]


# -- tests ---------------------------------------------------------------------------------------------------------------


def tests_section(evidence: findings.Evidence, words: Words) -> Section:
    """Return the tests that ran, and those that did not with the reason."""
    made = tests_table(evidence.tests, words)
    off = tuple(
        f"{', '.join(_of(test, words) for test in tests)}: {words.engine(reason or DASH).text}"
        for reason, tests in off_tests(evidence.tests)
    )
    blocks: list[Block] = [made.without("p_from")] if made.rows else []
    if off:
        blocks.append(Points(words.say("test.off"), off))
    return Section(words.say("tests.caption"), tuple(blocks))


def tests_table(tests: Iterable[findings.EvidenceTest], words: Words) -> Table:
    """Return one row for each test, beside its null."""
    rows = [(_test(test.name, words), _where(test, words), *_test_figures(test, words)) for test in tests]
    columns = "test of n#- places#- observed# null_mean# null_sd#- z# log_p# corrected# p_from"
    return table(words, words.say("tests.caption"), columns, rows)


def _test_figures(test: findings.EvidenceTest, words: Words) -> list[Cell]:
    if test.status != findings.TESTED:
        return [*[count(None)] * 8, Cell(words.say("how.not_run"), full=words.engine(test.reason or DASH).text)]
    return [
        count(test.n),
        count(test.blocks),
        *numbers(words, test.statistic),
        *beside_null(words, test.null_mean, test.null_sd, test.z, test.log10_p, bound=test.bound),
        log_p(words, test.log10_p_holm),
        Cell(
            words.how(test.p_method) if test.p_method else words.say("how.no_test"), full=words.engine(test.p_text).text
        ),
    ]


def off_tests(tests: Iterable[findings.EvidenceTest]) -> tuple[tuple[str, tuple[findings.EvidenceTest, ...]], ...]:
    """Return tests that did not run, those with the same reason together."""
    off = [test for test in tests if test.status != findings.TESTED]
    reasons = dict.fromkeys(test.reason or "" for test in off)
    return tuple((reason, tuple(test for test in off if (test.reason or "") == reason)) for reason in reasons)


def _test(name: str, words: Words) -> Cell:
    return Cell(words.label("test", name), code=name)


def _of(test: findings.EvidenceTest, words: Words) -> str:
    return words.off(test.name, test.scope, test.layer)


def _where(test: findings.EvidenceTest, words: Words) -> Cell:
    said = words.engine(test.scope)
    return Cell(words.in_layer(said.text, test.layer), SENTENCE, lang=said.lang)


# -- layers and parts ----------------------------------------------------------------------------------------------------


def layers_section(evidence: findings.Evidence, words: Words) -> Section:
    """Return which layers match which, and which parts share weights."""
    blocks: list[Block] = [*layer_lines(evidence.alignment, words)]
    if evidence.components:
        blocks.append(parts_table(evidence, words))
    if evidence.experts:
        shared = sum(item.shared for item in evidence.experts)
        blocks.append(Line(words.say("experts.count", shared=shared, tested=len(evidence.experts))))
    return Section(words.say("maps.title"), tuple(blocks))


def layer_lines(found: findings.LayerAlignment, words: Words) -> list[Line]:
    """Return the layer map in a line or two."""
    if found.status != findings.TESTED:
        return [Line(f"{words.say('map.not_made')} {words.engine(found.reason or DASH).text}", WARNING)]
    matched = [item for item in found.layers if item.shared]
    count = words.say("map.count", matched=len(matched), layers=len(found.layers))
    lines = [Line(f"{words.say('map.title')}: {words.label('mapkind', found.kind)} {count}")]
    if matched and found.kind != "identity":
        lines.append(Line(words.say("map.describe", pairs=map_pairs(matched)), limit=2800))
    if matched and (others := [item.layer for item in found.layers if not item.sources]):
        lines.append(Line(words.say("map.unmatched", layers=ranges(others))))
    return [*lines, *(Line(said) for said in unread_layers(found, words))]


def map_pairs(layers: Iterable[findings.LayerFinding]) -> str:
    """Write the layers of B with all layers of A that they match."""
    return ", ".join(f"{item.layer}: {'+'.join(map(str, item.sources))}" for item in layers if item.sources)


def unread_layers(found: findings.LayerAlignment, words: Words) -> list[str]:
    """Say of which layers nothing is known: they were not read, which is not the same as no match."""
    sides = (("A", found.unread_a), ("B", found.unread))
    return [words.say("map.unread", side=side, layers=ranges(unread)) for side, unread in sides if unread]


def parts_table(evidence: findings.Evidence, words: Words) -> Table:
    """Return one row for each part of the model."""

    def where(item: findings.ComponentFinding) -> Cell:
        return figure(words.say("parts.places", shared=item.shared, tested=item.tested) if item.tested else DASH)

    def note(item: findings.ComponentFinding) -> Cell:
        return sentence(words, item.note) if item.note else Cell("")

    columns = "part=component:label.component state:state.state where# log_p=log10_p:p note"
    return listing(words, "parts.title", columns, evidence.components, where=where, note=note)


def layers_table(found: findings.LayerAlignment, words: Words) -> Table:
    """Return one row for each layer of B."""
    columns = "layer_b=layer:count layer_a=source:count matches=shared:yes correlation:number z:z log_p=log10_p:p "
    columns += "tries:count runner_up:count runner_up_z:z"
    return listing(words, "map.table", columns, found.layers)


def experts_table(evidence: findings.Evidence, words: Words) -> Table:
    """Return one row for each expert of B."""

    def source(item: findings.ExpertFinding) -> Cell:
        return Cell(words.say("experts.dense")) if item.source is None and item.shared else count(item.source)

    columns = "layer_b=layer:count expert_b=expert:count expert_a matches=shared:yes log_p=log10_p:p"
    return listing(words, "experts.table", columns, evidence.experts, expert_a=source)


# -- edits ---------------------------------------------------------------------------------------------------------------


def edits_sections(evidence: findings.Evidence, words: Words) -> list[Section]:
    """Return what was done to the weights, and B as a weighted sum."""
    found = [Section(words.say("edits.title"), (edits_table(evidence.edits, words),))] if evidence.edits else []
    if evidence.merge is not None:
        found.append(Section(words.say("merge.title"), merge_blocks(evidence.merge, words)))
    if evidence.function is not None:
        found.append(Section(words.say("function.title"), (Line(words.engine(evidence.function.said).text),)))
    return found


def edits_table(edits: Iterable[findings.EditFinding], words: Words) -> Table:
    """Return one row for each kind of tensor that was looked at."""
    columns = (
        "of=scope:sentence edit:label.edit tensors:count identical:count- changed=changed_share:share ulps=mean_ulps:number- "
        "slope:number correlation:number relative=relative_difference:number- zeros_a:share- zeros_b:share- rank:count bits:count"
    )
    return listing(words, "edits.title", columns, edits)


def merge_blocks(merge: findings.MergeFinding, words: Words) -> tuple[Block, ...]:
    """Return the weights of each parent, and how well they explain B."""
    shares = {"share": words.share(merge.r_squared), "gain": words.share(merge.gain), "n": f"{merge.elements:,}"}
    parts = zip(merge.parents, merge.coefficients, merge.standard_errors, strict=True)
    rows = [
        (name(parent), figure(f"{value:.3f}", value), figure(f"± {error:.3f}", error)) for parent, value, error in parts
    ]
    note = [Line(words.engine(text).text, WARNING) for text in (merge.note, merge.alternative) if text]
    made = table(words, words.say("merge.title"), "parent coefficient# error#", rows)
    return Line(words.say("merge.lead", **shares)), made, *note


# -- controls and power --------------------------------------------------------------------------------------------------


def controls_section(evidence: findings.Evidence, words: Words) -> Section:
    """Return the comparisons whose answer is known."""
    made = controls_table(evidence.controls, words)
    shown: Block = made.without("why") if made.rows else Line(words.say("controls.none"))
    why = [(words.control(item.name), words.reason(item.reason)) for item in evidence.controls if item.reason]
    lines = (Line(f"{control}: {said.text}", WARNING) for control, said in why)
    return Section(words.say("picture.controls"), (shown, *lines))


def controls_table(controls: Iterable[findings.ControlFinding], words: Words) -> Table:
    """Return one row for each control: the answer it must give, and the one it gave."""

    def why(item: findings.ControlFinding) -> Cell:
        said = words.reason(item.reason or DASH)
        return Cell(said.text, SENTENCE, lang=said.lang)

    def control(item: findings.ControlFinding) -> Cell:
        return Cell(words.control(item.name)) if words.has(f"control.{item.name}") else name(item.name)

    columns = "control expected:label.class found:label.class status:state.control_status z:z log_p=log10_p:p why"
    return listing(words, "controls.title", columns, controls, control=control, why=why)


def power_sections(evidence: findings.Evidence, words: Words) -> list[Section]:
    """Return the weakest relation that each test would have seen."""
    if not evidence.power:
        return []
    return [Section(words.say("power.title"), (Line(words.say("power.lead")), power_table(evidence.power, words)))]


def power_table(power: Iterable[findings.PowerFinding], words: Words) -> Table:
    """Return one row for each test whose power is known, or the reason why not."""

    def quantity(item: findings.PowerFinding) -> Cell:
        said = sentence(words, item.quantity)
        if item.reason is None:
            return said
        why = words.engine(item.reason)
        return Cell(f"{said.text} ({why.text})", SENTENCE, lang=why.lang)

    return listing(
        words,
        "power.title",
        "test of=scope:sentence quantity least:number power:share- level#- n:count width:count- places=blocks:count-",
        power,
        test=lambda item: _test(item.name, words),
        quantity=quantity,
        level=lambda item: figure(f"{item.log10_alpha:.2f}", item.log10_alpha),
    )


# -- fingerprint methods -------------------------------------------------------------------------------------------------


def towers_section(towers: Sequence[findings.TowerFinding], words: Words) -> Section:
    """Return what was found of towers beside the main models."""
    return Section(words.say("towers.title"), (Line(words.say("towers.lead")), towers_table(towers, words)))


def towers_table(towers: Iterable[findings.TowerFinding], words: Words) -> Table:
    """Return one row for each kind of tower that both models have."""
    columns = "tower:label.tower layers_a:count layers_b:count tensors=compared:count answer log_p=log10_p:p why=sentence:sentence"
    return listing(words, "towers.title", columns, towers, answer=lambda item: _tower_answer(item, words))


def _tower_answer(item: findings.TowerFinding, words: Words) -> Cell:
    return Cell(DASH if item.class_ is None else words.verdict(item.class_, item.kind))


def methods_section(methods: Sequence[findings.MethodFinding], words: Words, *, lead: str = "methods.lead") -> Section:
    """Return the methods beside their nulls, why some did not run, and notes on the others; `lead` says what rests on them."""
    lines = []
    for item in methods:
        extra = ", ".join(f"{detail.name} {_exactly(detail.value, words)}" for detail in item.details)
        lines += [Line(f"{item.method}: {extra}", FAINT)] if extra else []
        notes = [words.engine(note).text for note in item.notes]
        if item.status != findings.TESTED:
            notes.insert(0, f"{words.say('methods.off')}: {words.engine(item.reason or DASH).text}")
        lines += [Line(f"{item.method}: {text}", WARNING) for text in notes]
    empirical = next((item.empirical for item in methods if item.status == findings.TESTED and item.empirical), None)
    if empirical is not None:
        lines.append(Line(words.say("methods.empirical", name=words.engine(empirical.name).text), FAINT))
    return Section(words.say("methods.title"), (Line(words.say(lead)), methods_table(methods, words), *lines))


def _exactly(value: float | None, words: Words) -> str:
    """Write a figure, without decimals where it is whole: most of these are counts."""
    return f"{value:,.0f}" if value is not None and float(value).is_integer() else words.number(value)


def methods_table(methods: Iterable[findings.MethodFinding], words: Words) -> Table:
    """Return one row for each method."""
    rows = [(Cell(item.method, "code", full=words.engine(item.title).text), *_method(item, words)) for item in methods]
    columns = "method observed# null_mean# null_sd# z# log_p# n# null reading"
    return table(words, words.say("methods.title"), columns, rows)


def _method(item: findings.MethodFinding, words: Words) -> list[Cell]:
    # what the reading rests on: an exact null, else the empirical one, else what there is
    null = item.chance if item.chance is not None and item.chance.exact else item.empirical or item.chance
    figures = [count(None)] * 5
    if null is not None:
        figures = [*beside_null(words, null.mean, null.sd, null.z, null.log10_p), count(null.n)]
    kind = "none" if null is None else "exact" if null.exact else "approximate" if null.largest is None else "empirical"
    named = words.engine(null.name).text if null is not None else ""
    reading = words.label("reading", item.reading) if item.status == findings.TESTED else words.say("methods.off")
    return [*numbers(words, item.value), *figures, Cell(words.say(f"null.{kind}"), full=named), Cell(reading)]
