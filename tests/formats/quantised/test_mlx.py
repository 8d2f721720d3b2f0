"""MLX: what was packed by the definition of the format is what is read; what cannot be is refused by name."""

import re
from dataclasses import replace

import numpy as np
import pytest

from kinprint.errors import UnsupportedDtype
from kinprint.formats.checkpoint import open_checkpoint
from kinprint.formats.plan import rows, whole
from kinprint.formats.quantised import modules
from kinprint.formats.quantised.settings import settings_of
from kinprint.formats.safetensors.writer import spec_of
from kinprint.model.model import open_model
from support.layouts import write_checkpoint
from support.quantisers import mlx, mlx_floats, write_layers

LAYER = "model.layers.0.mlp.up_proj"
GROUPS = {"group_size": 64, "bits": 4}


def matrix(*shape, seed=3):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def write(folder, layers, stated, **config):
    """Write layers with what mlx-lm puts into a config."""
    config = {"model_type": "llama", **config} | ({} if stated is None else {"quantization": stated})
    write_layers(folder, layers, config)


@pytest.fixture
def open_mlx(tmp_path, session_for):
    def build(layer, stated):
        write(tmp_path / "model", {LAYER: layer}, stated)
        return open_checkpoint(str(tmp_path / "model"), session_for())

    return build


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize(("group", "dtype"), [(32, "F16"), (64, "F32"), (128, "BF16")])
def test_all_widths_and_groups(open_mlx, check_layer, bits, group, dtype):
    layer = mlx(matrix(24, 256), bits=bits, group=group, dtype=dtype)
    checkpoint = open_mlx(layer, {"group_size": group, "bits": bits})
    tensor = check_layer(checkpoint, layer)
    assert tensor.dtype == f"MLX {bits}-bit"
    assert tensor.nbytes == sum(spec.nbytes for spec in layer.tensors.values())
    assert checkpoint.notes == (f"1 weights are dequantised when read: MLX {bits}-bit, groups of {group}",)


def test_words_by_hand(open_mlx):
    """Codes of 0, 1, 2, … modulo 32 in 5 bits: the stream of bits, the lowest first, written out here once more."""
    codes = [number % 32 for number in range(64)]
    stream = sum(code << (5 * place) for place, code in enumerate(codes))
    words = [(stream >> (32 * place)) & 0xFFFFFFFF for place in range(10)]
    layer = replace(mlx(matrix(1, 64), bits=5), tensors={})
    tensors = {"weight": np.array([words], np.uint32), "scales": np.full((1, 1), 0.5, np.float32)}
    tensors["biases"] = np.full((1, 1), -3.0, np.float32)
    layer = replace(layer, tensors={key: spec_of(value) for key, value in tensors.items()})
    checkpoint = open_mlx(layer, {"group_size": 64, "bits": 5})
    values = checkpoint.read([whole(checkpoint.tensors[f"{LAYER}.weight"])])[0]
    assert values.tolist() == [[0.5 * code - 3 for code in codes]]


@pytest.mark.parametrize(("mode", "bits", "group"), [("mxfp4", 4, 32), ("mxfp8", 8, 32), ("nvfp4", 4, 16)])
def test_floats(open_mlx, check_layer, mode, bits, group):
    layer = mlx_floats(matrix(24, 256), mode)
    checkpoint = open_mlx(layer, {"group_size": group, "bits": bits, "mode": mode})
    assert check_layer(checkpoint, layer).dtype == f"MLX {mode.upper()}"
    assert np.abs(layer.values - matrix(24, 256)).max() < (0.5 if mode == "mxfp8" else 0.9)


def test_built_in_pieces(open_mlx, check_layer, monkeypatch):
    monkeypatch.setattr(modules, "CHUNK_ELEMENTS", 1000)
    layer = mlx(matrix(24, 256), bits=3)
    check_layer(open_mlx(layer, {"group_size": 64, "bits": 3}), layer)


def test_a_layer_may_have_its_own_width(tmp_path, session_for):
    layers = {"model.embed_tokens": mlx(matrix(16, 128), bits=6, group=32), LAYER: mlx(matrix(16, 128))}
    stated = GROUPS | {"model.embed_tokens": {"group_size": 32, "bits": 6}, "model.layers.0.mlp.down_proj": False}
    write(tmp_path / "m", layers, stated)
    checkpoint = open_checkpoint(str(tmp_path / "m"), session_for())
    for stem, layer in layers.items():
        assert np.array_equal(checkpoint.read([whole(checkpoint.tensors[f"{stem}.weight"])])[0], layer.values)


