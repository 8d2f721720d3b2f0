"""Draw the norm vectors of the replicas: synthetic values with the published statistics, exact in BF16."""

import numpy as np
from numpy.typing import NDArray

from kinprint._util.numeric import FloatArray
from kinprint.lab.replicas.descendant import descend
from kinprint.lab.replicas.design import LAYERS, REACH, SHARED, Design, Norms, design, layer_correlation
from kinprint.lab.replicas.published_figures import HW_LAYERS, INPUT, KINDS, POST, Vector
from kinprint.lab.replicas.shapes import SHAPES
from kinprint.lab.replicas.solver import HEAVY, Conditions, fit_vector, to_grid, worst_miss

Vectors = dict[Vector, FloatArray]
Tie = tuple[FloatArray, float]  # a final vector and the correlation with it

# Assumed: how strongly a layer's two norms go together, and how much of a relative's pattern is kept.
INPUT_TO_POST = 0.4
RELATIVES = {"Mistral": ("Mixtral", 0.96), "Yi-9B": ("Yi-6B", 0.9)}
# Dimensions whose scale is near zero at every layer. GLM's 0.99 quantiles lie at 1.9 to 2.3 standard deviations although its
# gaps to smaller vectors need crossings: a normal bulk and a few very low values do both. Phi's may be negative (figure 8).
LOW_DIMENSIONS = {"Solar": (8, 0.05, 0.8), "GLM": (60, 0.0, 0.75), "Phi": (24, -0.15, 0.8)}
LOW_SHARE = 0.4
MEASURED = ("Phi", "GLM", "Solar")  # by hyunwoongko, at layers 10, 20 and 30; in the order in which they are settled
# Figure 10 shows the correlation of (input - post) of Solar and GLM within 0.025 at every layer.
DIFFERENCE_LIMIT = 0.018
SWEEPS = 8
SATISFIED = 4.0  # residuals below 4e-5 are left alone
# Correlations that nobody measured, of layers of two models, stay where chance puts nearly all: within this many null
# standard deviations in the draft, which meeting the published ones moves a little.
CHANCE = 2.0
APART_ROUNDS = 40


def replica_norms(seed: int = 0) -> Norms:
    """Return every replica's norms: (model, kind) to float32 of layers by width, each value exact in BF16.

    The statistics listed by `kinprint.lab.replicas.targets.targets` hold for every seed tried (0 to 7); only the values
    differ. Takes three to six seconds of one core.
    """
    d = design()
    latents: dict[tuple[str, str], FloatArray] = {}
    drafts: Vectors = {}
    streams = {model: np.random.default_rng([seed, number]) for number, model in enumerate(LAYERS)}
    for model in LAYERS:
        if model != "INTELLECT":
            latents |= {(model, kind): z for kind, z in _latents(d, model, latents, streams[model]).items()}
            lows = _low_dimensions(model, streams[model])
            for kind in KINDS:
                rows = _drawn(d, model, kind, latents[model, kind], lows)
                drafts |= {(model, kind, layer): row for layer, row in enumerate(rows)}
    final = _Settling(d, drafts, streams).run()
    made: Norms = {}
    for model, kind in ((model, kind) for model in LAYERS for kind in KINDS):
        if model == "INTELLECT":
            made[model, kind] = descend(made["GLM", kind], kind, streams[model])
        else:
            rows = [final[model, kind, layer] for layer in range(LAYERS[model])]
            made[model, kind] = np.array(rows, dtype=np.float32)
    return made


def _latents(
    d: Design, model: str, others: dict[tuple[str, str], FloatArray], rng: np.random.Generator
) -> dict[str, FloatArray]:
    """Return standard normal fields, layers by width, correlated over layers and between the kinds."""
    shape = (LAYERS[model], SHAPES[model].hidden)
    first = rng.standard_normal(shape)
    second = INPUT_TO_POST * first + np.sqrt(1 - INPUT_TO_POST**2) * rng.standard_normal(shape)
    fields = {}
    for kind, noise in ((INPUT, first), (POST, second)):
        z = np.linalg.cholesky(layer_correlation(d, model, kind)) @ noise
        if model in RELATIVES:
            parent, r = RELATIVES[model]
            z = r * others[parent, kind][_parent_layers(model)] + np.sqrt(1 - r**2) * z
        fields[kind] = z
    return fields


def _parent_layers(model: str) -> list[int]:
    """Return the parent's layer behind each layer; that Yi-9B repeats Yi-6B's 12 to 27 is assumed, not checked."""
    if model == "Yi-9B":
        return [*range(28), *range(12, 32)]
    return list(range(LAYERS[model]))


def _low_dimensions(model: str, rng: np.random.Generator) -> tuple[NDArray[np.int64], FloatArray]:
    count, least, most = LOW_DIMENSIONS.get(model, (5, 0.1, 0.7))
    where = rng.choice(SHAPES[model].hidden, size=count, replace=False)
    # Density grows towards the bulk: a tail, not a second hump. One is as low as they go.
    shares = least + (most - least) * rng.random(count) ** (1 / 3)
    shares[0] = least
    return where, shares


