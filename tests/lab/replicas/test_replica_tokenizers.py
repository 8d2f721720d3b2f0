"""The replicas' tokenizers: every published count of the overlap of Solar's and GLM's vocabularies, exactly."""

from collections import Counter

import numpy as np
import pytest

from kinprint.lab.replicas import matrices, tokenizers
from kinprint.lab.replicas.published_figures import published
from kinprint.model.tokenizers import compare_vocabularies

ORIGIN = published()["origin"]


@pytest.fixture(scope="module")
def both():
    return tokenizers.make_tokenizers(0)


@pytest.fixture(scope="module")
def common(both):
    """Common tokens with their ids in both models."""
    solar, glm = both.solar["model"]["vocab"], both.glm["model"]["vocab"]
    tokens = [token for token in glm if token in solar]
    return tokens, np.array([solar[token] for token in tokens]), np.array([glm[token] for token in tokens])


def test_the_byte_alphabet_is_the_usual_one():
    alphabet = tokenizers.byte_alphabet()
    assert len(set(alphabet)) == 256
    assert alphabet[:8] == ("!", '"', "#", "$", "%", "&", "'", "(")
    assert alphabet[188:] == tuple(chr(256 + number) for number in range(68))


def test_the_first_tokens_are_the_same_in_either_order():
    english, words = tokenizers.first_tokens(0)
    assert (len(english), len(words)) == (200, 300)
    both_ids = np.concatenate([english, words])
    assert sorted(both_ids[:, 0].tolist()) == list(range(4352, 4852))
    assert both_ids[:, 1].tolist() == list(range(256, 756))
    assert both_ids.max() < matrices.EMBEDDING_ROWS


@pytest.mark.slow
def test_overlap_and_merges_are_exact(both):
    deep, sets = ORIGIN["tokenizer_deep"], ORIGIN["tokenizer_compare"]["token_set_overlap"]
    found = compare_vocabularies(both.solar, both.glm)
    assert (found.kind_a, found.kind_b) == ("BPE", "BPE")
    assert (found.tokens_a, found.tokens_b) == (deep["vocab_size_A"], deep["vocab_size_B"]) == (196_608, 151_329)
    assert found.tokens_common == deep["common_tokens"] == sets["intersection"]
    assert found.jaccard == pytest.approx(sets["jaccard"], abs=1e-9)
    assert found.same_id == ORIGIN["tokenizer_compare"]["same_id_exact_matches"]["matches"] == 1
    assert (found.merges_a, found.merges_b) == (deep["merges_len_A"], deep["merges_len_B"])
    assert found.merges_common == deep["merges_common"]
    first = zip(both.solar["model"]["merges"][:1000], both.glm["model"]["merges"][:1000], strict=True)
    assert sum(one == two for one, two in first) == ORIGIN["tokenizer_expansion"]["first_1000_merges_exact_match"] == 0


@pytest.mark.slow
def test_offsets_are_exact(common):
    tokens, a, b = common
    shifts = Counter((a - b).tolist())
    deep = ORIGIN["tokenizer_deep"]
    (top, count), (_, next_count) = shifts.most_common(2)
    assert (top, count) == (deep["dominant_id_shift"], deep["tokens_at_dominant_shift"]) == (4096, 262)
    assert next_count < 30
    assert np.count_nonzero((a - b == top) & (b < 1000)) == deep["first_1000_consistent_mapping"]
    assert np.count_nonzero(np.abs(a - b) <= 100) == ORIGIN["tokenizer_expansion"]["b_tokens_same_or_close_id"]
    assert np.count_nonzero((a == b) & (b < 1000)) == ORIGIN["vocab_mapping_text"]["first1000_same"] == 0
    spelt = np.array([token.isascii() for token in tokens])
    told = ORIGIN["tokenizer_compare"]["ascii_offset_histogram_top10"][0]
    assert Counter((b - a)[spelt].tolist()).most_common(1) == [(told["offset"], told["count"])]
    run = np.flatnonzero(b < 256)
    assert sorted(a[run].tolist()) == list(range(4096, 4352))
    assert np.corrcoef(a, b)[0, 1] == pytest.approx(ORIGIN["vocab_mapping_text"]["id_corr_sample10000"], abs=0.02)


@pytest.mark.slow
def test_high_ids_hold_the_published_script_classes(both):
    told = ORIGIN["vocab_mapping_text"]
    high = [token for token, number in both.solar["model"]["vocab"].items() if number >= 150_000]
    words = sum(token.isascii() and token.isalpha() for token in high)
    digits = sum(token.isascii() and token.isdigit() for token in high)
    other = sum(not token.isascii() for token in high)
    types = told["high_id_types"]
    assert len(high) == told["high_id_ge_150000"]
    assert (words, other) == (types["ascii_alpha"], types["other"])
    assert len(high) - words - other - digits == types["ascii_other"]


@pytest.mark.nightly
def test_every_merge_joins_two_earlier_tokens(both):
    for document in (both.solar, both.glm):
        vocab, merges = document["model"]["vocab"], document["model"]["merges"]
        assert len(set(merges)) == len(merges)
        parts = [merge.split(" ") for merge in merges]
        assert all(max(vocab[left], vocab[right]) < vocab[left + right] for left, right in parts)
        made = {left + right for left, right in parts}
        special = {entry["content"] for entry in document["added_tokens"]}
        assert vocab.keys() == made | special | set(tokenizers.byte_alphabet())
        assert sorted(vocab.values()) == list(range(len(vocab)))


@pytest.mark.nightly
@pytest.mark.parametrize("seed", [1, 2])
def test_another_seed_gives_other_tokens_with_the_same_counts(both, seed):
    other = tokenizers.make_tokenizers(seed)
    assert other.glm["model"]["merges"] != both.glm["model"]["merges"]
    one, two = compare_vocabularies(both.solar, both.glm), compare_vocabularies(other.solar, other.glm)
    assert one == two
