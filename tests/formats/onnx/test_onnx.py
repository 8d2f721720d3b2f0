"""ONNX: the onnx package writes what is read, and its own decoding is the oracle for numbers."""

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from kinprint.errors import FormatError, UnsupportedDtype
from kinprint.formats.checkpoint import open_checkpoint
from kinprint.model.model import open_model
from support.hub import HubServer
from support.onnx_models import RNG, drawn, model_of, node, read, stored

# -- numbers -----------------------------------------------------------------------------------------------------------

NUMBERS = ("FLOAT", "FLOAT16", "BFLOAT16", "DOUBLE", "INT8", "UINT8", "INT16", "INT32", "INT64", "BOOL")


@pytest.mark.parametrize("raw", [True, False], ids=["raw", "typed"])
@pytest.mark.parametrize("kind", [*NUMBERS, "FLOAT8E4M3FN", "FLOAT8E5M2"])
def test_every_type_in_every_field(opened, kind, raw):
    code = getattr(TensorProto, kind)
    signed = kind.startswith(("FLOAT", "BFLOAT", "DOUBLE", "INT"))
    values = np.arange(-7 if signed else 0, 8 if signed else 15).reshape(5, 3) * (2 if kind == "BOOL" else 1)
    array = values.astype(helper.tensor_dtype_to_np_dtype(code))
    data = array.tobytes() if raw else array.ravel().tolist()
    made = helper.make_tensor("some.tensor", code, array.shape, data, raw=raw)
    expected = numpy_helper.to_array(made)
    got = read(opened(model_of([made])), "some.tensor")
    assert np.array_equal(got.astype(np.float64), expected.astype(np.float64))


@pytest.mark.parametrize("kind", ["INT4", "UINT4"])
def test_four_bits(opened, kind):
    code, low = getattr(TensorProto, kind), -8 if kind == "INT4" else 0
    made = helper.make_tensor("some.tensor", code, (3, 5), RNG.integers(low, low + 16, 15).tolist())
    raw = helper.make_tensor("some.tensor", code, (3, 5), numpy_helper.to_array(made))
    packed = onnx.TensorProto(name="some.tensor", data_type=code, dims=(3, 5), raw_data=raw.raw_data)
    packed.raw_data = packed.raw_data or bytes(raw.int32_data)
    got = read(opened(model_of([packed])), "some.tensor")
    assert np.array_equal(got, numpy_helper.to_array(made).astype(np.int8).view(got.dtype))


def test_numbers_beyond_seven_bits_and_scalars(opened):
    wide = np.array([0, 1, -1, 127, 128, -129, 2**40, -(2**63), 2**63 - 1])
    halves = helper.make_tensor("h.weight", TensorProto.FLOAT16, (), [1.5])
    checkpoint = opened(model_of([helper.make_tensor("w.ids", TensorProto.INT64, (9,), wide.tolist()), halves]))
    assert np.array_equal(read(checkpoint, "w.ids"), wide)
    assert read(checkpoint, "h.weight") == np.float32(1.5)


@pytest.mark.parametrize("kind", ["COMPLEX64", "FLOAT8E4M3FNUZ", "FLOAT4E2M1"])
def test_a_type_that_is_not_known_is_named_with_its_tensor(opened, kind):
    made = onnx.TensorProto(name="odd.weight", data_type=getattr(TensorProto, kind), dims=(2,), raw_data=bytes(16))
    with pytest.raises(UnsupportedDtype, match=rf"(?i)odd\.weight.*stored as {kind}"):
        opened(model_of([made]))


def test_text_and_constants_are_left_out_and_counted(opened):
    text = helper.make_tensor("words", TensorProto.STRING, (2,), [b"a", b"b"])
    numbers = [
        stored("val_3", np.array([1, -1, 32])),
        stored("/a/Constant_output_0", np.float32(8.0)),
        stored("ones", np.array(True)),
    ]
    checkpoint = opened(model_of([text, *numbers, stored("scale.ids", np.arange(4)), stored("n.weight", drawn(4))]))
    assert set(checkpoint.tensors) == {"scale.ids", "n.weight"}
    assert any("3 constants" in note for note in checkpoint.notes)
    assert any("1 tensors of string" in note for note in checkpoint.notes)


# -- names -------------------------------------------------------------------------------------------------------------


