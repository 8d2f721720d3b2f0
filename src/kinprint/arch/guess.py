"""The fallback: roles guessed from what tensor names usually contain.

The word lists are data too (``data/_generic.json``). What looks fused is left alone, as only the config of a known
architecture says how to take it apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from kinprint.arch.loading import load, read_packaged
from kinprint.arch.roles import Role
from kinprint.arch.templates import Architecture, NameRule

_WEIGHTS = ("weight", "gamma", "scale", "kernel")
_BIASES = ("bias", "beta")
_BIAS_OF = {Role(role.value.removesuffix("_bias")): role for role in Role if role.value.endswith("_bias")}
_LONGEST_NAME = 500  # no module path is longer; searching for words in what an attacker made up is a waste


@dataclass(frozen=True, slots=True)
class _Words:
    fused: tuple[str, ...]
    sections: dict[str, tuple[tuple[Role, tuple[str, ...]], ...]]

    def role(self, section: str, text: str) -> Role | None:
        for role, words in self.sections[section]:
            if any(word in text for word in words):
                return role
        return None


@cache
def _words() -> _Words:
    raw = read_packaged("_generic")
    return _Words(
        tuple(raw.pop("fused")),
        {key: tuple((Role(entry["role"]), tuple(entry["any"])) for entry in entries) for key, entries in raw.items()},
    )


def guess_rule(key: str) -> NameRule | None:
    """Guess what a tensor is from its key, or give up."""
    module, _, kind = key.lower().rpartition(".")
    if len(key) > _LONGEST_NAME or (kind not in _WEIGHTS and kind not in _BIASES):
        return None
    # The first index is the block's, whatever the list of blocks is called; only what follows it describes the part.
    head, block, tail = module.partition(".#.")
    text = f".{tail if block else head}."
    words = _words()
    if any(word in text for word in words.fused):
        return None
    expert = block != "" and "expert" in text and ".#." in text
    section = "model" if not block else "expert" if expert else "shared" if "shared_expert" in text else "layer"
    role = words.role(section, text)
    if role is not None and kind in _BIASES:
        role = _BIAS_OF.get(role)
    if role is None:
        return None
    return NameRule(
        role=role,
        split=None,
        transposed=False,
        indices=key.count(".#"),
        has_layer=block != "",
        has_expert=expert,
        priority=0,
        offset=0.0,
    )


@dataclass(frozen=True, slots=True)
class GenericArchitecture(Architecture):
    """An architecture whose rules are guessed."""

    def rule(self, key: str) -> NameRule | None:
        """Guess instead of looking up."""
        return guess_rule(key)


@cache
def generic() -> Architecture:
    """Return the fallback, with the dims and exclusions that all architectures share."""
    llama = load("llama")
    return GenericArchitecture(
        name="generic",
        summary="guessed by pattern",
        model_types=(),
        class_names=(),
        dims=llama.dims,
        rules={},
        block_heads=frozenset(),
        exclusions=llama.exclusions,
        special=0,
    )
