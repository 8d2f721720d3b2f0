"""Compute permutation nulls: the distribution of a metric if the two sides are unrelated.

Independent initialisation and training leave the order of exchangeable units (residual dimensions, neurons) without
meaning, so one side's order is permuted and the metric's mean, spread and tail under all permutations are given, in
closed form wherever one exists.
"""

from kinprint.results.measurements import NullResult
from kinprint.stats.joint import block_nulls, joint_blocks, joint_independent, joint_tail, rows_taken
from kinprint.stats.moments import check_range
from kinprint.stats.montecarlo import draw_columns
from kinprint.stats.nulls import KINDS, null_for, null_from_draws
from kinprint.stats.shared import PermutationNulls

__all__ = [
    "KINDS", "NullResult", "PermutationNulls", "block_nulls", "check_range", "draw_columns", "joint_blocks",
    "joint_independent", "joint_tail", "null_for", "null_from_draws", "rows_taken",
]  # fmt: skip
