"""Register plug-ins by name: metrics, fingerprint methods, formats."""

import difflib
from typing import TypeVar

from kinprint.errors import BadSelection

T = TypeVar("T")


class Registry(dict[str, T]):
    """Named plug-ins in the order in which they were registered; a name is taken once."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def add(self, name: str, item: T) -> T:
        """Register `item` under `name`; a second use of a name is a programming error."""
        if name in self:
            raise ValueError(f"{self.kind} {name!r} is registered twice")
        self[name] = item
        return item

    def __missing__(self, name: str) -> T:
        near = difflib.get_close_matches(name, self, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(self)}"
        raise BadSelection(f"no {self.kind} is called {name!r}", hint=hint)
