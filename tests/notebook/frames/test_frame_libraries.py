"""A library stands in a notebook once, and stays there when its cell runs again."""

import asyncio
import base64
import gzip
import hashlib
from collections.abc import Iterator, Mapping
from concurrent.futures import wait
from pathlib import Path

import nbformat
import pytest

from sandbox_kernel.notebook.execution import CellExecution, NotebookState
from sandbox_kernel.notebook.frames.frame_libraries import NotebookLibraries, cells_gone, with_libraries
from sandbox_kernel.notebook.render import ClearOutput, Door, Message, ShowOutput
from sandbox_kernel.receipt import MIME as RECEIPT
from sandbox_kernel.untrusted.frames.frame_output import FRAME, LIBRARY, SERVED_VARIABLE, packed_library

A, B = "aa" * 32, "bb" * 32


def kept(*names: str) -> NotebookLibraries:
    libraries = NotebookLibraries()
    for name in names:
        assert libraries.take({LIBRARY: {"sha256": name, "title": "x", "gzip": ""}})
    return libraries


def shown(libraries: NotebookLibraries, cell: str, *names: str) -> list[str]:
    frame = {FRAME: {"html": "", "libraries": list(names)}}
    return [name_of(message) for message in libraries.before(frame, cell)]


def at_the_end(libraries: NotebookLibraries, cell: str) -> list[str]:
    return [name_of(message) for message in libraries.after(cell)]


def name_of(message: ShowOutput) -> str:
    entry = message.data[LIBRARY]
    assert isinstance(entry, dict)
    return str(entry["sha256"])


def test_the_first_frame_brings_the_library_and_later_ones_do_not() -> None:
    libraries = kept(A, B)
    assert shown(libraries, "one 1", A) == [A]
    assert shown(libraries, "one 1", A) == []
    assert shown(libraries, "two 2", A, B) == [B]


def test_the_library_of_a_title_is_made_once_however_many_a_program_sends() -> None:
    made: list[str] = []
    libraries = NotebookLibraries(made.append)
    for number in range(20):
        for title in ("plotly", "widget a"):
            libraries.take({LIBRARY: {"sha256": f"{number:064}", "title": title, "gzip": ""}})
    wait(libraries.making())
    assert made == ["plotly", "widget a"]


@pytest.mark.parametrize("metadata", [{"cellId": "one"}, {"cellId": "two", "deletedCells": ["one", 3]}], ids=str)
def test_a_library_is_brought_again_when_the_cell_that_held_it_goes(metadata: dict[str, object]) -> None:
    libraries = kept(A)
    assert shown(libraries, "one 1", A) == [A]
    assert shown(libraries, "two 2", A) == []
    libraries.gone(cells_gone(metadata))
    shown(libraries, "two 3", A)
    assert at_the_end(libraries, "two 3") == [A]
    assert shown(libraries, "one 4", A) == []
    assert at_the_end(libraries, "one 4") == []


def test_cells_without_an_id_do_not_bring_it_again() -> None:
    libraries = kept(A)
    assert [shown(libraries, f" {number}", A) for number in (1, 2)] == [[A], []]


def test_other_displays_are_neither_kept_nor_wait_for_anything() -> None:
    libraries = kept()
    assert not libraries.take({"text/plain": "x"})
    assert libraries.before({"text/plain": "x"}, "one 1") == []
    assert shown(libraries, "one 1", A) == []


SOURCE = b"window.drawn = true;"
NAME = hashlib.sha256(SOURCE).hexdigest()
PACKED = base64.b64encode(gzip.compress(SOURCE)).decode()
SHOW = f"""from IPython.display import clear_output, display
display({{"{LIBRARY}": {{"sha256": "{NAME}", "title": "x", "gzip": "{PACKED}"}}}}, raw=True)
def figure():
    display({{"{FRAME}": {{"html": "<b>x</b>", "libraries": ["{NAME}"]}}}}, raw=True)
"""


class Listener(Door):
    """A page that listens."""

    def __init__(self, *, is_page: bool = False) -> None:
        self.is_page = is_page
        self.seen: list[str] = []
        self.told: list[str] = []
        self.data: list[Mapping[str, object]] = []

    def stream(self, name: str, text: str) -> None:
        self.seen.append(text)

    def library(self, made: Mapping[str, object]) -> None:
        self.told.append(str(made["title"]))

    def watched(self) -> bool:
        return self.is_page

    def message(self, message: Message) -> None:
        if isinstance(message, ClearOutput):
            self.seen.append("clear")
        else:
            data = getattr(message, "data", {})
            self.data.append(data)
            names = {LIBRARY: "library", FRAME: "frame", RECEIPT: "receipt"}
            self.seen += [name for mime, name in names.items() if mime in data]


