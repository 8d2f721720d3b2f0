"""Putting quantised layers together: what triggers it, what is said about the rest, and bad input."""

import json

import numpy as np
import pytest

from kinprint.errors import FormatError, UnsupportedDtype
from kinprint.formats import quantised
from kinprint.formats.checkpoint import open_checkpoint
from kinprint.formats.plan import whole
from kinprint.formats.quantised.settings import settings_of
from kinprint.formats.safetensors.writer import STORAGE, TensorSpec, encode, layout
from kinprint.model.model import open_model
from support import quantisers
from support.fuzzing import MemorySession, fuzz
from support.layouts import write_checkpoint
from support.quantisers import write_layers

LAYER = "model.layers.0.mlp.up_proj"
LLAMA = {"model_type": "llama"}


def matrix(out=32, width=64, seed=3):
    return np.random.default_rng(seed).standard_normal((out, width)).astype(np.float32)


def test_plain_models_are_left_alone(tmp_path, session_for):
    tensors = {f"x{n}.weight": matrix() for n in range(3)}
    write_checkpoint(tmp_path, tensors, {**LLAMA, "quantization_config": {"quant_method": "strange"}})
    checkpoint = open_checkpoint(str(tmp_path), session_for())
    assert (sorted(checkpoint.tensors), checkpoint.notes) == (sorted(tensors), ())


def test_buffers_of_integers_are_no_quantisation(tmp_path, session_for):
    tensors = {"embeddings.position_ids": np.arange(8)[None], "x.weight": matrix(), "layer_scales": matrix()}
    write_checkpoint(tmp_path, tensors, LLAMA)
    checkpoint = open_checkpoint(str(tmp_path), session_for())
    assert (sorted(checkpoint.tensors), checkpoint.notes) == (sorted(tensors), ())


def test_scales_left_behind_beside_plain_numbers(tmp_path, session_for):
    tensors = {"x.weight": matrix(), "x.weight_scale": np.ones(1, np.float32), "ids": np.arange(4)}
    write_checkpoint(tmp_path, tensors, LLAMA)
    checkpoint = open_checkpoint(str(tmp_path), session_for())
    assert (sorted(checkpoint.tensors), checkpoint.notes) == (sorted(tensors), ())


def test_layers_of_several_kinds_and_shards(tmp_path, session_for):
    layers = {f"model.layers.{n}.mlp.up_proj": quantisers.gptq(matrix(seed=n)) for n in range(3)}
    layers |= {f"model.layers.{n}.mlp.gate_proj": quantisers.bnb_4bit(matrix(seed=n)) for n in range(3)}
    stored = {name: spec for stem, layer in layers.items() for name, spec in layer.named(stem).items()}
    stored["model.norm.weight"] = np.ones(8, np.float32)
    write_checkpoint(tmp_path, stored, LLAMA, shards=4)
    checkpoint = open_checkpoint(str(tmp_path), session_for())
    assert sorted(checkpoint.tensors) == sorted([f"{stem}.weight" for stem in layers] + ["model.norm.weight"])
    assert sum(tensor.nbytes for tensor in checkpoint.tensors.values()) == sum(
        file.size - file.header_bytes for file in checkpoint.files
    )
    for stem, layer in layers.items():
        assert np.array_equal(checkpoint.read([whole(checkpoint.tensors[f"{stem}.weight"])])[0], layer.values)
    assert checkpoint.notes == (
        "3 weights are dequantised when read: GPTQ 4-bit, groups of 64",
        "3 weights are dequantised when read: bitsandbytes NF4, blocks of 64, scales quantised too",
    )


def test_a_method_that_is_not_known_is_named(tmp_path, session_for):
    layer = quantisers.gptq(matrix())
    write_layers(tmp_path, {LAYER: layer}, LLAMA, quant_method="Quip#")
    checkpoint = open_checkpoint(str(tmp_path), session_for())
    assert sorted(checkpoint.tensors) == sorted(layer.named(LAYER))
    assert checkpoint.notes == ("quantisation 'quip#' is not known: 3 tensors are left as stored",)
    naming = open_model(str(tmp_path), session_for()).naming
    assert naming.tensors == ()  # packed numbers have no role


def test_a_method_that_is_not_known_and_nothing_else(tmp_path, session_for):
    write_checkpoint(tmp_path, {"x.codes": np.arange(8)}, {**LLAMA, "quantization_config": {"quant_method": "aqlm"}})
    with pytest.raises(UnsupportedDtype, match="quantisation 'aqlm' is not known"):
        open_checkpoint(str(tmp_path), session_for())


def test_many_reasons_are_counted(tmp_path, session_for):
    layers = {}
    for number in range(9):
        layer = quantisers.gptq(matrix(width=128))
        tensors = {**layer.tensors, "g_idx": TensorSpec("I32", (number + 1,), np.zeros(number + 1, np.int32))}
        layers[f"model.layers.{number}.up_proj"] = quantisers.Stored(tensors, layer.values)
    write_layers(tmp_path, layers, LLAMA)
    notes = open_checkpoint(str(tmp_path), session_for()).notes
    assert len(notes) == 7
    assert notes[-1] == "3 more quantised layers are left as stored, for 3 more reasons"


