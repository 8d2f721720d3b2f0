"""Describe a comparison of two models, section by section, in one language."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from kinprint._util.plain import printable, short_names
from kinprint.render.content.answer import answer_of
from kinprint.render.content.blocks import FAINT, STRONG, WARNING, Block, Cell, Line, Points, Section, Table
from kinprint.render.content.cells import beside_null, code, count, facts_table, listing, name, numbers, sentence, table
from kinprint.render.texts.words import DASH, Words, power_of_ten
from kinprint.results.context import NOT_SHOWN, UNDECLARED, Declaration, DeclaredFinding
from kinprint.results.findings import NO_EVIDENCE, NOT_TESTABLE, Evidence, Verdict
from kinprint.results.measurements import NO_NULL, OK, NullResult, RoleSummary, Skipped, TensorComparison
from kinprint.results.models import ModelSummary
from kinprint.results.report import Report

CARD_AND_WEIGHTS_DISAGREE = (UNDECLARED, NOT_SHOWN)
"""States of cards that a reader must not miss."""
_TELLING = 0.5  # a cosine above this is one that readers would take for likeness
_FEW = 6


# -- verdict -------------------------------------------------------------------------------------------------------------


def verdict_section(report: Report, words: Words) -> Section:
    """Return the verdict and what speaks for and against it; its label and sentence come first."""
    verdict = report.verdict
    blocks: list[Block] = []
    if report.status != OK:
        reason = words.engine(report.reason or DASH).text
        blocks.append(Line(f"{words.say('verdict.not_comparable')} {reason}", STRONG))
    if verdict is None:
        blocks.append(Line(words.say("verdict.none.why")))
        return Section(words.say("nav.verdict"), tuple(blocks))
    p = words.log_p(verdict.log10_p)
    blocks = [
        Line(words.verdict(verdict.class_, verdict.kind, verdict.variant, verdict.kinds), STRONG),
        Line(words.engine(verdict.sentence).text),
        *blocks,
        *([Line(words.say("many.reading.absence"))] if verdict.class_ == NO_EVIDENCE else []),
        Line(words.say("verdict.corrected", p=p, tests=verdict.tests, alpha=f"{verdict.log10_alpha:g}"), FAINT),
    ]
    if verdict.null:
        blocks.append(Line(f"{words.say('verdict.null')}: {words.engine(verdict.null).text}", FAINT))
    answer = answer_of(report, words)
    for title, texts in (
        ("verdict.plain", answer.reasons if answer and report.evidence else ()),
        (reasons_title(verdict.class_), verdict.reasons),
        ("verdict.against", verdict.against),
        ("nav.untested", verdict.untested),
        ("assumed.title", verdict.assumptions),
    ):
        if texts:
            blocks.append(Points(words.say(title), tuple(words.reason(text).text for text in texts)))
    return Section(words.say("nav.verdict"), tuple(blocks))


def reasons_title(class_: str) -> str:
    """Return the key of the heading above the reasons of a verdict."""
    return {NO_EVIDENCE: "verdict.for.none", NOT_TESTABLE: "verdict.for.why"}.get(class_, "verdict.for.some")


def rules_sections(verdict: Verdict, evidence: Evidence, words: Words) -> list[Section]:
    """Return every rule that was tried and every stage of the reading."""
    rules: list[Block] = []
    for rule in verdict.rules:
        outcome = (
            f"{words.say('rules.fired')} {words.label('class', rule.outcome)}." if rule.fired else words.say("rules.no")
        )
        said = f"{rule.name}: {words.engine(rule.question).text} {outcome}"
        rules.append(Points(said, tuple(words.reason(text).text for text in rule.inputs)))
    stages = Points("", tuple(words.engine(text).text for text in evidence.stages))
    return [Section(words.say("rules.title"), tuple(rules)), Section(words.say("stages.title"), (stages,))]


# -- models --------------------------------------------------------------------------------------------------------------


def names_of(report: Report) -> tuple[str, str]:
    """Return the names that readers know the models by: their labels, else those of the hub, or the last parts of paths."""
    references, chosen = list(dict.fromkeys((report.a.reference, report.b.reference))), report.settings
    short = dict(zip(references, short_names(references), strict=True))
    a, b = (model.reference if model.kind == "hub" else short[model.reference] for model in (report.a, report.b))
    return printable(chosen.label_a or a, 400), printable(chosen.label_b or b, 400)


def models_table(report: Report, words: Words) -> Table:
    """Return both models side by side."""
    return facts_table(words, "data.models", model_facts(report.a, words), model_facts(report.b, words))


def model_facts(model: ModelSummary, words: Words) -> dict[str, Cell]:
    """Return what a model is, fact by fact."""
    guessed = f" {words.say('head.guessed')}" if model.architecture_guessed else ""
    tensors = words.say("data.tensors.count", n=model.tensors, unmapped=len(model.unmapped))
    return {
        "data.reference": name(model.reference),
        "data.location": name(model.location),
        "data.revision": name(model.revision),
        "data.commit": name(model.commit),
        "data.architecture": name(f"{model.architecture}{guessed}"),
        "data.layers": count(model.layers),
        "data.experts": count(model.experts or None),
        "data.width": count(model.hidden),
        "data.parameters": count(model.parameters),
        "data.stored": Cell(words.size(model.stored_bytes)),
        "data.tensors": Cell(tensors),
    }


def declared_sections(found: DeclaredFinding | None, words: Words) -> list[Section]:
    """Return what the cards say beside what the weights say."""
    if found is None:
        return []
    label = words.label("declared", found.state)
    tone = WARNING if found.state in CARD_AND_WEIGHTS_DISAGREE else ""
    blocks: list[Block] = [Line(f"{label}: {words.engine(found.sentence).text}", tone)]
    if declares_something(found):
        sides = (_declared_facts(side, words) for side in (found.a, found.b))
        blocks.append(facts_table(words, "declared.caption", *sides))
    if found.licences:
        blocks.append(Line(words.engine(found.licences).text, WARNING))
    return [Section(words.say("declared.title"), tuple(blocks))]


def declares_something(found: DeclaredFinding | None) -> bool:
    """Return whether either model's card says anything of its origin, so that a table has content."""
    sides = (found.a, found.b) if found else ()
    return any(side.base_models or side.relation or side.licence for side in sides)


