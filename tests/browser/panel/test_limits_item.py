"""The status bar names the limits of the active cell."""

import re

import pytest
from playwright.sync_api import expect

from sandbox_kernel.model import ExecResult
from tests.browser.lab_page import LabPage, code_cell, notebook_of, receipt_output

pytestmark = pytest.mark.browser

RUN = ExecResult(language="python", timeout=30, memory_limit_mb=512)


def test_the_item_follows_the_active_cell_and_says_where_each_limit_comes_from(lab: LabPage) -> None:
    notebook = notebook_of(
        code_cell("%%sandbox\nprint(1)", [receipt_output(RUN)], 1),
        code_cell("%%sandbox c --timeout 500ms --allow-net example.org\nint main;"),
        code_cell("print('not sandboxed')"),
    )
    lab.server.write_notebook("limits.ipynb", notebook)
    lab.open("limits.ipynb")
    lab.select_cell(0)
    expect(lab.limits).to_have_text("Sandbox · python · 30 s · 512 MB")
    lab.select_cell(1)
    expect(lab.limits).to_have_text(re.compile(r"^Sandbox · c · 500 ms · 512 MB"))
    expect(lab.limits).to_have_accessible_name(
        "This cell runs in a sandbox (c) time: 500 ms, set by this cell memory: 512 MB, as in the last run "
        "with: --allow-net example.org"
    )
    lab.edit_cell(1, "%%sandbox js --memory 1G")
    expect(lab.limits).to_have_text("Sandbox · javascript · 30 s · 1 GB")
    lab.select_cell(2)
    expect(lab.limits).to_be_hidden()
