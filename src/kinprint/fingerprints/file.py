"""Write and read fingerprint files: features of one model in a small safetensors file with a description and a digest.

A maker can publish one, and others compare without the weights. docs/fingerprints.md describes the format for other programs.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from kinprint._util.files import read_whole, write_whole
from kinprint._util.progress import Progress, quiet
from kinprint._version import __version__
from kinprint.errors import BudgetExceeded, DegenerateInput, FileTooLarge, FormatError, NeedsExtra, NotFound
from kinprint.fingerprints.base import Features, Method, PortableMethod, check_needs
from kinprint.formats.safetensors.parser import parse_header
from kinprint.formats.safetensors.writer import STORAGE, encode, layout, spec_of
from kinprint.model.weights import Weights
from kinprint.results.plain_json import read_json
from kinprint.text import Text

SUFFIX = ".kfp"
SCHEMA, SCHEMA_VERSION = "kinprint.fingerprint", 1
FILE_CAP = 64 << 20  # bytes of the largest file that is opened; real ones have kilobytes to a few megabytes
_HEADER_CAP = 1 << 20
_LENGTH = 8


@dataclass(frozen=True)
class MethodEntry:
    """One method in a file: version, scalars (each as text, number or integer), or the reason for having no features."""

    method: str
    version: int
    facts: tuple[tuple[str, str], ...]
    reason: str | None = None


@dataclass(frozen=True)
class Description:
    """Description of a fingerprint and of the model that it was made from."""

    schema: str
    schema_version: int
    made_by: str
    model: str
    architecture: str
    layers: int
    hidden: int
    parameters: int
    commit: str | None
    files: tuple[tuple[str, str], ...]  # name and identity of every weight file
    methods: tuple[MethodEntry, ...]
    digest: str = ""


@dataclass(frozen=True)
class Fingerprint:
    """A fingerprint in memory."""

    description: Description
    features: Mapping[str, Features]


def extract_features(
    model: Weights, methods: Sequence[Method], tell: Progress = quiet
) -> tuple[dict[str, Features], dict[str, Text]]:
    """Return what portable methods keep of a model, and for the others why they have nothing."""
    found: dict[str, Features] = {}
    reasons: dict[str, Text] = {}
    for done, method in enumerate(methods):
        tell("methods", done, len(methods))
        if not isinstance(method, PortableMethod):
            reasons[method.name] = Text("it needs the weights of both models at once")
            continue
        try:
            check_needs(method, model)
            found[method.name] = method.extract(model)
        except (DegenerateInput, BudgetExceeded, NeedsExtra) as error:
            reasons[method.name] = error.reason
    return found, reasons


def describe(
    model: Weights,
    features: Mapping[str, Features],
    reasons: Mapping[str, str],
    *,
    parameters: int = 0,
    commit: str | None = None,
    files: Sequence[tuple[str, str]] = (),
) -> Fingerprint:
    """Make a fingerprint of features."""
    entries = []
    for name, item in features.items():
        facts = tuple((key, orjson.dumps(value).decode()) for key, value in sorted(item.facts.items()))
        entries.append(MethodEntry(name, item.version, facts))
    entries += [MethodEntry(name, 0, (), reason) for name, reason in reasons.items()]
    description = Description(
        schema=SCHEMA,
        schema_version=SCHEMA_VERSION,
        made_by=f"kinprint {__version__}",
        model=model.label,
        architecture=model.naming.architecture,
        layers=model.layers,
        hidden=model.hidden,
        parameters=parameters,
        commit=commit,
        files=tuple(files),
        methods=tuple(entries),
    )
    return Fingerprint(description, features)


def to_bytes(fingerprint: Fingerprint) -> bytes:
    """Return the file: the same fingerprint gives the same bytes."""
    specs = {
        f"{name}/{key}": spec_of(np.ascontiguousarray(array))
        for name, item in sorted(fingerprint.features.items())
        for key, array in sorted(item.arrays.items())
    }
    description = replace(fingerprint.description, digest="")
    digest = _digest(description, {name: (spec.dtype, spec.shape, encode(name, spec)) for name, spec in specs.items()})
    text = orjson.dumps(replace(description, digest=digest)).decode()
    head, offsets = layout(specs, {SCHEMA: text})
    return head + b"".join(encode(name, specs[name]) for name in offsets)


def _digest(description: Description, tensors: Mapping[str, tuple[str, tuple[int, ...], bytes]]) -> str:
    total = hashlib.sha256(orjson.dumps(description))
    for name in sorted(tensors):
        dtype, shape, raw = tensors[name]
        total.update(orjson.dumps([name, dtype, list(shape)]))
        total.update(raw)
    return f"sha256:{total.hexdigest()}"


def write_fingerprint(path: Path, fingerprint: Fingerprint) -> int:
    """Write a fingerprint, whole or not at all; return its size."""
    data = to_bytes(fingerprint)
    write_whole(path, data)
    return len(data)


def read_fingerprint(path: Path) -> Fingerprint:
    """Read a fingerprint file, hostile or not: everything is checked against the file's size and the digest."""
    try:
        return from_bytes(read_whole(path, FILE_CAP), path.name)
    except FileTooLarge as error:
        raise FormatError(error.message, hint="this is no fingerprint file") from error
    except OSError as error:
        said = f"cannot read the fingerprint {path}: {error.strerror}"
        raise NotFound(said, hint="kinprint fingerprint MODEL makes one") from error


