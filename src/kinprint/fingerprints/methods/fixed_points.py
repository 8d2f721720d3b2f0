"""Fixed points: count neurons whose nearest neuron in the other model stands at the same place.

Of some layers the first 32 rows of gate and up are kept; a neuron is its gate row and its up row, each at unit length, end to end.
F counts the neurons whose nearest neuron of the other model, by cosine, has their own number. The order of neurons is arbitrary,
so for unrelated models P(F ≥ k) ≤ 1/k! in one layer, whatever they were trained on, and layers combine exactly
(`kinprint.stats.fixedpoints`). The score is F over the number of neurons; 1/32 is expected by chance.

Layers are taken from both ends and paired by their distance from the same end: what is inserted or dropped in the middle then does
no harm, and no layer is used twice, which independence needs. Of mixtures of experts the shared expert or the first one stands
in. Rows are kept as BF16 (rounded to it, if the model has more): the test is exact for any function of the rows. At most 4 MB.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinprint.arch import Role
from kinprint.arch.roles import MLPS, MlpRoles
from kinprint.errors import DegenerateInput
from kinprint.evidence.exact_tests import row_test
from kinprint.evidence.probe import SamplePair
from kinprint.fingerprints.base import Change, Features, PortableMethod, Score, pair_null, register, unit_rows
from kinprint.formats.safetensors.writer import from_bf16, to_bf16
from kinprint.model.reader import Sample
from kinprint.model.weights import Weights
from kinprint.text import Text

ROWS = 32
LAYERS = 8
MAX_BYTES = 4_000_000


@register
class NeuronFixedPoints(PortableMethod):
    """Fixed points of gate and up rows."""

    name = "fixed_points"
    title = Text("Fixed points of neurons")
    invariant_to = (Change.HEAD_PERMUTATION, Change.RESCALING)
    summary = Text("Share of neurons whose nearest neuron in the other model stands at the same place: exact.")
    references = ("kinprint, METHODS 1b: fixed points of a random order, E[C(F, k)] ≤ 1/k!",)

    def extract(self, model: Weights) -> Features:
        """Keep 32 rows of gate and up of layers at both ends."""
        places = [(layer, mlp) for layer in range(model.layers) for mlp in reversed(MLPS)]
        # of a layer's MLPs the first in the table
        found = list({layer: (layer, mlp) for layer, mlp in places if model.has(mlp.up, layer, mlp.expert)}.values())
        if not found:
            raise DegenerateInput("{name} has no MLP rows to compare", name=model.label)
        arrays: dict[str, NDArray[Any]] = {}
        for end, chosen in _ends(found, model.shape(found[0][1].up, found[0][0], found[0][1].expert)[1]).items():
            for back, (layer, (gate, up, _, expert)) in enumerate(chosen):
                for name, role in (("gate", gate), ("up", up)):
                    if model.has(role, layer, expert):
                        rows = (0, min(ROWS, model.shape(role, layer, expert)[0]))
                        arrays[f"{end}.{back}.{name}"] = to_bf16(model.matrix(role, layer, expert=expert, rows=rows))
                arrays[f"{end}.{back}.layer"] = np.array([layer], dtype=np.int32)
        return Features(self.name, self.version, arrays, {"rows": ROWS, "layers": model.layers})

    def score(self, a: Features, b: Features, *, seed: int = 0) -> Score:
        """Count fixed points over all layers both have at the same place."""
        places: list[SamplePair] = []
        layers: dict[int, int] = {}
        for key in sorted(key for key in a.arrays if key.endswith(".layer") and key in b.arrays):
            stem = key.removesuffix(".layer")
            rows = {name: [side.arrays.get(f"{stem}.{name}", ()) for side in (a, b)] for name in ("gate", "up")}
            names = [name for name, both in rows.items() if all(map(len, both))]
            one, two = (int(side.arrays[key][0]) for side in (a, b))
            if names:
                places.append(SamplePair(Role.MLP_UP, two, None, _neurons(a, stem, names), _neurons(b, stem, names)))
                layers[two] = one
        if not places:
            raise DegenerateInput("no layer has rows of the same matrices in both models")
        widths = {sample.shape[1] for place in places for sample in (place.a, place.b)}
        if len(widths) > 1:
            raise DegenerateInput("rows have {n} different widths: expected one residual width", n=len(widths))
        test = row_test(Role.MLP_UP, places)
        count, mean, sd = (figure or 0.0 for figure in (test.statistic, test.null_mean, test.null_sd))
        chance = pair_null(test.null, mean / test.n, sd / test.n, test.log10_p, test.n, *test.assumptions, exact=True)
        details = {"count": count, "neurons": float(test.n), "layers": float(test.blocks)}
        return Score(count / test.n, chance=chance, details=details, layers=layers)


def _ends(found: list[tuple[int, MlpRoles]], width: int) -> dict[str, list[tuple[int, MlpRoles]]]:
    """Share the layers that the allowance permits between the two ends, counting from each; no layer is on both sides."""
    count = min(max(2, min(LAYERS, MAX_BYTES // (2 * ROWS * width * 2))), len(found))
    front = -(-count // 2)
    return {"first": found[:front], "last": found[::-1][: count - front]}


def _neurons(side: Features, stem: str, names: list[str]) -> Sample:
    # at unit length, so that a factor moved from up to down changes nothing
    parts = [unit_rows(from_bf16(side.arrays[f"{stem}.{name}"])) for name in names]
    rows = min(len(part) for part in parts)
    values = np.concatenate([part[:rows] for part in parts], axis=1)
    return Sample(values, "F32", values.shape)
