"""The writers of model folders, judged by the official safetensors package."""

import json

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy

from kinprint.formats.safetensors.writer import encode
from kinprint.lab.safetensors_files import split_shards, write_dense
from support.layouts import (
    GlmAirShape,
    TensorSpec,
    from_bf16,
    glm_air_tensors,
    to_bf16,
    write_checkpoint,
    write_sparse_glm_air,
)

TINY = {"layers": 3, "experts": 4, "hidden": 64, "vocab": 512, "heads": 4, "kv_heads": 2, "head_dim": 16}
TINY |= {"intermediate": 96, "moe_intermediate": 32}


def official(path):
    """Read every tensor with the official package's raw parser: (dtype, shape, bytes) by name."""
    parsed = safetensors.deserialize(path.read_bytes())
    return {name: (entry["dtype"], tuple(entry["shape"]), bytes(entry["data"])) for name, entry in parsed}


@pytest.fixture
def arrays():
    rng = np.random.default_rng(7)
    return {
        "b.weight": rng.standard_normal((3, 5)).astype(np.float32),
        "a.weight": rng.standard_normal((2, 2)).astype(np.float16),
        "c.ids": np.arange(7, dtype=np.int64),
        "d.mask": np.array([True, False, True]),
        "e.wide": rng.standard_normal(3),
        "f.byte": np.arange(5, dtype=np.uint8),
        "ünïcode": np.ones((), dtype=np.float32),
        "empty": np.zeros((0, 4), dtype=np.int32),
    }


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}])
def test_writer_agrees_with_the_official_one_byte_for_byte(tmp_path, arrays, metadata):
    write_checkpoint(tmp_path, arrays, {}, metadata=metadata)
    assert (tmp_path / "model.safetensors").read_bytes() == safetensors.numpy.save(arrays, metadata=metadata)


def test_bf16_rounding_agrees_with_ml_dtypes():
    rng = np.random.default_rng(3)
    bits = rng.integers(0, 2**32, 200_000, dtype=np.uint64).astype(np.uint32)
    values = np.concatenate([bits.view(np.float32), np.float32([0.0, -0.0, np.inf, -np.inf, 3.4e38, 1e-45])])
    number = ~np.isnan(values)
    with np.errstate(over="ignore"):
        reference = values[number].astype(ml_dtypes.bfloat16).view(np.uint16)
    np.testing.assert_array_equal(to_bf16(values)[number], reference)
    assert np.isnan(from_bf16(to_bf16(values[~number]))).all()
    assert (~number).any()


