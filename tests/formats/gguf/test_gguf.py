"""GGUF files: what is read of them, in which order, and by how many bytes."""

import numpy as np
import pytest

import gguf
from kinprint.errors import BudgetExceeded, FormatError
from kinprint.formats.all_formats import GGUF
from kinprint.formats.checkpoint import open_checkpoint
from kinprint.formats.format import FORMATS, choose_files
from kinprint.formats.gguf.metadata import Metadata
from kinprint.formats.gguf.parser import rank
from kinprint.formats.plan import plan_reads, rows, whole
from kinprint.formats.tensors import TensorInfo
from kinprint.formats.views import MAX_ROWS_IN_ORDER, in_hugging_face_order
from kinprint.model.model import open_model
from kinprint.model.tokenizers import compare_vocabularies
from kinprint.studies.origin.windows import windows
from support.gguf_files import interleaved, write_gguf, write_sparse
from support.layouts import write_checkpoint

RNG = np.random.default_rng(17)
LLAMA = {
    "general.architecture": "llama",
    "llama.block_count": 1,
    "llama.embedding_length": 64,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
}


def drawn(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def opened(path, session, metadata, tensors, **more):
    write_gguf(path, metadata, {n: v if isinstance(v, tuple) else ("F32", v) for n, v in tensors.items()}, **more)
    return open_checkpoint(str(path), session)


def read(checkpoint, name):
    return checkpoint.read([whole(checkpoint.tensors[name])])[0]


def test_it_is_among_the_formats():
    assert FORMATS["GGUF"] is GGUF
    assert GGUF.claims("Model-Q4_K_M.GGUF")


# -- files of the package --------------------------------------------------------------------------------------------------


def test_a_file_of_the_package_is_read_as_the_package_reads_it(tmp_path, session_for):
    path = tmp_path / "theirs.gguf"
    writer = gguf.GGUFWriter(path, "qwen2")
    writer.add_block_count(2)
    writer.add_embedding_length(64)
    writer.add_head_count([4, 4])
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_token_list(["a", "b", "é"])
    writer.add_float64("a.double", 0.1)
    writer.add_bool("a.flag", True)
    writer.add_int64("a.negative", -(1 << 40))
    writer.add_custom_alignment(64)
    stored = {
        "token_embd.weight": drawn(3, 64),
        "blk.0.attn_norm.weight": drawn(64),
        "blk.1.attn_q.weight": drawn(32, 64),
    }
    writer.add_tensor("token_embd.weight", stored["token_embd.weight"].astype(np.float16))
    writer.add_tensor("blk.0.attn_norm.weight", stored["blk.0.attn_norm.weight"])
    raw = gguf.quants.quantize(stored["blk.1.attn_q.weight"], gguf.GGMLQuantizationType.Q5_1)
    writer.add_tensor("blk.1.attn_q.weight", raw, raw_dtype=gguf.GGMLQuantizationType.Q5_1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    ours, theirs = open_checkpoint(str(path), session_for()), gguf.GGUFReader(path)
    assert {n: (t.dtype, t.shape, t.start, t.nbytes) for n, t in ours.tensors.items()} == {
        t.name: (t.tensor_type.name, tuple(map(int, t.shape[::-1])), t.data_offset, t.n_bytes) for t in theirs.tensors
    }
    for tensor in theirs.tensors:
        assert np.array_equal(read(ours, tensor.name), gguf.quants.dequantize(tensor.data, tensor.tensor_type))
    assert ours.config["model_type"] == "qwen2"
    assert ours.config["rms_norm_eps"] == 1e-6
    assert ours.config["num_attention_heads"] == 4
    assert ours.read_json("tokenizer.json")["model"]["vocab"] == {"a": 0, "b": 1, "é": 2}
    assert ours.files[0].header_bytes <= min(tensor.data_offset for tensor in theirs.tensors)


@pytest.mark.parametrize("version", [2, 3])
def test_both_versions(version, tmp_path, session_for):
    norm = drawn(64)
    found = opened(tmp_path / "m.gguf", session_for(), LLAMA, {"output_norm.weight": norm}, version=version)
    assert np.array_equal(read(found, "output_norm.weight"), norm)


# -- config ----------------------------------------------------------------------------------------------------------------


def test_metadata_become_a_config(tmp_path, session_for):
    metadata = LLAMA | {
        "llama.feed_forward_length": 128,
        "llama.attention.key_length": 24,
        "llama.rope.freq_base": 500000.0,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.expert_count": 8,
        "llama.expert_used_count": 2,
        "llama.context_length": 4096,
        "tokenizer.ggml.tokens": ["x"] * 7,
    }
    tensors = {"token_embd.weight": drawn(7, 64), "output_norm.weight": drawn(64)}
    found = opened(tmp_path / "m.gguf", session_for(), metadata, tensors)
    assert found.config == {
        "model_type": "llama",
        "gguf": True,
        "hidden_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 128,
        "head_dim": 24,
        "rope_theta": 500000.0,
        "rms_norm_eps": 1e-5,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "max_position_embeddings": 4096,
        "vocab_size": 7,
        "tie_word_embeddings": True,
    }
    assert not [note for note in found.notes if "config.json" in note]


def test_layers_that_look_ahead_and_values_that_differ_by_layer(tmp_path, session_for):
    metadata = {
        "general.architecture": "glm4moe",
        "glm4moe.block_count": 4,
        "glm4moe.nextn_predict_layers": 1,
        "glm4moe.attention.head_count_kv": [2, 2, 1, 2],
        "glm4moe.attention.head_count": [8, 8, 8, 8],
        "glm4moe.attention.kv_lora_rank": 512,
        "glm4moe.attention.key_length": 576,
    }
    config = opened(tmp_path / "m.gguf", session_for(), metadata, {"output_norm.weight": drawn(64)}).config
    assert (config["num_hidden_layers"], config["num_nextn_predict_layers"]) == (3, 1)
    assert config["num_attention_heads"] == 8
    assert "num_key_value_heads" not in config
    assert "head_dim" not in config


def test_latent_attention_has_no_key_heads_of_its_own(tmp_path, session_for):
    metadata = {
        "general.architecture": "deepseek2",
        "deepseek2.attention.head_count": 128,
        "deepseek2.attention.head_count_kv": 1,
        "deepseek2.attention.key_length": 576,
    }
    tensors = {"output_norm.weight": drawn(64)}
    plain = opened(tmp_path / "plain.gguf", session_for(), metadata, tensors).config
    assert (plain["num_key_value_heads"], plain["head_dim"]) == (1, 576)
    latent = opened(
        tmp_path / "m.gguf", session_for(), metadata | {"deepseek2.attention.kv_lora_rank": 512}, tensors
    ).config
    assert latent == {"model_type": "deepseek2", "gguf": True, "num_attention_heads": 128, "kv_lora_rank": 512}


def test_a_file_that_is_no_model_says_so(tmp_path, session_for):
    metadata = LLAMA | {"general.type": "adapter"}
    found = opened(tmp_path / "m.gguf", session_for(), metadata, {"blk.0.attn_q.weight.lora_a": drawn(4, 64)})
    assert "m.gguf calls itself 'adapter', not a model" in found.notes


# -- tokenizer ---------------------------------------------------------------------------------------------------------------


def test_vocabulary_and_merges_compare_with_those_of_a_tokenizer_json(tmp_path, session_for):
    metadata = LLAMA | {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": ["a", "b", "ab", "Ġ", "a"],
        "tokenizer.ggml.merges": ["a b"],
    }
    found = opened(tmp_path / "m.gguf", session_for(), metadata, {"output_norm.weight": drawn(64)})
    ours = found.read_json("tokenizer.json")
    assert ours == {"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "Ġ": 3}, "merges": ["a b"]}}
    theirs = {"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 3}, "merges": [["a", "b"]]}}
    result = compare_vocabularies(ours, theirs)
    assert (result.tokens_common, result.same_id, result.merges_common) == (3, 2, 1)


def test_pieces_are_spelt_as_wordpiece_spells_them(tmp_path, session_for):
    metadata = {
        "general.architecture": "bert",
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.tokens": ["[PAD]", "[unused1]", "▁the", "ing", "<x>"],
        "tokenizer.ggml.token_type": [3, 1, 1, 1, 4],
    }
    found = opened(tmp_path / "m.gguf", session_for(), metadata, {"token_embd.weight": drawn(5, 64)})
    model = found.read_json("tokenizer.json")["model"]
    assert (model["type"], list(model["vocab"])) == ("WordPiece", ["[PAD]", "[unused1]", "the", "##ing", "<x>"])


def test_tokens_are_looked_at_only_when_asked_for(tmp_path, session_for, monkeypatch):
    metadata = LLAMA | {"tokenizer.ggml.tokens": ["a", "b"]}
    with monkeypatch.context() as patch:
        patch.setattr(Metadata, "strings", lambda *_: pytest.fail("tokens were decoded"))
        found = opened(tmp_path / "m.gguf", session_for(), metadata, {"output_norm.weight": drawn(64)})
    assert len(found.read_json("tokenizer.json")["model"]["vocab"]) == 2


# -- order of rows -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["F32", "BF16", "Q8_0"])
def test_rows_of_q_and_k_are_put_back(dtype, tmp_path, session_for):
    original = {"attn_q.weight": drawn(64, 64), "attn_k.weight": drawn(32, 64), "attn_v.weight": drawn(32, 64)}
    original |= {"attn_q.bias": drawn(64), "attn_k.bias": drawn(32)}
    stored = {}
    for name, values in original.items():
        heads = {"q": 4, "k": 2}.get(name[5])
        kind = "F32" if values.ndim == 1 else dtype
        stored[f"blk.0.{name}"] = (kind, interleaved(values, heads) if heads else values)
    found = opened(tmp_path / "m.gguf", session_for(), LLAMA, stored)
    plain = opened(
        tmp_path / "plain.gguf",
        session_for(),
        {"general.architecture": "none"},
        {f"blk.0.{name}": ("F32" if values.ndim == 1 else dtype, values) for name, values in original.items()},
    )
    for name in stored:
        expected = read(plain, name)
        tensor = found.tensors[name]
        assert np.array_equal(read(found, name), expected)
        assert tensor.nbytes == plain.tensors[name].nbytes
        pieces = rows(tensor, [(1, 3), (7, 9), (30, 32)])
        assert np.array_equal(found.read([pieces])[0], np.concatenate([expected[1:3], expected[7:9], expected[30:32]]))
    sample = windows(found.tensors["blk.0.attn_q.weight"], key="k", count=3, length=100)
    flat = read(plain, "blk.0.attn_q.weight").reshape(-1)
    assert np.array_equal(found.read([sample])[0], np.concatenate([flat[a:b] for a, b in sample.runs]))


def test_only_the_rows_asked_for_are_read():
    stored = TensorInfo("q", "Q4_K", (256, 4096), 0, 1000, 1000 + 256 * 2304)
    made = in_hugging_face_order(stored, 256 // 64)
    assert rows(made, [(128, 129)]).nbytes == 2304  # the first row of a head
    plan = plan_reads([rows(made, [(128, 129)])])
    assert [(span.start, len(span)) for span in plan.ranges] == [(1000 + 128 * 2304, 2304)]
    assert plan_reads([rows(made, [(0, 8)])], max_gap_bytes=0).nbytes == 8 * 2304
    assert len(plan_reads([rows(made, [(0, 8)])]).ranges) == 1  # every other row: read through
    assert plan_reads([whole(made)]).nbytes == stored.nbytes
    assert len(plan_reads([whole(made)]).leaves[0].runs) == 1
    assert rows(made, [(3, 3)]).nbytes == 0


@pytest.mark.parametrize("kind", ["qwen2", "gemma2", "command-r", "deepseek2", "llama4"])
def test_other_architectures_keep_their_order(kind, tmp_path, session_for):
    metadata = {key.replace("llama.", f"{kind}."): value for key, value in LLAMA.items()} | {
        "general.architecture": kind
    }
    q = drawn(64, 64)
    found = opened(tmp_path / "m.gguf", session_for(), metadata, {"blk.0.attn_q.weight": q})
    assert found.tensors["blk.0.attn_q.weight"].made is None
    assert np.array_equal(read(found, "blk.0.attn_q.weight"), q)


def test_a_huge_bias_keeps_its_order_and_says_so(tmp_path, session_for):
    shapes = {"blk.0.attn_q.bias": ("F32", (2 * MAX_ROWS_IN_ORDER,)), "blk.0.attn_k.bias": ("F32", (64,))}
    write_sparse(tmp_path / "m.gguf", LLAMA, shapes, {})
    found = open_checkpoint(str(tmp_path / "m.gguf"), session_for())
    assert found.tensors["blk.0.attn_q.bias"].made is None
    assert found.tensors["blk.0.attn_k.bias"].made is not None
    (note,) = [note for note in found.notes if "order of GGUF" in note]
    assert note == "1 tensors of q and k left in the order of GGUF, e.g. blk.0.attn_q.bias: more than 1048576 rows"


def test_heads_may_differ_by_layer(tmp_path, session_for):
    metadata = LLAMA | {"llama.attention.head_count": [4, 2], "llama.attention.head_count_kv": [2, 0]}
    first, second, lost = drawn(64, 64), drawn(64, 64), drawn(32, 64)
    stored = {"blk.0.attn_q.weight": interleaved(first, 4), "blk.1.attn_q.weight": interleaved(second, 2)}
    found = opened(tmp_path / "m.gguf", session_for(), metadata, stored | {"blk.1.attn_k.weight": lost})
    assert np.array_equal(read(found, "blk.0.attn_q.weight"), first)
    assert np.array_equal(read(found, "blk.1.attn_q.weight"), second)
    assert np.array_equal(read(found, "blk.1.attn_k.weight"), lost)
    assert any(
        note.startswith("1 tensors of q and k left in the order of GGUF, e.g. blk.1.attn_k") for note in found.notes
    )


@pytest.mark.parametrize(
    ("kind", "model_type", "added"),
    [
        ("gemma", "gemma", 1),
        ("gemma2", "gemma2", 1),
        ("gemma3", "gemma3_text", 1),
        ("gemma-embedding", "gemma3_text", 1),
        ("nemotron", "nemotron", 1),
        ("qwen3next", "qwen3_next", 1),
        ("qwen35", "qwen3_5_text", 1),
        ("qwen35moe", "qwen3_5_moe_text", 1),
        ("gemma3n", "gemma3n_text", 0),
        ("gemma4", "gemma4_text", 0),
        ("qwen3", "qwen3", 0),
    ],
)
def test_norms_mean_the_same_in_both_formats(kind, model_type, added, tmp_path, session_for):
    """The converter adds one to the norms of some architectures, which their own files store without it."""
    norm, table, narrow = drawn(64), drawn(9, 64), drawn(16)
    plain = {
        "model.embed_tokens.weight": table,
        "model.layers.0.input_layernorm.weight": norm,
        "model.layers.0.self_attn.q_norm.weight": narrow,
        "model.norm.weight": norm,
    }
    stored = {
        "token_embd.weight": table,
        "blk.0.attn_norm.weight": norm + added,
        "blk.0.attn_q_norm.weight": narrow + added,
        "output_norm.weight": norm + added,
    }
    if kind in ("gemma", "gemma2", "nemotron"):  # which have none on q
        del plain["model.layers.0.self_attn.q_norm.weight"], stored["blk.0.attn_q_norm.weight"]
    write_checkpoint(tmp_path / "plain", plain, {"model_type": model_type, "num_hidden_layers": 1, "hidden_size": 64})
    metadata = {"general.architecture": kind, f"{kind}.block_count": 1, f"{kind}.embedding_length": 64}
    write_gguf(tmp_path / "g.gguf", metadata, {name: ("F32", values) for name, values in stored.items()})
    session = session_for()
    found = []
    for reference in (tmp_path / "plain", tmp_path / "g.gguf"):
        model = open_model(str(reference), session)
        assert not model.naming.guessed
        found.append({part.role: model.tensor(*part.key) for part in model.naming.tensors})
    assert found[0].keys() == found[1].keys()
    assert len(found[0]) == len(plain)
    for role, values in found[0].items():
        assert np.allclose(found[1][role], values, atol=1e-6), role


# -- experts -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["F16", "Q8_0", "Q4_K"])
def test_stacked_experts_are_taken_apart(dtype, tmp_path, session_for):
    up = drawn(3, 16, 256)
    stored = {"blk.0.ffn_up_exps.weight": (dtype, up), "blk.0.ffn_gate_inp_shexp.weight": drawn(256)}
    stored["blk.0.ffn_up_exps.bias"] = drawn(3, 16)
    metadata = {"general.architecture": "qwen2moe", "qwen2moe.expert_count": 3, "qwen2moe.block_count": 1}
    found = opened(tmp_path / "m.gguf", session_for(), metadata, stored)
    flat = opened(tmp_path / "flat.gguf", session_for(), metadata, {"w.weight": (dtype, up.reshape(48, 256))})
    expected = read(flat, "w.weight").reshape(3, 16, 256)
    for number in range(3):
        assert np.array_equal(read(found, f"blk.0.ffn_up_exps.{number}.weight"), expected[number])
    assert found.tensors["blk.0.ffn_gate_inp_shexp.weight"].shape == (1, 256)
    assert set(found.tensors) == {*(f"blk.0.ffn_up_exps.{n}.weight" for n in range(3)), *list(stored)[1:]}


# -- which file ------------------------------------------------------------------------------------------------------------------


def test_the_least_quantised_file_comes_first():
    best_first = [
        "m-F32.gguf", "m.bf16.gguf", "M-f16.gguf", "m-fp16-00001-of-00003.gguf", "m-Q8_0.gguf", "m-q6_k.gguf", "m-UD-Q5_K_XL.gguf",
        "m-Q5_K_M.gguf", "m-Q4_K_M.gguf", "m-UD-Q4_K_M.gguf", "m.Q4_K_S.gguf", "ggml-model-q4_0.gguf", "m-IQ4_XS.gguf",
        "m-Q3_K_L.gguf", "m-IQ3_XXS.gguf", "m-Q2_K.gguf", "m-TQ1_0.gguf", "m-IQ1_S.gguf", "m.gguf", "mmproj-m-F16.gguf",
    ]  # fmt: skip
    ranks = [rank(name)[0] for name in best_first]
    assert ranks == sorted(set(ranks))


def test_a_repository_of_many_quantisations():
    listed = [
        "mmproj-F16.gguf",
        "m-Q4_K_M.gguf",
        "m-Q8_0-00001-of-00002.gguf",
        "m-Q8_0-00002-of-00002.gguf",
        "README.md",
    ]
    choice = choose_files(listed, None, "owner/m")
    assert choice.names == ("m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf")
    assert choose_files(listed, "m-Q8_0-00002-of-00002.gguf", "owner/m").names == choice.names
    with pytest.raises(FormatError, match="nothing to say which belong together"):
        choose_files(["a.gguf", "b.gguf"], None, "owner/m")


# -- a large vocabulary, from afar ------------------------------------------------------------------------------------------------


def _large(path, tokens):
    words = [f"tok{number:x}{'z' * (number % 7)}" for number in range(tokens)]
    metadata = LLAMA | {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": words}
    metadata |= {
        "tokenizer.ggml.token_type": [1] * tokens,
        "tokenizer.ggml.merges": [f"{w[:2]} {w[2:]}" for w in words],
    }
    tensors = {f"blk.{n}.attn_norm.weight": ("F32", drawn(64)) for n in range(40)}
    tensors["token_embd.weight"] = ("F16", drawn(tokens, 64))
    write_gguf(path, metadata, tensors)


def test_a_long_header_is_read_in_few_pieces(tmp_path, session_for, web):
    _large(web.root / "large.gguf", 60_000)
    session = session_for()
    found = open_checkpoint(f"{web.url}/large.gguf", session)
    header = found.files[0].header_bytes
    asked = [span for path, span in web.log if path == "/large.gguf" and span != "bytes=0-0"]
    assert header > 2_000_000
    assert len(asked) <= 4
    assert session.bytes_delivered < 1.4 * header
    assert len(found.read_json("tokenizer.json")["model"]["vocab"]) == 60_000


@pytest.mark.parametrize("share", [0.2, 0.6, 0.99])
def test_the_header_counts_against_the_budget(share, tmp_path, session_for):
    _large(tmp_path / "large.gguf", 20_000)
    header = open_checkpoint(str(tmp_path / "large.gguf"), session_for()).files[0].header_bytes
    session = session_for(budget_bytes=int(header * share))
    with pytest.raises(BudgetExceeded):
        open_checkpoint(str(tmp_path / "large.gguf"), session)
    assert session.bytes_delivered <= header * share


def test_a_budget_little_above_the_header_is_enough(tmp_path, session_for):
    _large(tmp_path / "large.gguf", 20_000)
    header = open_checkpoint(str(tmp_path / "large.gguf"), session_for()).files[0].header_bytes
    session = session_for(budget_bytes=int(header * 1.1))
    found = open_checkpoint(str(tmp_path / "large.gguf"), session)
    assert read(found, "blk.3.attn_norm.weight").shape == (64,)
