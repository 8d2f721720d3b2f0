"""Write whole safetensors files, and cut tensors into shards."""

from collections.abc import Mapping
from pathlib import Path

from kinprint.formats.safetensors.writer import Fill, TensorSpec, encode, layout


def write_dense(
    path: Path, specs: Mapping[str, TensorSpec], *, fill: Fill | None = None, metadata: Mapping[str, str] | None = None
) -> int:
    """Write a whole file; return its size."""
    head, offsets = layout(specs, metadata)
    with path.open("wb") as stream:
        stream.write(head)
        for name in offsets:
            stream.write(encode(name, specs[name], fill))
        return stream.tell()


def split_shards(sizes: Mapping[str, int], shards: int) -> list[list[str]]:
    """Cut tensors, in the order given, into consecutive shards of about equal bytes, none empty. Raise ValueError if too few."""
    names = list(sizes)
    if not 1 <= shards <= len(names):
        raise ValueError(f"cannot cut {len(names)} tensors into {shards} shards")
    total = sum(sizes.values())
    cut: list[list[str]] = [[]]
    done = 0
    for position, name in enumerate(names):
        left = len(names) - position
        open_shards = shards - len(cut)
        full = done + sizes[name] / 2 >= total * len(cut) / shards
        if cut[-1] and open_shards and (full or left <= open_shards):
            cut.append([])
        cut[-1].append(name)
        done += sizes[name]
    return cut
