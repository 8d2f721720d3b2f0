"""Read two tokenizers, and find what they have in common: tokens, ids and merges, and the scripts tokens are written in."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from kinprint.errors import KinprintError
from kinprint.model.tokens import TOKENIZER_FILE, vocabulary
from kinprint.sources.session import Session
from kinprint.studies.opened import StudyRun
from kinprint.studies.outcome import Missing

Ints = NDArray[np.int64]
HIGH_ID = 150_000  # ids from here on were taken for additions, about the size of GLM's vocabulary
FIRST = 1_000
MAX_ASCII_ID = 200_000  # the published histogram of offsets looks no further
PARTIAL = "part of a character"
SCRIPTS = ("Korean", "Chinese", "Latin", "digits", "other", PARTIAL)


@dataclass(frozen=True)
class Tokenizer:
    """The model's table of a tokenizer.json (tokens added outside it are only counted), and its merges in order."""

    kind: str
    vocab: dict[str, int]
    merges: tuple[str, ...]
    added: int

    @cached_property
    def byte_level(self) -> bool:
        """Whether tokens are spelt in bytes: the byte 0x20 then has its byte-level spelling among them."""
        return "\u0120" in self.vocab

    def text(self, token: str) -> str | None:
        """Return a token's text, with spaces that SentencePiece writes as a low block; None if it is part of a character."""
        return decode(token) if self.byte_level else token.replace("\u2581", " ")

    def fingerprint(self, count: int | None = None) -> str:
        """Return SHA-256 of the merges, one a line; of the first `count` if given."""
        return hashlib.sha256("".join(f"{line}\n" for line in self.merges[:count]).encode()).hexdigest()


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
    model = run.model(name)
    try:
        content = model.checkpoint.read_json(TOKENIZER_FILE)
    except KinprintError as error:
        raise Missing("the tokenizer of {model} cannot be read: {why}", model=name, why=error.message) from error
    if content is None:
        raise Missing("{model} has no {file}", model=name, file=TOKENIZER_FILE)
    return parse(name, content)


def parse(name: str, content: Mapping[str, object]) -> Tokenizer:
    """Return what the study looks at in a parsed tokenizer.json."""
    model = content.get("model")
    table = model if isinstance(model, dict) else {}
    vocab = vocabulary({"model": table})
    if not vocab:
        raise Missing("the tokenizer of {model} lists no vocabulary", model=name)
    listed, added = table.get("merges"), content.get("added_tokens")
    lines, entries = (found if isinstance(found, list) else [] for found in (listed, added))
    merges = tuple(" ".join(map(str, line)) if isinstance(line, list) else str(line) for line in lines)
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
    def same_id(self) -> int:
        """Tokens with one id in both."""
        return int((self.ids_a == self.ids_b).sum())

    def first_at(self, shift: int) -> int:
        """Return how many of B's first 1,000 ids have their token at `shift` (A minus B) in A."""
        return int(((self.ids_b < FIRST) & (self.ids_a - self.ids_b == shift)).sum())

    def longest_run(self, offset: int) -> tuple[int, int | None]:
        """Return length and first id in A of the longest stretch of ids that all lie at `offset` (B minus A)."""
        at = np.sort(self.ids_a[self.ids_b - self.ids_a == offset])
        if not at.size:
            return 0, None
        pieces = np.split(at, np.flatnonzero(np.diff(at) != 1) + 1)
        longest = max(pieces, key=len)
        return len(longest), int(longest[0])

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


def ranked(counts: Counter[int]) -> list[tuple[int, int]]:
    """Return values and their counts, the most frequent first, the least among equals."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def compare(a: Tokenizer, b: Tokenizer) -> Comparison:
    """Put two tokenizers side by side."""
    shared = sorted((number, b.vocab[token], token) for token, number in a.vocab.items() if token in b.vocab)
    ids = np.array([(one, two) for one, two, _ in shared], dtype=np.int64).reshape(-1, 2)
    return Comparison(a, b, tuple(token for _, _, token in shared), ids[:, 0], ids[:, 1])


# -- the text of a token -----------------------------------------------------------------------------------------------


@cache
def byte_spelling() -> dict[str, int]:
    """Return the character that byte-level BPE writes for each byte, with the byte.

    Printable characters of Latin-1 stand for themselves; the other bytes get the characters from U+0100 on, in order (Radford
    et al. 2019, "Language models are unsupervised multitask learners", and its released encoder).
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [value for value in range(256) if value not in printable]
    return {chr(value): value for value in printable} | {chr(0x100 + k): value for k, value in enumerate(others)}


def decode(token: str) -> str | None:
    """Return the text of a byte-level token (a special token is text already); None if its bytes are no whole characters."""
    spelling = byte_spelling()
    try:
        return bytes([spelling[character] for character in token]).decode()
    except KeyError:
        return token
    except UnicodeDecodeError:
        return None


def _east_asian(text: str) -> str | None:
    """Return Korean if a character is Hangul, else Chinese if one is Han, else None."""
    if any("\uac00" <= c <= "\ud7a3" or "\u1100" <= c <= "\u11ff" or "\u3130" <= c <= "\u318f" for c in text):
        return "Korean"
    return "Chinese" if any("\u4e00" <= c <= "\u9fff" for c in text) else None


def script(text: str | None) -> str:
    """Return the script of a token's text, one of `SCRIPTS`."""
    if text is None:
        return PARTIAL
    letters = text.strip()
    if found := _east_asian(letters):
        return found
    if letters and all(character.isdigit() for character in letters):
        return "digits"
    latin = letters and all(character.isalpha() and ord(character) < 0x250 for character in letters)
    return "Latin" if latin else "other"


def undecoded_class(token: str) -> str:
    """Return the class that the publication gave a token without undoing the byte-level spelling.

    Hangul and Han are then strings of Latin-1 letters and land in "other": no token is ever Korean.
    """
    clean = token.replace("\u0120", "").replace("\u2581", "")
    if not clean:
        return "empty"
    if not clean.isascii():
        return (_east_asian(clean) or "other").lower()
    if clean.isalpha():
        return "ascii_alpha"
    return "ascii_digit" if clean.isdigit() else "ascii_other"


def is_english(text: str | None) -> bool:
    """Whether at least 80 % of two or more characters are printable ASCII, the published notion of an English token."""
    if text is None or len(text) < 2:
        return False
    return sum(" " <= character <= "~" for character in text) >= 0.8 * len(text)


def is_word(text: str | None) -> bool:
    """Whether a token is an ASCII word of three or more letters, with or without spaces around it."""
    word = "" if text is None else text.strip()
    return len(word) >= 3 and word.isascii() and word.isalpha()
