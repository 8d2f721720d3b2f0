"""Naming without help from the config: the best file, patterns, contradictions, and hostile input."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinprint.arch import Naming, Role, architectures, name_tensors, residual_width
from support.counting import at_most_calls

LLAMA = {
    "model.embed_tokens.weight": (50, 8),
    "model.norm.weight": (8,),
    "lm_head.weight": (50, 8),
    **{
        f"model.layers.{i}.{norm}.weight": (8,)
        for i in range(2)
        for norm in ("input_layernorm", "post_attention_layernorm")
    },
    **{f"model.layers.{i}.self_attn.{x}_proj.weight": (8, 8) for i in range(2) for x in "qkvo"},
    **{f"model.layers.{i}.mlp.{x}_proj.weight": (12, 8) for i in range(2) for x in ("gate", "up")},
    **{f"model.layers.{i}.mlp.down_proj.weight": (8, 12) for i in range(2)},
}
GPT2 = {
    "wte.weight": (50, 8),
    "wpe.weight": (16, 8),
    "ln_f.weight": (8,),
    "h.0.ln_1.weight": (8,),
    "h.0.attn.c_attn.weight": (8, 24),
    "h.0.attn.c_attn.bias": (24,),
    "h.0.attn.c_proj.weight": (8, 8),
    "h.0.mlp.c_fc.weight": (8, 32),
    "h.0.mlp.c_proj.weight": (32, 8),
}
BERT = {
    "embeddings.word_embeddings.weight": (50, 8),
    "embeddings.LayerNorm.weight": (8,),
    "encoder.layer.0.attention.self.query.weight": (8, 8),
    "encoder.layer.0.attention.output.dense.weight": (8, 8),
    "encoder.layer.0.intermediate.dense.weight": (32, 8),
    "encoder.layer.0.output.dense.weight": (8, 32),
}
STRANGE = {
    "net.tok_embedding.weight": (50, 8),
    "net.stack.0.norm1.weight": (8,),
    "net.stack.0.attn.wq.weight": (8, 8),
    "net.stack.0.attn.q_norm.weight": (4,),
    "net.stack.0.moe.experts.3.w1.weight": (6, 8),
    "net.stack.0.moe.shared_expert.up_proj.weight": (6, 8),
    "net.stack.0.mlp.fc1.weight": (32, 8),
    "net.stack.0.mlp.fc1.bias": (32,),
    "net.stack.0.mlp.fc2.weight": (7, 32),  # contradicts the width
    "net.stack.0.attn.qkv.weight": (24, 8),
    "net.stack.0.mystery": (3,),
}


def roles(naming: Naming) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for tensor in naming.tensors:
        found.setdefault(tensor.name, set()).add(tensor.role.value)
    return found


def accounted(naming: Naming) -> list[str]:
    return sorted([*{t.name for t in naming.tensors}, *naming.unmapped, *(each.name for each in naming.excluded)])


@pytest.mark.parametrize(("shapes", "file"), [(LLAMA, "llama"), (GPT2, "gpt2"), (BERT, "bert")])
def test_file_without_config_is_named_by_the_file_that_fits_best(shapes: dict[str, tuple[int, ...]], file: str) -> None:
    naming = name_tensors({}, shapes)
    assert (naming.architecture, naming.guessed, naming.unmapped) == (file, True, ())
    assert f"guessed {file}, whose templates name 100% of the tensors" in naming.notes[0]
    assert residual_width(naming) == 8


def test_gpt2_without_config_is_split_by_its_shapes() -> None:
    naming = name_tensors({}, GPT2)
    assert roles(naming)["h.0.attn.c_attn.weight"] == {"attn_q", "attn_k", "attn_v"}


def test_phi3_without_config_is_split_by_its_shapes() -> None:
    shapes = {name: shape for name, shape in LLAMA.items() if "q_proj" not in name and "k_proj" not in name}
    shapes = {name: shape for name, shape in shapes.items() if "v_proj" not in name}
    shapes |= {f"model.layers.{i}.self_attn.qkv_proj.weight": (16, 8) for i in range(2)}
    naming = name_tensors({}, shapes)
    assert (naming.architecture, naming.unmapped) == ("phi3", ())
    found = {t.role: t.rows for t in naming.tensors if t.name == "model.layers.1.self_attn.qkv_proj.weight"}
    assert found == {Role.ATTN_Q: ((0, 8),), Role.ATTN_K: ((8, 12),), Role.ATTN_V: ((12, 16),)}


@pytest.mark.parametrize("config", [{}, {"model_type": "llama"}, {"dim": 8, "n_layers": 2, "n_heads": 2}])
def test_a_llama_as_first_published_is_known_and_its_rotary_rows_are_not_compared(config: dict[str, object]) -> None:
    shapes = {"tok_embeddings.weight": (20, 8), "norm.weight": (8,), "output.weight": (20, 8), "rope.freqs": (2,)}
    sides = {"wq": (8, 8), "wk": (4, 8), "wv": (4, 8), "wo": (8, 8)}
    for layer in ("layers.0", "layers.1"):
        shapes |= {f"{layer}.attention.{part}.weight": shape for part, shape in sides.items()}
        shapes |= {f"{layer}.feed_forward.w{n}.weight": (8, 12) if n == 2 else (12, 8) for n in (1, 2, 3)}
        shapes |= {f"{layer}.attention_norm.weight": (8,), f"{layer}.ffn_norm.weight": (8,)}
    naming = name_tensors(config, shapes)
    assert (naming.architecture, naming.guessed, naming.unmapped) == ("llama_original", True, ())
    left_out = {item.name.split(".")[-2] for item in naming.excluded if "another order" in item.reason}
    assert left_out == {"wq", "wk"}


def test_unknown_model_type_says_so() -> None:
    naming = name_tensors({"model_type": "novel"}, LLAMA)
    assert naming.guessed
    assert naming.notes[0].startswith("no architecture file for 'novel': guessed llama")


def test_config_that_does_not_fit_is_overruled_with_a_note() -> None:
    naming = name_tensors({"model_type": "bert"}, LLAMA)
    assert (naming.architecture, naming.guessed) == ("llama", True)
    assert naming.notes[0].startswith("config selects bert, but its templates name only 0% of the tensors")


def test_strange_names_are_guessed_by_pattern() -> None:
    naming = name_tensors({}, STRANGE)
    assert (naming.architecture, naming.guessed, naming.layers, naming.experts) == ("generic", True, 1, 4)
    assert roles(naming) == {
        "net.tok_embedding.weight": {"embedding"},
        "net.stack.0.norm1.weight": {"input_norm"},
        "net.stack.0.attn.wq.weight": {"attn_q"},
        "net.stack.0.attn.q_norm.weight": {"q_norm"},
        "net.stack.0.moe.experts.3.w1.weight": {"expert_gate"},
        "net.stack.0.moe.shared_expert.up_proj.weight": {"shared_up"},
        "net.stack.0.mlp.fc1.weight": {"mlp_up"},
        "net.stack.0.mlp.fc1.bias": {"mlp_up_bias"},
    }
    assert set(naming.unmapped) == set(STRANGE) - set(roles(naming))
    assert any("guessed by pattern" in note for note in naming.notes)
    assert any("does not fit a width of 8" in note for note in naming.notes)


def test_config_and_tensors_disagree_on_layers() -> None:
    naming = name_tensors({"model_type": "llama", "num_hidden_layers": 1}, LLAMA)
    assert (naming.layers, naming.unmapped, naming.excluded) == (1, (), ())
    assert "config says 1 layers, the tensors' last block index means 2" in naming.notes


def test_config_and_tensors_disagree_on_width() -> None:
    naming = name_tensors({"model_type": "llama", "hidden_size": 9, "num_hidden_layers": 2}, LLAMA)
    assert "config says hidden size 9, the tensors are 8 wide" in naming.notes
    assert residual_width(naming, {"hidden_size": 9}) == 8


def test_residual_width_falls_back_on_the_config() -> None:
    assert residual_width(name_tensors({}, {}), {"text_config": {"n_embd": 5}}) == 5
    assert residual_width(name_tensors({}, {})) is None


@pytest.mark.parametrize(
    ("tied", "note"),
    [
        (True, "tied embeddings: no head is stored, the embedding serves as head"),
        (False, "config says the head is not tied to the embedding, yet no head is stored"),
        (None, "no head is stored"),
    ],
)
def test_missing_head(tied: bool | None, note: str) -> None:
    shapes = {name: shape for name, shape in LLAMA.items() if name != "lm_head.weight"}
    naming = name_tensors({"model_type": "llama", "num_hidden_layers": 2, "tie_word_embeddings": tied}, shapes)
    assert naming.notes == (note,)


def test_quantiser_state_is_excluded_with_what_it_packs() -> None:
    packed = "model.layers.0.mlp.up_proj.weight"
    extra = {
        f"{packed}.absmax": (4,),
        f"{packed}.quant_state.bitsandbytes__nf4": (9,),
        "model.layers.1.mlp.up_proj.SCB": (12,),
    }
    naming = name_tensors({"model_type": "llama", "num_hidden_layers": 2}, LLAMA | extra)
    reasons = {each.name: each.reason for each in naming.excluded}
    assert reasons.pop(packed) == reasons.pop("model.layers.1.mlp.up_proj.weight") == "packed by a quantiser"
    assert reasons == dict.fromkeys(extra, "quantiser state")
    assert "3 tensors of quantiser state excluded: stored weights are not to scale" in naming.notes


def test_only_buffers_may_be_missing_from_a_copy() -> None:
    extra = {"model.layers.0.self_attn.rotary_emb.inv_freq": (4,), "score.weight": (2, 8)}
    naming = name_tensors({"model_type": "llama", "num_hidden_layers": 2}, LLAMA | extra)
    assert {each.name: each.optional for each in naming.excluded} == dict(zip(extra, (True, False), strict=True))


def test_two_names_for_one_role_keep_one() -> None:
    naming = name_tensors({"model_type": "llama", "num_hidden_layers": 2}, LLAMA | {"embed_tokens.weight": (50, 8)})
    assert [(each.name, each.reason) for each in naming.excluded] == [
        ("model.embed_tokens.weight", "same role as embed_tokens.weight")
    ]
    assert accounted(naming) == sorted([*LLAMA, "embed_tokens.weight"])


def test_wrong_number_of_axes_is_not_mapped() -> None:
    naming = name_tensors({"model_type": "llama"}, LLAMA | {"model.norm.weight": (8, 1)})
    assert naming.unmapped == ("model.norm.weight",)
    assert "1 tensor unmapped, e.g. model.norm.weight: 2 axes stored, 1 expected" in naming.notes


@pytest.mark.parametrize("index", ["99999999999999999999", "10000", "007", "-1", "٣", "²", "1e3", ""])
def test_indices_that_are_none(index: str) -> None:
    name = f"model.layers.{index}.mlp.up_proj.weight"
    naming = name_tensors({"model_type": "llama"}, LLAMA | {name: (12, 8)})
    assert naming.unmapped == (name,)
    assert naming.layers == 2


@pytest.mark.parametrize("value", ["12", -3, 10**40, 2.5, [1], True, {}, 0])
def test_senseless_config_values_count_as_absent(value: object) -> None:
    naming = name_tensors({"model_type": "llama", "num_hidden_layers": value, "num_attention_heads": value}, LLAMA)
    assert naming.layers == 2
    assert sum("taken as absent" in note for note in naming.notes) == 2


def test_long_names_are_shortened_in_notes() -> None:
    naming = name_tensors({}, {"x" * 10_000 + ".0.weight": (2, 2)})
    assert max(map(len, naming.notes)) < 300
    assert len(naming.unmapped) == 1


def test_a_large_mixture_is_named_by_few_calls_for_each_tensor() -> None:
    projections = {"gate": (14, 8), "up": (14, 8), "down": (8, 14)}
    shapes = LLAMA | {
        f"model.layers.{layer}.mlp.experts.{expert}.{name}_proj.weight": shape
        for layer in range(46)
        for expert in range(128)
        for name, shape in projections.items()
    }
    config = {"model_type": "glm4_moe", "num_hidden_layers": 46, "n_routed_experts": 128}
    with at_most_calls(10 * len(shapes)):  # 5.6 for each; an expression for each template and name would take far more
        naming = name_tensors(config, shapes)
    assert (naming.experts, len(naming.tensors), naming.unmapped) == (128, len(shapes), ())


def test_many_different_hostile_names_take_linear_work() -> None:
    shapes = {f"a.{i}." * 20 + f"{i}.query_key_value.weight.{'(' * (i % 7)}": (1, 1) for i in range(3000)}
    name_tensors({}, dict(list(shapes.items())[:10]))  # what is loaded late
    with at_most_calls(90 * len(shapes)):  # 66 for each, whatever their number
        naming = name_tensors({}, shapes)
    assert accounted(naming) == sorted(shapes)


WORDS = """
    model layers h 0 1 2 3 9999 10000 self_attn q_proj k_norm mlp experts gate up_proj weight bias attn c_attn wqkv # ٣
    encoder layer attention self query LayerNorm gamma transformer blocks ff_proj eh_proj absmax SCB mtp norm"""
words = st.sampled_from([*WORDS.split(), "\0"])
names = st.one_of(
    st.lists(words, max_size=8).map(".".join), st.text(max_size=30), st.sampled_from([*LLAMA, *GPT2, *BERT])
)
values = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.lists(st.integers(), max_size=2)
)
config_keys = st.sampled_from(
    ["hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "n_routed_experts", "head_dim",
     "num_nextn_predict_layers", "multi_query", "intermediate_size", "tie_word_embeddings", "architectures"]
)  # fmt: skip
flat = st.dictionaries(config_keys, st.one_of(st.integers(0, 40), values))
configs = st.builds(
    lambda kind, outer, inner: outer | {"model_type": kind, "text_config": inner},
    st.one_of(st.sampled_from(architectures()), values),
    flat,
    st.one_of(st.none(), flat),
)
listings = st.dictionaries(names, st.lists(st.integers(0, 100), max_size=3).map(tuple), max_size=25)


@settings(derandomize=True, database=None, deadline=None)
@given(config=configs, shapes=listings)
def test_naming_never_raises_and_loses_no_name(config: dict[str, object], shapes: dict[str, tuple[int, ...]]) -> None:
    naming = name_tensors(config, shapes)
    assert accounted(naming) == sorted(shapes)
    places = [(t.role, t.layer, t.expert) for t in naming.tensors]
    assert len(set(places)) == len(places)
    order = list(Role)
    keys = [(-1 if t.layer is None else t.layer, order.index(t.role), t.expert or 0) for t in naming.tensors]
    assert keys == sorted(keys)
    for tensor in naming.tensors:
        assert len(tensor.shape) == len(tensor.role.info.axes)
        assert (tensor.layer is None) == (tensor.role.info.scope == "model")
        assert (tensor.expert is None) == (tensor.role.info.scope != "expert")


WRAPPERS = [
    "module.",
    "_orig_mod.",
    "module._orig_mod.",
    "0.auto_model.",
    "model.0.auto_model.",
    "encoder.0.model.",
    "auto_model.",
]


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_wrapper_and_its_number_are_no_part_of_the_names(wrapper: str) -> None:
    deep = {name.replace("layer.0", f"layer.{i}"): shape for i in range(3) for name, shape in BERT.items()}
    naming = name_tensors({"model_type": "bert"}, {wrapper + name: shape for name, shape in deep.items()})
    assert (naming.architecture, naming.guessed, naming.unmapped) == ("bert", False, ())
    assert {t.layer for t in naming.tensors if t.role is Role.ATTN_Q} == {0, 1, 2}
    assert all(tensor.name.startswith(wrapper) for tensor in naming.tensors)


def test_a_single_layer_with_experts_is_no_wrapper() -> None:
    shapes = {f"model.layers.0.mlp.experts.{i}.{x}_proj.weight": (6, 8) for i in range(4) for x in ("gate", "up")}
    naming = name_tensors({}, {**shapes, "model.layers.0.input_layernorm.weight": (8,)})
    assert {(t.layer, t.expert) for t in naming.tensors if t.role is Role.EXPERT_UP} == {(0, i) for i in range(4)}


def test_the_layer_is_the_number_before_the_part_that_names_the_role() -> None:
    inner = {f"trunk.3.stack.{i}.attn.{x}_proj.weight": (8, 8) for i in range(4) for x in "qkv"}
    inner |= {f"trunk.3.stack.{i}.norm1.weight": (8,) for i in range(4)}
    naming = name_tensors({"model_type": "unheard_of"}, inner)
    assert naming.architecture == "generic"
    assert {t.layer for t in naming.tensors if t.role is Role.ATTN_Q} == {0, 1, 2, 3}
    assert naming.unmapped == ()


def test_unknown_encoders_and_decoders_do_not_share_their_numbers() -> None:
    sides = {f"net.{side}.stack.{i}.attn.wq.weight": (8, 8) for side in ("encoder", "decoder") for i in range(2)}
    cross = {f"net.decoder.stack.{i}.cross_attn.wq.weight": (8, 8) for i in range(2)}
    norms = {f"net.{side}.stack.{i}.norm1.weight": (8,) for side in ("encoder", "decoder") for i in range(2)}
    naming = name_tensors({}, {**sides, **cross, **norms})
    assert {t.layer: t.name.split(".")[1] for t in naming.tensors if t.role is Role.ATTN_Q} == {
        0: "encoder", 1: "encoder", 2: "decoder", 3: "decoder",
    }  # fmt: skip
    assert {t.layer for t in naming.tensors if t.role is Role.CROSS_Q} == {2, 3}


HOSTILE_CONFIGS: list[dict[str, object]] = [
    {"model_type": "t5", "num_layers": 10**30, "d_model": -3, "num_heads": "many"},
    {"model_type": "mamba", "architectures": ["T5ForConditionalGeneration"], "intermediate_size": 2**70},
    {"model_type": "\x1b[31m../../etc\0", "hidden_size": [1] * 1000},
    {"model_type": "albert", "num_hidden_groups": 9_999, "num_hidden_layers": 9_999},
    {"model_type": "x" * 100_000},
]


@pytest.mark.parametrize("config", HOSTILE_CONFIGS)
def test_a_config_that_lies_changes_no_layer_and_loses_no_name(config: dict[str, object]) -> None:
    naming = name_tensors(config, LLAMA)
    assert accounted(naming) == sorted(LLAMA)
    assert (naming.architecture, naming.guessed) == ("llama", True)
    assert {t.layer for t in naming.tensors if t.role is Role.ATTN_Q} == {0, 1}
    assert all(len(note) < 500 for note in naming.notes)


def test_two_towers_with_the_same_names_are_not_mixed() -> None:
    towers = {f"{side}.{name}": shape for side in ("left", "right") for name, shape in STRANGE.items()}
    naming = name_tensors({}, towers)
    assert accounted(naming) == sorted(towers)
    keys = [tensor.key for tensor in naming.tensors]
    assert len(keys) == len(set(keys))
    assert len({tensor.name.split(".")[0] for tensor in naming.tensors}) == 1


def test_a_hundred_thousand_layers_and_thousands_of_digits_are_no_layers() -> None:
    numbers = ("10000", "99999", "100000", "9" * 40, "1" * 4000)
    strange = {f"model.layers.{number}.mlp.up_proj.weight": (12, 8) for number in numbers}
    strange[f"encoder.block.0.layer.{'2' * 3000}.layer_norm.weight"] = (8,)
    naming = name_tensors({"model_type": "llama", "num_hidden_layers": 100_000}, {**LLAMA, **strange})
    assert accounted(naming) == sorted({**LLAMA, **strange})
    assert {t.layer for t in naming.tensors if t.role is Role.MLP_UP} == {0, 1}
    assert naming.unmapped == tuple(sorted(strange))


def test_an_encoder_of_ten_thousand_layers_before_a_decoder_is_counted_through() -> None:
    shapes = {"shared.weight": (20, 8)}
    for side, last in (("encoder", 9_999), ("decoder", 9_999)):
        shapes |= {f"{side}.block.{i}.layer.0.SelfAttention.q.weight": (8, 8) for i in (0, last)}
    naming = name_tensors({"model_type": "t5"}, shapes)
    assert [t.layer for t in naming.tensors if t.role is Role.ATTN_Q] == [0, 9_999, 10_000, 19_999]
