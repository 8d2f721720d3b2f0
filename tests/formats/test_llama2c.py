"""llama2.c: files that are recognised by their numbers alone, and those that only look like it."""

import struct

import numpy as np
import pytest

from kinprint.errors import FormatError
from kinprint.formats.all_formats import LLAMA2C, PYTORCH
from kinprint.formats.checkpoint import open_checkpoint
from kinprint.formats.format import FORMATS, format_of
from kinprint.formats.llama2c import MAX_SIDE, parse_header
from kinprint.formats.plan import rows, whole
from kinprint.model.model import open_model
from support.fuzzing import MemorySession, fuzz, spoil

WIDTH, NEURONS, LAYERS, HEADS, KV_HEADS, TOKENS, POSITIONS = 24, 20, 2, 3, 1, 11, 5
SIZES = (WIDTH, NEURONS, LAYERS, HEADS, KV_HEADS, TOKENS, POSITIONS)
KEYS = WIDTH // HEADS * KV_HEADS
ORDER_0 = [("embedding", 1, (TOKENS, WIDTH)), ("input_norm", LAYERS, (WIDTH,)), ("attn_q", LAYERS, (WIDTH, WIDTH))]
ORDER_0 += [("attn_k", LAYERS, (KEYS, WIDTH)), ("attn_v", LAYERS, (KEYS, WIDTH)), ("attn_o", LAYERS, (WIDTH, WIDTH))]
ORDER_0 += [("post_attention_norm", LAYERS, (WIDTH,)), ("mlp_gate", LAYERS, (NEURONS, WIDTH))]
ORDER_0 += [("mlp_down", LAYERS, (WIDTH, NEURONS)), ("mlp_up", LAYERS, (NEURONS, WIDTH)), ("final_norm", 1, (WIDTH,))]


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    monkeypatch.setitem(FORMATS, "PyTorch", PYTORCH)
    monkeypatch.setitem(FORMATS, "llama2.c", LLAMA2C)


@pytest.fixture
def opened(tmp_path, session_for):
    def open_(raw, opening=open_checkpoint):
        path = tmp_path / "stories.bin"
        path.write_bytes(raw)
        return opening(str(path), session_for())

    return open_


def header_0(*, tied=True, sizes=SIZES):
    *first, tokens, positions = sizes
    return struct.pack("<7i", *first, tokens if tied else -tokens, positions)


def header(version, *, tied=True, group=0, sizes=SIZES):
    return (struct.pack("<Ii7iBi", 0x616B3432, version, *sizes, tied, group)).ljust(256, b"\0")


