"""Compare the vocabularies of two models: what they share, at which ids, and in which scripts."""

from collections import Counter

import numpy as np

from kinprint.metrics import METRICS
from kinprint.studies.opened import StudyRun
from kinprint.studies.origin.shared import is_published
from kinprint.studies.origin.tokens import FIRST, SCRIPTS, Comparison, compared, ranked, undecoded_class
from kinprint.studies.outcome import Cell, Check, Missing, Section, columns
from kinprint.studies.published import published
from kinprint.text import Text

UNCONSTRAINED = Text("the replicas were not made to have this number")
CLOSE = 100
SCATTERED = 2_000
_MERGES = (
    (Text("SHA-256 of the first 1,000 merges"), "first1000", FIRST),
    (Text("SHA-256 of all merges"), "all", None),
)
_SCRIPT_NAMES = (
    Text("Korean"), Text("Chinese"), Text("Latin"), Text("digits"), Text("other"), Text("part of a character"),
)  # fmt: skip


def tokenizers(run: StudyRun, section: Section, a: str, b: str) -> None:
    """Compare vocabularies, ids, offsets and merges."""
    found = compared(run, a, b)
    rows = overlap_rows(found)
    section.add_table("tokenizers", Text("Vocabularies and merges"), columns("what; value .4"), rows)
    rows = []
    for kind, counts, sign in (
        (Text("tokens spelt in ASCII, id in B minus id in A"), found.ascii_offsets, 1),
        (Text("all common tokens, id in A minus id in B"), found.shifts, -1),
    ):
        rows += [(kind, offset, n, found.longest_run(sign * offset)[0]) for offset, n in ranked(counts)[:10]]
    heads = columns("kind: difference of ids; offset; count: tokens; run: longest contiguous run")
    section.add_table("offsets", Text("The ten most frequent differences of ids"), heads, rows)
    sides = (found.a, found.b)
    rows = [(Text("kind of tokenizer"), *(side.kind for side in sides))]
    rows += [(what, *(side.fingerprint(count) for side in sides)) for what, _, count in _MERGES]
    section.add_table("fingerprints", Text("Fingerprints"), columns("what; a; b"), rows)
    section.note(
        "Two tokenizers trained on overlapping languages share many tokens and merges; the share alone is no sign "
        "of descent. A long run of ids at one offset is often the byte alphabet, which byte-level tokenizers list "
        "in the same order."
    )
    section.note(
        "Counts are of the model’s own table; tokens added outside it: {a_added} in A, {b_added} in B.",
        a_added=found.a.added,
        b_added=found.b.added,
    )
    if is_published(run, a, b):
        _add_published(run, section, found)


def overlap_rows(found: Comparison) -> list[tuple[Cell, ...]]:
    """Return how many tokens and merges two tokenizers have, and share."""
    (tokens_a, merges_a), (tokens_b, merges_b) = ((len(side.vocab), side.merges) for side in (found.a, found.b))
    common, same_merges = len(found.tokens), len(set(merges_a) & set(merges_b))
    dominant = ranked(found.shifts)[0][0] if found.shifts else 0
    return [
        (Text("tokens of A"), tokens_a),
        (Text("tokens of B"), tokens_b),
        (Text("tokens in common"), common),
        (Text("tokens in either"), tokens_a + tokens_b - common),
        (Text("Jaccard index"), common / (tokens_a + tokens_b - common)),
        (Text("share of the smaller vocabulary"), common / min(tokens_a, tokens_b)),
        (Text("tokens with the same id"), found.same_id),
        (Text("tokens with ids within 100"), int((np.abs(found.ids_a - found.ids_b) <= CLOSE).sum())),
        (Text("of B’s first 1,000 ids, at the dominant shift in A"), found.first_at(dominant)),
        (Text("merges of A"), len(merges_a)),
        (Text("merges of B"), len(merges_b)),
        (Text("merges in common"), same_merges),
        (Text("share of B’s merges"), same_merges / len(merges_b) if merges_b else None),
        (
            Text("equal among the first 1,000 merges, place by place"),
            sum(x == y for x, y in zip(merges_a[:FIRST], merges_b[:FIRST], strict=False)),
        ),
    ]


