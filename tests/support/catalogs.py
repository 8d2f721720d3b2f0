"""Items of catalogs: synthetic entries, with fingerprint files that are whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinprint.catalog.entry import Entry, Item, Vectors, key_of
from kinprint.fingerprints.base import Features
from kinprint.fingerprints.file import SCHEMA, SCHEMA_VERSION, Description, Fingerprint, MethodEntry, to_bytes
from kinprint.fingerprints.recall import FAMILIES

ADDED = "2026-11-18T07:00:00Z"


def unit(rng: np.random.Generator, width: int) -> NDArray[np.float32]:
    """Return a random direction."""
    drawn = rng.standard_normal(width)
    return (drawn / np.linalg.norm(drawn)).astype(np.float32)


def some_vectors(seed: int, *families: str) -> Vectors:
    """Return random vectors of the families named, or of all."""
    rng = np.random.default_rng([41, seed])
    drawn = {family: unit(rng, width) for family, width in FAMILIES.items()}
    return {family: drawn[family] for family in families or FAMILIES}


def make_item(seed: int = 0, name: str | None = None, vectors: Vectors | None = None, **changed: Any) -> Item:
    """Return a synthetic item; entries of other seeds have other names, files and vectors."""
    label = name if name is not None else f"maker/model-{seed}"
    rng = np.random.default_rng([42, seed])
    features = Features("synthetic", 1, {"values": rng.integers(0, 256, 64, dtype=np.uint8)}, {})
    known: dict[str, Any] = {
        "revision": f"{seed:040x}",
        "architecture": ("llama", "qwen2")[seed % 2],
        "layers": 4,
        "hidden": 96,
        "parameters": 1000 + seed,
        "files": (("model.safetensors", f"etag:{seed}"),),
    }
    record = {"licence": "mit", "declared_bases": (), "added": ADDED, "made_by": "kinprint 0.1.0"}
    told = known | {field: value for field, value in changed.items() if field in known}
    description = Description(
        schema=SCHEMA,
        schema_version=SCHEMA_VERSION,
        made_by="kinprint 0.1.0",
        model=label,
        commit=told.pop("revision"),
        methods=(MethodEntry("synthetic", 1, ()),),
        **told,
    )
    raw = to_bytes(Fingerprint(description, {"synthetic": features}))
    entry = Entry(key=key_of(raw), name=label, **known, **record)  # type: ignore[arg-type]
    return Item(replace(entry, **changed), raw, some_vectors(seed) if vectors is None else vectors)