def _declared_facts(side: Declaration, words: Words) -> dict[str, Cell]:
    silent = Cell(words.say("declared.silent"))
    return {
        "declared.base": name(", ".join(side.base_models[:12])) if side.base_models else silent,
        "declared.relation": name(side.relation) if side.relation else silent,
        "declared.licence": name(side.licence) if side.licence else silent,
        "declared.where": name(", ".join(side.where[:12])) if side.where else sentence(words, side.reason),
    }


def config_sections(report: Report, words: Words) -> list[Section]:
    """Return how configs and tokenizers differ."""
    config, tokens = report.config, report.tokenizer
    if config.status != OK:
        shown: list[Block] = [Line(f"{words.say('config.off')} {words.engine(config.reason or DASH).text}", WARNING)]
    elif not config.differences:
        shown = [Line(words.say("config.equal", n=config.equal_keys))]
    else:
        differ = words.say("config.differ", n=len(config.differences), equal=config.equal_keys)
        shown = [Line(differ), config_table(report, words)]
    if tokens.status != OK:
        said: Block = Line(f"{words.say('tokenizer.off')} {words.engine(tokens.reason or DASH).text}", WARNING)
    elif tokens.identical_files:
        why = f" ({words.engine(tokens.reason).text})" if tokens.reason else ""
        said = Line(f"{words.say('tokenizer.identical')}{why}")
    else:
        said = tokenizer_table(report, words)
    return [Section(words.say("config.title"), tuple(shown)), Section(words.say("tokenizer.title"), (said,))]


def config_table(report: Report, words: Words) -> Table:
    """Return the keys of the configs that differ."""
    absent = Cell(words.say("config.absent"))
    return listing(
        words,
        "config.title",
        "key:name a b",
        report.config.differences,
        a=lambda item: name(item.a or '""') if item.a_present else absent,
        b=lambda item: name(item.b or '""') if item.b_present else absent,
    )


def tokenizer_table(report: Report, words: Words) -> Table:
    """Return the counts of both tokenizers and what they have in common."""
    found = report.tokenizer
    jaccard = "" if found.jaccard is None else f" ({words.say('tokenizer.jaccard', j=words.number(found.jaccard))})"
    common = count(found.tokens_common)
    rows = [
        ("kind", name(found.kind_a), name(found.kind_b), count(None)),
        ("tokens", count(found.tokens_a), count(found.tokens_b), replace(common, text=common.text + jaccard)),
        ("same_id", count(None), count(None), count(found.same_id)),
        ("merges", count(found.merges_a), count(found.merges_b), count(found.merges_common)),
    ]
    made = [(Cell(words.say(f"tokenizer.{key}")), *cells) for key, *cells in rows]
    return table(words, words.say("tokenizer.title"), "fact a b common", made)


# -- figures -------------------------------------------------------------------------------------------------------------


