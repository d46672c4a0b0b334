"""``%sandbox --here`` in a notebook: cells work on the notebook's folder, and its files change when they are applied."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel.jail.accounting.cgroups import find_hierarchies
from sandbox_kernel.notebook.execution import CellExecution, CellReply, NotebookState
from sandbox_kernel.notebook.options.cell_options import CellOptions
from sandbox_kernel.notebook.options.parse_cell import first_defaults, parse_cell, parse_line
from sandbox_kernel.notebook.render import Door, ShowOutput
from sandbox_kernel.notebook.sandboxes import Factory, NotebookSandboxes
from sandbox_kernel.workspace.kept_work import KeptWork
from tests.workspace.overlay.conftest import project as project

#: A running session of 512 MB takes this much: it grows only where the host has control groups.
OTHER_MEMORY = "400M" if find_hierarchies() is None else "800M"


class Page(Door):
    """A door that keeps what it is shown."""

    def __init__(self) -> None:
        self.text = ""

    def stream(self, name: str, text: str) -> None:
        self.text += text

    def message(self, message: object) -> None:
        if isinstance(message, ShowOutput) and not any("run+json" in kind for kind in message.data):
            self.text += str(message.data.get("text/plain", ""))


def _no_input(*given: object) -> str:
    raise EOFError


class Notebook:
    """Runs cells one after the other, as the kernel does; ``page`` has what the last one showed."""

    page_class = Page

    def __init__(self, kept: KeptWork | None = None, factory: Factory | None = None) -> None:
        self.state = NotebookState(sandboxes=NotebookSandboxes(factory, kept))

    def run(self, text: str) -> str:
        self.page = self.page_class()

        async def go() -> CellReply:
            return await CellExecution(self.state, self.page, _no_input, asyncio.Event()).run(text)  # type: ignore[arg-type]

        failure = asyncio.run(go()).failure
        return self.page.text + (
            "" if failure is None else "\n".join([f"{failure.ename}: {failure.evalue}", *failure.traceback])
        )


@pytest.fixture
def notebook(project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    monkeypatch.chdir(project)
    made = Notebook()
    yield made
    made.state.sandboxes.close()


@pytest.mark.parametrize(
    ("line", "here", "language"),
    [("--here", ".", None), ("--here data", "data", None), ("--here=data/x", "data/x", None), ("--here python", ".", "python"),
     ("python --here", ".", "python"), ("--here --timeout 5s", ".", None), ("--here=python", "python", None)],
)  # fmt: skip
def test_the_folder_of_here_is_not_taken_for_a_language(line: str, here: str, language: str | None) -> None:
    options = parse_line(line).options
    assert (options.here, options.language) == (here, language)
    assert parse_line(options.words()).options == options


def test_apply_changes_and_discard_take_paths() -> None:
    assert parse_line("apply data/a.csv src").targets == ("data/a.csv", "src")
    assert parse_line("changes").targets == () and parse_line("discard 'a b'").targets == ("a b",)


def test_cells_work_on_the_notebooks_folder(notebook: Notebook, project: Path) -> None:
    assert notebook.run("%sandbox --here\nprint(open('data/rows.csv').read().split())") == "['a,b', '1,2']\n"
    notebook.run("open('data/rows.csv', 'a').write('3,4\\n'); x = 5; open('out.txt', 'w').write('o')")
    assert (project / "data/rows.csv").read_text() == "a,b\n1,2\n"
    shown = notebook.run("%sandbox changes")
    assert "2 changes" in shown and "+3,4" in shown and "%sandbox apply" in shown
    assert "1 change, written" in notebook.run("%sandbox apply data")
    assert (project / "data/rows.csv").read_text() == "a,b\n1,2\n3,4\n" and not (project / "out.txt").exists()
    assert "1 change, dropped" in notebook.run("%sandbox discard")
    assert notebook.run("import os; print(x, os.path.exists('out.txt'))") == "5 False\n"
    assert "Nothing differs" in notebook.run("%sandbox changes")
    notebook.run("os.unlink('run.sh')")
    notebook.run("%sandbox undo")
    assert "Nothing differs" in notebook.run("%sandbox changes")


@pytest.mark.parametrize("watched", [False, True])
def test_where_nobody_looks_on_the_receipt_says_which_changes_end_with_the_kernel(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch, watched: bool
) -> None:
    receipts: list[str] = []
    monkeypatch.setattr(Page, "watched", lambda _page: watched)
    monkeypatch.setattr(
        Page, "message", lambda _page, message: receipts.append(str(getattr(message, "data", {}).get("text/plain")))
    )
    notebook.run("%sandbox --here")
    notebook.run("open('a.csv', 'w').write('1')")
    notebook.run("for n in range(3): open(f'b{n}.csv', 'w').write('1')")
    said = "4 changes of your folder are not written and end with this kernel (a.csv, b0.csv, b1.csv, …)"
    assert (said in receipts[-1]) != watched
    notebook.run("%sandbox apply" if watched else "1")
    assert (said in receipts[-1]) is False
    assert len(notebook.state.sandboxes.not_applied()) == (not watched)


def test_a_command_without_a_folder_says_what_to_write(notebook: Notebook) -> None:
    for command in ("changes", "apply", "discard"):
        assert "%sandbox --here" in str(notebook.run(f"%sandbox {command}"))
    # A running session takes no folder: the line that it takes is named at once, and works.
    notebook.run("x = 1")
    assert "a session runs already: %sandbox restart --keep --here" in notebook.run("%sandbox changes")
    notebook.run("%sandbox restart --keep --here")
    assert "Nothing differs" in notebook.run("%sandbox changes")


def test_the_environment_can_name_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, here in (("--here", "."), ("--here=/data", "/data"), ("", None)):
        monkeypatch.setenv("SANDBOX_KERNEL_OPTIONS", value)
        assert first_defaults() == CellOptions(here=here)
    assert parse_cell("%sandbox reset\n1", CellOptions(here="x")).defaults == CellOptions()


def test_allowing_something_keeps_the_variables(notebook: Notebook, project: Path) -> None:
    notebook.run("kept = 41")
    said = notebook.run(f"%sandbox --mount data:/data --env WHO=me --memory {OTHER_MEMORY}\nimport os")
    assert "keeps its variables" in said and "/data" in said
    code = "print(kept, os.environ['WHO'], open('/data/rows.csv').read().split())"
    assert notebook.run(code) == "41 me ['a,b', '1,2']\n"
    notebook.run("open('left', 'w').write('1')")
    assert "lost /data" in notebook.run("%sandbox reset")
    assert notebook.run("print(kept, os.listdir('/data'), os.path.exists('left'))") == "41 [] True\n"


def test_changes_that_wait_are_told_when_the_next_kernel_does_not_work_on_the_folder(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "state").mkdir(mode=0o700)
    monkeypatch.chdir(project)
    notebooks = [Notebook(KeptWork.of("/home/me/a.ipynb"))]
    notebooks[0].run("%sandbox --here --mount data:/data\nopen('new', 'w').close()")
    notebooks[0].state.sandboxes.close()
    options = "--mount data:/data --here"
    notebooks.append(Notebook(KeptWork.of("/home/me/a.ipynb")))
    (note,) = notebooks[1].state.take_news()
    assert note == (
        f"1 change of this notebook's last kernel is kept, not applied: %sandbox {options} has it again "
        f"(a running session: %sandbox restart --keep {options})"
    )
    assert notebooks[1].state.take_news() == ()
    notebooks[1].state.sandboxes.close()
    notebooks.append(Notebook(KeptWork.of("/home/me/a.ipynb")))
    # The line that asks for them is not answered with the advice to write it.
    assert "kept, not applied" not in str(notebooks[2].run(f"%sandbox {options}"))
    notebooks[2].state.sandboxes.box(parse_cell(f"%sandbox {options}", CellOptions()).defaults)
    (note,) = notebooks[2].state.take_news()
    assert "is there again, not applied" in note
    notebooks[2].state.sandboxes.close()


@pytest.mark.slow
def test_rights_of_a_session_on_a_folder_can_be_taken_back(notebook: Notebook) -> None:
    notebook.run("%sandbox --here --env WHO=me\nkept = 41\nimport os")
    assert "%sandbox reset --here takes back everything else" in notebook.run("%sandbox reset")
    assert "lost WHO" in notebook.run("%sandbox reset --here")
    assert notebook.run("print(kept, 'WHO' in os.environ, 'rows.csv' in os.listdir('data'))") == "41 False True\n"


@pytest.mark.slow
def test_a_line_that_a_session_cannot_follow_is_refused_and_its_variables_stay(
    notebook: Notebook, project: Path
) -> None:
    notebook.run("kept = 41")
    for line in ("--here", "--mount data:/elsewhere", "--mount data:/data:rw", "--policy strict"):
        said = notebook.run(f"%sandbox {line}")
        assert "PolicyViolation" in said and "%sandbox restart --keep --" in said, said
    assert notebook.run("print(kept)") == "41\n"
    notebook.run("%sandbox restart")
    assert notebook.run("%sandbox --here\nimport os; print('data' in os.listdir('.'))") == "True\n"


def test_a_missing_file_beside_the_notebook_names_the_line_that_shows_it(notebook: Notebook) -> None:
    said = notebook.run("open('data/rows.csv')")
    assert "%sandbox --here" in said, said


@pytest.mark.slow
def test_undo_says_which_cell_it_took(notebook: Notebook) -> None:
    notebook.run("first = 1")
    notebook.run("second = 2")
    notebook.run("%sandbox --timeout 1s\nwhile True: pass")
    assert "rolled back when it was stopped" in notebook.run("%sandbox undo")
    assert notebook.run("%sandbox undo").startswith("took back cell [2]: second = 2")
    assert notebook.run("print(first, 'second' in globals())") == "1 False\n"


@pytest.mark.slow
def test_a_running_session_takes_its_variables_along_to_a_folder(notebook: Notebook) -> None:
    notebook.run("import json; kept = {'a': 41}; lines = (n for n in range(9)); open('left.txt', 'w').write('1')")
    said = notebook.run("%sandbox --here")
    assert "PolicyViolation" in said and "%sandbox restart --keep --here" in said, said
    said = notebook.run("%sandbox restart --keep --here")
    assert "has the variables of the one before" in said, said
    assert "lost: lines" in said or "made again by their cells: lines" in said
    assert "{'a': 41} a,b" in notebook.run("print(kept, open('data/rows.csv').read())")
    assert notebook.state.defaults.here == "."
    assert "left.txt" not in notebook.run("import os; print(os.listdir('.'))"), "the work folder is not the user's"


def test_a_session_that_cannot_bring_its_variables_along_goes_on(notebook: Notebook) -> None:
    notebook.run("%%sandbox bash\nkept=41")
    said = notebook.run("%sandbox restart bash --keep")
    assert "InvalidRequest" in said and "only those of Python sessions" in said
    assert "41" in notebook.run("%%sandbox bash\necho $kept")


def test_a_restart_under_wrong_options_leaves_the_session_as_it_is(notebook: Notebook) -> None:
    notebook.run("kept = 41")
    assert "/nowhere" in notebook.run("%sandbox restart --keep --python /nowhere/python")
    assert notebook.state.defaults == CellOptions()
    assert "41" in notebook.run("print(kept)")
    assert "takes a language or --session NAME" in notebook.run("%sandbox restart --here")


def test_save_does_not_take_the_name_of_a_file_for_that_of_a_session(notebook: Notebook) -> None:
    notebook.run("open('summary.csv', 'w').write('a')")
    assert "%sandbox files has a link" in notebook.run("%sandbox save summary.csv")


def test_a_line_follows_no_link_in_a_folder_that_an_earlier_line_gave_to_programs(
    notebook: Notebook, project: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret-of-the-user"
    secret.mkdir()
    (secret / "key").write_text("CANARY")
    (project / "planted").mkdir(exist_ok=True)
    notebook.run("%sandbox --policy build\nimport os")
    notebook.run(f"os.chdir({str(project)!r}); os.rename('planted', 'old'); os.symlink({str(secret)!r}, 'planted')")
    assert (project / "planted").is_symlink()
    said = notebook.run("%sandbox --mount planted:/data\nprint(open('/data/key').read())")
    assert "programs may write to" in said
    assert "CANARY" not in said
