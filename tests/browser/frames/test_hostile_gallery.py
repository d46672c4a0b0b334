"""The hostile gallery in JupyterLab: it reaches no listener, and the page stays the user's."""

import pytest
from playwright.sync_api import expect

from tests.browser.frames.hostile_gallery import CELLS, hostile_notebook
from tests.browser.frames.listeners import Listeners
from tests.browser.lab_page import LabPage

pytestmark = [pytest.mark.browser, pytest.mark.timeout(500)]


@pytest.mark.attack("O01", "kernel")
def test_the_hostile_gallery_reaches_nothing(own_lab: LabPage, listeners: Listeners) -> None:
    lab, page = own_lab, own_lab.page
    page.on("dialog", lambda dialog: (listeners.hits.append("dialog"), dialog.dismiss()))
    page.on("popup", lambda _: listeners.hits.append("popup"))
    page.on("download", lambda _: listeners.hits.append("download"))
    lab.server.write_notebook("hostile.ipynb", hostile_notebook(listeners))
    lab.open("hostile.ipynb")
    address, title = page.url, page.title()
    lab.run_all()
    lab.wait_for_idle()
    last = len(CELLS) + 1
    for index, name in enumerate(CELLS, start=1):
        page.evaluate("(n) => window.jupyterapp.shell.currentWidget.content.scrollToItem(n, 'center')", index)
        expect(lab.receipt(index), name).to_have_count(1)
        # A frame is given the time in which a friendly one draws; then nothing more comes.
        for frame in lab.output(index).locator("iframe").all():
            frame.content_frame.locator("iframe").wait_for(state="attached")
        page.wait_for_timeout(1500)
        assert listeners.hits == [], name
        for box in (frame.bounding_box() for frame in lab.output(index).locator("iframe").all()):
            assert box is None or box["height"] <= 2000, name
    # The user types in a cell of the page, and what is typed arrives there. The first keys may meet the frame's first
    # theft; after it the frame gets none.
    page.evaluate("(n) => window.jupyterapp.shell.currentWidget.content.scrollToItem(n, 'center')", last)
    lab.edit_cell(last, "the first keys")
    lab.edit_cell(last, "written = 'by the user of this page'")
    expect(lab.cell(last).locator(".cm-content")).to_have_text("written = 'by the user of this page'")
    assert listeners.hits == []
    assert (page.url, page.title()) == (address, title)
    assert page.evaluate("typeof window.owned") == "undefined"
    lab.screenshot("frames-hostile")
