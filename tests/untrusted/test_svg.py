"""The work of drawing is bounded after everything is followed that a browser repeats."""

from __future__ import annotations

import pytest

from sandbox_kernel.untrusted import ContentRefused
from sandbox_kernel.untrusted.svg import MAX_DRAWN, clean_svg


def drawing(inside: str) -> str:
    return f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">{inside}</svg>'


def line(points: int) -> str:
    return "M0 0" + "L1 2" * (points - 1)


def marked(points: int, shapes: int, how: str) -> str:
    return drawing(
        f'<marker id="m">{"<rect/>" * shapes}</marker><path id="p" d="{line(points)}" {how}/><use xlink:href="#p"/>'
    )


MIDDLE = ['marker-mid="url(#m)"', 'style="fill:none;marker-mid:url(#m)"']


@pytest.mark.parametrize("how", MIDDLE)
def test_a_marker_counts_at_every_point_of_a_line(how: str) -> None:
    # Each point is a command and two numbers: any of them may be one.
    below = MAX_DRAWN // 2 // 3 // 10 - 100
    assert "url(#m)" in clean_svg(marked(below, 9, how))
    with pytest.raises(ContentRefused, match="more than"):
        clean_svg(marked(below + 200, 9, how))


def test_markers_at_the_ends_of_many_lines_are_drawn() -> None:
    edges = f'<path d="{line(30)}" marker-end="url(#m)" marker-start="url(#m)"/>' * 2000
    assert clean_svg(drawing(f'<marker id="m"><path d="M0 0L1 1z"/></marker>{edges}')).count("marker-end") == 2000


@pytest.mark.parametrize("tag", ["g", "svg", "use", "symbol", "text", "defs"])
@pytest.mark.parametrize("how", [*MIDDLE, 'style="marker:url(#m)"', 'marker="url(#m)"'])
def test_only_lines_have_markers_and_none_inherits_them(tag: str, how: str) -> None:
    assert "url(#m)" not in clean_svg(drawing(f"<{tag} {how}></{tag}>"))


@pytest.mark.parametrize(
    ("one", "most"),
    [
        ('<rect mask="url(#m)"/>', 190),
        ('<rect style="mask:url(#m)"/>', 190),
        ('<rect filter="url(#f)"/>', 95),
        ('<rect stroke-dasharray="4 2"/>', 9000),
        ('<rect stroke-dasharray="0.1"/>', 190),
        ('<rect style="stroke-dasharray:1e-3 1e-3"/>', 190),
        (f'<path d="{line(400)}"/>', 600),
        (f"<text>{'x' * 4000}</text>", 190),
        ('<text><textPath xlink:href="#p">x</textPath></text>', 250),
        ('<rect clip-path="url(#c)"/>', 250),
    ],
)
def test_masks_filters_dashes_points_and_text_are_work_too(one: str, most: int) -> None:
    parts = f'<filter id="f"><feGaussianBlur/></filter><mask id="m"/><path id="p" d="{line(1000)}"/>'
    parts += f'<clipPath id="c"><path d="{line(1000)}"/></clipPath>'
    assert clean_svg(drawing(parts + one * most))
    with pytest.raises(ContentRefused, match="more than"):
        clean_svg(drawing(parts + one * (most + most // 8)))


def test_dashes_that_are_none_are_no_work() -> None:
    assert clean_svg(drawing('<rect stroke-dasharray="none"/>' * 12_000))


def test_the_filter_that_looks_at_a_whole_area_for_each_point_is_left_out() -> None:
    assert "feMorphology" not in clean_svg(drawing('<filter id="f"><feMorphology radius="900"/></filter>'))
