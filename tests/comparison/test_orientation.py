"""Rows of a role come out of fused and transposed tensors as numpy would take them."""

import numpy as np
import pytest

from kinprint.arch import Role
from kinprint.model.model import open_model
from kinprint.model.reader import Want, take_rows

D, HEADS, KV, DIM, F, V = 32, 4, 2, 8, 48, 20
BASE = {"hidden_size": D, "num_attention_heads": HEADS, "num_hidden_layers": 1, "vocab_size": V, "intermediate_size": F}


def gpt2(rng):
    fused, up, down = rng.standard_normal((D, 3 * D)), rng.standard_normal((D, F)), rng.standard_normal((F, D))
    bias = rng.standard_normal(3 * D)
    tensors = {
        "wte.weight": rng.standard_normal((V, D)),
        "ln_f.weight": rng.standard_normal(D),
        "h.0.ln_1.weight": rng.standard_normal(D),
        "h.0.attn.c_attn.weight": fused,
        "h.0.attn.c_attn.bias": bias,
        "h.0.mlp.c_fc.weight": up,
        "h.0.mlp.c_proj.weight": down,
    }
    expected = {"attn_q": fused[:, :D].T, "attn_k": fused[:, D : 2 * D].T, "attn_v": fused[:, 2 * D :].T}
    expected |= {"mlp_up": up.T, "mlp_down": down.T, "attn_k_bias": bias[D : 2 * D]}
    config = {"model_type": "gpt2", "n_embd": D, "n_head": HEADS, "n_layer": 1, "vocab_size": V}
    return tensors, expected, config | {"architectures": ["GPT2LMHeadModel"]}


def internlm2(rng):
    fused = rng.standard_normal(((HEADS + 2 * KV) * DIM, D))
    groups = fused.reshape(KV, HEADS // KV + 2, DIM, D)
    tensors = {
        "model.tok_embeddings.weight": rng.standard_normal((V, D)),
        "model.layers.0.attention.wqkv.weight": fused,
        "model.layers.0.attention_norm.weight": rng.standard_normal(D),
    }
    expected = {
        "attn_q": groups[:, :-2].reshape(-1, D),
        "attn_k": groups[:, -2].reshape(-1, D),
        "attn_v": groups[:, -1].reshape(-1, D),
    }
    config = {"model_type": "internlm2", "architectures": ["InternLM2ForCausalLM"], "num_key_value_heads": KV}
    return tensors, expected, BASE | config


def neox(rng):
    fused = rng.standard_normal((3 * D, D))
    bias = rng.standard_normal(3 * D)
    heads, bias_heads = fused.reshape(HEADS, 3, DIM, D), bias.reshape(HEADS, 3, DIM)
    tensors = {
        "gpt_neox.embed_in.weight": rng.standard_normal((V, D)),
        "gpt_neox.layers.0.attention.query_key_value.weight": fused,
        "gpt_neox.layers.0.attention.query_key_value.bias": bias,
    }
    expected = {role: heads[:, i].reshape(-1, D) for i, role in enumerate(("attn_q", "attn_k", "attn_v"))}
    expected["attn_v_bias"] = bias_heads[:, 2].ravel()
    return tensors, expected, BASE | {"model_type": "gpt_neox", "architectures": ["GPTNeoXForCausalLM"]}


def phi3(rng):
    fused, gate_up = rng.standard_normal(((HEADS + 2 * KV) * DIM, D)), rng.standard_normal((2 * F, D))
    tensors = {
        "model.embed_tokens.weight": rng.standard_normal((V, D)),
        "model.layers.0.self_attn.qkv_proj.weight": fused,
        "model.layers.0.mlp.gate_up_proj.weight": gate_up,
    }
    cut = HEADS * DIM, (HEADS + KV) * DIM
    expected = {"attn_q": fused[: cut[0]], "attn_k": fused[cut[0] : cut[1]], "attn_v": fused[cut[1] :]}
    expected |= {"mlp_gate": gate_up[:F], "mlp_up": gate_up[F:]}
    config = {"model_type": "phi3", "architectures": ["Phi3ForCausalLM"], "num_key_value_heads": KV}
    return tensors, expected, BASE | config


@pytest.mark.parametrize("family", [gpt2, internlm2, neox, phi3])
def test_slices_are_what_numpy_takes(checkpoint, session_for, family):
    tensors, expected, config = family(np.random.default_rng(4))
    folder = checkpoint("m", tensors, config, dtype="F64")
    model = open_model(folder, session_for())
    parts = {part.role: part for part in model.naming.tensors}
    assert not model.naming.unmapped
    for role, values in expected.items():
        part = parts[Role(role)]
        assert part.shape == values.shape
        for wanted in (None, (0, 1), (0, 5), (3, 17), (len(values) - 2, len(values)), (0, len(values))):
            got = model.read([Want(*part.key, wanted)])[0].values
            np.testing.assert_array_equal(
                got, values if wanted is None else values[slice(*wanted)], str((role, wanted))
            )


def test_a_sample_of_rows_reads_no_more_than_its_bytes(checkpoint, session_for):
    tensors, _, config = internlm2(np.random.default_rng(4))
    model = open_model(checkpoint("m", tensors, config, dtype="F32"), session_for())
    part = next(part for part in model.naming.tensors if part.role is Role.ATTN_K)
    assert model.cost(Want(*part.key, (3, 12))) == 9 * D * 4


def test_gemma_offset_is_added_to_what_the_model_uses_only(checkpoint, session_for):
    config = BASE | {"model_type": "gemma", "architectures": ["GemmaForCausalLM"]}
    stored = np.linspace(-0.5, 0.5, D)
    folder = checkpoint("m", {"model.layers.0.input_layernorm.weight": stored}, config, dtype="F64")
    model = open_model(folder, session_for())
    (sample,) = model.read([Want(*model.naming.tensors[0].key)])
    np.testing.assert_array_equal(sample.values, stored + 1)
    np.testing.assert_array_equal(sample.stored, stored)


def test_take_rows_joins_intervals_end_to_end():
    intervals = [(10, 14), (20, 21), (30, 35)]
    logical = [row for start, stop in intervals for row in range(start, stop)]
    for low in range(len(logical) + 1):
        for high in range(low, len(logical) + 1):
            taken = take_rows(intervals, (low, high))
            assert [row for start, stop in taken for row in range(start, stop)] == logical[low:high]


def test_gpt2_is_read_once_though_three_roles_share_a_tensor(checkpoint, run):
    config = gpt2(np.random.default_rng(4))[2]
    a, b = (checkpoint(name, gpt2(np.random.default_rng(i))[0], config, dtype="F32") for i, name in enumerate("ab"))
    free = run(a, b)
    assert {item.status for item in free.comparisons} == {"ok"}
    stored = free.a.stored_bytes + free.b.stored_bytes
    assert free.bytes_planned <= stored
    exact = run(a, b, budget_bytes=free.bytes_read)
    assert exact.bytes_read <= free.bytes_read
    assert len(exact.comparisons) == len(free.comparisons)
