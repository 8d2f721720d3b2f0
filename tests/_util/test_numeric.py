import pytest

from kinprint._util.numeric import evenly_spaced, spaced_places


@pytest.mark.parametrize(
    ("at", "expected"),
    [("starts", [0, 2, 5, 7]), ("middles", [1, 3, 6, 8]), ("ends", [0, 3, 6, 9]), ("nearest", [0, 3, 6, 9])],
)
def test_where_in_equal_parts_items_are_taken(at, expected):
    assert evenly_spaced(range(10), 4, at=at) == expected


def test_ends_are_rounded_down_or_to_the_nearest():
    assert evenly_spaced("abcd", 3, at="ends") == ["a", "b", "d"]
    assert evenly_spaced("abcd", 3, at="nearest") == ["a", "c", "d"]


@pytest.mark.parametrize("at", ["starts", "middles", "ends", "nearest"])
def test_few_items_are_all_taken(at):
    assert evenly_spaced([4, 2], 2, at=at) == [4, 2]
    assert evenly_spaced([], 3, at=at) == []
    assert len(evenly_spaced([1, 2, 3], 1, at=at)) == 1


@pytest.mark.parametrize(("size", "count"), [(10, 4), (4096, 1024), (5, 9), (0, 3), (7, 1)])
def test_places_are_those_of_evenly_spaced_items(size, count):
    assert spaced_places(size, count).tolist() == evenly_spaced(range(size), count)
