"""Tabulate tests, parts, edits, controls, power and methods of a report, alike for every form."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kinprint._util.plain import ranges
from kinprint.render.content.blocks import FAINT, STATE, WARNING, Block, Cell, Line, Points, Section, Table
from kinprint.render.content.cells import NO_FIGURE, count, figure, log_p, name, numbers, sentence, table, z_score
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
        said = words.engine(test.reason or DASH)
        return [*[NO_FIGURE] * 8, Cell(f"{words.say('test.off')} {said.text}", "sentence", lang=said.lang)]
    return [
        count(test.n),
        count(test.blocks),
        *numbers(words, test.statistic, test.null_mean, test.null_sd),
        z_score(words, test.z),
        log_p(words, test.log10_p, bound=test.p_method is not None and test.p_method.bound),
        log_p(words, test.log10_p_holm),
        sentence(words, test.p_text),
    ]


def off_tests(tests: Iterable[findings.EvidenceTest]) -> tuple[tuple[str, tuple[findings.EvidenceTest, ...]], ...]:
    """Return tests that did not run, those with the same reason together."""
    found: dict[str, list[findings.EvidenceTest]] = {}
    for test in tests:
        if test.status != findings.TESTED:
            found.setdefault(test.reason or "", []).append(test)
    return tuple((reason, tuple(tests)) for reason, tests in found.items())


def _test(name: str, words: Words) -> Cell:
    return Cell(words.label("test", name), code=name)


def _of(test: findings.EvidenceTest, words: Words) -> str:
    return f"{words.label('test', test.name)} ({_where(test, words).text})"


def _where(test: findings.EvidenceTest, words: Words) -> Cell:
    said = sentence(words, test.scope)
    if test.layer is None:
        return said
    return Cell(words.say("picture.in_layer", scope=said.text, layer=test.layer), said.kind, lang=said.lang)


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
    return ", ".join(f"{item.layer}←{'+'.join(map(str, item.sources))}" for item in layers if item.sources)


def unread_layers(found: findings.LayerAlignment, words: Words) -> list[str]:
    """Say of which layers nothing is known: they were not read, which is not the same as no match."""
    sides = (("A", found.unread_a), ("B", found.unread))
    return [words.say("map.unread", side=side, layers=ranges(unread)) for side, unread in sides if unread]


def parts_table(evidence: findings.Evidence, words: Words) -> Table:
    """Return one row for each part of the model."""
    rows = [
        (
            Cell(words.label("component", item.component)),
            Cell(words.label("state", item.state), STATE, item.state),
            figure(words.say("parts.places", shared=item.shared, tested=item.tested) if item.tested else DASH),
            log_p(words, item.log10_p),
            sentence(words, item.note) if item.note else Cell(""),
        )
        for item in evidence.components
    ]
    return table(words, words.say("parts.title"), "part state where# log_p# note", rows)


def layers_table(found: findings.LayerAlignment, words: Words) -> Table:
    """Return one row for each layer of B."""
    rows = [
        (
            count(item.layer),
            count(item.source),
            Cell(words.say("yes" if item.shared else "no")),
            *numbers(words, item.correlation),
            z_score(words, item.z),
            log_p(words, item.log10_p),
            count(item.tries),
            count(item.runner_up),
            z_score(words, item.runner_up_z),
        )
        for item in found.layers
    ]
    columns = "layer_b# layer_a# matches correlation# z# log_p# tries# runner_up# runner_up_z#"
    return table(words, words.say("map.table"), columns, rows)


def experts_table(evidence: findings.Evidence, words: Words) -> Table:
    """Return one row for each expert of B."""
    rows = [
        (
            count(item.layer),
            count(item.expert),
            Cell(words.say("experts.dense")) if item.source is None and item.shared else count(item.source),
            Cell(words.say("yes" if item.shared else "no")),
            log_p(words, item.log10_p),
        )
        for item in evidence.experts
    ]
    return table(words, words.say("experts.table"), "layer_b# expert_b# expert_a matches log_p#", rows)


# -- edits ---------------------------------------------------------------------------------------------------------------


def edits_sections(evidence: findings.Evidence, words: Words) -> list[Section]:
    """Return what was done to the weights, and B as a weighted sum."""
    found = []
    if evidence.edits:
        found.append(Section(words.say("edits.title"), (edits_table(evidence.edits, words),)))
    if evidence.merge is not None:
        found.append(Section(words.say("merge.title"), merge_blocks(evidence.merge, words)))
    return found


def edits_table(edits: Iterable[findings.EditFinding], words: Words) -> Table:
    """Return one row for each kind of tensor that was looked at."""
    rows = [
        (
            sentence(words, item.scope),
            Cell(words.label("edit", item.edit)),
            count(item.tensors),
            count(item.identical),
            figure(words.share(item.changed_share), item.changed_share),
            *numbers(words, item.mean_ulps, item.slope, item.correlation, item.relative_difference),
            figure(words.share(item.zeros_a), item.zeros_a),
            figure(words.share(item.zeros_b), item.zeros_b),
            count(item.rank),
            count(item.bits),
        )
        for item in edits
    ]
    columns = (
        "of edit tensors# identical#- changed# ulps#- slope# correlation# relative#- zeros_a#- zeros_b#- rank# bits#"
    )
    return table(words, words.say("edits.title"), columns, rows)


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
    why = tuple(
        f"{words.control(item.name)}: {words.reason(item.reason).text}" for item in evidence.controls if item.reason
    )
    blocks: list[Block] = [made.without("why")] if made.rows else [Line(words.say("controls.none"))]
    return Section(words.say("picture.controls"), (*blocks, *(Line(text, WARNING) for text in why)))


def controls_table(controls: Iterable[findings.ControlFinding], words: Words) -> Table:
    """Return one row for each control: the answer it must give, and the one it gave."""
    rows = [
        (
            Cell(words.control(item.name)) if words.has(f"control.{item.name}") else name(item.name),
            Cell(words.label("class", item.expected)),
            Cell(words.label("class", item.found) if item.found else DASH),
            Cell(words.label("control_status", item.status), STATE, item.status),
            z_score(words, item.z),
            log_p(words, item.log10_p),
            _reason(item.reason, words),
        )
        for item in controls
    ]
    return table(words, words.say("controls.title"), "control expected found status z# log_p# why", rows)


def _reason(reason: str | None, words: Words) -> Cell:
    said = words.reason(reason or DASH)
    return Cell(said.text, "sentence", lang=said.lang)


def power_sections(evidence: findings.Evidence, words: Words) -> list[Section]:
    """Return the weakest relation that each test would have seen."""
    if not evidence.power:
        return []
    return [Section(words.say("power.title"), (Line(words.say("power.lead")), power_table(evidence.power, words)))]


def power_table(power: Iterable[findings.PowerFinding], words: Words) -> Table:
    """Return one row for each test whose power is known, or the reason why not."""
    rows = [
        (
            _test(item.name, words),
            sentence(words, item.scope),
            _quantity(item, words),
            *numbers(words, item.least),
            figure(words.share(item.power), item.power),
            figure(f"{item.log10_alpha:.2f}", item.log10_alpha),
            count(item.n),
            count(item.width),
            count(item.blocks),
        )
        for item in power
    ]
    columns = "test of quantity least# power#- level#- n# width#- places#-"
    return table(words, words.say("power.title"), columns, rows)


def _quantity(item: findings.PowerFinding, words: Words) -> Cell:
    said = sentence(words, item.quantity)
    if item.reason is None:
        return said
    why = words.engine(item.reason)
    return Cell(f"{said.text} ({why.text})", said.kind, lang=said.lang if said.lang == why.lang else why.lang)


# -- fingerprint methods -------------------------------------------------------------------------------------------------


def methods_section(methods: Sequence[findings.MethodFinding], words: Words) -> Section:
    """Return the methods beside their nulls, why some did not run, and notes on the others."""
    lines = []
    for item in methods:
        extra = ", ".join(f"{detail.name} {words.number(detail.value)}" for detail in item.details)
        lines += [Line(f"{item.method}: {extra}", FAINT)] if extra else []
        lines += [Line(f"{item.method}: {text}", WARNING) for text in method_notes(item, words)]
    empirical = next((item.empirical for item in methods if item.status == findings.TESTED and item.empirical), None)
    if empirical is not None:
        lines.append(Line(words.say("methods.empirical", name=words.engine(empirical.name).text), FAINT))
    return Section(words.say("methods.title"), (Line(words.say("methods.lead")), methods_table(methods, words), *lines))


def method_notes(item: findings.MethodFinding, words: Words) -> list[str]:
    """Return why a method did not run, and its notes."""
    off = (
        [f"{words.say('methods.off')}: {words.engine(item.reason or DASH).text}"]
        if item.status != findings.TESTED
        else []
    )
    return [*off, *(words.engine(note).text for note in item.notes)]


def methods_table(methods: Iterable[findings.MethodFinding], words: Words) -> Table:
    """Return one row for each method."""
    rows = [(Cell(item.method, "code", full=words.engine(item.title).text), *_method(item, words)) for item in methods]
    columns = "method observed# null_mean# null_sd# z# log_p# n# null reading"
    return table(words, words.say("methods.title"), columns, rows)


def _method(item: findings.MethodFinding, words: Words) -> list[Cell]:
    null = deciding_null(item)
    figures = [NO_FIGURE] * 5
    if null is not None:
        figures = [
            *numbers(words, null.mean, null.sd),
            z_score(words, null.z),
            log_p(words, null.log10_p),
            count(null.n),
        ]
    kind = "none" if null is None else "exact" if null.exact else "approximate" if null.largest is None else "empirical"
    named = words.engine(null.name).text if null is not None else ""
    reading = words.label("reading", item.reading) if item.status == findings.TESTED else words.say("methods.off")
    return [*numbers(words, item.value), *figures, Cell(words.say(f"null.{kind}"), full=named), Cell(reading)]


def deciding_null(item: findings.MethodFinding) -> findings.MethodNull | None:
    """Return the null that a method's reading rests on: an exact one, else the empirical one, else what there is."""
    if item.chance is not None and item.chance.exact:
        return item.chance
    return item.empirical or item.chance
