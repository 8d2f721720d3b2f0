"""Two reports side by side."""

import pytest

from kinprint.bundle.agreement import agree


def walked(recorded, recomputed, *, tolerance=1e-9, later=()):
    return agree(recorded, recomputed, tolerance=tolerance, later=later, skip=("run",))


def test_equal_reports():
    report = {"a": [1, 2.5, {"x": None}], "b": "text", "run": 5, "c": True}
    found = walked(report, {**report, "run": 6})
    assert (found.figures, found.exact, found.other_values, found.problems) == (2, 2, 3, [])


@pytest.mark.parametrize(
    ("recorded", "recomputed", "where", "said"),
    [
        ({"a": 1}, {"a": 2}, "a", ("1", "2")),
        ({"a": 1.0}, {"a": None}, "a", ("1.0", "null")),
        ({"a": 1}, {"a": True}, "a", ("1", "true")),
        ({"a": 1}, {"a": 1.0}, "a", ("1", "1.0")),
        ({"a": "x"}, {"a": "y"}, "a", ('"x"', '"y"')),
        ({"a": [1, 2]}, {"a": [1]}, "a[1]", ("2", "nothing")),
        ({"a": ["x"]}, {"a": ["x", "y"]}, "a[1]", ("nothing", '"y"')),
        ({"a": {"b": [{"c": 1e-300}]}}, {"a": {"b": [{"c": 1.0}]}}, "a.b[0].c", ("1e-300", "1.0")),
        ({"a": []}, {"a": {}}, "a", ("[]", "{}")),
        ({"a": 1, "evil\u202e": 0}, {"a": 1}, "evil\N{REPLACEMENT CHARACTER}", ("0", "nothing")),
        ({"nested": {"run": 1}}, {"nested": {"run": 2}}, "nested.run", ("1", "2")),
    ],
)
def test_every_difference_is_named(recorded, recomputed, where, said):
    (problem,) = walked(recorded, recomputed).problems
    assert (problem.where, (problem.recorded, problem.found)) == (where, said)


def test_rounding_is_counted_apart():
    found = walked({"a": 1.0, "b": 1.0, "n": 10**12}, {"a": 1.0 + 1e-12, "b": 1.0 + 1e-8, "n": 10**12 + 1})
    assert [item.where for item in found.close] == ["a"]
    assert [item.where for item in found.problems] == ["b", "n"]
    assert len(walked({"b": 1.0}, {"b": 1.0 + 1e-8}, tolerance=1e-6).close) == 1


def test_the_sign_of_zero_is_a_bit_too():
    found = walked({"a": 0.0, "b": [-0.0, 0]}, {"a": -0.0, "b": [-0.0, 0]})
    assert (found.figures, found.exact, [item.where for item in found.close], found.problems) == (3, 2, ["a"], [])


def test_an_older_report_may_lack_fields_that_came_later_and_they_are_named():
    older = {"a": [1]}
    assert walked(older, {"a": [1], "later": {"x": 1}}).problems
    found = walked(older, {"a": [1], "later": {"x": 1}}, later=("later",))
    assert (found.problems, found.newer) == ([], ["later"])
    assert walked(older, {"a": [1, 2]}, later=("later",)).problems
    assert walked(older, {"a": [1], "other": 1}, later=("later",)).problems
    assert walked({"a": [1], "later": 1}, older, later=("later",)).problems
