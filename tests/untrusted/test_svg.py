"""The work of drawing is bounded after everything is followed that a browser repeats."""

from __future__ import annotations

import html

import pytest

from sandbox_kernel.untrusted import ContentRefused
from sandbox_kernel.untrusted.css import SVG_PROPERTIES, clean_style
from sandbox_kernel.untrusted.sanitize import MAX_WORK, sanitize_bundle
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
    assert "url(#m)" in clean_svg(marked(below, 9, how))[0]
    with pytest.raises(ContentRefused, match="more than"):
        clean_svg(marked(below + 200, 9, how))


def test_markers_at_the_ends_of_many_lines_are_drawn() -> None:
    edges = f'<path d="{line(30)}" marker-end="url(#m)" marker-start="url(#m)"/>' * 2000
    assert clean_svg(drawing(f'<marker id="m"><path d="M0 0L1 1z"/></marker>{edges}'))[0].count("marker-end") == 2000


@pytest.mark.parametrize("tag", ["g", "svg", "use", "symbol", "text", "defs"])
@pytest.mark.parametrize("how", [*MIDDLE, 'style="marker:url(#m)"', 'marker="url(#m)"'])
def test_only_lines_have_markers_and_none_inherits_them(tag: str, how: str) -> None:
    assert "url(#m)" not in clean_svg(drawing(f"<{tag} {how}></{tag}>"))[0]


@pytest.mark.parametrize(
    ("one", "most"),
    [
        ('<rect mask="url(#m)"/>', 190),
        ('<rect style="mask:url(#m)"/>', 190),
        ('<rect filter="url(#f)"/>', 95),
        ('<rect stroke-dasharray="4 2"/>', 9000),
        ('<rect width="50" height="50" stroke-dasharray="0.1"/>', 230),
        ('<rect style="stroke-dasharray:10;stroke-dasharray:1e-3 1e-3" r="5"/>', 90),
        ('<path d="M0 50H1800000" stroke-dasharray="1 1"/>', 1),
        ('<path d="M0 50 L9000 50" stroke-dasharray="1 1"/>', 200),
        ('<path d="M0 0 10 50 T 20 20 30 0" stroke-dasharray="1 1"/>', 430),
        ('<line x2="1000" pathLength="1800000" stroke-dasharray="1 1"/>', 1),
        ('<line x2="90%" stroke-dasharray="1 1"/>', 1),
        ('<line x2="10" stroke-dasharray="calc(0.001px)"/>', 1),
        ('<line x2="10" stroke-dasharray="50% 50%"/>', 1),
        (f'<path d="{line(400)}"/>', 600),
        (f"<text>{'x' * 4000}</text>", 185),
        ("<text>large</text>", 6000),
        ('<rect fill="url(#a)"/>', 1900),
        ('<g style="opacity:0.5"></g>', 1900),
        ('<text><textPath xlink:href="#p">x</textPath></text>', 230),
        ('<rect clip-path="url(#c)"/>', 250),
    ],
)
def test_masks_filters_dashes_points_and_text_are_work_too(one: str, most: int) -> None:
    parts = f'<filter id="f"><feGaussianBlur/></filter><mask id="m"/><path id="p" d="{line(1000)}"/>'
    parts += f'<clipPath id="c"><path d="{line(1000)}"/></clipPath>'
    assert clean_svg(drawing(parts + one * most))
    with pytest.raises(ContentRefused, match="more than"):
        clean_svg(drawing(parts + one * (most + max(1, most // 8))))


@pytest.mark.parametrize("tag", ["g", "svg", "use", "symbol", "text", "defs"])
@pytest.mark.parametrize("how", ['stroke-dasharray="1 1"', 'style="stroke-dasharray:1 1"'])
def test_only_outlines_have_dashes_and_none_inherits_them(tag: str, how: str) -> None:
    assert "dash" not in clean_svg(drawing(f"<{tag} {how}></{tag}>"))[0]
    # Units of the page, however the line is enlarged.
    assert "vector" not in clean_svg(drawing('<line vector-effect="non-scaling-stroke"/>'))[0]


def test_dashed_curves_of_many_points_are_kept() -> None:
    points = " L ".join(f"{place / 3} {150 + place % 7}" for place in range(1500))
    assert (
        clean_svg(drawing(f'<path d="M {points}" style="stroke-dasharray: 3.7, 1.6"/>' * 20))[0].count("dasharray")
        == 20
    )


def test_shapes_are_not_blended_with_what_lies_below() -> None:
    style = "mix-blend-mode:luminosity;isolation:isolate;fill:red"
    assert clean_svg(drawing(f'<rect style="{style}"/>'))[0].count('style="fill:red"') == 1


def test_all_drawings_of_a_cell_count_together() -> None:
    one = drawing('<rect fill="url(#a)"/>' * 1500)
    assert sanitize_bundle({"image/svg+xml": one}, {}).work > MAX_WORK / 3


def test_dashes_that_are_none_are_no_work() -> None:
    assert clean_svg(drawing('<rect stroke-dasharray="none"/>' * 12_000))


def test_the_filter_that_looks_at_a_whole_area_for_each_point_is_left_out() -> None:
    assert "feMorphology" not in clean_svg(drawing('<filter id="f"><feMorphology radius="900"/></filter>'))[0]


@pytest.mark.parametrize("font", ["font-family", "font"])
def test_only_known_fonts_are_looked_for(font: str) -> None:
    size = "12px " if font == "font" else ""
    families = f"{size}{','.join(f'z{number}' for number in range(90))},'DejaVu Sans',serif"
    kept = f"{size}'DejaVu Sans',serif"
    assert clean_style(f"{font}:{families}", SVG_PROPERTIES) == f"{font}:{kept}"
    assert f'{font}="{html.escape(kept)}"' in clean_svg(drawing(f'<text {font}="{families}">x</text>'))[0]
    assert clean_style(f"{font}:{size}evil", SVG_PROPERTIES) is None


@pytest.mark.parametrize("style", ["font-weight:451", "font-stretch:91.5%", "font-style:oblique 12deg"])
def test_weights_widths_and_angles_are_those_that_fonts_have(style: str) -> None:
    assert clean_style(style, SVG_PROPERTIES) is None
    assert clean_style("font-weight:bold;font-stretch:condensed", SVG_PROPERTIES)
