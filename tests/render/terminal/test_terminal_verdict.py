"""The verdict as terminal text: everything is on the page, numbers as they are, words of strangers inert."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from kinprint.render.terminal.report import print_report
from kinprint.results.findings import (
    CLASSES,
    ComponentFinding,
    ControlFinding,
    EditFinding,
    Evidence,
    EvidenceTest,
    LayerAlignment,
    LayerFinding,
    MergeFinding,
    PowerFinding,
    Rule,
    Verdict,
)
from kinprint.results.report import Report
from support.places import GOLDEN_REPORTS

HOSTILE = "\x1b[31m[red]x[/red]\x07\u202e\r\nnext"
FORBIDDEN = "\x1b\x07\r\u202e"


REPORT = replace(
    Report.from_json((GOLDEN_REPORTS / "report_v2.json").read_bytes()), summary=(), comparisons=(), methods=()
)


def alignment(kind="blocks", sources=(0, 1, 2, 1, 2, 3)):
    found = [
        LayerFinding(layer, source, 0.97, 80.0, -90.0 if source is not None else 0.0, 4, source is not None)
        for layer, source in enumerate(sources)
    ]
    return LayerAlignment("ok", kind, tuple(found), ("mlp_up",))


VERDICT = Verdict(
    class_="derived",
    kind="depth_changed",
    sentence="One of the two models derives from the other.",
    log10_p=-209.86,
    layer_map=(0, 1, 2, 1, 2, 3),
    reasons=("fixed_points of mlp_up: 128 against 4 expected",),
    against=("the tests are symmetric",),
    untested=("distillation leaves no trace",),
    assumptions=("neurons have no order of their own",),
    rules=(
        Rule("controls", "Did a control fail?", ("self: passed", "shuffled self: passed"), False, "go on"),
        Rule("derived", "Otherwise.", ("mlp_up: changed",), True, "derived"),
    ),
    log10_alpha=-6.0,
    tests=17,
    null="null of 12 models",
)
EVIDENCE = Evidence(
    tests=(
        EvidenceTest("fixed_points", "mlp_up", None, None, 128.0, 4.0, 2.0, 62.0, -141.7, -140.4, 128, 4),
        EvidenceTest("neuron_match", "mlp_gate and mlp_up", 3, None, 250.0, 1.5, 1.1, 220.5, -149.3, -148.0, 256, 1),
        EvidenceTest("norm_joint", "input_norm", status="off", reason="all 4 norms are constant on at least one side"),
    ),
    alignment=alignment(),
    components=(
        ComponentFinding("mlp", "partly shared", 4, 3, -141.0, "neurons were matched one by one"),
        ComponentFinding("norms", "not tested", 0, 0, None, "all 4 norms are constant"),
    ),
    experts=(),
    edits=(EditFinding("mlp_up", "low_rank", 3, 0, 0.99, 41.5, 0.998, 0.987, 0.16, 0.0, 0.0, rank=8),),
    merge=MergeFinding(("base", "other"), (0.7, 0.3), (0.001, 0.002), 0.9987, 0.99, 123_456, "the parents are alike"),
    controls=(
        ControlFinding("self", "identical", "passed", "identical", -140.4, 62.0),
        ControlFinding("some/model", "no_evidence", "not run", None, None, None, "no such model"),
    ),
    power=(
        PowerFinding("fixed_points", "mlp_up", "cosine of rows", 0.1185, 0.95, -7.3, 32, 96, 4),
        PowerFinding(
            "norm_joint", "final_norm", "correlation of norm scales", None, 0.95, -7.3, 96, 96, 1, "too narrow"
        ),
    ),
    stages=("comparison: 40 slices of A and 58 of B", "controls: 1 run"),
)


def page(*, verdict=VERDICT, evidence=EVIDENCE, explain=False, width=160):
    console = Console(file=io.StringIO(), width=width, highlight=False, force_terminal=False)
    print_report(replace(REPORT, verdict=verdict, evidence=evidence), console, details=False, explain=explain)
    return console.file.getvalue()


def cells(text, *starts):
    """Return the words of the one line that begins with these."""
    (found,) = [line.split() for line in text.splitlines() if line.split()[: len(starts)] == list(starts)]
    return found


def test_the_verdict_and_what_it_rests_on():
    text = page()
    assert "Verdict: derived, layers dropped, repeated or moved" in text
    assert VERDICT.sentence in text
    for words in (*VERDICT.reasons, *VERDICT.against, *VERDICT.untested, *VERDICT.assumptions):
        assert words in text
    assert "log10 p -209.9 after Holm's correction for 17 tests; threshold -6" in text
    assert "Empirical null used: null of 12 models" in text


def test_tests_beside_their_nulls():
    text = page()
    row = cells(text, "Rows", "match", "their", "own", "place", "mlp_up", "128", "4")
    assert [float(cell) for cell in row[6:]] == pytest.approx([128, 4, 128.0, 4.0, 2.0, 62.0, -141.7, -140.4])
    assert "mlp_gate and mlp_up, layer 3" in text
    assert (
        "Did not run:\n  · whether norm weights agree (pre-attention norms): all 4 norms are constant on at least one side"
        in text
    )


def test_the_layer_map():
    text = page()
    assert (
        "Layer map: Whole blocks of layers match, joined in a new order. 6 of 6 layers of B match a layer of A" in text
    )
    assert "0: 0, 1: 1, 2: 2, 3: 1, 4: 2, 5: 3" in text
    plain = page(evidence=replace(EVIDENCE, alignment=alignment("identity", (0, 1, 2, 3))))
    assert "Layer map: Layers match in place. 4 of 4" in plain
    assert "3: 1" not in plain
    off = LayerAlignment("off", "none", (), (), "residual widths differ: 96 and 48")
    assert "No layer map was made: residual widths differ: 96 and 48" in page(evidence=replace(EVIDENCE, alignment=off))


def test_parts_edits_merge_controls_and_power():
    text = page()
    assert "3 of 4" in text
    assert "not tested" in text
    assert cells(text, "mlp_up", "low-rank", "update")[-2:] == ["8", "–"]
    assert cells(text, "other", "0.300") == ["other", "0.300", "±", "0.002"]
    assert "the sum explains 99.87% of B" in text
    assert "the parents are alike" in text
    assert "some/model: no such model" in text
    assert "not run" in text
    assert "0.1185" in text
    assert "–" in cells(text, "Norm", "scales", "agree", "final_norm", "correlation")


def test_power_that_is_not_known_says_why():
    assert "too narrow" in page()


def test_explain():
    text = page(explain=True)
    assert "controls: Did a control fail? No, go on." in text
    assert "derived: Otherwise. Yes. Outcome: derived." in text
    for words in ("self: passed", "shuffled self: passed", "mlp_up: changed", *EVIDENCE.stages):
        assert f"  · {words}" in text
    assert text.index("How the verdict was reached") < text.index("Verdict: derived")
    assert "How the verdict was reached" not in page()


@pytest.mark.parametrize("class_", CLASSES)
def test_every_class(class_):
    text = page(verdict=replace(VERDICT, class_=class_, kind=None, null=None))
    assert f"Verdict: {class_.replace('_', ' ')}\n" in text
    assert "Empirical null used" not in text


def test_what_does_not_exist_is_a_dash():
    empty = Evidence((), LayerAlignment("off", "none", (), (), "none"), (), (), (), None, (), (), ())
    verdict = replace(VERDICT, log10_p=None, layer_map=None, reasons=(), against=(), untested=(), assumptions=())
    text = page(verdict=verdict, evidence=empty, explain=True)
    assert "log10 p – after Holm's correction" in text
    assert "Traceback" not in text


def test_long_lists_end_with_how_many_more():
    text = page(verdict=replace(VERDICT, untested=tuple(f"item {number}" for number in range(30))))
    assert "item 11" in text
    assert "item 12" not in text
    assert "and 18 more, in the JSON report" in text


def test_words_of_strangers_are_inert():
    """Names of controls, reasons, scopes and notes come from files and command lines of others."""
    verdict = replace(
        VERDICT, sentence=HOSTILE, reasons=(HOSTILE,), against=(HOSTILE,), untested=(HOSTILE,), assumptions=(HOSTILE,),
        null=HOSTILE, rules=(Rule("controls", HOSTILE, (HOSTILE,), True, "derived"),),
    )  # fmt: skip
    evidence = replace(
        EVIDENCE,
        tests=(replace(EVIDENCE.tests[0], scope=HOSTILE), replace(EVIDENCE.tests[2], reason=HOSTILE)),
        components=(replace(EVIDENCE.components[0], note=HOSTILE),),
        controls=(replace(EVIDENCE.controls[1], name=HOSTILE, reason=HOSTILE),),
        merge=replace(EVIDENCE.merge, parents=(HOSTILE, "other"), note=HOSTILE),
        stages=(HOSTILE,),
    )
    for width in (70, 160):
        text = page(verdict=verdict, evidence=evidence, explain=True, width=width)
        assert [character for character in FORBIDDEN if character in text] == []
        assert all(character.isprintable() or character == "\n" for character in text)
        assert "[red]" in text


@pytest.mark.parametrize("width", [60, 80, 100, 124, 200])
def test_figures_are_never_cut(width):
    text = page(width=width)
    for figure in ("-141.7", "-140.4", "0.1185"):
        assert figure in text
    assert "…" not in text
