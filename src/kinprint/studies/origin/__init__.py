"""Audit the analysis that first called Solar a derivative of GLM: add the nulls, controls and baselines that it lacked."""

from collections.abc import Callable, Iterable

from kinprint.arch import Role
from kinprint.model.reader import Want
from kinprint.studies.opened import ModelWant, StudyRun, vector_wants
from kinprint.studies.origin import baselines, config, decay, embeddings, layers, routers, sigma, vocabulary, windows
from kinprint.studies.origin.shared import EVERY, NORMS, audited_models, is_published
from kinprint.studies.outcome import Section
from kinprint.studies.published import claims, published_checks
from kinprint.studies.recipe import Part, Study
from kinprint.text import Text


def _wants(run: StudyRun) -> Iterable[ModelWant]:
    yield from vector_wants(run, NORMS)
    # Routers are small, and each is compared several times: with both models, by two parts. They are kept.
    first = run.names[:2]
    for name in run.names:
        layers = run.layers(name, Role.ROUTER)
        if name in first:
            wanted = set(layers)
        else:
            shared = [[layer for layer in layers if run.holds(other, Role.ROUTER, layer)] for other in first]
            wanted = {layer for common in shared for layer in common[::EVERY]}
        yield from ((name, Want(Role.ROUTER, layer)) for layer in sorted(wanted))


def _part(name: str, title: str, look: Callable[[StudyRun, Section, str, str], None]) -> Part:
    """Return a part that looks at the two models, with the checks that claims.json has for it if they are the published ones."""

    def run_part(run: StudyRun) -> Section:
        section, (a, b) = Section(), audited_models(run)
        look(run, section, a, b)
        if section.comparable and is_published(run, a, b):
            section.checks += published_checks(run, section, claims("origin").get(name, ()))
        return section

    return Part(name, Text(title), run_part)


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
        _part("layers", "Layer probe", layers.layer_probe),
        _part("controls", "Controls", layers.controls),
        _part("sigma", "“182 sigma”", sigma.sigma_audit),
        _part("baselines", "Random baselines", baselines.random_baselines),
        _part("deviation", "Deviation cosine", baselines.deviation_cosine),
        _part("decay", "Decay and diagonal dominance", decay.decay),
        _part("routers", "Routers and experts", routers.routers),
        _part("windows", "Window probe", windows.window_probe),
        _part("configs", "Configs and tensor names", config.configs),
        _part("tokenizers", "Tokenizers", vocabulary.tokenizers),
        _part("vocabulary", "Vocabulary map", vocabulary.vocabulary_map),
        _part("embeddings", "Embeddings of common tokens", embeddings.embeddings),
    ),
    replica_parts=("norms", "windows", "routers", "embeddings", "tokenizers"),
)
