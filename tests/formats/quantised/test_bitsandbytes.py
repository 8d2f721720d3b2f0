"""bitsandbytes: int8 rows and 4-bit blocks are read as they were stored; the small JSON beside a weight is hostile input."""

import json
from dataclasses import replace

import numpy as np
import pytest

from kinprint.errors import FormatError, UnsupportedDtype
from kinprint.formats.checkpoint import open_checkpoint
from kinprint.formats.plan import rows, whole
from kinprint.formats.quantised import modules
from kinprint.formats.quantised.bitsandbytes import read_state
from kinprint.formats.safetensors.writer import TensorSpec, spec_of
from support.fuzzing import fuzz, spoil
from support.hub import HubServer
from support.quantisers import bnb_4bit, bnb_int8, write_layers

LAYER = "model.layers.0.mlp.up_proj"
CONFIG = {"quant_method": "bitsandbytes"}
STATE = "weight.quant_state.bitsandbytes__nf4"


def matrix(*shape, seed=3):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def changed(layer, tensors):
    """Replace or (None) remove tensors of a layer."""
    merged = {**layer.tensors, **{key: None if value is None else spec_of(value) for key, value in tensors.items()}}
    return replace(layer, tensors={key: value for key, value in merged.items() if value is not None})


def with_state(layer, **changes):
    state = json.loads(layer.tensors[STATE].data.tobytes()) | changes
    raw = json.dumps({key: value for key, value in state.items() if value is not None}).encode()
    return replace(layer, tensors={**layer.tensors, STATE: spec_of(np.frombuffer(raw, np.uint8))})


# -- int8 ----------------------------------------------------------------------------------------------------------------


def test_int8(open_layer, check_layer):
    layer = bnb_int8(matrix(48, 80))
    checkpoint = open_layer(layer, **CONFIG)
    assert check_layer(checkpoint, layer).dtype == "bitsandbytes int8"
    assert checkpoint.notes == ("1 weights are dequantised when read: bitsandbytes int8",)
    check_layer(open_layer(changed(layer, {"weight_format": None})), layer)


def test_int8_in_another_layout_is_refused_by_name(open_layer):
    checkpoint = open_layer(changed(bnb_int8(matrix(48, 80)), {"weight_format": np.array(2, np.uint8)}), **CONFIG)
    with pytest.raises(UnsupportedDtype, match="laid out as 'col_turing'"):
        checkpoint.read([whole(checkpoint.tensors[f"{LAYER}.weight"])])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"SCB": np.ones(47, np.float32)}, "SCB has 47 scales for 48 rows"),
        ({"weight": np.zeros((48, 80), np.float32)}, "weight is F32"),
        ({"weight": None}, "no weight is stored"),
        ({"weight_format": np.zeros(2, np.uint8)}, "weight_format has 2 entries"),
    ],
)
def test_int8_that_does_not_fit_is_left_as_stored(open_layer, changes, reason):
    layer = changed(bnb_int8(matrix(48, 80)), changes)
    checkpoint = open_layer(layer, **CONFIG)
    assert sorted(checkpoint.tensors) == sorted(layer.named(LAYER))
    assert reason in checkpoint.notes[0]


# -- 4-bit ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("kind", ["nf4", "fp4"])
@pytest.mark.parametrize("shape", [(48, 80), (33, 7), (20, 1), (300, 70)])
def test_4bit(open_layer, check_layer, kind, nested, shape):
    layer = bnb_4bit(matrix(*shape), kind=kind, nested=nested)
    checkpoint = open_layer(layer, **CONFIG)
    assert check_layer(checkpoint, layer).dtype == f"bitsandbytes {kind.upper()}"
    assert checkpoint.notes[0].startswith(
        f"1 weights are dequantised when read: bitsandbytes {kind.upper()}, blocks of 64"
    )


def test_4bit_built_in_pieces(open_layer, check_layer, monkeypatch):
    monkeypatch.setattr(modules, "CHUNK_ELEMENTS", 300)
    layer = bnb_4bit(matrix(61, 71))
    check_layer(open_layer(layer, **CONFIG), layer)


def test_4bit_in_larger_blocks_and_another_storage_type(open_layer, check_layer):
    layer = bnb_4bit(matrix(64, 64), block=128)
    raw = layer.tensors["weight"].data.reshape(-1)
    bits = raw.view("<u2").reshape(-1, 1)  # quant_storage=bfloat16, as needed for sharded training
    layer = replace(layer, tensors={**layer.tensors, "weight": TensorSpec("BF16", bits.shape, bits)})
    check_layer(open_layer(layer, **CONFIG), layer)


def test_known_bytes(open_layer):
    """Eight bytes and their values under bitsandbytes itself: NF4 with a scale of 1/32, the high half of a byte first."""
    layer = bnb_4bit(np.zeros((2, 8), np.float32), nested=False)
    codes = np.array([110, 90, 88, 44, 228, 163, 9, 25], np.uint8).reshape(-1, 1)
    layer = changed(layer, {"weight": codes, "weight.absmax": np.array([0.03125], np.float32)})
    checkpoint = open_layer(layer, **CONFIG)
    values = checkpoint.read([whole(checkpoint.tensors[f"{LAYER}.weight"])])[0]
    expected = [-0.002838, 0.022583, -0.005768, 0.00769, -0.005768, 0.002487, -0.016357, 0.013794]
    expected += [0.022583, -0.008911, 0.00769, -0.012329, -0.03125, 0.005035, -0.021729, 0.005035]
    assert np.allclose(values.reshape(-1), expected, rtol=1e-2, atol=1e-5)  # those were rounded to BF16


