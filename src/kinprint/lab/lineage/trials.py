"""Choose the pairs of a zoo that methods are run on, and state the right answer for each."""

from dataclasses import dataclass, replace

from kinprint.lab.zoo.members import ZooMember
from kinprint.lab.zoo.store import Zoo

RELATED, UNRELATED, BETWEEN = "related", "unrelated", "between"
"""`BETWEEN`: a shared initialisation, or embeddings or norms alone. Neither answer is wrong, so neither counts."""

_ANSWERS = {
    **dict.fromkeys(("same", "derived", "siblings"), RELATED),
    **dict.fromkeys(("partial", "same_init"), BETWEEN),
    **dict.fromkeys(("distilled", "independent"), UNRELATED),
}


@dataclass(frozen=True, slots=True)
class Trial:
    """One pair: a base, or another model, and a member that does or does not come from it.

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
        """Return the right answer: related, unrelated, or neither of them clearly."""
        return _ANSWERS[self.relation]

    @property
    def group(self) -> str:
        """Return the attack with its strength, as tables name it."""
        return self.attack if self.strength is None else f"{self.attack} {self.strength:.3g}"


def trial_of(zoo: Zoo, a: str, b: str) -> Trial:
    """Return the trial of any two members (of a constructed pair, too): their relation, and what was done to the second."""
    member = zoo.members[b]
    relation = zoo.relation(a, b)
    return Trial(a, b, relation, member.attack, _strength(member, a), member.preserves_function)


def trials_of(zoo: Zoo, limit: int | None = None) -> list[Trial]:
    """Pair every base with every member.

    A member that comes from a base is a trial of its attack; against the bases that it has nothing of it is a trial of
    independence, after the same attack. Bases among each other are the plain case, distilled ones and those of the same
    initialisation the hard one. `limit` is the most unrelated pairs of each member, for a quick look.
    """
    bases = [member.name for member in zoo.members.values() if not member.parents]
    found = []
    for name in zoo.members:
        if name in bases:  # each pair of bases once
            found += [trial_of(zoo, base, name) for base in bases[: bases.index(name)]]
            continue
        turn = 0
        for base in bases:
            trial = trial_of(zoo, base, name)
            if trial.answer == UNRELATED:
                turn += 1
                trial = replace(trial, turn=turn)
            if limit is None or trial.turn <= limit:
                found.append(trial)
    return found


def _strength(member: ZooMember, base: str) -> float | None:
    """Return how much was done; in a merge, the share that this base has in it."""
    weights = [link.weight for link in member.links if link.parent == base and link.kind == "weights"]
    return weights[0] if weights and weights[0] != 1.0 else member.strength
