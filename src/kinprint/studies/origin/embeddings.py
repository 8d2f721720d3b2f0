"""Compare the embeddings of tokens that two vocabularies share, beside random pairs and a permutation null."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.arch import Role
from kinprint.model.reader import Want
from kinprint.results.measurements import NullResult
from kinprint.stats.nulls import null_for
from kinprint.studies.opened import StudyRun
from kinprint.studies.origin.shared import summarised
from kinprint.studies.origin.tokens import Comparison, Ints, compared, is_english, is_word
from kinprint.studies.outcome import Cell, Missing, Section, columns
from kinprint.text import Text

Rows = dict[int, FloatArray]  # of an embedding, by the token's id
ENGLISH, WORDS = 200, 300
PAIRS, PAIR_SEED = 50, 42
PAIR_PLACES = (1_000, 10_000)  # the published baseline draws pairs among these places of B's table, with seed 42
_TITLES = {
    "english": Text("“English” tokens of lowest id, as published"),
    "english_written": Text("the same without runs of white space"),
    "words": Text("ASCII words of three or more letters"),
}


@dataclass(frozen=True)
class Sample:
    """Common tokens, their ids, and the cosine of each token's two rows; ``blank`` marks runs of white space."""

    name: str
    tokens: tuple[str, ...]
    ids_a: Ints
    ids_b: Ints
    cosines: FloatArray
    blank: tuple[bool, ...]
    null: NullResult


def choose(found: Comparison) -> dict[str, list[int]]:
    """Return three samples of common tokens: 200 “English” ones as published, the same without white space, 300 ASCII words."""
    texts = [found.a.text(token) for token in found.tokens]
    order = np.argsort(np.minimum(found.ids_a, found.ids_b), kind="stable").tolist()
    english = [at for at in order if is_english(texts[at])]
    written = [at for at in english if (texts[at] or "").strip()]
    by_a = np.argsort(found.ids_a, kind="stable").tolist()  # the second script goes through A's table in its order
    words = [at for at in by_a if is_word(texts[at])]
    return {"english": english[:ENGLISH], "english_written": written[:ENGLISH], "words": words[:WORDS]}


def read_rows(run: StudyRun, name: str, ids: Sequence[int]) -> Rows:
    """Read single rows of the embedding: one range for each token."""
    part = run.part(name, Role.EMBEDDING, None)
    rows, width = part.shape
    wanted = sorted({number for number in ids if number < rows})
    if not wanted:
        return {}
    if part.transposed:
        values = run.values(name, Role.EMBEDDING, None)
        return {number: values[number] for number in wanted}
    runs: list[tuple[int, int]] = []
    for number in wanted:  # rows of neighbouring ids touch, and make one run
        if runs and runs[-1][1] == number * width:
            runs[-1] = (runs[-1][0], (number + 1) * width)
        else:
            runs.append((number * width, (number + 1) * width))
    flat = run.read([(name, Want(Role.EMBEDDING, elements=tuple(runs)))])[0].astype(np.float64)
    return dict(zip(wanted, flat.reshape(len(wanted), width), strict=True))


