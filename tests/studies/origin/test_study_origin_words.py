"""Names, scripts and tokens in the audit of the first accusation."""

import hashlib

import pytest

from kinprint.studies.origin.config import scan
from kinprint.studies.origin.embeddings import choose, random_pairs
from kinprint.studies.origin.tokens import (
    Tokenizer,
    byte_spelling,
    compare,
    decode,
    is_english,
    is_word,
    parse,
    ranked,
    script,
    undecoded_class,
)
from kinprint.studies.origin.vocabulary import overlap_rows
from kinprint.studies.published import claims

SPELT = {value: character for character, value in byte_spelling().items()}


def spelt(text):
    return "".join(SPELT[value] for value in text.encode())


def test_scan_of_names():
    names = ["model.embed_tokens.weight", "model.layers.0.input_layernorm.weight", "model.layers.46.nextn.weight"]
    names += [f"model.layers.46.mlp.experts.{expert}.up_proj.weight" for expert in range(3)]
    assert scan(names) == [6, 0, 46, 4, 0, 1, 0, 0, 0, 0, 1, 3]
    assert scan([])[1:3] == [None, None]


def test_byte_spelling_is_one_to_one_and_decodes():
    assert sorted(byte_spelling().values()) == list(range(256))
    for text in (" hello", "한국어", "中文", "\n\t", "é"):
        assert decode(spelt(text)) == text
    assert decode(spelt("한")[:2]) is None
    assert decode("한") == "한"  # no byte is spelt so: a special token, text already


@pytest.mark.parametrize(
    ("text", "expected", "undecoded"),
    [
        (" 한국", "Korean", "other"),
        ("中文", "Chinese", "other"),
        (" the", "Latin", "ascii_alpha"),
        ("été", "Latin", "other"),
        ("123", "digits", "ascii_digit"),
        ("a1!", "other", "ascii_other"),
        ("  ", "other", "empty"),
    ],
)
def test_scripts_need_decoding(text, expected, undecoded):
    assert script(decode(spelt(text))) == expected
    assert undecoded_class(spelt(text)) == undecoded


def test_english_tokens_and_words():
    assert is_english("  ")  # the published rule counts runs of spaces
    assert is_english(" t")
    assert not is_english("t")
    assert not is_english("한국")
    assert is_word(" the")
    assert not is_word("th")
    assert not is_word("caf\u00e9")
    assert not is_english(None)
    assert not is_word(None)


def test_tokenizer_counts():
    a = Tokenizer(
        "BPE", {token: 10 + number for number, token in enumerate("abcdef")} | {"x": 3}, ("a b", "c d", "e f"), 0
    )
    b = Tokenizer("BPE", {token: number for number, token in enumerate("abcdez")} | {"x": 6}, ("a b", "d c"), 0)
    found = compare(a, b)
    counts = {str(what): value for what, value in overlap_rows(found)}
    assert (counts["tokens in common"], counts["tokens in either"]) == (6, 8)
    assert (counts["tokens with the same id"], counts["tokens with ids within 100"]) == (0, 6)
    assert ranked(found.shifts)[0] == (10, 5)
    assert found.longest_run(-10) == (5, 10)
    assert found.longest_run(99) == (0, None)
    assert found.first_at(10) == counts["of B’s first 1,000 ids, at the dominant shift in A"] == 5
    assert counts["merges in common"] == counts["equal among the first 1,000 merges, place by place"] == 1
    assert found.only_a == ("f",)
    assert a.fingerprint(1) == hashlib.sha256(b"a b\n").hexdigest()


def test_a_count_that_is_off_by_one_differs():
    """Half a unit of the last digit and rounding would let 0 pass for 1."""
    counts = [
        claim for part in claims("origin").values() for claim in part if claim.digits == 0 and claim.trust != "wrong"
    ]
    assert len(counts) > 30
    assert {claim.within for claim in counts} == {0.5}


def test_merges_in_both_spellings_and_added_tokens():
    content = {
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": [["a", "b"]]},
        "added_tokens": [{"id": 2, "content": "<s>"}, {"id": 0, "content": "a"}],
    }
    found = parse("m", content)
    assert (found.merges, found.added, len(found.vocab)) == (("a b",), 1, 2)


def test_random_pairs_are_the_published_draws():
    ids = {f"t{number}": number for number in range(20_000)}
    found = compare(Tokenizer("BPE", ids, (), 0), Tokenizer("BPE", ids, (), 0))
    pairs = random_pairs(found)
    assert pairs[0] == (8270, 1860)  # the first two draws of the old generator with seed 42
    assert all(1_000 <= number < 10_000 for pair in pairs for number in pair)
    assert len(choose(found)["english"]) == 200
