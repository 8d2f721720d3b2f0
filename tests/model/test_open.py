"""kinprint.open: a model without a session, from a notebook."""

from pathlib import Path

import numpy as np
import pytest

import kinprint
from kinprint.errors import BadSelection, BudgetExceeded, NotFound
from kinprint.model.model import open_model
from support.places import DEMO_MODELS, FAMILY_MODELS


@pytest.fixture
def base():
    with kinprint.open(DEMO_MODELS / "base") as model:
        yield model


def test_text_and_path_open_the_same_model(base):
    with kinprint.open(str(DEMO_MODELS / "base")) as other:
        assert other.label == base.label
        np.testing.assert_array_equal(other.tensor("attn_q", 3), base.tensor("attn_q", layer=3))


def test_tensors_are_float64_out_by_in(base):
    up, some = base.tensor("mlp_up", layer=0), base.tensor("mlp_up", layer=0, rows=(8, 10))
    assert (up.dtype, up.shape[1]) == (np.float64, 96)
    np.testing.assert_array_equal(some, up[8:10])
    assert base.tensor("embedding").shape == (512, 96)


def test_roles_name_layers_and_shapes(base):
    assert list(base.roles)[:2] == ["embedding", "final_norm"]
    assert base.roles["attn_q"].layers == (0, 1, 2, 3)
    assert base.roles["attn_q"].shapes == ((96, 96),)
    assert base.roles["embedding"].layers == ()
    assert base.roles["attn_q"].experts == 0


def test_config_tokens_and_card(base, tmp_path):
    assert base.config["num_hidden_layers"] == 4
    assert len(base.tokens) == 512
    assert sorted(base.tokens.values()) == list(range(512))
    assert base.card.base_models == ()
    for file in (DEMO_MODELS / "base").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "README.md").write_text("---\nbase_model: owner/parent\nlicense: mit\n---\n")
    with kinprint.open(tmp_path) as model:
        assert model.tokens == {}
        assert (model.card.base_models, model.card.licence) == (("owner/parent",), "mit")


def test_experts():
    with kinprint.open(FAMILY_MODELS / "upcycled") as model:
        there = model.roles["expert_up"]
        assert there.experts > 1
        one, two = (model.tensor("expert_up", there.layers[0], expert) for expert in (0, 1))
        assert one.shape == two.shape == there.shapes[0]
        with pytest.raises(BadSelection, match="expert 99") as caught:
            model.tensor("expert_up", there.layers[0], 99)
        assert f"experts 0 to {there.experts - 1}" in caught.value.hint


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (("attn_qq", 0), "no role is called 'attn_qq'", "did you mean 'attn_q'?"),
        (("attn_q", 9), "has no tensor attn_q, layer 9", "it is there in layers 0 to 3"),
        (("attn_q",), "has no tensor attn_q", "it is there in layers 0 to 3"),
        (("embedding", 0), "has no tensor embedding, layer 0", "the role belongs to no layer: leave layer out"),
        (("router", 0), "has no tensor router, layer 0", "its roles: embedding, final_norm"),
        (("attn_q", 0, None, (0, 97)), "cannot read rows 0 to 97 of attn_q, which has 96", "stop <= 96"),
    ],
)
def test_what_is_not_there_is_said_with_what_is(base, arguments, message, hint):
    with pytest.raises(BadSelection) as caught:
        base.tensor(*arguments)
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_the_session_is_closed_with_the_model(monkeypatch):
    closed = []
    monkeypatch.setattr(kinprint.Session, "close", lambda session: closed.append(session))
    with kinprint.open(DEMO_MODELS / "base") as model:
        assert closed == []
    assert closed == [model.checkpoint.session]
    with kinprint.Session() as session:
        with open_model(str(DEMO_MODELS / "base"), session):
            pass
        assert len(closed) == 1  # whoever made a session closes it
    with pytest.raises(NotFound):
        kinprint.open("./nowhere")
    assert len(closed) == 3


def test_a_path_that_is_not_there_is_no_repository(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotFound, match="no such file or folder"):
        kinprint.open(Path("owner") / "name")


def test_a_budget_limits_what_may_be_read():
    with kinprint.open(DEMO_MODELS / "base", budget_bytes=12_000) as model:
        assert model.tensor("final_norm").shape == (96,)
        with pytest.raises(BudgetExceeded):
            model.tensor("embedding")
