"""HTML with styles or sound: what can be confined to its output is shown in the page, all else is refused as a whole."""

from __future__ import annotations

import base64
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_kernel.untrusted.scoped_html import scoped_html
from sandbox_kernel.untrusted.style_sheet import MAX_SHEET, NotScoped, scoped_sheet

WAV = "data:audio/wav;base64," + base64.b64encode(b"RIFF\x24\0\0\0WAVEfmt ").decode()
#: One rule of a scoped sheet, as we write it: selectors below our element, and declarations without signs.
RULE = re.compile(
    r":where\(\.sk\w{12}\) (?:[\w.#:*>+~, \[\]()-]|:where\(\.sk\w{12}\) )+\{(?:[\w-]+:[\w#%.,()/*+ \"'-]*(?:!important)?;?)+\}"
)


def scoped(sheet: str, markup: str = "<p class=a id=b>x</p>") -> str:
    return scoped_html(f"<style>{sheet}</style>{markup}")[0]


@pytest.mark.parametrize(
    ("sheet", "rule"),
    [
        ("p{color:red}", "p{color:red}"),
        (".a > #b:hover, td:nth-child(2n + 1)::before { content: '▸'; margin: -1px }", '.a>#b:hover,td:nth-child(2n + 1)::before{content:"▸";margin:-1px}'),
        ("p { background: linear-gradient(90deg, #d65f5f 5.5%, transparent) !important }", "p{background:linear-gradient(90deg, #d65f5f 5.5%, transparent)!important}"),
        ("p { --own: 2px; width: calc((1em + var(--own, 3px)) * 2); color: var(--jp-content-font-color1) }", "p{--own:2px;width:calc( (1em + var(--own, 3px)) * 2);color:var(--jp-content-font-color1)}"),
        ("@media (prefers-color-scheme: dark) { p { color: white } }", "@media (prefers-color-scheme: dark){p{color:white}}"),
        ("@supports (anchor-name: --a) { p { position: fixed } } p { color: red }", "p{color:red}"),
        ("p { color: font-color(#fff); -webkit-hyphens: auto; float: left }", "p{float:left}"),
        ("table :is(td, th), details[open] > summary, :not(.a) { top: 0 }", "table :is(td, th),details[open]>summary,:not(.a){top:0}"),
    ],
)  # fmt: skip
def test_rules_are_kept_below_the_element_of_their_output(sheet: str, rule: str) -> None:
    shown = scoped(sheet)
    name = re.match(r'<div class="(sk\w{12})"><style>', shown)[1]  # type: ignore[index]
    assert f".{name}{{contain:layout paint;isolation:isolate;overflow:auto}}" in shown
    written = shown.replace(f":where(.{name}) ", "").replace(f"{name}-", "")
    assert f"overflow:auto}}{rule}</style>" in written
    assert f'<p class="{name}-a" id="{name}-b">x</p></div>' in shown


REFUSED = [
    "@import 'https://evil.example/x.css';",
    "@import url(//evil.example/x.css);",
    "@font-face { font-family: x; src: url(x) }",
    "@keyframes x { to { left: 0 } }",
    "@layer x { p { color: red } }",
    "@namespace x 'y';",
    "@charset 'x';",
    "@media screen { @import 'x'; }",
    "@media (min-width: expression(1)) { p { color: red } }",
    "p { background: url(https://evil.example) }",
    "p { background: url('https://evil.example') }",
    "p { background: \\75 rl('https://evil.example') }",
    "p { background: URL(x) }",
    "p { background: image-set('//evil.example/x' 1x) }",
    "p { background: -webkit-image-set('//evil.example/x' 1x) }",
    "p { content: attr(title) }",
    "p { --x: url(//evil.example) }",
    "p { position: fixed }",
    "p { position: f\\69xed }",
    "p { --x: fixed; position: var(--x) }",
    "p { behavior: url(x) }",
    "p { animation: x 1s }",
    "p { all: unset }",
    "p { content: 'a\\3c/style>' }",
    "p { width: 999999px }",
    "p { color: red; & b { color: red } }",
    "html { color: red }",
    "body p { color: red }",
    ":root { color: red }",
    ":host { color: red }",
    ":has(p) { color: red }",
    "p:has(~ b) { color: red }",
    ":is(.x p) { color: red }",
    "input[value^='a'] { color: red }",
    "[data-x] { color: red }",
    "> p { color: red }",
    "~ p { color: red }",
    "p || b { color: red }",
    "svg|a { color: red }",
    "p::part(x) { color: red }",
    "p::selection { color: red }",
    "} p { color: red }",
    "p { color: $x$ }",
    "* * * * * * * * * * * * * * { color: red }",
    "p { width: calc" + "(" * 50 + "1px" + ")" * 50 + " }",
    "x" * (MAX_SHEET + 1),
]


@pytest.mark.attack("O01", "kernel")
@pytest.mark.parametrize("sheet", REFUSED)
def test_a_sheet_that_could_reach_out_or_load_is_refused_as_a_whole(sheet: str) -> None:
    with pytest.raises(NotScoped):
        scoped(f"b {{ color: red }} {sheet}")


@pytest.mark.attack("O01", "kernel")
def test_a_comment_does_not_join_a_word_and_brackets_to_a_function_that_loads() -> None:
    assert '{background:url  ("//evil.example");width:1 px}' in scoped(
        "/* x */ p { background: url/**/('//evil.example'); /* y */ width: 1/**/px }"
    )  # a browser drops both


