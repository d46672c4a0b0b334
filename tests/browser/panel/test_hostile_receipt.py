"""A notebook from a stranger may carry any receipt: nothing in it runs, loads, or breaks the page."""

import pytest
from playwright.sync_api import Dialog, expect

from sandbox_kernel.receipt import MIME as RECEIPT
from tests.browser.lab_page import LabPage, code_cell, notebook_of

pytestmark = pytest.mark.browser

ALARM = "window.alarm = (window.alarm || 0) + 1"
ATTACKS = [
    f"<script>{ALARM}</script>",
    f'<img src=x onerror="{ALARM}">',
    f'<svg onload="{ALARM}"></svg>',
    f'"><iframe srcdoc="<script>parent.{ALARM}</script>"></iframe>',
    f"<a href=\"javascript:{ALARM}\" autofocus onfocus=\"{ALARM}\">x</a>",
    f"<math><mtext></form><form><mglyph><style></math><img src onerror={ALARM}>",
    '<meta http-equiv="refresh" content="0;url=/alarm">',
    '<base href="//alarm.invalid/">',
    '<style>body{background:url(/alarm)}</style>',
    "${alert(1)}{{constructor.constructor('alert(1)')()}}",
]  # fmt: skip


def hostile_output(text: str) -> dict[str, object]:
    names = ("status", "ending", "limit", "language", "backend", "isolation", "exit_code", "signal", "timeout_s")
    violation = dict.fromkeys(("rule", "subject", "reason", "remedy"), text)
    facts = {**dict.fromkeys(names, text), "violations": [violation], "notes": [text], "__proto__": {"tone": text}}
    measured = dict.fromkeys(("duration_s", "cpu_s", "peak_memory_bytes", "stdout_bytes"), text)
    return {"output_type": "display_data", "data": {RECEIPT: facts}, "metadata": {RECEIPT: measured}}


def test_markup_in_a_receipt_is_shown_as_text(own_lab: LabPage) -> None:
    requests: list[str] = []
    own_lab.page.on("request", lambda request: requests.append(request.url))
    dialogs: list[str] = []

    def note_dialog(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    own_lab.page.on("dialog", note_dialog)
    cells = [code_cell("%%sandbox", [hostile_output(text)], 1) for text in ATTACKS]
    own_lab.server.write_notebook("hostile.ipynb", notebook_of(*cells))
    own_lab.open("hostile.ipynb")
    for index, text in enumerate(ATTACKS):
        receipt = own_lab.receipt(index)
        receipt.scroll_into_view_if_needed()
        expect(receipt.locator(".jp-SandboxReceipt-ending")).to_have_text(text)
        receipt.locator("summary").click()
        receipt.get_by_role("button").scroll_into_view_if_needed()
        receipt.get_by_role("button").click()
        made: list[str] = receipt.evaluate("(node) => [...node.querySelectorAll('*')].map((each) => each.tagName)")
        known = {"DETAILS", "SUMMARY", "SPAN", "DL", "DT", "DD", "UL", "LI", "STRONG", "CODE", "BUTTON"}
        assert set(made) <= known
    own_lab.screenshot("hostile-receipts")
    assert own_lab.page.evaluate("() => window.alarm") is None
    assert dialogs == []
    assert [url for url in requests if "alarm" in url] == []


def test_a_receipt_of_megabytes_is_cut(lab: LabPage) -> None:
    facts = {"status": "ok", "ending": "e" * 1_000_000, "notes": ["n"] * 10_000, "violations": [{}] * 10_000}
    output = {"output_type": "display_data", "data": {RECEIPT: facts}, "metadata": {}}
    lab.server.write_notebook("huge.ipynb", notebook_of(code_cell("%%sandbox", [output], 1)))
    lab.open("huge.ipynb")
    expect(lab.receipt(0).locator("li").last).to_have_text("… and 9980 more")
    assert lab.receipt(0).evaluate("(node) => node.textContent.length") < 5000


def test_a_receipt_that_is_no_receipt_breaks_nothing(lab: LabPage) -> None:
    after = {"output_type": "stream", "name": "stdout", "text": "still here"}
    nonsense: list[object] = [None, 0, "text", [], {}]
    bundles = [({RECEIPT: data, "text/plain": "plain"}, {RECEIPT: data}) for data in nonsense]
    outputs = [{"output_type": "display_data", "data": data, "metadata": metadata} for data, metadata in bundles]
    cells = [code_cell("%%sandbox", [output, after], 1) for output in outputs]
    lab.server.write_notebook("broken.ipynb", notebook_of(*cells))
    lab.open("broken.ipynb")
    for index in range(len(nonsense)):
        expect(lab.output(index)).to_contain_text("still here")
