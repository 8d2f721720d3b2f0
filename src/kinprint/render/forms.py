"""List every form in which a result is written or shown, with the function for each type of result.

A new form is one line of `_FORMS` and one file, ``render/<room>/report.py`` (CONTRIBUTING.md). Nothing is imported before a form
is asked for: `kinprint --help` reads this table.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kinprint._util.files import write_whole
from kinprint._util.records import dataclass
from kinprint.errors import BadSelection, NeedsExtra

if TYPE_CHECKING:
    from rich.console import Console

PAIR_TABLES = ("measurements", "tests", "layers")
ALL_PAIRS_TABLE = "verdicts"
SEARCH_TABLE = "found"
TABLES = {"Report": PAIR_TABLES, "PairsReport": (ALL_PAIRS_TABLE,), "SearchReport": (SEARCH_TABLE,)}
"""Tables by type of result, the first by default: of two models, of many, and of a search."""

_TO_JSON = "to_json"  # a method: every result writes its own JSON
_RESULTS = (
    "Report",
    "PairsReport",
    "FamilyTree",
    "Inspection",
    "Verification",
    "FingerprintReport",
    "ScanReport",
    "FamilyGraph",
    "SearchReport",
)


@dataclass(frozen=True)
class Form:
    """One way to write a result."""

    name: str  # as an option of the command line and in Python
    suffixes: tuple[str, ...]  # of its files
    makers: Mapping[str, str]  # ``module:function``, or the name of a method, by type of result
    about: str  # one sentence
    needs: tuple[str, str] | None = None  # package, and the extra that installs it
    tables: bool = False  # whether a file holds one table among several

    @property
    def option(self) -> str:
        """Name as typed on the command line."""
        return f"--{self.name}"

    def require(self) -> None:
        """Raise NeedsExtra if the package of the form is not installed."""
        if self.needs is not None and find_spec(self.needs[0]) is None:
            raise NeedsExtra(self.option, extra=self.needs[1])


def _form(name: str, suffixes: str, room: str, about: str, **more: Any) -> Form:
    """Return a form of reports on two and on many models, and of `others`, whose functions stand where convention says."""
    functions = {"Report": f"report_{name}", "PairsReport": f"pairs_{name}", **more.pop("others", {})}
    makers = {kind: f"kinprint.render.{room}.report:{function}" for kind, function in functions.items()}
    return Form(name, tuple(suffixes.split()), makers, about, **more)


_IN_NOTEBOOKS = {
    "FamilyTree": "tree_notebook",
    "Inspection": "inspection_notebook",
    "SearchReport": "search_notebook",
}
_SEARCHES = {name: {"SearchReport": f"search_{name}"} for name in ("html", "markdown", "csv", "parquet")}
_TREE_SVG = {"FamilyTree": "kinprint.render.drawing.tree_svg:tree_svg"}
_GRAPHML = {"FamilyGraph": "kinprint.render.drawing.graphml:graph_graphml"}
_PARQUET, _BOM = ("pyarrow", "parquet"), ("cyclonedx", "bom")
_FORMS = (
    _form(
        "html",
        ".html .htm",
        "page",
        "Write the report as one HTML file that needs no network.",
        others=_SEARCHES["html"],
    ),
    _form("markdown", ".md .markdown", "markdown", "Write the report as Markdown.", others=_SEARCHES["markdown"]),
    _form("csv", ".csv", "tables", "Write a CSV table (see --table).", tables=True, others=_SEARCHES["csv"]),
    _form(
        "parquet",
        ".parquet",
        "tables",
        "Write a Parquet table (see --table).",
        tables=True,
        needs=_PARQUET,
        others=_SEARCHES["parquet"],
    ),
    _form(
        "cyclonedx", ".cdx.json .bom.json", "bom", "Write a CycloneDX ML-BOM with pedigree and verdicts.", needs=_BOM
    ),
    _form("sarif", ".sarif .sarif.json", "sarif", "Write findings for code-scanning tools (SARIF 2.1.0)."),
    Form("json", (".json",), dict.fromkeys(_RESULTS, _TO_JSON), "Write all data as JSON."),
    Form("graphml", (".graphml",), _GRAPHML, "Write the family graph for programs that draw graphs."),
    Form("svg", (".svg",), _TREE_SVG, "Write the drawing of the tree."),
    _form("notebook", "", "notebook", "What a notebook shows.", others=_IN_NOTEBOOKS),
)
FORMS = {form.name: form for form in _FORMS}
"""All forms by name."""

REPORT_FORMS = tuple(form for form in _FORMS if "Report" in form.makers and form.suffixes and form.name != "json")
"""Forms of reports that the command line has an option for; JSON is what --out writes."""

_PRINTERS = {
    "Report": "report:print_report",
    "PairsReport": "report:print_pairs",
    "FamilyTree": "tree:print_tree",
    "Inspection": "report:print_inspection",
    "Verification": "verification:print_verification",
    "FingerprintReport": "fingerprints:print_fingerprint_report",
    "ScanReport": "scan:print_scan",
    "FamilyGraph": "graph:print_graph",
    "SearchReport": "search:print_search",
}
TERMINAL = {kind: f"kinprint.render.terminal.{place}" for kind, place in _PRINTERS.items()}
"""What prints a result in a terminal, by its type."""


def make(result: object, name: str, *, lang: str = "en", table: str | None = None) -> bytes:
    """Return a result in the form `name`, its sentences in `lang`, or one `table` of it in forms that hold one.

    Raises BadSelection if there is no such form of this result, NeedsExtra if the form needs a package that is not installed.
    """
    form, kind = FORMS.get(name), type(result).__name__
    if form is None or kind not in form.makers:
        fitting = ", ".join(item.name for item in _FORMS if kind in item.makers)
        raise BadSelection(f"there is no form {name!r} of {_a(kind)}", hint=f"its forms: {fitting}")
    if table is not None and not form.tables:
        raise BadSelection(f"{name} holds no table, so {table!r} cannot be chosen")
    chosen = {"table": checked_table(result, table)} if form.tables else {}
    form.require()
    maker = form.makers[kind]
    made = getattr(result, maker)() if maker == _TO_JSON else in_language(found(maker), lang)(result, **chosen)
    return made.encode() if isinstance(made, str) else bytes(made)


def _a(kind: str) -> str:
    return f"{'an' if kind[0] in 'AEIOU' else 'a'} {kind}"


def checked_table(result: object, table: str | None) -> str:
    """Return the table that was chosen of a result, by default its first; raise BadSelection if there is no such table."""
    kind = type(result).__name__
    known = TABLES.get(kind, ())
    if not known or table not in (None, *known):
        hint = f"its tables: {', '.join(known)}" if known else f"those that have tables: {', '.join(TABLES)}"
        raise BadSelection(f"{_a(kind)} has no table {table!r}" if table else f"{_a(kind)} has no tables", hint=hint)
    return table or known[0]


def save(
    result: object, path: str | Path, *, form: str | None = None, lang: str = "en", table: str | None = None
) -> Path:
    """Write a result to a file, whole or not at all, in the form that its name ends in, or in `form`."""
    target = Path(path)
    write_whole(target, make(result, form or form_of(target.name).name, lang=lang, table=table))
    return target


def form_of(file: str) -> Form:
    """Return the form with the longest suffix that a file's name ends in; raise BadSelection if there is none."""
    suffixes = {end: form for form in _FORMS for end in form.suffixes}
    fitting = [end for end in suffixes if file.lower().endswith(end)]
    if not fitting:
        hint = f"known: {', '.join(suffixes)}; or name the form"
        raise BadSelection(f"cannot tell from {file!r} which form to write", hint=hint)
    return suffixes[max(fitting, key=len)]


def show(result: object, console: Console, *, lang: str = "en", **details: Any) -> None:
    """Print a result in a terminal."""
    in_language(found(TERMINAL[type(result).__name__]), lang)(result, console, **details)


def in_language(function: Callable[..., Any], lang: str) -> Callable[..., Any]:
    """Return a function of a form with its language set, if it takes one."""
    return partial(function, lang=lang) if "lang" in inspect.signature(function).parameters else function


def found(place: str) -> Callable[..., Any]:
    """Return the function at ``module:function``."""
    module, name = place.split(":")
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return function
