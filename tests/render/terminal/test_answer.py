"""The answer to a comparison: golden texts at three widths and in both languages; never over twenty lines of eighty columns."""

import io
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console

import kinprint
from kinprint.render.content.answer import Picture
from kinprint.render.page.first_screen import first_screen
from kinprint.render.page.markup import PageWords
from kinprint.render.terminal.answer import print_answer
from kinprint.text import Text
from support.layouts import write_checkpoint
from support.places import DEMO_MODELS, ROOT

GOLDEN = ROOT / "tests" / "golden"


def answer(report, width=80, lang="en", **more):
    shown = io.StringIO()
    print_answer(report, Console(file=shown, width=width, highlight=False), lang=lang, **more)
    return shown.getvalue()


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("lang", ["en", "ko"])
def test_it_is_the_golden_text(lang, width):
    expected = (GOLDEN / "answers" / f"report_v2.{lang}.{width}.txt").read_text(encoding="utf-8")
    assert answer(kinprint.load(GOLDEN / "report_v2.json"), width, lang) == expected


@cache
def with_base(other):
    return kinprint.compare(DEMO_MODELS / "base", DEMO_MODELS / other)


@pytest.mark.parametrize("lang", ["en", "ko"])
@pytest.mark.parametrize("other", ["unrelated", "finetune", "permuted", "grown", "base"])
def test_it_fits_twenty_lines_of_eighty_columns(other, lang):
    report = with_base(other)
    *lines, command = answer(report, lang=lang).splitlines()
    assert len(lines) < 20
    assert max(map(cell_len, lines)) <= 80
    assert "…" not in "".join(lines)
    assert command.split()[:2] == ["kinprint", "compare"]
    assert report.verdict.class_ != "no_evidence" or "--deep" in command
    assert sum(line.startswith("•") for line in lines) == (2 if other == "base" else 3)  # equal bytes need no odds


def without_layers(report):
    """Return a report in which the layer map and the controls say nothing, so that there is room for the odds."""
    unknown = replace(report.evidence.alignment, layers=())
    return replace(report, evidence=replace(report.evidence, alignment=unknown, controls=()))


def test_what_to_try_next_keeps_what_was_chosen_and_does_not_repeat_the_page():
    report, models = with_base("finetune"), f"{DEMO_MODELS / 'base'} {DEMO_MODELS / 'finetune'}"
    assert answer(report).endswith(f"  kinprint compare --html report.html {models}\n")
    assert answer(report, page=True).endswith(f"  kinprint compare --bundle evidence.zip {models}\n")
    chosen = replace(report, settings=replace(report.settings, deep=True, rows=16))
    assert answer(chosen).splitlines()[-1].split()[2:-2] == ["--html", "report.html", "--rows", "16", "--deep"]


def test_korean_reasons_name_groups_of_roles_in_korean():
    shown = answer(with_base("permuted"), lang="ko")
    assert "잔차 스트림 차원 96개 중 96개가" in shown
    assert "닮았습니다(정규화 가중치 기준)" in shown
    assert "반올림 오차를 제외하면 같은 함수를 계산함" in " ".join(shown.split())


def test_the_drawn_cosine_lies_inside_what_shuffling_gives_for_unrelated_models():
    inside = answer(with_base("unrelated"))
    drawn = next(line for line in inside.splitlines() if "●" in line)
    assert drawn.index("├") < drawn.index("●") < drawn.index("┤")
    beyond = answer(with_base("finetune"))
    drawn = next(line for line in beyond.splitlines() if "●" in line)
    assert drawn.index("┤") < drawn.index("●")


@pytest.mark.parametrize(
    ("x", "shown"),
    [(0.99, "0.9900"), (0.99998, "0.99998"), (1 - 2e-7, "0.9999998"), (1.0, "1.0000"), (1 - 1e-15, "1.0000")],
)
def test_a_cosine_below_one_is_not_written_as_one(x, shown):
    assert Picture("input_norm", 4, x, 0.98, 0.001).figures == {"x": shown, "mean": "0.9800", "sd": "0.0010"}


def test_what_could_not_be_compared_has_its_reason(tmp_path):
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 8, "num_hidden_layers": 1}
    write_checkpoint(tmp_path / "narrow", {"model.norm.weight": np.ones(8, np.float32)}, config=config)
    report = kinprint.compare(DEMO_MODELS / "base", tmp_path / "narrow")
    assert report.verdict.class_ == "not_testable"
    said = answer(report)
    assert said.startswith("Verdict: not testable: their widths differ: 96 and 8\n")
    assert "• Embedding, Output matrix (lm_head), Attention" in said
    assert said.count("nothing could be compared") == 1
    assert first_screen(report, PageWords("en"))["headline"] == "Not testable: their widths differ: 96 and 8"


@pytest.fixture(scope="module")
def unrelated():
    return with_base("unrelated")


