"""Hold what models declare of their origin beside what their weights show: context, never evidence."""

import re
from collections.abc import Sequence

from kinprint._util.plain import printable
from kinprint.formats.format import ORIGIN
from kinprint.model.cards import CARD, MOST, NO_CARD, SHOWN, card_text, parse_card
from kinprint.model.model import Model
from kinprint.results import context
from kinprint.results.context import DECLARED, NOT_JUDGED, Declaration, DeclaredFinding
from kinprint.results.findings import DERIVED, IDENTICAL, NO_EVIDENCE, NOT_TESTABLE, SHARES_COMPONENTS, Verdict
from kinprint.text import Text

ADAPTER_CONFIG = "adapter_config.json"
_SHARED = (IDENTICAL, DERIVED, SHARES_COMPONENTS)
_NAME = 80  # characters of a name in a sentence


def read_declaration(model: Model) -> Declaration:
    """Return what the card says, and the config of an adapter. Context is not worth failing for: a reason is kept instead."""
    checkpoint = model.checkpoint
    card, reason = card_text(checkpoint)
    said = parse_card(card or "")
    bases, licence, relation = list(said.base_models), said.licence, said.relation
    where = [CARD] if bases or licence else []
    if ORIGIN in checkpoint.documents:  # a file that says itself what a card would
        origin = checkpoint.documents[ORIGIN]()
        named, of_file = origin["base_models"], origin["licence"]
        assert isinstance(named, list)
        bases += [name[:SHOWN] for name in named if not any(_same_name(name, other) for other in bases)]
        licence = licence or (of_file[:SHOWN] if isinstance(of_file, str) else None)
        where += ["metadata of the file"] if named or of_file else []
    if checkpoint.base is not None:
        where.append(ADAPTER_CONFIG)
        name = checkpoint.base.provenance.reference[:SHOWN]
        if not any(_same_name(name, other) for other in bases):
            bases.append(name)
        relation = relation or "adapter"
    if said.unclear and reason is None:
        reason = Text("base_model of {file} is written in a way that is not read here", file=CARD)
    # on the hub a card is expected, and that there is none is known
    known = not said.unclear and (card is not None or (checkpoint.provenance.kind == "hub" and reason == NO_CARD))
    return Declaration(tuple(bases[:MOST]), relation, licence, tuple(where), None if where else reason, known)


def judge_declarations(
    models: tuple[Model, Model], a: Declaration, b: Declaration, verdict: Verdict | None
) -> DeclaredFinding:
    """Put what is declared beside the verdict."""
    names = [_names(model) for model in models]
    sides = (("A", a, names[1]), ("B", b, names[0]))
    named = [side for side, own, other in sides if _mentions(own.base_models, other)]
    surely = [side for side, own, other in sides if _mentions(own.base_models, other, surely=True)]
    state, sentence = _judge(a, b, named, surely, verdict)
    licences = None
    both = a.licence and b.licence and a.licence.casefold() != b.licence.casefold()
    if verdict is not None and verdict.class_ in _SHARED and both:
        own, other = (printable(side.licence or "", _NAME) for side in (a, b))
        licences = Text("The licences differ: A declares {a}, B declares {b}.", a=own, b=other)
    return DeclaredFinding(state, sentence, a, b, tuple(named), licences)


def _judge(
    a: Declaration, b: Declaration, named: Sequence[str], surely: Sequence[str], verdict: Verdict | None
) -> tuple[str, Text]:
    if verdict is None or verdict.class_ == NOT_TESTABLE:
        return NOT_JUDGED, Text("The weights gave no verdict, so nothing can be said about what the cards declare.")
    if verdict.class_ in _SHARED:
        return _shared(a, b, named)
    nothing = verdict.class_ == NO_EVIDENCE
    ends = _ends(surely or named)
    if surely and nothing:
        return context.NOT_SHOWN, Text(
            "The card of {one} declares {other} as its base, but the weights show no evidence of it.", **ends
        )
    if surely:
        return context.NOT_SHOWN, Text(
            "The card of {one} declares {other} as its base, but the weights show a common random start only.", **ends
        )
    if named and nothing:
        return NOT_JUDGED, Text(
            "The card of {one} declares a base that has the name of {other}, and the weights show no evidence of it. "
            "Whether it is the same model cannot be told from a name on this machine.",
            **ends,
        )
    if named:
        return NOT_JUDGED, Text(
            "The card of {one} declares a base that has the name of {other}, and the weights show a common random start "
            "only. Whether it is the same model cannot be told from a name on this machine.",
            **ends,
        )
    return context.NOTHING_DECLARED, Text(
        "No card declares that one derives from the other, and the weights show no derivation."
    )


