"""Run the red team: make each pair, ask `compare --deep`, and hold the answer against the right ones."""

import csv
import io
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path

from kinprint.comparison.pipeline import compare
from kinprint.errors import NotFound
from kinprint.lab.red_team.models import ROOT
from kinprint.lab.red_team.recipe import PRINCIPLES, Recipe, made
from kinprint.lab.zoo.derive import save_state
from kinprint.results import findings
from kinprint.results.options import Options
from kinprint.results.report import Report
from kinprint.sources.settings import Settings

FILE, TITLE, HOW = "red-team.csv", "## Red team", "## How to read this"
_CLAIMS = {
    findings.NOT_TESTABLE: 0, findings.NO_EVIDENCE: 0, findings.SHARES_INITIALISATION: 1, findings.SHARES_COMPONENTS: 2,
    findings.DERIVED: 3, findings.IDENTICAL: 4,
}  # fmt: skip
"""How much a class claims: of a pair that may share nothing, any other claim is an accusation."""
_UNTRAINED = "needs torch"
_COLUMNS = (
    "principle", "recipe", "layers", "intent", "expected", "expected_kinds", "said", "kinds", "log10_p", "right_class",
    "right_kind", "accused", "missed", "wrong",
)  # fmt: skip
_INTRODUCTION = """Pairs made to fool `kinprint compare --deep`, by `kinprint bench red-team`: models of 6, 12 and 24 layers, \
trained or drawn by a generator; honest ones that look alike, and copies that do not. A false accusation says more than is so; one \
whose sentence says that it cannot tell is counted apart, as left open: its class alone would accuse. A kind is right if every \
edit that can be told is named, and none that was not made. Recipes: `tests/support/red_team`."""

Outcome = dict[str, str]
"""One pair by `_COLUMNS`; what is judged is "yes", "no", or empty where it is not asked. ``wrong`` is empty if all is right."""


@cache
def table() -> list[Recipe]:
    """Return the recipes, which stand with the tests as trained models do. Raise NotFound outside a checkout."""
    if not (ROOT / "tests").is_dir():
        raise NotFound("the recipes of the red team are not here", hint="run it in a checkout of kinprint")
    sys.path.append(str(ROOT / "tests"))
    found: list[Recipe] = import_module("support.red_team.recipes").all_recipes()
    return found


def judge(recipe: Recipe, layers: int) -> Outcome:
    """Make a pair, compare it, and say what is wrong."""
    asked = {"principle": str(recipe.principle), "recipe": recipe.name, "layers": str(layers), "intent": recipe.intent}
    asked |= {"expected": " or ".join(recipe.classes), "expected_kinds": " + ".join(recipe.kinds or ())}
    try:
        models = [made(recipe.a, recipe.left, layers), made(recipe.b, recipe.right, layers)]
        models += [parent(layers) for parent in recipe.parents]
    except ModuleNotFoundError:
        return {**dict.fromkeys(_COLUMNS, ""), **asked, "said": _UNTRAINED}
    with tempfile.TemporaryDirectory(prefix="kinprint-red-") as place:
        a, b, *parents = (str(Path(place) / f"model{number}") for number in range(len(models)))
        for folder, model in zip((a, b, *parents), models, strict=True):
            save_state(Path(folder), *model)
        options = Options(budget_bytes=None, metrics=("pearson",), deep=True, parents=tuple(parents))
        orders = [(a, b), (b, a)] if recipe.swapped else [(a, b)]
        reports = [compare(one, two, options, settings=Settings(offline=True, range_cache=None)) for one, two in orders]
    return asked | _judged(recipe, reports)


def _judged(recipe: Recipe, reports: Sequence[Report]) -> Outcome:
    verdict, evidence = reports[0].verdict, reports[0].evidence
    assert verdict is not None and evidence is not None  # noqa: PT018
    said, kinds = verdict.class_, verdict.kinds or ((verdict.kind,) if verdict.kind else ())
    right, (accused, missed) = said in recipe.classes, mistaken(recipe, said)
    left_open = accused and verdict.variant == findings.UNCLEAR
    named = None if recipe.kinds is None else right and _right_kinds(recipe, kinds)
    wrong = [] if right else [f"said {said}{', and that it cannot tell' * left_open}"]
    wrong += [f"kinds {', '.join(kinds) or 'none'}"] if right and named is False else []
    answers = {f"{v.class_} {v.kind} {v.variant} {v.log10_p or 0.0:.3f}" for v in (r.verdict for r in reports) if v}
    wrong += [f"in both orders: {' / '.join(sorted(answers))}"] if len(answers) > 1 else []
    unshared = any(part.component == recipe.unsaid and part.state == "not shared" for part in evidence.components)
    wrong += [f"{recipe.unsaid} called not shared"] if unshared else []
    return {
        "said": said, "kinds": " + ".join(kinds), "log10_p": "" if verdict.log10_p is None else f"{verdict.log10_p:.1f}",
        "right_class": _word(right), "right_kind": _word(named), "accused": "open" if left_open else _word(accused),
        "missed": _word(missed), "wrong": "; ".join(wrong),
    }  # fmt: skip


