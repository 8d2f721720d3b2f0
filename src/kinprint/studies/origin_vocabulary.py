"""The tokenizer comparison and vocabulary map of the first accusation."""

from __future__ import annotations

from collections import Counter

import numpy as np

from kinprint.metrics import METRICS
from kinprint.studies.origin_scripts import SCRIPTS
from kinprint.studies.origin_shared import accused, is_published, origin
from kinprint.studies.origin_tokens import FIRST, Comparison, classes, compared, most_common
from kinprint.studies.outcome import Cell, Check, Missing, Section, Table, column, picture, table
from kinprint.studies.stage import Stage
from kinprint.studies.text import Text, say

SCATTERED = 2_000
UNCONSTRAINED = say("the replicas were not made to have this number")
SET_ORDER = say("published on 10,000 tokens in no defined order; here on all common tokens")
_SCRIPT_NAMES = {
    "Korean": say("Korean"),
    "Chinese": say("Chinese"),
    "Latin": say("Latin"),
    "digits": say("digits"),
    "other": say("other"),
    "part of a character": say("part of a character"),
}


def tokenizers(stage: Stage) -> Section:
    """Part H: vocabularies, ids, offsets and merges."""
    section = Section()
    a, b = accused(stage)
    found = compared(stage, a, b)
    section.tables += [_overlap_table(found), _offset_table(found), _fingerprint_table(found)]
    section.notes += [
        say(
            "Two tokenizers trained on overlapping languages share many tokens and merges; the share alone is no sign of descent. "
            "A long run of ids at one offset is often the byte alphabet, which byte-level tokenizers list in the same order."
        ),
        say(
            "Counts are of the model’s own table; tokens added outside it: {a_added} in A, {b_added} in B.",
            a_added=found.a.added,
            b_added=found.b.added,
        ),
    ]
    if is_published(stage, a, b):
        section.checks += _overlap_checks(found) + _offset_checks(found, replicas=stage.request.replicas)
        section.checks += _fingerprint_checks(found, replicas=stage.request.replicas)
    return section


def _overlap_table(found: Comparison) -> Table:
    rows: list[list[Cell]] = [
        [say("tokens of A"), len(found.a.vocab)],
        [say("tokens of B"), len(found.b.vocab)],
        [say("tokens in common"), found.common],
        [say("tokens in either"), found.union],
        [say("Jaccard index"), found.common / found.union],
        [say("share of the smaller vocabulary"), found.overlap],
        [say("tokens with the same id"), found.same_id],
        [say("tokens with ids within 100"), found.close_id],
        [say("of B’s first 1,000 ids, at the dominant shift in A"), found.first_consistent],
        [say("merges of A"), len(found.a.merges)],
        [say("merges of B"), len(found.b.merges)],
        [say("merges in common"), found.merges_common],
        [say("share of B’s merges"), found.merges_common / len(found.b.merges) if found.b.merges else None],
        [say("equal among the first 1,000 merges, place by place"), found.first_merges_equal],
    ]
    columns = (column("what", "what"), column("value", "value", 4))
    return table("tokenizers", say("Vocabularies and merges"), columns, rows)


def _offset_table(found: Comparison) -> Table:
    rows: list[list[Cell]] = []
    for kind, counts in (
        (say("tokens spelt in ASCII, id in B minus id in A"), found.ascii_offsets),
        (say("all common tokens, id in A minus id in B"), found.shifts),
    ):
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:10]
        rows += [
            [kind, offset, count, found.longest_run(offset if counts is found.ascii_offsets else -offset)[0]]
            for offset, count in ranked
        ]
    columns = (
        column("kind", "difference of ids"),
        column("offset", "offset"),
        column("count", "tokens"),
        column("run", "longest contiguous run"),
    )
    return table("offsets", say("The ten most frequent differences of ids"), columns, rows)


def _fingerprint_table(found: Comparison) -> Table:
    rows: list[list[Cell]] = [
        [say("kind of tokenizer"), found.a.kind, found.b.kind],
        [say("SHA-256 of the first 1,000 merges"), found.a.fingerprint(FIRST), found.b.fingerprint(FIRST)],
        [say("SHA-256 of all merges"), found.a.fingerprint(), found.b.fingerprint()],
    ]
    columns = (column("what", "what"), column("a", "A"), column("b", "B"))
    return table("fingerprints", say("Fingerprints"), columns, rows)


