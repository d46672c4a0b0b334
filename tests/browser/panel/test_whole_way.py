"""Every button, dialog and hint, behind each wall, as root and as a user: three drives through notebooks.

``tests/as_ordinary_user.sh`` runs this file too: server, kernel and browser belong to that user then. The files beside
this one look closer at single buttons, as root behind the strongest walls.
"""

from __future__ import annotations

import os
import re

import pytest
from playwright.sync_api import expect

from sandbox_kernel.jail.rules.landlock import landlock_abi
from tests.browser.lab_page import LabPage, code_cell, notebook_of
from tests.browser.loopback_kernel import HOST
from tests.browser.panel.test_offers import FETCH, Fine
from tests.browser.panel.test_side_panel import lab_with_panel, panel, run, said, states, tool
from tests.conftest import need
from tests.loopback_server import serving
from tests.notebook.side_panel.test_panel_answers import PNG

pytestmark = [pytest.mark.browser, pytest.mark.timeout(400)]
__all__ = ["lab_with_panel"]

behind_landlock = pytest.param(
    "sandbox-landlock", marks=pytest.mark.skipif(landlock_abi() < 1, reason="this kernel has no Landlock")
)
#: As root and behind bubblewrap, the files beside this one press these buttons.
other_settings = pytest.mark.parametrize("kernel", [*(["sandbox"] if os.geteuid() else []), behind_landlock])

WRITES = (
    "x = 7\nprint(x, open('data/seen.txt').read())",
    (
        "open('notes.txt', 'a').write('two <b>\\n')\nopen('new.txt', 'w').write('made')\n"
        "open('more.txt', 'w').write('1')\nopen('mine.txt', 'w').write('theirs')\nopen('dot.png', 'ab').write(b'\\0')"
    ),
    "x = 8",
    "print(x)",
)


@pytest.mark.parametrize("kernel", ["sandbox", behind_landlock])
def test_allow_restart_apply_discard_and_undo_are_buttons(lab: LabPage, kernel: str) -> None:
    folder = lab.server.folder / kernel
    (folder / "data").mkdir(parents=True)
    for name, data in {
        "data/seen.txt": b"of the owner",
        "notes.txt": b"one\n",
        "mine.txt": b"a\n",
        "dot.png": PNG,
    }.items():
        (folder / name).write_bytes(data)
    name = f"{kernel}/way.ipynb"
    lab.server.write_notebook(name, notebook_of(*map(code_cell, WRITES), kernel=kernel))
    lab.open(name)
    tool(lab, "changes").click()  # what a button did is said in the open panel, else in a notification that goes away
    # A hint and an offer; the button runs the cell again.
    run(lab, 0)
    expect(lab.output(0)).to_contain_text("is beside the notebook and not shown to the sandbox")
    lab.output(0).get_by_role("button", name="Allow for this session: data/seen.txt").click()
    expect(lab.output(0)).to_contain_text("7 of the owner")
    lab.wait_for_idle()
    # The folder, by a new session that keeps the variables.
    panel(lab).get_by_role("button", name="Work on the notebook’s folder…").click()
    expect(lab.page.get_by_role("checkbox", name="Work on the notebook’s folder")).to_be_checked()
    lab.page.get_by_role("button", name="Restart, keeping variables", exact=True).click()
    expect(said(lab)).to_contain_text("has the variables of the one before")
    run(lab, 1, 2)
    expect(lab.receipt(1).locator("summary")).to_contain_text("5 files changed")
    assert (folder / "notes.txt").read_text() == "one\n"
    # Undo takes a cell back, and the next one sees it.
    tool(lab, "undo").click()
    expect(said(lab)).to_contain_text("took back cell")
    expect(lab.cell(2)).to_have_class(re.compile("jp-SandboxPast"))
    run(lab, 3)
    expect(lab.output(3)).to_contain_text("7")
    # What a change is: a diff, opened by keyboard; pictures side by side.
    rows = panel(lab).get_by_role("list", name="changes").get_by_role("listitem")
    expect(rows).to_have_count(5)
    row = {name: rows.and_(lab.page.locator(f'[data-path="{name}"]')) for name in ("notes.txt", "mine.txt", "dot.png")}
    row["notes.txt"].locator("summary").focus()
    lab.page.keyboard.press("Enter")
    expect(row["notes.txt"].locator('[data-line="add"]')).to_have_text("+two <b>\n")
    row["dot.png"].locator("summary").click()
    for when in ("before", "after"):
        expect(row["dot.png"].get_by_role("img", name=f"dot.png {when}")).to_be_visible()
    # All or nothing: a file that its owner changed meanwhile is a conflict.
    (folder / "mine.txt").write_text("changed by its owner")
    panel(lab).get_by_role("button", name="Apply all").click()
    expect(row["mine.txt"]).to_have_attribute("data-conflict", "true")
    assert (folder / "notes.txt").read_text() == "one\n"
    panel(lab).get_by_role("button", name="Discard mine.txt").click()
    lab.page.get_by_role("button", name="Drop").click()
    expect(rows).to_have_count(4)
    # One change is written, the others are dropped.
    panel(lab).get_by_role("button", name="Apply notes.txt").click()
    expect(rows).to_have_count(3)
    assert (folder / "notes.txt").read_text() == "one\ntwo <b>\n"
    panel(lab).get_by_role("button", name="Discard all").click()
    lab.page.get_by_role("button", name="Drop").click()
    expect(panel(lab)).to_contain_text("nothing differs")
    assert not (folder / "new.txt").exists()
    assert not (folder / "more.txt").exists()
    assert (folder / "mine.txt").read_text() == "changed by its owner"
    lab.screenshot(f"whole-way-{kernel}")