def test_a_weight_is_named_by_its_node_its_notes_or_its_bias(opened):
    weights = {name: drawn(6, 4) for name in ("onnx::MatMul_1", "val_2", "123")}
    noted = node("MatMul", ["x", "val_2"], "b")
    noted.metadata_props.add(key="pkg.torch.onnx.name_scopes", value="['', 'm', 'm.up_proj', 'linear_3']")
    nodes = [
        node("MatMul", ["x", "onnx::MatMul_1"], "a", "/m/layers.0/q_proj/MatMul"),
        noted,
        node("MatMul", ["x", "123"], "c", "MatMul_17"),
        node("Add", ["m.out.bias", "c"], "d", "Add_18"),
    ]
    tensors = [stored(name, values) for name, values in weights.items()]
    checkpoint = opened(model_of([*tensors, stored("m.out.bias", drawn(4))], nodes))
    expected = {"m.layers.0.q_proj.weight": "onnx::MatMul_1", "m.up_proj.weight": "val_2", "m.out.weight": "123"}
    assert set(checkpoint.tensors) == {*expected, "m.out.bias"}
    for name, base in expected.items():
        assert np.array_equal(read(checkpoint, name), weights[base].T)
    assert any("3 weights had lost their names" in note for note in checkpoint.notes)


def test_what_has_a_name_keeps_it_and_its_orientation(opened):
    conv, linear, table = drawn(6, 4), drawn(5, 6), drawn(7, 6)
    nodes = [
        node("Gemm", ["x", "h.c_attn.weight", "h.c_attn.bias"], "a", "/h/c_attn/Gemm"),
        node("Gemm", ["x", "pooler.weight"], "b", "/pooler/Gemm", transB=1),
        node("Transpose", ["wte.weight"], "t", perm=[1, 0]),
        node("MatMul", ["x", "t"], "c", "/lm_head/MatMul"),
        node("Gemm", ["x", "onnx::Gemm_9"], "d", "/dense/Gemm", transB=1),
    ]
    tensors = {"h.c_attn.weight": conv, "h.c_attn.bias": drawn(4), "pooler.weight": linear, "wte.weight": table}
    tensors["onnx::Gemm_9"] = dense = drawn(3, 6)
    checkpoint = opened(model_of([stored(*item) for item in tensors.items()], nodes))
    for name, values in {**tensors, "dense.weight": dense}.items():
        if name != "onnx::Gemm_9":
            assert np.array_equal(read(checkpoint, name), values)
    assert set(checkpoint.tensors) == {*tensors, "dense.weight"} - {"onnx::Gemm_9"}


def test_two_weights_of_one_module_keep_the_names_they_have(opened):
    nodes = [node("MatMul", ["x", f"onnx::MatMul_{n}"], f"o{n}", f"/m/f/MatMul_{n}") for n in (1, 2)]
    checkpoint = opened(model_of([stored(f"onnx::MatMul_{n}", drawn(3, 2)) for n in (1, 2)], nodes))
    assert set(checkpoint.tensors) == {"m.f.weight", "onnx::MatMul_2"}
    assert checkpoint.tensors["onnx::MatMul_2"].shape == (3, 2)


def test_equal_parameters_that_were_made_one_are_all_there(opened):
    values = drawn(4)
    nodes = [node("Identity", ["l.0.norm.bias"], "l.1.norm.bias"), node("Identity", ["l.0.norm.bias"], "tmp_3")]
    checkpoint = opened(model_of([stored("l.0.norm.bias", values)], nodes))
    assert set(checkpoint.tensors) == {"l.0.norm.bias", "l.1.norm.bias"}
    assert np.array_equal(read(checkpoint, "l.1.norm.bias"), values)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("inner.encoder.layer.0.output.dense.bias", "encoder.layer.0.output.dense.bias"),
        ("0.auto_model.encoder.layer.0.output.dense.bias", "encoder.layer.0.output.dense.bias"),
        ("encoder.encoder.layer.0.output.dense.bias", "encoder.layer.0.output.dense.bias"),
        ("encoder.layer.0.output.dense.bias", "encoder.layer.0.output.dense.bias"),
        ("model.layers.0.mlp.up_proj.bias", "model.layers.0.mlp.up_proj.bias"),
        ("inner.model.layers.0.mlp.up_proj.bias", "model.layers.0.mlp.up_proj.bias"),
    ],
)
def test_the_module_that_a_model_was_wrapped_in_is_dropped(opened, before, after):
    wrapper = before.removesuffix(after)
    rest = "embeddings.word_embeddings.weight" if "encoder" in after else "model.embed_tokens.weight"
    checkpoint = opened(
        model_of([stored(before, drawn(4)), stored(wrapper + rest, drawn(5, 4)), stored("head.bias", drawn(2))])
    )
    assert set(checkpoint.tensors) == {after, rest, "head.bias"}
    assert checkpoint.tensors[after].name == after
    assert any("exported in" in note for note in checkpoint.notes) == bool(wrapper)


