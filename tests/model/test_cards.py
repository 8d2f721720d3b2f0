"""Model cards: a few keys of the front matter, and nothing else."""

import pytest

from kinprint.model.cards import CARD_CAP, MOST, SHOWN, Card, parse_card


@pytest.mark.parametrize(
    ("card", "expected"),
    [
        ("---\nbase_model: owner/base\n---\ntext", ["owner/base"]),
        ("---\r\nlicense: mit\r\nbase_model: 'owner/base' # said so\r\n---\r\n", ["owner/base"]),
        ("---\nbase_model:\n- one/a\n  - two/b\nlicense: mit\n- three/c\n---\n", ["one/a", "two/b"]),
        ('---\nbase_model: [one/a, "two/b"]\n---\n', ["one/a", "two/b"]),
        ("---\nbase_model:\nlicense: mit\n---\n", []),
        ("---\nbase_model_relation: merge\n---\n", []),
        ("base_model: owner/base\n", []),
        ("---\nbase_model: owner/base\n", []),
        ("", []),
    ],
)
def test_the_origin_a_card_declares(card, expected):
    assert list(parse_card(card).base_models) == expected


@pytest.mark.parametrize(
    ("front", "licence"),
    [
        ("license: apache-2.0", "apache-2.0"),
        ("license: other\nlicense_name: llama3.1", "llama3.1"),
        ("license: other", "other"),
        ("license:\n- mit\n- bsd", "mit"),
        ("tags: x", None),
    ],
)
def test_the_licence(front, licence):
    assert parse_card(f"---\n{front}\n---\n").licence == licence


def test_the_relation_and_lengths():
    card = parse_card(f"---\nbase_model_relation: merge\nbase_model: [{', '.join(['x' * 999] * 90)}]\n---\n")
    assert card.relation == "merge"
    assert len(card.base_models) == MOST
    assert {len(name) for name in card.base_models} == {SHOWN}


@pytest.mark.parametrize(
    ("front", "bases"),
    [
        ("base_model:\n\n# of these\n- a/b\n- c/d", ("a/b", "c/d")),
        ("base_model:\n  a/b", ("a/b",)),
        ("base_model: [\n  a/b,  # first\n  c/d\n]", ("a/b", "c/d")),
        ('"base_model": a/b', ("a/b",)),
        ("base_model : a/b", ("a/b",)),
        ("base_model: null", ()),
        ("base_model: ~", ()),
        ("base_model: []", ()),
        ("base_model: 'a/b'\nlicense: mit", ("a/b",)),
    ],
)
def test_spellings_of_yaml(front, bases):
    card = parse_card(f"---\n{front}\n---\n")
    assert (card.base_models, card.unclear) == (bases, False)


@pytest.mark.parametrize(
    "value", [">-\n  a/b", "|\n  a/b", "&x a/b", "*x", "{name: a/b}", "[a/b,\n c/d", "\n  - !x a/b"]
)
def test_what_is_not_read_is_not_taken_for_silence(value):
    assert parse_card(f"---\nbase_model: {value}\n---\n").unclear


def test_many_bases_are_not_all_kept():
    card = parse_card("---\nbase_model:\n" + "\n".join(f"- a/b{number}" for number in range(MOST + 1)) + "\n---\n")
    assert card.unclear
    assert len(card.base_models) == MOST


def test_a_large_card_is_read_in_no_time():
    assert parse_card("---\n" + "a: [" * (CARD_CAP // 4)) == Card()
