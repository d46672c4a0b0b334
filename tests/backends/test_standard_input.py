"""An open file as standard input: as it comes where a backend can, to its end first where it must travel."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from sandbox_kernel.backends.checks import read_to_end, unless_terminal
from sandbox_kernel.backends.process import ProcessBackend
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


def test_who_cannot_be_asked_is_told_before_anything_runs() -> None:
    request = ExecRequest(language=Language.COMMAND, code="cat", timeout=20)
    with pytest.raises(InvalidRequest, match="on_input"):
        asyncio.run(ProcessBackend().execute(request, on_input="me"))  # type: ignore[arg-type]
