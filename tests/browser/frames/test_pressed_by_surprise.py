"""A program brings a control of ours under the pointer: the click that was meant for something else does not press it."""

import pytest
from playwright.sync_api import Download, FloatRect, Locator, expect

from tests.browser.lab_page import LabPage, code_cell, inner, notebook_of

pytestmark = pytest.mark.browser

LACKS = """import urllib.request
try:
    urllib.request.urlopen("http://evil.example/", timeout=3)
except OSError:
    pass
"""
#: Becomes small when the pointer comes, so that what stands below comes to the pointer.
SHRINKS = """from IPython.display import HTML
HTML('''<div id=area style="height: 200px">large</div><script>
  const area = document.getElementById('area');
  addEventListener('pointermove', () => { area.style.height = '24px'; area.textContent = 'small'; }, { once: true });
  addEventListener('click', () => { document.body.append('clicked'); });
</script>''')"""
SAVES = """from IPython.display import HTML
HTML('''<div id=area style="height: 60px">click fast</div><script>
  const file = () => new TextEncoder().encode('echo').buffer;
  addEventListener('pointerup', () => parent.postMessage({ type: 'save', name: 'setup.sh', kind: '', file: file() }, '*'));
</script>''')"""
#: Presses a control in the moment in which it is there.
PRESS_AT_ONCE = """() => {
  window.pressed = 0;
  new MutationObserver(() => {
    const button = document.querySelector('[data-control=save-file]');
    if (!button || window.pressed) return;
    window.pressed += 1;
    button.dispatchEvent(new PointerEvent('pointerdown', { bubbles: true }));
    button.dispatchEvent(new MouseEvent('click', { bubbles: true, detail: 1 }));
    button.click();
  }).observe(document.body, { childList: true, subtree: true });
}"""
#: Presses a button in the moment in which the frame above it becomes small; counts the presses that are not ignored.
PRESS_WHEN_MOVED = """(button) => {
  const place = document.querySelector('.jp-SandboxFrame-place');
  window.pressed = window.counted = 0;
  document.addEventListener('click', (event) => { window.counted += event.target === button; });
  new ResizeObserver(() => {
    if (place.clientHeight >= 100 || window.pressed) return;
    window.pressed += 1;
    button.dispatchEvent(new PointerEvent('pointerdown', { bubbles: true }));
    button.dispatchEvent(new MouseEvent('click', { bubbles: true, detail: 1 }));
  }).observe(place);
}"""
#: Its callback exchanges the files that the panel offers to apply, when the frame tells it so.
EXCHANGES = """%sandbox --here .
import os
import ipywidgets
def exchange(change):
    for name in "abc":
        os.path.exists(f"{name}.csv") and os.remove(f"{name}.csv")
    open("conftest.py", "w").write("import this")
for name in "abc":
    open(f"{name}.csv", "w").write("1,2")
word = ipywidgets.Text()
word.observe(exchange, "value")
word"""
SAYS_SO = """(field) => {
  field.value = 'now';
  for (const name of ['input', 'change']) field.dispatchEvent(new Event(name, { bubbles: true }));
}"""
#: A page that gets the focus back, as from a frame that took it, looks at the changes anew.
IS_GIVEN_BACK = "() => { dispatchEvent(new Event('focus')); }"
#: Presses the button for the second list in the moment in which it is drawn; counts the presses that are not ignored.
PRESS_WHEN_DRAWN = """() => {
  window.pressed = window.counted = 0;
  document.addEventListener('click', () => { window.counted += 1; });
  new MutationObserver(() => {
    const button = document.querySelector('[data-control=apply][aria-label="Apply conftest.py"]');
    if (!button || window.pressed) return;
    window.pressed += 1;
    button.dispatchEvent(new PointerEvent('pointerdown', { bubbles: true }));
    button.dispatchEvent(new MouseEvent('click', { bubbles: true, detail: 1 }));
  }).observe(document.querySelector('.jp-SandboxPanel'), { childList: true, subtree: true });
}"""
TWO_PICTURES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


