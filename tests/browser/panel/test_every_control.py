"""Every command, button, dialog and hint, behind each wall: one walk through one notebook that presses them all.

``tests/as_ordinary_user.sh`` runs this file too: server, kernel and browser belong to that user then. Landlock is the wall
of users whose machine gives them no better one, so the walk behind it is theirs alone. What there is to press is read
from the code (``pressed.py``), so a new control fails here until the walk presses it. The files beside this one look
closer at single controls, as root behind the strongest walls.
"""

import os
import re

import pytest
from playwright.sync_api import expect

from sandbox_kernel.jail.accounting.cgroups import find_hierarchies
from sandbox_kernel.jail.rules.landlock import landlock_abi
from sandbox_kernel.model import notes
from tests.browser.lab_page import LabPage
from tests.browser.loopback_kernel import HOST
from tests.browser.panel.pressed import hint_makers, pressable, pressed, record
from tests.browser.panel.test_side_panel import choose, lab_with_panel, panel, said, states, tool
from tests.browser.panel.walk import BUBBLEWRAP, LANDLOCK, Fine, Walk, menu, palette
from tests.loopback_server import serving

pytestmark = [pytest.mark.browser, pytest.mark.timeout(400)]
__all__ = ["lab_with_panel"]

KERNELS = [
    BUBBLEWRAP,
    pytest.param(
        LANDLOCK,
        marks=[
            pytest.mark.skipif(landlock_abi() < 1, reason="this kernel has no Landlock"),
            pytest.mark.skipif(os.getuid() == 0, reason="the walk of an ordinary user: tests/as_ordinary_user.sh"),
        ],
    ),
]

#: What this walk does not press, and what does.
PRESSED_ELSEWHERE = {
    "control stop-frame": "tests/browser/test_frames.py: it ends a frame of the page, whatever the walls",
    "control save-file": "tests/browser/test_frames.py: it saves a file that an output wants to save, whatever the walls",
    "control allow-notebook": "tests/browser/panel/test_rights.py: kernels of other tests ask for nothing",
    "control allow-nothing": "tests/browser/panel/test_rights.py",
    "control allow-install": "tests/browser/panel/test_packages.py: it needs an index of packages",
    "control allow-copy": "tests/browser/panel/test_packages.py",
    "control more": "tests/browser/test_sandbox_kernel.py: a cell must be near its limit",
    "control every": "tests/notebook/test_side_panel.py: all tests of this JupyterLab would begin with what it sets",
    "dialog Restart without them": "tests/browser/panel/test_time.py: a variable must be large",
    "menu branch": "tests/browser/panel/test_side_panel.py: it runs all cells below, whatever the walls",
    "palette branch": "tests/browser/panel/test_side_panel.py",
    "widget Run again": "tests/browser/test_sandbox_kernel.py: it measures as the report of the panel does",
}
#: Hints that no notebook behind these walls shows.
SHOWN_ELSEWHERE = {
    "hint_missing": "the library alone: tests/test_hints.py",
    "hint_domain": "the library alone: tests/test_hints.py",
    "hint_needs": "a library says how much memory it wanted: tests/test_hints.py",
    "hint_install": "tests/notebook/test_packages.py",
    "hint_package_in_wasm": "WebAssembly has no other walls: tests/test_hints.py",
    "network_open": "the policy of a file alone",
    "network_beside_proxy": "a program with sockets of its own: tests/backends/test_network.py",
}
#: Each of these belongs to one kind of walls.
OF_WALLS = {
    BUBBLEWRAP: {"hint_rename", "no_network"},
    LANDLOCK: {"never_network"},
}


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_control_is_pressed_and_every_hint_is_shown(lab_with_panel: LabPage, kernel: str) -> None:
    lab = lab_with_panel
    record(lab)
    with serving(Fine, host=HOST) as port:
        walk = Walk(lab, kernel, port)
        stumble(walk)
        give_rights(walk)
    look_at_changes(walk)
    stumble_in_the_folder(walk)
    go_back_and_forth(walk)
    change_limits(walk)
    restart_and_measure(walk)
    stop(walk)
    read_receipts(walk)
    lab.screenshot(f"every-control-{kernel}")
    assert pressable() - pressed(lab) == set(PRESSED_ELSEWHERE)
    others = {name for walls, names in OF_WALLS.items() if walls != kernel for name in names}
    assert hint_makers() - walk.hinted == set(SHOWN_ELSEWHERE) | others


