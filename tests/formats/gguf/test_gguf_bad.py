"""GGUF files that are damaged, absurd or hostile: refused with a reason, never by anything but our own errors."""

import struct

import numpy as np
import pytest

import gguf
from kinprint.errors import FormatError, UnsupportedDtype
from kinprint.formats.gguf.metadata import MAX_STRINGS
from kinprint.formats.gguf.parser import HEADER_CAP, MAX_ENTRIES, MAX_TENSORS, load
from kinprint.formats.plan import plan_reads, whole
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings
from support.fuzzing import MemoryFile, MemorySession, fuzz, spoil
from support.gguf_files import header, write_gguf

HUGE = (1 << 64) - 1


@pytest.fixture(scope="module")
def session():
    with Session(Settings()) as opened:
        yield opened


def open_bytes(session, data, size=None):
    return load(session, None, MemoryFile(data, size, "folder/m.gguf"), 0, 65_536)


def text(value):
    return struct.pack("<Q", len(value)) + value


def entry(key, kind, value):
    return text(key) + struct.pack("<I", kind) + value


def file(*, magic=b"GGUF", version=3, tensors=0, entries=0, rest=b""):
    return struct.pack("<4sIQQ", magic, version, tensors, entries) + rest


def table(*rows):
    """Return a file with these tensors: (name, sides as stored, type, offset)."""
    rest = b"".join(text(n) + struct.pack(f"<I{len(s)}QIQ", len(s), *s, kind, at) for n, s, kind, at in rows)
    return file(tensors=len(rows), rest=rest) + bytes(4096)


