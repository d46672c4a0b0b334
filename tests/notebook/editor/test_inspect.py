"""What a session says about a name is checked like an output, and not on the loop that answers everybody."""

from __future__ import annotations

import asyncio
import threading

import pytest

from sandbox_kernel.notebook import cell_requests
from sandbox_kernel.notebook.cell_requests import CellRequests
from sandbox_kernel.notebook.render import framed
from sandbox_kernel.untrusted import sanitize


class _Asked:
    """As much of a kernel as ``do_inspect`` needs, with a session whose answer is hostile."""

    def __init__(self, answer: dict[str, object]) -> None:
        self._answer = answer

    async def _ask_session(self, what: str, code: str, position: int, detail: int = 0) -> dict[str, object]:
        return self._answer


def _inspect(answer: dict[str, object]) -> dict[str, object]:
    reply: dict[str, object] = asyncio.run(CellRequests.inspect(_Asked(answer), "foo", 2))  # type: ignore[arg-type]
    return reply


def test_a_docstring_is_not_checked_on_the_loop_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []
    real = sanitize.sanitize_docstring

    def noted(data: object) -> sanitize.SanitizedBundle:
        threads.append(threading.current_thread())
        return real(data)

    monkeypatch.setattr(cell_requests, "sanitize_docstring", noted)
    assert _inspect({"text/plain": "words"})["data"] == {"text/plain": "words"}
    assert threads and threads[0] is not threading.main_thread()


@pytest.mark.attack("O01", "kernel")
def test_a_docstring_carries_no_markdown_and_no_bomb() -> None:
    assert _inspect({"text/markdown": "# x"})["data"] == {"text/html": framed("<h1>x</h1>\n")}
    bomb = "<b " + " ".join(f"a{number}=1" for number in range(60_000)) + ">"
    assert "not shown" in str(_inspect({"text/html": bomb})["data"])
    assert "more than 64 attributes" in str(_inspect({"text/html": f"{bomb[:100_000]}>"})["data"])
