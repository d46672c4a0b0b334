"""What a notebook saw otherwise than with Python 3, besides the grey line beside a frame."""

import importlib.util
from collections.abc import Iterator

import pytest
from playwright.sync_api import FrameLocator, Locator, expect

from tests.browser.lab_page import LabPage, code_cell, inner, notebook_of, open_cells
from tests.conftest import need

pytestmark = [pytest.mark.browser, pytest.mark.timeout(500)]

MARKUP = "<p>some text</p><table><tr><td>1</td></tr></table><button>press</button>"
#: One notebook with all that is only looked at: what each cell shows, by a name.
CELLS = {
    "bars": "from tqdm.auto import tqdm, trange\nfor i in trange(3):\n    for j in tqdm(range(20), leave=False):\n        pass",
    "slider": "import ipywidgets\nipywidgets.IntSlider(7)",
    "video": "%%javascript\nconst player = document.createElement('video'); player.src = 'http://videos.example/x'; element.append(player)",
    "wide": "from IPython.display import HTML, IFrame\nHTML('<table><tr>' + '<td>a wide table</td>' * 300 + '</tr></table>')",
    "nothing": "IFrame('https://page.example', width=400, height=100)",
    "empty": "display(ipywidgets.Output(), ipywidgets.Button(description='below'))",
    "text": f"HTML('{MARKUP}')",
    "caught": f"out = ipywidgets.Output()\nwith out:\n    display(HTML('{MARKUP}'))\nout",
    "own": f"HTML('<style>p {{ font-size: 20px; line-height: 30px }}</style>{MARKUP}')",
}  # fmt: skip


def scroll_to(lab: LabPage, index: int) -> None:
    """Bring a cell into view: frames below the window are not made."""
    lab.page.evaluate("(n) => window.jupyterapp.shell.currentWidget.content.scrollToItem(n, 'center')", index)


class Shown:
    """The notebook of all cells, open and run."""

    def __init__(self, lab: LabPage) -> None:
        self.lab = lab
        open_cells(lab, "shown.ipynb", *CELLS.values())

    def index(self, name: str) -> int:
        """Scroll to a cell; return its index."""
        found = [*CELLS].index(name)
        scroll_to(self.lab, found)
        return found

    def output(self, name: str) -> Locator:
        return self.lab.output(self.index(name))

    def inner(self, name: str) -> FrameLocator:
        return inner(self.lab, self.index(name))


@pytest.fixture(scope="module")
def shown(shared_page: LabPage) -> Iterator[Shown]:
    need(importlib.util.find_spec("tqdm"), "tqdm is not installed")
    yield Shown(shared_page)
    shared_page.leave()


def test_bars_that_their_loop_has_closed_leave_no_blanks_and_no_sentences(shown: Shown) -> None:
    output = shown.output("bars")
    expect(output.locator(".jp-SandboxFrame")).to_have_count(4)
    expect(output.locator(".jp-SandboxFrame:visible")).to_have_count(1)
    expect(shown.inner("bars").locator(".widget-html").first).to_contain_text("100%")
    expect(output).not_to_contain_text("is not shown")


def test_another_view_of_a_widget_shows_it_too(shown: Shown) -> None:
    expect(shown.inner("slider").locator(".widget-readout")).to_have_text("7")
    shown.lab.select_cell(shown.index("slider"))
    shown.lab.command("notebook:create-output-view")
    mirrored = shown.lab.page.locator(".jp-LinkedOutputView")
    expect(mirrored.frame_locator("iframe").frame_locator("iframe").locator(".widget-readout")).to_have_text("7")
    expect(mirrored).not_to_contain_text("has ended")
    shown.lab.page.evaluate("() => window.jupyterapp.shell.currentWidget.dispose()")
    shown.lab.open("shown.ipynb")


def test_a_video_that_an_output_wants_to_load_is_called_one(shown: Shown) -> None:
    expect(shown.output("video")).to_contain_text("wanted to load a sound or video from videos.example")


