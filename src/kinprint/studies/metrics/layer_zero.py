"""Compare early layers with later ones of the same model by raw cosine (a part of the metrics study)."""

import itertools
from collections.abc import Iterator
from functools import partial

from kinprint.arch import Role
from kinprint.model.reader import Want
from kinprint.studies.metrics.plan import ROLES
from kinprint.studies.opened import ModelWant, StudyRun, attempt
from kinprint.studies.outcome import Section, columns
from kinprint.studies.published import claims, published_checks
from kinprint.studies.vector_pairs import VectorPair, vector_pairs
from kinprint.text import Text

COLUMNS = columns("model; role; layer_a; layer_b; cosine; null_mean; null_sd; pearson; z; log10_p; cv_a; cv_b")


def _layers(run: StudyRun, name: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return first layers and the layers they are set against: 0 and 10 against 15 and 20, or what a shallow model has."""
    depth = run.depth(name)
    if run.request.layers is not None:
        return (0,), tuple(layer for layer in run.request.layers if 0 < layer < depth)
    if depth > 20:
        return (0, 10), (15, 20)
    return (0, max(1, depth // 4)), tuple(sorted({depth // 2, depth - 1} - {0, 1}))


def _roles(run: StudyRun) -> list[Role]:
    norms = [role for role in run.request.roles or ROLES if role.info.kind == "norm"]
    return norms or [Role.INPUT_NORM, Role.POST_ATTENTION_NORM]


def layer_zero(run: StudyRun) -> Section:
    """Compare an early layer with later ones, within each model."""
    section, found = Section(), list[tuple[str, VectorPair]]()
    section.note(
        "Raw cosine of layer 0 with later layers is low where layer 0 has a large spread for its mean; the null, which "
        "knows only means and spreads, is as low."
    )
    for name, role in itertools.product(run.names, _roles(run)):
        pairs = attempt(section.missing, partial(_pairs, run, name, role))
        found += [(role.value, pair) for pair in pairs or ()]
    if found:
        rows = [(p.a, role, *(getattr(p, column.key) for column in COLUMNS[2:])) for role, p in found]
        section.add_table("layer_zero", Text("Layers of one model against each other"), COLUMNS, rows)
        section.add_picture("layer_zero", "metrics.layer_zero", found)
    section.checks += published_checks(run, section, claims("metrics")["layer_zero"])
    return section


def _pairs(run: StudyRun, name: str, role: Role) -> list[VectorPair]:
    first, later = _layers(run, name)
    layers, values = run.stack(name, role, (*first, *later))
    held = {(name, layer): row for layer, row in zip(layers, values, strict=True)}
    return vector_pairs(held, [((name, a), (name, b)) for a, b in itertools.product(first, later) if a < b])


def zero_wants(run: StudyRun) -> Iterator[ModelWant]:
    """Yield the vectors that `layer_zero` looks at."""
    for name, role in itertools.product(run.names, _roles(run)):
        yield from ((name, Want(role, layer)) for layer in itertools.chain.from_iterable(_layers(run, name)))
