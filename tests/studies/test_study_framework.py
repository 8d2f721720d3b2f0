"""What all studies share: sentences, checks, casting, reading once, and the command."""

import ast
import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import kinprint.studies
from kinprint.arch import Role
from kinprint.cli.main import main
from kinprint.errors import BadSelection
from kinprint.model.reader import Want
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings
from kinprint.studies.opened import Request, read_layers
from kinprint.studies.outcome import (
    Check,
    Missing,
    Section,
    columns,
)
from kinprint.studies.recipe import Part, Study, all_studies, run_study
from kinprint.studies.studied_models import choose_models, look
from kinprint.studies.writing import write_outcome
from kinprint.text import Text, has_words, places, translations
from support.hub import HubServer
from support.korean import wrong_korean
from support.outcomes import table

# ---- sentences ----


def test_a_sentence_in_two_languages():
    text = Text("{model} has no layer {layer}: it has layers 0 to {last}", model="Phi", layer=40, last=31)
    assert text.render() == "Phi has no layer 40: it has layers 0 to 31"
    korean = text.render("ko")
    assert "Phi" in korean
    assert "40" in korean
    assert "layer" not in korean


def test_what_has_no_translation_stays_english():
    assert Text("never translated {x}", x=1).render("ko") == "never translated 1"


def test_a_sentence_inside_a_sentence_is_translated_too():
    assert Text("{trust}: {why}", trust=Text("text only"), why="x").render("ko").startswith("본문에만 있음")


def test_translations_use_the_same_fields():
    wrong = [english for english, korean in translations("ko").items() if set(places(english)) != set(places(korean))]
    assert wrong == []
    assert len(translations("ko")) > 40


