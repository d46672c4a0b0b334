"""Who has the keyboard: the frame that the user pressed in, and none that takes it."""

import re

import pytest
from playwright.sync_api import FrameLocator, Locator, expect

from tests.browser.lab_page import LabPage, code_cell, inner, notebook_of, open_cells

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


def press(lab: LabPage, target: Locator) -> None:
    """Press the mouse button on it, wherever the pointer was."""
    box = target.bounding_box()
    assert box is not None
    lab.page.mouse.click(box["x"] + 5, box["y"] + box["height"] / 2)


def steal(lab: LabPage, target: Locator) -> None:
    """Let the frame of a field begin to take the focus."""
    target.evaluate("() => window.postMessage('steal', '*')")


@pytest.mark.firefox
def test_a_frame_gets_the_keyboard_at_each_click_however_soon_it_follows_one_in_the_page(lab: LabPage) -> None:
    """Without this the keyboard goes back and forth between the frame and the page, and keys are lost."""
    open_cells(lab, "clicks.ipynb", FIELD, "1", "2")
    field = inner(lab, 0).locator("#field")
    expect(field).to_be_visible()
    for number in range(6):
        lab.select_cell(1)
        press(lab, field)
        lab.page.keyboard.press("End")
        lab.page.keyboard.type(str(number))
        expect(field).to_have_value("012345"[: number + 1])
    expect(lab.output(0).locator(".jp-SandboxFrame-notes")).to_be_empty()
    # Its cell becomes the active one, and stays it.
    lab.select_cell(2)
    press(lab, field)
    lab.page.wait_for_function(f"({ACTIVE_CELL})() === 0")
    lab.page.keyboard.press("End")
    lab.page.keyboard.type("x")
    expect(field).to_have_value("012345x")
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


