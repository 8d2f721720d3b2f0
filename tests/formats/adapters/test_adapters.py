"""LoRA adapters in PEFT's layout: merged as they are read, against the same sums made by numpy on whole matrices."""

import numpy as np
import pytest

from kinprint.errors import BudgetExceeded, FormatError, UnsupportedDtype
from kinprint.formats.adapters.config import read_settings
from kinprint.formats.checkpoint import execute_together, open_checkpoint
from kinprint.formats.plan import plan_reads, rows, whole
from kinprint.studies.origin.windows import windows
from support.adapter_files import (
    CONFIG,
    EMBED,
    HIDDEN,
    LITTLE,
    PATHS,
    RANK,
    UP,
    VOCAB,
    Q,
    base_tensors,
    close,
    drawn,
    factors,
    lora_names,
    read,
    summed,
    write_adapter,
)
from support.layouts import write_checkpoint

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
    # of A only the columns of these tokens; B is needed whole, once for both runs
    assert some.nbytes == 4 * (4 * HIDDEN + 4 * RANK + HIDDEN * RANK)


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
    assert f"3 tensors stored whole (lm_head.weight, {path}.bias, score.weight)" in found.notes[0]


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
    write_checkpoint(tmp_path / "base", stored, LITTLE | ({} if tied is None else {"tie_word_embeddings": tied}))
    down, up = factors("lm_head", VOCAB, HIDDEN)
    folder = write_adapter(tmp_path / "a", lora_names("lm_head", down, up), base=tmp_path / "base")
    if not fits:
        with pytest.raises(FormatError, match=r"changes 'lm_head.weight', which .* does not have"):
            open_checkpoint(str(folder), session_for())
        return
    found = open_checkpoint(str(folder), session_for())
    assert close(read(found, "lm_head.weight"), summed(stored[f"{EMBED}.weight"], down, up, 2.0))
    assert np.array_equal(read(found, f"{EMBED}.weight"), stored[f"{EMBED}.weight"])


def test_a_base_in_half_precision_and_one_in_double(tmp_path, session_for):
    for dtype, kind in (("BF16", "F32"), ("F16", "F32"), ("F64", "F64")):
        plain = base_tensors()
        write_checkpoint(tmp_path / dtype, plain, LITTLE, dtype=dtype)
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
        _, stored_up, stored_down, _ = found.tensors[f"{path}.weight"].made.inputs
        a, b = found.read([whole(stored_down), whole(stored_up)])
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
    with pytest.raises(UnsupportedDtype, match=r"stores 'm.q.weight' as I8"):
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
    execute_together([(found, plan_reads([item], max_gap_bytes=0))])
    assert session.bytes_delivered - before == item.nbytes


def test_the_budget_holds(adapter, session_for):
    folder, refused = str(adapter()), []
    for budget in range(0, 60_000, 3_000):
        session = session_for(budget_bytes=budget)
        try:
            read(open_checkpoint(folder, session), f"{Q.format(0)}.weight")
        except BudgetExceeded:
            refused.append(budget)
        assert session.bytes_delivered <= budget
    assert refused == list(range(0, 3_000 * len(refused), 3_000))
    assert 1 < len(refused) < 20