def stumble(walk: Walk) -> None:
    """Each stumble is one sentence with what to write."""
    walk.run("refused", "begin", "lacks", "secret", "folder", "place", "time", "memory", "package")
    at_work = "%sandbox restart --keep --here"
    walk.expect_hint("lacks", hint_file=notes.hint_file("%sandbox --here", "once.txt", "the notebook", at_work))
    # What the user can answer stands above the error, of which the end shows.
    expect(walk.output("lacks").locator(".jp-OutputArea-child").first).to_contain_text(
        "The program looked for once.txt"
    )
    expect(walk.output("lacks").locator("[data-mime-type$=stderr]").last).to_have_css(
        "flex-direction", "column-reverse"
    )
    walk.cell("lacks").scroll_into_view_if_needed()
    walk.lab.screenshot(f"offer-above-{walk.kernel}")
    # The program caught the refusal, and it is told all the same.
    expect(walk.output("refused")).to_contain_text("caught")
    if walk.kernel == LANDLOCK:
        walk.expect_hint("refused", never_network=notes.never_network("nowhere.invalid"))
        expect(walk.offer("refused", "Allow")).to_have_count(0)
        walk.expect_hint("place", hint_place=notes.hint_place("", "/usr"))
    else:
        walk.expect_hint("refused", no_network=notes.no_network("nowhere.invalid", "%sandbox "))
        walk.expect_hint("place", hint_place=notes.hint_place("", "/usr"))
    walk.expect_hint("time", hint_time=notes.hint_time("%%sandbox --timeout 2s"))
    walk.expect_hint("memory", hint_memory=notes.hint_memory("%sandbox --memory 1G"))
    walk.expect_hint(
        "package",
        hint_package=notes.hint_package("%pip install no_such_package, or %sandbox --python PATH", "no_such_package"),
    )


def give_rights(walk: Walk) -> None:
    """Once, for the session, never, and the whole folder: each answer runs the cell again, or not."""
    lab = walk.lab
    once = walk.offer("lacks", "Allow once: once.txt")
    once.focus()
    expect(once).to_be_enabled()
    lab.page.keyboard.press("Enter")
    expect(walk.output("lacks")).to_contain_text("7 for one cell")
    lab.wait_for_idle()
    walk.run("lacks")
    expect(walk.output("lacks")).to_contain_text("FileNotFoundError")
    walk.press_offer("secret", "Never: private.txt")
    expect(walk.output("secret").get_by_role("status")).to_contain_text("Not asked again")
    walk.run("secret")
    expect(walk.output("secret").get_by_role("button")).to_have_count(0)
    if walk.kernel == LANDLOCK:
        walk.press_offer("lacks", "Allow for this session: once.txt")
        expect(walk.output("lacks")).to_contain_text("7 for one cell")
        lab.wait_for_idle()
    else:
        walk.run("fetch", "no_port")
        walk.press_offer("fetch", f"Allow once: {HOST}:{walk.port}")
        expect(walk.output("fetch")).to_contain_text("7 reached it")
        lab.wait_for_idle()
        walk.run("fetch")
        expect(walk.output("fetch")).to_contain_text("caught")
        walk.press_offer("fetch", f"Allow for this session: {HOST}:{walk.port}")
        expect(walk.output("fetch")).to_contain_text("7 reached it")
        lab.wait_for_idle()
        walk.run("fetch")
        expect(walk.output("fetch")).to_contain_text("7 reached it")
        walk.press_offer("no_port", f"Never: {HOST}:1")
        expect(walk.output("no_port").get_by_role("status")).to_contain_text("Not asked again")
    # The folder: the button in the panel opens the dialog, the one below the cell does it at once.
    choose(lab, "changes")
    walk.button("Work on the notebook’s folder…").click()
    expect(lab.page.get_by_role("checkbox", name="Work on the notebook’s folder")).to_be_checked()
    lab.page.keyboard.press("Escape")
    walk.press_offer("folder", "Work on the whole folder")
    expect(walk.output("folder")).to_contain_text("7 one")
    lab.wait_for_idle()


