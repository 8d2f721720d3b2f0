"""Find what differs between a page in two languages, so that one file can show either.

Both are made from the same templates and the same report: they differ in texts and in a few attributes, and in nothing else. The
page's scripts exchange these, and parse no markup.
"""

import re
from html import unescape
from typing import Any

_TAG = re.compile(r"<[^>]*>")
_ATTRIBUTE = re.compile(r'([\w-]+)="([^"]*)"')


def differences(page: str, other: str) -> dict[str, list[list[Any]]] | None:
    """Return places and contents of the other page's texts and attributes; None if its elements are not the same."""
    (tags, texts), (other_tags, other_texts) = _split(page), _split(other)
    if [_name(tag) for tag in tags] != [_name(tag) for tag in other_tags] or len(texts) != len(other_texts):
        return None
    attributes = [
        [place, *change]
        for place, (one, two) in enumerate(zip(tags, other_tags, strict=True))
        if one != two
        for change in _changes(one, two)
    ]
    pairs = enumerate(zip(texts, other_texts, strict=True))
    return {"texts": [[place, unescape(two)] for place, (one, two) in pairs if one != two], "attributes": attributes}


def _split(page: str) -> tuple[list[str], list[str]]:
    """Return the start tags of a page, and its texts that are not blank."""
    tags = [tag for tag in _TAG.findall(page) if not tag.startswith(("</", "<!"))]
    return tags, [text for text in _TAG.split(page) if text.strip()]


def _name(tag: str) -> str:
    return tag.split(None, 1)[0].rstrip("/>")


def _changes(tag: str, other: str) -> list[list[str | None]]:
    one, two = (dict(_ATTRIBUTE.findall(each)) for each in (tag, other))
    names = dict.fromkeys((*one, *two))
    return [[name, unescape(two[name]) if name in two else None] for name in names if one.get(name) != two.get(name)]
