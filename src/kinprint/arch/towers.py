"""Find the towers of a multimodal checkpoint: encoders of pictures and sound that stand beside its language model.

Each tower is named by itself, by the config that the checkpoint keeps for it, and compared with its own kind: with the tower of
another multimodal model, or with an encoder that was published alone. Names that say what a tower is are data
(``data/_towers.json``).
"""

from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Any

from kinprint.arch.loading import read_packaged
from kinprint.arch.naming import Tower
from kinprint.arch.templates import LANGUAGE
from kinprint.text import Text

WORDS = {LANGUAGE: Text("language"), "vision": Text("vision"), "audio": Text("audio")}
"""How reports name the kinds of towers."""

LEAST = 8
"""Tensors from which a part counts as a tower: one layer of attention and MLP has as many, a projector fewer."""

NEARLY_ALL = 0.9
"""Share of a checkpoint's tensors from which a tower is the model itself, under the name that a larger model gave it."""


@cache
def _table() -> Mapping[str, Mapping[str, Any]]:
    return read_packaged("_towers")


@cache
def _prefixes() -> dict[str, str]:
    """Prefixes with the kind of tower that they stand for, the longest first."""
    every = _table().items()
    found = [(wrapper + head, kind) for kind, said in every for wrapper in said["wrappers"] for head in said["heads"]]
    return dict(sorted(found, key=lambda each: (-len(each[0]), each)))


def find_towers(
    config: Mapping[str, object], shapes: Mapping[str, tuple[int, ...]]
) -> tuple[dict[str, Tower], dict[str, Text]]:
    """Return the towers by kind, and the names that belong to none that is compared, with the reason."""
    # Of two parts that claim to be the tower of one kind the larger is taken: nothing says which of them the model uses.
    if pair := _encoder_and_decoder(config):
        return pair, {}
    model_type = str(config.get("model_type"))
    general = {said["types"][model_type]: kind for kind, said in _table().items() if model_type in said["types"]}
    kinds = {**_prefixes(), **general}  # the longest first, and a general one only for types that are known to have it
    every = tuple(kinds)
    inside = {n: next(each for each in kinds if n.startswith(each)) for n in shapes if n.startswith(every)}
    towers: dict[str, Tower] = {}
    spare: dict[str, Text] = {}
    for prefix, count in sorted(Counter(inside.values()).items(), key=lambda item: (-item[1], item[0])):
        kind = kinds[prefix]
        if count < LEAST or count >= NEARLY_ALL * len(shapes):
            continue
        if kind not in towers:
            towers[kind] = Tower(kind, prefix, tower_config(config, kind))
            continue
        why = Text("a second {kind} tower, beside {name}", kind=WORDS[kind], name=towers[kind].prefix)
        spare |= {name: why for name, of in inside.items() if of == prefix}
    return towers, spare


def _encoder_and_decoder(config: Mapping[str, object]) -> dict[str, Tower]:
    """Return both towers of a model that was put together from an encoder of pictures or sound and a language model."""
    kind = next((kind for kind, said in _table().items() if config.get("model_type") in said["pairs"]), None)
    encoder, decoder = config.get("encoder"), config.get("decoder")
    if kind is None or not isinstance(encoder, Mapping) or not isinstance(decoder, Mapping):
        return {}
    return {kind: Tower(kind, "encoder.", encoder), LANGUAGE: Tower(LANGUAGE, "decoder.", decoder)}


def tower_config(config: Mapping[str, object], kind: str) -> Mapping[str, object]:
    """Return the config of a tower, wherever a multimodal config keeps it; empty without one."""
    outer = config.get("thinker_config")
    for part in (config, outer if isinstance(outer, Mapping) else {}):
        for key in _table()[kind]["configs"]:
            if isinstance(found := part.get(key), Mapping):
                return found
    return {}