def roles_section(report: Report, words: Words) -> Section:
    """Return every role, all its layers tested together."""
    if not report.summary:
        return Section(words.say("roles.title"), (Line(words.say("roles.none")),))
    ways: dict[str, list[str]] = {}
    reasons: dict[str, list[str]] = {}
    for item in report.summary:
        if item.null is None:
            reasons.setdefault(words.engine(item.reason or DASH).text, []).append(item.role)
        elif item.permutation is not None and item.compared > 1:
            ways.setdefault(words.engine(item.permutation).text, []).append(item.role)
    lines = [Line(f"{way}: {', '.join(roles)}", FAINT) for way, roles in ways.items()]
    lines += [
        Line(f"{words.say('how.no_test')}: {few(roles, words)}: {reason}", WARNING) for reason, roles in reasons.items()
    ]
    return Section(words.say("roles.title"), (roles_table(report.summary, words), *lines))


def roles_table(summary: Iterable[RoleSummary], words: Words) -> Table:
    """Return one row for each role, beside its permutation null."""
    rows = [
        (
            code(item.role),
            count(item.null.n if item.null else None),
            *numbers(words, item.median_cosine, item.median_cosine_null),
            *numbers(words, item.mean_pearson if item.statistic is None else item.statistic),  # the mean without a test
            *_null_figures(item.null, words),
            count(item.compared),
            count(item.not_compared),
            _p_from(item.null, item.reason, words),
        )
        for item in summary
    ]
    columns = "role n#- cosine# cosine_null# pearson# null_mean#- null_sd# z# log_p# compared#- not_compared#- p_from-"
    return table(words, words.say("roles.caption"), columns, rows)


def _null_figures(null: NullResult | None, words: Words) -> list[Cell]:
    if null is None:
        return [count(None)] * 4
    return beside_null(words, null.mean, null.sd, null.z, null.log10_p, bound=null.p_method.bound)


def _p_from(null: NullResult | None, reason: str | None, words: Words) -> Cell:
    if null is not None:
        return Cell(words.how(null.p_method, null.n_draws), full=words.engine(null.p_text).text)
    said = words.engine(reason or DASH)
    none = words.say("how.no_test")
    return Cell(none, "sentence", lang=said.lang, full=f"{none}: {said.text}")


def measured_tables(comparisons: Sequence[TensorComparison], words: Words) -> list[Section]:
    """Return every measurement, a section for each role."""
    roles = dict.fromkeys(item.role for item in comparisons)
    return [_measured(role, [item for item in comparisons if item.role == role], words) for role in roles]


def _measured(role: str, items: Sequence[TensorComparison], words: Words) -> Section:
    axis = items[0].permuted_axis
    title = words.say("measured.role", role=role, axis=words.label("axis", axis) if axis else words.say("null.none"))
    rows: list[tuple[Cell, ...]] = []
    reasons: dict[str, list[str]] = {}
    for item in items:
        place = DASH if item.layer is None else str(item.layer)
        place += "" if item.expert is None else f" e{item.expert}"
        if not item.measurements and item.reason:
            reasons.setdefault(words.engine(item.reason).text, []).append(place)
        for measured in item.measurements:
            null = measured.null
            none = "reading.no null" if measured.status == NO_NULL else "how.undefined"
            how = words.how(null.p_method, null.n_draws) if null else words.say(none)
            figures = (*numbers(words, measured.value), *_null_figures(null, words), count(null.n if null else None))
            rows.append((Cell(place), code(measured.metric), *figures, Cell(how)))
            if measured.reason:
                reasons.setdefault(words.engine(measured.reason).text, []).append(place)
    lines = [
        Line(f"{words.say('layers', list=few(places, words))}: {reason}", WARNING) for reason, places in reasons.items()
    ]
    columns = "layer metric observed# null_mean# null_sd# z# log_p# n#- p_from-"
    return Section(title, (table(words, title, columns, rows), *lines))


def few(items: Sequence[str], words: Words) -> str:
    """Return the first few, and how many more there are."""
    more = f" {words.say('and_more', n=len(items) - _FEW)}" if len(items) > _FEW else ""
    return ", ".join(items[:_FEW]) + more


# -- how to read it ------------------------------------------------------------------------------------------------------


def example_of(comparisons: Iterable[TensorComparison]) -> TensorComparison | None:
    """Return the comparison whose cosine would be highest without any correlation: most of it comes from small spread."""
    explained = [(abs(item.explained.if_independent), item) for item in comparisons if item.explained is not None]
    return max(explained, key=lambda pair: (pair[0], -(pair[1].layer or 0)), default=(0.0, None))[1]


