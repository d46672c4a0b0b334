"""Buttons, dialogs and the side panel of the Sandbox kernel, in a real notebook."""

import re

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.lab_page import LabPage, code_cell, notebook_of
from tests.browser.test_receipt import expect_contrast

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


def choose(lab: LabPage, name: str) -> None:
    """Choose an entry of the toolbar's menu *Sandbox*."""
    tool(lab, "menu").click()
    lab.page.locator(f'#sandbox-kernel-menu [data-command="sandbox-kernel:{name}"]').click()


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
    for name in ("undo", "menu"):
        expect(tool(lab, name)).to_be_visible()
        expect(tool(lab, name)).to_have_attribute("aria-label", re.compile("^Sandbox"))
    assert all(lab.page.evaluate(enabled, list(COMMANDS)))
    lab.menu("Kernel", "Sandbox")
    entries = lab.page.locator("#jp-mainmenu-kernel-sandbox .lm-Menu-item[data-type=command]")
    expect(entries).to_have_count(len(COMMANDS) + 1)
    expect(entries.filter(has_text="Restart, Keeping Variables…")).to_have_count(1)
    expect(entries.first).to_have_text(re.compile("Take Back the Last Cell"))
    lab.page.keyboard.press("Escape")
    lab.page.keyboard.press("Escape")


def test_undo_is_told_and_the_tree_is_walked_compared_and_branched_by_keyboard(lab_with_panel: LabPage) -> None:
    lab = lab_with_panel
    open_cells(lab, "tree.ipynb", "x = [1]", "x.append(2)", HOSTILE, "print(x)")
    run(lab, 0, 1, 2)
    # What undo took is told as text, and the cell is marked until redo.
    tool(lab, "undo").click()
    toast = lab.page.locator(".Toastify__toast", has_text="took back cell [3]: evil")
    expect(toast).to_contain_text("<img src=x")
    expect(lab.page.locator('img[src="x"]')).to_have_count(0)
    expect(lab.cell(2)).to_have_class(re.compile("jp-SandboxPast"))
    expect(lab.cell(2)).to_have_attribute("aria-description", re.compile("not in the present state"))
    choose(lab, "redo")
    expect(lab.cell(2)).not_to_have_class(re.compile("jp-SandboxPast"))
    choose(lab, "time")
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


#: Another page with the same notebook: a second connection to its kernel.
OTHER_PAGE = """async (code) => {
    const { kernels } = window.jupyterapp.serviceManager;
    const { id, name } = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
    const other = kernels.connectTo({ model: { id, name } });
    await other.requestExecute({ code }).done;
    other.dispose();
}"""


def test_what_is_pressed_while_a_cell_runs_is_done_once_and_told_plainly(
    lab_with_panel: LabPage,
) -> None:
    lab = lab_with_panel
    folder = lab.server.folder / "waits"
    folder.mkdir(exist_ok=True)
    (folder / "seen.txt").write_text("from the owner")
    endless = "%%sandbox --timeout 4m\nimport time\nprint('going', flush=True)\nwhile True: time.sleep(0.05)"
    open_cells(lab, "waits/waits.ipynb", "x = 1", "x = 2", "open('seen.txt').read()", endless)
    run(lab, 0, 1, 2)
    lab.select_cell(3)
    start = "() => { void window.jupyterapp.commands.execute('notebook:run-cell') }"
    lab.page.evaluate(start)
    expect(lab.output(3)).to_contain_text("going")
    for _ in range(3):
        tool(lab, "undo").click()
    toast = lab.page.locator(".Toastify__toast")
    expect(toast.filter(has_text="Waiting for the kernel")).to_have_count(1)
    answered = lab.output(2).get_by_role("status")
    once = lab.output(2).get_by_role("button", name="Allow once: seen.txt")
    once.scroll_into_view_if_needed()
    once.click()
    expect(answered).to_have_text("Waits until the cells that run have ended…")
    lab.screenshot("pressed-while-running")
    choose(lab, "access")
    expect(said(lab)).to_have_text("Waiting for the kernel: it answers between cells…")
    choose(lab, "stop")
    expect(panel(lab).locator("dl")).to_contain_text("no host files")
    # What was pressed is done after the stop: the cell runs again and finds the file.
    expect(lab.output(2)).to_contain_text("from the owner")
    # One cell was taken back, not three: the one that was stopped.
    choose(lab, "time")
    expect(states(lab).filter(has_text="x = 2")).to_have_count(1)
    lab.wait_for_idle()
    lab.select_cell(3)  # a press has made another one the active one
    lab.page.evaluate(start)
    expect(lab.cell(3).locator(".jp-InputPrompt")).to_have_text("[*]:")  # what it printed before is still there
    panel(lab).get_by_role("button", name="Undo").click()
    lab.restart_kernel()
    expect(said(lab)).to_contain_text("The kernel ended or was restarted before it answered.")


