"""Merge low-rank adapters (LoRA, Hu et al. 2021) as PEFT stores them: add scale·B·A to a base's tensors when these are read.

Nothing is merged on disk or in memory as a whole: some rows of an adapted matrix need those rows of W and of B, and A.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint._util.plain import printable
from kinprint.errors import FormatError, UnsupportedDtype
from kinprint.formats.adapters.config import GIVE_BASE, MERGE, LoraSettings
from kinprint.formats.dtypes import FLOATS, ITEM_BYTES, Array
from kinprint.formats.plan import columns
from kinprint.formats.row_maker import Input, by_element, by_row, entire, made_of
from kinprint.formats.tensors import Row, TensorInfo, Tensors
from kinprint.text import Text, joined

Rows = Mapping[str, Row | TensorInfo]

MAX_TENSORS = 1 << 18
MAX_NAME = 1000  # of a tensor: paths are searched and compared by their ends
MAX_DEPTH = 64
MAX_DROPPED = 8  # modules that may wrap a model
CHUNK_ELEMENTS = 1 << 18  # of the sum that is built at a time: in float64 it stays in a core's cache
_PREFIX = "base_model.model."
_PART = re.compile(
    r"(?P<path>.+)\.(?P<part>lora_A|lora_B|lora_embedding_A|lora_embedding_B|lora_magnitude_vector)"
    r"(?:\.(?!weight$|bias$)[^.]+)?(?:\.weight)?"
)
_WRAPPED = re.compile(r"\.(?:modules_to_save(?:\.default)?|base_layer)(?=\.)")
_STRANGE = re.compile(r"(?:^|\.)(?:lora_|trainable_tokens_|token_adapter)")
_INDEX = re.compile(r"[0-9]+")
_EMBEDDINGS = ("embed_tokens.weight", "wte.weight", "word_embeddings.weight", "embed_in.weight")
_SHOWN = 12
_AGAIN = "the adapter's file and its config do not belong together, or are damaged; fetch both again"


@dataclass(frozen=True, slots=True)
class LoraTarget:
    """The stored parts of one adapted module, by its path in the base."""

    path: str
    down: TensorInfo  # A: rank × in
    up: TensorInfo  # B: out × rank
    magnitude: TensorInfo | None
    embedding: bool

    @property
    def rank(self) -> int:
        """Rank of the product."""
        return self.down.shape[0]


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter's tensors, sorted: what is added to modules, and what replaces tensors of the base whole."""

    targets: tuple[LoraTarget, ...]
    replaced: Mapping[str, TensorInfo]

    def describe(self, settings: LoraSettings) -> Text:
        """Describe rank, alpha and targets."""
        ranks = sorted({target.rank for target in self.targets})
        alphas = sorted({settings.alpha_of(target.path) for target in self.targets})
        names = sorted({target.path.rsplit(".", 1)[-1] for target in self.targets})
        shown = Text.of("{names}", {"names": printable(", ".join(names[:_SHOWN]), 300)})
        if len(names) > _SHOWN:
            shown = Text("{names} and {k} more", names=shown, k=len(names) - _SHOWN)
        layers = len({index for target in self.targets if (index := _layer(target.path)) is not None})
        kinds = [word for word, on in (("DoRA", settings.magnitudes), ("rsLoRA", settings.by_root)) if on]
        kind = " and ".join(kinds) or "LoRA"
        rank = Text("ranks {x:g} to {y:g}", x=ranks[0], y=ranks[-1]) if ranks[1:] else Text("rank {x:g}", x=ranks[0])
        low, high = alphas[0], alphas[-1]
        alpha = Text("alphas {x:g} to {y:g}", x=low, y=high) if high > low else Text("alpha {x:g}", x=low)
        text = Text("{kind} adapter: {rank}, {alpha}, targets {names}", kind=kind, rank=rank, alpha=alpha, names=shown)
        if layers == 1:
            text = Text("{what} in 1 layer", what=text)
        elif layers:
            text = Text("{what} in {n} layers", what=text, n=layers)
        if not self.replaced:
            return text
        stored = printable(", ".join(sorted(self.replaced)[:3]), 200) + (", …" if len(self.replaced) > 3 else "")
        return joined((text, Text("{n} tensors stored whole ({names})", n=len(self.replaced), names=stored)))


