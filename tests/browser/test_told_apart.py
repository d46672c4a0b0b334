"""In a real page: a forged answer leaves the cell as it is, and what a sandbox shows does not pass for ours."""

import nbformat
import pytest
from playwright.sync_api import Locator, expect

from sandbox_kernel import Display
from sandbox_kernel.notebook.render import render_display
from tests.browser.lab_page import LabPage, code_cell, notebook_of, receipt_output
from tests.browser.test_receipt import GOOD

pytestmark = pytest.mark.browser

#: A cell replaces the part of its worker that answers questions; START is where its completions claim to begin.
FORGE = """
import gc
worker = next(each for each in gc.get_objects() if type(each).__name__ == 'Worker' and hasattr(each, 'engine'))
magic = '%%sandbox python --mount /root:/root --allow-net evil.example\\nprint'
def ask(what, code, position):
    found = {'type': 'function', 'text': magic, 'start': 0, 'end': len(code)}
    return {'matches': ['print', 'printed_by_forger', magic], 'cursor_start': START, 'cursor_end': len(code),
            'metadata': {'_jupyter_types_experimental': [found, found, found]}}
worker.engine.ask = ask
"""
SOURCE = "import os\npri\nlast = 1"

RECEIPT = (
    '<div style="font-size:85%;opacity:.85"><span style="color:#2e7d32;font-weight:600">ok</span> · python · '
    "isolated process · 30 s, 512 MB<div>FAKE: no network was used</div></div>"
)
#: Ways out of a frame, each with a forged receipt behind it.
WAYS_OUT = [
    "",
    "</blockquote></div></div></div>",
    "</p></td></tr></table></li></ul></h1></a></b></blockquote>",
    "<table><blockquote></table></blockquote>",
    '<div style="margin-left:-99px;margin-top:-99px;text-indent:-99px">',
    '<div style="position:fixed;left:0;top:0;transform:translate(-99px);float:left;right:99px">',
    '<div dir="rtl" style="direction:rtl;white-space:nowrap">' + "x" * 900,
    '<span style="vertical-align:999px;line-height:0">',
    '<div class="jp-SandboxReceipt" id="receipt" data-tone="good">',
    '<div style="width:9999px;height:10px;display:inline-block">',
]
#: Everything that is drawn left of a frame's line and belongs to the frame.
OUTSIDE = """(frame) => {
    const box = frame.getBoundingClientRect();
    const found = [];
    for (let y = box.top - 60; y < box.bottom + 60; y += 2)
        for (const x of [box.left - 3, box.left - 20, box.left - 60])
            for (const node of document.elementsFromPoint(x, y))
                if (frame.contains(node)) found.push(node.outerHTML.slice(0, 80));
    for (const y of [box.top - 2, box.bottom + 2])
        for (let x = box.left; x < box.right; x += 10)
            for (const node of document.elementsFromPoint(x, y))
                if (frame.contains(node)) found.push(node.outerHTML.slice(0, 80));
    return found;
}"""

COMPLETE = """async (code) => {
    const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
    return (await kernel.requestComplete({ code, cursor_pos: 13 })).content.matches;
}"""


def source(lab: LabPage, index: int) -> str:
    text: str = lab.page.evaluate(
        "(index) => window.jupyterapp.shell.currentWidget.content.widgets[index].model.sharedModel.getSource()", index
    )
    return text


@pytest.mark.parametrize("start", ["0", "10"])
def test_a_forged_completion_leaves_the_rest_of_the_cell_as_it_is(lab: LabPage, start: str) -> None:
    name = f"forged-completion-{start}.ipynb"
    cells = [code_cell(FORGE.replace("START", start)), code_cell(SOURCE)]
    lab.server.write_notebook(name, notebook_of(*cells, kernel="sandbox"))
    lab.open(name)
    lab.run_all()
    lab.cell(1).locator(".cm-line").nth(1).click()
    lab.page.keyboard.press("End")
    lab.page.keyboard.press("Tab")
    completer = lab.page.locator(".jp-Completer:not(.lm-mod-hidden)")
    if start == "10":
        expect(completer).to_contain_text("printed_by_forger")
        expect(completer).not_to_contain_text("sandbox")
        completer.locator(".jp-Completer-match", has_text="printed_by_forger").click()
        expect(completer).to_have_count(0)
        assert source(lab, 1) == "import os\nprinted_by_forger\nlast = 1"
    else:
        # A kernel answers in order: once it has answered this question, it has answered the key.
        assert lab.page.evaluate(COMPLETE, SOURCE) == []
        expect(completer).to_have_count(0)
        assert source(lab, 1) == SOURCE


def check_frame(frame: Locator) -> None:
    frame.scroll_into_view_if_needed()
    style = frame.evaluate("(node) => [getComputedStyle(node).borderLeftWidth, getComputedStyle(node).overflowX]")
    assert style == ["3px", "auto"]
    assert frame.evaluate(OUTSIDE) == []


def test_a_forged_receipt_stands_in_a_frame_above_the_receipt(own_lab: LabPage) -> None:
    shows = "from IPython.display import HTML, display\n"
    shows += "\n".join(f"display(HTML({way + RECEIPT!r}))" for way in WAYS_OUT)
    own_lab.server.write_notebook("forged-receipt.ipynb", notebook_of(code_cell(shows), kernel="sandbox"))
    own_lab.open("forged-receipt.ipynb")
    own_lab.run_all()
    expect(own_lab.receipt(0)).to_have_count(1)
    drawn = own_lab.output(0).locator(".jp-RenderedHTMLCommon")
    expect(drawn).to_have_count(len(WAYS_OUT))
    for html in drawn.all():
        assert html.evaluate("(node) => [...node.children].map((child) => child.tagName)") == ["BLOCKQUOTE"]
        expect(html.locator(":scope > blockquote")).to_contain_text("FAKE")
        check_frame(html.locator(":scope > blockquote"))
    last = own_lab.output(0).locator(".jp-OutputArea-child").last
    expect(last.locator(".jp-SandboxReceipt")).to_have_count(1)
    expect(last.locator("blockquote")).to_have_count(0)
    own_lab.screenshot("forged-receipt")


def test_without_the_extension_a_forged_receipt_stands_in_a_frame_too(own_lab: LabPage) -> None:
    from nbconvert import HTMLExporter

    outputs = []
    for way in WAYS_OUT:
        message, _ = render_display(Display(data={"text/html": way + RECEIPT, "text/plain": "x"}))
        outputs.append({"output_type": "display_data", "data": dict(message.data), "metadata": {}})  # type: ignore[union-attr]
    notebook = nbformat.from_dict(notebook_of(code_cell("…", [*outputs, receipt_output(GOOD)], 1)))
    page, _ = HTMLExporter(template_name="basic").from_notebook_node(notebook)
    own_lab.page.set_content(f'<body style="margin:0 0 0 120px">{page}</body>')
    shown = own_lab.page.locator(".output_html, .jp-RenderedHTMLCommon.jp-OutputArea-output")
    expect(shown).to_have_count(len(WAYS_OUT) + 1)
    *forged, receipt = shown.all()
    for html in forged:
        check_frame(html.locator(":scope > blockquote"))
    expect(receipt).to_contain_text("isolated process")
    expect(receipt.locator("blockquote")).to_have_count(0)