def _drawn(
    d: Design, model: str, kind: str, z: FloatArray, lows: tuple[NDArray[np.int64], FloatArray]
) -> list[FloatArray]:
    """Return first versions of a model's vectors: right moments and shapes, roughly right correlations."""
    skews = _skews(d, model, kind)
    rows = []
    for layer, values in enumerate(z):
        mean, std = d.moments((model, kind, layer))
        x = mean + std * _skewed(values, float(skews[layer]))
        if std > HEAVY * mean:
            rows.append(x * mean / x.mean())  # shifting it would send the many small values below zero
            continue
        where, share = lows
        # As many as the published variance has room for.
        room = np.cumsum((share - 1) ** 2) * mean**2 < LOW_SHARE * x.size * std**2
        x[where[room]] = share[room] * mean
        rows.append(mean + std * (x - x.mean()) / x.std())
    return rows


def _skewed(z: FloatArray, s: float) -> FloatArray:
    """Return a standardised shifted lognormal of shape `s` for standard normal `z`."""
    return np.asarray((np.exp(s * z - s * s / 2) - 1) / np.sqrt(np.expm1(s * s)))


def _skews(d: Design, model: str, kind: str) -> FloatArray:
    """Return a shape per layer: that of the 0.99 quantile where one was published, and positive where spread is wide."""
    layers = np.arange(LAYERS[model])
    shapes = np.linspace(0.02, 0.9, 45)
    at_99 = [float(_skewed(np.array([2.326]), s)[0]) for s in shapes]
    own = {}
    for vector, (quantile, _) in d.quantiles.items():
        if vector[:2] == (model, kind):
            mean, std = d.moments(vector)
            own[vector[2]] = float(np.interp((quantile - mean) / std, at_99, shapes))
    known = sorted(own.items()) or [(0, 0.25)]
    skews = np.interp(layers, [layer for layer, _ in known], [s for _, s in known])
    # mean > std / sqrt(exp(s^2) - 1) keeps the smallest value above zero.
    positive = np.sqrt(np.log1p(d.cvs[model, kind] ** 2))
    return np.asarray(np.maximum(skews, positive * 1.02))


