"""Which pairs of a zoo are looked at, and what the right answer is for each."""

from __future__ import annotations

from dataclasses import dataclass

from kinprint.lab.zoo.members import ZooMember
from kinprint.lab.zoo.store import Zoo

RELATED, UNRELATED, BETWEEN = "related", "unrelated", "between"
"""Between: a shared initialisation, or embeddings or norms alone. Neither answer is wrong, so neither counts."""

_ANSWERS = {
    **dict.fromkeys(("same", "derived", "siblings"), RELATED),
    **dict.fromkeys(("partial", "same_init"), BETWEEN),
    **dict.fromkeys(("distilled", "independent"), UNRELATED),
}


@dataclass(frozen=True, slots=True)
class Trial:
    """One pair: a base, and a member that does or does not come from it.

    ``attack`` is what was done to the member, ``strength`` how much of it; ``group`` the row of the table it counts in. ``turn``
    numbers the unrelated bases of one member, from one on; it is 0 for bases among each other and for pairs that share something.
    """

    a: str
    b: str
    relation: str
    attack: str
    strength: float | None
    preserves: bool
    turn: int = 0

    @property
    def answer(self) -> str:
        """What a method should say: related, unrelated, or neither of them clearly."""
        return _ANSWERS[self.relation]

    @property
    def group(self) -> str:
        """Return the attack with its strength, as tables name it."""
        return self.attack if self.strength is None else f"{self.attack} {self.strength:.3g}"


def trials_of(zoo: Zoo, limit: int | None = None) -> list[Trial]:
    """Pair every base with every member.

    A member that comes from a base is a trial of its attack; against the bases that it has nothing of it is a trial of
    independence, after the same attack. Bases among each other are the plain case, distilled ones and those of the same
    initialisation the hard one. `limit` is the most unrelated pairs of each member, for a quick look.
    """
    bases = [member.name for member in zoo.members.values() if not member.parents]
    order = {name: number for number, name in enumerate(bases)}
    found = []
    for member in zoo.members.values():
        unrelated = 0
        for base in bases:
            if base == member.name or (member.name in order and order[base] > order[member.name]):
                continue  # each pair of bases once
            relation = zoo.relation(base, member.name)
            if _ANSWERS[relation] == UNRELATED:
                unrelated += 1
                if limit is not None and unrelated > limit and member.name not in order:
                    continue
            turn = unrelated if _ANSWERS[relation] == UNRELATED and member.name not in order else 0
            strength = _strength(member, base)
            found.append(Trial(base, member.name, relation, member.attack, strength, member.preserves_function, turn))
    return found


def _strength(member: ZooMember, base: str) -> float | None:
    """Return how much was done; in a merge, the share that this base has in it."""
    weights = [link.weight for link in member.links if link.parent == base and link.kind == "weights"]
    return weights[0] if weights and weights[0] != 1.0 else member.strength