def test_rows_cost_their_bytes(open_layer):
    checkpoint = open_layer(bnb_4bit(matrix(4096, 256)), **CONFIG)
    tensor = checkpoint.tensors[f"{LAYER}.weight"]
    item = rows(tensor, [(64, 80)])
    assert item.nbytes < 16 * 128 + 64 + 64 + 1024 + 8 + 300
    before = checkpoint.session.bytes_delivered
    checkpoint.read([item])
    assert checkpoint.session.bytes_delivered - before < tensor.nbytes / 8


def test_one_state_is_read_for_all_layers_that_are_alike(tmp_path, session_for):
    layers = {
        f"model.layers.{i}.mlp.{n}_proj": bnb_4bit(matrix(64, 64, seed=i)) for i in range(20) for n in ("up", "gate")
    }
    write_layers(tmp_path / "model", layers, {"model_type": "llama"}, **CONFIG)
    with HubServer() as server:
        server.add_repo("owner/Many", tmp_path / "model")
        checkpoint = open_checkpoint("owner/Many", session_for(server))
        ranged = [request for request in server.requests if request.range]
        assert len(ranged) <= 3  # the header, and two states
        for stem, layer in layers.items():
            values = checkpoint.read([whole(checkpoint.tensors[f"{stem}.weight"])])[0]
            assert np.array_equal(values, layer.values)


def test_a_layer_whose_state_is_unlike_the_others_is_refused_when_read(tmp_path, session_for):
    layers = {f"model.layers.{i}.up_proj": bnb_4bit(matrix(64, 64, seed=i)) for i in range(2)}
    layers["model.layers.1.up_proj"] = with_state(layers["model.layers.1.up_proj"], shape=[32, 128])
    write_layers(tmp_path, layers, {"model_type": "llama"}, **CONFIG)
    checkpoint = open_checkpoint(str(tmp_path), session_for())
    checkpoint.read([whole(checkpoint.tensors["model.layers.0.up_proj.weight"])])
    with pytest.raises(FormatError, match="like weight says"):
        checkpoint.read([whole(checkpoint.tensors["model.layers.1.up_proj.weight"])])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"weight.absmax": None}, "no weight.absmax is stored"),
        ({"weight.quant_map": None}, "no weight.quant_map is stored"),
        ({"weight.quant_map": np.zeros(15, np.float32)}, "does not fit"),
        ({"weight.nested_absmax": None}, "no weight.nested_absmax is stored"),
        ({"weight.nested_quant_map": np.zeros(255, np.float32)}, "does not fit"),
        ({"weight.nested_absmax": np.zeros(9, np.float32)}, "does not fit"),
        ({"weight.absmax": np.zeros(59, np.uint8)}, "does not fit"),
        ({STATE: None}, "no quant_state of up to"),
        ({STATE: np.zeros(5000, np.uint8)}, "no quant_state of up to"),
        ({STATE: np.zeros(50, np.uint8)}, "not valid JSON"),
        ({"weight": None}, "no weight is stored"),
    ],
)
def test_4bit_that_does_not_fit_is_left_as_stored(open_layer, changes, reason):
    layer = changed(bnb_4bit(matrix(48, 80)), changes)
    checkpoint = open_layer(layer, **CONFIG)
    assert sorted(checkpoint.tensors) == sorted(layer.named(LAYER))
    assert reason in checkpoint.notes[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": [48, 81]},
        {"shape": [-48, -80]},
        {"shape": [48, 80.0]},
        {"shape": []},
        {"shape": [1, 1, 1, 48, 80]},
        {"shape": "48"},
        {"shape": [1 << 80, 80]},
        {"shape": [True, 3840]},
        {"blocksize": 0},
        {"blocksize": 1 << 40},
        {"blocksize": None},
        {"blocksize": "64"},
        {"nested_blocksize": 0},
        {"nested_offset": "0.1"},
        {"nested_offset": [1]},
    ],
)
def test_states_that_make_no_sense(open_layer, changes):
    layer = with_state(bnb_4bit(matrix(48, 80)), **changes)
    checkpoint = open_layer(layer, **CONFIG)
    assert sorted(checkpoint.tensors) == sorted(layer.named(LAYER))
    assert "left as stored" in checkpoint.notes[0]


@pytest.mark.parametrize("cases", [100, pytest.param(20_000, marks=pytest.mark.nightly)])
def test_mutated_states(cases):
    sound = bnb_4bit(matrix(48, 80)).tensors[STATE].data.tobytes()
    words = [b"9", b"-", b"[", b"}", b'"', b"e99", b"null", b"\x00", b"64, "]

    def attempt(raw):
        state = read_state(np.frombuffer(raw, np.uint8), "weight")
        assert all(side > 0 for side in (*state.shape, state.block, state.nested_block))

    refused = fuzz(attempt, lambda rng: spoil(sound, rng, words=words), seed=cases, cases=cases, room=5_000_000)
    assert 0.25 * cases < refused < 0.98 * cases