def example_text(item: TensorComparison, words: Words) -> str:
    """Explain the cosine of one pair of tensors by correlation and spread, in a sentence or two."""
    found = item.explained
    assert found is not None
    return words.say(
        f"cosine.example.{'telling' if abs(found.if_independent) >= _TELLING else 'plain'}",
        role=item.role,
        place=words.say("js.no_layer") if item.layer is None else words.say("layer", n=item.layer),
        r=words.number(found.r),
        cv_a=words.number(found.cv_a),
        cv_b=words.number(found.cv_b),
        predicted=f"{found.predicted:.6f}",
        observed=f"{found.observed:.6f}",
        independent=f"{found.if_independent:.6f}",
    )


def tiny_p(report: Report) -> str | None:
    """Return the p-value of the verdict as a power of ten, where it is beyond the threshold."""
    verdict = report.verdict
    if verdict is None or verdict.log10_p is None or verdict.log10_p > verdict.log10_alpha:
        return None
    return power_of_ten(-math.floor(-verdict.log10_p))


def reading_section(report: Report, words: Words) -> Section:
    """Return what a reader must know to read the tables."""
    example, tiny = example_of(report.comparisons), tiny_p(report)
    said = [words.say(key) for key in ("roles.note", "cosine.so")]
    said += [example_text(example, words)] if example is not None else []
    said += [words.say("p.small", p=tiny)] if tiny else []
    said.append(words.say("p.holm"))
    return Section(words.say("reading.title"), (Points("", tuple(said)),))


# -- what was left out, and where all of it came from ----------------------------------------------------------------------


def untested_section(report: Report, words: Words) -> Section:
    """Return what was not compared and why, and the notes."""
    lines = [_skipped(item, words) for item in report.skipped]
    for side, model in (("A", report.a), ("B", report.b)):
        lines += [f"{side}: {text}" for text in model_notes(model, words)]
    lines += [words.engine(note).text for note in report.notes]
    lines += [words.engine(report.run.problem).text] if report.run.problem else []
    lines += [
        words.say("js.heat.off", reason=f"{grid.role}: {words.engine(grid.reason or DASH).text}")
        for grid in report.grids
        if grid.status != OK
    ]
    return Section(words.say("untested.title"), (Points("", tuple(lines)),) if lines else ())


def model_notes(model: ModelSummary, words: Words) -> list[str]:
    """Return what was left out of a model and why, and its notes."""
    return [*(_skipped(item, words) for item in model.excluded), *(words.engine(note).text for note in model.notes)]


def _skipped(item: Skipped, words: Words) -> str:
    what, reason = words.engine(item.what).text, words.engine(item.reason).text
    return words.say("untested.line", n=item.count, what=what, reason=reason)


def not_comparable(comparisons: Iterable[TensorComparison]) -> list[tuple[str, str | None, tuple[int, ...]]]:
    """Return comparisons without a single measurement: role, reason and layers."""
    found: dict[tuple[str, str | None], set[int]] = {}
    for item in comparisons:
        if not item.measurements:
            layers = found.setdefault((item.role, item.reason), set())
            layers |= {item.layer} if item.layer is not None else set()
    return [(role, reason, tuple(sorted(layers))) for (role, reason), layers in found.items()]


def files_table(report: Report, words: Words) -> Table:
    """Return every weight file that was opened."""
    rows = [
        (Cell(side), name(file.name), identity(file.identity, words), count(file.size))
        for side, model in (("A", report.a), ("B", report.b))
        for file in model.files
    ]
    return table(words, words.say("data.files"), "model file identity bytes#", rows)


def identity(text: str, words: Words) -> Cell:
    """Return the hash of a file, or that none is known; its size stands in another column."""
    return Cell(words.say("data.no_hash")) if text.startswith("size:") else name(text)


def reads_table(report: Report, words: Words) -> Table:
    """Return what was read of every file."""
    columns = "model:name file:name digest=sha256:code spans# read=bytes_read:count"
    return listing(words, "reads.title", columns, report.reads, spans=lambda item: count(len(item.spans)))


def read_line(report: Report, words: Words) -> str:
    """Return how much was read, and from where."""
    run = report.run
    return words.say(
        "reads.lead",
        read=words.size(report.bytes_read),
        network=words.size(run.network_bytes),
        cache=words.size(run.cache_bytes),
        local=words.size(run.local_bytes),
        requests=run.requests,
        seconds=f"{run.elapsed_s:.1f}",
    )


def assumptions_of(report: Report) -> tuple[str, ...]:
    """Return the assumptions of the verdict and of all nulls, each once."""
    texts = list(report.verdict.assumptions) if report.verdict else []
    nulls = [item.null for item in report.summary if item.null is not None]
    return tuple(dict.fromkeys([*texts, *(text for null in nulls for text in null.assumptions)]))
