"""The notebook that ``test_every_control.py`` walks through: its folder, its cells by name, and how things are pressed."""

import re
import subprocess
import tempfile
from pathlib import Path

from playwright.sync_api import Locator, expect

from tests.browser.lab_page import LabPage, code_cell, notebook_of, receipt_output
from tests.browser.loopback_kernel import HOST
from tests.browser.panel.test_side_panel import panel, run
from tests.browser.test_receipt import REFUSED
from tests.loopback_server import QuietHandler
from tests.notebook.test_side_panel import PNG

LANDLOCK, BUBBLEWRAP = "sandbox-landlock", "sandbox-loopback"

SLOW = "%%sandbox --timeout 10m\nimport time\nprint('going', flush=True)\nwhile True: time.sleep(0.05)"
REFUSED_NAME = """
import urllib.request
try:
    urllib.request.urlopen('http://nowhere.invalid/')
except OSError:
    print('caught')
"""
FETCH = """
import urllib.request
try:
    print(kept, urllib.request.urlopen('http://{host}:{port}/', timeout=30).read().decode())
except OSError:
    print('caught')
"""
LACKS = "print(kept, open('{}').read())"
WRITES = (
    "open('notes.txt', 'a').write('two <b>\\n')\nopen('new.txt', 'w').write('made')\n"
    "open('more.txt', 'w').write('1')\nopen('mine.txt', 'w').write('theirs')\nopen('dot.png', 'ab').write(b'\\0')"
)
#: git writes its list of files anew; the host's configuration is not seen inside.
GIT = "import subprocess\nprint(subprocess.run(['git', '-c', 'safe.directory=*', 'add', 'notes.txt'], check=True))"


def cells_of(kernel: str, port: int, shown: str) -> dict[str, str]:
    """The cells of the notebook, by the names that the walk calls them."""
    return {
        "refused": REFUSED_NAME,
        "begin": "kept = 7" if kernel == LANDLOCK else "%sandbox --allow-net example.org\nkept = 7",
        "lacks": LACKS.format("once.txt"),
        "secret": LACKS.format("private.txt"),
        "folder": LACKS.format("notes.txt"),
        "fetch": FETCH.format(host=HOST, port=port),
        "no_port": FETCH.format(host=HOST, port=1),
        "place": "open('/usr/x', 'w')",
        "time": "%%sandbox --timeout 500ms\nwhile True: pass",
        "memory": "held = []\nwhile True: held.append(bytearray(b'x' * (1 << 20)))",
        "package": "import no_such_package",
        "writes": WRITES,
        "hidden": "open('.env')",
        "rename": "import os\nos.rename('data', 'old')\nos.rename('old', 'data')",
        "git": GIT,
        "one": "x = 1",
        "two": "x = 2",
        "show": "print(x)",
        "mounted": f"print(open('{shown}/a.txt').read())",
        "slow": SLOW,
    }


class Fine(QuietHandler):
    """Answers everything with one word."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"reached it")


class Walk:
    """One notebook in the page, its folder, and its cells by name."""

    def __init__(self, lab: LabPage, kernel: str, port: int) -> None:
        self.lab, self.kernel, self.port = lab, kernel, port
        # A new one for each try: changes that an earlier one left are kept for its folder.
        self.folder = Path(tempfile.mkdtemp(prefix=f"{kernel}-", dir=lab.server.folder))
        self.hinted: set[str] = set()
        # Landlock shows a folder where it is, and nowhere else.
        self.shown = str(self.folder / "data") if kernel == LANDLOCK else "/data"
        sources = cells_of(kernel, port, self.shown)
        self._index = {name: at for at, name in enumerate([*sources, "receipt"])}
        (self.folder / "data").mkdir()
        for name, data in {
            "once.txt": b"for one cell",
            "private.txt": b"for no cell",
            "data/a.txt": b"shown",
            ".env": b"KEY=1",
            "notes.txt": b"one\n",
            "mine.txt": b"a\n",
            "dot.png": PNG,
        }.items():
            (self.folder / name).write_bytes(data)
        for words in (["init", "-q"], ["add", "-f", ".env", "notes.txt"]):
            subprocess.run(["git", *words], cwd=self.folder, check=True)
        saved = code_cell("%%sandbox javascript\n…", [receipt_output(REFUSED)], 1)
        cells = [*map(code_cell, sources.values()), saved]
        notebook = f"{self.folder.name}/every.ipynb"
        lab.server.write_notebook(notebook, notebook_of(*cells, kernel=kernel))
        lab.open(notebook)

    def run(self, *names: str) -> None:
        run(self.lab, *(self._index[name] for name in names))

    def start(self, name: str) -> None:
        self.lab.select_cell(self._index[name])
        self.lab.page.evaluate("() => { void window.jupyterapp.commands.execute('notebook:run-cell') }")

    def output(self, name: str) -> Locator:
        return self.lab.output(self._index[name])

    def cell(self, name: str) -> Locator:
        return self.lab.cell(self._index[name])

    def offer(self, name: str, what: str) -> Locator:
        return self.output(name).get_by_role("button", name=what)

    def press_offer(self, name: str, what: str) -> None:
        """Click it when it has stood in the window for long enough; again, as a user would, when that click moved it."""
        offer = self.offer(name, what)
        for _ in range(5):
            offer.scroll_into_view_if_needed()
            expect(offer).to_be_enabled()
            # A press that is ignored does not reach listeners that were added later.
            counted = offer.evaluate_handle(
                "(node) => { const pressed = { times: 0 }; node.addEventListener('click', () => pressed.times++); return pressed }"
            )
            offer.click()
            if counted.evaluate("(pressed) => pressed.times"):
                return
        raise AssertionError(f"five presses of {what!r} were ignored")

    def button(self, name: str) -> Locator:
        return panel(self.lab).get_by_role("button", name=name, exact=True)

    def dialog(self, name: str) -> None:
        self.lab.page.locator(".jp-Dialog").get_by_role("button", name=name, exact=True).click()

    def expect_hint(self, cell: str, **made: str) -> None:
        """Wait for a hint, written by the function of that name, below a cell."""
        for maker, text in made.items():
            expect(self.output(cell)).to_contain_text(re.compile(r"\s+".join(map(re.escape, text.split()))))
            self.hinted.add(maker)


def menu(lab: LabPage, words: str) -> None:
    """Choose an entry of *Kernel → Sandbox* as a user does."""
    lab.menu("Kernel", "Sandbox", words)


def palette(lab: LabPage, name: str) -> None:
    """Choose a command as somebody does who uses no mouse."""
    words = lab.page.evaluate(
        "(id) => window.jupyterapp.commands.label(id, { isPalette: true })", f"sandbox-kernel:{name}"
    )
    lab.page.keyboard.press("Control+Shift+C")
    lab.page.locator(".lm-CommandPalette-input").last.fill(words)
    expect(lab.page.locator(".lm-CommandPalette-item.lm-mod-active")).to_contain_text(words)
    lab.page.keyboard.press("Enter")
