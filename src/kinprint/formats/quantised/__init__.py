"""Quantised checkpoints: codes, scales and zeros become one tensor ``X.weight`` that is dequantised when it is read.

What a layer is stored as shows in the names and shapes of its tensors; the config only settles what these leave open. Where
something is missing, contradicts itself or is not known, the stored tensors stay as they are, and a note says why.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from kinprint.errors import FormatError, UnsupportedDtype
from kinprint.formats.dtypes import FLOATS, Array
from kinprint.formats.plan import TensorSlice, whole
from kinprint.formats.quantised import awq, bitsandbytes, fp8, gptq, mlx, mxfp4, packed
from kinprint.formats.quantised.conv1d import as_conv1d
from kinprint.formats.quantised.modules import QuantisationSettings, QuantisedLayer
from kinprint.formats.quantised.settings import is_known, settings_of
from kinprint.formats.tensors import Dequantised, Row, TensorInfo, Tensors
from kinprint.text import Text

__all__ = ["assemble"]

Read = Callable[[Sequence[TensorSlice]], list[Array]]

_PLAIN = frozenset({"F64", "F32", "F16", "BF16"})
_SUFFIXES = frozenset({
    "qweight", "qzeros", "scales", "biases", "g_idx", "SCB", "weight_format", "weight_scale",
    "weight_scale_inv", "weight_scale_2", "weight_global_scale", "weight_zero_point", "weight_packed",
    "weight_shape", "weight_g_idx", "pre_quant_scale",
})  # fmt: skip
_OF_WEIGHT = frozenset(["absmax", "quant_map", "nested_absmax", "nested_quant_map"])
# Of activations and of the cache of keys and values: they scale what is computed, not what is stored.
_ASIDE = frozenset({
    "input_scale", "input_zero_point", "input_global_scale", "output_scale", "output_zero_point", "q_scale",
    "k_scale", "v_scale",
})  # fmt: skip
_STATE = ".weight.quant_state"
_DIGITS = re.compile(r"\d+")
_LINES = 6
MAX_TENSORS = 1 << 18  # with the experts of the largest models one by one: 70,000


@dataclass(frozen=True, slots=True)
class _Form:
    """A form of quantisation: the parts that mark it, what else has to hold, all parts it may have, and its reader."""

    name: str
    mark: frozenset[str]
    parts: frozenset[str]
    describe: Callable[[QuantisedLayer], TensorInfo | list[TensorInfo]]
    fits: Callable[[Mapping[str, TensorInfo]], bool] | None = None


def _form(
    name: str,
    mark: str,
    others: str,
    describe: Callable[[QuantisedLayer], TensorInfo | list[TensorInfo]],
    fits: Callable[[Mapping[str, TensorInfo]], bool] | None = None,
) -> _Form:
    marks = frozenset(mark.split())
    return _Form(name, marks, marks | frozenset(others.split()), describe, fits)


def _packs_outputs(parts: Mapping[str, TensorInfo]) -> bool:
    """Whether codes are packed along the output axis, as AWQ does: then they have fewer columns than the scales."""
    codes, scales = parts["qweight"], parts.get("scales")
    return scales is not None and len(codes.shape) == len(scales.shape) == 2 and codes.shape[1] != scales.shape[1]


def _holds(suffix: str, dtype: str) -> Callable[[Mapping[str, TensorInfo]], bool]:
    return lambda parts: suffix in parts and parts[suffix].dtype == dtype


_NESTED = "weight.absmax weight.quant_map weight.nested_absmax weight.nested_quant_map"
_FORMS = (  # the first that fits is taken
    _form("MXFP4", "blocks", "scales", mxfp4.describe_experts),
    _form("AWQ", "qweight", "qzeros scales", awq.describe, _packs_outputs),
    _form("GPTQ", "qweight", "qzeros scales g_idx", gptq.describe),
    _form("bitsandbytes 4-bit", f"{_NESTED} {' '.join(bitsandbytes.STATES)}", "weight", bitsandbytes.describe_4bit),
    _form("bitsandbytes int8", "SCB", "weight weight_format", bitsandbytes.describe_int8),
    _form(
        "compressed-tensors",
        "weight_packed",
        "weight_scale weight_zero_point weight_shape weight_g_idx",
        packed.describe,
        _holds("weight_packed", "I32"),
    ),
    _form("FP4", "weight_packed", "weight_scale weight_global_scale", mxfp4.describe),
    _form("FP4", "weight_scale", "weight weight_scale_2", mxfp4.describe, _holds("weight", "U8")),
    _form("MLX", "scales", "weight biases", mlx.describe, _holds("weight", "U32")),
    _form("FP8", "weight_scale weight_scale_inv", "weight weight_zero_point", fp8.describe),
)


def assemble(
    tensors: Tensors, config: Mapping[str, object], read: Read
) -> tuple[Mapping[str, Row | TensorInfo], tuple[Text, ...]]:
    """Return all tensors of a checkpoint, those of quantised layers put together in place of their parts, and notes.

    `read` is called for the few small tensors that hold shapes: one for all layers that are alike. Raise UnsupportedDtype if
    the quantisation is not known and nothing else is stored.
    """
    if tensors.dtypes() <= _PLAIN:  # every form of quantisation stores integers or 8-bit floats
        return tensors, ()
    settings = settings_of(config)
    if settings.method is not None and not is_known(settings.method):
        return tensors, _unknown(tensors, settings.method)
    layers, aside = _layers(tensors, settings)
    if not layers:
        return tensors, ()
    _look_at_shapes(layers, read)
    made: dict[str, tuple[TensorInfo, ...]] = {}  # by stem
    refused: dict[Text, list[str]] = {}
    for stem, layer in layers.items():
        try:
            made[stem] = _described(layer)
        except FormatError as error:
            refused.setdefault(error.reason, []).append(stem)
    sealed = {
        tensor.name: tensor
        for reason, stems in refused.items()
        for stem in stems
        if (tensor := mlx.sealed(layers[stem], reason)) is not None
    }
    found, clashes = _replaced(tensors, layers, made, aside)
    if sealed:
        found = {name: sealed.get(name, row) for name, row in found.items()}
    for stem in clashes:
        refused.setdefault(Text("a tensor with the name of the result is stored too"), []).append(stem)
    notes = _notes([made[stem] for stem in made if stem not in clashes], refused)
    if len(made) > len(clashes) and aside:
        notes += (Text("{n} scales of activations, which say nothing about weights, are left out", n=len(aside)),)
    return found, notes


def _split(name: str) -> tuple[str, str] | None:
    """Return the layer and the suffix of a name, or None if no quantiser would store it."""
    stem, _, last = name.rpartition(".")
    if last == "weight" or last in _SUFFIXES:
        return stem.removesuffix(".weight") if last == "SCB" else stem, last
    if last in _OF_WEIGHT and stem.endswith(".weight"):
        return stem.removesuffix(".weight"), f"weight.{last}"
    if stem.endswith(_STATE):
        return stem.removesuffix(_STATE), f"weight.quant_state.{last}"
    base, _, kind = last.rpartition("_")
    if base and kind in ("blocks", "scales"):
        return f"{stem}.{base}", kind
    return None


def _layers(tensors: Tensors, settings: QuantisationSettings) -> tuple[dict[str, QuantisedLayer], set[str]]:
    """Gather the tensors of quantised layers, and the names of scales that belong to no weight."""
    parts: dict[str, dict[str, str]] = {}
    aside: set[str] = set()
    for name in tensors:
        split = _split(name)
        if split is not None:
            parts.setdefault(split[0], {})[split[1]] = name
        elif name.rpartition(".")[2] in _ASIDE:
            aside.add(name)
    several = {stem: found for stem, found in parts.items() if found.keys() != {"weight"}}
    layers = {
        stem: QuantisedLayer(stem, {suffix: tensors[name] for suffix, name in found.items()}, settings)
        for stem, found in several.items()
    }
    # Scales beside a weight of plain floats are what a quantiser left behind when it was undone.
    codes = {stem for stem, layer in layers.items() if any(part.dtype not in _PLAIN for part in layer.parts.values())}
    return {stem: layers[stem] for stem in layers if stem in codes}, aside


def _look_at_shapes(layers: dict[str, QuantisedLayer], read: Read) -> None:
    """Read the small tensors that hold shapes: one for all layers whose names differ in numbers only and whose parts are alike.

    That the others say the same is checked when they are read.
    """
    groups: dict[tuple[object, ...], tuple[TensorInfo, list[str]]] = {}
    for stem, layer in layers.items():
        wanted = bitsandbytes.state_tensor(layer) or packed.shape_tensor(layer)
        if wanted is None:
            continue
        alike = tuple((suffix, part.dtype, part.shape) for suffix, part in layer.parts.items() if part != wanted)
        key = (_DIGITS.sub("#", stem), frozenset(alike))
        groups.setdefault(key, (wanted, []))[1].append(stem)
    if not groups:
        return
    arrays = read([whole(tensor) for tensor, _ in groups.values()])
    for (_, stems), values in zip(groups.values(), arrays, strict=True):
        for stem in stems:
            layers[stem] = replace(layers[stem], seen=values)


def _described(layer: QuantisedLayer) -> tuple[TensorInfo, ...]:
    """Tell by the parts which form a layer has, and describe what it stands for."""
    parts = layer.parts
    form = next((form for form in _FORMS if form.mark & parts.keys() and (form.fits is None or form.fits(parts))), None)
    if form is None:
        raise FormatError(Text("no form of quantisation is known for {names}", names=", ".join(sorted(parts))))
    extra = sorted(suffix for suffix in parts if suffix not in form.parts)
    if extra:  # it might change what the others stand for
        raise FormatError(Text("{name} does not go with {names}", name=form.name, names=", ".join(extra)))
    found = form.describe(layer)
    return (as_conv1d(found, layer),) if isinstance(found, TensorInfo) else tuple(found)


def _replaced(
    tensors: Tensors, layers: Mapping[str, QuantisedLayer], made: Mapping[str, tuple[TensorInfo, ...]], aside: set[str]
) -> tuple[Mapping[str, Row | TensorInfo], set[str]]:
    """Put each result in the place of its layer's first part; leave layers alone whose result has a name that is taken."""
    owner = {part.name: stem for stem in made for part in layers[stem].parts.values()}
    claimed = Counter(tensor.name for stem in made for tensor in made[stem])
    clashes = {
        stem
        for stem in made
        for tensor in made[stem]
        if claimed[tensor.name] > 1 or (tensor.name in tensors and owner.get(tensor.name) != stem)
    }
    found: dict[str, Row | TensorInfo] = {}
    placed: set[str] = set()
    for name, row in tensors.stored().items():
        stem = owner.get(name)
        if stem is None or stem in clashes:
            if name not in aside or len(made) == len(clashes):
                found[name] = row
        elif stem not in placed:
            placed.add(stem)
            found.update((tensor.name, tensor) for tensor in made[stem])
        if len(found) > MAX_TENSORS:
            raise FormatError(f"more than {MAX_TENSORS} tensors, its experts taken apart")
    return found, clashes


