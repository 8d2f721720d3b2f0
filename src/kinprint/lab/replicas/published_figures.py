"""Read the published numbers by model, kind of norm or projection, and layer."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

INPUT = "input_norm"
POST = "post_attention_norm"
KINDS = (INPUT, POST)
STORED = {INPUT: "input_layernorm", POST: "post_attention_layernorm"}
CATEGORY = {INPUT: "norm_pre", POST: "norm_post"}
HW_NAMES = {"solar": "Solar", "glm": "GLM", "phi": "Phi"}
HW_LAYERS = (10, 20, 30)
MIXED_LAYERS = {"solar": 10, "glm": 20, "phi": 30}

Vector = tuple[str, str, int]  # one norm vector or projection: model, kind, layer


@cache
def published() -> dict[str, Any]:
    """Return the bundled table of published numbers."""
    path = Path(__file__).resolve().parents[2] / "studies" / "published.json"
    table: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return table


def hw_pairs(metric: str, kinds: tuple[str, ...] = KINDS) -> Iterator[tuple[str, Vector, Vector, float]]:
    """Yield (matrix, first, second, value) of a hyunwoongko metric, for kinds of norms or projections ("k_proj")."""
    hw = published()["hyunwoongko"]
    for kind in kinds:
        stored = STORED.get(kind, kind)
        for layer in HW_LAYERS:
            for pair, value in hw["confusion_same_layer"][metric][str(layer)][stored].items():
                a, b = pair.split("_")
                yield "same", (HW_NAMES[a], kind, layer), (HW_NAMES[b], kind, layer), value
        for pair, value in hw["confusion_mixed_s10_g20_p30"][metric][stored].items():
            a, b = pair.split("_")
            yield "mixed", (HW_NAMES[a], kind, MIXED_LAYERS[a]), (HW_NAMES[b], kind, MIXED_LAYERS[b]), value
        for model, name in HW_NAMES.items():
            for pair, value in hw["within_model"][metric][model][stored].items():
                first, second = (int(layer) for layer in pair.split("_"))
                yield "within", (name, kind, first), (name, kind, second), value


def console_pairs(model: str) -> Iterator[tuple[str, int, int, float]]:
    """Yield (kind, layer, layer, cosine) of hyunwoongko's console figures for one model."""
    for cell, value in published()["hyunwoongko"]["console"][model].items():
        kind, first, second = cell.split("_")
        yield {"in": INPUT, "post": POST}[kind], int(first), int(second), value
