"""Compact: a few kinds of slices in eight bits, for exact tests on files and for search. Kinprint's own.

Norm scales, rows of gate and up, some embeddings, Gram profiles, and figures that no order or basis changes: see
`kinprint.fingerprints.compact.parts` for what is kept, and docs/fingerprints.md for what each part costs and what it sees. The
value is the largest share of residual dimensions, rows or neurons that stand at their places; its null are the exact tests of
`kinprint.evidence` on these slices, under their guards, corrected for their number. Any one change of order or basis leaves one
of them: reordered dimensions and rotations leave the products of neurons, reordered neurons leave the norms. Both together leave
none.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinprint.arch import Role, ordered_axes
from kinprint.errors import DegenerateInput
from kinprint.evidence.reading import is_mean_free
from kinprint.fingerprints.base import CHANGES, Features, PortableMethod, Score, pair_null, register
from kinprint.fingerprints.compact import parts
from kinprint.fingerprints.compact.codes import encode
from kinprint.fingerprints.compact.proof import prove
from kinprint.model.weights import Weights
from kinprint.text import Text

Arrays = Iterator[tuple[str, NDArray[Any]]]


@register
class Compact(PortableMethod):
    """Exact tests on slices in eight bits."""

    name = "compact"
    title = Text("Compact fingerprint")
    invariant_to = CHANGES  # each alone
    summary = Text("Exact tests of norms, neurons and Gram profiles on a few hundred kilobytes, for files and search.")
    references = ("kinprint, docs/fingerprints.md",)

    def extract(self, model: Weights) -> Features:
        """Read all parts in one go; a part that cannot be had is left out, with the reason among the facts."""
        chosen = parts.choose_parts(model)
        made: Mapping[str, Callable[[], Arrays]] = {
            "norms": lambda: _norms(model, chosen),
            "rows": lambda: _rows(model, chosen),
            "embeddings": lambda: _embeddings(model, chosen),
            "gram": lambda: _gram(model, chosen),
        }
        roles = sorted({part.role.value for part in model.naming.tensors})
        facts: dict[str, int | float | str] = {
            "layers": model.layers,
            "experts": model.experts,
            "hidden": model.hidden,
            "neurons": max((one.first for _, one in chosen.neurons), default=0),
            "mean_free": int(is_mean_free(model.config, {Role(role) for role in roles})),
            "roles": ",".join(roles),
        }
        facts |= {f"ordered.{axis.value}": str(why) for axis, why in ordered_axes(model.config).items()}
        arrays: dict[str, NDArray[Any]] = {}
        with model.reading_ahead(parts.wanted(model, chosen)):
            for name, make in made.items():
                try:
                    arrays |= dict(make())
                except DegenerateInput as error:
                    facts[f"without.{name}"] = str(error.reason)
        if not arrays:
            raise DegenerateInput("{name} has neither norms nor neurons nor embeddings to keep", name=model.label)
        return Features(self.name, self.version, arrays, facts)

    def score(self, a: Features, b: Features, *, seed: int = 0) -> Score:
        """Run the exact tests on what both keep."""
        proof = prove(a, b, seed=seed)
        if proof.log10_p is None:
            raise DegenerateInput("no exact test can run: {why}", why=proof.reason or Text("nothing is kept of both"))
        name = Text("exact tests, corrected for their number")
        chance = pair_null(name, None, None, proof.log10_p, proof.tests_run, *proof.assumptions, exact=True)
        return Score(proof.in_place, chance=chance, details={"tests": float(proof.tests_run)})


def _places(places: list[int]) -> NDArray[np.int8]:
    return np.array(places, dtype=np.int8)


def _norms(model: Weights, chosen: parts.Parts) -> Arrays:
    if not chosen.norms:
        raise DegenerateInput("{name} has no norm scales on the residual stream", name=model.label)
    for role, places in chosen.norms.items():
        whole = parts.norm_vectors(model, role, places)
        codes, scales = encode(whole[:, : parts.DIMENSIONS], centred=True)
        yield f"norms.{role.value}", codes
        yield f"norms.{role.value}.scales", scales
        yield f"norms.{role.value}.at", _places([place for place, _ in places])
        yield f"sorted.{role.value}", encode(parts.quantiles_of(whole), centred=True)[0]


def _rows(model: Weights, chosen: parts.Parts) -> Arrays:
    for role, found in parts.neuron_rows(model, chosen).items():
        codes, scales = encode(np.stack([rows for _, rows in found]), centred=False)
        yield f"rows.{role.value}", codes
        yield f"rows.{role.value}.scales", scales
        yield f"rows.{role.value}.at", _places([place for place, _ in found])


def _embeddings(model: Weights, chosen: parts.Parts) -> Arrays:
    if not chosen.tokens:
        raise DegenerateInput("{name} has no table of at least {n} embeddings", name=model.label, n=parts.TOKENS[1])
    rows = model.matrix(Role.EMBEDDING, rows=parts.TOKENS)
    codes, scales = encode(rows[: parts.ROWS, : parts.COLUMNS], centred=False)
    yield "embeddings", codes
    yield "embeddings.scales", scales
    cosines, scale = encode(parts.token_cosines(rows), centred=False)
    yield "tokens", cosines
    yield "tokens.scales", scale


def _gram(model: Weights, chosen: parts.Parts) -> Arrays:
    side = parts.gram_of(model, chosen)
    codes, scales = encode(np.stack(side.profiles), centred=False)
    yield "gram", codes
    yield "gram.scales", scales
    yield "gram.lengths", np.stack(side.lengths).astype(np.float32)
    yield "gram.at", _places([place for place, _ in chosen.neurons])
