"""What a config says about quantisation, under the names that the tools have for it. Configs come from strangers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kinprint.formats.quantised.modules import QuantisationSettings

_KEYS = ("quantization_config", "compression_config", "quantization")  # the last is MLX's
_NESTED = ("text_config", "llm_config", "language_config")
_METHODS = frozenset({
    "gptq", "awq", "bitsandbytes", "fp8", "fbgemm_fp8", "compressed-tensors", "compressed_tensors", "mxfp4",
    "modelopt", "auto-round", "intel/auto-round",
})  # fmt: skip
_LAYOUTS = ("checkpoint_format", "packing_format", "version", "format")
_DEPTH = 4
_LARGEST = 1 << 20


def is_known(method: str) -> bool:
    """Whether there is a reader for tensors of this method."""
    return method in _METHODS


def settings_of(config: Mapping[str, object]) -> QuantisationSettings:
    """Gather what a config says; whatever makes no sense counts as absent."""
    kind = config.get("model_type")
    model_type = kind.lower() if isinstance(kind, str) else ""
    stated = _stated(config)
    if stated is None:
        return QuantisationSettings(model_type=model_type)
    method = stated.get("quant_method")
    layout = next((stated[key] for key in _LAYOUTS if isinstance(stated.get(key), str)), None)
    if stated.get("is_marlin_format") is True:
        layout = "marlin"
    bits: dict[int, None] = {}
    groups: dict[int, None] = {}
    blocks: dict[tuple[int, int], None] = {}
    for entry in _entries(stated, _DEPTH):
        bits.update((size, None) for key in ("bits", "num_bits", "w_bit") if (size := _count(entry.get(key))))
        groups.update((size, None) for key in ("group_size", "q_group_size") if (size := _count(entry.get(key))))
        for key in ("weight_block_size", "block_structure"):
            sides = entry.get(key)
            if isinstance(sides, list) and len(sides) == 2:
                tall, wide = map(_count, sides)
                if tall and wide:
                    blocks[tall, wide] = None
    return QuantisationSettings(
        method=method.lower() if isinstance(method, str) else None,
        layout=layout.lower() if isinstance(layout, str) else None,
        bits=tuple(bits),
        groups=tuple(groups),
        blocks=tuple(blocks),
        layers=_by_layer(stated),
        model_type=model_type,
    )


def _by_layer(stated: Mapping[str, object]) -> dict[str, tuple[int, int, str]]:
    """Return what MLX says of layers by their names, and under "" of all others."""
    found = {}
    for name, entry in (("", stated), *stated.items()):
        if not isinstance(entry, Mapping):
            continue
        bits, size = _count(entry.get("bits")), _count(entry.get("group_size"))
        mode = entry.get("mode", stated.get("mode", "affine"))
        if bits and size:
            found[name] = (bits, size, mode.lower() if isinstance(mode, str) else "affine")
    return found


def _stated(config: Mapping[str, object]) -> Mapping[str, object] | None:
    places = [config, *(config[key] for key in _NESTED if isinstance(config.get(key), Mapping))]
    for place in places:
        assert isinstance(place, Mapping)
        for key in _KEYS:
            if isinstance(place.get(key), Mapping):
                found: Mapping[str, object] = place[key]
                return found
    return None


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
