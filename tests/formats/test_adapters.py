"""LoRA adapters in PEFT's layout: merged as they are read, against the same sums made by numpy on whole matrices."""

import json
import shutil
import time
import tracemalloc
import warnings

import numpy as np
import pytest

from kinprint.errors import (
    BadReference,
    BudgetExceeded,
    FormatError,
    KinprintError,
    NotFound,
    UnsupportedDtype,
)
from kinprint.formats.adapter_config import base_reference, read_settings
from kinprint.formats.adapters import find_renaming
from kinprint.formats.checkpoint import open_checkpoint
from kinprint.formats.plan import plan_reads, rows, whole, windows
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings
from kinprint.testing.adapter_files import CONFIG, lora_names, write_adapter
from kinprint.testing.hub import HubServer
from kinprint.testing.layouts import write_checkpoint

HIDDEN, NEURONS, VOCAB, LAYERS, RANK = 48, 80, 60, 3, 8
MODEL = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": HIDDEN}
Q, UP, EMBED = "model.layers.{}.self_attn.q_proj", "model.layers.{}.mlp.up_proj", "model.embed_tokens"


def drawn(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def base_tensors():
    found = {f"{EMBED}.weight": drawn(1, VOCAB, HIDDEN), "model.norm.weight": drawn(2, HIDDEN)}
    for layer in range(LAYERS):
        found |= {
            f"{Q.format(layer)}.weight": drawn(10 + layer, HIDDEN, HIDDEN),
            f"{Q.format(layer)}.bias": drawn(20 + layer, HIDDEN),
            f"{UP.format(layer)}.weight": drawn(30 + layer, NEURONS, HIDDEN),
        }
    return found | {"lm_head.weight": drawn(3, VOCAB, HIDDEN)}


def factors(path, out, into, rank=RANK, seed=0):
    """Return A and B of a module; the path makes them its own."""
    key = [seed, *path.encode()]
    rng = np.random.default_rng(key)
    return (
        rng.standard_normal((rank, into)).astype(np.float32),
        0.1 * rng.standard_normal((out, rank)).astype(np.float32),
    )


def summed(weight, down, up, scale):
    return (weight.astype(np.float64) + scale * (up.astype(np.float64) @ down.astype(np.float64))).astype(np.float32)


PATHS = {Q.format(layer): HIDDEN for layer in range(LAYERS)} | {UP.format(layer): NEURONS for layer in range(LAYERS)}


@pytest.fixture
def base(tmp_path):
    write_checkpoint(tmp_path / "base", base_tensors(), MODEL)
    return tmp_path / "base"


@pytest.fixture
def adapter(tmp_path, base):
    """Write an adapter of the base; by default of all of its projections."""

    def write(tensors=None, name="adapter", declared=base, **settings):
        if tensors is None:
            tensors = {}
            for path, out in PATHS.items():
                tensors |= lora_names(path, *factors(path, out, HIDDEN, settings.get("r", RANK)))
        return write_adapter(tmp_path / name, tensors, base=declared, **settings)

    return write


@pytest.fixture
def opened(session_for):
    def go(folder, **more):
        return open_checkpoint(str(folder), session_for(**more))

    return go


def read(checkpoint, name):
    return checkpoint.read([whole(checkpoint.tensors[name])])[0]


def close(got, want):
    """Equal but for the order of a sum in float64."""
    return got.dtype == want.dtype and got.shape == want.shape and np.allclose(got, want, rtol=3e-7, atol=1e-7)


# -- the sum -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "scale"),
    [
        ({"lora_alpha": 16}, 2.0),
        ({"lora_alpha": 4.5}, 4.5 / 8),
        ({"lora_alpha": 16, "use_rslora": True}, 16 / np.sqrt(8)),
        ({"lora_alpha": 16, "r": 1}, 16.0),
    ],
)
def test_the_merged_model(settings, scale, adapter, opened):
    found = opened(adapter(**settings))
    stored = base_tensors()
    assert set(found.tensors) == set(stored)
    for name, values in stored.items():
        path = name.removesuffix(".weight")
        if path in PATHS:
            want = summed(values, *factors(path, PATHS[path], HIDDEN, settings.get("r", RANK)), scale)
            assert close(read(found, name), want), name
            assert not np.allclose(read(found, name), values, atol=1e-3)
            assert found.tensors[name].dtype == "F32"
        else:
            assert np.array_equal(read(found, name), values), name
    assert found.tensors.shapes() == {name: values.shape for name, values in stored.items()}


@pytest.mark.parametrize("suffix", [".weight", ".default.weight", ".mine.weight"])
def test_names_with_and_without_the_adapters_own(suffix, adapter, opened):
    path = Q.format(1)
    down, up = factors(path, HIDDEN, HIDDEN)
    names = {f"base_model.model.{path}.lora_A{suffix}": down, f"base_model.model.{path}.lora_B{suffix}": up}
    assert close(
        read(opened(adapter(names)), f"{path}.weight"), summed(base_tensors()[f"{path}.weight"], down, up, 2.0)
    )


