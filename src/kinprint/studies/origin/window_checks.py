"""The published figures of the window probe beside the measured ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.arch import Role
from kinprint.studies.origin.shared import COSINE, NEEDS_FULL, STATISTIC, count_check, origin, summarised
from kinprint.studies.origin.windows import MISMATCH, MISSING, WindowRow
from kinprint.studies.outcome import Check, Trust
from kinprint.text import Text

TENSORS = {
    Role.ATTN_K: "self_attn.k_proj.weight",
    Role.ATTN_V: "self_attn.v_proj.weight",
    Role.ATTN_Q: "self_attn.q_proj.weight",
    Role.ATTN_O: "self_attn.o_proj.weight",
    Role.INPUT_NORM: "input_layernorm.weight",
    Role.POST_ATTENTION_NORM: "post_attention_layernorm.weight",
    Role.ROUTER: "mlp.gate.weight",
    Role.ROUTER_BIAS: "mlp.gate.e_score_correction_bias",
}
"""Names under which the publication lists the roles."""

OTHER_WINDOWS = Text("the published windows lie elsewhere in the tensors: two samples can agree only so far")
LARGE = Text("thousands, from values stored in 32 bits: hundredths can agree")
OVERLAP = Text("three windows of half the tensor overlap: elements were counted more than once")
THRICE = Text("the whole tensor was read three times and each element counted three times; the report says 262,144")


def column_of(rows: Sequence[WindowRow], name: str) -> FloatArray:
    """Return one field of all rows that have it."""
    return np.array([value for row in rows if (value := getattr(row, name)) is not None], dtype=np.float64)


def window_checks(rows: Sequence[WindowRow], *, full: bool) -> list[Check]:
    """Return the published statistics of the windows beside the measured ones."""
    checks: list[Check] = []
    for role, name in TENSORS.items():
        chosen = [row for row in rows if row.plan.role is role]
        if len(chosen) != 46:
            continue  # other layers or roles were asked for
        entries = origin()["sampled_windows"][name]
        measured = [row for row in chosen if row.cosine is not None]
        for entry in entries:
            missing = entry["status"].startswith("missing")
            if missing or "cosine" not in entry:
                count = sum(row.status == (MISSING if missing else MISMATCH) for row in chosen)
                what = Text("layers with the status “{status}”, {role}", status=entry["status"], role=role.value)
                checks.append(count_check(what, entry["count"], float(count)))
                continue
            what = Text("layers compared, {role}", role=role.value)
            checks.append(count_check(what, entry["count"], float(len(measured))))
            if measured:
                checks += _role_checks(role, entry, measured, full=full)
    return checks


def _role_checks(role: Role, entry: dict[str, Any], rows: Sequence[WindowRow], *, full: bool) -> list[Check]:
    """Compare a role's published statistics; windows of fewer elements than published bear out only the means."""
    matrix = role.info.kind == "matrix"
    reason = OTHER_WINDOWS if matrix else None
    checks: list[Check] = []
    norm = role.info.kind == "norm"
    for measure_name, key, within, remark in (
        (COSINE, "cosine", 1e-3 if matrix else None, reason),
        (Text("relative RMSE"), "rel_rmse", None if norm else 1e-2, reason if matrix or norm else LARGE),
    ):
        values = summarised(column_of(rows, key))
        for statistic in ("mean", "std", "min", "max"):
            told = not matrix or full or statistic == "mean"
            what = Text(
                "{statistic} of the {measure}, {role}, windows",
                statistic=STATISTIC[statistic],
                measure=measure_name,
                role=role.value,
            )
            checks.append(
                Check(
                    what,
                    entry[key][statistic],
                    values[statistic] if told else None,
                    reason=remark if told else NEEDS_FULL,
                    within=within,
                )
            )
    magnitude = float(np.abs(column_of(rows, "cosine")).mean()) if full or not matrix else None
    what = Text("mean |cosine|, {role}, windows", role=role.value)
    checks.append(
        Check(
            what,
            float(entry["mean_abs_cosine"]),
            magnitude,
            reason=NEEDS_FULL if magnitude is None else reason,
            within=1e-3 if matrix else None,
        )
    )
    what = Text("elements counted, {role}", role=role.value)
    stored = min(math.prod(shape) for shape in rows[0].plan.shapes if shape is not None)
    trust: Trust = "wrong" if entry["n_counted"] > stored else "measured"
    remark = None if trust == "measured" else OVERLAP if matrix else THRICE
    counted = float(max(row.n for row in rows)) if full or not matrix else None
    if counted is None and remark is None:
        remark = NEEDS_FULL
    return [*checks, count_check(what, float(entry["n_counted"]), counted, trust, remark)]
