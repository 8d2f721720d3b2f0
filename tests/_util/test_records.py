"""Classes with shared methods are what the standard decorator makes of them."""

import copy
import dataclasses
from typing import Any

import pytest

from kinprint._util.records import dataclass


def made(decorator: Any, **options: Any) -> Any:
    """Return a class with defaults, a field that no comparison sees, and one that nobody is shown."""

    @decorator(**options)
    class One:
        """A pair."""

        a: int
        b: tuple[int, ...] = (1,)
        kept: dict[str, int] = dataclasses.field(default_factory=dict, compare=False)
        hidden: str = dataclasses.field(default="x", repr=False)

        def doubled(self) -> int:
            return 2 * self.a

    return One


BOTH = pytest.mark.parametrize("options", [{"frozen": True}, {"frozen": True, "slots": True}, {}], ids=str)


@BOTH
def test_equality_hash_and_repr_are_those_of_the_standard_library(options):
    ours, theirs = made(dataclass, **options), made(dataclasses.dataclass, **options)
    for cls in (ours, theirs):
        one, same, other = cls(3, kept={"x": 1}), cls(3, kept={"x": 2}), cls(3, hidden="y")
        assert one == same
        assert one != other
        assert one != 3
        assert dataclasses.replace(one, a=4).doubled() == 8
        assert dataclasses.asdict(one) == {"a": 3, "b": (1,), "kept": {"x": 1}, "hidden": "x"}
        assert copy.copy(one) == one
        assert [field.name for field in dataclasses.fields(cls)] == ["a", "b", "kept", "hidden"]
        assert cls.__match_args__ == ("a", "b", "kept", "hidden")
        if options:
            assert hash(one) == hash(same)
            assert len({one, same, other}) == 2
            with pytest.raises(dataclasses.FrozenInstanceError):
                one.a = 5
        else:
            assert cls.__hash__ is None
    assert repr(ours(3)) == repr(theirs(3))


def test_what_a_class_defines_itself_is_kept():
    @dataclass(frozen=True)
    class Named:
        """A name."""

        name: str

        def __repr__(self) -> str:
            return self.name

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Named) and other.name.lower() == self.name.lower()

        def __hash__(self) -> int:
            return hash(self.name.lower())

    assert repr(Named("A")) == "A"
    assert Named("A") == Named("a")
    assert len({Named("A"), Named("a")}) == 1


def test_a_class_may_extend_another_and_compares_with_its_own_kind_alone():
    @dataclass(frozen=True)
    class Base:
        """One field."""

        a: int

    @dataclass(frozen=True)
    class More(Base):
        """Another."""

        b: int = 2

    assert More(1) == More(1, 2)
    assert More(1) != More(1, 3)
    assert More(1) != Base(1)
    assert repr(More(1)).endswith("More(a=1, b=2)")


def test_identity_of_instances_may_be_asked_for():
    cls = made(dataclass, frozen=True, eq=False)
    one = cls(1)
    assert one == one
    assert one != cls(1)
    assert hash(one) == object.__hash__(one)
