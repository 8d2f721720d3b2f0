"""Pickles that attack: refused by name, with nothing imported, nothing run, and no memory to speak of.

Those that act are shown to act, by Python's own reader in a process of its own.
"""

import builtins
import functools
import importlib
import operator
import os
import pickle  # noqa: TID251 - makes the malicious files, and proves that they are
import pickletools
import struct
import subprocess
import sys
import tracemalloc
import types

import pytest

from kinprint.errors import FormatError
from kinprint.formats.pytorch import pickles
from kinprint.formats.pytorch.archive import VOCABULARY
from kinprint.formats.pytorch.pickles import MEMORY_CAP, PICKLE_CAP, Opaque, read_pickle
from support.fuzzing import fuzz, spoil

EMPTY_DICT = b"ccollections\nOrderedDict\n)R"


def read(data):
    return read_pickle(data, VOCABULARY, label="the-file")


def program(body, protocol=2):
    return b"\x80" + bytes([protocol]) + body + b"."


class Attack:
    """Pickles as a call."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


ATTACKS = {
    "os.system": (lambda marker: Attack(os.system, f"touch {marker}"), "posix.system|nt.system"),
    "subprocess": (lambda marker: Attack(subprocess.call, ["touch", marker]), "subprocess.call|commands.call"),
    "eval": (lambda marker: Attack(builtins.eval, f"open({marker!r}, 'w').close()"), "builtins.eval"),
    "exec": (lambda marker: Attack(builtins.exec, f"open({marker!r}, 'w').close()"), "builtins.exec"),
    "open": (lambda marker: Attack(builtins.open, marker, "w"), "io.open"),
    "getattr": (lambda marker: Attack(getattr, Attack(importlib.import_module, "os"), "mkdir"), "builtins.getattr"),
    "partial": (lambda marker: Attack(functools.partial(os.mkdir, marker)), "functools.partial"),
    "methodcaller": (lambda marker: operator.methodcaller("mkdir", marker), "operator.methodcaller"),
    "namespace": (lambda marker: types.SimpleNamespace(x=Attack(os.mkdir, marker)), "posix.mkdir|nt.mkdir"),
}
RUNS = [name for name in ATTACKS if name not in ("getattr", "methodcaller")]  # the others only reach for something


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("name", ATTACKS)
def test_attacks_are_refused_by_name(tmp_path, name, protocol):
    marker = tmp_path / "marker"
    attack, words = ATTACKS[name]
    data = pickle.dumps({"weight": attack(str(marker))}, protocol)
    with pytest.raises(FormatError, match=rf"kinprint refuses to import ({words}) \(byte \d+\)") as caught:
        read(data)
    assert "nothing of it was run" in caught.value.hint
    assert not marker.exists()


OURS = """
import sys
from pathlib import Path
from kinprint.errors import FormatError
from kinprint.formats.pytorch.pickles import read_pickle
from kinprint.formats.pytorch.archive import VOCABULARY
before = set(sys.modules)
for path in sorted(Path(sys.argv[1]).glob("*.pkl")):
    try:
        read_pickle(path.read_bytes(), VOCABULARY, label="f")
    except FormatError as error:
        print("refused", error.message)
print("imported", sorted(set(sys.modules) - before))
"""
THEIRS = "import pickle, sys; pickle.loads(open(sys.argv[1], 'rb').read())"


def _python(code, argument, folder):
    done = subprocess.run(
        [sys.executable, "-c", code, argument],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)])},
    )
    return done.stdout


@pytest.mark.slow
def test_the_attacks_are_real_and_do_nothing_here(tmp_path):
    """Python's own reader runs each of them; ours, in the same surroundings, none."""
    (tmp_path / "canary.py").write_text(
        "open('imported', 'w').close()\ndef sing(*args):\n    open('sung', 'w').close()\n"
    )
    attacks = {name: pickle.dumps({"w": ATTACKS[name][0](str(tmp_path / f"{name}.did"))}, 2) for name in RUNS}
    attacks["canary"] = program(b"ccanary\nsing\n)R")
    for name, data in attacks.items():
        (tmp_path / f"{name}.pkl").write_bytes(data)
    told = _python(OURS, str(tmp_path), tmp_path)
    assert told.count("refused") == len(attacks)
    assert "imported []" in told
    assert "refuses to import canary.sing" in told
    assert not [
        path for path in tmp_path.iterdir() if path.suffix not in (".pkl", ".py") and path.name != "__pycache__"
    ]
    for name in attacks:
        _python(THEIRS, str(tmp_path / f"{name}.pkl"), tmp_path)
    left = {path.name for path in tmp_path.iterdir()}
    assert {f"{name}.did" for name in RUNS} | {"imported", "sung"} <= left


