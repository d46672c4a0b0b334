"""Who has the keyboard: the frame that the user pressed in, and none that takes it."""

from __future__ import annotations

import pytest
from playwright.sync_api import FrameLocator, Locator, expect

from tests.browser.lab_page import LabPage, code_cell, notebook_of

pytestmark = pytest.mark.browser

FIELD = "from IPython.display import HTML\nHTML('<input id=field><script>1</script>')"
#: Takes the focus from a message on, again and again; what it gets stands in its field.
THIEF = """from IPython.display import HTML; HTML('''<input id=stolen><label for=stolen>x</label><script>
  const take = () => { %s document.getElementById('stolen').focus(); };
  addEventListener('message', ({ data, ports }) => {
    if (data === 'steal') setInterval(take, 10);
    for (const port of ports) setInterval(() => port.postMessage('pointerdown'), 5);
  });
</script>''')"""
#: What a frame may try to seem pressed: a second port, events of its own, clicks that a label passes on.
FORGED = """
  parent.postMessage({ type: 'ready' }, '*');
  parent.postMessage({ type: 'presses' }, '*');
  top.postMessage({ type: 'presses', sandboxFrame: 1 }, '*');
  for (const name of ['pointerdown', 'pointerup']) {
    document.body.dispatchEvent(new PointerEvent(name, { bubbles: true, composed: true }));
    dispatchEvent(new PointerEvent(name));
  }
  document.querySelector('label').click();"""
ACTIVE_CELL = "() => window.jupyterapp.shell.currentWidget.content.activeCellIndex"


def inner(lab: LabPage, index: int) -> FrameLocator:
    return lab.output(index).frame_locator("iframe").frame_locator("iframe")


def open_cells(lab: LabPage, name: str, *sources: str) -> None:
    lab.server.write_notebook(name, notebook_of(*map(code_cell, sources), kernel="sandbox"))
    lab.open(name)
    lab.run_all()


def press(lab: LabPage, target: Locator) -> None:
    """Press the mouse button on it, wherever the pointer was."""
    box = target.bounding_box()
    assert box is not None
    lab.page.mouse.click(box["x"] + 5, box["y"] + box["height"] / 2)


def steal(lab: LabPage, target: Locator) -> None:
    """Let the frame of a field begin to take the focus."""
    target.evaluate("() => window.postMessage('steal', '*')")


def test_a_frame_gets_the_keyboard_at_each_click_however_soon_it_follows_one_in_the_page(lab: LabPage) -> None:
    """The keyboard went back and forth between the frame and the page, and keys were lost."""
    open_cells(lab, "clicks.ipynb", FIELD, "1")
    field = inner(lab, 0).locator("#field")
    expect(field).to_be_visible()
    for number in range(6):
        lab.select_cell(1)
        press(lab, field)
        lab.page.keyboard.press("End")
        lab.page.keyboard.type(str(number))
        expect(field).to_have_value("012345"[: number + 1])
    expect(lab.output(0).locator(".jp-SandboxFrame-notes")).to_be_empty()


def test_a_click_in_a_frame_makes_its_cell_the_active_one(lab: LabPage) -> None:
    open_cells(lab, "active.ipynb", FIELD, "1", "2")
    field = inner(lab, 0).locator("#field")
    expect(field).to_be_visible()
    lab.select_cell(2)
    press(lab, field)
    lab.page.wait_for_function(f"({ACTIVE_CELL})() === 0")
    lab.select_cell(0)  # the cell that was active before became it again
    lab.page.keyboard.type("x")
    expect(field).to_have_value("x")
    assert lab.page.evaluate(ACTIVE_CELL) == 0


@pytest.mark.parametrize("forged", ["", FORGED], ids=["plain", "forged"])
def test_a_frame_does_not_get_what_is_typed_in_the_page_or_in_another_frame(lab: LabPage, forged: str) -> None:
    thief = " ".join((THIEF % forged).split())  # on one line, so that all cells are in view
    open_cells(lab, "thieves.ipynb", FIELD, thief, thief, "# here")
    field, first, second = inner(lab, 0).locator("#field"), inner(lab, 1), inner(lab, 2)
    expect(field).to_be_visible()
    for frame, place in ((first, field), (second, lab.cell(3).locator(".cm-content"))):
        stolen = frame.locator("#stolen")
        expect(stolen).to_be_visible()
        press(lab, place)
        lab.page.keyboard.press("End")
        steal(lab, stolen)
        lab.page.keyboard.type("a" * 40, delay=60)
        lab.page.keyboard.type("end")
        text = field.input_value() if place is field else place.inner_text()
        # It gets what is typed in the moment before the focus goes back, five times at most.
        assert text.count("a") >= 30, text
        assert text.endswith("end"), text
        assert all(len(got) <= 10 for got in stolen.evaluate_all("(found) => found.map(({ value }) => value)"))