async def no_input(prompt: str, password: bool) -> str:
    raise EOFError


@pytest.fixture
def state() -> Iterator[NotebookState]:
    opened = NotebookState()
    yield opened
    opened.close()


def run(state: NotebookState, cell: str, number: int, text: str, door: Listener | None = None) -> list[str]:
    """Run a cell as a page does that has the outputs of its last run removed; return what the page gets."""
    state.libraries.gone([cell])
    door = door or Listener()

    async def go() -> None:
        execution = CellExecution(state, door, no_input, asyncio.Event(), number, cell)  # type: ignore[arg-type]
        await execution.run(text)

    asyncio.run(go())
    return door.seen


def test_a_frame_does_not_wait_for_megabytes_that_the_page_has(state: NotebookState) -> None:
    run(state, "made", 1, SHOW)
    assert run(state, "one", 2, "figure()") == ["frame", "library", "receipt"]
    assert run(state, "two", 3, "figure()") == ["frame", "receipt"]
    assert run(state, "one", 4, "figure(); figure()") == ["frame", "frame", "library", "receipt"]
    assert run(state, "one", 5, "figure(); 1 / 0")[:2] == ["frame", "library"]


def test_a_loop_that_clears_its_figure_leaves_the_library_in_the_notebook(state: NotebookState) -> None:
    run(state, "made", 1, SHOW)
    loop = "for _ in range(2):\n    figure()\n    clear_output()\nfigure()"
    seen = run(state, "one", 2, loop)
    assert seen == ["frame", "clear", "frame", "clear", "frame", "library", "receipt"]


USE = f"""from IPython.display import display
from sandbox_guest.python.interactive.widgets import LIBRARIES
display({{"{FRAME}": {{"html": "<b>x</b>", "libraries": [LIBRARIES.named("ipywidgets")]}}}}, raw=True)
"""


@pytest.fixture
def own_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "sandbox-kernel" / "libraries"


@pytest.mark.slow
@pytest.mark.parametrize("served", [True, False], ids=["with our extension", "without"])
def test_code_that_this_machine_can_make_again_is_told_and_not_saved(
    state: NotebookState, own_store: Path, monkeypatch: pytest.MonkeyPatch, served: bool
) -> None:
    monkeypatch.setenv(SERVED_VARIABLE, "1" if served else "")
    page = Listener(is_page=True)
    library = [] if served else ["library"]
    assert run(state, "one", 1, USE, page) == [*library, "frame", "receipt"]
    assert page.told == (["ipywidgets"] if served else [])
    wait(state.libraries.making())
    [name] = [file.name for file in own_store.iterdir()]
    packed = packed_library(name)
    assert packed is not None
    assert hashlib.sha256(gzip.decompress(packed)).hexdigest() == name


def test_a_small_cell_waits_for_no_library_and_no_other_thread(
    state: NotebookState, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("done_before", "_in_thread"):
        monkeypatch.delattr(f"sandbox_kernel.notebook.execution.{name}")
    assert run(state, "one", 1, "x = 1") == ["receipt"]


@pytest.mark.slow
def test_the_notebook_holds_the_code_where_that_is_asked_for(state: NotebookState, own_store: Path) -> None:
    assert run(state, "one", 1, USE) == ["frame", "receipt"]
    assert run(state, "two", 2, f"%sandbox --self-contained\n{USE}") == ["frame", "library", "receipt"]
    assert run(state, "three", 3, USE) == ["frame", "receipt"]


@pytest.mark.slow
def test_an_export_has_the_code_that_a_batch_run_only_names(state: NotebookState, own_store: Path) -> None:
    door = Listener()
    assert run(state, "", 1, USE, door) == ["frame", "receipt"]
    outputs = [nbformat.v4.new_output("display_data", data=dict(data)) for data in door.data]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("", outputs=outputs)])
    assert len(str(notebook)) < 10_000
    made, _ = with_libraries(notebook, {})
    html = made.cells[0].outputs[0].data["text/html"]
    assert html.count("&quot;keep&quot;") == 1
    assert html.count("<iframe") == 2


@pytest.mark.slow
def test_code_that_a_program_chose_never_comes_into_the_store(state: NotebookState, own_store: Path) -> None:
    run(state, "made", 1, SHOW.replace('"title": "x"', '"title": "ipywidgets"'))
    assert run(state, "one", 2, "figure()") == ["frame", "library", "receipt"]
    assert NAME not in [file.name for file in own_store.iterdir()]
    assert packed_library(NAME) is None