def test_a_list_that_another_page_has_changed_is_shown_before_it_is_dropped(lab_with_panel: LabPage) -> None:
    lab = lab_with_panel
    (lab.server.folder / "two").mkdir(exist_ok=True)
    write = "%sandbox --here\nopen('first.txt', 'w').write('1')\nimport os\nos.makedirs('folder')"
    open_cells(lab, "two/two.ipynb", write)
    run(lab, 0)
    choose(lab, "changes")
    rows = panel(lab).get_by_role("list", name="changes").get_by_role("listitem")
    expect(rows).to_have_count(2)
    rows.and_(lab.page.locator('[data-path="folder/"]')).locator("summary").click()
    expect(rows.filter(has_text="a folder, created")).to_have_count(1)
    # A cell of the other page is heard of.
    lab.page.evaluate(OTHER_PAGE, "open('second.txt', 'w').write('2')")
    expect(rows).to_have_count(3)
    # A line that gives no cell an end for this page, as a press in the panel of the other one.
    lab.page.evaluate(
        """async () => {
            const { kernel } = window.jupyterapp.shell.currentWidget.sessionContext.session;
            const code = "open('third.txt', 'w').write('3')";
            await kernel.requestExecute({ code, store_history: false }).done;
        }"""
    )
    panel(lab).get_by_role("button", name="Discard all").click()
    expect(said(lab)).to_contain_text("The list has changed since it was drawn.")
    expect(rows).to_have_count(4)
    panel(lab).get_by_role("button", name="Discard all").click()
    expect(lab.page.locator(".jp-Dialog-header")).to_have_text("Drop all 4 changes?")
    lab.page.keyboard.press("Escape")


def test_apply_all_writes_what_the_list_shows_without_what_stands_apart(lab_with_panel: LabPage) -> None:
    lab = lab_with_panel
    folder = lab.server.folder / "apart"
    folder.mkdir(exist_ok=True)
    open_cells(lab, "apart/apart.ipynb", "%sandbox --here\nfor n in ('a.txt', 'Makefile'): open(n, 'w').write('1')")
    run(lab, 0)
    expect(tool(lab, "menu")).to_have_text("Sandbox ▾ · 2 changes to apply")
    lab.restart_kernel()
    lab.edit_cell(0, "%sandbox --here\n1")
    expect(tool(lab, "menu")).to_have_text("Sandbox ▾")
    run(lab, 0)
    expect(tool(lab, "menu")).to_have_text("Sandbox ▾ · 2 changes to apply")  # the kernel before has left them
    choose(lab, "changes")
    plain = panel(lab).get_by_role("list", name="changes", exact=True).get_by_role("listitem")
    apart = panel(lab).get_by_role("list", name="changes that are not written by Apply all").get_by_role("listitem")
    expect(plain).to_have_count(1)
    expect(apart).to_have_count(1)
    expect(apart).to_contain_text("Makefile")
    # Changed by a line that gives no cell an end for this page.
    lab.page.evaluate(
        """async () => {
            const { kernel } = window.jupyterapp.shell.currentWidget.sessionContext.session;
            await kernel.requestExecute({ code: "open('a.txt', 'w').write('2')", store_history: false }).done;
        }"""
    )
    panel(lab).get_by_role("button", name="Apply all").click()
    expect(said(lab)).to_contain_text("not those that you were shown")
    assert not (folder / "a.txt").exists()
    panel(lab).get_by_role("button", name="Apply all").click()
    expect(plain).to_have_count(0)
    assert (folder / "a.txt").read_text() == "2" and not (folder / "Makefile").exists()
    expect(tool(lab, "menu")).to_have_text("Sandbox ▾ · 1 change to apply")
    apart.get_by_role("button", name="Apply Makefile").click()
    expect(apart).to_have_count(0)
    assert (folder / "Makefile").read_text() == "1"


