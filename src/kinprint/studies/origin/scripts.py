"""Tokens as text: the byte-level spelling undone, and the script a token is written in."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

PARTIAL = "part of a character"
SCRIPTS = ("Korean", "Chinese", "Latin", "digits", "other", PARTIAL)


@cache
def byte_spelling() -> dict[str, int]:
    """Return the character that byte-level BPE writes for each byte, with the byte.

    Printable characters of Latin-1 stand for themselves; the other bytes get the characters from U+0100 on, in order (Radford
    et al. 2019, "Language models are unsupervised multitask learners", and its released encoder).
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [value for value in range(256) if value not in printable]
    return {chr(value): value for value in printable} | {
        chr(0x100 + place): value for place, value in enumerate(others)
    }


def decode(token: str) -> str | None:
    """Return the text of a token of a byte-level tokenizer; None if its bytes are no whole characters.

    A token with characters that stand for no byte (a special token) is text already.
    """
    spelling = byte_spelling()
    try:
        raw = bytes([spelling[character] for character in token])
    except KeyError:
        return token
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def plain(token: str) -> str:
    """Return the text of a token of a tokenizer that writes spaces as a low block (SentencePiece)."""
    return token.replace("\u2581", " ")


def is_byte_level(vocabulary: Iterable[str]) -> bool:
    """Whether the byte 0x20 has its byte-level spelling among the tokens."""
    return "\u0120" in vocabulary


def script(text: str | None) -> str:
    """Return the script of a token's text, one of `SCRIPTS`."""
    if text is None:
        return PARTIAL
    letters = text.strip()
    if any(_is_hangul(character) for character in letters):
        return "Korean"
    if any("\u4e00" <= character <= "\u9fff" for character in letters):
        return "Chinese"
    if letters and all(character.isdigit() for character in letters):
        return "digits"
    if letters and all(character.isalpha() and ord(character) < 0x250 for character in letters):
        return "Latin"
    return "other"


def _is_hangul(character: str) -> bool:
    return "\uac00" <= character <= "\ud7a3" or "\u1100" <= character <= "\u11ff" or "\u3130" <= character <= "\u318f"


def undecoded_class(token: str) -> str:
    """Return the class that the publication gave a token without undoing the byte-level spelling.

    Hangul and Han are then strings of Latin-1 letters and land in "other": no token is ever Korean.
    """
    clean = token.replace("\u0120", "").replace("\u2581", "")
    if not clean:
        return "empty"
    if any(_is_hangul(character) for character in clean):
        return "korean"
    if any("\u4e00" <= character <= "\u9fff" for character in clean):
        return "chinese"
    if not clean.isascii():
        return "other"
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
