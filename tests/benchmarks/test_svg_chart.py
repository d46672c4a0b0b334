"""Charts are text: what they say and where it lies is read from it."""

import re
import xml.etree.ElementTree as ET

import pytest

from benchmarks.svg_chart import Axis, Series, axis, bar_chart, line_chart

SVG = "{http://www.w3.org/2000/svg}"


def points(chart: str) -> list[list[tuple[float, float]]]:
    lines = [line.get("points", "") for line in ET.fromstring(chart).iter(f"{SVG}polyline")]
    return [[(float(x), float(y)) for x, y in (pair.split(",") for pair in line.split())] for line in lines]


def texts(chart: str) -> list[str]:
    return ["".join(node.itertext()) for node in ET.fromstring(chart).iter(f"{SVG}text")]


def test_doubling_on_a_logarithmic_axis_takes_equal_steps() -> None:
    scale = Axis(1, 64, 100, 700, log=True)
    assert [scale.place(2.0**n) for n in range(7)] == pytest.approx([100, 200, 300, 400, 500, 600, 700])
    assert scale.place(0.001) == 100


def test_an_even_axis_begins_at_zero_and_ends_at_a_round_value() -> None:
    scale = axis([3, 132], 0, 1, log=False)
    assert (scale.low, scale.high) == (0, 150)
    assert scale.ticks() == [0, 50, 100, 150]


def test_values_without_extent_have_an_axis_all_the_same() -> None:
    for log in (True, False):
        assert 0 <= axis([0, 0], 0, 1, log=log).place(0) <= 1
        assert 0 <= axis([], 0, 1, log=log).place(5) <= 1


def test_a_larger_value_lies_higher_and_every_line_is_named() -> None:
    lines = [Series("ours", ((1, 10), (4, 40))), Series("theirs", ((1, 5), (4, 5)))]
    chart = line_chart("Rate", lines, x="at once", y="per second", log_x=True)
    ours, theirs = points(chart)
    assert ours[1][1] < ours[0][1] < theirs[0][1] == theirs[1][1]
    assert ours[0][0] == theirs[0][0] < ours[1][0]
    assert {"Rate", "ours", "theirs", "at once", "per second", "1", "4"} <= set(texts(chart))


def test_points_are_joined_from_left_to_right() -> None:
    ((first, second),) = points(line_chart("", [Series("", ((4, 1), (1, 1)))], x="", y=""))
    assert first[0] < second[0]


def test_bars_are_as_long_as_their_values_and_marked_with_them() -> None:
    chart = bar_chart("Memory", {"sandbox": 10, "other": 20}, unit="MB")
    _, ours, theirs = ET.fromstring(chart).iter(f"{SVG}rect")
    assert float(theirs.get("width", "")) == pytest.approx(2 * float(ours.get("width", "")), abs=0.2)
    assert {"sandbox", "other", "10", "20", "MB"} <= set(texts(chart))


def test_names_cannot_break_the_drawing() -> None:
    chart = bar_chart("<script>&", {"a<b>": 1}, unit="&")
    assert {"<script>&", "a<b>"} <= set(texts(chart))


def test_a_chart_follows_the_colours_of_its_reader_and_loads_nothing() -> None:
    chart = bar_chart("t", {"a": 1}, unit="u")
    assert "prefers-color-scheme:dark" in chart
    assert re.findall(r"(?:href|url|src|@import)", chart) == []
