"""Define what a report holds beside measurements and verdict: layer grids, bytes read, declarations of model cards."""

from __future__ import annotations

from dataclasses import dataclass

from kinprint.text import Text

Grid = tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True)
class LayerGrid:
    """One role, every layer of A against every layer of B. Rows of the grids are layers of A, columns layers of B.

    Attributes
    ----------
    role, kind : Which role, and "vector" or "matrix".
    layers_a, layers_b : Numbers of the layers, in the order of rows and columns.
    cosine, cosine_null : Raw cosine, and its mean over all permutations: what the spreads alone make of unrelated layers.
    pearson, z : Correlation, and its distance from the null in standard deviations. Cosine and Pearson share z, because
        both are linear in the same dot product. None where a layer is constant. All grids are rounded: z to three decimals,
        the others to six.
    n : Exchangeable units permuted.
    null, assumptions : What is permuted, and what must hold.
    rows : Rows of a matrix that entered, from its first (half-open); None for all, and for vectors.
    status, reason : "ok", or "not_comparable" with the reason and no grids.
    """

    role: str
    kind: str
    layers_a: tuple[int, ...]
    layers_b: tuple[int, ...]
    cosine: Grid
    cosine_null: Grid
    pearson: Grid
    z: Grid
    n: int
    null: Text
    assumptions: tuple[Text, ...] = ()
    rows: tuple[int, int] | None = None
    status: str = "ok"
    reason: Text | None = None


@dataclass(frozen=True)
class FileReads:
    """Bytes read of one file.

    Attributes
    ----------
    model, file : The model as the user named it, and the file's name in it.
    size, identity : Of the whole file; None where nothing but its contents is known.
    spans : Intervals read (half-open, merged, in order).
    bytes_read : Their length in all.
    sha256 : Digest of the list of all ranges with their own digests, in the order of offsets; an evidence bundle holds that
        list. Two runs that read the same bytes have the same digest.
    """

    model: str
    file: str
    size: int | None
    identity: str | None
    spans: tuple[tuple[int, int], ...]
    bytes_read: int
    sha256: str


@dataclass(frozen=True)
class Declaration:
    """Origin of a model as its card and configs declare. None and empty mean that nothing is declared."""

    base_models: tuple[str, ...]
    relation: str | None  # "finetune", "adapter", "merge", "quantized", as the hub spells it
    licence: str | None
    where: tuple[str, ...]  # files that say so
    reason: Text | None = None  # why nothing could be read, if that is so
    known: bool = True  # whether silence means something: all that the model could say was read and understood


UNDECLARED = "undeclared"  # the weights show a derivation that no card declares
DECLARED = "declared"  # the weights show a derivation, and a card declares it
OTHER_DECLARED = "other_declared"  # likewise, and cards name a base that is not recognisably the other model
NOT_SHOWN = "declared_not_shown"  # a card declares a derivation that the weights do not show
NOTHING_DECLARED = "nothing_declared"  # neither
NOT_JUDGED = "not_judged"  # no card could be read, or the weights could not be tested
STATES = (UNDECLARED, DECLARED, OTHER_DECLARED, NOT_SHOWN, NOTHING_DECLARED, NOT_JUDGED)


@dataclass(frozen=True)
class DeclaredFinding:
    """Declarations of both models' cards, beside what the weights show."""

    state: str
    sentence: Text
    a: Declaration
    b: Declaration
    named_by: tuple[str, ...] = ()  # "A", "B": the sides that name the other model as their base
    licences: Text | None = None  # a sentence, where the licences differ and the weights are related
