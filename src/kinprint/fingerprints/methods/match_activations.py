"""Match neurons by their activations on fixed prompts, with the test of `match`.

Zhu, Ahmed, Kuditipudi & Liang, "Independence Tests for Language Models", ICML 2025, arXiv:2502.12292: H_gate and H_up are
what a layer's gate and up maps give at the same places of the same text, a row for each neuron. Their rows are assigned, and
the two assignments compared, as rows of weights are in `match`. Whatever leaves the function of a model as it is leaves these
rows as they are, but for their order and length: residual streams permuted, sign-flipped or rotated, norms folded away.

Independent models trained on like text may come to neurons that do alike, so the p-value is no more exact than that of `match`.

Where this differs from the paper: the text is the 200 prompts that ship; places are tokens that end at the same character
in both tokenizers, so that these may differ; at most `PLACES` of them, spread evenly, and neurons and layers as in `match`.
"""

from collections.abc import Sequence

from kinprint._util.numeric import evenly_spaced
from kinprint.errors import DegenerateInput
from kinprint.fingerprints.base import CHANGES, Method, Need, Score, register
from kinprint.fingerprints.forward import Runner, common_places
from kinprint.fingerprints.methods.match import NeuronRows, score_neurons
from kinprint.model.weights import Weights
from kinprint.text import Text

PLACES, LEAST_PLACES = 1024, 64


@register
class MatchActivations(Method):
    """φ_MATCH on activations."""

    name = "match_activations"
    title = Text("Neuron matching (activations)")
    needs = (Need.WEIGHTS, Need.TOKENIZER, Need.FORWARD)
    invariant_to = CHANGES
    summary = Text(
        "Neuron matching on what gate and up give at the tokens of fixed prompts; withstands a change of basis."
    )
    references = ("Zhu et al. 2025, Independence Tests for Language Models (ICML), arXiv:2502.12292",)

    def score_models(self, a: Weights, b: Weights, *, seed: int = 0) -> Score:
        """Run the prompts on both, one after the other, and match neurons."""
        runners = Runner(a), Runner(b)
        places = common_places(runners[0].prompts(), runners[1].prompts())
        if len(places) < LEAST_PLACES:
            raise DegenerateInput(
                "tokens of the two end together at {n} places: expected at least {m}", n=len(places), m=LEAST_PLACES
            )
        chosen = evenly_spaced(places, PLACES, at="nearest")
        one, two = (_neurons(runner, [place[side] for place in chosen]) for side, runner in enumerate(runners))
        return score_neurons((one, two), seed=seed)


def _neurons(runner: Runner, places: Sequence[tuple[int, int]]) -> NeuronRows:
    values = runner.neurons(places)
    widths = {layer: int(gate.shape[0]) for layer, (gate, _) in values.items()}
    return NeuronRows(widths, len(places), values.__getitem__)
