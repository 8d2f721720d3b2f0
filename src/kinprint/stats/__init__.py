"""Compute permutation nulls: the distribution of a metric if the two sides are unrelated.

Independent initialisation and training leave the order of exchangeable units (residual dimensions, neurons) without
meaning, so one side's order is permuted and the metric's mean, spread and tail under all permutations are given, in
closed form wherever one exists.
"""