# ---- instructions ----


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"(S'touch x'\nios\nsystem\n", "uses the instruction STRING"),
        (b"(X\x01\x00\x00\x00xios\nsystem\n", "uses the instruction INST"),
        (b"(cos\nsystem\no", "refuses to import os.system"),
        (b"(ccollections\nOrderedDict\no", "uses the instruction OBJ"),
        (b"\x82\x01", "uses the instruction EXT1"),
        (b"\x83\x01\x00", "uses the instruction EXT2"),
        (b"\x84\x01\x00\x00\x00", "uses the instruction EXT4"),
        (b"Pstorage\n", "uses the instruction PERSID"),
        (b"\x97", "uses the instruction NEXT_BUFFER"),
        (b"\x8b\xff\xff\xff\x7f", "uses the instruction LONG4"),
        (b"\xff", "uses the instruction 0xff"),
        # calls of what is no name, or not to be called
        (b"X\x09\x00\x00\x00os.system)R", "calls a str with a tuple"),
        (b"ctorch\nfloat32\n)R", "calls a dtype with a tuple"),
        (b"ctorch\nFloatStorage\n)R", "calls a storagetype with a tuple"),
        (b"cargparse\nNamespace\n)\x81)R", "calls argparse.Namespace with a tuple"),
        (b"ccollections\nOrderedDict\n]R", "calls collections.OrderedDict with a list"),
        (b"ccollections\nOrderedDict\nK\x01\x85R", "something that is no list"),
        (b"ccollections\nOrderedDict\n]K\x01a\x85R", "no list of pairs"),
        (b"ccollections\nOrderedDict\n))\x86R", "calls collections.OrderedDict with 2 arguments"),
        (b"ccollections\nOrderedDict\n)}\x92", "makes collections.OrderedDict with named arguments"),
        (b"ctorch._utils\n_rebuild_tensor_v2\n)R", "_rebuild_tensor_v2 with 0 arguments"),
        (b"ctorch._utils\n_rebuild_parameter\nNNN\x87R", "no tensor"),
        (b"ctorch._tensor\n_rebuild_from_type_v2\n(NNN)tR", "class that is not supported"),
        (b"\x8c\x02os\x8c\x06system\x93", "refuses to import os.system"),
        (b"\x8c\x0b__builtin__\x8c\x04eval\x93", "refuses to import builtins.eval"),
        (b"K\x01\x8c\x06system\x93", "names a int and a str"),
        (b"c\xff\nsystem\n", "which is no name"),
        (b"ca b\nc\n", "which is no name"),
        (b"c" + b"a" * 600 + b"\nb\n", "a name without an end"),
        # states
        (b"K\x01}b", "sets the state of a int"),
        (EMPTY_DICT + b"}}\x86b", "sets the state of a dict to a tuple"),
        (EMPTY_DICT + b"}K\x01K\x02sb", "sets the state of a dict to a dict"),
        (b"ctorch\nfloat32\n}b", "sets the state of a dtype"),
        # persistent ids
        (b"X\x01\x00\x00\x000Q", "persistent id that is not a storage's"),
        (b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cputQ", "persistent id"),
        (
            b"(X\x06\x00\x00\x00modulectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x01tQ",
            "persistent id",
        ),
        (b"(X\x07\x00\x00\x00storageNX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x01tQ", "persistent id"),
        (b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nK\x01X\x03\x00\x00\x00cpuK\x01tQ", "persistent id"),
        (
            b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu\x88tQ",
            "persistent id",
        ),
        # stack and memo
        (b"0", "takes a value where there is none"),
        (b"a", "takes a value where there is none"),
        (b"t", "closes a list that it has not begun"),
        (b"K\x01K\x02", "does not end with one value"),
        (b"K\x01(", "does not end with one value"),
        (b"", "does not end with one value"),
        (b"N.N", "does not end with one value"),
        (b"K\x01K\x02a", "appends to a int"),
        (b"]K\x01K\x02s", "sets keys of a list"),
        (b"}(K\x01u", "sets a key without a value"),
        (b"}]Ns", "has a list for a key"),
        (b"}" + b")" + b"\x85" * 1000 + b"Ns", "has a tuple for a key"),
        (b"}(X\x01\x00\x00\x00aNX\x01\x00\x00\x00aNu", "sets the key 'a' twice"),
        (b"h\x00", "recalls value 0 of 0"),
        (b"Nr\xff\xff\xff\xff", "remembers value 4294967295 after 0"),
        (b"Nq\x01", "remembers value 1 after 0"),
        (b"\x80\x02", "declares protocol 2, expected 2 to 5 at its beginning"),
        # lengths
        (b"X\xff\xff\xff\xffabc", "is cut off"),
        (b"\x8d" + b"\xff" * 8, "is cut off"),
        (b"\x8e" + b"\xff" * 7 + b"\x7f", "is cut off"),
        (b"\x95" + b"\xff" * 8, "declares a frame"),
        (b"\x8a\xff" + b"1" * 255, "a number of 255 bytes"),
        (b"X\x01\x00\x00\x00\xff", "text that is not UTF-8"),
        (b"(" * 1001, "nests more than 1000 deep"),
    ],
)
def test_bad_programs(body, words):
    with pytest.raises(FormatError, match=words) as caught:
        read(program(body))
    assert caught.value.message.startswith("the-file: the pickle ")
    assert len(caught.value.message) < 400


def test_other_protocols():
    for version in (0, 1, 6, 255):
        with pytest.raises(FormatError, match=f"declares protocol {version}"):
            read(program(b"N", version))


