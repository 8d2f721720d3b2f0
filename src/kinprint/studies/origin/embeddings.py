"""Embeddings of tokens that both vocabularies have, matched by text, beside random pairs and a permutation null."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.arch import Role
from kinprint.stats import NullResult, null_for
from kinprint.studies.opened import Stage, Want
from kinprint.studies.origin.scripts import is_english, is_word
from kinprint.studies.origin.shared import accused, count_check, is_published, origin, summarised
from kinprint.studies.origin.tokens import Comparison, Ints, compared
from kinprint.studies.outcome import Cell, Check, Missing, Section, Table, column, picture, table
from kinprint.text import Text

ENGLISH, WORDS = 200, 300
PAIRS, PAIR_SEED = 50, 42
PAIR_PLACES = (1_000, 10_000)
"""The published baseline draws pairs among these places of B's table, with seed 42."""

ON_AVERAGE = Text("the replicas have it on average only, and 50 pairs vary by 0.002")


@dataclass(frozen=True)
class Sample:
    """Common tokens, their ids, and the cosine of each token's two rows; ``blank`` marks runs of white space."""

    name: str
    title: Text
    tokens: tuple[str, ...]
    ids_a: Ints
    ids_b: Ints
    cosines: FloatArray
    blank: tuple[bool, ...]
    null: NullResult


def choose(found: Comparison) -> dict[str, list[int]]:
    """Return the places of three samples among the common tokens.

    200 “English” ones of lowest id as published, the same without runs of white space, and 300 ASCII words.
    """
    texts = [found.a.text(token) for token in found.tokens]
    order = np.argsort(np.minimum(found.ids_a, found.ids_b), kind="stable").tolist()
    english = [at for at in order if is_english(texts[at])]
    written = [at for at in english if (texts[at] or "").strip()]
    by_a = np.argsort(found.ids_a, kind="stable").tolist()  # the second script goes through A's table in its order
    words = [at for at in by_a if is_word(texts[at])]
    return {"english": english[:ENGLISH], "english_written": written[:ENGLISH], "words": words[:WORDS]}


def read_rows(stage: Stage, name: str, ids: Sequence[int]) -> dict[int, FloatArray]:
    """Read single rows of the embedding: one range for each token.

    Raises
    ------
    Missing
        If the model has no embedding.
    """
    part = stage.part(name, Role.EMBEDDING, None)
    rows, width = part.shape
    wanted = sorted({number for number in ids if number < rows})
    if not wanted:
        return {}
    if part.transposed:
        values = stage.values(name, Role.EMBEDDING, None)
        return {number: values[number] for number in wanted}
    runs: list[tuple[int, int]] = []
    for number in wanted:  # neighbours touch: one run, so that runs ascend without gaps of nothing
        if runs and runs[-1][1] == number * width:
            runs[-1] = (runs[-1][0], (number + 1) * width)
        else:
            runs.append((number * width, (number + 1) * width))
    flat = stage.read([Want(name, Role.EMBEDDING, None, tuple(runs))])[0].astype(np.float64)
    return dict(zip(wanted, flat.reshape(len(wanted), width), strict=True))


