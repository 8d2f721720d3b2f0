"""Read a vocabulary, and sample tokens of it for fingerprint methods.

Tokens are chosen by a hash of their text, so that two models choose the same ones without meeting. The tokens whose hashes
are least are a uniform sample of a vocabulary, and the least of two vocabularies overlap as the vocabularies do (the bottom-k
sketch of Cohen & Kaplan 2007). A fingerprint made years ago can so be held against a new one.
"""

import hashlib
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from kinprint._util.numeric import median
from kinprint._util.records import dataclass

TOKENIZER_FILE = "tokenizer.json"
Keys = NDArray[np.uint64]


def vocabulary(tokenizer: Mapping[str, object]) -> dict[str, int]:
    """Return token to id: the model's table (BPE and WordPiece map, Unigram lists) and the added tokens."""
    model = tokenizer.get("model")
    table = model.get("vocab") if isinstance(model, dict) else None
    found: dict[str, int] = {}
    if isinstance(table, dict):
        found = {token: number for token, number in table.items() if isinstance(number, int)}
    elif isinstance(table, list):
        entries = [entry[0] if isinstance(entry, list) and entry else None for entry in table]
        found = {token: number for number, token in enumerate(entries) if isinstance(token, str)}
    added = tokenizer.get("added_tokens")
    for entry in added if isinstance(added, list) else []:
        if isinstance(entry, dict) and isinstance(entry.get("content"), str) and isinstance(entry.get("id"), int):
            found[entry["content"]] = entry["id"]
    return found


@dataclass(frozen=True)
class TokenSample:
    """Rows of the embedding, and for each a key that means the same token in any model; in ascending order of keys."""

    ids: NDArray[np.intp]
    keys: Keys


def token_key(text: str) -> int:
    """Return 63 bits of a hash of the token's text; the 64th marks keys that are ids (see `sample_ids`)."""
    raw = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8, person=b"kinprint").digest()
    return int.from_bytes(raw, "little") >> 1


def sample_tokens(
    vocabulary: Mapping[str, int], rows: int, count: int, *, shared: Keys | None = None, rare: bool = False
) -> TokenSample:
    """Choose up to `count` tokens that have a row in the embedding, and if given one of the `shared` keys."""
    # `rare`: only from the later half of the vocabulary. Merges are learnt most frequent first, so late ids are rare tokens, which
    # training moves least (the choice of HuRef).
    usable = [(token_key(text), number) for text, number in vocabulary.items() if 0 <= number < rows]
    keys = np.array([key for key, _ in usable], dtype=np.uint64)
    ids = np.array([number for _, number in usable], dtype=np.intp)
    kept = np.ones(keys.size, dtype=bool) if shared is None else np.isin(keys, shared)
    return _least(keys[kept], ids[kept], count, rare=rare)


def sample_ids(rows: int, count: int, *, rare: bool = False) -> TokenSample:
    """Choose tokens by number, for a model without a tokenizer: right only against one whose tokens have the same numbers."""
    ids = np.arange(rows, dtype=np.intp)
    mixed = (ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) | np.uint64(1 << 63)
    return _least(mixed, ids, count, rare=rare)


def _least(keys: Keys, ids: NDArray[np.intp], count: int, *, rare: bool) -> TokenSample:
    if rare and ids.size:
        late = ids >= median(ids)
        keys, ids = keys[late], ids[late]
    order = np.argsort(keys, kind="stable")[:count]
    return TokenSample(ids[order], keys[order])


def common_rows(a: Keys, b: Keys) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the positions, in each of two samples, of the tokens that both hold."""
    _, first, second = np.intersect1d(a, b, return_indices=True)
    return first, second
