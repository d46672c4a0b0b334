"""Outputs that would keep a parser busy for long are refused by counting, before any parser that could be slow sees them."""

import base64
import contextlib
import random

import nh3
import pytest

from sandbox_kernel.untrusted import ContentRefused, html, svg
from sandbox_kernel.untrusted.frames import frame_output
from sandbox_kernel.untrusted.frames.frame_output import FRAME, sanitize_display
from sandbox_kernel.untrusted.html import clean_html
from sandbox_kernel.untrusted.sanitize import sanitize_bundle, sanitize_docstring
from sandbox_kernel.untrusted.svg import clean_svg
from tests.untrusted.hostile_texts import texts

BOLD = "".join(f"<b title={number}>" for number in range(100))


@pytest.mark.parametrize(
    ("markup", "reason"),
    [
        ("<b " + " ".join(f"a{n}=1" for n in range(90_000)) + ">", "one of its tags has more than 64 attributes"),
        ("<b " + " ".join(f"a{n}=1" for n in range(65)) + ">", "one of its tags has more than 64 attributes"),
        ("<table>" + "x<b></b>" * 60_000, "it has more than 40000 tags"),
        ("<b></b>" * 40_000, "it has more than 40000 tags"),
        ("<table>" + "x<tr>" * 30_000, "it has more than 2000 words between the cells"),
        (("<div>" * 60 + "<table><td>" + "</div>" * 60) * 10, "it is nested deeper than 128 elements"),
        ("&amp;" * 70_000, "it has more than 40000 tags"),
        ("<b>" * 200, "it is nested deeper than 128 elements"),
        ("x" * (5 << 20), "it is larger than 4 MB"),
    ],
)
def test_html_that_would_take_a_parser_seconds_never_reaches_one(
    markup: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(html.nh3, "clean", lambda *_, **__: pytest.fail("a parser was asked"))
    with pytest.raises(ContentRefused, match=reason):
        clean_html(markup)


@pytest.mark.parametrize("markup", ["\xa0" * (2 << 20), "<table><td></table>" * 13_000])
def test_html_that_grows_when_it_is_written_out_is_refused(markup: str) -> None:
    with pytest.raises(ContentRefused, match="once it is written out"):
        clean_html(markup)


@pytest.mark.parametrize(
    ("markup", "shown"),
    [
        ("<p>a<p>b", "<p>a</p><p>b</p>"),
        ("<ul><li>a<li>b<ul><li>c</ul></ul>d", "<ul><li>a</li><li>b<ul><li>c</li></ul></li></ul>d"),
        ("<dl><dt>a<dd>b</dl>", "<dl><dt>a</dt><dd>b</dd></dl>"),
        ("<b><i>x</b>y</i>z", "<b><i>x</i></b>yz"),
        ("<p><b>x<div>y</div>z", "<p><b>x</b></p><div>y</div>z"),
        ("<li><div><li>a<blockquote><li>b", "<li><div></div></li><li>a<blockquote><li>b</li></blockquote></li>"),
        ("<h1>a<h2>b</h2>c", "<h1>a</h1><h2>b</h2>c"),
        ("</div>x</b></li>", "x"),
        ("<table>x<b>y</b><tr><td>z</table>after", "x<b>y</b><table><tbody><tr><td>z</td></tr></tbody></table>after"),
        ("<table><col><tr><th>a<td>b", "<table><colgroup><col></colgroup><tbody><tr><th>a</th><td>b</td></tr></tbody></table>"),
        ("<table><thead><tr><td>a<tbody><tr><td>b", "<table><thead><tr><td>a</td></tr></thead><tbody><tr><td>b</td></tr></tbody></table>"),
        ("<table><tr><td><table><tr><td>x</table>y</td><td>z", "<table><tbody><tr><td><table><tbody><tr><td>x</td></tr></tbody></table>y</td><td>z</td></tr></tbody></table>"),
        ("a < b & c <3", "a &lt; b &amp; c &lt;3"),
        ("<td>cell</td>", "cell"),
    ],
)  # fmt: skip
def test_tags_that_were_left_open_close_where_a_browser_closes_them(markup: str, shown: str) -> None:
    assert clean_html(markup)[0] == shown


_SOUP = sorted(html.names("b a i p div table td tr th caption li ul span h1 h2 dd tbody col pre"))


@pytest.mark.parametrize("seed", range(30))
def test_a_parser_makes_no_more_of_a_soup_of_tags_than_was_counted(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    names, soup = chance.sample(_SOUP, chance.randint(2, 6)), ""
    for _ in range(chance.randint(1, 3)):
        tags = [f"<{name} title=N>x" if chance.random() < 0.6 else f"</{name}>" for name in chance.choices(names, k=6)]
        soup += "".join("".join(tags).replace("N", str(number)) for number in range(chance.choice([5, 50, 120, 1500])))
    given: list[str] = []
    real = nh3.clean
    monkeypatch.setattr(html.nh3, "clean", lambda text, **options: given.append(text) or real(text, **options))
    with contextlib.suppress(ContentRefused):
        cleaned, _ = clean_html(soup * chance.choice([1, 10]))
        # A parser adds the rows and sections of cells that have none.
        assert cleaned.count("<") <= given[0].count("<") + 4 * given[0].count("<t") + 2 * given[0].count("<c")


@pytest.mark.parametrize(
    "bold", ["<p>{}", "<p>{}<table><td></b></table>", "<table>{}<td></table>", "<table><th>{}</td>"]
)
def test_formatting_that_stays_open_is_not_repeated_in_every_paragraph(bold: str) -> None:
    cleaned, _ = clean_html(bold.format(BOLD) + "<p>x" * 5000)
    assert cleaned.count("<b") == 100


def test_what_was_cleaned_is_clean() -> None:
    for _, text in texts(7, 1500):
        try:
            cleaned, _ = clean_html(text)
        except ContentRefused:
            continue
        assert clean_html(cleaned)[0] == cleaned, text


def test_a_type_in_other_letters_is_not_checked_twice() -> None:
    bundle = sanitize_bundle({"text/html": "<b>1</b>", "TEXT/HTML": "<b>2</b>", "Text/Html": "<b>3</b>"}, {})
    assert bundle.data == {"text/html": "<b>1</b>"}


def test_a_drawing_that_repeats_its_parts_a_thousand_million_times_is_refused() -> None:
    parts = "".join(f'<g id="a{n}">' + f'<use href="#a{n + 1}"/>' * 10 + "</g>" for n in range(9))
    with pytest.raises(ContentRefused, match="shapes and letters"):
        clean_svg(f'<svg xmlns="http://www.w3.org/2000/svg"><defs>{parts}</defs><g id="a9"/><use href="#a0"/></svg>')


@pytest.mark.parametrize(
    ("drawing", "reason"),
    [
        ("<svg><path " + " ".join(f'a{n}="1"' for n in range(100)) + "/></svg>", "more than 64 attributes"),
        ("<svg>" + "<g/>" * 70_000 + "</svg>", "more than 40000 elements"),
        ("<svg>" + "<g>" * 200 + "</g>" * 200 + "</svg>", "nested deeper"),
        ('<!DOCTYPE svg [<!ENTITY a "b">]><svg>&a;</svg>', "declares entities"),
        ('<!DOCTYPE svg [<!ATTLIST g fill CDATA "x">]><svg><g/></svg>', "declares entities or attributes"),
        ("<svg><g></svg>", "not well-formed"),
        ("<p>x</p>", "there is no <svg> in it"),
    ],
)
def test_drawings_that_cost_too_much_are_refused(drawing: str, reason: str) -> None:
    with pytest.raises(ContentRefused, match=reason):
        clean_svg(drawing)


def test_a_docstring_is_shorter_than_an_output() -> None:
    assert sanitize_docstring({"text/plain": "x", "text/html": "y" * 300_000}).data == {"text/plain": "x"}
    for long in ("y" * 300_000, ["y" * 200_000] * 2):
        assert sanitize_docstring({"text/html": long}).data == {
            "text/plain": "[not shown: it is no text, or longer than 256 KB]"
        }
    assert "text/plain" in sanitize_docstring(3).data
    forms = dict.fromkeys(("text/plain", "a/a", "b/b", "c/c", "text/html"), "y" * 250000)
    assert set(sanitize_docstring(forms).data) == {"text/plain"}, "all forms together are bounded too"
    assert "text/html" in sanitize_docstring({mime: forms[mime] for mime in ("text/plain", "text/html")}).data


def test_an_environment_without_an_end_is_looked_for_in_a_bounded_number_of_lines() -> None:
    begun = "\n".join(f"\\begin{{a{chr(97 + n % 26)}{chr(97 + n // 26)}}}" for n in range(19))
    shown = sanitize_bundle({"text/markdown": f"{begun}\n```\n" + "\n" * 200_000, "text/plain": "a"}, {})
    assert "steps" in shown.removed[0]


def test_a_drawing_that_is_too_long_to_be_plain_stands_in_a_frame_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(svg.expat, "ParserCreate", lambda *_: pytest.fail("a parser was asked"))
    drawing = f'<svg xmlns="http://www.w3.org/2000/svg"><path d="M0 0{" L1 1" * 300_000}"/></svg>'
    assert FRAME in sanitize_display({"image/svg+xml": drawing}, {}).data


@pytest.mark.parametrize("before", range(-9, 2))
def test_what_needs_a_frame_is_found_between_two_windows_of_a_search(before: int) -> None:
    assert frame_output.needs_frame("x" * (frame_output._WINDOW + before) + "<script>" + "x" * 100)
    assert not frame_output.needs_frame("x" * (frame_output._WINDOW + before) + "<b>x</b>")


def test_no_item_of_a_list_has_a_number_of_its_own() -> None:
    # Chromium counts the rest of a list anew for each: a minute for ten thousand.
    assert clean_html('<ol start="3"><li value="1">x</ol>')[0] == '<ol start="3"><li>x</li></ol>'


def test_space_in_percent_is_in_no_style_that_nests_flexible_boxes() -> None:
    cleaned, _ = clean_html('<div style="display:grid;padding:1%;margin-left:2%;width:50%;padding-top:3px">x</div>')
    assert 'style="width:50%;padding-top:3px"' in cleaned
    assert "grid" not in clean_html('<div style="max-width:90%;display: INLINE-GRID">x</div>')[0]


def _png(width: int, height: int) -> str:
    head = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + width.to_bytes(4, "big") + height.to_bytes(4, "big")
    return base64.b64encode(head + bytes(30)).decode()


@pytest.mark.parametrize("mime", ["image/png", "text/html", "text/markdown"])
def test_the_pixels_of_pictures_are_work_for_a_page(mime: str) -> None:
    def shown(width: int, height: int) -> int:
        url = f"data:image/png;base64,{_png(width, height)}"
        forms = {
            "image/png": _png(width, height),
            "text/html": f'<img src="{url}">',
            "text/markdown": f"![]({url})",
        }
        bundle = sanitize_bundle({mime: forms[mime]}, {})
        assert not bundle.removed
        return bundle.work

    assert 100 <= shown(1, 1) < 1200
    assert shown(7000, 7000) >= shown(1, 1) + 49_000


def test_text_that_looks_like_a_picture_is_text() -> None:
    for text in ("data:image/png;base64,A", "data:image/jpeg;base64,", "data:image/xyz;base64,AAAA"):
        assert sanitize_bundle({"text/html": f"<p>{text}</p>"}, {}).data["text/html"] == f"<p>{text}</p>"
