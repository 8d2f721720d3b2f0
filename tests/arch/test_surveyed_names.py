"""Every model type of transformers that could be built small: all its tensors have the roles that were proven by reordering it."""

from __future__ import annotations

import pytest

from kinprint.arch import Axis, Naming, Role, architectures, name_tensors, residual_width
from kinprint.arch.configs import flattened, mixer_head_of
from kinprint.arch.roles import permuted_axis
from support.families import FAMILIES
from support.surveyed import SURVEYED

STAGED = {"staged", "swinv2", "swiftformer", "sam2_vision", "staged_audio", "inverted", "mobilebert"}


def named(kind: str) -> Naming:
    return name_tensors(SURVEYED[kind].config, SURVEYED[kind].shapes)


def found_roles(naming: Naming) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {item.name: set() for item in naming.excluded}
    for each in (naming, *(inner for _, inner in naming.towers)):
        for tensor in each.tensors:
            found.setdefault(tensor.name.partition("[")[0], set()).add(tensor.role.value)
    return found


@pytest.mark.parametrize("kind", SURVEYED)
def test_all_tensors_have_their_roles(kind: str) -> None:
    naming = named(kind)
    assert (naming.architecture, naming.guessed, naming.unmapped) == (SURVEYED[kind].file, False, ())
    assert found_roles(naming) == SURVEYED[kind].roles


@pytest.mark.parametrize("kind", SURVEYED)
def test_residual_axes_have_one_width(kind: str) -> None:
    """A role given to the wrong tensor shows here: its axes do not fit (narrow embeddings have a width of their own)."""
    naming = named(kind)
    ends = {Role.EMBEDDING_PROJECTION: 1, Role.HEAD_PROJECTION: 0}
    narrow = {t.shape[ends[t.role]] for t in naming.tensors if t.role in ends}
    widths = {
        s for t in naming.tensors for s, axis in zip(t.shape, t.role.info.axes, strict=True) if axis is Axis.RESIDUAL
    }
    if SURVEYED[kind].file in STAGED:  # one width for each stage; the first layer of a stage may read the one before
        by_layer: dict[int | None, set[int]] = {}
        for t in naming.tensors:
            sizes = zip(t.shape, t.role.info.axes, strict=True)
            by_layer.setdefault(t.layer, set()).update(s for s, axis in sizes if axis is Axis.RESIDUAL)
        by_layer.pop(None, None)
        assert max(map(len, by_layer.values())) <= 2
        assert widths >= {residual_width(naming)}
        return
    if kind == "fun_asr_nano_encoder":  # its first layer reads stacked frames
        widths.remove(7 * SURVEYED[kind].config["num_mel_bins"])
    assert widths - narrow == {residual_width(naming)} - narrow - {None}  # a network of convolutions alone has none


def test_every_file_was_tried() -> None:
    tried = {family.file for family in FAMILIES} | {each.file for each in SURVEYED.values()}
    tried |= {inner.architecture for kind in SURVEYED for _, inner in named(kind).towers if not inner.guessed}
    tried |= {"ctranslate2", "ctranslate2_gated"}  # in tests/formats/test_ctranslate2.py
    tried |= {"unet", "flux", "sd3", "pixart", "dit", "vaetki"}  # in test_diffusion.py and test_korean_models.py
    tried |= {"llama_original"}  # in test_guessing.py
    assert tried == set(architectures())


def test_an_encoder_decoder_counts_its_layers_through() -> None:
    naming = named("t5")
    queries = {t.layer: t.name for t in naming.tensors if t.role is Role.ATTN_Q}
    assert sorted(queries) == list(range(6))
    assert queries[0].startswith("encoder.block.0.")
    assert queries[3].startswith("decoder.block.0.")
    assert {t.layer for t in naming.tensors if t.role is Role.CROSS_Q} == {3, 4, 5}
    assert naming.layers == 6
    assert "the encoder's 3 layers are counted first: layer 3 is the decoder's first" in naming.notes


def test_an_encoder_alone_counts_from_nothing() -> None:
    shapes = {name: shape for name, shape in SURVEYED["t5"].shapes.items() if not name.startswith("decoder.")}
    naming = name_tensors(SURVEYED["t5"].config, shapes)
    assert {t.layer for t in naming.tensors if t.role is Role.ATTN_Q} == {0, 1, 2}


def test_embeddings_stored_twice_count_once() -> None:
    shapes = {**SURVEYED["bart"].shapes, "model.encoder.embed_tokens.weight": (192, 64)}
    naming = name_tensors(SURVEYED["bart"].config, shapes)
    assert [t.name for t in naming.tensors if t.role is Role.EMBEDDING] == ["model.shared.weight"]
    assert [item.name for item in naming.excluded if "same role" in item.reason] == [
        "model.encoder.embed_tokens.weight"
    ]


def test_norms_follow_what_they_do_not_what_they_are_called() -> None:
    after, before = (
        {t.role for t in named(kind).tensors if t.name.startswith("model.encoder.layers.0.self_attn_layer_norm")}
        for kind in ("bart", "mbart")
    )
    assert after == {Role.ATTENTION_OUTPUT_NORM, Role.ATTENTION_OUTPUT_NORM_BIAS}
    assert before == {Role.INPUT_NORM, Role.INPUT_NORM_BIAS}


@pytest.mark.parametrize("role", [role for role in Role if role.value.startswith("mixer_")])
def test_channels_states_and_taps_of_mixers_are_never_permuted(role: Role) -> None:
    position, _ = permuted_axis(role, {})
    assert position is None or role.info.axes[position] is Axis.RESIDUAL


def test_a_convolution_has_two_axes() -> None:
    (taps,) = {t.shape for t in named("mamba").tensors if t.role is Role.SSM_CONV}
    assert SURVEYED["mamba"].shapes["backbone.layers.0.mixer.conv1d.weight"] == (taps[0], 1, taps[1])


@pytest.mark.parametrize("kind", ["mamba2", "bamba", "falcon_h1", "granitemoehybrid", "nemotron_h", "zamba2"])
def test_the_input_of_mamba_2_is_taken_apart(kind: str) -> None:
    naming = named(kind)
    rows = {t.role: t.rows for t in naming.tensors if t.role.value.startswith("mixer_") and t.rows is not None}
    assert [role.value for role in rows] == ["mixer_gate", "mixer_value", "mixer_keys", "mixer_queries", "mixer_rates"]
    size = mixer_head_of(flattened(SURVEYED[kind].config))
    (value,) = {t.shape[0] for t in naming.tensors if t.role is Role.MIXER_VALUE}
    assert size is not None
    assert value % size == 0
    assert permuted_axis(Role.MIXER_VALUE, {})[0] == 1  # rows are free inside a head only