def said_anywhere():
    """Return every sentence and heading that stands in the studies' code, with the file it stands in."""
    found = {}
    for file in Path(kinprint.studies.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            called = (
                getattr(node.func, "id", "") or getattr(node.func, "attr", "") if isinstance(node, ast.Call) else ""
            )
            place = {"Text": 0, "Missing": 0, "note": 0, "_part": 1, "column": 1}.get(called)
            if place is not None and len(node.args) > place and isinstance(node.args[place], ast.Constant):
                found[node.args[place].value] = file.name
            if called == "columns" and isinstance(node.args[0], ast.Constant):
                found |= dict.fromkeys((str(item.heading) for item in columns(node.args[0].value)), file.name)
    for file in Path(kinprint.studies.__file__).parent.rglob("claims.json"):
        for claim in itertools.chain.from_iterable(json.loads(file.read_text(encoding="utf-8")).values()):
            said = (claim[key] for key in ("what", "reason", "free") if key in claim)
            found |= {template: str(file) for template in said if has_words(template)}
    for file in Path(kinprint.studies.__file__).parent.rglob("pictures.json"):
        pictures = json.loads(file.read_text(encoding="utf-8")).values()
        found |= {picture["caption"]: str(file) for picture in pictures}
    return found


def test_every_sentence_has_a_korean_one():
    said, korean = said_anywhere(), translations("ko")
    assert len(said) > 500
    assert {template: file for template, file in said.items() if template not in korean} == {}


# ---- checks ----


@pytest.mark.parametrize(
    ("published", "measured", "digits", "agrees"),
    [
        (0.9811, 0.98119, 4, True),
        (0.9811, 0.98121, 4, False),
        (0.98, 0.985, 2, True),
        (0.98, 0.9852, 2, False),
        (1.0, None, 2, None),
    ],
)
def test_a_check_agrees_within_what_rounding_hides(published, measured, digits, agrees):
    assert Check(Text("x"), published, measured, digits).agrees is agrees


def test_another_tolerance():
    assert Check(Text("x"), 5.69, 5.58, 2, within=0.2).agrees
    assert not Check(Text("x"), 5.69, 5.48, 2, within=0.2).agrees


def test_a_value_that_is_free_has_no_result():
    assert Check(Text("x"), 5.69, 5.69, 2, comparable=False).agrees is None


def test_a_row_of_the_wrong_length_is_a_bug():
    with pytest.raises(ValueError, match="2 columns, but a row of 1"):
        table("t", Text("t"), columns("a; b"), [(1,)])


def test_columns_from_text():
    found = columns("layer; null_mean: cosine if independent .4; gap: mean |a − b|, columns permuted: mean .2e")
    assert [(item.key, str(item.heading), item.digits, item.scientific) for item in found] == [
        ("layer", "layer", None, False),
        ("null_mean", "cosine if independent", 4, False),
        ("gap", "mean |a − b|, columns permuted: mean", 2, True),
    ]
    with pytest.raises(ValueError, match="expected a column as 'key: heading"):
        columns("layer; a b: c")


# ---- who takes part ----


def test_models_chosen():
    known = choose_models((), ("Solar", "GLM"))
    assert [(item.name, item.reference) for item in known] == [
        ("Solar", "upstage/Solar-Open-100B"),
        ("GLM", "zai-org/GLM-4.5-Air"),
    ]
    given = choose_models(("Solar", "hf://zai-org/GLM-4.5-Air@main", "mine=some/folder", "./a/b"), ())
    assert [(item.name, item.known is not None) for item in given] == [
        ("Solar", True),
        ("GLM", True),
        ("mine", False),
        ("b", False),
    ]


def test_a_replica_stands_for_its_model():
    assert (
        choose_models(("Solar=/somewhere/upstage/Solar-Open-100B",), ())[0].known is None
    )  # a folder may call itself anything
    assert choose_models(("Solar=/somewhere",), (), replicas=True)[0].known.repo == "upstage/Solar-Open-100B"


def test_two_models_of_one_name():
    with pytest.raises(BadSelection, match="two models are called 'b'"):
        choose_models(("x/b", "y/b"), ())


def test_unknown_models_get_looks_of_their_own():
    assert look("Solar") != look("GLM")
    assert look("one", 0) != look("two", 1)


@pytest.mark.parametrize(("text", "layers"), [(None, None), ("0,5,2-3", (0, 2, 3, 5)), ("70", (70,))])
def test_layers_as_people_write_them(text, layers):
    assert read_layers(text) == layers


# ---- reading ----


def probing(*parts):
    """A study that reads both norms of all layers, and runs `parts`."""

    def wants(run):
        for name in run.names:
            for role in (Role.INPUT_NORM, Role.POST_ATTENTION_NORM):
                yield from ((name, Want(role, layer)) for layer in run.layers(name, role))

    made = tuple(Part(f"p{n}", Text("p"), run) for n, run in enumerate(parts))
    return Study("probing", Text("t"), Text("s"), Text("x"), (), wants, made)


@pytest.fixture
def run_probe(tiny_models, monkeypatch):
    def run(names, *parts, session=None, references=None, **request):
        monkeypatch.setitem(all_studies(), "probing", probing(*parts))
        chosen = references or tuple(f"{name}={tiny_models[name]}" for name in names)
        with Session(Settings(range_cache=None)) as own:
            return run_study("probing", session or own, models=chosen, request=Request(**request))

    return run


def test_values_and_what_is_missing(run_probe):
    seen = {}

    def look_at(run):
        layers, left, _ = run.stacks("first", "second", Role.INPUT_NORM)
        seen["layers"], seen["shape"] = layers, left.shape
        seen["direct"] = np.array_equal(left[2], run.values("first", Role.INPUT_NORM, 2))
        return Section(notes=[Text("fine")])

    def no_role(run):
        run.stack("nopost", Role.POST_ATTENTION_NORM)

    def no_layer(run):
        run.values("shallow", Role.INPUT_NORM, 5)

    def other_width(run):
        run.stacks("first", "narrow", Role.INPUT_NORM)

    def no_model(run):
        run.model("absent")

    names = ("first", "second", "nopost", "shallow", "narrow")
    outcome = run_probe(names, look_at, no_role, no_layer, other_width, no_model)
    assert seen == {"layers": (0, 1, 2, 3, 4, 5), "shape": (6, 64), "direct": True}
    assert [str(text) for _, text in outcome.missing] == [
        "nopost has no tensor of the role post_attention_norm",
        "shallow has no layer 5: it has layers 0 to 2",
        "first and narrow are not comparable: their vectors have 64 and 48 elements",
        "absent is not among the models of this run",
    ]
    assert [str(note) for note in outcome.parts[0].section.notes] == ["fine"]


def test_a_model_that_cannot_be_opened_leaves_the_others(run_probe, tiny_models, tmp_path):
    def look_at(run):
        assert run.names == ("first",)
        run.model("gone")

    references = (f"first={tiny_models['first']}", f"gone={tmp_path / 'gone'}")
    outcome = run_probe((), look_at, references=references)
    assert "gone could not be opened: no such file or folder" in str(outcome.missing[0][1])
    assert outcome.models[1].problem is not None


def test_each_tensor_is_read_once(run_probe, tiny_models):
    def twice(run):
        for name in run.names:
            run.stack(name, Role.INPUT_NORM)
            run.read_ahead([(name, Want(Role.INPUT_NORM, layer)) for layer in range(6)])
        return Section()

    with HubServer() as server:
        for name in ("first", "second"):
            server.add_repo(f"tiny/{name}", tiny_models[name])
        with Session(Settings(endpoint=server.endpoint, range_cache=None)) as session:
            run_probe((), twice, twice, session=session, references=("tiny/first", "tiny/second"))
            norms = 2 * 2 * 6 * 64 * 4
            headers = sum(file.stat().st_size for n in ("first", "second") for file in tiny_models[n].glob("*.json"))
            assert norms <= session.bytes_delivered <= norms + headers + 2 * 65_536


def test_results_of_one_name_stay_apart(run_probe, tmp_path):
    def one(_stage):
        return Section(tables=[table("a_b_c", Text("T"), columns("n"), [(1,)])])

    def two(_stage):
        return Section(tables=[table("A_b_c", Text("T"), columns("n"), [(2,)])])

    outcome = run_probe(("first",), one, two)
    write_outcome(outcome, tmp_path)
    assert sorted(path.name for path in (tmp_path / "tables").iterdir()) == ["A_b_c-2.csv", "a_b_c.csv"]


# ---- the command ----


def test_the_list():
    found = CliRunner().invoke(main, ["study", "--list"], standalone_mode=False)
    assert found.exception is None
    for name in ("baselines", "metrics", "bias", "sanity", "origin", "toy-init", "scale"):
        assert f"{name} " in found.output


def test_an_unknown_study():
    found = CliRunner().invoke(main, ["study", "baseline"], standalone_mode=False)
    assert isinstance(found.exception, BadSelection)
    assert "did you mean 'baselines'" in found.exception.hint


@pytest.mark.nightly
@pytest.mark.parametrize("study", ["sanity", "bias"])
def test_what_needs_no_model_does_not_count_as_found(study, tmp_path):
    arguments = ["study", study, "--models", f"x={tmp_path / 'gone'}", "--out", str(tmp_path / "out"), "-q"]
    found = CliRunner().invoke(main, arguments, standalone_mode=False)
    assert found.return_value == 7


@pytest.mark.slow
@pytest.mark.nightly
def test_a_model_called_anything(tiny_models, tmp_path):
    names = "a$\\frac$", "<b>[x](y)"
    models = ",".join(f"{name}={tiny_models[key]}" for name, key in zip(names, ("first", "second"), strict=True))
    arguments = ["study", "sanity", "--models", models, "--out", str(tmp_path / "out"), "-q"]
    found = CliRunner().invoke(main, arguments, standalone_mode=False)
    assert found.return_value == 0, found.output
    page = (tmp_path / "out" / "RESULTS.md").read_text()
    assert "<b>" not in page
    assert "](y)" not in page.replace("\\](y)", "")


def test_replicas_and_models_exclude_each_other():
    found = CliRunner().invoke(main, ["study", "sanity", "--replicas", "--models", "x"])
    assert found.exit_code == 2
    assert "exclude each other" in found.output


def test_a_study_from_the_command_line(tiny_models, tmp_path):
    models = f"first={tiny_models['first']},child={tiny_models['child']}"
    arguments = ["study", "sanity", "--models", models, "--out", str(tmp_path / "out"), "--lang", "ko", "-q"]
    found = CliRunner().invoke(main, arguments, standalone_mode=False)
    assert found.return_value == 0, found.output
    assert re.search(r"^sanity: 텐서 \d+쌍 중 \d+쌍은", found.stdout, re.MULTILINE)
    assert "not drawn" not in found.stderr
    page = (tmp_path / "out" / "RESULTS.md").read_text()
    assert "first" in page
    assert "kB" in page
    assert wrong_korean(*page.splitlines()) == []
    assert (tmp_path / "out" / "figures" / "synthetic.png").stat().st_size > 5000
    assert (tmp_path / "out" / "figures" / "synthetic.svg").stat().st_size > 5000


def test_every_study_is_described():
    for study in all_studies().values():
        assert study.parts
        assert len(str(study.summary)) > 40
        assert str(study.title.render("ko")) != str(study.title)
        assert isinstance(study, Study)


def test_missing_says_so():
    assert Missing(Text("x")).exit_code == 7


@pytest.mark.slow
@pytest.mark.parametrize(
    "study",
    [
        "baselines",
        "metrics",
        "sanity",
        "scale",
        *(pytest.param(name, marks=pytest.mark.nightly) for name in ("bias", "origin")),
    ],
)
def test_each_study_reads_a_tensor_once(run_on_replicas, study):
    assert run_on_replicas(study).parts
    total, twice = run_on_replicas.bytes[study]
    assert total > 1_000_000
    assert twice < 0.005 * total  # the first read of a header goes a little beyond it
