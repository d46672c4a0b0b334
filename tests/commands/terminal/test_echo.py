"""Output of ``sandbox-kernel run`` on a terminal and in a pipe."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

CODE = r"print('\x1b]52;c;AAAA\x07one \x1b[31mred\x1b[0m \x1b[2Jtwo\x1b[', end='')"


def run(stdout: int) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "sandbox_kernel", "run", "--quiet", "-c", CODE]
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=stdout, check=True, timeout=60)


def test_a_program_cannot_drive_the_terminal_of_its_caller_and_keeps_its_colours() -> None:
    ours, theirs = pty.openpty()
    try:
        run(theirs)
        seen = os.read(ours, 4096)
    finally:
        os.close(ours)
        os.close(theirs)
    assert seen == b"one \x1b[31mred\x1b[0m two"


def test_what_is_redirected_is_the_text_of_the_program_itself() -> None:
    assert run(subprocess.PIPE).stdout == b"\x1b]52;c;AAAA\x07one \x1b[31mred\x1b[0m \x1b[2Jtwo\x1b["