def test_nodes_inside_a_condition_are_looked_at(opened):
    inner = [
        helper.make_graph([node("MatMul", ["x", "onnx::MatMul_7"], f"y{n}", "/m/o_proj/MatMul")], "b", [], [])
        for n in (1, 2)
    ]
    nodes = [node("If", ["c"], "y", then_branch=inner[0], else_branch=inner[1])]
    checkpoint = opened(model_of([stored("onnx::MatMul_7", drawn(3, 2))], nodes))
    assert checkpoint.tensors["m.o_proj.weight"].shape == (2, 3)


def test_names_of_merged_graphs_lose_what_the_merging_put_behind_them(opened):
    inner = [
        helper.make_graph(
            [
                node("MatMul", ["x", "onnx::MatMul_7_merged_0"], f"p{n}", "MatMul_7"),
                node("Add", [f"p{n}", "m.fc.bias_merged_0"], f"y{n}", "Add_8"),
            ],
            "b",
            [],
            [],
        )
        for n in (1, 2)
    ]
    nodes = [node("If", ["c"], "y", then_branch=inner[0], else_branch=inner[1])]
    names = (
        "onnx::MatMul_7_merged_0",
        "m.fc.bias_merged_0",
        "a.weight_merged_0",
        "a.weight_merged_1",
        "b.weight_merged_0",
    )
    tensors = [stored(name, drawn(3, 2) if "MatMul" in name else drawn(2)) for name in names]
    checkpoint = opened(model_of([*tensors, stored("b.weight", drawn(2))], nodes))
    # two tensors that would get one name keep their own
    expected = {"m.fc.weight", "m.fc.bias", "a.weight_merged_0", "a.weight_merged_1", "b.weight_merged_0", "b.weight"}
    assert set(checkpoint.tensors) == expected
    assert checkpoint.tensors["m.fc.weight"].shape == (2, 3)


def fused_bert(layers=2, width=8, neurons=12, *, coded=False):
    """A BERT as onnxruntime's optimiser leaves it: q, k and v in one, biases inside norms and activations, names lost."""
    parameters, tensors, nodes, x = {}, [], [], "x"

    def product(layer, module, source, out):
        name = f"onnx::MatMul_{layer}_{module}"
        tensors.append(stored(name, parameters[f"bert.encoder.layer.{layer}.{module}.weight"].T))
        nodes.append(node("MatMul", [source, name], out, f"MatMul_{layer}_{len(nodes)}"))

    for layer in range(layers):
        head = f"bert.encoder.layer.{layer}."
        shapes = {"attention.output.dense": (width, width), "intermediate.dense": (neurons, width)}
        shapes |= {"output.dense": (width, neurons), "attention.qkv": (3 * width, width)}
        for module, shape in shapes.items():
            parameters[f"{head}{module}.weight"], parameters[f"{head}{module}.bias"] = drawn(*shape), drawn(shape[0])
        for norm in ("attention.output.LayerNorm", "output.LayerNorm"):
            for end in ("weight", "bias"):
                parameters[f"{head}{norm}.{end}"] = drawn(width)

        qkv = f"Attention_{layer}_qkv_weight"
        if coded:
            codes = RNG.integers(-127, 127, (width, 3 * width)).astype(np.int8)
            parameters[f"{head}attention.qkv.weight"] = codes.T * np.float32(0.25)
            tensors += [stored(qkv, codes), stored(f"s{layer}", np.float32(0.25)), stored(f"z{layer}", np.int8(0))]
        else:
            tensors.append(stored(qkv, parameters[f"{head}attention.qkv.weight"].T))
        tensors.append(stored(f"Attention_{layer}_qkv_bias", parameters[f"{head}attention.qkv.bias"]))
        more = ["i", f"s{layer}", "", "iz", f"z{layer}"] if coded else ["mask"]
        inputs = [x, qkv, f"Attention_{layer}_qkv_bias", *more]
        nodes.append(
            node("QAttention" if coded else "Attention", inputs, f"a{layer}", domain="com.microsoft", num_heads=2)
        )
        product(layer, "attention.output.dense", f"a{layer}", f"b{layer}")
        norm, add = f"{head}attention.output.LayerNorm", f"{head}attention.output.dense.bias"
        inputs = [f"b{layer}", x, f"{norm}.weight", f"{norm}.bias", add]
        nodes.append(node("SkipLayerNormalization", inputs, f"c{layer}", domain="com.microsoft"))
        product(layer, "intermediate.dense", f"c{layer}", f"d{layer}")
        nodes.append(
            node("BiasGelu", [f"d{layer}", f"{head}intermediate.dense.bias"], f"e{layer}", domain="com.microsoft")
        )
        product(layer, "output.dense", f"e{layer}", f"f{layer}")
        norm = f"{head}output.LayerNorm"
        inputs = [f"f{layer}", f"c{layer}", f"{norm}.weight", f"{norm}.bias", f"{head}output.dense.bias"]
        nodes.append(node("SkipLayerNormalization", inputs, x := f"g{layer}", domain="com.microsoft"))
    named = [
        (name, values) for name, values in parameters.items() if not name.endswith("qkv.bias") and values.ndim == 1
    ]
    return model_of([*tensors, *(stored(name, values) for name, values in named)], nodes), parameters


