"""An offer in a notebook file does nothing; one of a kernel leads to the first table.

``test_every_control.py`` answers all kinds of offers.
"""

import pytest
from playwright.sync_api import expect

from tests.browser.lab_page import LabPage, code_cell, notebook_of
from tests.browser.panel.test_side_panel import run

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

MIME = "application/vnd.sandbox-kernel.offers+json"


def offer(what: str) -> dict[str, object]:
    lines = dict.fromkeys(("once", "session", "never"), "print('ran')")
    return {"kind": "domain", "what": what, "once_means": "", "lines": lines}


def open_offers(lab: LabPage, name: str, *offers: dict[str, object]) -> None:
    given = {"version": 1, "offers": offers}
    shown = {"output_type": "display_data", "data": {MIME: given, "text/plain": "offers"}, "metadata": {}}
    lab.server.write_notebook(name, notebook_of(code_cell("1", [shown], 1), kernel="sandbox"))
    lab.open(name)


def test_an_offer_in_a_notebook_file_is_text_and_its_buttons_do_nothing(lab: LabPage) -> None:
    open_offers(lab, "offered.ipynb", offer("example.org"), offer("x\n%sandbox reset"))
    group = lab.output(0).get_by_role("group")
    expect(group).to_have_count(1)
    expect(group).to_contain_text("The program wanted to reach example.org.")
    expect(group.get_by_role("button")).to_have_text(["Allow once", "Allow for this session", "Never"])
    once = group.get_by_role("button", name="Allow once: example.org")
    once.focus()
    expect(once).to_be_enabled()
    lab.page.keyboard.press("Enter")
    expect(lab.output(0).get_by_role("status")).to_contain_text("Run the cell first")
    expect(lab.cell(0).locator(".jp-InputPrompt")).to_have_text("[1]:")
    lab.screenshot("offer")


PRESSES = {
    "a click after it moved": """(button) => {
        button.closest('.jp-OutputArea').style.marginTop = '40px';
        button.dispatchEvent(new PointerEvent('pointerdown', { bubbles: true }));
        const takesFocus = button.dispatchEvent(new MouseEvent('mousedown', { bubbles: true, cancelable: true }));
        button.dispatchEvent(new MouseEvent('click', { bubbles: true, detail: 1 }));
        return takesFocus;
    }""",
    "a key after it moved": """(button) => {
        button.closest('.jp-OutputArea').style.marginTop = '40px';
        button.click();
        return false;
    }""",
    "a key after Tab": """(button) => {
        button.focus();
        button.click();
        return false;
    }""",
}


@pytest.mark.parametrize("press", PRESSES.values(), ids=PRESSES)
def test_an_offer_is_pressed_only_where_the_user_has_seen_it(lab: LabPage, press: str) -> None:
    open_offers(lab, "moved.ipynb", offer("example.org"))
    once = lab.output(0).get_by_role("button", name="Allow once: example.org")
    expect(once).to_be_enabled()
    assert once.evaluate(press) is False
    expect(once).to_be_disabled()
    expect(lab.output(0).get_by_role("status")).to_be_empty()
    once.click()  # waits until it may be pressed
    expect(lab.output(0).get_by_role("status")).to_contain_text("Run the cell first")


def test_a_press_counts_although_the_button_loses_the_focus_before_the_click(lab: LabPage) -> None:
    """JupyterLab gives the focus to the cell that a press makes the active one."""
    open_offers(lab, "focus.ipynb", offer("example.org"))
    once = lab.output(0).get_by_role("button", name="Allow once: example.org")
    once.click(trial=True)
    expect(once).to_be_enabled()
    once.hover()
    lab.page.mouse.down()
    lab.page.evaluate("() => document.activeElement.blur()")
    lab.page.mouse.up()
    expect(lab.output(0).get_by_role("status")).to_contain_text("Run the cell first")


def test_a_table_beside_the_notebook_is_one_press_away_and_can_be_made_to_last(lab: LabPage) -> None:
    folder = lab.server.folder / "first"
    folder.mkdir(exist_ok=True)
    (folder / "sales.csv").write_text("planet,moons\nMars,2\n")
    deep = "def read(n):\n    return read(n - 1) if n else open('sales.csv').read()"
    lab.server.write_notebook(
        "first/table.ipynb", notebook_of(code_cell(f"{deep}\nprint(read(20))"), kernel="sandbox-ask")
    )
    lab.open("first/table.ipynb")
    run(lab, 0)
    # The offer stands above the error, of which only the end shows.
    shown = lab.output(0).locator(".jp-OutputArea-child")
    expect(shown.first).to_contain_text("The program looked for sales.csv")
    error = shown.last.locator("[data-mime-type]")
    place, text = error.bounding_box(), error.locator("pre").bounding_box()
    assert place is not None and text is not None
    assert text["height"] > 2 * place["height"] and abs(text["y"] + text["height"] - place["y"] - place["height"]) < 20
    lab.screenshot("first-table")
    folder_button = lab.output(0).get_by_role("button", name="Work on the whole folder")
    folder_button.scroll_into_view_if_needed()
    expect(folder_button).to_be_enabled()
    folder_button.click()
    expect(lab.output(0)).to_contain_text("Mars,2")
    toast = lab.page.locator(".Toastify__toast", has_text="Nothing is written to your files until you apply")
    lab.screenshot("first-table-after")
    toast.get_by_role("button", name="Put this into the notebook").click()
    expect(lab.cell(0)).to_contain_text("%sandbox --here")
    lab.restart_kernel()
    run(lab, 0, 1)
    expect(lab.output(1)).to_contain_text("Mars,2")


def test_a_tile_of_the_launcher_opens_a_notebook_that_works_on_its_folder(lab: LabPage) -> None:
    (lab.server.folder / "tiles").mkdir(exist_ok=True)
    (lab.server.folder / "tiles/sales.csv").write_text("planet,moons\nMars,2\n")
    lab.command("filebrowser:open-path", path="tiles")
    lab.command("launcher:create", cwd="tiles")
    lab.page.locator(".jp-Launcher:visible .jp-LauncherCard", has_text="Sandbox (this folder)").first.click()
    expect(lab.cell(0)).to_contain_text("%sandbox --here")
    expect(lab.cell(0).locator(".jp-InputPrompt")).to_have_text("[1]:")
    lab.screenshot("launched")
    lab.page.keyboard.type("print(open('sales.csv').read())")
    run(lab, 1)
    expect(lab.output(1)).to_contain_text("Mars,2")
