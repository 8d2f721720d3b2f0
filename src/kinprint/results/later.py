"""Mark fields added after the first version of a schema; a module of its own, so that options load nothing else."""

MARK = "later"
LATER = {MARK: True}
"""Metadata of a field that was added after reports of this schema were written: it has a default, and may be missing."""
