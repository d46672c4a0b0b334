"""What a program on the command line lacked: asked about at a terminal, given for one more run, never asked elsewhere."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.loopback_server import QuietHandler, serving
from tests.test_cli import ROOT, cli

#: Clients inside ask the proxy for it, which they do not for 127.0.0.1.
HOST = "127.0.0.2"


class Fine(QuietHandler):
    """Answers everything with one word."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"reached")


def at_terminal(answer: bytes, *words: str) -> tuple[bytes, int]:
    """Run the command with a terminal, answer its first question, and return what it printed and its exit code."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "sandbox_kernel", "run", *words]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env) as child:
        os.close(theirs)
        said, answered = b"", False
        try:
            while part := os.read(ours, 1000):
                said += part
                if not answered and said.endswith(b"Enter: no. "):
                    os.write(ours, answer)
                    answered = True
        except OSError:
            pass  # the other end is closed
        code = child.wait(60)
    os.close(ours)
    return said, code


FETCH = """
import urllib.request
try:
    print(urllib.request.urlopen('http://127.0.0.2:{port}/', timeout=20).read().decode())
except OSError:
    print('caught')
"""


@pytest.mark.parametrize(("answer", "end"), [(b"allow\n", b"reached"), (b"\n", b"caught"), (b"y\n", b"caught")])
@pytest.mark.one_case
def test_a_refused_domain_is_offered_at_the_terminal(answer: bytes, end: bytes) -> None:
    with serving(Fine, host=HOST) as port:
        options = ("--allow-net", "example.org", "--allow-private", "127.0.0.2")
        said, code = at_terminal(answer, *options, "-c", FETCH.format(port=port))
    assert f"The program wanted to reach 127.0.0.2:{port}. Allow it and run the program again?".encode() in said
    assert code == 0 and said.count(b"caught") == 1 and (b"reached" in said) == (end == b"reached"), said
    assert (f"[runs again with --allow-net 127.0.0.2:{port}, for this run only]".encode() in said) == (
        answer == b"allow\n"
    )


def test_a_file_in_this_folder_is_offered_at_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("a,b")
    said, code = at_terminal(b"here\n", "-c", "print(open('rows.csv').read()[::-1])")
    assert code == 0 and b"b,a" in said and b"runs again with --here" in said, said


@pytest.mark.slow
def test_no_question_is_asked_where_nobody_can_answer() -> None:
    words = ("run", "--allow-net", "example.org", "-c", FETCH.format(port=9))
    for more in ((), ("--json",)):
        done = cli(*words[:1], *more, *words[1:])
        assert b"Enter: no" not in done.stderr and b"Enter: no" not in done.stdout
    said, _ = at_terminal(b"", "-q", *words[1:])
    assert b"Enter: no" not in said
