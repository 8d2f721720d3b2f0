"""The tokenizer comparison of the first accusation."""

from __future__ import annotations

from dataclasses import replace

from kinprint.studies.opened import Stage
from kinprint.studies.origin.shared import UNCONSTRAINED, accused, count_check, is_published, origin
from kinprint.studies.origin.tokens import FIRST, Comparison, compared, most_common
from kinprint.studies.outcome import Cell, Check, Section, Table, column, table
from kinprint.text import Text


def tokenizers(stage: Stage) -> Section:
    """Part H: vocabularies, ids, offsets and merges."""
    section = Section()
    a, b = accused(stage)
    found = compared(stage, a, b)
    section.tables += [_overlap_table(found), _offset_table(found), _fingerprint_table(found)]
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
    if is_published(stage, a, b):
        section.checks += _overlap_checks(found) + _offset_checks(found, replicas=stage.request.replicas)
        if stage.request.replicas:
            section.notes.append(
                Text(
                    "Of the published differences of ids the replicas have the most frequent one only; the others, and "
                    "the hashes, are not theirs."
                )
            )
        section.tables.append(_published_hashes(found))
    return section


def _overlap_table(found: Comparison) -> Table:
    rows: list[list[Cell]] = [
        [Text("tokens of A"), len(found.a.vocab)],
        [Text("tokens of B"), len(found.b.vocab)],
        [Text("tokens in common"), found.common],
        [Text("tokens in either"), found.union],
        [Text("Jaccard index"), found.common / found.union],
        [Text("share of the smaller vocabulary"), found.overlap],
        [Text("tokens with the same id"), found.same_id],
        [Text("tokens with ids within 100"), found.close_id],
        [Text("of B’s first 1,000 ids, at the dominant shift in A"), found.first_consistent],
        [Text("merges of A"), len(found.a.merges)],
        [Text("merges of B"), len(found.b.merges)],
        [Text("merges in common"), found.merges_common],
        [Text("share of B’s merges"), found.merges_common / len(found.b.merges) if found.b.merges else None],
        [Text("equal among the first 1,000 merges, place by place"), found.first_merges_equal],
    ]
    columns = (column("what", "what"), column("value", "value", 4))
    return table("tokenizers", Text("Vocabularies and merges"), columns, rows)


