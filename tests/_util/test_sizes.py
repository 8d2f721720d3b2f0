import pytest

from kinprint._util.sizes import format_size, parse_size
from kinprint.errors import BadReference


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4096", 4096),
        ("64MB", 64_000_000),
        ("64mb", 64_000_000),
        (" 1.5 GiB ", 3 << 29),
        ("1k", 1000),
        ("1KiB", 1024),
        ("2T", 2 * 10**12),
        ("0", 0),
        ("0.29MB", 290_000),  # exact: through a float this could lose a byte
        ("9007199254740993", 9007199254740993),
    ],
)
def test_sizes_as_people_write_them(text, expected):
    assert parse_size(text) == expected


@pytest.mark.parametrize("text", ["", "MB", "-1", "1e9", "1.2.3", "64 parsecs", "nan", "9" * 400, "1" * 5000 + "GB"])
def test_not_a_size(text):
    with pytest.raises(BadReference, match="as a size: expected a number"):
        parse_size(text)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (1_400_000, "1.4 MB"), (221e9, "221.0 GB"), (5e15, "5000.0 TB")],
)
def test_sizes_as_people_read_them(count, text):
    assert format_size(count) == text
