"""JupyterLab's debugger panel with the Sandbox kernel: breakpoint, variables, step, continue."""

import pytest
from playwright.sync_api import expect

from tests.browser.lab_page import LabPage, code_cell, notebook_of

pytestmark = pytest.mark.browser

CELL = "def f(a, b):\n    total = a + b\n    return total\nprint('got', f(20, 22))"


def test_a_breakpoint_stops_a_cell_and_the_panel_shows_its_variables(own_lab: LabPage) -> None:
    pytest.importorskip("debugpy")
    lab = own_lab
    lab.server.write_notebook("debugged.ipynb", notebook_of(code_cell(CELL), kernel="sandbox"))
    lab.open("debugged.ipynb")
    lab.notebook.locator(
        ".jp-DebuggerBugButton[aria-disabled=false]"
    ).click()  # Playwright does not see that it is disabled
    gutter = lab.cell(0).locator(".cm-gutter.cm-breakpoint-gutter")
    expect(gutter).to_be_visible()
    # The gutter's first element is for its width.
    gutter.locator(".cm-gutterElement").nth(2).click(force=True)
    expect(lab.page.locator(".jp-DebuggerSidebar .jp-DebuggerBreakpoints-body")).to_contain_text("2")
    lab.select_cell(0)
    lab.start_all()
    panel = lab.page.locator(".jp-DebuggerSidebar")
    expect(panel.locator(".jp-DebuggerCallstack-body")).to_contain_text("fCell [")
    expect(panel.locator(".jp-DebuggerVariables-body").first).to_contain_text("22")
    lab.screenshot("debugger")
    lab.command("debugger:next")
    expect(panel.locator(".jp-DebuggerVariables-body").first).to_contain_text("42")
    lab.command("debugger:continue")
    expect(lab.output(0)).to_contain_text("got 42")
    expect(panel.locator(".jp-DebuggerCallstack-body")).not_to_contain_text("fCell [")