def _offset_table(found: Comparison) -> Table:
    rows: list[list[Cell]] = []
    for kind, counts in (
        (Text("tokens spelt in ASCII, id in B minus id in A"), found.ascii_offsets),
        (Text("all common tokens, id in A minus id in B"), found.shifts),
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
    return table("offsets", Text("The ten most frequent differences of ids"), columns, rows)


def _fingerprint_table(found: Comparison) -> Table:
    rows: list[list[Cell]] = [
        [Text("kind of tokenizer"), found.a.kind, found.b.kind],
        [Text("SHA-256 of the first 1,000 merges"), found.a.fingerprint(FIRST), found.b.fingerprint(FIRST)],
        [Text("SHA-256 of all merges"), found.a.fingerprint(), found.b.fingerprint()],
    ]
    columns = (column("what", "what"), column("a", "A"), column("b", "B"))
    return table("fingerprints", Text("Fingerprints"), columns, rows)


def _published_hashes(found: Comparison) -> Table:
    """Return whether the merges are the published ones; a hash is no number that could be checked within a digit."""
    rows: list[list[Cell]] = []
    for name, side, tokenizer in (("Solar", "A", found.a), ("GLM", "B", found.b)):
        known = origin()["tokenizer_compare"][f"{side}_fingerprint"]
        for what, key, count in (
            (Text("SHA-256 of the first 1,000 merges"), "merges_sha256_first1000", FIRST),
            (Text("SHA-256 of all merges"), "merges_sha256_all", None),
        ):
            same = Text("yes") if tokenizer.fingerprint(count) == known[key] else Text("no")
            rows.append([name, what, known[key], same])
    columns = (
        column("model", "model"),
        column("what", "what"),
        column("published", "published"),
        column("same", "same here"),
    )
    return table("published_fingerprints", Text("Published fingerprints"), columns, rows)


def _overlap_checks(found: Comparison) -> list[Check]:
    listed, deep, expanded = (origin()[key] for key in ("tokenizer_compare", "tokenizer_deep", "tokenizer_expansion"))
    overlap = listed["token_set_overlap"]
    ratio = found.merges_common / len(found.b.merges) if found.b.merges else None
    whole: list[tuple[Text, float, float]] = [
        (Text("tokens of Solar"), listed["A_fingerprint"]["vocab_size"], len(found.a.vocab)),
        (Text("tokens of GLM"), listed["B_fingerprint"]["vocab_size"], len(found.b.vocab)),
        (Text("difference of the vocabularies’ sizes"), deep["vocab_diff"], len(found.a.vocab) - len(found.b.vocab)),
        (Text("tokens in common"), overlap["intersection"], found.common),
        (Text("tokens in either"), overlap["union"], found.union),
        (Text("tokens with the same id"), listed["same_id_exact_matches"]["matches"], found.same_id),
        (
            Text("ids that both have"),
            listed["same_id_exact_matches"]["denom"],
            min(len(found.a.vocab), len(found.b.vocab)),
        ),
        (Text("tokens with ids within 100"), expanded["b_tokens_same_or_close_id"], found.close_id),
        (Text("merges of Solar"), deep["merges_len_A"], len(found.a.merges)),
        (Text("merges of GLM"), deep["merges_len_B"], len(found.b.merges)),
        (Text("merges in common"), deep["merges_common"], found.merges_common),
        (Text("merges of Solar alone"), deep["merges_only_in_A_count"], len(set(found.a.merges)) - found.merges_common),
        (Text("merges of GLM alone"), deep["merges_only_in_B_count"], len(set(found.b.merges)) - found.merges_common),
        (
            Text("equal among the first 1,000 merges, place by place"),
            expanded["first_1000_merges_exact_match"],
            found.first_merges_equal,
        ),
        (
            Text("of B’s first 1,000 ids, at the dominant shift in A"),
            deep["first_1000_consistent_mapping"],
            found.first_consistent,
        ),
    ]
    return [
        *(count_check(what, float(known), float(value)) for what, known, value in whole),
        Check(Text("Jaccard index"), overlap["jaccard"], found.common / found.union),
        Check(Text("share of the smaller vocabulary"), overlap["overlap_vs_smaller"], found.overlap),
        Check(Text("share of GLM’s merges"), deep["merges_B_coverage_in_A"], ratio),
    ]


def _offset_checks(found: Comparison, *, replicas: bool) -> list[Check]:
    listed, deep, expanded = (origin()[key] for key in ("tokenizer_compare", "tokenizer_deep", "tokenizer_expansion"))
    offset, count = most_common(found.ascii_offsets)
    run, start = found.longest_run(offset)
    known = listed["best_offset_longest_contiguous_run"]
    checks = [
        count_check(Text("most frequent offset of ASCII tokens"), listed["best_ascii_offset"], float(offset)),
        count_check(Text("ASCII tokens at it"), listed["ascii_offset_histogram_top10"][0]["count"], float(count)),
        count_check(Text("longest contiguous run at it"), known["run_len"], float(run)),
        count_check(
            Text("first id of that run in Solar"), known["run_start_in_A"], None if start is None else float(start)
        ),
        count_check(Text("dominant shift over all tokens"), deep["dominant_id_shift"], float(found.dominant[0])),
        count_check(Text("tokens at the dominant shift"), deep["tokens_at_dominant_shift"], float(found.dominant[1])),
    ]
    rare = [
        (Text("ASCII tokens at the offset {offset}", offset=e["offset"]), e["count"], found.ascii_offsets[e["offset"]])
        for e in listed["ascii_offset_histogram_top10"][1:]
    ]
    shifts = {e["shift"]: e["count"] for e in deep["most_common_shifts"][1:]} | dict(
        expanded["most_common_position_diffs"][1:]
    )
    rare += [
        (Text("tokens at the shift {offset}", offset=shift), number, found.shifts[shift])
        for shift, number in shifts.items()
    ]
    return checks + [_remarked(replicas, what, float(number), float(value)) for what, number, value in rare]


def _remarked(replicas: bool, what: Text, known: float, measured: float) -> Check:
    check = count_check(what, known, measured, reason=UNCONSTRAINED if replicas else None)
    return replace(check, comparable=not replicas)
