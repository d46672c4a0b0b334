"""A notebook with its ``data/`` and ``src/``: the same outputs as with ipykernel, and its folder as it was until apply.

Behind every wall that this machine has: a layer over the folder, and a private copy behind Landlock.
"""

import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from sandbox_kernel import ProcessConfig, Sandbox, SandboxPolicy
from sandbox_kernel.backends.process import ProcessBackend
from sandbox_kernel.model import CellError
from sandbox_kernel.notebook.options.parse_cell import OPTIONS_VARIABLE
from sandbox_kernel.notebook.render import Message, Value
from tests.notebook.test_here import Notebook as PlainNotebook
from tests.notebook.test_here import Page

CELLS = (
    "import csv, json, os, sqlite3, statistics, sys\nsys.path.insert(0, 'src')\nfrom clean import total\nprint('ready')",
    "with open('data/sales.csv') as file:\n    rows = list(csv.DictReader(file))\ntotal(rows)",
    "sorted(os.listdir('.')), sorted(os.listdir('data'))",
    "statistics.mean(float(row['price']) for row in rows)",
    "os.makedirs('out', exist_ok=True)\nwith open('out/summary.txt', 'w') as file:\n    print(total(rows), file=file)",
    "!cat out/summary.txt",
    "notes = json.load(open('data/notes.json'))\nnotes['read'] = len(rows)\njson.dump(notes, open('data/notes.json', 'w'))",
    "os.unlink('data/old.txt'); os.rename('data/a.txt', 'data/b.txt'); sorted(os.listdir('data'))",
    """shop = sqlite3.connect('data/shop.db')
with shop:
    shop.execute('insert into item values (?)', ('pear',))
shop.execute('select * from item order by 1').fetchall()""",
    "shop.close(); print('careful', file=sys.stderr)",
    "%%writefile src/extra.py\nANSWER = 42",
    "import extra; extra.ANSWER",
    "open('data/missing.csv')",
    "type(get_ipython()).__name__  # libraries tell a notebook from a terminal by it",
    "os.stat('run.sh').st_mode & 0o777, os.path.islink('latest'), open('latest').read()",
)


@dataclass
class Shown:
    """What one cell showed."""

    stdout: str = ""
    stderr: str = ""
    value: str = ""
    error: str = ""


def project(folder: Path) -> Path:
    """A folder as people have them: data, modules, a database, a script, a link, a secret."""
    for name in ("data", "src"):
        (folder / name).mkdir(parents=True)
    (folder / "data/sales.csv").write_text("item,price\napple,1.5\nplum,2.25\n")
    (folder / "data/notes.json").write_text('{"by": "me"}')
    (folder / "data/old.txt").write_text("old")
    (folder / "data/a.txt").write_text("a")
    (folder / "src/clean.py").write_text("def total(rows):\n    return sum(float(row['price']) for row in rows)\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "latest").symlink_to("data/a.txt")
    with sqlite3.connect(folder / "data/shop.db") as shop:
        shop.execute("create table item (name text)")
        shop.execute("insert into item values ('fig')")
    shop.close()
    return folder


def tree(folder: Path) -> Mapping[str, object]:
    """Every file of a folder, but for the caches of Python, by path."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        if "__pycache__" in path.parts:
            continue
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = ("link", str(path.readlink()))
        elif path.is_dir():
            found[name] = "folder"
        else:
            found[name] = (path.stat().st_mode & 0o777, _content(path))
    return found


def _content(path: Path) -> object:
    if path.suffix != ".db":
        return path.read_bytes()
    shop = sqlite3.connect(path)
    try:
        return shop.execute("select * from item order by 1").fetchall()
    finally:
        shop.close()


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Shown], Mapping[str, object]]:
    """What ipykernel shows, and what it makes of the folder."""
    folder = project(tmp_path_factory.mktemp("ipykernel") / "work")
    cells = [nbformat.v4.new_code_cell(text) for text in CELLS]
    book = nbformat.v4.new_notebook(cells=cells)
    options = {"kernel_name": "python3", "allow_errors": True, "resources": {"metadata": {"path": str(folder)}}}
    NotebookClient(book, timeout=120, **options).execute()
    shown = []
    for cell in book.cells:
        one = Shown()
        for output in cell.outputs:
            if output.output_type == "stream":
                # ipykernel runs lines of a shell in a terminal.
                setattr(one, output.name, getattr(one, output.name) + output.text.replace("\r\n", "\n"))
            elif output.output_type == "execute_result":
                one.value = output.data["text/plain"]
            elif output.output_type == "error":
                one.error = f"{output.ename}: {output.evalue}"
        shown.append(one)
    return shown, tree(folder)


class _Page(Page):
    def __init__(self) -> None:
        super().__init__()
        self.shown = Shown()

    def stream(self, name: str, text: str) -> None:
        setattr(self.shown, name, getattr(self.shown, name) + text)

    def message(self, message: Message) -> None:
        super().message(message)
        if isinstance(message, Value):
            self.shown.value = str(message.data["text/plain"])
        elif isinstance(message, CellError):
            self.shown.error = f"{message.ename}: {message.evalue}"


def _behind_landlock(policy: SandboxPolicy, backend: str, config: ProcessConfig) -> Sandbox:
    box = Sandbox(policy, backend, config=config)
    box.backend = ProcessBackend(enforcer="landlock", policy=policy)
    return box


class Notebook(PlainNotebook):
    page_class = _Page
    page: _Page


@pytest.fixture(params=["layer", "landlock"])
def notebook(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    # What ``sandbox-kernel install --here`` writes into the kernelspec.
    monkeypatch.setenv(OPTIONS_VARIABLE, "--here")
    monkeypatch.chdir(project(tmp_path / "work"))
    made = Notebook(factory=_behind_landlock if request.param == "landlock" else None)
    yield made
    made.state.sandboxes.close()


@pytest.mark.one_case
def test_the_same_outputs_as_ipykernel_and_the_folder_as_it_was_until_apply(
    notebook: Notebook, tmp_path: Path, expected: tuple[list[Shown], Mapping[str, object]]
) -> None:
    before = tree(tmp_path / "work")
    for text, wanted in zip(CELLS, expected[0], strict=True):
        notebook.run(text)
        assert notebook.page.shown == wanted, text
    assert tree(tmp_path / "work") == before, "the folder is the user's until apply"
    told = notebook.run("%sandbox changes")
    assert "data/notes.json" in told and "out/summary.txt" in told
    assert "written" in notebook.run("%sandbox apply")
    assert tree(tmp_path / "work") == expected[1]
