"""Read a few slices of each model, for merges and kurtosis, and the parents that card and config declare."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from kinprint._util.numeric import FloatArray, evenly_spaced
from kinprint.arch import Role
from kinprint.comparison.declarations import read_declaration
from kinprint.evidence.facts import shared_fields
from kinprint.evidence.reading import read_probe
from kinprint.model.cards import SHOWN
from kinprint.model.model import Model
from kinprint.model.reader import Want
from kinprint.tree.facts import CARD, CONFIG, ModelFacts

ROLES = (Role.ATTN_V, Role.ATTN_O, Role.MLP_UP, Role.MLP_DOWN, Role.MLP_GATE, Role.SHARED_UP, Role.ATTN_KV_A)
LAYERS = 3
ELEMENTS = 1 << 14  # of one matrix
ALLOWANCE = 16_000_000
"""Bytes that the sample of one model may take. Rows cost little; storage by columns makes a matrix be read whole."""


@dataclass(frozen=True)
class ModelSample:
    """What was read of one model."""

    facts: ModelFacts
    slices: Mapping[str, FloatArray]
    pinned: str  # reference with the commit that was opened, so that all pairs see the same weights


def sample_model(model: Model, name: str, pinned: str, allowance: int | None = ALLOWANCE) -> ModelSample:
    """Read leading rows of a few matrices of up to three layers, the card and the config."""
    slices = _read(model, allowance)
    facts = ModelFacts(
        **shared_fields(model.summary(), ModelFacts),
        name=name,
        kurtosis={key: found for key, values in slices.items() if (found := kurtosis(values)) is not None},
        declares=tuple(_declared(model)),
    )
    return ModelSample(facts, slices, pinned)


def _read(model: Model, allowance: int | None) -> dict[str, FloatArray]:
    layers = sorted({key[1] for key in model.parts if key[1] is not None})
    wants = []
    for layer in evenly_spaced(layers, LAYERS, at="ends"):
        for role in ROLES:
            part = model.parts.get((role, layer, None))
            if part is None or len(part.shape) != 2 or 0 in part.shape:
                continue
            rows = min(part.shape[0], max(1, ELEMENTS // part.shape[1]))
            wants.append(Want(role, layer, rows=None if rows == part.shape[0] else (0, rows)))
    return {
        f"{role.value} {layer} of {model.naming.layers}": sample.values[:, : max(1, ELEMENTS // sample.stored.shape[0])]
        for (role, layer, _), sample in read_probe(model, wants, allowance).samples.items()
        if sample.finite
    }


def kurtosis(values: FloatArray) -> float | None:
    """Return the fourth standardised moment; 3 for a normal distribution, None for constants."""
    centred = values - values.mean()
    variance = float(np.mean(np.square(centred)))
    if variance <= 0.0:
        return None
    return float(np.mean(np.square(np.square(centred)))) / variance**2


def _declared(model: Model) -> Iterator[tuple[str, str]]:
    """Return what the config and the card name as the model's origin, and where."""
    path = model.checkpoint.config.get("_name_or_path")
    if isinstance(path, str) and path.strip():
        yield CONFIG, path.strip()[:SHOWN]
    for name in read_declaration(model).base_models:
        yield CARD, name
