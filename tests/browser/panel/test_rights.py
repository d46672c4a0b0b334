"""The lines of a notebook ask for rights, and the page asks the user: once, for what the kernel says, and nobody presses it
but they.
"""

from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.lab_page import LabPage, code_cell, notebook_of
from tests.browser.panel.test_side_panel import choose, lab_with_panel, panel, run, tool
from tests.browser.test_receipt import expect_contrast

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
__all__ = ["lab_with_panel"]

MIME = "application/vnd.sandbox-kernel.rights+json"


def open_cells(lab: LabPage, name: str, *sources: str, kernel: str = "sandbox-ask") -> None:
    (lab.server.folder / "granted").mkdir(exist_ok=True)
    (lab.server.folder / "granted" / "a.txt").write_text("granted text")
    lab.server.write_notebook(name, notebook_of(*map(code_cell, sources), kernel=kernel))
    lab.open(name)
    expect(tool(lab, "undo")).to_be_visible()


def button(lab: LabPage, index: int, name: str) -> Locator:
    return lab.output(index).get_by_role("button", name=name, exact=True)


def press(lab: LabPage, index: int, name: str) -> None:
    """Click it when it has stood in the window for long enough."""
    button(lab, index, name).click(trial=True)
    expect(button(lab, index, name)).to_be_enabled()
    button(lab, index, name).click()


MOUNT = "%%sandbox --mount granted:/g --quiet\nprint(open('/g/a.txt').read())"
READS = ("x = 1", MOUNT, "%sandbox --allow-net example.org")


def test_the_user_is_asked_once_for_all_cells_and_the_answer_is_for_this_notebook(lab: LabPage) -> None:
    open_cells(lab, "asks.ipynb", *READS)
    run(lab, 1)
    prompt = lab.output(1)
    expect(prompt.locator("dt")).to_have_text(["This cell", "Code cell 3"])
    granted = (lab.server.folder / "granted").resolve()
    expect(prompt.locator("dd code")).to_have_text([f"--mount {granted}:/g", "--allow-net example.org"])
    expect(prompt).not_to_contain_text("granted text")
    expect(prompt.locator(".jp-RenderedText")).to_have_count(0)
    for theme in ("JupyterLab Light", "JupyterLab Dark"):
        lab.set_theme(theme)
        for part in ("p", "dt", "dd code", "dd span", "button"):
            expect_contrast(prompt.locator(part).first, part)
        lab.screenshot(f"rights-{theme.split()[1].lower()}")
    lab.set_theme("JupyterLab Light")
    press(lab, 1, "Not now")
    expect(prompt).to_contain_text("did not run")
    run(lab, 1)
    press(lab, 1, "Allow for this notebook")
    expect(prompt).to_contain_text("granted text")
    run(lab, 2)
    expect(lab.output(2).get_by_role("button")).to_have_count(0)
    lab.restart_kernel()
    run(lab, 1)
    expect(prompt).to_contain_text("granted text")  # remembered
    lab.page.evaluate(
        "(text) => window.jupyterapp.shell.currentWidget.content.widgets[1].model.sharedModel.setSource(text)",
        MOUNT.replace(":/g ", ":/g:rw "),
    )
    run(lab, 1)
    expect(prompt.locator("dd code")).to_contain_text(":/g:rw")  # a line that was changed asks again
    expect(prompt).not_to_contain_text("granted text")
    open_cells(lab, "other.ipynb", *READS)
    run(lab, 1)
    expect(button(lab, 1, "Allow for this notebook")).to_be_visible()
    kept = list((lab.server.folder.parent / "state" / "sandbox-kernel" / "rights").iterdir())
    remembered = [path.read_text() for path in kept]
    assert sum("asks.ipynb" in text for text in remembered) == 1 and not any(
        "other.ipynb" in text for text in remembered
    )
    assert "example.org" not in Path(lab.server.folder / "asks.ipynb").read_text().replace(READS[2], "")