def _add_published(run: StudyRun, section: Section, found: Comparison) -> None:
    """Add what the publication says of Solar and GLM and no table holds, and whether the merges are the published ones."""
    tokens, merges = zip(*((len(side.vocab), set(side.merges)) for side in (found.a, found.b)), strict=True)
    start = found.longest_run(ranked(found.ascii_offsets)[0][0])[1] if found.ascii_offsets else None
    counts = {"larger_by": tokens[0] - tokens[1], "smaller": min(tokens), "run_start": start}
    counts |= {"merges_only_a": len(merges[0] - merges[1]), "merges_only_b": len(merges[1] - merges[0])}
    section.values |= {name: None if count is None else float(count) for name, count in counts.items()}
    section.checks += _rare_offset_checks(found, replicas=run.request.replicas)
    if run.request.replicas:
        section.note(
            "Of the published differences of ids the replicas have the most frequent one only; the others, and "
            "the hashes, are not theirs."
        )
    rows = []
    for name, side, tokenizer in (("Solar", "A", found.a), ("GLM", "B", found.b)):
        known = published()["origin"]["tokenizer_compare"][f"{side}_fingerprint"]
        for what, key, count in _MERGES:
            printed = known[f"merges_sha256_{key}"]
            same = Text("yes") if tokenizer.fingerprint(count) == printed else Text("no")
            rows.append((name, what, printed, same))
    heads = columns("model; what; published; same: same here")
    section.add_table("published_fingerprints", Text("Published fingerprints"), heads, rows)


def _rare_offset_checks(found: Comparison, *, replicas: bool) -> list[Check]:
    """Compare differences of ids other than the most frequent one, which are free in replicas."""
    listed, deep, expanded = (published()["origin"][f"tokenizer_{name}"] for name in ("compare", "deep", "expansion"))
    offsets = {entry["offset"]: entry["count"] for entry in listed["ascii_offset_histogram_top10"][1:]}
    shifts = {entry["shift"]: entry["count"] for entry in deep["most_common_shifts"][1:]}
    shifts |= dict(expanded["most_common_position_diffs"][1:])
    rare = [
        (Text("ASCII tokens at the offset {offset}", offset=x), n, found.ascii_offsets[x]) for x, n in offsets.items()
    ]
    rare += [(Text("tokens at the shift {offset}", offset=x), n, found.shifts[x]) for x, n in shifts.items()]
    reason = UNCONSTRAINED if replicas else None
    return [
        Check(what, float(known), float(value), 0, reason=reason, within=0.5, comparable=not replicas)
        for what, known, value in rare
    ]


def vocabulary_map(run: StudyRun, section: Section, a: str, b: str) -> None:
    """Compare the ids of the common tokens, and the scripts of what only A has."""
    found = compared(run, a, b)
    if (common := len(found.tokens)) < 3:
        raise Missing("{a} and {b} have {n} tokens in common: too few to compare ids", a=a, b=b, n=common)
    rows: list[tuple[Cell, ...]] = [
        (Text("common tokens"), common),
        (Text("Spearman correlation of their ids"), METRICS["spearman"](found.ids_a, found.ids_b)),
        (Text("Pearson correlation of their ids"), METRICS["pearson"](found.ids_a, found.ids_b)),
        (Text("sd of either for ids in random order"), float(1 / np.sqrt(common - 1))),
        (Text("different differences of ids"), len(found.shifts)),
        (Text("ids below 1,000 with the same token"), found.first_at(0)),
        (Text("tokens of A alone"), len(found.only_a)),
        (Text("tokens of A with ids from {first}", first=found.high_from), len(found.high)),
    ]
    section.add_table("vocabulary_map", Text("Ids of the common tokens"), columns("what; value .4"), rows)
    groups = {"only": found.only_a, "high": found.high}
    scripts = {name: found.scripts(tokens) for name, tokens in groups.items()}
    raw = {name: Counter(map(undecoded_class, tokens)) for name, tokens in groups.items()}
    heads = columns("script; only: tokens of A alone; high: tokens of A with high ids")
    title = Text("Scripts after decoding (high ids: from {first})", first=found.high_from)
    by_script = zip(_SCRIPT_NAMES, *([scripts[name][one] for one in SCRIPTS] for name in groups), strict=True)
    section.add_table("scripts", title, heads, by_script)
    names = sorted(raw["only"].keys() | raw["high"].keys(), key=lambda name: -raw["only"][name])
    rows = [(name, raw["only"][name], raw["high"][name]) for name in names]
    title = Text("Classes as published, without decoding")
    section.add_table("classes", title, (*columns("class"), *heads[1:]), rows)
    section.note(
        "Byte-level tokens are decoded before they are sorted by script. Without that, as published, every Korean "
        "or Chinese token is a string of Latin-1 letters and counts as “other”."
    )
    section.note(
        "Both vocabularies put frequent tokens first, so ids of common tokens correlate whatever their origin: the "
        "null of random order is no test of descent."
    )
    if run.request.replicas:
        section.note(
            "How many tokens are Korean, Chinese, Latin and so on is assumed in the replicas: only the counts in the list of "
            "published figures are theirs by design. The table of scripts shows the method, not the models."
        )
    rng = np.random.default_rng(run.request.seed)
    chosen = np.sort(rng.choice(common, min(SCATTERED, common), replace=False))
    drawn = (a, b, found, chosen, scripts, raw)
    section.add_picture(
        "vocabulary_map", "origin.vocabulary_map", *drawn, a=a, b=b, n=len(chosen), all=common, first=found.high_from
    )
    section.values["same"] = float(found.same_id)
