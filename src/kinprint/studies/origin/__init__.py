"""The first accusation, as an audit: everything it measured, each figure beside the null, control or baseline that it lacked."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from kinprint.arch import Role
from kinprint.model.reader import Want
from kinprint.studies.opened import ModelWant, StudyRun
from kinprint.studies.origin.baselines import deviation_cosine, random_baselines
from kinprint.studies.origin.config import configs
from kinprint.studies.origin.decay import decay as decay_part
from kinprint.studies.origin.embeddings import embeddings as embeddings_part
from kinprint.studies.origin.layers import controls, layer_probe
from kinprint.studies.origin.probe import window_probe
from kinprint.studies.origin.routers import routers as routers_part
from kinprint.studies.origin.shared import EVERY, NORMS
from kinprint.studies.origin.sigma import sigma_audit
from kinprint.studies.origin.vocabulary import tokenizers, vocabulary_map
from kinprint.studies.recipe import Part, Study
from kinprint.text import Text


def _wants(run: StudyRun) -> Iterable[ModelWant]:
    for name, role in itertools.product(run.names, NORMS):
        yield from ((name, Want(role, layer)) for layer in run.layers(name, role))
    # Two parts look at routers, which are small, and each control is held against both models: they are kept.
    first = run.names[:2]
    for name in run.names:
        layers = run.layers(name, Role.ROUTER)
        if name in first:
            wanted = set(layers)
        else:
            shared = [[layer for layer in layers if run.holds(other, Role.ROUTER, layer)] for other in first]
            wanted = {layer for common in shared for layer in common[::EVERY]}
        yield from ((name, Want(Role.ROUTER, layer)) for layer in sorted(wanted))


STUDY = Study(
    name="origin",
    title=Text("The first accusation, audited"),
    summary=Text(
        "Layer probe, window probe, “182 sigma”, random baselines, deviation cosine, decay, routers, configs, "
        "tokenizers and embeddings of two models (A and B), as first published, each beside the null, the control or "
        "the baseline that was missing."
    ),
    source=Text(
        "the first analysis of Solar-Open-100B and GLM-4.5-Air (January 2026, later withdrawn), which "
        "sionic-ai/solar-vs-glm refers to"
    ),
    models=("Solar", "GLM", "INTELLECT", "Phi", "DeepSeek-V2-Lite", "Qwen2.5-72B"),
    wants=_wants,
    parts=(
        Part("layers", Text("Layer probe"), layer_probe),
        Part("controls", Text("Controls"), controls),
        Part("sigma", Text("“182 sigma”"), sigma_audit),
        Part("baselines", Text("Random baselines"), random_baselines),
        Part("deviation", Text("Deviation cosine"), deviation_cosine),
        Part("decay", Text("Decay and diagonal dominance"), decay_part),
        Part("routers", Text("Routers and experts"), routers_part),
        Part("windows", Text("Window probe"), window_probe),
        Part("configs", Text("Configs and tensor names"), configs),
        Part("tokenizers", Text("Tokenizers"), tokenizers),
        Part("vocabulary", Text("Vocabulary map"), vocabulary_map),
        Part("embeddings", Text("Embeddings of common tokens"), embeddings_part),
    ),
    replica_parts=("norms", "windows", "routers", "embeddings", "tokenizers"),
)
