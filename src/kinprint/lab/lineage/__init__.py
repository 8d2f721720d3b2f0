"""Benchmark fingerprint methods and verdicts on pairs of trained models whose relations are known."""