def test_sharded_checkpoint_with_stored_types(tmp_path, arrays):
    rng = np.random.default_rng(1)
    raw = rng.integers(0, 2**16, (4, 4), dtype=np.uint16)
    tensors = {
        "x": rng.standard_normal((8, 8)),
        "raw": raw,
        "spec": TensorSpec("F32", (6,)),
        "y": rng.standard_normal((8, 8)).astype(np.float32),
    }
    files = write_checkpoint(
        tmp_path,
        tensors,
        {"model_type": "llama"},
        shards=3,
        dtype={"x": "BF16", "raw": "BF16", "y": "F16"},
        fill=lambda name, spec: np.full(spec.shape, len(name), dtype=np.float32),
        tokenizer={"model": {"vocab": {"a": 0}}},
    )
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert [file.name for file in files] == [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
    read = {}
    for file in files:
        for name, entry in official(file).items():
            read[name] = entry
            assert index["weight_map"][name] == file.name
    assert set(read) == set(tensors) == set(index["weight_map"])
    assert read["x"] == ("BF16", (8, 8), to_bf16(tensors["x"]).tobytes())
    assert read["raw"] == ("BF16", (4, 4), raw.tobytes())
    assert read["spec"] == ("F32", (6,), np.full(6, 4, dtype=np.float32).tobytes())
    assert read["y"] == ("F16", (8, 8), tensors["y"].astype(np.float16).tobytes())
    assert index["metadata"]["total_size"] == sum(len(entry[2]) for entry in read.values())
    assert json.loads((tmp_path / "config.json").read_text()) == {"model_type": "llama"}
    assert json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"] == {"a": 0}


def test_eight_bit_floats_are_given_as_bits(tmp_path):
    spec = TensorSpec("F8_E4M3", (2, 3), np.arange(6, dtype=np.uint8).reshape(2, 3))
    write_dense(tmp_path / "f8.safetensors", {"w": spec})
    assert official(tmp_path / "f8.safetensors") == {"w": ("F8_E4M3", (2, 3), bytes(range(6)))}
    with pytest.raises(ValueError, match="as uint8"):
        encode("w", TensorSpec("F8_E4M3", (1,), np.ones(1)))
    with pytest.raises(ValueError, match="declared shape"):
        encode("w", TensorSpec("F32", (2,), np.ones(3)))


def test_shards_are_even_consecutive_and_never_empty():
    sizes = {f"t{i}": 100 for i in range(100)}
    cut = split_shards(sizes, 10)
    assert [len(part) for part in cut] == [10] * 10
    assert [name for part in cut for name in part] == list(sizes)
    skewed = {"huge": 10**9, "a": 1, "b": 1}
    assert split_shards(skewed, 3) == [["huge"], ["a"], ["b"]]
    assert split_shards(dict(reversed(skewed.items())), 3) == [["b"], ["a"], ["huge"]]
    with pytest.raises(ValueError, match="into 4 shards"):
        split_shards(skewed, 4)


def read_all(report):
    return {name: entry for file in report.files for name, entry in official(file).items()}


def test_tiny_glm_opens_in_the_official_package(tmp_path):
    report = write_sparse_glm_air(tmp_path, shards=3, filled_rows=2, **TINY)
    shape = GlmAirShape(**TINY)
    tensors = read_all(report)
    assert {name: entry[:2] for name, entry in tensors.items()} == {
        name: (spec.dtype, spec.shape) for name, spec in glm_air_tensors(shape).items()
    }
    assert report.tensors == len(tensors)
    assert report.parameters == sum(int(np.prod(entry[1])) for entry in tensors.values())
    assert report.apparent_bytes == sum(file.stat().st_size for file in report.files)
    with safetensors.safe_open(report.files[0], framework="np") as opened:
        assert opened.metadata() == {"format": "pt"}
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"]) == set(tensors)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == ["Glm4MoeForCausalLM"]
    assert (config["num_hidden_layers"], config["num_nextn_predict_layers"], config["n_routed_experts"]) == (3, 1, 4)


def bf16(entry):
    return from_bf16(np.frombuffer(entry[2], dtype=np.uint16)).reshape(entry[1])


def test_tiny_glm_values(tmp_path):
    tensors = read_all(write_sparse_glm_air(tmp_path, shards=3, filled_rows=2, **TINY))
    norms = {name: bf16(entry) for name, entry in tensors.items() if name.endswith("norm.weight")}
    # 2 per layer, the final one, and the 3 of the multi-token-prediction layer
    assert len(norms) == 2 * 4 + 1 + 3
    assert all((norm > 0).all() for norm in norms.values())
    layers = np.array([norms[f"model.layers.{i}.input_layernorm.weight"] for i in range(4)])
    assert np.corrcoef(np.log(layers[0]), np.log(layers[1]))[0, 1] > 0.7
    assert layers[3].mean() > 3 * layers[0].mean()
    query = bf16(tensors["model.layers.1.self_attn.q_proj.weight"])
    assert query[:2].std() == pytest.approx(0.02, rel=0.3)
    assert not query[2:].any()
    assert bf16(tensors["model.layers.1.mlp.experts.0.up_proj.weight"])[:2].any()
    assert not bf16(tensors["model.layers.1.mlp.experts.1.up_proj.weight"]).any()
    assert not bf16(tensors["lm_head.weight"]).any()


def test_glm_seeds_and_derivation(tmp_path):
    def norms(name, **options):
        tensors = read_all(write_sparse_glm_air(tmp_path / name, shards=2, filled_rows=1, **TINY, **options))
        norm = bf16(tensors["model.layers.2.post_attention_layernorm.weight"])
        return norm, bf16(tensors["model.layers.2.self_attn.k_proj.weight"])[0]

    base, again, other = norms("base", seed=1), norms("again", seed=1), norms("other", seed=2)
    child = norms("child", seed=1, perturb=(9, 0.05))
    for parent, same, stranger, derived in zip(base, again, other, child, strict=True):
        np.testing.assert_array_equal(parent, same)
        assert abs(np.corrcoef(parent, stranger)[0, 1]) < 0.5
        ratio = derived / parent - 1
        assert ratio.std() == pytest.approx(0.05, rel=0.4)


def test_without_filled_rows_only_norms_have_values(tmp_path):
    tensors = read_all(write_sparse_glm_air(tmp_path, shards=1, **TINY))
    assert (tmp_path / "model.safetensors").exists()
    filled = {name for name, entry in tensors.items() if any(entry[2])}
    assert filled == {name for name in tensors if name.endswith("norm.weight")}


@pytest.mark.slow
def test_full_size_glm_is_sparse(tmp_path):
    probe = tmp_path / "probe"
    with probe.open("wb") as stream:
        stream.truncate(1 << 30)
    if probe.stat().st_blocks * 512 > 1 << 20:
        pytest.skip("the filesystem of the temporary folder does not hold sparse files")
    report = write_sparse_glm_air(tmp_path / "air")
    assert report.tensors == 18_329
    assert report.main_parameters == pytest.approx(106.85e9, rel=1e-3)
    assert report.parameters == pytest.approx(110.47e9, rel=1e-3)
    assert report.apparent_bytes == pytest.approx(221e9, rel=0.01)
    assert len(report.files) == 47
    on_disk = sum(file.stat().st_blocks * 512 for file in (tmp_path / "air").iterdir())
    assert on_disk < 20e6
    with safetensors.safe_open(report.files[20], framework="np") as opened:
        names = set(opened.keys())
    index = json.loads((tmp_path / "air" / "model.safetensors.index.json").read_text())
    assert names == {name for name, file in index["weight_map"].items() if file == report.files[20].name}