def test_settings_are_found_wherever_tools_put_them():
    groups = {"group_0": {"weights": {"num_bits": 4, "group_size": 32}, "input_activations": {"num_bits": 8}}}
    stated = {"quant_method": "Compressed-Tensors", "format": "pack-quantized", "config_groups": groups}
    for config in (
        {"quantization_config": stated},
        {"compression_config": stated},
        {"text_config": {"quantization_config": stated}},
    ):
        settings = settings_of({"model_type": "Llama", **config})
        assert (settings.method, settings.layout) == ("compressed-tensors", "pack-quantized")
        assert (settings.bits, settings.groups, settings.model_type) == ((4,), (32,), "llama")


@pytest.mark.parametrize(
    "stated",
    [
        None,
        [],
        "gptq",
        {"quant_method": 4, "bits": "4", "group_size": -1, "weight_block_size": [0, 128]},
        {"bits": True, "group_size": 1 << 90, "weight_block_size": [128], "checkpoint_format": None},
        {"weight_block_size": "12", "config_groups": {"a": {"b": {"c": {"d": {"e": {"bits": 4}}}}}}},
    ],
)
def test_settings_that_make_no_sense_count_as_absent(stated):
    settings = settings_of({"quantization_config": stated, "model_type": ["x"]})
    assert (settings.method, settings.layout, settings.bits, settings.groups, settings.blocks) == (
        None,
        None,
        (),
        (),
        (),
    )


def test_too_many_tensors(tmp_path, session_for, monkeypatch):
    monkeypatch.setattr(quantised, "MAX_TENSORS", 8)
    stack = quantisers.mxfp4_experts(np.ones((5, 4, 32), np.float32))
    write_layers(tmp_path, {"model.layers.0.mlp.experts.gate_up_proj": stack}, {"model_type": "gpt_oss"})
    with pytest.raises(FormatError, match="more than 8 tensors"):
        open_checkpoint(str(tmp_path), session_for())


# -- bad input -------------------------------------------------------------------------------------------------------------

MAKERS = [
    quantisers.gptq,
    quantisers.awq,
    quantisers.bnb_int8,
    quantisers.bnb_4bit,
    quantisers.fp8,
    quantisers.int8,
    lambda weight: quantisers.packed(weight, zeros="packed"),
    quantisers.mxfp4,
    quantisers.nvfp4,
    lambda weight: quantisers.nvfp4(weight, modelopt=True),
    lambda weight: quantisers.mxfp4_experts(weight[None]),
]
SUPPORTED = [
    name for name in STORAGE if name in ("F64", "F32", "F16", "BF16", "F8_E4M3", "I64", "I32", "I16", "I8", "U8")
]


def spoilt(tensors, rng):
    """Change the dtype, the shape, the bytes or the presence of some tensors."""
    result = dict(tensors)
    for _ in range(rng.randint(1, 3)):
        name = rng.choice(list(result))
        spec = result[name]
        raw = np.frombuffer(np.ascontiguousarray(spec.data).tobytes(), np.uint8)
        match rng.randrange(5):
            case 0 if len(result) > 1:
                del result[name]
            case 1:
                dtype = rng.choice([other for other in SUPPORTED if raw.size % STORAGE[other].itemsize == 0])
                data = raw.view(STORAGE[dtype])
                result[name] = TensorSpec(dtype, data.shape, data)
            case 2:
                shape = rng.choice(
                    [spec.shape[::-1], (*spec.shape, 1), (1, *spec.shape), (spec.count,), (spec.count, 1)]
                )
                result[name] = TensorSpec(spec.dtype, shape, np.ascontiguousarray(spec.data).reshape(shape))
            case 3:
                data = raw.copy()
                for _ in range(rng.randint(1, 8)):
                    if data.size:
                        data[rng.randrange(data.size)] = rng.randrange(256)
                result[name] = TensorSpec(spec.dtype, spec.shape, data.view(STORAGE[spec.dtype]).reshape(spec.shape))
            case _:
                shape = tuple(rng.choice([0, 1, 2, 3, side, side + 1]) for side in spec.shape)
                result[name] = TensorSpec(spec.dtype, shape, np.zeros(shape, STORAGE[spec.dtype]))
    return result


METHODS = ["gptq", "awq", "bitsandbytes", "fp8", "compressed-tensors", "mxfp4", None]
SETTINGS = [{}, {"bits": 3}, {"group_size": 7}, {"weight_block_size": [2, 3]}, {"checkpoint_format": "gptq_v2"}]


@pytest.mark.parametrize("cases", [100, pytest.param(20_000, marks=pytest.mark.nightly)])
def test_spoilt_layers(cases):
    """Refused, left as stored or dequantised; a case is a config and a file behind it."""
    layers = [maker(matrix()).named("model.layers.0.mlp.experts.down_proj") for maker in MAKERS]
    read = []

    def mutant(rng):
        stated = {"quant_method": rng.choice(METHODS), **rng.choice(SETTINGS)}
        config = json.dumps({**LLAMA, "quantization_config": stated}).encode()
        tensors = spoilt(rng.choice(layers), rng)
        head, offsets = layout(tensors, None)
        return config + b"\n" + head + b"".join(encode(name, tensors[name]) for name in offsets)

    def attempt(raw):
        config, _, file = raw.partition(b"\n")
        checkpoint = session.open_files({"config.json": config, "model.safetensors": file})
        for tensor in checkpoint.tensors.values():
            assert checkpoint.read([whole(tensor)])[0].shape == tensor.shape
            read.append(1)

    with MemorySession() as session:
        refused = fuzz(attempt, mutant, seed=cases, cases=cases, room=8 << 20)
    assert len(read) > cases  # most files have several tensors
    assert refused < cases