class _Settling:
    """Settle drafts into final vectors one after the other, each meeting its conditions beside those before it."""

    def __init__(self, d: Design, drafts: Vectors, streams: dict[str, np.random.Generator]) -> None:
        self.d, self.drafts, self.streams = d, dict(drafts), streams
        self.final: Vectors = {}

    def run(self) -> Vectors:
        """Return the final vectors."""
        bound = {vector for pair in self.d.correlations for vector in pair}
        order = sorted(self.drafts, key=_turn)
        measured = [v for v in order if v[0] in MEASURED and v[2] in HW_LAYERS]
        for vector in measured:
            self.final[vector] = self._fitted(vector)
        self._reconcile(measured)
        for vector in order[len(measured) :]:
            if vector[0] in MEASURED:
                self.drafts[vector] = self._apart(vector, self._beside(vector))
            self.final[vector] = self._fitted(vector) if vector in bound else to_grid(self.drafts[vector])
        return self.final

    def _fitted(self, vector: Vector) -> FloatArray:
        return fit_vector(self.drafts[vector], self._conditions(vector), self.streams[vector[0]])

    def _conditions(self, vector: Vector) -> Conditions:
        """Return what a vector must satisfy beside the vectors that are final."""
        r = [(self.final[p], value) for p, value in _partners(self.d.correlations, vector) if p in self.final]
        r += self._difference_tie(vector)
        gaps = [(self.final[p], value) for p, value in _partners(self.d.gaps, vector) if p in self.final]
        hints = [(self.drafts[p], value) for p, value in _partners(self.d.gaps, vector) if p not in self.final]
        wishes = self._chance_ties(vector)
        return Conditions(*self.d.moments(vector), r, gaps, self.d.quantiles.get(vector), hints, wishes)

    def _reconcile(self, vectors: list[Vector]) -> None:
        """Bend again, beside all the others, those that miss a condition: the last settled had the least room."""
        for _ in range(SWEEPS):
            missing = 0
            for vector in reversed(vectors):
                conditions = self._conditions(vector)
                before = worst_miss(self.final[vector], conditions)
                if before < SATISFIED:
                    continue
                missing += 1
                again = fit_vector(self.final[vector], conditions, self.streams[vector[0]])
                if worst_miss(again, conditions) < before:
                    self.final[vector] = again
            if not missing:
                break

    def _beside(self, vector: Vector) -> FloatArray:
        """Return a layer's draft after its measured neighbours were settled.

        What these gained over their own drafts, far-out elements above all, fades out over the layers around them, as the
        correlation between layers does; otherwise they would stand apart from their neighbours.
        """
        model, kind, layer = vector
        mean, std = self.d.moments(vector)
        if std > HEAVY * mean:
            return self.drafts[vector]
        nodes = np.array(HW_LAYERS)
        among = np.exp(-np.abs(nodes[:, None] - nodes) / REACH)
        carry = np.linalg.solve(among, np.exp(-np.abs(nodes - layer) / REACH))
        x = self.drafts[vector] / mean
        for node, weight in zip(HW_LAYERS, carry, strict=True):
            settled = (model, kind, node)
            x = x + weight * (self.final[settled] - self.drafts[settled]) / self.d.moments(settled)[0]
        if model != "Phi":
            x = np.maximum(x, 0.02)
        return np.asarray(mean + std * (x - x.mean()) / x.std())

    def _chance_ties(self, vector: Vector) -> list[Tie]:
        """Return conditions that keep unpublished correlations between measured vectors of two models as drawn: chance.

        Far-out elements would otherwise meet in one dimension by design, and show as a correlation nobody measured.
        """
        model, kind, layer = vector
        if model not in MEASURED or layer not in HW_LAYERS:
            return []
        tied = {p for p, _ in _partners(self.d.correlations, vector)}
        others = [(m, kind, i) for m in MEASURED if m != model for i in HW_LAYERS]
        if model == "GLM":
            # The other kind of the same layer too: figure 10 looks at the difference of the two. Solar, settled last, has no
            # room left for that, and needs none.
            others += [("Phi", other, layer) for other in KINDS if other != kind]
        free = [p for p in others if p in self.final and p not in tied]
        drawn = [float(np.corrcoef(self.drafts[vector], self.drafts[p])[0, 1]) for p in free]
        return [(self.final[p], float(np.clip(value, -0.03, 0.03))) for p, value in zip(free, drawn, strict=True)]

    def _apart(self, vector: Vector, draft: FloatArray) -> FloatArray:
        """Return a layer's draft with no correlation beyond chance to final layers of other models where none was published.

        Settling the measured layers sets the same dimensions far out in several models, and neighbouring layers inherit them.
        """
        model = vector[0]
        tied = {p for p, _ in _partners(self.d.correlations, vector)}
        others = [p for p in self.final if p[0] in MEASURED and p[0] != model and p not in tied]
        if not others:
            return draft
        partners = np.array([(self.final[p] - self.final[p].mean()) / self.final[p].std() for p in others])
        mean, std = float(draft.mean()), float(draft.std())
        limit = CHANCE / np.sqrt(draft.size)
        # A heavy-tailed vector keeps its signs if each element moves in proportion to itself.
        weights = np.clip(np.abs(draft) / std, 0.002, 2.0) ** 2 if std > HEAVY * mean else np.ones(draft.size)
        least = min(0.0, float(draft.min())) if model == "Phi" else min(0.02 * mean, float(draft.min()))
        x = draft
        for _ in range(APART_ROUNDS):
            r = partners @ (x - x.mean()) / (x.size * x.std())
            over = np.flatnonzero(np.abs(r) > limit)
            if not over.size:
                break
            rows = partners[over]
            excess = r[over] - 0.9 * np.clip(r[over], -limit, limit)
            # Neighbouring layers are nearly parallel: without a ridge, small differences among them would be blown up.
            gram = (rows * weights) @ rows.T
            gram += 0.02 * np.trace(gram) / len(gram) * np.eye(len(gram))
            x = np.maximum(x - x.size * x.std() * weights * (np.linalg.solve(gram, excess) @ rows), least)
        return np.asarray(mean + std * (x - x.mean()) / x.std())

    def _difference_tie(self, vector: Vector) -> list[Tie]:
        """Return the condition that keeps the correlation of (input - post) of Solar and GLM small, for the last of the four."""
        model, kind, layer = vector
        draft = self.drafts[vector]
        other = {"Solar": "GLM", "GLM": "Solar"}.get(model)
        if kind != POST or other is None or layer >= SHARED or (other, POST, layer) not in self.final:
            return []
        theirs = self.final[other, INPUT, layer] - self.final[other, POST, layer]
        ours = self.final[model, INPUT, layer]
        now = float(np.corrcoef(theirs, ours - draft)[0, 1])
        wanted = np.clip(now, -DIFFERENCE_LIMIT, DIFFERENCE_LIMIT) * theirs.std() * (ours - draft).std()
        covariance = float(np.cov(theirs, ours, bias=True)[0, 1]) - wanted
        return [(theirs, float(covariance / (theirs.std() * draft.std())))]


def _turn(vector: Vector) -> tuple[bool, int, int, str]:
    """Return when a vector is settled: the most tied ones first, then by model and layer.

    Among those, Phi's layer 30 leads: its far-out elements must serve six gaps within the smallest variance, so the
    others adapt to it.
    """
    model, kind, layer = vector
    if model in MEASURED and layer in HW_LAYERS:
        return False, MEASURED.index(model), -layer, kind
    return True, list(LAYERS).index(model), layer, kind


def _partners(pairs: dict[tuple[Vector, Vector], float], vector: Vector) -> list[tuple[Vector, float]]:
    """Return the partners of a vector in a table of pairs, with the value for each."""
    return [(b if vector == a else a, value) for (a, b), value in pairs.items() if vector in (a, b)]
