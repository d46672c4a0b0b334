"""The gallery notebook in a page: which cell shows what, and how to find it there."""

import json
import shutil
from pathlib import Path

from playwright.sync_api import FrameLocator, Locator, expect

from tests.browser.lab_page import LabPage
from tests.browser.lab_server import REPOSITORY

NOTEBOOK = REPOSITORY / "notebooks" / "interactive.ipynb"

#: A piece of a cell's program, and what its frame shows once it is drawn. All work without a kernel.
FIGURES = {
    "plotly": ("import plotly", ".bars path"),
    "altair": ("import altair", "#vis canvas, #vis svg"),
    "bokeh": ("output_notebook", ".bk-Figure canvas"),
    "animation": ("FuncAnimation", ".animation img[src^='data:image/png']"),
    "pyvis": ("Network(", "canvas"),
    "folium": ("import folium", ".leaflet-marker-icon[src^='data:']"),
    "itables": ("show_table(table)", "table.dataTable tbody tr"),
    "styler": ("table.style", "text=2,750"),
    "great_tables": ("GT(table)", "text=Cities"),
    "estimator": ("make_pipeline(", "label:has-text('StandardScaler')"),
    "sound": ("Audio(", "audio"),
}
#: The same for widgets, which need their session.
WIDGETS = {
    "ipydatagrid": ("DataGrid(", "canvas"),
    "tqdm": ("tqdm.auto", "text=adding"),
    "ipympl": ("%matplotlib widget", "canvas"),
    "slider": ("slider = ", ".noUi-handle"),
    "interact": ("interact(", "text=twice is 8"),
    "links": ("jslink((first", ".noUi-handle"),
    "play": ("Play(", "button"),
    "upload": ("FileUpload()", "button"),
    "anywidget": ("class Counter", "text=count 0"),
}


def cell_index(piece: str) -> int:
    """The index of the first cell with this piece in its program."""
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    return next(n for n, cell in enumerate(cells) if cell["cell_type"] == "code" and piece in "".join(cell["source"]))


class Gallery:
    """The notebook, open and run in JupyterLab or Notebook 7."""

    def __init__(self, lab: LabPage, path: Path) -> None:
        self.lab, self.path = lab, path

    def output(self, piece: str) -> Locator:
        """Scroll to the cell with this piece in its program; return its output."""
        index = cell_index(piece)
        self.lab.page.evaluate("(n) => window.jupyterapp.shell.currentWidget.content.scrollToItem(n, 'center')", index)
        found = self.lab.output(index)
        found.scroll_into_view_if_needed()
        return found

    def inner(self, piece: str) -> FrameLocator:
        """The inner document of the first frame of a cell."""
        return self.output(piece).frame_locator("iframe").first.frame_locator("iframe")

    def drawn(self, piece: str, sign: str) -> Locator:
        """Wait until a frame shows what it should."""
        found = self.inner(piece).locator(sign).first
        expect(found).to_be_visible()
        return found

    def point_at(self, target: Locator, *, click: bool = False) -> None:
        """Move the pointer over the page to the middle of something, as a user does."""
        box = target.bounding_box()
        assert box is not None
        mouse = self.lab.page.mouse
        mouse.move(box["x"], box["y"] - 60)
        mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=12)
        if click:
            mouse.down()
            mouse.up()

    def run(self, piece: str) -> Locator:
        """Run one cell; return its output."""
        index = cell_index(piece)
        found = self.output(piece)
        self.lab.page.evaluate("(n) => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = n }", index)
        self.lab.command("notebook:run-cell")
        self.lab.wait_for_idle()
        return found


def opened_in_lab(lab: LabPage) -> Gallery:
    """Open the gallery in JupyterLab, run all of it, and save it."""
    path = lab.server.folder / "interactive.ipynb"
    shutil.copy(NOTEBOOK, path)
    lab.open(path.name)
    lab.run_all()
    lab.wait_for_idle()
    lab.command("docmanager:save")
    return Gallery(lab, path)
