"""Read the front matter of a model card: what it declares of origin and licence.

No YAML reader: a card is hostile input, and two spellings of a few keys are all that is wanted.
"""

import itertools
import re
from collections.abc import Iterable, Sequence

from kinprint._util.records import dataclass
from kinprint.errors import KinprintError, NotFound
from kinprint.formats.checkpoint import Checkpoint
from kinprint.text import Text

CARD = "README.md"
CARD_CAP = 1 << 20
NO_CARD = Text("there is no {file}", file=CARD)
SHOWN = 200
MOST = 64
_FRONT = re.compile(r"\A\ufeff?---[ \t]*\n(.*?)\n---[ \t]*(?:\n|\Z)", re.DOTALL)
_KEY = re.compile(r"""^(?P<quote>["']?)(?P<key>[A-Za-z_]+)(?P=quote)[ \t]*:(?:[ \t]+|$)(?P<value>.*)$""")
_NOTHING = frozenset({"", "null", "Null", "NULL", "~", "[]"})


@dataclass(frozen=True)
class Card:
    """Declarations of a card, each cut to a length that can be shown. ``unclear``: the card says more of its base than is read."""

    base_models: tuple[str, ...] = ()
    relation: str | None = None
    licence: str | None = None
    unclear: bool = False


def card_text(checkpoint: Checkpoint) -> tuple[str | None, Text | None]:
    """Return the text of a model's card, or why there is none."""
    if checkpoint.provenance.kind in ("file", "url-file"):
        return None, Text("a single file has no card")
    try:
        raw = checkpoint.session.read_small(checkpoint.folder, CARD, CARD_CAP)
    except NotFound:
        return None, NO_CARD
    except KinprintError as error:
        return None, Text("the card could not be read: {why}", why=error.reason)
    return (None, NO_CARD) if raw is None else (raw.decode("utf-8", "replace"), None)


def parse_card(text: str) -> Card:
    """Return what the front matter says; a card without one says nothing."""
    front = _FRONT.match(text.replace("\r\n", "\n"))
    if front is None:
        return Card()
    lines = [line for line in front[1].split("\n") if line.strip() and not line.lstrip().startswith("#")]
    bases = _values(lines, "base_model")
    licence = _first(lines, "license")
    # "other" and "unknown" point to another key, as the hub wants it
    named = _first(lines, "license_name") if licence in (None, "other", "unknown") else None
    unclear = bases is None or len(bases) > MOST
    return Card(tuple(bases or ())[:MOST], _first(lines, "base_model_relation"), named or licence, unclear)


def _first(lines: Sequence[str], key: str) -> str | None:
    return next(iter(_values(lines, key) or ()), None)


def _values(lines: Sequence[str], key: str) -> list[str] | None:
    """Return the entries of an outermost key, one or a list in either of YAML's spellings; None if it is spelt in another way."""
    for number, line in enumerate(lines):
        found = _KEY.match(line)
        if found is None or found["key"] != key:
            continue
        value = _uncommented(found["value"])
        below = list(itertools.takewhile(lambda text: text[:1] in " \t-]", lines[number + 1 :]))
        if not value and below and not below[0].lstrip().startswith("-"):
            value, below = _uncommented(below[0]), below[1:]  # a value on a line of its own
        if value.startswith("["):
            joined = " ".join([value, *map(_uncommented, below)])
            inner, closed, _ = joined[1:].partition("]")
            return _plain_all(inner.split(",")) if closed else None
        if value in _NOTHING:
            return _plain_all(text.strip()[1:] for text in below if text.strip().startswith("-"))
        return _plain_all([value])
    return []


def _uncommented(text: str) -> str:
    return text.strip() if text.strip()[:1] in ("'", '"') and " #" not in text else text.split(" #")[0].strip()


def _plain_all(texts: Iterable[str]) -> list[str] | None:
    names = []
    for text in texts:
        name = _uncommented(text)
        if name in _NOTHING:
            continue
        quoted = len(name) > 1 and name[0] == name[-1] and name[0] in "\"'"
        name = name[1:-1].strip() if quoted else name
        if not quoted and name[0] in "&*!|>{%@`":
            return None
        names += [name[:SHOWN]] if name else []
    return names