def test_panel_and_dialog_fit_a_narrow_page_and_every_theme(lab_with_panel: LabPage) -> None:
    lab = lab_with_panel
    usual = lab.page.viewport_size
    assert usual is not None
    open_cells(lab, "narrow.ipynb", f"{HOSTILE}  # {'long ' * 30}", "y = 2")
    run(lab, 0, 1)
    choose(lab, "time")
    expect(states(lab)).to_have_count(3)
    lab.page.set_viewport_size({"width": 480, "height": 800})
    for theme in ("JupyterLab Dark", "JupyterLab Light"):
        lab.set_theme(theme)
        shown = panel(lab)
        assert shown.evaluate("(node) => node.scrollWidth <= node.clientWidth")
        # The tabs stand in one line, and what was said stays in sight, however long a tab is.
        tabs = shown.get_by_role("tablist").bounding_box()
        assert tabs is not None and tabs["height"] < 40
        assert (
            shown.locator(".jp-SandboxPanel-body:visible").evaluate("(node) => getComputedStyle(node).overflowY")
            == "auto"
        )
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


def test_a_cell_leads_to_the_state_before_it_and_runs_from_there_in_a_branch(lab_with_panel: LabPage) -> None:
    lab = lab_with_panel
    open_cells(lab, "of_cell.ipynb", "x = 1", "x += 10", "print(x)", "'never run'")
    run(lab, 0, 1, 1, 2)
    expect(lab.output(2)).to_contain_text("21")
    lab.cell(1).locator(".jp-InputPrompt").click(button="right")
    lab.page.locator('.lm-Menu-item[data-command="sandbox-kernel:branch"]').click()
    expect(lab.output(2)).to_contain_text("21")  # before its last run, which was the second
    expect(lab.output(3)).to_contain_text("never run")
    choose(lab, "time")
    expect(states(lab)).to_have_count(8)
    lab.server.write_notebook("plain.ipynb", notebook_of(code_cell("1")))
    lab.open("plain.ipynb")
    lab.cell(0).locator(".jp-InputPrompt").click(button="right")
    expect(lab.page.locator('.lm-Menu-item[data-command="notebook:split-cell-at-cursor"]')).to_be_visible()
    expect(lab.page.locator('.lm-Menu-item[data-command="sandbox-kernel:branch"]')).to_be_hidden()


@pytest.mark.parametrize(("label", "printed"), [("Restart, keeping variables", "7"), ("Restart", "NameError")])
def test_jupyters_own_restart_offers_to_keep_the_variables(lab_with_panel: LabPage, label: str, printed: str) -> None:
    lab = lab_with_panel
    open_cells(lab, "own_restart.ipynb", "kept = 7", "print(kept)")
    run(lab, 0)
    lab.page.evaluate("() => void window.jupyterapp.commands.execute('notebook:restart-kernel')")
    lab.page.locator(".jp-Dialog").get_by_role("button", name=label, exact=True).click()
    expect(lab.page.locator(".jp-Dialog")).to_have_count(0)
    lab.wait_for_idle()
    run(lab, 1)
    expect(lab.output(1)).to_contain_text(printed)


def test_the_name_of_the_kernel_stays_in_the_toolbar_of_a_narrow_window(lab_with_panel: LabPage) -> None:
    lab = lab_with_panel
    size = lab.page.viewport_size
    assert size is not None
    lab.page.set_viewport_size({"width": 1000, "height": 800})
    lab.page.evaluate("() => window.jupyterapp.shell.expandLeft()")
    open_cells(lab, "narrow.ipynb", "%sandbox --here\nopen('new.txt', 'w').write('1')")
    run(lab, 0)
    expect(tool(lab, "menu")).to_have_text("▾ 1")
    expect(lab.notebook.locator(".jp-NotebookPanel-toolbar .jp-KernelName")).to_be_visible()
    expect(lab.notebook.locator(".jp-NotebookPanel-toolbar .jp-Notebook-ExecutionIndicator")).to_be_visible()
    lab.screenshot("toolbar-1000")
    lab.page.evaluate("() => window.jupyterapp.shell.collapseLeft()")
    lab.page.set_viewport_size(size)
