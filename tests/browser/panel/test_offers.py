"""An offer in a notebook file does nothing. ``test_every_control.py`` answers offers of a kernel."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.lab_page import LabPage, code_cell, notebook_of

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

MIME = "application/vnd.sandbox-kernel.offers+json"


def offer(what: str) -> dict[str, object]:
    lines = dict.fromkeys(("once", "session", "never"), "print('ran')")
    return {"kind": "domain", "what": what, "sentence": f"It wanted <b>{what}</b>.", "once_means": "", "lines": lines}


def test_an_offer_in_a_notebook_file_is_text_and_its_buttons_do_nothing(lab: LabPage) -> None:
    given = {"version": 1, "offers": [offer("example.org"), offer("x\n%sandbox reset")]}
    shown = {"output_type": "display_data", "data": {MIME: given, "text/plain": "offers"}, "metadata": {}}
    lab.server.write_notebook("offered.ipynb", notebook_of(code_cell("1", [shown], 1), kernel="sandbox"))
    lab.open("offered.ipynb")
    group = lab.output(0).get_by_role("group")
    expect(group).to_have_count(1)
    expect(group).to_contain_text("The program wanted to reach example.org.")
    expect(group.get_by_role("button")).to_have_text(["Allow once", "Allow for this session", "Never"])
    group.get_by_role("button", name="Allow once: example.org").focus()
    lab.page.keyboard.press("Enter")
    expect(lab.output(0).get_by_role("status")).to_contain_text("Run the cell first")
    expect(lab.cell(0).locator(".jp-InputPrompt")).to_have_text("[1]:")
    lab.screenshot("offer")