def mistaken(recipe: Recipe, said: str) -> tuple[bool, bool]:
    """Return whether a class says more than is so, and whether it says less than can be known."""
    claims = [_CLAIMS[name] for name in recipe.classes]
    accused = _CLAIMS[said] > (max(claims) if min(claims) else 0)
    return (False, False) if said in recipe.classes else (accused, not accused)


def _word(flag: bool | None) -> str:
    return "" if flag is None else "yes" if flag else "no"


def _right_kinds(recipe: Recipe, said: Sequence[str]) -> bool:
    asked = [set(kind.split("|")) for kind in recipe.kinds or ()]
    return all(kinds & set(said) for kinds in asked) and set(said) <= set(recipe.may).union(*asked)


def _job(key: tuple[int, int]) -> Outcome:
    return judge(table()[key[0]], key[1])


def run(done: Sequence[Outcome] = (), principles: Sequence[int] = (), workers: int = 1) -> Iterator[Outcome]:
    """Yield the outcome of every pair of the table, or of some principles, that is not done."""
    known = {(item["recipe"], int(item["layers"])) for item in done}
    jobs = [
        (number, layers)
        for number, recipe in enumerate(table())
        for layers in recipe.layers
        if (recipe.name, layers) not in known and (not principles or recipe.principle in principles)
    ]
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        yield from pool.map(_job, jobs)


def to_csv(outcomes: Sequence[Outcome]) -> str:
    """Return outcomes as a table, in the order of principles and recipes."""
    page = io.StringIO()
    writer = csv.DictWriter(page, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(sorted(outcomes, key=lambda item: (int(item["principle"]), item["recipe"], int(item["layers"]))))
    return page.getvalue()


def from_csv(text: str) -> list[Outcome]:
    """Read what `to_csv` wrote."""
    return list(csv.DictReader(io.StringIO(text)))


def section(outcomes: Sequence[Outcome]) -> str:
    """Return the section of a page: counts by principle, and every pair that is wrong."""
    ran = [item for item in outcomes if item["said"] != _UNTRAINED]
    header = ("principle", "pairs", "right class", "right kind", "false accusations", "left open", "missed")
    rows = [header, ("---", *["---:"] * 6)]
    groups = [(f"{key} {name}", [x for x in ran if x["principle"] == str(key)]) for key, name in PRINCIPLES.items()]
    for name, group in [*groups, ("all", ran)]:
        counted = {c: Counter(item[c] for item in group) for c in ("right_class", "right_kind", "accused", "missed")}
        right, kind, accused, missed = (found["yes"] for found in counted.values())
        judged = kind + counted["right_kind"]["no"]
        counts = (right, f"{kind} of {judged}" if judged else "–", accused, counted["accused"]["open"], missed)
        rows.append((name, *map(str, (len(group), *counts))))
    wrong = [
        f"- {x['principle']} {x['recipe']} ({x['layers']} layers, {x['intent']}): expected {x['expected']}"
        f"{', ' * bool(x['expected_kinds'])}{x['expected_kinds']}; {x['wrong']}"
        for x in ran
        if x["wrong"]
    ]
    left_out = [] if len(ran) == len(outcomes) else [f"\nNot run, for want of torch: {len(outcomes) - len(ran)} pairs."]
    grid = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([f"{TITLE}\n\n{_INTRODUCTION}\n\n{grid}\n\nWhat is wrong:\n", *(wrong or ["nothing."]), *left_out])


def placed(page: str, found: str) -> str:
    """Put the section into the page of the lineage benchmark, before how to read it, in place of the one that may be there."""
    before, how, after = page.partition(HOW)
    return f"{before.partition(TITLE)[0]}{found}\n\n{how}{after}"
