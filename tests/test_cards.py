"""Model cards: a few keys of the front matter, and nothing else."""

import pytest

from kinprint.cards import CARD_CAP, MOST, SHOWN, Card, read_card


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
    assert list(read_card(card).base_models) == expected


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
    assert read_card(f"---\n{front}\n---\n").licence == licence


def test_the_relation_and_lengths():
    card = read_card(f"---\nbase_model_relation: merge\nbase_model: [{', '.join(['x' * 999] * 30)}]\n---\n")
    assert card.relation == "merge"
    assert len(card.base_models) == MOST
    assert {len(name) for name in card.base_models} == {SHOWN}


def test_a_large_card_is_read_in_no_time():
    assert read_card("---\n" + "a: [" * (CARD_CAP // 4)) == Card()
