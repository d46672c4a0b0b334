"""The tab *Time*: the slider, the variables of a state, the comparison, and the question before something large is lost."""

import pytest
from playwright.sync_api import expect

from tests.browser.lab_page import LabPage
from tests.browser.panel.test_side_panel import choose, open_cells, panel, run, states

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

CELLS = ("x = 1", "text = 'a' * 3_000_000", "x = 2; table = [1, 2]", "del table")


@pytest.fixture
def at_time(lab: LabPage) -> LabPage:
    lab.page.evaluate("() => window.jupyterapp.shell.collapseRight()")
    open_cells(lab, "slider.ipynb", *CELLS)
    run(lab, 0, 1, 2, 3)
    choose(lab, "time")
    expect(states(lab).and_(lab.page.locator("[aria-selected=true]"))).to_contain_text("del table")
    return lab


@pytest.mark.firefox
def test_the_slider_goes_along_the_line_and_shows_the_variables_of_each_state(at_time: LabPage) -> None:
    lab = at_time
    slider = panel(lab).get_by_role("slider", name="state of the present line")
    rows = panel(lab).get_by_role("region", name="variables of the chosen state").locator("tr:has(td)")
    expect(slider).to_have_value("4")
    expect(rows).to_have_text(["textstr 'aaaaaaaaaaaaaaaaa...aaaaaaaaaaaaaaaaaa'2.86 MB", "xint 25 bytes"])
    # Nothing of a row is cut off at the width that the panel has at first.
    assert rows.first.evaluate("(row) => row.closest('section').scrollWidth <= row.closest('section').clientWidth")
    changed = states(lab).filter(has_text="x = 2").locator(".jp-SandboxPanel-changed")
    assert changed.evaluate("(words) => words.scrollWidth <= words.clientWidth")
    slider.press("ArrowLeft")
    expect(slider).to_be_focused()
    expect(slider).to_have_value("3")
    expect(rows.first).to_contain_text("text")
    expect(rows.filter(has_text="table")).to_contain_text("+table")
    expect(rows.filter(has_text="int")).to_contain_text("~x")
    lab.screenshot("slider")
    panel(lab).get_by_role("button", name="Go there").click()
    expect(states(lab).and_(lab.page.locator("[aria-current]"))).to_contain_text("x = 2")
    expect(slider).to_have_attribute("max", "4")  # the line goes on to where a redo leads


def test_a_comparison_keeps_what_was_chosen_and_goes_when_a_cell_has_run(at_time: LabPage) -> None:
    lab = at_time
    other = panel(lab).get_by_label("state to compare with")
    other.select_option(label="[1] x = 1")
    panel(lab).get_by_role("button", name="Compare with").click()
    found = panel(lab).get_by_role("region", name="difference")
    expect(found.get_by_role("columnheader", name="variable")).to_be_visible()
    expect(other.locator("option:checked")).to_have_text("[1] x = 1")
    heads = found.locator("th[scope=col]")
    assert all(box is not None and box["height"] < 30 for box in (heads.nth(n).bounding_box() for n in range(4)))
    lab.screenshot("comparison")
    run(lab, 0)
    expect(found).to_have_count(0)


@pytest.mark.parametrize("agreed", [False, True])
def test_the_page_asks_before_a_restart_loses_a_large_variable(lab: LabPage, agreed: bool) -> None:
    lab.page.evaluate("() => window.jupyterapp.shell.collapseRight()")
    large = "class Rows:\n    def __reduce__(self): raise TypeError('not today')\n    def __sizeof__(self): return 300 << 20"
    open_cells(lab, f"loses{agreed}.ipynb", large + "\nimport os\nrows, kept = Rows(), os.getpid()", "'rows' in dir()")
    run(lab, 0)
    dialog = lab.page.locator(".jp-Dialog")
    if agreed:
        choose(lab, "restart")
        dialog.get_by_role("button", name="Restart").click()
    else:
        lab.page.evaluate("() => void window.jupyterapp.commands.execute('notebook:restart-kernel')")
        dialog.get_by_role("button", name="Restart, keeping variables").click()
    expect(dialog).to_contain_text("rows (300 MB): ")
    lab.screenshot("would-lose")
    dialog.get_by_role("button", name="Restart without them" if agreed else "Cancel").click()
    expect(dialog).to_have_count(0)
    expect(lab.page.locator(".Toastify__toast", has_text="rows")).to_be_visible()
    run(lab, 1)
    expect(lab.output(1)).to_contain_text(str(not agreed))
