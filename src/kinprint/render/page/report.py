"""Write reports on two and on many models as one self-contained HTML file: style and scripts inlined, nothing else may load."""

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from kinprint._util.plain import printable, ranges
from kinprint.render.content import evidence as tables
from kinprint.render.content import report as content
from kinprint.render.content.pairs import MARKS, strongest_first, verdict_between
from kinprint.render.content.tree import title
from kinprint.render.drawing.tree_svg import tree_svg
from kinprint.render.page.evidence_chart import BAND, evidence_chart
from kinprint.render.page.layer_map import layer_map_of
from kinprint.render.page.markup import PageWords, middle_cut
from kinprint.render.page.payload import embedded, payload_of
from kinprint.render.repeat_command import command_of, pairs_command
from kinprint.render.texts.words import DASH, Words
from kinprint.results.context import DECLARED, NOT_JUDGED, NOT_SHOWN, NOTHING_DECLARED, OTHER_DECLARED, UNDECLARED
from kinprint.results.findings import CLASSES, IDENTICAL, Verdict
from kinprint.results.options import SIZE, options_of
from kinprint.results.report import Report
from kinprint.results.tree import PairsReport, TreeModel
from kinprint.text import Text

_SCRIPTS, _PAIRS_SCRIPTS = ("core.js", "rows.js", "chart.js", "heat.js", "page.js"), ("core.js", "page.js")
_STYLES, _PAIRS_STYLES = ("page.css", "print.css"), ("page.css", "many.css", "print.css")
_PAIRS_WORDS = ("js.copied", "js.copy_failed")
_LONGEST_COMMAND, _MOST_SPANS = 8000, 40
_TABLES = {  # what templates call
    content: "config_table example_text files_table identity models_table read_line reasons_title roles_table tokenizer_table",
    tables: "controls_table edits_table experts_table layers_table merge_blocks methods_table power_table tests_table",
}


def report_html(report: Report, lang: str = "en") -> bytes:
    """Return the report as one HTML file in the language `lang`; the same report gives the same bytes."""
    words = PageWords(lang)
    a, b = (middle_cut(printable(model.reference, 400), 60) for model in (report.a, report.b))
    settings = report.settings
    return _page(
        "page.html",
        report,
        words,
        command_of(report),
        run=report.run,
        title=words.say("title", a=a, b=b),
        payload=payload_of(report, words),
        named_only=bool(settings.controls or settings.related or settings.parents or settings.bases),
        date=printable(report.run.started[:10], 10),
        **_inlined(_STYLES, _SCRIPTS),
        **_view(report, words),
    )


def pairs_html(report: PairsReport, lang: str = "en") -> bytes:
    """Return matrix, groups, tree, and every pair beside its null as one HTML file; the same report gives the same bytes."""
    words, models = PageWords(lang), report.tree.models
    pairs = strongest_first(report)
    places = {frozenset((pair.a, pair.b)): number for number, pair in enumerate(pairs)}
    return _page(
        "many.html",
        report,
        words,
        pairs_command(report),
        run=report.tree.run,
        title=words.say("many.title", n=len(models)),
        pairs=pairs,
        names=[title(model) for model in models],
        matrix=[(model, [_cell(report, model, other, places) for other in models]) for model in models],
        signs=[(sign, name) for name, sign in MARKS.items()],
        groups=[group for group in report.clusters if len(group) > 1],
        alone=report.alone,
        not_testable=report.not_testable,
        tree=Markup(tree_svg(report.tree, lang).decode()),  # noqa: S704 - which escapes all names
        payload=embedded({"lang": lang, "words": {key: words.say(key) for key in _PAIRS_WORDS}}),
        **_inlined(_PAIRS_STYLES, _PAIRS_SCRIPTS),
    )


def _page(template: str, report: Report | PairsReport, words: PageWords, command: str, **shown: Any) -> bytes:
    safe = printable(command, _LONGEST_COMMAND)
    page = environment().get_template(template)
    return page.render(report=report, v=words, command=safe, command_hidden=safe != command, **shown).encode()


def _cell(report: PairsReport, one: TreeModel, two: TreeModel, places: dict[frozenset[int], int]) -> dict[str, Any]:
    """Return one cell of the matrix, and the place of the pair in the list below it."""
    found = verdict_between(report, one, two)
    if found is None:
        return {"class_": None}
    ends = (one.index, two.index) if one.node == two.node else (one.node, two.node)
    class_, stands = found
    return {"class_": class_, "sign": MARKS[class_], "doubtful": not stands, "place": places.get(frozenset(ends))}


