"""The pictures of the README: what this machine really showed. ``make screenshots`` puts them where the README looks."""

import importlib.util
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.lab_page import LabPage, code_cell, notebook_of
from tests.conftest import need

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

#: Set by ``make screenshots``.
FOLDER = os.environ.get("SANDBOX_KERNEL_PICTURES", "")

#: Wide enough for the words of the toolbar.
WIDTH = 1220

ROWS = """rows = [(year, year % 7 * 3) for year in range(2019, 2027)]
open('rows.csv', 'w').writelines(f'{year},{count}\\n' for year, count in rows)
rows[-1]"""
COUNTS = """%%sandbox javascript --timeout 2s --memory 128M
const lines = require('fs').readFileSync('rows.csv', 'utf8').trim().split('\\n')
console.log(lines.map((line) => Number(line.split(',')[1])))"""
CELLS = (
    ROWS,
    "%%sandbox bash\nwc -l rows.csv; ls /home; curl -sS https://example.org",
    COUNTS,
    "%%sandbox --timeout 1s\nrows.clear()\nwhile True: pass",
    "len(rows)",
)
PANEL_CELLS = (
    "%sandbox --here\nimport pandas as pd\nsales = pd.read_csv('sales.csv')",
    "sales['total'] = sales.units * sales.price",
    "clean = sales.dropna()",
    "clean = sales.fillna({'units': 0, 'total': 0})\nclean.to_csv('clean.csv', index=False)\nclean",
)
SALES = "shop,units,price\nNorth,12,2.5\nSouth,,3.0\nEast,7,2.0\nWest,,4.5\n"


@pytest.fixture
def tall(lab: LabPage) -> Iterator[LabPage]:
    """A page that is higher than the pictures."""
    usual = lab.page.viewport_size
    assert usual is not None
    lab.page.evaluate("() => window.jupyterapp.shell.collapseRight()")
    lab.page.set_viewport_size({"width": WIDTH, "height": 1400})
    yield lab
    lab.page.evaluate("() => window.jupyterapp.shell.collapseRight()")
    lab.page.set_viewport_size(usual)


def keep(lab: LabPage, name: str, last: Locator) -> None:
    """Take the picture of the notebook down to ``last``, and put it where it was asked for."""
    lab.page.mouse.move(0, 0)
    lab.notebook.locator(".jp-WindowedPanel-outer").evaluate("(panel) => panel.scrollTo(0, 0)")
    panel, end = lab.notebook.bounding_box(), last.bounding_box()
    assert panel is not None
    assert end is not None
    height = end["y"] + end["height"] + 8 - panel["y"]
    assert height < panel["height"], "the picture would be cut off"
    taken = lab.screenshot(name)
    lab.page.screenshot(path=taken, clip={**panel, "height": height})
    if FOLDER:
        shutil.copy(taken, Path(FOLDER) / f"{name}.png")


def run_cells(lab: LabPage, *indexes: int) -> None:
    for index in indexes:
        lab.select_cell(index)
        lab.command("notebook:run-cell")
        lab.wait_for_idle()


def test_the_picture_of_a_notebook_shows_receipts_a_refusal_and_a_rollback(tall: LabPage) -> None:
    tall.server.write_notebook("notebook.ipynb", notebook_of(*map(code_cell, CELLS), kernel="sandbox"))
    tall.open("notebook.ipynb")
    run_cells(tall, *range(len(CELLS)))
    expect(tall.output(0)).to_contain_text("(2026, 9)")
    expect(tall.output(1)).to_contain_text("8 rows.csv")
    expect(tall.output(2)).to_contain_text(re.compile(r"9\s*\]"))
    expect(tall.output(3)).to_contain_text("SandboxTimeout")
    expect(tall.output(4)).to_contain_text("8")
    keep(tall, "notebook", tall.cell(len(CELLS) - 1))


def test_the_picture_of_the_report_has_a_row_that_is_open(tall: LabPage) -> None:
    tall.server.write_notebook("report.ipynb", notebook_of(code_cell("%sandbox report"), kernel="sandbox"))
    tall.open("report.ipynb")
    tall.run_all()
    for name in ("see host processes", "connect to host TCP", "memory"):
        row = tall.output(0).locator("details", has_text=name).first
        row.locator("summary").click()
        expect(row.locator("div")).to_be_visible()
    keep(tall, "report", tall.output(0).locator("table").first)


def test_the_picture_of_the_side_panel_has_a_branch_that_is_compared(tall: LabPage) -> None:
    need(importlib.util.find_spec("pandas"), "pandas is not installed")
    folder = tall.server.folder / "shop"
    folder.mkdir(exist_ok=True)
    (folder / "sales.csv").write_text(SALES)
    tall.server.write_notebook("shop/sales.ipynb", notebook_of(*map(code_cell, PANEL_CELLS), kernel="sandbox"))
    tall.open("shop/sales.ipynb")
    run_cells(tall, 0, 1, 2)
    tall.command("sandbox-kernel:time")
    panel = tall.page.locator(".jp-SandboxPanel")
    left = panel.get_by_role("treeitem").filter(has_text="sales[")
    left.click()
    panel.get_by_role("button", name="Go there").click()
    expect(left).to_have_attribute("aria-current", "true")
    run_cells(tall, 3)
    expect(panel.get_by_role("treeitem")).to_have_count(5)
    panel.get_by_role("treeitem").filter(has_text="dropna").click()
    panel.get_by_role("button", name="Compare with").click()
    expect(panel.get_by_role("region", name="difference")).to_be_visible()
    tall.page.mouse.move(0, 0)
    taken = tall.screenshot("panel")
    tall.page.screenshot(path=taken, clip={"x": 0, "y": 0, "width": WIDTH, "height": 700})
    if FOLDER:
        shutil.copy(taken, Path(FOLDER) / "panel.png")