@pytest.mark.attack("O01", "kernel")
@pytest.mark.parametrize(
    "sheet",
    [
        "* ~ * { color: red }",
        "* ~ :not(#a) { color: red }",
        ",".join(f"p.c{n} p" for n in range(3000)) + " { color: red }",
    ],
)
def test_selectors_that_would_keep_a_page_busy_are_refused(sheet: str) -> None:
    scoped_sheet(sheet, "skabcdefghijkl", 10)
    with pytest.raises(NotScoped, match="busy"):
        scoped_sheet(sheet, "skabcdefghijkl", 5000)


PIECES = st.sampled_from(
    ["p", ".a", "#b", "*", " ", ">", "~", "+", ",", ":", "::", "hover", "before", "is(", "not(", "nth-child(", "2n", ")",
     "{", "}", ";", "color", "red", "background", "url", "url(", "(", "/**/", "/*", "*/", "'", '"', "\\", "\\75 rl(", "@media",
     "@import", "screen", "--x", "var(", "position", "fixed", "<", "</", "<!--", "-->", "!", "important", "&", "|", "[", "]",
     "1px", "1e9", "%", "#fff", "calc(", "é", "\x00", "\n", "$", "expression("]
)  # fmt: skip


@pytest.mark.attack("O01", "kernel")
@settings(max_examples=300)
@given(st.lists(PIECES, max_size=12), st.lists(PIECES, max_size=8))
def test_any_soup_of_styles_is_refused_or_written_in_our_own_signs(free: list[str], value: list[str]) -> None:
    for sheet in ("".join(free), "p{color:" + "".join(value) + "}", "".join(value) + "{color:red}"):
        try:
            written = scoped_sheet(sheet, "skabcdefghijkl", 10)
        except NotScoped:
            continue
        assert not re.search(r"[<\\]", written), written
        written = re.sub(r'"[^"]*"', '""', written)  # a string cannot hold its own end
        rules = written.partition("overflow:auto}")[2]
        rules = re.sub(r"@media [\w ():.,-]+\{(.*?\})?\}", r"\1", rules)
        assert RULE.sub("", rules) == "", written
        assert not re.search(r"url\(|@import|position:fixed|[&|]", written), written


def test_names_of_the_page_are_out_of_reach() -> None:
    shown = scoped(".a{color:red}", "<p id=jupyter-config-data class='jp-Dialog a'>x</p><label for=main>y</label>")
    assert re.findall(r'(?:id|class|for)="([^"]+)"', shown.replace(shown[12:26], "N")) == [
        "N", "N-jupyter-config-data", "N-jp-Dialog N-a", "N-main",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "markup",
    ["<script>1</script>", "<b onclick=x()>b</b>", "<svg></svg>", "<form></form>", "<input type=text>", "<button>b</button>",
     "<video src='https://evil.example/x.mp4' controls></video>", "<audio controls><source src='x.wav'></audio>",
     "<style media=print>p{color:red}</style>"],
)  # fmt: skip
def test_markup_that_would_lose_something_is_refused_as_a_whole(markup: str) -> None:
    with pytest.raises(NotScoped):
        scoped("p{color:red}", markup)


def test_sound_and_video_play_in_the_page_and_only_video_starts_by_itself_without_sound() -> None:
    shown, taken = scoped_html(f'<audio controls autoplay><source src="{WAV}" type="audio/wav">old browser</audio>')
    assert shown == f'<audio controls=""><source src="{WAV}" type="audio/wav">old browser</audio>'
    assert taken == ("its start by itself (press play)",)
    film = base64.b64encode(b"\x1a\x45\xdf\xa3 film").decode()
    shown, taken = scoped_html(f"<video controls autoplay loop src='data:video/webm;base64,{film}' width=320></video>")
    assert 'autoplay=""' in shown
    assert 'muted=""' in shown
    assert f'src="data:video/webm;base64,{film}"' in shown
    assert taken == ()


def test_a_number_that_stands_for_no_sound_is_not_replaced() -> None:
    with pytest.raises(NotScoped):
        scoped_html('<audio controls src="data:,0"></audio>')
    with pytest.raises(NotScoped):
        scoped_html(f'<audio controls src="data:,1"></audio><audio controls src="{WAV}"></audio>')


@pytest.mark.parametrize("prop", ["box-shadow", "text-shadow", "--x"])
def test_a_box_has_a_few_shadows(prop: str) -> None:
    shadow = "1px 1px 9px rgba(0, 0, 0, 0.5)"
    assert scoped(f"p {{ {prop}: {', '.join([shadow] * 8)} }}")
    with pytest.raises(NotScoped, match="many shadows"):
        scoped(f"p {{ {prop}: {', '.join([shadow] * 9)} }}")


def test_text_that_a_sheet_adds_to_elements_is_bounded() -> None:
    assert "content" in scoped('p::before{content:"' + "x" * 400 + '"}', "<p>x</p>" * 200)
    with pytest.raises(NotScoped):
        scoped('p::before{content:"' + "x" * 400 + '"}', "<p>x</p>" * 5000)


def test_variables_that_stand_for_others_are_bounded_by_what_they_become() -> None:
    def sheet(levels: int) -> str:
        return "p{" + "".join(f"--v{n}:var(--v{n + 1}) var(--v{n + 1});" for n in range(levels)) + "color:var(--v0)}"

    assert "-v4:" in scoped(sheet(5), "<p>x</p>" * 5000)
    with pytest.raises(NotScoped):
        scoped(sheet(12), "<p>x</p>" * 5000)
    with pytest.raises(NotScoped):
        scoped(sheet(30))
