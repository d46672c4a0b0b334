"""The Sandbox kernel in JupyterLab, from the launcher to the Stop button."""

import json
import re

import pytest
from playwright.sync_api import expect

from tests.browser.lab_page import LabPage, code_cell, notebook_of

pytestmark = pytest.mark.browser

LONG = "print('started', flush=True)\nimport time\ntime.sleep(100)"


def open_sandbox(lab: LabPage, name: str, *sources: str, kernel: str = "sandbox") -> None:
    lab.server.write_notebook(name, notebook_of(*map(code_cell, sources), kernel=kernel))
    lab.open(name)


def test_the_launcher_offers_a_sandbox_notebook(lab: LabPage) -> None:
    lab.command("launcher:create")
    card = lab.page.locator('.jp-LauncherCard[data-category="Notebook"]', has_text="Sandbox").last
    expect(card.locator("img")).to_have_js_property("complete", True)
    lab.screenshot("launcher")
    card.click()
    expect(lab.notebook.locator(".jp-KernelName")).to_have_text("Sandbox")
    lab.wait_for_idle()


def test_cells_of_several_languages_show_outputs_and_receipts_also_after_a_reload(lab: LabPage) -> None:
    open_sandbox(
        lab,
        "polyglot.ipynb",
        "numbers = [n * n for n in range(5)]\nnumbers",
        "%%sandbox javascript --timeout 2s --memory 128M\nconsole.log([1, 2, 3].map((n) => n * n))",
        "%%sandbox bash\necho \"$((6 * 7))\"",
        "sum(numbers)",
    )  # fmt: skip
    lab.run_all()
    for index, text in enumerate(["[0, 1, 4, 9, 16]", "[ 1, 4, 9 ]", "42", "30"]):
        expect(lab.output(index)).to_contain_text(text)
        expect(lab.receipt(index).locator("summary")).to_have_text(
            re.compile(r"^\d+(\.\d+)? (µs|ms|s)\d+(\.\d+)? [KM]B$")
        )
    expect(lab.receipt(1).locator("summary")).to_have_accessible_name(re.compile("of 128 MB"))
    lab.select_cell(1)
    expect(lab.limits).to_have_text("Sandbox · javascript · 2 s · 128 MB")
    lab.select_cell(3)
    expect(lab.limits).to_have_text(re.compile(r"^Sandbox · python · 30 s"))
    lab.screenshot("polyglot")
    lab.command("docmanager:save")
    lab.reload("polyglot.ipynb")
    expect(lab.output(3)).to_contain_text("30")
    expect(lab.receipt(3)).to_be_visible()


def test_the_interrupt_menu_stops_a_cell_and_keeps_the_session(lab: LabPage) -> None:
    open_sandbox(lab, "interrupt.ipynb", "x = 41", LONG)
    lab.start_all()
    expect(lab.output(1)).to_contain_text("started")
    lab.menu("Kernel", "Interrupt Kernel")
    expect(lab.output(1)).to_contain_text("KeyboardInterrupt")
    lab.edit_cell(1, "x + 1")
    lab.page.keyboard.press("Control+Enter")
    expect(lab.output(1)).to_contain_text("42")


def test_the_stop_button_of_a_long_cell_of_the_magic_stops_it(lab: LabPage) -> None:
    """``panel/test_every_control.py`` presses that of the Sandbox kernel."""
    open_sandbox(lab, "stop.ipynb", "%load_ext sandbox_kernel", f"%%sandbox\n{LONG}", kernel="python3")
    lab.start_all()
    cell, output = lab.cell(1), lab.output(1)
    stop = cell.get_by_role("button", name="Stop")
    expect(stop).to_be_visible()
    expect(cell.get_by_text(re.compile(r"\d+ s of \d+ s"))).to_be_visible()
    expect(cell.get_by_text(re.compile(r"[\d.]+ [KM]B of 512 MB"))).to_be_visible()
    lab.screenshot("running-python3")
    stop.click()
    expect(output).to_contain_text("KeyboardInterrupt")
    expect(stop).to_have_count(0)
    lab.select_cell(0)
    expect(lab.limits).to_be_hidden()  # an ordinary cell of Python 3 has none


