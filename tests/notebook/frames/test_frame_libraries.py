"""A library stands in a notebook once, and stays there when its cell runs again."""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
from collections.abc import Iterator

import pytest

from sandbox_kernel.notebook.execution import CellExecution, NotebookState
from sandbox_kernel.notebook.frames.frame_libraries import NotebookLibraries, cells_gone
from sandbox_kernel.notebook.render import ClearOutput, Door, Message, ShowOutput
from sandbox_kernel.receipt import MIME as RECEIPT
from sandbox_kernel.untrusted.frames.frame_output import FRAME, LIBRARY

A, B = "aa" * 32, "bb" * 32


def kept(*names: str) -> NotebookLibraries:
    libraries = NotebookLibraries()
    for name in names:
        assert libraries.take({LIBRARY: {"sha256": name, "title": "x"}, "text/html": "x"})
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

    def __init__(self) -> None:
        self.seen: list[str] = []

    def stream(self, name: str, text: str) -> None:
        self.seen.append(text)

    def message(self, message: Message) -> None:
        if isinstance(message, ClearOutput):
            self.seen.append("clear")
        else:
            data = getattr(message, "data", {})
            names = {LIBRARY: "library", FRAME: "frame", RECEIPT: "receipt"}
            self.seen += [name for mime, name in names.items() if mime in data]


async def no_input(prompt: str, password: bool) -> str:
    raise EOFError


@pytest.fixture
def state() -> Iterator[NotebookState]:
    opened = NotebookState()
    yield opened
    opened.close()


def run(state: NotebookState, cell: str, number: int, text: str) -> list[str]:
    """Run a cell as a page does that has the outputs of its last run removed; return what the page gets."""
    state.libraries.gone([cell])
    door = Listener()

    async def go() -> None:
        execution = CellExecution(state, door, no_input, asyncio.Event(), number, cell)  # type: ignore[arg-type]
        await execution.run(text)

    asyncio.run(go())
    return door.seen


def test_a_frame_does_not_wait_for_megabytes_that_the_page_has(state: NotebookState) -> None:
    run(state, "made", 1, SHOW)
    assert run(state, "one", 2, "figure()") == ["library", "frame", "receipt"]
    assert run(state, "two", 3, "figure()") == ["frame", "receipt"]
    assert run(state, "one", 4, "figure(); figure()") == ["frame", "frame", "library", "receipt"]
    assert run(state, "one", 5, "figure(); 1 / 0")[:2] == ["frame", "library"]


def test_a_loop_that_clears_its_figure_leaves_the_library_in_the_notebook(state: NotebookState) -> None:
    run(state, "made", 1, SHOW)
    loop = "for _ in range(2):\n    figure()\n    clear_output()\nfigure()"
    seen = run(state, "one", 2, loop)
    assert seen == ["library", "frame", "clear", "frame", "clear", "frame", "library", "receipt"]
