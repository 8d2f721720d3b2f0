"""Tables: hostile names are shown inert, numbers as they are."""

import io
import json
import os
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from kinprint._util.plain import printable
from kinprint.comparison.pipeline import compare
from kinprint.model.inspection import inspect
from kinprint.render.terminal.cache import print_cache
from kinprint.render.terminal.report import MOST_NAMES, print_inspection, print_report
from kinprint.render.texts.words import Words
from kinprint.results.measurements import Skipped
from kinprint.results.options import Options
from kinprint.results.p_values import PMethod
from kinprint.results.report import Report
from kinprint.sources.settings import Settings
from support.layouts import write_checkpoint
from support.places import DEMO_MODELS

HOSTILE = [
    "[red]x[/red]",
    "[/]",
    "[link=file:///etc/passwd]y[/link]",
    "<script>alert(1)</script>",
    "new\nline\r\nagain",
    "\x1b[31mred\x1b[0m\x1b]0;title\x07",
    "\u202eright to left\u202c\u2066",
    "nul\x00byte\x7f\x9b31m",
    "zero\u200bwidth",
    "x" * 10_000,
    "漢字 🧬 é",
    "../../etc/passwd",
    " ",
]
FORBIDDEN = "\x1b\x00\x07\x7f\x9b\r\u202e\u202c\u2066\u200b"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A model whose names, config and tokenizer are as unfriendly as can be."""
    rng = np.random.default_rng(1)
    tensors = {name: rng.random(4).astype(np.float32) for name in HOSTILE}
    for layer in range(2):
        tensors[f"model.layers.{layer}.input_layernorm.weight"] = rng.random(64).astype(np.float32)
    config = {"model_type": "llama\x1b[31m", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config |= {name: name for name in HOSTILE}
    tokenizer = {"model": {"type": "\x1b[31m[red]", "vocab": {name: i for i, name in enumerate(HOSTILE)}}}
    folder = tmp_path_factory.mktemp("hostile")
    write_checkpoint(folder / "m", tensors, config, tokenizer=tokenizer)
    other = {"model.layers.0.input_layernorm.weight": rng.random(64).astype(np.float32)}
    write_checkpoint(
        folder / "n", other, {"model_type": "llama", "hidden_size": 64}, tokenizer={"model": {"vocab": {"a": 1}}}
    )
    return folder


def shown(function, *arguments, **more):
    console = Console(file=io.StringIO(), width=160, highlight=False, force_terminal=False)
    function(*arguments, console, **more)
    return console.file.getvalue()


def assert_inert(text):
    assert [character for character in FORBIDDEN if character in text] == []
    assert all(character.isprintable() or character == "\n" for character in text)


def test_an_inspection_lists_every_unnamed_tensor_inert(hostile):
    found = inspect(str(hostile / "m"), settings=Settings())
    assert set(found.model.unmapped) == set(HOSTILE)
    text = shown(print_inspection, found)
    assert_inert(text)
    assert f"{len(HOSTILE)} tensors without a name:" in text
    for name in HOSTILE:
        assert f"  {printable(name)}" in text, name[:40]
    assert "[red]x[/red]" in text
    data = json.loads(found.to_json())
    assert set(data["model"]["unmapped"]) == set(HOSTILE)


@pytest.mark.parametrize(("lang", "said"), [("en", "and 41 more: --format json lists all"), ("ko", "그 밖에 41개")])
def test_of_very_many_unnamed_tensors_the_first_are_listed(hostile, lang, said):
    found = inspect(str(hostile / "m"), settings=Settings())
    names = tuple(f"odd.{number}" for number in range(MOST_NAMES + 41))
    text = shown(print_inspection, replace(found, model=replace(found.model, unmapped=names)), lang=lang)
    assert text.count("  odd.") == MOST_NAMES
    assert said in text
    assert f"{len(names)}" in text


@pytest.mark.parametrize(("a", "b"), [("m", "n"), ("n", "m"), ("m", "m")])
def test_a_comparison_of_hostile_models(hostile, a, b):
    report = compare(str(hostile / a), str(hostile / b), settings=Settings())
    assert Report.from_json(report.to_json()) == report
    for details in (True, False):
        text = shown(print_report, report, details=details)
        assert_inert(text)
        assert "input_norm" in text
    if (a, b) == ("m", "n"):
        assert "<script>alert(1)</script>" in text
        assert "(absent)" in text


def test_words_of_strangers_anywhere_in_a_report(hostile):
    evil = "\x1b[31m[red]x\u202e"
    report = compare(str(hostile / "n"), str(hostile / "n"), settings=Settings())
    side = replace(
        report.a,
        reference=evil,
        commit=evil,
        architecture=evil,
        notes=(evil,),
        excluded=(Skipped("stored tensors", 1, evil),),
        location=evil,
    )
    spoilt = replace(
        report,
        a=side,
        status="not_comparable",
        reason=evil,
        notes=(evil,),
        skipped=(Skipped("tensors", 2, evil),),
        config=replace(report.config, status="not_comparable", reason=evil),
        tokenizer=replace(report.tokenizer, status="not_comparable", reason=evil),
        comparisons=tuple(replace(item, measurements=(), reason=evil) for item in report.comparisons),
    )
    assert_inert(shown(print_report, spoilt))
    file = {"url": evil, "ranges": 1, "stored_bytes": 2}
    assert_inert(shown(print_cache, {"folder": f"/x/{evil}", "cap_bytes": 10, "stored_bytes": 2, "files": [file]}))
    found = inspect(str(hostile / "n"), settings=Settings())
    assert_inert(shown(print_inspection, replace(found, model=side)))


def test_the_command_prints_hostile_names_inert(hostile, tmp_path):
    env = {name: os.environ[name] for name in ("PATH",) if name in os.environ}
    env |= {"HOME": str(tmp_path), "KINPRINT_CACHE": "off", "PYTHONUTF8": "1"}
    for arguments in (["inspect", "m"], ["compare", "m", "n"], ["inspect", "\x1b[31m[red]none"]):
        command = [sys.executable, "-m", "kinprint", *arguments, "--format", "table"]
        done = subprocess.run(command, cwd=hostile, env=env, capture_output=True, timeout=60, check=False)
        assert_inert((done.stdout + done.stderr).decode())
        assert b"Traceback" not in done.stderr
        assert done.returncode == (3 if "none" in arguments[-1] else 0)


# ---- numbers ----


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.0, "0"),
        (1e-15, "0"),
        (0.5, "0.5000"),
        (-0.99999, "-0.99999"),
        (1e-5, "1.00e-05"),
        (12345.6, "12345.6"),
        (123456.0, "1.23e+05"),
        (1e-3, "0.0010"),
    ],
)
def test_numbers(value, text):
    assert Words.number(value) == text


def test_bounds_are_marked_and_p_has_no_sign_at_one():
    words = Words()
    assert words.log_p(-3.0) == "-3.00"
    assert words.log_p(-3.0, bound=PMethod.MOMENT_BOUND.bound) == "≤ -3.00"
    assert words.log_p(0.0) == "0.00"
    assert words.log_p(None) == "–"


def test_sources_of_p_in_a_word_or_two():
    words = Words()
    assert words.how(PMethod.NORMAL) == "normal tail"
    assert words.how(PMethod.MONTE_CARLO, 99) == "99 draws"
    assert words.how(PMethod.HELD) == "normal, held"
    assert words.how(PMethod.POINT) == "none"


def test_printable_cuts_and_replaces():
    assert printable("a\nb") == "a\N{REPLACEMENT CHARACTER}b"
    assert printable("x" * 400) == "x" * 299 + "…"
    assert len(printable("\x1b" * 400, 50)) == 50
    assert printable("é漢") == "é漢"


@pytest.mark.parametrize("width", [80, 100, 160])
def test_no_figure_is_cut_however_narrow_the_terminal(width):
    demo = DEMO_MODELS
    options = Options(layers="0", roles=("post_attention_norm", "mlp_up"))
    report = compare(str(demo / "base"), str(demo / "finetune"), options, settings=Settings())
    console = Console(file=io.StringIO(), width=width, highlight=False, force_terminal=False)
    print_report(report, console)
    text = console.file.getvalue()
    assert "…" not in text
    for item in report.comparisons:
        for measured in item.measurements:
            wanted = [measured.metric, Words.number(measured.value)]
            if measured.null is not None:
                wanted += [
                    Words.number(measured.null.mean),
                    Words.number(measured.null.sd),
                    Words().z(measured.null.z),
                    Words().log_p(measured.null.log10_p, bound=measured.null.p_method.bound),
                ]
            row = r"\b" + r" +".join(map(re.escape, wanted))
            assert re.search(row, text), wanted
    inspection = inspect(str(demo / "base"), settings=Settings())
    assert "…" not in shown(print_inspection, inspection)