@pytest.mark.firefox
def test_a_cell_that_nears_its_limit_is_given_more_by_one_press_while_it_runs(lab: LabPage) -> None:
    full = "import time\nkept = bytearray(b'1') * (430 << 20)\nprint('started')\ntime.sleep(300)"
    open_sandbox(lab, "lift.ipynb", full, "len(kept) >> 20")
    lab.select_cell(0)
    expect(lab.limits).to_have_text("Sandbox · python · 30 s · 512 MB")
    lab.edit_cell(0, f"%%sandbox --timeout 5m\n{full}")
    lab.start_all()
    cell = lab.cell(0)
    more = cell.get_by_role("button", name="The memory is nearly used up. Give 512 MB more")
    expect(more).to_be_enabled()
    lab.screenshot("lift-offered")
    more.click()
    expect(cell.get_by_text(re.compile(r"[\d.]+ MB of 1 GB"))).to_be_visible()
    expect(more).to_be_hidden()
    lab.screenshot("lift-given")
    cell.get_by_role("button", name="Stop").click()
    expect(lab.output(0)).to_contain_text("KeyboardInterrupt")
    lab.select_cell(1)
    lab.page.keyboard.press("Control+Enter")
    expect(lab.output(1)).to_contain_text("430")
    expect(lab.receipt(1).locator("summary")).to_have_accessible_name(re.compile(r"43\d MB of 1 GB"))
    expect(lab.limits).to_have_text("Sandbox · python · 30 s · 1 GB")


def test_the_report_is_a_table_whose_rows_open_with_a_widget_to_explore(lab: LabPage) -> None:
    open_sandbox(lab, "report.ipynb", "%sandbox report")
    lab.run_all()
    expect(lab.output(0).locator("table").first).to_contain_text("✓")
    lab.screenshot("report")
    row = lab.output(0).locator("details", has_text="connect to host TCP").first
    expect(row.locator("div")).to_be_hidden()
    row.locator("summary").click()
    expect(row.locator("div")).to_be_visible()
    lab.output(0).get_by_text("Explore the report").click()
    expect(lab.output(0).get_by_role("button", name="Run again")).to_be_visible()
    again = lab.output(0).get_by_role("button", name="Run again")
    again.click()
    expect(lab.output(0).locator(".widget-hprogress")).to_be_visible()
    expect(again).to_be_enabled()
    lab.screenshot("report-widget")


def test_the_files_of_all_cells_are_listed_with_a_glimpse_of_each(lab: LabPage) -> None:
    python = (
        "import matplotlib.pyplot as plt\n"
        "plt.plot([1, 4, 9]); plt.savefig('plot.png', dpi=40); plt.close()\n"
        "open('table.csv', 'w').write('planet,moons\\nMars,2\\n')"
    )
    open_sandbox(lab, "files.ipynb", python, "%%sandbox bash\nwc -l table.csv > lines.txt", "%sandbox files")
    lab.run_all()
    expect(lab.output(2)).to_contain_text("planet,moons")
    expect(lab.output(2)).to_contain_text("created by the last cell")
    expect(lab.output(2).locator("img")).to_have_count(1)
    with lab.page.expect_download() as download:
        lab.output(2).get_by_role("link", name="table.csv").click()
    assert download.value.path().read_text() == "planet,moons\nMars,2\n"
    lab.screenshot("files")


def test_what_a_long_cell_writes_over_stays_one_line_and_one_output(lab: LabPage) -> None:
    counts = "import time\nfor n in range(40):\n    print(f'\\repoch {n}', end='', flush=True)\n    time.sleep(0.1)"
    open_sandbox(lab, "epochs.ipynb", f"%%sandbox --quiet\n{counts}")
    lab.start_all()
    expect(lab.cell(0).get_by_role("button", name="Stop")).to_be_visible()
    lab.screenshot("epochs")
    lab.wait_for_idle()
    expect(lab.cell(0).get_by_role("button", name="Stop")).to_have_count(0)
    expect(lab.output(0).locator("pre")).to_have_text("epoch 39")
    lab.command("docmanager:save")
    (cell,) = json.loads((lab.server.folder / "epochs.ipynb").read_text())["cells"]
    assert [one["output_type"] for one in cell["outputs"]] == ["stream"]


SLOW = (
    "%%sandbox --timeout 10m\nimport time\nfor n in range(3000):\n    print('line', n, flush=True)\n    time.sleep(0.2)"
)


