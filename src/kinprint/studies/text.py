"""Sentences that a study says, kept as template and values so that they can be said in another language."""

from __future__ import annotations

import string
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import orjson

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Text:
    """A sentence: an English template, and the values that go into it. A value may be a Text itself."""

    template: str
    values: dict[str, object] = field(default_factory=dict)

    def render(self, language: str = "en") -> str:
        """Return the sentence in `language`; what has no translation stays English, so nothing is ever lost."""
        template = self.template if language == "en" else translations(language).get(self.template, self.template)
        said = {
            name: value.render(language) if isinstance(value, Text) else value for name, value in self.values.items()
        }
        return template.format(**said)

    def __str__(self) -> str:
        return self.render()


def say(template: str, **values: object) -> Text:
    """Return the sentence `template` with `values` in its braces."""
    return Text(template, values)


@cache
def translations(language: str) -> dict[str, str]:
    """Return English template to template in `language`; each study has one beside its code."""
    found: dict[str, str] = {}
    for file in sorted(_HERE.rglob(f"{language}.json")):
        found |= orjson.loads(file.read_bytes())
    return found


def fields(template: str) -> set[str]:
    """Return the names in a template's braces; a translation has to use the same ones."""
    return {name for _, name, _, _ in string.Formatter().parse(template) if name}
