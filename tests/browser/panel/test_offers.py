"""What a cell lacked can be allowed by a button; an offer in a notebook file does nothing."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.lab_page import LabPage, code_cell, notebook_of
from tests.browser.loopback_kernel import HOST
from tests.loopback_server import QuietHandler, serving

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


def test_a_file_that_a_cell_lacked_is_allowed_by_a_button_and_the_cell_runs_again(lab: LabPage) -> None:
    folder = lab.server.folder / "lacking"
    (folder / "data").mkdir(parents=True, exist_ok=True)
    (folder / "data" / "seen.txt").write_text("from the owner")
    (folder / "data" / "other.txt").write_text("not for it")
    cells = (code_cell("x = 7\nprint(x, open('data/seen.txt').read())"), code_cell("open('data/other.txt')"))
    lab.server.write_notebook("lacking/lacks.ipynb", notebook_of(*cells, kernel="sandbox"))
    lab.open("lacking/lacks.ipynb")
    lab.select_cell(0)
    lab.command("notebook:run-cell")
    lab.output(0).get_by_role("button", name="Allow for this session: data/seen.txt").click()
    expect(lab.output(0)).to_contain_text("7 from the owner")
    lab.wait_for_idle()
    lab.select_cell(1)
    lab.command("notebook:run-cell")
    never = lab.output(1).get_by_role("button", name="Never: data/other.txt")
    lab.screenshot("offers")
    never.focus()
    lab.page.keyboard.press("Enter")
    expect(lab.output(1).get_by_role("status")).to_contain_text("Not asked again")
    lab.command("notebook:run-cell")
    expect(never).to_have_count(0)
    expect(lab.output(1)).to_contain_text("FileNotFoundError")


class Fine(QuietHandler):
    """Answers everything with one word."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"reached it")


FETCH = """
import urllib.request
try:
    print(kept, urllib.request.urlopen('http://{host}:{port}/', timeout=30).read().decode())
except OSError:
    print('caught')
"""


def test_a_domain_that_a_cell_lacked_is_allowed_once_for_the_session_and_never(lab: LabPage) -> None:
    with serving(Fine, host=HOST) as port:
        cells = (
            code_cell("%sandbox --allow-net example.org\nkept = 7"),
            code_cell(FETCH.format(host=HOST, port=port)),
            code_cell(FETCH.format(host=HOST, port=port)),
            code_cell(FETCH.format(host=HOST, port=1)),
        )
        lab.server.write_notebook("domain.ipynb", notebook_of(*cells, kernel="sandbox-loopback"))
        lab.open("domain.ipynb")
        lab.run_all()
        lab.wait_for_idle()
        expect(lab.output(1)).to_contain_text("caught")
        # Once: this run of the cell, and no later one.
        lab.output(1).get_by_role("button", name=f"Allow once: {HOST}:{port}").click()
        expect(lab.output(1)).to_contain_text("7 reached it")
        lab.wait_for_idle()
        lab.select_cell(1)
        lab.command("notebook:run-cell")
        expect(lab.output(1)).to_contain_text("caught")
        # For this session: every later cell.
        lab.output(2).get_by_role("button", name=f"Allow for this session: {HOST}:{port}").click()
        expect(lab.output(2)).to_contain_text("7 reached it")
        lab.wait_for_idle()
        lab.select_cell(1)
        lab.command("notebook:run-cell")
        expect(lab.output(1)).to_contain_text("7 reached it")
        never = lab.output(3).get_by_role("button", name=f"Never: {HOST}:1")
        never.click()
        expect(lab.output(3).get_by_role("status")).to_contain_text("Not asked again")
        lab.screenshot("offers-domain")
