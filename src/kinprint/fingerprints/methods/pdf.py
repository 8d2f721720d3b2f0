"""PDF, the intrinsic fingerprint: correlate the spreads of attention weights over layers.

Yoon et al., "Intrinsic Fingerprint of LLMs: Continue Training is NOT All You Need to Steal A Model!", 2025, arXiv:2507.03014. For
each of Q, K, V, O the standard deviation of all its elements in layer l, σ_l, is normalised over layers to mean 0 and variance 1;
the score is the mean of the four Pearson correlations of two models. Where depths differ the shorter sequence is interpolated
linearly to the length of the longer one, as in LeaFBench (Shao et al. 2025).

Descriptive only. A few dozen numbers that follow the initialisation (1/√depth in outputs, say) and the recipe are compared, and
layers are in no way exchangeable, so the pair provides no null: published, deepseek-llm-7b against Llama-2-7b reads 0.91 though
they are independent. Orders do not matter, nor do signs (but for the square of a matrix's mean, which is near zero). A rotation
destroys it, though it keeps lengths: norm scales must be folded into the matrices first, and their sizes differ from layer to
layer. Moving a factor from values to outputs changes it too.
"""

import math

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.arch import Role
from kinprint.errors import DegenerateInput
from kinprint.fingerprints.base import Change, Features, PortableMethod, Score, all_but, correlation, register
from kinprint.model.weights import Weights
from kinprint.text import Text

LEAST_LAYERS = 3  # two points always lie on a line: their correlation is 1 or −1 whatever the models
ROLES = {"q": Role.ATTN_Q, "k": Role.ATTN_K, "v": Role.ATTN_V, "o": Role.ATTN_O}


@register
class IntrinsicSpread(PortableMethod):
    """Standard deviations of Q, K, V, O by layer."""

    name = "pdf"
    title = Text("PDF (spread by layer)")
    invariant_to = all_but(Change.ROTATION, Change.RESCALING)
    summary = Text(
        "Standard deviations of Q, K, V, O over the layers, correlated; descriptive, without a null of its own."
    )
    references = ("Yoon et al. 2025, Intrinsic Fingerprint of LLMs, arXiv:2507.03014",)

    def extract(self, model: Weights) -> Features:
        """Keep four numbers a layer."""
        layers = model.layers_with(*ROLES.values())
        if len(layers) < LEAST_LAYERS:
            raise DegenerateInput(
                "{name}: {n} layers with query, key, value and output matrices: expected at least {m}",
                name=model.label,
                n=len(layers),
                m=LEAST_LAYERS,
            )
        arrays = {
            name: np.array([float(np.std(model.matrix(role, layer), dtype=np.float64)) for layer in layers])
            for name, role in ROLES.items()
        }
        return Features(self.name, self.version, arrays, {"layers": len(layers)})

    def score(self, a: Features, b: Features, *, seed: int = 0) -> Score:
        """Return the mean of the four correlations, which are in the details."""
        found = {name: _correlation(a.arrays[name], b.arrays[name], name) for name in ROLES}
        depths = len(a.arrays["q"]), len(b.arrays["q"])
        notes = [Text("layers are not exchangeable: a high value is no evidence by itself")]
        if depths[0] != depths[1]:
            notes.append(Text("depths {a} and {b}: the shorter is interpolated", a=depths[0], b=depths[1]))
        details = {**found, "layers": float(max(depths))}
        return Score(math.fsum(found.values()) / len(found), details=details, notes=tuple(notes))


def _correlation(a: FloatArray, b: FloatArray, name: str) -> float:
    length = max(a.size, b.size)
    # first to first and last to last; normalising again afterwards does what normalising before would, and keeps r a correlation
    one, two = (np.interp(np.linspace(0.0, x.size - 1.0, length), np.arange(x.size), x) for x in (a, b))
    same = DegenerateInput("the spread of {name} is the same in all layers: there is nothing to correlate", name=name)
    return correlation(one, two, same)