def version_0(*, tied=True):
    """Return a file whose every float is its place, and the roles' values in order."""
    angles = 2 * POSITIONS * (WIDTH // HEADS // 2)
    count = sum(times * int(np.prod(shape)) for _, times, shape in ORDER_0) + angles + (0 if tied else TOKENS * WIDTH)
    values = np.arange(count, dtype="<f4")
    found, at = {}, 0
    for role, times, shape in ORDER_0:
        for layer in range(times):
            found[role, layer if times == LAYERS else None] = values[at : at + int(np.prod(shape))].reshape(shape)
            at += int(np.prod(shape))
    if not tied:
        found["head", None] = values[at + angles :].reshape(TOKENS, WIDTH)
    return header_0(tied=tied) + values.tobytes(), found


def as_hugging_face(values, heads):
    """Say what the conversion of Meta's checkpoints does, in its own words (convert_llama_weights_to_hf.py)."""
    count, width = values.shape
    return values.reshape(heads, count // heads // 2, 2, width).swapaxes(1, 2).reshape(count, width)


@pytest.mark.parametrize("tied", [True, False])
def test_version_0_role_by_role(opened, tied):
    raw, expected = version_0(tied=tied)
    model = opened(raw, open_model)
    assert (model.naming.architecture, model.naming.guessed, model.naming.layers) == ("llama", False, LAYERS)
    assert model.naming.unmapped == ()
    parts = {(part.role.value, part.layer): part for part in model.naming.tensors}
    assert parts.keys() == expected.keys()
    for key, part in parts.items():
        tensor = model.checkpoint.tensors[part.name]
        want = expected[key]
        if key[0] in ("attn_q", "attn_k"):
            want = as_hugging_face(want, HEADS if key[0] == "attn_q" else KV_HEADS)
        assert np.array_equal(model.checkpoint.read([whole(tensor)])[0], want), key
        assert np.array_equal(model.checkpoint.read([rows(tensor, [(3, 7)])])[0], want[3:7]), key
    config = model.checkpoint.config
    assert (config["num_attention_heads"], config["num_key_value_heads"]) == (HEADS, KV_HEADS)
    assert (config["vocab_size"], config["max_position_embeddings"]) == (TOKENS, POSITIONS)
    assert config["tie_word_embeddings"] is tied
    assert model.checkpoint.session.bytes_delivered < 1000 + 2 * len(raw)


def quantised(group=8):
    """Return a file of version 2 whose groups run across rows: 20 columns, groups of 8."""
    rng = np.random.default_rng(2)
    shapes = (
        [(WIDTH, WIDTH)] + [(KEYS, WIDTH)] * 2 + [(WIDTH, WIDTH), (NEURONS, WIDTH), (WIDTH, NEURONS), (NEURONS, WIDTH)]
    )
    body, coded = np.ones((2 * LAYERS + 1) * WIDTH, "<f4").tobytes(), []
    for shape in [(TOKENS, WIDTH), *(shape for shape in shapes for _ in range(LAYERS))]:
        codes = rng.integers(-127, 128, shape).astype(np.int8)
        scales = rng.uniform(0.1, 1, codes.size // group).astype("<f4")
        body += codes.tobytes() + scales.tobytes()
        coded.append((codes.reshape(-1, group).astype(np.float32) * scales[:, None]).reshape(shape))
    return header(2, group=group) + body, coded


def test_groups_that_run_across_rows(opened):
    raw, coded = quantised()
    checkpoint = opened(raw)
    down = checkpoint.tensors["model.layers.1.mlp.down_proj.weight"]
    want = coded[1 + 5 * LAYERS + 1]
    assert want.shape == (WIDTH, NEURONS)
    assert down.dtype == "int8 with scales"
    assert np.array_equal(checkpoint.read([whole(down)])[0], want)
    for start, stop in ((0, 1), (1, 2), (5, 9), (WIDTH - 1, WIDTH), (4, 4)):
        assert np.array_equal(checkpoint.read([rows(down, [(start, stop)])])[0], want[start:stop])
    assert any("groups of 8" in note for note in checkpoint.notes)


def test_the_first_version_2_with_its_scales_at_the_end_is_refused(opened):
    raw, _ = quantised()
    start = 256 + 4 * (2 * LAYERS + 1) * WIDTH + TOKENS * WIDTH
    with pytest.raises(FormatError, match=r"no scales; files of August 2023"):
        opened(raw[:start] + np.full(16, -1.5, "<f4").tobytes() + raw[start + 64 :])


@pytest.mark.parametrize("tied", [True, False])
def test_what_follows_the_data_is_left_alone_and_said(opened, tied):
    raw, expected = version_0(tied=tied)
    pairs = WIDTH // HEADS // 2
    end = len(raw) - (0 if tied else 4 * TOKENS * WIDTH)
    table = np.zeros((2, POSITIONS, pairs), "<f4")
    table[0, 0] = 1.0
    turned = raw[: end - table.nbytes] + table.tobytes() + raw[end:]
    model = opened(turned + b"a vocabulary, appended", open_model)
    assert np.array_equal(model.tensor("final_norm"), expected["final_norm", None])
    assert "22 bytes behind the model's data are not read" in model.checkpoint.notes


def test_what_follows_a_file_with_a_magic_number_is_left_alone(opened):
    raw, _ = quantised()
    assert "3 bytes behind the model's data are not read" in opened(raw + b"abc").notes


BAD = {
    "too short": (b"\1\2\3", "no known format|does not begin|too short|zip"),
    "cut off": (version_0()[0][:-4], "means a file of"),
    "too long": (version_0()[0] + b"\0", "means a file of"),
    "an unknown version": (header(3), "version 3"),
    "no heads": (header(1, sizes=(24, 20, 2, 0, 1, 11, 5)), "no model has the sizes"),
    "heads that do not divide": (header(1, sizes=(24, 20, 2, 5, 1, 11, 5)), "no model has the sizes"),
    "an odd head": (header(1, sizes=(24, 20, 2, 8, 1, 11, 5)), "no model has the sizes"),
    "negative": (header(1, sizes=(24, -20, 2, 3, 1, 11, 5)), "no model has the sizes"),
    "huge": (header(1, sizes=(MAX_SIDE, MAX_SIDE, 9999, 2, 1, MAX_SIDE, 5)), "means a file of"),
    "groups of nothing": (header(2, group=0), "groups of 0"),
    "negative groups": (header(2, group=-8), "groups of -8"),
    "groups that do not divide": (header(2, group=7), "groups of 7"),
}


@pytest.mark.parametrize("name", BAD)
def test_refused(opened, name):
    raw, message = BAD[name]
    with pytest.raises(FormatError, match=message):
        opened(raw)


def test_layers_that_the_file_has_no_room_for_are_refused_before_anything_is_made_of_them(opened, monkeypatch):
    monkeypatch.setattr("kinprint.formats.llama2c._tensors", lambda *_given: pytest.fail("made"))
    with pytest.raises(FormatError, match="means a file of"):
        opened(header(2, group=4, sizes=(24, 20, 8706, 3, 1, 11, 5)))


def test_other_files_of_that_name_are_left_to_their_reader():
    assert format_of("a.bin", lambda: b"PK\x03\x04" + bytes(60)).name == "PyTorch"
    assert format_of("a.bin", lambda: header_0() + bytes(36)).name == "llama2.c"
    assert format_of("a.bin", lambda: header(2, group=8)[:64]).name == "llama2.c"
    for head in (
        b"PK\x03\x04" + bytes(60),
        b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19." + bytes(50),
        bytes(64),
        b"{" * 64,
    ):
        assert parse_header(head) is None


@pytest.mark.parametrize("cases", [100, pytest.param(20_000, marks=pytest.mark.nightly)])
def test_mutants_are_refused_or_read(cases):
    sound = [version_0()[0], version_0(tied=False)[0], quantised()[0]]

    def mutant(rng):
        raw = bytearray(rng.choice(sound))
        for _ in range(rng.choice((1, 1, 3))):
            raw[rng.randrange(48)] = rng.choice((0, 1, 2, 3, 4, 127, 128, 255, rng.randrange(256)))
        return bytes(raw) if rng.random() < 0.7 else spoil(bytes(raw), rng, stop=300, most=1, cut=0.3)

    with MemorySession() as session:
        refused = fuzz(lambda raw: session.read_everything({"model.bin": raw}), mutant, seed=cases, cases=cases)
    assert 0.5 * cases < refused < cases
