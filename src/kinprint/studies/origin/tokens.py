"""Two tokenizers: what they have in common, at which ids, in which merges, and in which scripts."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from kinprint.errors import KinprintError
from kinprint.model.tokens import TOKENIZER_FILE, vocabulary
from kinprint.sources.session import Session
from kinprint.studies.opened import StudyRun
from kinprint.studies.origin.scripts import decode, is_byte_level, plain, script, undecoded_class
from kinprint.studies.outcome import Missing
from kinprint.text import Text

Ints = NDArray[np.int64]
HIGH_ID = 150_000
"""Ids from here on were taken for additions, about the size of GLM's vocabulary."""

FIRST = 1_000
CLOSE = 100
MAX_ASCII_ID = 200_000  # the published histogram of offsets looks no further


@dataclass(frozen=True)
class Tokenizer:
    """The model's table of a tokenizer.json (tokens added outside it are only counted), and its merges in order."""

    kind: str
    vocab: dict[str, int]
    merges: tuple[str, ...]
    added: int

    @cached_property
    def byte_level(self) -> bool:
        """Whether tokens are spelt in bytes."""
        return is_byte_level(self.vocab)

    def text(self, token: str) -> str | None:
        """Return a token's text; None if it is part of a character."""
        return decode(token) if self.byte_level else plain(token)

    def fingerprint(self, count: int | None = None) -> str:
        """Return SHA-256 of the merges, one a line; of the first `count` if given."""
        lines = self.merges if count is None else self.merges[:count]
        return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


_KEPT: WeakKeyDictionary[Session, dict[tuple[str, ...], Comparison]] = WeakKeyDictionary()


def compared(run: StudyRun, a: str, b: str) -> Comparison:
    """Return both models' tokenizers side by side; the files, of tens of megabytes, are read once in a session."""
    kept = _KEPT.setdefault(run.session, {})
    key = (a, run.model(a).label, b, run.model(b).label)
    if key not in kept:
        kept[key] = compare(read_tokenizer(run, a), read_tokenizer(run, b))
    return kept[key]


def read_tokenizer(run: StudyRun, name: str) -> Tokenizer:
    """Read a model's tokenizer.json; `Missing` if it has none, or one without a vocabulary."""
    try:
        content = run.model(name).checkpoint.read_json(TOKENIZER_FILE)
    except Missing:
        raise
    except KinprintError as error:
        raise Missing(Text("the tokenizer of {model} cannot be read: {why}", model=name, why=error.message)) from error
    if content is None:
        raise Missing(Text("{model} has no {file}", model=name, file=TOKENIZER_FILE))
    return parse(name, content)


def parse(name: str, content: Mapping[str, object]) -> Tokenizer:
    """Return what the study looks at in a parsed tokenizer.json."""
    model = content.get("model")
    table = model if isinstance(model, dict) else {}
    vocab = vocabulary({"model": table})
    if not vocab:
        raise Missing(Text("the tokenizer of {model} lists no vocabulary", model=name))
    listed = table.get("merges")
    lines = listed if isinstance(listed, list) else []
    merges = tuple(" ".join(map(str, line)) if isinstance(line, list) else str(line) for line in lines)
    added = content.get("added_tokens")
    entries = added if isinstance(added, list) else []
    outside = [entry for entry in entries if isinstance(entry, dict) and entry.get("content") not in vocab]
    return Tokenizer(str(table.get("type", "?"))[:40], vocab, merges, len(outside))


