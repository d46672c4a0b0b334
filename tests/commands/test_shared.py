"""Output of ``sandbox-kernel run`` on a terminal and in a pipe."""

import contextlib
import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sandbox_kernel.commands.shared import ask, say, show_patch
from tests.test_cli import ROOT

CODE = r"print('\x1b]52;c;AAAA\x07one \x1b[31mred\x1b[0m \x1b[2Jtwo\x1b[', end='')"


def at_terminal(answer: bytes, *words: str) -> tuple[bytes, int]:
    """Run the command with a terminal, answer its first question, and return what it printed and its exit code."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "sandbox_kernel", "run", *words]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env) as child:
        os.close(theirs)
        said, answered = b"", False
        with contextlib.suppress(OSError):  # the other end is closed
            while part := os.read(ours, 1000):
                said += part
                if not answered and said.endswith(b"Enter: no. "):
                    os.write(ours, answer)
                    answered = True
        code = child.wait(60)
    os.close(ours)
    return said, code


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


#: A program that hides what follows it, and asks a question of its own.
HIDING = "open('n.txt', 'w').write('1'); print('all is well \\u25a3 [ok] tips? [y/N] \\x1b[8m\\x1b[37;47m\\r', end='')"


def test_our_lines_and_questions_stand_on_lines_of_their_own_in_no_colour_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said, _ = at_terminal(b"y\n", "--here", "-c", HIDING)
    text = said.decode()
    assert "\x1b[8m" not in text and text.count("\u25a3") == text.count("\n\x1b[0m\u25a3 ") >= 2, text
    shown, _, ours = text.partition("\n\x1b[0m\u25a3 ")
    assert "\x1b[37;47m\x1b[49m\r\x1b[0m" in shown and "tips? [y/N]" in shown and "\u25a1 [ok]" in shown
    assert re.search(r"\x1b\[0m\u25a3 1 file changed\. Apply\? Type apply or diff; Enter: no\. ", ours)
    assert not (tmp_path / "n.txt").exists()


def test_a_line_that_quotes_a_program_is_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    say("[refused a\x1b[8m\u202e\u25a3\n[ok]]")
    assert capsys.readouterr().err == "[refused a\ufffd[8m\ufffd\u25a1\n  [ok]]\n"


def test_a_patch_shows_every_sign_at_a_terminal_and_is_unchanged_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    show_patch("+a\x1b[8mb\r\n", sys.stdout)
    assert capsys.readouterr().out == "+a\x1b[8mb\r\n"
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal:
        show_patch("+a\x1b[8mb\r\n", terminal)
        assert os.read(ours, 100).decode() == "+a\ufffd[8mb\ufffd\r\n"
    os.close(ours)


def test_what_was_typed_before_a_question_does_not_answer_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()

    def answer() -> None:
        said = b""
        while not said.endswith(b"Enter: no. "):
            said += os.read(ours, 1000)
        os.write(ours, b"\n")

    with open(theirs, closefd=False) as typed, open(theirs, "w") as shown:
        monkeypatch.setattr(sys, "stdin", typed)
        monkeypatch.setattr(sys, "stderr", shown)
        os.write(ours, b"apply\n")
        os.read(ours, 100)  # the terminal has taken it in, and shows it
        user = threading.Thread(target=answer)
        user.start()
        assert ask("Apply?", "apply") == ""
        user.join()
    os.close(ours)