def look_at_changes(walk: Walk) -> None:
    """What a change is, applied and dropped one by one and all; a conflict stops it all."""
    lab, folder = walk.lab, walk.folder
    walk.run("writes")
    expect(walk.cell("writes").locator(".jp-SandboxReceipt summary")).to_contain_text("5 files changed")
    rows = panel(lab).get_by_role("list", name="changes").get_by_role("listitem")
    expect(rows).to_have_count(5)
    row = {name: rows.and_(lab.page.locator(f'[data-path="{name}"]')) for name in ("notes.txt", "mine.txt", "dot.png")}
    row["notes.txt"].locator("summary").focus()
    lab.page.keyboard.press("Enter")
    expect(row["notes.txt"].locator('[data-line="add"]')).to_have_text("+two <b>\n")
    row["dot.png"].locator("summary").click()
    for when in ("before", "after"):
        expect(row["dot.png"].get_by_role("img", name=f"dot.png {when}")).to_be_visible()
    (folder / "mine.txt").write_text("changed by its owner")
    walk.button("Apply all").click()
    expect(row["mine.txt"]).to_have_attribute("data-conflict", "true")
    assert (folder / "notes.txt").read_text() == "one\n"
    walk.button("Discard mine.txt").click()
    walk.dialog("Drop")
    expect(rows).to_have_count(4)
    # Who uses no mouse stays in the list: the focus goes to the same button of the next change.
    walk.button("Apply new.txt").focus()
    expect(walk.button("Apply new.txt")).to_be_enabled()
    lab.page.keyboard.press("Enter")
    expect(rows).to_have_count(3)
    expect(walk.button("Apply notes.txt")).to_be_focused()
    assert (folder / "new.txt").read_text() == "made"
    walk.button("Discard all").click()
    walk.dialog("Drop")
    expect(panel(lab)).to_contain_text("nothing differs")
    assert (folder / "notes.txt").read_text() == "one\n"
    assert (folder / "mine.txt").read_text() == "changed by its owner"


def stumble_in_the_folder(walk: Walk) -> None:
    """Stumbles of programs that work on the user's folder."""
    walk.run("hidden", "rename", "git")
    walk.expect_hint("hidden", hint_hidden=notes.hint_hidden("%sandbox --env NAME=VALUE", ".env"))
    walk.expect_hint("git", git_sees_deleted=notes.git_sees_deleted([".env"]))
    if walk.kernel == BUBBLEWRAP:
        walk.expect_hint("rename", hint_rename=notes.hint_rename("shutil.move('data', 'old')", "data"))


