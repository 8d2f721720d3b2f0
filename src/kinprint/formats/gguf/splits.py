"""Check that the parts of a split GGUF file belong to one model.

Only the first part says what the model is; all of them say which part they are, and how many parts and tensors there are. So
parts of different models show by counts that do not add up, by layers that the model does not have, or by norms of another width.
Two models of one form, split alike, do not show.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kinprint.errors import FormatError
from kinprint.formats.format import Shard
from kinprint.formats.gguf.metadata import Metadata
from kinprint.formats.tensors import Row, TensorInfo

PART = re.compile(r"-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf$", re.IGNORECASE)
_BLOCK = re.compile(r"^blk\.(?P<layer>\d{1,9})\.")
_NORM = re.compile(r"^blk\.\d{1,9}\.(?:attn_norm|ffn_norm)\.weight$")
_APART = (
    "the parts come from different models, or from different splits of one; fetch all of them again, from one place"
)


@dataclass(frozen=True, slots=True)
class SplitPart:
    """What one part of a split file says about itself and the model; None where it says nothing."""

    number: int  # from 1
    count: int
    tensors: int
    total: int | None  # tensors of all parts, as stated
    architecture: str | None  # the model, which the first part describes and others may
    layers: int | None
    width: int | None


def part_of(metadata: Metadata, tensors: int, label: str) -> SplitPart | None:
    """Return which part a file is, None for a whole one. Refuse a file whose name says otherwise."""
    count, number = metadata.number("split.count"), metadata.number("split.no")
    found = PART.search(label)
    if not isinstance(count, int) or count < 2:
        if found is not None and int(found["count"]) > 1:
            raise FormatError(
                f"{label}: its name says part {int(found['number'])} of {int(found['count'])}, its metadata that it is whole",
                hint="give the file another name, if it is a whole model; or fetch the part again",
            )
        return None
    stated = (number + 1 if isinstance(number, int) else None, count)
    named = (int(found["number"]), int(found["count"])) if found else None
    if named is None or named != stated:
        raise FormatError(
            f"{label}: its metadata says part {stated[0]} of {count}, its name "
            + (f"part {named[0]} of {named[1]}" if named else "does not end in -00001-of-00002.gguf or the like"),
            hint="give the parts the names they were published with, and keep them together",
        )
    kind = metadata.text("general.architecture")
    keys = ("split.tensors.count", f"{kind or ''}.block_count", f"{kind or ''}.embedding_length")
    total, layers, width = (number if isinstance(number, int) else None for number in map(metadata.number, keys))
    return SplitPart(*named, tensors, total, kind, layers, width)


def check_parts(shards: Sequence[Shard]) -> None:
    """Refuse parts that do not make one model, naming two that contradict each other."""
    parts = [(shard, shard.part) for shard in shards if isinstance(shard.part, SplitPart)]
    if len(parts) < 2:
        return
    first, said = parts[0]
    for shard, part in parts[1:]:
        for what, one, other in (
            ("parts", said.count, part.count),
            ("tensors in all", said.total, part.total),
            ("the architecture", said.architecture, part.architecture),
            ("layers", said.layers, part.layers),
            ("a width", said.width, part.width),
        ):
            if one is not None and other is not None and one != other:
                raise _not_one_model(first, shard, f"the one says {_named(what, one)}, the other {_named(what, other)}")
    layers = next((part.layers for _, part in parts if part.layers is not None), None)
    width = next((part.width for _, part in parts if part.width is not None), None)
    for shard, _ in parts:
        if (problem := _unfitting_tensor(shard.rows, layers, width)) is not None:
            speaker = next((one for one, part in parts if part.layers is not None or part.width is not None), first)
            raise _not_one_model(speaker, shard, problem)
    stored = sum(part.tensors for _, part in parts)
    total = next((part.total for _, part in parts if part.total is not None), None)
    if total is not None and stored != total:
        wrong = f"{_short(first)} to {_short(parts[-1][0])}: {len(parts)} parts with {stored} tensors in all; they say {total}"
        raise FormatError(wrong, hint=_APART)


def _unfitting_tensor(rows: Mapping[str, Row | TensorInfo], layers: int | None, width: int | None) -> str | None:
    """Say which tensor of a part does not fit a model with so many layers and this width."""
    for name, row in rows.items():
        block = _BLOCK.match(name)
        if block is not None and layers is not None and int(block["layer"]) >= layers:
            return f"the one says {layers} layers, the other holds {name[:100]!r}"
        if width is not None and _NORM.match(name) and row[2] not in ((width,), (1, width)):
            return f"the one says a width of {width}, the other holds {name[:100]!r} of shape {list(row[2])}"
    return None


def _named(what: str, value: int | str) -> str:
    if isinstance(value, str):
        return f"{what} {value!r:.60}"
    return f"{what} of {value}" if what[:2] == "a " else f"{value} {what}"


def _not_one_model(one: Shard, other: Shard, why: str) -> FormatError:
    return FormatError(f"{_short(one)} and {_short(other)} do not belong together: {why}", hint=_APART)


def _short(shard: Shard) -> str:
    return shard.source.label.rsplit("/", 1)[-1]