def test_patterns_of_ranks_and_alphas(adapter, opened):
    tensors, ranks = {}, {Q.format(0): 8, Q.format(1): 4, Q.format(2): 2, UP.format(1): 2}
    for path, rank in ranks.items():
        tensors |= lora_names(path, *factors(path, PATHS[path], HIDDEN, rank))
    folder = adapter(
        tensors,
        rank_pattern={"layers.1.self_attn.q_proj": 4, f"^{Q.format(2)}": 2, "up_proj": 2},
        alpha_pattern={r"mlp\.up_proj": 3, "layers.1.self_attn.q_proj": 5, "q_proj$": 7},
    )
    found = opened(folder)
    for path, scale in {Q.format(0): 7 / 8, Q.format(1): 5 / 4, Q.format(2): 7 / 2, UP.format(1): 3 / 2}.items():
        want = summed(base_tensors()[f"{path}.weight"], *factors(path, PATHS[path], HIDDEN, ranks[path]), scale)
        assert close(read(found, f"{path}.weight"), want), path
    assert "ranks 2 to 8, alphas 3 to 7" in found.notes[0]


def test_an_end_of_a_name_is_an_end_at_a_dot():
    settings = read_settings(CONFIG | {"alpha_pattern": {"proj": 5, "q_proj": 6}}, "x")
    assert settings.alpha_of("layers.0.q_proj") == 6
    assert settings.alpha_of("layers.0.v_proj") == 16


def test_regular_expressions_are_not_run(adapter, opened):
    with pytest.raises(FormatError, match="alpha_pattern holds regular expressions"):
        opened(adapter(alpha_pattern={r"(a+)+$": 3}))
    found = opened(adapter(rank_pattern={r".*\.layers\.\d+\..*": 8}))  # the shapes tell the ranks
    assert "rank 8" in found.notes[0]


def test_matrices_stored_in_by_out(tmp_path, session_for):
    """GPT-2's: the shapes tell, and settle it for square ones as well."""
    stored = {f"h.{n}.attn.{part}.weight": drawn(n, 48, out) for n in (0, 1) for part, out in SIZES.items()}
    write_checkpoint(tmp_path / "base", stored, {"model_type": "gpt2"})
    tensors = {}
    for n in (0, 1):
        for part, out in SIZES.items():
            tensors |= lora_names(f"transformer.h.{n}.attn.{part}", *factors(part, out, 48, seed=n))
    for flag in (True, False):
        folder = write_adapter(tmp_path / str(flag), tensors, base=tmp_path / "base", fan_in_fan_out=flag)
        found = open_checkpoint(str(folder), session_for())
        for n in (0, 1):
            for part, out in SIZES.items():
                name = f"h.{n}.attn.{part}.weight"
                down, up = factors(part, out, 48, seed=n)
                got = read(found, name)
                assert close(got, summed(stored[name].T, down, up, 2.0).T), (flag, name)
                some = found.read([rows(found.tensors[name], [(5, 9)])])[0]
                assert np.array_equal(some, got[5:9])
        assert "begin with 'transformer.'" in found.notes[1]


SIZES = {"c_attn": 144, "c_proj": 48}


@pytest.mark.parametrize("flag", [True, False])
def test_square_matrices_alone_follow_the_setting(flag, adapter, opened):
    path = Q.format(0)
    down, up = factors(path, HIDDEN, HIDDEN)
    got = read(opened(adapter(lora_names(path, down, up), fan_in_fan_out=flag)), f"{path}.weight")
    weight = base_tensors()[f"{path}.weight"]
    want = summed(weight.T, down, up, 2.0).T if flag else summed(weight, down, up, 2.0)
    assert close(got, want)


@pytest.mark.parametrize("suffix", ["", ".default", ".weight"])
def test_embeddings(suffix, adapter, opened):
    down, up = drawn(5, RANK, VOCAB), drawn(6, HIDDEN, RANK)
    prefix = f"base_model.model.{EMBED}.lora_embedding_"
    found = opened(adapter({f"{prefix}A{suffix}": down, f"{prefix}B{suffix}": up}))
    weight = base_tensors()[f"{EMBED}.weight"]
    want = (weight.astype(np.float64) + 2.0 * (up.astype(np.float64) @ down.astype(np.float64)).T).astype(np.float32)
    assert close(read(found, f"{EMBED}.weight"), want)
    tensor = found.tensors[f"{EMBED}.weight"]
    some = rows(tensor, [(7, 8), (30, 33)])
    assert np.array_equal(found.read([some])[0], read(found, f"{EMBED}.weight")[[7, 30, 31, 32]])
    # of A only the columns of these tokens; B is needed whole, for either run
    assert some.nbytes == 4 * (4 * HIDDEN + 4 * RANK + 2 * HIDDEN * RANK)


