"""Replace the codes, scales and zeros of quantised layers by one tensor ``X.weight`` that is dequantised when it is read.

The method of quantisation shows in the names and shapes of a layer's tensors; the config only settles what these leave open.
Where something is missing, contradicts itself or is not known, the stored tensors stay as they are, and a note says why.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from kinprint.errors import FormatError, UnsupportedDtype
from kinprint.formats.dtypes import FLOATS, PLAIN, Array
from kinprint.formats.plan import TensorSlice, whole
from kinprint.formats.quantised import bitsandbytes, fp8, gptq_awq, mlx, mxfp4, packed
from kinprint.formats.quantised.modules import FloatArray, QuantisedLayer, chunks
from kinprint.formats.quantised.settings import KNOWN_METHODS, QuantisationSettings, settings_of
from kinprint.formats.row_maker import RowMaker
from kinprint.formats.tensors import Row, TensorInfo, Tensors
from kinprint.text import Text

__all__ = ["assemble"]

Read = Callable[[Sequence[TensorSlice]], list[Array]]

_SUFFIXES = frozenset({
    "qweight", "qzeros", "scales", "biases", "g_idx", "SCB", "weight_format", "weight_scale",
    "weight_scale_inv", "weight_scale_2", "weight_global_scale", "weight_zero_point", "weight_packed",
    "weight_shape", "weight_g_idx", "pre_quant_scale",
})  # fmt: skip
_OF_WEIGHT = frozenset({"absmax", "quant_map", "nested_absmax", "nested_quant_map"})
# Scales of activations and of the cache of keys and values, not of what is stored.
_ACTIVATION_SCALES = frozenset({
    "input_scale", "input_zero_point", "input_global_scale", "output_scale", "output_zero_point", "q_scale",
    "k_scale", "v_scale",
})  # fmt: skip
_STATE = ".weight.quant_state"
_DIGITS = re.compile(r"\d+")
_LINES = 6
MAX_TENSORS = 1 << 18  # with the experts of the largest models one by one: 70,000


class _Method(NamedTuple):
    """A method of quantisation: its name, suffixes that mark it, other suffixes it may have, reader, further condition."""

    name: str
    marks: Set[str]
    others: Set[str]
    describe: Callable[[QuantisedLayer], TensorInfo | list[TensorInfo]]
    fits: Callable[[Mapping[str, TensorInfo]], bool] = lambda _: True


def _packs_outputs(parts: Mapping[str, TensorInfo]) -> bool:
    """Whether codes are packed along the output axis, as AWQ does: then they have fewer columns than the scales."""
    codes, scales = parts["qweight"], parts.get("scales")
    return scales is not None and len(codes.shape) == len(scales.shape) == 2 and codes.shape[1] != scales.shape[1]


def _holds(suffix: str, dtype: str) -> Callable[[Mapping[str, TensorInfo]], bool]:
    return lambda parts: suffix in parts and parts[suffix].dtype == dtype


_NESTED_PARTS = {f"weight.{last}" for last in _OF_WEIGHT}
_PACKED_PARTS = {"weight_scale", "weight_zero_point", "weight_shape", "weight_g_idx"}
_METHODS = (  # the first that fits is taken
    _Method("MXFP4", {"blocks"}, {"scales"}, mxfp4.describe_experts),
    _Method("AWQ", {"qweight"}, {"qzeros", "scales"}, gptq_awq.describe_awq, _packs_outputs),
    _Method("GPTQ", {"qweight"}, {"qzeros", "scales", "g_idx"}, gptq_awq.describe_gptq),
    _Method("bitsandbytes 4-bit", {*_NESTED_PARTS, *bitsandbytes.STATES}, {"weight"}, bitsandbytes.describe_4bit),
    _Method("bitsandbytes int8", {"SCB"}, {"weight", "weight_format"}, bitsandbytes.describe_int8),
    _Method("compressed-tensors", {"weight_packed"}, _PACKED_PARTS, packed.describe, _holds("weight_packed", "I32")),
    _Method("FP4", {"weight_packed"}, {"weight_scale", "weight_global_scale"}, mxfp4.describe),
    _Method("FP4", {"weight_scale"}, {"weight", "weight_scale_2"}, mxfp4.describe, _holds("weight", "U8")),
    _Method("MLX", {"scales"}, {"weight", "biases"}, mlx.describe, _holds("weight", "U32")),
    _Method("FP8", {"weight_scale", "weight_scale_inv"}, {"weight", "weight_zero_point"}, fp8.describe),
)


def assemble(
    tensors: Tensors, config: Mapping[str, object], read: Read
) -> tuple[Mapping[str, Row | TensorInfo], tuple[Text, ...]]:
    """Return all tensors of a checkpoint, those of quantised layers put together in place of their parts, and notes."""
    # `read` is called for the few small tensors that hold shapes: one for all layers that are alike.
    settings = settings_of(config)
    if settings.method is not None and settings.method not in KNOWN_METHODS:
        return tensors, _unknown(tensors, settings.method)
    layers, unused = _layers(tensors, settings)
    if not layers:
        return tensors, ()
    _read_shapes(layers, read)
    made: dict[str, tuple[TensorInfo, ...]] = {}  # by stem
    refused: dict[Text, list[str]] = {}
    unreadable: dict[str, TensorInfo] = {}
    for stem, layer in layers.items():
        try:
            made[stem] = _described(layer)
        except FormatError as error:
            refused.setdefault(error.reason, []).append(stem)
            unreadable |= mlx.unreadable(layer, error.reason)
    found, clashes = _replaced(tensors, layers, made, unused)
    if unreadable:
        found = {name: unreadable.get(name, row) for name, row in found.items()}
    for stem in clashes:
        refused.setdefault(Text("a tensor with the name of the result is stored too"), []).append(stem)
    notes = _notes([made[stem] for stem in made if stem not in clashes], refused)
    if len(made) > len(clashes) and unused:
        notes += (Text("{n} scales of activations, which say nothing about weights, are left out", n=len(unused)),)
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
    """Group the tensors of quantised layers, and find the names of scales that belong to no weight."""
    parts: dict[str, dict[str, str]] = {}
    unused: set[str] = set()
    for name in tensors:
        split = _split(name)
        if split is not None:
            parts.setdefault(split[0], {})[split[1]] = name
        elif name.rpartition(".")[2] in _ACTIVATION_SCALES:
            unused.add(name)
    layers = {
        stem: QuantisedLayer(stem, {suffix: tensors[name] for suffix, name in found.items()}, settings)
        for stem, found in parts.items()
        if found.keys() != {"weight"}
    }
    # Scales beside a weight of plain floats are left over from a quantisation that was undone.
    coded = {s: layer for s, layer in layers.items() if any(part.dtype not in PLAIN for part in layer.parts.values())}
    return coded, unused


def _read_shapes(layers: dict[str, QuantisedLayer], read: Read) -> None:
    """Read the small tensors that hold shapes, one for all layers that are alike; the others are checked when they are read."""
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
    parts = layer.parts
    method = next((each for each in _METHODS if each.marks & parts.keys() and each.fits(parts)), None)
    if method is None:
        raise FormatError(Text("no form of quantisation is known for {names}", names=", ".join(sorted(parts))))
    extra = sorted(parts.keys() - method.marks - method.others)
    if extra:  # an unknown part might change what the others stand for
        raise FormatError(Text("{name} does not go with {names}", name=method.name, names=", ".join(extra)))
    found = method.describe(layer)
    return (_as_conv1d(found, layer),) if isinstance(found, TensorInfo) else tuple(found)


# GPTQ and bitsandbytes replace GPT-2's Conv1D layers by linear ones with the transposed weight; the model itself stores in × out.
_CONV1D_MODELS = ("gpt2", "openai-gpt", "imagegpt", "decision_transformer")
_CONV1D_LAYERS = ("c_attn", "c_proj", "c_fc", "q_attn")


@dataclass(frozen=True, slots=True)
class _TransposedConv1D:
    """The transpose of a dequantised matrix. Any row needs all of that matrix, which is built in pieces, and never held."""

    inner: RowMaker
    method: Text  # of quantisation, for the report

    def parts(self, start: int, stop: int) -> Sequence[TensorSlice]:
        """Select everything that the matrix is made of, each part once."""
        pieces = chunks(0, *self.inner.shape) if start < stop else ()
        return list(dict.fromkeys(part for piece in pieces for part in self.inner.parts(*piece)))

    def build(self, start: int, stop: int, parts: Sequence[Array]) -> Array:
        """Build the matrix in pieces, and keep the columns asked for."""
        built: FloatArray = np.empty((stop - start, self.inner.shape[0]), np.float32)
        values = dict(zip(self.parts(start, stop), parts, strict=True))
        for low, high in chunks(0, *self.inner.shape) if values else ():
            given = [values[part] for part in self.inner.parts(low, high)]
            built[:, low:high] = self.inner.build(low, high, given)[:, start:stop].T
        return built


def _as_conv1d(tensor: TensorInfo, layer: QuantisedLayer) -> TensorInfo:
    """Transpose a tensor back if its model stores it in × out."""
    is_conv1d = layer.settings.model_type in _CONV1D_MODELS and layer.stem.rpartition(".")[2] in _CONV1D_LAYERS
    if not is_conv1d or not isinstance(tensor.made, RowMaker) or len(tensor.shape) != 2:
        return tensor
    method = Text("{how}, transposed", how=tensor.made.method)
    return tensor._replace(shape=tensor.shape[::-1], made=_TransposedConv1D(tensor.made, method))


def _replaced(
    tensors: Tensors, layers: Mapping[str, QuantisedLayer], made: Mapping[str, tuple[TensorInfo, ...]], unused: set[str]
) -> tuple[Mapping[str, Row | TensorInfo], set[str]]:
    """Put each weight in the place of its layer's first part; leave layers as stored whose weight has a name that is taken."""
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
            if name not in unused or len(made) == len(clashes):
                found[name] = row
        elif stem not in placed:
            placed.add(stem)
            found.update((tensor.name, tensor) for tensor in made[stem])
        if len(found) > MAX_TENSORS:
            raise FormatError(f"more than {MAX_TENSORS} tensors, its experts taken apart")
    return found, clashes


