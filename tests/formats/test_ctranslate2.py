"""CTranslate2's model.bin beyond the contract of all formats: an encoder-decoder, scales, and files that lie."""

from __future__ import annotations

import struct

import numpy as np
import pytest

import kinprint
from kinprint.arch import Axis, Role
from kinprint.arch.configs import ordered_axes
from kinprint.errors import KinprintError
from support.contract.little_model import CONFIG, little_model
from support.contract.make_ctranslate2 import model_bytes, string, variable

WIDTH = 16


def whisper_like() -> bytes:
    rng = np.random.default_rng(1)
    found = []
    for side in ("encoder", "decoder"):
        for layer in range(2):
            head = f"{side}/layer_{layer}/"
            shapes = {"self_attention/linear_0/weight": (48, 16), "self_attention/linear_1/weight": (16, 16)}
            shapes |= {"self_attention/layer_norm/gamma": (16,), "self_attention/layer_norm/beta": (16,)}
            shapes |= {"ffn/layer_norm/gamma": (16,), "ffn/linear_0/weight": (32, 16), "ffn/linear_1/weight": (16, 32)}
            if side == "decoder":
                shapes |= {"attention/linear_0/weight": (16, 16), "attention/linear_1/weight": (32, 16)}
                shapes |= {"attention/linear_2/weight": (16, 16), "attention/layer_norm/gamma": (16,)}
            found += [variable(head + name, rng.standard_normal(shape), "F32") for name, shape in shapes.items()]
    found += [variable("decoder/embeddings/weight", rng.standard_normal((20, 16)), "F16")]
    found += [variable("encoder/conv1/weight", rng.standard_normal((16, 8, 3)), "F32")]
    head = struct.pack("<I", 6) + string("WhisperSpec") + struct.pack("<II", 3, len(found))
    return (
        head
        + b"".join(found)
        + struct.pack("<I", 1)
        + string("decoder/projection/weight")
        + string("decoder/embeddings/weight")
    )


def test_an_encoder_decoder_has_its_roles(tmp_path):
    (tmp_path / "model.bin").write_bytes(whisper_like())
    with kinprint.open(tmp_path) as model:
        assert (model.naming.architecture, model.naming.guessed, model.naming.unmapped) == ("ctranslate2", False, ())
        assert model.roles["attn_q"].layers == (0, 1, 2, 3)
        assert model.roles["cross_k"].layers == (2, 3)
        assert model.tensor("conv_stem").shape == (16, 24)
        assert Axis.RESIDUAL in ordered_axes(model.config)  # its positions may be fixed sinusoids


def test_gates_are_told_from_ups_and_heads_of_groups_from_queries(tmp_path):
    tensors = little_model()
    (tmp_path / "model.bin").write_bytes(model_bytes(tensors, CONFIG["num_hidden_layers"], "F32"))
    with kinprint.open(tmp_path) as model:
        for role, name in (
            (Role.MLP_GATE, "mlp.gate_proj"),
            (Role.MLP_UP, "mlp.up_proj"),
            (Role.ATTN_V, "self_attn.v_proj"),
        ):
            assert np.array_equal(model.tensor(role, 1), tensors[f"model.layers.1.{name}.weight"])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda raw: raw[:4] + b"\xff\xff" + raw[6:],
        lambda raw: raw[:-3],
        lambda raw: raw + b"\0",
        lambda raw: raw.replace(struct.pack("<II", 3, 38), struct.pack("<II", 3, 2**31), 1),
        lambda raw: raw.replace(struct.pack("<B2I", 2, 48, 16), struct.pack("<B2I", 2, 2**31, 2**31), 1),
        lambda raw: raw.replace(b"decoder/layer_1", b"decoder/layer_0"),
        lambda raw: b"\x63" + raw[1:],
    ],
)
def test_a_file_that_lies_is_refused(tmp_path, spoil):
    (tmp_path / "model.bin").write_bytes(spoil(whisper_like()))
    with pytest.raises(KinprintError), kinprint.open(tmp_path):
        pass
