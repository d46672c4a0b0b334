"""In the page stand drawings of few flat shapes; every other one stands in a frame, whose process is its own."""

import html

import pytest

from sandbox_kernel.untrusted import ContentRefused
from sandbox_kernel.untrusted.css import SVG_PROPERTIES, clean_style
from sandbox_kernel.untrusted.frames.frame_output import FRAME, sanitize_display
from sandbox_kernel.untrusted.sanitize import sanitize_bundle
from sandbox_kernel.untrusted.svg import clean_svg


def drawing(inside: str, root: str = "") -> str:
    spaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return f"<svg {spaces}{root}>{inside}</svg>"


def line(points: int) -> str:
    return "M0 0" + "L1 2" * (points - 1)


#: What has kept a page busy for minutes, and what is next to it.
NOT_PLAIN = [
    *('<rect stroke-dasharray="1 1"/>', '<rect style="fill:red;stroke-dasharray: 3.7, 1.6"/>'),
    *('<path d="M0 0" marker-mid="url(#m)"/>', '<g style="marker:url(#m)"/>', '<marker id="m"/>', "<mask/>"),
    *('<g filter="url(#f)"/>', "<filter><feMorphology/></filter>", '<rect style="mask:url(#m)"/>', "<pattern/>"),
    *('<rect fill="url(#g)"/>', '<rect style="stroke: url(#g)"/>', "<linearGradient/>", "<radialGradient/>"),
    *('<g opacity="0.5"/>', '<g style="opacity:.99"/>', '<rect style="mix-blend-mode:luminosity"/>'),
    *("<image/>", "<a/>", "<script/>", "<style/>", "<foreignObject/>", "<animate/>", "<set/>", "<textPath/>"),
    *('<path d="M0 0" onclick="x"/>', '<text textLength="9"/>', '<text style="letter-spacing:1e6px">x</text>'),
    *('<line vector-effect="non-scaling-stroke"/>', '<rect style="fill:url(https://x.y)"/>', '<use href="data:x"/>'),
    '<clipPath id="c"><rect/><rect/></clipPath>',
    '<clipPath id="c"><path d="M0 0"/></clipPath>',
    '<clipPath id="c"><use href="#p"/></clipPath>',
    '<clipPath id="c" clip-path="url(#d)"><rect/></clipPath>',
    '<clipPath id="c" style="clip-path:url(#d)"><rect/></clipPath>',
]


@pytest.mark.parametrize("inside", NOT_PLAIN)
def test_a_drawing_that_is_not_plain_stands_in_a_frame_as_it_is(inside: str) -> None:
    source = drawing(inside)
    with pytest.raises(ContentRefused, match=r"plain|rectangle"):
        clean_svg(source)
    shown = sanitize_display({"image/svg+xml": [source[:9], source[9:]], "text/plain": "x"}, {})
    assert set(shown.data) == {FRAME, "text/html", "text/plain"}
    assert shown.data[FRAME] == {"html": source, "libraries": [], "height": 450}
    assert "image/svg+xml" not in sanitize_bundle({"image/svg+xml": source}, {}).data


def test_the_frame_is_as_high_as_its_drawing() -> None:
    for height, pixels in (("90", 90), ("345.6pt", 460), ("9e9", 24), ("100%", 100), ("1.1.1px", 24)):
        shown = sanitize_display({"image/svg+xml": drawing("<image/>", f' height="{height}"')}, {}).data[FRAME]
        assert isinstance(shown, dict)
        assert shown["height"] == pixels


def test_html_is_shown_in_place_of_a_drawing_that_is_not_plain() -> None:
    shown = sanitize_display({"image/svg+xml": drawing("<image/>"), "text/html": "<b>x</b>"}, {})
    assert set(shown.data) == {"text/html"}


def test_what_changes_nothing_leaves_a_drawing_plain() -> None:
    root = ' class="a" aria-label="b" data-c="d" version="1.1" xml:space="preserve"'
    style = "stroke-dasharray: none; opacity: 1; vector-effect: none; fill: #fff; white-space: pre"
    inside = f'<title>t</title><g opacity="1" style="{style}"><rect clip-path="url(#c)"/></g>'
    clean = clean_svg(drawing(f'<clipPath id="c"><rect/></clipPath>{inside}', root))[0]
    assert '<g style="fill:#fff"><rect clip-path="url(#c)"></rect></g>' in clean
    assert "data-c" not in clean


@pytest.mark.parametrize(
    ("one", "most"),
    [
        ("<rect/>", 490),
        ('<rect clip-path="url(#c)"/>', 190),
        ('<rect opacity="0.5"/>', 80),
        ('<rect style="opacity:0.5"/>', 80),
        (f'<path d="{line(400)}"/>', 30),
        (f'<polyline points="{"1 2 " * 400}"/>', 35),
        (f"<text>{'x' * 100}</text>", 9),
        ("<text>" + "\u2003" * 100 + "</text>", 9),
        (f'<text x="{"1 " * 400}">x</text>', 80),
        ('<use href="#p"/>', 320),
    ],
)
@pytest.mark.one_case
def test_shapes_points_letters_and_clips_are_few_in_the_page(one: str, most: int) -> None:
    parts = f'<clipPath id="c"><rect/></clipPath><path id="p" d="{line(20)}"/>'
    assert clean_svg(drawing(parts + one * most))
    source = drawing(parts + one * (most + max(2, most // 4)))
    with pytest.raises(ContentRefused, match="shapes and letters"):
        clean_svg(source)
    assert FRAME in sanitize_display({"image/svg+xml": source}, {}).data


def test_sides_that_cross_each_other_cost_with_the_square_of_their_number() -> None:
    few, many = (clean_svg(drawing(f'<path d="{line(points)}"/>'))[1] for points in (500, 2000))
    assert many > 6 * few
    with pytest.raises(ContentRefused):
        clean_svg(drawing(f'<path d="{line(4000)}"/>'))


def test_parts_that_use_each_other_are_refused() -> None:
    heavy = f'<path d="{line(100)}"/>'
    parts = f'<g id="A"><use href="#B"/>{heavy}</g><g id="B"><use href="#A"/></g>'
    for drawn in ("", '<use href="#B"/>' * 300, '<use href="#A"/>'):
        with pytest.raises(ContentRefused, match="uses itself"):
            clean_svg(drawing(parts + drawn))


def test_all_drawings_of_a_cell_count_together() -> None:
    assert sanitize_bundle({"image/svg+xml": drawing("<rect/>" * 400)}, {}).work > 1200


@pytest.mark.parametrize("font", ["font-family", "font"])
def test_only_known_fonts_are_looked_for(font: str) -> None:
    size = "12px " if font == "font" else ""
    families = f"{size}{','.join(f'z{number}' for number in range(90))},'DejaVu Sans',serif"
    kept = f"{size}'DejaVu Sans',serif"
    assert clean_style(f"{font}:{families}", SVG_PROPERTIES) == f"{font}:{kept}"
    assert f'{font}="{html.escape(kept)}"' in clean_svg(drawing(f'<text {font}="{families}">x</text>'))[0]
    assert clean_style(f"{font}:{size}evil", SVG_PROPERTIES) is None
    assert "evil" not in clean_svg(drawing(f'<text style="{font}:{size}evil">x</text>'))[0]


@pytest.mark.parametrize("style", ["font-weight:451", "font-stretch:91.5%", "font-style:oblique 12deg"])
def test_weights_widths_and_angles_are_those_that_fonts_have(style: str) -> None:
    assert clean_style(style, SVG_PROPERTIES) is None
    assert clean_style("font-weight:bold;font-style:italic", SVG_PROPERTIES)
