"""Scoped styles in a real browser: they style their own output, reach nothing outside of it, and load nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from sandbox_kernel.notebook.render import framed
from sandbox_kernel.untrusted.sanitize import sanitize_bundle

pytestmark = pytest.mark.browser

#: Part of a page: what stands around an output.
PAGE = """<!doctype html><html><body><div id=ours class="jp-Dialog a" style="height:90px">ours</div>
<div id=output>{output}</div><div id=receipt class=a>receipt</div></body></html>"""
#: Each sheet is scoped, and tries to draw or to select outside of its output.
SHEETS = [
    "* { color: red !important; visibility: hidden !important }",
    ".a, #ours, #receipt, .jp-Dialog, div { display: none !important }",
    "div:not(.b), :not(p) { opacity: 0 !important }",
    ":first-child, :last-child, :only-child, div:nth-child(n) { opacity: 0 !important }",
    "p { position: absolute; inset: -5000px; z-index: 99999; width: 20000px; height: 20000px; background: red }",
    "p { position: sticky; top: -99px; margin: -5000px; padding: 5000px; z-index: 99999; background: red }",
    "p { transform: translate(-200px, -200px) scale(50); box-shadow: 0 0 9000px 9000px red; outline: 9000px solid red }",
    "p::before { content: 'ours'; position: absolute; top: -200px; left: -200px; width: 9000px; height: 9000px }",
    "p { background: url/**/('http://127.0.0.1:9/x') }",
    "p { float: left; margin-top: -300px; margin-bottom: -300px }",
]
#: What the page around the output looks like, and which of its points show something else.
LOOK = """() => ['ours', 'receipt'].map((id) => {
    const node = document.getElementById(id), style = getComputedStyle(node), box = node.getBoundingClientRect();
    const shown = [0.1, 0.5, 0.9].map((y) => document.elementFromPoint(box.left + 5, box.top + box.height * y)?.id);
    return [style.color, style.display, style.opacity, style.visibility, box.height, box.left, ...shown];
})"""


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    made = chromium.new_page(viewport={"width": 800, "height": 600})
    yield made
    made.close()


@pytest.mark.attack("O01", "kernel")
def test_no_scoped_sheet_changes_or_covers_the_page_around_its_output(page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.set_content(PAGE.format(output=framed("<p>x</p>")))
    expected = page.evaluate(LOOK)
    for sheet in SHEETS:
        markup = f"<style>{sheet}</style><p class=a id=ours>x</p>"
        clean = sanitize_bundle({"text/html": markup}, {})
        assert "<style>" in str(clean.data["text/html"]), sheet
        page.set_content(PAGE.format(output=framed(str(clean.data["text/html"]))))
        assert page.evaluate(LOOK) == expected, sheet
    assert [url for url in asked if not url.startswith("about:")] == []


def test_the_weight_of_selectors_is_that_of_the_source(page: Page) -> None:
    markup = "<style>#b { color: rgb(1, 0, 0) } .a { color: rgb(2, 0, 0) } .a:hover { color: red }</style><p class=a id=b>x</p>"
    shown = str(sanitize_bundle({"text/html": markup}, {}).data["text/html"])
    of_page = "<style>p.mine, #output p { text-align: right } p { background: rgb(3, 0, 0) }</style>"
    page.set_content(PAGE.format(output=framed(shown)) + of_page)
    look = "p => { const s = getComputedStyle(p); return [s.color, s.backgroundColor, s.textAlign] }"
    assert page.locator("p").evaluate(look) == ["rgb(1, 0, 0)", "rgb(3, 0, 0)", "right"]
