"""JupyterLab as a user sees it: open a notebook, look at its cells, press keys. Every wait is for a condition."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from playwright.sync_api import FrameLocator, Locator, Page

from sandbox_kernel.model import ExecResult, describe_end
from sandbox_kernel.receipt import MIME as RECEIPT
from sandbox_kernel.receipt import measurements, mime_bundle
from tests.browser.lab_server import LabServer

_WORD_HAS_COLOUR = """([cell, word, colour]) => {
    const walker = document.createTreeWalker(cell.querySelector('.cm-content'), NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const text = walker.currentNode;
        if (text.data === word || (text.data.startsWith('%%') && text.data.startsWith(word)))
            return getComputedStyle(text.parentElement).color === colour;
    }
    return false;
}"""


class LabPage:
    """One browser tab with JupyterLab in it. ``page`` is Playwright's, for what has no word here."""

    def __init__(self, server: LabServer, page: Page, shots: Path) -> None:
        self.server = server
        self.page = page
        self._shots = shots

    def start(self) -> None:
        """Load JupyterLab with nothing open; loading takes seconds, so tests share a page where they can."""
        self.page.goto(f"{self.server.url}/lab?reset&token={self.server.token}")
        self._wait_for_lab()

    def open(self, name: str) -> None:
        """Show a notebook and wait until its cells and its kernel are there."""
        self.page.mouse.move(0, 0)  # an earlier test left the pointer where a cell of this notebook may come to lie
        self.command("docmanager:open", path=name, factory="Notebook")
        self._wait_for_notebook(name)

    def reload(self, name: str) -> None:
        """Load the page anew with a notebook in it, as somebody who comes back to it."""
        self.page.goto(f"{self.server.url}/lab/tree/{name}?reset&token={self.server.token}")
        self._wait_for_lab()
        self._wait_for_notebook(name)

    def reload_busy(self, name: str) -> None:
        """Load the page anew with a notebook in it whose kernel runs a cell."""
        self.page.goto(f"{self.server.url}/lab/tree/{name}?reset&token={self.server.token}")
        self._wait_for_lab()
        self.page.wait_for_function("(name) => window.jupyterapp.shell.currentWidget?.context?.path === name", arg=name)
        self.page.evaluate("() => window.jupyterapp.shell.currentWidget.context.ready")
        self.page.wait_for_selector(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell")

    def leave(self) -> None:
        """Close all notebooks without asking."""
        self.page.evaluate("() => [...window.jupyterapp.shell.widgets('main')].forEach((widget) => widget.dispose())")
        self.end_kernels()

    def end_kernels(self) -> None:
        """End the kernels of this test, so that they do not pile up; works without the page."""
        request, headers = self.page.context.request, {"Authorization": f"token {self.server.token}"}
        sessions = f"{self.server.url}/api/sessions"
        for session in request.get(sessions, headers=headers).json():
            request.delete(f"{sessions}/{session['id']}", headers=headers)

    def _wait_for_lab(self) -> None:
        self.page.wait_for_selector("#jupyterlab-splash", state="detached")
        # A second page of one profile moves to a workspace of its own while it starts: this wait survives that.
        self.page.wait_for_function("() => window.jupyterapp?.restored.then(() => true)")
        self.page.wait_for_selector("#jupyterlab-splash", state="detached")
        self.page.evaluate("() => window.jupyterapp.shell.collapseLeft()")

    def _wait_for_notebook(self, name: str) -> None:
        self.page.wait_for_function("(name) => window.jupyterapp.shell.currentWidget?.context?.path === name", arg=name)
        self.page.evaluate("() => window.jupyterapp.shell.currentWidget.context.ready")
        self.page.wait_for_selector(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell")
        self.wait_for_idle()

    def wait_for_idle(self) -> None:
        """Wait until the kernel has nothing to do."""
        self.page.wait_for_function(
            "() => window.jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
        )

    def command(self, name: str, **arguments: object) -> None:
        """Run one of JupyterLab's commands, as a menu entry would, and wait until it has ended."""
        # What a command returns stays in the page: it may be a whole notebook, which Playwright would copy part by part.
        run = "async ([name, args]) => { await window.jupyterapp.commands.execute(name, args) }"
        self.page.evaluate(run, [name, arguments])

    def run_all(self) -> None:
        """Run every cell and wait for the last."""
        self.command("notebook:run-all-cells")

    def start_all(self) -> None:
        """Run every cell without waiting."""
        self.page.evaluate("() => { void window.jupyterapp.commands.execute('notebook:run-all-cells') }")

    def menu(self, *names: str) -> None:
        """Choose an entry of the menu bar, level by level, as a user does."""
        self.page.locator(".lm-MenuBar-itemLabel", has_text=names[0]).first.click()
        for name in names[1:]:
            self.page.locator(".lm-Menu-itemLabel", has_text=name).first.click()

    @property
    def notebook(self) -> Locator:
        """The visible notebook; restored tabs stay in the document, hidden."""
        return self.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")

    def cell(self, index: int) -> Locator:
        """The cell with this index."""
        return self.notebook.locator(f'.jp-Cell[data-windowed-list-index="{index}"]')

    def output(self, index: int) -> Locator:
        """All output of the cell with this index."""
        return self.cell(index).locator(".jp-OutputArea").first

    def receipt(self, index: int) -> Locator:
        """The receipt that our renderer drew below this cell."""
        return self.cell(index).locator(".jp-SandboxReceipt")

    def select_cell(self, index: int) -> None:
        """Make a cell the active one by clicking beside its editor."""
        self.cell(index).locator(".jp-InputPrompt").click()

    def edit_cell(self, index: int, text: str) -> None:
        """Type over the whole text of a cell, key by key, as fast as a quick typist."""
        self.cell(index).locator(".cm-content").click()
        self.page.keyboard.press("Control+a")
        self.page.keyboard.type(text, delay=40)

    def wait_for_colour(self, index: int, word: str, colour: str) -> None:
        """Wait until the first occurrence of a word in a cell's program is drawn in this colour."""
        self.page.wait_for_function(_WORD_HAS_COLOUR, arg=[self.cell(index).element_handle(), word, colour])

    def theme_colour(self, variable: str) -> str:
        """A colour of the theme, as the browser writes colours."""
        script = """(variable) => {
            const probe = document.body.appendChild(document.createElement('i'));
            probe.style.color = `var(${variable})`;
            const colour = getComputedStyle(probe).color;
            probe.remove();
            return colour;
        }"""
        colour: str = self.page.evaluate(script, variable)
        return colour

    def restart_kernel(self) -> None:
        """Restart the kernel without being asked, and wait until it is ready."""
        self.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.restartKernel()")
        self.wait_for_idle()

    @property
    def limits(self) -> Locator:
        """Our item in the status bar."""
        return self.page.locator(".jp-SandboxLimits")

    def set_theme(self, name: str) -> None:
        """Switch JupyterLab's theme and wait until it is in force."""
        self.command("apputils:change-theme", theme=name)
        self.page.wait_for_selector(f'body[data-jp-theme-name="{name}"]', state="attached")

    def screenshot(self, name: str) -> Path:
        """Keep a picture of the page among the artefacts."""
        path = self._shots / f"{name}.png"
        self.page.screenshot(path=path)
        return path


def code_cell(source: str, outputs: Sequence[Mapping[str, object]] = (), count: int | None = None) -> dict[str, object]:
    """A code cell of a notebook file."""
    return {"cell_type": "code", "execution_count": count, "metadata": {}, "outputs": list(outputs), "source": source}


def receipt_output(result: ExecResult) -> dict[str, object]:
    """The output by which a kernel shows the receipt of this run."""
    return {
        "output_type": "display_data",
        "data": mime_bundle(result, describe_end(result)),
        "metadata": {RECEIPT: measurements(result)},
    }


def notebook_of(*cells: Mapping[str, object], kernel: str = "python3") -> dict[str, object]:
    """A notebook file with these cells."""
    numbered = [{**cell, "id": f"cell-{index}"} for index, cell in enumerate(cells)]
    kernelspec = {"name": kernel, "display_name": kernel, "language": "python"}
    return {"cells": numbered, "metadata": {"kernelspec": kernelspec}, "nbformat": 4, "nbformat_minor": 5}


def open_cells(lab: LabPage, name: str, *sources: str) -> None:
    """Open a notebook with these cells and run them all."""
    lab.server.write_notebook(name, notebook_of(*map(code_cell, sources), kernel="sandbox"))
    lab.open(name)
    lab.run_all()


def inner(lab: LabPage, index: int) -> FrameLocator:
    """What the frame below this cell shows."""
    return lab.output(index).frame_locator("iframe").frame_locator("iframe")
