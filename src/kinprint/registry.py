"""Register plug-ins by name: metrics, fingerprint methods, formats."""

import difflib
from collections.abc import Iterator
from typing import Generic, TypeVar

from kinprint.errors import BadSelection

T = TypeVar("T")


class Registry(Generic[T]):
    """Named plug-ins in the order in which they were registered; a name is taken once."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._items: dict[str, T] = {}

    def add(self, name: str, item: T) -> T:
        """Register `item` under `name`; a second use of a name is a programming error."""
        if name in self._items:
            raise ValueError(f"{self.kind} {name!r} is registered twice")
        self._items[name] = item
        return item

    def __getitem__(self, name: str) -> T:
        try:
            return self._items[name]
        except KeyError:
            near = difflib.get_close_matches(name, self._items, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(self._items)}"
            raise BadSelection(f"no {self.kind} is called {name!r}", hint=hint) from None

    def __contains__(self, name: object) -> bool:
        return name in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def values(self) -> list[T]:
        """Return the registered items in order."""
        return list(self._items.values())
