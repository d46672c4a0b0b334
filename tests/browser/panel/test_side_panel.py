"""Buttons, dialogs and the side panel of the Sandbox kernel, in a real notebook."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.lab_page import LabPage, code_cell, notebook_of
from tests.browser.test_receipt import expect_contrast
from tests.notebook.side_panel.test_panel_answers import PNG

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

COMMANDS = ("undo", "redo", "time", "changes", "access", "limits", "report", "stop")
HOSTILE = 'evil = "<img src=x onerror=alert(1)>"'


def open_cells(lab: LabPage, name: str, *sources: str) -> None:
    lab.server.write_notebook(name, notebook_of(*map(code_cell, sources), kernel="sandbox"))
    lab.open(name)
    expect(tool(lab, "undo")).to_be_visible()


def run(lab: LabPage, *indexes: int) -> None:
    for index in indexes:
        lab.select_cell(index)
        lab.command("notebook:run-cell")
        lab.wait_for_idle()


def tool(lab: LabPage, name: str) -> Locator:
    return lab.notebook.locator(f'.jp-NotebookPanel-toolbar jp-button[data-command="sandbox-kernel:{name}"]')


def panel(lab: LabPage) -> Locator:
    return lab.page.locator(".jp-SandboxPanel")


def said(lab: LabPage) -> Locator:
    return panel(lab).get_by_role("status")


def states(lab: LabPage) -> Locator:
    return panel(lab).get_by_role("treeitem")


@pytest.fixture
def lab_with_panel(lab: LabPage) -> LabPage:
    """The side panel is part of the page, not of a notebook: each test finds it closed."""
    lab.page.evaluate("() => window.jupyterapp.shell.collapseRight()")
    return lab


def test_buttons_and_menu_entries_are_for_the_sandbox_kernel_alone(lab_with_panel: LabPage) -> None:
    lab = lab_with_panel
    enabled = """(names) => names.map((name) => window.jupyterapp.commands.isEnabled(`sandbox-kernel:${name}`))"""
    lab.server.write_notebook("plain.ipynb", notebook_of(code_cell("1")))
    lab.open("plain.ipynb")
    expect(lab.notebook.locator('.jp-NotebookPanel-toolbar [data-command="notebook:restart-run-all"]')).to_be_visible()
    assert not any(lab.page.evaluate(enabled, list(COMMANDS)))
    expect(tool(lab, "undo")).to_be_hidden()
    open_cells(lab, "walled.ipynb", "1")
    for name in COMMANDS:
        expect(tool(lab, name)).to_be_visible()
        expect(tool(lab, name)).to_have_attribute("aria-label", re.compile("^Sandbox: "))
    assert all(lab.page.evaluate(enabled, list(COMMANDS)))
    lab.menu("Kernel", "Sandbox")
    entries = lab.page.locator("#jp-mainmenu-kernel-sandbox .lm-Menu-item[data-type=command]")
    expect(entries).to_have_count(len(COMMANDS) + 1)
    expect(entries.filter(has_text="Restart, Keeping Variables…")).to_have_count(1)
    expect(entries.first).to_have_text(re.compile("Take Back the Last Cell"))
    lab.page.keyboard.press("Escape")
    lab.page.keyboard.press("Escape")


def test_undo_says_which_cell_it_took_and_the_cell_is_marked_until_redo(lab_with_panel: LabPage) -> None:
    lab = lab_with_panel
    open_cells(lab, "undo.ipynb", "x = 1", HOSTILE)
    run(lab, 0, 1)
    tool(lab, "undo").click()
    toast = lab.page.locator(".Toastify__toast", has_text="took back cell [2]: evil")
    expect(toast).to_contain_text("<img src=x")
    expect(lab.page.locator('img[src="x"]')).to_have_count(0)
    expect(lab.cell(1)).to_have_class(re.compile("jp-SandboxPast"))
    expect(lab.cell(1)).to_have_attribute("aria-description", re.compile("not in the present state"))
    expect(lab.cell(0)).not_to_have_class(re.compile("jp-SandboxPast"))
    lab.screenshot("past-cell")
    tool(lab, "redo").click()
    expect(lab.cell(1)).not_to_have_class(re.compile("jp-SandboxPast"))


def test_the_tree_is_walked_compared_and_branched_by_keyboard(lab_with_panel: LabPage) -> None:
    lab = lab_with_panel
    open_cells(lab, "tree.ipynb", "x = [1]", "x.append(2)", HOSTILE, "print(x)")
    run(lab, 0, 1, 2)
    tool(lab, "time").click()
    expect(states(lab)).to_have_count(4)
    expect(states(lab).nth(3)).to_have_attribute("aria-current", "true")
    expect(states(lab).nth(2)).to_contain_text("~x")
    states(lab).nth(3).focus()
    for key in ("ArrowUp", "ArrowUp", "ArrowDown", "ArrowLeft"):
        lab.page.keyboard.press(key)
    expect(states(lab).nth(1)).to_be_focused()
    lab.page.keyboard.press("Enter")
    expect(states(lab).nth(1)).to_have_attribute("aria-current", "true")
    expect(said(lab)).not_to_be_empty()
    for index, past in enumerate((False, True, True)):
        marked = expect(lab.cell(index))
        (marked.to_have_class if past else marked.not_to_have_class)(re.compile("jp-SandboxPast"))
    run(lab, 3)
    expect(lab.output(3)).to_contain_text("[1]")
    expect(states(lab)).to_have_count(5)
    states(lab).filter(has_text="x.append").click()
    panel(lab).get_by_label("state to compare with").select_option(label="[1] x = [1]")
    panel(lab).get_by_role("button", name="Compare with").click()
    difference = panel(lab).get_by_role("region", name="difference")
    expect(difference.locator("tr", has_text="x")).to_contain_text("list [1]list [1, 2]")
    panel(lab).get_by_role("button", name="Branch from here…").click()
    lab.page.locator(".jp-Dialog input").fill("two elements")
    lab.page.keyboard.press("Enter")
    expect(states(lab).filter(has_text="two elements")).to_have_attribute("aria-current", "true")
    expect(said(lab)).to_contain_text("begins a branch at two elements")
    # A state that is not the present one is named where it is.
    states(lab).filter(has_text="[1] x = [1]").click()
    panel(lab).get_by_role("button", name="Name it…").click()
    lab.page.locator(".jp-Dialog input").fill("first list")
    lab.page.keyboard.press("Enter")
    expect(states(lab).filter(has_text="first list")).to_contain_text("x = [1]")
    expect(states(lab).filter(has_text="two elements")).to_have_attribute("aria-current", "true")
    expect(lab.page.locator('img[src="x"]')).to_have_count(0)
    panel(lab).get_by_role("tab", name="Time").focus()
    lab.page.keyboard.press("ArrowRight")
    expect(panel(lab).get_by_role("tab", name="Access")).to_have_attribute("aria-selected", "true")


def test_changes_are_looked_at_applied_and_dropped_one_by_one(lab_with_panel: LabPage) -> None:
    lab = lab_with_panel
    folder = lab.server.folder / "project"
    folder.mkdir(exist_ok=True)
    for name, data in (("notes.txt", b"one\ntwo\n"), ("dot.png", PNG), ("mine.txt", b"a\n")):
        (folder / name).write_bytes(data)
    write = (
        "open('notes.txt', 'a').write('three <b>\\n')\nopen('mine.txt', 'w').write('theirs')\n"
        "open('new.csv', 'w').write('1')\nopen('dot.png', 'ab').write(b'\\0')"
    )
    open_cells(lab, "project/here.ipynb", f"%sandbox --here\n{write}")
    run(lab, 0)
    expect(lab.receipt(0).locator("summary")).to_contain_text("files changed")
    (folder / "mine.txt").write_text("changed by its owner")
    tool(lab, "changes").click()
    rows = panel(lab).get_by_role("list", name="changes").get_by_role("listitem")
    expect(rows).to_have_count(4)
    row = {name: rows.and_(lab.page.locator(f'[data-path="{name}"]')) for name in ("notes.txt", "mine.txt", "dot.png")}
    row["notes.txt"].locator("summary").focus()
    lab.page.keyboard.press("Enter")
    expect(row["notes.txt"].locator('[data-line="add"]')).to_have_text("+three <b>\n")
    row["dot.png"].locator("summary").click()
    expect(row["dot.png"].get_by_role("img", name="dot.png before")).to_be_visible()
    expect(row["dot.png"].get_by_role("img", name="dot.png after")).to_be_visible()
    lab.screenshot("side-panel-changes")
    panel(lab).get_by_role("button", name="Apply all").click()
    expect(row["mine.txt"]).to_have_attribute("data-conflict", "true")
    assert (folder / "notes.txt").read_text() == "one\ntwo\n"
    panel(lab).get_by_role("button", name="Apply notes.txt").click()
    expect(rows).to_have_count(3)
    assert (folder / "notes.txt").read_text() == "one\ntwo\nthree <b>\n"
    panel(lab).get_by_role("button", name="Discard all").click()
    lab.page.get_by_role("button", name="Drop").click()
    expect(panel(lab)).to_contain_text("nothing differs")
    assert not Path(folder / "new.csv").exists()


def test_the_dialog_behind_the_status_bar_changes_a_running_session(lab_with_panel: LabPage) -> None:
    lab = lab_with_panel
    data = lab.server.folder / "data"
    data.mkdir(exist_ok=True)
    (data / "a.txt").write_text("seen")
    open_cells(lab, "dialog.ipynb", "x = 41", "print(x + 1, open('/data/a.txt').read())")
    run(lab, 0)
    lab.limits.focus()
    lab.page.keyboard.press("Enter")
    dialog = lab.page.locator(".jp-SandboxDialog")
    expect(dialog.get_by_label("Memory")).to_have_value("512M")
    dialog.get_by_label("Time for each cell").fill("soon")
    dialog.get_by_label("Folders that cells may see").fill("data:/data")
    lab.page.get_by_role("button", name="Change", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("soon")
    expect(dialog.get_by_label("Folders that cells may see")).to_have_value("data:/data")
    lab.screenshot("limits-dialog")
    dialog.get_by_label("Time for each cell").fill("9s")
    lab.page.get_by_role("button", name="Change", exact=True).click()
    expect(dialog).to_have_count(0)
    expect(lab.limits).to_contain_text("9 s · 512 MB")
    run(lab, 1)
    expect(lab.output(1)).to_contain_text("42 seen")
    tool(lab, "access").click()
    expect(panel(lab).locator("dl")).to_contain_text("data at /data")
    # What a running session cannot follow is refused in the dialog; a new session with the variables can.
    lab.limits.click()
    dialog.get_by_label("Work on the notebook’s folder").check()
    lab.page.get_by_role("button", name="Change", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("restart --keep --here")
    lab.screenshot("limits-dialog-refused")
    lab.page.get_by_role("button", name="Restart, keeping variables", exact=True).click()
    expect(dialog).to_have_count(0)
    expect(said(lab)).to_contain_text("has the variables of the one before")
    lab.edit_cell(0, "print(x, open('data/a.txt').read())")
    run(lab, 0)
    expect(lab.output(0)).to_contain_text("41 seen")
    panel(lab).get_by_role("button", name="Restart, keeping variables…").click()
    lab.page.locator(".jp-Dialog").get_by_role("button", name="Restart", exact=True).click()
    expect(said(lab)).to_contain_text("has the variables of the one before")


def test_a_panel_that_waits_for_a_cell_says_so(lab_with_panel: LabPage) -> None:
    lab = lab_with_panel
    open_cells(lab, "waits.ipynb", "import time\nfor _ in range(200): time.sleep(0.1)")
    lab.start_all()
    expect(lab.cell(0).locator(".jp-InputPrompt")).to_have_text("[*]:")
    tool(lab, "access").click()
    expect(said(lab)).to_have_text("Waiting for the kernel: it answers between cells…")
    tool(lab, "stop").click()
    expect(panel(lab).locator("dl")).to_contain_text("no host files")
    expect(panel(lab).locator(".jp-SandboxPanel-status")).to_have_text("")


def test_report_and_stop_have_buttons(lab_with_panel: LabPage) -> None:
    lab = lab_with_panel
    endless = "%%sandbox --timeout 4m\nimport time\nprint('going')\nwhile True: time.sleep(0.05)"
    open_cells(lab, "stop.ipynb", endless)
    tool(lab, "report").click()
    measured = panel(lab).get_by_role("region", name="measured report")
    expect(measured.locator("tr").filter(has_text="enforced").first).to_be_visible(timeout=200_000)
    lab.start_all()
    expect(lab.output(0)).to_contain_text("going")
    tool(lab, "stop").click()
    lab.wait_for_idle()
    expect(lab.output(0)).to_contain_text("interrupted")


def test_panel_and_dialog_fit_a_narrow_page_and_every_theme(lab_with_panel: LabPage) -> None:
    lab = lab_with_panel
    usual = lab.page.viewport_size
    assert usual is not None
    open_cells(lab, "narrow.ipynb", f"{HOSTILE}  # {'long ' * 30}", "y = 2")
    run(lab, 0, 1)
    tool(lab, "time").click()
    expect(states(lab)).to_have_count(3)
    lab.page.set_viewport_size({"width": 480, "height": 800})
    for theme in ("JupyterLab Dark", "JupyterLab Light"):
        lab.set_theme(theme)
        shown = panel(lab)
        assert shown.evaluate("(node) => node.scrollWidth <= node.clientWidth")
        for text in (states(lab).nth(1).locator("code"), shown.locator(".jp-SandboxPanel-changed").nth(1)):
            expect_contrast(text, theme)
        lab.screenshot(f"side-panel-480-{theme[11:].lower()}")
        lab.page.evaluate("() => void window.jupyterapp.commands.execute('sandbox-kernel:limits')")
        dialog = lab.page.locator(".jp-Dialog-content")
        box = dialog.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 480
        expect_contrast(dialog.locator("small").first, theme)
        lab.screenshot(f"limits-dialog-480-{theme[11:].lower()}")
        lab.page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
    lab.page.set_viewport_size(usual)