def _overlap_checks(found: Comparison) -> list[Check]:
    listed, deep, expanded = (origin()[key] for key in ("tokenizer_compare", "tokenizer_deep", "tokenizer_expansion"))
    overlap = listed["token_set_overlap"]
    ratio = found.merges_common / len(found.b.merges) if found.b.merges else None
    whole: list[tuple[Text, float, float]] = [
        (say("tokens of Solar"), listed["A_fingerprint"]["vocab_size"], len(found.a.vocab)),
        (say("tokens of GLM"), listed["B_fingerprint"]["vocab_size"], len(found.b.vocab)),
        (say("difference of the vocabularies’ sizes"), deep["vocab_diff"], len(found.a.vocab) - len(found.b.vocab)),
        (say("tokens in common"), overlap["intersection"], found.common),
        (say("tokens in either"), overlap["union"], found.union),
        (say("tokens with the same id"), listed["same_id_exact_matches"]["matches"], found.same_id),
        (
            say("ids that both have"),
            listed["same_id_exact_matches"]["denom"],
            min(len(found.a.vocab), len(found.b.vocab)),
        ),
        (say("tokens with ids within 100"), expanded["b_tokens_same_or_close_id"], found.close_id),
        (say("merges of Solar"), deep["merges_len_A"], len(found.a.merges)),
        (say("merges of GLM"), deep["merges_len_B"], len(found.b.merges)),
        (say("merges in common"), deep["merges_common"], found.merges_common),
        (say("merges of Solar alone"), deep["merges_only_in_A_count"], len(set(found.a.merges)) - found.merges_common),
        (say("merges of GLM alone"), deep["merges_only_in_B_count"], len(set(found.b.merges)) - found.merges_common),
        (
            say("equal among the first 1,000 merges, place by place"),
            expanded["first_1000_merges_exact_match"],
            found.first_merges_equal,
        ),
        (
            say("of B’s first 1,000 ids, at the dominant shift in A"),
            deep["first_1000_consistent_mapping"],
            found.first_consistent,
        ),
    ]
    return [
        *(Check(what, float(known), float(value), 0) for what, known, value in whole),
        Check(say("Jaccard index"), overlap["jaccard"], found.common / found.union),
        Check(say("share of the smaller vocabulary"), overlap["overlap_vs_smaller"], found.overlap),
        Check(say("share of GLM’s merges"), deep["merges_B_coverage_in_A"], ratio),
    ]


def _offset_checks(found: Comparison, *, replicas: bool) -> list[Check]:
    listed, deep, expanded = (origin()[key] for key in ("tokenizer_compare", "tokenizer_deep", "tokenizer_expansion"))
    offset, count = most_common(found.ascii_offsets)
    run, start = found.longest_run(offset)
    known = listed["best_offset_longest_contiguous_run"]
    checks = [
        Check(say("most frequent offset of ASCII tokens"), listed["best_ascii_offset"], float(offset), 0),
        Check(say("ASCII tokens at it"), listed["ascii_offset_histogram_top10"][0]["count"], float(count), 0),
        Check(say("longest contiguous run at it"), known["run_len"], float(run), 0),
        Check(
            say("first id of that run in Solar"), known["run_start_in_A"], None if start is None else float(start), 0
        ),
        Check(say("dominant shift over all tokens"), deep["dominant_id_shift"], float(found.dominant[0]), 0),
        Check(say("tokens at the dominant shift"), deep["tokens_at_dominant_shift"], float(found.dominant[1]), 0),
    ]
    rare = [
        (say("ASCII tokens at the offset {offset}", offset=e["offset"]), e["count"], found.ascii_offsets[e["offset"]])
        for e in listed["ascii_offset_histogram_top10"][1:]
    ]
    shifts = {e["shift"]: e["count"] for e in deep["most_common_shifts"][1:]} | dict(
        expanded["most_common_position_diffs"][1:]
    )
    rare += [
        (say("tokens at the shift {offset}", offset=shift), number, found.shifts[shift])
        for shift, number in shifts.items()
    ]
    return checks + [_remarked(replicas, what, float(number), float(value)) for what, number, value in rare]


def _remarked(replicas: bool, what: Text, known: float, measured: float) -> Check:
    return Check(what, known, measured, 0, reason=UNCONSTRAINED if replicas else None)


def _fingerprint_checks(found: Comparison, *, replicas: bool) -> list[Check]:
    checks = []
    for name, side, tokenizer in (("Solar", "A", found.a), ("GLM", "B", found.b)):
        known = origin()["tokenizer_compare"][f"{side}_fingerprint"]
        for what, key, count in (
            (
                say("SHA-256 of the first 1,000 merges of {model} is the published one (1: yes)", model=name),
                "merges_sha256_first1000",
                FIRST,
            ),
            (
                say("SHA-256 of all merges of {model} is the published one (1: yes)", model=name),
                "merges_sha256_all",
                None,
            ),
        ):
            checks.append(_remarked(replicas, what, 1.0, float(tokenizer.fingerprint(count) == known[key])))
    return checks


# -- I: the vocabulary map -----------------------------------------------------------------------------------------------------


