"""Split GGUF files: parts are read together, and parts of different models are told apart."""

import numpy as np
import pytest

from kinprint.errors import FormatError
from kinprint.formats.checkpoint import open_checkpoint
from kinprint.formats.format import choose_files
from kinprint.formats.plan import rows, whole
from support.gguf_files import interleaved, write_gguf
from support.hub import HubServer

RNG = np.random.default_rng(17)
LLAMA = {
    "general.architecture": "llama",
    "llama.block_count": 1,
    "llama.embedding_length": 64,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
}


def drawn(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def read(checkpoint, name):
    return checkpoint.read([whole(checkpoint.tensors[name])])[0]


def _split(folder, q, *, numbers=(0, 1), names=("m-00001-of-00002.gguf", "m-00002-of-00002.gguf")):
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {"tokenizer.ggml.tokens": [f"token {n}" for n in range(30_000)]}
    parts = [
        (LLAMA | vocabulary, {"token_embd.weight": drawn(5, 64)}),
        ({}, {"blk.0.attn_q.weight": interleaved(q, 4)}),
    ]
    for (metadata, tensors), number, name in zip(parts, numbers, names, strict=True):
        metadata = metadata | {"split.no": number, "split.count": 2, "split.tensors.count": 2}
        write_gguf(folder / name, metadata, {key: ("F32", values) for key, values in tensors.items()})


def test_parts_are_read_together_and_the_first_speaks_for_all(tmp_path, session_for):
    q = drawn(64, 64)
    _split(tmp_path / "m", q)
    session = session_for()
    found = open_checkpoint(str(tmp_path / "m"), session)
    assert [file.name for file in found.files] == ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"]
    assert found.config["num_attention_heads"] == 4
    assert "tie_word_embeddings" not in found.config
    assert np.array_equal(read(found, "blk.0.attn_q.weight"), q)
    assert np.array_equal(found.read([rows(found.tensors["blk.0.attn_q.weight"], [(5, 9)])])[0], q[5:9])


def test_parts_in_a_subfolder_of_a_hub_repository(tmp_path, session_for):
    q = drawn(64, 64)
    _split(tmp_path / "repo" / "F32", q)
    _split(tmp_path / "repo", drawn(64, 64))
    with HubServer() as server:
        server.add_repo("owner/Split", tmp_path / "repo")
        found = open_checkpoint("hf://owner/Split/F32/m-00002-of-00002.gguf", session_for(server))
        assert np.array_equal(read(found, "blk.0.attn_q.weight"), q)
        assert len(found.files) == 2


def test_a_later_part_reads_little_of_the_first(tmp_path, session_for):
    _split(tmp_path / "m", drawn(64, 64))
    session = session_for()
    found = open_checkpoint(str(tmp_path / "m"), session)
    assert found.files[0].header_bytes > 500_000
    assert session.bytes_delivered < found.files[0].size + found.files[1].size + 70_000


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ({"numbers": (0, 0)}, "its metadata says part 1 of 2, its name part 2 of 2"),
        ({"names": ("m-00001-of-00002.gguf", "x.gguf")}, "m-00002-of-00002.gguf is not there"),
    ],
)
def test_parts_that_do_not_belong_together(more, complaint, tmp_path, session_for):
    _split(tmp_path / "m", drawn(64, 64), **more)
    with pytest.raises(FormatError, match=complaint):
        open_checkpoint(str(tmp_path / "m"), session_for())


def test_a_part_under_another_name_is_refused(tmp_path, session_for):
    _split(tmp_path / "m", drawn(64, 64), names=("a.gguf", "b.gguf"))
    with pytest.raises(FormatError, match="its metadata says part 2 of 2, its name does not end in"):
        open_checkpoint(str(tmp_path / "m" / "b.gguf"), session_for())


def _parts(folder, *parts):
    """Write parts of (metadata, tensors); what they say of the split may be said otherwise in the metadata."""
    folder.mkdir()
    total = sum(len(tensors) for _, tensors in parts)
    names = [f"m-{number:05d}-of-{len(parts):05d}.gguf" for number in range(1, len(parts) + 1)]
    for number, (name, (metadata, tensors)) in enumerate(zip(names, parts, strict=True)):
        said = {"split.no": number, "split.count": len(parts), "split.tensors.count": total} | metadata
        write_gguf(folder / name, said, {key: ("F32", values) for key, values in tensors.items()})
    return str(folder)