@dataclass(frozen=True)
class Comparison:
    """Two tokenizers side by side: the common tokens, in the order of A's ids, and their ids in both."""

    a: Tokenizer
    b: Tokenizer
    tokens: tuple[str, ...]
    ids_a: Ints
    ids_b: Ints

    @property
    def common(self) -> int:
        """Number of tokens that both have."""
        return len(self.tokens)

    @property
    def union(self) -> int:
        """Number of different tokens."""
        return len(self.a.vocab) + len(self.b.vocab) - self.common

    @property
    def jaccard(self) -> float:
        """Tokens that both have, over tokens that either has."""
        return self.common / self.union

    @property
    def overlap(self) -> float:
        """Share of the smaller vocabulary that the other has too."""
        return self.common / min(len(self.a.vocab), len(self.b.vocab))

    @cached_property
    def shifts(self) -> Counter[int]:
        """Id in A minus id in B, over all common tokens."""
        return Counter((self.ids_a - self.ids_b).tolist())

    @cached_property
    def ascii_offsets(self) -> Counter[int]:
        """Id in B minus id in A, over common tokens that are spelt in ASCII."""
        chosen = np.array([token.isascii() for token in self.tokens], dtype=bool) & (self.ids_a < MAX_ASCII_ID)
        return Counter((self.ids_b - self.ids_a)[chosen].tolist())

    @property
    def dominant(self) -> tuple[int, int]:
        """The most frequent shift and how many tokens have it."""
        return most_common(self.shifts)

    @property
    def same_id(self) -> int:
        """Tokens with one id in both."""
        return int((self.ids_a == self.ids_b).sum())

    @property
    def close_id(self) -> int:
        """Tokens whose ids differ by at most 100."""
        return int((np.abs(self.ids_a - self.ids_b) <= CLOSE).sum())

    @property
    def first_consistent(self) -> int:
        """Among B's first 1,000 ids, tokens at the dominant shift in A."""
        return int(((self.ids_b < FIRST) & (self.ids_a - self.ids_b == self.dominant[0])).sum())

    @property
    def first_same(self) -> int:
        """Ids below 1,000 with the same token."""
        return int(((self.ids_b < FIRST) & (self.ids_a == self.ids_b)).sum())

    def longest_run(self, offset: int) -> tuple[int, int | None]:
        """Return length and first id in A of the longest stretch of ids that all lie at `offset` (B minus A)."""
        at = np.sort(self.ids_a[self.ids_b - self.ids_a == offset])
        if not at.size:
            return 0, None
        pieces = np.split(at, np.flatnonzero(np.diff(at) != 1) + 1)
        longest = max(pieces, key=len)
        return len(longest), int(longest[0])

    @cached_property
    def merges_common(self) -> int:
        """Merges that both list."""
        return len(set(self.a.merges) & set(self.b.merges))

    @property
    def merges_share(self) -> float | None:
        """Share of B's merges that A lists too."""
        return self.merges_common / len(self.b.merges) if self.b.merges else None

    @property
    def first_merges_equal(self) -> int:
        """Places among the first 1,000 merges with the same merge."""
        return sum(x == y for x, y in zip(self.a.merges[:FIRST], self.b.merges[:FIRST], strict=False))

    @cached_property
    def only_a(self) -> tuple[str, ...]:
        """Tokens that B does not have."""
        return tuple(token for token in self.a.vocab if token not in self.b.vocab)

    @property
    def high_from(self) -> int:
        """The id from which tokens of A count as high: the published one, or B's number of tokens if A has fewer."""
        return HIGH_ID if len(self.a.vocab) > HIGH_ID else len(self.b.vocab)

    @cached_property
    def high(self) -> tuple[str, ...]:
        """Tokens of A with a high id."""
        return tuple(token for token, number in self.a.vocab.items() if number >= self.high_from)

    def scripts(self, tokens: Sequence[str]) -> Counter[str]:
        """Return the scripts of tokens of A."""
        return Counter(script(self.a.text(token)) for token in tokens)


def classes(tokens: Sequence[str]) -> Counter[str]:
    """Return the published classes, which do not undo the byte-level spelling."""
    return Counter(undecoded_class(token) for token in tokens)


def most_common(counts: Counter[int]) -> tuple[int, int]:
    """Return the most frequent value, the least among equals, and its count; zeros if there is none."""
    if not counts:
        return 0, 0
    value = min(counts, key=lambda key: (-counts[key], key))
    return value, counts[value]


def compare(a: Tokenizer, b: Tokenizer) -> Comparison:
    """Put two tokenizers side by side."""
    shared = sorted((number, b.vocab[token], token) for token, number in a.vocab.items() if token in b.vocab)
    ids = np.array([(one, two) for one, two, _ in shared], dtype=np.int64).reshape(-1, 2)
    return Comparison(a, b, tuple(token for _, _, token in shared), ids[:, 0], ids[:, 1])
