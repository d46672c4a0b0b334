"""Markdown becomes HTML on our side: what a reader sees is right, and no page parses it again."""

from html.parser import HTMLParser

import pytest

from sandbox_kernel.untrusted import ContentRefused
from sandbox_kernel.untrusted.markdown import MAX_MARKDOWN, markdown_to_html
from sandbox_kernel.untrusted.sanitize import sanitize_bundle
from tests.untrusted.hostile_texts import ALARM, IMAGE, texts


def shown(text: str) -> str:
    return markdown_to_html(text)[0]


@pytest.mark.attack("O01", "kernel")
@pytest.mark.parametrize(
    "text",
    [
        f'![$" onload="{ALARM}" x="$]({IMAGE})',
        f'[hover](http://example.org/ \'$" onmouseover="{ALARM}" x="$\')',
        f'see https://x.org/$" onmouseover="{ALARM}" y="$ for details',
        f'```x" onfocus="{ALARM}" y="\ncode\n```',
        f'~~~ $" onfocus="{ALARM}\ncode\n~~~',
    ],
)
def test_a_formula_or_the_name_of_a_fence_adds_no_attribute(text: str) -> None:
    class Attributes(HTMLParser):
        names: list[str] = []  # noqa: RUF012 - one document each

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.names += [name for name, _ in attrs]

    reader = Attributes()
    reader.feed(shown(text))
    assert set(reader.names) <= {"href", "title", "rel", "src", "alt"}


@pytest.mark.attack("O01", "kernel")
def test_no_bundle_carries_markdown_whatever_its_letters() -> None:
    for mime in ("text/markdown", "TEXT/Markdown"):
        assert set(sanitize_bundle({mime: "# x", "text/plain": "x"}, {}).data) == {"text/html", "text/plain"}
    for mime, text in texts(3, 600):
        assert "text/markdown" not in sanitize_bundle({mime: text}, {}).data


@pytest.mark.attack("O01", "kernel")
@pytest.mark.parametrize(
    "address", ["/logout", "../api/shutdown", "?reset", "#main", "//evil.example", "logout", "file:///etc"]
)
def test_relative_links_drive_no_server(address: str) -> None:
    for text in (f"[x]({address})", f"[x][y]\n\n[y]: {address}", f"- [y\\]z]: {address}\n\n[y\\]z]", f"<{address}>"):
        assert "href=" not in shown(text), text
        assert "href=" not in sanitize_bundle({"text/html": f"<a href='{address}'>x</a>"}, {}).data["text/html"]


def test_formulas_stand_in_the_text_as_they_were_written() -> None:
    assert shown("a $x_1 * y_1 * z$ b") == "<p>a $x_1 * y_1 * z$ b</p>\n"
    assert shown("\\\\(a_b c_d\\\\) and \\\\[a*b*c\\\\]") == "<p>\\(a_b c_d\\) and \\[a*b*c\\]</p>\n"
    assert shown("$$\na\n\n- b < c\n$$") == "<p>$$\na&#10;\n- b &lt; c\n$$</p>\n"
    assert shown("\\begin{align}\na &= b \\\\\n- c &= d\n\\end{align}") == (
        "<p>\\begin{align}\na &amp;= b \\\\\n- c &amp;= d\n\\end{align}</p>\n"
    )
    assert shown("`$x$` costs \\$5") == "<p><code>$x$</code> costs <span>$</span>5</p>\n"


def test_a_picture_from_elsewhere_is_its_words() -> None:
    assert shown("![a chart](https://evil.example/x)") == "<p>[a chart]</p>\n"
    assert IMAGE in shown(f"![dot]({IMAGE})")
    twice = shown(f"![dot]({IMAGE}) ![again](\ufdd00\ufdd1)")
    assert twice.count("<img") == 1
    assert "\ufdd0" not in shown(f"$ ![dot]({IMAGE}) $")


def test_html_in_markdown_is_shown_as_text() -> None:
    assert shown("a <b onclick=x>b</b> <script>1</script>") == (
        "<p>a &lt;b onclick=x&gt;b&lt;/b&gt; &lt;script&gt;1&lt;/script&gt;</p>\n"
    )


@pytest.mark.parametrize(
    "unit",
    [
        "[",
        "![",
        "*a **a ",
        "**a*",
        "|x|y|\n",
        "# a\n",
        "[a](",
        "> - a\n",
        "<http://a>",
        "`a",
        "a" + "*" * 499 + " ",
        "a ~~~~~~ ",
    ],
)
@pytest.mark.one_case
def test_markdown_that_would_keep_its_parser_busy_is_refused_and_its_source_is_shown(unit: str) -> None:
    text = unit * (MAX_MARKDOWN // len(unit))
    with pytest.raises(ContentRefused, match=r"steps|more than|nested|rows of"):
        markdown_to_html("|a|b|\n|-|-|\n" * unit.startswith("|") + text[: MAX_MARKDOWN - 20])
    bundle = sanitize_bundle({"text/markdown": text * 2, "text/plain": "<IPython.core.display.Markdown object>"}, {})
    assert bundle.removed == ("Markdown was not shown: it is longer than 256 KB",)
    assert str(bundle.data["text/plain"]).startswith(unit)