@pytest.mark.parametrize("has_ids", [True, False], ids=["ids", "no-ids"])
def test_a_tab_that_is_opened_again_while_a_cell_runs_has_its_output_and_its_stop_button(
    own_lab: LabPage, has_ids: bool
) -> None:
    lab = own_lab
    notebook = notebook_of(code_cell(SLOW), kernel="sandbox")
    if not has_ids:
        # A notebook of before nbformat 4.5: every page makes up the ids of its cells. Of two with the same source it was
        # once unknown which one ran.
        notebook |= {"cells": [code_cell(SLOW), code_cell(SLOW)], "nbformat_minor": 4}
    lab.server.write_notebook("reopened.ipynb", notebook)
    lab.open("reopened.ipynb")
    lab.start_all()
    expect(lab.cell(0).get_by_role("button", name="Stop")).to_be_visible()
    expect(lab.output(0)).to_contain_text("line 3")
    lab.command("docmanager:save")
    lab.reload_busy("reopened.ipynb")
    expect(lab.cell(0).get_by_role("button", name="Stop")).to_be_visible()
    expect(lab.output(0)).to_contain_text("line 20")
    lab.screenshot("reopened")
    lab.cell(0).get_by_role("button", name="Stop").click()
    expect(lab.output(0)).to_contain_text("KeyboardInterrupt")
    expect(lab.output(0)).to_contain_text("line 0")


COUNT = "n = globals().get('n', 0) + 1\nprint('run number', n)"
CLOSE = "() => [...window.jupyterapp.shell.widgets('main')].forEach((widget) => widget.dispose())"


def prints(lab: LabPage, index: int) -> list[str]:
    return [text.strip() for text in lab.output(index).locator("pre", has_text="run number").all_inner_texts()]


def test_a_notebook_that_was_closed_unsaved_shows_its_newest_run(lab: LabPage) -> None:
    name = "closed-unsaved.ipynb"
    open_sandbox(lab, name, COUNT, "n")
    lab.run_all()
    for number in (2, 3):
        lab.page.evaluate(CLOSE)
        lab.open(name)
        expect(lab.output(0)).to_contain_text(f"run number {number - 1}")
        lab.run_all()
        expect(lab.output(0)).to_contain_text(f"run number {number}")
    lab.page.evaluate(CLOSE)
    lab.open(name)
    expect(lab.output(0)).to_contain_text("run number 3")
    expect(lab.cell(1).locator(".jp-OutputPrompt").first).to_have_text("[6]:")
    assert prints(lab, 0) == ["run number 3"]


#: What ``reopened.js`` notes while a page draws, as a page that hangs leaves it behind.
HUNG = """() => localStorage.setItem(
    'sandbox-kernel:drawing:' + window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.id, '1')"""


def test_output_with_which_a_page_hung_waits_for_a_click_when_the_page_is_loaded_anew(own_lab: LabPage) -> None:
    lab, name = own_lab, "hung.ipynb"
    open_sandbox(lab, name, COUNT)
    lab.run_all()
    expect(lab.output(0)).to_contain_text("run number 1")
    lab.page.wait_for_function(
        "() => !Object.keys(localStorage).some((key) => key.startsWith('sandbox-kernel:drawing'))"
    )
    lab.page.evaluate(HUNG)
    lab.reload(name)
    hidden = lab.cell(0).locator(".jp-Cell-outputWrapper .jp-Placeholder")
    expect(hidden).to_be_visible()
    expect(lab.cell(0).locator("pre", has_text="run number")).to_have_count(0)
    hidden.click()
    expect(lab.output(0)).to_contain_text("run number 1")
    lab.page.evaluate(CLOSE)
    lab.open(name)
    expect(lab.output(0)).to_contain_text("run number 1")


def test_cells_that_run_again_at_once_after_reopening_show_only_their_new_output(lab: LabPage) -> None:
    name = "run-at-once.ipynb"
    answer = lab.notebook.locator(".jp-Stdin-input")
    open_sandbox(lab, name, COUNT, "input('go? ')", COUNT)
    lab.start_all()
    answer.press("Enter")
    expect(lab.output(2)).to_contain_text("run number 2")
    lab.page.evaluate(CLOSE)
    with lab.page.expect_websocket(lambda socket: "/channels" in socket.url) as opened:
        lab.command("docmanager:open", path=name, factory="Notebook")
    with opened.value.expect_event("framereceived", lambda data: '"shown"' in str(data)):
        lab.page.wait_for_selector(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell")
        lab.start_all()
    # The earlier output is here, and this run waits in its second cell.
    answer.press("Enter")
    expect(lab.output(2)).to_contain_text("run number 4")
    assert [prints(lab, index) for index in (0, 2)] == [["run number 3"], ["run number 4"]]