def _notes(made: Sequence[tuple[TensorInfo, ...]], refused: Mapping[Text, Sequence[str]]) -> tuple[Text, ...]:
    makers = [tensor.made for each in made for tensor in each]
    methods = Counter(maker.method for maker in makers if isinstance(maker, (RowMaker, _TransposedConv1D)))
    lines = [
        Text("{n} weights are dequantised when read: {how}", n=count, how=method)
        for method, count in methods.most_common(_LINES)
    ]
    if len(methods) > _LINES:
        lines.append(Text("and {n} more forms of quantisation", n=len(methods) - _LINES))
    for why, stems in list(refused.items())[:_LINES]:
        n, name = len(stems), stems[0][:80]
        one = Text("1 quantised layer is left as stored, e.g. {name}: {why}", name=name, why=why)
        many = Text("{n} quantised layers are left as stored, e.g. {name}: {why}", n=n, name=name, why=why)
        lines.append(one if n == 1 else many)
    if len(refused) > _LINES:
        n, more = sum(map(len, list(refused.values())[_LINES:])), len(refused) - _LINES
        lines.append(Text("{n} more quantised layers are left as stored, for {m} more reasons", n=n, m=more))
    return tuple(lines)


def _unknown(tensors: Tensors, method: str) -> tuple[Text, ...]:
    kinds = Counter(tensor.dtype for tensor in tensors.values())
    strange = sum(count for dtype, count in kinds.items() if dtype not in PLAIN)
    if not any(dtype in FLOATS for dtype in kinds):
        raise UnsupportedDtype(
            f"quantisation {method[:40]!r} is not known, and no tensor is stored as floating-point numbers",
            hint="compare a copy of the model that is not quantised, or quantised in another way",
        )
    name = repr(method[:40])
    return (Text("quantisation {name} is not known: {n} tensors are left as stored", name=name, n=strange),)
