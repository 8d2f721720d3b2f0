"""Fingerprint methods, one file each."""
