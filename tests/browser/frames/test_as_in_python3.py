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


def test_bars_that_their_loop_has_closed_left_blanks_and_sentences(lab: LabPage) -> None:
    need(importlib.util.find_spec("tqdm"), "tqdm is not installed")
    run(lab, "bars.ipynb", BARS)
    expect(lab.output(0).locator(".jp-SandboxFrame")).to_have_count(4)
    expect(lab.output(0).locator(".jp-SandboxFrame:visible")).to_have_count(1)
    expect(inner(lab, 0).locator(".widget-html").first).to_contain_text("100%")
    expect(lab.output(0)).not_to_contain_text("is not shown")


def test_a_widget_that_a_later_cell_closes_left_a_blank_and_comes_back_with_its_state(lab: LabPage) -> None:
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


def test_another_view_of_a_widget_said_that_its_session_has_ended(lab: LabPage) -> None:
    run(lab, "mirrored.ipynb", "import ipywidgets\nslider = ipywidgets.IntSlider(7)\nslider")
    expect(inner(lab, 0).locator(".widget-readout")).to_have_text("7")
    lab.select_cell(0)
    lab.command("notebook:create-output-view")
    mirrored = lab.page.locator(".jp-LinkedOutputView")
    expect(mirrored.frame_locator("iframe").frame_locator("iframe").locator(".widget-readout")).to_have_text("7")
    expect(mirrored).not_to_contain_text("has ended")