def test_convolutions(tmp_path, session_for):
    weight, down, up = drawn(1, 12, 6, 3, 3), drawn(2, 4, 6, 3, 3), drawn(3, 12, 4, 1, 1)
    write_checkpoint(tmp_path / "base", {"stem.conv.weight": weight}, {})
    names = lora_names("stem.conv", down, up)
    found = open_checkpoint(str(write_adapter(tmp_path / "a", names, base=tmp_path / "base", r=4)), session_for())
    want = weight + 4.0 * np.einsum("or,rihw->oihw", up[:, :, 0, 0], down, dtype=np.float64)
    assert close(read(found, "stem.conv.weight"), want.astype(np.float32))


def dora(weight, down, up, scale, magnitude):
    total = weight.astype(np.float64) + scale * (up.astype(np.float64) @ down.astype(np.float64))
    return (magnitude[:, None] * total / np.linalg.norm(total, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("flag", [False, True])
@pytest.mark.parametrize("suffix", ["", ".default", ".weight"])
def test_rows_with_lengths_of_their_own(suffix, flag, adapter, opened):
    path = Q.format(2)
    down, up = factors(path, HIDDEN, HIDDEN)
    magnitude = np.abs(drawn(9, HIDDEN)) + 1
    names = lora_names(path, down, up) | {f"base_model.model.{path}.lora_magnitude_vector{suffix}": magnitude}
    found = opened(adapter(names, use_dora=True, fan_in_fan_out=flag))
    got, weight = read(found, f"{path}.weight"), base_tensors()[f"{path}.weight"]
    want = dora(weight.T, down, up, 2.0, magnitude).T if flag else dora(weight, down, up, 2.0, magnitude)
    assert close(got, want)
    assert np.array_equal(found.read([rows(found.tensors[f"{path}.weight"], [(3, 20)])])[0], got[3:20])
    assert found.notes[0].startswith("DoRA adapter: rank 8")


def test_a_row_of_zeros_has_no_length_to_change(tmp_path, session_for):
    weight = drawn(1, 16, 12)
    weight[3] = 0.0
    write_checkpoint(tmp_path / "base", {"l.weight": weight, "m.weight": weight}, {})
    down, up = drawn(2, 8, 12), drawn(3, 16, 8)
    up[3] = 0.0
    names = lora_names("l", down, up) | {"base_model.model.l.lora_magnitude_vector": np.ones(16, np.float32)}
    found = open_checkpoint(
        str(write_adapter(tmp_path / "a", names, base=tmp_path / "base", use_dora=True)), session_for()
    )
    got = read(found, "l.weight")
    assert np.all(got[3] == 0.0)
    assert np.allclose(np.linalg.norm(np.delete(got, 3, axis=0), axis=1), 1.0)


def test_modules_and_biases_stored_whole(adapter, opened):
    path = Q.format(0)
    bias, head, score = drawn(40, HIDDEN), drawn(41, VOCAB + 4, HIDDEN), drawn(42, 3, HIDDEN)
    names = lora_names(path, *factors(path, HIDDEN, HIDDEN)) | {
        f"base_model.model.{path}.bias": bias,
        "base_model.model.lm_head.modules_to_save.default.weight": head,
        "base_model.model.score.weight": score,
    }
    found = opened(adapter(names, bias="lora_only", modules_to_save=["lm_head", "score"]))
    assert np.array_equal(read(found, f"{path}.bias"), bias)
    assert np.array_equal(read(found, "lm_head.weight"), head)
    assert np.array_equal(read(found, "score.weight"), score)
    assert f"3 tensors stored whole ({path}.bias, lm_head.weight, score.weight)" in found.notes[0]


def test_a_base_layer_stored_with_its_adapter(adapter, opened):
    """PEFT stores an embedding that has grown beside the adapter that is added to it."""
    down, up, grown = drawn(5, RANK, VOCAB + 2), drawn(6, HIDDEN, RANK), drawn(7, VOCAB + 2, HIDDEN)
    prefix = f"base_model.model.{EMBED}."
    names = {f"{prefix}lora_embedding_A": down, f"{prefix}lora_embedding_B": up, f"{prefix}base_layer.weight": grown}
    found = opened(adapter(names))
    want = (grown.astype(np.float64) + 2.0 * (up.astype(np.float64) @ down.astype(np.float64)).T).astype(np.float32)
    assert close(read(found, f"{EMBED}.weight"), want)


@pytest.mark.parametrize(("tied", "fits"), [(True, True), (None, True), (False, False)])
def test_a_head_that_is_the_embedding(tied, fits, tmp_path, session_for):
    stored = {name: values for name, values in base_tensors().items() if name != "lm_head.weight"}
    write_checkpoint(tmp_path / "base", stored, MODEL | ({} if tied is None else {"tie_word_embeddings": tied}))
    down, up = factors("lm_head", VOCAB, HIDDEN)
    folder = write_adapter(tmp_path / "a", lora_names("lm_head", down, up), base=tmp_path / "base")
    if not fits:
        with pytest.raises(FormatError, match="changes 'lm_head.weight', which .* does not have"):
            open_checkpoint(str(folder), session_for())
        return
    found = open_checkpoint(str(folder), session_for())
    assert close(read(found, "lm_head.weight"), summed(stored[f"{EMBED}.weight"], down, up, 2.0))
    assert np.array_equal(read(found, f"{EMBED}.weight"), stored[f"{EMBED}.weight"])


def test_a_base_in_half_precision_and_one_in_double(tmp_path, session_for):
    for dtype, kind in (("BF16", "F32"), ("F16", "F32"), ("F64", "F64")):
        plain = base_tensors()
        write_checkpoint(tmp_path / dtype, plain, MODEL, dtype=dtype)
        path = Q.format(0)
        down, up = factors(path, HIDDEN, HIDDEN)
        folder = write_adapter(
            tmp_path / f"a{dtype}",
            lora_names(path, down, up),
            base=tmp_path / dtype,
            dtype="F32" if dtype == "F64" else dtype,
        )
        session = session_for()
        found, alone = open_checkpoint(str(folder), session), open_checkpoint(str(tmp_path / dtype), session)
        weight = read(alone, f"{path}.weight")
        got = read(found, f"{path}.weight")
        assert found.tensors[f"{path}.weight"].dtype == kind
        assert got.dtype == weight.dtype
        small = found.tensors[f"{path}.weight"].made
        a, b = found.read([whole(small.down), whole(small.up)])
        want = weight.astype(np.float64) + 2.0 * (b.astype(np.float64) @ a.astype(np.float64))
        assert np.allclose(got, want, rtol=3e-7, atol=1e-7)


def test_a_quantised_base(tmp_path, session_for):
    """A tensor that is itself made of others: int8 with a scale for each row, as bitsandbytes stores it."""
    codes = np.random.default_rng(1).integers(-127, 128, (32, 64)).astype(np.int8)
    scales = (np.abs(drawn(2, 32)) + 0.1).astype(np.float32)
    stored = {"m.q.weight": codes, "m.q.SCB": scales, "m.norm.weight": drawn(3, 64)}
    config = {"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True}}
    write_checkpoint(tmp_path / "base", stored, config)
    down, up = factors("q", 32, 64)
    session = session_for()
    alone = open_checkpoint(str(tmp_path / "base"), session)
    found = open_checkpoint(
        str(write_adapter(tmp_path / "a", lora_names("m.q", down, up), base=tmp_path / "base")), session
    )
    weight = read(alone, "m.q.weight")
    assert weight.dtype == np.float32
    assert close(read(found, "m.q.weight"), summed(weight, down, up, 2.0))
    assert any(note.startswith("base: ") and "dequantised" in note for note in found.notes)


def test_codes_that_stay_as_stored_cannot_be_added_to(tmp_path, session_for):
    write_checkpoint(tmp_path / "base", {"m.q.weight": np.ones((16, 16), np.int8), "m.n.weight": drawn(1, 16)}, {})
    folder = write_adapter(tmp_path / "a", lora_names("m.q", drawn(1, 8, 16), drawn(2, 16, 8)), base=tmp_path / "base")
    with pytest.raises(UnsupportedDtype, match="stores 'm.q.weight' as I8"):
        open_checkpoint(str(folder), session_for())


# -- rows, budgets, places -----------------------------------------------------------------------------------------------


def test_rows_and_windows_are_those_of_the_whole(adapter, opened):
    found = opened(adapter())
    for name in (f"{Q.format(1)}.weight", f"{UP.format(2)}.weight"):
        tensor, everything = found.tensors[name], read(found, name)
        for start in range(0, tensor.shape[0], 7):
            stop = min(tensor.shape[0], start + 1 + start % 5)
            assert np.array_equal(found.read([rows(tensor, [(start, stop)])])[0], everything[start:stop])
        item = windows(tensor, key="x", count=4, length=50)
        flat = everything.reshape(-1)
        assert np.array_equal(found.read([item])[0], np.concatenate([flat[a:b] for a, b in item.runs]))


def test_some_rows_cost_their_rows_and_one_factor(adapter, session_for):
    session = session_for()
    found = open_checkpoint(str(adapter()), session)
    before = session.bytes_delivered
    item = rows(found.tensors[f"{UP.format(0)}.weight"], [(10, 14)])
    assert item.nbytes == 4 * (4 * HIDDEN + 4 * RANK + RANK * HIDDEN)
    found.execute(plan_reads([item], max_gap_bytes=0))
    assert session.bytes_delivered - before == item.nbytes


def test_the_budget_holds(adapter, session_for):
    folder = str(adapter())
    session = session_for()
    found = open_checkpoint(folder, session)
    headers = session.bytes_delivered
    for budget in (0, 100, headers - 1):
        less = session_for(budget_bytes=budget)
        with pytest.raises(BudgetExceeded):
            open_checkpoint(folder, less)
        assert less.bytes_delivered <= budget
    tight = session_for(budget_bytes=headers + 1000)
    with pytest.raises(BudgetExceeded):
        read(open_checkpoint(folder, tight), f"{Q.format(0)}.weight")
    assert tight.bytes_delivered <= headers + 1000
    assert len(found.files) == 2


@pytest.fixture
def remote(adapter, base):
    """A hub with the base and an adapter that declares it."""
    with HubServer() as server:
        server.add_repo("owner/Base", base)
        server.add_repo("other/Adapter", adapter(declared="owner/Base"))
        yield server


def test_on_a_hub_and_from_its_cache(remote, adapter, opened, session_for, tmp_path):
    local = opened(adapter(name="again"))
    first = session_for(remote, range_cache=tmp_path / "cache")
    found = open_checkpoint("other/Adapter", first)
    assert found.notes[0].endswith("; merged into owner/Base (declared)")
    assert [file.name for file in found.files] == ["model.safetensors", "adapter_model.safetensors"]
    items = [rows(found.tensors[f"{path}.weight"], [(3, 9)]) for path in PATHS]
    values = found.read(items)
    for item, got in zip(items, values, strict=True):
        assert np.array_equal(got, local.read([rows(local.tensors[item.tensor.name], [(3, 9)])])[0])
    remote.reset()
    again = open_checkpoint("other/Adapter", session_for(remote, range_cache=tmp_path / "cache"))
    assert all(np.array_equal(x, y) for x, y in zip(again.read(items), values, strict=True))
    assert not [request for request in remote.requests if request.range and request.body_bytes > 0]
    offline = open_checkpoint("other/Adapter", session_for(remote, range_cache=tmp_path / "cache", offline=True))
    assert all(np.array_equal(x, y) for x, y in zip(offline.read(items), values, strict=True))


def test_a_file_of_a_repository(remote, session_for, tmp_path, adapter):
    found = open_checkpoint("hf://other/Adapter/adapter_model.safetensors", session_for(remote))
    assert found.base is not None
    folder = tmp_path / "several"
    folder.mkdir()
    shutil.copytree(adapter(name="inner", declared="owner/Base"), folder / "checkpoint-7")
    remote.add_repo("other/Several", folder)
    below = open_checkpoint("hf://other/Several/checkpoint-7/adapter_model.safetensors", session_for(remote))
    assert below.base is not None
    assert np.array_equal(read(below, f"{Q.format(0)}.weight"), read(found, f"{Q.format(0)}.weight"))


def test_the_revision_that_an_adapter_names(remote, base, adapter, session_for, tmp_path):
    old = remote.add_repo("owner/Moving", base)
    write_checkpoint(tmp_path / "new", {"other.weight": drawn(1, 4, 4)}, MODEL)
    remote.add_repo("owner/Moving", tmp_path / "new")
    remote.add_repo("other/Pinned", adapter(name="pinned", declared="owner/Moving", revision=old))
    found = open_checkpoint("other/Pinned", session_for(remote))
    assert found.base.provenance.commit == old
    remote.add_repo("other/Loose", adapter(name="loose", declared="owner/Moving"))
    with pytest.raises(FormatError, match="does not have"):
        open_checkpoint("other/Loose", session_for(remote))


def test_in_a_web_folder(adapter, base, session_for, web):
    web.root = adapter(declared=None).parent
    with Session(Settings(), bases=[str(base)]) as session:
        for address in ("adapter", "adapter/adapter_model.safetensors"):
            found = open_checkpoint(f"{web.url}/{address}", session)
            want = summed(base_tensors()[f"{Q.format(0)}.weight"], *factors(Q.format(0), HIDDEN, HIDDEN), 2.0)
            assert close(read(found, f"{Q.format(0)}.weight"), want)
            assert found.notes[0].endswith(f"merged into {base} (given)")
    with pytest.raises(NotFound):
        open_checkpoint(f"{web.url}/nothing", session_for())


def test_one_file_by_its_path(adapter, opened, tmp_path):
    folder = adapter()
    found = opened(folder / "adapter_model.safetensors")
    assert np.array_equal(read(found, f"{Q.format(0)}.weight"), read(opened(folder), f"{Q.format(0)}.weight"))
    (folder / "adapter_config.json").unlink()
    plain = opened(folder / "adapter_model.safetensors")
    assert plain.base is None
    assert len(plain.tensors) == 2 * len(PATHS)


# -- which folders are adapters ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "beside", ["training_args.bin", "optimizer.pt", "README.md", "value_head.bin", "other.safetensors"]
)
def test_what_a_trainer_leaves_behind_is_no_model(beside, adapter, opened):
    folder = adapter()
    (folder / beside).write_bytes(b"x")
    assert opened(folder).base is not None


def test_a_whole_model_wins_over_the_adapter_beside_it(adapter, base, opened, session_for):
    folder = adapter()
    for file in ("model.safetensors", "config.json"):
        shutil.copy(base / file, folder / file)
    found = opened(folder)
    assert found.base is None
    assert not found.adapter
    assert np.array_equal(read(found, f"{Q.format(0)}.weight"), base_tensors()[f"{Q.format(0)}.weight"])
    with Session(Settings(), files=["adapter_model.safetensors"]) as session:  # --file asks for the adapter
        assert open_checkpoint(str(folder), session).base is not None


def test_shards_beside_an_adapter_are_a_whole_model(adapter, opened):
    folder = adapter()
    write_checkpoint(folder, base_tensors(), MODEL, shards=3)
    assert opened(folder).base is None


def test_an_adapter_alone(adapter, session_for):
    folder = adapter(declared="nobody/Nowhere")
    found = open_checkpoint(str(folder), session_for(), alone=True)
    assert set(found.tensors) == {name for path in PATHS for name in lora_names(path, 0, 0)}
    assert found.notes == (
        "LoRA adapter: rank 8, alpha 16, targets q_proj, up_proj in 3 layers; "
        "its base, nobody/Nowhere (declared), was not read: see --base",
    )
    down = read(found, f"base_model.model.{Q.format(0)}.lora_A.weight")
    assert np.array_equal(down, factors(Q.format(0), HIDDEN, HIDDEN)[0])


def test_an_adapter_of_an_unknown_kind_alone(adapter, session_for):
    found = open_checkpoint(str(adapter(peft_type="LOHA", declared=None)), session_for(), alone=True)
    assert "adapter type 'LOHA' is not known" in found.notes[0]
    assert found.notes[0].endswith("it does not name its base: see --base")
    assert len(found.tensors) == 2 * len(PATHS)


# -- bases ---------------------------------------------------------------------------------------------------------------


def test_a_base_that_is_given_wins(adapter, base, tmp_path):
    other = {name: 2 * values for name, values in base_tensors().items()}
    write_checkpoint(tmp_path / "other", other, MODEL)
    write_checkpoint(tmp_path / "unlike", {"a.weight": drawn(1, 4, 4)}, MODEL)
    folder, path = str(adapter()), Q.format(0)
    for given in ([tmp_path / "other"], [tmp_path / "unlike", tmp_path / "other"]):
        with Session(Settings(), bases=list(map(str, given))) as session:
            found = open_checkpoint(folder, session)
            assert found.base.label == str(tmp_path / "other")
            assert close(
                read(found, f"{path}.weight"), summed(other[f"{path}.weight"], *factors(path, HIDDEN, HIDDEN), 2.0)
            )
    with Session(Settings(), bases=[str(tmp_path / "unlike")]) as session, pytest.raises(FormatError) as caught:
        open_checkpoint(folder, session)
    assert "6 of 6 targets are not there" in caught.value.message
    assert "--base" in caught.value.hint


@pytest.mark.parametrize(
    ("declared", "kind", "said"),
    [
        (None, FormatError, "does not name its base"),
        ("/no/such/path/here", NotFound, "a path that is not here"),
        ("C:\\Users\\me\\model", NotFound, "neither here nor a name on the hub"),
        ("http://127.0.0.1:9/model", BadReference, "declares an address"),
        ("https://user:secret@host/model", BadReference, "declares an address"),
        ("nobody/Nowhere", KinprintError, "could not be opened"),
    ],
)
def test_a_base_that_cannot_be_had(declared, kind, said, adapter, session_for):
    folder = str(adapter(declared=declared))
    with HubServer() as server, pytest.raises(kind) as caught:
        open_checkpoint(folder, session_for(server))
    assert said in caught.value.message
    assert "--base" in caught.value.hint
    assert "secret" not in str(caught.value)


def test_an_adapter_from_elsewhere_means_no_path_of_this_machine(adapter, base, session_for, monkeypatch):
    """A stranger's adapter could otherwise have any local file read."""
    monkeypatch.chdir(base.parent)
    with HubServer() as server:
        for number, declared in enumerate((str(base), "base", "./base", "../base")):
            server.add_repo(f"other/Adapter{number}", adapter(name=f"a{number}", declared=declared))
            with pytest.raises(NotFound) as caught:
                open_checkpoint(f"other/Adapter{number}", session_for(server))
            assert "--base" in caught.value.hint
        assert open_checkpoint(str(adapter(name="here", declared="base")), session_for(server)).base is not None


def test_names_without_an_owner_are_on_the_hub():
    ref = base_reference("gpt2", "abc", here=True, label="x", endpoint="http://localhost")
    assert (ref.kind, ref.repo, ref.revision, ref.text) == ("hub", "gpt2", "abc", "gpt2")


def test_an_adapter_is_no_base(adapter, session_for):
    first = adapter()
    second = adapter(name="second", declared=first)
    with pytest.raises(FormatError, match="is an adapter itself"):
        open_checkpoint(str(second), session_for())
    config = json.loads((first / "adapter_config.json").read_text())
    (first / "adapter_config.json").write_text(json.dumps(config | {"base_model_name_or_path": str(first)}))
    with pytest.raises(FormatError, match="is an adapter itself"):
        open_checkpoint(str(first), session_for())


def test_other_beginnings_of_names():
    base = [
        "language_model.model.layers.0.q.weight",
        "language_model.model.layers.1.q.weight",
        "vision.layers.0.v.weight",
    ]
    rename = find_renaming(
        ["model.language_model.layers.0.q.weight", "model.language_model.layers.1.q.weight"], base, "", ""
    )
    assert rename("model.language_model.layers.1.q.weight") == base[1]
    assert find_renaming(["layers.1.q.weight"], base, "", "")("layers.1.q.weight") == base[1]
    with pytest.raises(FormatError, match="2 of 2"):  # which layer it is may not be left out
        find_renaming(["h.4.q.weight", "h.5.q.weight"], ["layers.0.q.weight"], "", "")
    with pytest.raises(FormatError, match="1 of 1"):  # two could be meant
        find_renaming(["layers.0.q.weight"], ["a.layers.0.q.weight", "b.layers.0.q.weight"], "", "")


# -- what is refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"peft_type": "LOHA"}, "adapter type 'LOHA' is not known"),
        ({"peft_type": "IA3"}, "adapter type 'IA3' is not known"),
        ({"peft_type": "PROMPT_TUNING"}, "adapter type 'PROMPT_TUNING' is not known"),
        ({"peft_type": "ADALORA"}, "adapter type 'ADALORA' is not known"),
        ({"peft_type": None}, "does not say its type"),
        ({"peft_type": ["LORA"]}, "is not known"),
        ({"init_lora_weights": "pissa_niter_4"}, "init_lora_weights is 'pissa_niter_4'"),
        ({"init_lora_weights": {}}, "init_lora_weights"),
        ({"layer_replication": [[0, 2]]}, "layer_replication is set"),
        ({"alora_invocation_tokens": [1]}, "alora_invocation_tokens is set"),
        ({"lora_bias": True}, "lora_bias is set"),
        ({"target_parameters": ["mlp.experts"]}, "target_parameters is set"),
        ({"r": 0}, "r is 0"),
        ({"r": 8.5}, "expected an integer"),
        ({"r": True}, "r is True"),
        ({"r": 10**15}, "r is 1000000000000000"),
        ({"r": 4}, "has rank 8, the config says 4"),
        ({"lora_alpha": None}, "lora_alpha is None"),
        ({"lora_alpha": "16"}, "lora_alpha is '16'"),
        ({"lora_alpha": 1e300}, "lora_alpha is 1e\\+300"),
        ({"alpha_pattern": [1]}, "alpha_pattern"),
        ({"alpha_pattern": {"q_proj": "x"}}, "alpha_pattern: 'q_proj' is 'x'"),
        ({"use_dora": True}, "no lora_magnitude_vector, and the config says use_dora"),
    ],
)
def test_configs_that_are_refused(settings, said, adapter, opened):
    with pytest.raises(FormatError, match=said):
        opened(adapter(**settings))


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 5000, '{"r": ' + "9" * 400 + "}", "\xff"])
def test_configs_that_are_no_json(text, adapter, opened):
    folder = adapter()
    (folder / "adapter_config.json").write_text(text)
    with pytest.raises(FormatError):
        opened(folder)


