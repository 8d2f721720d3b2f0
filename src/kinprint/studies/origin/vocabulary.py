"""The tokenizers and the vocabulary map of the first accusation: what two vocabularies share, at which ids, in which scripts."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from kinprint.metrics import METRICS
from kinprint.studies.opened import StudyRun
from kinprint.studies.origin.scripts import SCRIPTS
from kinprint.studies.origin.shared import UNCONSTRAINED, accused, add_checks, count_check, is_published, origin
from kinprint.studies.origin.tokens import FIRST, Comparison, classes, compared, most_common
from kinprint.studies.outcome import Cell, Check, Missing, Section, columns
from kinprint.text import Text


def tokenizers(run: StudyRun) -> Section:
    """Compare vocabularies, ids, offsets and merges (part H)."""
    section = Section()
    a, b = accused(run)
    found = compared(run, a, b)
    section.add_table("tokenizers", Text("Vocabularies and merges"), columns("what; value .4"), _overlap_rows(found))
    heads = columns("kind: difference of ids; offset; count: tokens; run: longest contiguous run")
    section.add_table("offsets", Text("The ten most frequent differences of ids"), heads, _offset_rows(found))
    sides, hashes = (found.a, found.b), ((FIRST, _FIRST_MERGES), (None, _ALL_MERGES))
    rows = [(Text("kind of tokenizer"), *(side.kind for side in sides))]
    rows += [(what, *(side.fingerprint(count) for side in sides)) for count, what in hashes]
    section.add_table("fingerprints", Text("Fingerprints"), columns("what; a: A; b: B"), rows)
    section.notes += [
        Text(
            "Two tokenizers trained on overlapping languages share many tokens and merges; the share alone is no sign "
            "of descent. A long run of ids at one offset is often the byte alphabet, which byte-level tokenizers list "
            "in the same order."
        ),
        Text(
            "Counts are of the model’s own table; tokens added outside it: {a_added} in A, {b_added} in B.",
            a_added=found.a.added,
            b_added=found.b.added,
        ),
    ]
    if is_published(run, a, b):
        add_checks(run, section, "tokenizers", _values(found))
        section.checks += _rare_offset_checks(found, replicas=run.request.replicas)
        if run.request.replicas:
            section.notes.append(
                Text(
                    "Of the published differences of ids the replicas have the most frequent one only; the others, and "
                    "the hashes, are not theirs."
                )
            )
        _add_published_hashes(section, found)
    return section


_FIRST_MERGES, _ALL_MERGES = Text("SHA-256 of the first 1,000 merges"), Text("SHA-256 of all merges")


def _values(found: Comparison) -> dict[str, float | None]:
    """Return what is claimed of the tokenizers, by name."""
    offset, at_offset = most_common(found.ascii_offsets)
    length, run_start = found.longest_run(offset)
    tokens, merges = [len(side.vocab) for side in (found.a, found.b)], [set(side.merges) for side in (found.a, found.b)]
    names = ("common", "union", "same_id", "close_id", "merges_common", "first_merges_equal", "first_consistent")
    values = {name: getattr(found, name) for name in (*names, "jaccard", "overlap", "merges_share")} | {
        "tokens_a": tokens[0],
        "tokens_b": tokens[1],
        "larger_by": tokens[0] - tokens[1],
        "smaller": min(tokens),
        "merges_a": len(found.a.merges),
        "merges_b": len(found.b.merges),
        "merges_only_a": len(merges[0]) - found.merges_common,
        "merges_only_b": len(merges[1]) - found.merges_common,
        "offset": offset,
        "at_offset": at_offset,
        "run": length,
        "run_start": run_start,
        "shift": found.dominant[0],
        "at_shift": found.dominant[1],
    }
    return {name: None if value is None else float(value) for name, value in values.items()}


def _overlap_rows(found: Comparison) -> list[tuple[Cell, ...]]:
    return [
        (Text("tokens of A"), len(found.a.vocab)),
        (Text("tokens of B"), len(found.b.vocab)),
        (Text("tokens in common"), found.common),
        (Text("tokens in either"), found.union),
        (Text("Jaccard index"), found.jaccard),
        (Text("share of the smaller vocabulary"), found.overlap),
        (Text("tokens with the same id"), found.same_id),
        (Text("tokens with ids within 100"), found.close_id),
        (Text("of B’s first 1,000 ids, at the dominant shift in A"), found.first_consistent),
        (Text("merges of A"), len(found.a.merges)),
        (Text("merges of B"), len(found.b.merges)),
        (Text("merges in common"), found.merges_common),
        (Text("share of B’s merges"), found.merges_share),
        (Text("equal among the first 1,000 merges, place by place"), found.first_merges_equal),
    ]


def _offset_rows(found: Comparison) -> list[tuple[Cell, ...]]:
    rows: list[tuple[Cell, ...]] = []
    for kind, counts, sign in (
        (Text("tokens spelt in ASCII, id in B minus id in A"), found.ascii_offsets, 1),
        (Text("all common tokens, id in A minus id in B"), found.shifts, -1),
    ):
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:10]
        rows += [(kind, offset, count, found.longest_run(sign * offset)[0]) for offset, count in ranked]
    return rows


def _add_published_hashes(section: Section, found: Comparison) -> None:
    """Add whether the merges are the published ones; a hash is no number that could be checked within a digit."""
    rows = []
    for name, side, tokenizer in (("Solar", "A", found.a), ("GLM", "B", found.b)):
        known = origin()["tokenizer_compare"][f"{side}_fingerprint"]
        for what, key, count in (
            (_FIRST_MERGES, "merges_sha256_first1000", FIRST),
            (_ALL_MERGES, "merges_sha256_all", None),
        ):
            same = Text("yes") if tokenizer.fingerprint(count) == known[key] else Text("no")
            rows.append((name, what, known[key], same))
    heads = columns("model; what; published; same: same here")
    section.add_table("published_fingerprints", Text("Published fingerprints"), heads, rows)


def _rare_offset_checks(found: Comparison, *, replicas: bool) -> list[Check]:
    """Compare differences of ids other than the most frequent one, which are free in replicas."""
    listed, deep, expanded = (origin()[f"tokenizer_{name}"] for name in ("compare", "deep", "expansion"))
    rare = [
        (Text("ASCII tokens at the offset {offset}", offset=e["offset"]), e["count"], found.ascii_offsets[e["offset"]])
        for e in listed["ascii_offset_histogram_top10"][1:]
    ]
    shifts = {e["shift"]: e["count"] for e in deep["most_common_shifts"][1:]}
    for shift, number in (shifts | dict(expanded["most_common_position_diffs"][1:])).items():
        rare.append((Text("tokens at the shift {offset}", offset=shift), number, found.shifts[shift]))
    reason = UNCONSTRAINED if replicas else None
    checks = [count_check(what, float(known), float(value), reason=reason) for what, known, value in rare]
    return [replace(check, comparable=not replicas) for check in checks]


# -- vocabulary map ----------------------------------------------------------------------------------------------------

SCATTERED = 2_000
_SCRIPT_NAMES = {
    "Korean": Text("Korean"),
    "Chinese": Text("Chinese"),
    "Latin": Text("Latin"),
    "digits": Text("digits"),
    "other": Text("other"),
    "part of a character": Text("part of a character"),
}
HIGH_CLASSES = ("other", "ascii_alpha", "ascii_other")


def vocabulary_map(run: StudyRun) -> Section:
    """Compare the ids of the common tokens, and the scripts of what only A has (part I)."""
    section = Section()
    a, b = accused(run)
    found = compared(run, a, b)
    if found.common < 3:
        raise Missing(Text("{a} and {b} have {n} tokens in common: too few to compare ids", a=a, b=b, n=found.common))
    pearson = METRICS["pearson"](found.ids_a, found.ids_b)
    rows: list[tuple[Cell, ...]] = [
        (Text("common tokens"), found.common),
        (Text("Spearman correlation of their ids"), METRICS["spearman"](found.ids_a, found.ids_b)),
        (Text("Pearson correlation of their ids"), pearson),
        (Text("sd of either for ids in random order"), float(1 / np.sqrt(found.common - 1))),
        (Text("different differences of ids"), len(found.shifts)),
        (Text("ids below 1,000 with the same token"), found.first_same),
        (Text("tokens of A alone"), len(found.only_a)),
        (Text("tokens of A with ids from {first}", first=found.high_from), len(found.high)),
    ]
    section.add_table("vocabulary_map", Text("Ids of the common tokens"), columns("what; value .4"), rows)
    groups = {"only": found.only_a, "high": found.high}
    scripts = {name: found.scripts(tokens) for name, tokens in groups.items()}
    raw = {name: classes(tokens) for name, tokens in groups.items()}
    heads = columns("script; only: tokens of A alone; high: tokens of A with high ids")
    title = Text("Scripts after decoding (high ids: from {first})", first=found.high_from)
    rows = [(_SCRIPT_NAMES[name], scripts["only"][name], scripts["high"][name]) for name in SCRIPTS]
    section.add_table("scripts", title, heads, rows)
    names = sorted(raw["only"].keys() | raw["high"].keys(), key=lambda name: -raw["only"][name])
    rows = [(name, raw["only"][name], raw["high"][name]) for name in names]
    title = Text("Classes as published, without decoding")
    section.add_table("classes", title, (*columns("class"), *heads[1:]), rows)
    section.notes += [
        Text(
            "Byte-level tokens are decoded before they are sorted by script. Without that, as published, every Korean "
            "or Chinese token is a string of Latin-1 letters and counts as “other”."
        ),
        Text(
            "Both vocabularies put frequent tokens first, so ids of common tokens correlate whatever their origin: the "
            "null of random order is no test of descent."
        ),
    ]
    _add_map(section, run, found, scripts, raw)
    if run.request.replicas:
        section.notes.append(
            Text(
                "How many tokens are Korean, Chinese, Latin and so on is assumed in the replicas: only the counts in the list of "
                "published figures are theirs by design. The table of scripts shows the method, not the models."
            )
        )
    if is_published(run, a, b):
        counts = {"common": found.common, "same": found.same_id, "first": found.first_same, "only": len(found.only_a)}
        counts |= {"high": len(found.high)} | {f"class {name}": raw["high"][name] for name in HIGH_CLASSES}
        values = {name: float(count) for name, count in counts.items()} | {"pearson": pearson}
        add_checks(run, section, "vocabulary", values)
    return section


def _add_map(
    section: Section, run: StudyRun, found: Comparison, scripts: dict[str, Counter[str]], raw: dict[str, Counter[str]]
) -> None:
    a, b = accused(run)
    rng = np.random.default_rng(run.request.seed)
    chosen = np.sort(rng.choice(found.common, min(SCATTERED, found.common), replace=False))
    caption = Text(
        "Ids of common tokens ({n} drawn of {all}), differences of ids of all of them, and the scripts of tokens of "
        "{a} that {b} lacks, and of those with ids from {first}: after decoding, and as published.",
        n=len(chosen),
        all=found.common,
        a=a,
        b=b,
        first=found.high_from,
    )
    ids = found.ids_a[chosen], found.ids_b[chosen], found.ids_a - found.ids_b
    arguments = (a, b, *ids, scripts, raw, found.high_from)
    section.add_picture("vocabulary_map", caption, "origin.vocabulary_figures.vocabulary_map", *arguments)