def _notes(made: Sequence[tuple[TensorInfo, ...]], refused: Mapping[Text, Sequence[str]]) -> tuple[Text, ...]:
    methods = Counter(cast(Dequantised, tensor.made).method for each in made for tensor in each)
    lines = [
        Text("{n} weights are dequantised when read: {how}", n=count, how=method)
        for method, count in methods.most_common(_LINES)
    ]
    if len(methods) > _LINES:
        lines.append(Text("and {n} more forms of quantisation", n=len(methods) - _LINES))
    for why, stems in list(refused.items())[:_LINES]:
        n, name = len(stems), stems[0][:80]
        if n > 1:
            lines.append(Text("{n} quantised layers are left as stored, e.g. {name}: {why}", n=n, name=name, why=why))
        else:
            lines.append(Text("1 quantised layer is left as stored, e.g. {name}: {why}", name=name, why=why))
    if len(refused) > _LINES:
        n, more = sum(map(len, list(refused.values())[_LINES:])), len(refused) - _LINES
        lines.append(Text("{n} more quantised layers are left as stored, for {m} more reasons", n=n, m=more))
    return tuple(lines)


def _unknown(tensors: Tensors, method: str) -> tuple[Text, ...]:
    kinds = Counter(tensor.dtype for tensor in tensors.values())
    strange = sum(count for dtype, count in kinds.items() if dtype not in _PLAIN)
    if not any(dtype in FLOATS for dtype in kinds):
        raise UnsupportedDtype(
            f"quantisation {method[:40]!r} is not known, and no tensor is stored as floating-point numbers",
            hint="compare a copy of the model that is not quantised, or quantised in another way",
        )
    name = repr(method[:40])
    return (Text("quantisation {name} is not known: {n} tensors are left as stored", name=name, n=strange),)