def from_bytes(raw: bytes, label: str) -> Fingerprint:
    """Read a fingerprint from its bytes."""
    length = int.from_bytes(raw[:_LENGTH], "little")
    if len(raw) < _LENGTH or length > min(_HEADER_CAP, len(raw) - _LENGTH):
        raise FormatError(f"{label}: not a fingerprint, or truncated", hint="make it again with kinprint fingerprint")
    header = raw[_LENGTH : _LENGTH + length]
    rows, metadata = parse_header(header, file=0, file_size=len(raw), label=label)
    text = metadata.get(SCHEMA)
    if text is None:
        said = f"{label}: a safetensors file without a fingerprint's description"
        raise FormatError(said, hint="compare it as a model instead")
    what = f"the description of {label}, a fingerprint,"
    description = read_json(Description, text.encode(), what, SCHEMA, (SCHEMA_VERSION,))
    contents = {name: (dtype, shape, raw[start:end]) for name, dtype, shape, _, start, end, *_ in rows}
    if _digest(replace(description, digest=""), contents) != description.digest:
        said = f"{label}: the digest does not match: the file was changed"
        raise FormatError(said, hint="fetch it again from its maker")
    features: dict[str, Features] = {}
    own: dict[str, dict[str, NDArray[Any]]] = {}
    for name, part in contents.items():
        method, _, key = name.partition("/")
        own.setdefault(method, {})[key] = _array(*part, label)
    for entry in [entry for entry in description.methods if entry.reason is None]:
        if entry.method in features:
            raise FormatError(f"{label}: the method {entry.method[:80]!r} stands there twice")
        features[entry.method] = Features(entry.method, entry.version, own.get(entry.method, {}), _facts(entry, label))
    return Fingerprint(description, features)


def _facts(entry: MethodEntry, label: str) -> dict[str, int | float | str]:
    facts: dict[str, int | float | str] = {}
    for key, text in entry.facts:
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise FormatError(f"{label}: {entry.method}: {key[:80]!r} is not a value") from error
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise FormatError(f"{label}: {entry.method}: {key[:80]!r} is neither a number nor a text")
        facts[key] = value
    return facts


def _array(dtype: str, shape: tuple[int, ...], data: bytes, label: str) -> NDArray[Any]:
    """Return a tensor as stored; one that holds NaN or infinity is refused, since every statistic would carry it on."""
    if dtype not in STORAGE or dtype.startswith(("BF", "F8", "C")):
        raise FormatError(f"{label}: a fingerprint does not hold {dtype}")
    array = np.frombuffer(data, dtype=STORAGE[dtype]).reshape(shape)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise FormatError(f"{label}: a tensor holds values that are not finite")
    return array
