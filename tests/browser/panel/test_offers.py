"""An offer in a notebook file does nothing. ``test_every_control.py`` answers offers of a kernel."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.lab_page import LabPage, code_cell, notebook_of

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

MIME = "application/vnd.sandbox-kernel.offers+json"


def offer(what: str) -> dict[str, object]:
    lines = dict.fromkeys(("once", "session", "never"), "print('ran')")
    return {"kind": "domain", "what": what, "sentence": f"It wanted <b>{what}</b>.", "once_means": "", "lines": lines}


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