def named(part, values, path=Q.format(0)):
    return {f"base_model.model.{path}.{part}": values}


GOOD = lora_names(Q.format(0), drawn(1, 8, HIDDEN), drawn(2, HIDDEN, 8))


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        (named("lora_A.weight", drawn(1, 8, HIDDEN)), "has no lora_B"),
        (named("lora_embedding_B", drawn(1, HIDDEN, 8)), "has no lora_embedding_A"),
        (named("lora_magnitude_vector", drawn(1, HIDDEN)), "has the parts lora_magnitude_vector"),
        (GOOD | named("lora_embedding_A", drawn(1, 8, 4)), "expected one A and one B"),
        (GOOD | named("lora_A.default.weight", drawn(1, 8, HIDDEN)), "stored twice"),
        (GOOD | named("lora_magnitude_vector", drawn(1, HIDDEN)), "config does not say use_dora"),
        (GOOD | named("lora_B.bias", drawn(1, HIDDEN)), "lora_B.bias' is of a kind that is not known"),
        (GOOD | named("lora_E", drawn(1, 8, 1)), "lora_E' is of a kind that is not known"),
        (GOOD | named("trainable_tokens_delta", drawn(1, 8)), "of a kind that is not known"),
        (GOOD | {"base_model.model.extra.weight": drawn(1, 8)}, "modules_to_save does not name"),
        (GOOD | {"base_model.model.lm_head.weight": drawn(1, 8, 3)}, "as \\[8, 3\\], its base as \\[60, 48\\]"),
        ({"base_model.model.lm_head.weight": drawn(1, 60, HIDDEN)}, "holds no lora_A"),
        (lora_names(Q.format(0), drawn(1, 8, HIDDEN), drawn(2, HIDDEN, 7)), "expected rank × in and out × rank"),
        (lora_names(Q.format(0), drawn(1, 8), drawn(2, HIDDEN, 8)), "expected rank × in and out × rank"),
        (lora_names(Q.format(0), drawn(1, 8, 0), drawn(2, HIDDEN, 8)), "expected rank × in and out × rank"),
        (lora_names(Q.format(0), drawn(1, 8, HIDDEN + 1), drawn(2, HIDDEN, 8)), "which fit a matrix \\[48, 49\\]"),
        (lora_names(Q.format(7), drawn(1, 8, HIDDEN), drawn(2, HIDDEN, 8)), "1 of 1 targets are not there"),
        (GOOD | named("lora_A.x.y.weight", drawn(1, 8, HIDDEN)), "of a kind that is not known"),
    ],
)
def test_tensors_that_are_refused(tensors, said, adapter, opened):
    with pytest.raises(FormatError, match=said):
        opened(adapter(tensors))


