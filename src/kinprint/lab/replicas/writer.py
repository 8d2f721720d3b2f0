"""Write replicas as sparse checkpoints with real names, shapes and shards, filled where the studies read."""

import json
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from kinprint._util.progress import Progress, quiet
from kinprint.errors import BadSelection
from kinprint.formats.safetensors.writer import TensorSpec, layout, to_bf16
from kinprint.lab.replicas import matrices
from kinprint.lab.replicas.design import Norms
from kinprint.lab.replicas.matrices import Piece
from kinprint.lab.replicas.noise import Bits
from kinprint.lab.replicas.published_figures import KINDS
from kinprint.lab.replicas.shapes import NAMES, SHAPES, config_of, norm_name, tensors_of
from kinprint.lab.replicas.tokenizers import make_tokenizers
from kinprint.lab.safetensors_files import split_shards

PARTS = ("norms", "attention", "windows", "routers", "embeddings", "tokenizers")

_HOLDERS = {
    "norms": NAMES,
    "attention": ("Solar", "GLM", "Phi"),
    **dict.fromkeys(("windows", "embeddings"), ("Solar", "GLM")),
    **dict.fromkeys(("routers", "tokenizers"), ("Solar", "GLM", "INTELLECT")),
}


class _TensorStart(NamedTuple):
    path: Path
    offset: int
    spec: TensorSpec


class _Folder:
    """A checkpoint whose files exist and are all hole, to be filled piece by piece."""

    def __init__(self, root: Path, name: str, parts: Collection[str], seed: int) -> None:
        self.path = root / SHAPES[name].repo
        self.path.mkdir(parents=True, exist_ok=True)
        self._places: dict[str, _TensorStart] = {}
        specs = tensors_of(name)
        cut = split_shards({tensor: spec.nbytes for tensor, spec in specs.items()}, SHAPES[name].shards)
        for number, tensors in enumerate(cut, 1):
            file = f"model-{number:05d}-of-{len(cut):05d}.safetensors"
            self._make(file, {tensor: specs[tensor] for tensor in tensors})
        self._write_index(specs)
        self.write("config.json", json.dumps(config_of(name) | {"synthetic": True}, indent=2).encode() + b"\n")
        self.write("README.md", _readme(name, parts, seed).encode())

    @property
    def tensors(self) -> list[str]:
        """Names of all tensors."""
        return list(self._places)

    def _make(self, file: str, specs: Mapping[str, TensorSpec]) -> None:
        head, offsets = layout(specs, {"format": "pt"})
        path = self.path / file
        with path.open("wb") as stream:
            stream.write(head)
            stream.truncate(len(head) + sum(spec.nbytes for spec in specs.values()))
        for tensor, offset in offsets.items():
            self._places[tensor] = _TensorStart(path, offset, specs[tensor])

    def _write_index(self, specs: Mapping[str, TensorSpec]) -> None:
        total = sum(spec.nbytes for spec in specs.values())
        places = {tensor: self._places[tensor].path.name for tensor in sorted(specs)}
        index = {"metadata": {"total_size": total}, "weight_map": places}
        self.write("model.safetensors.index.json", orjson.dumps(index, option=orjson.OPT_INDENT_2))

    def write(self, file: str, content: bytes) -> None:
        """Write a small file."""
        (self.path / file).write_bytes(content)

    def put(self, piece: Piece) -> None:
        """Store values in place. Raise ValueError if they do not fit, or are not of the tensor's type."""
        place = self._places[piece.tensor]
        wanted = np.dtype("<u2" if place.spec.dtype == "BF16" else "<f4")
        if piece.values.dtype != wanted or piece.start + piece.values.size > place.spec.count:
            raise ValueError(
                f"{piece.tensor}: {piece.values.size} values of {piece.values.dtype} from element {piece.start} on; "
                f"expected {wanted}, {place.spec.count} in all"
            )
        content = np.ascontiguousarray(piece.values).view(np.uint8).data
        with place.path.open("r+b", buffering=0) as stream:
            stream.seek(place.offset + piece.start * wanted.itemsize)
            if stream.write(content) != len(content):
                raise OSError(f"{place.path}: only part of {piece.tensor} could be written")


def _readme(name: str, parts: Collection[str], seed: int) -> str:
    filled = ", ".join(part for part in PARTS if part in parts) or "nothing"
    return (
        f"# Synthetic statistical replica of {SHAPES[name].repo}: these are not that model's weights\n\n"
        "Names, shapes, shards and config are the model's. Values are random numbers made to have statistics that were\n"
        "published about it; whatever no study reads is a hole and reads as zero. It cannot be run as a model.\n\n"
        f"Filled: {filled}. Seed {seed}. Written by kinprint.\n"
    )


def norm_vectors(seed: int) -> Norms:
    """Return the block norms of the studied models."""
    from kinprint.lab.replicas.norms import replica_norms  # here, because it solves for seconds when called

    return replica_norms(seed)


