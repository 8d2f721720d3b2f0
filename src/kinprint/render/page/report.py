"""One self-contained HTML file from a report: templates, style and scripts inlined, nothing else allowed to load."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from kinprint._util.plain import printable
from kinprint._util.sizes import format_size
from kinprint.render.page import views
from kinprint.render.page.evidence_chart import picture_of
from kinprint.render.page.layer_map import experts_shared, layer_map_of
from kinprint.render.page.markup import Voice, middle_cut, ranges
from kinprint.render.page.payload import payload_of
from kinprint.render.repeat_command import command_of
from kinprint.render.terminal.layout import DASH
from kinprint.results.context import DECLARED, NOT_JUDGED, NOT_SHOWN, NOTHING_DECLARED, OTHER_DECLARED, UNDECLARED
from kinprint.results.findings import CLASSES
from kinprint.results.options import SIZE, options_of
from kinprint.results.report import Report

_SCRIPTS = ("core.js", "rows.js", "chart.js", "heat.js", "page.js")
_STYLES = ("page.css", "print.css")
_STATES = frozenset({"shared", "partly shared", "not shared", "not tested", "passed", "failed", "not run"})
_LONGEST_COMMAND = 8000


def report_html(report: Report, *, lang: str = "en") -> bytes:
    """Return the report as one HTML file in the language `lang`; the same report gives the same bytes."""
    voice = Voice(lang)
    page = environment().get_template("page.html")
    command = command_of(report)
    shown = printable(command, _LONGEST_COMMAND)
    settings = report.settings
    text = page.render(
        report=report,
        run=report.run,
        v=voice,
        title=_title(report, voice),
        payload=payload_of(report, voice),
        command=shown,
        command_hidden=shown != command,
        named_only=bool(settings.controls or settings.related or settings.parents or settings.bases),
        date=printable(report.run.started[:10], 10),
        **inlined(_STYLES, _SCRIPTS),
        **_view(report, voice),
    )
    return text.encode()


def _view(report: Report, voice: Voice) -> dict[str, Any]:
    """Return what the templates show beside the report itself."""
    verdict, evidence = report.verdict, report.evidence
    return {
        "sure": views.certainty(verdict, voice) if verdict else "",
        "limits": (*verdict.against, *verdict.untested) if verdict else (),
        "declares_something": views.declares_something(report.declared),
        "failed": views.failed(evidence),
        "picture": picture_of(verdict, evidence, voice),
        "layer_map": layer_map_of(report, voice),
        "experts_shared": experts_shared(evidence) if evidence else 0,
        "off_tests": views.off_tests(evidence),
        "unlike": views.not_comparable(report.comparisons),
        "example": views.example_of(report.comparisons),
        "assumptions": views.assumptions_of(report),
        "grid_assumptions": tuple(dict.fromkeys(text for grid in report.grids for text in grid.assumptions)),
        "settings": _settings(report),
    }


def _settings(report: Report) -> list[tuple[str, str]]:
    """Return every option of the comparison with its value as people read it."""
    found = []
    for name, described in options_of(report.settings):
        value = getattr(report.settings, name)
        size = described.written == SIZE and value is not None
        shown = format_size(value) if size else ", ".join(value) if isinstance(value, tuple) else described.text(value)
        found.append((name, shown if shown and value is not None else DASH))
    return found


def _title(report: Report, voice: Voice) -> str:
    a, b = (middle_cut(printable(model.reference, 400), 60) for model in (report.a, report.b))
    return voice.t("title", a=a, b=b)


@cache
def environment() -> Environment:
    """Return the templates' environment: everything is escaped, and a name that does not exist is an error."""
    environment = Environment(
        loader=PackageLoader("kinprint.render.page", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
    )
    environment.globals.update(
        printable=printable,
        size=format_size,
        share=_share,
        ranges=ranges,
        classes=CLASSES,
        known_states=_STATES,
        declared_states=(UNDECLARED, OTHER_DECLARED, DECLARED, NOT_SHOWN, NOTHING_DECLARED, NOT_JUDGED),
        statistic_of=views.statistic_of,
        deciding=views.deciding,
        null_kind=views.null_kind,
        shown_spans=views.shown_spans,
        headline=views.headline,
    )
    return environment


def _share(value: float | None) -> str:
    return DASH if value is None else f"{100 * value:.4g} %"


def inlined(styles: tuple[str, ...], scripts: tuple[str, ...]) -> dict[str, str]:
    """Return styles and scripts, and the policy that lets a browser use these and nothing else."""
    style, script = _asset(styles), _asset(scripts)
    # files of this package, which hold no text of strangers
    return {"style": Markup(style), "script": Markup(script), "csp": _policy(style, script)}  # noqa: S704


@cache
def _asset(names: tuple[str, ...]) -> str:
    folder = files("kinprint.render.page").joinpath("assets")
    return "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in names)


def _policy(style: str, script: str) -> str:
    """Allow the two inlined texts by their digests, and nothing else: no request, no other script, no form."""
    allowed = {"script-src": script, "style-src": style}
    digests = "; ".join(f"{what} 'sha256-{_digest(text)}'" for what, text in allowed.items())
    return f"default-src 'none'; {digests}; img-src data:; base-uri 'none'; form-action 'none'"


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
