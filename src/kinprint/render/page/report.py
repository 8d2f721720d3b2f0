"""Write reports on two and on many models as one self-contained HTML file: style and scripts inlined, nothing else may load."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from types import SimpleNamespace
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from kinprint._util.plain import printable, ranges
from kinprint.render.content import evidence as tables
from kinprint.render.content import report as content
from kinprint.render.content import search as search_words
from kinprint.render.content import tree as tree_words
from kinprint.render.content.pairs import strongest_first, verdict_between
from kinprint.render.content.tree import ties, title
from kinprint.render.drawing.evidence_chart import evidence_chart
from kinprint.render.page.both_languages import differences
from kinprint.render.page.first_screen import first_screen
from kinprint.render.page.layer_maps import layer_map_of, role_map
from kinprint.render.page.markup import PageWords, middle_cut, powers
from kinprint.render.page.payload import packed, shown_of
from kinprint.render.repeat_command import command_of, pairs_command, search_command
from kinprint.render.texts.words import DASH
from kinprint.results.context import DECLARED, NOT_JUDGED, NOT_SHOWN, NOTHING_DECLARED, OTHER_DECLARED, UNDECLARED
from kinprint.results.measurements import OK
from kinprint.results.options import SIZE, options_of
from kinprint.results.report import Report
from kinprint.results.search import SearchReport
from kinprint.results.tree import PairsReport, TreeModel
from kinprint.text import LANGUAGES

_SCRIPTS, _PAIRS_SCRIPTS = ("core.js", "rows.js", "rolemap.js", "heat.js", "page.js"), ("core.js", "page.js")
_STYLES, _PAIRS_STYLES = ("page.css", "print.css"), ("page.css", "many.css", "print.css")
_SERVED_STYLES = ("page.css", "bar.css", "print.css")
_LONGEST_COMMAND = 8000
_TESTS = 12  # in the chart: the others are in the table
_TABLES = {  # what templates call
    content: "config_table example_text files_table models_table read_line reads_table reasons_title roles_table tokenizer_table",
    tables: "controls_table edits_table experts_table layers_table merge_blocks methods_table power_table tests_table towers_table",
}


def report_html(report: Report, lang: str = "en", *, bars: Mapping[str, Markup] | None = None) -> bytes:
    """Return the report as one HTML file in the language `lang`, which can show the other one too; always the same bytes.

    On a server the page has a bar of what can be done with it, by language (`bars`), whose forms may be sent to that server.
    """
    settings, voices = report.settings, _voices(lang)
    shown: dict[str, Any] = {
        "run": report.run,
        "names": content.names_of(report),
        "role_map": role_map(report),
        "named_only": bool(settings.controls or settings.related or settings.parents or settings.bases),
        "date": printable(report.run.started[:10], 10),
        **_inlined(_STYLES if bars is None else _SERVED_STYLES, _SCRIPTS, served=bars is not None),
    }
    bar_of = bars or {}
    pages = [
        _page(
            "page.html", report, words, command_of(report), **shown, **_view(report, words), bar=bar_of.get(words.lang)
        )
        for words in voices
    ]
    return _whole(report, voices, pages, shown["script"], **shown_of(report, voices))


def pairs_html(report: PairsReport, lang: str = "en") -> bytes:
    """Return matrix, groups, tree, and every pair beside its null as one HTML file; the same report gives the same bytes."""
    voices, models, pairs = _voices(lang), report.tree.models, strongest_first(report)
    places = {frozenset((pair.a, pair.b)): number for number, pair in enumerate(pairs)}
    shown: dict[str, Any] = {
        "run": report.tree.run,
        "pairs": pairs,
        "names": [title(model) for model in models],
        "matrix": [(model, [_cell(report, model, other, places) for other in models]) for model in models],
        "groups": [group for group in report.clusters if len(group) > 1],
        "tied": {node for tie in ties(report.tree) for node in (tie.one, tie.two)},
        **_inlined(_PAIRS_STYLES, _PAIRS_SCRIPTS),
    }
    pages = [_page("many.html", report, words, pairs_command(report), **shown, bar=None) for words in voices]
    return _whole(report, voices, pages, shown["script"])


def search_html(report: SearchReport, lang: str = "en", *, bars: Mapping[str, Markup] | None = None) -> bytes:
    """Return the outcome of a search as one HTML file, the answer first; the same report gives the same bytes.

    `bars` as for `report_html`.
    """
    voices, bar_of = _voices(lang), bars or {}
    shown: dict[str, Any] = {
        "run": SimpleNamespace(kinprint=report.made_by.removeprefix("kinprint ")),
        "name": search_words.title(report),
        "entries": f"{report.entries:,}",
        "place": printable(report.catalog, 200),
        "powers": powers,
        **_inlined(_STYLES if bars is None else _SERVED_STYLES, _PAIRS_SCRIPTS, served=bars is not None),
    }
    pages = []
    for words in voices:
        answer, *sections = search_words.search_sections(report, words)
        own = {"answer": answer.blocks, "sections": sections, "bar": bar_of.get(words.lang)}
        pages.append(_page("search.html", report, words, search_command(report), **shown, **own))
    return _whole(report, voices, pages, shown["script"])


def served_policy(*, search: bool = False) -> str:
    """Return the policy of a page with a bar, of a report or of a search, as its server states it too."""
    return _inlined(_SERVED_STYLES, _PAIRS_SCRIPTS if search else _SCRIPTS, served=True)["csp"]


def _voices(lang: str) -> list[PageWords]:
    return [PageWords(each) for each in dict.fromkeys((lang, *LANGUAGES))]


def _page(
    template: str, report: Report | PairsReport | SearchReport, words: PageWords, command: str, **shown: Any
) -> str:
    """Return a page up to its scripts."""
    safe = printable(command, _LONGEST_COMMAND)
    page = environment().get_template(template)
    return page.render(report=report, v=words, command=safe, command_hidden=safe != command, **shown)


def _whole(
    report: Report | PairsReport | SearchReport,
    voices: Sequence[PageWords],
    pages: Sequence[str],
    script: str,
    **shown: Any,
) -> bytes:
    """Return the first of the pages, with what it takes to show the other, and its scripts."""
    data = packed(report, voices, other=differences(*pages), **shown)
    opening = b'<script type="text/plain" id="kinprint-data">'
    end = b"</script>\n<script>%b</script>\n</body>\n</html>\n" % script.encode()
    return b"%b%b%b%b" % (pages[0].encode(), opening, data, end)


def _cell(report: PairsReport, one: TreeModel, two: TreeModel, places: dict[frozenset[int], int]) -> dict[str, Any]:
    """Return one cell of the matrix, and the place of the pair in the list below it."""
    found = verdict_between(report, one, two)
    if found is None:
        return {"class_": None}
    ends = (one.index, two.index) if one.node == two.node else (one.node, two.node)
    class_, stands = found
    return {"class_": class_, "doubtful": not stands, "place": places.get(frozenset(ends))}


def _view(report: Report, words: PageWords) -> dict[str, Any]:
    """Return what the templates show beside the report itself."""
    verdict, evidence = report.verdict, report.evidence
    parts = [item.tested for item in evidence.components] if evidence else []
    return {
        "first": first_screen(report, words),
        "measured": any(item.measurements for item in report.comparisons),
        "compared": any(item.compared for item in report.summary),
        "matched": evidence is not None and any((evidence.edits, evidence.alignment.layers, *parts)),
        "drawn_grids": any(grid.status == OK for grid in report.grids),
        "declares_something": content.declares_something(report.declared),
        "failed": tuple(item for item in evidence.controls if item.status == "failed") if evidence else (),
        "chart": evidence_chart(verdict, evidence, words, _TESTS) if verdict and verdict.tests and evidence else None,
        "layer_map": layer_map_of(report, words),
        "experts_shared": sum(item.shared for item in evidence.experts) if evidence else 0,
        "off_tests": tables.off_tests(evidence.tests) if evidence else (),
        "unlike": content.not_comparable(report.comparisons),
        "tiny": content.tiny_p(report),
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
        declared_states=(UNDECLARED, OTHER_DECLARED, DECLARED, NOT_SHOWN, NOTHING_DECLARED, NOT_JUDGED),
        tree=tree_words,
        middle_cut=middle_cut,
        **{name: getattr(home, name) for home, names in _TABLES.items() for name in names.split()},
    )
    return environment


@cache
def _inlined(styles: tuple[str, ...], scripts: tuple[str, ...], *, served: bool = False) -> dict[str, str]:
    """Return styles and scripts, and the policy that allows these by their digests and nothing else: no request, no form.

    A page that is `served` may send forms to its own server.
    """
    folder = files("kinprint.render.page").joinpath("assets")
    found = {}
    for what, names in (("script", scripts), ("style", styles)):
        text = "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in names)
        found[what] = Markup(text)  # noqa: S704 - files of this package, which hold no untrusted text
    digests = {what: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for what, text in found.items()}
    allowed = "; ".join(f"{what}-src 'sha256-{digest}'" for what, digest in digests.items())
    sent = "'self'" if served else "'none'"
    csp = f"default-src 'none'; {allowed}; img-src data:; base-uri 'none'; form-action {sent}"
    return {**found, "csp": csp}
