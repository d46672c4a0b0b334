"""An open file as standard input: as it comes where a backend can, to its end first where it must travel."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from sandbox_kernel.backends.process import ProcessBackend
from sandbox_kernel.backends.standard_input import read_to_end, unless_terminal
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.model import ExecRequest, Language


def test_a_terminal_is_not_read_and_everything_else_is(tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    read, write = os.pipe()
    try:
        assert unless_terminal(theirs) is None
        assert unless_terminal(None) is None
        assert unless_terminal(read) == read
    finally:
        for fd in (ours, theirs, read, write):
            os.close(fd)


def test_what_is_read_to_its_end_stays_open(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"x" * 300_000)
    with (tmp_path / "in").open("rb", buffering=0) as file:
        assert read_to_end(file.fileno()) == b"x" * 300_000
        assert file.read() == b""


def test_a_process_has_an_empty_input_and_asks_nobody() -> None:
    asked: list[str] = []

    def ask(prompt: str, password: bool) -> str:
        asked.append(prompt)
        return "never"

    backend = ProcessBackend()
    request = ExecRequest(language=Language.COMMAND, code="cat; echo done", timeout=20)
    assert asyncio.run(backend.execute(request, on_input=ask)).stdout == "done\n"
    assert asked == []
    with pytest.raises(InvalidRequest, match="on_input"):
        asyncio.run(backend.execute(request, on_input="me"))  # type: ignore[arg-type]