def norm_pieces(folders: Mapping[str, _Folder], seed: int) -> Iterator[Piece]:
    """Give every norm: those of blocks as published, all others near one; biases near zero."""
    solved = norm_vectors(seed)
    for name, folder in folders.items():
        block: dict[str, NDArray[Any]] = {}
        for kind in KINDS:
            rows = solved.get((name, kind))
            if rows is None:  # nothing was published: the model is there to be of another width
                rows = _plain_norms(name, kind, seed)
            block |= {norm_name(name, kind, layer): row for layer, row in enumerate(rows)}
        for tensor in folder.tensors:
            values = block.get(tensor)
            if values is None and tensor.endswith(("norm.weight", "norm.bias")):
                values = _other_norm(name, tensor, seed)
            if values is not None:
                yield Piece(name, tensor, 0, to_bf16(values))


def _generator(seed: int, name: str, tensor: str) -> np.random.Generator:
    return np.random.default_rng([seed, zlib.crc32(f"{name} {tensor}".encode())])


def _plain_norms(name: str, kind: str, seed: int) -> NDArray[Any]:
    shape = SHAPES[name]
    rng = _generator(seed, name, kind)
    depth = np.linspace(0.2, 1.2, shape.layers)[:, None]
    channels = rng.standard_normal(shape.hidden)
    return np.asarray(depth * np.exp(0.1 * channels + 0.1 * rng.standard_normal((shape.layers, shape.hidden))))


def _other_norm(name: str, tensor: str, seed: int) -> NDArray[Any]:
    shape = SHAPES[name]
    size = shape.hidden
    if tensor.endswith((".q_norm.weight", ".k_norm.weight")):
        size = shape.head_dim
    elif tensor.endswith(".kv_a_layernorm.weight"):
        size = shape.config["kv_lora_rank"]
    noise = _generator(seed, name, tensor).standard_normal(size)
    return np.asarray(0.01 * noise if tensor.endswith("bias") else 1 + 0.05 * noise)


def _router_windows(seed: int) -> Iterator[Piece]:
    """Give the routers where the window probe reads them, and nowhere else."""
    for piece in matrices.router_pieces(seed):
        layer = int(piece.tensor.split(".")[2])
        if piece.model in _HOLDERS["windows"] and 1 <= layer < SHAPES["GLM"].layers:
            for start, stop in matrices.window_runs(piece.tensor):
                yield Piece(piece.model, piece.tensor, start, piece.values[start:stop])


def _fill(folders: Mapping[str, _Folder], part: str, parts: Collection[str], seed: int, whole: dict[Any, Bits]) -> None:
    """Write one part; ``whole`` keeps the attention matrices, whose windows the window part must not draw again."""
    routers = iter(()) if "routers" in parts else _router_windows(seed)
    pieces: dict[str, tuple[Iterator[Piece], ...]] = {  # generators: nothing is made until it is asked for
        "norms": (norm_pieces(folders, seed),),
        "attention": (matrices.attention_pieces(seed),),
        "windows": (matrices.window_pieces(seed, whole), matrices.bias_pieces(seed), routers),
        "routers": (matrices.router_pieces(seed), matrices.bias_pieces(seed)),
        "embeddings": (matrices.embedding_pieces(seed),),
    }
    for piece in chain.from_iterable(pieces[part]):
        if piece.model in folders:
            folders[piece.model].put(piece)
        if part == "attention" and "windows" in parts and piece.model in _HOLDERS["windows"]:
            whole[piece.model, piece.tensor] = piece.values


def _write_tokenizers(folders: Mapping[str, _Folder], seed: int) -> None:
    both = make_tokenizers(seed)
    for name in _HOLDERS["tokenizers"]:
        if name in folders:
            folders[name].write("tokenizer.json", orjson.dumps(both.solar if name == "Solar" else both.glm))


def write_replicas(
    root: Path,
    names: Sequence[str] | None = None,
    *,
    parts: Collection[str] = PARTS,
    seed: int = 0,
    progress: Progress = quiet,
) -> dict[str, Path]:
    """Write replicas of the studied models under ``root/<hub id>``; return the folder of each.

    The filesystem of `root` must hold sparse files (all replicas together appear to be 1.4 TB). `names` are out of `NAMES`;
    `parts`, out of `PARTS`, are filled, and all else is a hole. Same seed, same bytes: values do not depend on `names`, and on
    `parts` in one place: with "attention", the windows of k and v at layers 10, 20 and 30 are those of the whole matrices.
    Raise BadSelection if a name or a part does not exist.
    """
    chosen = tuple(dict.fromkeys(NAMES if names is None else names))
    for kind, given, known in (("model", chosen, NAMES), ("part", tuple(parts), PARTS)):
        unknown = next((item for item in given if item not in known), None)
        if unknown is not None:
            raise BadSelection(f"there is no replica {kind} {unknown!r}: expected {', '.join(known)}")
    steps = [part for part in PARTS if part in parts and set(_HOLDERS[part]) & set(chosen)]
    total = len(chosen) + len(steps)
    folders: dict[str, _Folder] = {}
    for number, name in enumerate(chosen):
        progress(f"replica of {name}", number, total)
        folders[name] = _Folder(root, name, parts, seed)
    whole: dict[Any, Bits] = {}
    for number, part in enumerate(steps, len(chosen)):
        progress(f"replica {part}", number, total)
        if part == "tokenizers":
            _write_tokenizers(folders, seed)
        else:
            _fill(folders, part, steps, seed, whole)
        if part == "windows":
            whole.clear()
    progress("replicas", total, total)
    return {name: folder.path for name, folder in folders.items()}
