"""Benches: each compares ways of doing one thing in one run and checks the ratio against a goal."""
