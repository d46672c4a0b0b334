"""Widgets in JupyterLab, of a sandboxed session and of a wrapped ipykernel: drawn in frames, moved there, heard in Python."""

import importlib.util

import pytest
from playwright.sync_api import expect

from tests.browser.lab_page import LabPage, code_cell, inner, notebook_of
from tests.browser.lab_server import WRAPPED
from tests.conftest import need

pytestmark = pytest.mark.browser

SLIDER = "import ipywidgets as widgets\nslider = widgets.IntSlider(3)\nslider"
INTERACT = "@widgets.interact(x=(0, 10))\ndef twice(x=4):\n    print('twice is', 2 * x)"
OUTPUTS = """from IPython.display import Markdown
caught = widgets.Output()
with caught:
    print("\\x1b[31ma red word\\x1b[39m")
    display(Markdown("some **Markdown**"))
    1/0
caught"""
#: Draws what it is told to; it has no state.
CANVAS = '''
import anywidget
class Lines(anywidget.AnyWidget):
    _esm = """const lines = []; let draw = () => {};
      export default {
        initialize({ model }) { model.on("msg:custom", (line) => { lines.push(line); draw(); }); },
        render({ el }) { draw = () => { el.textContent = "lines " + lines.join(); }; draw(); } }"""
lines = Lines()
lines.send("a")
lines
'''
FIGURE = "import plotly.graph_objects as go\nfigure = go.FigureWidget()\nfigure.add_scatter(y=[1, 3, 2])\nfigure"


@pytest.mark.firefox
@pytest.mark.parametrize("kernel", ["sandbox", WRAPPED])
def test_a_slider_moves_the_value_in_python_and_back(lab: LabPage, kernel: str) -> None:
    cells = [SLIDER, "slider.value", "slider.value = 8", INTERACT, OUTPUTS]
    lab.server.write_notebook(f"{kernel}.ipynb", notebook_of(*map(code_cell, cells), kernel=kernel))
    lab.open(f"{kernel}.ipynb")
    lab.command("notebook:run-cell")
    handle = inner(lab, 0).locator(".noUi-handle")
    expect(inner(lab, 0).locator(".widget-readout")).to_have_text("3")
    handle.click()
    lab.page.keyboard.press("ArrowRight")
    expect(inner(lab, 0).locator(".widget-readout")).to_have_text("4")
    lab.wait_for_idle()
    lab.select_cell(1)
    lab.command("notebook:run-cell")
    expect(lab.output(1)).to_contain_text("4")
    lab.select_cell(2)
    lab.command("notebook:run-cell")
    expect(inner(lab, 0).locator(".widget-readout")).to_have_text("8")
    lab.select_cell(3)
    lab.command("notebook:run-cell")
    expect(inner(lab, 3).locator("body")).to_contain_text("twice is 8")
    track = inner(lab, 3).locator(".noUi-target")
    box = track.bounding_box()
    assert box is not None
    track.click(position={"x": box["width"] - 1, "y": box["height"] / 2})
    expect(inner(lab, 3).locator("body")).to_contain_text("twice is 20")
    lab.select_cell(4)
    lab.command("notebook:run-cell")
    caught = inner(lab, 4)
    expect(caught.get_by_text("a red word", exact=True)).to_have_css("color", "rgb(231, 92, 88)")
    expect(caught.locator("strong")).to_have_text("Markdown")  # the widget showed the name of its class
    expect(caught.locator("pre", has_text="ZeroDivisionError").first).to_contain_text("1/0")  # its traceback
    lab.set_theme("JupyterLab Dark")
    place = lab.output(4).locator(".jp-SandboxFrame-place")
    for shown in (place, place.frame_locator("iframe").locator("html"), caught.locator("html")):
        expect(shown).to_have_css("color-scheme", "dark")  # else a frame does not show the page behind it
    lab.screenshot(f"frames-widgets-{kernel}")
    lab.set_theme("JupyterLab Light")


@pytest.mark.parametrize("kernel", ["sandbox", WRAPPED])
def test_what_is_sent_before_the_frame_is_there_is_drawn(lab: LabPage, kernel: str) -> None:
    """A frame may be made after the next cells have run: it shows what they changed, also besides the state."""
    need(importlib.util.find_spec("anywidget"), "anywidget is not installed")
    later = "lines.send('b')\nfigure.add_bar(y=[1, 2])\nfigure.update_layout(title='later')\nfigure.data[0].name = 'renamed'"
    cells = [CANVAS, FIGURE, later, "lines.send('c')"]
    lab.server.write_notebook(f"later-{kernel}.ipynb", notebook_of(*map(code_cell, cells), kernel=kernel))
    lab.open(f"later-{kernel}.ipynb")
    lab.run_all()
    expect(inner(lab, 0).locator("body")).to_contain_text("lines a,b,c")
    figure = inner(lab, 1)
    expect(figure.locator(".gtitle")).to_have_text("later")
    expect(figure.locator(".legendtext").first).to_have_text("renamed")


def test_a_figure_is_drawn_as_before_when_the_cell_that_changed_it_is_rolled_back(lab: LabPage) -> None:
    change = "figure.update_layout(title='{}')"
    ending = f"{change.format('gone')}\ninput()\nimport os; os._exit(1)"
    cells = [FIGURE, change.format("before"), ending]
    lab.server.write_notebook("rolled.ipynb", notebook_of(*map(code_cell, cells), kernel="sandbox"))
    lab.open("rolled.ipynb")
    title = inner(lab, 0).locator(".gtitle")
    for index, shown in enumerate((None, "before", "gone")):
        lab.select_cell(index)
        lab.page.evaluate("() => void window.jupyterapp.commands.execute('notebook:run-cell')")  # the last one runs on
        expect(inner(lab, 0).locator(".main-svg").first).to_be_visible()
        if shown:
            expect(title).to_have_text(shown)
    lab.output(2).locator(".jp-Stdin-input").press("Enter")
    lab.select_cell(0)  # a frame out of sight is drawn when the user comes back to it
    expect(title).to_have_text("before")


@pytest.mark.parametrize("made", ["", "\nplt.figure()"], ids=["by the callback", "before"])
def test_a_widget_that_a_callback_draws_gets_its_code_also_in_an_older_frame(lab: LabPage, made: str) -> None:
    need(importlib.util.find_spec("ipympl"), "ipympl is not installed")
    draw = "import ipywidgets, matplotlib.pyplot as plt\n@ipywidgets.interact(k=(1, 20))\ndef draw(k=3): plt.plot([0, k]); plt.show()"
    cells = map(code_cell, [draw, f"%matplotlib widget{made}"])
    lab.server.write_notebook("older.ipynb", notebook_of(*cells, kernel="sandbox"))
    lab.open("older.ipynb")
    lab.command("notebook:run-cell")
    expect(inner(lab, 0).locator("img")).to_be_visible()
    lab.select_cell(1)
    lab.command("notebook:run-cell")
    if made:  # until the frame has waited for the code in vain
        lab.page.wait_for_event("console", lambda message: "is not in this frame" in message.text)
    handle = inner(lab, 0).locator(".noUi-handle")
    handle.click()
    lab.page.keyboard.press("ArrowRight")
    expect(inner(lab, 0).locator(".jupyter-matplotlib-canvas-div, .jupyter-matplotlib-figure").first).to_be_visible()
    expect(inner(lab, 0).locator("body")).not_to_contain_text("error")
    expect(lab.output(0)).not_to_contain_text("interactive output")
    lab.screenshot("older-frame")