def test_a_wide_table_scrolls_in_its_own_output(shown: Shown) -> None:
    last = shown.output("wide").locator("td").last
    expect(last).to_be_attached()
    cell = shown.lab.cell(shown.index("wide"))
    assert cell.evaluate("(node) => node.scrollWidth <= node.clientWidth")
    before = cell.bounding_box()
    last.scroll_into_view_if_needed()
    expect(last).to_be_in_viewport()
    assert before and (cell.bounding_box() or {}).get("x") == before["x"]


def test_an_output_with_nothing_in_it_leaves_no_large_blank(shown: Shown) -> None:
    for name in ("nothing", "empty"):
        place = shown.output(name).locator(".jp-SandboxFrame-place").first
        expect(place).to_be_visible()
        place.evaluate(
            "(node) => new Promise((done) => { const look = () => "
            "(node.getBoundingClientRect().height < 30 ? done() : requestAnimationFrame(look)); look(); })"
        )
    expect(shown.output("empty").locator("iframe").nth(1)).to_be_visible()


@pytest.mark.parametrize(
    ("name", "size", "height"), [("text", "14px", "22.4px"), ("caught", "14px", "22.4px"), ("own", "20px", "30px")]
)
def test_html_in_a_frame_has_the_fonts_and_tables_of_the_page(shown: Shown, name: str, size: str, height: str) -> None:
    text = shown.inner(name).locator("p")
    expect(text).to_have_css("font-size", size)
    expect(text).to_have_css("line-height", height)
    expect(shown.inner(name).locator("td")).to_have_css("text-align", "right")


def test_a_widget_that_a_later_cell_closes_leaves_no_blank_and_comes_back_with_its_state(lab: LabPage) -> None:
    shown = "import ipywidgets\nslider = ipywidgets.IntSlider(3)\nslider"
    ending = "slider.close()\ninput()\nimport os; os._exit(1)"
    lab.server.write_notebook("closed.ipynb", notebook_of(*map(code_cell, [shown, ending]), kernel="sandbox"))
    lab.open("closed.ipynb")
    lab.command("notebook:run-cell")
    readout = inner(lab, 0).locator(".widget-readout")
    expect(readout).to_have_text("3")
    lab.select_cell(1)
    lab.page.evaluate("() => void window.jupyterapp.commands.execute('notebook:run-cell')")
    expect(lab.output(0).locator(".jp-SandboxFrame")).to_be_hidden()
    answer = lab.output(1).locator(".jp-Stdin-input")
    answer.click()
    lab.page.keyboard.press("Enter")  # the cell fails and is rolled back
    expect(readout).to_have_text("3")
    expect(lab.output(0)).not_to_contain_text("is not shown")


def test_figures_inside_an_output_widget_are_drawn(lab: LabPage) -> None:
    for package in ("plotly", "altair", "bokeh"):
        need(importlib.util.find_spec(package), f"{package} is not installed")
    shown = """%%sandbox --timeout 2m
import ipywidgets, altair, plotly.graph_objects as go
from bokeh.io import output_notebook, show
from bokeh.plotting import figure
output_notebook()
caught = ipywidgets.Output()
with caught:
    go.Figure(go.Bar(y=[1, 2]), layout={"title": "first"}).show()
    go.Figure(go.Bar(y=[1, 2]), layout={"title": "second"}).show()
    display(altair.Chart(altair.Data(values=[{"a": 1}])).mark_bar().encode(x="a:Q"))
    plot = figure(height=200)
    plot.line([1, 2], [1, 2])
    show(plot)
caught"""
    again = """@ipywidgets.interact(x=(0, 10))
def bars(x=4):
    go.Figure(go.Bar(y=[x]), layout={"title": f"x is {x}"}).show()"""
    open_cells(lab, "caught.ipynb", shown, again)
    expect(inner(lab, 0).locator(".gtitle")).to_have_text(["first", "second"])
    expect(inner(lab, 0).locator(".vega-embed canvas, .vega-embed svg").first).to_be_visible()
    expect(inner(lab, 0).locator(".bk-Figure")).to_be_visible()
    scroll_to(lab, 1)
    expect(inner(lab, 1).locator(".gtitle")).to_have_text("x is 4")
    inner(lab, 1).locator(".noUi-handle").click()
    lab.page.keyboard.press("ArrowRight")
    expect(inner(lab, 1).locator(".gtitle")).to_have_text("x is 5")
