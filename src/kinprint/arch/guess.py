"""Guess roles from the words in tensor names, where no architecture file fits.

The word lists are data too (``data/_generic.json``). What looks fused is left alone, as only the config of a known
architecture says how to take it apart.
"""

from dataclasses import dataclass
from functools import cache

from kinprint.arch.loading import load, read_packaged
from kinprint.arch.roles import BIASES, Role
from kinprint.arch.templates import Architecture, NameRule

_WEIGHTS = ("weight", "gamma", "scale", "kernel")
_BIAS_NAMES = ("bias", "beta")
_LONGEST_NAME = 500  # no module path is longer; searching for words in what an attacker made up is a waste


_CROSS = {Role.ATTN_Q: Role.CROSS_Q, Role.ATTN_K: Role.CROSS_K, Role.ATTN_V: Role.CROSS_V, Role.ATTN_O: Role.CROSS_O}
_words = cache(read_packaged)


def guess_rule(key: str) -> NameRule | None:
    """Guess what a tensor is from its key, or give up."""
    module, _, kind = key.lower().rpartition(".")
    if len(key) > _LONGEST_NAME or (kind not in _WEIGHTS and kind not in _BIAS_NAMES):
        return None
    # The first index is the block's, whatever the list of blocks is called; only what follows it describes the part.
    head, block, tail = module.partition(".#.")
    text = f".{tail if block else head}."
    words = _words("_generic")
    if any(word in text for word in words["fused"]):
        return None
    expert = block != "" and "expert" in text and ".#." in text
    section = "model" if not block else "expert" if expert else "shared" if "shared_expert" in text else "layer"
    named = next((entry["role"] for entry in words[section] if any(word in text for word in entry["any"])), None)
    role = None if named is None else Role(named)
    if role is not None and any(word in text for word in words["cross"]):
        role = _CROSS.get(role)
    if role is not None and kind in _BIAS_NAMES:
        role = BIASES.get(role)
    if role is None:
        return None
    encoder = "encoder" in head and "decoder" not in head
    return NameRule(role, indices=key.count(".#"), has_layer=block != "", has_expert=expert, encoder=encoder)


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
    names = "generic", "guessed by pattern", (), ()
    return GenericArchitecture(*names, llama.dims, {}, frozenset(), llama.exclusions, special=0)