def _view(report: Report, words: PageWords) -> dict[str, Any]:
    """Return what the templates show beside the report itself."""
    verdict, evidence = report.verdict, report.evidence
    return {
        "sure": certainty(verdict, words) if verdict else "",
        "limits": (*verdict.against, *verdict.untested) if verdict else (),
        "declares_something": content.declares_something(report.declared),
        "failed": tuple(item for item in evidence.controls if item.status == "failed") if evidence else (),
        "chart": evidence_chart(verdict, evidence, words),
        "layer_map": layer_map_of(report, words),
        "experts_shared": sum(item.shared for item in evidence.experts) if evidence else 0,
        "off_tests": tables.off_tests(evidence.tests) if evidence else (),
        "unlike": content.not_comparable(report.comparisons),
        "example": content.example_of(report.comparisons),
        "assumptions": content.assumptions_of(report),
        "grid_assumptions": tuple(dict.fromkeys(text for grid in report.grids for text in grid.assumptions)),
        "settings": _settings(report, words),
    }


def _settings(report: Report, words: PageWords) -> list[tuple[str, str]]:
    """Return every option of the comparison with its value as people read it."""
    found = []
    for name, described in options_of(report.settings):
        value = getattr(report.settings, name)
        size = described.written == SIZE and value is not None
        shown = words.size(value) if size else ", ".join(value) if isinstance(value, tuple) else described.text(value)
        found.append((name, shown if shown and value is not None else DASH))
    return found


def certainty(verdict: Verdict, words: Words) -> str:
    """Say how surprising the evidence would be if the models were unrelated, in one or two sentences."""
    if verdict.log10_p is None:
        return words.say("sure.untested")
    odds, threshold = words.odds(verdict.log10_p), words.odds(verdict.log10_alpha)
    if verdict.class_ == IDENTICAL:
        key = "sure.identical"
    elif verdict.log10_p <= verdict.log10_alpha:
        key = "sure.beyond"
    else:
        key = "sure.between" if verdict.log10_p <= -BAND else "sure.inside"
    return words.say(key, odds=odds, tests=verdict.tests, threshold=threshold)


def nothing_found(sentence: str, words: Words) -> tuple[str, str]:
    """Split the sentence of a verdict without evidence: what readers want first, and what would have been seen; else both empty."""
    found = sentence.values.get("found") if isinstance(sentence, Text) else None
    if not isinstance(found, Text) or "q" not in found.values:
        return "", ""
    values = found.values
    seen = [
        words.say("verdict.seen.of", quantity=words.engine(quantity).text, x=f"{values[x]:.2g}")
        for quantity, x in ((values["q"], "x"), (values.get("r"), "y"))
        if isinstance(quantity, str)
    ]
    return words.say("verdict.nothing_found"), words.say("verdict.seen", what=words.say("or").join(seen))


@cache
def environment() -> Environment:
    """Return the templates' environment: everything is escaped, and a name that does not exist is an error."""
    loader = PackageLoader("kinprint.render.page", "templates")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, optimized=False
    )  # folding constants costs a fifth of the compiling and saves nothing
    environment.globals.update(
        printable=printable,
        ranges=ranges,
        classes=CLASSES,
        declared_states=(UNDECLARED, OTHER_DECLARED, DECLARED, NOT_SHOWN, NOTHING_DECLARED, NOT_JUDGED),
        shown_spans=lambda item: item.spans[:_MOST_SPANS],  # a page need not hold thousands
        nothing_found=nothing_found,
        **{name: getattr(home, name) for home, names in _TABLES.items() for name in names.split()},
    )
    return environment


@cache
def _inlined(styles: tuple[str, ...], scripts: tuple[str, ...]) -> dict[str, str]:
    """Return styles and scripts, and the policy that allows these by their digests and nothing else: no request, no form."""
    folder = files("kinprint.render.page").joinpath("assets")
    found = {}
    for what, names in (("script", scripts), ("style", styles)):
        text = "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in names)
        found[what] = Markup(text)  # noqa: S704 - files of this package, which hold no untrusted text
    digests = {what: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for what, text in found.items()}
    allowed = "; ".join(f"{what}-src 'sha256-{digest}'" for what, digest in digests.items())
    csp = f"default-src 'none'; {allowed}; img-src data:; base-uri 'none'; form-action 'none'"
    return {**found, "csp": csp}