BAD = {
    "empty": (b"", "too short"),
    "short": (b"GGUF", "4 bytes, too short"),
    "another format": (b"PK\x03\x04" + bytes(100), r"begins with b'PK\\x03\\x04'"),
    "pointer": (b"version https://git-lfs.github.com/spec/v1\n" + bytes(90), "a Git LFS pointer"),
    "version 1": (file(version=1), "GGUF version 1; versions 2 and 3 are read"),
    "version 4": (file(version=4), "GGUF version 4; versions 2 and 3 are read"),
    "big-endian": (struct.pack(">4sIQQ", b"GGUF", 3, 0, 0), "a big-endian GGUF file of version 3"),
    "tensors": (file(tensors=HUGE), f"claims {HUGE} tensors in 24 bytes"),
    "more tensors than bytes": (file(tensors=1000) + bytes(900), "claims 1000 tensors in 924 bytes"),
    "entries": (file(entries=HUGE), f"claims {HUGE} metadata entries"),
    "long key": (file(entries=1, rest=struct.pack("<Q", HUGE) + bytes(50)), f"has a name of {HUGE} bytes"),
    "empty key": (file(entries=1, rest=struct.pack("<Q", 0) + bytes(50)), "has a name of 0 bytes"),
    "key outside": (
        file(entries=1, rest=struct.pack("<Q", 60_000) + bytes(50)),
        "goes on to byte 60032, the file ends at 82",
    ),
    "key not UTF-8": (file(entries=1, rest=text(b"\xff") + bytes(50)), "name of a metadata entry is not UTF-8"),
    "unknown type": (file(entries=1, rest=entry(b"k", 13, bytes(8))), "'k' is of the unknown type 13"),
    "nested arrays": (
        file(entries=1, rest=entry(b"k", 9, struct.pack("<IQ", 9, 1) + bytes(20))),
        "'k' is an array of arrays",
    ),
    "long array": (file(entries=1, rest=entry(b"k", 9, struct.pack("<IQ", 4, HUGE))), "the file ends at"),
    "many strings": (file(entries=1, rest=entry(b"k", 9, struct.pack("<IQ", 8, HUGE))), f"{HUGE} strings claimed"),
    "long string": (file(entries=1, rest=entry(b"k", 8, struct.pack("<Q", HUGE))), "the file ends at"),
    "long string in an array": (
        file(entries=1, rest=entry(b"k", 9, struct.pack("<IQQQ", 8, 2, HUGE, 0))),
        "the file ends at",
    ),
    "same key twice": (file(entries=2, rest=2 * entry(b"k", 4, bytes(4))), "the metadata has 'k' twice"),
    "alignment 0": (file(entries=1, rest=entry(b"general.alignment", 4, bytes(4))), "general.alignment is 0"),
    "alignment 48": (file(entries=1, rest=entry(b"general.alignment", 4, b"\x30\0\0\0")), "general.alignment is 48"),
    "alignment 1.0": (
        file(entries=1, rest=entry(b"general.alignment", 6, struct.pack("<f", 1))),
        "general.alignment is 1.0",
    ),
    "sides": (table((b"w", (1, 1, 1, 1, 1), 0, 0)), "'w' has 5 sides, at most 4"),
    "huge sides": (table((b"w", (1 << 40, 1 << 40), 0, 0)), "more than an array can have"),
    "product beyond 64 bits": (table((b"w", (1 << 63, 2, 1 << 63), 0, 0)), "more than an array can have"),
    "sides with a zero": (table((b"w", (1 << 62, 0, 1 << 62), 0, 0)), "more than an array can have"),
    "row no multiple": (table((b"w", (33, 2), 8, 0)), "stored as Q8_0; its rows are no multiple of 32"),
    "misaligned": (table((b"w", (4,), 0, 4)), "begins at byte 4 of the data, no multiple of 32"),
    "outside": (table((b"w", (4096,), 0, 0)), "the file has"),
    "far outside": (table((b"w", (4,), 0, HUGE - 31)), "the file has"),
    "overlap": (table((b"v", (64,), 0, 0), (b"w", (4,), 0, 32)), "'w' begins at byte 128, but 'v' ends at 352"),
    "same place": (table((b"v", (8,), 0, 0), (b"w", (8,), 0, 0)), "'w' begins at byte"),
    "same name": (table((b"w", (8,), 0, 0), (b"w", (8,), 0, 32)), "tensor 'w' is there twice"),
    "an expert twice": (
        table((b"blk.0.ffn_up_exps.weight", (8, 1, 2), 0, 0), (b"blk.0.ffn_up_exps.1.weight", (8, 1), 0, 64)),
        "an expert is stored both by itself and among others",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_refused_with_a_reason(case, session):
    data, complaint = BAD[case]
    with pytest.raises(FormatError, match=complaint) as caught:
        open_bytes(session, data)
    assert str(caught.value).startswith("folder/m.gguf: ")


@pytest.mark.parametrize(("number", "name"), [(4, "Q4_2"), (9, "Q8_1"), (36, "IQ4_NL_4_4"), (77, "type 77")])
def test_unknown_types_are_named_with_the_tensor(number, name, session):
    with pytest.raises(UnsupportedDtype, match=rf"tensor 'a\.weight' is stored as GGML {name}"):
        open_bytes(session, table((b"a.weight", (256,), number, 0)))


def test_a_big_endian_file_of_the_package(tmp_path, session):
    writer = gguf.GGUFWriter(tmp_path / "big.gguf", "llama", endianess=gguf.GGUFEndian.BIG)
    writer.add_tensor("w", np.ones(32, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(FormatError, match="big-endian"):
        open_bytes(session, (tmp_path / "big.gguf").read_bytes())


@pytest.mark.parametrize(
    "start",
    [
        file(tensors=MAX_TENSORS + 1),
        file(entries=MAX_ENTRIES + 1),
        file(entries=1, rest=entry(b"k", 9, struct.pack("<IQ", 0, 1 << 33))),
        file(entries=1, rest=entry(b"k", 9, struct.pack("<IQ", 8, 1 << 30))),
        file(entries=1, rest=entry(b"k", 8, struct.pack("<Q", 1 << 33))),
    ],
    ids=["tensors", "entries", "numbers", "strings", "string"],
)
def test_a_huge_file_gives_no_leave_to_read_much_of_it(start, session):
    """Nor to spend much time: a thousand million empty strings would take minutes to step over."""
    source = MemoryFile(start, 100 << 30)
    with pytest.raises(FormatError):
        load(session, None, source, 0, 65_536)
    assert max(end for _, end in source.reads) <= HEADER_CAP


def test_too_many_tokens_are_refused_when_asked_for(session):
    count = MAX_STRINGS + 1
    rest = entry(b"general.architecture", 8, text(b"llama"))
    rest += entry(b"tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, count) + bytes(8 * count))
    shard = open_bytes(session, file(entries=2, rest=rest))
    assert shard.config["vocab_size"] == count
    with pytest.raises(FormatError, match=f"lists {count} strings"):
        shard.documents["tokenizer.json"]()


def test_values_of_the_wrong_type_count_as_absent(session):
    rest = entry(b"general.architecture", 8, text(b"llama")) + entry(b"llama.block_count", 8, text(b"2"))
    rest += entry(b"llama.embedding_length", 7, b"\1") + entry(
        b"llama.attention.head_count", 9, struct.pack("<IQ", 8, 0)
    )
    rest += entry(b"tokenizer.ggml.tokens", 9, struct.pack("<IQI", 4, 1, 5))
    shard = open_bytes(session, file(entries=5, rest=rest))
    assert shard.config == {"model_type": "llama", "gguf": True, "vocab_size": 1}
    assert shard.documents["tokenizer.json"]()["model"]["vocab"] == {}


# -- fuzz ----------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A small file with something of everything, and the length of its header."""
    rng = np.random.default_rng(8)
    metadata = {
        "general.architecture": "llama",
        "llama.block_count": 1,
        "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": [2],
        "llama.rope.freq_base": 1e4,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": [f"t{n}" for n in range(20)],
        "tokenizer.ggml.token_type": [1] * 20,
        "tokenizer.ggml.merges": ["t 0", "t 1"],
        "some.flag": True,
    }
    shapes = {
        "token_embd.weight": ("F16", (20, 64)),
        "blk.0.attn_norm.weight": ("F32", (64,)),
        "blk.0.attn_q.weight": ("Q8_0", (64, 64)),
        "blk.0.attn_k.weight": ("BF16", (32, 64)),
        "blk.0.ffn_up_exps.weight": ("Q4_K", (2, 3, 256)),
    }
    path = tmp_path_factory.mktemp("fuzz") / "m.gguf"
    write_gguf(path, metadata, {n: (d, rng.standard_normal(s).astype(np.float32)) for n, (d, s) in shapes.items()})
    return path.read_bytes(), len(header(metadata, shapes)[0])


def attempt(session, data):
    """Open, and make all there is to make, but for the tensors themselves."""
    shard = open_bytes(session, data)
    for row in shard.rows.values():
        plan = plan_reads([whole(row)])
        assert all(span.end <= len(data) for span in plan.ranges)
    for make in shard.documents.values():
        make()


def test_the_sound_file_is_sound(session, sound):
    attempt(session, sound[0])


@pytest.mark.parametrize("cases", [150, pytest.param(20_000, marks=pytest.mark.nightly)])
def test_mutated_headers(sound, cases):
    data, length = sound
    words = [struct.pack("<Q", HUGE), struct.pack("<I", 9), b"blk.0.", b"general.alignment", b"split.count", b"\0" * 8]
    with MemorySession() as session:
        refused = fuzz(
            lambda raw: attempt(session, raw),
            lambda rng: spoil(data, rng, words=words, stop=length),
            seed=cases,
            cases=cases,
        )
    assert 0.5 * cases < refused < cases  # some changes do no harm: a letter of a token


@pytest.mark.parametrize("cases", [100, pytest.param(20_000, marks=pytest.mark.nightly)])
def test_mutated_files_are_refused_or_read(sound, cases):
    """Through the model that is made of it, numbers included."""
    data, length = sound

    def mutant(rng):
        return spoil(data, rng, stop=length if rng.random() < 0.8 else None, most=2)

    with MemorySession() as session:
        refused = fuzz(lambda raw: session.read_everything({"m.gguf": raw}), mutant, seed=cases, cases=cases)
    assert 0.3 * cases < refused < cases


def test_truncated_anywhere(session, sound):
    data, length = sound
    cuts = [*range(0, length, 3), length - 1, length, length + 1, len(data) // 2, len(data) - 1]
    for cut in cuts:
        with pytest.raises(FormatError):
            open_bytes(session, data[:cut])
