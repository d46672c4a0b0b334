"""From a file that a cell lacked to the changed folder, by buttons alone: behind each wall, as root and as a user.

``tests/as_ordinary_user.sh`` runs this file too: server, kernel and browser belong to that user then.
"""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from sandbox_kernel.jail.rules.landlock import landlock_abi
from tests.browser.lab_page import LabPage, code_cell, notebook_of
from tests.browser.panel.test_side_panel import panel, run, said, tool

pytestmark = [pytest.mark.browser, pytest.mark.timeout(400)]

CELLS = (
    "x = 7\nprint(x, open('data/seen.txt').read())",
    "open('notes.txt', 'a').write('two\\n')\nopen('new.txt', 'w').write('made')\nopen('more.txt', 'w').write('1')",
    "x = 8",
    "print(x)",
)
needs_landlock = pytest.mark.skipif(landlock_abi() < 1, reason="this kernel has no Landlock")


@pytest.mark.parametrize("kernel", ["sandbox", pytest.param("sandbox-landlock", marks=needs_landlock)])
def test_allow_restart_apply_discard_and_undo_are_buttons(lab: LabPage, kernel: str) -> None:
    folder = lab.server.folder / kernel
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "seen.txt").write_text("from the owner")
    (folder / "notes.txt").write_text("one\n")
    name = f"{kernel}/way.ipynb"
    lab.server.write_notebook(name, notebook_of(*map(code_cell, CELLS), kernel=kernel))
    lab.open(name)
    tool(lab, "changes").click()  # what a button did is said in the open panel, else in a notification that goes away
    # A hint and an offer; the button runs the cell again.
    run(lab, 0)
    expect(lab.output(0)).to_contain_text("is beside the notebook and not shown to the sandbox")
    lab.output(0).get_by_role("button", name="Allow for this session: data/seen.txt").click()
    expect(lab.output(0)).to_contain_text("7 from the owner")
    lab.wait_for_idle()
    # The folder, by a new session that keeps the variables.
    panel(lab).get_by_role("button", name="Work on the notebook’s folder…").click()
    lab.page.get_by_role("checkbox", name="Work on the notebook’s folder").check()
    lab.page.get_by_role("button", name="Restart, keeping variables", exact=True).click()
    expect(said(lab)).to_contain_text("has the variables of the one before")
    run(lab, 1, 2)
    expect(lab.receipt(1).locator("summary")).to_contain_text("3 files changed")
    assert (folder / "notes.txt").read_text() == "one\n"
    # Undo takes a cell back, and the next one sees it.
    tool(lab, "undo").click()
    expect(said(lab)).to_contain_text("took back cell")
    expect(lab.cell(2)).to_have_class(re.compile("jp-SandboxPast"))
    run(lab, 3)
    expect(lab.output(3)).to_contain_text("7")
    # One change is written, the others are dropped.
    rows = panel(lab).get_by_role("list", name="changes").get_by_role("listitem")
    expect(rows).to_have_count(3)
    panel(lab).get_by_role("button", name="Apply notes.txt").click()
    expect(rows).to_have_count(2)
    assert (folder / "notes.txt").read_text() == "one\ntwo\n"
    panel(lab).get_by_role("button", name="Discard all").click()
    lab.page.get_by_role("button", name="Drop").click()
    expect(panel(lab)).to_contain_text("nothing differs")
    assert not (folder / "new.txt").exists()
    assert not (folder / "more.txt").exists()
    lab.screenshot(f"whole-way-{kernel}")
