"""Which displays get a frame, and what is said about what a frame does not load."""

from __future__ import annotations

import pytest

from sandbox_kernel.untrusted.frames.frame_output import FRAME, needs_frame, refused_hosts, sanitize_display

TABLE = """<div>
<style scoped>
    .dataframe tbody tr th { vertical-align: top; }
</style>
<table border="1" class="dataframe"><tr><td>1</td></tr></table></div>"""


@pytest.mark.parametrize("markup", ["plain", "<b>bold</b>", "a < script > b", "<p title='onclick=1'>x</p>", TABLE])
def test_markup_without_scripts_or_styles_is_cleaned_for_the_page(markup: str) -> None:
    clean = sanitize_display({"text/html": markup, "text/plain": "x"}, {})
    assert FRAME not in clean.data
    assert "iframe" not in str(clean.data["text/html"])


@pytest.mark.parametrize(
    "markup",
    [
        "<script>1</script>",
        "<SCRIPT src=x>",
        "<b onclick=x()>b</b>",
        "<style>td { background: url(data:image/png;base64,AAAA) }</style>",
        "<svg></svg>",
        "<button>b",
    ],
)
def test_markup_that_cleaning_would_impair_is_shown_in_a_frame(markup: str) -> None:
    clean = sanitize_display({"text/html": markup, "text/plain": "x"}, {})
    assert clean.data[FRAME]["html"] == markup  # type: ignore[index]
    assert clean.data["text/plain"] == "x"
    assert clean.removed == ()


def test_markup_that_needs_only_styles_is_shown_in_the_page() -> None:
    clean = sanitize_display({"text/html": "<style>b { color: red }</style><b>x</b>", "text/plain": "x"}, {})
    assert set(clean.data) == {"text/html", "text/plain"}
    assert "{color:red}</style><b>x</b></div>" in str(clean.data["text/html"])
    assert clean.removed == ()


def test_other_forms_of_a_framed_output_are_cleaned_too() -> None:
    clean = sanitize_display(
        {FRAME: {"html": "x"}, "application/javascript": "1", "text/plain": "\x1b]0;title\x07x"}, {}
    )
    assert set(clean.data) == {FRAME, "text/html", "text/plain"}
    assert clean.data["text/plain"] == "x"


def test_a_frame_that_is_none_leaves_the_rest_and_says_so() -> None:
    clean = sanitize_display({FRAME: {"html": 1}, "text/plain": "x"}, {})
    assert clean.data == {"text/plain": "x"}
    assert clean.removed == ("an interactive output was not shown: it is no frame",)


def test_latex_beside_html_that_is_drawn_is_not_said_to_be_missing() -> None:
    code = "<style>pre { color: red }</style><pre>x</pre>"
    data = {"text/html": code, "text/latex": "\\begin{Verbatim}x\\end{Verbatim}", "text/plain": "x"}
    clean = sanitize_display(data, {})
    assert set(clean.data) == {"text/html", "text/plain"}
    assert clean.removed == ()


def test_what_an_output_wanted_to_load_is_told_in_one_sentence() -> None:
    markup = (
        '<script src="https://cdn.example/a.js"></script>' * 3
        + "<link rel=x href='//style.example/x.css'><img src=https://p.example/>"
    )
    assert refused_hosts(markup) == (
        (
            "this output wanted to load a script from cdn.example and a style sheet from style.example "
            "and a picture from p.example: blocked"
        ),
    )
    (many,) = refused_hosts("".join(f"<img src=//h{n}.example>" for n in range(99)))
    assert many == "this output wanted to load a picture from h0.example, h1.example, h2.example and 96 more: blocked"
    assert refused_hosts("<b>nothing</b>") == ()


def test_the_search_is_linear_in_hostile_markup() -> None:
    for text in ("<a " * 300_000, "<a" + " on" * 300_000, "<script " * 200_000, "<style>.dataframe " * 50_000):
        needs_frame(text)
        refused_hosts(text)
