"""What models declare of their origin, and how that stands beside what their weights say. Never evidence, always context."""

from __future__ import annotations

from collections.abc import Sequence

from kinprint.annexes import (
    DECLARED,
    NOT_JUDGED,
    NOT_SHOWN,
    NOTHING_DECLARED,
    OTHER_DECLARED,
    UNDECLARED,
    Declaration,
    DeclaredFinding,
)
from kinprint.cards import CARD, CARD_CAP, MOST, SHOWN, read_card
from kinprint.errors import KinprintError, NotFound
from kinprint.findings import DERIVED, IDENTICAL, NO_EVIDENCE, NOT_TESTABLE, SHARES_COMPONENTS, Verdict
from kinprint.formats.containers import ORIGIN
from kinprint.model import Model
from kinprint.plain import printable
from kinprint.sources.session import Session

ADAPTER_CONFIG = "adapter_config.json"
_SHARED = (IDENTICAL, DERIVED, SHARES_COMPONENTS)
_NAME = 80  # characters of a name in a sentence


def read_declaration(model: Model, session: Session) -> Declaration:
    """Return what the card says, and the config of an adapter. Context is not worth failing for: a reason is kept instead."""
    checkpoint = model.checkpoint
    bases, where, reason = list[str](), list[str](), None
    card = None
    if checkpoint.provenance.kind in ("file", "url-file"):
        reason = "a single file has no card"
    else:
        try:
            card = session.read_small(checkpoint.folder, CARD, CARD_CAP)
        except NotFound:
            pass
        except KinprintError as error:
            reason = f"the card could not be read: {error.message}"
        if card is None and reason is None:
            reason = f"there is no {CARD}"
    said = read_card((card or b"").decode("utf-8", "replace"))
    relation = said.relation
    if said.base_models or said.licence:
        where.append(CARD)
    bases += said.base_models
    licence = said.licence
    if ORIGIN in checkpoint.documents:  # a file that says itself what a card would
        origin = checkpoint.documents[ORIGIN]()
        named, of_file = origin["base_models"], origin["licence"]
        assert isinstance(named, list)
        bases += [name[:SHOWN] for name in named if not any(_same_name(name, other) for other in bases)]
        licence = licence or (of_file[:SHOWN] if isinstance(of_file, str) else None)
        where += ["metadata of the file"] if named or of_file else []
    base = checkpoint.base
    if base is not None:
        where.append(ADAPTER_CONFIG)
        name = base.provenance.reference[:SHOWN]
        if not any(_same_name(name, other) for other in bases):
            bases.append(name)
        relation = relation or "adapter"
    return Declaration(tuple(bases[:MOST]), relation, licence, tuple(where), None if where else reason)


def judge_declarations(
    models: tuple[Model, Model], a: Declaration, b: Declaration, verdict: Verdict | None
) -> DeclaredFinding:
    """Put what is declared beside the verdict."""
    names = [_names(model) for model in models]
    named = [side for side, own, other in (("A", a, names[1]), ("B", b, names[0])) if _mentions(own.base_models, other)]
    state, sentence = _judge(models, a, b, named, verdict)
    licences = None
    if verdict is not None and verdict.class_ in _SHARED and a.licence and b.licence and a.licence != b.licence:
        licences = (
            f"The licences differ: A declares {printable(a.licence, _NAME)}, B declares {printable(b.licence, _NAME)}."
        )
    return DeclaredFinding(state, sentence, a, b, tuple(named), licences)


def _judge(
    models: tuple[Model, Model], a: Declaration, b: Declaration, named: Sequence[str], verdict: Verdict | None
) -> tuple[str, str]:
    if verdict is None or verdict.class_ == NOT_TESTABLE:
        return NOT_JUDGED, "The weights gave no verdict, so nothing can be said about what the cards declare."
    siblings = [one for one in a.base_models if any(_same_name(one, other) for other in b.base_models)]
    if verdict.class_ in _SHARED:
        return _shared(models, a, b, named, siblings)
    if named:
        other = "B" if named[0] == "A" else "A"
        found = "show no evidence of it" if verdict.class_ == NO_EVIDENCE else "show a common random start only"
        return NOT_SHOWN, f"The card of {named[0]} declares {other} as its base, but the weights {found}."
    if not (a.where or b.where):
        return NOTHING_DECLARED, "No card declares a relation between the two, and the weights show no derivation."
    return NOTHING_DECLARED, "No card declares that one derives from the other, and the weights show no derivation."


def _shared(
    models: tuple[Model, Model], a: Declaration, b: Declaration, named: Sequence[str], siblings: Sequence[str]
) -> tuple[str, str]:
    if named:
        other = "B" if named[0] == "A" else "A"
        return DECLARED, f"The weights are related, and {named[0]} declares {other} as its base."
    if siblings:
        return DECLARED, f"The weights are related, and both declare {printable(siblings[0], _NAME)} as their base."
    if a.base_models or b.base_models:
        said = [
            f"{side} declares {', '.join(printable(name, _NAME) for name in own.base_models[:3])}"
            for side, own in (("A", a), ("B", b))
            if own.base_models
        ]
        return OTHER_DECLARED, (
            f"The weights are related; {' and '.join(said)} as base. From its name this is not recognisably the other model: "
            "it may be a common ancestor, or the same model under another name."
        )
    # a card that was read and is silent says nothing of the origin; where there is none at all, nobody was silent
    sides = zip(models, (a, b), strict=True)
    if not any(own.reason is None or model.checkpoint.provenance.kind == "hub" for model, own in sides):
        return NOT_JUDGED, "The weights are related; neither model came with a card that says anything of its origin."
    return UNDECLARED, "The weights are related, and neither card declares it."


def _names(model: Model) -> list[str]:
    """Return the names a card may use for a model: its repository, or the last part of a path or an address."""
    where = [model.checkpoint.provenance]
    if model.checkpoint.base is not None:
        where.append(model.checkpoint.base.provenance)
    return [
        item.reference if item.kind == "hub" else _parts(item.location)[-1] for item in where if _parts(item.location)
    ]


def _mentions(declared: Sequence[str], names: Sequence[str]) -> bool:
    return any(_same_name(one, other) for one in declared for other in names)


def _same_name(one: str, other: str) -> bool:
    """Whether two names can mean the same model: as owner/name where both have an owner, else by the last part."""
    left, right = _parts(one), _parts(other)
    both = min(len(left), len(right), 2)
    return both > 0 and left[-both:] == right[-both:]


def _parts(name: str) -> list[str]:
    text = name.removeprefix("hf://").split("@")[0].split("?")[0].rstrip("/")
    return [part.lower() for part in text.split("/") if part not in ("", ".", "..")]
