"""Judge the origin of parts outside the layers, where only those share: embeddings and head by their token rows, and norms."""

from collections.abc import Sequence

from kinprint.arch import Role
from kinprint.evidence.assess import Assessment
from kinprint.evidence.basis import shared_embeddings
from kinprint.evidence.common_start import Origin, Pairs, origin_of_parts
from kinprint.evidence.probe import norm_pairs
from kinprint.model.model import Model

TABLES = {"embedding": Role.EMBEDDING, "head": Role.HEAD}


def part_origin(
    models: tuple[Model, Model], assessment: Assessment, tokens: Sequence[tuple[int, int]] | None, allowance: int | None
) -> tuple[Origin, int]:
    """Read more token rows of the tables that share, and return what they and the norms say, and the bytes read."""
    shared = {item.component for item in assessment.components if item.shared}
    tables, spent = {}, 0
    for name in TABLES.keys() & shared:
        left = None if allowance is None else allowance - spent
        found, cost = shared_embeddings(models, tokens or (), left, TABLES[name])
        spent += cost
        tables[name] = found
    pairs = norm_pairs(*assessment.probes, assessment.layer_map)
    norms: Pairs = [(pair.a.values, pair.b.values) for pair in pairs]
    return origin_of_parts(tables, norms if "norms" in shared else (), len(shared - TABLES.keys() - {"norms"})), spent