def embeddings(stage: Stage) -> Section:
    """Part J."""
    section = Section()
    a, b = accused(stage)
    found = compared(stage, a, b)
    widths = [stage.part(name, Role.EMBEDDING, None).shape[1] for name in (a, b)]
    if widths[0] != widths[1]:
        raise Missing(
            Text("embeddings of {a} and {b} are not comparable: width {n} and {m}", a=a, b=b, n=widths[0], m=widths[1])
        )
    chosen = choose(found)
    places = sorted({at for group in chosen.values() for at in group})
    if not places:
        raise Missing(Text("{a} and {b} have no English token in common", a=a, b=b))
    pairs = random_pairs(found)
    rows_a = read_rows(stage, a, found.ids_a[places].tolist())
    rows_b = read_rows(stage, b, [*found.ids_b[places].tolist(), *(number for pair in pairs for number in pair)])
    samples = [
        sample
        for name, title in _TITLES.items()
        if (sample := _sample(name, title, found, chosen[name], rows_a, rows_b, section.missing)) is not None
    ]
    if not samples:
        return section
    within = _cosines(rows_b, pairs)
    if within.size < len(pairs):
        lost = len(pairs) - within.size
        section.missing.append(Text("random pairs within {b}: {n} have no row, or one of zeros", b=b, n=lost))
    section.tables += [_summary_table(samples, within, _crossed(samples[0], rows_a, rows_b)), _token_table(samples)]
    blanks = sum(samples[0].blank)
    section.notes.append(
        Text(
            "Rows are matched by the tokens’ text, so different ids cannot explain a low cosine. {blanks} of the {n} "
            "“English” tokens are runs of white space; the second sample leaves them out.",
            blanks=blanks,
            n=len(samples[0].tokens),
        )
    )
    caption = Text(
        "Cosine of the embeddings of the same token in {a} and {b}: distribution (grey: the permutation null of single "
        "tokens; step: random pairs of tokens within {b}), and against the token’s id. The axes hold all values.",
        a=a,
        b=b,
    )
    section.pictures.append(
        picture("embeddings", caption, "origin.vocabulary_figures.embeddings", samples, within, b, widths[0])
    )
    if is_published(stage, a, b):
        section.checks += _checks({sample.name: sample for sample in samples}, within, replicas=stage.request.replicas)
    return section


_BLANK = Text("white space only")
_TITLES = {
    "english": Text("“English” tokens of lowest id, as published"),
    "english_written": Text("the same without runs of white space"),
    "words": Text("ASCII words of three or more letters"),
}


def _sample(
    name: str,
    title: Text,
    found: Comparison,
    places: Sequence[int],
    rows_a: dict[int, FloatArray],
    rows_b: dict[int, FloatArray],
    missing: list[Text],
) -> Sample | None:
    ids = [(int(found.ids_a[at]), int(found.ids_b[at]), at) for at in places]
    kept = [(one, two, at) for one, two, at in ids if _has(rows_a, one) and _has(rows_b, two)]
    if len(kept) < len(ids):
        missing.append(Text("{title}: {n} tokens have no row, or one of zeros", title=title, n=len(ids) - len(kept)))
    if len(kept) < 2:
        return None
    left, right = (np.stack([_unit(rows[entry[side]]) for entry in kept]) for side, rows in enumerate((rows_a, rows_b)))
    cosines = np.einsum("ij,ij->i", left, right)
    # rows of unit length: the cosine of the two stacks is the mean of the tokens' cosines
    null = null_for("cosine", left, right, observed=float(cosines.mean()), higher_is_closer=True)
    tokens = tuple(found.tokens[at] for _, _, at in kept)
    return Sample(
        name,
        title,
        tokens,
        np.array([one for one, _, _ in kept]),
        np.array([two for _, two, _ in kept]),
        cosines,
        tuple(not (found.a.text(token) or "").strip() for token in tokens),
        null,
    )


def _has(rows: dict[int, FloatArray], number: int) -> bool:
    return number in rows and bool(rows[number].any())


def _unit(row: FloatArray) -> FloatArray:
    unit: FloatArray = row / np.linalg.norm(row)
    return unit


def random_pairs(found: Comparison) -> list[tuple[int, int]]:
    """Return ids of the published 50 pairs of different tokens of B (fewer if two draws meet)."""
    ids = list(found.b.vocab.values())
    low, high = PAIR_PLACES if len(ids) > PAIR_PLACES[1] else (0, len(ids))
    rng = np.random.RandomState(PAIR_SEED)  # the publication's generator, so that its pairs are drawn
    drawn = [(ids[rng.randint(low, high)], ids[rng.randint(low, high)]) for _ in range(PAIRS)]
    return [(one, two) for one, two in drawn if one != two]


def _cosines(rows: dict[int, FloatArray], pairs: Sequence[tuple[int, int]]) -> FloatArray:
    return np.array([float(_unit(rows[x]) @ _unit(rows[y])) for x, y in pairs if _has(rows, x) and _has(rows, y)])