@pytest.mark.parametrize("coded", [False, True])
def test_operators_that_onnxruntime_fused_give_back_norms_attention_and_mlps(tmp_path, session_for, coded):
    content, parameters = fused_bert(coded=coded)
    onnx.save(content, tmp_path / "model.onnx")
    model = open_model(str(tmp_path), session_for())
    assert (model.naming.architecture, model.naming.unmapped, model.naming.layers) == ("bert", (), 2)
    for layer in range(2):
        head = f"bert.encoder.layer.{layer}."
        parts = np.split(parameters[f"{head}attention.qkv.weight"], 3)
        for role, values in zip(("attn_q", "attn_k", "attn_v"), parts, strict=True):
            assert np.array_equal(model.tensor(role, layer), values)
        for role, module in (
            ("attn_o", "attention.output.dense"),
            ("mlp_up", "intermediate.dense"),
            ("mlp_down", "output.dense"),
        ):
            assert np.array_equal(model.tensor(role, layer), parameters[f"{head}{module}.weight"])
        norms = ("attention_output_norm", "attention.output.LayerNorm"), ("mlp_output_norm", "output.LayerNorm")
        for role, module in norms:
            assert np.array_equal(model.tensor(role, layer), parameters[f"{head}{module}.weight"])
    assert model.config["num_attention_heads"] == 2


def test_weights_inside_nodes_are_tensors_too(opened):
    values = drawn(16, 8)
    nodes = [
        node("Constant", [], "onnx::MatMul_5", value=stored("", values)),
        node("MatMul", ["x", "onnx::MatMul_5"], "a", "/m/fc/MatMul"),
    ]
    assert np.array_equal(read(opened(model_of([], nodes)), "m.fc.weight"), values.T)


@pytest.mark.parametrize("how", ["constant", "initialiser", "joined"])
def test_the_number_of_heads_is_seen_where_no_config_says_it(opened, how):
    tensors, nodes = [stored("onnx::MatMul_1", drawn(24, 24)), stored("onnx::MatMul_2", drawn(24, 12))], []
    shapes = {"initialiser": [stored(f"s{n}", np.array([0, 0, -1, 4])) for n in (1, 2)]}.get(how, [])
    for number, part in ((1, "q_proj"), (2, "k_proj")):
        if how == "constant":
            nodes.append(node("Constant", [], f"s{number}", value=stored("", np.array([0, 0, (6, 3)[number - 1], 4]))))
        elif how == "joined":
            nodes += [node("Constant", [], f"four{number}", value=stored("", np.array([4])))]
            nodes += [node("Concat", ["b", "l", "h", f"four{number}"], f"s{number}", axis=0)]
        nodes += [node("MatMul", ["x", f"onnx::MatMul_{number}"], f"p{number}", f"/layers.0/{part}/MatMul")]
        nodes += [node("Reshape", [f"p{number}", f"s{number}"], f"r{number}")]
    checkpoint = opened(model_of([*tensors, *shapes], nodes))
    assert checkpoint.config == {"num_attention_heads": 6, "num_key_value_heads": 3}


# -- data in other files, configs, cost --------------------------------------------------------------------------------------

OUTSIDE = {"save_as_external_data": True, "size_threshold": 0, "location": "weights.data"}


def simple():
    nodes = [node("MatMul", ["x", "onnx::MatMul_1"], "y", "/model/layers.0/mlp/up_proj/MatMul")]
    return model_of([stored("onnx::MatMul_1", np.arange(12, dtype=np.float32).reshape(3, 4))], nodes)


