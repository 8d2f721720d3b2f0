"""Every form of a report tells "no match" from "not read", and "only A has it" from "not recognised in B"."""

import io
import json
import re

import pytest
from rich.console import Console

from kinprint.render.forms import make, show
from support.places import DEMO_MODELS, FAMILY_MODELS

FORMS = ("terminal", "html", "markdown")


def text_of(report, form):
    if form == "terminal":
        stream = io.StringIO()
        show(report, Console(file=stream, width=400, no_color=True))
        return stream.getvalue()
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", make(report, form).decode()))


@pytest.fixture(scope="module")
def foreign_layer(demo, folder, judge):
    """Base beside itself with another's layer 3, and layer 2 not to be looked at."""
    (state, config, tokenizer), other = demo("base"), demo("unrelated")[0]
    mixed = {name: other[name] if ".layers.3." in name else value for name, value in state.items()}
    return judge(folder("base"), folder("foreign_layer", mixed, config, tokenizer), layers="0,1,3")


def test_a_layer_without_match_is_not_one_that_was_not_read(foreign_layer):
    found = json.loads(make(foreign_layer, "json"))["evidence"]["alignment"]
    assert (found["unread"], found["unread_a"]) == ([2], [2])
    assert [item["layer"] for item in found["layers"]] == [0, 1, 3]
    assert [item["layer"] for item in found["layers"] if not item["shared"]] == [3]
    for form in FORMS:
        text = text_of(foreign_layer, form)
        assert "Layers of B that were not read, and may match or not: 2." in text, form
        assert "Layers of A that were not read, and may match or not: 2." in text, form
        said = "Layers of A that none of B matches: 3." if form == "html" else "Layers of B that match none of A: 3."
        assert said in text, form


@pytest.fixture(scope="module")
def renamed(demo, folder, judge):
    """Base beside itself with the names of its MLPs, which no template knows, and without its head."""
    state, config, tokenizer = demo("base")
    named = {name.replace(".mlp.", ".wonder."): value for name, value in state.items() if name != "lm_head.weight"}
    return judge(folder("base"), folder("renamed", named, config, tokenizer))


def test_what_only_one_model_has_is_not_what_was_not_recognised(renamed, demo):
    notes = {item.component: str(item.note) for item in renamed.evidence.components if item.note}
    assert notes["mlp"].startswith("model A has it; in the other it was not recognised: 12 tensors of unknown role")
    components = json.loads(make(renamed, "json"))["evidence"]["components"]
    assert {item["component"]: item["state"] for item in components}["mlp"] == "not tested"
    assert not [item for item in renamed.verdict.kinds if item in ("mlp_changed", "head_replaced")]
    for form in FORMS:
        assert "in the other it was not recognised: 12 tensors of unknown role could be it" in text_of(renamed, form)


def test_what_only_one_model_has_is_said_to_be_its_own(folder, judge):
    """A router is nothing that the dense model hides under another name."""
    report = judge(folder("base"), str(FAMILY_MODELS / "upcycled"))
    for form in FORMS:
        text = text_of(report, form)
        assert "only model B has it" in text, form
        assert "not recognised" not in text, form
    components = json.loads(make(report, "json"))["evidence"]["components"]
    assert {item["component"]: item["state"] for item in components}["router"] == "not tested"


@pytest.mark.parametrize(
    ("other", "budget", "why"),
    [
        ("finetune", 10_000, "no layer could be tested for attention or MLP matrices at their places"),
        ("finetune", 100_000, "the budget left no room for matrices of both models; see --budget"),
        ("permuted", None, "no attention or MLP matrix is known to stand at its place in both models, in one shape"),
    ],
)
def test_why_nothing_is_said_of_single_weights(judge, folder, other, budget, why):
    found = judge(folder("base"), str(DEMO_MODELS / other), budget_bytes=budget)
    assert f"what was done to single weights: {why}" in found.verdict.untested
