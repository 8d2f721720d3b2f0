"""Encoders of pictures in stages of unequal width: blocks counted through, channels that are free, copies found."""

import numpy as np
import pytest

import kinprint
from kinprint.arch import Axis, Role, name_tensors, residual_width
from kinprint.arch.nested_blocks import renamed
from kinprint.evidence.neuron_gram import neuron_sets
from support.layouts import write_checkpoint

BLOCKS = {  # the third block of a model whose first stage has two, in the names that libraries have for it
    "encoder.layers.1.blocks.0.output.dense.weight": "encoder.layers.0.blocks.{}.output.dense.weight",
    "swin.encoder.layers.1.blocks.0.output.dense.weight": "swin.encoder.layers.0.blocks.{}.output.dense.weight",
    "encoder.stages.1.layers.0.pwconv1.weight": "encoder.stages.0.layers.{}.pwconv1.weight",
    "stages.1.layers.0.pointwise_conv1.weight": "stages.0.layers.{}.pointwise_conv1.weight",
    "encoder.block.1.0.mlp.dense1.weight": "encoder.block.0.{}.mlp.dense1.weight",
    "funnel.encoder.blocks.1.0.ffn.linear_1.weight": "funnel.encoder.blocks.0.{}.ffn.linear_1.weight",
    "encoder.network.2.blocks.0.linear.fc1.weight": "encoder.network.0.blocks.{}.linear.fc1.weight",
    "conv_layers.0.stage.0.ffn.linear1.weight": "stem.stage.{}.ffn.linear1.weight",
}


@pytest.mark.parametrize("third", BLOCKS)
def test_blocks_are_counted_through_the_stages(third):
    new = renamed([third, *(BLOCKS[third].format(n) for n in (1, 0))])
    assert [name.split("stage_layer.")[1][0] for name in new.values()] == ["2", "1", "0"]


@pytest.mark.parametrize(
    "names",
    [
        ["encoder.block.0.layer.0.SelfAttention.q.weight", "encoder.block.1.layer.0.SelfAttention.q.weight"],  # T5
        ["model.layers.0.self_attn.q_proj.weight", "model.layers.1.blocks.weight"],
        ["encoder.block.0.0.mlp.dense1.weight", "encoder.block.00.0.mlp.dense1.weight"],  # would become one
    ],
)
def test_other_names_are_left_as_they_are(names):
    assert renamed(names) == {}


def test_two_models_in_stages_each_count_from_nothing():
    new = renamed(
        [f"{head}.encoder.layers.{n}.blocks.0.output.dense.weight" for head in ("one", "two") for n in (0, 1)]
    )
    assert [name.partition(".output")[0] for name in new.values()] == [
        "one.stage_layer.0",
        "one.stage_layer.1",
        "two.stage_layer.0",
        "two.stage_layer.1",
    ]


CONFIG = {"model_type": "swin", "architectures": ["SwinModel"]}
WIDTHS = (32, 32, 64, 64, 64, 64)


def swin(seed):
    """Return a Swin of two stages, whose second is twice as wide."""
    rng = np.random.default_rng(seed)

    def drawn(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    made = {"embeddings.patch_embeddings.projection.weight": drawn(32, 3, 4, 4)}
    made |= {"encoder.layers.0.downsample.reduction.weight": drawn(64, 128)}
    for number, width in enumerate(WIDTHS):
        head = f"encoder.layers.{int(width == 64)}.blocks.{number if width == 32 else number - 2}."
        for part in ("query", "key", "value"):
            made[f"{head}attention.self.{part}.weight"] = drawn(width, width)
        made[f"{head}attention.output.dense.weight"] = drawn(width, width)
        made[f"{head}intermediate.dense.weight"] = drawn(4 * width, width)
        made[f"{head}output.dense.weight"] = drawn(width, 4 * width)
        for norm in ("layernorm_before", "layernorm_after"):
            made[f"{head}{norm}.weight"] = 1 + drawn(width) / 10
    return made


def test_stages_have_widths_of_their_own():
    naming = name_tensors(CONFIG, {name: values.shape for name, values in swin(0).items()})
    assert (naming.architecture, naming.guessed, naming.unmapped, naming.layers) == ("staged", False, (), 6)
    norms = [tensor for tensor in naming.tensors if tensor.role is Role.INPUT_NORM]
    assert [tensor.shape for tensor in norms] == [(width,) for width in WIDTHS]
    assert residual_width(naming) == 64  # of most layers
    assert all(tensor.role.info.axes == (Axis.RESIDUAL,) for tensor in norms)
    (item,) = naming.excluded
    assert (item.name, item.residual) == ("encoder.layers.0.downsample.reduction.weight", (0, 1))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    base = tmp_path_factory.mktemp("stages")
    one, rng = swin(1), np.random.default_rng(9)
    noisy = {name: values + 0.05 * values.std() * rng.standard_normal(values.shape) for name, values in one.items()}
    moved = dict(one)
    for number, width in enumerate(WIDTHS):  # neurons of each layer in another order
        head = f"encoder.layers.{int(width == 64)}.blocks.{number if width == 32 else number - 2}."
        order = rng.permutation(4 * width)
        moved[f"{head}intermediate.dense.weight"] = one[f"{head}intermediate.dense.weight"][order]
        moved[f"{head}output.dense.weight"] = one[f"{head}output.dense.weight"][:, order]
    models = {"one": one, "two": swin(2), "noisy": noisy, "moved": moved}
    made = {}
    for name, tensors in models.items():
        write_checkpoint(base / name, {n: v.astype(np.float32) for n, v in tensors.items()}, CONFIG)
        made[name] = base / name
    return made


def test_a_stranger_is_no_relative_and_a_copy_is_one(folders):
    verdicts = {name: kinprint.compare(folders["one"], folders[name]).verdict for name in ("two", "noisy")}
    assert {name: verdict.class_ for name, verdict in verdicts.items()} == {"two": "no_evidence", "noisy": "derived"}
    assert not any("unexpected error" in each for each in verdicts["two"].untested)


def test_a_copy_with_reordered_neurons_is_found_and_no_search_breaks_on_unequal_widths(folders):
    verdict = kinprint.compare(folders["one"], folders["moved"], deep=True).verdict
    assert verdict.class_ in ("derived", "shares_initialisation")
    verdict = kinprint.compare(folders["one"], folders["two"], deep=True).verdict
    assert verdict.class_ == "no_evidence"
    assert not any("unexpected error" in each for each in verdict.untested)


def test_layers_that_read_one_width_and_write_another_are_not_sought_in_one_basis():
    class Widths:
        layers, hidden, experts = 3, 64, 0

        def has(self, role, layer, expert=None):
            return role in (Role.MLP_UP, Role.MLP_DOWN) and expert is None

        def shape(self, role, layer, expert=None):
            write = 96 if layer == 2 else 64
            return (128, 64) if role is Role.MLP_UP else (write, 128)

    assert list(neuron_sets(Widths())) == [0, 1]