def embeddings(run: StudyRun, section: Section, a: str, b: str) -> None:
    """Compare the embeddings of common tokens."""
    found = compared(run, a, b)
    n, m = (run.part(name, Role.EMBEDDING, None).shape[1] for name in (a, b))
    if n != m:
        raise Missing("embeddings of {a} and {b} are not comparable: width {n} and {m}", a=a, b=b, n=n, m=m)
    chosen = choose(found)
    places = sorted({at for group in chosen.values() for at in group})
    if not places:
        raise Missing("{a} and {b} have no English token in common", a=a, b=b)
    pairs = random_pairs(found)
    rows_a = read_rows(run, a, found.ids_a[places].tolist())
    rows_b = read_rows(run, b, [*found.ids_b[places].tolist(), *(number for pair in pairs for number in pair)])
    made = (_sample(name, found, at, (rows_a, rows_b), section.missing) for name, at in chosen.items())
    samples = [sample for sample in made if sample is not None]
    if not samples:
        return
    within = _cosines(rows_b, rows_b, pairs)
    if lost := len(pairs) - within.size:
        section.missing.append(Text("random pairs within {b}: {n} have no row, or one of zeros", b=b, n=lost))
    first = samples[0]
    # different tokens across the models: each with the next one of the sample
    crossed = _cosines(rows_a, rows_b, list(zip(first.ids_a.tolist(), np.roll(first.ids_b, 1).tolist(), strict=True)))
    _add_tables(section, samples, within, crossed)
    section.note(
        "Rows are matched by the tokens’ text, so different ids cannot explain a low cosine. {blanks} of the {n} "
        "“English” tokens are runs of white space; the second sample leaves them out.",
        blanks=sum(first.blank),
        n=len(first.tokens),
    )
    section.add_picture("embeddings", "origin.embeddings", samples, within, b, n, a=a, b=b)
    english = first.cosines if first.name == "english" else np.empty(0)
    section.values |= {"above": float((english > 0.9).sum()), "below": float((english < 0.1).sum())}


def _sample(
    name: str, found: Comparison, places: Sequence[int], rows: tuple[Rows, Rows], missing: list[Text]
) -> Sample | None:
    ids = zip(found.ids_a[places].tolist(), found.ids_b[places].tolist(), places, strict=True)
    kept = [(one, two, at) for one, two, at in ids if _has(rows[0], one) and _has(rows[1], two)]
    if lost := len(places) - len(kept):
        missing.append(Text("{title}: {n} tokens have no row, or one of zeros", title=_TITLES[name], n=lost))
    if len(kept) < 2:
        return None
    left, right = (np.stack([_unit(of_side[entry[k]]) for entry in kept]) for k, of_side in enumerate(rows))
    cosines = np.einsum("ij,ij->i", left, right)
    # rows of unit length: the cosine of the two stacks is the mean of the tokens' cosines
    null = null_for("cosine", left, right, observed=float(cosines.mean()), higher_is_closer=True)
    ids_a, ids_b, at = np.array(kept).T
    tokens = tuple(found.tokens[place] for place in at)
    blank = tuple(not (found.a.text(token) or "").strip() for token in tokens)
    return Sample(name, tokens, ids_a, ids_b, cosines, blank, null)


def _has(rows: Rows, number: int) -> bool:
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


def _cosines(rows: Rows, others: Rows, pairs: Sequence[tuple[int, int]]) -> FloatArray:
    found = [float(_unit(rows[x]) @ _unit(others[y])) for x, y in pairs if _has(rows, x) and _has(others, y)]
    return np.array(found)


def _add_tables(section: Section, samples: Sequence[Sample], within: FloatArray, crossed: FloatArray) -> None:
    rows: list[tuple[Cell, ...]] = []
    for sample in samples:
        null = sample.null.mean, sample.null.sd, sample.null.z, sample.null.log10_p
        rows.append((_TITLES[sample.name], len(sample.tokens), *summarised(sample.cosines).values(), *null))
    others = {Text("different tokens across the models"): crossed, Text("random pairs of tokens within B"): within}
    for title, values in others.items():
        if values.size:
            rows.append((title, int(values.size), *summarised(values).values(), None, None, None, None))
    heads = columns(
        "what: pairs; n: number; mean: mean cosine .4; sd; min; max; null_mean: mean if independent .4; "
        "null_sd: sd of that mean .4; z; log10_p"
    )
    section.add_table("embeddings", Text("Cosine of embeddings"), heads, rows)
    tokens: list[tuple[object, ...]] = []
    for sample in samples:
        remarks = [Text("white space only") if white else None for white in sample.blank]
        cells = zip(sample.tokens, sample.ids_a, sample.ids_b, sample.cosines, remarks, strict=True)
        tokens += [(sample.name, *row) for row in cells]
    heads = columns("sample; token: token as spelt; id_a: id in A; id_b: id in B; cosine; blank: remark")
    section.add_table("embedding_tokens", Text("Token by token"), heads, tokens, shown=10)
