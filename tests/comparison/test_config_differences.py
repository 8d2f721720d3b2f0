"""Config and tokenizer differences: context, never evidence, and never a reason to fail."""

import json
import math
import threading

import pytest

from kinprint.comparison.config_differences import compare_configs
from kinprint.model.model import open_models
from kinprint.model.tokenizers import compare_tokenizers, compare_vocabularies
from kinprint.model.tokens import vocabulary
from support.hub import HubServer

BPE = {"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}}


def by_key(a, b):
    return {item.key: (item.a, item.b, item.a_present, item.b_present) for item in compare_configs(a, b).differences}


# ---- config ----


def test_nested_keys_absent_and_null():
    a = {"same": 1, "rope": {"type": "linear", "factor": 2.0}, "none": None, "gone": 1, "list": [1, 2]}
    b = {"same": 1, "rope": {"type": "linear", "factor": 4.0}, "none": 0, "new": None, "list": [2, 1]}
    assert by_key(a, b) == {
        "rope.factor": ("2.0", "4.0", True, True),
        "none": ("null", "0", True, True),
        "gone": ("1", None, True, False),
        "new": (None, "null", False, True),
        "list": ("[1,2]", "[2,1]", True, True),
    }
    assert compare_configs(a, b).equal_keys == 2


def test_absent_is_not_null():
    assert by_key({"x": None, "y": 1}, {"y": 1}) == {"x": ("null", None, True, False)}
    assert by_key({"x": None}, {"x": None}) == {}


def test_numbers_that_json_has_not():
    a = {"x": math.nan, "y": [math.inf, None], "z": math.nan, "big": 10**30, "same": math.nan}
    b = {"x": None, "y": [None, None], "z": -math.inf, "big": 10**30 + 1, "same": math.nan}
    assert by_key(a, b) == {
        "x": ("NaN", "null", True, True),
        "y": ("[Infinity,null]", "[null,null]", True, True),
        "z": ("NaN", "-Infinity", True, True),
        "big": (str(10**30), str(10**30 + 1), True, True),
    }


def test_long_values_are_compared_in_full_and_shown_in_part():
    (item,) = compare_configs({"k": "x" * 500 + "a"}, {"k": "x" * 500 + "b"}).differences
    assert len(item.a) == len(item.b) == 200
    long = "k" * 300
    found = compare_configs({long + "1": 1, long + "2": 2}, {long + "1": 1, long + "2": 3})
    assert (found.equal_keys, len(found.differences)) == (1, 1)
    assert len(found.differences[0].key) == 200


def test_objects_nested_beyond_reason():
    deep = json.loads('{"a":' * 600 + "1" + "}" * 600)
    assert compare_configs(deep, deep).status == "ok"
    assert len(compare_configs(deep, {"a": 1}).differences) == 2


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [({}, {"x": 1}, "model A has"), ({"x": 1}, {}, "model B has"), ({}, {}, "both models have")],
)
def test_missing_configs(a, b, reason):
    found = compare_configs(a, b)
    assert (found.status, found.reason) == ("not_comparable", f"{reason} no config.json")


# ---- vocabularies ----


def test_bpe_in_both_spellings_of_merges():
    other = {"model": {"type": "BPE", "vocab": {"a": 0, "b": 2, "c": 1}, "merges": [["a", "b"], ["b", "c"]]}}
    found = compare_vocabularies(BPE, other)
    assert (found.status, found.kind_a, found.kind_b) == ("ok", "BPE", "BPE")
    assert (found.tokens_a, found.tokens_b, found.tokens_common, found.same_id) == (3, 3, 2, 1)
    assert found.jaccard == pytest.approx(2 / 4)
    assert (found.merges_a, found.merges_b, found.merges_common) == (1, 2, 1)


def test_wordpiece_has_no_merges():
    wordpiece = {"model": {"type": "WordPiece", "vocab": {"[PAD]": 0, "a": 1}}}
    found = compare_vocabularies(BPE, wordpiece)
    assert (found.kind_b, found.tokens_common, found.same_id) == ("WordPiece", 1, 0)
    assert (found.merges_a, found.merges_b, found.merges_common) == (None, None, None)


def test_unigram_lists_are_numbered():
    unigram = {"model": {"type": "Unigram", "vocab": [["<unk>", 0.0], ["b", -1.5], ["a", -2.0]]}}
    assert vocabulary(unigram) == {"<unk>": 0, "b": 1, "a": 2}
    assert compare_vocabularies(BPE, unigram).same_id == 1


def test_added_tokens_join_the_vocabulary():
    added = {**BPE, "added_tokens": [{"id": 3, "content": "<s>"}, {"id": "4", "content": "x"}, "junk", {"id": 5}]}
    assert vocabulary(added) == {"a": 0, "b": 1, "ab": 2, "<s>": 3}


@pytest.mark.parametrize(
    "junk",
    [
        {},
        {"model": None},
        {"model": []},
        {"model": {"vocab": 3}},
        {"model": {"vocab": {"a": "0"}}},
        {"model": {"vocab": [1, [], [2]]}},
        {"added_tokens": {}},
    ],
)
def test_a_tokenizer_without_a_vocabulary(junk):
    found = compare_vocabularies(BPE, junk)
    assert (found.status, found.reason) == ("not_comparable", "the tokenizer of model B lists no vocabulary")
    assert compare_vocabularies(junk, BPE).reason == "the tokenizer of model A lists no vocabulary"