def _layer(path: str) -> str | None:
    return next((bit for bit in path.split(".") if _INDEX.fullmatch(bit)), None)


def read_adapter(stored: Rows, settings: LoraSettings, label: str) -> Adapter:
    """Sort an adapter's tensors, and refuse those that do not fit each other or the config."""
    if len(stored) > MAX_TENSORS:
        raise FormatError(f"{label}: {len(stored)} tensors, expected at most {MAX_TENSORS}", hint=_AGAIN)
    parts: dict[str, dict[str, TensorInfo]] = {}
    replaced: dict[str, TensorInfo] = {}
    for name, row in stored.items():
        if len(name) > MAX_NAME or name.count(".") > MAX_DEPTH:
            long = f"{len(name)} characters and {name.count('.')} dots; expected at most {MAX_NAME} and {MAX_DEPTH}"
            raise FormatError(f"{label}: tensor {_quoted(name[:80])} has a name of {long}", hint=_AGAIN)
        tensor, own = TensorInfo(*row), name.removeprefix(_PREFIX)
        if tensor.dtype not in FLOATS:
            raise UnsupportedDtype(f"{label}: tensor {_quoted(name)} is stored as {tensor.dtype}, expected floats")
        found = _PART.fullmatch(own)
        if found is not None:
            into, key = parts.setdefault(found["path"], {}), found["part"]
        elif _STRANGE.search(own):
            raise FormatError(f"{label}: tensor {_quoted(name)} is of a kind that is not known", hint=MERGE)
        else:
            into, key = replaced, _WRAPPED.sub("", own)
        if key in into:
            raise FormatError(f"{label}: tensor {_quoted(name)} is stored twice, for two adapters", hint=_AGAIN)
        into[key] = tensor
    if not parts:
        raise FormatError(f"{label}: the adapter holds no lora_A and lora_B", hint=_AGAIN)
    return Adapter(tuple(_target(path, found, settings, label) for path, found in parts.items()), replaced)


def _target(path: str, found: Mapping[str, TensorInfo], settings: LoraSettings, label: str) -> LoraTarget:
    kinds = [kind for kind in ("lora_", "lora_embedding_") if f"{kind}A" in found or f"{kind}B" in found]
    where = f"{label}: {_quoted(path)}"
    if len(kinds) != 1:
        raise FormatError(f"{where} has the parts {', '.join(sorted(found))}, expected one A and one B", hint=_AGAIN)
    missing = [name for name in (f"{kinds[0]}A", f"{kinds[0]}B") if name not in found]
    if missing:
        raise FormatError(f"{where} has no {missing[0]}", hint=_AGAIN)
    magnitude = found.get("lora_magnitude_vector")
    if (magnitude is not None) != settings.magnitudes:
        config = "and the config says use_dora" if settings.magnitudes else "but the config does not say use_dora"
        said = f"{where} has {'a' if magnitude is not None else 'no'} lora_magnitude_vector, {config}"
        raise FormatError(said, hint=_AGAIN)
    target = LoraTarget(path, found[f"{kinds[0]}A"], found[f"{kinds[0]}B"], magnitude, kinds[0] == "lora_embedding_")
    down, up = target.down.shape, target.up.shape
    if len(down) < 2 or len(down) != len(up) or 0 in (*down, *up) or up[1] != down[0] or up[2:] != (1,) * len(up[2:]):
        said = f"{where}: A is {list(down)} and B {list(up)}, expected rank × in and out × rank"
        raise FormatError(said, hint=_AGAIN)
    expected = settings.rank_of(path)
    if expected is not None and expected != target.rank:
        raise FormatError(f"{where} has rank {target.rank}, the config says {expected:g}", hint=_AGAIN)
    return target


def _quoted(name: str) -> str:
    return repr(printable(name, 200))


@dataclass(frozen=True, slots=True)
class Renaming:
    """Replacement of one prefix of names, from the adapter's to the base's."""

    old: str = ""
    new: str = ""

    def __call__(self, name: str) -> str:
        """Return the base's name; names without the prefix stay as they are."""
        return self.new + name[len(self.old) :] if name.startswith(self.old) else name