def test_harmless_values_are_passed_over():
    values = {"args": types.SimpleNamespace(lr=1e-3), "set": frozenset({1}), "n": [1.5, None, (1, 2, 3, 4), b"x"]}
    for protocol in (2, 4):
        outcome = read(pickle.dumps(values, protocol))
        found = outcome.value
        assert isinstance(found["args"], Opaque)
        assert found["n"][:3] == [1.5, None, (1, 2, 3, 4)]
        assert "types.SimpleNamespace" in outcome.passed_over


def test_attributes_of_a_dictionary_are_not_its_entries():
    outcome = read(program(EMPTY_DICT + b"}X\x09\x00\x00\x00__class__Nsb"))
    assert outcome.value == {}
    assert type(outcome.value) is dict


# ---- bombs ----


EMOJI = "\U0001f600" + "a" * 125_000


@pytest.mark.parametrize(
    "body",
    [
        b"]" * 62_500,
        b"}" * 62_500,
        b"\x8f" * 87_500,
        b")" + b"\x85" * 87_500,
        b"}(" + b"".join(b"J" + struct.pack("<i", n) + b"N" for n in range(50_000)) + b"u",
        b"ccollections\nOrderedDict\nq\x00" + b"h\x00)R" * 37_500,
        (b"X" + struct.pack("<I", 125_004) + EMOJI.encode()) * 16,
    ],
)
def test_bombs_are_refused_within_the_cap(body, monkeypatch):
    """An eighth of what is allowed, as tracing takes long; `test_a_short_bomb` meets the cap itself."""
    cap = MEMORY_CAP // 8
    monkeypatch.setattr(pickles, "MEMORY_CAP", cap)
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match="makes values of more than"):
            read(program(body))
        assert tracemalloc.get_traced_memory()[1] < len(body) + cap + (3 << 20)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("code", [b"N0", b"h\x00", b"\x94", b"(1"])
def test_programs_without_end(code, monkeypatch):
    assert pickles.INSTRUCTION_CAP == 2_000_000
    monkeypatch.setattr(pickles, "INSTRUCTION_CAP", 100_000)
    monkeypatch.setattr(pickles, "MEMORY_CAP", MEMORY_CAP // 20)
    with pytest.raises(FormatError, match=r"has more than 100000 instructions|makes values of more than"):
        read(program(b"Nq\x00" + code * (500_000 // len(code))))


def test_a_short_bomb():
    with pytest.raises(FormatError, match="makes values of more than"):
        read(program(b"]" * 450_000))


def test_a_pickle_longer_than_any():
    with pytest.raises(FormatError, match=f"has {PICKLE_CAP + 1} bytes, more than the {PICKLE_CAP} allowed"):
        read(bytes(PICKLE_CAP + 1))


# ---- mutations ----

SEEDS = [
    pickle.dumps({"a": [1, 2.5, "x", None], "b": (1, (2, 3)), "c": {"d": b"y" * 40, "e": 2**50}}, protocol)
    for protocol in (2, 4)
]
SEEDS.append(
    program(
        EMPTY_DICT
        + b"q\x00(X\x01\x00\x00\x00wctorch._utils\n_rebuild_tensor_v2\nq\x01((X\x07\x00\x00\x00storageq\x02ctorch\n"
        b"FloatStorage\nq\x03X\x01\x00\x00\x000q\x04X\x03\x00\x00\x00cpuq\x05K\x0ctq\x06QK\x00K\x03K\x04\x86q\x07K\x04K\x01"
        b"\x86q\x08\x89" + EMPTY_DICT + b"q\x09tq\x0aRq\x0bu}X\x09\x00\x00\x00_metadata}sb"
    )
)
CODES = [info.code.encode("latin-1") for info in pickletools.opcodes]


@pytest.mark.parametrize("cases", [150, pytest.param(20_000, marks=pytest.mark.nightly)])
def test_mutants_are_refused_or_read(cases):
    refused = fuzz(
        read, lambda rng: spoil(rng.choice(SEEDS), rng, words=CODES, most=5), seed=cases, cases=cases, room=8 << 20
    )
    assert 0.5 * cases < refused < cases


def test_keys_that_were_chosen_to_share_one_hash_are_told_apart_without_comparing_them():
    """Numbers i·(2**61 − 1) all hash to zero, and so do tuples of them: a dictionary would compare each with all others."""
    numbers = [number * (2**61 - 1) for number in range(1, 5000)]
    assert len(set(map(hash, numbers))) == len({hash((number,)) for number in numbers}) == 1
    for keys in (numbers, [(number,) for number in numbers], [-number for number in numbers]):
        target = {}
        pickles.add_items(target, [(key, None) for key in keys])
        assert len(set(map(hash, target))) == len(keys)
    both = {}
    pickles.add_items(both, [(key, None) for key in (*range(5000), *(f"layer{number}" for number in range(5000)))])
    assert len(both) == 10_000  # what names tensors stays as it is
    assert {0, 4999, "layer0"} <= both.keys()
    with pytest.raises(pickles.Refusal, match="sets a key twice"):
        pickles.add_items(both, [(7, None)])