def test_lengths_of_the_wrong_number(adapter, opened):
    with pytest.raises(FormatError, match="lora_magnitude_vector is \\[5\\]"):
        opened(adapter(GOOD | named("lora_magnitude_vector", drawn(1, 5)), use_dora=True))


def test_integers_in_an_adapter(adapter, opened):
    with pytest.raises(UnsupportedDtype, match="stored as I32"):
        opened(adapter(lora_names(Q.format(0), np.ones((8, HIDDEN), np.int32), drawn(1, HIDDEN, 8))))


def test_values_that_are_not_finite_stay_where_they_are(adapter, opened):
    down, up = factors(Q.format(0), HIDDEN, HIDDEN)
    up[4, 1], up[9, 2] = np.nan, 3e38
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = read(opened(adapter(lora_names(Q.format(0), down, up))), f"{Q.format(0)}.weight")
    assert np.isnan(got[4]).all()
    assert not np.isfinite(got[9]).all()
    assert np.isfinite(np.delete(got, [4, 9], axis=0)).all()


def test_truncated_files_are_refused(adapter, opened):
    folder = adapter()
    file = folder / "adapter_model.safetensors"
    data = file.read_bytes()
    for length in (0, 1, 7, 8, 20, 500, len(data) // 2, len(data) - 1):
        file.write_bytes(data[:length])
        with pytest.raises(KinprintError):
            opened(folder)


def mutate(rng, data):
    """Flip, cut, double or replace some bytes."""
    data = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        at, size = int(rng.integers(0, max(1, len(data)))), int(rng.integers(1, 9))
        kind = rng.integers(0, 4)
        if kind == 0:
            data[at : at + 1] = bytes([int(rng.integers(0, 256))])
        elif kind == 1:
            del data[at : at + size]
        elif kind == 2:
            data[at:at] = data[at : at + size]
        else:
            data[at : at + size] = rng.choice([b"null", b"-1", b"1e99", b'""', b"[]", b"0", b"lora_B", b"."])
    return bytes(data)


def fuzz(folder, cases, seed):
    """Spoil the config and the header in turn: only errors of our own, no hang, no memory beyond a constant."""
    rng = np.random.default_rng(seed)
    config, weights = folder / "adapter_config.json", folder / "adapter_model.safetensors"
    good, data = config.read_bytes(), weights.read_bytes()
    header = 8 + int.from_bytes(data[:8], "little")
    refused, slowest = 0, 0.0
    tracemalloc.start()
    for case in range(cases):
        if case % 2:
            config.write_bytes(mutate(rng, good))
        else:
            weights.write_bytes(mutate(rng, data[:header]) + data[header:])
        started = time.monotonic()
        try:
            with Session(Settings(range_cache=None, hub_cache=None, offline=True)) as session:
                found = open_checkpoint(str(folder), session)
                for name in found.tensors:
                    found.read([rows(found.tensors[name], [(0, 1)])])
        except KinprintError:
            refused += 1
        slowest = max(slowest, time.monotonic() - started)
        config.write_bytes(good)
        weights.write_bytes(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert slowest < 5.0
    assert peak < 64 << 20
    assert cases * 0.3 < refused < cases
    return refused


def test_spoilt_adapters(adapter):
    assert fuzz(adapter(modules_to_save=["x"], alpha_pattern={"q_proj": 4}), 150, seed=1) > 0


@pytest.mark.slow
def test_many_spoilt_adapters(adapter):
    assert fuzz(adapter(modules_to_save=["x"], alpha_pattern={"q_proj": 4}), 4000, seed=2) > 0
