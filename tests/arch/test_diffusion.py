"""Diffusion models: every tensor named, in the names of diffusers and of the originals, and which of their axes are free."""

import json

import numpy as np
import pytest

import kinprint
from kinprint.arch import Axis, Role, name_tensors, ordered_axes
from kinprint.arch.nested_blocks import renamed
from kinprint.arch.roles import permuted_axis
from support.layouts import write_checkpoint
from support.places import ROOT

MODELS = json.loads((ROOT / "tests" / "support" / "diffusion_names.json").read_text(encoding="utf-8"))


def shapes_of(name):
    return {key: tuple(shape) for key, shape in MODELS[name]["shapes"].items()}


@pytest.mark.parametrize("with_config", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_every_tensor_has_a_role_or_a_reason(name, with_config):
    naming = name_tensors(MODELS[name]["config"] if with_config else {}, shapes_of(name))
    assert naming.architecture == name.removesuffix("_xl")
    assert naming.unmapped == ()
    assert all(item.reason for item in naming.excluded)
    assert naming.guessed is not with_config


def original(name):
    """Say a name of diffusers' UNet as the original has it: one residual block in each block down, two in each up."""
    inside = {"norm1": "in_layers.0", "conv1": "in_layers.2", "time_emb_proj": "emb_layers.1", "norm2": "out_layers.0"}
    inside |= {"conv2": "out_layers.3", "conv_shortcut": "skip_connection"}
    first = {"conv_in": "input_blocks.0.0", "conv_norm_out": "out.0", "conv_out": "out.2"}
    first |= {"time_embedding.linear_1": "time_embed.0", "time_embedding.linear_2": "time_embed.2"}
    for part, other in first.items():
        if name.startswith(part + "."):
            return "model.diffusion_model." + other + name.removeprefix(part)
    stage, rest = name.split(".", 1)
    block = 0
    if stage != "mid_block":
        number, rest = rest.split(".", 1)
        block = int(number)
    kind, part, tail = rest.split(".", 2)
    at = int(part)
    if kind == "resnets":
        module, _, end = tail.partition(".")
        tail = f"{inside[module]}.{end}"
    if stage == "mid_block":
        head = f"middle_block.{2 * at if kind == 'resnets' else 1}"
    elif stage == "down_blocks":  # one residual block and one attention in each, then the change of resolution
        number = 1 + 2 * block + (at if kind != "downsamplers" else 1)
        head, tail = (
            f"input_blocks.{number}.{int(kind == 'attentions')}",
            tail.replace("conv.", "op.") if kind == "downsamplers" else tail,
        )
    else:  # two of each, and in the last of them a change of resolution
        number = 2 * block + (at if kind != "upsamplers" else 1)
        head = f"output_blocks.{number}.{ {'resnets': 0, 'attentions': 1, 'upsamplers': 2}[kind] }"
    return f"model.diffusion_model.{head}.{tail}"


def test_the_original_names_of_a_unet_have_the_same_roles_in_the_same_layers():
    shapes = shapes_of("unet")
    one = name_tensors({}, shapes)
    two = name_tensors({}, {original(name): shape for name, shape in shapes.items()})
    assert two.unmapped == ()
    assert {(t.key, original(t.name)) for t in one.tensors} == {(t.key, t.name) for t in two.tensors}


def test_a_checkpoint_with_its_text_encoder_and_autoencoder_is_its_unet():
    shapes = {original(name): shape for name, shape in shapes_of("unet").items()}
    more = {"first_stage_model.encoder.conv_in.weight": (8, 3, 3, 3), "alphas_cumprod": (1000,)}
    more |= {f"cond_stage_model.transformer.layers.{n}.mlp.fc1.weight": (8, 4) for n in range(500)}
    naming = name_tensors({}, shapes | more)
    assert (naming.architecture, naming.unmapped, len(naming.excluded)) == ("unet", (), len(more))


def test_blocks_are_counted_in_the_order_in_which_they_act():
    new = renamed([
        "up_blocks.0.resnets.0.conv1.weight",
        "mid_block.attentions.0.transformer_blocks.0.norm1.weight",
        "down_blocks.0.resnets.1.conv1.weight",
        "down_blocks.0.attentions.0.transformer_blocks.1.norm1.weight",
        "down_blocks.0.attentions.0.transformer_blocks.0.norm1.weight",
        "down_blocks.0.attentions.0.norm.weight",
        "down_blocks.0.resnets.0.conv1.weight",
        "down_blocks.0.downsamplers.0.conv.weight",
    ])  # fmt: skip
    assert list(new.values()) == [
        "unet_conv.6.conv1.weight",
        "unet_layer.5.norm1.weight",
        "unet_conv.3.conv1.weight",
        "unet_layer.2.norm1.weight",
        "unet_layer.1.norm1.weight",
        "unet_attention.1.norm.weight",
        "unet_conv.0.conv1.weight",
        "unet_sample.4.conv.weight",
    ]


def test_names_that_would_become_one_are_left_as_they_are():
    twice = ["down_blocks.0.resnets.0.conv1.weight", "down_blocks.00.resnets.0.conv1.weight"]
    assert renamed(twice) == {}


def test_one_channel_of_each_group_is_free_and_no_other_channel():
    naming = name_tensors(MODELS["unet"]["config"], shapes_of("unet"))
    parts = {tensor.role: tensor for tensor in naming.tensors if tensor.layer == 0}
    up, rest = parts[Role.CONV_UP], parts[Role.CONV_UP_REST]
    assert up.name == rest.name
    channels = MODELS["unet"]["shapes"][up.name][0]
    assert up.rows == tuple((at, at + 1) for at in range(0, channels, channels // 32))
    assert up.shape[0] + rest.shape[0] == channels
    assert permuted_axis(Role.CONV_UP, {})[0] == 0
    fixed = (Role.CONV_UP_REST, Role.CONV_DOWN, Role.CONV_SHORTCUT, Role.CONDITION_K, Role.CONDITION_V, Role.MODULATION)
    assert [permuted_axis(role, {})[0] for role in fixed] == [None] * len(fixed)


@pytest.mark.parametrize(
    ("name", "fixed"), [("unet", False), ("flux", False), ("sd3", True), ("pixart", True), ("dit", True)]
)
def test_fixed_positions_give_residual_dimensions_an_order(tmp_path, name, fixed):
    rng = np.random.default_rng(1)
    write_checkpoint(tmp_path, {key: rng.random(shape, dtype=np.float32) for key, shape in shapes_of(name).items()}, {})
    with kinprint.open(tmp_path) as model:
        assert (Axis.RESIDUAL in ordered_axes(model.config)) is fixed


@pytest.mark.slow
@pytest.mark.parametrize("name", ["unet", "flux", "sd3"])
def test_a_noisy_copy_is_related_and_a_model_of_another_seed_is_not(tmp_path, name):
    shapes, found = shapes_of(name), {}
    for seed, copy in enumerate(("one", "other")):
        rng = np.random.default_rng(seed)
        found[copy] = {key: rng.standard_normal(shape).astype(np.float32) for key, shape in shapes.items()}
    rng = np.random.default_rng(9)
    found["noisy"] = {
        key: values + np.float32(0.05) * rng.standard_normal(values.shape, dtype=np.float32)
        for key, values in found["one"].items()
    }
    for copy, tensors in found.items():
        write_checkpoint(tmp_path / copy, tensors, MODELS[name]["config"])
    noisy, other = (kinprint.compare(tmp_path / "one", tmp_path / copy).verdict for copy in ("noisy", "other"))
    assert noisy.class_ in ("derived", "shares_initialisation")  # nothing is learned in random numbers
    assert noisy.log10_p < -20
    assert other.class_ == "no_evidence"