EMBEDDING = {"token_embd.weight": np.zeros((5, 64), np.float32)}
NORM = {"blk.0.attn_norm.weight": np.ones(64, np.float32)}


@pytest.mark.parametrize(
    ("first", "second", "tensors", "complaint"),
    [
        (LLAMA, {"split.tensors.count": 7}, NORM, "the one says 2 tensors in all, the other 7 tensors in all"),
        (
            LLAMA,
            {"general.architecture": "qwen2"},
            NORM,
            "the architecture 'llama', the other the architecture 'qwen2'",
        ),
        (LLAMA, LLAMA | {"llama.block_count": 9}, NORM, "the one says 1 layers, the other 9 layers"),
        (LLAMA, LLAMA | {"llama.embedding_length": 8}, NORM, "a width of 64, the other a width of 8"),
        (LLAMA, {}, {"blk.1.attn_norm.weight": np.ones(64)}, "1 layers, the other holds 'blk.1.attn_norm.weight'"),
        (LLAMA, {}, {"blk.0.attn_norm.weight": np.ones(96)}, r"width of 64, the other holds .* of shape \[96\]"),
    ],
)
def test_parts_of_different_models_are_refused_and_both_named(first, second, tensors, complaint, tmp_path, session_for):
    folder = _parts(tmp_path / "m", (first, EMBEDDING), (second, tensors))
    with pytest.raises(FormatError, match=complaint) as caught:
        open_checkpoint(folder, session_for())
    named = "m-00001-of-00002.gguf and m-00002-of-00002.gguf do not belong together: "
    assert caught.value.message.startswith(named)


def test_parts_that_hold_too_few_tensors_are_refused(tmp_path, session_for):
    said = {"split.tensors.count": 3}
    folder = _parts(tmp_path / "m", (LLAMA | said, EMBEDDING), (said, NORM))
    with pytest.raises(FormatError, match="2 parts with 2 tensors in all; they say 3"):
        open_checkpoint(folder, session_for())


def test_parts_that_repeat_what_the_first_says_are_read(tmp_path, session_for):
    found = open_checkpoint(_parts(tmp_path / "m", (LLAMA, EMBEDDING), (LLAMA, NORM), ({}, {})), session_for())
    assert sorted(found.tensors) == ["blk.0.attn_norm.weight", "token_embd.weight"]


def test_a_model_whose_name_looks_like_a_part_is_refused(tmp_path, session_for):
    for number in (1, 2):
        write_gguf(tmp_path / f"m-{number:05d}-of-00002.gguf", LLAMA, {"x": ("F32", drawn(4))})
    with pytest.raises(FormatError, match="its name says part 1 of 2, its metadata that it is whole"):
        open_checkpoint(str(tmp_path), session_for())


def test_missing_parts_are_named():
    listed = ["m-00001-of-00007.gguf", "m-00003-of-00007.gguf"]
    with pytest.raises(FormatError) as caught:
        choose_files(listed, None, "m")
    assert caught.value.message == (
        "m-00001-of-00007.gguf is one of 7 files, but m-00002-of-00007.gguf, m-00004-of-00007.gguf, m-00005-of-00007.gguf "
        "and 2 more are not there"
    )


@pytest.mark.parametrize("surplus", ["m-00003-of-00002.gguf", "m-00000-of-00002.gguf"])
def test_surplus_parts_are_named(surplus):
    listed = ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf", surplus]
    with pytest.raises(FormatError, match=f"m-00001-of-00002.gguf is one of 2 files, but {surplus} is there too"):
        choose_files(listed, "m-00001-of-00002.gguf", "m")


def test_another_model_beside_a_split_one_is_no_part_of_it():
    listed = ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "n-00003-of-00003.gguf", "m-00001-of-00003.gguf"]
    assert choose_files(listed, "m-00002-of-00002.gguf", "m").names == tuple(listed[:2])