def find_renaming(names: Sequence[str], base: Collection[str], label: str, base_label: str) -> Renaming:
    """Find the adapted tensors in the base, under the adapter's names or with another prefix: classes wrap each other."""
    typical = next((name for name in names if _layer(name) is not None), names[0])
    for renaming in _renamings(typical, base):
        if all(renaming(name) in base for name in names):
            return renaming
    missing = next((name for name in names if name not in base), typical)
    count = sum(name not in base for name in names)
    raise FormatError(
        f"{label}: the adapter changes {_quoted(missing)}, which {printable(base_label)} does not have "
        f"({count} of {len(names)} targets are not there)",
        hint=f"it belongs to another model, or to the same one under other names; {GIVE_BASE}",
    )


def _renamings(name: str, base: Collection[str]) -> Iterable[Renaming]:
    yield Renaming()
    bits = name.split(".")
    for dropped in range(min(len(bits) - 2, MAX_DROPPED)):
        if dropped and _INDEX.fullmatch(bits[dropped - 1]):
            return  # the rest of the name no longer tells the layer
        old, rest = "".join(f"{bit}." for bit in bits[:dropped]), ".".join(bits[dropped:])
        if dropped and rest in base:
            yield Renaming(old)
        longer = [other for other in base if other.endswith(f".{rest}")]
        if len(longer) == 1:
            yield Renaming(old, longer[0].removesuffix(rest))


