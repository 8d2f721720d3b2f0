"""The command in a report: a shell and kinprint's own parser read it back as what the report says was asked."""

import shlex
from dataclasses import fields, replace

import pytest

from kinprint._util.sizes import parse_size
from kinprint.cli.compare import compare_command
from kinprint.refs import parse_ref
from kinprint.render.repeat_command import command_of, pinned
from kinprint.results.options import Options, written_size
from kinprint.results.report import Report
from support.places import GOLDEN_REPORTS

GOLDEN = GOLDEN_REPORTS / "report_v1_annexes.json"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
ENDPOINT = "https://hub.example"
SETTINGS = Options(
    budget_bytes=64_000_000,
    rows=16,
    experts=2,
    layers="0,2-5",
    roles=("input_norm", "mlp_up"),
    metrics=("cosine", "pearson"),
    seed=3,
    controls=("some/where", "a folder; rm -rf ~"),
    related=("x/y",),
    parents=("-odd",),
    deep=True,
    methods=("reef",),
    files=("model.gguf",),
    bases=("base/one",),
    null="null $(id).json",
)


@pytest.fixture(scope="module")
def report() -> Report:
    return replace(Report.from_json(GOLDEN.read_bytes()), settings=SETTINGS)


def parsed(report: Report) -> dict[str, object]:
    """Read the command as a shell does, then as kinprint does."""
    program, command, *words = shlex.split(command_of(report))
    assert (program, command) == ("kinprint", "compare")
    with compare_command.make_context("compare", words) as context:
        return context.params


def models(found: dict[str, object]) -> tuple[str, ...]:
    """Return the models of a command, however its arguments are called."""
    named = found.get("models")
    return tuple(named) if isinstance(named, (tuple, list)) else (str(found["a"]), str(found["b"]))


def test_every_setting_comes_back(report: Report) -> None:
    found = parsed(report)
    assert models(found) == (report.a.reference, report.b.reference)
    assert Options(**{item.name: found[item.name] for item in fields(Options)}) == SETTINGS


def test_no_budget_stays_none(report: Report) -> None:
    assert parsed(replace(report, settings=replace(SETTINGS, budget_bytes=None)))["budget_bytes"] is None


@pytest.mark.parametrize("name", ["a b", "'; rm -rf ~ #", "$(id)", "-x", "--deep", 'q"q', "x\ny", "\u202egnp", ""])
def test_a_hostile_name_stays_one_argument(report: Report, name: str) -> None:
    hostile = replace(report, a=replace(report.a, reference=name, kind="folder"))
    assert models(parsed(hostile))[0] == name


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("own/name", f"own/name@{COMMIT}"),
        ("own/name@main", f"own/name@{COMMIT}"),
        ("hf://own/name", f"hf://own/name@{COMMIT}"),
        ("hf://models/own/name@v1", f"hf://own/name@{COMMIT}"),
        ("hf://own/name/sub/x.gguf", f"hf://own/name@{COMMIT}/sub/x.gguf"),
        ("hf://own/name@v1/x.gguf", f"hf://own/name@{COMMIT}/x.gguf"),
        (f"{ENDPOINT}/own/name", f"{ENDPOINT}/own/name/tree/{COMMIT}"),
        (f"{ENDPOINT}/own/name/tree/main", f"{ENDPOINT}/own/name/tree/{COMMIT}"),
        (f"{ENDPOINT}/own/name/blob/main/sub/x.gguf", f"{ENDPOINT}/own/name/blob/{COMMIT}/sub/x.gguf"),
    ],
)
def test_models_of_the_hub_are_pinned(report: Report, reference: str, expected: str) -> None:
    model = replace(report.a, reference=reference, kind="hub", commit=COMMIT)
    assert pinned(model) == expected
    before, after = parse_ref(reference, endpoint=ENDPOINT), parse_ref(expected, endpoint=ENDPOINT)
    assert (after.repo, after.revision, after.file) == (before.repo, COMMIT, before.file)


@pytest.mark.parametrize("kind", ["folder", "file", "url"])
def test_other_models_stand_as_they_were_named(report: Report, kind: str) -> None:
    assert pinned(replace(report.a, reference="where/it is", kind=kind, commit=COMMIT)) == "where/it is"


@pytest.mark.parametrize("count", [1, 999, 1000, 4096, 64_000_000, 128 << 20, 3 * 10**9])
def test_budgets_are_written_without_rounding(count: int) -> None:
    assert parse_size(written_size(count)) == count