def test_the_same_tokenizer():
    found = compare_vocabularies(BPE, json.loads(json.dumps(BPE)))
    assert (found.identical_files, found.jaccard, found.same_id) == (True, 1.0, 3)


def test_tokenizers_nested_beyond_reason():
    deep = {**BPE, "normalizer": json.loads("[" * 900 + "]" * 900)}
    again = {**BPE, "normalizer": json.loads("[" * 900 + "]" * 900)}
    assert compare_vocabularies(deep, again).jaccard == 1.0


# ---- files ----


def open_pair(session, *folders):
    return open_models([str(folder) for folder in folders], session)


def test_a_missing_tokenizer_is_a_reason(llama, session_for, tmp_path):
    a, b = llama("a", 1), llama("b", 2)
    models = open_pair(session_for(), a, b)
    assert compare_tokenizers(*models, share=1.0)[0].reason == "model A has no tokenizer.json"
    (tmp_path / "a" / "tokenizer.json").write_text(json.dumps(BPE))
    models = open_pair(session_for(), a, b)
    assert compare_tokenizers(*models, share=1.0)[0].reason == "model B has no tokenizer.json"


@pytest.mark.parametrize("content", ["{", "[1]", "", "\ud800".encode("utf-8", "surrogatepass")])
def test_a_broken_tokenizer_is_a_reason(llama, session_for, tmp_path, content):
    a, b = llama("a", 1), llama("b", 2)
    (tmp_path / "a" / "tokenizer.json").write_text(json.dumps(BPE))
    (tmp_path / "b" / "tokenizer.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    found = compare_tokenizers(*open_pair(session_for(), a, b), share=1.0)[0]
    assert found.status == "not_comparable"
    assert "tokenizer.json" in found.reason


def test_a_tokenizer_larger_than_its_kind_is_a_reason(llama, run, tmp_path, monkeypatch):
    a, b = llama("a", 1), llama("b", 2)
    for name in "ab":
        with (tmp_path / name / "tokenizer.json").open("wb") as file:
            file.truncate(1 << 30)
    report = run(a, b, roles=("input_norm",), metrics=("l2",))
    assert report.status == "ok"
    assert report.tokenizer.status == "not_comparable"
    assert "tokenizer.json" in report.tokenizer.reason


def test_tokenizers_beyond_their_share_of_the_budget_are_not_read(llama, session_for, tmp_path):
    a, b = llama("a", 1), llama("b", 2)
    for name in "ab":
        (tmp_path / name / "tokenizer.json").write_text(json.dumps(BPE) + " " * 100_000)
    session = session_for(budget_bytes=500_000)
    models = open_pair(session, a, b)
    before = session.traffic.bytes_read
    found = compare_tokenizers(*models, share=1 / 3)[0]
    assert found.status == "not_comparable"
    assert "more than 33% of the budget left" in found.reason
    assert session.traffic.bytes_read == before
    assert compare_tokenizers(*models, share=1.0)[0].jaccard == 1.0


def test_equal_tags_on_the_hub_save_the_reading(llama, session_for, tmp_path):
    a, b = llama("a", 1), llama("b", 2)
    for name in "ab":
        (tmp_path / name / "tokenizer.json").write_text(json.dumps(BPE))
    with HubServer() as hub:
        hub.add_repo("o/a", a)
        hub.add_repo("o/b", b)
        models = open_pair(session_for(hub), "o/a", "o/b")
        hub.reset()
        found = compare_tokenizers(*models, share=1.0)[0]
        sent = sum(item.body_bytes for item in hub.requests)
    assert found.identical_files
    assert found.reason == "the files have the same content tag and were not read"
    assert sent <= 2  # a byte each, asked for to learn the tags


def test_the_two_tokenizers_are_looked_up_and_read_together(llama, session_for, tmp_path):
    a, b = llama("a", 1), llama("b", 2)
    (tmp_path / "a" / "tokenizer.json").write_text(json.dumps(BPE))
    (tmp_path / "b" / "tokenizer.json").write_text(json.dumps({**BPE, "version": "2"}))
    with HubServer() as hub:
        hub.add_repo("o/a", a)
        hub.add_repo("o/b", b)
        session = session_for(hub)
        models = open_pair(session, "o/a", "o/b")
        together = threading.Barrier(2, timeout=10)  # broken, and with it the test, if one waits for the other
        real = session._client.send

        def meet(*args, **more):
            together.wait()
            return real(*args, **more)

        session._client.send = meet
        assert compare_tokenizers(*models, share=1.0)[0].jaccard == 1.0


def test_tags_of_a_plain_web_server_say_nothing_about_another_file(llama, session_for, tmp_path, web):
    """There a tag is often made of size and time."""
    for name, token in (("a", "x"), ("b", "y")):
        llama(name, 1)
        (tmp_path / name / "tokenizer.json").write_text(json.dumps({"model": {"type": "BPE", "vocab": {token: 0}}}))
    web.root = tmp_path
    serve = web.reply

    def same_tag(request, status, body, **headers):
        serve(request, status, body, **{**headers, "ETag": '"same"'})

    web.reply = same_tag
    found = compare_tokenizers(*open_pair(session_for(), f"{web.url}/a", f"{web.url}/b"), share=1.0)[0]
    assert (found.identical_files, found.tokens_common) == (False, 0)
