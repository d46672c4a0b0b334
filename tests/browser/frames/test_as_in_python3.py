"""What a notebook saw otherwise than with Python 3, besides the grey line beside a frame."""

from __future__ import annotations

import importlib.util

import pytest
from playwright.sync_api import FrameLocator, expect

from tests.browser.lab_page import LabPage, code_cell, notebook_of
from tests.conftest import need

pytestmark = pytest.mark.browser

BARS = (
    "from tqdm.auto import tqdm, trange\nfor i in trange(3):\n    for j in tqdm(range(20), leave=False):\n        pass"
)


def run(lab: LabPage, name: str, *sources: str) -> None:
    lab.server.write_notebook(name, notebook_of(*map(code_cell, sources), kernel="sandbox"))
    lab.open(name)
    lab.run_all()


def inner(lab: LabPage, index: int) -> FrameLocator:
    return lab.output(index).frame_locator("iframe").frame_locator("iframe")


def test_bars_that_their_loop_has_closed_leave_no_blanks_and_no_sentences(lab: LabPage) -> None:
    need(importlib.util.find_spec("tqdm"), "tqdm is not installed")
    run(lab, "bars.ipynb", BARS)
    expect(lab.output(0).locator(".jp-SandboxFrame")).to_have_count(4)
    expect(lab.output(0).locator(".jp-SandboxFrame:visible")).to_have_count(1)
    expect(inner(lab, 0).locator(".widget-html").first).to_contain_text("100%")
    expect(lab.output(0)).not_to_contain_text("is not shown")


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


def test_another_view_of_a_widget_shows_it_too(lab: LabPage) -> None:
    run(lab, "mirrored.ipynb", "import ipywidgets\nslider = ipywidgets.IntSlider(7)\nslider")
    expect(inner(lab, 0).locator(".widget-readout")).to_have_text("7")
    lab.select_cell(0)
    lab.command("notebook:create-output-view")
    mirrored = lab.page.locator(".jp-LinkedOutputView")
    expect(mirrored.frame_locator("iframe").frame_locator("iframe").locator(".widget-readout")).to_have_text("7")
    expect(mirrored).not_to_contain_text("has ended")


def test_a_video_that_an_output_wants_to_load_is_called_one(lab: LabPage) -> None:
    make = (
        "const player = document.createElement('video'); player.src = 'http://videos.example/x'; element.append(player)"
    )
    run(lab, "players.ipynb", f"%%javascript\n{make}")
    expect(lab.output(0)).to_contain_text("wanted to load a sound or video from videos.example")


def test_a_wide_table_scrolls_in_its_own_output(lab: LabPage) -> None:
    row = "<tr>" + "<td>a wide table</td>" * 300 + "</tr>"
    run(lab, "wide.ipynb", f"from IPython.display import HTML\nHTML('<table>{row}</table>')")
    last = lab.output(0).locator("td").last
    expect(last).to_be_attached()
    assert lab.cell(0).evaluate("(node) => node.scrollWidth <= node.clientWidth")
    before = lab.cell(0).bounding_box()
    last.scroll_into_view_if_needed()
    expect(last).to_be_in_viewport()
    assert lab.cell(0).bounding_box() == before


def test_an_output_with_nothing_in_it_leaves_no_large_blank(lab: LabPage) -> None:
    empty = "import ipywidgets\ndisplay(ipywidgets.Output(), ipywidgets.Button(description='below'))"
    run(
        lab,
        "empty.ipynb",
        "from IPython.display import IFrame\nIFrame('https://page.example', width=400, height=100)",
        empty,
    )
    shortest = "(node) => node.getBoundingClientRect().height < 30"
    for index in (0, 1):
        place = lab.output(index).locator(".jp-SandboxFrame-place").first
        expect(place).to_be_visible()
        lab.page.wait_for_function(shortest, arg=place.element_handle())
    expect(lab.output(1).locator("iframe").nth(1)).to_be_visible()


def test_figures_inside_an_output_widget_are_drawn(lab: LabPage) -> None:
    for package in ("plotly", "altair", "bokeh"):
        need(importlib.util.find_spec(package), f"{package} is not installed")
    shown = """import ipywidgets, altair, plotly.graph_objects as go
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
    run(lab, "caught.ipynb", shown, again)
    expect(inner(lab, 0).locator(".gtitle")).to_have_text(["first", "second"])
    expect(inner(lab, 0).locator(".vega-embed canvas, .vega-embed svg").first).to_be_visible()
    expect(inner(lab, 0).locator(".bk-Figure")).to_be_visible()
    expect(inner(lab, 1).locator(".gtitle")).to_have_text("x is 4")
    inner(lab, 1).locator(".noUi-handle").click()
    lab.page.keyboard.press("ArrowRight")
    expect(inner(lab, 1).locator(".gtitle")).to_have_text("x is 5")


def test_html_in_a_frame_has_the_fonts_and_tables_of_the_page(lab: LabPage) -> None:
    shown = "<p>some text</p><table><tr><td>1</td></tr></table><button>press</button>"
    caught = f"import ipywidgets\nout = ipywidgets.Output()\nwith out:\n    display(HTML('{shown}'))\nout"
    own = "<style>p { font-size: 20px; line-height: 30px }</style>"
    run(lab, "fonts.ipynb", f"from IPython.display import HTML\nHTML('{shown}')", caught, f"HTML('{own}{shown}')")
    for index, (size, height) in enumerate([("14px", "22.4px"), ("14px", "22.4px"), ("20px", "30px")]):
        text = inner(lab, index).locator("p")
        expect(text).to_have_css("font-size", size)
        expect(text).to_have_css("line-height", height)
        expect(inner(lab, index).locator("td")).to_have_css("text-align", "right")