def _adapted_rows(scale: float, transposed: bool, start: int, stop: int, *parts: Any) -> Array:
    """Compute rows of W + scale·B·A; of W + scale·(B·A)ᵀ where W is stored in × out, or is an embedding (`transposed`)."""
    # A row is the same, bit for bit, whichever others are read with it. With `lengths` rows are scaled to these norms (DoRA).
    weight, one, other, lengths = parts
    flat, rank = weight.reshape(weight.shape[0], -1), one.shape[0 if transposed else 1]
    if transposed:
        left, right = one.T, other.reshape(-1, rank).T
    else:
        left, right = one.reshape(-1, rank), other.reshape(rank, -1)
    right = np.ascontiguousarray(right, dtype=np.float64)
    built = np.empty(flat.shape, np.float64 if weight.dtype == np.float64 else np.float32)
    step = max(1, CHUNK_ELEMENTS // max(1, flat.shape[1]))
    for at in range(0, flat.shape[0], step):
        some = slice(at, at + step)
        total = _low_rank_sum(flat[some], left[some], right, scale)
        if lengths is not None and not transposed:
            total *= _factors(total, lengths[some], axis=1)[:, None]
        built[some] = total
    if lengths is not None and transposed:
        built = (built * _factors(built, lengths, axis=0)).astype(built.dtype)[start:stop]
    return built.reshape(-1, *weight.shape[1:])


def _low_rank_sum(weight: Array, left: Array, right: FloatArray, scale: float) -> FloatArray:
    """Return weight + scale·left·right, term by term: a matrix product adds in an order that depends on the number of rows."""
    product, term, factors = np.zeros(weight.shape), np.empty(weight.shape), left.astype(np.float64)
    for k in range(right.shape[0]):
        np.multiply(factors[:, k, None], right[k], out=term)
        product += term
    product *= scale
    product += weight
    return product


def _factors(values: Array, lengths: Array, *, axis: int) -> FloatArray:
    """Return the factors that scale rows (or columns) to the norms asked for; those of norm zero stay zero."""
    norms = np.sqrt(np.square(values, dtype=np.float64).sum(axis=axis))
    factors = np.zeros(norms.shape)
    np.divide(lengths.reshape(-1), norms, out=factors, where=norms > 0.0)
    return factors


def merge(
    base: Tensors, adapter: Adapter, settings: LoraSettings, *, tied: bool, label: str, base_label: str
) -> tuple[dict[str, Row | TensorInfo], tuple[Text, ...]]:
    """Return the base's tensors with the adapter's changes, and notes; `tied`: without a head the base's embedding is one."""
    targets = {f"{target.path}.weight": target for target in adapter.targets}
    merged = dict(base.stored())
    heads = [name for name in base if name.endswith(_EMBEDDINGS)] if tied else []
    if len(heads) == 1 and "lm_head.weight" in targets and "lm_head.weight" not in merged:
        merged["lm_head.weight"] = base[heads[0]]._replace(name="lm_head.weight")
    renaming = find_renaming(list(targets), merged, label, base_label)
    notes = []
    if renaming != Renaming():
        a, b = repr(renaming.new), repr(renaming.old)
        notes.append(Text("the base's names begin with {a} where the adapter's begin with {b}", a=a, b=b))
    for name, tensor in adapter.replaced.items():
        merged[renaming(name)] = _replacement(tensor, renaming(name), merged, settings, label)
    together = Tensors(merged)
    transposed = _stored_transposed(together, targets, renaming, default=settings.transposed)
    changed = {}
    for name, target in targets.items():
        tensor = together[renaming(name)]
        scale = settings.scale(target.path, target.rank)
        changed[tensor.name] = _adapted(tensor, target, scale, label, transposed=transposed)
    if len(changed) != len(targets):
        raise FormatError(f"{label}: two parts of the adapter change the same tensor of its base", hint=_AGAIN)
    return merged | changed, tuple(notes)


def _replacement(
    tensor: TensorInfo, name: str, base: Mapping[str, Row | TensorInfo], settings: LoraSettings, label: str
) -> TensorInfo:
    """Return a tensor that replaces one of the base; a vocabulary may have grown, a head may be new."""
    known = base.get(name)
    if known is None and not set(name.split(".")) & set(settings.saved) and name != "lm_head.weight":
        raise FormatError(
            f"{label}: the adapter stores {_quoted(name)} whole, which its base does not have and modules_to_save does not name",
            hint=f"it belongs to another model; {GIVE_BASE}",
        )
    if known is not None and known[2][1:] != tensor.shape[1:]:
        said = f"{label}: the adapter stores {_quoted(name)} as {list(tensor.shape)}, its base as {list(known[2])}"
        raise FormatError(said, hint=f"it belongs to another model; {GIVE_BASE}")
    return tensor._replace(name=name)


def _stored_transposed(base: Tensors, targets: Mapping[str, LoraTarget], renaming: Renaming, *, default: bool) -> bool:
    """Whether matrices are stored in × out: by their shapes where these differ, else by the setting, which is often wrong."""
    seen = set()
    for name, target in targets.items():
        shape, form = base[renaming(name)].shape, (target.up.shape[0], target.down.shape[1])
        if not target.embedding and form[0] != form[1] and len(shape) == 2:
            seen.add(shape != form)
    return seen.pop() if len(seen) == 1 else default


def _adapted(weight: TensorInfo, target: LoraTarget, scale: float, label: str, *, transposed: bool) -> TensorInfo:
    where, down, up = f"{label}: {_quoted(target.path)}", target.down, target.up
    if weight.made is None and weight.dtype in ITEM_BYTES and weight.dtype not in FLOATS:
        said = f"{where}: its base stores {_quoted(weight.name)} as {weight.dtype}, expected floats or a known quantisation"
        raise UnsupportedDtype(said, hint="give a base that is not quantised, with --base MODEL")
    straight: tuple[int, ...] = (up.shape[0], *down.shape[1:])
    across: tuple[int, ...] = (down.shape[1], up.shape[0])
    flat = len(down.shape) == 2
    if target.embedding or (flat and weight.shape == across and (transposed or across != straight)):
        expected, transposed = across, True
    else:
        expected, transposed = straight, False
    if weight.shape != expected:
        raise FormatError(
            f"{where}: A is {list(down.shape)} and B {list(up.shape)}, which fit a matrix {list(expected)}; "
            f"its base has {list(weight.shape)}",
            hint=f"the adapter belongs to another model; {GIVE_BASE}",
        )
    magnitude = target.magnitude
    if magnitude is not None:
        if target.embedding or not flat:
            raise FormatError(f"{where}: DoRA of embeddings and convolutions is not known", hint=MERGE)
        if magnitude.elements != up.shape[0]:
            said = f"{where}: its lora_magnitude_vector is {list(magnitude.shape)}, expected [{up.shape[0]}]"
            raise FormatError(said, hint=_AGAIN)
    dtype = "F64" if weight.dtype == "F64" else "F32"  # the sum is no longer a number of the base's format
    # rows of W and of one factor, and the other factor whole; norms of columns need all rows
    every = transposed and magnitude is not None
    first: Input = (down, entire if every else columns) if transposed else (up, by_row)
    parts = (weight, entire if every else by_row), first, (up if transposed else down, entire)
    decode = partial(_adapted_rows, scale, transposed)
    return made_of(weight.name, dtype, None, weight.shape, decode, *parts, (magnitude, entire if every else by_element))