def test_words_of_a_notebook_are_text_and_hide_nothing(lab: LabPage) -> None:
    hidden = "%sandbox save a\n%sandbox discard '<img src=x onerror=alert(1)>' 'wr:\u202e/x' '\u200bz'"
    open_cells(lab, "hidden.ipynb", hidden)
    run(lab, 0)
    shown = lab.output(0).locator("dd code")
    expect(shown).to_have_count(2)
    expect(shown.nth(1)).to_contain_text("'<img src=x onerror=alert(1)>' 'wr:\\u{202e}/x' '\\u{200b}z'")
    expect(lab.output(0).locator("img")).to_have_count(0)
    assert shown.nth(1).evaluate("(node) => getComputedStyle(node).unicodeBidi") == "isolate-override"


def test_a_prompt_in_a_notebook_file_is_no_prompt(lab: LabPage) -> None:
    data = {MIME: {"version": 1, "cells": [[1, [["--gpu all", "x"]]]], "key": "k"}, "text/plain": "prompt"}
    shown = {"output_type": "display_data", "data": data, "metadata": {}}
    lab.server.write_notebook("saved.ipynb", notebook_of(code_cell(MOUNT, [shown], 1), kernel="sandbox-ask"))
    lab.open("saved.ipynb")
    expect(lab.output(0)).to_contain_text("Run the cell: then you are asked.")
    expect(lab.output(0).get_by_role("button")).to_have_count(0)
    expect(lab.output(0)).not_to_contain_text("--gpu")


def test_a_programs_output_cannot_press_the_prompt(lab: LabPage) -> None:
    """A press counts where the button has stood for a while: not when something brings it under the pointer or the focus."""
    open_cells(lab, "pressed.ipynb", MOUNT, "1")
    run(lab, 0)
    allow = button(lab, 0, "Allow for this notebook")
    allow.click(trial=True)
    expect(allow).to_be_enabled()
    allow.evaluate("""(button) => {
        button.closest('.jp-OutputArea').style.marginTop = '40px';
        button.dispatchEvent(new PointerEvent('pointerdown', { bubbles: true }));
        button.dispatchEvent(new MouseEvent('click', { bubbles: true, detail: 1 }));
        button.focus();
        button.click();
    }""")
    run(lab, 1)  # the kernel has answered everything that was sent before
    expect(lab.output(0)).not_to_contain_text("granted text")
    expect(allow).to_be_visible()
    # A program shows what the kernel shows: its output is no prompt.
    forged = f"display({{'{MIME}': {{'version': 1}}, 'text/plain': 'x'}}, raw=True)"
    open_cells(lab, "forged.ipynb", f"from IPython.display import display\n{forged}", MOUNT)
    run(lab, 0)
    expect(lab.output(0).get_by_role("button", name="Allow for this notebook")).to_have_count(0)


def test_a_locked_kernel_refuses_lines_and_the_panel(lab_with_panel: LabPage) -> None:
    lab = lab_with_panel
    open_cells(lab, "locked.ipynb", MOUNT, "x = 1", "open('granted/a.txt')", kernel="sandbox-locked")
    run(lab, 0)
    expect(lab.output(0)).to_contain_text("PolicyViolation")
    expect(lab.output(0).get_by_role("button")).to_have_count(0)
    run(lab, 1, 2)
    expect(lab.output(2)).to_contain_text("FileNotFoundError")
    expect(lab.output(2).locator("[data-control^=allow]")).to_have_count(0)
    choose(lab, "changes")
    panel(lab).get_by_role("button", name="Work on the notebook’s folder…").click()
    lab.page.locator(".jp-Dialog").get_by_role("button", name="Restart, keeping variables").click()
    expect(lab.page.locator(".jp-Dialog").get_by_role("alert")).to_contain_text("nobody does while the kernel runs")
    lab.screenshot("locked")
    lab.page.keyboard.press("Escape")
    expect(lab.page.locator(".jp-Dialog")).to_have_count(0)
