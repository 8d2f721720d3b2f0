"""The architecture files themselves, and what is said about mistakes in them."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import pytest

from kinprint.arch import Role, architectures
from kinprint.arch.loading import compile_architecture, load, load_all, merged, read_packaged, selectors
from kinprint.arch.mapping import guess_rule
from kinprint.errors import FormatError
from support.places import ROOT

DOCS = ROOT / "docs" / "architectures.md"
GOOD: dict[str, Any] = {"summary": "A test.", "block": "layers.{layer}.", "model": {"wte": "embedding"}}


def compiled(**changes: object) -> object:
    raw = GOOD | changes
    return compile_architecture("mine", merged("mine", raw))


@pytest.mark.parametrize("file", architectures())
def test_every_file_is_valid_and_claims_a_model(file: str) -> None:
    architecture = load(file)
    assert architecture.model_types or architecture.class_names  # diffusers has classes only
    roles = {role for rule in architecture.rules.values() for role in rule.roles}
    assert {Role.EMBEDDING, Role.ATTN_O, Role.MLP_DOWN} <= roles or Role.EXPERT_DOWN in roles


def test_no_model_type_is_claimed_twice() -> None:
    claimed = selectors()
    assert len(claimed) == sum(len({*(t.lower() for t in a.model_types), *a.class_names}) for a in load_all())


def test_no_data_file_repeats_a_key() -> None:
    def no_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
        keys = [key for key, _ in pairs]
        assert len(set(keys)) == len(keys), keys
        return dict(pairs)

    files = [f for f in resources.files("kinprint.arch").joinpath("data").iterdir() if f.name.endswith(".json")]
    assert len(files) == len(architectures()) + 3  # what all share, words to guess by, names of towers
    for file in files:
        assert json.loads(file.read_text(encoding="utf-8"), object_pairs_hook=no_repeats)


def test_good_example_compiles() -> None:
    assert compiled() is not None


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"colour": 1}, "key 'colour'"),
        ({"prefixes": "model."}, "key 'prefixes'"),
        ({"prefixes": [1]}, "a list of strings"),
        ({"summary": ""}, "key 'summary'"),
        ({"extends": "nothing"}, "there is no architecture file nothing.json"),
        ({"extends": "mine"}, "no cycle"),
        ({"block": "layers."}, "key 'block'"),
        ({"model": {"wte": "embeding"}}, "model.wte: expected a role, got 'embeding'"),
        ({"model": {"wte": 3}}, "model.wte: expected a role, or an object"),
        ({"model": {"wte": {"role": "embedding", "split": {}}}}, "either role or split"),
        ({"model": {"wte": "attn_q"}}, "variables ('layer',) for role attn_q, got ()"),
        ({"model": {"heads.0.out": "head"}}, "no literal index"),
        ({"layer": {"x.{head}": "attn_q"}}, "as the only variables"),
        ({"layer": {"x": "expert_up"}}, "variables ('layer', 'expert') for role expert_up"),
        ({"layer": {"x": {"split": {"parts": [["attn_q", "nonsense"]]}}}}, "parts of the form [role, dim]"),
        ({"layer": {"x": {"split": {"parts": []}}}}, "parts: a list"),
        ({"layer": {"x": {"split": {"times": 3}}}}, "a split of repeat and parts"),
        ({"layer": {"x": {"split": {"repeat": "x", "parts": [["attn_q", "hidden"]]}}}}, "name of a dim as repeat"),
        ({"layer": {"x": {"split": {"parts": [["attn_q", "hidden"]] * 2}}}}, "each role once"),
        ({"dims": {"hidden": "n_embd"}}, "dim 'hidden': expected a list"),
        ({"dims": {"hidden": [-1]}}, "dim 'hidden': expected a config key"),
        ({"dims": {"hidden": ["=heads+1"]}}, "dims joined by * and /"),
        ({"dims": {"hidden": ["=nonsense"]}}, "names of other dims"),
        ({"exclude": ["*.bias"]}, "key 'exclude'"),
        ({"exclude": [{"pattern": "a*b", "reason": "x"}]}, "exclude pattern 'a*b'"),
        ({"exclude": [{"pattern": "a.*", "reason": "x", "packs": ".weight"}]}, "* at the start only"),
        ({"exclude": [{"pattern": "*", "reason": 1}]}, "strings for pattern"),
        ({"exclude": [{"pattern": "*.x", "reason": "x", "optional": "yes"}]}, "true or false for optional"),
    ],
)
def test_mistakes_are_reported_with_file_and_key(changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(FormatError) as caught:
        compiled(**changes)
    assert complaint in str(caught.value)
    assert "mine" in str(caught.value) or "nothing.json" in str(caught.value)


def test_null_removes_what_was_inherited() -> None:
    assert "model.layers.#.input_layernorm.weight" in load("llama").rules
    assert "model.layers.#.input_layernorm.weight" not in load("olmo2").rules


def test_pattern_words_name_roles_of_the_right_scope() -> None:
    raw = read_packaged("_generic")
    raw.pop("fused")
    raw.pop("cross")
    expected = {"expert": "expert", "shared": "layer", "layer": "layer", "model": "model"}
    assert raw.keys() == expected.keys()
    for section, entries in raw.items():
        assert {Role(entry["role"]).info.scope for entry in entries} == {expected[section]}
    assert guess_rule("x.#.mlp.fc1.running_mean") is None


def test_documented_table_is_up_to_date() -> None:
    rows = [f"| `{a.name}` | {a.summary} | {', '.join(f'`{t}`' for t in a.model_types)} |" for a in load_all()]
    table = [line for line in DOCS.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert table == rows