def _shared(a: Declaration, b: Declaration, named: Sequence[str]) -> tuple[str, Text]:
    if named:
        return DECLARED, Text("The weights are related, and {one} declares {other} as its base.", **_ends(named))
    siblings = [one for one in a.base_models if any(_same_name(one, other) for other in b.base_models)]
    if siblings:
        base = printable(siblings[0], _NAME)
        return DECLARED, Text("The weights are related, and both declare {base} as their base.", base=base)
    if a.base_models or b.base_models:
        said = [
            Text("{side} declares {names:commas}", side=side, names=tuple(printable(name, _NAME) for name in names[:3]))
            for side, names in (("A", a.base_models), ("B", b.base_models))
            if names
        ]
        return context.OTHER_DECLARED, Text(
            "The weights are related; {said:and} as base. From its name this is not recognisably the other model: it may be a "
            "common ancestor, or the same model under another name.",
            said=tuple(said),
        )
    if a.known and b.known:
        return context.UNDECLARED, Text("The weights are related, and neither card declares it.")
    missing = [side for side, own in (("A", a), ("B", b)) if not own.known]
    if len(missing) == 2:
        return NOT_JUDGED, Text(
            "The weights are related; neither model came with a card that could be read, and no card declares it."
        )
    return NOT_JUDGED, Text(
        "The weights are related; model {side} alone came with a card that could be read, and no card declares it.",
        side=_ends(missing)["other"],
    )


def _ends(sides: Sequence[str]) -> dict[str, str]:
    """Return the first of some sides, and the other one."""
    return {"one": sides[0], "other": "B" if sides[0] == "A" else "A"} if sides else {}


def _names(model: Model) -> list[tuple[str, ...]]:
    """Return the names a card may use for a model: owner and name on the hub, else the last part of a path or an address."""
    where = [model.checkpoint.provenance]
    if model.checkpoint.base is not None:
        where.append(model.checkpoint.base.provenance)
    found = [_parts(item.reference) if item.kind == "hub" else _parts(item.location)[-1:] for item in where]
    return [parts for parts in found if parts]


def _mentions(declared: Sequence[str], names: Sequence[tuple[str, ...]], *, surely: bool = False) -> bool:
    """Whether a name is among those declared: `surely` by owner and name, else by the last part where an owner is not known."""
    return any(
        _match(_parts(one), other) and (not surely or min(len(_parts(one)), len(other)) > 1)
        for one in declared
        for other in names
    )


def _same_name(one: str, other: str) -> bool:
    return _match(_parts(one), _parts(other))


def _match(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether two names can mean the same model: as owner/name where both have an owner, else by the last part."""
    both = min(len(one), len(other), 2)
    return both > 0 and one[-both:] == other[-both:]


def _parts(name: str) -> tuple[str, ...]:
    """Take a name apart. Of an address of the hub, owner and name; what points into a repository is left out."""
    scheme, mark, rest = name.strip().partition("://")
    text = re.split(r"[?#]", rest if mark else name.strip())[0].split("@")[0]
    parts = [part.lower() for part in text.split("/") if part not in ("", ".", "..")]
    if mark and scheme != "hf":
        parts = parts[1:]  # the host
        for step in ("tree", "blob", "resolve"):
            parts = parts[: parts.index(step)] if step in parts[2:] else parts
    if mark:
        parts = parts[:2]
    return tuple(part.removesuffix(".git") for part in parts)