def go_back_and_forth(walk: Walk) -> None:
    """Undo, redo and the tree of states, from everywhere."""
    lab = walk.lab
    walk.run("one", "two")
    choose(lab, "time")
    present = panel(lab).locator('[role=treeitem][aria-current="true"]')
    expect(present).to_contain_text("x = 2")
    ways = (
        (lambda: tool(lab, "undo").click(), lambda: choose(lab, "redo")),
        (lambda: menu(lab, "Take Back the Last Cell"), lambda: menu(lab, "Go Forward Again")),
        (lambda: palette(lab, "undo"), lambda: palette(lab, "redo")),
        (lambda: walk.button("Undo").click(), lambda: walk.button("Redo").click()),
    )
    for back, forward in ways:
        back()
        expect(present).to_contain_text("x = 1")
        expect(said(lab)).to_contain_text(re.compile(r"took back cell \[\d+\]: x = 2"))
        expect(walk.cell("two")).to_have_class(re.compile("jp-SandboxPast"))
        forward()
        expect(present).to_contain_text("x = 2")
    two = walk.cell("two").locator(".jp-InputArea")
    for back, forward in (
        (lambda: of_cell(walk, "two", "before"), lambda: of_cell(walk, "two", "after")),
        (lambda: palette(lab, "before"), lambda: palette(lab, "after")),
        (
            walk.cell("two").locator('.jp-cell-toolbar [data-command="sandbox-kernel:before"]').click,
            lambda: palette(lab, "redo"),
        ),
    ):
        two.click()
        back()
        expect(present).to_contain_text("x = 1")
        forward()
        expect(present).to_contain_text("x = 2")
    palette(lab, "menu")
    lab.page.keyboard.press("Escape")
    name_it(walk, "Name the present state…", "named first")
    present.focus()
    for key in ("ArrowUp", "Enter"):
        lab.page.keyboard.press(key)
    expect(present).to_contain_text("x = 1")
    walk.run("show")
    expect(walk.output("show")).to_contain_text("1")
    states(lab).filter(has_text="x = 2").click()
    panel(lab).get_by_label("state to compare with").select_option(index=0)
    walk.button("Compare with").click()
    expect(panel(lab).get_by_role("region", name="difference")).to_contain_text("x")
    panel(lab).get_by_role("slider").press("Home")
    name_it(walk, "Name it…", "named second")
    states(lab).filter(has_text="named second").click()
    name_it(walk, "Branch from here…", "named third")
    expect(present).to_contain_text("named third")
    states(lab).filter(has_text="print(x)").click()
    walk.button("Go there").click()
    expect(present).to_contain_text("print(x)")


def of_cell(walk: Walk, cell: str, name: str) -> None:
    """Choose an entry of a cell's own menu."""
    walk.cell(cell).locator(".jp-InputPrompt").click(button="right")
    walk.lab.page.locator(f'.lm-Menu-item[data-command="sandbox-kernel:{name}"]').click()


def name_it(walk: Walk, button: str, name: str) -> None:
    walk.button(button).click()
    walk.lab.page.locator(".jp-Dialog input").fill(name)
    walk.dialog("Name it")
    expect(states(walk.lab).filter(has_text=name)).to_have_count(1)
    expect(panel(walk.lab)).not_to_have_attribute("aria-busy", "true")


def change_limits(walk: Walk) -> None:
    """The dialog, from each place that opens it; what it cannot do is said in it."""
    lab = walk.lab
    dialog = lab.page.locator(".jp-SandboxDialog")
    panel(lab).get_by_role("tab", name="Access").click()
    panel(lab).locator("[data-control=long-text]").click()
    ways = (
        lambda: choose(lab, "limits"),
        lambda: menu(lab, "Change Limits and Access…"),
        lambda: palette(lab, "limits"),
    )
    for opens in (*ways, walk.button("Change…").click, lab.limits.click):
        opens()
        expect(dialog.get_by_role("textbox", name="Memory")).to_have_value("512M")
        lab.page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
    lab.limits.focus()
    lab.page.keyboard.press("Enter")
    dialog.get_by_label("Time for each cell").fill("soon")
    # A running session gains memory only where a control group counts it.
    dialog.get_by_role("textbox", name="Memory").fill("600M" if find_hierarchies() is not None else "512M")
    domains = dialog.get_by_label("Network").input_value()
    dialog.get_by_label("Network").fill(f"{domains}\nno domain")
    dialog.get_by_label("Folders that cells may see").fill(f"{walk.folder}/data:{walk.shown}")
    walk.dialog("Change")
    expect(dialog.get_by_role("alert")).to_contain_text("soon")
    expect(dialog.get_by_label("Folders that cells may see")).to_have_value(f"{walk.folder}/data:{walk.shown}")
    dialog.get_by_label("Time for each cell").fill("9s")
    walk.dialog("Change")
    expect(dialog.get_by_role("alert")).to_contain_text("no domain")
    dialog.get_by_label("Network").fill(domains)
    walk.dialog("Change")
    if walk.kernel == LANDLOCK:
        expect(dialog.get_by_role("alert")).to_contain_text("nothing can be added to a running session")
    else:
        # The running session gains them, and keeps its variables.
        expect(dialog).to_have_count(0)
        walk.run("mounted", "show")
        expect(walk.output("mounted")).to_contain_text("shown")
        expect(walk.output("show")).to_contain_text("1")
        expect(panel(lab).locator("dl")).to_contain_text("/data at /data")
        lab.limits.click()
    # What no running session can follow is refused in the dialog; a new session with the variables can.
    dialog.get_by_role("textbox", name="Memory").fill("600M")
    lab.page.get_by_label("Work on the notebook’s folder").uncheck()
    walk.dialog("Change")
    expect(dialog.get_by_role("alert")).to_contain_text("session")
    walk.dialog("Restart, keeping variables")
    expect(dialog).to_have_count(0)
    expect(said(lab)).to_contain_text("has the variables of the one before")
    expect(lab.limits).to_contain_text("9 s · 600 MB")
    walk.run("mounted", "show")
    expect(walk.output("mounted")).to_contain_text("shown")
    expect(walk.output("show")).to_contain_text("1")


