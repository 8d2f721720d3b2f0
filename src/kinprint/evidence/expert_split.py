"""Tell a dense MLP that was cut into experts from one that was copied into each of them."""

import numpy as np

from kinprint._util.numeric import unit_rows
from kinprint._util.records import dataclass
from kinprint.arch import Role
from kinprint.evidence.probe import LayerMap, in_depth
from kinprint.evidence.reading import ProbeRead, Scope, fill_probes, new_probe
from kinprint.model.model import Model
from kinprint.model.reader import Want

ROWS = 16  # of each of two experts, looked for among all neurons of the dense MLP
ALIKE = 0.8  # cosine of a neuron with the one it was made of; rows of unrelated demo models (width 96) reach 0.44
OWN = 0.75  # share of an expert's neurons that must be found


@dataclass(frozen=True)
class ExpertSplit:
    """Neurons of the first and the last expert found in the dense MLP, how many were looked for, and neurons both have."""

    found: int
    looked_for: int
    common: int

    @property
    def is_split(self) -> bool:
        """Whether experts hold neurons of the dense MLP, and not the same."""
        return self.found >= OWN * self.looked_for and self.common <= (1.0 - OWN) * self.looked_for / 2


def find_split(
    models: tuple[Model, Model], layer_map: LayerMap, allowance: int | None, scope: Scope
) -> tuple[ExpertSplit | None, int]:
    """Look for neurons of two experts among those of the other model's dense MLP, in one layer. Return the bytes read, too."""
    experts = [model.naming.experts for model in models]
    if not any(experts) or all(experts):
        return None, 0
    moe, dense = (0, 1) if experts[0] else (1, 0)
    parts = [scope.parts(model) for model in models]
    for layer_b, layer_a in in_depth(layer_map):
        layer, other = (layer_a, layer_b) if moe == 0 else (layer_b, layer_a)
        whole = parts[dense].get((Role.MLP_UP, other, None))
        ends = [parts[moe].get((Role.EXPERT_UP, layer, expert)) for expert in (0, experts[moe] - 1)]
        if whole is None or any(part is None or part.shape[1] != whole.shape[1] for part in ends):
            continue
        probes = new_probe(models[0]), new_probe(models[1])
        reads = [ProbeRead(dense, "sample", Want(*whole.key))]
        wanted = [Want(*part.key, (0, min(ROWS, part.shape[0]))) for part in ends if part is not None]
        reads += [ProbeRead(moe, "sample", want) for want in wanted]
        spent = fill_probes(models, probes, reads, allowance)
        neurons = probes[dense].samples.get(whole.key)
        rows = [probes[moe].samples.get(want.key) for want in wanted]
        if neurons is None or rows[0] is None or rows[1] is None:
            return None, spent
        every = unit_rows(neurons.values)
        cosines = [np.abs(unit_rows(sample.values) @ every.T) for sample in rows if sample is not None]
        places = [set(x.argmax(axis=1)[x.max(axis=1) > ALIKE].tolist()) for x in cosines]
        looked_for = sum(len(sample.stored) for sample in rows if sample is not None)
        return ExpertSplit(sum(map(len, places)), looked_for, len(places[0] & places[1])), spent
    return None, 0