def test_experts_appear_one_by_one(tmp_path, session_for):
    stem, values = "model.layers.0.mlp.switch_mlp.gate_proj", matrix(3, 8, 128)
    layer = mlx(values)
    write(tmp_path / "m", {stem: layer}, GROUPS)
    checkpoint = open_checkpoint(str(tmp_path / "m"), session_for())
    names = [f"model.layers.0.mlp.experts.{number}.gate_proj.weight" for number in range(3)]
    assert sorted(checkpoint.tensors) == names
    assert sum(checkpoint.tensors[name].nbytes for name in names) == sum(spec.nbytes for spec in layer.tensors.values())
    for number, name in enumerate(names):
        tensor = checkpoint.tensors[name]
        assert np.array_equal(checkpoint.read([whole(tensor)])[0], layer.values[number])
        assert np.array_equal(checkpoint.read([rows(tensor, [(2, 5)])])[0], layer.values[number, 2:5])


@pytest.mark.parametrize(
    ("changes", "stated", "reason"),
    [
        ({}, None, "no config that says how many bits"),
        ({}, {"group_size": 64, "bits": 7}, "MLX with 7 bits; known: 2, 3, 4, 5, 6, 8"),
        ({}, {"group_size": 64, "bits": 4, "mode": "fp42"}, "MLX in the mode 'fp42'; known: affine, mxfp4"),
        ({}, {"group_size": 32, "bits": 4}, "MLX 4-bit in groups of 32: codes of shape"),
        ({}, {"group_size": 64, "bits": 4, "mode": "mxfp4"}, "scales is F32"),
        ({"biases": None}, GROUPS, "no biases is stored"),
        ({"biases": np.zeros((9, 2), np.float32)}, GROUPS, "biases of shape \\[9, 2\\] beside scales"),
        ({"scales": np.zeros((16, 3), np.float32)}, GROUPS, "do not fit scales of shape \\[16, 3\\]"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name_when_it_is_read(open_mlx, changes, stated, reason):
    layer = mlx(matrix(16, 128))
    tensors = {**layer.tensors, **{key: None if value is None else spec_of(value) for key, value in changes.items()}}
    layer = replace(layer, tensors={key: value for key, value in tensors.items() if value is not None})
    checkpoint = open_mlx(layer, stated)  # which is no reason to refuse the rest of the model
    assert sorted(checkpoint.tensors) == sorted(layer.named(LAYER))
    assert re.search(f"1 quantised layer is left as stored, e.g. {LAYER}: .*{reason}", checkpoint.notes[0])
    tensor = checkpoint.tensors[f"{LAYER}.weight"]
    for wanted in (whole(tensor), rows(tensor, [(1, 2)])):
        with pytest.raises(UnsupportedDtype, match=f"{LAYER}.weight.*{reason}"):
            checkpoint.read([wanted])
    checkpoint.read([whole(checkpoint.tensors[f"{LAYER}.scales"])])


def test_unsigned_integers_and_powers_of_two_are_read_as_they_are(tmp_path, session_for):
    tensors = {kind: np.arange(250, 256).astype(kind) for kind in ("u2", "u4", "u8")}
    scales = spec_of(np.array([0, 127, 130, 255], np.uint8))
    write_checkpoint(tmp_path / "m", {**tensors, "e8m0": replace(scales, dtype="F8_E8M0")}, {"model_type": "llama"})
    checkpoint = open_checkpoint(str(tmp_path / "m"), session_for())
    assert checkpoint.notes == ()
    for name, values in tensors.items():
        found = checkpoint.read([whole(checkpoint.tensors[name])])[0]
        assert (found.dtype, found.tolist()) == (values.dtype, values.tolist())
    found = checkpoint.read([whole(checkpoint.tensors["e8m0"])])[0]
    assert found[:3].tolist() == [2.0**-127, 1.0, 8.0]
    assert np.isnan(found[3])


@pytest.mark.parametrize("stated", [5, [], "mlx", {"bits": True, "group_size": 64}, {"bits": 4}, {"x": {"bits": -1}}])
def test_configs_that_make_no_sense_say_nothing(stated):
    assert settings_of({"quantization": stated}).layers == {}


def test_codes_that_cannot_be_read_have_no_role_and_leave_the_rest_alone(tmp_path, session_for):
    layer = mlx(matrix(16, 128))
    stored = {**layer.named(LAYER), "model.norm.weight": np.ones(128, np.float32)}
    write_checkpoint(tmp_path / "m", stored, {"model_type": "llama", "quantization": {"bits": 7, "group_size": 64}})
    naming = open_model(str(tmp_path / "m"), session_for()).naming
    assert [part.name for part in naming.tensors] == ["model.norm.weight"]
    assert {item.name: item.reason for item in naming.excluded}[f"{LAYER}.weight"] == "packed by a quantiser"
