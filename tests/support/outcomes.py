"""Outcomes of studies, made up."""

from collections.abc import Sequence
from typing import Any

from kinprint.studies.outcome import ModelOutcome, Outcome, PartOutcome, Section, Table
from kinprint.text import Text


def table(*given: Any, **chosen: Any) -> Table:
    """Return a table as a section keeps it."""
    section = Section()
    section.add_table(*given, **chosen)
    return section.tables[0]


def outcome_of(*sections: Section, replicas: bool = False, members: Sequence[ModelOutcome] = ()) -> Outcome:
    """Return an outcome of these sections."""
    parts = tuple(PartOutcome(f"part{n}", Text("Part {n}", n=n), section) for n, section in enumerate(sections))
    settings = {"seed": 0, "replicas": replicas}
    return Outcome(
        "test", Text("A title"), Text("A summary."), Text("nowhere"), tuple(members), parts, settings, 1234, 0.5
    )