def test_no_evidence_says_how_small_a_share_would_have_been_noticed(unrelated):
    assert "If only 15% of the weights of MLP up matrices were common to both" in answer(unrelated, 200)
    unknown = replace(unrelated, evidence=replace(unrelated.evidence, power=()))
    assert "noticed" not in answer(unknown)


def test_a_p_value_short_of_the_threshold_is_not_called_ordinary(unrelated):
    assert "ordinary" in answer(unrelated)
    near = answer(replace(unrelated, verdict=replace(unrelated.verdict, log10_p=-4.2)))
    assert "ordinary" not in near
    assert "falls short of the threshold" in near
    assert "1 in 15,000" in near


def test_places_that_agree_without_signs_have_the_reasons_of_the_verdict(unrelated):
    reasons = (Text("places agree, and signs do not"),)
    verdict = replace(unrelated.verdict, variant="same_structure", log10_p=-40.0, reasons=reasons)
    said = answer(replace(unrelated, verdict=verdict))
    assert "• places agree, and signs do not" in said
    assert "stands out" not in said


@pytest.mark.parametrize("status", ["failed", "not run", None])
def test_controls_are_told_only_if_they_passed(unrelated, status):
    assert "recognise a copy" in answer(unrelated)
    first, *rest = unrelated.evidence.controls
    controls = () if status is None else (replace(first, status=status), *rest)
    said = answer(replace(unrelated, evidence=replace(unrelated.evidence, controls=controls)))
    assert "recognise a copy" not in said


def test_a_figure_that_is_missing_is_not_told_as_zero():
    report = with_base("finetune")
    assert "correlate at" in answer(report)
    tests = tuple(replace(test, null_sd=None) for test in report.evidence.tests)
    assert "correlate at" not in answer(replace(report, evidence=replace(report.evidence, tests=tests)))


@pytest.mark.parametrize(("lang", "said"), [("en", "in fewer than 1 in 10¹⁴⁸ comparisons"), ("ko", "10¹⁴⁸분의 1 미만")])
def test_a_bound_is_called_one(lang, said):
    assert said in answer(without_layers(with_base("finetune")), 200, lang)
    unrelated = answer(with_base("unrelated"), 200, lang)
    assert not any(word in unrelated for word in ("fewer than", "미만"))


def test_equal_bytes_need_no_odds():
    assert "Unrelated models agree" not in answer(with_base("base"), 200)


def test_one_test_is_no_tests():
    for report in (without_layers(with_base("finetune")), with_base("unrelated")):
        said = answer(replace(report, verdict=replace(report.verdict, tests=1)), 200)
        assert "1 tests" not in said
        assert "the one test that ran" in said.lower()


@pytest.mark.parametrize("other", ["finetune", "permuted"])
def test_where_the_budget_was_too_small_a_larger_one_is_proposed(other):
    a, b = DEMO_MODELS / "base", DEMO_MODELS / other
    said = answer(kinprint.compare(a, b, budget="100kB"), 200)
    assert said.endswith(f"  kinprint compare --budget 1MB {a} {b}\n")
    assert " 0 MB" not in said


def with_map(report, *sources, layers=None):
    """Return a report whose layers of B match these of A: one, several, or none."""
    found = report.evidence.alignment
    each = [one if isinstance(one, tuple) else (one,) for one in sources]
    made = tuple(
        replace(found.layers[0], layer=layer, source=first, also=tuple(also), shared=first is not None)
        for layer, (first, *also) in enumerate(each)
    )
    evidence = replace(report.evidence, alignment=replace(found, layers=made))
    return replace(report, evidence=evidence, b=replace(report.b, layers=layers or len(made)))


@pytest.mark.parametrize(
    ("sources", "layers", "said"),
    [
        ((0, 1, 2), None, "All 3 layers of B match the layer at the same place in A."),
        ((0, 1, 0, 1), None, "Layers 0–3 of B match layers 0, 1, 0, 1 of A, in this order."),
        ((0, (1, 3), 5), None, "Layers 0–2 of B match layers 0, 1+3, 5 of A, in this order."),
        ((*range(10), *range(5, 12)), None, "Layers 0–16 of B match layers 0–9, 5–11 of A, in this order."),
        ((0, None, 2), None, "2 of 3 layers of B match a layer of A."),
        ((0, 1), 8, "2 of 2 layers of B that were read match a layer of A."),
    ],
)
def test_the_layer_map_is_the_first_reason_as_far_as_it_is_known(sources, layers, said):
    shown = answer(with_map(with_base("finetune"), *sources, layers=layers), 200)
    assert next(line for line in shown.splitlines() if line.startswith("•")) == f"• {said}"


def test_the_readme_shows_what_is_printed(monkeypatch):
    monkeypatch.chdir(ROOT)
    shown = (
        (ROOT / "README.md")
        .read_text(encoding="utf-8")
        .split("$ kinprint compare demo/models/base demo/models/grown\n")[1]
    )
    assert answer(kinprint.compare("demo/models/base", "demo/models/grown")).startswith(shown.split("```")[0])