def test_tab_goes_from_one_frame_into_the_next(lab: LabPage) -> None:
    twice = (
        "from IPython.display import HTML\nfor _ in range(2): display(HTML('<input class=field><script>1</script>'))"
    )
    open_cells(lab, "tabs.ipynb", twice)
    frames = [lab.output(0).locator("iframe").nth(number) for number in (0, 1)]
    fields = [frame.content_frame.frame_locator("iframe").locator(".field") for frame in frames]
    for field in fields:
        expect(field).to_be_visible()
    press(lab, fields[0])
    for number in range(6):
        lab.page.keyboard.press("Tab" if number % 2 == 0 else "Shift+Tab")
        there = fields[1 - number % 2]
        expect(there).to_be_focused()
        lab.page.keyboard.press("End")
        lab.page.keyboard.type("x")
        expect(there).to_have_value("x" * (number // 2 + 1))
    expect(lab.output(0).locator(".jp-SandboxFrame-notes").first).to_be_empty()


#: Takes the keyboard back as soon as it loses it, once the user has pressed in it.
CLINGS = """from IPython.display import HTML; HTML('''<input id=stolen><script>
  let isPressed = false;
  addEventListener('pointerup', () => { isPressed = true; });
  addEventListener('blur', () => { if (isPressed) setTimeout(() => document.getElementById('stolen').focus()); });
</script>''')"""
#: Takes the keyboard when it is shown again, from the word of the test on.
RETURNS = """from IPython.display import HTML; HTML('''<input id=stolen><script>
  const field = document.getElementById('stolen');
  const take = () => { field.focus(); field.dataset.tried = 'yes'; };
  new IntersectionObserver((seen) => { if (window.armed && seen.at(-1).isIntersecting) take(); }).observe(field);
</script>''')"""
DRAWS_OUT = """from IPython.display import HTML; HTML('''<b id=evil>x</b><script>
  addEventListener('click', () => setInterval(() => top.focus(), 20));
</script>''')"""
#: What a frame may get of 30 keys: those of the moments before the focus goes back, which are longer on a busy machine.
MOST_STOLEN = 20


def typed_by(lab: LabPage, text: str) -> None:
    lab.page.keyboard.type(text, delay=60)


def stolen_by(frame: FrameLocator) -> str:
    """What a thief has got; nothing can be asked of one that was removed."""
    got: list[str] = frame.locator("#stolen").evaluate_all("(found) => found.map(({ value }) => value)")
    return "".join(got)


@pytest.mark.firefox
def test_a_frame_does_not_reach_the_windows_of_others(lab: LabPage) -> None:
    """A call of focus() of an innocent frame would make that frame look like the thief."""
    open_cells(lab, "windows.ipynb", FIELD, FIELD)
    fields = [inner(lab, number).locator("#field") for number in (0, 1)]
    for field in fields:
        expect(field).to_be_visible()
    reached = "() => [top.length, ...Array.from({ length: top.length }, (_, at) => top[at] === parent)]"
    assert [field.evaluate(reached) for field in fields] == [[0], [0]]


@pytest.mark.firefox
@pytest.mark.parametrize("place", ["the status bar", "another frame"])
def test_a_frame_loses_the_keyboard_when_the_user_clicks_elsewhere(lab: LabPage, place: str) -> None:
    open_cells(lab, "clings.ipynb", FIELD, " ".join(CLINGS.split()), "# here")
    field, stolen = inner(lab, 0).locator("#field"), inner(lab, 1).locator("#stolen")
    expect(field).to_be_visible()
    expect(stolen).to_be_visible()
    press(lab, stolen)
    expect(stolen).to_be_focused()
    lab.page.keyboard.type("x")
    expect(stolen).to_have_value("x")
    bar = lab.page.locator("#jp-main-statusbar").bounding_box()
    assert bar is not None
    if place == "another frame":
        press(lab, field)
    else:
        lab.page.mouse.click(bar["x"] + bar["width"] * 0.55, bar["y"] + bar["height"] / 2)
    typed_by(lab, "q" * 30)
    if place == "another frame":
        lab.page.keyboard.type("end")
        expect(field).to_have_value(re.compile("q+end$"))
    assert stolen_by(inner(lab, 1)).count("q") <= MOST_STOLEN


def test_tab_gives_the_keyboard_to_no_frame_that_it_does_not_go_to(lab: LabPage) -> None:
    open_cells(lab, "tab.ipynb", "# here", " ".join(RETURNS.split()))
    stolen = inner(lab, 1).locator("#stolen")
    expect(stolen).to_be_visible()
    press(lab, lab.cell(0).locator(".cm-content"))
    lab.page.keyboard.press("Control+f")
    search = lab.page.get_by_placeholder("Find")
    expect(search).to_be_focused()
    stolen.evaluate("(field) => field.focus()")
    expect(search).to_be_focused()
    stolen.evaluate("() => { window.armed = true; }")
    lab.page.keyboard.press("Shift")  # hides what has taken the keyboard
    expect(lab.output(1).locator("iframe")).to_be_hidden()
    lab.page.keyboard.press("Shift+Tab")  # shows it again
    expect(stolen).to_have_attribute("data-tried", "yes")
    typed_by(lab, "q" * 30)
    assert stolen_by(inner(lab, 1)).count("q") <= MOST_STOLEN


def test_a_frame_cannot_turn_keys_for_another_frame_into_commands(lab: LabPage) -> None:
    """`top.focus()` works from any frame: keys for a field would go to the notebook, where `dd` deletes a cell."""
    open_cells(lab, "draws.ipynb", FIELD, " ".join(DRAWS_OUT.split()), "1", "2")
    field, evil = inner(lab, 0).locator("#field"), inner(lab, 1).locator("#evil")
    expect(field).to_be_visible()
    press(lab, evil)
    press(lab, field)
    while set(field.input_value()) != {"d"}:  # on its way back to the field some are dropped, sometimes all forty
        typed_by(lab, "d" * 40)
    assert lab.page.evaluate("() => window.jupyterapp.shell.currentWidget.content.widgets.length") == 4


#: Answers a question without a press of the user, as the time of a cell goes on by itself.
ANSWER = (
    "(field) => field.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true, cancelable: true }))"
)


def test_a_question_does_not_take_the_keyboard_from_somebody_who_writes_elsewhere(lab: LabPage) -> None:
    asks = "print(input('one?'), input('two?'), input('three?'))"
    lab.server.write_notebook("asks.ipynb", notebook_of(code_cell(asks), code_cell("#"), kernel="sandbox"))
    lab.open("asks.ipynb")
    lab.start_all()
    field, editor = lab.cell(0).locator(".jp-Stdin-input"), lab.cell(1).locator(".cm-content")
    expect(field).to_be_focused()  # the user writes nowhere
    editor.click()
    lab.page.keyboard.press("End")
    lab.page.keyboard.type("ab")
    field.evaluate(ANSWER)
    expect(lab.output(0)).to_contain_text("asks: two?")
    expect(field).to_have_count(1)  # that of the first question has gone
    lab.page.keyboard.type("cd")
    expect(editor).to_have_text("#abcd")
    field.click()
    lab.page.keyboard.type("2")
    lab.page.keyboard.press("Enter")
    expect(lab.output(0)).to_contain_text("asks: three?")
    expect(field).to_have_count(1)
    expect(field).to_be_focused()  # the user answers
    lab.page.keyboard.type("3")
    lab.page.keyboard.press("Enter")
    expect(lab.output(0)).to_contain_text(" 2 3")