def places_at_rest(*elements: Locator) -> list[FloatRect]:
    """Where the elements stand once nothing moves them any more: a page that was just scrolled may still grow."""
    before: list[FloatRect | None] = []
    while True:
        found = [element.bounding_box() for element in elements]
        if found == before:
            return [place for place in found if place is not None]
        before = found
        elements[0].evaluate(TWO_PICTURES)


def run_cell(lab: LabPage, name: str, source: str) -> None:
    lab.server.write_notebook(name, notebook_of(code_cell(source), kernel="sandbox"))
    lab.open(name)
    lab.run_all()


def test_one_click_in_a_frame_that_shrinks_presses_no_button_below_it(lab: LabPage) -> None:
    run_cell(lab, "shrinks.ipynb", LACKS + SHRINKS)
    area = inner(lab, 0).locator("#area")
    expect(area).to_have_text("large")
    button = lab.cell(0).get_by_role("button", name="Allow for this session: evil.example")
    button.scroll_into_view_if_needed()
    expect(button).to_be_enabled()
    there, frame = places_at_rest(button, area)
    x, y = there["x"] + there["width"] / 2, there["y"] + there["height"] / 2 - (frame["height"] - 24)
    assert frame["y"] < y < frame["y"] + frame["height"]
    lab.page.mouse.move(x - 20, y)
    lab.page.mouse.move(x, y)
    expect(area).to_have_text("small")
    area.evaluate(TWO_PICTURES)
    lab.page.evaluate(TWO_PICTURES)
    lab.page.mouse.click(x, y)
    # The frame usually gets the click; where the page moved meanwhile nobody does. A press would be told by now.
    for _ in range(60):
        if "clicked" in inner(lab, 0).locator("body").inner_text():
            break
        lab.page.evaluate(TWO_PICTURES)
    expect(lab.cell(0).get_by_role("status")).to_be_empty()
    # When the pointer has left, the frame becomes small; a press in the moment in which the button moves does not count.
    button.evaluate(PRESS_WHEN_MOVED)
    lab.page.mouse.move(5, 5)
    lab.page.wait_for_function("() => window.pressed === 1")
    assert lab.page.evaluate("window.counted") == 0
    button.click()  # waits until it may be pressed
    assert lab.page.evaluate("window.counted") == 1


def test_the_second_of_two_quick_clicks_saves_no_file(lab: LabPage) -> None:
    saved: list[Download] = []
    lab.page.on("download", lambda download: saved.append(download))
    run_cell(lab, "saves.ipynb", SAVES)
    expect(inner(lab, 0).locator("#area")).to_be_visible()
    lab.page.evaluate(PRESS_AT_ONCE)
    inner(lab, 0).locator("#area").click()
    lab.page.wait_for_function("() => window.pressed === 1")
    with lab.page.expect_download():
        lab.output(0).get_by_role("button", name="Save it").click()  # waits until it may be pressed
    assert len(saved) == 1


def test_a_list_of_changes_that_is_exchanged_under_the_pointer_applies_nothing(lab: LabPage) -> None:
    run_cell(lab, "exchanges.ipynb", EXCHANGES)
    field = inner(lab, 0).locator("input")
    expect(field).to_be_visible()
    lab.command("sandbox-kernel:changes")
    panel = lab.page.locator(".jp-SandboxPanel")
    expect(panel.get_by_role("button", name="Apply a.csv")).to_be_enabled()
    lab.page.evaluate(PRESS_WHEN_DRAWN)
    field.evaluate(SAYS_SO)
    while not lab.page.evaluate("window.pressed"):
        lab.page.evaluate(IS_GIVEN_BACK)
        lab.page.evaluate(TWO_PICTURES)
    assert lab.page.evaluate("window.counted") == 0
    button = panel.get_by_role("button", name="Apply conftest.py")
    expect(button).to_have_attribute("aria-disabled", "true")
    assert not (lab.server.folder / "conftest.py").exists()
    button.click()  # waits until it may be pressed
    assert lab.page.evaluate("window.counted") == 1
    expect(panel.get_by_role("status")).to_contain_text("1 change, written to")
