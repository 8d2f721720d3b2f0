"""Repeat the experiments of the published analyses on any models, and check the published figures."""