def test_data_in_another_file(opened):
    checkpoint = opened(simple(), **OUTSIDE)
    assert [file.name for file in checkpoint.files] == ["model.onnx", "weights.data"]
    assert np.array_equal(read(checkpoint, "model.layers.0.mlp.up_proj.weight"), np.arange(12).reshape(3, 4).T)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"location": "nothing.data"}, "'nothing.data', which is not there"),
        ({"location": "../weights.data"}, "outside the model's folder"),
        ({"location": "/etc/passwd"}, "outside the model's folder"),
        ({"location": ""}, "outside the model's folder"),
        ({"location": "weights.data", "offset": "8"}, "bytes 8 to 56 of 'weights.data', which has 48"),
        ({"location": "weights.data", "length": "44"}, "needs 48 bytes, has 44"),
        ({"location": "weights.data", "offset": "-4"}, "expected a number of bytes"),
        ({"location": "weights.data", "offset": "9" * 30}, "expected a number of bytes"),
    ],
)
def test_data_that_are_not_there(tmp_path, opened, entries, message):
    (tmp_path / "weights.data").write_bytes(bytes(48))
    made = onnx.TensorProto(name="a.weight", data_type=1, dims=(3, 4), data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        made.external_data.add(key=key, value=value)
    with pytest.raises(FormatError, match=message):
        opened(model_of([made]).SerializeToString())


def test_a_folder_onnx_in_a_repository(tmp_path, session_for):
    folder = tmp_path / "repository" / "onnx"
    folder.mkdir(parents=True)
    onnx.save(simple(), folder / "model.onnx", **OUTSIDE)
    (folder.parent / "config.json").write_text(json.dumps({"model_type": "llama", "num_attention_heads": 7}))
    here = open_checkpoint(str(folder / "model.onnx"), session_for())
    assert here.config["num_attention_heads"] == 7
    assert open_checkpoint(str(folder), session_for()).config == here.config
    with HubServer() as server:
        server.add_repo("owner/Small", folder.parent)
        there = open_checkpoint("hf://owner/Small/onnx/model.onnx", session_for(server))
        assert there.config == here.config
        name = "model.layers.0.mlp.up_proj.weight"
        assert np.array_equal(read(there, name), read(here, name))


def test_a_config_above_that_is_broken_is_said(tmp_path, session_for):
    folder = tmp_path / "onnx"
    folder.mkdir()
    onnx.save(simple(), folder / "model.onnx")
    for text, message in (
        ("{", "not valid JSON"),
        ("[1]", "a JSON list, expected an object"),
        ("[" * 50_000, "opening brackets"),
    ):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(FormatError, match=message):
            open_checkpoint(str(folder), session_for())


def test_tensors_are_passed_over_unread(opened):
    tensors = [stored(f"model.layers.{n}.big.weight", np.zeros((1024, 1024), np.float32)) for n in range(4)]
    tensors += [stored(f"model.layers.{n}.small.weight", np.zeros(384, np.float32)) for n in range(40)]
    checkpoint = opened(model_of(tensors))
    assert len(checkpoint.tensors) == 44
    assert checkpoint.session.bytes_delivered < 200_000
    assert checkpoint.files[0].size > 16 << 20


def test_the_best_of_several_files(tmp_path, session_for):
    for name in ("model_q4.onnx", "model_quantized.onnx", "model_fp16.onnx"):
        onnx.save(simple(), tmp_path / name)
    checkpoint = open_checkpoint(str(tmp_path), session_for())
    assert [file.name for file in checkpoint.files] == ["model_fp16.onnx"]
    onnx.save(simple(), tmp_path / "model.onnx")
    assert open_model(str(tmp_path), session_for()).checkpoint.files[0].name == "model.onnx"


def test_an_encoder_that_was_exported_beside_its_decoder_is_read_with_it(tmp_path, session_for):
    (tmp_path / "onnx").mkdir()
    parts = {"encoder_model": "layers.0.fc1.weight", "decoder_model_merged": "model.decoder.layers.0.fc1.weight"}
    for ending in ("", "_quantized"):
        for part, name in parts.items():
            tensors = [stored(name, drawn(3, 2)), stored("shared.weight", drawn(5, 2))]
            onnx.save(model_of(tensors), tmp_path / "onnx" / f"{part}{ending}.onnx")
    onnx.save(simple(), tmp_path / "onnx" / "decoder_with_past_model.onnx")
    checkpoint = open_checkpoint(str(tmp_path), session_for())
    assert [file.name for file in checkpoint.files] == ["onnx/encoder_model.onnx", "onnx/decoder_model_merged.onnx"]
    expected = {
        "encoder.layers.0.fc1.weight",
        "encoder.shared.weight",
        "model.decoder.layers.0.fc1.weight",
        "shared.weight",
    }
    assert set(checkpoint.tensors) == expected
