"""Frames, libraries and receipts of a cell: in which order a page gets them."""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
from collections.abc import Iterator

import pytest

from sandbox_kernel.notebook.execution import CellExecution, NotebookState
from sandbox_kernel.notebook.render import ClearOutput, Message
from sandbox_kernel.receipt import MIME as RECEIPT
from sandbox_kernel.untrusted.frames.frame_output import FRAME, LIBRARY

SOURCE = b"window.drawn = true;"
NAME = hashlib.sha256(SOURCE).hexdigest()
PACKED = base64.b64encode(gzip.compress(SOURCE)).decode()
SHOW = f"""from IPython.display import clear_output, display
display({{"{LIBRARY}": {{"sha256": "{NAME}", "title": "x", "gzip": "{PACKED}"}}}}, raw=True)
def figure():
    display({{"{FRAME}": {{"html": "<b>x</b>", "libraries": ["{NAME}"]}}}}, raw=True)
"""


class Door:
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

    def live(self, timeout_s: float, stop: object) -> None:
        return None

    def watched(self) -> bool:
        return False

    def late(self, messages: object) -> None:
        return None


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
    door = Door()

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