def vocabulary_map(stage: Stage) -> Section:
    """Part I: ids of the common tokens, and the scripts of what only A has."""
    section = Section()
    a, b = accused(stage)
    found = compared(stage, a, b)
    if found.common < 3:
        raise Missing(say("{a} and {b} have {n} tokens in common: too few to compare ids", a=a, b=b, n=found.common))
    spearman = METRICS["spearman"](found.ids_a, found.ids_b)
    pearson = METRICS["pearson"](found.ids_a, found.ids_b)
    rows: list[list[Cell]] = [
        [say("common tokens"), found.common],
        [say("Spearman correlation of their ids"), spearman],
        [say("Pearson correlation of their ids"), pearson],
        [say("sd of either for ids in random order"), float(1 / np.sqrt(found.common - 1))],
        [say("different differences of ids"), len(found.shifts)],
        [say("ids below 1,000 with the same token"), found.first_same],
        [say("tokens of A alone"), len(found.only_a)],
        [say("tokens of A with ids from {first}", first=found.high_from), len(found.high)],
    ]
    columns = (column("what", "what"), column("value", "value", 4))
    section.tables.append(table("vocabulary_map", say("Ids of the common tokens"), columns, rows))
    groups = {"only": found.only_a, "high": found.high}
    scripts = {name: found.scripts(tokens) for name, tokens in groups.items()}
    raw = {name: classes(tokens) for name, tokens in groups.items()}
    section.tables += [_script_table(found, scripts), _class_table(raw)]
    section.notes += [
        say(
            "Byte-level tokens are decoded before they are sorted by script. Without that, as published, every Korean "
            "or Chinese token is a string of Latin-1 letters and counts as “other”."
        ),
        say(
            "Both vocabularies put frequent tokens first, so ids of common tokens correlate whatever their origin: the "
            "null of random order is no test of descent."
        ),
    ]
    rng = np.random.default_rng(stage.request.seed)
    chosen = np.sort(rng.choice(found.common, min(SCATTERED, found.common), replace=False))
    caption = say(
        "Ids of common tokens ({n} drawn of {all}), differences of ids of all of them, and the scripts of tokens of "
        "{a} that {b} lacks, and of those with ids from {first}: after decoding, and as published.",
        n=len(chosen),
        all=found.common,
        a=a,
        b=b,
        first=found.high_from,
    )
    arguments = (
        a,
        b,
        found.ids_a[chosen],
        found.ids_b[chosen],
        found.ids_a - found.ids_b,
        scripts,
        raw,
        found.high_from,
    )
    section.pictures.append(picture("vocabulary_map", caption, "origin_words.vocabulary_map", *arguments))
    if is_published(stage, a, b):
        section.checks += _map_checks(found, raw["high"], pearson)
    return section


def _script_table(found: Comparison, scripts: dict[str, Counter[str]]) -> Table:
    rows: list[list[Cell]] = [[_SCRIPT_NAMES[name], scripts["only"][name], scripts["high"][name]] for name in SCRIPTS]
    columns = (
        column("script", "script"),
        column("only", "tokens of A alone"),
        column("high", "tokens of A with high ids"),
    )
    return table(
        "scripts", say("Scripts after decoding (high ids: from {first})", first=found.high_from), columns, rows
    )


def _class_table(raw: dict[str, Counter[str]]) -> Table:
    names = sorted(raw["only"].keys() | raw["high"].keys(), key=lambda name: -raw["only"][name])
    rows: list[list[Cell]] = [[name, raw["only"][name], raw["high"][name]] for name in names]
    columns = (
        column("class", "class"),
        column("only", "tokens of A alone"),
        column("high", "tokens of A with high ids"),
    )
    return table("classes", say("Classes as published, without decoding"), columns, rows)


def _map_checks(found: Comparison, high: Counter[str], pearson: float) -> list[Check]:
    known = origin()["vocab_mapping_text"]
    counts = [
        (say("tokens in common, vocabulary map"), known["common"], found.common),
        (say("tokens with the same id, vocabulary map"), known["same_id"], found.same_id),
        (say("ids below 1,000 with the same token"), known["first1000_same"], found.first_same),
        (say("tokens of Solar alone"), known["solar_only"], len(found.only_a)),
        (say("tokens of Solar with ids from 150,000"), known["high_id_ge_150000"], len(found.high)),
    ]
    counts += [
        (say("among them of the class {name}, without decoding", name=name), number, high[name])
        for name, number in known["high_id_types"].items()
    ]
    return [
        *(Check(what, float(number), float(value), 0, "text") for what, number, value in counts),
        Check(say("Pearson correlation of the ids"), known["id_corr_sample10000"], pearson, 3, "text", SET_ORDER),
    ]