def restart_and_measure(walk: Walk) -> None:
    """A new session with the variables, the tabs, and the report of what holds."""
    lab = walk.lab
    for opens in (lambda: menu(lab, "Restart, Keeping Variables…"), lambda: palette(lab, "restart")):
        opens()
        lab.page.keyboard.press("Escape")
        expect(lab.page.locator(".jp-Dialog")).to_have_count(0)
    walk.button("Restart, keeping variables…").click()
    walk.dialog("Restart")
    expect(said(lab)).to_contain_text("has the variables of the one before")
    for name, words, label in (
        ("changes", "Files and Changes", "Files and changes"),
        ("time", "Tree of States", "Time"),
        ("access", "What Cells May Touch", "Access"),
    ):
        tab = panel(lab).get_by_role("tab", name=label)
        for opens in (
            lambda n=name: choose(lab, n),
            lambda w=words: menu(lab, w),
            lambda n=name: palette(lab, n),
            tab.click,
        ):
            opens()
            expect(tab).to_have_attribute("aria-selected", "true")
    measured = panel(lab).get_by_role("region", name="measured report")
    ways = (walk.button("Measure what holds (report)").click, lambda: choose(lab, "report"))
    for measure in (*ways, lambda: menu(lab, "Measure What Holds (Report)"), lambda: palette(lab, "report")):
        measure()
        expect(said(lab)).to_contain_text("lines are enforced", timeout=200_000)
        expect(measured).to_be_in_viewport()
        panel(lab).get_by_role("tab", name="Time").click()
        expect(panel(lab).locator(".jp-SandboxPanel-status")).to_have_text("")
        panel(lab).get_by_role("tab", name="Access").click()


def stop(walk: Walk) -> None:
    """Four ways to stop a cell; what is pressed meanwhile waits and says so."""
    lab = walk.lab
    ways = (lambda: choose(lab, "stop"), lambda: menu(lab, "Stop the Running Cells"), lambda: palette(lab, "stop"))
    for stops in (*ways, walk.cell("slow").get_by_role("button", name="Stop").click):
        walk.start("slow")
        expect(walk.output("slow")).to_contain_text("going")
        stops()
        expect(walk.output("slow")).to_contain_text("KeyboardInterrupt")
        lab.wait_for_idle()


def read_receipts(walk: Walk) -> None:
    """The receipt of a run unfolds, and the option in it is copied."""
    lab = walk.lab
    receipt = walk.cell("receipt").locator(".jp-SandboxReceipt")
    receipt.locator("summary").click()
    expect(receipt.locator("dl")).to_be_visible()
    lab.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    receipt.get_by_role("button", name="Copy").click()
    expect(receipt.get_by_role("button")).to_have_text("Copied")