STUMBLES = (
    ("open('/usr/x', 'w')", re.compile("/usr (is closed to the program, or )?can only be read; ")),
    ("%%sandbox --timeout 500ms\nwhile True: pass", "to give it more: %%sandbox --timeout 2s"),
    ("held = bytearray(900 << 20)", "to give it more: %sandbox --memory 1G"),
    ("import no_such_package", "pip install no_such_package on the host"),
)
LACKS = "print(kept, open('{}').read())"


@other_settings
def test_each_hint_is_a_sentence_and_a_file_is_allowed_once_or_never(lab: LabPage, kernel: str) -> None:
    folder = lab.server.folder / f"lacks-{kernel}"
    folder.mkdir()
    (folder / "once.txt").write_text("for one cell")
    (folder / "secret.txt").write_text("for no cell")
    cells = ("kept = 7", LACKS.format("once.txt"), LACKS.format("secret.txt"), *(source for source, _ in STUMBLES))
    lab.server.write_notebook(f"{folder.name}/hints.ipynb", notebook_of(*map(code_cell, cells), kernel=kernel))
    lab.open(f"{folder.name}/hints.ipynb")
    run(lab, *range(len(cells)))
    for index, (_, hint) in enumerate(STUMBLES, start=3):
        expect(lab.output(index)).to_contain_text(hint)
    lab.output(1).get_by_role("button", name="Allow once: once.txt").focus()
    lab.page.keyboard.press("Enter")
    expect(lab.output(1)).to_contain_text("7 for one cell")
    lab.wait_for_idle()
    run(lab, 1)
    expect(lab.output(1)).to_contain_text("FileNotFoundError")
    lab.output(2).get_by_role("button", name="Never: secret.txt").click()
    expect(lab.output(2).get_by_role("status")).to_contain_text("Not asked again")
    run(lab, 2)
    expect(lab.output(2)).to_contain_text("FileNotFoundError")
    expect(lab.output(2).get_by_role("button")).to_have_count(0)
    lab.output(1).get_by_role("button", name="Work on the whole folder").click()
    expect(lab.output(1)).to_contain_text("7 for one cell")
    lab.wait_for_idle()
    lab.screenshot(f"whole-way-hints-{kernel}")


REFUSED = """
import urllib.request
try:
    urllib.request.urlopen('http://nowhere.invalid/')
except OSError:
    print('caught')
"""


def test_a_domain_that_these_walls_cannot_open_is_told_and_not_offered(lab: LabPage) -> None:
    need(landlock_abi() >= 1, "this kernel has no Landlock")
    cells = (REFUSED, "%sandbox --allow-net nowhere.invalid", "%sandbox allow once nowhere.invalid", "print(6 * 7)")
    lab.server.write_notebook("closed.ipynb", notebook_of(*map(code_cell, cells), kernel="sandbox-landlock"))
    lab.open("closed.ipynb")
    run(lab, *range(len(cells)))
    expect(lab.output(0)).to_contain_text("cannot open nowhere.invalid alone")
    expect(lab.output(0).get_by_role("button", name="Allow")).to_have_count(0)
    for line in (1, 2):
        expect(lab.output(line)).to_contain_text("cannot enforce")
    expect(lab.output(3)).to_contain_text("42")


@pytest.mark.skipif(os.geteuid() == 0, reason="test_offers.py presses these buttons as root")
def test_a_domain_is_allowed_once_for_the_session_or_never(lab: LabPage) -> None:
    with serving(Fine, host=HOST) as port:
        fetch, other = (FETCH.format(host=HOST, port=number) for number in (port, 1))
        cells = ("%sandbox --allow-net example.org\nkept = 7", fetch, other)
        lab.server.write_notebook("domains.ipynb", notebook_of(*map(code_cell, cells), kernel="sandbox-loopback"))
        lab.open("domains.ipynb")
        run(lab, *range(len(cells)))
        # The program caught the refusal, and it is told all the same.
        expect(lab.output(1)).to_contain_text("caught")
        offer = lab.output(1).get_by_role("group", name=f"{HOST}:{port}")
        offer.get_by_role("button", name="Allow once").click()
        expect(lab.output(1)).to_contain_text("7 reached it")
        lab.wait_for_idle()
        run(lab, 1)
        expect(lab.output(1)).to_contain_text("caught")
        offer.get_by_role("button", name="Allow for this session").focus()
        lab.page.keyboard.press("Enter")
        expect(lab.output(1)).to_contain_text("7 reached it")
        lab.wait_for_idle()
        run(lab, 1)
        expect(lab.output(1)).to_contain_text("7 reached it")
        lab.output(2).get_by_role("button", name=f"Never: {HOST}:1").click()
        expect(lab.output(2).get_by_role("status")).to_contain_text("Not asked again")


