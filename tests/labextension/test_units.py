"""Durations and sizes, as written and as shown."""

from tests.labextension.conftest import Evaluate


def test_durations_are_read_in_the_units_of_the_magic(evaluate: Evaluate) -> None:
    assert evaluate("dom.js", "values.map(parseSeconds)", "500ms", "5s", "2m", "1.5s") == [0.5, 5, 120, 1.5]
    assert evaluate("dom.js", "values.map(parseSeconds)", "", "s", "-1s", "1 s", "5x", "1e9s", "0s") == [None] * 7


def test_sizes_are_read_in_the_units_of_the_magic(evaluate: Evaluate) -> None:
    assert evaluate("dom.js", "values.map(parseMegabytes)", "512K", "64M", "1G", "1.5MiB") == [1, 64, 1024, 2]
    assert evaluate("dom.js", "values.map(parseMegabytes)", "", "M", "-64M", "64 M", "64X", "64", "0M") == [None] * 7


def test_durations_are_shown_with_three_digits_at_most(evaluate: Evaluate) -> None:
    shown = evaluate("dom.js", "values.map(secondsText)", 0, 0.00042, 0.12345, 5, 61.2345, 300, 7200)
    assert shown == ["0 s", "420 µs", "123 ms", "5 s", "61.2 s", "5 min", "2 h"]


def test_sizes_are_shown_in_the_largest_unit_that_fits(evaluate: Evaluate) -> None:
    shown = evaluate("dom.js", "values.map(bytesText)", 0, 1, 1023, 1024, 12582912, 2147483648, 10**13)
    assert shown == ["0 bytes", "1 byte", "1023 bytes", "1 KB", "12 MB", "2 GB", "9313 GB"]