def _crossed(sample: Sample, rows_a: dict[int, FloatArray], rows_b: dict[int, FloatArray]) -> FloatArray:
    """Return cosines of different tokens across the models: each with the next one of the sample."""
    shifted = np.roll(sample.ids_b, 1).tolist()
    return np.array(
        [float(_unit(rows_a[x]) @ _unit(rows_b[y])) for x, y in zip(sample.ids_a.tolist(), shifted, strict=True)]
    )


def _summary_table(samples: Sequence[Sample], within: FloatArray, crossed: FloatArray) -> Table:
    rows: list[list[Cell]] = [
        [
            sample.title,
            len(sample.tokens),
            *summarised(sample.cosines).values(),
            sample.null.mean,
            sample.null.sd,
            sample.null.z,
            sample.null.log10_p,
        ]
        for sample in samples
    ]
    for title, values in (
        (Text("different tokens across the models"), crossed),
        (Text("random pairs of tokens within B"), within),
    ):
        if values.size:
            rows.append([title, int(values.size), *summarised(values).values(), None, None, None, None])
    columns = (
        column("what", "pairs"),
        column("n", "number"),
        column("mean", "mean cosine", 4),
        column("sd", "sd", 4),
        column("min", "least", 4),
        column("max", "greatest", 4),
        column("null_mean", "mean if independent", 4),
        column("null_sd", "sd of that mean", 4),
        column("z", "z", 2),
        column("log10_p", "log10 p", 2),
    )
    return table("embeddings", Text("Cosine of embeddings"), columns, rows)


def _token_table(samples: Sequence[Sample]) -> Table:
    rows: list[list[Cell]] = [
        [sample.name, token, int(one), int(two), float(cosine), _BLANK if blank else None]
        for sample in samples
        for token, one, two, cosine, blank in zip(
            sample.tokens, sample.ids_a, sample.ids_b, sample.cosines, sample.blank, strict=True
        )
    ]
    columns = (
        column("sample", "sample"),
        column("token", "token as spelt"),
        column("id_a", "id in A"),
        column("id_b", "id in B"),
        column("cosine", "cosine", 4),
        column("blank", "remark"),
    )
    return table("embedding_tokens", Text("Token by token"), columns, rows, shown=10)


def _checks(samples: dict[str, Sample], within: FloatArray, *, replicas: bool) -> list[Check]:
    checks: list[Check] = []
    known = origin()["embedding_200"]
    first = samples.get("english")
    if first is not None:
        found = summarised(first.cosines)
        what = Text("{n} English tokens", n=len(first.tokens))
        checks += [
            count_check(Text("number of English tokens"), known["num_tokens"], float(len(first.tokens))),
            Check(Text("mean cosine of embeddings, {what}", what=what), known["mean_cosine"], found["mean"]),
            Check(Text("its standard deviation, {what}", what=what), known["std_cosine"], found["std"]),
            Check(Text("least, {what}", what=what), known["min_cosine"], found["min"]),
            Check(Text("greatest, {what}", what=what), known["max_cosine"], found["max"]),
            count_check(Text("tokens above 0.9"), known["high_similarity_count"], float((first.cosines > 0.9).sum())),
            count_check(Text("tokens below 0.1"), known["low_similarity_count"], float((first.cosines < 0.1).sum())),
        ]
    measured = float(within.mean()) if within.size else None
    reason = ON_AVERAGE if replicas else None
    what = Text("random pairs of tokens within GLM")
    checks.append(Check(what, known["baseline_mean"], measured, reason=reason, comparable=not replicas))
    words, known = samples.get("words"), origin()["embedding_300"]
    if words is not None:
        found = summarised(words.cosines)
        what = Text("{n} ASCII words", n=len(words.tokens))
        checks.append(count_check(Text("number of ASCII words"), known["n"], float(len(words.tokens))))
        checks += [
            Check(Text("mean cosine of embeddings, {what}", what=what), known["mean"], found["mean"]),
            Check(Text("its standard deviation, {what}", what=what), known["std"], found["std"]),
            Check(Text("least, {what}", what=what), known["min"], found["min"]),
            Check(Text("greatest, {what}", what=what), known["max"], found["max"]),
        ]
    return checks