TIME = (
    "x = 1",
    "x = 2",
    "print(x)",
    "%%sandbox --timeout 10m\nimport time\nprint('going', flush=True)\nwhile True: time.sleep(0.05)",
)


@other_settings
def test_commands_of_toolbar_palette_menu_and_status_bar(lab_with_panel: LabPage, kernel: str) -> None:
    lab = lab_with_panel
    data = lab.server.folder / f"data-{kernel}"
    data.mkdir()
    (data / "a.txt").write_text("shown")
    lab.server.write_notebook(
        f"time-{kernel}.ipynb",
        notebook_of(*map(code_cell, (*TIME, f"print(open('{data}/a.txt').read())")), kernel=kernel),
    )
    lab.open(f"time-{kernel}.ipynb")
    run(lab, 0, 1)
    # The palette, by keyboard: the tree of states.
    palette(lab, "Sandbox: tree of states")
    expect(states(lab)).to_have_count(3)
    # Back by the menu, forward by the toolbar, back by keys in the tree, forward by the button above it.
    lab.menu("Kernel", "Sandbox", "Take Back the Last Cell")
    expect(said(lab)).to_contain_text("took back cell [2]: x = 2")
    expect(states(lab).nth(1)).to_have_attribute("aria-current", "true")
    tool(lab, "redo").click()
    expect(states(lab).nth(2)).to_have_attribute("aria-current", "true")
    states(lab).nth(2).focus()
    for key in ("ArrowUp", "Enter"):
        lab.page.keyboard.press(key)
    expect(states(lab).nth(1)).to_have_attribute("aria-current", "true")
    run(lab, 2)
    expect(lab.output(2)).to_contain_text("1")
    expect(states(lab)).to_have_count(4)
    expect(states(lab).filter(has_text="print(x)")).to_have_attribute("aria-current", "true")
    states(lab).filter(has_text="x = 2").click()
    panel(lab).get_by_role("button", name="Compare with").click()
    expect(panel(lab).get_by_role("region", name="difference").locator("tr", has_text="x")).to_contain_text(
        "int 2int 1"
    )
    # What cells may touch, and the dialog behind the status bar: a word that is no time is told in it.
    tool(lab, "access").click()
    expect(panel(lab).locator("dl")).to_contain_text("no host files")
    lab.limits.focus()
    lab.page.keyboard.press("Enter")
    dialog = lab.page.locator(".jp-SandboxDialog")
    dialog.get_by_label("Time for each cell").fill("soon")
    dialog.get_by_label("Folders that cells may see").fill(f"{data}:{data}")
    lab.page.get_by_role("button", name="Change", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("soon")
    dialog.get_by_label("Time for each cell").fill("9s")
    lab.page.get_by_role("button", name="Change", exact=True).click()
    if kernel == "sandbox-landlock":
        # What a running session cannot be given is refused in the dialog; a new session with the variables has it.
        expect(dialog.get_by_role("alert")).to_contain_text("nothing can be added to a running session")
        lab.page.get_by_role("button", name="Restart, keeping variables", exact=True).click()
    expect(dialog).to_have_count(0)
    expect(lab.limits).to_contain_text("9 s · 512 MB")
    run(lab, 4)
    expect(lab.output(4)).to_contain_text("shown")
    # A new session with the variables, and the report of what holds.
    panel(lab).get_by_role("button", name="Restart, keeping variables…").click()
    lab.page.locator(".jp-Dialog").get_by_role("button", name="Restart", exact=True).click()
    expect(said(lab)).to_contain_text("has the variables of the one before")
    run(lab, 2)
    expect(lab.output(2)).to_contain_text("1")
    palette(lab, "Sandbox: measure what holds")
    measured = panel(lab).get_by_role("region", name="measured report")
    expect(measured.locator("tr").filter(has_text="enforced").first).to_be_visible(timeout=200_000)
    # Two ways to stop a cell: the toolbar, and the button below a cell that runs for long.
    for stop in (tool(lab, "stop"), lab.output(3).get_by_role("button", name="Stop")):
        lab.select_cell(3)
        lab.page.evaluate("() => { void window.jupyterapp.commands.execute('notebook:run-cell') }")
        expect(lab.output(3)).to_contain_text("going")
        stop.click()
        expect(lab.output(3)).to_contain_text("KeyboardInterrupt")
        lab.wait_for_idle()
    lab.screenshot(f"whole-way-limits-{kernel}")


def palette(lab: LabPage, words: str) -> None:
    """Choose a command as somebody does who uses no mouse."""
    lab.page.keyboard.press("Control+Shift+C")
    lab.page.locator(".lm-CommandPalette-input").last.fill(words)
    expect(lab.page.locator(".lm-CommandPalette-item.lm-mod-active")).to_contain_text(words)
    lab.page.keyboard.press("Enter")
