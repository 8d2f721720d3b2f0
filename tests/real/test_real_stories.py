"""stories15M in two containers, children made of it by construction, and a model of another make."""

import gguf
import numpy as np
import pytest

from kinprint.model import open_model
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings
from kinprint.testing import derive
from kinprint.testing.gguf_files import convert_llama, encode, write_gguf

pytestmark = pytest.mark.real
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 288,
    "intermediate_size": 768,
    "max_position_embeddings": 256,
    "num_attention_heads": 6,
    "num_hidden_layers": 6,
    "num_key_value_heads": 6,
    "tie_word_embeddings": True,
    "vocab_size": 32000,
}
GROWN = (0, 1, 2, 3, 2, 3, 4, 5)


def stories_in(weights):
    return weights("stories-npz") / "stories15M.model.npz"


def test_two_containers_of_one_model_are_identical(weights, judge):
    report = judge(stories_in(weights), weights("stories-bin") / "stories15M.bin")
    assert (report.verdict.class_, report.verdict.kind) == ("identical", None)
    roles = {item.role for item in report.comparisons}
    assert {"embedding", "final_norm", "attn_q", "attn_k", "mlp_down"} <= roles


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda state: (derive.prune(state, 0.5), CONFIG), "pruned"),
        (lambda state: (derive.permute_neurons(state, CONFIG, 1), CONFIG), "neurons_permuted"),
        (lambda state: derive.stack_layers(derive.noise(state, 0.02, 4), CONFIG, GROWN), "depth_changed"),
        (lambda state: derive.prune_neurons(state, CONFIG, 512, 5), "width_pruned"),
    ],
    ids=["pruned by half", "neurons reordered", "grown", "narrowed"],
)
def test_a_child_by_construction_is_found(weights, judge, stories, child, make, kind):
    report = judge(stories_in(weights), child(*make(stories)))
    verdict = report.verdict
    assert (verdict.class_, verdict.kind) == ("derived", kind)
    assert verdict.log10_p < -50
    assert verdict.layer_map == (GROWN if kind == "depth_changed" else tuple(range(6)))


def test_a_merge_is_found_with_its_coefficients(judge, stories, base, child, tmp_path):
    """The other parent is stories15M with everything reordered: of the same make, and nothing of it in its place."""
    stranger = derive.random_symmetry(stories, CONFIG, 3)
    derive.save_state(tmp_path / "stranger", stranger, CONFIG, dtype="F32")
    folder = child(derive.merge([stories, stranger], [0.7, 0.3]), CONFIG)
    report = judge(base, folder, parents=(str(tmp_path / "stranger"),))
    assert (report.verdict.class_, report.verdict.kind) == ("derived", "merged")
    assert report.evidence.merge.coefficients == pytest.approx((0.7, 0.3), abs=0.02)
    assert judge(base, tmp_path / "stranger").verdict.class_ == "no_evidence"


def as_gguf(path, state, dtype):
    """Write a GGUF file as llama.cpp makes it: what `dtype` has no whole blocks for becomes Q5_0, norms stay F32."""
    metadata, tensors = convert_llama(state, CONFIG, dtype)
    stored = {}
    for name, (wanted, values) in tensors.items():
        if wanted == "Q4_K" and values.shape[1] % 256:
            stored[name] = ("Q5_0", gguf.quantize(values, gguf.GGMLQuantizationType.Q5_0))
        elif values.ndim == 2:
            raw = np.frombuffer(encode(values, wanted), dtype=np.uint8)
            stored[name] = (wanted, raw.reshape(values.shape[0], -1))
        else:
            stored[name] = (wanted, values)
    write_gguf(path, metadata, stored)
    return {dtype for dtype, _ in stored.values()}


@pytest.mark.parametrize(("dtype", "types"), [("Q8_0", {"Q8_0", "F32"}), ("Q4_K", {"Q4_K", "Q5_0", "F32"})])
def test_a_quantised_gguf_is_a_quantisation(judge, stories, base, tmp_path, dtype, types):
    path = tmp_path / f"stories15M.{dtype}.gguf"
    assert as_gguf(path, stories, dtype) == types
    report = judge(base, path)
    verdict = report.verdict
    assert (verdict.class_, verdict.kind) == ("derived", "quantised")
    assert verdict.log10_p < -100
    assert verdict.layer_map == tuple(range(6))
    lines = {line.role: line for line in report.summary}
    # Rows of q and k are stored in another order than in the parent: unless it is undone, this is near 0.
    assert min(lines[role].mean_pearson for role in ("attn_q", "attn_k", "attn_v", "mlp_down")) > 0.99
    assert lines["input_norm"].mean_pearson == pytest.approx(1.0, abs=1e-12)


def test_a_real_gguf_opens_and_its_norms_are_numbers(weights):
    with Session(Settings()) as session:
        model = open_model(str(weights("smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf"), session)
        assert (model.naming.layers, model.hidden, model.checkpoint.config["vocab_size"]) == (30, 576, 49152)
        assert model.naming.unmapped == ()
        norms = [part for part in model.naming.tensors if part.role.info.kind == "norm"]
        assert len(norms) == 61
        values = model.checkpoint.read([model.slice(part) for part in norms])
    assert all(item.shape == (576,) and np.isfinite(item).all() and item.std() > 0 for item in values)


def test_models_of_different_width_are_not_comparable_in_place(weights, judge):
    report = judge(weights("smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf", stories_in(weights))
    assert report.verdict.class_ == "not_testable"
    assert "576 and 288" in " ".join(report.verdict.untested)
