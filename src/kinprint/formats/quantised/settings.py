"""Read what a config says about quantisation, under the names that each tool gives it. Configs are untrusted."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

_KEYS = ("quantization_config", "compression_config", "quantization")  # the last is MLX's
_NESTED = ("text_config", "llm_config", "language_config")
KNOWN_METHODS = frozenset({
    "gptq", "awq", "bitsandbytes", "fp8", "fbgemm_fp8", "compressed-tensors", "compressed_tensors", "mxfp4",
    "modelopt", "auto-round", "intel/auto-round",
})  # fmt: skip
_LAYOUTS = ("checkpoint_format", "packing_format", "version", "format")  # GPTQ, AutoRound, AWQ, compressed-tensors
_DEPTH = 4
_LARGEST = 1 << 20


@dataclass(frozen=True, slots=True)
class QuantisationSettings:
    """What a config says about quantisation. Every field is optional, and shapes overrule it."""

    method: str | None = None  # ``quant_method``, in lower case
    layout: str | None = None  # ``checkpoint_format`` of GPTQ, ``version`` of AWQ, and so on: see `_LAYOUTS`
    bits: tuple[int, ...] = ()  # named anywhere, as are groups and blocks
    groups: tuple[int, ...] = ()
    blocks: tuple[tuple[int, int], ...] = ()  # out × in
    # bits, group size and mode as MLX states them: of layers by name, and under "" of all others
    layers: Mapping[str, tuple[int, int, str]] = field(default_factory=dict)
    model_type: str = ""  # the model's


def settings_of(config: Mapping[str, object]) -> QuantisationSettings:
    """Gather the settings of a config; impossible values count as absent."""
    model_type = _lower(config.get("model_type")) or ""
    places = [place for place in (config, *map(config.get, _NESTED)) if isinstance(place, Mapping)]
    stated = next((place[key] for place in places for key in _KEYS if isinstance(place.get(key), Mapping)), None)
    if stated is None:
        return QuantisationSettings(model_type=model_type)
    layout = next((stated[key] for key in _LAYOUTS if isinstance(stated.get(key), str)), None)
    entries = list(_entries(stated, _DEPTH))
    pairs = [entry.get(key) for entry in entries for key in ("weight_block_size", "block_structure")]
    blocks = [tuple(map(_count, pair)) for pair in pairs if isinstance(pair, list) and len(pair) == 2]

    def sizes(*keys: str) -> tuple[int, ...]:
        return tuple(dict.fromkeys(size for entry in entries for key in keys if (size := _count(entry.get(key)))))

    return QuantisationSettings(
        method=_lower(stated.get("quant_method")),
        layout="marlin" if stated.get("is_marlin_format") is True else _lower(layout),
        bits=sizes("bits", "num_bits", "w_bit"),
        groups=sizes("group_size", "q_group_size"),
        blocks=tuple(dict.fromkeys((tall, wide) for tall, wide in blocks if tall and wide)),
        layers=_by_layer(stated),
        model_type=model_type,
    )


def _lower(value: object) -> str | None:
    return value.lower() if isinstance(value, str) else None


def _by_layer(stated: Mapping[str, object]) -> dict[str, tuple[int, int, str]]:
    """Return the settings that MLX states for layers by name, and under "" for all others."""
    found = {}
    for name, entry in (("", stated), *stated.items()):
        if not isinstance(entry, Mapping):
            continue
        bits, size = _count(entry.get("bits")), _count(entry.get("group_size"))
        mode = entry.get("mode", stated.get("mode", "affine"))
        if bits and size:
            found[name] = (bits, size, _lower(mode) or "affine")
    return found


def _entries(value: Mapping[str, object], depth: int) -> Iterator[Mapping[str, object]]:
    """Yield an object and those in it: compressed-tensors names sizes for groups of layers."""
    yield value
    if depth:
        for key, inner in value.items():
            # What belongs to activations has sizes of its own.
            if isinstance(inner, Mapping) and key not in ("input_activations", "output_activations", "kv_cache_scheme"):
                yield from _entries(inner, depth - 1)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _LARGEST else None
