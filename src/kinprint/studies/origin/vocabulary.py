"""The tokenizer comparison of the first accusation."""

from __future__ import annotations

from dataclasses import replace

from kinprint.studies.opened import Stage
from kinprint.studies.origin.shared import UNCONSTRAINED, accused, count_check, is_published, origin
from kinprint.studies.origin.tokens import FIRST, Comparison, compared, most_common
from kinprint.studies.outcome import Cell, Check, Section, Table, column, table
from kinprint.studies.text import Text, say


def tokenizers(stage: Stage) -> Section:
    """Part H: vocabularies, ids, offsets and merges."""
    section = Section()
    a, b = accused(stage)
    found = compared(stage, a, b)
    section.tables += [_overlap_table(found), _offset_table(found), _fingerprint_table(found)]
    section.notes += [
        say(
            "Two tokenizers trained on overlapping languages share many tokens and merges; the share alone is no sign "
            "of descent. A long run of ids at one offset is often the byte alphabet, which byte-level tokenizers list "
            "in the same order."
        ),
        say(
            "Counts are of the model’s own table; tokens added outside it: {a_added} in A, {b_added} in B.",
            a_added=found.a.added,
            b_added=found.b.added,
        ),
    ]
    if is_published(stage, a, b):
        section.checks += _overlap_checks(found) + _offset_checks(found, replicas=stage.request.replicas)
        if stage.request.replicas:
            section.notes.append(
                say(
                    "Of the published differences of ids the replicas have the most frequent one only; the others, and "
                    "the hashes, are not theirs."
                )
            )
        section.tables.append(_published_hashes(found))
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


def _published_hashes(found: Comparison) -> Table:
    """Return whether the merges are the published ones; a hash is no number that could be checked within a digit."""
    rows: list[list[Cell]] = []
    for name, side, tokenizer in (("Solar", "A", found.a), ("GLM", "B", found.b)):
        known = origin()["tokenizer_compare"][f"{side}_fingerprint"]
        for what, key, count in (
            (say("SHA-256 of the first 1,000 merges"), "merges_sha256_first1000", FIRST),
            (say("SHA-256 of all merges"), "merges_sha256_all", None),
        ):
            same = say("yes") if tokenizer.fingerprint(count) == known[key] else say("no")
            rows.append([name, what, known[key], same])
    columns = (
        column("model", "model"),
        column("what", "what"),
        column("published", "published"),
        column("same", "same here"),
    )
    return table("published_fingerprints", say("Published fingerprints"), columns, rows)


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
        *(count_check(what, float(known), float(value)) for what, known, value in whole),
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
        count_check(say("most frequent offset of ASCII tokens"), listed["best_ascii_offset"], float(offset)),
        count_check(say("ASCII tokens at it"), listed["ascii_offset_histogram_top10"][0]["count"], float(count)),
        count_check(say("longest contiguous run at it"), known["run_len"], float(run)),
        count_check(
            say("first id of that run in Solar"), known["run_start_in_A"], None if start is None else float(start)
        ),
        count_check(say("dominant shift over all tokens"), deep["dominant_id_shift"], float(found.dominant[0])),
        count_check(say("tokens at the dominant shift"), deep["tokens_at_dominant_shift"], float(found.dominant[1])),
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
    check = count_check(what, known, measured, reason=UNCONSTRAINED if replicas else None)
    return replace(check, comparable=not replicas)
